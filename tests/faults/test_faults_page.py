"""docs/faults.md has a row for every case of the gallery, and says of each what a scan says now; and for every fault and probe."""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.broker_faults import TOPICS
from lab.fault_gallery import PAGE, gallery_rows, injected, verdict
from lab.fault_gallery_real import HEADING, section, with_real_section
from lab.fault_gallery_totals import WORSE, is_control, totals
from tests.broker import test_faults_by_brokers, test_faults_on_real_logs
from tests.support.broker_made import COPIES, MADE
from tests.support.gallery import SECTIONS
from tests.support.gallery_case import Case
from tests.support.real_brokers import NOT_ON_REAL_LOGS, injections

pytestmark = pytest.mark.faults

CASES = [(heading, case) for heading, cases in SECTIONS.items() for case in cases]
TEXT = PAGE.read_text()
ROWS = gallery_rows(TEXT)


@pytest.mark.parametrize(("heading", "case"), CASES, ids=[f"{case.fault} {case.injected}" for _, case in CASES])
def test_the_page_says_what_a_scan_says(tmp_path: Path, heading: str, case: Case) -> None:
    """After a change of a rule: `python -m lab.fault_gallery --scan`."""
    [row] = [row for row in ROWS[heading] if row[:2] == [case.fault, injected(case)]]
    assert row[2] == verdict(case, tmp_path / "brokers")
    assert row[3] not in ("", "-")


def test_every_row_is_a_case_and_stands_in_its_place() -> None:
    """No row is written by hand."""
    cases = {heading: [[case.fault, injected(case)] for case in cases] for heading, cases in SECTIONS.items()}
    assert {heading: [row[:2] for row in rows] for heading, rows in ROWS.items()} == cases


def test_no_two_cases_share_a_row() -> None:
    keys = [(heading, case.fault, case.injected) for heading, case in CASES]
    assert len(set(keys)) == len(keys)


def test_every_fault_and_every_probe_has_a_row() -> None:
    told = set(re.findall(r"^\| ([FP]\d+)", TEXT, re.MULTILINE))
    assert told == {f"F{number:02d}" for number in range(1, 49)} | {f"P{number}" for number in range(1, 11)}


def test_negative_controls_give_nothing_above_info() -> None:
    every = [row for rows in ROWS.values() for row in rows]
    controls = [row for row in every if is_control(row)]
    assert [row for row in controls if WORSE.search(row[2])] == []
    assert len(controls) == sum(case.control for _, case in CASES)
    silent = [row[0] for row in every if row[2].startswith("nothing") and not is_control(row)]
    assert silent == ["P7", "P10", "P8"]


def test_the_page_ends_with_what_it_adds_up_to() -> None:
    assert TEXT.endswith(f"## In all\n\n{totals(ROWS)}\n")


def test_the_section_on_real_brokers_is_what_their_tests_run() -> None:
    """After a change of either: `python -m lab.fault_gallery --scan`."""
    assert with_real_section(TEXT) == TEXT
    assert f"## {HEADING}\n\n{section()}\n## " in TEXT


def test_what_is_not_put_into_real_logs_has_a_reason() -> None:
    done = Counter(heading for heading, _ in injections())
    assert set(NOT_ON_REAL_LOGS) == {heading for heading, cases in SECTIONS.items() if done[heading] < len(cases)}


@pytest.mark.parametrize(("test", "cases"), [
    (test_faults_on_real_logs.test_a_fault_is_told_as_in_written_logs, injections()),
    (test_faults_by_brokers.test_what_brokers_did_is_told, MADE),
])  # fmt: skip
def test_the_tests_with_brokers_run_exactly_what_is_declared(test: Any, cases: Sequence[object]) -> None:
    [marked] = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    assert list(marked.args[1]) == list(cases)
    assert sys.modules[test.__module__].pytestmark.name == "broker"


def test_what_brokers_did_is_declared_of_their_copies_and_topics() -> None:
    assert {(made.copy in COPIES, made.topic in TOPICS) for made in MADE} == {(True, True)}
    assert len({(made.fault, made.copy, made.topic) for made in MADE}) == len(MADE)
    assert {made.topic for made in MADE} == set(TOPICS), "every topic is there for something"
