"""The gallery's cases of histories, producers and copies: what no single file shows, or what is no fault of a file."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from kafka_forensics.writers.files import write_meta_properties, write_partition_metadata
from tests.support.faults import BASE_TIMESTAMP, HEALTHY, IDEMPOTENT, Brokers, Log, healthy, histories
from tests.support.gallery_case import Case, done, on_each, segment
from tests.support.injections import claim_epochs, cut_log, history, rewritten, three_replicas

HOSTILE: Final = "\x1b]0;pwn\x07\x1b[31m\x9b2J\x85\u202e"
"""Sets a terminal's title and colours, clears it, turns text round."""
OTHER_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
FIRST, MIDDLE, ACTIVE = (segment(offset) for offset in (0, 29, 55))
COMMON: Final = [("p", 0)] * 4


def settled_fork(root: Path) -> Brokers:
    logs = {1: history(("r0", 0), ("r2", 2)), 2: history(("r1", 1), ("r2", 2))}
    return histories(root, logs, {1: 1, 2: 1})


def ordinary_fork(root: Path) -> Brokers:
    old, new = history(*COMMON, ("old", 0), records=3), history(*COMMON, ("new", 1), ("new", 1), records=3)
    return histories(root, {1: old, 2: new, 3: new}, dict.fromkeys((1, 2, 3), 12))


def forked_before_damage(root: Path) -> Brokers:
    mine, other = history(*COMMON, *[("a", 1)] * 3, records=3), history(*COMMON, *[("b", 2)] * 3, records=3)
    brokers = histories(root, {1: other, 2: mine, 3: mine}, dict.fromkeys((1, 2, 3), 12))
    brokers.flip(2, mine.at(16), 100)
    return brokers


def lagging_behind_a_fork(root: Path) -> Brokers:
    old, new = history(*COMMON, ("old", 0), records=3), history(*COMMON, ("new", 1), records=3)
    return histories(root, {1: old, 2: new, 3: history(*COMMON[:3], records=3)}, dict.fromkeys((1, 2, 3), 9))


def unclean_leader(root: Path) -> Brokers:
    brokers = histories(root, {1: history(("r0", 1), ("r1", 1)), 3: history(("x", 2))}, {1: 1, 3: 0})
    (brokers.log_dir(3) / "replication-offset-checkpoint").unlink()
    return brokers


def damaged_loser(root: Path) -> Brokers:
    """Broker 3 leads epoch 2 with other records from 12 on; on broker 2 one of the batches that it had committed there rots."""
    old, new = history(*COMMON, ("old", 0), ("old", 0), records=3), history(*COMMON, ("new", 2), records=3)
    brokers = histories(root, {2: old, 3: new}, {2: 18, 3: 15})
    brokers.flip(2, old.at(12), 100)
    return brokers


def empty_leader(root: Path, *entries: tuple[int, int]) -> Brokers:
    brokers = histories(root, {1: history(("r0", 1)), 3: Log()}, {1: 1, 3: 0})
    claim_epochs(brokers, 3, *entries)
    return brokers


def strange_topic(brokers: Brokers) -> None:
    rewritten(brokers, 2, 40)
    brokers.named(2, "partition.metadata").write_bytes(write_partition_metadata(OTHER_TOPIC_ID))


def strange_cluster(brokers: Brokers) -> None:
    rewritten(brokers, 2, 40)
    (brokers.log_dir(2) / "meta.properties").write_bytes(write_meta_properties(node_id=2, cluster_id=OTHER_CLUSTER_ID))


def skipped_sequences(root: Path, skip: int = 3) -> Brokers:
    log = Log()
    _ = log.produce(), log.produce(), log.produce(skip=skip), log.produce()
    return three_replicas(root, log)


def wrapped_sequences(root: Path, before: int = 4) -> Brokers:
    """A producer's next number is so far before the largest, in batches of three: they begin again at 0."""
    log = Log()
    log.producers[IDEMPOTENT] = ProducerEntry(IDEMPOTENT, 0, MAX_SEQUENCE - before, -1, 0, -1, -1, -1)
    _ = log.produce(), log.produce(), log.produce()
    return three_replicas(root, log)


def sequences_behind_damage(root: Path) -> Brokers:
    log = Log()
    _, _, lost, _ = log.produce(), log.produce(), log.produce(), log.produce()
    brokers = three_replicas(root, log)
    brokers.overwrite(2, lost, b"\0\0\0\x05", 8)
    return brokers


def torn_copy(brokers: Brokers) -> None:
    path = brokers.file(2, 55)
    path.write_bytes(path.read_bytes()[:-100])


