"""Batches of a log as a bundle holds them: columns in few bytes, and back (`writers.bundle_columns` makes them).

Each column is what is left of it once it is foretold by the rows before: where a batch begins, by the end of the one before; its
sequence, by the last one of its producer. Of what is left the least value and the bytes above it are stored, byte by byte in
planes, as few as the largest needs. A section speaks of at most `CHUNK_ROWS` batches and needs no other.
"""

import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.errors import FormatError
from kafka_forensics.model.batches import BATCH_COLUMNS, CHUNK_ROWS, LOG_DAMAGE, BatchColumn, Damage
from kafka_forensics.model.constants import (
    BATCH_HEADER,
    CURRENT_MAGIC,
    INT64_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
)
from kafka_forensics.parsers.kernels.strong_content import DIGEST_BYTES
from kafka_forensics.storage.bundles import SectionKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SECTION_HEAD: Final = struct.Struct("<IB")
"""Bytes of the columns, and of each digest."""
COLUMNS_HEAD: Final = struct.Struct("<Iqqq")
"""Rows; byte, offset and time from which the first row is foretold."""
PLANES_HEAD: Final = struct.Struct("<Bq")
"""Bytes a value, and the least one."""
STORED_COLUMNS: Final = 19
LEAST_BATCH_BYTES: Final = 26
"""Of magic 0, without key and value: a file has no more batches than so many bytes go into it."""


class CollectedBatches(NamedTuple):
    """What a section tells: a (BATCH_COLUMNS, n) matrix without identities, the offsets that entries of magic 0 and 1 bear (1, n),
    the digests of contents (n, 2) and what is damaged, each with whether only opening the batch tells."""

    columns: "Ints"
    written: "Ints"
    digests: "NDArray[np.uint64]"
    damage: list[tuple[Damage, bool]]


