"""The list of mutants cannot rot: every old text is there once, every new one is Python, every test module exists."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.__main__ import KILLED, SURVIVED, TIMED_OUT, Copy
from tests.mutants.catalogue import AREAS
from tests.mutants.mutant import ROOT, Mutant

MUTANTS = [mutant for some in AREAS.values() for mutant in some]


def test_there_are_two_hundred_and_no_two_are_alike() -> None:
    assert len(MUTANTS) == 200
    assert [
        change for change, count in Counter((mutant.file, mutant.old, mutant.new) for mutant in MUTANTS).items() if count > 1
    ] == []


def test_every_change_can_be_made_and_is_python() -> None:
    for mutant in MUTANTS:
        assert mutant.old != mutant.new
        ast.parse(mutant.mutated())


def test_every_mutant_is_held_to_tests_that_exist() -> None:
    assert [module for mutant in MUTANTS for module in mutant.tests if not (ROOT / module).is_file()] == []
    assert all(mutant.tests for mutant in MUTANTS)


def test_an_old_text_that_is_gone_or_stands_twice_is_told() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        Mutant("kafka_forensics/compiled/__init__.py", "this stands nowhere", "", ()).mutated()
    with pytest.raises(ValueError, match="times, not once"):
        Mutant("kafka_forensics/compiled/__init__.py", "import", "", ()).mutated()


def test_a_mutant_dies_or_survives_in_a_copy_that_is_then_as_before(tmp_path: Path) -> None:
    tests = ("tests/replication/test_offset_ranges.py",)
    copy = Copy(tmp_path / "project")
    ranges = "kafka_forensics/replication/offset_ranges.py"
    before = (ROOT / ranges).read_text()
    (line,) = [one for one in before.splitlines() if one.startswith('"""')][:1]
    try:
        broken = Mutant(ranges, line, f"{line}\nraise ValueError", tests)
        assert [copy.outcome(mutant) for mutant in (Mutant(ranges, line, f"{line} ", tests), broken)] == [SURVIVED, KILLED]
        endless = Mutant(ranges, line, f"{line}\nwhile True:\n    pass", tests)
        assert copy.outcome(endless, most_seconds=1) == TIMED_OUT
        assert (copy.folder / ranges).read_text() == before == (ROOT / ranges).read_text()
    finally:
        copy.process.communicate()
