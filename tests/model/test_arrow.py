"""Numbers and words as Arrow's arrays are what pyarrow makes of them, and load no pandas."""

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_forensics.model.arrow import numbers, words


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.float64, np.bool_])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_numbers(kind: type, count: int) -> None:
    values: Any = np.random.default_rng(count).integers(0, 2 if kind is np.bool_ else 100, (count, 3)).astype(kind)
    null = np.random.default_rng(count).random(count) < 0.3
    for of_one in (values[:, 1], values[:, 1].copy(), values[::-1, 2]):
        assert numbers(of_one).equals(pa.array(of_one))
        assert numbers(of_one, null=null).equals(pa.array(of_one, mask=null))
        assert numbers(of_one, null=np.zeros(count, np.bool_)).null_count == 0


@pytest.mark.parametrize("values", [[], [""], ["a", "", "\u00e9\u4e2d", "\u0000"], [str(number) for number in range(100)]])
def test_words(values: list[str]) -> None:
    array = words(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.string()))


def test_pandas_is_not_loaded_for_them() -> None:
    program = (
        "import sys, numpy as np; from kafka_forensics.model.arrow import numbers, words;"
        "numbers(np.arange(3), null=np.arange(3) > 1), words(['a']); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
