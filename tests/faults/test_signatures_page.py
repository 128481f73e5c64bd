"""docs/incidents.md is what `python -m lab.signatures` writes from scans of the trees."""

import re

import pytest

from lab.signatures import PAGE, page

pytestmark = pytest.mark.faults

INCIDENTS = [f"d{number}" for number in range(1, 28)]


def test_the_page_is_as_it_would_be_written() -> None:
    assert PAGE.read_text() == page()


def test_the_page_names_every_incident_and_no_near_miss() -> None:
    rows = re.findall(r"^\| (d\d+) \|.*$", PAGE.read_text(), re.MULTILINE)
    assert list(dict.fromkeys(rows)) == INCIDENTS
    assert "NAMED" not in PAGE.read_text()
