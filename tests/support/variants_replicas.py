"""Variants of faults between replicas: F34 to F40, copies that are no good ones, damage beside forks, and compacted logs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kafka_forensics.writers.files import write_meta_properties, write_offset_checkpoint, write_partition_metadata
from tests.support.compacted import CLEANED, FUTURE_MS, History, compacted, filled, three
from tests.support.compacted import history as keyed_history
from tests.support.controller_log import change, controlled_by, in_sync, partition, record, topic
from tests.support.faults import HEALTHY, TOPIC, Brokers, Log, histories, write_checkpoint
from tests.support.gallery_case import Case, done, each, trees
from tests.support.gallery_replicas import OTHER_CLUSTER_ID, OTHER_TOPIC_ID, strange_cluster, strange_topic
from tests.support.injections import claim_epochs, history, rewritten

COMMON: Final = [("p", 0)] * 4
"""Offsets [0, 12) of a history of batches of three records."""


def threes(*batches: tuple[str, int]) -> Log:
    return history(*batches, records=3)


def lagging(root: Path, *, last: bool, fork: bool = True) -> Brokers:
    """Broker 3 ends at 9; brokers 1 and 2 part at 12, or are equal; `last`: broker 4 ends there."""
    logs = {1: threes(*COMMON, ("old", 0)), 2: threes(*COMMON, ("new", 1)), 3: threes(*COMMON[:3])}
    if not fork:
        logs |= {1: threes(*COMMON), 2: threes(*COMMON)}
    if last:
        logs[4] = threes(*COMMON)
    return histories(root, logs, dict.fromkeys(logs, 9))


def parted_before_damage(root: Path) -> Brokers:
    """Broker 1 parted at 12 from the others; on broker 2 a batch before and one behind that are damaged."""
    mine, other = threes(*COMMON, *[("a", 1)] * 3), threes(*COMMON, *[("b", 2)] * 3)
    brokers = histories(root, {1: other, 2: mine, 3: mine}, dict.fromkeys((1, 2, 3), 12))
    brokers.flip(2, mine.at(16), 100)
    brokers.flip(2, mine.at(4), 100)
    return brokers


def rewritten_elsewhere(brokers: Brokers, *damaged: int) -> None:
    rewritten(brokers, 1, 33)
    for offset in damaged:
        brokers.flip(2, HEALTHY.at(offset), 100)


def stranger(brokers: Brokers, *, cluster: bool) -> None:
    """Broker 2 is another topic's or another cluster's; broker 3 differs from broker 1."""
    (strange_cluster if cluster else strange_topic)(brokers)
    rewritten(brokers, 3, 46)


def other_topic(brokers: Brokers, *records: bytes) -> None:
    strange_topic(brokers)
    controlled_by(brokers, *records)


def two_clusters(brokers: Brokers) -> None:
    meta = write_meta_properties(node_id=1, cluster_id=OTHER_CLUSTER_ID)
    (brokers.log_dir(2) / "meta.properties").write_bytes(meta)
    (brokers.log_dir(2) / "t-0").rename(brokers.log_dir(2) / "u-0")


def behind_the_watermark(root: Path) -> Brokers:
    """Broker 2 ends two records before the others, and wrote its own high watermark down."""
    brokers = histories(root, {1: threes(*COMMON), 2: threes(*COMMON[:2]), 3: threes(*COMMON)}, {1: 12, 2: 6, 3: 12})
    write_checkpoint(brokers.log_dir(2), "replication", 6)
    return brokers


SWAPPED: Final = (topic("orders", OTHER_TOPIC_ID), partition([2], 2, topic_id=OTHER_TOPIC_ID))
EARLIER: Final = (topic(topic_id=OTHER_TOPIC_ID), partition([2], 2, topic_id=OTHER_TOPIC_ID), record(9, topic_id=OTHER_TOPIC_ID))
REPLICAS: Final = (
    Case("F35", "b3 ends before the others part, and b4 where they do", lambda root: lagging(root, last=True), control=True),
    Case("-", "b3 ends before the others, which agree", lambda root: lagging(root, last=False, fork=False), control=True),
    Case("-", "b2 ends before the others, as its high watermark says", behind_the_watermark, control=True),
    Case("F35", "b1 parted at 12; then one bit of a batch before and of one behind that on b2", parted_before_damage),
    *each("F38", "another record at 33 on b1, damage on b2 at", rewritten_elsewhere, [(40,), (40, 33)]),
    done("F40", "another cluster id on b2, b1 and b3 in conflict", lambda it: stranger(it, cluster=True)),
    done(
        "F40",
        "a replica without an id beside two topics",
        lambda it: rewritten(it, 1, 40),
        lambda it: it.named(2, "partition.metadata").write_bytes(write_partition_metadata(OTHER_TOPIC_ID)),
        lambda it: it.named(1, "partition.metadata").unlink(),
    ),
    done("F40", "another topic id on b2, damage on b3", strange_topic, lambda it: it.flip(3, HEALTHY.at(10), 100)),
    done("F40", "directories of two topics were swapped", lambda it: other_topic(it, *in_sync([1, 2, 3]), *SWAPPED)),
    done("F40", "another topic id on b2 that the controllers' log does not know", lambda it: other_topic(it, *in_sync([1, 2, 3]))),
    done("F40", "an earlier topic of that name on b2", lambda it: other_topic(it, *EARLIER, *in_sync([1, 2, 3]))),
    done("F40", "two clusters whose brokers have one id", two_clusters),
)

# Damage where another replica has another history.

OLD: Final = threes(*COMMON, ("old", 0), ("old", 0))
NEW: Final = threes(*COMMON, ("new", 2))
LOST: Final = b"\xff" * 30


def unclean(root: Path, *, second: bool = False) -> Brokers:
    """Broker 2 (and 3) committed [12, 18) in epoch 0; broker 1 leads epoch 2 with other records from 12 on."""
    logs = {1: NEW, 2: OLD, 3: OLD} if second else {1: NEW, 2: OLD}
    return histories(root, logs, {broker: log.next_offset for broker, log in logs.items()})


def loser_damaged(root: Path, *offsets: int, second: bool = False) -> Brokers:
    brokers = unclean(root, second=second)
    for offset in offsets:
        brokers.flip(2, OLD.at(offset), 100)
    return brokers


def loser_contradicted(root: Path) -> Brokers:
    """Broker 2's checkpoint gives [12, 18) another epoch than the damaged headers."""
    brokers = loser_damaged(root, 12, 15)
    claim_epochs(brokers, 2, (0, 0), (2, 12))
    return brokers


