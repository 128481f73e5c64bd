"""Cases and variants of the gallery for histories, producers and copies: faults that no single file shows, and harmless states."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.parsers.log import decode_batch
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from tests.gallery.case import Case, case_per_row, cases_of_trees, injected_case, on_brokers, segment
from tests.gallery.injections import cut_log, rewrite_record
from tests.support.brokers import (
    Brokers,
    healthy,
    put_compacted,
    put_differently_cleaned,
    put_meta_properties,
    put_replicas,
    put_segment,
    put_topic_id,
)
from tests.support.controllers import partition, partition_change, record, topic, topic_with_isr, with_controller
from tests.support.logs import (
    CLEANED,
    FUTURE_MS,
    HEALTHY,
    IDEMPOTENT,
    History,
    Log,
    fill_segment,
    history,
    keyed_history as keyed_history,
)
from tests.support.segments import BASE_TIMESTAMP

HOSTILE: Final = "\x1b]0;pwn\x07\x1b[31m\x9b2J\x85\u202e"
"""Sets a terminal's title and colours, clears it, reverses text."""
OTHER_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
FIRST, MIDDLE, ACTIVE = (segment(offset) for offset in (0, 29, 55))
COMMON: Final = [("p", 0)] * 4


def settled_fork(root: Path) -> Brokers:
    return put_replicas(root, {1: history(("r0", 0), ("r2", 2)), 2: history(("r1", 1), ("r2", 2))}, 1)


def ordinary_fork(root: Path) -> Brokers:
    old, new = history(*COMMON, ("old", 0), records=3), history(*COMMON, ("new", 1), ("new", 1), records=3)
    return put_replicas(root, {1: old, 2: new, 3: new}, 12)


def forked_before_damage(root: Path) -> Brokers:
    mine, other = history(*COMMON, *[("a", 1)] * 3, records=3), history(*COMMON, *[("b", 2)] * 3, records=3)
    brokers = put_replicas(root, {1: other, 2: mine, 3: mine}, 12)
    brokers.flip(2, mine.at(16), 100)
    return brokers


def lagging_behind_a_fork(root: Path) -> Brokers:
    old, new = history(*COMMON, ("old", 0), records=3), history(*COMMON, ("new", 1), records=3)
    return put_replicas(root, {1: old, 2: new, 3: history(*COMMON[:3], records=3)}, 9)


def unclean_leader(root: Path) -> Brokers:
    brokers = put_replicas(root, {1: history(("r0", 1), ("r1", 1)), 3: history(("x", 2))}, {1: 1, 3: 0})
    (brokers.log_dir(3) / "replication-offset-checkpoint").unlink()
    return brokers


def damaged_loser(root: Path) -> Brokers:
    """Broker 3 leads epoch 2 with other records from 12 on; on broker 2 a batch that it had committed there is damaged."""
    old, new = history(*COMMON, ("old", 0), ("old", 0), records=3), history(*COMMON, ("new", 2), records=3)
    brokers = put_replicas(root, {2: old, 3: new}, {2: 18, 3: 15})
    brokers.flip(2, old.at(12), 100)
    return brokers


def empty_leader(root: Path, *entries: tuple[int, int]) -> Brokers:
    brokers = put_replicas(root, {1: history(("r0", 1)), 3: Log()}, {1: 1, 3: 0})
    brokers.put_epochs(3, *entries)
    return brokers


def other_topic_id(brokers: Brokers) -> None:
    rewrite_record(brokers, 2, 40)
    put_topic_id(brokers.directory(2), OTHER_TOPIC_ID)


def other_cluster_id(brokers: Brokers) -> None:
    rewrite_record(brokers, 2, 40)
    put_meta_properties(brokers.log_dir(2), 2, cluster_id=OTHER_CLUSTER_ID)


def skipped_sequences(root: Path, skip: int = 3) -> Brokers:
    log = Log()
    _ = log.produce(), log.produce(), log.produce(skip=skip), log.produce()
    return put_replicas(root, log)


def wrapped_sequences(root: Path, before: int = 4) -> Brokers:
    """A producer's next sequence is `before` below the maximum, so that batches of three wrap to 0."""
    log = Log()
    log.producers[IDEMPOTENT] = ProducerEntry(IDEMPOTENT, 0, MAX_SEQUENCE - before, -1, 0, -1, -1, -1)
    _ = log.produce(), log.produce(), log.produce()
    return put_replicas(root, log)


