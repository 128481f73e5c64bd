"""The identities of batches that stand in columns alone, as the walk makes them of bytes."""

from typing import TYPE_CHECKING, Final

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.parsers.kernels.crc import identity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = NDArray[np.int64]

_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_BASE_OFFSET: Final = int(BatchColumn.BASE_OFFSET)
_LAST_OFFSET: Final = int(BatchColumn.LAST_OFFSET)
_EPOCH: Final = int(BatchColumn.PARTITION_LEADER_EPOCH)
_MAGIC: Final = int(BatchColumn.MAGIC)
_CRC: Final = int(BatchColumn.CRC)
_CRC_COMPUTED: Final = int(BatchColumn.CRC_COMPUTED)
_HASH_HIGH: Final = int(BatchColumn.HASH_HIGH)
_HASH_LOW: Final = int(BatchColumn.HASH_LOW)


@kernel
def fill_identities(columns: "Columns", written: "Columns", keys: "Columns") -> None:
    """Fill the two rows of hashes of a (BATCH_COLUMNS, n) matrix; `written`, (1, n), are the offsets that entries of magic 0 and 1
    bear, and `keys` holds the two halves of the scan's hash key (`walk.fill_row`, `walk.fill_legacy_row`)."""
    for row in range(columns.shape[1]):
        crc = int(columns[_CRC, row])
        checks = (crc & 0x7FFFFFFF) * 4294967296 + int(columns[_CRC_COMPUTED, row])
        magic, size = int(columns[_MAGIC, row]), int(columns[_SIZE, row])
        marks = ((magic & 0x7F) * 72057594037927936) ^ ((crc >> 31) * 36028797018963968)
        if magic < 2:
            offset = int(written[0, row])
            high, low = identity(offset, offset ^ marks, size, checks, keys[0, 0], keys[0, 1])
        else:
            place = (int(columns[_EPOCH, row]) & 0xFFFFFFFF) * 2147483648 + (size & 0x7FFFFFFF)
            kind = int(columns[_LAST_OFFSET, row]) ^ marks
            high, low = identity(int(columns[_BASE_OFFSET, row]), kind, place, checks, keys[0, 0], keys[0, 1])
        columns[_HASH_HIGH, row] = high
        columns[_HASH_LOW, row] = low
