"""Builds log directories: single files, partitions, brokers and clusters; and damages them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.writers import files
from tests.support.logs import CLEANED, HEALTHY, HIGH_WATERMARK, History, Log, WrittenBatch
from tests.support.segments import segment_file, write_offset_index, write_time_index

TOPIC: Final = "t"
DIRECTORY: Final = "t-0"
TOPIC_ID: Final = "q1w2e3r4t5y6u7i8o9p0aQ"
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
OFFSETS_ID_BYTES, OFFSETS_ID_TEXT = bytes(range(16, 32)), "EBESExQVFhcYGRobHB0eHw"
"""Topic id of `__consumer_offsets`."""
BROKERS: Final = (1, 2, 3)
LOG_FILES: Final = ("log", "index", "timeindex", "txnindex")
Logs = Mapping[str, Log | Mapping[int, Log]]
"""Directory name of a partition → one log for all brokers, or broker → log."""
Batches = bytes | Sequence[bytes]
Offsets = Mapping[str, int]
"""Directory name of a partition → offset."""


def put_segment(directory: Path, base_offset: int, batches: Batches, suffix: str = "log") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / segment_file(base_offset, suffix)
    path.write_bytes(batches if isinstance(batches, bytes) else b"".join(batches))
    return path


def put_epochs(directory: Path, *entries: tuple[int, int] | EpochEntry) -> None:
    """Write a partition's `leader-epoch-checkpoint` from (epoch, start offset) pairs."""
    written = [entry if isinstance(entry, EpochEntry) else EpochEntry(*entry) for entry in entries]
    (directory / "leader-epoch-checkpoint").write_bytes(files.write_leader_epochs(written))


def put_topic_id(directory: Path, topic_id: str = TOPIC_ID) -> None:
    (directory / "partition.metadata").write_bytes(files.write_partition_metadata(topic_id))


def put_meta_properties(log_dir: Path, node_id: int, **fields: Any) -> None:
    """Write a log directory's `meta.properties`; the cluster id is the same in all tests unless `cluster_id` is passed."""
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").write_bytes(files.write_meta_properties(node_id=node_id, **{"cluster_id": CLUSTER_ID} | fields))


def put_clean_shutdown(log_dir: Path, broker_epoch: int | None = 7) -> None:
    (log_dir / ".kafka_cleanshutdown").write_bytes(files.write_clean_shutdown(broker_epoch))


def write_checkpoint(log_dir: Path, which: str, offset: int, partition: str = DIRECTORY) -> None:
    """Set a partition's offset in `<which>-offset-checkpoint`; entries of other partitions stay."""
    path = log_dir / f"{which}-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    others = {f"{topic}-{number}": int(end) for topic, number, end in (line.rsplit(" ", 2) for line in lines)}
    put_checkpoint(log_dir, which, others | {partition: offset})


def put_checkpoint(log_dir: Path, which: str, offsets: Offsets) -> None:
    """Write `<which>-offset-checkpoint` with exactly these partitions."""
    ends = {(name.rpartition("-")[0], int(name.rpartition("-")[2])): offset for name, offset in offsets.items()}
    (log_dir / f"{which}-offset-checkpoint").write_bytes(files.write_offset_checkpoint(ends))


def put_partition(
    directory: Path,
    log: Log | Batches | Mapping[int, Batches],
    *,
    topic_id: str | None = None,
    epochs: Iterable[tuple[int, int]] | None = None,
    empty_indexes: bool = False,
) -> Path:
    """Write a partition's directory: all files that follow from a `Log`, or only the bytes of its segments (by base offset)."""
    directory.mkdir(parents=True, exist_ok=True)
    if isinstance(log, Log):
        _put_log(directory, log)
        put_topic_id(directory, topic_id or TOPIC_ID)
        return directory
    for base_offset, batches in (log if isinstance(log, Mapping) else {0: log}).items():
        put_segment(directory, base_offset, batches)
        for suffix in ("index", "timeindex") if empty_indexes else ():
            put_segment(directory, base_offset, b"", suffix)
    if topic_id is not None:
        put_topic_id(directory, topic_id)
    if epochs is not None:
        put_epochs(directory, *epochs)
    return directory


