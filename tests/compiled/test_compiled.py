"""Kernels in two forms: which one runs, what a form may call, where compiled code is kept."""

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

import pytest

from kafka_forensics import compiled
from kafka_forensics.compiled import inlined_kernel, kernel, primitive, use_compiled, using_compiled
from kafka_forensics.compiled.machine_code import MachineCode


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests choose forms; the process keeps its own choice."""
    monkeypatch.delenv("KAFKA_FORENSICS_KERNELS", raising=False)
    before = using_compiled()
    yield
    use_compiled(before)


def native_form() -> Any:
    return lambda: "native"


@primitive(native_form)
def which() -> str:
    """Say which form runs."""
    return "python"


def _seven() -> int:
    return 7


@primitive(partial(compiled.compile_function, _seven))
def form() -> int:
    """3 as Python runs it, 7 compiled."""
    return 3


@kernel
def caller() -> str:
    """Call another kernel by its name."""
    return which()  # type: ignore[no-any-return]


@kernel
def calling_caller() -> str:
    """Call a kernel that calls a kernel."""
    return caller() + "!"


@kernel
def total(limit: int) -> int:
    """Sum of the numbers below `limit`."""
    result = 0
    for number in range(limit):
        result += number
    return result


def test_plain_calls_run_the_chosen_form() -> None:
    use_compiled(compiled=False)
    assert form() == 3
    use_compiled(compiled=True)
    assert form() == 7
    assert using_compiled()


def test_a_form_calls_only_its_own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "compile_function", lambda function, **_: function)
    use_compiled(compiled=True)
    assert calling_caller.interpreted() == "python!"
    use_compiled(compiled=False)
    assert calling_caller.dispatcher() == "native!"


def test_both_forms_of_a_kernel_answer_the_same() -> None:
    assert total.interpreted(100) == total.compiled(100) == 4950
    assert isinstance(total.compiled, MachineCode)


@inlined_kernel
def doubled(number: int) -> int:
    """Twice as much."""
    return 2 * number


@kernel
def four_times(number: int) -> int:
    """Twice as much, twice."""
    return doubled(doubled(number))


def test_a_step_that_is_put_where_it_is_called_answers_the_same_and_is_other_code() -> None:
    assert four_times.interpreted(5) == four_times.compiled(5) == 20
    assert doubled.dispatcher.targetoptions["forceinline"]  # type: ignore[attr-defined]
    assert not four_times.dispatcher.targetoptions["forceinline"]  # type: ignore[attr-defined]
    assert doubled.made_of() != kernel(doubled._function).made_of()


def test_a_kernel_keeps_name_and_words() -> None:
    assert total.__name__ == "total"
    assert total.__doc__ == "Sum of the numbers below `limit`."


@pytest.mark.parametrize(("value", "expected"), [("compiled", True), ("interpreted", False)])
def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", value)
    use_compiled(not expected)
    assert using_compiled() is expected


def test_an_unknown_environment_word_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "turbo")
    use_compiled(compiled=True)
    assert using_compiled()


PACKAGE = Path(compiled.__file__).parents[1]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "copy" / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__")))


def replace_in(path: Path, old: str, new: str) -> None:
    source = path.read_text()
    assert source.count(old) == 1
    path.write_text(source.replace(old, new))


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("model/constants.py", "MAX_SEQUENCE: Final = 2**31 - 1", "MAX_SEQUENCE: Final = 0"),
        ("replication/acks.py", "BATCHES_REMEMBERED: Final = 5", "BATCHES_REMEMBERED: Final = 4"),
        ("version.py", '__version__ = "', '__version__ = "9'),
        ("compiled/code_cache.py", "_KEY_LENGTH: Final = 16", "_KEY_LENGTH: Final = 0x10"),
        ("parsers/kernels/walk.py", "import numpy as np\n", "import numpy as np\n\n"),
    ],
)
def test_the_key_changes_with_a_constant_anywhere_and_with_the_version(package: Path, module: str, old: str, new: str) -> None:
    before = compiled._sources_digest(package)
    assert before == compiled._sources_digest(PACKAGE)
    replace_in(package / module, old, new)
    assert compiled._sources_digest(package) not in (before, None)


def test_the_key_changes_with_every_module_and_what_it_is_called(package: Path) -> None:
    seen = {compiled._sources_digest(package)}
    for path in sorted(package.rglob("*.py"))[::40]:
        path.write_bytes(path.read_bytes() + b"#")
        seen.add(compiled._sources_digest(package))
        path.rename(path.with_name("x" + path.name))
        seen.add(compiled._sources_digest(package))
    assert len(seen) == 1 + 2 * len(sorted(package.rglob("*.py"))[::40])


def test_a_package_without_sources_keeps_nothing(tmp_path: Path) -> None:
    assert compiled._sources_digest(tmp_path / "package.zip" / "kafka_forensics") is None


def test_compiled_follows_a_constant_as_interpreted_does(package: Path, tmp_path: Path) -> None:
    """Machine code of the package as it was lies there when a constant in `model` changes."""
    program = (
        "import numpy as np\n"
        "from kafka_forensics.analysis.producers import rules\n"
        "windows = np.zeros((1, 16), np.int64)\n"
        "windows[0, rules.FIRST_SEQUENCE], windows[0, rules.LAST_SEQUENCE] = 3, 4\n"
        "print(*(bool(form(windows, 0, 1, 0, 5, 5)) for form in (rules.resumes.interpreted, rules.resumes.compiled)))"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(package.parent)}

    def answers() -> str:
        command = [sys.executable, "-P", "-B", "-c", program]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert answers() == "True True\n"
    replace_in(package / "model" / "constants.py", "MAX_SEQUENCE: Final = 2**31 - 1", "MAX_SEQUENCE: Final = 0")
    assert answers() == "False False\n"
    assert len(list((tmp_path / "cache" / "kafka-forensics").iterdir())) == 2


LIMIT = 7


@kernel
def limited(number: int) -> int:
    """A number or the limit, whichever is less."""
    return min(number, LIMIT)


@kernel
def twice_limited(number: int) -> int:
    """The same by another kernel."""
    return 2 * limited(number)


def test_what_a_kernel_is_made_of_is_what_this_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the sources say: they may be those of another version by now."""
    before = limited.made_of(), twice_limited.made_of(), total.made_of()
    assert (limited.made_of(), twice_limited.made_of(), total.made_of()) == before
    assert len(set(before)) == 3
    monkeypatch.setitem(globals(), "LIMIT", 8)
    assert limited.made_of() != before[0]
    assert twice_limited.made_of() != before[1]
    assert total.made_of() == before[2]


