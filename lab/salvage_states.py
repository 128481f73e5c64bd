"""States of real brokers' copies to salvage: the records written, the damage done to the copies, and the expected outcome.

Every state is a topic of one partition; all share one cluster. Every acknowledged record is remembered with its offset and the
outcome of its transaction.
"""

import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import TopicPartition

from kafka_forensics.model.constants import CONTROL_MASK
from lab.cluster import Cluster
from lab.fault_base import read_log
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.unclean_election import fully_replicated
from lab.workload import FLUSH_TIMEOUT_SECONDS, SMALL_SEGMENTS, Message, Writer

RECORDS: Final = 200
BATCH: Final = 10
WHOLE, GAPS = "whole", "gaps"
"""Expected outcomes: every record of the lineage is on some copy; some records are on none."""
NONE, COMMITTED, ABORTED, OPEN = "none", "committed", "aborted", "open"
BROKER_SETTINGS: Final = {"log.flush.start.offset.checkpoint.interval.ms": "1000"}
_RECORDS_AT: Final = 61
"""Position of the records in a batch."""
_ATTRIBUTES_AT: Final = slice(21, 23)


@dataclass(slots=True)
class Acknowledged:
    """The records of a topic that brokers acknowledged."""

    records: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    """Offset → (value, outcome of its transaction)."""
    start: int = 0
    """The log start offset after DeleteRecords."""

    def batch(self, writer: Writer, topic: str, values: Sequence[bytes], fate: str = NONE) -> None:
        """Write values as one batch and remember them."""
        writer.batch(topic, [Message(value, b"key") for value in values])
        first = writer.end_offset - len(values)
        self.records.update({first + number: (value, fate) for number, value in enumerate(values)})


def values(topic: str, first: int, count: int) -> list[bytes]:
    """Unique values that compress badly."""
    dice = random.Random(f"{topic} {first}")
    return [b"%s %06d %s" % (topic.encode(), first + number, dice.randbytes(50).hex().encode()) for number in range(count)]


# Writers of topics.


def write_plain(cluster: Cluster, topic: str, settings: Mapping[str, str] | None = None, *, records: int = RECORDS) -> Acknowledged:
    """Create a topic and write idempotent batches into several segments."""
    cluster.create_topic(topic, settings={**SMALL_SEGMENTS, **(settings or {})})
    written = Acknowledged()
    go_on(cluster, topic, written, 0, records)
    return written


def go_on(cluster: Cluster, topic: str, written: Acknowledged, first: int, end: int) -> None:
    """Write further batches with a new producer."""
    writer = Writer(cluster, enable_idempotence=True, linger_ms=5)
    for start in range(first, end, BATCH):
        written.batch(writer, topic, values(topic, start, min(BATCH, end - start)))


def write_transactions(cluster: Cluster, topic: str) -> Acknowledged:
    """Write committed and aborted transactions, plain records between them, and an open transaction followed by plain records."""
    cluster.create_topic(topic, settings=SMALL_SEGMENTS)
    written, plain = Acknowledged(), Writer(cluster, linger_ms=5)
    writer = Writer(cluster, transactional_id=f"{topic}-writer", transaction_timeout_ms=900_000, linger_ms=5)
    writer.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
    for turn in range(8):
        fate = ABORTED if turn % 3 == 1 else COMMITTED
        writer.producer.begin_transaction()
        for part in range(2):
            written.batch(writer, topic, values(topic, 20 * turn + 10 * part, BATCH), fate)
        (writer.producer.abort_transaction if fate == ABORTED else writer.producer.commit_transaction)(FLUSH_TIMEOUT_SECONDS)
        written.batch(plain, topic, values(f"{topic} plain", turn, 2))
    leaver = Writer(cluster, transactional_id=f"{topic}-leaver", transaction_timeout_ms=900_000, linger_ms=5)
    leaver.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
    leaver.producer.begin_transaction()
    written.batch(leaver, topic, values(topic, 500, 3), OPEN)
    written.batch(plain, topic, values(f"{topic} plain", 900, 4))
    return written


def write_append_time(cluster: Cluster, topic: str) -> Acknowledged:
    """Write batches with timestamps of the broker (LogAppendTime)."""
    return write_plain(cluster, topic, {"message.timestamp.type": "LogAppendTime"})


