"""Trees that show a known incident, each with a near miss that must not be taken for it: logs that part, are cut, lose epochs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.writers.batches import write_legacy_entry
from kafka_forensics.writers.files import write_clean_shutdown, write_leader_epochs, write_meta_properties
from tests.support.faults import (
    BASE_TIMESTAMP,
    CLUSTER_ID,
    DIRECTORY,
    HEALTHY,
    LOG_END,
    Brokers,
    Log,
    healthy,
    histories,
    write_checkpoint,
)
from tests.support.injections import history
from tests.support.segments import write_legacy_wrapper

LAST = HEALTHY.batches[-1]


@dataclass(frozen=True, slots=True)
class Tree:
    """How to make a signature's match below a folder, and what comes close to it; both in words for docs/incidents.md."""

    key: str
    """Of the signature."""
    shows: str
    make: Callable[[Path], Brokers]
    near_miss: str
    make_near_miss: Callable[[Path], Brokers]
    also: tuple[str, ...] = ()
    """Signatures that the match has as well, and rightly so."""


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
    """What Kafka left before 2.8: no topic ids, and the other files of a log directory in their first versions."""
    for log_dir in brokers.log_dirs:
        (log_dir / DIRECTORY / "partition.metadata").unlink(missing_ok=True)
        number = int(log_dir.name.removeprefix("b"))
        (log_dir / "meta.properties").write_bytes(write_meta_properties(version=0, node_id=number, cluster_id=CLUSTER_ID))
        if (log_dir / ".kafka_cleanshutdown").exists():
            (log_dir / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(None))
    return brokers


def as_before_epochs(brokers: Brokers) -> Brokers:
    """What Kafka 0.10 left: also no epochs, no snapshots, no log-start checkpoint."""
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
    """Put other bytes into the only segment, whose indexes are left out."""
    for suffix in ("index", "timeindex"):
        brokers.file(broker, 0, suffix).unlink()
    brokers.file(broker, 0).write_bytes(data)


def step_back(root: Path, first: int, last: int) -> Brokers:
    """Format 1: on broker 2 offsets 0 to 9 are followed by a compressed message that holds `[first, last]`."""
    brokers = unclean(as_before_epochs(histories(root, {n: old_history("a", 13) for n in (1, 2, 3)}, {1: 13, 2: 13, 3: 13})), 2)
    inner = [replace_offset(old_entry(offset, "b"), offset - first) for offset in range(first, last + 1)]
    wrapper = write_legacy_wrapper(inner, offset=last, magic=1, compression_type="gzip", timestamp=BASE_TIMESTAMP + last)
    behind = b"".join(old_entry(offset, "a") for offset in range(max(last + 1, 10), 13))
    write_log(brokers, 2, b"".join(batch.data for batch in brokers.log.batches[:10]) + wrapper + behind)
    return brokers


