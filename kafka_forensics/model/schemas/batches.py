"""Batches and records as Arrow: what leaves the house, in Parquet, notebooks and Spark alike, derives from these."""

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.schemas.columns import IN_FILE, column, fact, maybe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NONE: Final = "-1: none"
_COLUMNS: Final[dict[BatchColumn, tuple[pa.DataType, str]]] = {
    BatchColumn.POSITION: (pa.int64(), "byte at which the batch begins in its file"),
    BatchColumn.SIZE_IN_BYTES: (pa.int64(), "the whole batch: `batch_length` + 12"),
    BatchColumn.BASE_OFFSET: (pa.int64(), "first offset; compaction keeps it"),
    BatchColumn.LAST_OFFSET: (pa.int64(), "last offset, inclusive"),
    BatchColumn.LAST_OFFSET_DELTA: (pa.int32(), "`last_offset` - `base_offset` as stored"),
    BatchColumn.PARTITION_LEADER_EPOCH: (pa.int32(), f"epoch of the leader that appended it, outside the CRC; {_NONE}"),
    BatchColumn.MAGIC: (pa.int16(), "format: 0, 1 or 2"),
    BatchColumn.CRC: (pa.uint32(), "CRC as stored"),
    BatchColumn.CRC_COMPUTED: (pa.uint32(), "CRC of the bytes that are there"),
    BatchColumn.ATTRIBUTES: (pa.int16(), "bits: 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon"),
    BatchColumn.BASE_TIMESTAMP: (pa.int64(), f"ms since 1970; the delete horizon if bit 6 is set; {_NONE}"),
    BatchColumn.MAX_TIMESTAMP: (pa.int64(), f"ms since 1970; {_NONE}"),
    BatchColumn.PRODUCER_ID: (pa.int64(), _NONE),
    BatchColumn.PRODUCER_EPOCH: (pa.int16(), _NONE),
    BatchColumn.BASE_SEQUENCE: (pa.int32(), _NONE),
    BatchColumn.RECORDS_COUNT: (pa.int32(), "as stored; fewer than the offsets after compaction"),
    BatchColumn.CONTROL_RECORD_TYPE: (pa.int16(), "of the first control record (0 ABORT, 1 COMMIT, ...); -1: no control batch"),
    BatchColumn.COORDINATOR_EPOCH: (pa.int32(), "of an ABORT or COMMIT marker, else -1"),
}
"""All but the two hash columns, which mean something only within one scan."""

_BATCH_FIELDS: Final[Any] = [column(which.name.lower(), kind, about) for which, (kind, about) in _COLUMNS.items()]
BATCHES: Final[pa.Schema] = pa.schema(_BATCH_FIELDS)
"""A batch a row: the columns of `BatchColumn`; -1 is "none", as in the file."""

_HEADER: Final[Any] = pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
_RECORD_FIELDS: Final[Any] = [
    column("offset", pa.int64(), "of the record in its partition"),
    column("timestamp", pa.int64(), f"ms since 1970; {_NONE}"),
    column("timestamp_type", pa.string(), "CreateTime, LogAppendTime or NoTimestampType"),
    column("sequence", pa.int32(), _NONE),
    maybe("key", pa.binary(), "null and empty are different"),
    maybe("value", pa.binary(), "null and empty are different"),
    maybe("headers", pa.list_(_HEADER), "in order; null where payloads are left out"),
    column("batch_position", pa.int64(), "byte at which its batch begins in the file"),
    column("size_in_bytes", pa.int64(), "of the record, decompressed"),
    column("key_length", pa.int64(), "bytes of the key, -1 for null; also where the key itself is left out"),
    column("value_length", pa.int64(), "bytes of the value, -1 for null; also where the value itself is left out"),
    column("is_oversized", pa.bool_(), "the record is too large to be held: key, value and headers are left out"),
    column(
        "txn_state", pa.string(), "none, committed, aborted, open (no marker in the log) or unknown (its marker may be elsewhere)"
    ),
]
RECORDS: Final[pa.Schema] = pa.schema(_RECORD_FIELDS)
"""A record a row; null and empty keys and values are told apart."""

BATCHES_FACT: Final = fact(
    "batches",
    "Every batch of every `.log`, those with a wrong CRC included; what is no batch is in `spans`.",
    [*IN_FILE, *_BATCH_FIELDS],
)
RECORDS_FACT: Final = fact(
    "records",
    "Every record of every batch with a right CRC, control records included, as far as it can be read.",
    [*IN_FILE, *_RECORD_FIELDS],
)


def batches_to_arrow(columns: "NDArray[np.int64]") -> pa.RecordBatch:
    """The (BATCH_COLUMNS, n) matrix of a chunk as Arrow; int64 columns share no memory with it, as chunks are used again."""
    return pa.RecordBatch.from_arrays(batch_arrays(columns), schema=BATCHES)


def batch_arrays(columns: "NDArray[np.int64]") -> list[Any]:
    """The arrays of `batches_to_arrow`, one for each column."""
    arrays = []
    for which, (kind, _) in _COLUMNS.items():
        values = columns[which].copy()
        arrays.append(pa.array(values) if kind == pa.int64() else pa.array(values).cast(kind))
    return arrays
