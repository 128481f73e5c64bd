"""Tasks that read parts of a log together give the rows of the whole log, for any division and any damage."""

import os
import re
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from kafka_forensics.errors import FormatError, SourceError, UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts import log as facts_log, spans as facts_spans, splits as fact_splits
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.facts.read import read_task
from kafka_forensics.export.facts.rows import FactQuery
from kafka_forensics.export.facts.splits import decode, plan_tasks
from kafka_forensics.model.results import ScanResult, Totals
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.scanning.engine.work_plan import FILE_COST_BYTES
from kafka_forensics.scanning.rereading.record_columns import record_arrays
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from kafka_forensics.storage.source import ByteFile
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch
from tests.support.brokers import put_segment
from tests.support.logs import APP_ID, OTHER_ID, DataLog
from tests.support.segments import BASE_TIMESTAMP, batch, replace_bytes, segment_file, write_offset_index, write_time_index
from tests.support.strategies import batch_lists
from tests.support.times import ms_of

LOG_FACTS = ("batches", "records", "spans", "control_records")
FOLDER_NUMBERS = count()


def query(fact: str, **limits: object) -> FactQuery:
    return FactQuery(fact, tuple(FACTS[fact].schema.names), **limits)  # type: ignore[arg-type]


def read_in_tasks(path: Path, fact_query: FactQuery) -> tuple[list[str], int]:
    """Rows in the order of tasks, and the number of tasks."""
    tasks = plan_tasks([str(path)], fact_query)
    return [repr(row) for task in tasks for batch in read_task(task, fact_query) for row in batch.to_pylist()], len(tasks)


def read_with_larger_splits(path: Path, fact: str, split_bytes: int) -> list[str]:
    """Rows in the order of tasks; while parts do not meet, the `split_bytes` that the error names is tried."""
    while True:
        try:
            return read_in_tasks(path, query(fact, split_bytes=split_bytes))[0]
        except SourceError as error:
            hint = re.search(r"do not meet.*split_bytes=(\d+)", error.reason)
            assert hint is not None
            assert int(hint[1]) > split_bytes
            split_bytes = int(hint[1])


def read_whole(path: Path, fact: str) -> list[str]:
    options = ScanOptions()
    result = ScanResult("local", [], [], [], Totals(records_decoded=True), [])
    reader = FactReader(
        gather([str(path)], options), options, result, Witnesses(), lambda finding: (finding.kind, None), payloads=True
    )
    return [repr(row) for row in reader.table(fact).to_pylist()]


def put_partition(folder: Path, batches: list[bytes], *, index_interval: int = 1) -> Path:
    """Write a partition directory with one segment, and indexes with an entry for every n-th batch."""
    partition = folder / "t-0"
    put_segment(partition, 0, batches)
    positions = [sum(map(len, batches[:number])) for number in range(len(batches))]
    offsets = [int.from_bytes(data[:8], "big") for data in batches]
    entries = list(zip(offsets, positions, strict=True))[1::index_interval]
    put_segment(partition, 0, write_offset_index(entries, 0), "index")
    times = [(BASE_TIMESTAMP + offset, offset) for offset, _ in entries]
    put_segment(partition, 0, write_time_index(times, 0), "timeindex")
    return partition


@st.composite
def transactions(draw: st.DrawFn) -> list[bytes]:
    """Batches of two transactional producers; some transactions end."""
    log = DataLog()
    for number in range(draw(st.integers(1, 12))):
        producer = draw(st.sampled_from([APP_ID, OTHER_ID]))
        action = draw(st.integers(0, 3))
        if action == 0:
            log.plain(number)
        elif action == 1:
            log.marker(number, commit=draw(st.booleans()), producer_id=producer)
        else:
            log.data(number, producer)
    return [log_batch.data for log_batch in log.batches]


@pytest.fixture(autouse=True, scope="module")
def _short_spans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts_spans, "SPAN_BYTES", 256)
        patch.setattr(fact_splits, "SPAN_BYTES", 256)
        yield


