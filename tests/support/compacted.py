"""Replicas of a compacted partition: one history, and what each broker's cleaner has left of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_forensics.writers.batches import RecordToWrite
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support.faults import BASE_TIMESTAMP, TOPIC, Brokers, Log, histories

CLEANED = 12
"""Where the active segment of `history` begins, and so the farthest a cleaner comes."""
FUTURE_MS = 4_000_000_000_000
"""Times that no file's age reaches."""
Keyed = tuple[str | None, str | None]
"""Key and value; None is null, so that a key without a value is a tombstone."""


@dataclass(frozen=True, slots=True)
class Step:
    """A batch of the history: records, or the marker that ends a producer's transaction."""

    records: tuple[Keyed, ...] = ()
    producer_id: int = -1
    commit: bool | None = None

    @property
    def offsets(self) -> int:
        return max(len(self.records), 1)


@dataclass(slots=True)
class History:
    """What the leader wrote, batch by batch; offsets are counted from 0."""

    steps: list[Step] = field(default_factory=list)
    start_ms: int = BASE_TIMESTAMP

    def put(self, *records: Keyed) -> "History":
        self.steps.append(Step(records))
        return self

    def fill(self, count: int, name: str = "fill") -> "History":
        """Batches of one record each, with keys of their own."""
        for _ in range(count):
            self.put((f"{name}-{self.end}", "x"))
        return self

    def transaction(self, producer_id: int, *records: Keyed, commit: bool | None) -> "History":
        """A batch in a transaction, and its marker unless it stays open."""
        self.steps.append(Step(records, producer_id))
        return self if commit is None else self.marker(producer_id, commit=commit)

    def marker(self, producer_id: int, *, commit: bool) -> "History":
        self.steps.append(Step((), producer_id, commit))
        return self

    @property
    def end(self) -> int:
        return sum(step.offsets for step in self.steps)

    def left(
        self, dropped: Iterable[int] = (), *, end: int | None = None, roll: int | None = None, horizon: int | None = None
    ) -> Log:
        """A replica's log up to `end` without the dropped offsets; batches with nothing left are gone, segments keep their names.

        The active segment begins at `roll`; `horizon` is the delete horizon of the batches before it.
        """
        log, gone, offset = Log(), set(dropped), 0
        log.roll()
        for step in self.steps:
            span = range(offset, offset + step.offsets)
            offset = span.stop
            if end is not None and span.start >= end:
                break
            if roll is not None and span.start == roll and log.batches:
                log.next_offset = roll
                log.roll()
            kept = [one for one in span if one not in gone]
            if kept:
                log.next_offset = span.start
                self._write(log, step, kept, None if roll is not None and span.start >= roll else horizon)
            log.next_offset = span.stop
        return log

    def _write(self, log: Log, step: Step, kept: list[int], horizon: int | None) -> None:
        base, stamp = log.next_offset, self.start_ms + 1000 * log.next_offset
        if step.commit is not None:
            log.end(step.producer_id, stamp, commit=step.commit)
            return
        records = [
            RecordToWrite(_bytes(key), _bytes(value), timestamp_delta=2, offset_delta=delta)
            for delta, (key, value) in enumerate(step.records)
            if base + delta in kept
        ]
        state, is_transactional = log.producers.get(step.producer_id), step.producer_id >= 0
        sequence = -1 if not is_transactional else 0 if state is None else state.last_sequence + 1
        numbers = {"producer_id": step.producer_id, "sequence": sequence, "offsets": len(step.records)}
        times: dict[str, Any] = {"base_timestamp": stamp - 2, "max_timestamp": stamp, "delete_horizon_ms": horizon}
        log.write(records, stamp, transactional=is_transactional, **numbers, **times)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def compacted(root: Path, logs: dict[int, Log], cleaned: dict[int, int], high_watermark: int | None = None) -> Brokers:
    """Brokers whose cleaners have been up to these offsets; a broker that is not named has not cleaned yet."""
    end = min(log.next_offset for log in logs.values()) if high_watermark is None else high_watermark
    brokers = histories(root, logs, {broker: min(end, log.next_offset) for broker, log in logs.items()})
    for broker, offset in cleaned.items():
        (brokers.log_dir(broker) / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({(TOPIC, 0): offset}))
    return brokers


def history(start_ms: int = BASE_TIMESTAMP) -> History:
    """Offsets [0, 16): 0 a=1, 1 b=1, 2 a=2, 3 c=1, 4 c deleted, then keys of their own."""
    story = History(start_ms=start_ms)
    story.put(("a", "1")).put(("b", "1"), ("a", "2")).put(("c", "1")).put(("c", None))
    return filled(story)


def filled(story: History) -> History:
    """The same, followed by keys of their own up to behind where the active segment begins."""
    return story.fill(CLEANED + 4 - story.end)


def three(root: Path, story: History, dropped: dict[int, set[int]], cleaned: dict[int, int] | None = None) -> Brokers:
    """Three brokers, each without what its cleaner dropped."""
    logs = {broker: story.left(dropped.get(broker, ()), roll=CLEANED) for broker in (1, 2, 3)}
    return compacted(root, logs, dict.fromkeys(dropped, CLEANED) if cleaned is None else cleaned)


def beyond_reach(root: Path, value: str | None) -> Brokers:
    """Broker 2 ends before the record of d at offset 4, a tombstone or another value, which the others wrote and cleaned by."""
    story = History().put(("a", "0")).put(("d", "1")).fill(2).put(("d", value)).fill(11)
    whole = story.left({1, 4} if value is None else {1}, roll=CLEANED)
    return compacted(root, {1: whole, 2: story.left(end=4), 3: whole}, {1: CLEANED, 3: CLEANED})


def hidden_by_damage(root: Path) -> Brokers:
    brokers = three(root, history(), {2: {1}})
    log = brokers.file(2, 0)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    return brokers


def cut_between_batches(root: Path) -> Brokers:
    """The last batches before broker 2's active segment are gone with nothing torn."""
    brokers = three(root, history(), {}, dict.fromkeys((1, 2, 3), 5))
    path = brokers.file(2, 0)
    path.write_bytes(path.read_bytes()[: brokers.log.at(10).position])
    return brokers


def offset_rotted_upwards(root: Path) -> Brokers:
    brokers = three(root, history(), {broker: {6, 7, 8} for broker in (1, 2, 3)})
    brokers.flip(2, brokers.log.at(5), 7, bit=1)
    return brokers
