"""The eight trees, each made and scanned once per session as a plain directory by one process."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from tests.equivalence.trees import SECTIONS_OF, cases_of, put_together


@dataclass(frozen=True)
class Tree:
    """A composite tree, and the result that every other way to read it must equal."""

    name: str
    root: Path
    result: ScanResult


class MakeTree(Protocol):
    """Makes the tree of this name with every case or one of each fault; no test changes it."""

    def __call__(self, name: str, *, every: bool) -> Tree: ...


@pytest.fixture(scope="session")
def make_tree(tmp_path_factory: pytest.TempPathFactory) -> MakeTree:
    @cache
    def make(name: str, *, every: bool) -> Tree:
        root = put_together(tmp_path_factory.mktemp(name) / "tree", cases_of(name, every=every))
        return Tree(name, root, local.scan([str(root)], ScanOptions(jobs=1)))

    return make


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.nightly)], ids=["one-of-each", "every"])
def every(request: pytest.FixtureRequest) -> bool:
    """Whether a tree has every case, or one of each fault."""
    return bool(request.param)


@pytest.fixture(params=SECTIONS_OF)
def tree(request: pytest.FixtureRequest, make_tree: MakeTree, every: bool) -> Tree:
    """Each of the trees."""
    return make_tree(request.param, every=every)
