"""Records as Arrow columns, made from their bytes without a Python object for each record."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafka_forensics.model.arrow import dictionary_array, numbers, strings_array, times
from kafka_forensics.model.batches import RECORD_TIMESTAMP_TYPES, BatchColumn, RecordColumn
from kafka_forensics.model.schemas import RECORDS
from kafka_forensics.parsers.kernels.records import locate_headers
from kafka_forensics.parsers.log import RecordBlock, record_blocks
from kafka_forensics.scanning.rereading.record_states import STATES, RecordStates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafka_forensics.model.schemas import ArrowArray
    from kafka_forensics.parsers.kernels.records import Buffer
    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

_HEADERS: Final[Any] = RECORDS.field("headers").type


def record_arrays(
    file: "ByteFile", batches: "Ints", rows: "Ints", states: RecordStates, *, payloads: bool = True
) -> "Iterator[list[ArrowArray]]":
    """The columns of `RECORDS` for the records of rows of `batches`, a (BATCH_COLUMNS, n) matrix, thousands of records at a time.

    Text columns are dictionaries (`model.arrow.plain`). Without `payloads`, keys, values and headers are null. Raises SourceError.
    """
    of_batches = np.zeros(batches.shape[1], np.int8)
    of_batches[rows] = states.of_batches(batches[:, rows])
    for block in record_blocks(batches, rows, file.read_at):
        yield _arrays(block, batches, of_batches, payloads=payloads)


def _arrays(block: RecordBlock, batches: "Ints", states: "NDArray[np.int8]", *, payloads: bool) -> "list[ArrowArray]":
    columns = block.columns
    count = columns.shape[1]
    key_length, value_length = columns[RecordColumn.KEY_LENGTH].copy(), columns[RecordColumn.VALUE_LENGTH].copy()
    key: ArrowArray = pa.nulls(count, pa.binary())
    value, headers = key, pa.nulls(count, _HEADERS)
    if payloads and block.payload is None:
        headers = pa.array([[]] * count, _HEADERS)
    elif payloads and block.payload is not None:
        key = byte_strings(block.payload, columns[RecordColumn.KEY_POSITION], key_length)
        value = byte_strings(block.payload, columns[RecordColumn.VALUE_POSITION], value_length)
        headers = header_lists(block.payload, columns)
    return [
        numbers(block.offsets),
        times(block.timestamps),
        dictionary_array(block.timestamp_types, RECORD_TIMESTAMP_TYPES),
        numbers(block.sequences.astype(np.int32)),
        key,
        value,
        headers,
        numbers(batches[BatchColumn.POSITION][block.batches]),
        numbers(columns[RecordColumn.SIZE_IN_BYTES].copy()),
        numbers(key_length),
        numbers(value_length),
        numbers(np.full(count, block.payload is None)),
        dictionary_array(states[block.batches], STATES),
    ]


def texts_by_index(indices: "NDArray[np.int8]", spelled: tuple[str, ...]) -> "ArrowArray":
    """The texts at these indices of `spelled`."""
    return strings_array(spelled).take(numbers(indices))


def byte_strings(buffer: "Buffer", positions: "Ints", lengths: "Ints") -> "ArrowArray":
    """`buffer[position : position + length]` for each position as a binary array; a negative length is null.

    The slices must ascend and not overlap: they are every other element of an array over the buffer that needs no copy.
    """
    count = len(lengths)
    edges = np.empty(2 * count, np.int32)
    edges[::2] = positions
    edges[1::2] = positions + np.maximum(lengths, 0)
    source: Any = buffer
    pieces = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(edges.data), pa.py_buffer(source)])
    return pieces.take(numbers(np.arange(0, 2 * count, 2), null=lengths < 0))


def header_lists(buffer: "Buffer", columns: "Ints") -> "ArrowArray":
    """The headers of records by RecordColumn, as a list array."""
    counts = columns[RecordColumn.HEADERS_COUNT]
    places = np.empty((4, int(counts.sum())), np.int64)
    locate_headers(buffer, columns, places)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    key_and_value = [byte_strings(buffer, places[2 * part], places[2 * part + 1]) for part in range(2)]
    pairs = pa.StructArray.from_arrays(key_and_value, fields=list(_HEADERS.value_type))
    edges: Any = numbers(offsets)
    return pa.ListArray.from_arrays(edges, pairs)
