"""Kernels have an interpreted and a compiled form: which form runs when, what it may call, what the key of the cache depends on."""

import os
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_forensics.parsers.kernels import compiling
from kafka_forensics.parsers.kernels.compiling import (
    Kernel,
    call_before_compiling,
    compile_as_needed,
    gains_by_threads,
    kernel,
    kernel_directory,
    use_compiled,
    using_compiled,
)
from kafka_forensics.storage.code_cache import set_cache_directory

WORK = 1 << 30


class Clock:
    """A clock that advances by `step` seconds each time it is read."""

    def __init__(self) -> None:
        self.step = 0.001
        self._now = 0.0

    def thread_time(self) -> float:
        self._now += self.step
        return self._now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Clock]:
    """A process that has compiled nothing, with an empty cache."""
    monkeypatch.delenv("KAFKA_FORENSICS_KERNELS", raising=False)
    monkeypatch.setattr(compiling, "_process", compiling._ProcessState("interpreted"))
    fake = Clock()
    monkeypatch.setattr(compiling, "time", fake)
    (tmp_path / "cache").mkdir(mode=0o700)
    set_cache_directory(str(tmp_path / "cache"))
    yield fake
    set_cache_directory(None)


def native_form() -> Any:
    return lambda: "native"


@partial(Kernel, native=native_form)
def which() -> str:
    """Return the form that runs."""
    return "python"


def _seven() -> int:
    return 7


@partial(Kernel, native=partial(compiling.compile_function, _seven))
def form() -> int:
    """3 interpreted, 7 compiled."""
    return 3


@kernel
def caller() -> str:
    """Call another kernel by its name."""
    return which()  # type: ignore[no-any-return]


@kernel
def calling_caller() -> str:
    """Call a kernel that calls a kernel."""
    return caller() + "!"


def test_a_call_runs_the_chosen_form(monkeypatch: pytest.MonkeyPatch) -> None:
    use_compiled(compiled=False)
    assert form() == 3
    use_compiled(compiled=True)
    assert form() == 7
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "turbo")  # an unknown value is ignored
    assert using_compiled()


def test_a_form_calls_the_same_form_of_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "compile_function", lambda function, **_: function)
    use_compiled(compiled=True)
    assert calling_caller.interpreted() == "python!"
    use_compiled(compiled=False)
    assert calling_caller.dispatcher() == "native!"


@pytest.mark.parametrize(("value", "expected"), [("compiled", True), ("interpreted", False)])
def test_the_environment_variable_takes_precedence(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", value)
    use_compiled(not expected)
    assert using_compiled() is expected
    compile_as_needed(0 if expected else WORK)
    assert using_compiled() is gains_by_threads() is expected


def fresh(name: str = "at_least_seven") -> Kernel[int]:
    """A kernel that nothing has called."""

    def at_least_seven(number: int) -> int:
        """Seven or more."""
        return max(number, 7)

    at_least_seven.__qualname__ = name
    return kernel(at_least_seven)


def is_compiled(kernel_: Kernel[int]) -> bool:
    return any(signature.form is not None for signature in kernel_._signatures.values())


def calls_until_compiled(kernel_: Kernel[int]) -> int:
    """The number of the call that compiles the kernel; `MANY` if none does."""
    for call in range(MANY):
        assert kernel_(1) == 7
        if is_compiled(kernel_):
            return call + 1
    return MANY


MANY = 20


@pytest.mark.parametrize(
    ("cached", "work", "step", "calls"),
    [
        (False, compiling.COMPILED_ABOVE_BYTES, 10.0, MANY),  # little work compiles nothing
        (False, WORK, 0.03, 17),  # half a second of use compiles
        (True, compiling._CALL_BYTES, 0.02, 13),  # a quarter loads code from the cache
        (True, 100 * compiling._CALL_BYTES, 0.009, MANY),
        (True, 100 * compiling._CALL_BYTES, 0.011, 1),  # one call shows that the work is long
    ],
)
def test_kernels_are_compiled_or_loaded_after_enough_use(clock: Clock, cached: bool, work: int, step: float, calls: int) -> None:
    if cached:
        fresh().compiled(1)
    compile_as_needed(work)
    assert using_compiled() is (work > compiling.COMPILED_ABOVE_BYTES)
    clock.step = step
    assert calls_until_compiled(fresh()) == calls
    assert work != WORK or gains_by_threads()


def test_a_kernel_is_ready_once_kernels_are_compiled_or_cached(clock: Clock) -> None:
    compile_as_needed(WORK)
    other = fresh()
    assert not other.is_ready()
    clock.step = 2.0
    fresh()(1)
    assert other.is_ready()
    use_compiled(compiled=False)
    assert not other.is_ready()
    compiling._process.seconds = 0.0
    compile_as_needed(compiling.LOADED_ABOVE_BYTES)
    assert not fresh().is_ready()
    compile_as_needed(compiling.LOADED_ABOVE_BYTES + 1)
    assert fresh().is_ready()


PACKAGE = Path(compiling.__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, for tests that change it."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "copy" / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__")))


def replace_in(path: Path, old: str, new: str) -> None:
    source = path.read_text()
    assert source.count(old) == 1
    path.write_text(source.replace(old, new))


