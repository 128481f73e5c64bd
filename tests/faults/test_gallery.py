"""Scans each case and variant of the gallery once: the whole result, the row of docs/faults.md, and unchanged files."""

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics import wording
from kafka_forensics.model.findings import Severity
from lab.broker_faults import TOPICS
from lab.fault_gallery import PAGE, gallery_rows, injected, scanned, verdict
from lab.fault_gallery_real import HEADING, section, with_real_section
from lab.fault_gallery_totals import is_control, totals
from tests.broker import test_faults_by_brokers, test_faults_on_real_logs
from tests.gallery.answers import ANSWERS, CASES, answer, is_silent
from tests.gallery.broker_made import BROKER_CASES, COPIES
from tests.gallery.cases import SECTIONS, VARIANTS
from tests.gallery.real_brokers import NOT_ON_REAL_LOGS, injections

pytestmark = pytest.mark.faults

EXPECTED: dict[str, Any] = json.loads(ANSWERS.read_text())
TEXT = PAGE.read_text()
ROWS = gallery_rows(TEXT)
CELLS = {f"{heading}: {row[0]} {row[1].strip('*')}": row for heading, rows in ROWS.items() for row in rows}


def listing(root: Path) -> list[tuple[str, int, int, int]]:
    """(path, mode, size, mtime) of every entry below a folder."""
    found = [(str(path), path.lstat()) for path in sorted(root.rglob("*"))]
    return [(path, status.st_mode, status.st_size, status.st_mtime_ns) for path, status in found]


@pytest.mark.parametrize("name", CASES)
def test_the_whole_result_of_a_case(tmp_path: Path, name: str) -> None:
    """After a change of a rule run `python -m tests.gallery.answers` and `python -m lab.fault_gallery --scan`."""
    case = CASES[name]
    brokers = case.make(tmp_path / "brokers")
    before = listing(tmp_path)
    result = scanned(case, brokers)
    if case.during is None:
        assert listing(tmp_path) == before
    assert answer(result, tmp_path / "brokers") == EXPECTED[name]
    assert is_silent(case) == ({finding.severity for finding in result.findings} <= {Severity.INFO})
    counted = result.totals
    assert counted.bytes_decoded + counted.bytes_damaged + counted.bytes_skipped == counted.bytes_total
    for finding in result.findings:
        assert "None" not in wording.message(finding) + (wording.advice(finding) or "")
    if name in CELLS:
        assert CELLS[name][1:3] == [injected(case), verdict(case, result)]
        assert CELLS[name][3] not in ("", "-")


def test_a_replica_differs_from_the_reference_where_the_partition_is_said_to_differ() -> None:
    """By the stored answers; a negative control has no replica that differs unless its partition does."""
    differing = {"content", "missing", "conflict"}
    for name, case in CASES.items():
        for partition in EXPECTED[name].get("partitions", {}).values():
            kind = partition.get("agreement", ["identical"])[0]
            _, brokers = partition.get("reference", [1, {"reference": [1], "identical": [2, 3]}])
            assert kind not in differing or differing & brokers.keys(), name
            assert not case.control or kind in differing or not differing & brokers.keys(), name


def test_every_case_has_a_result_and_a_row_in_order() -> None:
    """No row is written by hand, and no two cases share a row."""
    assert list(EXPECTED) == list(CASES)
    assert len(CASES) == len(VARIANTS) + sum(map(len, SECTIONS.values()))
    cases = {heading: [[case.fault, injected(case)] for case in cases] for heading, cases in SECTIONS.items()}
    assert {heading: [row[:2] for row in rows] for heading, rows in ROWS.items()} == cases


def test_every_fault_and_every_probe_has_a_row() -> None:
    named = set(re.findall(r"^\| ([FP]\d+)", TEXT, re.MULTILINE))
    assert named == {f"F{number:02d}" for number in range(1, 49)} | {f"P{number}" for number in range(1, 11)}


def test_only_negative_controls_and_probes_have_no_finding() -> None:
    silent = [row[0] for rows in ROWS.values() for row in rows if row[2].startswith("nothing") and not is_control(row)]
    assert silent == ["P7", "P10", "P8"]
    assert TEXT.endswith(f"## Totals\n\n{totals(ROWS)}\n")


def test_the_section_on_real_brokers_is_up_to_date() -> None:
    """After a change run `python -m lab.fault_gallery --scan`."""
    assert with_real_section(TEXT) == TEXT
    assert f"## {HEADING}\n\n{section()}\n## " in TEXT
    done = Counter(heading for heading, _ in injections())
    assert set(NOT_ON_REAL_LOGS) == {heading for heading, cases in SECTIONS.items() if done[heading] < len(cases)}
    assert {(case.copy in COPIES, case.topic in TOPICS) for case in BROKER_CASES} == {(True, True)}
    assert len({(case.fault, case.copy, case.topic) for case in BROKER_CASES}) == len(BROKER_CASES)
    assert {case.topic for case in BROKER_CASES} == set(TOPICS), "every topic has a case"


@pytest.mark.parametrize(("test", "cases"), [
    (test_faults_on_real_logs.test_an_injection_gives_the_findings_of_written_logs, injections()),
    (test_faults_by_brokers.test_faults_of_brokers_are_found, BROKER_CASES),
])  # fmt: skip
def test_the_tests_with_brokers_run_all_declared_cases(test: Any, cases: Sequence[object]) -> None:
    [marked] = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    assert list(marked.args[1]) == list(cases)
    marks = sys.modules[test.__module__].pytestmark
    assert "broker" in {mark.name for mark in (marks if isinstance(marks, list) else [marks])}