def _put_log(directory: Path, log: Log) -> None:
    for segment in log.segments or [0]:
        batches = log.batches_of_segment(segment)
        put_segment(directory, segment, [batch.data for batch in batches])
        positions = [(batch.last_offset, batch.position) for batch in batches[1:]]
        put_segment(directory, segment, write_offset_index(positions, segment), "index")
        put_segment(directory, segment, write_time_index(log.time_index_entries(segment), segment), "timeindex")
        if segment in log.aborted:
            put_segment(directory, segment, files.write_transaction_index(log.aborted[segment]), "txnindex")
    for offset, entries in [*log.snapshots.items(), (log.next_offset, list(log.producers.values()))]:
        put_segment(directory, offset, files.write_producer_snapshot(entries), "snapshot")
    put_epochs(directory, *log.epochs)


def put_log_dir(
    log_dir: Path, node_id: int, logs: Mapping[str, Log], *, clean: bool = True, committed: Offsets | None = None, **meta: Any
) -> None:
    """Write a broker's log directory as a shutdown leaves it; `committed` has high watermarks below the log end."""
    put_meta_properties(log_dir, node_id, **meta)
    for name, log in logs.items():
        put_partition(log_dir / name, log)
    if clean:
        put_clean_shutdown(log_dir)
    ends = {name: log.next_offset for name, log in logs.items()}
    put_checkpoint(log_dir, "replication", ends | dict(committed or {}))
    put_checkpoint(log_dir, "recovery-point", ends)
    put_checkpoint(log_dir, "log-start", {})
    put_checkpoint(log_dir, "cleaner", {})


def put_replica(
    folder: Path,
    broker: int | str,
    log: Batches | Mapping[int, Batches],
    *,
    partition: str = "orders-0",
    high_watermark: int = 0,
    log_start: int | None = None,
    cleaned: int | None = None,
    clean: bool = False,
    **given: Any,
) -> Path:
    """Write `folder/broker-N`, a log directory with one partition and, if `broker` is a number, `meta.properties`.

    `cleaned` is the cleaner's checkpointed offset; `clean` writes the mark of a clean shutdown. An offset of None writes no
    checkpoint.
    """
    log_dir = folder / f"broker-{broker}"
    put_partition(log_dir / partition, log, **given)
    if isinstance(broker, int):
        put_meta_properties(log_dir, broker)
    if clean:
        put_clean_shutdown(log_dir)
    for which, offset in (("replication", high_watermark), ("log-start", log_start), ("cleaner", cleaned)):
        if offset is not None:
            write_checkpoint(log_dir, which, offset, partition)
    return log_dir


def put_copies(folder: Path, brokers: Iterable[int], log: Batches | Mapping[int, Batches], **given: Any) -> None:
    for broker in brokers:
        put_replica(folder, broker, log, **given)


def put_consumer_offsets(log_dir: Path, log: bytes, partition: int = 0) -> Path:
    """Write `__consumer_offsets-N` in a log directory, with a topic id if other partitions have one; return its `.log` file."""
    identity: dict[str, Any] = {}
    if any(log_dir.glob("*/partition.metadata")):
        identity = {"topic_id": OFFSETS_ID_TEXT, "epochs": [(0, 0)]}
    return put_partition(log_dir / f"__consumer_offsets-{partition}", log, empty_indexes=True, **identity) / segment_file(0)


