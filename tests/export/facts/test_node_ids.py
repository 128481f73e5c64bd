"""`node_id` beside `broker` in every fact: by `meta.properties`, whatever a broker is called, and by both engines' tasks."""

from pathlib import Path

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import NodeIds, gather_log_dirs
from kafka_forensics.export.facts.read import read_task
from kafka_forensics.export.facts.rows import FROM_SCANS, FactQuery
from kafka_forensics.export.facts.scan import plan_snapshots, read_scan, read_snapshots
from kafka_forensics.export.facts.splits import plan_tasks
from kafka_forensics.export.views import finding_text
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.schemas import FACTS, SNAPSHOT_FACTS
from tests.support.brokers import put_replica
from tests.support.logs import HEALTHY, HIGH_WATERMARK
from tests.support.places import SAMPLES
from tests.support.snapshot_trees import NEW, OLD, Snapshots

UNCLEAN_ELECTION = SAMPLES / "unclean-election"
PATHS = [f"a={UNCLEAN_ELECTION}/broker-1", f"{UNCLEAN_ELECTION}/broker-2", f"3={UNCLEAN_ELECTION}/broker-3"]
NODE_IDS = {("a", 1), ("2", 2), ("3", 3)}


def pairs(table: pa.Table) -> set[tuple[str | None, int | None]]:
    return set(zip(table["broker"].to_pylist(), table["node_id"].to_pylist(), strict=True)) - {(None, None)}


@pytest.mark.parametrize("fact", [*FACTS, *SNAPSHOT_FACTS])
def test_node_id_follows_broker_in_every_fact(fact: str) -> None:
    schema = (FACTS | SNAPSHOT_FACTS)[fact].schema
    assert ("broker" in schema.names) == ("node_id" in schema.names) == (fact not in ("metadata_history", "remote_segments"))
    if "broker" in schema.names:
        assert schema.names.index("node_id") == schema.names.index("broker") + 1
        assert schema.field("node_id").type == pa.int32()
        assert schema.field("node_id").nullable


def test_a_broker_has_its_node_id_by_any_name() -> None:
    result = kf.scan(PATHS)
    for fact in FACTS:
        if "node_id" in FACTS[fact].schema.names:
            assert pairs(result.facts(fact)) <= NODE_IDS, fact
    assert pairs(result.facts("batches")) == pairs(result.facts("replicas")) == NODE_IDS
    replicas = result.facts("replicas").to_pylist()
    assert {row["node_id"] in row["isr"] for row in replicas if row["isr"]} == {True, False}


@pytest.mark.parametrize("fact", [fact for fact in FACTS if "node_id" in FACTS[fact].schema.names])
def test_tasks_have_the_node_ids_of_the_local_engine(fact: str) -> None:
    query = FactQuery(fact, ("broker", "node_id"))
    for task in plan_tasks(PATHS, query):
        read = read_scan(task, query, finding_text) if fact in FROM_SCANS else read_task(task, query)
        for batch in read:
            assert pairs(pa.Table.from_batches([batch])) <= NODE_IDS


def test_an_unknown_node_id_is_null_and_a_number_is_one(tmp_path: Path) -> None:
    batches = [batch.data for batch in HEALTHY.batches]
    folders = [put_replica(tmp_path, name, batches, high_watermark=HIGH_WATERMARK) for name in ("x", "y")]
    result = kf.scan([f"5={folders[0]}", str(folders[1])])
    assert pairs(result.facts("batches")) == {("5", 5), ("broker-y", None)}
    node_ids = NodeIds.of(gather_log_dirs([str(folders[1])]).log_dirs)
    assert [node_ids[broker] for broker in (7, "007", REMOTE, None)] == [7, None, None, None]
    with pytest.raises(UsageError):
        kf.scan(f"{REMOTE}={folders[0]}")


def test_changes_have_node_ids(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.put(OLD, HEALTHY)
    snapshots.put(NEW, {1: HEALTHY, 2: HEALTHY.truncated_to(55)})
    paths = {name: [f"{label}={tmp_path}/{name}/b{label[-1]}" for label in labels]
             for name, labels in ((OLD, ("a1", "b2", "c3")), (NEW, ("a1", "b2")))}  # fmt: skip
    result = kf.scan_snapshots(paths)
    expected = {("a1", 1), ("b2", 2), ("c3", 3)}
    assert pairs(result.facts("changes")) == expected
    between = [finding.place.broker for finding in result.findings]
    assert between
    assert pairs(result.facts("findings")) <= expected
    for fact in ("changes", "findings"):
        query = FactQuery(fact, ("broker", "node_id"))
        for task in plan_snapshots(paths, query):
            for batch in read_snapshots(task, query, finding_text):
                assert pairs(pa.Table.from_batches([batch])) <= expected
