"""A search with pruning, indexes or archives finds the records that a naive search of every replica finds."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.constants import NO_TIMESTAMP
from kafka_forensics.parsers.log import matching, records as record_parser
from kafka_forensics.questions import search as finding
from kafka_forensics.questions.search import FOUND_COLUMNS, Conditions, FoundRecords, Search, found_columns, search
from kafka_forensics.scanning.rereading import seeking
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from tests.support.brokers import put_replica, put_segment
from tests.support.kernels import kernels
from tests.support.segments import (
    BASE_TIMESTAMP,
    batch_positions,
    legacy_entry,
    replace_bytes,
    segment_file,
    write_offset_index,
    write_time_index,
)
from tests.support.strategies import LOG

Row = dict[str, Any]
KEYS = [None, b"", b"a", b"ab", b"abc", b"\xff\x00"]
HEADERS: list[tuple[tuple[str, bytes | None], ...]] = [(), (("h", b"1"),), (("h", None), ("trace", b"x")), (("trace", b""),)]
OF_HEADERS = write_batch([RecordToWrite(b"a", b"v", headers) for headers in HEADERS], base_offset=0, base_timestamp=BASE_TIMESTAMP)


def search_rows(path: Path | str, wanted: Conditions, *, options: ScanOptions | None = None, **arguments: Any) -> list[Row]:
    result = search([str(path)], options or ScanOptions(), wanted, **arguments)
    columns = found_columns(payloads=arguments.get("payloads", False))
    rows = [dict(zip(columns, row, strict=True)) for row in result.rows()]
    assert result.incomplete == []
    assert result.found == len(rows)
    return rows


def places(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["topic"], row["partition"], row["broker"], row["offset"]) for row in rows]


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Adjacent batches of every kind that a search distinguishes, with unordered timestamps."""
    written, offset = [], 0
    for _ in range(draw(st.integers(1, 6))):
        records = [
            RecordToWrite(
                draw(st.sampled_from(KEYS)),
                draw(st.sampled_from([None, b"", b"needle", b"a needle b", b"abc"])),
                draw(st.sampled_from(HEADERS)),
                timestamp_delta=draw(st.integers(-5, 5)),
            )
            for _ in range(draw(st.integers(1, 5)))
        ]
        written.append(
            write_batch(
                records,
                base_offset=offset,
                base_timestamp=BASE_TIMESTAMP + draw(st.integers(0, 20)),
                compression_type=draw(st.sampled_from(["none", "none", "gzip", "snappy", "lz4", "zstd"])),
                timestamp_type=draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
                partition_leader_epoch=draw(st.integers(10, 19)),
                producer_id=draw(st.sampled_from([-1, 7, 8])),
                producer_epoch=draw(st.integers(100, 199)),
                base_sequence=draw(st.integers(70_000, 79_999)),
                delete_horizon_ms=draw(st.sampled_from([None, BASE_TIMESTAMP + 10**6])),
            )
        )
        offset += len(records)
    return written


@st.composite
def conditions(draw: st.DrawFn) -> Conditions:
    """One or two conditions; few records would fulfil more."""
    wanted = draw(st.lists(st.integers(0, 7), min_size=1, max_size=2))

    def draw_if_wanted(number: int, strategy: st.SearchStrategy[Any]) -> Any:
        return draw(strategy) if number in wanted else None

    times = st.integers(BASE_TIMESTAMP - 6, BASE_TIMESTAMP + 30)
    headers = st.tuples(st.sampled_from([b"h", b"trace"]), st.sampled_from([None, b"", b"1", b"x"]))
    return Conditions(
        key=draw_if_wanted(0, st.sampled_from(KEYS[1:])),
        offset_start=draw_if_wanted(1, st.integers(0, 20)),
        offset_end=draw_if_wanted(2, st.integers(0, 20)),
        timestamp_start_ms=draw_if_wanted(3, times),
        timestamp_end_ms=draw_if_wanted(4, times),
        producer_id=draw_if_wanted(5, st.sampled_from([7, 8])),
        headers=tuple(draw_if_wanted(7, st.lists(headers, min_size=1, max_size=2)) or ()),
        value_part=draw_if_wanted(6, st.sampled_from([b"", b"needle", b" ", b"abc"])),
    )