def sequences_behind_damage(root: Path) -> Brokers:
    log = Log()
    _, _, lost, _ = log.produce(), log.produce(), log.produce(), log.produce()
    brokers = put_replicas(root, log)
    brokers.overwrite(2, lost, b"\0\0\0\x05", 8)
    return brokers


def torn_copy(brokers: Brokers) -> None:
    path = brokers.file(2, 55)
    path.write_bytes(path.read_bytes()[:-100])


def hostile(root: Path) -> Brokers:
    """Control characters in every file that can contain them, and enough faults to print every part of a result."""
    log = Log()
    for _ in range(3):
        record = RecordToWrite(HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, HOSTILE.encode())])
        stamp = BASE_TIMESTAMP + 1000 * log.next_offset
        log.append(write_batch([record], base_offset=log.next_offset, base_timestamp=stamp), log.next_offset, stamp)
    brokers = put_replicas(root / HOSTILE, dict.fromkeys((1, 2), log), {1: 9, 2: 2})
    brokers.overwrite(2, log.batches[1], b"\3", 16)
    (brokers.log_dir(1) / HOSTILE).write_bytes(b"unknown")
    (brokers.log_dir(1) / f"{HOSTILE}-0").mkdir()
    put_segment(brokers.log_dir(1) / f"{HOSTILE}-0", 0, b"")
    meta = brokers.log_dir(2) / "meta.properties"
    meta.write_bytes(meta.read_bytes().replace(b"cluster.id=", b"cluster.id=" + HOSTILE.encode("unicode_escape")))
    (brokers.log_dir(2) / "cleaner-offset-checkpoint").write_bytes(HOSTILE.encode() * 3)
    return brokers


def hostile_records(root: Path) -> Brokers:
    log = Log()
    record = RecordToWrite(HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, HOSTILE.encode())])
    log.append(write_batch([record], base_offset=0, base_timestamp=BASE_TIMESTAMP), 0, BASE_TIMESTAMP)
    return put_replicas(root, {1: log}, 1)


def while_read(edit: Callable[[Path], object]) -> partial[Case]:
    return partial(
        Case,
        make=healthy,
        during=lambda it: edit(it.file(2, 55)),
        no_dump_reason="not run: the file changes only while a scan reads it",
    )


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


LATE_EPOCHS: Final = ((0, 0), (1, 32))
REPLICAS: Final = (
    Case("F34", "b1 = r0@0 r2@2, b2 = r1@1 r2@2, high watermark 1", settled_fork, FIRST),
    Case("F35", "other records from the high watermark on, epochs 0 and 1", ordinary_fork, FIRST, control=True),
    Case("F35", "the same, and b3 ends before they diverge", lagging_behind_a_fork, FIRST, control=True),
    Case("F35", "b1 parted at 12; then one bit of [15, 18) on b2", forked_before_damage, FIRST),
    Case("F36", "b1 = r0@1 r1@1, high watermark 1; b3 leads epoch 2 with other records", unclean_leader, segment(0, broker=3)),
    Case(
        "F36",
        "b3 leads epoch 2 with others from 12 on; then one bit of [12, 15) on b2, which had committed [12, 18)",
        damaged_loser,
        FIRST,
    ),
    Case("F36", "b3 leads epoch 2 and has written nothing yet", lambda it: empty_leader(it, (2, 0)), segment(0, broker=3)),
    Case("F36", "b3 is empty and claims no epoch", empty_leader, segment(0, broker=3)),
    injected_case(
        "F38", "another record at the same offset and epoch, CRC right", lambda it: rewrite_record(it, 2, 40), damaged=MIDDLE
    ),
    injected_case(
        "F38",
        "the same, another one on each replica",
        on_brokers(lambda it, broker: rewrite_record(it, broker, 40)),
        damaged=MIDDLE,
    ),
    injected_case("F40", "another topic id on b2", other_topic_id, damaged=MIDDLE),
    injected_case(
        "F40", "another topic id on b2, b1 and b3 in conflict", other_topic_id, lambda it: rewrite_record(it, 3, 46), damaged=MIDDLE
    ),
    injected_case("F40", "another cluster id on b2", other_cluster_id, damaged=MIDDLE),
    injected_case(
        "F40",
        "two copies under one node id",
        lambda it: (it.log_dir(2) / "meta.properties").write_bytes((it.log_dir(1) / "meta.properties").read_bytes()),
    ),
    Case("F45", "sequence numbers skipped", skipped_sequences, FIRST),
    Case("F45", "sequence numbers that wrap at 2147483647", wrapped_sequences, FIRST, control=True),
    Case("F45", "sequence numbers missing where bytes are lost", sequences_behind_damage, FIRST),
)
ENVIRONMENT: Final = (
    injected_case(
        "F46", "`--live`: log older than checkpoints and indexes", lambda it: cut_log(it, 65, 0), damaged=ACTIVE, live=True
    ),
    injected_case("F46", "the same judged without `--live`", lambda it: cut_log(it, 65, 0), damaged=ACTIVE),
    injected_case("F46", "`--live`: last batch cut short, clean shutdown marked", torn_copy, damaged=ACTIVE, live=True),
    injected_case("F46", "`--live`: an epoch newer than its checkpoint", lambda it: it.put_epochs(2, *LATE_EPOCHS), live=True),
    while_read(lengthen)("F46", "a log grows while it is read"),
    while_read(lambda path: os.truncate(path, HEALTHY.at(58).position))("F46", "a log shrinks while it is read"),
    while_read(Path.unlink)("F46", "a log disappears while it is read", note="incomplete, exit 3"),
    Case(
        "P8",
        "ESC, OSC, BEL, C1 and bidi characters in records",
        hostile_records,
        segment(0, broker=1),
        note="none of them in any output format, nor from names and ids",
        peer_options=("--print-data-log",),
    ),
)

