"""Rows of a dump for files that hold batches: each batch, or each record in them, and each damaged place, in file order."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import (
    NO_TIMESTAMP_TYPE,
    PAYLOAD_COLUMNS,
    RECORD_TIMESTAMP_TYPES,
    TIMESTAMP_TYPES,
    BatchChunk,
    BatchColumn,
    Damage,
    Record,
    RecordColumn,
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
from kafka_forensics.parsers.internal_topics import teller
from kafka_forensics.parsers.kernels.compiling import using_compiled
from kafka_forensics.parsers.kernels.records import gather_records
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    RecordBlock,
    SegmentReader,
    decode_batch,
    inspector,
    parse_control_record,
    sound_blocks,
)
from kafka_forensics.questions.dump.inputs import BytesOf, DumpFile, DumpOptions
from kafka_forensics.scanning.rereading.record_states import NONE, STATES, UNKNOWN, RecordStates, in_transactions, txn_facts
from kafka_forensics.scanning.rereading.seeking import chunks_until, start_position
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from kafka_forensics.model.schemas import ArrowArray
    from kafka_forensics.storage.source import ByteFile

BATCH_COLUMNS: Final = (
    "span",
    "position",
    "size_in_bytes",
    "base_offset",
    "last_offset",
    "records_count",
    "partition_leader_epoch",
    "magic",
    "compression_type",
    "timestamp_type",
    "base_timestamp",
    "max_timestamp",
    "is_transactional",
    "is_control_batch",
    "delete_horizon_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
    "crc",
    "is_valid",
    "control_record_type",
    "coordinator_epoch",
    "detail",
)
"""Of a row for a batch, or for a damaged place: then `span` is the kind of damage."""
RECORD_COLUMNS: Final = (
    "span",
    "position",
    "size_in_bytes",
    "offset",
    "timestamp",
    "timestamp_type",
    "partition_leader_epoch",
    "is_transactional",
    "producer_id",
    "producer_epoch",
    "sequence",
    "key_size",
    "value_size",
    "headers_count",
    "is_valid",
    "control_record_type",
    "coordinator_epoch",
    "txn_state",
    "detail",
)
"""Of a row for a record; `position` is that of its batch, `size_in_bytes` its own after decompression."""


def log_columns(options: DumpOptions) -> tuple[str, ...]:
    """Columns of the rows that `log_rows` gives."""
    if not options.records:
        return BATCH_COLUMNS
    return (*RECORD_COLUMNS, *PAYLOAD_COLUMNS) if options.show_payloads else RECORD_COLUMNS


def log_rows(file: DumpFile, options: DumpOptions) -> Iterator[JsonRow]:
    """Rows of one file, read as they are asked for. Raises SourceError."""
    with file.open() as log:
        judge = _Judge(log, file)
        for columns, damage, bytes_of in chunks_of(log, file, options):
            pieces: list[tuple[int, list[int] | Damage]] = [(column[BatchColumn.POSITION], column) for column in columns]
            pieces += [(damaged.position, damaged) for damaged in damage]
            pieces.sort(key=lambda piece: piece[0])  # stable: of one position the batch comes first
            for position, piece in pieces:
                if isinstance(piece, Damage):
                    yield damage_row(piece, options)
                elif not options.records:
                    yield batch_row(piece)
                else:
                    size = piece[BatchColumn.SIZE_IN_BYTES]
                    yield from _record_rows(piece, bytes_of(position, size), options, judge)


def log_runs(file: DumpFile, options: DumpOptions) -> "Iterator[JsonRow | pa.RecordBatch]":
    """The rows of `log_rows`, of records, many that follow each other in sound batches as one record batch of the same columns.

    Only rows, where that is not worth its start, the file cannot be read at any place, or Kafka itself knows what records mean.
    Raises SourceError.
    """
    if not using_compiled() or not file.source.seekable or teller(file.topic) is not None:
        yield from log_rows(file, options)
        return
    with file.open() as log:
        judge = _Judge(log, file)
        for chunk in _chunks(log, file, options):
            yield from _runs_of_chunk(log, chunk, options, judge)


def _chunks(log: "ByteFile", file: DumpFile, options: DumpOptions) -> Iterator[BatchChunk]:
    reader = SegmentReader(log, max_plausible_offset=file.reach, inspect=inspector(deep=False))
    return chunks_until(reader, _start(log, file, options), log.size_in_bytes, options.offset_end)


def _runs_of_chunk(
    log: "ByteFile", chunk: BatchChunk, options: DumpOptions, judge: "_Judge"
) -> "Iterator[JsonRow | pa.RecordBatch]":
    first = 0
    for damaged in sorted(chunk.damage, key=lambda damaged: damaged.position):
        behind = int(np.searchsorted(chunk.columns[BatchColumn.POSITION], damaged.position, side="right"))
        yield from _runs(log, chunk.columns[:, first:behind], options, judge)
        first = behind
        if damaged.base_offset < 0 or options.overlaps(damaged.base_offset, damaged.last_offset):
            yield damage_row(damaged, options)
    yield from _runs(log, chunk.columns[:, first:], options, judge)


def _runs(
    log: "ByteFile", batches: "NDArray[np.int64]", options: DumpOptions, judge: "_Judge"
) -> "Iterator[JsonRow | pa.RecordBatch]":
    """Rows of the records of these batches that are asked for."""
    wanted = options.overlapping(batches[BatchColumn.BASE_OFFSET], batches[BatchColumn.LAST_OFFSET])
    is_control = (batches[BatchColumn.MAGIC] >= 2) & (batches[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0)
    alone = is_control | (batches[BatchColumn.SIZE_IN_BYTES] > MAX_BATCH_BYTES) | (not gather_records.is_ready())
    edges = [0, *(np.flatnonzero(np.diff(alone)) + 1).tolist(), batches.shape[1]]
    for first, behind in pairwise(edges):
        rows = np.flatnonzero(wanted[first:behind]) + first
        if not rows.size:
            continue
        if alone[first]:
            for row in rows.tolist():
                column = batches[:, row].tolist()
                size = column[BatchColumn.SIZE_IN_BYTES]
                batch = log.read_at(column[BatchColumn.POSITION], size) if size <= MAX_BATCH_BYTES else None
                yield from _record_rows(column, batch, options, judge)
            continue
        states = judge.states(batches, rows)
        for piece in sound_blocks(batches, rows, log.read_at):
            if isinstance(piece, RecordBlock):
                yield _record_table(piece, batches, states, options)
            else:
                row, whole = piece
                yield from _record_rows(batches[:, row].tolist(), bytes(whole), options, judge)


def _record_table(
    block: RecordBlock, batches: "NDArray[np.int64]", states: "NDArray[np.int8]", options: DumpOptions
) -> "pa.RecordBatch":
    """The records of a block that are asked for, in the columns of `log_columns`; what is one batch's alike is a dictionary."""
    import pyarrow as pa

    from kafka_forensics.model.arrow import numbers, words
    from kafka_forensics.scanning.rereading.record_columns import byte_strings, header_lists, words_by_number

    rows, of_row = np.unique(block.batches, return_inverse=True)

    def of_batch(values: "ArrowArray") -> "ArrowArray":
        return pa.DictionaryArray.from_arrays(numbers(of_row.astype(np.int32)), values)

    def same(values: "ArrowArray") -> "ArrowArray":
        return pa.DictionaryArray.from_arrays(numbers(np.zeros(len(of_row), np.int32)), values)

    own = batches[:, rows]
    transactional = (own[BatchColumn.MAGIC] >= 2) & (own[BatchColumn.ATTRIBUTES] & TRANSACTIONAL_MASK != 0)
    columns = {
        "span": same(words(["record"])),
        "position": of_batch(numbers(own[BatchColumn.POSITION])),
        "size_in_bytes": numbers(block.columns[RecordColumn.SIZE_IN_BYTES]),
        "offset": numbers(block.offsets),
        "timestamp": numbers(block.timestamps),
        "timestamp_type": words_by_number(block.timestamp_types, RECORD_TIMESTAMP_TYPES),
        "partition_leader_epoch": of_batch(numbers(own[BatchColumn.PARTITION_LEADER_EPOCH])),
        "is_transactional": of_batch(numbers(transactional)),
        "producer_id": of_batch(numbers(own[BatchColumn.PRODUCER_ID])),
        "producer_epoch": of_batch(numbers(own[BatchColumn.PRODUCER_EPOCH])),
        "sequence": numbers(block.sequences),
        "key_size": numbers(block.columns[RecordColumn.KEY_LENGTH]),
        "value_size": numbers(block.columns[RecordColumn.VALUE_LENGTH]),
        "headers_count": numbers(block.columns[RecordColumn.HEADERS_COUNT]),
        "is_valid": of_batch(numbers(own[BatchColumn.CRC] == own[BatchColumn.CRC_COMPUTED])),
        "control_record_type": same(pa.nulls(1)),
        "coordinator_epoch": same(pa.nulls(1)),
        "txn_state": of_batch(words_by_number(states[rows], STATES)),
        "detail": same(pa.nulls(1)),
    }
    if options.show_payloads:
        assert block.payload is not None
        for name, at, length in (
            ("key", RecordColumn.KEY_POSITION, RecordColumn.KEY_LENGTH),
            ("value", RecordColumn.VALUE_POSITION, RecordColumn.VALUE_LENGTH),
        ):
            columns[name] = byte_strings(block.payload, block.columns[at], block.columns[length])
        columns["headers"] = header_lists(block.payload, block.columns)
    table = pa.RecordBatch.from_pydict(columns)
    wanted = options.overlapping(block.offsets, block.offsets)
    return table if wanted.all() else table.filter(numbers(wanted))


