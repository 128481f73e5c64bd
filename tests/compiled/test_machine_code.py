"""Machine code: made once, found again without numba, refused where it is damaged or needs what no process has."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_forensics.compiled import compile_function
from kafka_forensics.compiled.code_cache import CodeCache
from kafka_forensics.compiled.machine_code import MachineCode


def weigh(values: Any, pair: Any, factor: Any) -> Any:
    """Sum of a matrix by row number, of two vectors, and how many items there are; the matrix is doubled in place."""
    heavy = 0
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            heavy += values[row, column] * row * factor
            values[row, column] *= 2
    left, right = pair
    return heavy, left.sum() - right.sum(), values.size


def nothing(values: Any) -> None:
    values[0] = 7


def positive(number: int) -> bool:
    return number > 0


def unsigned(number: int) -> Any:
    return np.uint64(number)


def allocating(number: int) -> int:
    return int(np.zeros(number, np.int64).sum())


def code(function: Any, kept: CodeCache | None = None) -> MachineCode:
    return MachineCode(function.__name__, lambda: compile_function(function), kept)


def never() -> Any:
    raise AssertionError("compiled again")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CodeCache:
    """Keeps code below the test's own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return CodeCache("0123456789abcdef")


@pytest.mark.parametrize("transposed", [False, True])
def test_arrays_of_any_strides_tuples_and_integers_arrive(transposed: bool) -> None:
    run = code(weigh)
    base = np.arange(60, dtype=np.int64).reshape(6, 10)
    for matrix in (base.copy(), base.copy()[1:4, 2:9:3]):
        values = matrix.T if transposed else matrix
        before = values.copy()
        vectors = (np.arange(5), np.arange(9)[::2])
        assert run(values, vectors, np.int64(3)) == weigh(before.copy(), vectors, 3)
        assert (values == 2 * before).all()


def test_answers_keep_their_types() -> None:
    values = np.zeros(3, np.uint8)
    assert code(nothing)(values) is None
    assert values[0] == 7
    assert [code(positive)(n) for n in (-1, 0, 1)] == [False, False, True]
    assert code(unsigned)(2**63 - 1) + code(unsigned)(-1) == 2**63 - 1 + 2**64 - 1


def test_read_only_and_empty_arrays_can_be_given() -> None:
    run = code(lambda values: values.size)
    assert run(np.frombuffer(b"abc", np.uint8)) == 3
    assert run(np.empty(0, np.uint8)) == 0


def test_code_that_needs_the_runtime_of_numba_runs_and_is_not_kept(kept: CodeCache, tmp_path: Path) -> None:
    run = code(allocating, kept)
    assert [run(3), run(5)] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_code_is_made_once_and_then_found(kept: CodeCache) -> None:
    assert code(positive, kept)(5) is True
    (name,) = kept.names()
    file = Path(kept.path(), name)
    assert MachineCode("positive", never, kept)(5) is True
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(AssertionError, match="compiled again"):
        MachineCode("positive", never, kept)(5)
    assert code(positive, kept)(5) is True
    assert MachineCode("positive", never, kept)(-5) is False
    assert os.listdir(kept.path()) == [name]


@pytest.mark.parametrize("length", [0, 31, 32, 40])
def test_a_file_cut_short_is_made_again(kept: CodeCache, length: int) -> None:
    assert code(positive, kept)(5) is True
    file = Path(kept.path(), *kept.names())
    file.write_bytes(file.read_bytes()[:length])
    assert code(positive, kept)(-5) is False
    assert MachineCode("positive", never, kept)(5) is True


def test_code_made_of_something_else_is_not_found(kept: CodeCache) -> None:
    assert MachineCode("positive", lambda: compile_function(positive), kept, "of this")(5) is True
    with pytest.raises(AssertionError, match="compiled again"):
        MachineCode("positive", never, kept, "of that")(5)


def test_code_that_cannot_be_kept_is_made_again(kept: CodeCache) -> None:
    """As on a full disk: files of this process may have no bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    run = code(positive, kept)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        assert run(5) is True
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert os.listdir(kept.path()) == []


def test_a_kept_kernel_runs_without_numba(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np\n"
        "from kafka_forensics.parsers.kernels.crc import crc32c\n"
        "print(crc32c.compiled(np.frombuffer(b'123456789', np.uint8), 0, 9, 0), 'numba' in sys.modules)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    runs = [subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True) for _ in range(2)]
    assert [run.stdout.split() for run in runs] == [[str(0xE3069283), "True"], [str(0xE3069283), "False"]]