# Variants: other places, other values, and states that only look like the fault. They are not in docs/faults.md.


def threes(*batches: tuple[str, int]) -> Log:
    return history(*batches, records=3)


def lagging(root: Path, *, last: bool, fork: bool = True) -> Brokers:
    """Broker 3 ends at 9; brokers 1 and 2 fork at 12, or are equal; `last`: broker 4 ends at 12."""
    logs = {1: threes(*COMMON, ("old", 0)), 2: threes(*COMMON, ("new", 1)), 3: threes(*COMMON[:3])}
    if not fork:
        logs |= {1: threes(*COMMON), 2: threes(*COMMON)}
    if last:
        logs[4] = threes(*COMMON)
    return put_replicas(root, logs, 9)


def forked_around_damage(root: Path) -> Brokers:
    """Broker 1 forks from the others at 12; on broker 2 a batch before 12 and a batch after it are damaged."""
    mine, other = threes(*COMMON, *[("a", 1)] * 3), threes(*COMMON, *[("b", 2)] * 3)
    brokers = put_replicas(root, {1: other, 2: mine, 3: mine}, 12)
    brokers.flip(2, mine.at(16), 100)
    brokers.flip(2, mine.at(4), 100)
    return brokers


def rewritten_elsewhere(brokers: Brokers, *damaged: int) -> None:
    rewrite_record(brokers, 1, 33)
    for offset in damaged:
        brokers.flip(2, HEALTHY.at(offset), 100)


def other_identity(brokers: Brokers, *, cluster: bool) -> None:
    """Broker 2 has another topic id or cluster id; broker 3 differs from broker 1."""
    (other_cluster_id if cluster else other_topic_id)(brokers)
    rewrite_record(brokers, 3, 46)


def other_topic(brokers: Brokers, *records: bytes) -> None:
    other_topic_id(brokers)
    with_controller(brokers, *records)


def two_clusters(brokers: Brokers) -> None:
    put_meta_properties(brokers.log_dir(2), 1, cluster_id=OTHER_CLUSTER_ID)
    (brokers.log_dir(2) / "t-0").rename(brokers.log_dir(2) / "u-0")


def behind_the_watermark(root: Path) -> Brokers:
    """Broker 2 ends two batches before the others, at its own checkpointed high watermark."""
    brokers = put_replicas(root, {1: threes(*COMMON), 2: threes(*COMMON[:2]), 3: threes(*COMMON)}, {1: 12, 2: 6, 3: 12})
    brokers.checkpoint("replication", 6, 2)
    return brokers


