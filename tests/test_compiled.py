"""Kernels in two forms: which one runs, what a form may call, where compiled code is kept."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics import compiled
from kafka_forensics.compiled import kernel, primitive, use_compiled, using_compiled
from kafka_forensics.machine_code import MachineCode


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
    return caller() + "!"  # type: ignore[no-any-return]


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
    monkeypatch.setattr(compiled, "compile_function", lambda function: function)
    use_compiled(compiled=True)
    assert calling_caller.interpreted() == "python!"
    use_compiled(compiled=False)
    assert calling_caller.dispatcher() == "native!"


def test_both_forms_of_a_kernel_answer_the_same() -> None:
    assert total.interpreted(100) == total.compiled(100) == 4950
    assert isinstance(total.compiled, MachineCode)


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


def test_compiled_code_is_kept_in_a_private_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = compiled.kernel_cache.__wrapped__()
    assert directory is not None
    assert Path(directory).parent == tmp_path / "kafka-forensics"
    assert os.stat(directory).st_mode & 0o777 == 0o700


def test_a_directory_that_others_may_write_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = compiled.kernel_cache.__wrapped__()
    assert directory is not None
    os.chmod(directory, 0o770)  # noqa: S103 - the permission under test
    assert compiled.kernel_cache.__wrapped__() is None


def test_a_link_in_place_of_the_directory_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    link = tmp_path / "cache" / "kafka-forensics" / compiled._sources_digest()
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    assert compiled.kernel_cache.__wrapped__() is None


def test_no_place_to_cache_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled.kernel_cache.__wrapped__() is None


def test_the_digest_changes_with_any_kernel_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "kafka_forensics"
    (package / "parsers" / "kernels").mkdir(parents=True)
    for name in ("compiled.py", "machine_code.py"):
        (package / name).write_text("a = 1\n")
    source = package / "parsers" / "kernels" / "walk.py"
    source.write_text("b = 1\n")
    monkeypatch.setattr(compiled, "__file__", str(package / "compiled.py"))
    before = compiled._sources_digest()
    assert compiled._sources_digest() == before
    source.write_text("b = 2\n")
    assert compiled._sources_digest() != before


def test_caches_of_old_versions_are_forgotten_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caches = tmp_path / "kafka-forensics"
    for name in ("0123456789abcdef", "fedcba9876543210", "notes"):
        (caches / name).mkdir(parents=True)
    for name in ("0123456789abcdef", "notes"):
        os.utime(caches / name, (1, 1))
    made = compiled.kernel_cache.__wrapped__()
    assert made is not None
    assert {path.name for path in caches.iterdir()} == {"fedcba9876543210", "notes", Path(made).name}
