"""How variants of the gallery's faults are declared: other places, other values, and what only looks like the fault.

They stand in no table of docs/faults.md; `tests/faults/answers.json` has the whole answer to each, as to the gallery's own cases.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.faults import Brokers, healthy
from tests.support.gallery_case import Case, patient


def done(fault: str, words: str, *injections: Callable[[Brokers], object], **given: Any) -> Case:
    """Three equal replicas, to which something is done."""
    return Case(fault, words, patient(lambda brokers: [injection(brokers) for injection in injections]), **given)


def each(fault: str, words: str, injection: Callable[..., object], rows: Iterable[tuple[Any, ...]], **given: Any) -> list[Case]:
    """A case a row: three equal replicas, to which the injection is done with the row's values."""
    return trees(fault, words, lambda root, *row: _injected(root, injection, row), rows, **given)


def trees(fault: str, words: str, make: Callable[..., Brokers], rows: Iterable[tuple[Any, ...]], **given: Any) -> list[Case]:
    """A case a row: the maker is given the row's values behind the folder."""
    return [Case(fault, f"{words} {_worded(row)}", _maker(make, row), **given) for row in rows]


def _maker(make: Callable[..., Brokers], row: tuple[Any, ...]) -> Callable[[Path], Brokers]:
    return lambda root: make(root, *row)


def _injected(root: Path, injection: Callable[..., object], row: tuple[Any, ...]) -> Brokers:
    brokers = healthy(root)
    injection(brokers, *row)
    return brokers


def _worded(row: tuple[Any, ...]) -> str:
    return ", ".join(f"{value!r:.60}" if isinstance(value, bytes) else str(value) for value in row)
