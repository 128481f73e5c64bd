"""Trees that show a known incident, each with a near miss that must not be taken for it: logs that part, are cut, lose epochs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

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


Make = Callable[..., Brokers]


@dataclass(frozen=True, slots=True)
class Tree:
    """How to make a signature's match below a folder, and what comes close to it; both in words for docs/incidents.md."""

    key: str
    """Of the signature."""
    shows: str
    make: Make
    near_miss: str
    make_near_miss: Make
    also: tuple[str, ...] = ()
    """Signatures that the match has as well, and rightly so."""


TREES: Final[list[Tree]] = []
_NEAR_MISSES: Final[dict[Make, tuple[str, Make]]] = {}


def incident(key: str, shows: str, *values: Any, also: tuple[str, ...] = (), **named: Any) -> Callable[[Make], Make]:
    """Declare a tree that is made with these values; its near miss is declared below it."""

    def declare(make: Make) -> Make:
        words, make_near_miss = _NEAR_MISSES.pop(make)
        TREES.append(Tree(key, shows, lambda root: make(root, *values, **named), words, make_near_miss, also))
        return make

    return declare


def near_miss(words: str, *values: Any, by: Make | None = None, **named: Any) -> Callable[[Make], Make]:
    """Declare what comes close to the tree declared above: made with other values, or `by` another function."""

    def declare(make: Make) -> Make:
        _NEAR_MISSES[make] = words, by or (lambda root: make(root, *values, **named))
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


@incident(
    "d1 KAFKA-3919",
    "format 1, one log: offsets 0 to 9, then a compressed message that holds 7 to 11; no clean shutdown",
    7,
    11,
    also=("d4 KAFKA-1211",),
)
@near_miss("the compressed message holds 3 to 8: appended twice", 3, 8)
def step_back(root: Path, first: int, last: int) -> Brokers:
    brokers = unclean(as_before_epochs(histories(root, {n: old_history("a", 13) for n in (1, 2, 3)}, {1: 13, 2: 13, 3: 13})), 2)
    inner = [replace_offset(old_entry(offset, "b"), offset - first) for offset in range(first, last + 1)]
    wrapper = write_legacy_wrapper(inner, offset=last, magic=1, compression_type="gzip", timestamp=BASE_TIMESTAMP + last)
    behind = b"".join(old_entry(offset, "a") for offset in range(max(last + 1, 10), 13))
    write_log(brokers, 2, b"".join(batch.data for batch in brokers.log.batches[:10]) + wrapper + behind)
    return brokers


