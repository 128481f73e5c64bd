"""Several snapshots read by the data source: a column with their names, and the rows of the local engine. No JVM runs here."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import kafka_forensics as kf
from kafka_forensics.errors import PathMissingError, UsageError
from kafka_forensics.export.facts import spans as facts_spans, splits as fact_splits
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.model.schemas import FACTS
from tests.spark.source_facts import BY_FILE, as_source, read, rows, source
from tests.support.brokers import put_meta_properties
from tests.support.logs import HEALTHY
from tests.support.snapshot_trees import Snapshots

SMALL = 2048
"""Bytes of a part: a few batches."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three snapshots: appends and a loss, retention, a broker and a topic that only the last one has."""
    trees = Snapshots(tmp_path_factory.mktemp("snapshots"))
    trees.put("day-9", HEALTHY)
    trees.put(
        "day-10", {1: HEALTHY.extended(), 2: HEALTHY.truncated_to(55), 3: HEALTHY.truncated_to(72).extended(epoch=9, tag="other")}
    )
    last = trees.put("day-11", HEALTHY.extended().after_retention(29), log_start=29)
    shutil.copytree(last / "b3" / "t-0", last / "b3" / "late-4")
    shutil.copytree(last / "b3", last / "b4")
    put_meta_properties(last / "b4", 4, cluster_id=None)
    return trees.root


@pytest.fixture(scope="module")
def local_result(root: Path) -> SnapshotsResult:
    """The result of the local engine."""
    return kf.scan_snapshots(str(root))


def local(result: SnapshotsResult, fact: str) -> pa.Table:
    """The fact as the local engine gives it, in Spark's types."""
    return as_source(result.facts(fact, payloads=True), fact)


def test_every_fact_equals_that_of_the_local_engine(root: Path, local_result: SnapshotsResult) -> None:
    for fact in (*FACTS, "changes"):
        table, tasks = read(root, fact, snapshots="true")
        assert table.column_names[0] == ("topic" if fact == "changes" else "snapshot")
        assert table.schema == local(local_result, fact).schema
        assert rows(table) == rows(local(local_result, fact)), fact
        if fact in BY_FILE:
            assert list(dict.fromkeys(table["snapshot"].to_pylist())) == ["day-9", "day-10", "day-11"]
        if fact == "findings":
            assert tasks == 1
            assert "COMMITTED_TRUNCATED_SINCE" in table["kind"].to_pylist()


def test_segments_are_divided_within_each_snapshot(
    root: Path, local_result: SnapshotsResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_spans, "SPAN_BYTES", SMALL)
    monkeypatch.setattr(fact_splits, "SPAN_BYTES", SMALL)
    for fact in BY_FILE:
        table, tasks = read(root, fact, snapshots="true", split_bytes=SMALL)
        assert tasks > 3
        assert rows(table) == rows(local(local_result, fact)), fact


def test_links_in_the_folder_are_reported_as_left_out(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(root / "day-9", tmp_path / "day-9")
    (tmp_path / "lin\x1bk").symlink_to(root / "day-10")
    table, _ = read(tmp_path, "replicas", snapshots="true")
    assert set(table["snapshot"].to_pylist()) == {"day-9"}
    assert caplog.messages[0].endswith("are not followed, give their targets as paths: lin\\x1bk")


def test_order_selects_and_orders_snapshots(root: Path) -> None:
    order = ("day-10", "day-9")
    result = kf.scan_snapshots(str(root), order=order)
    for fact in ("batches", "changes", "findings"):
        table, _ = read(root, fact, snapshots="true", order="day-10, day-9")
        assert rows(table) == rows(local(result, fact)), fact
    last, _ = read(root, "findings", snapshots="true", order="day-11")
    assert set(last["snapshot"].to_pylist()) <= {"day-11"}
    paths = [Path(f"{name}={root / name}") for name in order]
    assert rows(read(paths, "spans", snapshots="true")[0]) == rows(local(result, "spans"))


def test_filters_may_match_in_one_snapshot_only(root: Path, local_result: SnapshotsResult) -> None:
    for fact in ("batches", "checkpoints", "transactions", "replicas", "findings", "changes"):
        wanted = [row for row in local(local_result, fact).to_pylist() if row["broker"] == "4" and row["topic"] == "late"]
        rows_read = read(root, fact, snapshots="true", brokers="4", topics="late", partitions="4")[0].to_pylist()
        assert sorted(map(repr, rows_read)) == sorted(map(repr, wanted)), fact
    for fact, name, value in (("batches", "topics", "lat"), ("batches", "partitions", "9"), ("findings", "brokers", "5")):
        with pytest.raises(UsageError, match=f"nothing matches {name}={value}"):
            read(root, fact, snapshots="true", **{name: value})


def test_a_schema_may_have_the_snapshot_column(root: Path, local_result: SnapshotsResult) -> None:
    names, offsets = StructField("snapshot", StringType()), StructField("last_offset", LongType())
    whole = local(local_result, "batches")
    for fields in ([offsets, names], [names], [offsets]):
        reader = source(root, snapshots="true").reader(StructType(fields))
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        assert rows(pa.Table.from_batches(batches)) == rows(whole.select([field.name for field in fields]))
    between = source(root, fact="findings", snapshots="true").reader(StructType([StructField("kind", StringType()), names]))
    (task,) = between.partitions()
    assert {tuple(batch.schema.names) for batch in between.read(task)} == {("kind", "snapshot")}


def test_invalid_snapshots_are_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, order, error, message in (
        (root, "day-99", UsageError, "there is no snapshot day-99: did you mean day-9"),
        (root, "day-9,day-9", UsageError, "snapshot day-9 was chosen twice"),
        (tmp_path / "empty", None, UsageError, "there is no snapshot in"),
        (tmp_path, None, UsageError, "there is no Kafka log in .*empty"),
        (root / "day-12", None, PathMissingError, "no such file or directory"),
    ):
        with pytest.raises(error, match=message):
            source(path, snapshots="true", **({} if order is None else {"order": order}))
    with pytest.raises(UsageError, match="there is nothing to compare: snapshots here: day-9"):
        read(root, "changes", snapshots="true", order="day-9")