def chunks_of(log: "ByteFile", file: DumpFile, options: DumpOptions) -> Iterator[tuple[list[list[int]], list[Damage], BytesOf]]:
    """(batches as lists by BatchColumn, damage, function that gives a batch's bytes or None) of portions of the file.

    Only batches that hold an offset asked for are given, and reading begins where the offset index says and ends behind them.
    """
    kept: dict[int, bytes] = {}
    open_wrappers = inspector(deep=False)

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
    reader = SegmentReader(log, max_plausible_offset=file.reach, inspect=inspect if holds else open_wrappers)
    for chunk in chunks_until(reader, _start(log, file, options), log.size_in_bytes, options.offset_end):
        columns = [column for column in chunk.columns.T.tolist() if _asked_for(column, options)]
        damage = [
            damaged
            for damaged in chunk.damage
            if damaged.base_offset < 0 or options.overlaps(damaged.base_offset, damaged.last_offset)
        ]
        yield columns, damage, bytes_of
        kept.clear()


def _start(log: "ByteFile", file: DumpFile, options: DumpOptions) -> int:
    if options.offset_start is None or not file.source.seekable:
        return 0
    index = file.sibling(".index")
    if index is None:
        return 0
    with index:
        return start_position(log, index, file.base_offset, options.offset_start)


