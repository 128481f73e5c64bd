"""After damage: find the next batch by looking for a header that proves itself by its CRC.

The work is bounded: CRCs are computed over at most a few bytes for each byte searched (`budget`).
"""

from typing import TYPE_CHECKING, Final

from kafka_forensics.compiled import kernel
from kafka_forensics.parsers.kernels.crc import load_i16, load_i32, load_i64
from kafka_forensics.parsers.kernels.walk import proves_itself

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8]

FOUND: Final = 0
"""A batch that proves itself begins where the search stopped."""
PLAUSIBLE: Final = 1
"""A header that looks right begins there, but its batch does not end inside the window."""
EXHAUSTED: Final = 2
"""No header begins before where the search stopped."""


@kernel
def plausible_size(
    buffer: "Buffer", start: int, position: int, file_size: int, min_offset: int, max_offset: int, legacy: bool
) -> int:
    """Size of the batch whose header could stand at `start`, 0 if no sound header does; 61 bytes must be there.

    Its offsets must lie in `(min_offset, max_offset)`. Magic 0 and 1 are considered only where `legacy` says so.
    """
    magic = int(buffer[start + 16])
    if magic > 2 or (magic < 2 and not legacy):
        return 0
    size = load_i32(buffer, start + 8) + 12
    if size < (61 if magic == 2 else 26 + 8 * magic) or position + size > file_size:
        return 0
    base_offset = load_i64(buffer, start)
    if base_offset < 0 or base_offset >= max_offset:
        return 0
    if magic < 2:
        if base_offset <= min_offset or int(buffer[start + 17]) > 15:
            return 0
        return size
    delta = load_i32(buffer, start + 23)
    attributes = load_i16(buffer, start + 21)
    if delta < 0 or attributes < 0 or attributes > 127 or attributes & 7 > 4:
        return 0
    if base_offset > max_offset - 1 - delta or base_offset <= min_offset:
        return 0
    return size


@kernel
def search(
    buffer: "Buffer",
    start: int,
    length: int,
    file_position: int,
    file_size: int,
    min_offset: int,
    max_offset: int,
    legacy: bool,
    budget: int,
) -> tuple[int, int, int, int]:
    """Look for the next batch in `buffer[start:length]`.

    Answers (where, FOUND | PLAUSIBLE | EXHAUSTED, budget left, headers passed over because their batch costs more than is left).
    """
    refused = 0
    while start + 61 <= length:
        size = plausible_size(buffer, start, file_position + start, file_size, min_offset, max_offset, legacy)
        if size > budget:
            refused += 1
        elif size > 0:
            if start + size > length:
                return start, PLAUSIBLE, budget, refused
            budget -= size
            if proves_itself(buffer, start, size):
                return start, FOUND, budget, refused
        start += 1
    return start, EXHAUSTED, budget, refused


@kernel
def longest_zero_run(buffer: "Buffer", start: int, end: int) -> int:
    """Length of the longest run of zero bytes in `buffer[start:end]`."""
    longest = 0
    run = 0
    for index in range(start, end):
        if buffer[index] == 0:
            run += 1
            if run > longest:
                longest = run
        else:
            run = 0
    return longest