def key(package: Path) -> str | None:
    """The cache key of a package, for a process that starts after its last change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "_STARTED_NS", 1 << 62)
        return compiling._cache_key.__wrapped__(package)


def test_the_key_changes_with_the_content_and_name_of_every_module(package: Path) -> None:
    seen = [key(package)]
    assert seen == [key(PACKAGE)]
    for path in (package / "version.py", package / "model" / "constants.py", package / "parsers" / "kernels" / "walk.py"):
        path.write_bytes(path.read_bytes() + b"#")
        seen.append(key(package))
        path.rename(path.with_name("x" + path.name))
        seen.append(key(package))
    assert None not in seen
    assert len(set(seen)) == 7


def test_a_package_without_sources_or_with_changed_sources_has_no_key(tmp_path: Path, package: Path) -> None:
    assert compiling._cache_key(tmp_path / "package.zip" / "kafka_forensics") is None
    assert compiling._cache_key(package) is None  # its files are newer than this process


def test_a_changed_constant_changes_both_forms(package: Path, tmp_path: Path) -> None:
    """The cache holds code from before the change of a constant in `model`."""
    program = (
        "import numpy as np\n"
        "from kafka_forensics.analysis.producers import rules\n"
        "windows = np.zeros((1, 16), np.int64)\n"
        "windows[0, rules.FIRST_SEQUENCE], windows[0, rules.LAST_SEQUENCE] = 3, 4\n"
        "print(*(bool(form(windows, 0, 1, 0, 5, 5)) for form in (rules.resumes.interpreted, rules.resumes.compiled)))"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "changed"), "PYTHONPATH": str(package.parent)}

    def answers() -> str:
        command = [sys.executable, "-P", "-B", "-c", program]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert answers() == "True True\n"
    replace_in(package / "model" / "constants.py", "MAX_SEQUENCE: Final = MAX_INT32", "MAX_SEQUENCE: Final = 0")
    assert answers() == "False False\n"
    assert len(list((tmp_path / "changed" / "kafka-forensics").iterdir())) == 2


def test_a_second_kernel_loads_what_the_first_compiled() -> None:
    hits = []
    for _ in range(2):
        copy = fresh()
        assert copy.compiled(1) == 7
        [signature] = copy._signatures.values()
        hits.append(sum(signature.form.stats.cache_hits.values()))  # type: ignore[union-attr]
    assert hits == [0, 1]


def test_compiling_is_announced_once_and_loading_from_the_cache_is_not() -> None:
    announced: list[str] = []
    for kernels_ in ([fresh(), fresh("other")], [fresh()]):
        call_before_compiling(lambda: announced.append("compiling"))
        assert [copy.compiled(1) for copy in kernels_] == [7] * len(kernels_)
    call_before_compiling(None)
    assert announced == ["compiling"]


@pytest.mark.parametrize(
    ("suffix", "content"), [("nbi", b"\x80"), ("nbc", b""), ("nbc", bytes(100))], ids=["cut", "empty", "zeros"]
)
def test_damaged_cache_files_do_not_stop_compilation(suffix: str, content: bytes) -> None:
    fresh().compiled(1)
    [path] = Path(kernel_directory(make=False)).rglob(f"*.{suffix}")
    path.write_bytes(content)
    assert fresh().compiled(1) == 7


def test_arrays_of_every_layout_have_compiled_code() -> None:
    """Layouts differ in strides and in whether the array is writable; each one is a signature."""

    @kernel
    def last_of(numbers: "np.ndarray[Any, Any]") -> int:
        """The last number of the last row."""
        return int(numbers[-1, -1]) if numbers.size else -1

    rows = np.arange(24, dtype=np.int64).reshape(4, 6)
    frozen = rows.copy()
    frozen.flags.writeable = False
    for numbers in (rows, rows.T, rows[::2, ::3], rows[1:, 1:], rows[:0], frozen, rows.astype(np.uint8)):
        assert last_of.compiled(numbers) == last_of.interpreted(numbers)
    assert len(last_of._signatures) == 6


def test_code_that_cannot_be_cached_is_written_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By itself, numba would write to the directory of the sources or to HOME, which may be evidence."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    uncached = fresh("never_cached")
    (Path(kernel_directory(make=True)) / f"{uncached._cache_name}-{compiling._digest(('int',))}").write_bytes(b"")
    compiling._log_not_cached.cache_clear()
    with caplog.at_level("INFO", logger="kafka_forensics"):
        assert uncached.compiled(1) == 7
    assert "kernels are compiled in memory, only for this process: " in caplog.text
    assert [*(tmp_path / "HOME").iterdir(), *(tmp_path / "XDG_CACHE_HOME").iterdir()] == []
    assert not list(Path(__file__).parent.rglob("*never_cached*"))


def kernels_of_the_package() -> "set[Kernel[Any]]":
    """The kernels of all folders that have any."""
    names = [module_info.name for module_info in pkgutil.walk_packages([str(PACKAGE)], "kafka_forensics.")]
    folders = ("kernels.", ".analysis.", ".simulation.")
    modules = [import_module(name) for name in names if any(folder in name for folder in folders)]
    return {value for module in modules for value in vars(module).values() if isinstance(value, Kernel)}


def test_no_kernel_allocates_memory() -> None:
    """A length in a file must not decide an allocation; and code that calls numba's functions is slow to compile."""
    allocating = {"zeros", "empty", "full", "ones", "array", "arange", "concatenate", "append", "copy"}
    kernels = kernels_of_the_package()
    assert len(kernels) > 55
    assert [kernel.__name__ for kernel in kernels if allocating & set(kernel._function.__code__.co_names)] == []
