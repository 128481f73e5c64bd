"""Arrays made of numbers and text equal those of pyarrow, without loading pandas."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_forensics.model.arrow import dictionary_array, numbers, plain, repeated_dictionary, repeated_string, strings_array


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.float64, np.bool_])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_numbers_become_the_array_of_pyarrow(kind: type, count: int) -> None:
    values: Any = np.random.default_rng(count).integers(0, 2 if kind is np.bool_ else 100, (count, 3)).astype(kind)
    null = np.random.default_rng(count).random(count) < 0.3
    for column in (values[:, 1], values[:, 1].copy(), values[::-1, 2]):
        assert numbers(column).equals(pa.array(column))
        assert numbers(column, null=null).equals(pa.array(column, mask=null))
        assert numbers(column, null=np.zeros(count, np.bool_)).null_count == 0


@pytest.mark.parametrize("values", [[], [""], ["a", "", "\u00e9\u4e2d", "\u0000"], [str(number) for number in range(100)]])
def test_texts_become_the_array_of_pyarrow(values: list[str]) -> None:
    array = strings_array(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.string()))


@pytest.mark.parametrize("indices", [[], [1], [2, 2, 2], [0, 2, 1, 0]])
def test_a_dictionary_array_has_the_texts_of_its_indices(indices: list[int]) -> None:
    dictionary = ("", "b", "\u00e9")
    array = dictionary_array(np.array(indices, np.int8), dictionary)
    array.validate(full=True)
    assert pa.types.is_dictionary(array.type)
    assert plain(array).equals(pa.array([dictionary[index] for index in indices], pa.string()))


@pytest.mark.parametrize("text", ["", "a", "\u00e9\u4e2d"])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_a_repeated_text_is_in_every_row(text: str, rows: int) -> None:
    expected = pa.array([text] * rows, pa.string())
    assert pa.types.is_dictionary(repeated_dictionary(text, rows).type)
    for array in (repeated_string(text, rows), plain(repeated_dictionary(text, rows)), plain(expected)):
        array.validate(full=True)
        assert array.equals(expected)


def test_nulls_of_a_dictionary_stay_nulls() -> None:
    assert plain(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist() == ["a", None, "a"]