def naive(log: list[bytes], wanted: Conditions) -> list[int]:
    """Offsets of the matching records, by checking every record."""

    def inside(number: int, start: int | None, end: int | None) -> bool:
        return (start is None or start <= number) and (end is None or number < end)

    matching_offsets = []
    for batch in log:
        decoded = record_parser.decode_batch(batch)
        assert decoded.header is not None
        for record in decoded.iter_records():
            checks = [
                wanted.key is None or record.key == wanted.key,
                inside(record.offset, wanted.offset_start, wanted.offset_end),
                inside(record.timestamp, wanted.timestamp_start_ms, wanted.timestamp_end_ms),
                wanted.producer_id is None or decoded.header.producer_id == wanted.producer_id,
                wanted.value_part is None or (record.value is not None and wanted.value_part in record.value),
                *(
                    any(name == key and value in (None, content) for key, content in record.headers)
                    for name, value in wanted.headers
                ),
            ]
            if all(checks):
                matching_offsets.append(record.offset)
    return matching_offsets


def put_indexes(directory: Path, log: list[bytes], *, exact: bool = False) -> None:
    """Indexes with an entry for every batch but the first, as a broker writes them; `exact` as before Kafka 3.8."""
    offsets, times = [], []
    latest, at = NO_TIMESTAMP, 0
    for batch, position in zip(log, batch_positions(log), strict=False):
        decoded = record_parser.decode_batch(batch)
        assert decoded.header is not None
        for record in decoded.iter_records():
            if record.timestamp > latest:
                latest, at = record.timestamp, record.offset if exact else decoded.header.last_offset
        if position:
            offsets.append((decoded.header.last_offset, position))
            times.append((latest, at))
    times = [entry for number, entry in enumerate(times) if not number or entry[0] > times[number - 1][0]]
    put_segment(directory, 0, write_offset_index(offsets, 0), "index")
    put_segment(directory, 0, write_time_index(times, 0), "timeindex")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=batches(), wanted=conditions(), indexed=st.sampled_from([None, False, True]))
@example(log=[OF_HEADERS], wanted=Conditions(headers=((b"trace", b"x"), (b"h", None))), indexed=None)
def test_every_record_that_fulfils_the_conditions_is_found_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, log: list[bytes], wanted: Conditions, indexed: bool | None
) -> None:
    folder = tmp_path_factory.mktemp("cluster")
    log_dir = put_replica(folder, 1, log)
    if indexed is not None:
        put_indexes(log_dir / "orders-0", log, exact=indexed)
    for _ in both_forms():
        assert [row["offset"] for row in search_rows(folder, wanted)] == naive(log, wanted)


def both_forms() -> Iterator[bool]:
    """Whether kernels are compiled: False, then True."""
    for compiled in (False, True):
        with kernels(compiled=compiled):
            yield compiled


@pytest.fixture(autouse=True)
def _interpreted(chosen_kernels: None) -> Iterator[None]:
    """Kernels are not compiled unless a test chooses it, regardless of earlier tests."""
    with kernels(compiled=False):
        yield


@pytest.mark.parametrize("compiled", [False, True])
def test_kernels_match_records_only_where_they_may_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    folder = tmp_path / "cluster"
    put_replica(folder, 1, [OF_HEADERS])
    matched, blocks = [], finding.RecordMatcher.blocks

    def count_blocks(*arguments: Any) -> Any:
        matched.append(arguments)
        return blocks(*arguments)

    monkeypatch.setattr(finding, "COMPILED_AFTER_BATCHES", -1)
    monkeypatch.setattr(finding.RecordMatcher, "blocks", count_blocks)
    with kernels(compiled=compiled):
        assert len(search_rows(folder, Conditions(key=b"a"))) == len(HEADERS)
    assert bool(matched) is compiled


@st.composite
def conditions_on_any_bytes(draw: st.DrawFn) -> Conditions:
    """Conditions that some records of `any_batches` fulfil."""
    part = st.none() | st.binary(max_size=1) | st.sampled_from([b"h", b"\0", b"\0\0"])
    headers = st.tuples(st.sampled_from([b"", b"h", b"trace"]), st.none() | st.binary(max_size=1))
    return Conditions(
        key=draw(part),
        offset_start=draw(st.none() | st.integers(0, 2**40)),
        timestamp_start_ms=draw(st.none() | st.integers(0, 2**41)),
        timestamp_end_ms=draw(st.none() | st.integers(0, 2**41)),
        producer_id=draw(st.sampled_from([None, None, 7])),
        headers=tuple(draw(st.lists(headers, max_size=1))),
        value_part=draw(part),
    )


