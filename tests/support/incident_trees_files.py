"""Trees that show a known incident in one file or one kind of file, each with a near miss that must not be taken for it."""

import os
import shutil
from pathlib import Path

from kafka_forensics.model.files import EpochEntry, ProducerEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from kafka_forensics.writers.files import (
    write_clean_shutdown,
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
    write_producer_snapshot,
)
from tests.support.faults import (
    BASE_TIMESTAMP,
    CLUSTER_ID,
    COMMITTING,
    DIRECTORY,
    HEALTHY,
    LOG_END,
    TOPIC,
    Brokers,
    Log,
    healthy,
    histories,
    put,
    write_checkpoint,
    write_files,
)
from tests.support.incident_trees import as_before_topic_ids, incident, near_miss, unclean
from tests.support.injections import history

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
        for suffix in ("log", "index", "timeindex", "txnindex"):
            brokers.file(broker, 0, suffix).unlink()
        write_checkpoint(brokers.log_dir(broker), "log-start", HEALTHY.segments[1])
        epochs = [EpochEntry(0, HEALTHY.segments[1]), *HEALTHY.epochs[1:]]
        brokers.named(broker, "leader-epoch-checkpoint").write_bytes(write_leader_epochs(epochs))
        entries = [*HEALTHY.producers.values(), remembered]
        brokers.file(broker, LOG_END, "snapshot").write_bytes(write_producer_snapshot(entries))
    return brokers


@incident("d13 KAFKA-6683", "the snapshot of offset 55 knows a producer's offset 56", ACTIVE + 1)
@near_miss("it knows a wrong offset below its own", ACTIVE - 1)
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
    write_files(log_dir / f"{topic}-0", log)
    (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=1, cluster_id=CLUSTER_ID))
    (log_dir / "replication-offset-checkpoint").write_bytes(write_offset_checkpoint({(topic, 0): 4}))
    with (log_dir / f"{topic}-0" / f"{0:020d}.log").open("ab") as file:
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
    directory = root / "b1" / DIRECTORY
    directory.mkdir(parents=True)
    put(directory, 0, "log", b"".join(batch.data for batch in log.batches))
    (root / "b1" / "meta.properties").write_bytes(write_meta_properties(version=0, node_id=1, cluster_id=CLUSTER_ID))
    (root / "b1" / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({(TOPIC, 0): 1}))
    (root / "b1" / "replication-offset-checkpoint").write_bytes(write_offset_checkpoint({(TOPIC, 0): last_offset}))
    return Brokers(root, log)


@incident("d21 KAFKA-8764", "compacted: a segment ends at offset 5, the next begins at 9, the cleaner's checkpoint is 6", 6)
@near_miss("the cleaner's checkpoint is 9", 9)
def cleaned(root: Path, checkpoint: int) -> Brokers:
    log = history(*[("p", 0)] * 2, records=3)
    log.next_offset = 9
    log.roll()
    log.plain()
    log.snapshots.clear()
    brokers = histories(root, {1: log, 2: log, 3: log}, {1: 12, 2: 12, 3: 12})
    for broker in (1, 2, 3):
        written = write_offset_checkpoint({(TOPIC, 0): checkpoint})
        (brokers.log_dir(broker) / "cleaner-offset-checkpoint").write_bytes(written)
    return as_before_topic_ids(brokers)


@incident("d24 KAFKA-14616", "one replica has another topic id, a stray directory stands beside it", OTHER_TOPIC_ID)
@near_miss("only the stray directory has another topic id", None)
def recreated(root: Path, topic_id: str | None) -> Brokers:
    brokers = healthy(root)
    stray = root / "b2" / f"{DIRECTORY}.{'0' * 32}-stray"
    shutil.copytree(root / "b2" / DIRECTORY, stray)
    (stray / "partition.metadata").write_bytes(write_partition_metadata(OTHER_TOPIC_ID))
    if topic_id is not None:
        brokers.named(2, "partition.metadata").write_bytes(write_partition_metadata(topic_id))
    for log_dir in brokers.log_dirs:
        (log_dir / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(None))
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
        meta = write_meta_properties(node_id=2, cluster_id=CLUSTER_ID, directory_id=directory_id)
        (root / name / "meta.properties").write_bytes(meta)
    for checkpoint in ("replication", "recovery-point", "log-start"):
        write_checkpoint(root / "b2-second", checkpoint, 0)
    return brokers


@incident("d24 KAFKA-16814", "KRaft: partition.metadata is missing on one replica, no clean shutdown", 2)
@near_miss("it is missing on every replica", 1, 2, 3)
def without_metadata(root: Path, *without: int) -> Brokers:
    brokers = healthy(root)
    for broker in without:
        brokers.named(broker, "partition.metadata").unlink()
    return unclean(brokers, 2)


@incident("d25", "one bit of one batch is turned over on every replica", 1, 2, 3)
@near_miss("on one replica only", 2)
def bad_batch(root: Path, *bad: int) -> Brokers:
    brokers = healthy(root)
    for broker in bad:
        brokers.flip(broker, HEALTHY.at(40), 100)
    return brokers
