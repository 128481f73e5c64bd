"""Cases of the gallery for committed group offsets: losses they prove, states that look like losses, and malformed records."""

from base64 import urlsafe_b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.gallery.case import Case, Injected, segment
from tests.support.brokers import OFFSETS_ID_BYTES, TOPIC_ID, Brokers, healthy, put_consumer_offsets, put_replicas, write_checkpoint
from tests.support.controllers import partition, put_controller, record, setting, topic, with_controller
from tests.support.groups import commit_key, commit_value, coordinator_batches, transaction_batches
from tests.support.logs import HEALTHY, HIGH_WATERMARK, LOG_END, Log
from tests.support.segments import BASE_TIMESTAMP

TOPIC_ID_BYTES: Final = urlsafe_b64decode(TOPIC_ID + "==")
LATER: Final = BASE_TIMESTAMP + 1000 * LOG_END + 60_000
"""A time after every record was written."""
EARLIER: Final = HEALTHY.batches[-3].max_timestamp
"""The time of the last marker; two more batches follow."""
BY_CLIENTS: Final = HEALTHY.batches[-2].max_timestamp
"""A time after every marker but before the last batch, whose timestamps are its producer's."""
MALFORMED_VALUES: Final = {
    "a value of version 5": b"\0\5" + bytes(30),
    "a text of 2147483646 bytes": b"\0\4" + bytes(12) + b"\xff\xff\xff\xff\x07",
    "a text of 32767 bytes": b"\0\3" + bytes(12) + b"\x7f\xff",
}
"""Description → value that cannot be read."""


def commit(brokers: Brokers, offset: int, *, copies: tuple[int, ...] = (1, 2, 3), **given: Any) -> None:
    """Write a committed offset of group `billing` for `t-0`."""
    given.setdefault("timestamp", EARLIER)
    given.setdefault("leader_epoch", 2)
    for broker in copies:
        put_consumer_offsets(brokers.log_dir(broker), coordinator_batches((commit_key(), commit_value(offset, **given))))


def control(brokers: Brokers, *, isr: list[int], replicas: list[int]) -> None:
    put_controller(brokers.log_dir(1), isr=isr, replicas=replicas, leader=isr[0], topic_id=TOPIC_ID_BYTES)


def proving(brokers: Brokers, **given: Any) -> None:
    """A commit 25 records beyond the log end, with a topic id, and the controller's log."""
    commit(brokers, LOG_END + 25, version=4, topic_id=TOPIC_ID_BYTES, **given)
    control(brokers, isr=[1, 2, 3], replicas=[1, 2, 3])


def not_counting(root: Path, value: str) -> Brokers:
    """A commit beyond the log end that was `aborted`, is `pending`, was `deleted`, or has an `other topic id`."""
    brokers = healthy(root)
    record = (commit_key(), commit_value(LOG_END + 9, version=4, topic_id=bytes(16) if value == "other topic id" else None))
    log = {
        "aborted": transaction_batches(record, start=0, commit=False),
        "pending": transaction_batches(record, start=0),
        "deleted": coordinator_batches(record, (commit_key(), None)),
        "other topic id": coordinator_batches(record),
    }[value]
    brokers.crash(1)
    put_consumer_offsets(brokers.log_dir(1), log)
    return brokers


def between_two(root: Path, value: bytes) -> Brokers:
    brokers = healthy(root)
    good = commit_value(LOG_END + 1, timestamp=EARLIER)
    log = coordinator_batches((commit_key("audit"), good), (commit_key("audit"), value), (commit_key(), good))
    put_consumer_offsets(brokers.log_dir(2), log)
    return brokers


def behind_a_leader(root: Path, *, batches: int = 20, isr: tuple[int, ...] = (1, 2)) -> Brokers:
    short, long = Log(), Log()
    short.plain(3)
    for _ in range(batches + 1):
        long.plain(3)
    brokers = put_replicas(root, {1: long, 2: short}, 3)
    control(brokers, isr=list(isr), replicas=[1, 2])
    return brokers


def out_of_the_isr(brokers: Brokers) -> None:
    """A commit 25 records beyond the log end, with only broker 4 in the ISR."""
    commit(brokers, LOG_END + 25)
    control(brokers, isr=[4], replicas=[1, 2, 3, 4])


def copied(root: Path, *copies: int) -> Brokers:
    """Some of three equal replicas, and a commit 25 records beyond their log end."""
    brokers = put_replicas(root, dict.fromkeys(copies, HEALTHY), HIGH_WATERMARK)
    commit(brokers, LOG_END + 25, copies=copies)
    return brokers


def below_minimum(root: Path, *, minimum: str = "2", version: int = 15) -> Brokers:
    """The only in-sync replica ends 60 records after the high watermark that it checkpointed."""
    short, long = Log(), Log()
    short.plain(3)
    for _ in range(21):
        long.plain(3)
    settings = setting("min.insync.replicas", minimum), record(12, name="metadata.version", feature_level=version)
    state = partition([1], 1, replicas=[1, 2])
    return with_controller(put_replicas(root, {1: long, 2: short}, 3), topic(), *settings, state)


