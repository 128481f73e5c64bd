"""A page of every case of the fault gallery: nothing in damaged evidence keeps one from being made."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.report import ReportOptions, report
from kafka_forensics.report.document import document_of
from kafka_forensics.report.page import Provenance, page
from tests.report.test_page import assert_harmless
from tests.support.gallery import SECTIONS


@pytest.mark.nightly
@pytest.mark.faults
@pytest.mark.parametrize("section", SECTIONS)
def test_a_page_of_every_fault(section: str, tmp_path: Path) -> None:
    for number, case in enumerate(SECTIONS[section]):
        folder = tmp_path / str(number)
        folder.mkdir()
        case.make(folder)
        reported = report([str(folder)], ScanOptions(live=case.live, deep=case.deep), ReportOptions(payloads=True, hashes=True))
        found = assert_harmless(page(document_of(reported.result), reported.details, Provenance(hashes=reported.hashes)))
        assert "What this does not prove" in found.text
