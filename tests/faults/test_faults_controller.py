"""Faults F33, F37 and F48: what only the controller's log can tell, and what it cannot tell any more."""

from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.witnesses.controller import cleanup_policy
from kafka_forensics.wording import message
from kafka_forensics.writers.files import write_clean_shutdown
from tests.support.controller_log import ControllerLog, change, controlled_by, in_sync, partition, record, setting, snapshot, topic
from tests.support.faults import (
    BASE_TIMESTAMP,
    HEALTHY,
    TOPIC_ID,
    Brokers,
    Log,
    healthy,
    histories,
    write_checkpoint,
    write_replica,
)
from tests.support.faults_verdict import offsets, only, said, verdict
from tests.support.gallery_controller import (
    BAD,
    LRS,
    OTHER_ID,
    OTHER_TOPIC,
    RISKY,
    lost_member,
    malformed_in_two_copies,
    malformed_twice,
    short_follower,
    short_leader,
)
from tests.support.injections import claim_epochs, history

pytestmark = pytest.mark.faults

CONTROLLER_TAKES_MS = 2000
"""From the first record of the controller's log to the last that `in_sync` gives."""
NOT_GIVEN = ("REPLICA_NOT_GIVEN", "info", 2)
"""Broker 2, which holds a replica and of which nothing is there."""


@pytest.fixture(name="f33")
def one_in_sync_that_lost_all(tmp_path: Path) -> Brokers:
    return lost_member(tmp_path)


@pytest.mark.parametrize(("isr", "elr", "membership"), [([1, 3], None, "isr"), ([], [1, 3], "elr")])
def test_f33_member_of_the_isr_lacks_what_is_committed(
    f33: Brokers, isr: list[int], elr: list[int] | None, membership: str
) -> None:
    controlled_by(f33, *in_sync(isr, elr))
    result = verdict(f33)
    assert said(result) == [("ISR_MEMBER_MISSING_COMMITTED", "critical", 3), NOT_GIVEN]
    finding = only(result, "ISR_MEMBER_MISSING_COMMITTED")
    assert (offsets(finding), finding.evidence["held_by"], finding.evidence["loses"]) == ((0, 1), [1], 1)
    assert (finding.evidence["membership"], finding.evidence["isr"]) == (membership, isr)
    summary = next(each for each in result.partitions if each.topic == "t")
    assert (summary.isr, summary.leader_epoch, summary.replica_assignment) == (isr, 0, [1, 2, 3])


@pytest.mark.parametrize("clean", [True, False])
def test_f33_unless_its_broker_was_stopped_its_copy_may_be_older(f33: Brokers, tmp_path: Path, clean: bool) -> None:
    (f33.log_dir(3) / ".kafka_cleanshutdown").unlink(missing_ok=True)
    if clean:
        (f33.log_dir(3) / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(7))
    controlled_by(f33, *in_sync([1, 3]))
    finding = only(verdict(f33), "ISR_MEMBER_MISSING_COMMITTED")
    risk = short_leader(tmp_path / "alone")
    for path in () if clean else risk.log_dirs:
        (path / ".kafka_cleanshutdown").unlink()
    controlled_by(risk, *LRS)
    for each in (finding, only(verdict(risk), "LRS_RISK")):
        assert (each.severity.value, each.confidence.value) == ("critical", "inferred" if clean else "suspected")
        assert ("harmless_if" in each.evidence, ", which is harmless if the copies" in message(each)) == (not clean, not clean)


def test_f33_in_a_live_copy_it_may_be_the_copies_age(f33: Brokers) -> None:
    controlled_by(f33, *in_sync([1, 3]))
    assert said(verdict(f33, live=True)) == [("ISR_MEMBER_MISSING_COMMITTED", "info", 3), NOT_GIVEN]


def test_f33_outside_the_isr_it_only_lags(f33: Brokers) -> None:
    controlled_by(f33, *in_sync([1]))
    result = verdict(f33)
    assert said(result) == [("REPLICA_LAGS", "info", 3), NOT_GIVEN]
    assert (only(result, "REPLICA_LAGS").evidence["isr"], only(result, "REPLICA_LAGS").evidence["in_isr"]) == ([1], False)