def converted_down(root: Path, magic: int, other: int | None = None) -> Brokers:
    """Broker 2 stores the same records in an older message format; `other`: the record at this offset has another value."""
    log = threes(*COMMON)
    brokers, old = put_replicas(root, {1: log, 2: log, 3: log}, 12), []
    for stored in (stored for batch in log.batches for stored in decode_batch(batch.data).iter_records()):
        value = b"another" if stored.offset == other else stored.value
        stamp = stored.timestamp if magic else -1
        old.append(write_legacy_entry(stored.key, value, offset=stored.offset, magic=magic, timestamp=stamp))
    for suffix, data in (("log", b"".join(old)), ("index", b""), ("timeindex", b"")):
        brokers.file(2, 0, suffix).write_bytes(data)
    brokers.put_epochs(2)
    return brokers


SWAPPED: Final = (topic("orders", OTHER_TOPIC_ID), partition([2], 2, topic_id=OTHER_TOPIC_ID))
EARLIER: Final = (topic(topic_id=OTHER_TOPIC_ID), partition([2], 2, topic_id=OTHER_TOPIC_ID), record(9, topic_id=OTHER_TOPIC_ID))
REPLICA_VARIANTS: Final = (
    Case("F35", "b3 ends before the others part, and b4 where they do", lambda root: lagging(root, last=True), control=True),
    Case("-", "b3 ends before the others, which agree", lambda root: lagging(root, last=False, fork=False), control=True),
    Case("-", "b2 ends before the others, as its high watermark says", behind_the_watermark, control=True),
    *cases_of_trees("-", "b2 stored the same records in message format", converted_down, [(1,), (0,)], control=True),
    *cases_of_trees("F38", "b2 stored, in an older message format, another record at 7:", converted_down, [(1, 7), (0, 7)]),
    Case("F35", "b1 parted at 12; then one bit of a batch before and of one behind that on b2", forked_around_damage),
    *case_per_row("F38", "another record at 33 on b1, damage on b2 at", rewritten_elsewhere, [(40,), (40, 33)]),
    injected_case("F40", "another cluster id on b2, b1 and b3 in conflict", lambda it: other_identity(it, cluster=True)),
    injected_case(
        "F40",
        "a replica without an id beside two topics",
        lambda it: rewrite_record(it, 1, 40),
        lambda it: put_topic_id(it.directory(2), OTHER_TOPIC_ID),
        lambda it: it.file_named(1, "partition.metadata").unlink(),
    ),
    injected_case("F40", "another topic id on b2, damage on b3", other_topic_id, lambda it: it.flip(3, HEALTHY.at(10), 100)),
    injected_case(
        "F40", "directories of two topics were swapped", lambda it: other_topic(it, *topic_with_isr([1, 2, 3]), *SWAPPED)
    ),
    injected_case(
        "F40",
        "another topic id on b2 that the controllers' log does not know",
        lambda it: other_topic(it, *topic_with_isr([1, 2, 3])),
    ),
    injected_case("F40", "an earlier topic of that name on b2", lambda it: other_topic(it, *EARLIER, *topic_with_isr([1, 2, 3]))),
    injected_case("F40", "two clusters whose brokers have one id", two_clusters),
)

# Damage where another replica has another history.

OLD: Final = threes(*COMMON, ("old", 0), ("old", 0))
NEW: Final = threes(*COMMON, ("new", 2))
LOST: Final = b"\xff" * 30


def unclean(root: Path, *, second: bool = False) -> Brokers:
    """Brokers 2 (and 3) committed [12, 18) in epoch 0; broker 1 leads epoch 2 with other records from 12 on."""
    logs = {1: NEW, 2: OLD, 3: OLD} if second else {1: NEW, 2: OLD}
    return put_replicas(root, logs)


def loss_held_in_part(root: Path, *, whole: bool = True) -> Brokers:
    """Broker 1 leads epoch 2 from 12 on; of [12, 18) broker 2 has all (or, damaged, only [15, 18)), broker 3 [12, 15)."""
    brokers = put_replicas(root, {1: NEW, 2: OLD, 3: OLD.truncated_to(15)})
    if not whole:
        brokers.flip(2, OLD.at(12), 100)
    return brokers