def read_batches(section: bytes) -> CollectedBatches:
    """A section of batches. Raises FormatError, whatever the bytes are, and holds no more than `CHUNK_ROWS` rows."""
    if len(section) < SECTION_HEAD.size + COLUMNS_HEAD.size:
        raise FormatError("a section of batches without a head")
    size, digest_size = SECTION_HEAD.unpack_from(section)
    if digest_size != DIGEST_BYTES or not COLUMNS_HEAD.size <= size <= len(section) - SECTION_HEAD.size:
        raise FormatError("a section of batches that makes no sense")
    end = SECTION_HEAD.size + size
    stored, start, rows = _stored(section[SECTION_HEAD.size : end])
    digests_end = end + DIGEST_BYTES * rows
    if digests_end > len(section):
        raise FormatError("a section of batches that is cut short")
    digests = np.frombuffer(section, np.uint64, DIGEST_BYTES // 8 * rows, end).reshape(rows, DIGEST_BYTES // 8)
    return CollectedBatches(*_restored(stored, start, rows), digests, _damage(section[digests_end:]))


def _stored(data: bytes) -> tuple["list[Ints]", tuple[int, int, int], int]:
    """The columns as they are stored; byte, offset and time of the start; the number of rows."""
    rows, *start = COLUMNS_HEAD.unpack_from(data)
    if rows > CHUNK_ROWS:
        raise FormatError(f"a section of {rows} batches")
    position, columns = COLUMNS_HEAD.size, []
    for _ in range(STORED_COLUMNS):
        if position + PLANES_HEAD.size > len(data):
            raise FormatError("a column of batches without a head")
        width, least = PLANES_HEAD.unpack_from(data, position)
        position += PLANES_HEAD.size
        if width > 8 or position + width * rows > len(data):
            raise FormatError("a column of batches that is cut short")
        planes = np.zeros((rows, 8), np.uint8)
        planes[:, :width] = np.frombuffer(data, np.uint8, width * rows, position).reshape(width, rows).T
        columns.append(planes.reshape(-1).view("<i8").astype(np.int64) + least)
        position += width * rows
    if position != len(data):
        raise FormatError("bytes behind the columns of batches")
    return columns, (start[0], start[1], start[2]), rows


def _restored(stored: "list[Ints]", start: tuple[int, int, int], rows: int) -> tuple["Ints", "Ints"]:
    """The matrix of batches, and the offsets written in old entries. Sums wrap around as they did when they were taken."""
    size, gap, offset_gap, last_rest, delta_rest, count, epoch, magic, crc, crc_rest = stored[:10]
    attributes, time_gap, time_span, producer_id, producer_epoch, sequence, control, coordinator_epoch, written_rest = stored[10:]
    columns = np.zeros((BATCH_COLUMNS, rows), np.int64)
    delta = delta_rest + count - 1
    span = delta + last_rest + 1
    base_offset = _summed(offset_gap, span, start[1])
    base_timestamp = _summed(time_gap, time_span, start[2])
    columns[BatchColumn.POSITION] = _summed(gap, size, start[0])
    columns[BatchColumn.SIZE_IN_BYTES] = size
    columns[BatchColumn.BASE_OFFSET] = base_offset
    columns[BatchColumn.LAST_OFFSET] = base_offset + span - 1
    columns[BatchColumn.LAST_OFFSET_DELTA] = delta
    columns[BatchColumn.PARTITION_LEADER_EPOCH] = epoch
    columns[BatchColumn.MAGIC] = magic
    columns[BatchColumn.CRC] = crc
    columns[BatchColumn.CRC_COMPUTED] = crc + crc_rest
    columns[BatchColumn.ATTRIBUTES] = attributes
    columns[BatchColumn.BASE_TIMESTAMP] = base_timestamp
    columns[BatchColumn.MAX_TIMESTAMP] = base_timestamp + time_span
    columns[BatchColumn.PRODUCER_ID] = producer_id
    columns[BatchColumn.PRODUCER_EPOCH] = producer_epoch
    columns[BatchColumn.BASE_SEQUENCE] = restored_sequences(sequence, producer_id, delta)
    columns[BatchColumn.RECORDS_COUNT] = count
    columns[BatchColumn.CONTROL_RECORD_TYPE] = control
    columns[BatchColumn.COORDINATOR_EPOCH] = coordinator_epoch
    return columns, (written_rest + columns[BatchColumn.LAST_OFFSET])[np.newaxis]


def _summed(gaps: "Ints", spans: "Ints", start: int) -> "Ints":
    """Where each row begins: a gap behind the end of the one before."""
    begins: Ints = np.cumsum(gaps) + np.cumsum(spans) - spans + start
    return begins


def by_producer(producer_id: "Ints", known: "NDArray[np.bool_]") -> tuple["Ints", "NDArray[np.bool_]"]:
    """The rows that are `known`, in order of producers and then as they come, and of each whether it is its producer's first."""
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(producer_id[rows], kind="stable")]
    first = np.ones(rows.size, np.bool_)
    first[1:] = producer_id[rows][1:] != producer_id[rows][:-1]
    return rows, first


def restored_sequences(stored: "Ints", producer_id: "Ints", delta: "Ints") -> "Ints":
    """Sequences, from what is left where the last one of the same producer foretells the next; negative ones as they are."""
    rows, first = by_producer(producer_id, stored >= 0)
    sequences = stored.copy()
    if rows.size:
        steps = stored[rows].copy()
        steps[1:] += np.where(first[1:], 0, delta[rows][:-1] + 1)
        sums = np.cumsum(steps)
        starts = np.flatnonzero(first)
        before = np.repeat(sums[starts] - steps[starts], np.diff(starts, append=rows.size))
        sequences[rows] = (sums - before) & MAX_SEQUENCE
    return sequences


def _damage(data: bytes) -> list[tuple[Damage, bool]]:
    """Damage from its JSON: kind, byte, size, offsets, detail, whether only opening the batch tells."""
    if not data:
        return []
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError("damage that is no JSON") from error
    if not isinstance(rows, list):
        raise FormatError("damage that is no list")
    return [_damage_of(row) for row in rows]


