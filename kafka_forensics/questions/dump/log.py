"""Rows of a dump for files with batches: each batch or each of its records, and each damaged place, in file order."""

from collections.abc import Iterator
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import (
    NO_TIMESTAMP_TYPE,
    PAYLOAD_COLUMNS,
    RECORD_TIMESTAMP_TYPES,
    TIMESTAMP_TYPES,
    BatchColumn,
    Damage,
    Record,
    RecordColumn,
    has_right_crc,
)
from kafka_forensics.model.constants import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAX_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    compression_name,
    control_record_name,
)
from kafka_forensics.model.json_objects import Json, JsonRow
from kafka_forensics.parsers.internal_topics import record_describer
from kafka_forensics.parsers.kernels.compiling import using_compiled
from kafka_forensics.parsers.kernels.records import gather_records
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    BatchChecks,
    RecordBlock,
    SegmentReader,
    decode_batch,
    parse_control_record,
    valid_blocks,
)
from kafka_forensics.questions.dump.inputs import BytesOf, DumpFile, DumpOptions
from kafka_forensics.scanning.rereading.record_states import NONE, STATES, UNKNOWN, RecordStates, in_transactions, transaction_facts
from kafka_forensics.scanning.rereading.seeking import chunks_until, start_position
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from kafka_forensics.model.schemas import ArrowArray
    from kafka_forensics.storage.source import ByteFile

BATCH_COLUMNS: Final = (
    *("span", "position", "size_in_bytes", "base_offset", "last_offset", "records_count", "partition_leader_epoch", "magic"),
    *("compression_type", "timestamp_type", "base_timestamp", "max_timestamp", "is_transactional", "is_control_batch"),
    *("delete_horizon_ms", "producer_id", "producer_epoch", "base_sequence", "last_sequence", "crc", "is_valid"),
    *("control_record_type", "coordinator_epoch", "detail"),
)
"""Columns of a batch, or of a damaged place, where `span` is the kind of damage."""
RECORD_COLUMNS: Final = (
    *("span", "position", "size_in_bytes", "offset", "timestamp", "timestamp_type", "partition_leader_epoch", "is_transactional"),
    *("producer_id", "producer_epoch", "sequence", "key_size", "value_size", "headers_count", "is_valid"),
    *("control_record_type", "coordinator_epoch", "txn_state", "detail"),
)
"""Columns of a record; `position` is that of its batch, `size_in_bytes` its size after decompression."""


def log_columns(options: DumpOptions) -> tuple[str, ...]:
    """Columns of the rows of `log_rows`."""
    if not options.records:
        return BATCH_COLUMNS
    return (*RECORD_COLUMNS, *PAYLOAD_COLUMNS) if options.show_payloads else RECORD_COLUMNS


def log_rows(file: DumpFile, options: DumpOptions) -> Iterator[JsonRow]:
    """Rows of one file, which is read while they are consumed. Raises SourceError."""
    with file.open() as log:
        context = _RecordContext(log, file)
        for columns, damage, bytes_of in chunks_of(log, file, options):
            spans: list[tuple[int, list[int] | Damage]] = [(column[BatchColumn.POSITION], column) for column in columns]
            spans += [(damaged.position, damaged) for damaged in damage]
            spans.sort(key=lambda span: span[0])  # stable: at one position the batch comes first
            for position, span in spans:
                if isinstance(span, Damage):
                    yield damage_row(span, options)
                elif not options.records:
                    yield batch_row(span)
                else:
                    yield from _record_rows(span, bytes_of(position, span[BatchColumn.SIZE_IN_BYTES]), options, context)


def log_runs(file: DumpFile, options: DumpOptions) -> "Iterator[JsonRow | pa.RecordBatch]":
    """The rows of `log_rows` for records, with consecutive records of sound batches as one record batch of the same columns.

    They are rows alone if kernels are not compiled, the file cannot be read at any position, or Kafka gives its records a meaning
    (`teller`). Raises SourceError.
    """
    if not using_compiled() or not file.source.seekable or record_describer(file.topic) is not None:
        yield from log_rows(file, options)
        return
    with file.open() as log:
        context = _RecordContext(log, file)
        reader = SegmentReader(log, max_plausible_offset=file.reach, inspect=BatchChecks(deep=False))
        for chunk in chunks_until(reader, _start(log, file, options), log.size_in_bytes, options.offset_end):
            first = 0
            for damaged in sorted(chunk.damage, key=lambda damaged: damaged.position):
                behind = int(np.searchsorted(chunk.columns[BatchColumn.POSITION], damaged.position, side="right"))
                yield from _runs(log, chunk.columns[:, first:behind], options, context)
                first = behind
                if damaged.base_offset < 0 or options.overlaps(damaged.base_offset, damaged.last_offset):
                    yield damage_row(damaged, options)
            yield from _runs(log, chunk.columns[:, first:], options, context)


