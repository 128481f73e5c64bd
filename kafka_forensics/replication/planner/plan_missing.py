"""What would have to be known to make a plan's bounds narrower, and copies that no plan can use as they are."""

from collections import Counter
from collections.abc import Iterator

from kafka_forensics.replication.planner.plans import NO_WORD, Missing, PlanPartition, PlanReplica, TruncateBy


def missing_witnesses(given: PlanPartition, regime: TruncateBy) -> Iterator[Missing]:
    """Witnesses that are not there, of the partition and then replica by replica."""
    nodes = {replica.broker: given.nodes.get(replica.broker, replica.broker) for replica in given.replicas}
    if given.strays is not None:
        yield Missing("topic_unknown")
    elif given.control is None or given.control.assignment is None:
        yield Missing(NO_WORD)
        present = set(nodes.values())
        yield from (Missing("dead_copy_absent", node) for node in sorted(given.dead, key=str) if node not in present)
    else:
        absent = given.absent
        unnamed = [broker for broker, node in nodes.items() if not isinstance(node, int)]
        if len(absent) > len(unnamed):  # else each of the unnamed may be the copy of one of them
            kinds = [("dead_copy_absent" if broker in given.dead else "copy_absent", broker) for broker in absent]
            yield from (Missing(kind, broker) for kind, broker in kinds)
        if unnamed or given.guessed:
            yield from (Missing("copy_unnamed", broker) for broker in nodes if broker in given.guessed or broker in unnamed)
    if len(set(nodes.values())) < len(nodes):
        copies = Counter(nodes.values())
        yield from (Missing("same_broker", broker) for broker, node in nodes.items() if copies[node] > 1)
    yield from (Missing("not_copied", broker) for broker in given.not_copied)
    for replica in given.replicas:
        yield from _of_replica(replica, regime)


def _of_replica(replica: PlanReplica, regime: TruncateBy) -> Iterator[Missing]:
    if replica.is_absent:
        yield Missing("replica_absent", replica.broker)
    if replica.high_watermark is None:
        yield Missing("no_high_watermark", replica.broker)
    if regime == "epochs" and replica.checkpoint is None and replica.log_end_offset > replica.log_start_offset:
        yield Missing("no_epoch_checkpoint", replica.broker)
    if not replica.end_is_known or replica.unread:
        yield Missing("log_not_read", replica.broker)
    if replica.has_unknown_bytes:
        yield Missing("unknown_bytes", replica.broker)
    if not replica.starts:
        yield Missing("does_not_start", replica.broker)
    if not replica.is_live:
        yield Missing("not_live", replica.broker)
