"""Records what a start of a real broker does with each damaged small file: `python -m lab.start_table --keep FILE`.

One node in combined mode writes the log directories, then starts on a copy for every file and kind of damage; this takes an hour.
The table is `lab/starts.tsv`, the page `docs/starts.md`.
"""

import argparse
import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafka_forensics.replication.small_files import StartOutcome
from lab.combined import CombinedCluster
from lab.errors import LabError
from lab.kafka_jars import kafka_jars
from lab.salvaged_start import METADATA
from lab.start_page import PAGE, TABLE, Row, page
from lab.workload import FLUSH_TIMEOUT_SECONDS, SMALL_SEGMENTS, Message, Writer

BROKER: Final = 1
TOPIC: Final = "t"
COMPACTED: Final = "c"
PARTITIONS: Final = 2
LOG_START: Final = 5
SETTLE_SECONDS: Final = 2.0
CLEANER_SECONDS: Final = 5.0
READ_SECONDS: Final = 15
CLEANER_ENDS: Final = "kafka-log-cleaner-thread-0]: Error due to"
SETTINGS: Final = {
    **{f"{topic}.replication.factor": "1" for topic in ("offsets.topic", "transaction.state.log")},
    "default.replication.factor": "1",
    "log.initial.task.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "transaction.max.timeout.ms": "86400000",
}
OFFSET_CHECKPOINTS: Final = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
EPOCHS: Final = "leader-epoch-checkpoint"
TOPIC_ID: Final = "partition.metadata"
QUORUM: Final = "quorum-state"
DERIVED: Final = ("index", "timeindex", "txnindex", "snapshot")
FILES: Final = (
    *OFFSET_CHECKPOINTS,
    "meta.properties",
    ".kafka_cleanshutdown",
    "bootstrap.checkpoint",
    *(f"{METADATA}/{name}" for name in (QUORUM, EPOCHS, TOPIC_ID)),
    EPOCHS,
    TOPIC_ID,
    *DERIVED,
)
"""Names of the files in the table."""

Damage = Callable[[bytes], bytes | None]


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    return lambda data: b"".join(change(data.splitlines(keepends=True)))


def _count_too_large(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"%d\n" % (int(lines[1]) + 1), *lines[2:]]