def winner_damaged(root: Path) -> Brokers:
    brokers = unclean(root)
    brokers.flip(1, NEW.at(12), 100)
    return brokers


def harmless_fork(root: Path, data: bytes | None) -> Brokers:
    """Broker 2 parted above the high watermark; the winner's first batch is damaged, or its frame lost."""
    longer = threes(*COMMON, ("new", 2), ("new", 2))
    brokers = histories(root, {1: longer, 2: OLD, 3: longer}, {1: 18, 2: 12, 3: 18})
    if data is None:
        brokers.flip(1, longer.at(12), 100)
    else:
        brokers.overwrite(1, longer.at(12), data)
    return brokers


def frame_lost(root: Path, *offsets: int, epochs: tuple[tuple[int, int], ...] = ()) -> Brokers:
    """Broker 2 has lost frames from 12 on; with epochs the controllers' log has the unclean election of broker 1."""
    brokers = unclean(root)
    for offset in offsets:
        brokers.overwrite(2, OLD.at(offset), LOST)
    if epochs:
        claim_epochs(brokers, 2, *epochs)
        controlled_by(brokers, *in_sync([2]), change(leader=-1, isr=[]), change(leader=1, isr=[1], leader_recovery_state=1))
    return brokers


def held_in_part(root: Path) -> Brokers:
    """Broker 1's log ends within the offsets of broker 2's damaged batch, in a smaller batch."""
    wide, short = threes(*COMMON), threes(*COMMON)
    wide.plain(6)
    short.plain(3)
    brokers = histories(root, {1: short, 2: wide}, {1: 15, 2: 15})
    brokers.flip(2, wide.at(12), 100)
    return brokers


def cleaned_and_lost(root: Path, damaged: int | None = None, dropped: Iterable[int] = range(7)) -> Brokers:
    """Broker 1 leads epoch 2 from offset 0; brokers 2 and 3 hold what was committed before, as a cleaner left it."""
    story = History()
    for number in range(8):
        story.put(("a", str(number)))
    cleaned = filled(story).left(set(dropped), roll=CLEANED)
    brokers = histories(root, {1: history(("new", 2)), 2: cleaned, 3: cleaned}, {1: 1, 2: 16, 3: 16})
    for broker in (2, 3):
        (brokers.log_dir(broker) / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({(TOPIC, 0): CLEANED}))
        if damaged is not None:
            brokers.flip(broker, cleaned.at(damaged), 65)
    return brokers


