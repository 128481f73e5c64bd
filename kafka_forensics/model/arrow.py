"""Arrow arrays from numpy arrays and strings, without a copy where possible, and the type of times.

`pyarrow.array` would load pandas to check its input, which takes a quarter of a second where pandas is installed.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    ArrowArray = pa.Array[Any]

DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
"""Of text that many rows share."""
TIME: Final = pa.timestamp("ms", tz="UTC")
"""Of every time in a fact."""
NO_TIME: Final = -1
"""Kafka's "no timestamp"."""
_DAY_MS: Final = 86_400_000
FIRST_TIME_MS: Final = -62_135_596_800_000 + 2 * _DAY_MS
LAST_TIME_MS: Final = 253_402_300_799_999 - _DAY_MS
"""Calendars have the years 1 to 9999; a day or two less, because each time must be valid in every time zone."""


def numbers(values: "NDArray[np.generic]", *, null: "NDArray[np.bool_] | None" = None) -> "ArrowArray":
    """Numbers or booleans as an array, which shares memory with contiguous numbers; those at `null` are null."""
    count = len(values)
    valid = None if null is None or not null.any() else _bits(~null)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), count, [valid, _bits(values.astype(np.bool_, copy=False))])
    contiguous = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_arrow_type(values.dtype), count, [valid, pa.py_buffer(contiguous.data)])


_arrow_type: Final = cache(pa.from_numpy_dtype)


def times(milliseconds: "NDArray[np.int64]", *, null: "NDArray[np.bool_] | None" = None) -> "ArrowArray":
    """Milliseconds since 1970 as `TIME`; null at `null`, where there is no time (-1), and for times that no calendar holds."""
    no_time = (milliseconds == NO_TIME) | (milliseconds < FIRST_TIME_MS) | (milliseconds > LAST_TIME_MS)
    return numbers(milliseconds, null=no_time if null is None else no_time | null).view(TIME)


def time_or_none(milliseconds: int | None) -> int | None:
    """The milliseconds of a time as `times` takes it: None where that is null."""
    if milliseconds is None or milliseconds == NO_TIME or not FIRST_TIME_MS <= milliseconds <= LAST_TIME_MS:
        return None
    return milliseconds


def strings_array(values: Sequence[str]) -> "ArrowArray":
    """Strings as an array."""
    encoded = [value.encode() for value in values]
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), np.int32, len(encoded) + 1)
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(encoded))])


def dictionary_array(indices: "NDArray[Any]", spelled: Sequence[str], *, null: "NDArray[np.bool_] | None" = None) -> "ArrowArray":
    """A dictionary array: the string of `spelled` at each index. Those at `null` are null, whatever their indices."""
    has_nulls = null is not None and null.any()
    if not has_nulls and len(indices) and (indices == indices[0]).all():
        return repeated_dictionary(spelled[int(indices[0])], len(indices))
    return pa.DictionaryArray.from_arrays(numbers(indices.astype(np.int32), null=null), strings_array(spelled))


def repeated_dictionary(word: str, rows: int) -> "ArrowArray":
    """The same string in all `rows`, as a dictionary array."""
    return pa.DictionaryArray.from_arrays(_zeros(rows), _one_string(word))


@lru_cache(maxsize=8)  # most small batches have one of few numbers of rows, and share names
def _zeros(count: int) -> "ArrowArray":
    return numbers(np.zeros(count, np.int32))


@lru_cache(maxsize=64)
def _one_string(word: str) -> "ArrowArray":
    return strings_array([word])


def plain(array: "ArrowArray") -> "ArrowArray":
    """The array without a dictionary."""
    if not isinstance(array, pa.DictionaryArray):
        return array
    if len(array.dictionary) == 1 and not array.null_count:
        return repeated_string(array.dictionary[0].as_py(), len(array))
    return array.dictionary_decode()


def repeated_string(word: str, rows: int) -> "ArrowArray":
    """The same string in all `rows`, as an array of strings."""
    encoded = word.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * len(encoded)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends.data), pa.py_buffer(encoded * rows)])


def _bits(booleans: "NDArray[np.bool_]") -> pa.Buffer:
    return pa.py_buffer(np.packbits(booleans, bitorder="little").data)
