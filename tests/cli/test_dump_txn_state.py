"""`dump --records` shows how the transaction of each record ended, as `read_records` does."""

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

import kafka_forensics as kf
from tests.cli.runs import Run
from tests.support.brokers import put_segment
from tests.support.logs import OTHER_ID, DataLog
from tests.support.segments import batch, flip_bit, segment_file

EXPECTED = ["committed"] * 2 + ["aborted"] * 2 + ["none"] * 2 + ["open"] * 2 + ["none"]


def put_log(root: Path, *later: int, damaged: int | None = None, name: str = segment_file(0)) -> Path:
    """Write a log: [0, 2) is committed at 4, [2, 4) of another producer aborted at 5, [6, 8) open, 8 in no transaction."""
    log = DataLog()
    log.data(0)
    log.data(0, OTHER_ID)
    log.marker(1, commit=True)
    log.marker(1, commit=False, producer_id=OTHER_ID)
    log.data(2)
    log.plain(1)
    parts = [flip_bit(batch.data, 70) if number == damaged else batch.data for number, batch in enumerate(log.batches)]
    directory = root / "t-0"
    directory.mkdir(parents=True)
    (directory / name).write_bytes(b"".join(parts))
    for offset in later:
        put_segment(directory, offset, batch(offset))
    return directory / name


def states(run: Run, path: Path, *options: str) -> list[str]:
    rows = json.loads(run("dump", path, "--records", "--format", "json", *options)[1])
    return [row["txn_state"] for row in rows if row["span"] == "record"]


def test_every_record_has_the_state_that_read_records_gives(run: Run, tmp_path: Path) -> None:
    path = put_log(tmp_path)
    assert states(run, path) == EXPECTED
    assert pa.Table.from_batches(kf.read_records(str(path)))["txn_state"].to_pylist() == EXPECTED
    assert states(run, path, "--offset", "3..6") == EXPECTED[3:7]
    table_words = run("dump", path, "--records", "--format", "text")[1].split()
    assert [after for before, after in pairwise(table_words) if before == "transaction"] == [
        state for state in EXPECTED if state != "none"
    ]
    heading, *lines = (line.split("\t") for line in run("dump", path, "--records", "--format", "tsv")[1].splitlines())
    assert [line[heading.index("txn_state")] for line in lines] == EXPECTED


def test_transactions_that_a_later_segment_may_end_are_unknown(run: Run, tmp_path: Path) -> None:
    unknown = [{"open": "unknown"}.get(state, state) for state in EXPECTED]
    path = put_log(tmp_path, 9)
    assert states(run, path) == unknown
    assert states(run, path.parent)[:9] == unknown
    assert states(run, put_log(tmp_path / "b", name=segment_file(0, "log.deleted")).parent) == unknown


def test_records_of_a_damaged_batch_and_those_before_it_are_unknown(run: Run, tmp_path: Path) -> None:
    assert states(run, put_log(tmp_path, damaged=1)) == ["unknown"] * 4 + EXPECTED[4:]
    assert states(run, put_log(tmp_path / "last", damaged=5))[-1] == "unknown"
