"""Assigned replicas of which no copy was given: told once a broker, and what an election cost is not called gone."""

import shutil
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.metadata import controller_events
from kafka_forensics.wording import advice, message
from tests.support.controller_log import change, controlled_by, in_sync, partition, topic
from tests.support.faults import Brokers, healthy
from tests.support.faults_verdict import only, said

UNCLEAN = (*in_sync([2]), change(leader=-1, isr=[]), change(leader=1, isr=[1], leader_recovery_state=1))


def without(brokers: Brokers, *names: str) -> list[str]:
    """The directories of the brokers and of the controller, but for these."""
    return [str(path) for path in sorted(brokers.root.iterdir()) if path.name not in names]


def test_one_finding_a_broker_says_which_assigned_replicas_were_not_given(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync([2, 3]))
    result = scan(without(brokers, "b2", "b3"), ScanOptions())
    assert said(result) == [("REPLICA_NOT_GIVEN", "info", 2), ("REPLICA_NOT_GIVEN", "info", 3)]
    finding = result.findings[0]
    expected = {"replicas": 1, "examples": ["t-0"], "led": 1, "in_isr": 1}
    assert {name: finding.evidence[name] for name in expected} == expected
    assert message(finding) == (
        "broker 2: no log directory of this broker was given, though the controller's log assigns it 1 replica (among them t-0),"
        " 1 of them in the ISR and 1 led by it."
    )


def test_nothing_is_said_where_every_broker_was_given_or_a_directory_is_nobodys(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path / "all"), *in_sync([2, 3]))
    assert said(scan(without(brokers), ScanOptions())) == []
    (brokers.root / "b1" / "meta.properties").unlink()
    findings = scan(without(brokers, "b2"), ScanOptions()).findings
    assert [finding for finding in findings if finding.kind == "REPLICA_NOT_GIVEN"] == []


def test_what_was_not_asked_for_is_not_counted(tmp_path: Path) -> None:
    other = "AAAAAAAAAAAAAAAAAAAABQ"
    told = (topic("other", other), partition([2, 3], 2, topic_id=other, replicas=[2, 3]))
    brokers = controlled_by(healthy(tmp_path), *in_sync([2]), *told)
    shutil.copytree(brokers.log_dir(3) / "t-0", brokers.log_dir(3) / "other-0")
    for asked, replicas, examples in (("t", 1, ["t-0"]), (None, 2, ["other-0", "t-0"])):
        finding = only(scan(without(brokers, "b2"), ScanOptions(topic_glob=asked)), "REPLICA_NOT_GIVEN")
        assert (finding.evidence["replicas"], finding.evidence["examples"]) == (replicas, examples)


def election_of(paths: list[str], options: ScanOptions | None = None) -> Finding:
    """The unclean election of t-0."""
    return only(scan(paths, options or ScanOptions()), "UNCLEAN_ELECTION")


def test_without_the_old_leaders_copy_nobody_can_tell_what_an_election_cost(tmp_path: Path) -> None:
    finding = election_of(without(controlled_by(healthy(tmp_path), *UNCLEAN), "b2"))
    assert (finding.severity.value, finding.evidence["old_leader_not_given"], "agree_again" in finding.evidence) == (
        "warning",
        True,
        False,
    )
    assert message(finding).endswith(
        "after broker 2; no log directory of broker 2, the leader before, was given, so that what it cost cannot be told."
    )
    assert str(advice(finding)).startswith("Get the log directory of broker 2 before that broker starts: ")


@pytest.mark.parametrize(
    "later", [change(isr=[1, 2]), change(replicas=[1, 3], isr=[1, 3])], ids=["it has followed", "it is no replica any more"]
)
def test_an_old_leader_that_has_nothing_left_need_not_be_given(tmp_path: Path, later: bytes) -> None:
    finding = election_of(without(controlled_by(healthy(tmp_path), *UNCLEAN, later), "b2"))
    assert (finding.severity.value, finding.evidence["agree_again"]) == ("info", True)


def test_an_old_leader_that_was_given_but_not_asked_for_is_no_warning(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), *UNCLEAN)
    finding = election_of(without(brokers), ScanOptions(broker="1"))
    assert (finding.severity.value, finding.evidence["old_leader_not_compared"]) == ("info", True)
    assert message(finding).endswith("after broker 2, whose copy is not among those compared.")


def test_metadata_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = without(controlled_by(healthy(tmp_path), *UNCLEAN), "b2")
    assert [row.cost for row in controller_events(paths, ScanOptions()).rows][-1] == "old_leader_not_given"
    assert outcome(["metadata", *paths, "--format", "table"]) == 0
    assert "what it cost cannot be told: no copy of broker 2, the leader before, was given" in " ".join(
        capsys.readouterr().out.split()
    )
