"""Records that stop controllers: a scan reports exactly those that stop a real controller, with its exception."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.parsers.quorum_state import parse_quorum_state
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.cluster import FIRST_CONTROLLER, Cluster
from lab.errors import LabError
from lab.jvm import wait_until
from lab.versions import VERSIONS
from tests.analysis.internal_topics.rejected_records import CASES
from tests.support.controllers import METADATA, START_MS

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

ACTIVE = "Becoming the active controller"
SECONDS = 60
SINCE_4_4 = frozenset({"no controller to unregister"})


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller that ran and was stopped, and a copy of its log directory."""

    version: str
    cluster: Cluster
    pristine: Path

    def append(self, values: tuple[bytes, ...]) -> int:
        """Restore the log directory and append these records; return the offset of the last."""
        self.cluster.restore(self.pristine, [FIRST_CONTROLLER])
        directory = self.cluster.log_dir(FIRST_CONTROLLER) / METADATA
        with LocalSource(str(directory)).open("quorum-state") as file:
            state = parse_quorum_state(file)
        assert state is not None
        _, end = scanned(directory.parent)
        records = [RecordToWrite(None, value, offset_delta=number) for number, value in enumerate(values)]
        batch = write_batch(records, base_offset=end, base_timestamp=START_MS, partition_leader_epoch=state.leader_epoch)
        with max(directory.glob("*.log")).open("ab") as log:
            log.write(batch)
        return end + len(values) - 1

    def outcome(self) -> str:
        """The controller's output until it stops or leads."""
        with contextlib.suppress(LabError):
            self.cluster.start(FIRST_CONTROLLER)
        server = self.cluster.server(FIRST_CONTROLLER)
        wait_until("it stops or leads", lambda: not server.running or server.mentions(ACTIVE), timeout_seconds=SECONDS)
        self.cluster.kill(FIRST_CONTROLLER)
        return server.output.read_text()


@pytest.fixture(scope="module", params=["4.3.0", "4.4.0"])
def controller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    root = tmp_path_factory.mktemp("controller")
    with Cluster(root / "nodes", 0, 1, version_jars=VERSIONS[request.param].jars) as cluster:
        server = cluster.server(FIRST_CONTROLLER)
        wait_until("it leads", lambda: server.mentions(ACTIVE), timeout_seconds=SECONDS)
        cluster.stop(FIRST_CONTROLLER)
        cluster.copy(root / "pristine", [FIRST_CONTROLLER])
        yield Controller(request.param, cluster, root / "pristine")


@pytest.mark.parametrize("name", CASES)
def test_a_controller_stops_at_records_that_a_scan_reports(controller: Controller, name: str) -> None:
    if name in SINCE_4_4 and controller.version == "4.3.0":
        return  # this version does not know that kind of record
    values, reason = CASES[name]
    offset = controller.append(values)
    found, _ = scanned(controller.cluster.log_dir(FIRST_CONTROLLER))
    output = controller.outcome()
    if reason is None:
        assert found == []
        assert ACTIVE in output
        return
    ((found_reason, found_offset, exception),) = found
    assert (found_reason, found_offset) == (reason, offset)
    assert ACTIVE not in output
    assert "fatal fault" in output
    assert any(name in output for name in exception.split(" or "))


def scanned(log_dir: Path) -> tuple[list[tuple[str, int, str]], int]:
    """(reason, offset, exception) of rejected records in a scan, and the log end."""
    result = scan([str(log_dir)], ScanOptions(jobs=1))
    found = [finding for finding in result.findings if finding.kind == "METADATA_RECORD_REJECTED"]
    (summary,) = [partition for partition in result.partitions if partition.topic == "__cluster_metadata"]
    end = summary.replicas[0].log_end_offset
    assert end is not None
    return [(finding.evidence["reason"], finding.place.offset_start or 0, finding.evidence["exception"]) for finding in found], end