def in_ranges(patch: pytest.MonkeyPatch, size_in_bytes: int) -> None:
    """Read logs in ranges of about this size."""
    for name in ("FIRST_RANGE_BYTES", "SLOW_RANGE_BYTES", "LAST_RANGE_BYTES"):
        patch.setattr(seeking, name, size_in_bytes)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=LOG, wanted=conditions_on_any_bytes(), least=st.sampled_from([1, 1 << 20]), ranges=st.sampled_from([64, 1 << 20]))
def test_columns_and_single_rows_agree_on_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, wanted: Conditions, least: int, ranges: int
) -> None:
    folder = tmp_path_factory.mktemp("cluster")
    put_replica(folder, 1, data)
    answers = []
    for _ in both_forms():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matching, "OPENED_BYTES", least)
            in_ranges(patch, ranges)
            result = search([str(folder)], ScanOptions(), wanted, payloads=True)
            answers.append((list(result.rows()), result.damaged_places, result.incomplete, result.found))
    assert answers[0] == answers[1]


def test_many_records_come_in_one_run_up_to_the_limit(tmp_path: Path) -> None:
    log = [keyed(offset, b"k", compression_type="lz4" if offset % 4 else "none") for offset in range(40)]
    put_replica(tmp_path / "cluster", 1, log)
    for compiled in both_forms():
        result = search([str(tmp_path)], ScanOptions(), Conditions(key=b"k"), limit=17)
        runs = list(result.runs())
        sizes = [run.table.num_rows if isinstance(run, FoundRecords) else 1 for run in runs]
        assert sizes == ([17] if compiled else [1] * 17)
        assert (result.found, result.stopped) == (17, True)


def test_records_of_many_ranges_come_in_one_run_and_the_first_immediately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records found before a file becomes unreadable are returned."""
    log = [keyed(offset, b"k", compression_type="lz4") for offset in range(40)]
    put_replica(tmp_path / "cluster", 1, log)
    in_ranges(monkeypatch, len(log[0]))
    broken_behind: list[int] = []

    def until(*arguments: Any) -> Iterator[Any]:
        for number, chunk in enumerate(seeking.chunks_until(*arguments), 1):
            yield chunk
            if number in broken_behind:
                raise SourceError("", "broken")

    monkeypatch.setattr(finding, "chunks_until", until)
    for compiled in both_forms():
        for behind, sizes in ([], [1, 1, 2, 4, 8, 16, 8]), ([3], [1, 1, 1]):
            broken_behind[:] = behind
            result = search([str(tmp_path)], ScanOptions(), Conditions(key=b"k"))
            runs = list(result.runs())
            rows = [row for run in runs for row in (run.rows(FOUND_COLUMNS) if isinstance(run, FoundRecords) else [run])]
            assert [row[3] for row in rows] == list(range(sum(sizes)))
            assert [gap.reason for gap in result.incomplete] == ["broken"] * len(behind)
            if compiled:
                assert [run.table.num_rows for run in runs if isinstance(run, FoundRecords)] == sizes


def test_large_records_are_returned_as_they_are_found(tmp_path: Path) -> None:
    records = [RecordToWrite(b"k%d" % number, bytes([number]) * 90_000) for number in range(20)]
    log = [write_batch(records, base_offset=start, base_timestamp=0, compression_type="zstd") for start in (0, 20)]
    put_replica(tmp_path / "cluster", 1, log)
    for compiled in both_forms():
        result = search([str(tmp_path)], ScanOptions(), Conditions(offset_start=7), payloads=True)
        runs = list(result.runs())
        rows = [row for run in runs for row in (run.rows(found_columns(payloads=True)) if isinstance(run, FoundRecords) else [run])]
        assert len(runs) == (2 if compiled else 33)
        assert [(row[3], row[-2]) for row in rows] == [(offset, bytes([offset % 20]) * 90_000) for offset in range(7, 40)]


EXTREMES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("base_timestamp", EXTREMES)
def test_numbers_that_no_broker_writes_are_compared_as_shown(base_timestamp: int, timestamp_type: str) -> None:
    records = [RecordToWrite(b"k", b"v", timestamp_delta=delta) for delta in (0, 1, -1, 2**62, -(2**62))]
    batch = write_batch(records, base_offset=9, base_timestamp=base_timestamp, timestamp_type=timestamp_type, max_timestamp=5)
    decoded = record_parser.decode_batch(batch)
    shown = list(decoded.iter_records())
    assert len(shown) == len(records)
    for start in (None, *EXTREMES):
        for end in (None, *EXTREMES):
            wanted = Conditions(timestamp_start_ms=start, timestamp_end_ms=end, offset_start=10)
            assert list(decoded.iter_records(wanted.records)) == [record for record in shown if wanted.fits(record)]


def keyed(offset: int, key: bytes, **arguments: Any) -> bytes:
    return write_batch([RecordToWrite(key, b"v" * 90)], base_offset=offset, base_timestamp=BASE_TIMESTAMP + offset, **arguments)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Three brokers with two partitions; `lost` is on brokers 2 and 10 only."""
    folder = tmp_path / "cluster"
    whole = [keyed(offset, b"lost" if offset == 5 else b"kept") for offset in range(8)]
    for broker, log in ((10, whole), (2, whole), (3, whole[:5])):
        put_replica(folder, broker, log)
        put_replica(folder, f"more-{broker}", log[:2], partition="orders-1")
    return folder