def grown(root: Path, *, count: int = 6, since: int | None = None, policy: str | None = None) -> Brokers:
    """Group `billing` committed in the partition that its hash selects among five."""
    brokers = healthy(root)
    for broker in (1, 2, 3):
        for number in range(count):
            offset = {OLD_PARTITION: 9, NEW_PARTITION: since}.get(number)
            log = b"" if offset is None else coordinator_batches((commit_key(), commit_value(offset)))
            put_consumer_offsets(brokers.log_dir(broker), log, number)
            write_checkpoint(brokers.log_dir(broker), "replication", int(offset is not None), f"__consumer_offsets-{number}")
    name, everyone = "__consumer_offsets", [1, 2, 3]
    states = [partition(everyone, 1, partition_id=number, topic_id=OFFSETS_ID_BYTES) for number in range(count)]
    given = [] if policy is None else [setting("cleanup.policy", policy, name)]
    return with_controller(brokers, topic(), partition(everyone, 1), topic(name, OFFSETS_ID_BYTES), *states, *given)


def waiting(brokers: Brokers) -> None:
    """Group `billing` has an offset of `t-0` in a transaction without a marker."""
    for broker in (1, 2, 3):
        brokers.crash(broker)
        put_consumer_offsets(brokers.log_dir(broker), transaction_batches((commit_key(), commit_value(9)), start=0))


OLD_PARTITION, NEW_PARTITION = 4, 1
"""The partition of `billing` among 5 partitions, and among 6."""
COUNTED: Final = ("partition_count", "confidence")
OFFSETS: Final = segment(0, broker=1, directory="__consumer_offsets-0")
SHORT: Final = segment(0)
HOLDS: Final = ("confidence",)
HARMLESS: Final = ("confidence", "harmless_if")


def committed_case(offset: int, **given: Any) -> partial[Case]:
    return offsets_case(Injected(partial(commit, offset=offset, **given)))


def offsets_case(make: Callable[[Path], Brokers]) -> partial[Case]:
    """A case whose damage is in `__consumer_offsets`."""
    return partial(Case, make=make, damaged=OFFSETS, peer_options=("--offsets-decoder",))


COMMITTED: Final = (
    offsets_case(Injected(proving))("-", "group committed 100 of log end 75, records stamped later are there", shown=HOLDS),
    committed_case(LOG_END + 25)("-", "the same without the controller's log", shown=HARMLESS),
    offsets_case(Injected(lambda it: proving(it, leader_epoch=-1)))("-", "the same, and no epoch is named with it", shown=HARMLESS),
    offsets_case(Injected(lambda it: proving(it, timestamp=LATER)))(
        "-", "the same, every record older than the commit", shown=HARMLESS
    ),
    offsets_case(Injected(lambda it: proving(it, timestamp=BY_CLIENTS)))(
        "-", "the same, only records with times of their producers are later", shown=HARMLESS
    ),
    committed_case(LOG_END + 25, timestamp=BASE_TIMESTAMP - 1)(
        "-", "the same, every record younger than the commit", shown=HARMLESS
    ),
    offsets_case(lambda root: copied(root, 1))("-", "the same, one copy given", shown=HARMLESS, control=True),
    offsets_case(Injected(out_of_the_isr))("-", "the same, no copy of the ISR given", shown=HARMLESS, control=True),
    committed_case(LOG_END + 25)("-", "the same with `--live`", live=True, shown=("confidence", "capped_by")),
    committed_case(LOG_END, timestamp=LATER)(
        "-", "group committed 75 of log end 75, high watermark 72", control=True, note="the high watermark was at least 75"
    ),
    committed_case(HIGH_WATERMARK, timestamp=LATER)("-", "group committed 72 of log end 75, high watermark 72", control=True),
    committed_case(0, timestamp=LATER)("-", "group committed 0 of log end 75, high watermark 72", control=True),
    *(
        offsets_case(partial(not_counting, value=value))("-", f"group committed 84 of log end 75, {words}", control=True)
        for value, words in (
            ("aborted", "in an aborted transaction"),
            ("pending", "in an open transaction"),
            ("deleted", "and deleted it since"),
            ("other topic id", "for another topic id"),
        )
    ),
    Case("-", "a member of the ISR ends 60 records before the leader", behind_a_leader, SHORT, shown=("brokers", "waiting_ms")),
    Case("-", "the same, 15 records", partial(behind_a_leader, batches=5), SHORT, control=True),
    Case("-", "the same, 60 records, and not in the ISR", partial(behind_a_leader, isr=(1,)), SHORT, control=True),
    Case(
        *("-", "an ISR of 1, below min.insync.replicas 2; the leader goes on for 60 records", below_minimum),
        shown=("reason", "isr", "min_insync_replicas"),
        control=True,
    ),
    Case("-", "the same, min.insync.replicas 1", partial(below_minimum, minimum="1"), control=True),
    Case("-", "the same with min.insync.replicas 2, brokers of Kafka 3.6", partial(below_minimum, version=14), control=True),
    Case("-", "group committed 9 in one of 5 partitions, and there are 6 now", grown, shown=COUNTED),
    Case("-", "the same, and 5 since in the partition that is read", partial(grown, since=5), shown=COUNTED),
    Case("-", "the same, and 9 since", partial(grown, since=9), control=True),
    Case("-", "group committed 9 in one of 5 partitions", partial(grown, count=5), control=True),
    Case("-", "`cleanup.policy` of `__consumer_offsets` is delete", partial(grown, count=5, policy="delete"), shown=("risks",)),
    Case("-", "the same, compact", partial(grown, count=5, policy="compact"), control=True),
    Case("-", "an open transaction has the group's offset", Injected(waiting), control=True, shown=("waiting_groups",)),
)
MALFORMED: Final = tuple(
    Case(
        "F48",
        f"`__consumer_offsets`: {words}",
        partial(between_two, value=value),
        segment(0, directory="__consumer_offsets-0"),
        peer_options=("--offsets-decoder",),
        shown=("record_type", "unknown_after_offset"),
    )
    for words, value in MALFORMED_VALUES.items()
)