def kernels_of_the_package() -> "set[compiled.Kernel[Any]]":
    """Those of all folders that have any."""
    names = [module_info.name for module_info in pkgutil.walk_packages([str(PACKAGE)], "kafka_forensics.")]
    folders = ("kernels.", ".analysis.", ".simulation.", ".writers.", ".salvage.")
    modules = [import_module(name) for name in names if any(folder in name for folder in folders)]
    return {value for module in modules for value in vars(module).values() if isinstance(value, compiled.Kernel)}


def test_every_kernel_of_the_package_says_what_it_is_made_of() -> None:
    kernels = kernels_of_the_package()
    assert len(kernels) > 60
    assert len({each.made_of() for each in kernels}) == len(kernels)


def test_no_kernel_asks_for_memory() -> None:
    """Its code would name functions of numba, and could not be kept: it would be compiled anew in every process."""
    asking = {"zeros", "empty", "full", "ones", "array", "arange", "concatenate", "append", "copy"}
    found = [each.__name__ for each in kernels_of_the_package() if asking & set(each._function.__code__.co_names)]
    assert found == []


def test_code_kept_of_other_values_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answers = []
    for limit in (7, 8, 7):
        monkeypatch.setitem(globals(), "LIMIT", limit)
        fresh = kernel(limited._function)
        answers.append((fresh.interpreted(9), fresh.compiled(9)))
    assert answers == [(7, 7), (8, 8), (7, 7)]
    assert len(list(tmp_path.rglob("*.o"))) == 2


def test_only_work_of_some_size_asks_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked() -> None:
        raise AssertionError("a small scan pays for nothing")

    monkeypatch.setattr(compiled, "kernel_cache", unasked)
    assert not compiled.worth_compiling(compiled.COMPILED_ABOVE_BYTES)
    assert compiled.worth_compiling(compiled.COMPILING_ABOVE_BYTES + 1)


def test_work_of_middle_size_takes_what_is_kept_and_makes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert not compiled.worth_compiling(compiled.COMPILING_ABOVE_BYTES)
    assert list(tmp_path.iterdir()) == []
    kept = compiled.kernel_cache()
    assert kept is not None
    kept.write("some.o", b"")
    assert compiled.worth_compiling(compiled.COMPILING_ABOVE_BYTES)
