"""Starts a real broker with each small file damaged in each way; the result is that of the table and of the finding."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.replication.small_files import NOT_ALL_SERVED, RIGHT, StartOutcome, start_outcome
from kafka_forensics.scanning.engine import local
from lab.cluster import Cluster
from lab.combined import CombinedCluster
from lab.errors import LabTimeoutError
from lab.kafka_jars import KAFKA_VERSION
from lab.start_page import table
from lab.start_table import BROKER, FILES, damages, observe, outcome, places, put_damage, written

pytestmark = [pytest.mark.broker, pytest.mark.nightly]
STATE = "stopped"
ALONE = {
    (row.file, row.damage): row.outcome
    for row in table()
    if (row.before, row.log_dirs) == (STATE, 1) and KAFKA_VERSION in row.versions.split()
}
"""(file, damage) → outcome in the table, for a broker with one log directory."""
ALSO_SEEN = {("meta.properties", "no_directory.id"): StartOutcome.REBUILT}
"""Outcomes of the starts in which the controllers learn the new id of the directory before they unfence the broker."""


@pytest.fixture(scope="module", name="base")
def base_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("starts")


@pytest.fixture(scope="module", name="cluster")
def stopped_node(base: Path) -> Iterator[CombinedCluster]:
    with written(base, KAFKA_VERSION, log_dirs=1) as cluster:
        assert list(places(cluster)) == list(FILES)
        yield cluster


def outcome_found(cluster: CombinedCluster, path: Path) -> StartOutcome | None:
    """The outcome that a scan forecasts for a file; None if it reports nothing."""
    log_dir = cluster.log_dir(BROKER)
    findings = local.scan([str(log_dir)], ScanOptions(jobs=1)).findings
    name = str(path.relative_to(log_dir))
    reported = {StartOutcome(row.evidence["on_start"]) for row in findings if row.place.file == name and "on_start" in row.evidence}
    assert len(reported) <= 1
    return next(iter(reported), None)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", FILES)
def test_a_start_has_the_outcome_of_the_table_and_the_finding(cluster: CombinedCluster, base: Path, file: str) -> None:
    right = observe(cluster, base, KAFKA_VERSION, STATE, file, RIGHT)
    assert right.served is not None
    wrong = {}
    for damage in damages(file):
        path, _, after = put_damage(cluster, base, STATE, file, damage)
        found = outcome_found(cluster, path)
        real = outcome(observe(cluster, base, KAFKA_VERSION, STATE, file, damage), right)
        rule = None if after is None or real not in NOT_ALL_SERVED else start_outcome(file, damage)
        if real not in (ALONE[file, damage], ALSO_SEEN.get((file, damage))) or rule not in (None, found):
            wrong[damage] = (real, ALONE[file, damage], found, rule)
    assert wrong == {}


def test_a_node_with_an_empty_cluster_id_is_refused_by_the_others(tmp_path: Path) -> None:
    with Cluster(tmp_path / "nodes", 1, 1) as cluster:
        cluster.stop(BROKER)
        path = cluster.log_dir(BROKER) / "meta.properties"
        path.write_text(re.sub("cluster.id=.*", "cluster.id=", path.read_text()))
        result = local.scan([str(cluster.log_dir(BROKER))], ScanOptions(jobs=1))
        (found,) = [finding for finding in result.findings if finding.kind == "CHECKPOINT_MALFORMED"]
        assert (found.evidence["reason"], found.evidence["on_start"]) == ("cluster_id_empty", StartOutcome.REFUSED.value)
        with contextlib.suppress(LabTimeoutError):  # the broker waits for a controller that accepts it
            cluster.start(BROKER)
        server = cluster.server(BROKER)
        assert server.running
        assert server.mentions("INCONSISTENT_CLUSTER_ID")
        cluster.kill(BROKER)
