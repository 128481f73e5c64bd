"""Logs without `partition.metadata`: brokers handle them as the finding says, and serve them when the file is restored."""

from pathlib import Path

import pytest

from kafka_forensics.wording import message
from lab.missing_topic_id import RECORDS, TOPIC, Outcome, start_without_topic_id
from lab.versions import VERSIONS
from tests.support.faults_verdict import only_finding, scan

pytestmark = pytest.mark.broker

KIND = "TOPIC_ID_MISSING"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return {name: start_without_topic_id(tmp_path_factory.mktemp("started"), VERSIONS[name]) for name in ("3.6.2", "4.3.0")}


def moved(outcome: Outcome) -> list[int]:
    """Sizes of logs in directories renamed to `-stray`, in bytes."""
    return [size for name, size in outcome.directories.items() if name.endswith("-stray")]


def test_a_broker_renames_such_a_log_and_starts_an_empty_one(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["4.3.0"]
    [size] = moved(outcome)
    assert size > 0
    assert (outcome.starts, outcome.served, outcome.directories[f"{TOPIC}-0"]) == (True, 0, 0)


def test_scan_forecasts_the_start(outcomes: dict[str, Outcome]) -> None:
    finding = only_finding(scan([outcomes["4.3.0"].before]), KIND)
    assert (finding.severity.value, finding.confidence.value, finding.evidence["sets_aside"]) == ("error", "proven", True)
    assert (finding.place.topic, finding.place.offset_start, finding.place.offset_end) == (TOPIC, 0, RECORDS)
    assert "renames the directory to -stray and starts with an empty log." in message(finding)


def test_a_broker_before_3_7_assigns_the_topic_id(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["3.6.2"]
    assert (moved(outcome), outcome.starts, outcome.served) == ([], True, RECORDS)
    finding = only_finding(scan([outcome.before]), KIND)
    assert (finding.severity.value, finding.confidence.value) == ("warning", "suspected")


def test_the_log_is_served_after_the_file_is_written_as_the_finding_says(tmp_path: Path) -> None:
    outcome = start_without_topic_id(tmp_path, VERSIONS["4.3.0"], mended=True)
    assert only_finding(scan([outcome.before]), KIND).evidence["topic_id"] == outcome.topic_id
    assert (moved(outcome), outcome.served) == ([], RECORDS)


def test_a_log_emptied_by_retention_restarts_at_0(tmp_path: Path) -> None:
    outcome = start_without_topic_id(tmp_path, VERSIONS["4.3.0"], emptied=True)
    finding = only_finding(scan([outcome.before]), KIND)
    assert (finding.severity.value, finding.evidence["is_empty"], finding.place.offset_end) == ("warning", True, RECORDS)
    assert (moved(outcome), outcome.starts, outcome.served) == ([0], True, 0)