def _last_field(value: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [*lines[:-1], b" ".join([*lines[-1].split()[:-1], value]) + b"\n"]


def _version_line(data: bytes) -> bytes:
    """Only the version, in the format of the file."""
    text = data.decode("latin-1")
    if text.startswith("{"):
        return b'{"data_version":1}' if "data_version" in text else b'{"version":0}'
    return next(line for line in data.splitlines(keepends=True) if b"version" in line or line == b"0\n")


ANY_FILE: Final[Mapping[str, Damage]] = {
    "right": lambda data: data,
    "absent": lambda _: None,
    "empty": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "cut": lambda data: data[: len(data) // 2],
    "text": lambda _: b"this is no file of Kafka\n",
    "binary": lambda data: random.Random(1).randbytes(max(len(data), 48)),
}
OF_TEXT: Final[Mapping[str, Damage]] = {"version_only": _version_line}
OF_ENTRIES: Final[Mapping[str, Damage]] = {
    "blank_line": lambda _: b"\n0\n",
    "version": lambda data: b"7" + data[1:],
    "count": _lines(_count_too_large),
    "fields": _lines(lambda lines: [*lines[:-1], lines[-1].rsplit(b" ", 1)[0] + b"\n"]),
    "offset": _lines(_last_field(b"many")),
    "negative": _lines(_last_field(b"-7")),
    "unterminated": lambda data: data[:-1],
}
OF_OFFSETS: Final[Mapping[str, Damage]] = {
    "topic": _lines(lambda lines: [*lines[:-1], b"a/topic 0 5\n"]),
    "partition": _lines(lambda lines: [*lines[:-1], lines[-1].replace(b" 1 ", b" one ").replace(b" 0 ", b" one ")]),
}


def _without(key: bytes) -> Damage:
    return _lines(lambda lines: [line for line in lines if not line.startswith(key)])


def _with(key: bytes, value: bytes) -> Damage:
    return _lines(lambda lines: [key + value + b"\n" if line.startswith(key) else line for line in lines])


OF_IDENTITY: Final[Mapping[str, Mapping[str, Damage]]] = {
    "meta.properties": {
        "version": _with(b"version=", b"7"),
        "no_version": _without(b"version="),
        "no_node.id": _without(b"node.id="),
        "node_id": _with(b"node.id=", b"one"),
        "no_cluster.id": _without(b"cluster.id="),
        "no_directory.id": _without(b"directory.id="),
        "directory_id": _with(b"directory.id=", b"one"),
        "escape": lambda data: data + b"note=\\u12\n",
    },
    "partition.metadata": {
        "version": _with(b"version: ", b"7"),
        "no_version": _without(b"version: "),
        "zero_id": _with(b"topic_id: ", b"A" * 22),
        "topic_id": _with(b"topic_id: ", b"one"),
        "no_blank": lambda data: data.replace(b": ", b":"),
    },
    "quorum-state": {
        "version": lambda data: data.replace(b'"data_version":0', b'"data_version":7').replace(
            b'"data_version":1', b'"data_version":7'
        ),
        "no_version": lambda data: data.replace(b'"data_version":0', b'"note":0').replace(b'"data_version":1', b'"note":1'),
    },
    ".kafka_cleanshutdown": {
        "version": lambda data: data.replace(b'"version":0', b'"version":7'),
        "broker_epoch": lambda _: b'{"version":0,"brokerEpoch":"one"}',
    },
}


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a client read of a partition: log start and end, and the number of records at each isolation level."""

    log_start_offset: int
    log_end_offset: int
    uncommitted: int
    committed: int


@dataclass(frozen=True, slots=True)
class StartResult:
    """The result of one start."""

    version: str
    state: str
    """How the broker ended before this start: `stopped` (cleanly) or `killed`."""
    log_dirs: int
    file: str
    damage: str
    exit_code: int | None
    """None: the broker still runs."""
    offline: bool
    """Whether the broker took the log directory offline."""
    served: ReadResult | None
    """What clients read of the file's partition; None: it is not served."""
    file_after: str
    """absent | same (as damaged) | right (as before the damage) | other"""
    said: str
    """The first error that the broker logged, or else the first warning."""


def damages(file: str) -> Mapping[str, Damage]:
    """The kinds of damage for a file."""
    name = file.rpartition("/")[2]
    if name in (*OFFSET_CHECKPOINTS, EPOCHS):
        return {**ANY_FILE, **OF_TEXT, **OF_ENTRIES, **(OF_OFFSETS if name in OFFSET_CHECKPOINTS else {})}
    return {**ANY_FILE, **({} if name in (*DERIVED, "bootstrap.checkpoint") else OF_TEXT), **OF_IDENTITY.get(name, {})}


@contextmanager
def written(directory: Path, version: str, log_dirs: int) -> Iterator[CombinedCluster]:
    """A stopped node that has written its logs; copies of them are in `directory`, `stopped` and `killed`."""
    cluster = CombinedCluster(directory / "nodes", 1, version_jars=kafka_jars(version), log_dirs=log_dirs, broker_settings=SETTINGS)
    with cluster:
        _write(cluster)
        sleep(SETTLE_SECONDS)
        cluster.copy(directory / "killed")
        cluster.stop()
        cluster.copy(directory / "stopped")
        yield cluster


def _write(cluster: CombinedCluster) -> None:
    """Write transactions (one aborted in each segment, one left open), delete records, and write a compacted topic."""
    assignment = [[BROKER]] * PARTITIONS
    cluster.create_topic(TOPIC, assignment=assignment, settings=SMALL_SEGMENTS)
    compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL_SEGMENTS}
    cluster.create_topic(COMPACTED, assignment=assignment, settings=compact)
    writer = Writer(cluster, transactional_id="t", transaction_timeout_ms=80_000_000)
    writer.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
    for number in range(36):
        writer.producer.begin_transaction()
        for partition in range(PARTITIONS):
            writer.batch(TOPIC, [Message(b"%d" % number * 500, b"%d" % number)], partition)
        if number == 35:
            break
        ending = writer.producer.abort_transaction if number % 5 == 0 else writer.producer.commit_transaction
        ending(FLUSH_TIMEOUT_SECONDS)
    plain = Writer(cluster)
    for number in range(30):
        for partition in range(PARTITIONS):
            plain.batch(COMPACTED, [Message(b"%d" % number * 500, b"%d" % (number % 3))], partition)
    starts = [TopicPartition(TOPIC, partition, LOG_START) for partition in range(PARTITIONS)]
    admin = cluster.admin()
    for deleted in admin.delete_records(starts).values():
        deleted.result(FLUSH_TIMEOUT_SECONDS)


def places(cluster: CombinedCluster) -> dict[str, Path]:
    """Name in the table → path; files of a log directory are taken from the last one, or from the only one that has the file."""
    log_dir, first = cluster.log_dirs(BROKER)[-1], cluster.log_dir(BROKER)
    found = {name: log_dir / name for name in (*OFFSET_CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown")}
    found |= {"bootstrap.checkpoint": first / "bootstrap.checkpoint"}
    found |= {f"{METADATA}/{name}": first / METADATA / name for name in (QUORUM, EPOCHS, TOPIC_ID)}
    partition = next(path for path in sorted(log_dir.glob(f"{TOPIC}-*")))
    found |= {name: partition / name for name in (EPOCHS, TOPIC_ID)}
    segments = sorted(partition.glob("*.log"))
    found |= {suffix: segments[-1].with_suffix(f".{suffix}") for suffix in ("index", "timeindex")}
    found["txnindex"] = next(path for path in sorted(partition.glob("*.txnindex")) if path.stat().st_size)
    found["snapshot"] = max(partition.glob("*.snapshot"))
    return found


def put_damage(cluster: CombinedCluster, base: Path, state: str, file: str, damage: str) -> tuple[Path, bytes, bytes | None]:
    """Restore a copy of `base` with one file damaged; return its path and its content before and after (None: absent)."""
    cluster.restore(base / state)
    path = places(cluster)[file]
    before = path.read_bytes() if path.exists() else b""
    after = damages(file)[damage](before)
    path.unlink(missing_ok=True)
    if after is not None:
        path.write_bytes(after)
    return path, before, after


def observe(cluster: CombinedCluster, base: Path, version: str, state: str, file: str, damage: str) -> StartResult:
    """Start the node on a copy of `base` with one file damaged, and return the result."""
    path, before, after = put_damage(cluster, base, state, file, damage)
    try:
        cluster.start(BROKER)
        deadline = monotonic() + (CLEANER_SECONDS if "cleaner" in file else SETTLE_SECONDS)
        while monotonic() < deadline and cluster.server(BROKER).running:
            sleep(0.2)
    except LabError:
        pass  # the node ended or hangs: both are results
    server = cluster.server(BROKER)
    place = (TOPIC, int(path.parent.name.rpartition("-")[2]) if path.parent.name.startswith(f"{TOPIC}-") else _in_last(cluster))
    served = _served(cluster, place) if server.running and server.mentions("Kafka Server started") else None
    exit_code = server.exit_code
    cluster.kill(BROKER)
    output = server.output.read_text(errors="replace")
    now = path.read_bytes() if path.exists() else None
    if now is None:
        file_after = "absent"
    else:
        file_after = "same" if now == after else "right" if now == before else "other"
    offline = (
        "ERROR org.apache.kafka.storage.internals.log.LogDirFailureChannel" in output or "Stopping serving logs in dir" in output
    )
    return StartResult(
        version, state, len(cluster.log_dirs(BROKER)), file, damage, exit_code, offline, served, file_after, _said(output, cluster)
    )


def _in_last(cluster: CombinedCluster) -> int:
    return int(next(iter(sorted(cluster.log_dirs(BROKER)[-1].glob(f"{TOPIC}-*")))).name.rpartition("-")[2])


def _said(output: str, cluster: CombinedCluster) -> str:
    """The first error, or else the first warning, without the path of this machine's folder and without times."""
    for level in ("ERROR", "WARN"):
        for line in output.replace(str(cluster.directory), "DIR").splitlines():
            _, found, message = line.partition(f"] {level} ")
            if found and "Performing controller activation" not in message:
                return message[:300]
    return ""


def _served(cluster: CombinedCluster, place: tuple[str, int]) -> ReadResult | None:
    """What clients read of a partition; None if they get nothing."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "nobody", "log_level": 0, "enable.partition.eof": True}
    counts: list[int] = []
    bounds = (0, 0)
    for isolation in ("read_uncommitted", "read_committed"):
        consumer = Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
        try:
            bounds = consumer.get_watermark_offsets(TopicPartition(*place), timeout=READ_SECONDS) if not counts else bounds
            consumer.assign([TopicPartition(*place, bounds[0])])
            count, deadline = 0, monotonic() + READ_SECONDS
            while monotonic() < deadline:
                message = consumer.poll(1)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    break
                else:
                    return None
            else:
                return None
            counts.append(count)
        except KafkaException:
            return None
        finally:
            consumer.close()
    return ReadResult(*bounds, *counts)


class StartSeries(NamedTuple):
    """Starts of one node, on each of `files` with each of `damages` (None: all)."""

    version: str
    state: str
    log_dirs: int
    files: Sequence[str]
    damages: Collection[str] | None


_SOME: Final = ("right", "absent", "empty", "zeros", "text", "offset", "no_directory.id")
_WITH_TWO_LOG_DIRS: Final = (*OFFSET_CHECKPOINTS, "meta.properties", EPOCHS, TOPIC_ID)
_RECOVERED: Final = ("recovery-point-offset-checkpoint", EPOCHS, TOPIC_ID, *DERIVED)
START_SERIES: Final = (
    StartSeries("4.2.1", "stopped", 1, FILES, None),
    StartSeries("4.3.0", "stopped", 1, FILES, None),
    StartSeries("4.2.1", "stopped", 2, _WITH_TWO_LOG_DIRS, _SOME[:-1]),
    StartSeries("4.3.0", "stopped", 2, FILES, _SOME),
    StartSeries("4.3.0", "killed", 1, _RECOVERED, tuple(ANY_FILE)),
)


# From observations to the table.


def outcome(seen: StartResult, right: StartResult) -> StartOutcome:
    """The outcome of a start, compared with a start on the sound file. Raises LabError."""
    if seen.exit_code is not None:
        return StartOutcome.DIRECTORY_OFFLINE if seen.offline and seen.log_dirs == 1 else StartOutcome.BROKER_STOPS
    if seen.served is None:
        return StartOutcome.DIRECTORY_OFFLINE if seen.offline else StartOutcome.NOT_SERVED
    if right.served is None:
        raise LabError(f"{seen.file}: nothing was served with the right file")
    if seen.served != right.served:
        return StartOutcome.BEGINS_EMPTY if not seen.served.log_end_offset else StartOutcome.SERVES_OTHER
    if CLEANER_ENDS in seen.said:
        return StartOutcome.CLEANER_STOPS
    is_kept = seen.file_after == "same" or (seen.file_after == "absent" and "absent" in (seen.damage, right.file_after))
    return StartOutcome.IGNORED if is_kept else StartOutcome.REBUILT


def table_lines(observations: Iterable[StartResult]) -> Iterator[str]:
    """The lines of the table; versions with the same result share a line."""
    yield "\t".join(Row._fields)
    seen = {(start.file, start.damage, start.state, start.log_dirs, start.version): start for start in observations}
    rows: dict[tuple[str, ...], list[str]] = {}
    for (file, damage, before, log_dirs, version), start in seen.items():
        what = outcome(start, seen[file, "right", before, log_dirs, version])
        served = "" if start.served is None else "{} {} {} {}".format(*astuple(start.served))
        rows.setdefault((file, damage, before, str(log_dirs), what.value, served), []).append(version)
    order = {key: number for number, key in enumerate(dict.fromkeys(key[:4] for key in rows))}
    for key, versions in sorted(rows.items(), key=lambda row: (order[row[0][:4]], sorted(row[1]))):
        yield "\t".join((*key[:4], " ".join(sorted(versions)), *key[4:]))


def observed(line: str) -> StartResult:
    """A result from its line of JSON."""
    fields = json.loads(line)
    served = fields.pop("served")
    return StartResult(**fields, served=None if served is None else ReadResult(**served))


def played(series: StartSeries, seen: Collection[StartResult], root: Path) -> Iterator[StartResult]:
    """The results of a series that are not in `seen`."""
    done = {(start.version, start.state, start.log_dirs, start.file, start.damage) for start in seen}
    cells = [
        (file, damage) for file in series.files for damage in damages(file) if series.damages is None or damage in series.damages
    ]
    left = [cell for cell in cells if (series.version, series.state, series.log_dirs, *cell) not in done]
    if left:
        with written(root, series.version, series.log_dirs) as cluster:
            for file, damage in left:
                yield observe(cluster, root, series.version, series.state, file, damage)


def main() -> None:
    """Run every start that the file does not have yet, and write the table and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--keep", type=Path, required=True, help="observations, one line of JSON each; those in it are not made again"
    )
    kept = parser.parse_args().keep
    kept.touch()
    seen = [observed(line) for line in kept.read_text().splitlines()]
    for series in START_SERIES:
        with TemporaryDirectory(prefix="starts-") as folder, kept.open("a") as output:
            for start in played(series, seen, Path(folder)):
                seen.append(start)
                print(json.dumps(asdict(start)), file=output, flush=True)
    TABLE.write_text("\n".join(table_lines(seen)) + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
