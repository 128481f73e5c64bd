"""Parts of a log give together what the whole gives, wherever it is cut and whatever has happened to its bytes."""

import re
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.errors import FormatError, SourceError, UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts import spans as facts_spans, splits as fact_splits
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.facts.read import read_task
from kafka_forensics.export.facts.rows import FactQuery
from kafka_forensics.export.facts.splits import decode, plan_tasks
from kafka_forensics.model.results import ScanResult, Totals
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.scanning.engine.work_plan import FILE_COST_BYTES
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from tests.support.brokers import put_segment
from tests.support.logs import APP_ID, OTHER_ID, DataLog
from tests.support.segments import BASE_TIMESTAMP, batch, segment_file, write_offset_index, write_time_index
from tests.support.strategies import batch_lists

LOG_FACTS = ("batches", "records", "spans", "control_records")
NUMBERS = count()


def query(fact: str, **limits: object) -> FactQuery:
    return FactQuery(fact, tuple(FACTS[fact].schema.names), **limits)  # type: ignore[arg-type]


def in_parts(path: Path, asked: FactQuery) -> tuple[list[str], int]:
    """Rows in the order of tasks, and the number of tasks."""
    tasks = plan_tasks([str(path)], asked)
    return [repr(row) for task in tasks for batch in read_task(task, asked) for row in batch.to_pylist()], len(tasks)


def in_parts_that_meet(path: Path, fact: str, split_bytes: int) -> list[str]:
    """Rows in the order of tasks, of larger parts where a refusal names them: each names more than was asked for."""
    while True:
        try:
            return in_parts(path, query(fact, split_bytes=split_bytes))[0]
        except SourceError as error:
            named = re.search(r"do not meet.*split_bytes=(\d+)", error.reason)
            assert named is not None
            assert int(named[1]) > split_bytes
            split_bytes = int(named[1])


def whole(path: Path, fact: str) -> list[str]:
    options = ScanOptions()
    result = ScanResult("local", [], [], [], Totals(records_decoded=True), [])
    reader = FactReader(gather([str(path)], options), options, result, Witnesses(), lambda finding: (finding.kind, None))
    return [repr(row) for row in reader.table(fact).to_pylist()]


def put(folder: Path, batches: list[bytes], *, every: int = 1) -> Path:
    """A partition directory with one segment and its indexes."""
    partition = folder / "t-0"
    put_segment(partition, 0, batches)
    positions = [sum(map(len, batches[:number])) for number in range(len(batches))]
    offsets = [(int.from_bytes(one[:8], "big"), place) for one, place in zip(batches, positions, strict=True)][1::every]
    put_segment(partition, 0, write_offset_index(offsets, 0), "index")
    times = [(BASE_TIMESTAMP + offset, offset) for offset, _ in offsets]
    put_segment(partition, 0, write_time_index(times, 0), "timeindex")
    return partition


@st.composite
def transactions(draw: st.DrawFn) -> list[bytes]:
    """Batches of two producers in transactions, some ended, some not."""
    log = DataLog()
    for number in range(draw(st.integers(1, 12))):
        producer = draw(st.sampled_from([APP_ID, OTHER_ID]))
        what = draw(st.integers(0, 3))
        if what == 0:
            log.plain(number)
        elif what == 1:
            log.marker(number, commit=draw(st.booleans()), producer_id=producer)
        else:
            log.data(number, producer)
    return [one.data for one in log.batches]


@pytest.fixture(autouse=True, scope="module")
def _spans_are_short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts_spans, "SPAN_BYTES", 256)
        patch.setattr(fact_splits, "SPAN_BYTES", 256)
        yield