def replace_offset(entry: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + entry[8:]


def missed_leader_change(root: Path) -> Brokers:
    """Broker 3 keeps a record of epoch 0 where the leader of epoch 2 wrote another, and goes on in epoch 2."""
    right = history(("b", 2), ("c", 2))
    return as_before_topic_ids(histories(root, {1: right, 2: right, 3: history(("a", 0), ("c", 2))}, {1: 2, 2: 2, 3: 2}))


def failover(root: Path) -> Brokers:
    """Broker 3 keeps a record of epoch 0 where the leader of epoch 2 wrote another, and has not followed it yet."""
    right = history(("p", 0), ("b", 2), ("c", 2))
    return histories(root, {1: right, 2: right, 3: history(("p", 0), ("a", 0))}, {1: 1, 2: 1, 3: 1})


def grown_together(root: Path) -> Brokers:
    """Two logs that differ at offset 0, in epochs 0 and 1, and agree in epoch 2 behind it."""
    logs = {1: history(("r0", 0), ("r2", 2)), 2: history(("r1", 1), ("r2", 2))}
    return as_before_topic_ids(histories(root, logs, {1: 1, 2: 1}))


def parted(root: Path) -> Brokers:
    return as_before_topic_ids(histories(root, {1: history(("r0", 0)), 2: history(("r1", 1))}, {1: 1, 2: 1}))


def cut_to_watermark(root: Path) -> Brokers:
    """Format 1: two replicas hold ten records, the third was cut to 0 and took three others."""
    kept = old_history("a", 10)
    return as_before_epochs(histories(root, {1: kept, 2: kept, 3: old_history("b", 3)}, {1: 10, 2: 10, 3: 3}))


def old_and_behind(root: Path) -> Brokers:
    kept = old_history("a", 10)
    return as_before_epochs(histories(root, {1: kept, 2: kept, 3: old_history("a", 3)}, {1: 10, 2: 10, 3: 3}))


def without_last_batch() -> Log:
    batches = HEALTHY.batches[:-1]
    log = replace(HEALTHY, batches=batches, next_offset=LAST.base_offset)
    log.producers = {
        one: entry if entry.last_offset < LAST.base_offset else replace(entry, last_sequence=-1, last_offset=-1)
        for one, entry in HEALTHY.producers.items()
    }
    return log


def cut_replicas(root: Path, *cut: int) -> Brokers:
    """All three say that everything was committed; the logs of these brokers lack the last batch. Broker 1 stopped uncleanly."""
    short = without_last_batch()
    logs = {broker: short if broker in cut else HEALTHY for broker in (1, 2, 3)}
    brokers = histories(root, logs, dict.fromkeys(logs, LAST.base_offset))
    for broker in cut:
        brokers.file(broker, LAST.base_offset, "snapshot").unlink()
    write_checkpoint(brokers.log_dir(1), "replication", LOG_END)
    write_checkpoint(brokers.log_dir(1), "recovery-point", 55)
    return unclean(brokers, 1)


def torn_replica(root: Path) -> Brokers:
    brokers = healthy(root)
    brokers.crash(1)
    write_checkpoint(brokers.log_dir(1), "replication", LOG_END)
    path = brokers.file(1, LAST.segment)
    path.write_bytes(path.read_bytes()[: LAST.position + 100])
    return brokers


def unclean_election(root: Path) -> Brokers:
    """Broker 1 holds two records of epoch 1, one of them committed; broker 3 leads epoch 2 with another in their place."""
    return histories(root, {1: history(("r0", 1), ("r1", 1)), 3: history(("x", 2))}, {1: 1, 3: 0})


def start_beyond_end(root: Path, log_start: int) -> Brokers:
    """Broker 2 stopped uncleanly; its log-start checkpoint says `log_start`, the other logs go on up to 90."""
    longer = history(*[("p", 0)] * 30, records=3)
    shorter = history(*[("p", 0)] * 25, records=3)
    brokers = histories(root, {1: longer, 2: shorter, 3: longer}, {1: 75, 2: 70, 3: 75})
    write_checkpoint(brokers.log_dir(2), "log-start", log_start)
    return as_before_topic_ids(unclean(brokers, 2))


def epochs_over_format_1(root: Path, start_offset: int) -> Brokers:
    """Format 1 on brokers of 2.0, whose checkpoints give an epoch from `start_offset` on."""
    log = old_history("a", 10)
    brokers = histories(root, {1: log, 2: log, 3: log}, {1: 10, 2: 10, 3: 10})
    for broker in (1, 2, 3):
        brokers.named(broker, "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(4, start_offset)]))
    return as_before_topic_ids(brokers)


def epochs_lost(root: Path, *brokers_without: int) -> Brokers:
    """Checkpoints of these brokers lack epoch 1; broker 2 has a second, empty log directory."""
    brokers = healthy(root)
    for broker in brokers_without:
        kept = [entry for entry in HEALTHY.epochs if entry.leader_epoch != 1]
        brokers.named(broker, "leader-epoch-checkpoint").write_bytes(write_leader_epochs(kept))
    second = root / "b2-second"
    second.mkdir()
    (second / "meta.properties").write_bytes(write_meta_properties(node_id=2, cluster_id=CLUSTER_ID))
    return brokers


def twice_appended(root: Path) -> Brokers:
    return step_back(root, 3, 8)


HISTORY_TREES = (
    Tree(
        "d1 KAFKA-3919",
        "format 1, one log: offsets 0 to 9, then a compressed message that holds 7 to 11; no clean shutdown",
        lambda root: step_back(root, 7, 11),
        "the compressed message holds 3 to 8: appended twice",
        twice_appended,
        ("d4 KAFKA-1211",),
    ),
    Tree(
        "d2 KAFKA-7164",
        "offset 0 is of epoch 0 on broker 3 and of epoch 2 on the others; then all go on in epoch 2",
        missed_leader_change,
        "broker 3 holds a record of epoch 0 and has not followed epoch 2 yet",
        failover,
    ),
    Tree(
        "d3 KAFKA-6361",
        "offset 0 is of epoch 0 on one log and of epoch 1 on the other; both go on in epoch 2",
        grown_together,
        "the same before epoch 2",
        parted,
    ),
    Tree(
        "d4 KAFKA-1211",
        "format 1, no epochs: two replicas hold ten committed records, the third three others",
        cut_to_watermark,
        "the third holds the first three of the ten",
        old_and_behind,
    ),
    Tree(
        "d5 KIP-966",
        "every log ends at 72, broker 1 knows of 75 committed and was not stopped cleanly",
        lambda root: cut_replicas(root, 1, 2, 3),
        "broker 3 still holds everything up to 75",
        lambda root: cut_replicas(root, 1, 2),
    ),
    Tree(
        "d6 KAFKA-10751",
        "a leader of epoch 2 has another record where epoch 1 had one committed",
        unclean_election,
        "the logs part above every high watermark",
        failover,
    ),
    Tree(
        "d15 KAFKA-10101",
        "log-start checkpoint 80, log end 75, the others go on up to 90",
        lambda root: start_beyond_end(root, 80),
        "log-start checkpoint 74",
        lambda root: start_beyond_end(root, 74),
    ),
    Tree(
        "d16 linkedin/kafka#409",
        "after an unclean stop the log ends with a whole batch at 72, though 75 were committed, which the others hold",
        lambda root: cut_replicas(root, 1),
        "the log ends in the middle of its last batch",
        torn_replica,
    ),
    Tree(
        "d22 KAFKA-7897",
        "all records in format 1, and a leader-epoch-checkpoint that begins below the log end",
        lambda root: epochs_over_format_1(root, 4),
        "the checkpoint begins at the log end, as an upgrade leaves it",
        lambda root: epochs_over_format_1(root, 10),
    ),
    Tree(
        "d23 KAFKA-15608",
        "equal logs; one leader-epoch-checkpoint lacks epoch 1, its broker has two log directories",
        lambda root: epochs_lost(root, 2),
        "every checkpoint lacks it",
        lambda root: epochs_lost(root, 1, 2, 3),
    ),
)