def hostile(root: Path) -> Brokers:
    """Control characters wherever a file lets them in; and enough faults that every part of an answer is printed."""
    log = Log()
    for _ in range(3):
        record = RecordToWrite(HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, HOSTILE.encode())])
        stamp = BASE_TIMESTAMP + 1000 * log.next_offset
        log.append(write_batch([record], base_offset=log.next_offset, base_timestamp=stamp), log.next_offset, stamp)
    brokers = histories(root / HOSTILE, dict.fromkeys((1, 2), log), {1: 9, 2: 2})
    brokers.overwrite(2, log.batches[1], b"\3", 16)
    (brokers.log_dir(1) / HOSTILE).write_bytes(b"unknown")
    (brokers.log_dir(1) / f"{HOSTILE}-0").mkdir()
    (brokers.log_dir(1) / f"{HOSTILE}-0" / f"{0:020d}.log").write_bytes(b"")
    meta = brokers.log_dir(2) / "meta.properties"
    meta.write_bytes(meta.read_bytes().replace(b"cluster.id=", b"cluster.id=" + HOSTILE.encode("unicode_escape")))
    (brokers.log_dir(2) / "cleaner-offset-checkpoint").write_bytes(HOSTILE.encode() * 3)
    return brokers


def hostile_records(root: Path) -> Brokers:
    log = Log()
    record = RecordToWrite(HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, HOSTILE.encode())])
    log.append(write_batch([record], base_offset=0, base_timestamp=BASE_TIMESTAMP), 0, BASE_TIMESTAMP)
    return histories(root, {1: log}, {1: 1})


def while_read(change: Callable[[Path], object]) -> partial[Case]:
    return partial(
        Case, make=healthy, during=lambda it: change(it.file(2, 55)), untold="not run: the file changes only while a scan reads it"
    )


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


LATE_EPOCHS: Final = ((0, 0), (1, 32))
REPLICAS: Final = (
    Case("F34", "b1 = r0@0 r2@2, b2 = r1@1 r2@2, high watermark 1", settled_fork, FIRST),
    Case("F35", "other records from the high watermark on, epochs 0 and 1", ordinary_fork, FIRST, control=True),
    Case("F35", "the same, and b3 ends before they part", lagging_behind_a_fork, FIRST, control=True),
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
    done("F38", "another record at the same offset and epoch, CRC right", lambda it: rewritten(it, 2, 40), damaged=MIDDLE),
    done("F38", "the same, another one on each replica", on_each(lambda it, broker: rewritten(it, broker, 40)), damaged=MIDDLE),
    done("F40", "another topic id on b2", strange_topic, damaged=MIDDLE),
    done(
        "F40",
        "another topic id on b2, b1 and b3 in conflict",
        strange_topic,
        lambda it: rewritten(it, 3, 46),
        damaged=MIDDLE,
    ),
    done("F40", "another cluster id on b2", strange_cluster, damaged=MIDDLE),
    done(
        "F40",
        "two copies under one node id",
        lambda it: (it.log_dir(2) / "meta.properties").write_bytes((it.log_dir(1) / "meta.properties").read_bytes()),
    ),
    Case("F45", "sequence numbers skipped", skipped_sequences, FIRST),
    Case("F45", "sequence numbers that wrap at 2147483647", wrapped_sequences, FIRST, control=True),
    Case("F45", "sequence numbers missing where bytes are lost", sequences_behind_damage, FIRST),
)
ENVIRONMENT: Final = (
    done("F46", "`--live`: log older than checkpoints and indexes", lambda it: cut_log(it, 65, 0), damaged=ACTIVE, live=True),
    done("F46", "the same judged without `--live`", lambda it: cut_log(it, 65, 0), damaged=ACTIVE),
    done("F46", "`--live`: last batch cut short, clean shutdown told", torn_copy, damaged=ACTIVE, live=True),
    done("F46", "`--live`: an epoch newer than its checkpoint", lambda it: claim_epochs(it, 2, *LATE_EPOCHS), live=True),
    while_read(lengthen)("F46", "a log grows while it is read"),
    while_read(lambda path: os.truncate(path, HEALTHY.at(58).position))("F46", "a log shrinks while it is read"),
    while_read(Path.unlink)("F46", "a log vanishes while it is read", note="incomplete, exit 3"),
    Case(
        "P8",
        "ESC, OSC, BEL, C1 and bidi characters in records",
        hostile_records,
        segment(0, broker=1),
        note="none of them in any output format, nor from names and ids",
        peer_options=("--print-data-log",),
    ),
)
