"""Plans for known histories with the needs of each election, compared with `plans.json`.

After a change of a rule, run `python -m tests.replication.planner.test_plans` and review the difference.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from kafka_forensics.replication.planner.election_needs import election_needs
from kafka_forensics.replication.planner.planner import plan_partition
from kafka_forensics.replication.planner.plans import PlanControl, PlanPartition, PlanReplica, TruncateBy, Witness
from tests.support.kept_answers import write_answers
from tests.support.plan_values import entries, lagging, partition, replica

CONTROL = PlanControl(1, 1, 2, (1,), (), (2, 3, 1))
AUDIT = partition(
    replica(1, 345, (0, 0), (2, 300), hw=345),
    replica(2, 370, (0, 0), hw=370),
    replica(3, 300, (0, 0), hw=300),
    differing={(0, 1): ((300, 345),)},
    control=CONTROL,
)
LEDGER = partition(
    replica(1, 10, hw=10), replica(2, 10, hw=0), replica(3, 3, hw=3), differing={(0, 2): ((0, 3),), (1, 2): ((0, 3),)}
)
ONE, TWO, THREE = AUDIT.replicas
DAMAGED = replace(TWO, held=((0, 300),), damaged=((300, 370),))
"""The only copy of [300, 370) is damaged: no leader can serve it."""
NAMED = replace(AUDIT, replicas=tuple(replace(replica, broker=f"b{replica.broker}") for replica in AUDIT.replicas))
STALE = replace(replica(1, 10, (0, 0), (1, 5)), checkpoint=entries((0, 0)))
WITH_HOLE = replace(replica(1, 8, (0, 0), hw=10), held=((0, 4), (6, 10)))
"""It has a hole at [4, 6) and loses [8, 10) when it starts."""
FORK = {(0, 1): ((5, 8),)}
EQUAL_REPLICAS = replica(1, 8, (0, 0), hw=8), replica(2, 8, (0, 0), hw=8)
CONTROL_BY_LEADER = PlanControl(1, 1, 2, (1, 2), (), (2, 3, 1))


def audit(*replicas: PlanReplica) -> PlanPartition:
    return replace(AUDIT, replicas=replicas)


def partition_with_hole(epochs_of_2: tuple[tuple[int, int], ...]) -> PlanPartition:
    """Epoch 2 of broker 3 starts in its hole at [4, 6); records [4, 6) of broker 2 diverge if they have epoch 1."""
    third = replace(replica(3, 10, (1, 0), (2, 4), hw=10), held=((0, 4), (6, 10)))
    return partition(replica(1, 4, (1, 0)), replica(2, 6, *epochs_of_2), third, control=CONTROL)


def partition_with_hole_after(start: int) -> PlanPartition:
    """Broker 1 ends at 4, broker 2 at 8. Broker 3 has no epochs, a hole at [8, 9), and a hole at [4, 6) if it starts at 3."""
    on_disk = ((3, 4), (6, 8), (9, 10)) if start == 3 else ((6, 8), (9, 10))
    third = replace(replica(3, 10, hw=10, start=start), held=on_disk)
    return partition(replica(1, 4, (1, 0)), replica(2, 8, (1, 0)), third, control=CONTROL)


def diverging_at_log_starts(follower_start: int, leader_start: int) -> PlanPartition:
    """The follower would truncate to 4 by its checkpoint and to 8 by its batches, but not below the later log start."""
    follower = replace(replica(1, 10, (0, follower_start), hw=4, start=follower_start), checkpoint=None)
    leader = replica(2, 12, (0, leader_start), (2, max(8, leader_start)), start=leader_start)
    return partition(follower, leader, control=CONTROL)


DIVERGING_FROM_8 = {(0, 1): ((8, 10),)}
SHORT, LEADER = replica(1, 10, (0, 0), hw=4), replica(2, 12, (0, 0), (2, 8))
STARTS_AT_10 = replica(1, 20, (0, 10), start=10, hw=20)
FOLLOWERS_BELOW = {
    "ends below": replica(2, 5, (0, 0), hw=5),
    "ends above": replica(2, 15, (0, 0), hw=10),
    "empty": replica(2, 0),
    "damaged": replace(replica(2, 5, (0, 0), hw=5), damaged=((2, 3),)),
}
NOT_TIERED = STARTS_AT_10, replica(2, 20, (0, 0)), replica(3, 5, (0, 0))
TIERED = [
    replace(whole, log_start_offset=0, held=((0, whole.log_end_offset),), epochs=entries((0, 0)), checkpoint=entries((0, 0)))
    for whole in (replace(replica, local_log_start_offset=replica.log_start_offset) for replica in NOT_TIERED)
]
LAST_KNOWN = PlanControl(-1, 2, 2, (), (2,), (1, 2, 3))
PLANS: dict[str, PlanPartition] = {
    "an unclean election costs what the other side wrote": AUDIT,
    "old brokers cut to their watermarks and keep what differs below": LEDGER,
    "high-watermark truncation that is over": replace(LEDGER, replicas=[replica(broker, 3, hw=3) for broker in (1, 2, 3)]),
    "a lagging follower costs its lag": partition(
        replica(1, 200, (0, 0), hw=200),
        replica(2, 600, (0, 0)),
        replica(3, 600, (0, 0)),
        control=PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2)),
    ),
    "equal replicas": partition(*(replica(broker, 10, (0, 0), (3, 4), hw=10) for broker in (1, 2, 3)), control=CONTROL),
    "a checkpoint and batches that cut differently": partition(
        STALE, replica(2, 12, (0, 0), (1, 5), (2, 8)), differing=DIVERGING_FROM_8
    ),
    "the same, compacted": replace(partition(STALE, replica(2, 12, (0, 0), (1, 5), (2, 8))), compacted=True),
    "equal epochs, other records": partition(*EQUAL_REPLICAS, differing=FORK, control=CONTROL),
    "a hole, and what recovery drops": partition(WITH_HOLE, replica(2, 9, (0, 0)), control=CONTROL),
    **{f"epochs: a hole, broker 2 has {epochs}": partition_with_hole(epochs) for epochs in (((1, 0),), ((1, 0), (2, 4)), ())},
    **{f"epochs: a hole behind {start}": partition_with_hole_after(start) for start in (3, 4, 6)},
    "damaged: the only copy": audit(ONE, DAMAGED, THREE),
    "damaged: recovery drops it": audit(ONE, replace(DAMAGED, log_end_offset=300), THREE),
    "damaged: a leader, others hold it whole": partition(
        replace(replica(1, 10, (0, 0), hw=10), held=((0, 4), (6, 10)), damaged=((4, 6),)),
        replica(2, 10, (0, 0), hw=10),
        control=CONTROL,
    ),
    "bytes whose offsets nothing tells": audit(ONE, replace(TWO, has_unknown_bytes=True), THREE),
    "alike: the leader": partition(*EQUAL_REPLICAS, differing=FORK, control=CONTROL_BY_LEADER),
    "alike: the assignment": partition(
        *EQUAL_REPLICAS, differing=FORK, control=replace(CONTROL_BY_LEADER, leader=-1, last_leader=None)
    ),
    "alike: the order": partition(*EQUAL_REPLICAS, differing=FORK),
    "alike: the watermark": partition(EQUAL_REPLICAS[0], replace(EQUAL_REPLICAS[1], high_watermark=9), differing=FORK),
    "alike: replicas to mend": partition(
        *EQUAL_REPLICAS, replace(EQUAL_REPLICAS[1], broker=3, is_live=False), differing={(0, 1): ((5, 8),), (0, 2): ((5, 8),)}
    ),
    "a log start is no loss": partition(replica(1, 10, (0, 0)), replica(2, 10, (0, 6), start=6), control=CONTROL),
    "cannot lead: a dead broker": audit(ONE, replace(TWO, is_live=False), THREE),
    "cannot lead: a directory nobody starts on is not cut": audit(ONE, replace(TWO, starts=False), THREE),
    "cannot lead: the leader": audit(replace(ONE, starts=False), TWO, THREE),
    "cannot lead: the only one": audit(replace(ONE, starts=False)),
    "cannot lead: all are dead": audit(*(replace(replica, is_live=False) for replica in AUDIT.replicas)),
    "missing: a watermark": audit(ONE, replace(TWO, high_watermark=None), THREE),
    "missing: a copy": audit(ONE, TWO),
    "brokers by names": NAMED,
    "brokers by names, and their nodes": replace(NAMED, nodes={"b1": 1, "b2": 2, "b3": 3}),
    "a group's offset": audit(
        ONE, replace(TWO, high_watermark=300, witnesses=(Witness(350, "group_offset", 2, "billing"),)), THREE
    ),
    "a watermark beyond its own log": audit(ONE, replace(TWO, high_watermark=None), replace(THREE, high_watermark=370)),
    "the last known leader is preferred": partition(
        *(replace(replica(broker, 10, (0, 0), hw=10), crashed=True) for broker in (1, 2, 3)), control=LAST_KNOWN
    ),
    "checkpoints: both": partition(SHORT, LEADER, differing=DIVERGING_FROM_8),
    "checkpoints: none of the follower": partition(replace(SHORT, checkpoint=None), LEADER, differing=DIVERGING_FROM_8),
    "checkpoints: none of the leader": partition(SHORT, replace(LEADER, checkpoint=None), differing=DIVERGING_FROM_8),
    "checkpoints: none of the leader, which walks": partition(
        SHORT, replace(LEADER, checkpoint=None, epochs_without_checkpoint=entries((2, 8))), differing=DIVERGING_FROM_8
    ),
    **{
        f"{regime}: below the leader's log start, {words}": partition(STARTS_AT_10, follower, control=CONTROL)
        for regime in ("epochs", "high_watermark")
        for words, follower in FOLLOWERS_BELOW.items()
    },
    "epochs: of logs without any": LEDGER,
    "high_watermark: of logs with epochs": AUDIT,
    **{
        f"part below log starts {starts}": diverging_at_log_starts(*starts)
        for starts in ((0, 0), (7, 0), (0, 7), (9, 0), (0, 9), (8, 8))
    },
    "no watermark lies below the log start": partition(
        replica(1, 20, (0, 0)), replace(replica(2, 20, (0, 10), start=10), checkpoint=None), control=CONTROL
    ),
    "not tiered": partition(*NOT_TIERED, control=CONTROL),
    "tiered": partition(*TIERED, control=CONTROL),
}

# Needs of elections.


def changed(source: PlanPartition, broker: int, **fields: Any) -> PlanPartition:
    """The partition with changed fields of a broker's replica, or of all replicas if `broker` is 0."""
    return replace(
        source, replicas=[replace(replica, **fields) if broker in (0, replica.broker) else replica for replica in source.replicas]
    )