def empty_segment_behind(root: Path) -> Brokers:
    """The active segment is empty and begins behind the last batch that the cleaner left."""
    brokers = cleaned_and_lost(root, dropped=[*range(7), 10, 11])
    for broker in (2, 3):
        for suffix in ("log", "index", "timeindex"):
            brokers.file(broker, CLEANED, suffix).write_bytes(b"")
        write_checkpoint(brokers.log_dir(broker), "replication", CLEANED)
    return brokers


FORKS: Final = (
    *trees("F36", "the losing side is damaged at", loser_damaged, [(12, 15)]),
    Case("F36", "the losing side is damaged, and there is a second copy of it", lambda root: loser_damaged(root, 12, second=True)),
    Case("F36", "the losing side is damaged, and its checkpoint contradicts it", loser_contradicted),
    Case("F36", "the winning side is damaged", winner_damaged),
    *trees("F35", "the winner's first batch is damaged; over it:", harmless_fork, [(None,), (LOST,)]),
    Case("F36", "a frame of the losing side is lost", lambda root: frame_lost(root, 12)),
    *trees(
        "F36",
        "what an unclean election cost lies in a lost frame; epochs",
        lambda root, *epochs: frame_lost(root, 12, 15, epochs=epochs),
        [((0, 0),), ((0, 0), (2, 12))],
    ),
    Case("-", "a shorter copy holds a damaged batch in part", held_in_part),
    Case("F36", "only a cleaner took from the head of the copies that hold the loss", cleaned_and_lost),
    *trees("F36", "a cleaned log that holds the loss is damaged at", cleaned_and_lost, [(7,), (9,), (15,)]),
    Case("F36", "an empty segment behind what a cleaner took", empty_segment_behind),
)

# Compacted topics.


def apart(root: Path, dropped: set[int], cleaned: dict[int, int] | None = None, story: History | None = None) -> Brokers:
    return three(root, story or keyed_history(), {2: dropped}, cleaned)


def own_horizon(root: Path) -> Brokers:
    """A tombstone that is young is gone on broker 2; its delete horizon on the others is long past."""
    story = keyed_history(FUTURE_MS)
    marked = story.left({0, 3}, roll=CLEANED, horizon=1_600_000_000_000)
    logs = {1: marked, 2: story.left({0, 3, 4}, roll=CLEANED), 3: marked}
    return compacted(root, logs, dict.fromkeys(logs, CLEANED))


def moved_log_start(root: Path) -> Brokers:
    """Retention moved the log start of two brokers, of which only one was cleaned."""
    story = keyed_history()
    brokers = compacted(root, {1: story.left(roll=CLEANED), 2: story.left({0}, roll=CLEANED)}, {2: CLEANED})
    for broker in (1, 2):
        write_checkpoint(brokers.log_dir(broker), "log-start", 3)
    return brokers


def compacted_fork(root: Path) -> Brokers:
    other = filled(History().put(("a", "1")).put(("b", "other"), ("a", "2")).put(("c", "1")).put(("c", None)))
    return compacted(root, {1: keyed_history().left(roll=CLEANED), 2: other.left(roll=CLEANED)}, {1: CLEANED})


COMPACTED: Final = (
    Case("F39", "the horizon of a batch counts from its own cleaning", own_horizon, control=True),
    Case(
        "F39",
        "a record superseded beyond the checkpoint",
        lambda root: apart(root, {0, 2}, {2: 5}, keyed_history().put(("a", "3"))),
        control=True,
    ),
    Case("F39", "retention moved the log starts", moved_log_start, control=True),
    Case("F39", "`--live`: a value is gone that no cleaner can have taken", lambda root: apart(root, {1}, {3: 1}), live=True),
    Case(
        "F39",
        "`--live`: the same, and an older record is gone, which only a cleaner takes",
        lambda root: apart(root, {0, 1}, {3: 1}),
        live=True,
        control=True,
    ),
    Case("F39", "cleaned apart, and a value differs", lambda root: apart(root, {0, 1})),
    *trees(
        "F39",
        "superseded records are gone where only one cleaner says so: b",
        lambda root, by: three(root, keyed_history(), {by: {0, 3}}),
        [(1,), (3,)],
        control=True,
    ),
    Case("F39", "other records of one epoch", compacted_fork),
)
VARIANTS: Final[tuple[Case, ...]] = (*REPLICAS, *FORKS, *COMPACTED)
