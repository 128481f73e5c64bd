"""Batches of a log in a bundle: delta-coded columns (`writers.bundle_columns` writes them).

A column is the difference to what the previous rows predict: the position of a batch is the end of the one before, its sequence
follows the last one of its producer. The smallest difference is stored, and the others above it as byte planes, as many as the
largest needs. A section has at most `CHUNK_ROWS` batches and can be read without any other.
"""

import json
import re
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.errors import FormatError
from kafka_forensics.model.batches import BATCH_COLUMNS, CHUNK_ROWS, LOG_DAMAGE, BatchColumn, Damage
from kafka_forensics.model.constants import (
    CURRENT_MAGIC,
    INT64_MAX,
    LEGACY_V0_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_INT32,
    MAX_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
)
from kafka_forensics.parsers.kernels.strong_content import DIGEST_BYTES
from kafka_forensics.parsers.spec.batch_header import BATCH_HEADER, BatchHeader
from kafka_forensics.storage.bundles import CollectedLog, SectionKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SECTION_HEAD: Final = struct.Struct("<IB")
"""Size of the columns in bytes, and of each digest."""
COLUMNS_HEAD: Final = struct.Struct("<Iqqq")
"""Number of rows; position, offset and time from which the first row is predicted."""
PLANES_HEAD: Final = struct.Struct("<Bq")
"""Bytes per value, and the smallest value."""
STORED_COLUMNS: Final = 19
MIN_BATCH_BYTES: Final = LOG_OVERHEAD + LEGACY_V0_OVERHEAD
"""Size of the smallest batch, of magic 0 without key and value."""


class CollectedBatches(NamedTuple):
    """A section: a (BATCH_COLUMNS, n) matrix without identities, the offsets stored in entries of magic 0 and 1 (1, n), content
    digests (n, 2), and damage, each with whether it is inside a batch."""

    columns: "Ints"
    stored_offsets: "Ints"
    digests: "NDArray[np.uint64]"
    damage: list[tuple[Damage, bool]]


