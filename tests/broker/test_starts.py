"""A real broker is started on each small file with each kind of damage, and does what the table and the finding say of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.replication.small_files import RIGHT, STOPPING, Outcome, start_outcome
from lab.combined import CombinedCluster
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
"""By the table, of a broker with one log directory."""


@pytest.fixture(scope="module", name="base")
def base_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("starts")


@pytest.fixture(scope="module", name="cluster")
def stopped_node(base: Path) -> Iterator[CombinedCluster]:
    with written(base, KAFKA_VERSION, log_dirs=1) as cluster:
        assert list(places(cluster)) == list(FILES)
        yield cluster


def outcome_found(cluster: CombinedCluster, path: Path) -> Outcome | None:
    """What a scan says that a start does with a file; None where it says nothing of the file."""
    log_dir = cluster.log_dir(BROKER)
    findings = local.scan([str(log_dir)], ScanOptions(jobs=1)).findings
    name = str(path.relative_to(log_dir))
    said = {Outcome(row.evidence["on_start"]) for row in findings if row.place.file == name and "on_start" in row.evidence}
    assert len(said) <= 1
    return next(iter(said), None)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", FILES)
def test_a_start_does_what_is_said_of_a_damaged_file(cluster: CombinedCluster, base: Path, file: str) -> None:
    right = observe(cluster, base, KAFKA_VERSION, STATE, file, RIGHT)
    assert right.served is not None
    wrong = {}
    for damage in damages(file):
        path, _, after = put_damage(cluster, base, STATE, file, damage)
        found = outcome_found(cluster, path)
        real = outcome(observe(cluster, base, KAFKA_VERSION, STATE, file, damage), right)
        said = None if after is None or real not in STOPPING else start_outcome(file, damage)
        if real is not ALONE[file, damage] or said not in (None, found):
            wrong[damage] = (real, ALONE[file, damage], found, said)
    assert wrong == {}