def test_f33_what_is_newer_than_the_controllers_copy_is_not_judged(f33: Brokers) -> None:
    controlled_by(f33, *in_sync([1, 3]), start_ms=1_600_000_000_000)
    assert said(verdict(f33)) == [("REPLICA_LAGS", "info", 3), NOT_GIVEN]


@pytest.mark.parametrize(
    ("later_ms", "kind"), [(1999, "REPLICA_LAGS"), (2000, "REPLICA_LAGS"), (2999, "REPLICA_LAGS"), (3000, None)]
)
def test_f33_the_last_missing_record_is_what_the_controllers_copy_must_know(
    tmp_path: Path, later_ms: int, kind: str | None
) -> None:
    """Offsets 2 and 3, of seconds 2 and 3: committed without the replica, perhaps, if the last of them is newer than that copy."""
    brokers = controlled_by(short_follower(tmp_path), *in_sync([1, 2, 3]), start_ms=BASE_TIMESTAMP - CONTROLLER_TAKES_MS + later_ms)
    told = [(finding.kind, finding.severity.value) for finding in verdict(brokers).findings]
    assert told == [("ISR_MEMBER_MISSING_COMMITTED", "critical") if kind is None else (kind, "info")]


def test_f33_brokers_that_were_given_names_are_known_by_their_ids(f33: Brokers) -> None:
    controlled_by(f33, *in_sync([1, 3]))
    named = [f"{path.name}={path}" for path in f33.log_dirs]
    assert said(local.scan(named, ScanOptions())) == [("ISR_MEMBER_MISSING_COMMITTED", "critical", "b3"), NOT_GIVEN]


def test_f33_of_two_copies_of_one_broker_neither_is_judged(f33: Brokers) -> None:
    controlled_by(f33, *in_sync([1, 3]))
    write_replica(f33.root / "b3-later", 3, f33.log, 1)
    named = [f"{path.name}={path}" for path in f33.log_dirs]
    assert said(local.scan(named, ScanOptions())) == [("REPLICA_LAGS", "info", "b3"), NOT_GIVEN]


def test_f33_of_another_topic_of_that_name_the_controller_says_nothing(f33: Brokers) -> None:
    controlled_by(f33, *OTHER_TOPIC)
    assert said(verdict(f33)) == [
        ("EMPTY_REPLICA_MAY_LEAD", "warning", 3),
        ("REPLICA_LAGS", "info", 3),
        ("TOPIC_UNKNOWN_TO_CONTROLLER", "error", None),
    ]


def test_f37_last_replica_standing_before_it_leads(tmp_path: Path) -> None:
    brokers = short_leader(tmp_path)
    controlled_by(brokers, *LRS)
    result = verdict(brokers)
    assert said(result) == [("LRS_RISK", "critical", 1)]
    finding = only(result, "LRS_RISK")
    assert (offsets(finding), finding.evidence["held_by"], finding.evidence["isr"]) == ((2, 4), [2, 3], [1])


def deleted_up_to(root: Path, log_start: int, *, wiped: int = 1) -> Brokers:
    """Three copies of the same log up to 20, from which DeleteRecords removed what is below `log_start`, but for a wiped one."""
    long = history(*[("p", 0)] * 20)
    brokers = histories(root, {broker: Log() if broker == wiped else long for broker in (1, 2, 3)}, {1: 0, 2: 20, 3: 20})
    for broker in {1, 2, 3} - {wiped}:
        write_checkpoint(brokers.log_dir(broker), "log-start", log_start)
    return brokers


@pytest.mark.parametrize(("kind", "isr"), [("LRS_RISK", [1]), ("ISR_MEMBER_MISSING_COMMITTED", [1, 2])])
def test_what_records_deletion_removed_is_nobodys_to_lose(tmp_path: Path, kind: str, isr: list[int]) -> None:
    brokers = controlled_by(deleted_up_to(tmp_path, 7), topic(), partition(isr, isr[0], replicas=[1, 2, 3]))
    finding = only(verdict(brokers), kind)
    assert (offsets(finding), finding.evidence["loses"], finding.evidence["log_end_offset"], finding.evidence["held_by"]) == (
        (7, 20),
        13,
        0,
        [2, 3],
    )


