"""Logs without `partition.metadata`: brokers do with them what the finding says, and with the file serve them."""

from pathlib import Path

import pytest

from kafka_forensics.wording import message
from lab.missing_topic_id import RECORDS, TOPIC, Outcome, start_without_topic_id
from lab.versions import VERSIONS
from tests.support.faults_verdict import only, scan

pytestmark = pytest.mark.broker

KIND = "TOPIC_ID_MISSING"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return {name: start_without_topic_id(tmp_path_factory.mktemp("started"), VERSIONS[name]) for name in ("3.6.2", "4.3.0")}


def moved(outcome: Outcome) -> list[int]:
    """Bytes of log in directories set aside as strays."""
    return [size for name, size in outcome.directories.items() if name.endswith("-stray")]


def test_a_broker_sets_such_a_log_aside_and_begins_anew(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["4.3.0"]
    [size] = moved(outcome)
    assert size > 0
    assert (outcome.starts, outcome.served, outcome.directories[f"{TOPIC}-0"]) == (True, 0, 0)


def test_scan_forecasts_the_start(outcomes: dict[str, Outcome]) -> None:
    finding = only(scan([outcomes["4.3.0"].before]), KIND)
    assert (finding.severity.value, finding.confidence.value, finding.evidence["sets_aside"]) == ("error", "proven", True)
    assert (finding.place.topic, finding.place.offset_start, finding.place.offset_end) == (TOPIC, 0, RECORDS)
    assert "renames the directory to -stray and begins anew with an empty log." in message(finding)


def test_a_broker_before_3_7_gives_the_log_the_topics_id(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["3.6.2"]
    assert (moved(outcome), outcome.starts, outcome.served) == ([], True, RECORDS)
    finding = only(scan([outcome.before]), KIND)
    assert (finding.severity.value, finding.confidence.value) == ("warning", "suspected")


def test_with_the_file_written_as_the_finding_says_the_log_is_served(tmp_path: Path) -> None:
    outcome = start_without_topic_id(tmp_path, VERSIONS["4.3.0"], mended=True)
    assert only(scan([outcome.before]), KIND).evidence["topic_id"] == outcome.topic_id
    assert (moved(outcome), outcome.served) == ([], RECORDS)


def test_a_log_that_retention_has_emptied_begins_at_0_again(tmp_path: Path) -> None:
    outcome = start_without_topic_id(tmp_path, VERSIONS["4.3.0"], emptied=True)
    finding = only(scan([outcome.before]), KIND)
    assert (finding.severity.value, finding.evidence["is_empty"], finding.place.offset_end) == ("warning", True, RECORDS)
    assert (moved(outcome), outcome.starts, outcome.served) == ([0], True, 0)
