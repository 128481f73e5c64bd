"""Cases and variants of the gallery that only the controller's log can show, and records in it that cannot be read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.gallery.case import Case, case_per_row, cases_of_trees, injected_case, segment
from tests.gallery.of_groups import EARLIER, LATER, commit
from tests.support.brokers import Brokers, healthy, put_consumer_offsets, put_replicas
from tests.support.controllers import (
    CONTROLLER,
    HUGE_VARINT,
    START_MS,
    ControllerLog,
    partition,
    partition_change,
    record,
    setting,
    snapshot,
    topic,
    topic_with_isr,
    with_controller,
)
from tests.support.groups import commit_key, commit_value, coordinator_batches, transaction_batches
from tests.support.logs import LOG_END, Log, history
from tests.support.segments import BASE_TIMESTAMP, segment_file

LRS: Final = (topic(), partition([1, 2, 3], 1), partition_change(isr=[1, 2]), partition_change(isr=[1]))
"""The ISR shrinks to broker 1."""
ELECTED: Final = (partition_change(leader=-1), partition_change(leader=1))
"""Broker 1 is elected again."""
UNCLEAN: Final = (partition_change(leader=-1), partition_change(leader=1, isr=[1], leader_recovery_state=1))
"""Broker 1 is elected although it is not in the ISR."""
RISKY: Final = (setting("unclean.leader.election.enable", "true"), setting("min.insync.replicas", "1"))
OTHER_ID: Final = "AAECAwQFBgcICQoLDA0ODw"
OTHER_TOPIC: Final = (topic(topic_id=OTHER_ID), partition([1, 3], 1, topic_id=OTHER_ID))
"""Another topic with the same name."""
BAD: Final = {
    "unknown version": (b"\1\5\x63" + partition_change(leader=3)[3:], "version"),
    "array count": (b"\1\3\2" + bytes(4) + bytes(range(16)) + HUGE_VARINT + bytes(60), "fields"),
    "tagged fields": (partition_change()[:23] + HUGE_VARINT, "fields"),
    "unknown kind": (b"\1\x63\0\0", "kind"),
    "no frame": (b"", "frame"),
}
"""Kind of damage → (malformed record, reason in the finding)."""
BAD_TEXTS: Final = {
    "unknown version": "`PartitionChangeRecord` of version 99",
    "array count": "an array of 4294967294 entries",
    "tagged fields": "4294967295 tagged fields",
    "unknown kind": "a record of kind 99",
    "no frame": "a record without frame",
}


def lost_member(root: Path) -> Brokers:
    return put_replicas(root, {1: history(("r0", 1)), 3: Log()}, {1: 1, 3: 0})


def short_leader(root: Path, *more: tuple[str, int]) -> Brokers:
    """Broker 1 lost its last two records, and may have appended others; brokers 2 and 3 have them."""
    long = history(*[("p", 0)] * 4)
    short = history(*[("p", 0)] * 2, *more)
    return put_replicas(root, {1: short, 2: long, 3: long}, {1: short.next_offset, 2: 4, 3: 4})


def short_follower(root: Path) -> Brokers:
    long = history(*[("p", 0)] * 4)
    return put_replicas(root, {1: long, 2: history(*[("p", 0)] * 2), 3: long}, {1: 4, 2: 2, 3: 4})


def malformed_twice(value: bytes) -> tuple[bytes, ...]:
    return (*topic_with_isr([1, 3]), value, partition_change(isr=[1, 3]), value, setting("cleanup.policy", "delete"))


def malformed_in_two_copies(root: Path) -> Brokers:
    brokers = lost_member(root)
    log = ControllerLog().lead([CONTROLLER]).append(*topic_with_isr([1, 3])).append(BAD["unknown version"][0])
    log.put(brokers.root / f"c{CONTROLLER}")
    log.put(brokers.log_dir(1), 1)
    return brokers


def again(root: Path) -> Brokers:
    return short_leader(root, ("new", 2))


METADATA: Final = f"c{CONTROLLER}/__cluster_metadata-0/{segment_file(0)}"
DECODER: Final = "--cluster-metadata-decoder"
ALSO: Final = ((METADATA, DECODER),)
EMPTY, SHORT, FOLLOWER = segment(0, broker=3), segment(0, broker=1), segment(0)


def lost(*values: bytes, start_ms: int = START_MS) -> partial[Case]:
    """Broker 3 lacks a record; the controller's log has these records."""
    make = partial(_controlled, lost_member, values=values, start_ms=start_ms)
    return partial(Case, make=make, damaged=EMPTY, also=ALSO)