def test_where_another_holds_more_than_records_deletion_left_elsewhere_that_is_at_stake(tmp_path: Path) -> None:
    brokers = controlled_by(deleted_up_to(tmp_path, 7), topic(), partition([1], 1, replicas=[1, 2, 3]))
    write_checkpoint(brokers.log_dir(3), "log-start", 0)
    assert offsets(only(verdict(brokers), "LRS_RISK")) == (0, 20)


def test_who_lacks_only_what_was_deleted_lacks_nothing(tmp_path: Path) -> None:
    brokers = controlled_by(deleted_up_to(tmp_path, 20), topic(), partition([1], 1, replicas=[1, 2, 3]))
    assert [kind for kind, _, _ in said(verdict(brokers))] == ["REPLICA_LAGS"]


def test_a_watermark_beyond_a_log_counts_what_others_still_have(tmp_path: Path) -> None:
    brokers = deleted_up_to(tmp_path, 7)
    write_checkpoint(brokers.log_dir(1), "replication", 20)
    result = verdict(brokers)
    lost, lags = only(result, "HW_BEYOND_LEO"), only(result, "REPLICA_LAGS")
    assert (offsets(lost), lost.evidence["held_by"]) == ((7, 20), [2, 3])
    assert (offsets(lags), lags.evidence["behind"]) == ((7, 20), 20)


def test_f37_an_unclean_election_that_only_its_leader_wrote_down_leaves_others_holders(tmp_path: Path) -> None:
    """Nothing was written since, so that of the followers only the one that led then has its epoch."""
    brokers = short_leader(tmp_path)
    claim_epochs(brokers, 2, (0, 0), (2, 4))
    controlled_by(brokers, *LRS, change(leader=-1), change(leader=1, isr=[1], leader_recovery_state=1))
    finding = only(verdict(brokers), "LRS_RISK")
    assert (offsets(finding), finding.evidence["held_by"]) == ((2, 4), [2, 3])


def test_f37_last_replica_standing_after_it_led(tmp_path: Path) -> None:
    brokers = short_leader(tmp_path, ("new", 2))
    controlled_by(brokers, *LRS, change(leader=-1), change(leader=1))
    result = verdict(brokers)
    assert said(result) == [("LRS_LOSS", "critical", None)]
    finding = only(result, "LRS_LOSS")
    assert (offsets(finding), finding.evidence["held_by"], finding.evidence["loses"]) == ((2, 4), [2, 3], 2)
    assert (finding.evidence["new_leader"], finding.evidence["leader_epoch"], finding.evidence["previous_isr"]) == (1, 2, [1])


def test_f37_without_the_controller_it_is_an_unclean_loss(tmp_path: Path) -> None:
    assert said(verdict(short_leader(tmp_path, ("new", 2)))) == [("UNCLEAN_LOSS", "critical", None)]


def test_f37_a_follower_of_a_longer_leader_is_no_risk(tmp_path: Path) -> None:
    brokers = short_follower(tmp_path)
    controlled_by(brokers, *in_sync([1, 3]))
    assert said(verdict(brokers)) == [("REPLICA_LAGS", "info", 2)]


def test_an_unclean_election_is_told_with_its_cost(tmp_path: Path) -> None:
    brokers = short_leader(tmp_path, ("new", 2))
    controlled_by(brokers, *in_sync([3]), change(leader=-1), change(leader=1, isr=[1], leader_recovery_state=1))
    result = verdict(brokers)
    assert said(result) == [("UNCLEAN_ELECTION", "info", None), ("UNCLEAN_LOSS", "critical", None)]
    finding = only(result, "UNCLEAN_ELECTION")
    assert (offsets(finding), finding.evidence["cost_finding"], finding.evidence["held_by"]) == ((2, 4), "UNCLEAN_LOSS", [2, 3])
    assert (finding.evidence["old_leader"], finding.evidence["new_leader"], finding.evidence["leader_epoch"]) == (3, 1, 2)
    assert finding.evidence["election_time"] == "2023-11-14T22:30:04.000Z"
    assert only(result, "UNCLEAN_LOSS").evidence["election"]["unclean"] is True


