"""docs/faults.md says of every case of the gallery what a scan says now, and has a row for every fault and probe."""

import re
from pathlib import Path

import pytest

from lab.fault_gallery import PAGE, in_order, rows_of, verdict
from tests.support.gallery import SECTIONS
from tests.support.gallery_case import Case

pytestmark = pytest.mark.faults

CASES = [(heading, case) for heading, cases in SECTIONS.items() for case in cases]
TEXT = PAGE.read_text()
ROWS = {heading: {(row[0], row[1]): row for row in rows} for heading, rows in rows_of(TEXT).items()}


@pytest.mark.parametrize(("heading", "case"), CASES, ids=[f"{case.fault} {case.injected}" for _, case in CASES])
def test_the_page_says_what_a_scan_says(tmp_path: Path, heading: str, case: Case) -> None:
    """After a change of a rule: `python -m lab.fault_gallery --scan`."""
    row = ROWS[heading][case.fault, case.injected]
    assert row[2] == verdict(case, tmp_path / "brokers")
    assert row[3] not in ("", "-")


def test_no_two_cases_share_a_row() -> None:
    keys = [(heading, case.fault, case.injected) for heading, case in CASES]
    assert len(set(keys)) == len(keys)


def test_every_fault_and_every_probe_has_a_row() -> None:
    told = set(re.findall(r"^\| ([FP]\d+)", TEXT, re.MULTILINE))
    assert told == {f"F{number:02d}" for number in range(1, 49)} | {f"P{number}" for number in range(1, 11)}


def test_rows_stand_in_the_order_of_their_faults() -> None:
    made, kept = [["F01"], ["P2"], ["F45"], ["-"]], [["F02"], ["F44"], ["F45"], ["F46"], ["P1"]]
    placed = [["F01"], ["P2"], ["F02"], ["F44"], ["F45"], ["-"], ["F45"], ["F46"], ["P1"]]
    assert in_order(made, kept) == placed
