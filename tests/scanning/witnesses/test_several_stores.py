"""A partition whose objects are in several directories of a store, or in several stores."""

import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.witnesses.remote_chains import gather_logs
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteFile
from tests.support.brokers import DIRECTORY, OFFSETS_ID_TEXT, TOPIC_ID, put_replica, put_topic_id
from tests.support.remote_log import COPY_FINISHED, LAYOUTS, copy_started, put_object, put_remote_log, segment_update
from tests.support.segments import BASE_TIMESTAMP, log

DEEP = ScanOptions(deep=True)
STARTS = (0, 20, 40)


def put_brokers(folder: Path, stores: tuple[Path, ...], layout: str, prefixes: tuple[str, ...] = ("", "", "")) -> str:
    """A broker with offsets [60, 80), whose three remote segments are in these stores, one in each, below names with a prefix."""
    batches, events = log(40, epoch=0), []
    options: dict[str, Any] = {"log_start": 0, "topic_id": TOPIC_ID, "epochs": ((0, 0),), "clean": True}
    broker = put_replica(folder, 1, {60: batches[30:]}, partition=DIRECTORY, high_watermark=80, **options)
    for number, (start, store, prefix) in enumerate(zip(STARTS, stores, prefixes, strict=True)):
        data = batches[start // 2 : start // 2 + 10]
        put_object(store, number, start, data, topic_id=TOPIC_ID, partition=f"{prefix}{DIRECTORY}", layout=layout)
        fields: dict[str, Any] = {"segment_size_in_bytes": len(b"".join(data)), "max_timestamp_ms": BASE_TIMESTAMP + 1000}
        events.append(copy_started(number, start, start + 19, topic_id=TOPIC_ID, **fields))
        events.append(segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID))
    put_topic_id(put_remote_log(broker, *events).parent, OFFSETS_ID_TEXT)
    return str(broker)


def above_info(result: ScanResult) -> list[str]:
    return [row.kind for row in result.findings if row.severity is not Severity.INFO and row.place.topic == "t"]


def test_segments_below_a_changed_prefix_are_of_one_log(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = [put_brokers(tmp_path, (store,) * 3, "chunks", ("old.", "new.", "old.")), str(store)]
    assert above_info(local.scan(paths, ScanOptions())) == []
    assert above_info(local.scan(paths, DEEP)) == []
    (plan,) = gather_logs(paths, ScanOptions()).remote
    places = [Path(plan.log_dir.name, plan.context.directory, plan.context.log_file(start)) for start in STARTS]
    assert [place.is_file() for place in places] == [True] * 3
    assert [*plan.context.segment_ids.values()] == [place.stem[21:] for place in places]


def test_segments_in_two_folders_of_a_bucket_are_of_one_log(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = [put_brokers(tmp_path, (store / "old", store / "new", store / "new"), "chunks"), str(store)]
    assert above_info(local.scan(paths, ScanOptions())) == []
    assert above_info(local.scan(paths, DEEP)) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_segments_in_two_stores_are_of_one_log(tmp_path: Path, layout: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    paths = [put_brokers(tmp_path, (first, second, first), layout), str(first), str(second)]
    assert above_info(local.scan(paths, ScanOptions())) == []
    assert above_info(local.scan(paths, DEEP)) == []
    plans = gather_logs(paths, ScanOptions()).remote
    assert [plan.context.segment_base_offsets for plan in plans] == [[0, 40], [20]]


def test_the_whole_one_of_two_copies_of_a_segment_counts(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = [put_brokers(tmp_path, (store / "new",) * 3, "chunks"), str(store)]
    put_object(store / "old", 1, 20, [b""], topic_id=TOPIC_ID, partition=DIRECTORY, layout="chunks")
    for path in (store / "old").rglob("*.indexes"):
        path.unlink()
    assert above_info(local.scan(paths, DEEP)) == []


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with a log in another store"])
def test_a_store_without_any_log_is_not_judged(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, beside: bool) -> None:
    """Aiven's plugin can write the records of segments to Iceberg tables: indexes and manifests are left."""
    first, second = tmp_path / "first", tmp_path / "second"
    paths = [put_brokers(tmp_path, (first, first, second if beside else first), "chunks"), str(first)]
    paths += [str(second)] if beside else []
    for path in first.rglob("*.log"):
        path.unlink()
    for options in (ScanOptions(), DEEP):
        caplog.clear()
        assert above_info(local.scan(paths, options)) == []
        notes = [message for message in caplog.messages if "holds no log of its segments" in message]
        assert [note.partition(": ")[2].partition(":")[0] for note in notes] == [str(first)]
    assert [plan.context.segment_base_offsets for plan in gather_logs(paths, ScanOptions()).remote] == ([[40]] if beside else [])


def test_a_store_without_one_log_is_judged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = [put_brokers(tmp_path, (store,) * 3, "chunks"), str(store)]
    next(store.rglob(f"{20:020d}-*.log")).unlink()
    assert above_info(local.scan(paths, ScanOptions())) == ["REMOTE_SEGMENT_UNREADABLE"]


def test_a_partition_in_two_layouts_is_not_judged(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    paths = [put_brokers(tmp_path / "plain", (first,) * 3, "plain"), str(first), str(second)]
    put_brokers(tmp_path / "chunks", (second,) * 3, "chunks")
    for path in (*first.rglob(f"{20:020d}-*"), *second.rglob(f"{0:020d}-*")):
        path.unlink()
    assert above_info(local.scan(paths, DEEP)) == []


def test_objects_of_a_service_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `__remote_log_metadata`, the objects of every segment are read before its log is."""
    for number in range(8):
        put_object(tmp_path, number, number * 20, log(10, start=number * 20), layout="chunks")
    together, opens, open_file = threading.Barrier(8), list[str](), LocalSource.open

    def open_slowly(source: LocalSource, path: str) -> ByteFile:
        if path.endswith(".rsm-manifest"):
            together.wait(20)
        opens.append(path)
        return open_file(source, path)

    monkeypatch.setattr(LocalSource, "open", open_slowly)
    monkeypatch.setattr(LocalSource, "request_seconds", 0.1, raising=False)
    (plan,) = gather_logs([str(tmp_path)], ScanOptions()).remote
    assert plan.context.segment_base_offsets == list(range(0, 160, 20))
    assert len(opens) == 3 * 8 + 1  # manifest, epochs and log of each segment, and the epochs of the last again
