"""The gallery's cases of what only the controller's log can tell, and of records in it that cannot be read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.controller_log import (
    CONTROLLER,
    HUGE,
    START_MS,
    ControllerLog,
    change,
    controlled_by,
    in_sync,
    partition,
    setting,
    topic,
)
from tests.support.faults import Brokers, Log, healthy, histories
from tests.support.gallery_case import Case, segment
from tests.support.injections import history

LRS: Final = (topic(), partition([1, 2, 3], 1), change(isr=[1, 2]), change(isr=[1]))
"""The ISR shrinks to broker 1."""
ELECTED: Final = (change(leader=-1), change(leader=1))
"""Broker 1 is elected again."""
UNCLEAN: Final = (change(leader=-1), change(leader=1, isr=[1], leader_recovery_state=1))
"""Broker 1 is elected though it is not in the ISR."""
RISKY: Final = (setting("unclean.leader.election.enable", "true"), setting("min.insync.replicas", "1"))
OTHER_ID: Final = "AAECAwQFBgcICQoLDA0ODw"
OTHER_TOPIC: Final = (topic(topic_id=OTHER_ID), partition([1, 3], 1, topic_id=OTHER_ID))
"""Another topic of the name."""
BAD: Final = {
    "unknown version": (b"\1\5\x63" + change(leader=3)[3:], "version"),
    "array count": (b"\1\3\2" + bytes(4) + bytes(range(16)) + HUGE + bytes(60), "fields"),
    "tagged fields": (change()[:23] + HUGE, "fields"),
    "unknown kind": (b"\1\x63\0\0", "kind"),
    "no frame": (b"", "frame"),
}
"""Records that cannot be read, and what a finding says of them."""
IN_WORDS: Final = {
    "unknown version": "`PartitionChangeRecord` of version 99",
    "array count": "an array of 4294967294 entries",
    "tagged fields": "4294967295 tagged fields",
    "unknown kind": "a record of kind 99",
    "no frame": "a record without frame",
}


def lost_member(root: Path) -> Brokers:
    return histories(root, {1: history(("r0", 1)), 3: Log()}, {1: 1, 3: 0})


def short_leader(root: Path, *more: tuple[str, int]) -> Brokers:
    """Broker 1 lost its last two records, and took others if any; brokers 2 and 3 hold them."""
    long = history(*[("p", 0)] * 4)
    short = history(*[("p", 0)] * 2, *more)
    return histories(root, {1: short, 2: long, 3: long}, {1: short.next_offset, 2: 4, 3: 4})


def short_follower(root: Path) -> Brokers:
    long = history(*[("p", 0)] * 4)
    return histories(root, {1: long, 2: history(*[("p", 0)] * 2), 3: long}, {1: 4, 2: 2, 3: 4})


def malformed_twice(value: bytes) -> tuple[bytes, ...]:
    return (*in_sync([1, 3]), value, change(isr=[1, 3]), value, setting("cleanup.policy", "delete"))


def malformed_in_two_copies(root: Path) -> Brokers:
    brokers = lost_member(root)
    log = ControllerLog().lead([CONTROLLER]).append(*in_sync([1, 3])).append(BAD["unknown version"][0])
    log.put(brokers.root / f"c{CONTROLLER}")
    log.put(brokers.log_dir(1), 1)
    return brokers


def again(root: Path) -> Brokers:
    return short_leader(root, ("new", 2))


METADATA: Final = f"c{CONTROLLER}/__cluster_metadata-0/{0:020d}.log"
DECODER: Final = "--cluster-metadata-decoder"
ALSO: Final = ((METADATA, DECODER),)
EMPTY, SHORT, FOLLOWER = segment(0, broker=3), segment(0, broker=1), segment(0)


def lost(*values: bytes, start_ms: int = START_MS) -> partial[Case]:
    """Broker 3 lacks a record; the controller's log holds these values."""
    make = partial(_controlled, lost_member, values=values, start_ms=start_ms)
    return partial(Case, make=make, damaged=EMPTY, also=ALSO)


def led(tree: Callable[[Path], Brokers], *values: bytes, damaged: str = SHORT) -> partial[Case]:
    return partial(Case, make=partial(_controlled, tree, values=values), damaged=damaged, also=ALSO)


def malformed(name: str) -> Case:
    make = partial(_controlled, lost_member, values=malformed_twice(BAD[name][0]))
    words = f"`__cluster_metadata`, twice: {IN_WORDS[name]}"
    return Case("F48", words, make, METADATA, peer_options=(DECODER,), shown=("reason", "unknown_after_offset"))


def _controlled(tree: Callable[[Path], Brokers], root: Path, *, values: tuple[bytes, ...], start_ms: int = START_MS) -> Brokers:
    return controlled_by(tree(root), *values, start_ms=start_ms)


MEMBER: Final = ("membership", "loses")
CONTROLLED: Final = (
    lost(*in_sync([1, 3]))("F33", "b1 = r0@1, high watermark 1; b3 is empty and in the ISR by the controller's log", shown=MEMBER),
    lost(*in_sync([], [1, 3]))("F33", "the same, b3 is in the ELR", shown=MEMBER),
    lost(*in_sync([1, 3]))("F33", "the same as the first, with `--live`", live=True),
    lost(*in_sync([1]))("F33", "b3 is in neither", control=True),
    lost(*in_sync([1, 3]), start_ms=1_600_000_000_000)(
        "F33", "b3 is in the ISR by a controller's log older than the records", control=True
    ),
    lost(*OTHER_TOPIC)("F33", "the controller's log names another topic id"),
    led(short_leader, *LRS)("F37", "ISR = {b1} by the controller's log, b1 ends two committed records before b2 and b3"),
    led(again, *LRS, *ELECTED)(
        "F37", "the same, and b1 was elected again and took other records", shown=("new_leader", "leader_epoch", "previous_isr")
    ),
    Case("F37", "the same without the controller's log", again, SHORT),
    led(again, *in_sync([3]), *UNCLEAN)(
        "F37",
        "b1 was elected though only b3 was in the ISR, and took other records",
        shown=("old_leader", "new_leader", "leader_epoch", "election_time"),
    ),
    led(again, *in_sync([3]), *RISKY, *UNCLEAN)(
        "F37", "the same, allowed by `unclean.leader.election.enable` and `min.insync.replicas`", shown=("risks",)
    ),
    led(short_follower, *in_sync([1, 3]), damaged=FOLLOWER)(
        "F37", "ISR = {b1, b3}, b2 ends two committed records before them", control=True
    ),
    led(healthy, *in_sync([2]), *UNCLEAN, damaged=SHORT)(
        "F37", "b1 was elected though only b2 was in the ISR, and all agree again", control=True, shown=("agree_again",)
    ),
    led(healthy, *in_sync([1, 2, 3]), change(leader=2), change(isr=[2, 1]), change(isr=[2, 1, 3]), damaged=SHORT)(
        "F37", "an election and an ISR that shrinks and grows, nothing lost", control=True
    ),
)
MALFORMED: Final = (
    *map(malformed, IN_WORDS),
    Case(
        "F48",
        "`__cluster_metadata`: a value of version 99 of another kind of record",
        partial(_controlled, lost_member, values=(*in_sync([1, 3]), b"\1\0\x63")),
        METADATA,
        peer_options=(DECODER,),
        shown=("reason", "membership"),
    ),
    Case(
        "F48",
        "`__cluster_metadata`: the same record in two copies of the log",
        malformed_in_two_copies,
        METADATA,
        peer_options=(DECODER,),
        shown=("brokers",),
    ),
)
