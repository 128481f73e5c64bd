"""Deep scans of remote stores: real ones, and on both engines."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_forensics import read_records
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.recover import recover
from kafka_forensics.scanning.engine import local
from tests.scanning.engine import task_engine
from tests.support.archives import archive_members
from tests.support.brokers import DIRECTORY, OFFSETS_ID_TEXT, TOPIC_ID, put_replica, put_topic_id
from tests.support.remote_log import COPY_FINISHED, LAYOUTS, copy_started, put_object, put_remote_log, segment_update
from tests.support.segments import BASE_TIMESTAMP, batch_positions, flip_bit, log
from tests.support.times import time_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_forensics.model.recovered import RecoveredRecord

DEEP = ScanOptions(deep=True)
REAL = ("quiet-live", "isolated", "rebuilt", "unclean", "remote-damaged")


def put_damaged(folder: Path, layout: str) -> list[str]:
    """A broker with [20, 60); the store has [0, 40) in two segments, with a flipped bit in one and other records in the next."""
    batches, store = log(30), folder / "store"
    local_log = {20: batches[10:]}
    options: dict[str, Any] = {"log_start": 0, "topic_id": TOPIC_ID, "epochs": ((0, 0),), "clean": True}
    broker = put_replica(folder, 1, local_log, partition=DIRECTORY, high_watermark=60, **options)
    damaged = flip_bit(b"".join(batches[:10]), batch_positions(batches)[4] - 3)
    other = b"".join([*batches[10:15], *log(5, start=30, value=b"other")])
    events = []
    for number, (start, data) in enumerate({0: damaged, 20: other}.items()):
        put_object(store, number, start, [data], topic_id=TOPIC_ID, partition=DIRECTORY, layout=layout)
        fields: dict[str, Any] = {"segment_size_in_bytes": len(data), "max_timestamp_ms": BASE_TIMESTAMP + 1000}
        events.append(copy_started(number, start, start + 19, topic_id=TOPIC_ID, **fields))
        events.append(segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID))
    put_topic_id(put_remote_log(broker, *events).parent, OFFSETS_ID_TEXT)
    return [str(broker), str(store)]


def text(result: ScanResult) -> Any:
    """The document of a result, without the engine's name."""
    return json.loads("".join(document(result))) | {"tool": None}


def above_info(result: ScanResult) -> list[tuple[Any, ...]]:
    rows = [row for row in result.findings if row.severity is not Severity.INFO]
    return sorted(((row.kind, row.place.broker, row.place.file, row.place.offset_start) for row in rows), key=str)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tasks_give_the_same_as_threads(tmp_path: Path, layout: str) -> None:
    paths = put_damaged(tmp_path, layout)
    expected = local.scan(paths, DEEP)
    assert {row[0] for row in above_info(expected) if row[1] == "remote"} == {"BATCH_CRC_MISMATCH", "REMOTE_SEGMENT_DIFFERS"}
    for sizes in ({}, {"split_bytes": 400, "work_bytes": 400}, {"small_bytes": 1 << 20}):
        assert text(task_engine.scan(paths, DEEP, **sizes)) == text(expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tasks_read_an_object_given_by_itself(tmp_path: Path, layout: str) -> None:
    _, store = put_damaged(tmp_path, layout)
    path = str(next(Path(store).rglob(f"{0:020d}-*.log")))
    for options in (ScanOptions(), DEEP):
        expected = local.scan([path], options)
        assert [row[:2] for row in above_info(expected)] == [("BATCH_CRC_MISMATCH", "remote")]
        assert text(task_engine.scan([path], options, split_bytes=400)) == text(expected)


@pytest.mark.spark
def test_spark_gives_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    from kafka_forensics.spark import scan

    paths = put_damaged(tmp_path, "chunks")
    assert text(scan(spark, paths, deep=True)) == text(local.scan(paths, DEEP))


@pytest.mark.corpora
@pytest.mark.parametrize("name", REAL)
def test_sound_stores_add_nothing_to_a_scan(corpora: Path, name: str) -> None:
    path = str(corpora / "tiered" / f"tiered-{name}.tar.xz")
    deep, listed = local.scan([path], DEEP), local.scan([path], ScanOptions())
    flipped = [row for row in above_info(deep) if row[1] == "remote"]
    assert [row for row in above_info(deep) if row[1] != "remote"] == above_info(listed)
    assert deep.totals.bytes_total > listed.totals.bytes_total
    assert (deep.totals.brokers, deep.totals.replicas) == (listed.totals.brokers, listed.totals.replicas)
    damaged = "evb-0-i_q7cr5FRF-BreDkvzr0aA/00000000000000000986-tntNXGmTTFmFUrd3EBqm5A.log"
    assert flipped == ([("BATCH_CRC_MISMATCH", "remote", damaged, 986)] if name == "remote-damaged" else [])


@pytest.mark.corpora
def test_records_that_only_a_real_store_holds_are_recovered(corpora: Path, tmp_path: Path) -> None:
    archive = corpora / "tiered" / "tiered-unclean.tar.xz"
    truth = json.loads((corpora / "tiered" / "tiered-unclean.truth.json").read_text())
    recovered: list[RecoveredRecord] = []
    assert recover([str(archive)], ScanOptions(topic_glob="aud"), None, recovered.append).is_complete
    start, end = truth["lost"]["aud-0"]
    records = [(row.record.offset, time_of(row.record.timestamp), row.record.key, row.record.value) for row in recovered]
    assert [offset for offset, *_ in records] == list(range(start, end))
    objects = []
    for path, data in archive_members(archive, r".*/aud-0-[^/]+/0+3(00-4FW6X|35-QLop|70-KLx7).*\.log"):
        target = tmp_path / "/".join(path.split("/")[-2:])
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
        objects.append(str(target))
    names = ("offset", "timestamp", "key", "value")
    rows = (
        row for path in sorted(objects) for batch in read_records(path, payloads=True) for row in batch.select(names).to_pylist()
    )
    assert [tuple(row[name] for name in names) for row in rows] == records


@pytest.mark.spark
def test_a_deep_export_on_spark_reads_each_object_once(spark: "SparkSession", tmp_path: Path) -> None:
    from kafka_forensics.spark import export

    paths = put_damaged(tmp_path, "plain")
    exported = export(spark, paths, str(tmp_path / "out"), ["batches"], deep=True)
    events, local_batches, remote_batches = 4, 20, 20
    expected = events + local_batches + remote_batches
    assert [dataset.rows for dataset in exported.datasets if dataset.fact == "batches"] == [expected]