def _runs(
    log: "ByteFile", batches: "NDArray[np.int64]", options: DumpOptions, context: "_RecordContext"
) -> "Iterator[JsonRow | pa.RecordBatch]":
    wanted = options.overlapping(batches[BatchColumn.BASE_OFFSET], batches[BatchColumn.LAST_OFFSET])
    is_control = (batches[BatchColumn.MAGIC] >= 2) & (batches[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0)
    one_by_one = is_control | (batches[BatchColumn.SIZE_IN_BYTES] > MAX_BATCH_BYTES) | (not gather_records.is_ready())
    edges = [0, *(np.flatnonzero(np.diff(one_by_one)) + 1).tolist(), batches.shape[1]]
    for first, behind in pairwise(edges):
        rows = np.flatnonzero(wanted[first:behind]) + first
        if rows.size and one_by_one[first]:
            for column in batches[:, rows].T.tolist():
                size = column[BatchColumn.SIZE_IN_BYTES]
                batch = log.read_at(column[BatchColumn.POSITION], size) if size <= MAX_BATCH_BYTES else None
                yield from _record_rows(column, batch, options, context)
        elif rows.size:
            states = context.states(batches, rows)
            for block in valid_blocks(batches, rows, log.read_at):
                if isinstance(block, RecordBlock):
                    yield _record_table(block, batches, states, options)
                else:
                    row, whole = block
                    yield from _record_rows(batches[:, row].tolist(), bytes(whole), options, context)


def _record_table(
    block: RecordBlock, batches: "NDArray[np.int64]", states: "NDArray[np.int8]", options: DumpOptions
) -> "pa.RecordBatch":
    """The selected records of a block in the columns of `log_columns`; values that a batch shares are dictionaries."""
    import pyarrow as pa

    from kafka_forensics.model.arrow import numbers, strings_array
    from kafka_forensics.scanning.rereading.record_columns import byte_strings, header_lists, texts_by_index

    rows, of_row = np.unique(block.batches, return_inverse=True)
    fields = block.columns.copy()  # the next block overwrites them while these are formatted

    def of_batch(values: "ArrowArray") -> "ArrowArray":
        return pa.DictionaryArray.from_arrays(numbers(of_row.astype(np.int32)), values)

    def same(values: "ArrowArray") -> "ArrowArray":
        return pa.DictionaryArray.from_arrays(numbers(np.zeros(len(of_row), np.int32)), values)

    batches = batches[:, rows]
    transactional = (batches[BatchColumn.MAGIC] >= 2) & (batches[BatchColumn.ATTRIBUTES] & TRANSACTIONAL_MASK != 0)
    columns = {
        "span": same(strings_array(["record"])),
        "position": of_batch(numbers(batches[BatchColumn.POSITION])),
        "size_in_bytes": numbers(fields[RecordColumn.SIZE_IN_BYTES]),
        "offset": numbers(block.offsets),
        "timestamp": numbers(block.timestamps),
        "timestamp_type": texts_by_index(block.timestamp_types, RECORD_TIMESTAMP_TYPES),
        "partition_leader_epoch": of_batch(numbers(batches[BatchColumn.PARTITION_LEADER_EPOCH])),
        "is_transactional": of_batch(numbers(transactional)),
        "producer_id": of_batch(numbers(batches[BatchColumn.PRODUCER_ID])),
        "producer_epoch": of_batch(numbers(batches[BatchColumn.PRODUCER_EPOCH])),
        "sequence": numbers(block.sequences),
        "key_size": numbers(fields[RecordColumn.KEY_LENGTH]),
        "value_size": numbers(fields[RecordColumn.VALUE_LENGTH]),
        "headers_count": numbers(fields[RecordColumn.HEADERS_COUNT]),
        "is_valid": of_batch(numbers(has_right_crc(batches))),
        "control_record_type": same(pa.nulls(1)),
        "coordinator_epoch": same(pa.nulls(1)),
        "txn_state": of_batch(texts_by_index(states[rows], STATES)),
        "detail": same(pa.nulls(1)),
    }
    if options.show_payloads:
        assert block.payload is not None
        key, value = RecordColumn.KEY_POSITION, RecordColumn.VALUE_POSITION
        columns["key"] = byte_strings(block.payload, fields[key], fields[RecordColumn.KEY_LENGTH])
        columns["value"] = byte_strings(block.payload, fields[value], fields[RecordColumn.VALUE_LENGTH])
        columns["headers"] = header_lists(block.payload, fields)
    table = pa.RecordBatch.from_pydict(columns)
    wanted = options.overlapping(block.offsets, block.offsets)
    return table if wanted.all() else table.filter(numbers(wanted))


def chunks_of(log: "ByteFile", file: DumpFile, options: DumpOptions) -> Iterator[tuple[list[list[int]], list[Damage], BytesOf]]:
    """(batches as lists by BatchColumn, damage, function that returns a batch's bytes) of each chunk of the file.

    Only batches with a selected offset are returned; reading begins where the offset index says and ends after them.
    """
    kept: dict[int, bytes] = {}
    open_wrappers = BatchChecks(deep=False)

    def inspect(buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> list[Damage]:
        if options.records:
            for start, size in columns[: BatchColumn.SIZE_IN_BYTES + 1, first:end].T.tolist():
                kept[start] = buffer[start - position : start - position + size].tobytes()
        return open_wrappers(buffer, position, columns, first, end)

    def bytes_of(position: int, size: int) -> bytes | None:
        held = kept.get(position)
        if held is None and size <= MAX_BATCH_BYTES:
            held = log.read_at(position, size)
        return held

    holds = options.records and not isinstance(log, CollectedLog)
    reader = SegmentReader(log, file.reach, inspect=inspect if holds else open_wrappers)
    for chunk in chunks_until(reader, _start(log, file, options), log.size_in_bytes, options.offset_end):
        wanted = options.overlapping(chunk.columns[BatchColumn.BASE_OFFSET], chunk.columns[BatchColumn.LAST_OFFSET])
        damage = [
            damaged
            for damaged in chunk.damage
            if damaged.base_offset < 0 or options.overlaps(damaged.base_offset, damaged.last_offset)
        ]
        yield chunk.columns[:, wanted].T.tolist(), damage, bytes_of
        kept.clear()


def _start(log: "ByteFile", file: DumpFile, options: DumpOptions) -> int:
    if options.offset_start is None or not file.source.seekable or (index := file.open_index()) is None:
        return 0
    with index:
        return start_position(log, index, file.base_offset, options.offset_start)


def batch_row(column: list[int]) -> JsonRow:
    """The row of a batch, which is ordered as in BatchColumn."""
    (position, size, base_offset, last_offset, delta, epoch, magic, crc, crc_computed, attributes) = column[:10]
    (base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count, control_type, coordinator_epoch) = column[
        10:18
    ]
    since_2 = magic >= 2
    is_control = since_2 and bool(attributes & CONTROL_MASK)
    return (
        "batch",
        position,
        size,
        base_offset,
        last_offset,
        count,
        epoch,
        magic,
        compression_name(attributes),
        TIMESTAMP_TYPES[bool(attributes & TIMESTAMP_TYPE_MASK)] if magic else NO_TIMESTAMP_TYPE,
        base_timestamp,
        max_timestamp,
        since_2 and bool(attributes & TRANSACTIONAL_MASK),
        is_control,
        base_timestamp if since_2 and attributes & DELETE_HORIZON_MASK else None,
        producer_id,
        producer_epoch,
        base_sequence,
        (base_sequence + delta) & MAX_SEQUENCE if base_sequence >= 0 else -1,
        crc,
        crc == crc_computed,
        control_record_name(control_type) if is_control and control_type >= 0 else None,
        coordinator_epoch if is_control and control_type in {0, 1} else None,
        None,
    )


def damage_row(damage: Damage, options: DumpOptions) -> JsonRow:
    """The row of a damaged place; among records its offsets are part of `detail`."""
    if not options.records:
        known = (damage.base_offset, damage.last_offset) if damage.base_offset >= 0 else (None, None)
        empty = (None,) * (len(BATCH_COLUMNS) - 6)
        return (damage.kind, damage.position, damage.size_in_bytes, *known, *empty, damage.detail)
    detail = dict(damage.detail)
    if damage.base_offset >= 0:
        detail |= {"base_offset": damage.base_offset, "last_offset": damage.last_offset}
    empty = (None,) * (len(RECORD_COLUMNS) - 4)
    payload = (None,) * len(PAYLOAD_COLUMNS) if options.show_payloads else ()
    return (damage.kind, damage.position, damage.size_in_bytes, *empty, detail, *payload)


class _RecordContext:
    """What the bytes of a record do not show: how its transaction ended, and, in internal topics, what key and value mean.

    The markers of the file are read at the first record of a transaction.
    """

    def __init__(self, log: "ByteFile", file: DumpFile) -> None:
        self._states = cache(partial(RecordStates, log, log_continues=file.log_continues, max_plausible_offset=file.reach))
        self._describe = record_describer(file.topic)

    def state(self, column: list[int], *, is_valid: bool) -> str:
        """The transaction state of the records of a batch; unknown if its CRC is wrong, whatever its attributes are."""
        if not is_valid:
            return UNKNOWN
        attributes, producer_id = transaction_facts(column)
        if not attributes & TRANSACTIONAL_MASK:
            return NONE
        return self._states().state(attributes, producer_id, column[BatchColumn.POSITION])

    def states(self, batches: "NDArray[np.int64]", rows: "NDArray[np.int64]") -> "NDArray[np.int8]":
        """Numbers in STATES of the records of these rows of a (BATCH_COLUMNS, n) matrix, one for each column."""
        states = np.full(batches.shape[1], STATES.index(UNKNOWN), np.int8)
        good = rows[has_right_crc(batches[:, rows])]
        has_transactions = in_transactions(batches[:, good]).any()
        states[good] = self._states().of_batches(batches[:, good]) if has_transactions else STATES.index(NONE)
        return states

    def meaning(self, record: Record, *, payloads: bool) -> Json | None:
        """The fields of an internal topic's record, None in any other topic."""
        return None if self._describe is None else self._describe(record.key, record.value, payloads)


def _record_rows(column: list[int], batch: bytes | None, options: DumpOptions, context: _RecordContext) -> Iterator[JsonRow]:
    """Rows of the selected records of one batch, and of the damage inside it."""
    position = column[BatchColumn.POSITION]
    if batch is None:
        too_large = Damage("BUDGET_EXCEEDED", position, column[BatchColumn.SIZE_IN_BYTES], detail={"reason": "batch"})
        yield damage_row(too_large, options)
        return
    magic, attributes = column[BatchColumn.MAGIC], column[BatchColumn.ATTRIBUTES]
    is_control = magic >= 2 and bool(attributes & CONTROL_MASK)
    of_batch = (
        column[BatchColumn.PARTITION_LEADER_EPOCH],
        magic >= 2 and bool(attributes & TRANSACTIONAL_MASK),
        column[BatchColumn.PRODUCER_ID],
        column[BatchColumn.PRODUCER_EPOCH],
    )
    is_valid = column[BatchColumn.CRC] == column[BatchColumn.CRC_COMPUTED]
    decoded = decode_batch(batch, position=position)
    for record in decoded.iter_records():
        if not options.overlaps(record.offset, record.offset):
            continue
        name, coordinator_epoch, detail = (
            _control(record) if is_control else (None, None, context.meaning(record, payloads=options.show_payloads))
        )
        yield (
            "record",
            position,
            record.size_in_bytes,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            *of_batch,
            record.sequence,
            record.key_length,
            record.value_length,
            len(record.headers),
            is_valid,
            name,
            coordinator_epoch,
            context.state(column, is_valid=is_valid),
            detail,
            *((record.key, record.value, record.headers) if options.show_payloads else ()),
        )
    for problem in decoded.problems:
        yield damage_row(problem, options)


def _control(record: Record) -> tuple[str, int | None, Json | None]:
    """(type, coordinator epoch of a marker, other fields) of a control record."""
    control = parse_control_record(record.key, record.value)
    detail = {name: plain(value) for name, value in control.fields.items() if name != "tagged_fields"}
    if control.problem is not None:
        detail["problem"] = control.problem
    return control.name, control.coordinator_epoch, detail or None


def plain(value: object) -> object:
    """A field of a control record as JSON, with bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items() if name != "tagged_fields"}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