def replace_offset(entry: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + entry[8:]


def failover(root: Path) -> Brokers:
    """Broker 3 keeps a record of epoch 0 where the leader of epoch 2 wrote another, and has not followed it yet."""
    right = history(("p", 0), ("b", 2), ("c", 2))
    return histories(root, {1: right, 2: right, 3: history(("p", 0), ("a", 0))}, {1: 1, 2: 1, 3: 1})


@incident("d2 KAFKA-7164", "offset 0 is of epoch 0 on broker 3 and of epoch 2 on the others; then all go on in epoch 2")
@near_miss("broker 3 holds a record of epoch 0 and has not followed epoch 2 yet", by=failover)
def missed_leader_change(root: Path) -> Brokers:
    right = history(("b", 2), ("c", 2))
    return as_before_topic_ids(histories(root, {1: right, 2: right, 3: history(("a", 0), ("c", 2))}, {1: 2, 2: 2, 3: 2}))


def parted(root: Path) -> Brokers:
    return as_before_topic_ids(histories(root, {1: history(("r0", 0)), 2: history(("r1", 1))}, {1: 1, 2: 1}))


@incident("d3 KAFKA-6361", "offset 0 is of epoch 0 on one log and of epoch 1 on the other; both go on in epoch 2")
@near_miss("the same before epoch 2", by=parted)
def grown_together(root: Path) -> Brokers:
    logs = {1: history(("r0", 0), ("r2", 2)), 2: history(("r1", 1), ("r2", 2))}
    return as_before_topic_ids(histories(root, logs, {1: 1, 2: 1}))


def old_and_behind(root: Path) -> Brokers:
    kept = old_history("a", 10)
    return as_before_epochs(histories(root, {1: kept, 2: kept, 3: old_history("a", 3)}, {1: 10, 2: 10, 3: 3}))


@incident("d4 KAFKA-1211", "format 1, no epochs: two replicas hold ten committed records, the third three others")
@near_miss("the third holds the first three of the ten", by=old_and_behind)
def cut_to_watermark(root: Path) -> Brokers:
    kept = old_history("a", 10)
    return as_before_epochs(histories(root, {1: kept, 2: kept, 3: old_history("b", 3)}, {1: 10, 2: 10, 3: 3}))


def without_last_batch() -> Log:
    batches = HEALTHY.batches[:-1]
    log = replace(HEALTHY, batches=batches, next_offset=LAST.base_offset)
    log.producers = {
        one: entry if entry.last_offset < LAST.base_offset else replace(entry, last_sequence=-1, last_offset=-1)
        for one, entry in HEALTHY.producers.items()
    }
    return log


def torn_replica(root: Path) -> Brokers:
    brokers = healthy(root)
    brokers.crash(1)
    write_checkpoint(brokers.log_dir(1), "replication", LOG_END)
    path = brokers.file(1, LAST.segment)
    path.write_bytes(path.read_bytes()[: LAST.position + 100])
    return brokers


@incident("d5 KIP-966", "every log ends at 72, broker 1 knows of 75 committed and was not stopped cleanly", 1, 2, 3)
@near_miss("broker 3 still holds everything up to 75", 1, 2)
@incident(
    "d16 linkedin/kafka#409",
    "after an unclean stop the log ends with a whole batch at 72, though 75 were committed, which the others hold",
    1,
)
@near_miss("the log ends in the middle of its last batch", by=torn_replica)
def cut_replicas(root: Path, *cut: int) -> Brokers:
    short = without_last_batch()
    logs = {broker: short if broker in cut else HEALTHY for broker in (1, 2, 3)}
    brokers = histories(root, logs, dict.fromkeys(logs, LAST.base_offset))
    for broker in cut:
        brokers.file(broker, LAST.base_offset, "snapshot").unlink()
    write_checkpoint(brokers.log_dir(1), "replication", LOG_END)
    write_checkpoint(brokers.log_dir(1), "recovery-point", 55)
    return unclean(brokers, 1)


@incident("d6 KAFKA-10751", "a leader of epoch 2 has another record where epoch 1 had one committed")
@near_miss("the logs part above every high watermark", by=failover)
def unclean_election(root: Path) -> Brokers:
    return histories(root, {1: history(("r0", 1), ("r1", 1)), 3: history(("x", 2))}, {1: 1, 3: 0})


@incident("d15 KAFKA-10101", "log-start checkpoint 80, log end 75, the others go on up to 90", 80)
@near_miss("log-start checkpoint 74", 74)
def start_beyond_end(root: Path, log_start: int) -> Brokers:
    longer = history(*[("p", 0)] * 30, records=3)
    shorter = history(*[("p", 0)] * 25, records=3)
    brokers = histories(root, {1: longer, 2: shorter, 3: longer}, {1: 75, 2: 70, 3: 75})
    write_checkpoint(brokers.log_dir(2), "log-start", log_start)
    return as_before_topic_ids(unclean(brokers, 2))


@incident("d22 KAFKA-7897", "all records in format 1, and a leader-epoch-checkpoint that begins below the log end", 4)
@near_miss("the checkpoint begins at the log end, as an upgrade leaves it", 10)
def epochs_over_format_1(root: Path, start_offset: int) -> Brokers:
    log = old_history("a", 10)
    brokers = histories(root, {1: log, 2: log, 3: log}, {1: 10, 2: 10, 3: 10})
    for broker in (1, 2, 3):
        brokers.named(broker, "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(4, start_offset)]))
    return as_before_topic_ids(brokers)


@incident("d23 KAFKA-15608", "equal logs; one leader-epoch-checkpoint lacks epoch 1, its broker has two log directories", 2)
@near_miss("every checkpoint lacks it", 1, 2, 3)
def epochs_lost(root: Path, *brokers_without: int) -> Brokers:
    brokers = healthy(root)
    for broker in brokers_without:
        kept = [entry for entry in HEALTHY.epochs if entry.leader_epoch != 1]
        brokers.named(broker, "leader-epoch-checkpoint").write_bytes(write_leader_epochs(kept))
    second = root / "b2-second"
    second.mkdir()
    (second / "meta.properties").write_bytes(write_meta_properties(node_id=2, cluster_id=CLUSTER_ID))
    return brokers