def _asked_for(column: list[int], options: DumpOptions) -> bool:
    return options.overlaps(column[BatchColumn.BASE_OFFSET], column[BatchColumn.LAST_OFFSET])


def batch_row(column: list[int]) -> JsonRow:
    """The row of a batch, given by BatchColumn."""
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
        _timestamp_type(magic, attributes),
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


def _timestamp_type(magic: int, attributes: int) -> str:
    return TIMESTAMP_TYPES[bool(attributes & TIMESTAMP_TYPE_MASK)] if magic else NO_TIMESTAMP_TYPE


def damage_row(damage: Damage, options: DumpOptions) -> JsonRow:
    """The row of a damaged place; among records its offsets stand in `detail`."""
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


class _Judge:
    """What a record's own bytes do not say: how its transaction ended, and, of internal topics, what key and value mean.

    The file's markers are read when the first record of a transaction asks.
    """

    def __init__(self, log: "ByteFile", file: DumpFile) -> None:
        self._log, self._file = log, file
        self._states: RecordStates | None = None
        self._tell = teller(file.topic)

    def state(self, column: list[int], *, is_valid: bool) -> str:
        """The state of the records of a batch; of one whose CRC is wrong it is unknown, whatever its flags say."""
        if not is_valid:
            return UNKNOWN
        attributes, producer_id = txn_facts(column)
        if not attributes & TRANSACTIONAL_MASK:
            return NONE
        if self._states is None:
            self._states = RecordStates(self._log, goes_on=self._file.goes_on, max_plausible_offset=self._file.reach)
        return self._states.state(attributes, producer_id, column[BatchColumn.POSITION])

    def states(self, batches: "NDArray[np.int64]", rows: "NDArray[np.int64]") -> "NDArray[np.int8]":
        """The number in STATES of the records of each of these rows of a (BATCH_COLUMNS, n) matrix; of all others nothing."""
        answer = np.full(batches.shape[1], STATES.index(UNKNOWN), np.int8)
        good = rows[batches[BatchColumn.CRC, rows] == batches[BatchColumn.CRC_COMPUTED, rows]]
        if self._states is None and in_transactions(batches[:, good]).any():
            self._states = RecordStates(self._log, goes_on=self._file.goes_on, max_plausible_offset=self._file.reach)
        answer[good] = STATES.index(NONE) if self._states is None else self._states.of_batches(batches[:, good])
        return answer

    def meaning(self, record: Record, *, payloads: bool) -> Json | None:
        """The fields of an internal topic's record, None of any other topic."""
        return None if self._tell is None else self._tell(record.key, record.value, payloads)


def _record_rows(column: list[int], batch: bytes | None, options: DumpOptions, judge: _Judge) -> Iterator[JsonRow]:
    """Rows of the records of one batch that are asked for, and of what is wrong inside it."""
    position = column[BatchColumn.POSITION]
    if batch is None:
        yield damage_row(
            Damage("BUDGET_EXCEEDED", position, column[BatchColumn.SIZE_IN_BYTES], detail={"reason": "batch"}), options
        )
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
        control = _control(record) if is_control else (None, None, judge.meaning(record, payloads=options.show_payloads))
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
            *control[:2],
            judge.state(column, is_valid=is_valid),
            control[2],
            *((record.key, record.value, record.headers) if options.show_payloads else ()),
        )
    for problem in decoded.problems:
        yield damage_row(problem, options)


def _control(record: Record) -> tuple[str, int | None, Json | None]:
    """What a control record says: its type, the coordinator epoch of a marker, and what else stands in it."""
    control = parse_control_record(record.key, record.value)
    detail = {name: plain(value) for name, value in control.fields.items() if name != "tagged_fields"}
    if control.problem is not None:
        detail["problem"] = control.problem
    return control.name, control.coordinator_epoch, detail or None


def plain(value: object) -> object:
    """`value` of a control record as JSON knows it: bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items() if name != "tagged_fields"}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
