"""Kernels that are compiled by a copy of the process: interpreted until they are kept, and nothing of the copy is left behind."""

import multiprocessing
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from kafka_forensics.compiled import use_compiled, using_compiled
from kafka_forensics.engine import compiling
from kafka_forensics.engine.compiling import compiled_meanwhile
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import open_source


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("KAFKA_FORENSICS_KERNELS", raising=False)
    before = using_compiled()
    use_compiled(compiled=True)
    yield
    use_compiled(before)


@pytest.fixture
def source(tmp_path: Path) -> LocalSource:
    opened = open_source(str(tmp_path))
    assert isinstance(opened, LocalSource)
    return opened


def wait_for_ever() -> None:
    time.sleep(3600)


def test_the_form_changes_once_the_copy_has_done_its_part(
    tmp_path: Path, source: LocalSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_are_kept", lambda _: False)
    done = tmp_path / "done"

    def rehearse() -> None:
        done.write_text(str(using_compiled()))

    with compiled_meanwhile(["walk"], rehearse, source) as look:
        assert not using_compiled()
        [copy] = multiprocessing.active_children()
        copy.join()
        assert not using_compiled(), "it changes where it is looked at, and nowhere else"
        look()
        assert using_compiled()
    assert done.read_text() == "True"


def test_a_block_that_ends_sooner_leaves_no_copy(source: LocalSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_are_kept", lambda _: False)

    def rows() -> Generator[int, None, None]:
        with compiled_meanwhile(["walk"], wait_for_ever, source) as look:
            look()
            assert not using_compiled()
            yield len(multiprocessing.active_children())

    first = rows()
    assert next(first) == 1
    first.close()
    assert multiprocessing.active_children() == []
    assert using_compiled()


def test_nothing_is_copied_without_need(source: LocalSource, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(where: LocalSource | None) -> bool:
        with compiled_meanwhile(["walk"], wait_for_ever, where) as look:
            look()
            return bool(multiprocessing.active_children())

    monkeypatch.setattr(compiling, "_are_kept", lambda _: True)
    assert not begun(source)
    monkeypatch.setattr(compiling, "_are_kept", lambda _: False)
    assert begun(source)
    assert not begun(None)
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    assert not begun(source)
    monkeypatch.delenv("KAFKA_FORENSICS_KERNELS")
    use_compiled(compiled=False)
    assert not begun(source)


def test_kernels_are_kept_where_code_of_each_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cache:
        def __init__(self, names: list[str], *, keeps: bool) -> None:
            self.names = lambda: names
            self.can_keep = lambda: keeps

    for cache, kept in (
        (Cache(["a.walk-1.o"], keeps=True), False),
        (Cache(["a.walk-1.o", "a.search-1.o"], keeps=True), True),
        (Cache(["a.walk-1.o", "a.searching-1.o"], keeps=True), False),
        (Cache([], keeps=False), True),
        (None, True),
    ):
        monkeypatch.setattr(compiling, "kernel_cache", lambda cache=cache: cache)
        assert compiling._are_kept(["a.walk", "a.search"]) is kept