def led(tree: Callable[[Path], Brokers], *values: bytes, damaged: str = SHORT) -> partial[Case]:
    return partial(Case, make=partial(_controlled, tree, values=values), damaged=damaged, also=ALSO)


def malformed(name: str) -> Case:
    make = partial(_controlled, lost_member, values=malformed_twice(BAD[name][0]))
    words = f"`__cluster_metadata`, twice: {BAD_TEXTS[name]}"
    return Case("F48", words, make, METADATA, peer_options=(DECODER,), shown=("reason", "unknown_after_offset"))


def _controlled(tree: Callable[[Path], Brokers], root: Path, *, values: tuple[bytes, ...], start_ms: int = START_MS) -> Brokers:
    return with_controller(tree(root), *values, start_ms=start_ms)


MEMBER: Final = ("membership", "loses")
CONTROLLED: Final = (
    lost(*topic_with_isr([1, 3]))(
        "F33", "b1 = r0@1, high watermark 1; b3 is empty and in the ISR by the controller's log", shown=MEMBER
    ),
    lost(*topic_with_isr([], [1, 3]))("F33", "the same, b3 is in the ELR", shown=MEMBER),
    lost(*topic_with_isr([1, 3]))("F33", "the same as the first, with `--live`", live=True),
    lost(*topic_with_isr([1]))("F33", "b3 is in neither", control=True),
    lost(*topic_with_isr([1, 3]), start_ms=1_600_000_000_000)(
        "F33", "b3 is in the ISR by a controller's log older than the records", control=True
    ),
    lost(*OTHER_TOPIC)("F33", "the controller's log names another topic id"),
    led(short_leader, *LRS)("F37", "ISR = {b1} by the controller's log, b1 ends two committed records before b2 and b3"),
    led(again, *LRS, *ELECTED)(
        "F37", "the same, and b1 was elected again and took other records", shown=("new_leader", "leader_epoch", "previous_isr")
    ),
    Case("F37", "the same without the controller's log", again, SHORT),
    led(again, *topic_with_isr([3]), *UNCLEAN)(
        "F37",
        "b1 was elected though only b3 was in the ISR, and took other records",
        shown=("old_leader", "new_leader", "leader_epoch", "election_time"),
    ),
    led(again, *topic_with_isr([3]), *RISKY, *UNCLEAN)(
        "F37", "the same, allowed by `unclean.leader.election.enable` and `min.insync.replicas`", shown=("risks",)
    ),
    led(short_follower, *topic_with_isr([1, 3]), damaged=FOLLOWER)(
        "F37", "ISR = {b1, b3}, b2 ends two committed records before them", control=True
    ),
    led(healthy, *topic_with_isr([2]), *UNCLEAN, damaged=SHORT)(
        "F37", "b1 was elected though only b2 was in the ISR, and all agree again", control=True, shown=("agree_again",)
    ),
    led(
        healthy,
        *topic_with_isr([1, 2, 3]),
        partition_change(leader=2),
        partition_change(isr=[2, 1]),
        partition_change(isr=[2, 1, 3]),
        damaged=SHORT,
    )("F37", "an election and an ISR that shrinks and grows, nothing lost", control=True),
)
MALFORMED: Final = (
    *map(malformed, BAD_TEXTS),
    Case(
        "F48",
        "`__cluster_metadata`: a value of version 99 of another kind of record",
        partial(_controlled, lost_member, values=(*topic_with_isr([1, 3]), b"\1\0\x63")),
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

# Variants: other places, other values, and states that only look like the fault. They are not in docs/faults.md.

THREE: Final = (topic(), partition([1, 2, 3], 1))


def stopped(root: Path, kind: str) -> Brokers:
    """A member of the ISR lacks committed records, or the last replica is shorter; no broker stopped cleanly."""
    brokers, values = (lost_member(root), topic_with_isr([1, 3])) if kind == "member" else (short_leader(root), LRS)
    for log_dir in brokers.log_dirs:
        (log_dir / ".kafka_cleanshutdown").unlink()
    return with_controller(brokers, *values)


def newest_missing(root: Path, later_ms: int) -> Brokers:
    """Broker 2 lacks offsets 2 and 3, of seconds 2 and 3; the controllers' log ends around that time."""
    return with_controller(short_follower(root), *topic_with_isr([1, 2, 3]), start_ms=BASE_TIMESTAMP - 2000 + later_ms)


def deleted_up_to(root: Path, log_start: int) -> Brokers:
    """Broker 1 lost a log of 20 records; on the others DeleteRecords removed those below `log_start`."""
    long = history(*[("p", 0)] * 20)
    brokers = put_replicas(root, {1: Log(), 2: long, 3: long}, {1: 0, 2: 20, 3: 20})
    brokers.checkpoint("log-start", log_start, 2, 3)
    return brokers


def deleted_and_led(root: Path, log_start: int, isr: tuple[int, ...], start_on_3: int | None = None) -> Brokers:
    """`deleted_up_to` with an ISR in the controllers' log."""
    brokers = with_controller(deleted_up_to(root, log_start), topic(), partition(list(isr), isr[0], replicas=[1, 2, 3]))
    if start_on_3 is not None:
        brokers.checkpoint("log-start", start_on_3, 3)
    return brokers


def watermark_beyond(root: Path) -> Brokers:
    brokers = deleted_up_to(root, 7)
    brokers.checkpoint("replication", 20, 1)
    return brokers


def only_leader_has_epoch(root: Path) -> Brokers:
    """Nothing was written after an unclean election; of the followers only the former leader has its epoch in its checkpoint."""
    brokers = short_leader(root)
    brokers.put_epochs(2, (0, 0), (2, 4))
    return with_controller(brokers, *LRS, *UNCLEAN)


P, Q, R = ("p", 0), ("q", 2), ("r", 4)
"""Records of leader epochs 0, 2 and 4."""


def two_elections(root: Path, second: tuple[int, int], third: tuple[int, int, int]) -> Brokers:
    """Broker 1 led with ten records; broker 2, then broker 3 became leader uncleanly and wrote. `second`, `third`: records by
    epoch."""
    logs = {
        1: history(*[P] * 10),
        2: history(*[P] * second[0], *[Q] * second[1]),
        3: history(*[P] * third[0], *[Q] * third[1], *[R] * third[2]),
    }
    brokers = put_replicas(root, logs)
    once, again = (partition_change(leader=broker, isr=[broker], leader_recovery_state=1) for broker in (2, 3))
    return with_controller(
        brokers, *THREE, partition_change(isr=[1]), partition_change(leader=-1), once, partition_change(leader=-1), again
    )


def silent_election(root: Path) -> Brokers:
    """`two_elections`, but broker 2 wrote nothing as leader and then copied broker 3, so that no log shows its records."""
    new = history(*[P] * 3, *[R] * 2)
    brokers = put_replicas(root, {1: history(*[P] * 10), 2: new, 3: new})
    once, again = (partition_change(leader=broker, isr=[broker], leader_recovery_state=1) for broker in (2, 3))
    return with_controller(
        brokers, *THREE, partition_change(isr=[1]), partition_change(leader=-1), once, partition_change(leader=-1), again
    )


def agreeing(brokers: Brokers, leader: int) -> None:
    values = partition_change(leader=-1, isr=[]), partition_change(leader=leader, isr=[leader], leader_recovery_state=1)
    with_controller(brokers, *topic_with_isr([2]), *values)


def policy(brokers: Brokers, value: str, *, other: bool = False) -> None:
    """The controllers' log has this cleanup policy; `other`: broker 1 has an earlier topic of the same name."""
    if other:
        brokers.file_named(1, "partition.metadata").write_bytes(f"version: 0\ntopic_id: {OTHER_ID}\n".encode())
    with_controller(brokers, *topic_with_isr([1, 2, 3]), setting("cleanup.policy", value))


def compacted_by_cleaner_checkpoint(brokers: Brokers, identified: bool) -> None:
    """Cleaner checkpoints list the topic, which the controllers' log says is not compacted; with and without a topic id."""
    for broker in (1, 2, 3):
        brokers.checkpoint("cleaner", 0, broker)
        if not identified:
            brokers.file_named(broker, "partition.metadata").unlink()
    with_controller(brokers, topic(), setting("cleanup.policy", "delete"), partition([1, 2, 3], 1))


def snapshot_after_an_election(root: Path) -> Brokers:
    """A snapshot has the leader's epoch; the log after it shows only that followers returned."""
    brokers = short_leader(root, ("new", 2))
    log = ControllerLog(next_offset=100).lead([CONTROLLER]).append(partition_change(isr=[1, 2]))
    directory = log.put(brokers.root / f"c{CONTROLLER}", start=100)
    stated = snapshot(topic(), partition([1], 1, replicas=[1, 2, 3], leader_epoch=2, leader_recovery_state=1))
    (directory / "00000000000000000100-0000000001.checkpoint").write_bytes(stated)
    return brokers


BACK: Final = (partition_change(leader=2), record(20), partition_change(isr=[2, 1]), partition_change(isr=[2, 1, 3]))
CONTROLLED_VARIANTS: Final = (
    *cases_of_trees("F33", "not stopped cleanly:", stopped, [("member",), ("last replica",)]),
    *cases_of_trees(
        "F33",
        "ms from the first record to the end of the controllers' log:",
        newest_missing,
        [(1999,), (2999,), (3000,)],
        controls=[(1999,), (2999,)],
    ),
    *cases_of_trees("F37", "records deleted up to, ISR:", deleted_and_led, [(7, (1,)), (7, (1, 2))]),
    *cases_of_trees("F37", "the same, all that b1 lacks was deleted", deleted_and_led, [(20, (1,))], control=True),
    *cases_of_trees("F37", "the same, the log start on b3 is", deleted_and_led, [(7, (1,), 0)]),
    Case("F30", "a high watermark beyond an empty log, of which records were deleted elsewhere", watermark_beyond),
    Case("F37", "an unclean election that only its leader wrote down", only_leader_has_epoch),
    Case(
        "F37",
        "an unclean election, and the watermark from before",
        lambda root: with_controller(short_leader(root), *topic_with_isr([3]), *UNCLEAN),
    ),
    *cases_of_trees(
        "F36",
        "two unclean elections; records by epoch on b2 and b3:",
        two_elections,
        [
            ((6, 8), (3, 0, 2)),
            ((6, 8), (8, 0, 2)),
            ((6, 8), (6, 2, 2)),
            ((6, 2), (6, 2, 2)),
            ((6, 1), (3, 0, 20)),
            ((10, 2), (3, 0, 2)),
        ],
    ),
    Case("F36", "two unclean elections, and no log shows what the leader of the first had", silent_election),
    *case_per_row("F37", "an unclean election whose replicas agree, of broker", agreeing, [(2,), (1,)], control=True),
    injected_case("-", "the controllers say compact,delete", lambda it: policy(it, "compact,delete"), control=True),
    injected_case(
        "-", "the first replica is of an earlier topic, the controllers say delete", lambda it: policy(it, "delete", other=True)
    ),
    *case_per_row(
        "-",
        "cleaners know the topic better than the controllers; a topic id:",
        compacted_by_cleaner_checkpoint,
        [(True,), (False,)],
        controls=[(True,)],
    ),
    injected_case(
        "-", "controllers beside healthy brokers", lambda it: with_controller(it, *topic_with_isr([1, 2, 3]), *BACK), control=True
    ),
    Case("F36", "an election before the controllers' log begins", snapshot_after_an_election),
    Case("F37", "elected again without new records", lambda root: with_controller(short_leader(root), *LRS, *ELECTED)),
)

# Committed offsets.


def twenty_groups(brokers: Brokers) -> None:
    records = [(commit_key(f"g-{number:02}"), commit_value(LOG_END + number, timestamp=EARLIER)) for number in range(20)]
    put_consumer_offsets(brokers.log_dir(2), coordinator_batches(*records))


def transactional(brokers: Brokers) -> None:
    put_consumer_offsets(brokers.log_dir(1), transaction_batches((commit_key(), commit_value(LOG_END + 9)), start=0, commit=True))


def forked_at_12(root: Path) -> Brokers:
    """Logs that fork at 12; a group committed 15 on one of them."""
    logs = {}
    for broker, tag in ((1, "old"), (2, "new")):
        log = Log()
        log.plain(12)
        log.tag = tag
        log.lead(broker)
        log.plain(3)
        logs[broker] = log
    brokers = put_replicas(root, logs, 12)
    commit(brokers, 15, copies=(1,), timestamp=LATER)
    return brokers


def malformed_behind(brokers: Brokers) -> None:
    good = commit_value(LOG_END + 1, timestamp=EARLIER)
    put_consumer_offsets(
        brokers.log_dir(2), coordinator_batches((commit_key(), good), (commit_key(), b"\0\5"), (commit_key(), b"\0\6"))
    )


COMMITTED: Final = (
    injected_case("-", "group committed 76 of log end 75", lambda it: commit(it, LOG_END + 1)),
    injected_case("-", "twenty groups", twenty_groups),
    injected_case("-", "a commit beyond the log end in a committed transaction", transactional),
    *case_per_row(
        "-",
        "a commit of the log end older than its records:",
        lambda it, ms: commit(it, LOG_END, timestamp=ms),
        [(BASE_TIMESTAMP,), (0,), (-1,)],
        control=True,
    ),
    Case("F35", "a commit where logs part", forked_at_12, control=True),
    injected_case("F48", "`__consumer_offsets`: two values behind a commit beyond the log end", malformed_behind),
)
VARIANTS: Final[tuple[Case, ...]] = (*CONTROLLED_VARIANTS, *COMMITTED)
