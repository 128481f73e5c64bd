"""Identity hashes of batches that are known by their columns only; `walk` computes the same from bytes."""

from typing import TYPE_CHECKING

from kafka_forensics.parsers.kernels import batch_column
from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.parsers.kernels.crc import identity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = NDArray[np.int64]


@kernel
def fill_identities(columns: "Columns", stored_offsets: "Columns", keys: "Columns") -> None:
    """Fill the two rows of hashes of a (BATCH_COLUMNS, n) matrix.

    `stored_offsets`, (1, n), are the offsets in entries of magic 0 and 1; `keys` holds the two halves of the scan's hash key.
    """
    for row in range(columns.shape[1]):
        crc = int(columns[batch_column.CRC, row])
        checks = (crc & 0x7FFFFFFF) * 4294967296 + int(columns[batch_column.CRC_COMPUTED, row])
        magic, size = int(columns[batch_column.MAGIC, row]), int(columns[batch_column.SIZE_IN_BYTES, row])
        marks = ((magic & 0x7F) * 72057594037927936) ^ ((crc >> 31) * 36028797018963968)
        if magic < 2:
            offset = int(stored_offsets[0, row])
            high, low = identity(offset, offset ^ marks, size, checks, keys[0, 0], keys[0, 1])
        else:
            place = (int(columns[batch_column.PARTITION_LEADER_EPOCH, row]) & 0xFFFFFFFF) * 2147483648 + (size & 0x7FFFFFFF)
            kind = int(columns[batch_column.LAST_OFFSET, row]) ^ marks
            high, low = identity(int(columns[batch_column.BASE_OFFSET, row]), kind, place, checks, keys[0, 0], keys[0, 1])
        columns[batch_column.HASH_HIGH, row] = high
        columns[batch_column.HASH_LOW, row] = low