def renamed(source: PlanPartition, names: dict[int, str], **fields: Any) -> PlanPartition:
    replicas = [replace(replica, broker=names.get(int(replica.broker), replica.broker)) for replica in source.replicas]
    return replace(source, replicas=replicas, **fields)


LED_BY_3 = PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))
UNCLEAN_OFF = PlanControl(3, 3, 0, (3,), (5,), (4, 1, 2, 3, 5), unclean_by_topic=False)
FIVE_REPLICAS = lagging(UNCLEAN_OFF, (200, 600, 600, 600, 600))
LEADERLESS = PlanControl(-1, 3, 0, (3, 1, 2), (), (3, 1, 2))
PAIR = lagging(PlanControl(1, 1, 0, (1, 2), (), (1, 2)), (8, 8))
EQUAL, WITHOUT_CONTROL = lagging(LEADERLESS, (8, 8, 8)), lagging(None, (8, 8, 8))
PAIR_WITH_HOLE = changed(PAIR, 2, held=((0, 2), (4, 8)))
TWO_COPIES_OF_2 = [
    lagging(LED_BY_3).replicas[0],
    *(replace(lagging(LED_BY_3).replicas[1], **fields) for fields in ({"broker": "new"}, {"broker": "old", "log_end_offset": 300})),
    lagging(LED_BY_3).replicas[2],
]
WITH_UNNAMED_COPY = renamed(lagging(LED_BY_3), {2: "copy-2"})
RACKS = {broker: f"rack-{broker}" for broker in (1, 2, 3)}
PLANS |= {
    "way: in sync": lagging(LED_BY_3),
    "way: one is out of the ISR": lagging(replace(LED_BY_3, isr=(3, 2))),
    "way: nobody was stopped cleanly": changed(lagging(LED_BY_3), 0, crashed=True),
    "way: a member of the ELR waits for the whole ISR": lagging(PlanControl(3, 3, 0, (3,), (2,), (1, 2, 3))),
    "way: the last known leader": changed(
        lagging(PlanControl(-1, 3, 0, (), (3,), (1, 2, 3), unclean_by_topic=False)), 0, crashed=True
    ),
    "way: an unclean election takes the first that is alive": FIVE_REPLICAS,
    "way: the controller would take any other at once": replace(FIVE_REPLICAS, control=replace(UNCLEAN_OFF, unclean_by_topic=True)),
    "way: unclean elections may be on": replace(FIVE_REPLICAS, control=replace(UNCLEAN_OFF, unclean_by_topic=None)),
    "way: the last leader comes before others": replace(
        FIVE_REPLICAS, control=replace(UNCLEAN_OFF, leader=-1, last_leader=2, isr=(), elr=())
    ),
    "way: all wait for a clean one": lagging(PlanControl(3, 3, 0, (3, 2), (), (3, 1, 2), unclean_by_topic=True)),
    "way: no controllers' log": lagging(None),
    "way: a replica without a copy": lagging(PlanControl(3, 3, 0, (3, 1, 2, 4), (), (4, 3, 1, 2), unclean_by_topic=False)),
    "way: the dead are not started": changed(lagging(LED_BY_3), 3, is_live=False),
    "way: who would not start": changed(lagging(LED_BY_3), 1, starts=False),
    "aside: nobody": PAIR,
    "aside: equal epochs cut nothing": replace(PAIR, differing={(0, 1): ((5, 8),)}),
    "aside: else it keeps its damaged batch": changed(PAIR, 2, damaged=((2, 4),)),
    "aside: not who does not start": changed(PAIR, 2, damaged=((2, 4),), starts=False),
    "aside: a hole that the leader does not have": PAIR_WITH_HOLE,
    "aside: a hole at the start of the log": changed(PAIR, 2, held=((2, 8),)),
    "aside: not a log start": changed(PAIR, 2, log_start_offset=2, held=((2, 8),)),
    "aside: not what is compacted": replace(PAIR_WITH_HOLE, compacted=True),
    "aside: not what was not read": changed(PAIR_WITH_HOLE, 2, unread=((2, 4),)),
    "aside: not a hole of both": changed(PAIR_WITH_HOLE, 1, held=((0, 2), (4, 8))),
    "aside: not what the leader has damaged": changed(PAIR_WITH_HOLE, 1, damaged=((2, 4),)),
    "aside: a hole in a shorter log": changed(PAIR_WITH_HOLE, 2, log_end_offset=6, held=((0, 2), (4, 6))),
    "any order: equal replicas": EQUAL,
    "any order: not while broker 4 may hold more": replace(EQUAL, control=replace(LEADERLESS, assignment=(3, 1, 2, 4))),
    "any order: not where one lags": lagging(LEADERLESS),
    "any order: not where one does not start": changed(EQUAL, 1, starts=False),
    "any order: not where the ISR is dead": replace(changed(EQUAL, 3, is_live=False), control=replace(LEADERLESS, isr=(3,))),
    "any order: no controllers' log": WITHOUT_CONTROL,
    "any order: not where one is dead and none tells": changed(WITHOUT_CONTROL, 3, is_live=False),
    "any order: not where one was not read": changed(WITHOUT_CONTROL, 3, unread=((2, 4),)),
    "copies: two of one broker": PlanPartition("clicks", 0, TWO_COPIES_OF_2, {}, LED_BY_3, nodes={"new": 2, "old": 2}),
    "copies: an unnamed one": WITH_UNNAMED_COPY,
    "copies: an unnamed one, guessed": replace(WITH_UNNAMED_COPY, nodes={"copy-2": 2}, guessed=frozenset({"copy-2"})),
    "copies: an unnamed one and two lack": replace(WITH_UNNAMED_COPY, replicas=WITH_UNNAMED_COPY.replicas[:2]),
    "copies: brokers by names": renamed(lagging(LED_BY_3), RACKS, nodes={"rack-1": 1, "rack-2": 2, "rack-3": 3}),
}
EXPECTED_PATH = Path(__file__).with_name("plans.json")
EXPECTED: dict[str, Any] = json.loads(EXPECTED_PATH.read_text()) if EXPECTED_PATH.exists() else {}


def document_of(name: str) -> Any:
    """The whole plan, its derived values, and the needs of each election."""
    plan_input, prefix = PLANS[name], name.partition(":")[0]
    regime: TruncateBy | None = "epochs" if prefix == "epochs" else "high_watermark" if prefix == "high_watermark" else None
    plan = plan_partition(plan_input, regime)
    derived = {"ordinary_loss": plan.ordinary_loss, "at_most_is_bound": plan.at_most_is_bound, "matters": plan.matters}
    elections = {
        str(candidate.broker): [candidate.costs(), election_needs(plan_input, plan, candidate)] for candidate in plan.candidates
    }
    return json.loads(json.dumps([plan, derived, elections], default=asdict))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_unchanged(name: str) -> None:
    assert document_of(name) == EXPECTED[name]


if __name__ == "__main__":
    write_answers(EXPECTED_PATH, {name: document_of(name) for name in PLANS}, depth=4)