def test_every_replica_that_holds_a_record_is_listed_in_order(cluster: Path) -> None:
    (row,) = search_rows(cluster, Conditions(key=b"lost"), options=ScanOptions(broker="2"), payloads=True)
    assert (row["key"], row["value"], row["headers"]) == (b"lost", b"v" * 90, ())
    rows = search_rows(cluster, Conditions(key=b"lost"))
    assert places(rows) == [("orders", 0, 2, 5), ("orders", 0, 10, 5)]
    first = rows[0]
    assert first["file"] == str(cluster / "broker-2" / "orders-0" / segment_file(0))
    assert (first["timestamp"], first["key_size"], first["value_size"]) == (BASE_TIMESTAMP + 5, 4, 90)
    assert first["position"] == 5 * len(keyed(0, b"kept"))
    assert (first["is_valid"], first["leftover"], first["control_record_type"]) == (True, None, None)
    assert tuple(first) == FOUND_COLUMNS
    rows = search_rows(cluster, Conditions(offset_start=1, offset_end=2))
    assert places(rows) == [("orders", 0, 2, 1), ("orders", 0, 3, 1), ("orders", 0, 10, 1)] + [
        ("orders", 1, f"broker-more-{broker}", 1) for broker in (10, 2, 3)
    ]


def test_topic_partition_broker_and_limit_select_records(cluster: Path) -> None:
    wanted = Conditions(offset_start=0, offset_end=3)
    assert places(search_rows(cluster, wanted, options=ScanOptions(partition=0, broker="3"))) == [
        ("orders", 0, 3, at) for at in range(3)
    ]
    assert search_rows(cluster, Conditions(offset_start=0, offset_end=0)) == []
    with pytest.raises(UsageError, match="nothing matches --topic o"):
        search_rows(cluster, wanted, options=ScanOptions(topic_glob="o?ders", partition=7))
    assert len(search_rows(cluster, wanted, options=ScanOptions(topic_glob="o*", partition=1))) == 6
    limited = search([str(cluster)], ScanOptions(), wanted, limit=2)
    assert [row[3] for row in limited.rows()] == [0, 1]
    assert limited.stopped
    assert limited.replicas[0] == "orders-0 on broker 2"
    assert limited.not_reached == limited.replicas[1:]
    unlimited = search([str(cluster)], ScanOptions(), wanted)
    assert list(unlimited.rows())
    assert unlimited.not_reached == []


def test_files_being_deleted_are_searched(cluster: Path) -> None:
    directory = cluster / "broker-3" / "orders-0"
    put_segment(directory, 5, keyed(5, b"lost"), "log.deleted")
    waiting = cluster / "broker-2" / ("orders-0." + "a" * 32 + "-delete")
    waiting.mkdir()
    put_segment(waiting, 0, keyed(0, b"lost"))
    found_rows = [(row["broker"], row["offset"], row["leftover"]) for row in search_rows(cluster, Conditions(key=b"lost"))]
    assert found_rows == [(2, 5, None), (2, 0, "delete"), (3, 5, "deleted"), (10, 5, None)]


