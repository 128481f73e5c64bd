"""Pages of promises name tests that exist."""

import ast
import re
from functools import cache

import pytest

from tests.support.places import ROOT

PAGES = ("SECURITY.md", "docs/limits.md", "docs/soundness.md", "docs/stability.md")
REFERENCE = re.compile(r"`([\w/]+\.py)`|`(test_\w+)`")
"""A file below `tests`, or a test of the file named before it."""


@cache
def names_of_tests(path: str) -> set[str]:
    """The names of the tests in a file. Raises FileNotFoundError."""
    return {node.name for node in ast.parse((ROOT / "tests" / path).read_text()).body if isinstance(node, ast.FunctionDef)}


def missing(text: str) -> list[str]:
    """Files and tests that a text names and that do not exist; a test without a file before it is one of them."""
    path, absent = "", []
    for file, test in REFERENCE.findall(text):
        path = file or path
        exists = path and (ROOT / "tests" / path).is_file()
        if not exists or (test and test not in names_of_tests(path)):
            absent.append(f"{path}: {test}")
    return absent


@pytest.mark.parametrize("page", PAGES)
def test_every_named_test_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    assert re.search(r"`test_\w+`", text)
    assert missing(text) == []


def test_every_row_of_a_table_of_tests_names_one() -> None:
    for page in PAGES:
        for table in re.findall(r"^\|[^\n]* tests \|\n\|[-|]+\|\n((?:\|.*\n)+)", (ROOT / page).read_text(), re.MULTILINE):
            assert [row for row in table.splitlines() if not re.search(r"`test_\w+`", row.split("|")[-2])] == [], page


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("`docs/test_promises.py`: `test_every_named_test_exists`", []),
        ("`docs/test_promises.py`: `test_renamed`", ["docs/test_promises.py: test_renamed"]),
        ("`docs/test_removed.py`", ["docs/test_removed.py: "]),
        ("`test_every_named_test_exists`", [": test_every_named_test_exists"]),
    ],
)
def test_a_missing_test_is_found(text: str, absent: list[str]) -> None:
    assert missing(text) == absent
