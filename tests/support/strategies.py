"""Hypothesis strategies: batches, segments and payloads, sound or broken; logs of producers; ranges and merges for folds."""

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

from hypothesis import strategies as st

from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch, write_legacy_entry, write_record
from tests.analysis.producer_log import ABORT, COMMIT, CONTROL, TRANSACTIONAL, Log
from tests.support.segments import BASE_TIMESTAMP, batch, flip_bit, legacy_entry, marker, replace_bytes, write_legacy_wrapper

PRODUCERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "producer_id": st.integers(2**40, 2**41),
        "producer_epoch": st.integers(100, 2**15 - 1),
        "base_sequence": st.integers(2**16, 2**31 - 1),
        "is_transactional": st.booleans(),
    }
)
"""Header fields of an idempotent producer, from disjoint ranges, so that a reader that swaps two fields fails."""
_VALUES = st.one_of(st.binary(max_size=40), st.just(batch(1, 1)), st.just(bytes(80)))


@st.composite
def batch_lists(draw: st.DrawFn, *, max_size: int = 6) -> list[bytes]:
    """Whole batches with contiguous offsets: perhaps legacy entries, then batches of magic 2 with markers and emptied batches.

    The header fields have disjoint ranges of values, so that a reader that swaps two fields fails.
    """
    batches: list[bytes] = []
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 2))):
        stamp = BASE_TIMESTAMP + draw(st.integers(-99, 99))
        batches.append(legacy_entry(offset, draw(st.integers(0, 1)), value=draw(_VALUES), timestamp=stamp))
        offset += 1
    for _ in range(draw(st.integers(0, max_size))):
        kind, epoch, producer = draw(st.integers(0, 9)), draw(st.integers(0, 2)), draw(PRODUCERS)
        if kind < 2:
            commit, coordinator_epoch = draw(st.booleans()), draw(st.integers(0, 2**31 - 1))
            numbers = {"producer": producer["producer_id"], "producer_epoch": producer["producer_epoch"], "epoch": epoch}
            stamp = BASE_TIMESTAMP + draw(st.integers(-99, 99))
            batches.append(marker(offset, commit=commit, coordinator_epoch=coordinator_epoch, timestamp=stamp, **numbers))
            offset += 1
        elif kind == 2:
            delta = draw(st.integers(0, 3))
            emptied = write_batch(
                [],
                base_offset=offset,
                base_timestamp=BASE_TIMESTAMP - 5,
                max_timestamp=BASE_TIMESTAMP + offset,
                partition_leader_epoch=epoch,
                last_offset_delta=delta,
                **producer,
            )
            batches.append(emptied)
            offset += delta + 1
        else:
            count = draw(st.integers(1, 3))
            codec = draw(st.sampled_from(["none", "none", "gzip"]))
            header = producer if kind < 7 else {}
            batches.append(batch(offset, count, epoch=epoch, value=draw(_VALUES), compression_type=codec, **header))
            offset += count
    return batches