@pytest.mark.parametrize("exact", [False, True], ids=["last offset of the batch", "offset of the record"])
def test_indexes_tell_where_to_begin_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    log = [keyed(offset, b"k") for offset in range(400)]
    directory = put_replica(tmp_path / "cluster", 1, log) / "orders-0"
    put_indexes(directory, log, exact=exact)
    begun = spied_starts(monkeypatch)
    wanted = Conditions(offset_start=390, offset_end=392)
    assert [row["offset"] for row in search_rows(tmp_path, wanted)] == [390, 391]
    wanted = Conditions(timestamp_start_ms=BASE_TIMESTAMP + 398)
    assert [row["offset"] for row in search_rows(tmp_path, wanted)] == [398, 399]
    assert begun == [batch_positions(log)[389], batch_positions(log)[396]]


def spied_starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    begun: list[int] = []
    chunks_until = seeking.chunks_until

    def spy(reader: Any, position: int, size: int, offset_end: int | None) -> Iterator[Any]:
        begun.append(position)
        yield from chunks_until(reader, position, size, offset_end)

    monkeypatch.setattr(finding, "chunks_until", spy)
    return begun


@pytest.mark.parametrize(
    "entries",
    [[(BASE_TIMESTAMP + 1, 7)], [(BASE_TIMESTAMP + 9, 3), (BASE_TIMESTAMP + 3, 3)], [(BASE_TIMESTAMP, 99)], [(-(2**63), 5)]],
    ids=["not its batch's maximum", "going back", "beyond the log", "no time"],
)
def test_a_wrong_time_index_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: list[tuple[int, int]]) -> None:
    log = [keyed(offset, b"k") for offset in range(8)]
    directory = put_replica(tmp_path / "cluster", 1, log) / "orders-0"
    put_indexes(directory, log)
    put_segment(directory, 0, write_time_index(entries, 0), "timeindex")
    begun = spied_starts(monkeypatch)
    assert [row["offset"] for row in search_rows(tmp_path, Conditions(timestamp_start_ms=BASE_TIMESTAMP + 4))] == [4, 5, 6, 7]
    assert begun == [0]


def test_batches_that_cannot_hold_a_match_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = [keyed(offset, b"k%d" % offset, producer_id=offset % 2) for offset in range(40)]
    put_replica(tmp_path / "cluster", 1, log)
    opened: list[int] = []

    def spy(batch: bytes, *, position: int, needles: list[bytes]) -> Any:
        opened.append(position)
        return record_parser.decode_batch(batch, position=position, needles=needles)

    monkeypatch.setattr(finding, "decode_batch", spy)
    for wanted, decoded in (
        (Conditions(offset_start=8, offset_end=10), [8, 9]),
        (Conditions(key=b"k39"), [39]),
        (Conditions(producer_id=1, offset_end=4), [1, 3]),
        (Conditions(timestamp_start_ms=BASE_TIMESTAMP + 38), [38, 39]),
        (Conditions(headers=((b"none", None),)), []),
        (Conditions(value_part=b"k7"), [7]),
    ):
        opened.clear()
        search_rows(tmp_path, wanted)
        assert [batch_positions(log).index(position) for position in opened] == decoded


def test_a_record_in_a_damaged_batch_is_found_as_invalid(tmp_path: Path) -> None:
    log = [keyed(offset, b"k%d" % offset) for offset in range(7)]
    log[1] = replace_bytes(log[1], len(log[1]) - 5, b"!")
    log[4] = replace_bytes(log[4], 8, (2**31 - 1).to_bytes(4, "big"))
    put_replica(tmp_path / "cluster", 1, log)
    result = search([str(tmp_path)], ScanOptions(), Conditions(value_part=b"v"))
    rows = [dict(zip(FOUND_COLUMNS, row, strict=True)) for row in result.rows()]
    assert [(row["offset"], row["is_valid"]) for row in rows if row["offset"] < 3] == [(0, True), (1, False), (2, True)]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 5, 6]
    assert result.damaged_places == 1


def test_broken_compressed_batch_is_reported_only_if_it_may_match(tmp_path: Path) -> None:
    records = [RecordToWrite(b"k", b"a needle"), RecordToWrite(b"k", b"more")]
    broken = write_batch(records, base_offset=0, base_timestamp=BASE_TIMESTAMP, compression_type="zstd", records_count=3)
    put_replica(tmp_path / "cluster", 1, broken)
    for part, offsets, places_not_searched in ((b"needle", [0], 1), (b"elsewhere", [], 0)):
        result = search([str(tmp_path)], ScanOptions(), Conditions(value_part=part))
        assert [dict(zip(FOUND_COLUMNS, row, strict=True))["offset"] for row in result.rows()] == offsets
        assert result.damaged_places == places_not_searched