def write_compacted(cluster: Cluster, topic: str) -> Acknowledged:
    """Write a compacted topic that the cleaner must not clean yet."""
    return write_plain(cluster, topic, {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"})


def write_and_delete(cluster: Cluster, topic: str) -> Acknowledged:
    """Write a topic, and delete records up to an offset in its second segment."""
    written = write_plain(cluster, topic)
    written.start = 75
    place = TopicPartition(topic, 0, written.start)
    admin = cluster.admin()
    admin.delete_records([place])[place].result(FLUSH_TIMEOUT_SECONDS)
    for broker in cluster.brokers:
        wait_until(
            f"broker {broker} checkpoints the log start",
            lambda broker=broker: (  # type: ignore[misc]
                cluster.checkpointed(broker, "log-start-offset-checkpoint").get((topic, 0)) == written.start
            ),
            timeout_seconds=30,
        )
    return written


def in_codec(codec: str) -> Callable[[Cluster, str], Acknowledged]:
    """A writer of twice as many batches with a codec."""
    return lambda cluster, topic: write_plain(cluster, topic, {"compression.type": codec}, records=2 * RECORDS)


# Damage to the copies, which are three directories of the partition, in the order of brokers.


Copies = list[Path]


def logs(directory: Path) -> list[Path]:
    """The segments of a copy, in order."""
    return sorted(directory.glob("*.log"))


def positions(directory: Path, segment: int) -> list[int]:
    """The position of each batch in a segment of a sound copy."""
    base_offset = int(logs(directory)[segment].stem)
    return [written.position for written in read_log(directory).batches if written.segment == base_offset]


def flip(directory: Path, segment: int, batch: int, at: int = _RECORDS_AT + 7) -> None:
    """Flip a bit in a batch of a segment."""
    position = positions(directory, segment)[batch] + at
    change(logs(directory)[segment], lambda data: _flipped(data, position))


def change(path: Path, how: Callable[[bytearray], bytearray]) -> None:
    """Rewrite a file with a change."""
    path.write_bytes(how(bytearray(path.read_bytes())))


def _flipped(data: bytearray, position: int) -> bytearray:
    data[position] ^= 0x10
    return data


def _zeroed(data: bytearray) -> bytearray:
    middle = len(data) // 2
    data[middle : middle + 512] = bytes(512)
    return data


def flip_marker(directory: Path) -> None:
    """Flip a bit in the second transaction marker."""
    markers = [
        written for written in read_log(directory).batches if int.from_bytes(written.data[_ATTRIBUTES_AT], "big") & CONTROL_MASK
    ]
    place = markers[1].position + _RECORDS_AT + 7
    change(directory / f"{markers[1].segment:020d}.log", lambda data: _flipped(data, place))


def delete_segment(directory: Path, segment: int) -> None:
    """Delete all files of a segment."""
    for path in directory.glob(f"{logs(directory)[segment].stem}.*"):
        path.unlink()


def cut(directory: Path, size: int) -> None:
    """Cut `size` bytes off the last segment."""
    change(logs(directory)[-1], lambda data: data[:-size])


def cut_to_half(directory: Path) -> None:
    """Make the copy older: keep half of its segments, and half of the batches of the last one."""
    paths = logs(directory)
    for _ in paths[len(paths) // 2 + 1 :]:
        delete_segment(directory, -1)
    starts = positions(directory, -1)
    change(logs(directory)[-1], lambda data: data[: starts[len(starts) // 2]])


def remove(copies: Copies, *patterns: str) -> None:
    """Delete files from every copy."""
    for path in [path for directory in copies for pattern in patterns for path in directory.glob(pattern)]:
        path.unlink()


def garble(copies: Copies, *patterns: str) -> None:
    """Overwrite files of every copy with random bytes."""
    for directory in copies:
        for path in [path for pattern in patterns for path in sorted(directory.glob(pattern))]:
            path.write_bytes(random.Random(path.name).randbytes(min(path.stat().st_size, 480) or 24))


def to_second_log_dir(directory: Path) -> None:
    """Move the copy to another log directory of its broker."""
    other = directory.parent.with_name(f"{directory.parent.name}-b")
    other.mkdir()
    shutil.copyfile(directory.parent / "meta.properties", other / "meta.properties")
    directory.rename(other / directory.name)


@dataclass(frozen=True, slots=True)
class State:
    """A state; its name is the name of its topic."""

    name: str
    harm: Callable[[Copies], object]
    write: Callable[[Cluster, str], Acknowledged] = write_plain
    outcome: str = WHOLE
    restarted: bool = False
    """Whether a broker restarts between writes, so that the log has several leader epochs."""


def _flips(*places: tuple[int, ...]) -> Callable[[Copies], None]:
    """Flip bits at (copy, segment, batch) or (copy, segment, batch, byte in the batch)."""

    def harm(copies: Copies) -> None:
        for copy, *place in places:
            flip(copies[copy], *place)

    return harm


def _deleted(*places: tuple[int, int]) -> Callable[[Copies], None]:
    """Delete segments, given as (copy, segment)."""

    def harm(copies: Copies) -> None:
        for copy, segment in places:
            delete_segment(copies[copy], segment)

    return harm


def _all(*harms: Callable[[Copies], object]) -> Callable[[Copies], None]:
    def harm(copies: Copies) -> None:
        for harm_copies in harms:
            harm_copies(copies)

    return harm


STATES: Final = (
    State("flipped-at-three-places", _flips((0, 0, 0), (1, 1, 1), (2, 2, 2))),
    State("each-lacks-a-segment", _deleted((0, 0), (1, 1), (2, 2))),
    State("flipped-everywhere", _flips((0, 1, 1), (1, 1, 1), (2, 1, 1)), outcome=GAPS),
    State("transactions-flipped", _flips((0, 0, 1), (1, 1, 0), (2, 0, 3)), write_transactions),
    State("torn-tails", _all(lambda copies: cut(copies[0], 9), lambda copies: cut(copies[1], 40))),
    State("wiped-and-flipped", _all(lambda copies: shutil.rmtree(copies[0]), _flips((1, 0, 1)))),
    State("flipped-once", _flips((0, 1, 1))),
    State("flipped-at-two-places", _flips((0, 0, 0), (1, 2, 1))),
    State("flipped-twice-in-each", _flips((0, 0, 0), (0, 2, 1), (1, 0, 1), (1, 2, 2), (2, 0, 2), (2, 1, 3))),
    State("length-broken", _flips((0, 0, 1, 8), (1, 2, 0, 9))),
    State("magic-broken", _flips((0, 0, 1, 16), (2, 1, 0, 17))),
    State(
        "zeros-inside", _all(lambda copies: change(logs(copies[0])[1], _zeroed), lambda copies: change(logs(copies[2])[0], _zeroed))
    ),
    State("first-segment-deleted", _deleted((0, 0))),
    State("middle-segments-deleted", _deleted((0, 1), (1, 2))),
    State("last-segments-deleted", _deleted((0, -1), (2, -1))),
    State("middle-segment-deleted-everywhere", _deleted((0, 1), (1, 1), (2, 1)), outcome=GAPS),
    State(
        "zero-tail",
        _all(lambda copies: change(logs(copies[0])[-1], lambda data: data + bytes(4096)), lambda copies: cut(copies[1], 30)),
    ),
    State("two-wiped", _all(lambda copies: shutil.rmtree(copies[0]), lambda copies: shutil.rmtree(copies[1]))),
    State("indexes-gone", lambda copies: remove(copies, "*.index", "*.timeindex", "*.txnindex")),
    State("indexes-garbled", _all(lambda copies: garble(copies, "*.index", "*.timeindex"), _flips((0, 0, 1)))),
    State("epochs-gone", _all(lambda copies: remove(copies, "leader-epoch-checkpoint"), _flips((1, 1, 1)))),
    State("epochs-garbled", _all(lambda copies: garble(copies[:2], "leader-epoch-checkpoint"), _flips((1, 1, 1)))),
    State("snapshots-gone", lambda copies: remove(copies, "*.snapshot")),
    State("snapshots-garbled", lambda copies: garble(copies, "*.snapshot")),
    State(
        "two-older",
        _all(lambda copies: cut_to_half(copies[0]), lambda copies: cut_to_half(copies[1]), _flips((2, 0, 1))),
    ),
    State("topic-id-gone", _all(lambda copies: remove(copies, "partition.metadata"), _flips((0, 0, 1)))),
    State("second-log-dir", _all(_flips((0, 0, 1), (1, 1, 1)), lambda copies: to_second_log_dir(copies[0]))),
    State("transactions-segments-deleted", _deleted((0, 1), (1, 0)), write_transactions),
    State(
        "transactions-markers-flipped",
        _all(lambda copies: flip_marker(copies[0]), lambda copies: flip_marker(copies[1])),
        write_transactions,
    ),
    State("transactions-indexes-gone", lambda copies: remove(copies, "*.txnindex", "*.snapshot"), write_transactions),
    State("append-time-torn", _all(lambda copies: cut(copies[0], 9), _flips((1, 0, 1))), write_append_time),
    State("compacted-flipped", _flips((0, 0, 0), (1, 1, 1)), write_compacted),
    State(
        "compacted-torn-and-zeros",
        _all(lambda copies: change(logs(copies[0])[0], _zeroed), lambda copies: cut(copies[1], 40)),
        write_compacted,
    ),
    State("compacted-flipped-everywhere", _flips((0, 1, 1), (1, 1, 1), (2, 1, 1)), write_compacted, outcome=GAPS),
    State("records-deleted", _flips((0, -1, 1), (1, -2, 0)), write_and_delete),
    State("epochs-flipped", _flips((0, 0, 0), (1, 1, 1), (2, 2, 0)), restarted=True),
    State(
        "epochs-and-checkpoint-gone",
        _all(lambda copies: remove(copies, "leader-epoch-checkpoint"), _flips((0, 1, 0))),
        restarted=True,
    ),
)
"""The first six are tested in every run."""


def in_every_codec(codecs: Iterable[str]) -> tuple[State, ...]:
    """A state for each codec of a version."""
    return tuple(State(f"codec-{codec}", _flips((0, 0, 0), (1, 1, 1)), in_codec(codec)) for codec in codecs)


def play(cluster: Cluster, states: Sequence[State]) -> dict[str, Acknowledged]:
    """Write the topics of all states; return the acknowledged records by topic."""
    written = {state.name: state.write(cluster, state.name) for state in states}
    restarted = [state.name for state in states if state.restarted]
    if restarted:
        cluster.restart(cluster.brokers[0])
        wait_until("all replicas are in sync", lambda: fully_replicated(cluster), timeout_seconds=90, step_seconds=1.0)
        for name in restarted:
            go_on(cluster, name, written[name], RECORDS, RECORDS + RECORDS // 2)
    return written


def copy_killed(cluster: Cluster, root: Path) -> None:
    """Kill all brokers, copy their log directories to `broker-1` … below `root`, and stop the controllers."""
    cluster.kill(*cluster.brokers)
    for broker in cluster.brokers:
        copy_tree(cluster.log_dir(broker), root / f"broker-{broker}")
    cluster.stop(*cluster.controllers)


@dataclass(frozen=True, slots=True)
class LeftBatches:
    """The parts of a topic left on the copies."""

    batches: dict[int, bool]
    end: int

    def has(self, offset: int) -> bool:
        """Whether some copy has the batch that contains an offset."""
        return self.batches[max(base for base in self.batches if base <= offset)]


def harm(root: Path, states: Iterable[State]) -> dict[str, LeftBatches]:
    """Damage the copies as the states say; return what is left of each topic."""
    left = {}
    for state in states:
        copies = [root / f"broker-{broker}" / f"{state.name}-0" for broker in (1, 2, 3)]
        sound = {directory: read_log(directory) for directory in copies}
        state.harm(copies)
        intact: dict[int, bool] = {}
        for directory, log in sound.items():
            now = directory if directory.exists() else directory.parent.with_name(f"{directory.parent.name}-b") / directory.name
            data = {path.name: path.read_bytes() for path in logs(now)}
            for written in log.batches:
                place = slice(written.position, written.position + len(written.data))
                is_left = data.get(f"{written.segment:020d}.log", b"")[place] == written.data
                intact[written.base_offset] = intact.get(written.base_offset, False) or is_left
        end = max(log.next_offset for log in sound.values())
        left[state.name] = LeftBatches(intact, end)
    return left
