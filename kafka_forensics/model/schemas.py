"""Arrow schemas of the facts: what leaves the house, in Parquet, notebooks and Spark alike, derives from these."""

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafka_forensics.model.batches import BatchColumn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NARROW: Final[dict[BatchColumn, pa.DataType]] = {
    BatchColumn.SIZE_IN_BYTES: pa.int32(),
    BatchColumn.LAST_OFFSET_DELTA: pa.int32(),
    BatchColumn.PARTITION_LEADER_EPOCH: pa.int32(),
    BatchColumn.MAGIC: pa.int16(),
    BatchColumn.CRC: pa.uint32(),
    BatchColumn.CRC_COMPUTED: pa.uint32(),
    BatchColumn.ATTRIBUTES: pa.int16(),
    BatchColumn.PRODUCER_EPOCH: pa.int16(),
    BatchColumn.BASE_SEQUENCE: pa.int32(),
    BatchColumn.RECORDS_COUNT: pa.int32(),
    BatchColumn.CONTROL_RECORD_TYPE: pa.int16(),
    BatchColumn.COORDINATOR_EPOCH: pa.int32(),
}
_INSIDE: Final = frozenset({BatchColumn.HASH_HIGH, BatchColumn.HASH_LOW})
"""Columns that mean something only within one scan."""


def _batch_fields() -> Any:
    columns = [column for column in BatchColumn if column not in _INSIDE]
    return [pa.field(column.name.lower(), _NARROW.get(column, pa.int64()), nullable=False) for column in columns]


BATCHES: Final[pa.Schema] = pa.schema(_batch_fields())
"""A batch a row: the columns of `BatchColumn`; -1 is "none", as in the file."""

_RECORD_FIELDS: Final[Any] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.int64(), nullable=False),
    pa.field("timestamp_type", pa.string(), nullable=False),
    pa.field("sequence", pa.int32(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())]))),
    pa.field("batch_position", pa.int64(), nullable=False),
    pa.field("txn_state", pa.string(), nullable=False),
]
RECORDS: Final[pa.Schema] = pa.schema(_RECORD_FIELDS)
"""A record a row; null and empty keys and values are told apart.

`txn_state` is none, committed, aborted, open (no marker in the log) or unknown (its marker may be in lost bytes or in a
later segment).
"""


def batches_to_arrow(columns: "NDArray[np.int64]") -> pa.RecordBatch:
    """The (BATCH_COLUMNS, n) matrix of a chunk as Arrow; int64 columns share no memory with it, as chunks are used again."""
    arrays = [
        pa.array(columns[column].copy()).cast(BATCHES.field(column.name.lower()).type)
        for column in BatchColumn
        if column not in _INSIDE
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=BATCHES)
