"""Two unclean elections on real brokers: which brokers still have the lost records, and what each election lost."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.scanning.engine.local import scan
from lab.cluster import Cluster
from lab.jvm import wait_until
from lab.story import messages
from lab.workload import Writer

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

TOPIC = "orders"
SETTINGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


def write(cluster: Cluster, first: int, count: int) -> int:
    """Write records; return the end offset acknowledged by all in-sync replicas."""
    writer = Writer(cluster)
    writer.batch(TOPIC, messages("order", first, count))
    return writer.end_offset


def lead(cluster: Cluster, broker: int) -> None:
    wait_until(f"broker {broker} leads", lambda: cluster.leader_and_isr(TOPIC)[0] == broker, timeout_seconds=60)


def test_holders_are_reported_by_range_and_losses_by_election(tmp_path: Path) -> None:
    """Broker 3 lacks 70 acknowledged records and is elected; broker 2 has 40 of them and is elected next, without the five records
    of broker 3. Records that broker 2 brings back are no longer lost."""
    with Cluster(tmp_path / "nodes", brokers=3, broker_settings={"unclean.leader.election.interval.ms": "1000"}) as cluster:
        cluster.create_topic(TOPIC, assignment=[[1, 2, 3]], settings=SETTINGS)
        ends = [write(cluster, 0, 300)]
        cluster.kill(3)
        cluster.await_isr(TOPIC, [1, 2])
        ends.append(write(cluster, 300, 40))
        cluster.kill(2)
        cluster.await_isr(TOPIC, [1])
        ends.append(write(cluster, 340, 30))
        assert ends == [300, 340, 370]
        cluster.await_high_watermark(1, TOPIC, 370)
        cluster.kill(1)
        cluster.start(3)
        lead(cluster, 3)
        assert write(cluster, 370, 5) == 305
        cluster.await_high_watermark(3, TOPIC, 305)
        cluster.copy(tmp_path / "first")
        cluster.kill(3)
        cluster.start(2)
        lead(cluster, 2)
        assert write(cluster, 375, 7) == 347
        cluster.stop(2)
        cluster.copy(tmp_path / "second")
    paths = [str(path) for path in sorted((tmp_path / "first").iterdir())]
    found = scan(paths, ScanOptions(jobs=1, topic_glob=TOPIC))
    [loss] = [finding for finding in found.findings if finding.kind == "UNCLEAN_LOSS"]
    holders = [(row["offset_start"], row["offset_end"], row["brokers"]) for row in loss.evidence["held_ranges"]]
    assert ((loss.place.offset_start, loss.place.offset_end), holders) == ((300, 370), [(300, 340, [1, 2]), (340, 370, [1])])
    plans = make_plans(paths, ScanOptions(jobs=1, topic_glob=TOPIC), PlanOptions())
    [planned] = [planned for planned in plans.planned if planned.plan.topic == TOPIC]
    [under_3] = [candidate for candidate in planned.plan.candidates if candidate.broker == 3]
    assert [(lost.start, lost.end, lost.held_by) for lost in under_3.losses] == [(300, 340, (1, 2)), (340, 370, (1,))]
    paths = [str(path) for path in sorted((tmp_path / "second").iterdir())]
    found = scan(paths, ScanOptions(jobs=1, topic_glob=TOPIC))
    costs = {
        finding.evidence["new_leader"]: (finding.place.offset_start, finding.place.offset_end)
        for finding in found.findings
        if finding.kind == "UNCLEAN_ELECTION"
    }
    assert costs == {3: (340, 370), 2: (300, 305)}