def put_share_state(log_dir: Path, log: bytes, partition: int = 0) -> Path:
    return put_partition(log_dir / f"__share_group_state-{partition}", log, empty_indexes=True) / segment_file(0)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The log directories of brokers 1, 2 and 3, with methods that inject damage."""

    root: Path
    log: Log

    def log_dir(self, broker: int) -> Path:
        return self.root / f"b{broker}"

    @property
    def log_dirs(self) -> list[Path]:
        return sorted(self.root.iterdir())

    def directory(self, broker: int) -> Path:
        return self.log_dir(broker) / DIRECTORY

    def file(self, broker: int, segment: int, suffix: str = "log") -> Path:
        return self.directory(broker) / segment_file(segment, suffix)

    def file_named(self, broker: int, name: str) -> Path:
        return self.directory(broker) / name

    def overwrite(self, broker: int, batch: WrittenBatch, data: bytes, start: int = 0) -> None:
        path = self.file(broker, batch.segment)
        log = bytearray(path.read_bytes())
        assert bytes(log[batch.position : batch.end]) == batch.data
        assert start + len(data) <= len(batch.data)
        log[batch.position + start : batch.position + start + len(data)] = data
        path.write_bytes(log)

    def flip(self, broker: int, batch: WrittenBatch, byte: int, bit: int = 0) -> None:
        self.overwrite(broker, batch, bytes([batch.data[byte] ^ 1 << bit]), byte)

    def remove(self, broker: int, base_offset: int, *suffixes: str) -> None:
        """Delete a segment's files: those with these suffixes, or all but its producer snapshot."""
        for suffix in suffixes or LOG_FILES:
            for path in self.directory(broker).glob(segment_file(base_offset, suffix)):
                path.unlink()

    def checkpoint(self, which: str, offset: int, *on: int) -> None:
        """Set the offset of `t-0` in a checkpoint of these brokers (default: all)."""
        for broker in on or BROKERS:
            write_checkpoint(self.log_dir(broker), which, offset)

    def put_epochs(self, broker: int, *entries: tuple[int, int] | EpochEntry) -> None:
        put_epochs(self.directory(broker), *entries)

    def crash(self, broker: int) -> None:
        """Undo what only a clean shutdown writes: its mark, the last snapshot, a recovery point at the log end."""
        (self.log_dir(broker) / ".kafka_cleanshutdown").unlink()
        self.file(broker, self.log.next_offset, "snapshot").unlink()
        self.checkpoint("recovery-point", self.log.segments[-1], broker)


def put_brokers(
    root: Path,
    logs: Logs,
    *,
    brokers: Iterable[int] = BROKERS,
    high_watermarks: Mapping[int, int] | None = None,
    clean: bool = True,
) -> Brokers:
    """Write the log directories `b1`, `b2`, … of a cluster; without `high_watermarks` (of `t-0`, by broker) all is committed."""
    for broker in brokers:
        broker_logs = {
            name: log if isinstance(log, Log) else log[broker]
            for name, log in logs.items()
            if isinstance(log, Log) or broker in log
        }
        committed = {DIRECTORY: high_watermarks[broker]} if high_watermarks is not None else None
        put_log_dir(root / f"b{broker}", broker, broker_logs, clean=clean, committed=committed)
    first = next(iter(logs.values()))
    return Brokers(root, first if isinstance(first, Log) else next(iter(first.values())))


def put_replicas(root: Path, logs: Log | Mapping[int, Log], high_watermarks: Mapping[int, int] | int | None = None) -> Brokers:
    """Write replicas of `t-0` with these logs, or three with the same log.

    A high watermark that is a number holds for every replica, limited to its log end.
    """
    by_broker = dict.fromkeys(BROKERS, logs) if isinstance(logs, Log) else logs
    if high_watermarks is None or isinstance(high_watermarks, int):
        ends = {broker: log.next_offset for broker, log in by_broker.items()}
        high_watermarks = {broker: end if high_watermarks is None else min(high_watermarks, end) for broker, end in ends.items()}
    return put_brokers(root, {DIRECTORY: by_broker}, brokers=by_broker, high_watermarks=high_watermarks)


def healthy(root: Path, high_watermark: int = HIGH_WATERMARK) -> Brokers:
    """Write three equal replicas, stopped cleanly, all but the last batch committed; `Brokers.crash` undoes the clean shutdown."""
    return put_replicas(root, HEALTHY, high_watermark)


def put_compacted(root: Path, logs: Mapping[int, Log], cleaned: Mapping[int, int], high_watermark: int | None = None) -> Brokers:
    """Write brokers whose cleaners reached these offsets; a broker that `cleaned` does not name has not cleaned yet."""
    end = min(log.next_offset for log in logs.values()) if high_watermark is None else high_watermark
    brokers = put_replicas(root, logs, end)
    for broker, offset in cleaned.items():
        write_checkpoint(brokers.log_dir(broker), "cleaner", offset)
    return brokers


def put_differently_cleaned(
    root: Path, story: History, dropped: Mapping[int, set[int]], cleaned: Mapping[int, int] | None = None
) -> Brokers:
    """Write three brokers whose cleaners dropped different offsets of one history."""
    logs = {broker: story.left(dropped.get(broker, ()), roll=CLEANED) for broker in BROKERS}
    return put_compacted(root, logs, dict.fromkeys(dropped, CLEANED) if cleaned is None else cleaned)