def test_markers_and_old_formats_are_found(tmp_path: Path) -> None:
    marker = write_marker(
        base_offset=0, timestamp=BASE_TIMESTAMP, producer_id=4, producer_epoch=0, commit=True, coordinator_epoch=0
    )
    put_replica(tmp_path / "cluster", 1, marker)
    put_replica(tmp_path / "cluster", 2, legacy_entry(0, 0) + legacy_entry(1, 1, timestamp=77), partition="old-0")
    assert [row["control_record_type"] for row in search_rows(tmp_path, Conditions(producer_id=4))] == ["COMMIT"]
    assert places(search_rows(tmp_path, Conditions(key=b"key"))) == [("old", 0, 2, 0), ("old", 0, 2, 1)]
    assert places(search_rows(tmp_path, Conditions(timestamp_end_ms=78))) == [("old", 0, 2, 1)]


def test_oversized_batches_and_records_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_replica(tmp_path / "cluster", 1, keyed(0, b"k", compression_type="gzip"))
    monkeypatch.setattr(finding, "MAX_BATCH_BYTES", 50)
    monkeypatch.setattr(finding._Candidates, "inspect", lambda *_: [])
    result = search([str(tmp_path)], ScanOptions(), Conditions(key=b"k"))
    assert list(result.rows()) == []
    assert [gap.reason for gap in result.incomplete] == [
        f"batch of {len(keyed(0, b'k', compression_type='gzip'))} bytes at byte 0 is too large to be searched"
    ]


def archive(cluster: Path) -> Path:
    """The cluster as a compressed tar with unordered members."""
    path = cluster.parent / "cluster.tar.gz"
    with tarfile.open(path, "w:gz") as out:
        for file in sorted(cluster.rglob("*"), key=lambda file: file.name + str(file.parent)[::-1]):
            if file.is_file():
                info = tarfile.TarInfo(str(file.relative_to(cluster)))
                info.size = file.stat().st_size
                out.addfile(info, io.BytesIO(file.read_bytes()))
    return path


@pytest.mark.parametrize("held_bytes", [1 << 20, 3000, 0])
def test_an_archive_has_the_same_rows_at_any_budget(cluster: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int) -> None:
    wanted = Conditions(offset_start=0, offset_end=6)
    plain = search_rows(cluster, wanted, payloads=True)
    monkeypatch.setattr(finding, "HELD_ROWS_BYTES", held_bytes)
    packed = search_rows(archive(cluster), wanted, payloads=True)
    assert [{**row, "file": None} for row in packed] == [{**row, "file": None} for row in plain]
    assert packed[0]["file"].endswith(f"cluster.tar.gz/broker-2/orders-0/{segment_file(0)}")
    assert places(search_rows(archive(cluster), wanted, limit=4)) == places(plain)[:4]


def test_headers_count_toward_held_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple((f"header-{number}", None if number % 2 else b"x") for number in range(500))
    directory = tmp_path / "cluster" / "broker-1" / "orders-0"
    directory.mkdir(parents=True)
    records = [RecordToWrite(b"k", b"v", headers=many) for _ in range(4)]
    put_segment(directory, 0, write_batch(records, base_offset=0, base_timestamp=0))
    monkeypatch.setattr(finding, "HELD_ROWS_BYTES", 100_000)
    result = search([str(archive(tmp_path / "cluster"))], ScanOptions(), Conditions(key=b"k"), payloads=True)
    assert result._rows_of_packed() == {}
    assert [len(row[-1]) for row in result.rows()] == [500] * 4


def test_progress_counts_every_byte_once(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_rows: list[tuple[int, int]] = []
    result: Search = search([str(archive(cluster))], ScanOptions(), Conditions(key=b"kept"))
    monkeypatch.setattr(finding, "HELD_ROWS_BYTES", 4000)
    list(result.rows(lambda done, total: found_rows.append((done, total))))
    assert found_rows[-1] == (result.bytes_total, result.bytes_total)
    assert max(done for done, _ in found_rows) == result.bytes_total
