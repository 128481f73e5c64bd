"""Plans of known histories with the needs of each election, compared with `plans.json`.

After a change of a rule: `python -m tests.replication.planner.test_plans`, and read the difference before it is committed.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

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
ROTTEN = replace(TWO, held=((0, 300),), damaged=((300, 370),))
"""The only copy of [300, 370) is damaged: whoever leads, nobody can read it any more."""
NAMED = replace(AUDIT, replicas=tuple(replace(replica, broker=f"b{replica.broker}") for replica in AUDIT.replicas))
STALE = replace(replica(1, 10, (0, 0), (1, 5)), checkpoint=entries((0, 0)))
TORN = replace(replica(1, 8, (0, 0), hw=10), held=((0, 4), (6, 10)))
"""It has a hole at [4, 6) and loses [8, 10) when it starts."""
FORK = {(0, 1): ((5, 8),)}
EIGHT = replica(1, 8, (0, 0), hw=8), replica(2, 8, (0, 0), hw=8)
LATE_LED = PlanControl(1, 1, 2, (1, 2), (), (2, 3, 1))


def audit(*replicas: PlanReplica) -> PlanPartition:
    return replace(AUDIT, replicas=replicas)


def holed(theirs: tuple[tuple[int, int], ...]) -> PlanPartition:
    """Epoch 2 of broker 3 begins in its hole at [4, 6); [4, 6) of broker 2 is another history if it is of epoch 1."""
    third = replace(replica(3, 10, (1, 0), (2, 4), hw=10), held=((0, 4), (6, 10)))
    return partition(replica(1, 4, (1, 0)), replica(2, 6, *theirs), third, control=CONTROL)


def holed_from(start: int) -> PlanPartition:
    """Broker 1 ends at 4, broker 2 at 8; 3, which has no epochs, has a hole at [8, 9), and another at [4, 6) if it begins at 3."""
    held = ((3, 4), (6, 8), (9, 10)) if start == 3 else ((6, 8), (9, 10))
    third = replace(replica(3, 10, hw=10, start=start), held=held)
    return partition(replica(1, 4, (1, 0)), replica(2, 8, (1, 0)), third, control=CONTROL)


def parted_below(follower_start: int, leader_start: int) -> PlanPartition:
    """Its file would cut the follower at 4, its batches at 8: whichever log begins later, nothing is cut below that."""
    follower = replace(replica(1, 10, (0, follower_start), hw=4, start=follower_start), checkpoint=None)
    leader = replica(2, 12, (0, leader_start), (2, max(8, leader_start)), start=leader_start)
    return partition(follower, leader, control=CONTROL)


APART = {(0, 1): ((8, 10),)}
SHORT, LEADER = replica(1, 10, (0, 0), hw=4), replica(2, 12, (0, 0), (2, 8))
BEGUN_LATE = replica(1, 20, (0, 10), start=10, hw=20)
BELOW = {
    "ends below": replica(2, 5, (0, 0), hw=5),
    "ends above": replica(2, 15, (0, 0), hw=10),
    "empty": replica(2, 0),
    "damaged": replace(replica(2, 5, (0, 0), hw=5), damaged=((2, 3),)),
}
NOT_TIERED = BEGUN_LATE, replica(2, 20, (0, 0)), replica(3, 5, (0, 0))
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
    "a checkpoint and batches that cut differently": partition(STALE, replica(2, 12, (0, 0), (1, 5), (2, 8)), differing=APART),
    "the same, compacted": replace(partition(STALE, replica(2, 12, (0, 0), (1, 5), (2, 8))), compacted=True),
    "equal epochs, other records": partition(*EIGHT, differing=FORK, control=CONTROL),
    "a hole, and what recovery drops": partition(TORN, replica(2, 9, (0, 0)), control=CONTROL),
    **{f"epochs: a hole, broker 2 has {epochs}": holed(epochs) for epochs in (((1, 0),), ((1, 0), (2, 4)), ())},
    **{f"epochs: a hole behind {start}": holed_from(start) for start in (3, 4, 6)},
    "damaged: the only copy": audit(ONE, ROTTEN, THREE),
    "damaged: recovery drops it": audit(ONE, replace(ROTTEN, log_end_offset=300), THREE),
    "damaged: a leader, others hold it whole": partition(
        replace(replica(1, 10, (0, 0), hw=10), held=((0, 4), (6, 10)), damaged=((4, 6),)),
        replica(2, 10, (0, 0), hw=10),
        control=CONTROL,
    ),
    "bytes whose offsets nothing tells": audit(ONE, replace(TWO, has_unknown_bytes=True), THREE),
    "alike: the leader": partition(*EIGHT, differing=FORK, control=LATE_LED),
    "alike: the assignment": partition(*EIGHT, differing=FORK, control=replace(LATE_LED, leader=-1, last_leader=None)),
    "alike: the order": partition(*EIGHT, differing=FORK),
    "alike: the watermark": partition(EIGHT[0], replace(EIGHT[1], high_watermark=9), differing=FORK),
    "alike: replicas to mend": partition(
        *EIGHT, replace(EIGHT[1], broker=3, is_live=False), differing={(0, 1): ((5, 8),), (0, 2): ((5, 8),)}
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
    "checkpoints: both": partition(SHORT, LEADER, differing=APART),
    "checkpoints: none of the follower": partition(replace(SHORT, checkpoint=None), LEADER, differing=APART),
    "checkpoints: none of the leader": partition(SHORT, replace(LEADER, checkpoint=None), differing=APART),
    "checkpoints: none of the leader, which walks": partition(
        SHORT, replace(LEADER, checkpoint=None, epochs_without_checkpoint=entries((2, 8))), differing=APART
    ),
    **{
        f"{regime}: below the leader's log start, {words}": partition(BEGUN_LATE, follower, control=CONTROL)
        for regime in ("epochs", "high-watermark")
        for words, follower in BELOW.items()
    },
    "epochs: of logs without any": LEDGER,
    "high-watermark: of logs with epochs": AUDIT,
    **{f"part below log starts {starts}": parted_below(*starts) for starts in ((0, 0), (7, 0), (0, 7), (9, 0), (0, 9), (8, 8))},
    "no watermark lies below the log start": partition(
        replica(1, 20, (0, 0)), replace(replica(2, 20, (0, 10), start=10), checkpoint=None), control=CONTROL
    ),
    "not tiered": partition(*NOT_TIERED, control=CONTROL),
    "tiered": partition(*TIERED, control=CONTROL),
}

# The way to an election.


def changed(given: PlanPartition, broker: int, **fields: Any) -> PlanPartition:
    """The partition with another replica of a broker; of all, if it is 0."""
    return replace(
        given, replicas=[replace(replica, **fields) if broker in (0, replica.broker) else replica for replica in given.replicas]
    )


def renamed(given: PlanPartition, names: dict[int, str], **fields: Any) -> PlanPartition:
    replicas = [replace(replica, broker=names.get(int(replica.broker), replica.broker)) for replica in given.replicas]
    return replace(given, replicas=replicas, **fields)


LED = PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))
OFF = PlanControl(3, 3, 0, (3,), (5,), (4, 1, 2, 3, 5), unclean_by_topic=False)
FIVE = lagging(OFF, (200, 600, 600, 600, 600))
LEADERLESS = PlanControl(-1, 3, 0, (3, 1, 2), (), (3, 1, 2))
PAIR = lagging(PlanControl(1, 1, 0, (1, 2), (), (1, 2)), (8, 8))
EQUAL, UNTOLD = lagging(LEADERLESS, (8, 8, 8)), lagging(None, (8, 8, 8))
HOLED = changed(PAIR, 2, held=((0, 2), (4, 8)))
TWINS = [
    lagging(LED).replicas[0],
    *(replace(lagging(LED).replicas[1], **fields) for fields in ({"broker": "new"}, {"broker": "old", "log_end_offset": 300})),
    lagging(LED).replicas[2],
]
UNNAMED = renamed(lagging(LED), {2: "copy-2"})
RACKS = {broker: f"rack-{broker}" for broker in (1, 2, 3)}
PLANS |= {
    "way: in sync": lagging(LED),
    "way: one is out of the ISR": lagging(replace(LED, isr=(3, 2))),
    "way: nobody was stopped cleanly": changed(lagging(LED), 0, crashed=True),
    "way: a member of the ELR waits for the whole ISR": lagging(PlanControl(3, 3, 0, (3,), (2,), (1, 2, 3))),
    "way: the last known leader": changed(
        lagging(PlanControl(-1, 3, 0, (), (3,), (1, 2, 3), unclean_by_topic=False)), 0, crashed=True
    ),
    "way: an unclean election takes the first that is alive": FIVE,
    "way: the controller would take any other at once": replace(FIVE, control=replace(OFF, unclean_by_topic=True)),
    "way: unclean elections may be on": replace(FIVE, control=replace(OFF, unclean_by_topic=None)),
    "way: the last leader comes before others": replace(FIVE, control=replace(OFF, leader=-1, last_leader=2, isr=(), elr=())),
    "way: all wait for a clean one": lagging(PlanControl(3, 3, 0, (3, 2), (), (3, 1, 2), unclean_by_topic=True)),
    "way: no controllers' log": lagging(None),
    "way: a replica without a copy": lagging(PlanControl(3, 3, 0, (3, 1, 2, 4), (), (4, 3, 1, 2), unclean_by_topic=False)),
    "way: the dead are not started": changed(lagging(LED), 3, is_live=False),
    "way: who would not start": changed(lagging(LED), 1, starts=False),
    "aside: nobody": PAIR,
    "aside: equal epochs cut nothing": replace(PAIR, differing={(0, 1): ((5, 8),)}),
    "aside: else it keeps its damaged batch": changed(PAIR, 2, damaged=((2, 4),)),
    "aside: not who does not start": changed(PAIR, 2, damaged=((2, 4),), starts=False),
    "aside: a hole that the leader does not have": HOLED,
    "aside: a hole at the start of the log": changed(PAIR, 2, held=((2, 8),)),
    "aside: not a log start": changed(PAIR, 2, log_start_offset=2, held=((2, 8),)),
    "aside: not what is compacted": replace(HOLED, compacted=True),
    "aside: not what was not read": changed(HOLED, 2, unread=((2, 4),)),
    "aside: not a hole of both": changed(HOLED, 1, held=((0, 2), (4, 8))),
    "aside: not what the leader has damaged": changed(HOLED, 1, damaged=((2, 4),)),
    "aside: a hole in a shorter log": changed(HOLED, 2, log_end_offset=6, held=((0, 2), (4, 6))),
    "any order: equal replicas": EQUAL,
    "any order: not while broker 4 may hold more": replace(EQUAL, control=replace(LEADERLESS, assignment=(3, 1, 2, 4))),
    "any order: not where one lags": lagging(LEADERLESS),
    "any order: not where one does not start": changed(EQUAL, 1, starts=False),
    "any order: not where the ISR is dead": replace(changed(EQUAL, 3, is_live=False), control=replace(LEADERLESS, isr=(3,))),
    "any order: no controllers' log": UNTOLD,
    "any order: not where one is dead and none tells": changed(UNTOLD, 3, is_live=False),
    "any order: not where one was not read": changed(UNTOLD, 3, unread=((2, 4),)),
    "copies: two of one broker": PlanPartition("clicks", 0, TWINS, {}, LED, nodes={"new": 2, "old": 2}),
    "copies: an unnamed one": UNNAMED,
    "copies: an unnamed one, guessed": replace(UNNAMED, nodes={"copy-2": 2}, guessed=frozenset({"copy-2"})),
    "copies: an unnamed one and two lack": replace(UNNAMED, replicas=UNNAMED.replicas[:2]),
    "copies: brokers by names": renamed(lagging(LED), RACKS, nodes={"rack-1": 1, "rack-2": 2, "rack-3": 3}),
}
KEPT = Path(__file__).with_name("plans.json")
EXPECTED: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}


def document_of(name: str) -> Any:
    """The whole plan, its derived values, and the needs of each election."""
    given, prefix = PLANS[name], name.partition(":")[0]
    regime: TruncateBy | None = "epochs" if prefix == "epochs" else "high-watermark" if prefix == "high-watermark" else None
    plan = plan_partition(given, regime)
    follows = {"ordinary_loss": plan.ordinary_loss, "at_most_is_bound": plan.at_most_is_bound, "matters": plan.matters}
    ways = {str(candidate.broker): [candidate.costs(), election_needs(given, plan, candidate)] for candidate in plan.candidates}
    return json.loads(json.dumps([plan, follows, ways], default=asdict))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_as_it_is_kept(name: str) -> None:
    assert document_of(name) == EXPECTED[name]


if __name__ == "__main__":
    write_answers(KEPT, {name: document_of(name) for name in PLANS}, depth=4)
