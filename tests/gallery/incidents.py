"""Trees that show a known incident, each with a near miss that must not match it."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from kafka_forensics.writers.files import write_producer_snapshot
from tests.support.brokers import (
    DIRECTORY,
    Brokers,
    healthy,
    put_brokers,
    put_clean_shutdown,
    put_meta_properties,
    put_partition,
    put_replicas,
    put_topic_id,
    write_checkpoint,
)
from tests.support.logs import COMMITTING, HEALTHY, LOG_END, OTHER, CoordinatorLog, DataLog, Log, history
from tests.support.segments import BASE_TIMESTAMP, segment_file, write_legacy_wrapper

LAST = HEALTHY.batches[-1]


Make = Callable[..., Brokers]


@dataclass(frozen=True, slots=True)
class Tree:
    """How to make a tree that matches a signature and its near miss; both are described for docs/incidents.md."""

    key: str
    """The key of the signature."""
    shows: str
    make: Make
    near_miss: str
    make_near_miss: Make
    also: tuple[str, ...] = ()
    """Other signatures that the tree correctly matches."""


_TREES: Final[list[Tree]] = []
_NEAR_MISSES: Final[dict[Make, tuple[str, Make]]] = {}


def incident(key: str, shows: str, *values: Any, also: tuple[str, ...] = (), **options: Any) -> Callable[[Make], Make]:
    """Declare a tree made with these values; the decorator below it declares its near miss."""

    def declare(make: Make) -> Make:
        words, make_near_miss = _NEAR_MISSES.pop(make)
        _TREES.append(Tree(key, shows, lambda root: make(root, *values, **options), words, make_near_miss, also))
        return make

    return declare


def near_miss(words: str, *values: Any, by: Make | None = None, **options: Any) -> Callable[[Make], Make]:
    """Declare the near miss of the tree above: made with other values, or `by` another function."""

    def declare(make: Make) -> Make:
        _NEAR_MISSES[make] = words, by or (lambda root: make(root, *values, **options))
        return make

    return declare


def old_entry(offset: int, tag: str) -> bytes:
    return write_legacy_entry(b"key", f"{tag}-{offset}".encode(), offset=offset, magic=1, timestamp=BASE_TIMESTAMP + offset)


def old_history(tag: str, count: int) -> Log:
    """A log of messages in format 1, which has no leader epochs."""
    log = Log()
    for offset in range(count):
        log.append(old_entry(offset, tag), offset, BASE_TIMESTAMP + offset)
    log.epochs.clear()
    return log


def as_before_topic_ids(brokers: Brokers) -> Brokers:
    """Change the files to those of Kafka before 2.8: no topic ids, first versions of other files."""
    for log_dir in brokers.log_dirs:
        (log_dir / DIRECTORY / "partition.metadata").unlink(missing_ok=True)
        put_meta_properties(log_dir, int(log_dir.name.removeprefix("b")), version=0)
        if (log_dir / ".kafka_cleanshutdown").exists():
            put_clean_shutdown(log_dir, None)
    return brokers


def as_before_epochs(brokers: Brokers) -> Brokers:
    """Change the files to those of Kafka 0.10: also no epochs, no snapshots, no log-start checkpoint."""
    for log_dir in brokers.log_dirs:
        (log_dir / DIRECTORY / "leader-epoch-checkpoint").unlink()
        (log_dir / "log-start-offset-checkpoint").unlink()
        for snapshot in (log_dir / DIRECTORY).glob("*.snapshot"):
            snapshot.unlink()
    return as_before_topic_ids(brokers)


def unclean(brokers: Brokers, broker: int) -> Brokers:
    (brokers.log_dir(broker) / ".kafka_cleanshutdown").unlink()
    return brokers


def write_log(brokers: Brokers, broker: int, data: bytes) -> None:
    """Replace the bytes of the only segment and delete its indexes."""
    for suffix in ("index", "timeindex"):
        brokers.file(broker, 0, suffix).unlink()
    brokers.file(broker, 0).write_bytes(data)


@incident(
    "d1 KAFKA-3919",
    "format 1, one log: offsets 0 to 9, then a compressed message that holds 7 to 11; no clean shutdown",
    7,
    11,
    also=("d4 KAFKA-1211",),
)
@near_miss("the compressed message holds 3 to 8: appended twice", 3, 8)
def step_back(root: Path, first: int, last: int) -> Brokers:
    brokers = unclean(as_before_epochs(put_replicas(root, old_history("a", 13))), 2)
    inner = [(offset - first).to_bytes(8, "big") + old_entry(offset, "b")[8:] for offset in range(first, last + 1)]
    wrapper = write_legacy_wrapper(inner, offset=last, magic=1, compression_type="gzip", timestamp=BASE_TIMESTAMP + last)
    after = b"".join(old_entry(offset, "a") for offset in range(max(last + 1, 10), 13))
    write_log(brokers, 2, b"".join(batch.data for batch in brokers.log.batches[:10]) + wrapper + after)
    return brokers


def failover(root: Path) -> Brokers:
    """Broker 3 has a record of epoch 0 at an offset of epoch 2, and has not followed the new leader yet."""
    right = history(("p", 0), ("b", 2), ("c", 2))
    return put_replicas(root, {1: right, 2: right, 3: history(("p", 0), ("a", 0))}, 1)


@incident("d2 KAFKA-7164", "offset 0 has epoch 0 on broker 3 and epoch 2 on the others; then all continue in epoch 2")
@near_miss("broker 3 holds a record of epoch 0 and has not followed epoch 2 yet", by=failover)
def missed_leader_change(root: Path) -> Brokers:
    right = history(("b", 2), ("c", 2))
    return as_before_topic_ids(put_replicas(root, {1: right, 2: right, 3: history(("a", 0), ("c", 2))}, 2))


def forked_before_epoch_2(root: Path) -> Brokers:
    return as_before_topic_ids(put_replicas(root, {1: history(("r0", 0)), 2: history(("r1", 1))}, 1))


@incident("d3 KAFKA-6361", "offset 0 has epoch 0 in one log and epoch 1 in the other; both continue in epoch 2")
@near_miss("the same before epoch 2", by=forked_before_epoch_2)
def joined_after_fork(root: Path) -> Brokers:
    return as_before_topic_ids(put_replicas(root, {1: history(("r0", 0), ("r2", 2)), 2: history(("r1", 1), ("r2", 2))}, 1))


def old_and_behind(root: Path) -> Brokers:
    kept = old_history("a", 10)
    return as_before_epochs(put_replicas(root, {1: kept, 2: kept, 3: old_history("a", 3)}, 10))


@incident("d4 KAFKA-1211", "format 1, no epochs: two replicas hold ten committed records, the third three others")
@near_miss("the third holds the first three of the ten", by=old_and_behind)
def cut_to_watermark(root: Path) -> Brokers:
    kept = old_history("a", 10)
    return as_before_epochs(put_replicas(root, {1: kept, 2: kept, 3: old_history("b", 3)}, 10))


def without_last_batch() -> Log:
    log = replace(HEALTHY, batches=HEALTHY.batches[:-1], next_offset=LAST.base_offset)
    log.producers = {
        producer_id: entry if entry.last_offset < LAST.base_offset else structs.replace(entry, last_sequence=-1, last_offset=-1)
        for producer_id, entry in HEALTHY.producers.items()
    }
    return log


def torn_replica(root: Path) -> Brokers:
    brokers = healthy(root)
    brokers.crash(1)
    brokers.checkpoint("replication", LOG_END, 1)
    path = brokers.file(1, LAST.segment)
    path.write_bytes(path.read_bytes()[: LAST.position + 100])
    return brokers


@incident("d5 KIP-966", "every log ends at 72, broker 1 has a high watermark of 75 and was not stopped cleanly", 1, 2, 3)
@near_miss("broker 3 still holds everything up to 75", 1, 2)
@incident(
    "d16 linkedin/kafka#409",
    "after an unclean stop the log ends with a whole batch at 72, although 75 were committed, which the others have",
    1,
)
@near_miss("the log ends in the middle of its last batch", by=torn_replica)
def cut_replicas(root: Path, *cut: int) -> Brokers:
    short = without_last_batch()
    brokers = put_replicas(root, {broker: short if broker in cut else HEALTHY for broker in (1, 2, 3)}, LAST.base_offset)
    for broker in cut:
        brokers.file(broker, LAST.base_offset, "snapshot").unlink()
    brokers.checkpoint("replication", LOG_END, 1)
    brokers.checkpoint("recovery-point", 55, 1)
    return unclean(brokers, 1)


@incident("d6 KAFKA-10751", "a leader of epoch 2 has another record where epoch 1 had one committed")
@near_miss("the logs diverge above every high watermark", by=failover)
def unclean_election(root: Path) -> Brokers:
    return put_replicas(root, {1: history(("r0", 1), ("r1", 1)), 3: history(("x", 2))}, {1: 1, 3: 0})


@incident("d15 KAFKA-10101", "log-start checkpoint 80, log end 75, the others continue up to 90", 80)
@near_miss("log-start checkpoint 74", 74)
def start_beyond_end(root: Path, log_start: int) -> Brokers:
    longer = history(*[("p", 0)] * 30, records=3)
    brokers = put_replicas(root, {1: longer, 2: history(*[("p", 0)] * 25, records=3), 3: longer}, {1: 75, 2: 70, 3: 75})
    brokers.checkpoint("log-start", log_start, 2)
    return as_before_topic_ids(unclean(brokers, 2))


@incident("d22 KAFKA-7897", "all records in format 1, and a leader-epoch-checkpoint that begins below the log end", 4)
@near_miss("the checkpoint begins at the log end, as an upgrade leaves it", 10)
def epochs_over_format_1(root: Path, start_offset: int) -> Brokers:
    brokers = put_replicas(root, old_history("a", 10), 10)
    for broker in (1, 2, 3):
        brokers.put_epochs(broker, (4, start_offset))
    return as_before_topic_ids(brokers)


@incident("d23 KAFKA-15608", "equal logs; one leader-epoch-checkpoint lacks epoch 1, its broker has two log directories", 2)
@near_miss("every checkpoint lacks it", 1, 2, 3)
def epochs_lost(root: Path, *brokers_without: int) -> Brokers:
    brokers = healthy(root)
    for broker in brokers_without:
        brokers.put_epochs(broker, *(entry for entry in HEALTHY.epochs if entry.leader_epoch != 1))
    put_meta_properties(root / "b2-second", 2)
    return brokers


# Incidents visible in one file or one kind of file.

OTHER_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
INT_MAX = 2**31 - 1
ZEROS = bytes(240)
ACTIVE = HEALTHY.segments[-1]


@incident("d7", "a closed segment's time index is zeros to its end, its batches have timestamps", HEALTHY.segments[1])
@near_miss("the same of the active segment after a crash, whose index is rebuilt", ACTIVE)
def zeroed_time_index(root: Path, segment: int) -> Brokers:
    brokers = as_before_topic_ids(healthy(root))
    brokers.crash(2)
    brokers.file(2, segment, "timeindex").write_bytes(ZEROS)
    return brokers


@incident("d19", "a closed segment's offset index goes on in zeros", HEALTHY.segments[1])
@near_miss("the same of the active segment after a crash", ACTIVE)
def untrimmed_index(root: Path, segment: int) -> Brokers:
    brokers = healthy(root)
    brokers.crash(2)
    with brokers.file(2, segment, "index").open("ab") as file:
        file.write(ZEROS)
    return brokers


@incident(
    "d10 KAFKA-9144 with retention", "the newest snapshot holds a transaction open from offset 10 on, the log starts at 29", 10
)
@near_miss("the transaction it holds open begins at offset 29", 29)
def remembered_transaction(root: Path, first_offset: int) -> Brokers:
    brokers = healthy(root)
    remembered = ProducerEntry(4000, 0, 2, 12, 2, BASE_TIMESTAMP, -1, first_offset)
    for broker in (1, 2, 3):
        brokers.remove(broker, 0)
        brokers.checkpoint("log-start", HEALTHY.segments[1], broker)
        brokers.put_epochs(broker, (0, HEALTHY.segments[1]), *HEALTHY.epochs[1:])
        entries = [*HEALTHY.producers.values(), remembered]
        brokers.file(broker, LOG_END, "snapshot").write_bytes(write_producer_snapshot(entries))
    return brokers


@incident("d13 KAFKA-6683", "the snapshot of offset 55 knows a producer's offset 56", ACTIVE + 1)
@near_miss("it has a wrong offset below the offset in its name", ACTIVE - 1)
def snapshot_of_the_future(root: Path, last_offset: int) -> Brokers:
    brokers = as_before_topic_ids(healthy(root))
    entry = ProducerEntry(COMMITTING, 0, 0, last_offset, 0, BASE_TIMESTAMP, 0, -1)
    brokers.file(2, ACTIVE, "snapshot").write_bytes(write_producer_snapshot([entry]))
    return brokers


@incident("d17 KAFKA-13664", "__consumer_offsets-0 ends in preallocated zeros, no clean shutdown", "__consumer_offsets")
@near_miss("the same bytes in an ordinary topic", "orders")
def preallocated(root: Path, topic: str) -> Brokers:
    log = Log()
    key = b"".join((b"\0\1", b"\0\5group", b"\0\6orders", bytes(4)))
    for offset in range(4):
        stamp = BASE_TIMESTAMP + offset
        log.append(write_batch([RecordToWrite(key, None)], base_offset=offset, base_timestamp=stamp), offset, stamp)
    log_dir = root / "b1"
    put_partition(log_dir / f"{topic}-0", log)
    put_meta_properties(log_dir, 1)
    write_checkpoint(log_dir, "replication", 4, f"{topic}-0")
    with (log_dir / f"{topic}-0" / segment_file(0)).open("ab") as file:
        file.write(bytes(4096))
    return Brokers(root, log)


@incident("d18 KAFKA-6292", "a segment of 2147483631 bytes", INT_MAX - 16)
@near_miss("one of 2147483630 bytes", INT_MAX - 17)
def large_segment(root: Path, size: int) -> Brokers:
    brokers = as_before_topic_ids(healthy(root))
    os.truncate(brokers.file(2, ACTIVE), size)
    return unclean(brokers, 2)


@incident("d20 KAFKA-6264", "compacted: the segment of offset 0 holds offset 2147483648", INT_MAX + 1)
@near_miss("it holds offset 2147483647", INT_MAX)
def wide_segment(root: Path, last_offset: int) -> Brokers:
    log = history(("p", 0))
    log.next_offset = last_offset
    log.plain(1)
    put_partition(root / "b1" / DIRECTORY, [batch.data for batch in log.batches])
    put_meta_properties(root / "b1", 1, version=0)
    write_checkpoint(root / "b1", "cleaner", 1)
    write_checkpoint(root / "b1", "replication", last_offset)
    return Brokers(root, log)


@incident("d21 KAFKA-8764", "compacted: a segment ends at offset 5, the next begins at 9, the cleaner's checkpoint is 6", 6)
@near_miss("the cleaner's checkpoint is 9", 9)
def cleaned(root: Path, checkpoint: int) -> Brokers:
    log = history(*[("p", 0)] * 2, records=3)
    log.next_offset = 9
    log.roll()
    log.plain()
    log.snapshots.clear()
    brokers = put_replicas(root, log, 12)
    brokers.checkpoint("cleaner", checkpoint)
    return as_before_topic_ids(brokers)


@incident("d24 KAFKA-14616", "one replica has another topic id, and there is a stray directory", OTHER_TOPIC_ID)
@near_miss("only the stray directory has another topic id", None)
def recreated(root: Path, topic_id: str | None) -> Brokers:
    brokers = healthy(root)
    stray = root / "b2" / f"{DIRECTORY}.{'0' * 32}-stray"
    shutil.copytree(root / "b2" / DIRECTORY, stray)
    put_topic_id(stray, OTHER_TOPIC_ID)
    if topic_id is not None:
        put_topic_id(brokers.directory(2), topic_id)
    for log_dir in brokers.log_dirs:
        put_clean_shutdown(log_dir, None)
    return brokers


@incident(
    "d24 KAFKA-16234",
    "one node id, two directory ids, both with the partition",
    DIRECTORY,
    "AAAAAAAAAAAAAAAAAAAAAg",
    "AAAAAAAAAAAAAAAAAAAAAw",
)
@near_miss(
    "the second is a future replica, as a move between directories makes it",
    f"{DIRECTORY}.{'0' * 32}-future",
    "AAAAAAAAAAAAAAAAAAAAAg",
    "AAAAAAAAAAAAAAAAAAAAAw",
)
def second_directory(root: Path, directory: str, *directory_ids: str) -> Brokers:
    brokers = healthy(root)
    shutil.copytree(root / "b2" / DIRECTORY, root / "b2-second" / directory)
    for name, directory_id in zip(("b2", "b2-second"), directory_ids, strict=True):
        put_meta_properties(root / name, 2, directory_id=directory_id)
    for checkpoint in ("replication", "recovery-point", "log-start"):
        write_checkpoint(root / "b2-second", checkpoint, 0)
    return brokers


@incident("d24 KAFKA-16814", "KRaft: partition.metadata is missing on one replica, no clean shutdown", 2)
@near_miss("it is missing on every replica", 1, 2, 3)
def without_metadata(root: Path, *without: int) -> Brokers:
    brokers = healthy(root)
    for broker in without:
        brokers.file_named(broker, "partition.metadata").unlink()
    return unclean(brokers, 2)


@incident("d25", "one bit of one batch is flipped on every replica", 1, 2, 3)
@near_miss("on one replica only", 2)
def bad_batch(root: Path, *bad: int) -> Brokers:
    brokers = healthy(root)
    for broker in bad:
        brokers.flip(broker, HEALTHY.at(40), 100)
    return brokers


# Incidents visible in records.

END = 6
"""The end of all logs; every cleaner has cleaned up to the active segment."""


def keyed(*records: tuple[int, str, str | None], magic: int = 2) -> Log:
    """A compacted log of one record per batch: offset, key, value (None: a tombstone)."""
    log = Log()
    log.roll()
    for offset, key, value in records:
        log.next_offset = offset
        stamp = BASE_TIMESTAMP + offset
        encoded = None if value is None else value.encode()
        if magic == 2:
            data = write_batch([RecordToWrite(key.encode(), encoded)], base_offset=offset, base_timestamp=stamp)
        else:
            data = write_legacy_entry(key.encode(), encoded, offset=offset, magic=magic, timestamp=stamp)
        log.append(data, offset, stamp)
    if magic < 2:
        log.epochs.clear()
    return log


@incident(
    "d8 Redpanda 2026-06-25",
    "compacted: one replica has a key that the others lack, together with the tombstone that removed it",
    2,
    tombstone=False,
)
@near_miss("the tombstone is still on every replica", 2, tombstone=True)
@incident(
    "d21 KAFKA-4529",
    "compacted, format 1: one replica has a key that the others lack, together with the tombstone that removed it",
    1,
    tombstone=False,
)
@near_miss("the tombstone is still on every replica", 1, tombstone=True)
def cleaned_apart(root: Path, magic: int, *, tombstone: bool) -> Brokers:
    others = [(1, "B", "1"), (2, "C", "1"), *[(3, "A", None)] * tombstone, (4, "D", "1"), (5, "E", "1")]
    without, with_value = keyed(*others, magic=magic), keyed((0, "A", "0"), *others, magic=magic)
    brokers = put_replicas(root, {1: without, 2: without, 3: with_value}, END)
    brokers.checkpoint("cleaner", END - 1)
    return brokers if magic == 2 else as_before_epochs(brokers)


@incident(
    "d14 confluentinc/librdkafka#4953",
    "a producer repeats three records, with their timestamps, with epoch 1 and from sequence 0",
    same=True,
)
@near_miss("one of the three records is another", same=False)
def retried(root: Path, *, same: bool) -> Brokers:
    log = Log()
    log.produce()
    for epoch, values in ((0, "abc"), (1, "abc" if same else "abd")):
        records = [RecordToWrite(b"key", value.encode()) for value in values]
        stamp, first = BASE_TIMESTAMP, log.next_offset
        data = write_batch(
            records, base_offset=first, base_timestamp=stamp, producer_id=5000, producer_epoch=epoch, base_sequence=0
        )
        log.append(data, first + 2, stamp)
    brokers = put_replicas(root, log, 9)
    for broker in (1, 2, 3):
        brokers.file(broker, 0, "timeindex").unlink()  # Kafka would have written other entries for equal times
    return brokers


# Incidents of transactions: partitions of `t` and the coordinators' log.

LATE = 30 * 60
"""Seconds, longer than any transaction may take."""


def cluster(root: Path, state: CoordinatorLog, *partitions: Log) -> Brokers:
    logs: dict[str, Log] = {f"t-{number}": log for number, log in enumerate(partitions)}
    put_brokers(root, {**logs, "__transaction_state-0": state})
    return Brokers(root, partitions[0])


@incident("d9 KAFKA-14402", "a delayed request opened an aborted transaction again, half an hour ago", LATE)
@near_miss("the same ten seconds ago", 16)
def late_request(root: Path, later: float) -> Brokers:
    data, state = DataLog(), CoordinatorLog()
    data.data(0)
    data.marker(5.07, commit=False, epoch=1)
    data.data(6)
    data.traffic(later)
    state.state(0, "Ongoing", (0,))
    state.state(5.05, "PrepareAbort", (0,), epoch=1, since=0)
    state.state(5.09, "CompleteAbort", epoch=1, since=0)
    state.transaction(later, (0,), commit=True, name=OTHER)
    return cluster(root, state, data)


@incident("d9 KAFKA-19999", "a commit was prepared half an hour ago, the partition has no marker", LATE)
@near_miss("it was prepared a second ago", 3)
def prepared(root: Path, later: float) -> Brokers:
    data, state = DataLog(), CoordinatorLog()
    data.data(1)
    data.traffic(later)
    state.state(1, "Ongoing", (0,))
    state.state(2, "PrepareCommit", (0,), since=1)
    state.transaction(later, (0,), commit=True, name=OTHER)
    return cluster(root, state, data)


@incident("d12 KAFKA-17754", "a committed transaction over two partitions, one of which has an ABORT marker", "COMMIT", "ABORT")
@near_miss("both have COMMIT markers", "COMMIT", "COMMIT")
def two_partitions(root: Path, *markers: str) -> Brokers:
    logs = [DataLog() for _ in markers]
    state = CoordinatorLog()
    for log, marker in zip(logs, markers, strict=True):
        log.data(0)
        log.marker(0.07, commit=marker == "COMMIT")
        log.traffic(LATE)
    state.transaction(0, (0, 1), commit=True)
    state.transaction(LATE, (0, 1), commit=True, name=OTHER)
    return cluster(root, state, *logs)


@incident("d11 KAFKA-9144", "markers of one producer with coordinator epochs 3 and 1", 3, 1)
@near_miss("with 1 and 3", 1, 3)
def coordinator_epochs(root: Path, *epochs: int) -> Brokers:
    data = DataLog()
    for number, epoch in enumerate(epochs):
        data.data(number)
        data.marker(number + 0.07, commit=True, coordinator_epoch=epoch)
    put_brokers(root, {"t-0": data})
    return as_before_topic_ids(Brokers(root, data))


TREES: Final = tuple(sorted(_TREES, key=lambda tree: int(tree.key.split()[0].removeprefix("d"))))
"""Every tree of the known incidents, in the order of docs/incidents.md."""