def test_a_watermark_from_before_an_unclean_election_still_proves_what_its_own_log_holds(tmp_path: Path) -> None:
    brokers = short_leader(tmp_path)
    controlled_by(brokers, *in_sync([3]), change(leader=-1), change(leader=1, isr=[1], leader_recovery_state=1))
    assert said(verdict(brokers)) == [("LRS_RISK", "critical", 1), ("UNCLEAN_ELECTION", "info", None)]


P, Q, R = ("p", 0), ("q", 2), ("r", 4)
"""Records of leader epochs 0, 2 and 4."""
Costs = dict[int, tuple[tuple[int | None, int | None], list[int]]]


@pytest.mark.parametrize(
    ("second", "third", "costs", "election_of_1"),
    [
        ([P] * 6 + [Q] * 8, [P] * 3 + [R] * 2, {2: ((6, 10), [1]), 4: ((3, 14), [2])}, 2),
        ([P] * 6 + [Q] * 8, [P] * 8 + [R] * 2, {2: ((8, 10), [1]), 4: ((6, 14), [2])}, 2),
        ([P] * 6 + [Q] * 8, [P] * 6 + [Q] * 2 + [R] * 2, {2: ((6, 10), [1]), 4: ((8, 14), [2])}, 2),
        ([P] * 6 + [Q], [P] * 3 + [R] * 20, {2: ((6, 10), [1]), 4: ((3, 7), [2])}, 2),
        ([P] * 10 + [Q] * 2, [P] * 3 + [R] * 2, {4: ((3, 12), [2])}, 4),
    ],
)
def test_of_two_unclean_elections_each_is_told_with_what_its_own_loser_held(
    tmp_path: Path, second: list[tuple[str, int]], third: list[tuple[str, int]], costs: Costs, election_of_1: int
) -> None:
    """Broker 1 led and had ten records; broker 2 became the leader uncleanly, wrote, and then so did broker 3."""
    logs = {1: history(*[P] * 10), 2: history(*second), 3: history(*third)}
    brokers = histories(tmp_path, logs, {broker: log.next_offset for broker, log in logs.items()})
    begin = (topic(), partition([1, 2, 3], 1), change(isr=[1]), change(leader=-1))
    again = (change(leader=-1), change(leader=3, isr=[3], leader_recovery_state=1))
    controlled_by(brokers, *begin, change(leader=2, isr=[2], leader_recovery_state=1), *again)
    result = verdict(brokers)
    elections = [
        finding for finding in result.findings if finding.kind == "UNCLEAN_ELECTION" and "cost_finding" in finding.evidence
    ]
    assert {finding.evidence["leader_epoch"]: (offsets(finding), finding.evidence["held_by"]) for finding in elections} == costs
    losses = [finding for finding in result.findings if finding.kind == "UNCLEAN_LOSS" and 1 in finding.evidence["held_by"]]
    assert [finding.evidence["election"]["leader_epoch"] for finding in losses] == [election_of_1] * len(losses)
    assert len(losses) == (2 in costs)


@pytest.mark.parametrize(("leader", "told"), [(2, "same_leader"), (1, "agree_again")])
def test_an_unclean_election_whose_replicas_agree_is_only_told(tmp_path: Path, leader: int, told: str) -> None:
    brokers = healthy(tmp_path)
    controlled_by(brokers, *in_sync([2]), change(leader=-1, isr=[]), change(leader=leader, isr=[leader], leader_recovery_state=1))
    result = verdict(brokers)
    assert said(result) == [("UNCLEAN_ELECTION", "info", None)]
    finding = only(result, "UNCLEAN_ELECTION")
    assert (finding.evidence[told], finding.evidence["epoch_start_offset"], offsets(finding)) == (True, 58, (None, None))