def read_batches(section: bytes) -> CollectedBatches:
    """The batches of a section, at most `CHUNK_ROWS` rows. Raises FormatError for any invalid bytes."""
    if len(section) < SECTION_HEAD.size + COLUMNS_HEAD.size:
        raise FormatError("a section of batches without a header")
    size, digest_size = SECTION_HEAD.unpack_from(section)
    if digest_size != DIGEST_BYTES or not COLUMNS_HEAD.size <= size <= len(section) - SECTION_HEAD.size:
        raise FormatError("an invalid section of batches")
    end = SECTION_HEAD.size + size
    stored, start, rows = _stored(section[SECTION_HEAD.size : end])
    digests_end = end + DIGEST_BYTES * rows
    if digests_end > len(section):
        raise FormatError("a section of batches that is cut short")
    digests = np.frombuffer(section, np.uint64, DIGEST_BYTES // 8 * rows, end).reshape(rows, DIGEST_BYTES // 8)
    return CollectedBatches(*_restored(stored, start, rows), digests, _damage(section[digests_end:]))


def read_section(log: CollectedLog, packed: bytes) -> CollectedBatches:
    """The batches of a section of this log. Raises SourceError for invalid bytes."""
    try:
        return read_batches(packed)
    except FormatError as error:
        raise log.broken(error.reason) from error


def _stored(data: bytes) -> tuple["list[Ints]", tuple[int, int, int], int]:
    """The columns as stored; position, offset and time of the start; the number of rows."""
    rows, *start = COLUMNS_HEAD.unpack_from(data)
    if rows > CHUNK_ROWS:
        raise FormatError(f"a section of {rows} batches")
    position, columns = COLUMNS_HEAD.size, []
    for _ in range(STORED_COLUMNS):
        if position + PLANES_HEAD.size > len(data):
            raise FormatError("a column of batches without a header")
        width, least = PLANES_HEAD.unpack_from(data, position)
        position += PLANES_HEAD.size
        if width > 8 or position + width * rows > len(data):
            raise FormatError("a column of batches that is cut short")
        planes = np.zeros((rows, 8), np.uint8)
        planes[:, :width] = np.frombuffer(data, np.uint8, width * rows, position).reshape(width, rows).T
        columns.append(planes.reshape(-1).view("<i8").astype(np.int64) + least)
        position += width * rows
    if position != len(data):
        raise FormatError("bytes after the columns of batches")
    return columns, (start[0], start[1], start[2]), rows


def _restored(stored: "list[Ints]", start: tuple[int, int, int], rows: int) -> tuple["Ints", "Ints"]:
    """The matrix of batches, and the offsets of old entries. Sums wrap around in the same way as the writer's."""
    size, gap, offset_gap, last_rest, delta_rest, count, epoch, magic, crc, crc_rest = stored[:10]
    attributes, time_gap, time_span, producer_id, producer_epoch, sequence, control, coordinator_epoch, stored_offset_rest = stored[
        10:
    ]
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
    return columns, (stored_offset_rest + columns[BatchColumn.LAST_OFFSET])[np.newaxis]


def _summed(gaps: "Ints", spans: "Ints", start: int) -> "Ints":
    """The start of each row: a gap after the end of the row before."""
    begins: Ints = np.cumsum(gaps) + np.cumsum(spans) - spans + start
    return begins


def by_producer(producer_id: "Ints", chosen: "NDArray[np.bool_]") -> tuple["Ints", "NDArray[np.bool_]"]:
    """The `chosen` rows ordered by producer, and whether each is the first of its producer."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(producer_id[rows], kind="stable")]
    first = np.ones(rows.size, np.bool_)
    first[1:] = producer_id[rows][1:] != producer_id[rows][:-1]
    return rows, first


def restored_sequences(stored: "Ints", producer_id: "Ints", delta: "Ints") -> "Ints":
    """Sequences from their differences to the prediction by the producer's last batch; negative ones are stored as they are."""
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
    """Damage from its JSON: kind, position, size, offsets, detail, whether it is inside a batch."""
    if not data:
        return []
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError("damage that is not JSON") from error
    if not isinstance(rows, list):
        raise FormatError("damage that is not a list")
    return [_damage_of(row) for row in rows]


def _damage_of(row: object) -> tuple[Damage, bool]:
    match row:
        case [str(kind), int(position), int(size), int(base), int(last), dict(detail), bool(inside)]:
            numbers = position, size, base, last
            types = _DETAILS.get(kind, _BATCH_DETAILS)
            is_valid = all(_is_detail(value, types.get(name)) for name, value in detail.items())
            if kind in LOG_DAMAGE and all(map(_is_int64, numbers)) and position >= 0 and size >= 0:
                if not is_valid:
                    raise FormatError("an invalid detail of damage")
                return Damage(kind, *numbers, detail), inside
    raise FormatError("invalid damage")


def _is_detail(value: object, expected: type | None) -> bool:
    """Whether `value` is a number or a short text of the type that damage of this kind has; None for an unknown name."""
    if expected is int:
        return _is_int64(value)
    return type(value) is expected and (not isinstance(value, str) or _TEXT.fullmatch(value) is not None)


def _is_int64(number: object) -> bool:
    return type(number) is int and -(1 << 63) <= number < 1 << 63


def _named(names: str, value_type: type) -> dict[str, type]:
    return dict.fromkeys(names.split(), value_type)


_TEXT: Final = re.compile(r"[A-Za-z0-9_.,:;()' -]{1,200}")
_BATCH_DETAILS: Final = _named(
    "stored_crc computed_crc magic crc_is_right_as_magic records_count records_found last_offset_delta record_index"
    " payload_position inner_offset bytes_in bytes_out position declared available limit ratio",
    int,
) | _named("reason codec", str)
_FRAME_DETAILS: Final = (
    _named("stored_crc computed_crc magic declared_length found_at candidates zero_bytes bytes_present", int)
    | _named("reason", str)
    | _named("runs_past_end", bool)
)
_DETAILS: Final = {
    **dict.fromkeys(("FRAMING_LOST", "SEG_HOLE", "SEG_TORN_TAIL", "SEG_ZERO_TAIL"), _FRAME_DETAILS),
    "BUDGET_EXCEEDED": _named("limit", int) | _named("reason", str) | _named("crc_checked", bool),
}
"""Names and types of details, for the kinds of damage outside of batches."""


# Checks that the facts can be those of a log: ranges of the header's fields, positions, headers of stored batches.


_INT16, _INT32, _UINT32 = (-(1 << 15), (1 << 15) - 1), (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)
_RANGES: Final = {
    BatchColumn.SIZE_IN_BYTES: (MIN_BATCH_BYTES, MAX_INT32 + LOG_OVERHEAD),
    BatchColumn.LAST_OFFSET_DELTA: _INT32,
    BatchColumn.PARTITION_LEADER_EPOCH: _INT32,
    BatchColumn.MAGIC: (0, 255),
    BatchColumn.CRC: _UINT32,
    BatchColumn.CRC_COMPUTED: _UINT32,
    BatchColumn.ATTRIBUTES: _INT16,
    BatchColumn.PRODUCER_EPOCH: _INT16,
    BatchColumn.BASE_SEQUENCE: _INT32,
    BatchColumn.RECORDS_COUNT: _INT32,
    BatchColumn.CONTROL_RECORD_TYPE: _INT16,
    BatchColumn.COORDINATOR_EPOCH: _INT32,
}


def contradiction(batches: CollectedBatches, start: int, end: int) -> str | None:
    """Why these cannot be the batches and the damage in bytes `[start, end)` of a log; None if they can."""
    columns = batches.columns
    for column, (least, most) in _RANGES.items():
        if ((columns[column] < least) | (columns[column] > most)).any():
            return f"no batch has such a {column.name.lower()}"
    positions = columns[BatchColumn.POSITION]
    ends = positions + columns[BatchColumn.SIZE_IN_BYTES]
    outside = (positions < start) | (positions >= end) | (ends > end)
    if outside.any() or (positions[1:] < ends[:-1]).any():
        return "batches are outside their bytes, or overlap"
    base_offset, delta = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET_DELTA]
    beyond = (delta > 0) & (base_offset > INT64_MAX - delta)
    last_offset = np.where(beyond, INT64_MAX, base_offset + delta)
    last_offset = np.where((delta < 0) & (base_offset < -INT64_MAX - 1 - delta), -INT64_MAX - 1, last_offset)
    if ((columns[BatchColumn.MAGIC] >= 2) & (columns[BatchColumn.LAST_OFFSET] != last_offset)).any():
        return "a batch ends at another offset than in its header"
    if any(not start <= damage.position <= damage.position + damage.size_in_bytes <= end for damage, _ in batches.damage):
        return "damage is outside its bytes"
    if not _covered(positions, ends, [damage for damage, inside in batches.damage if not inside], start, end):
        return "some bytes are neither a batch nor damaged"
    return None


