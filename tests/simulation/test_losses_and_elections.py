"""A loss is told with the election that caused it, also where the new leader's own records are the older ones."""

from pathlib import Path

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.simulation.actions import checkpoint_high_watermarks
from kafka_forensics.simulation.cluster import Cluster
from kafka_forensics.simulation.history import History
from kafka_forensics.simulation.materialise import materialise


def test_the_election_is_one_after_the_last_epoch_of_those_who_hold_what_was_lost(tmp_path: Path) -> None:
    """Broker 2 takes over uncleanly from broker 1, and broker 1 from broker 2, whose committed record then is lost."""
    cluster = Cluster((1, 2))
    history = History(cluster)
    partition = history.create("t")
    history.shrink(partition, [2])
    history.produce(partition, acks=1)
    history.kill(1)
    history.elect(partition, unclean=True)
    history.produce(partition)
    checkpoint_high_watermarks(cluster, 2)
    history.kill(2)
    history.start(1)
    history.elect(partition, unclean=True)
    history.shut_down()
    assert [(change.leader_epoch, change.leader) for change in cluster.changes if change.elected] == [
        (0, 1),
        (1, -1),
        (2, 2),
        (3, -1),
        (4, 1),
    ]
    scan_result = make_plans([str(path) for path in materialise(cluster, tmp_path)], ScanOptions(jobs=1), PlanOptions()).result
    assert scan_result is not None
    (loss,) = [finding for finding in scan_result.findings if finding.kind == "UNCLEAN_LOSS"]
    assert (loss.place.offset_start, loss.place.offset_end, loss.evidence["held_by"]) == (0, 1, [2])
    told = {name: loss.evidence["election"][name] for name in ("old_leader", "new_leader", "leader_epoch", "unclean")}
    assert told == {"old_leader": 2, "new_leader": 1, "leader_epoch": 4, "unclean": True}
