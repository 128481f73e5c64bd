"""Fault F44 where a partition has no transaction left at all: only what is known of the topic's age says that one is missing."""

from pathlib import Path

import pytest

from kafka_forensics.model.findings import Finding
from tests.support.faults_verdict import only, scan
from tests.support.transaction_logs import APP, controller_since, without_transaction

pytestmark = pytest.mark.faults

OTHER_TOPIC_ID = "BBBBBBBBBBBBBBBBBBBBBQ"


def torn(findings: list[Finding]) -> list[str]:
    return [finding.kind for finding in findings if finding.kind.startswith("TXN")]


@pytest.mark.parametrize(("clean", "sure"), [(True, ("critical", "inferred")), (False, ("warning", "suspected"))])
def test_f44_nothing_is_left_of_the_only_transaction(tmp_path: Path, clean: bool, sure: tuple[str, str]) -> None:
    paths = [*without_transaction(tmp_path / "brokers", clean=clean), controller_since(tmp_path / "controller", -3600)]
    result = scan(paths)
    assert torn(result.findings) == ["TXN_PARTLY_LOST"]
    finding = only(result, "TXN_PARTLY_LOST")
    assert (finding.place.topic, finding.place.partition, (finding.severity.value, finding.confidence.value)) == ("t", 1, sure)
    assert (finding.evidence["reason"], finding.evidence["transactional_id"]) == ("nothing_left", APP)
    assert "the controller's log has the topic before the decision, and this log begins at offset 0" in finding.evidence["premises"]


def test_a_topic_made_anew_since_has_nothing_of_it(tmp_path: Path) -> None:
    paths = [*without_transaction(tmp_path / "brokers"), controller_since(tmp_path / "controller", 40)]
    assert torn(scan(paths).findings) == []


def test_a_topic_created_about_then_is_not_judged(tmp_path: Path) -> None:
    """Clocks of controllers and coordinators may be seconds apart."""
    paths = [*without_transaction(tmp_path / "brokers"), controller_since(tmp_path / "controller", 25)]
    assert torn(scan(paths).findings) == []


def test_without_the_controllers_log_a_topic_may_be_new(tmp_path: Path) -> None:
    assert torn(scan(without_transaction(tmp_path)).findings) == []


def test_what_retention_took_is_not_missed(tmp_path: Path) -> None:
    paths = [*without_transaction(tmp_path / "brokers", start=90), controller_since(tmp_path / "controller", -3600)]
    assert torn(scan(paths).findings) == []


def test_a_directory_of_another_topic_is_not_judged(tmp_path: Path) -> None:
    paths = [*without_transaction(tmp_path / "brokers", topic_id=OTHER_TOPIC_ID), controller_since(tmp_path / "controller", -3600)]
    assert torn(scan(paths).findings) == []


def test_an_aborted_transaction_loses_nothing(tmp_path: Path) -> None:
    paths = [*without_transaction(tmp_path / "brokers", commit=False), controller_since(tmp_path / "controller", -3600)]
    assert torn(scan(paths).findings) == []


def test_copies_that_were_not_in_sync_may_lack_it(tmp_path: Path) -> None:
    paths = [*without_transaction(tmp_path / "brokers")[:2], controller_since(tmp_path / "controller", -3600, isr=(3,))]
    assert torn(scan(paths).findings) == []


def test_copies_of_running_brokers_may_be_older(tmp_path: Path) -> None:
    paths = [*without_transaction(tmp_path / "brokers", clean=False), controller_since(tmp_path / "controller", -3600)]
    assert torn(scan(paths, live=True).findings) == []