def _damage_of(row: object) -> tuple[Damage, bool]:
    match row:
        case [str(kind), int(position), int(size), int(base), int(last), dict(detail), bool(inside)]:
            numbers = position, size, base, last
            if kind in LOG_DAMAGE and all(map(_is_int64, numbers)) and position >= 0 and size >= 0:
                known = _DETAILS.get(kind, _OF_BATCHES)
                return Damage(kind, position, size, base, last, dict(_detail(known, item) for item in detail.items())), inside
    raise FormatError("damage that makes no sense")


def _detail(known: Mapping[str, type], item: tuple[object, object]) -> tuple[str, "int | str | bool | list[int]"]:
    """A detail of damage: its name, and a number or a word, as damage of its kind has it."""
    name, value = item
    if isinstance(name, str) and (kind := known.get(name)) is not None:
        if kind is bool and isinstance(value, bool):
            return name, value
        if kind is int and isinstance(value, int) and _is_int64(value):
            return name, value
        if kind is str and isinstance(value, str) and _WORDS.fullmatch(value):
            return name, value
    raise FormatError("a detail of damage that makes no sense")


def _is_int64(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and -(1 << 63) <= number < 1 << 63


def _named(names: str, kind: type) -> dict[str, type]:
    return dict.fromkeys(names.split(), kind)


_WORDS: Final = re.compile(r"[A-Za-z0-9_.,:;()' -]{1,200}")
_OF_BATCHES: Final = _named(
    "stored_crc computed_crc magic crc_is_right_as_magic records_count records_found last_offset_delta record_index"
    " payload_position inner_offset bytes_in bytes_out position declared available limit ratio",
    int,
) | _named("reason codec", str)
_OF_FRAMES: Final = (
    _named("stored_crc computed_crc magic declared_length found_at candidates zero_bytes bytes_present", int)
    | _named("reason", str)
    | _named("runs_past_end", bool)
)
_DETAILS: Final = {
    **dict.fromkeys(("FRAMING_LOST", "SEG_HOLE", "SEG_TORN_TAIL", "SEG_ZERO_TAIL"), _OF_FRAMES),
    "BUDGET_EXCEEDED": _named("limit", int) | _named("reason", str) | _named("crc_checked", bool),
}
"""By kind, of those that are not of batches: names of details, and what they are."""


# What the columns of a batch can be: the types of the fields in its header, and where it can lie.


_RANGES: Final = {
    BatchColumn.SIZE_IN_BYTES: (LEAST_BATCH_BYTES, (1 << 31) - 1 + LOG_OVERHEAD),
    BatchColumn.LAST_OFFSET_DELTA: (-(1 << 31), (1 << 31) - 1),
    BatchColumn.PARTITION_LEADER_EPOCH: (-(1 << 31), (1 << 31) - 1),
    BatchColumn.MAGIC: (0, 255),
    BatchColumn.CRC: (0, (1 << 32) - 1),
    BatchColumn.CRC_COMPUTED: (0, (1 << 32) - 1),
    BatchColumn.ATTRIBUTES: (-(1 << 15), (1 << 15) - 1),
    BatchColumn.PRODUCER_EPOCH: (-(1 << 15), (1 << 15) - 1),
    BatchColumn.BASE_SEQUENCE: (-(1 << 31), (1 << 31) - 1),
    BatchColumn.RECORDS_COUNT: (-(1 << 31), (1 << 31) - 1),
    BatchColumn.CONTROL_RECORD_TYPE: (-(1 << 15), (1 << 15) - 1),
    BatchColumn.COORDINATOR_EPOCH: (-(1 << 31), (1 << 31) - 1),
}


def contradiction(batches: CollectedBatches, start: int, end: int) -> str | None:
    """Why these cannot be the batches and the damage of bytes `[start, end)` of any log; None if they can."""
    columns = batches.columns
    for column, (least, most) in _RANGES.items():
        if ((columns[column] < least) | (columns[column] > most)).any():
            return f"no batch has such a {column.name.lower()}"
    positions = columns[BatchColumn.POSITION]
    ends = positions + columns[BatchColumn.SIZE_IN_BYTES]
    outside = (positions < start) | (positions >= end) | (ends > end)
    if outside.any() or (positions[1:] < ends[:-1]).any():
        return "batches lie outside of their bytes, or over each other"
    base_offset, delta = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET_DELTA]
    beyond = (delta > 0) & (base_offset > INT64_MAX - delta)
    last_offset = np.where(beyond, INT64_MAX, base_offset + delta)
    last_offset = np.where((delta < 0) & (base_offset < -INT64_MAX - 1 - delta), -INT64_MAX - 1, last_offset)
    if ((columns[BatchColumn.MAGIC] >= 2) & (columns[BatchColumn.LAST_OFFSET] != last_offset)).any():
        return "a batch ends at another offset than its header says"
    if any(not start <= damage.position <= damage.position + damage.size_in_bytes <= end for damage, _ in batches.damage):
        return "damage lies outside of its bytes"
    if not _covered(positions, ends, [damage for damage, inside in batches.damage if not inside], start, end):
        return "there are bytes that are neither of a batch nor damaged"
    return None