def _covered(positions: "Ints", ends: "Ints", damage: list[Damage], start: int, end: int) -> bool:
    """Whether batches, in ascending order, and damage cover all of `[start, end)`."""
    gap_starts, gap_ends = np.concatenate(([start], ends)), np.concatenate((positions, [end]))
    gaps = np.flatnonzero(gap_ends > gap_starts)
    spans = sorted((row.position, row.position + row.size_in_bytes) for row in damage)
    at = 0
    for low, high in zip(gap_starts[gaps].tolist(), gap_ends[gaps].tolist(), strict=True):
        while low < high:
            while at < len(spans) and spans[at][1] <= low:
                at += 1
            if at == len(spans) or spans[at][0] > low:
                return False
            low = spans[at][1]
    return True


def contradiction_of_batches(facts: CollectedBatches, batches: Iterable[tuple[SectionKind, int, bytes]]) -> str | None:
    """Why these batches of the bundle, (section kind, position, bytes), do not match the facts; None if they do."""
    rows: dict[int, int] | None = None
    for kind, position, batch in batches:
        if rows is None:
            rows = {begin: row for row, begin in enumerate(facts.columns[BatchColumn.POSITION].tolist())}
        if position not in rows:
            return "a stored batch is at a position where no batch begins"
        column = facts.columns[:, rows[position]]
        magic = column[BatchColumn.MAGIC]
        if kind is SectionKind.RAW:
            matches = len(batch) == column[BatchColumn.SIZE_IN_BYTES] and batch[MAGIC_AT] == magic
            crc = int(column[BatchColumn.CRC])
        else:
            is_whole = len(batch) >= RECORD_BATCH_OVERHEAD and BATCH_HEADER.unpack_from(batch)[1] == len(batch) - LOG_OVERHEAD
            matches, crc = is_whole and batch[MAGIC_AT] == CURRENT_MAGIC, None
        if not (matches and (magic < CURRENT_MAGIC or _header_matches(batch, column, crc))):
            return "a stored batch contradicts its facts"
    return None


def _header_matches(batch: bytes, column: "Ints", crc: int | None) -> bool:
    """Whether a batch of magic 2 has the offsets, the epoch and, unless it is None, the CRC of its facts."""
    if len(batch) < RECORD_BATCH_OVERHEAD:
        return False
    header = BatchHeader(*BATCH_HEADER.unpack_from(batch))
    facts = column[[BatchColumn.BASE_OFFSET, BatchColumn.PARTITION_LEADER_EPOCH, BatchColumn.LAST_OFFSET_DELTA]].tolist()
    return facts == [header.base_offset, header.partition_leader_epoch, header.last_offset_delta] and crc in (None, header.crc)