@st.composite
def any_segments(draw: st.DrawFn) -> bytes:
    """Bytes of a segment, whole or with up to three kinds of damage; sometimes arbitrary bytes."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.binary(max_size=300))
    data = b"".join(draw(batch_lists()))
    for _ in range(draw(st.integers(0, 3))):
        data = _damaged(draw, data)
    return data


def _damaged(draw: st.DrawFn, data: bytes) -> bytes:
    if not data:
        return draw(st.sampled_from([b"", bytes(30), b"\xff" * 70]))
    position = draw(st.integers(0, len(data) - 1))
    end = draw(st.integers(position, min(position + 90, len(data))))
    which = draw(st.integers(0, 7))
    if which <= 2:
        return flip_bit(data, position, draw(st.integers(0, 7)))
    if which == 3:
        return data[:position]
    if which == 4:
        return data[:position] + data[end:]
    if which == 5:
        return replace_bytes(data, position, bytes(end - position))
    if which == 6:
        return data + bytes(draw(st.integers(1, 100)))
    return data[:position] + draw(st.binary(max_size=80)) + data[position:]


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = st.none() | st.binary(max_size=6)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "trace"]), SMALL), max_size=3)


@st.composite
def record_batches(draw: st.DrawFn) -> bytes:
    """A batch of magic 2: of records (any compression, timestamp type, in a transaction or not), or a marker."""
    base_offset = draw(st.integers(0, 2**40))
    if draw(st.integers(0, 5)) == 0:
        commit, timestamp = draw(st.booleans()), draw(st.integers(0, 2**41))
        return marker(base_offset, commit=commit, timestamp=timestamp, producer_epoch=1, coordinator_epoch=2)
    records = draw(st.lists(st.builds(RecordToWrite, SMALL, SMALL, HEADERS, st.integers(-9, 99)), max_size=5))
    in_transaction = draw(st.booleans())
    return write_batch(
        records,
        base_offset=base_offset,
        base_timestamp=draw(st.integers(0, 2**41)),
        compression_type=draw(st.sampled_from(CODECS)),
        timestamp_type=draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
        is_transactional=in_transaction,
        producer_id=7 if in_transaction else -1,
        producer_epoch=1 if in_transaction else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if in_transaction else -1,
    )


@st.composite
def broken_batches(draw: st.DrawFn) -> bytes:
    """A batch with wrong bytes after the CRC field and a CRC that matches them."""
    batch = bytearray(draw(record_batches()))
    for _ in range(draw(st.integers(1, 3))):
        batch[draw(st.integers(57, len(batch) - 1))] = draw(st.integers(0, 255))
    return fix_crc(bytes(batch))


@st.composite
def legacy_batches(draw: st.DrawFn) -> bytes:
    magic, offset = draw(st.integers(0, 1)), draw(st.integers(10, 2**40))
    timestamp = draw(st.integers(0, 2**41)) if magic else -1
    if draw(st.booleans()):
        return write_legacy_entry(draw(SMALL), draw(SMALL), offset=offset, magic=magic, timestamp=timestamp)
    entries = [
        write_legacy_entry(
            draw(SMALL), draw(SMALL), offset=number if magic else offset - 2 + number, magic=magic, timestamp=timestamp
        )
        for number in range(3)
    ]
    kind = draw(st.sampled_from(["CreateTime", "LogAppendTime"])) if magic else "CreateTime"
    return write_legacy_wrapper(
        entries, offset=offset, magic=magic, compression_type="gzip", timestamp=timestamp, timestamp_type=kind
    )


LOG = st.lists(record_batches() | broken_batches() | legacy_batches() | st.binary(max_size=40), max_size=8).map(b"".join)


_TOP = 2**63 - 1
_WILD = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**62, _TOP])
_WILD_COLUMNS = (
    *("base_offset", "last_offset", "last_offset_delta", "max_timestamp", "base_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence", "control_record_type"),
)
_DAY = 86_400_000


@st.composite
def logs(draw: st.DrawFn, *, most: int = 60) -> Log:
    log = Log(offset=draw(st.integers(0, 50)))
    sequences = {1: 0, 2: 2**31 - 20, 2**62 + 1: 5}
    epochs = dict.fromkeys(sequences, 0)
    for _ in range(draw(st.integers(0, most))):
        _act(draw, draw(st.sampled_from(_ACTIONS)), log, draw(st.sampled_from(list(sequences))), epochs, sequences)
    return log


_ACTIONS = (
    *["data"] * 8,
    *["transactional"] * 6,
    *["marker"] * 4,
    *["plain", "again", "jump", "skip", "bump", "old", "pause", "rotten", "lost", "roll", "wild", "cleaned"],
)


def _act(draw: st.DrawFn, action: str, log: Log, producer: int, epochs: dict[int, int], sequences: dict[int, int]) -> None:
    epoch = epochs[producer]
    count = draw(st.integers(1, 4))
    if action == "marker":
        log.marker(producer, epoch + draw(st.integers(0, 1)), draw(st.sampled_from([ABORT, COMMIT])))
    elif action == "cleaned":
        log.add(producer_id=producer, producer_epoch=epoch, attributes=TRANSACTIONAL | CONTROL)
    elif action == "plain":
        log.add(count)
    elif action == "again" and log.rows and not (row := draw(st.sampled_from(log.rows))).lost:
        given = {column.name.lower(): value for column, value in row.values.items()}
        given["position"] = log.position
        if draw(st.booleans()):
            given |= {"base_offset": log.offset, "last_offset": min(log.offset + max(given["last_offset_delta"], 0), _TOP)}
        log.add(1, **given)
    elif action == "jump":
        log.offset = max(0, log.offset + draw(st.integers(-8, 8)))
    elif action == "skip":
        sequences[producer] = (sequences[producer] + draw(st.integers(-9, 9))) % 2**31
    elif action in ("bump", "old"):
        epochs[producer] = max(0, epoch + (1 if action == "bump" else -1))
        sequences[producer] = draw(st.sampled_from([0, sequences[producer]]))
    elif action == "pause":
        log.timestamp += draw(st.sampled_from([_DAY - 1001, _DAY - 1000, _DAY, -5000]))
    elif action == "rotten":
        log.corrupt(count)
    elif action == "lost":
        log.lost()
    elif action == "roll":
        log.roll()
    elif action == "wild":
        given = {draw(st.sampled_from(_WILD_COLUMNS)): draw(_WILD)}
        given = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequences[producer]} | given
        base, delta = given.get("base_offset", log.offset), given.get("last_offset_delta", 0)
        given.setdefault("last_offset", max(-(2**63), min(base + delta, _TOP)))
        log.add(1, attributes=draw(st.sampled_from([0, TRANSACTIONAL, TRANSACTIONAL | CONTROL])), **given)
    else:
        attributes = TRANSACTIONAL if action == "transactional" else 0
        log.data(producer, epoch, sequences[producer], count, attributes=attributes)
        sequences[producer] = (sequences[producer] + count) % 2**31


class Fold(Protocol):
    def merge(self, right: Self) -> None:
        """Add the state of the range that follows."""


F = TypeVar("F", bound=Fold)


def random_ranges(draw: st.DataObject, length: int, at_most: int = 6) -> list[tuple[int, int]]:
    points = sorted(draw.draw(st.lists(st.integers(0, length), max_size=at_most)))
    return list(zip([0, *points], [*points, length], strict=True))


def merge_randomly(draw: st.DataObject, states: list[F]) -> F:
    while len(states) > 1:
        index = draw.draw(st.integers(0, len(states) - 2))
        left, right = states[index : index + 2]
        left.merge(right)
        states[index : index + 2] = [left]
    return states[0]


def fold_in_parts(draw: st.DataObject, make: Callable[[], F], step: Callable[[F, int, int], None], length: int) -> F:
    """A fold over `length` items, cut into ranges and each range into chunks; `step(state, start, end)` adds items."""
    states = []
    for start, end in random_ranges(draw, length):
        state = make()
        for low, high in random_ranges(draw, end - start, 2):
            step(state, start + low, start + high)
        states.append(state)
    return merge_randomly(draw, states)


_DATA = st.one_of(st.none(), st.binary(max_size=6), st.just(bytes(150)))


@st.composite
def records_to_write(draw: st.DrawFn) -> RecordToWrite:
    headers = draw(st.lists(st.tuples(st.text(max_size=3), _DATA), max_size=3))
    return RecordToWrite(
        draw(_DATA), draw(_DATA), headers, draw(st.integers(-(2**63), 2**63 - 1)), draw(st.integers(-(2**31), 2**31 - 1))
    )


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """A decompressed payload: records, whole or with up to three kinds of damage; sometimes arbitrary bytes."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=60))
    records = draw(st.lists(records_to_write(), max_size=4))
    data = b"".join(write_record(write, write.offset_delta or 0, write.timestamp_delta) for write in records)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.binary(max_size=3)) + data[place + draw(st.integers(0, 3)) :]
    return data