def end_held_in_part(root: Path, *ends: int) -> Brokers:
    """Broker 1 lost [12, 18), which it had committed; the others' logs end at `ends`."""
    logs = {1: OLD.truncated_to(12), **{broker: OLD.truncated_to(end) for broker, end in enumerate(ends, 2)}}
    brokers = put_replicas(root, logs)
    brokers.checkpoint("replication", 18, 1)
    return brokers


def loser_damaged(root: Path, *offsets: int, second: bool = False) -> Brokers:
    brokers = unclean(root, second=second)
    for offset in offsets:
        brokers.flip(2, OLD.at(offset), 100)
    return brokers


def loser_contradicted(root: Path) -> Brokers:
    """Broker 2's checkpoint has another epoch for [12, 18) than the damaged headers."""
    brokers = loser_damaged(root, 12, 15)
    brokers.put_epochs(2, (0, 0), (2, 12))
    return brokers


def winner_damaged(root: Path) -> Brokers:
    brokers = unclean(root)
    brokers.flip(1, NEW.at(12), 100)
    return brokers


def harmless_fork(root: Path, data: bytes | None) -> Brokers:
    """Broker 2 forks above the high watermark; the winner's first batch is damaged, or its header is lost."""
    longer = threes(*COMMON, ("new", 2), ("new", 2))
    brokers = put_replicas(root, {1: longer, 2: OLD, 3: longer}, {1: 18, 2: 12, 3: 18})
    if data is None:
        brokers.flip(1, longer.at(12), 100)
    else:
        brokers.overwrite(1, longer.at(12), data)
    return brokers


def frame_lost(root: Path, *offsets: int, epochs: tuple[tuple[int, int], ...] = ()) -> Brokers:
    """Headers are lost on broker 2 from 12 on; with `epochs` the controllers' log has the unclean election of broker 1."""
    brokers = unclean(root)
    for offset in offsets:
        brokers.overwrite(2, OLD.at(offset), LOST)
    if epochs:
        brokers.put_epochs(2, *epochs)
        with_controller(
            brokers,
            *topic_with_isr([2]),
            partition_change(leader=-1, isr=[]),
            partition_change(leader=1, isr=[1], leader_recovery_state=1),
        )
    return brokers


def held_in_part(root: Path) -> Brokers:
    """Broker 1's log ends within the offsets of broker 2's damaged batch, in a smaller batch."""
    wide, short = threes(*COMMON), threes(*COMMON)
    wide.plain(6)
    short.plain(3)
    brokers = put_replicas(root, {1: short, 2: wide}, 15)
    brokers.flip(2, wide.at(12), 100)
    return brokers


def cleaned_and_lost(root: Path, damaged: int | None = None, dropped: Iterable[int] = range(7)) -> Brokers:
    """Broker 1 leads epoch 2 from offset 0; brokers 2 and 3 have the records committed before, as a cleaner left them."""
    story = History()
    for number in range(8):
        story.put(("a", str(number)))
    cleaned = fill_segment(story).left(set(dropped), roll=CLEANED)
    brokers = put_replicas(root, {1: history(("new", 2)), 2: cleaned, 3: cleaned}, {1: 1, 2: 16, 3: 16})
    for broker in (2, 3):
        brokers.checkpoint("cleaner", CLEANED, broker)
        if damaged is not None:
            brokers.flip(broker, cleaned.at(damaged), 65)
    return brokers


def empty_segment_after_cleaning(root: Path) -> Brokers:
    """The active segment is empty and begins after the last batch that the cleaner left."""
    brokers = cleaned_and_lost(root, dropped=[*range(7), 10, 11])
    for broker in (2, 3):
        for suffix in ("log", "index", "timeindex"):
            brokers.file(broker, CLEANED, suffix).write_bytes(b"")
        brokers.checkpoint("replication", CLEANED, broker)
    return brokers