@given(st.data())
def test_parts_of_any_log_are_the_whole(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / f"parts-{next(NUMBERS)}"
    batches = data.draw(st.one_of(transactions(), batch_lists(max_size=12)))
    log = put(folder, batches, every=data.draw(st.integers(1, 3))) / segment_file(0)
    changed = bytearray(log.read_bytes())
    for _ in range(data.draw(st.integers(0, 3)) if changed else 0):
        start = data.draw(st.integers(0, len(changed) - 1))
        noise = data.draw(st.one_of(st.binary(min_size=1, max_size=200), st.integers(1, 400).map(bytes)))
        changed[start : start + len(noise)] = noise[: len(changed) - start]
    log.write_bytes(changed)
    for fact in LOG_FACTS:
        rows = in_parts_that_meet(folder, fact, data.draw(st.sampled_from([128, 200, 500, 1000])))
        expected = whole(folder, fact)
        assert rows == expected or (fact == "spans" and sorted(rows) == sorted(expected))
    shutil.rmtree(folder)


def test_a_transaction_that_ends_in_another_part_is_known(tmp_path: Path) -> None:
    log = DataLog()
    log.data(0)
    for number in range(20):
        log.plain(number)
    log.marker(1, commit=False)
    folder = put(tmp_path, [one.data for one in log.batches])
    fact_query = query("records", split_bytes=500)
    rows, tasks = in_parts(folder, fact_query)
    assert tasks > 5
    assert rows == whole(folder, "records")
    assert "'aborted'" in rows[0]


def test_parts_that_do_not_meet_are_an_error(tmp_path: Path) -> None:
    inner = b"".join(batch(offset, value=bytes(30)) for offset in range(1, 30))
    outer = [batch(0), batch(1, value=inner), *(batch(offset) for offset in range(2, 30))]
    folder = put(tmp_path, outer)
    start = len(outer[0]) + outer[1].index(inner)
    size = len(batch(1, value=bytes(30)))
    lies = [(offset, start + (offset - 1) * size) for offset in range(1, 30)]
    put_segment(folder, 0, write_offset_index(lies, 0), "index")
    end = start + len(inner)
    fact_query = query("batches", split_bytes=end - 200)
    with pytest.raises(SourceError, match=r"do not meet.*split_bytes="):
        in_parts(folder, fact_query)
    assert in_parts(folder, query("batches", split_bytes=1 << 20))[0] == whole(folder, "batches")


def test_small_files_share_a_task_and_large_ones_do_not(tmp_path: Path) -> None:
    put(tmp_path / "many", [batch(offset, value=bytes(500)) for offset in range(200)])
    log_dir = tmp_path / "many"
    for number in range(1, 50):
        shutil.copytree(log_dir / "t-0", log_dir / f"t-{number}")
    one_file = 200 * len(batch(0, value=bytes(500)))
    tasks = plan_tasks([str(log_dir)], query("batches", split_bytes=FILE_COST_BYTES * 10 + one_file * 10))
    assert 5 <= len(tasks) <= 6
    tasks = plan_tasks([str(log_dir)], query("batches", split_bytes=one_file // 4))
    assert len(tasks) == 200
    pieces = [piece for task in tasks for piece in decode(task)[0]]
    assert {piece.partition for piece in pieces} == set(range(50))


def test_what_options_rule_out_is_not_listed_for_reading(tmp_path: Path) -> None:
    for topic in ("orders", "audit"):
        put(tmp_path / topic, [batch(offset) for offset in range(20)])
        shutil.move(tmp_path / topic / "t-0", tmp_path / f"{topic}-0")
        shutil.copytree(tmp_path / f"{topic}-0", tmp_path / f"{topic}-7")
        (tmp_path / topic).rmdir()
    put_segment(tmp_path / "orders-0", 20, batch(20))

    def files(**limits: object) -> set[str]:
        tasks = plan_tasks([str(tmp_path)], query("batches", **limits))
        return {segment.log.path for task in tasks for piece in decode(task)[0] for segment in piece.segments if segment.log}

    assert files(topics=("ord*",), partitions=((0, 3),)) == {f"orders-0/{segment_file(0)}", f"orders-0/{segment_file(20)}"}
    assert files(topics=("orders",), offset_from=20, partitions=((0, 0),)) == {f"orders-0/{segment_file(20)}"}
    assert files(topics=("orders",), offset_to=20, partitions=((0, 0),)) == {f"orders-0/{segment_file(0)}"}
    for limits, words in (
        ({"topics": ("odrers",)}, "nothing fits topics=odrers"),
        ({"partitions": ((3, 4),)}, "nothing fits partitions=3-4"),
        ({"brokers": ("9",)}, "nothing fits brokers=9"),
    ):
        with pytest.raises(UsageError, match=words):
            files(**limits)


@pytest.mark.parametrize("fact", ["batches", "records", "control_records"])
def test_offsets_and_times_choose_rows(tmp_path: Path, fact: str) -> None:
    log = DataLog()
    for number in range(60):
        log.data(number, count=1)
        log.marker(number, commit=True)
    folder = put(tmp_path, [one.data for one in log.batches], every=4)
    rows = [
        row for task in plan_tasks([str(folder)], query(fact)) for some in read_task(task, query(fact)) for row in some.to_pylist()
    ]
    first, last, time = ("base_offset", "last_offset", "max_timestamp") if fact == "batches" else ("offset", "offset", "timestamp")
    middle = sorted(row[time] for row in rows)[len(rows) // 2]
    for limits in (
        {"offset_from": 51, "offset_to": 70},
        {"timestamp_from": middle},
        {"timestamp_to": middle},
        {"offset_from": 30, "timestamp_from": middle, "split_bytes": 400},
        {"offset_from": 40, "offset_to": 80, "split_bytes": 1000},
    ):
        expected = [
            repr(row)
            for row in rows
            if row[last] >= limits.get("offset_from", 0)
            and row[first] < limits.get("offset_to", 1 << 60)
            and limits.get("timestamp_from", 0) <= row[time] < limits.get("timestamp_to", 1 << 60)
        ]
        assert 0 < len(expected) < len(rows)
        assert in_parts(folder, query(fact, **limits))[0] == expected


def test_strict_stops_at_the_first_bad_byte_and_report_goes_on(tmp_path: Path) -> None:
    batches = [batch(offset) for offset in range(20)]
    folder = put(tmp_path, batches)
    log = folder / segment_file(0)
    place = len(batches[0]) * 7
    log.write_bytes(log.read_bytes()[: place + 70] + b"\xff" + log.read_bytes()[place + 71 :])
    for fact in LOG_FACTS:
        with pytest.raises(FormatError, match=rf"{log.name}: BATCH_CRC_MISMATCH at byte {place}"):
            in_parts(folder, query(fact, strict=True))
        assert in_parts(folder, query(fact))[0] == whole(folder, fact)
    with (folder / segment_file(0, "index")).open("ab") as index:
        index.write(b"odd")
    with pytest.raises(FormatError, match=r"0.index: "):
        in_parts(folder, query("index_entries", strict=True))
    with pytest.raises(UsageError, match="on_corrupt=strict does not apply to the fact findings"):
        query("findings", strict=True)
    with pytest.raises(UsageError, match="offset_from does not apply to the fact spans"):
        query("spans", offset_from=3)


def test_what_is_gone_or_shorter_by_now_is_an_error_with_its_path(tmp_path: Path) -> None:
    folder = put(tmp_path, [batch(offset) for offset in range(20)])
    log = folder / segment_file(0)
    fact_query = query("records")
    (task,) = plan_tasks([str(folder)], fact_query)
    log.write_bytes(log.read_bytes()[:100])
    with pytest.raises(SourceError, match=rf"{log}: has 100 bytes now"):
        list(read_task(task, fact_query))
    log.unlink()
    with pytest.raises(SourceError, match=rf"{log}: no such file"):
        list(read_task(task, fact_query))
