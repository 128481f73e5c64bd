"""Numbers and words as Arrow's arrays.

`pyarrow.array` asks pandas whether what it got is of pandas, and where that is installed loads it first, for a quarter of a second.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    ArrowArray = pa.Array[Any]


def numbers(values: "NDArray[np.generic]", *, null: "NDArray[np.bool_] | None" = None) -> "ArrowArray":
    """Numbers or truths as they are in memory, which they share if they follow each other; those of `null` are null."""
    count = len(values)
    valid = None if null is None or not null.any() else _bits(~null)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), count, [valid, _bits(values.astype(np.bool_, copy=False))])
    held = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), count, [valid, pa.py_buffer(held.data)])


def words(values: Sequence[str]) -> "ArrowArray":
    """Texts as an array of strings."""
    held = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, held)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(held), [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(held))])


def few_words(indices: "NDArray[Any]", spelled: Sequence[str], *, null: "NDArray[np.bool_] | None" = None) -> "ArrowArray":
    """The word of each number, as a dictionary: a column of a few words that come again and again costs a number a row. Those of
    `null` are null, whatever their numbers."""
    known = null is None or not null.any()
    if known and len(indices) and (indices == indices[0]).all():
        return one_word(spelled[int(indices[0])], len(indices))
    return pa.DictionaryArray.from_arrays(numbers(indices.astype(np.int32), null=null), words(spelled))


def one_word(word: str, rows: int) -> "ArrowArray":
    """The same word in all `rows`, as a dictionary."""
    return pa.DictionaryArray.from_arrays(numbers(np.zeros(rows, np.int32)), words([word]))


def plain(array: "ArrowArray") -> "ArrowArray":
    """The array without a dictionary."""
    if not isinstance(array, pa.DictionaryArray):
        return array
    if len(array.dictionary) == 1 and not array.null_count:
        return same_word(array.dictionary[0].as_py(), len(array))
    return array.dictionary_decode()


def same_word(word: str, rows: int) -> "ArrowArray":
    """The same word in all `rows`, as an array of strings."""
    held = word.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * len(held)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends.data), pa.py_buffer(held * rows)])


def _bits(truths: "NDArray[np.bool_]") -> pa.Buffer:
    return pa.py_buffer(np.packbits(truths, bitorder="little").data)