FORKS: Final = (
    *cases_of_trees("F36", "the losing side is damaged at", loser_damaged, [(12, 15)]),
    Case("F36", "the losing side is damaged, and there is a second copy of it", lambda root: loser_damaged(root, 12, second=True)),
    Case("F36", "the losing side is damaged, and its checkpoint contradicts it", loser_contradicted),
    Case("F36", "b2 holds all of the loss, b3 the first half", loss_held_in_part),
    Case("F36", "b2 holds the second half of the loss, b3 the first", lambda root: loss_held_in_part(root, whole=False)),
    *cases_of_trees("F17", "b1 lost its end; the other logs end at", end_held_in_part, [(15, 12), (15, 18)]),
    Case("F36", "the winning side is damaged", winner_damaged),
    *cases_of_trees("F35", "the winner's first batch is damaged; over it:", harmless_fork, [(None,), (LOST,)]),
    Case("F36", "a frame of the losing side is lost", lambda root: frame_lost(root, 12)),
    *cases_of_trees(
        "F36",
        "what an unclean election cost lies in a lost frame; epochs",
        lambda root, *epochs: frame_lost(root, 12, 15, epochs=epochs),
        [((0, 0),), ((0, 0), (2, 12))],
    ),
    Case("-", "a shorter copy holds a damaged batch in part", held_in_part),
    Case("F36", "only a cleaner took from the head of the copies that hold the loss", cleaned_and_lost),
    *cases_of_trees("F36", "a cleaned log that holds the loss is damaged at", cleaned_and_lost, [(7,), (9,), (15,)]),
    Case("F36", "an empty segment behind what a cleaner took", empty_segment_after_cleaning),
)

# Compacted topics.


def cleaned_differently(
    root: Path, dropped: set[int], cleaned: dict[int, int] | None = None, story: History | None = None
) -> Brokers:
    return put_differently_cleaned(root, story or keyed_history(), {2: dropped}, cleaned)


def own_horizon(root: Path) -> Brokers:
    """A young tombstone is missing on broker 2; on the others its delete horizon is long past."""
    story = keyed_history(FUTURE_MS)
    marked = story.left({0, 3}, roll=CLEANED, horizon=1_600_000_000_000)
    logs = {1: marked, 2: story.left({0, 3, 4}, roll=CLEANED), 3: marked}
    return put_compacted(root, logs, dict.fromkeys(logs, CLEANED))


def active_log_gone(root: Path) -> Brokers:
    """Broker 2 lacks only the `.log` of the active segment, which no cleaner touches."""
    brokers = put_differently_cleaned(root, keyed_history().put(("d", "1")), {2: {0}})
    brokers.remove(2, CLEANED, "log")
    return brokers


def moved_log_start(root: Path) -> Brokers:
    """Retention moved the log start of two brokers, only one of which was cleaned."""
    story = keyed_history()
    brokers = put_compacted(root, {1: story.left(roll=CLEANED), 2: story.left({0}, roll=CLEANED)}, {2: CLEANED})
    brokers.checkpoint("log-start", 3, 1, 2)
    return brokers


def compacted_fork(root: Path) -> Brokers:
    other = fill_segment(History().put(("a", "1")).put(("b", "other"), ("a", "2")).put(("c", "1")).put(("c", None)))
    return put_compacted(root, {1: keyed_history().left(roll=CLEANED), 2: other.left(roll=CLEANED)}, {1: CLEANED})


COMPACTED: Final = (
    Case("F39", "the horizon of a batch counts from its own cleaning", own_horizon, control=True),
    Case(
        "F39",
        "a record superseded beyond the checkpoint",
        lambda root: cleaned_differently(root, {0, 2}, {2: 5}, keyed_history().put(("a", "3"))),
        control=True,
    ),
    Case("F39", "retention moved the log starts", moved_log_start, control=True),
    Case(
        "F39",
        "`--live`: a value is gone that no cleaner can have taken",
        lambda root: cleaned_differently(root, {1}, {3: 1}),
        live=True,
    ),
    Case(
        "F39",
        "`--live`: the same, and an older record is gone, which only a cleaner takes",
        lambda root: cleaned_differently(root, {0, 1}, {3: 1}),
        live=True,
        control=True,
    ),
    Case("F39", "cleaned apart, and a value differs", lambda root: cleaned_differently(root, {0, 1})),
    *cases_of_trees(
        "F39",
        "superseded records are gone where only one cleaner says so: b",
        lambda root, by: put_differently_cleaned(root, keyed_history(), {by: {0, 3}}),
        [(1,), (3,)],
        control=True,
    ),
    Case("F39", "other records of one epoch", compacted_fork),
    Case("F17", "only the `.log` of a compacted topic's active segment is gone", active_log_gone),
)
VARIANTS: Final[tuple[Case, ...]] = (*REPLICA_VARIANTS, *FORKS, *COMPACTED)
