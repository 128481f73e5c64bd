"""`dump --records` tells how each record's transaction ended, as `read_records` does, in every format."""

import io
import json
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from tests.support.segments import batch, flipped
from tests.support.transaction_logs import OTHER_ID, DataLog

Run = Callable[..., str]

EXPECTED = ["committed"] * 2 + ["aborted"] * 2 + ["none"] * 2 + ["open"] * 2 + ["none"]


def segment(*, broken: int | None = None) -> bytes:
    """[0, 2) committed at 4, [2, 4) of another producer aborted at 5, [6, 8) open, 8 without transaction."""
    log = DataLog()
    log.data(0)
    log.data(0, OTHER_ID)
    log.marker(1, commit=True)
    log.marker(1, commit=False, producer_id=OTHER_ID)
    log.data(2)
    log.plain(1)
    parts = [one.data for one in log.batches]
    if broken is not None:
        parts[broken] = flipped(parts[broken], 70)
    return b"".join(parts)


def written(root: Path, data: bytes, *later: int, name: str = f"{0:020d}.log") -> Path:
    directory = root / "t-0"
    directory.mkdir(parents=True)
    (directory / name).write_bytes(data)
    for offset in later:
        (directory / f"{offset:020d}.log").write_bytes(batch(offset))
    return directory / name


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def started(path: Path, format_name: str, *options: str) -> str:
        assert outcome(["dump", str(path), "--records", "--format", format_name, *options]) == 0
        return capsys.readouterr().out

    return started


def states(run: Run, path: Path, *options: str) -> list[str]:
    rows = [json.loads(line) for line in run(path, "jsonl", *options).splitlines()]
    return [row["txn_state"] for row in rows if row["span"] == "record"]


def test_every_record_has_the_state_that_read_records_gives(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, segment())
    assert states(run, path) == EXPECTED
    assert pa.Table.from_batches(kf.read_records(str(path)))["txn_state"].to_pylist() == EXPECTED
    assert states(run, path, "--offset", "3:7") == EXPECTED[3:7]


def test_what_a_later_file_may_say_is_unknown(run: Run, tmp_path: Path) -> None:
    unknown = [{"open": "unknown"}.get(one, one) for one in EXPECTED]
    path = written(tmp_path, segment(), 9)
    assert states(run, path) == unknown
    assert states(run, path.parent)[:9] == unknown
    leftover = written(tmp_path / "b", segment(), name=f"{0:020d}.log.deleted")
    assert states(run, leftover.parent) == unknown


def test_an_archive_tells_the_same(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "copy.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for offset, data in ((0, segment()), (9, batch(9))):
            member = tarfile.TarInfo(f"b1/t-0/{offset:020d}.log")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    assert states(run, path)[:9] == [{"open": "unknown"}.get(one, one) for one in EXPECTED]


def test_records_of_a_broken_batch_and_those_before_it_are_unknown(run: Run, tmp_path: Path) -> None:
    assert states(run, written(tmp_path, segment(broken=1))) == ["unknown"] * 4 + EXPECTED[4:]
    assert states(run, written(tmp_path / "last", segment(broken=5)))[-1] == "unknown"


def test_every_format_shows_it(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, segment())
    heading, *lines = (line.split("\t") for line in run(path, "tsv").splitlines())
    assert [line[heading.index("txn_state")] for line in lines] == EXPECTED
    assert [row["txn_state"] for row in json.loads(run(path, "json"))] == EXPECTED
    assert "| txn\\_state |" in run(path, "markdown")
    words = run(path, "table").split()
    told = [after for before, after in pairwise(words) if before == "transaction"]
    assert told == [one for one in EXPECTED if one != "none"]
