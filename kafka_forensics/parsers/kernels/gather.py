"""Records of many small batches in one matrix, so that what is done with records need not be done batch by batch."""

from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.compiled import kernel
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels.records import COUNT_LIE, OK, scan_records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = NDArray[np.int64]

_ALL: Final = True
_OVERHEAD: Final = RECORD_BATCH_OVERHEAD
_POSITION: Final = int(BatchColumn.POSITION)
_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_RECORDS_COUNT: Final = int(BatchColumn.RECORDS_COUNT)


@kernel
def gather_records(
    buffer: Any,
    buffer_position: int,
    columns: "Columns",
    wanted: "NDArray[np.bool_]",
    first: int,
    end: int,
    out: "Columns",
    batch_of: "Columns",
) -> tuple[int, int, int]:
    """Write the records of the wanted batches of rows `[first, end)` to the columns of `out`: (row it stopped at, records, code).

    The batches are of magic 2 and not compressed, their bytes lie in `buffer` (see `readable`), whose first is byte
    `buffer_position` of the file. `wanted` has an entry for each row of `columns`, `batch_of` room for the row of every record;
    positions of records count in `buffer`. It stops at a batch that is not right, with an error code, or at one for which there is
    no room, with FULL; of neither anything is given.
    """
    records = 0
    for row in range(first, end):
        if not wanted[row]:
            continue
        start = int(columns[_POSITION, row]) - buffer_position
        last = start + int(columns[_SIZE, row])
        found, code, _ = scan_records(buffer, start + _OVERHEAD, last, _ALL, out[:, records:], 1)
        if code == OK and found != columns[_RECORDS_COUNT, row]:
            code = COUNT_LIE
        if code != OK:
            return row, records, code
        for index in range(records, records + found):
            batch_of[index] = row
        records += found
    return end, records, OK