@given(st.data())
def test_tasks_give_the_rows_of_any_log(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / f"parts-{next(FOLDER_NUMBERS)}"
    batches = data.draw(st.one_of(transactions(), batch_lists(max_size=12)))
    log = put_partition(folder, batches, index_interval=data.draw(st.integers(1, 3))) / segment_file(0)
    content = bytearray(log.read_bytes())
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        start = data.draw(st.integers(0, len(content) - 1))
        damage = data.draw(st.one_of(st.binary(min_size=1, max_size=200), st.integers(1, 400).map(bytes)))
        content[start : start + len(damage)] = damage[: len(content) - start]
    log.write_bytes(content)
    for fact in LOG_FACTS:
        rows = read_with_larger_splits(folder, fact, data.draw(st.sampled_from([128, 200, 500, 1000])))
        expected = read_whole(folder, fact)
        assert rows == expected or (fact == "spans" and sorted(rows) == sorted(expected))
    shutil.rmtree(folder)


def test_a_transaction_that_ends_in_another_task_has_its_outcome(tmp_path: Path) -> None:
    log = DataLog()
    log.data(0)
    for number in range(20):
        log.plain(number)
    log.marker(1, commit=False)
    folder = put_partition(tmp_path, [log_batch.data for log_batch in log.batches])
    fact_query = query("records", split_bytes=500)
    rows, tasks = read_in_tasks(folder, fact_query)
    assert tasks > 5
    assert rows == read_whole(folder, "records")
    assert "'aborted'" in rows[0]


def test_parts_that_do_not_meet_are_an_error(tmp_path: Path) -> None:
    """The index has positions of batches embedded in the value of a record."""
    inner = b"".join(batch(offset, value=bytes(30)) for offset in range(1, 30))
    outer = [batch(0), batch(1, value=inner), *(batch(offset) for offset in range(2, 30))]
    folder = put_partition(tmp_path, outer)
    start = len(outer[0]) + outer[1].index(inner)
    size = len(batch(1, value=bytes(30)))
    wrong_entries = [(offset, start + (offset - 1) * size) for offset in range(1, 30)]
    put_segment(folder, 0, write_offset_index(wrong_entries, 0), "index")
    end = start + len(inner)
    fact_query = query("batches", split_bytes=end - 200)
    with pytest.raises(SourceError, match=r"do not meet.*split_bytes="):
        read_in_tasks(folder, fact_query)
    assert read_in_tasks(folder, query("batches", split_bytes=1 << 20))[0] == read_whole(folder, "batches")


@pytest.mark.parametrize("fact", LOG_FACTS)
def test_a_part_whose_walk_ends_after_the_part_must_meet_the_next_one(tmp_path: Path, fact: str) -> None:
    """A wrong first offset makes the walk from byte 0 reject all later batches; a walk from an index entry accepts them."""
    batches = [batch(offset) for offset in range(6)]
    folder = put_partition(tmp_path, batches)
    size = len(batches[0])
    no_header = replace_bytes(b"".join(batches), size, bytes(12))
    put_segment(folder, 0, replace_bytes(no_header, 0, b"\x01"))
    with pytest.raises(SourceError, match=r"do not meet.*split_bytes="):
        read_in_tasks(folder, query(fact, split_bytes=size * 2 - 10))
    assert read_with_larger_splits(folder, fact, size * 2 - 10) == read_whole(folder, fact)


def test_a_part_whose_walk_reaches_the_end_of_the_log_does_not_lose_the_rest(tmp_path: Path) -> None:
    """The index has the position of a batch in the value of a record. Its offset is so high that no later batch continues it."""
    inner = batch(1000) + bytes(200)
    outer = [batch(0), batch(1, value=inner), *(batch(offset) for offset in range(2, 9))]
    folder = put_partition(tmp_path, outer)
    start = len(outer[0]) + outer[1].index(inner)
    put_segment(folder, 0, write_offset_index([(1000, start)], 0), "index")
    with pytest.raises(SourceError, match=r"do not meet.*split_bytes="):
        read_in_tasks(folder, query("batches", split_bytes=start + 100))
    assert read_with_larger_splits(folder, "batches", start + 100) == read_whole(folder, "batches")


def test_small_files_share_a_task_and_large_ones_do_not(tmp_path: Path) -> None:
    put_partition(tmp_path / "many", [batch(offset, value=bytes(500)) for offset in range(200)])
    log_dir = tmp_path / "many"
    for number in range(1, 50):
        shutil.copytree(log_dir / "t-0", log_dir / f"t-{number}")
    one_file = 200 * len(batch(0, value=bytes(500)))
    tasks = plan_tasks([str(log_dir)], query("batches", split_bytes=FILE_COST_BYTES * 10 + one_file * 10))
    assert 5 <= len(tasks) <= 6
    tasks = plan_tasks([str(log_dir)], query("batches", split_bytes=one_file // 4))
    assert len(tasks) == 200
    assert {piece.partition for task in tasks for piece in decode(task)[0]} == set(range(50))


@pytest.mark.parametrize("fact", ["spans", "index_entries"])
def test_preallocated_indexes_cost_what_they_hold(tmp_path: Path, fact: str) -> None:
    partition = put_partition(tmp_path, [batch(offset) for offset in range(20)])
    for index in ("index", "timeindex"):
        with open(partition / segment_file(0, index), "r+b") as file:
            file.truncate(10 << 20)
    for number in range(1, 100):
        (tmp_path / f"t-{number}").mkdir()
        for path in partition.iterdir():
            os.link(path, tmp_path / f"t-{number}" / path.name)
    assert len(plan_tasks([str(tmp_path)], query(fact, split_bytes=110 * FILE_COST_BYTES))) == (3 if fact == "spans" else 2)


def test_tasks_have_only_files_that_the_options_select(tmp_path: Path) -> None:
    for topic in ("orders", "audit"):
        put_partition(tmp_path / topic, [batch(offset) for offset in range(20)])
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
    for limits, message in (
        ({"topics": ("odrers",)}, "nothing matches topics=odrers"),
        ({"partitions": ((3, 4),)}, "nothing matches partitions=3-4"),
        ({"brokers": ("9",)}, "nothing matches brokers=9"),
    ):
        with pytest.raises(UsageError, match=message):
            files(**limits)


@pytest.mark.parametrize("fact", ["batches", "records", "control_records"])
def test_offsets_and_times_select_rows(tmp_path: Path, fact: str) -> None:
    log = DataLog()
    for number in range(60):
        log.data(number, count=1)
        log.marker(number, commit=True)
    folder = put_partition(tmp_path, [log_batch.data for log_batch in log.batches], index_interval=4)
    rows = [
        row
        for task in plan_tasks([str(folder)], query(fact))
        for rows_read in read_task(task, query(fact))
        for row in rows_read.to_pylist()
    ]
    first, last, timestamp = (
        ("base_offset", "last_offset", "max_timestamp") if fact == "batches" else ("offset", "offset", "timestamp")
    )
    middle = ms_of(sorted(row[timestamp] for row in rows)[len(rows) // 2])
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
            and limits.get("timestamp_from", 0) <= ms_of(row[timestamp]) < limits.get("timestamp_to", 1 << 60)
        ]
        assert 0 < len(expected) < len(rows)
        assert read_in_tasks(folder, query(fact, **limits))[0] == expected


def test_strict_reading_stops_at_damage(tmp_path: Path) -> None:
    batches = [batch(offset) for offset in range(20)]
    folder = put_partition(tmp_path, batches)
    log = folder / segment_file(0)
    position = len(batches[0]) * 7
    log.write_bytes(log.read_bytes()[: position + 70] + b"\xff" + log.read_bytes()[position + 71 :])
    for fact in LOG_FACTS:
        with pytest.raises(FormatError, match=rf"{log.name}: BATCH_CRC_MISMATCH at byte {position}"):
            read_in_tasks(folder, query(fact, strict=True))
        assert read_in_tasks(folder, query(fact))[0] == read_whole(folder, fact)
    with (folder / segment_file(0, "index")).open("ab") as index:
        index.write(b"odd")
    with pytest.raises(FormatError, match=r"0.index: "):
        read_in_tasks(folder, query("index_entries", strict=True))
    with pytest.raises(UsageError, match="on_corrupt=strict does not apply to the fact findings"):
        query("findings", strict=True)
    with pytest.raises(UsageError, match="offset_from does not apply to the fact spans"):
        query("spans", offset_from=3)


def test_a_log_removed_or_cut_after_planning_is_an_error_with_its_path(tmp_path: Path) -> None:
    folder = put_partition(tmp_path, [batch(offset) for offset in range(20)])
    log = folder / segment_file(0)
    fact_query = query("records")
    (task,) = plan_tasks([str(folder)], fact_query)
    log.write_bytes(log.read_bytes()[:100])
    with pytest.raises(SourceError, match=rf"{log}: has 100 bytes now"):
        list(read_task(task, fact_query))
    log.unlink()
    with pytest.raises(SourceError, match=rf"{log}: no such file"):
        list(read_task(task, fact_query))


def counted(path: Path, *columns: str, **limits: object) -> int:
    """Rows of `records` in these columns."""
    fact_query = FactQuery("records", columns, **limits)  # type: ignore[arg-type]
    return sum(rows.num_rows for task in plan_tasks([str(path)], fact_query) for rows in read_task(task, fact_query))


RECORDS_COUNT_FIELD = 57
"""Position in a batch of magic 2."""


@given(st.data())
def test_records_are_counted_as_they_are_decoded(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """With damage, emptied batches, old formats, and headers with a right CRC that declare another number of records."""
    folder = tmp_path_factory.getbasetemp() / f"counts-{next(FOLDER_NUMBERS)}"
    batches = data.draw(st.one_of(transactions(), batch_lists(max_size=8)))
    for number in data.draw(st.lists(st.integers(0, len(batches) - 1), max_size=2)) if batches else []:
        if len(batches[number]) > RECORDS_COUNT_FIELD + 4 and batches[number][16] == 2:
            count = data.draw(st.sampled_from([-1, 0, 4, 1 << 20, 2**31 - 1])).to_bytes(4, "big", signed=True)
            batches[number] = fix_crc(replace_bytes(batches[number], RECORDS_COUNT_FIELD, count))
    log = put_partition(folder, batches) / segment_file(0)
    content = bytearray(log.read_bytes())
    for _ in range(data.draw(st.integers(0, 2)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    log.write_bytes(content)
    split_bytes = data.draw(st.sampled_from([500, 1 << 20]))
    try:
        expected = counted(folder, "partition", "offset", split_bytes=split_bytes)
    except SourceError:
        expected = counted(folder, "partition", "offset", split_bytes=(split_bytes := 1 << 30))
    assert counted(folder, "partition", "file", split_bytes=split_bytes) == expected
    assert counted(folder, split_bytes=split_bytes) == expected
    shutil.rmtree(folder)


def test_counting_records_decodes_no_ordinary_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    unpatched = record_arrays

    def arrays(file: ByteFile, batches: NDArray[np.int64], rows: NDArray[np.int64], *states: Any, **how: Any) -> Any:
        decoded.extend(rows.tolist())
        return unpatched(file, batches, rows, *states, **how)

    monkeypatch.setattr(facts_log, "record_arrays", arrays)
    compacted = write_batch([RecordToWrite(b"k", b"v")], base_offset=9, base_timestamp=BASE_TIMESTAMP, last_offset_delta=4)
    folder = put_partition(tmp_path, [*(batch(offset, 3, compression_type="lz4") for offset in (0, 3, 6)), compacted])
    assert counted(folder, "topic", "partition", "broker", "log_dir", "file") == 10
    assert decoded == [3], "only the compacted batch"
    for columns, limits in ((("topic", "offset"), {}), (("topic",), {"offset_from": 4}), (("topic",), {"strict": True})):
        decoded.clear()
        assert counted(folder, *columns, **limits) == (6 if "offset_from" in limits else 10)
        assert len(decoded) == (3 if "offset_from" in limits else 4)


@pytest.mark.parametrize("declared", [3, 200, 2**31 - 1])
def test_a_number_of_records_for_which_there_is_no_room_is_not_believed(tmp_path: Path, declared: int) -> None:
    counts = declared.to_bytes(4, "big"), (declared - 1).to_bytes(4, "big")
    lie = fix_crc(replace_bytes(replace_bytes(batch(0), RECORDS_COUNT_FIELD, counts[0]), 23, counts[1]))
    folder = put_partition(tmp_path, [lie])
    assert counted(folder, "topic") == counted(folder, "offset") == 1


def test_a_header_that_no_broker_accepts_is_counted_as_it_declares(tmp_path: Path) -> None:
    """docs/spark.md says so: a right CRC, a record for every offset, and fewer records. A strict read fails."""
    two = (1).to_bytes(4, "big"), (2).to_bytes(4, "big")
    lie = fix_crc(replace_bytes(replace_bytes(batch(0), RECORDS_COUNT_FIELD, two[1]), 23, two[0]))
    folder = put_partition(tmp_path, [lie])
    assert (counted(folder, "topic"), counted(folder, "offset")) == (2, 1)
    with pytest.raises(FormatError, match="BATCH_COUNT_LIE"):
        counted(folder, "topic", strict=True)
