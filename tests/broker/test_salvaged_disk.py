"""One disk is wiped, one log has a torn tail, one a flipped bit: all brokers start on their salvaged log directories.

Every record is served again, and every broker has it, byte for byte.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import MANIFEST, Salvaged, SalvageOptions, salvage
from kafka_forensics.questions.verify import ExecutedPlan, Outcome, Verified, read_promises, verify
from lab.broker_faults import BROKER_SETTINGS
from lab.cluster import Cluster
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.salvage_states import copy_killed, cut, flip
from lab.salvaged_start import Served, Started, read, start_on, watermarks
from lab.unclean_election import fully_replicated
from lab.versions import VERSIONS
from lab.workload import write_append_time, write_orders, write_payments

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

WIPED = 3
PLACES = [("append-time", 0), ("orders", 0), ("orders", 1), ("payments", 0), ("payments", 1)]


@dataclass(frozen=True)
class Restarted:
    """What brokers served before and after, and their log directories."""

    salvaged: Salvaged
    before: Served
    started: Started
    sound: Path
    log_dirs: dict[int, Path]
    promises: list[Verified]


@pytest.fixture(scope="module", name="restarted", params=["4.2.1", "4.3.0"])
def brokers_on_a_salvage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    root = tmp_path_factory.mktemp("disk")
    copies, sound, disk = root / "copies", root / "sound", root / "disk"
    with Cluster(root / "nodes", version_jars=VERSIONS[request.param].jars, broker_settings=BROKER_SETTINGS) as cluster:
        for write in (write_orders, write_payments, write_append_time):
            write(cluster)
        wait_until("all replicas are in sync", lambda: fully_replicated(cluster), timeout_seconds=90, step_seconds=1.0)
        ends = watermarks(cluster, PLACES)
        before = read(cluster, {place: begin for place, (begin, _) in ends.items()}, "read_uncommitted")
        copy_killed(cluster, copies)
        copy_tree(copies, sound)
        cut(copies / "broker-1" / "orders-0", 9)
        flip(copies / "broker-2" / "orders-0", 0, 1)
        shutil.rmtree(cluster.log_dir(WIPED))
        for made in (cluster.log_dir(WIPED), disk):
            made.mkdir()
        paths = [str(copies / "broker-1"), str(copies / "broker-2"), f"{WIPED}={disk}"]
        salvaged = salvage(paths, root / "out", ScanOptions(), SalvageOptions())
        started = start_on(cluster, root / "out", ends)
        cluster.stop()
        log_dirs = {broker: cluster.log_dir(broker) for broker in cluster.brokers}
        given = [f"{broker}={log_dir}" for broker, log_dir in log_dirs.items()]
        options = ScanOptions(topic_glob="[aop]*")
        promises = verify(given, read_promises(str(root / "out" / MANIFEST)), options, ExecutedPlan()).promises
        yield Restarted(salvaged, before, started, sound, log_dirs, promises)


def test_all_records_are_served_again(restarted: Restarted) -> None:
    assert {refused.topic for refused in restarted.salvaged.refused} <= {"__cluster_metadata"}
    assert restarted.started.served == restarted.before
    assert len(restarted.before["orders", 0]) == 500


def test_every_broker_has_every_byte_including_the_one_with_the_new_disk(restarted: Restarted) -> None:
    for topic, partition in PLACES:
        for path in (restarted.sound / f"broker-{WIPED}" / f"{topic}-{partition}").glob("*.log"):
            for broker, log_dir in restarted.log_dirs.items():
                ours = (log_dir / f"{topic}-{partition}" / path.name).read_bytes()
                assert ours.startswith(path.read_bytes()), (broker, topic, path.name)
    assert {promise.outcome for promise in restarted.promises} == {Outcome.KEPT}


def test_recovery_truncated_nothing_and_no_directory_was_offline(restarted: Restarted) -> None:
    for broker, output in restarted.started.output.items():
        for words in (b"Truncating to", b"Corrupt", b"] ERROR ", b"-stray"):
            found = [line for line in output.splitlines() if words in line and b"has no effect" not in line]
            assert found == [], (broker, found)
