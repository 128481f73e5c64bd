"""Selects the cases of a parametrized test that `make test` runs; `make nightly` runs all of them."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Item = TypeVar("Item")


def first_of_each_kind(items: Iterable[Item], kind: Callable[[Item], Hashable], name: Callable[[Item], str]) -> list[ParameterSet]:
    """All items as parameters with the id `name(item)`; all but the first item of each kind are marked `nightly`."""
    seen: set[Hashable] = set()
    params = []
    for item in items:
        marks = [pytest.mark.nightly] if kind(item) in seen else []
        seen.add(kind(item))
        params.append(pytest.param(item, marks=marks, id=name(item)))
    return params


def daily_subset(daily: Iterable[Hashable], items: Iterable[Item], name: Callable[[Item], str] = str) -> list[ParameterSet]:
    """All items as parameters; items whose name is not in `daily` are marked `nightly`."""
    kept = set(daily)
    params = [pytest.param(item, marks=[] if name(item) in kept else [pytest.mark.nightly], id=name(item)) for item in items]
    assert kept <= {param.id for param in params}, kept
    return params