def _covered(positions: "Ints", ends: "Ints", damage: list[Damage], start: int, end: int) -> bool:
    """Whether batches, which lie one behind the other, and damage cover all of `[start, end)`."""
    before, behind = np.concatenate(([start], ends)), np.concatenate((positions, [end]))
    holes = np.flatnonzero(behind > before)
    spans = sorted((found.position, found.position + found.size_in_bytes) for found in damage)
    at = 0
    for low, high in zip(before[holes].tolist(), behind[holes].tolist(), strict=True):
        while low < high:
            while at < len(spans) and spans[at][1] <= low:
                at += 1
            if at == len(spans) or spans[at][0] > low:
                return False
            low = spans[at][1]
    return True


def contradiction_of_held(batches: CollectedBatches, held: Iterable[tuple[SectionKind, int, bytes]]) -> str | None:
    """Why these, whole or telling less, cannot be batches that the facts tell of, each with its byte; None if they can."""
    rows: dict[int, int] | None = None
    for kind, position, batch in held:
        if rows is None:
            rows = {begin: row for row, begin in enumerate(batches.columns[BatchColumn.POSITION].tolist())}
        if position not in rows:
            return "a batch is held where none begins"
        facts = batches.columns[:, rows[position]]
        if kind is SectionKind.KEPT:
            alike = len(batch) == facts[BatchColumn.SIZE_IN_BYTES] and batch[MAGIC_AT] == facts[BatchColumn.MAGIC]
            alike = alike and (facts[BatchColumn.MAGIC] < 2 or _header_alike(batch, facts, crc=int(facts[BatchColumn.CRC])))
        else:
            whole = len(batch) >= RECORD_BATCH_OVERHEAD and BATCH_HEADER.unpack_from(batch)[1] == len(batch) - LOG_OVERHEAD
            alike = whole and batch[MAGIC_AT] == CURRENT_MAGIC
            alike = alike and (facts[BatchColumn.MAGIC] < CURRENT_MAGIC or _header_alike(batch, facts))
        if not alike:
            return "a batch that is held is not the one that its facts tell of"
    return None


def _header_alike(batch: bytes, facts: "Ints", *, crc: int | None = None) -> bool:
    """Whether a batch of magic 2 has the offsets, the epoch and, if it is given, the CRC of its facts."""
    if len(batch) < RECORD_BATCH_OVERHEAD:
        return False
    base_offset, _, epoch, _, stored_crc, _, delta, *_ = BATCH_HEADER.unpack_from(batch)
    told = facts[[BatchColumn.BASE_OFFSET, BatchColumn.PARTITION_LEADER_EPOCH, BatchColumn.LAST_OFFSET_DELTA]].tolist()
    return told == [base_offset, epoch, delta] and crc in (None, stored_crc)