@pytest.mark.parametrize("case", sorted({*BAD} - {"unknown kind"}))
def test_f48_malformed_records_are_told_one_by_one_and_nothing_is_guessed(f33: Brokers, case: str) -> None:
    value, reason = BAD[case]
    controlled_by(f33, *malformed_twice(value))
    result = verdict(f33)
    bad = [finding for finding in result.findings if finding.kind == "METADATA_RECORD_MALFORMED"]
    assert [(kind, severity) for kind, severity, _ in said(result)] == [
        ("METADATA_RECORD_MALFORMED", "error"),
        ("METADATA_RECORD_MALFORMED", "error"),
        ("REPLICA_LAGS", "info"),
    ]
    assert [(offsets(finding), finding.evidence["reason"], finding.evidence["unknown_after_offset"]) for finding in bad] == [
        ((3, 4), reason, 2),
        ((5, 6), reason, 4),
    ]
    assert {(finding.place.broker, finding.place.file, finding.place.topic) for finding in bad} == {
        (100, f"__cluster_metadata-0/{0:020d}.log", "__cluster_metadata")
    }
    summary = next(each for each in result.partitions if each.topic == "t")
    assert (summary.leader, summary.isr, summary.leader_epoch) == (None, None, None)


def test_f48_a_bad_record_of_another_kind_leaves_no_doubt(f33: Brokers) -> None:
    controlled_by(f33, *in_sync([1, 3]), b"\1\0\x63")
    assert said(verdict(f33)) == [
        ("ISR_MEMBER_MISSING_COMMITTED", "critical", 3),
        ("METADATA_RECORD_MALFORMED", "error", 100),
        NOT_GIVEN,
    ]


def test_records_of_a_kind_nobody_knows_are_measured_and_conclusions_stand_on_that_premise(f33: Brokers) -> None:
    controlled_by(f33, *malformed_twice(BAD["unknown kind"][0]))
    result = verdict(f33)
    assert said(result) == [
        ("ISR_MEMBER_MISSING_COMMITTED", "critical", 3),
        ("METADATA_RECORD_UNKNOWN", "info", 100),
        NOT_GIVEN,
    ]
    finding = only(result, "METADATA_RECORD_UNKNOWN")
    assert offsets(finding) == (3, 6)
    assert finding.evidence == {"api_key": 99, "record_versions": [0], "records": 2, "record_bytes": 8, "brokers": [100]}
    premise = "2 records of unknown kinds in __cluster_metadata were passed over"
    for kind in ("ISR_MEMBER_MISSING_COMMITTED", "REPLICA_NOT_GIVEN"):
        assert only(result, kind).evidence["premises"][-1] == premise
    summary = next(each for each in result.partitions if each.topic == "t")
    assert (summary.leader, summary.isr) == (1, [1, 3])


def test_without_unknown_records_no_premise_speaks_of_them(f33: Brokers) -> None:
    controlled_by(f33, *in_sync([1, 3]))
    result = verdict(f33)
    assert "premises" not in only(result, "REPLICA_NOT_GIVEN").evidence
    assert len(only(result, "ISR_MEMBER_MISSING_COMMITTED").evidence["premises"]) == 2


def test_f48_one_finding_however_many_copies_hold_the_record(tmp_path: Path) -> None:
    result = verdict(malformed_in_two_copies(tmp_path))
    assert [kind for kind, _, _ in said(result)] == ["METADATA_RECORD_MALFORMED", "REPLICA_LAGS"]
    assert only(result, "METADATA_RECORD_MALFORMED").evidence["brokers"] == [1, 100]


def test_settings_that_allow_it_are_tied_to_what_happened(tmp_path: Path) -> None:
    brokers = short_leader(tmp_path, ("new", 2))
    controlled_by(brokers, *in_sync([3]), *RISKY, change(leader=-1), change(leader=1, isr=[1], leader_recovery_state=1))
    result = verdict(brokers)
    assert said(result) == [("RISKY_CONFIG", "info", None), ("UNCLEAN_ELECTION", "info", None), ("UNCLEAN_LOSS", "critical", None)]
    finding = only(result, "RISKY_CONFIG")
    assert finding.evidence["risks"] == ["unclean elections on", "min.insync.replicas 1 with 3 replicas"]
    assert (finding.place.topic, finding.evidence["explains"]) == ("t", ["UNCLEAN_ELECTION", "UNCLEAN_LOSS"])


