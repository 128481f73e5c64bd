"""docs/faults.md has a row for every case of the gallery, and says of each what a scan says now; and for every fault and probe."""

import re
from pathlib import Path

import pytest

from lab.fault_gallery import PAGE, injected, rows_of, verdict
from lab.fault_gallery_totals import WORSE, is_control, totals
from tests.support.gallery import SECTIONS
from tests.support.gallery_case import Case

pytestmark = pytest.mark.faults

CASES = [(heading, case) for heading, cases in SECTIONS.items() for case in cases]
TEXT = PAGE.read_text()
ROWS = rows_of(TEXT)


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