def test_topics_the_controller_calls_compacted_are_compared_as_such(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    controlled_by(brokers, *in_sync([1, 2, 3]), setting("cleanup.policy", "compact,delete"))
    result = verdict(brokers)
    assert said(result) == []
    summary = next(each for each in result.partitions if each.topic == "t")
    assert (summary.cleanup_policy, summary.agreement.kind) == ("compact,delete", "compacted")


def test_any_replica_tells_the_cleanup_policy(tmp_path: Path) -> None:
    """The first one is of an earlier topic of the name, of whose settings nothing is known."""
    brokers = healthy(tmp_path)
    brokers.named(1, "partition.metadata").write_bytes(f"version: 0\ntopic_id: {OTHER_ID}\n".encode())
    controlled_by(brokers, *in_sync([1, 2, 3]), setting("cleanup.policy", "delete"))
    summary = next(each for each in verdict(brokers).partitions if each.topic == "t")
    assert (summary.replicas[0].broker, summary.cleanup_policy) == (1, "delete")


def test_replicas_told_different_cleanup_policies_leave_it_unknown() -> None:
    words = ("delete", "compact", None)
    controls = [PartitionControl(1, 0, [1], [], [1], {}, TOPIC_ID, cleanup_policy=word) for word in words]
    contexts = [ReplicaContext("t", 0, 1, "b1", "t-0", control=control) for control in controls]
    assert [cleanup_policy(each) for each in (contexts, contexts[1:], contexts[2:])] == ["unknown", "compact", "unknown"]


@pytest.mark.parametrize(("identified", "expected"), [(True, "compacted"), (False, "identical")])
def test_a_cleaner_that_knows_the_topic_is_believed_over_an_older_word(tmp_path: Path, identified: bool, expected: str) -> None:
    """The topic was made compacted after the controller's log was copied; without its id it may be an earlier topic's entry."""
    brokers = healthy(tmp_path)
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "cleaner", 0)
        if not identified:
            (brokers.log_dir(broker) / "t-0" / "partition.metadata").unlink()
    controlled_by(brokers, topic(), setting("cleanup.policy", "delete"), partition([1, 2, 3], 1))
    summary = next(each for each in verdict(brokers).partitions if each.topic == "t")
    assert (summary.cleanup_policy, summary.agreement.kind) == ("delete", expected)


def test_f00_a_controller_beside_healthy_brokers_adds_no_finding(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    controlled_by(brokers, *in_sync([1, 2, 3]), change(leader=2), record(20), change(isr=[2, 1]), change(isr=[2, 1, 3]))
    result = verdict(brokers)
    assert said(result) == []
    summary = next(each for each in result.partitions if each.topic == "t")
    assert (summary.leader, summary.leader_epoch, summary.isr, HEALTHY.next_offset) == (2, 1, [2, 1, 3], 75)


def test_an_election_before_the_controllers_log_begins_is_not_made_up(tmp_path: Path) -> None:
    """A snapshot has the leader's epoch; that the followers came back is no election, and not why records are gone."""
    brokers = short_leader(tmp_path, ("new", 2))
    log = ControllerLog(next_offset=100).lead([100]).append(change(isr=[1, 2]))
    directory = log.put(brokers.root / "c100", start=100)
    stated = snapshot(topic(), partition([1], 1, replicas=[1, 2, 3], leader_epoch=2, leader_recovery_state=1))
    (directory / "00000000000000000100-0000000001.checkpoint").write_bytes(stated)
    result = verdict(brokers)
    assert said(result) == [("UNCLEAN_LOSS", "critical", None)]
    assert "election" not in only(result, "UNCLEAN_LOSS").evidence
