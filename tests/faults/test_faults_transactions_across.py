"""Faults F44 and F48: what the coordinator decided against the markers of two partitions, and records of its log that lie."""

from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.writers.batches import write_transaction_log_key
from kafka_forensics.writers.files import write_meta_properties
from tests.support.controller_log import CONTROLLER, ControllerLog, partition, topic
from tests.support.faults_verdict import Said, kinds, offsets, only, said, scan, span, verdict
from tests.support.gallery_replicas import OTHER_CLUSTER_ID
from tests.support.transaction_logs import (
    ABORT,
    APP,
    APP_ID,
    BROKERS,
    COMMIT,
    HEAD,
    LATE,
    LIES,
    NOTHING,
    OTHER,
    TIMES,
    CoordinatorLog,
    DataLog,
    Logs,
    after_retention,
    another_one,
    brokers_of,
    cluster,
    cut_before,
    cut_within,
    decided,
    ended,
    many,
    ms,
    prepared,
    replaced_coordinator,
    segmented,
    without_segment,
    write_cluster,
    wrong_clock,
)

pytestmark = pytest.mark.faults


def found(paths: list[str]) -> list[Finding]:
    """All that a scan finds in directories, named or not."""
    return local.scan(paths, ScanOptions(jobs=1)).findings


VERSIONS = pytest.mark.parametrize("client", [0, 2], ids=["version 0", "version 2"])


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_both_partitions_as_decided_are_no_finding(tmp_path: Path, client: int, commit: bool) -> None:
    first, second = (ended(30, commit, client=client) for _ in range(2))
    logs = cluster(first, second, decided(30, commit=commit, client=client))
    assert said(scan(write_cluster(tmp_path, logs))) == []


@VERSIONS
def test_f44_committed_here_and_aborted_there(tmp_path: Path, client: int) -> None:
    torn = ended(30, ABORT, client=client)
    logs = cluster(ended(30, COMMIT, client=client), torn, decided(30, client=client))
    result = scan(write_cluster(tmp_path, logs))
    assert said(result) == [("TXN_TORN", "critical", 1)]
    finding = only(result, "TXN_TORN")
    marker = torn.at(5)
    assert (finding.place.partition, offsets(finding), span(finding)) == (1, (5, 6), (marker.position, marker.end))
    expected = {
        "reason": "opposite_marker",
        "decision": "commit",
        "transactional_id": APP,
        "producer_id": APP_ID,
        "partitions_of_transaction": ["t-0", "t-1"],
        "coordinator_state": "CompleteCommit",
        "coordinator_partition": 0,
        "coordinator_broker": 1,
        "coordinator_offset": 4,
    }
    assert {name: finding.evidence[name] for name in expected} == expected


def test_f44_aborted_by_the_coordinator_and_committed_there(tmp_path: Path) -> None:
    logs = cluster(ended(30, ABORT), ended(30, COMMIT), decided(30, commit=False))
    assert said(scan(write_cluster(tmp_path, logs))) == [("TXN_TORN", "error", 1)]


@VERSIONS
def test_f44_committed_here_and_never_ended_there(tmp_path: Path, client: int) -> None:
    logs = cluster(ended(30, COMMIT, client=client), ended(30, NOTHING, client=client), decided(30, client=client))
    result = scan(write_cluster(tmp_path, logs))
    assert said(result) == [("TXN_TORN", "critical", 1)]
    finding = only(result, "TXN_TORN")
    assert (finding.evidence["reason"], finding.place.partition, offsets(finding)) == ("no_marker", 1, (3, 5))


@pytest.mark.parametrize(("later", "torn"), [(LATE, True), (60, False)])
def test_f44_a_decision_whose_markers_are_on_their_way_is_torn_only_when_overdue(tmp_path: Path, later: float, torn: bool) -> None:
    logs = cluster(ended(30, COMMIT, traffic=later), ended(30, NOTHING, traffic=later), prepared())
    result = scan(write_cluster(tmp_path, logs))
    still: Said = [("TXN_OPEN", "info", broker) for broker in BROKERS]
    assert said(result) == ([("TXN_TORN", "critical", 1)] if torn else still)


def test_f44_a_clients_wrong_clock_makes_no_decision_overdue(tmp_path: Path) -> None:
    logs = cluster(ended(30, COMMIT, traffic=60), ended(30, NOTHING, traffic=60), prepared())
    result = scan(write_cluster(tmp_path, logs | {"other-0": wrong_clock()}))
    assert [one for one in said(result) if one[0].startswith("TXN")] == [("TXN_OPEN", "info", broker) for broker in BROKERS]


@pytest.mark.parametrize("commit", [True, False])
def test_f44_crashed_brokers_that_went_on_behind_the_decision_lost_its_marker(tmp_path: Path, commit: bool) -> None:
    """Complete is written behind every marker: one that is on no copy was lost, though the partition ends without a sign of it."""
    logs = cluster(ended(30, commit), ended(30, NOTHING, traffic=None), decided(30, commit=commit))
    result = scan(write_cluster(tmp_path, logs, clean=False))
    assert [one for one in said(result) if one[0] != "HW_UNKNOWN"] == [("TXN_TORN", "warning", 1)]
    finding = only(result, "TXN_TORN")
    assert (finding.evidence["reason"], finding.confidence.value, offsets(finding)) == ("no_marker", "suspected", (3, 5))


def test_f44_crashed_brokers_that_went_on_behind_the_decision_lost_its_records(tmp_path: Path) -> None:
    lost = DataLog()
    lost.traffic(0)
    result = scan(write_cluster(tmp_path, cluster(ended(30, COMMIT), lost, decided(30)), clean=False))
    assert [one for one in said(result) if one[0] != "HW_UNKNOWN"] == [("TXN_PARTLY_LOST", "warning", 1)]
    assert only(result, "TXN_PARTLY_LOST").confidence.value == "suspected"


def test_f44_a_copy_older_than_the_decision_is_not_judged(tmp_path: Path) -> None:
    """Of running brokers every copy may be older; of crashed ones those without anything that is newer."""
    first, second, state = ended(30, COMMIT), ended(30, NOTHING, traffic=None), decided(30)
    older: Logs = {"t-0": {3: first}, "t-1": {1: second, 2: second}, "__transaction_state-0": {3: state}}
    live = scan(write_cluster(tmp_path / "live", cluster(first, second, state), clean=False), live=True)
    crashed = scan(write_cluster(tmp_path / "crashed", older, clean=False))
    for result, copies in ((live, 3), (crashed, 2)):
        assert [one for one in said(result) if one[1] != "info"] == []
        assert kinds(result)["TXN_OPEN", "info"] == copies


@pytest.mark.parametrize("bump", [1, 2])
@pytest.mark.parametrize(("shown", "reason"), [(ABORT, None), (NOTHING, "no_marker"), (COMMIT, "opposite_marker")])
def test_f44_a_fenced_transaction_of_version_2_ends_one_or_two_epochs_up(
    tmp_path: Path, bump: int, shown: bool | None, reason: str | None
) -> None:
    """Early builds of 4.0 raised the epoch for the fence and for the end (KAFKA-19367)."""
    log, state = DataLog(), CoordinatorLog()
    log.traffic(0)
    log.data(30, epoch=4)
    if shown is not None:
        log.marker(90.07, commit=shown, epoch=4 + bump)
    log.traffic(120)
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.state(30, "Ongoing", (0,), epoch=4, client=2)
    state.state(90.05, "PrepareAbort", (0,), epoch=4 + bump, since=30, client=2)
    state.state(90.09, "CompleteAbort", epoch=4 + bump, since=30, client=2)
    result = scan(write_cluster(tmp_path, {"t-0": log, "__transaction_state-0": state}))
    told = [(finding.kind, finding.evidence["reason"]) for finding in result.findings if finding.kind != "INCIDENT_SIGNATURE"]
    assert told == ([] if reason is None else [("TXN_TORN", reason)])


@pytest.mark.parametrize(("isr", "torn"), [([3], False), ([2, 3], True)])
def test_f44_replicas_that_were_out_of_sync_need_not_have_the_marker(tmp_path: Path, isr: list[int], torn: bool) -> None:
    """Broker 3 was not given; the controller's log says who had all that was committed."""
    logs = cluster(ended(30, COMMIT), ended(30, NOTHING), decided(30))
    paths = write_cluster(tmp_path, logs)[:2]
    state = partition(isr, 3, partition_id=1, replicas=[1, 2, 3])
    control = ControllerLog().lead([CONTROLLER]).append(topic(), state)
    result = scan([*paths, control.put(tmp_path / "controller")])
    told = [one for one in said(result) if one[0].startswith("TXN")]
    assert told == ([("TXN_TORN", "critical", 1)] if torn else [("TXN_OPEN", "info", 1), ("TXN_OPEN", "info", 2)])


def test_f44_brokers_given_by_name_are_those_that_the_controller_knows(tmp_path: Path) -> None:
    logs = cluster(ended(30, COMMIT), ended(30, NOTHING), decided(30))
    state = partition([1, 2, 3], 1, partition_id=1, replicas=[1, 2, 3])
    control = ControllerLog().lead([CONTROLLER]).append(topic(), state).put(tmp_path / "controller")
    named = [f"{name}={path}" for name, path in zip("xyz", write_cluster(tmp_path / "b", logs), strict=True)]
    assert [
        (finding.kind, finding.place.broker) for finding in found([*named, str(control)]) if finding.kind.startswith("TXN")
    ] == [("TXN_TORN", "x")]


def test_f44_a_follower_that_lags_behind_a_damaged_leader_shows_nothing(tmp_path: Path) -> None:
    """The leader's marker is rotten, and the whole copy was not in sync."""
    logs: Logs = {
        "t-0": ended(30, COMMIT),
        "t-1": {1: ended(30, COMMIT, traffic=None), 2: ended(30, NOTHING, traffic=None)},
        "__transaction_state-0": decided(30),
    }
    paths = write_cluster(tmp_path / "b", logs, clean=False)
    (log,) = (paths[0] / "t-1").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-3] ^= 0xFF
    log.write_bytes(data)
    state = partition([1], 1, partition_id=1, replicas=[1, 2])
    control = ControllerLog().lead([CONTROLLER]).append(topic(), state).put(tmp_path / "controller")
    told = {
        (finding.kind, finding.severity.value)
        for finding in found([*map(str, paths), str(control)])
        if finding.kind.startswith("TXN")
    }
    assert told == {("TXN_OPEN", "info")}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ahead", [0.2, 5, 60])
def test_f44_a_broker_that_went_on_by_a_fast_clock_alone_may_have_stopped_before(tmp_path: Path, clean: bool, ahead: float) -> None:
    """Only the copy of broker 3 has the decision; broker 1 is behind it by more than clocks may be apart, or is not judged."""
    without, other = DataLog(), DataLog()
    without.traffic(0)
    without.data(30)
    other.traffic(30.09 + ahead)
    logs: Logs = {"t-0": {1: other}, "t-1": {1: without}, "__transaction_state-0": {3: decided(30)}}
    paths = write_cluster(tmp_path, logs, clean=clean)
    torn = "TXN_TORN" in {finding.kind for finding in found([str(paths[0]), str(paths[2])])}
    assert torn == (ahead == 60)


@pytest.mark.parametrize(("as_of", "torn"), [(-3600, False), (20, False), (3600, True)])
def test_f44_a_controller_whose_log_ends_before_the_decision_says_nothing_of_it(tmp_path: Path, as_of: int, torn: bool) -> None:
    """Broker 1 is in sync by it, and the copy of broker 2 is not given."""
    logs = cluster(ended(30, COMMIT), ended(30, NOTHING), decided(30))
    paths = write_cluster(tmp_path / "b", logs)
    states = [partition([1, 2], 1, partition_id=number, replicas=[1, 2]) for number in (0, 1)]
    control = ControllerLog(start_ms=ms(as_of)).lead([CONTROLLER]).append(topic(), *states).put(tmp_path / "controller")
    told = {finding.kind for finding in found([str(paths[0]), str(control)])}
    assert ("TXN_TORN" in told) == torn


@pytest.mark.parametrize("clean", [True, False])
def test_f44_a_marker_that_one_copy_has_is_a_matter_of_the_copies(tmp_path: Path, clean: bool) -> None:
    """The leader's copy lacks the marker that broker 2 still has: how their logs differ says what is lost."""
    with_marker, without = ended(30, COMMIT, traffic=None), ended(30, NOTHING, traffic=None)
    logs: Logs = {
        "t-0": ended(30, COMMIT),
        "t-1": {1: without, 2: with_marker, 3: without},
        "__transaction_state-0": decided(30),
    }
    paths = write_cluster(tmp_path, logs, clean=clean)
    control = ControllerLog().lead([CONTROLLER]).append(topic(), partition([1], 1, partition_id=1, replicas=[1, 2, 3]))
    result = scan([*paths, control.put(tmp_path / "controller")])
    assert "TXN_TORN" not in {finding.kind for finding in result.findings}
    findings = [finding for finding in result.findings if finding.kind == "TXN_OPEN"]
    assert [finding.evidence["ended_on"] for finding in findings] == [[2], [2]]


def test_f44_a_decision_long_ago_whose_markers_may_still_come_is_a_suspicion(tmp_path: Path) -> None:
    logs = cluster(ended(30, COMMIT, traffic=LATE), ended(30, NOTHING, traffic=None), prepared())
    result = scan(write_cluster(tmp_path, logs, clean=False))
    told = {
        (finding.severity.value, finding.confidence.value, finding.evidence["overdue"])
        for finding in result.findings
        if finding.kind == "TXN_OPEN"
    }
    assert told == {("warning", "suspected", True)}


def test_f44_without_the_coordinators_log_the_markers_disagree(tmp_path: Path) -> None:
    logs = cluster(ended(30, COMMIT, client=2), ended(30, ABORT, client=2))
    result = scan(write_cluster(tmp_path, logs))
    assert said(result) == [("TXN_MARKERS_DISAGREE", "error", 1)]
    finding = only(result, "TXN_MARKERS_DISAGREE")
    assert (finding.place.partition, offsets(finding), finding.evidence["committed_in"]) == (1, (3, 6), ["t-0"])
    assert (finding.evidence["producer_id"], finding.evidence["shown_as"]) == (APP_ID, "aborted")


def test_f44_without_the_coordinators_log_and_epochs_of_their_own_it_is_a_suspicion(tmp_path: Path) -> None:
    result = scan(write_cluster(tmp_path, cluster(ended(30, COMMIT), ended(30, ABORT))))
    assert said(result) == [("TXN_MARKERS_DISAGREE", "warning", 1)]
    assert only(result, "TXN_MARKERS_DISAGREE").confidence.value == "suspected"


@VERSIONS
def test_f44_two_transactions_that_ended_differently_are_no_finding(tmp_path: Path, client: int) -> None:
    """One partition each, one after the other: in version 2 the second has an epoch of its own."""
    logs = cluster(ended(30, COMMIT, client=client), another_one(client))
    assert said(scan(write_cluster(tmp_path, logs))) == []


def test_f44_one_torn_among_many_that_share_their_epoch(tmp_path: Path) -> None:
    """A hundred transactions, a tenth of a second each, by clocks that differ by seven seconds."""
    for name, torn in (("sound", None), ("torn", 47)):
        result = scan(write_cluster(tmp_path / name, many(torn)))
        assert said(result) == ([] if torn is None else [("TXN_TORN", "critical", 1)])


def test_a_committed_transaction_whose_records_are_gone_everywhere(tmp_path: Path) -> None:
    """Every copy of t-1 was cut before the transaction, and then went on."""
    lost = cut_before()
    logs = cluster(ended(30, COMMIT), lost, decided(30))
    result = scan(write_cluster(tmp_path, logs))
    assert said(result) == [("TXN_PARTLY_LOST", "critical", 1)]
    finding = only(result, "TXN_PARTLY_LOST")
    assert (finding.evidence["reason"], finding.evidence["held_by"], finding.place.partition) == ("nothing_left", [], 1)
    kept: Logs = {"t-0": ended(30, COMMIT), "t-1": {1: lost, 2: ended(30, COMMIT), 3: lost}, "__transaction_state-0": decided(30)}
    assert "TXN_PARTLY_LOST" not in {kind for kind, _, _ in said(scan(write_cluster(tmp_path / "kept", kept)))}


@pytest.mark.parametrize(("client", "one_epoch"), [(0, False), (0, True), (2, False)])
def test_of_decisions_beyond_the_logs_end_only_the_first_is_about_what_is_open(
    tmp_path: Path, client: int, one_epoch: bool
) -> None:
    """An epoch is ended by one decision: the next two were about records that the copies no longer have."""
    result = scan(write_cluster(tmp_path, cut_within(client, one_epoch=one_epoch)))
    assert said(result) == [("TXN_PARTLY_LOST", "critical", 1), ("TXN_TORN", "critical", 1)]
    torn, lost = only(result, "TXN_TORN"), only(result, "TXN_PARTLY_LOST")
    assert (offsets(torn), torn.evidence["decision"], torn.evidence["coordinator_offset"]) == ((3, 5), "commit", 4)
    assert (lost.evidence["reason"], lost.evidence["coordinator_offset"]) == ("nothing_left", 10)


def test_a_committed_transaction_whose_segment_is_gone_everywhere(tmp_path: Path) -> None:
    brokers = brokers_of(tmp_path, cluster(ended(30, COMMIT), segmented(), decided(30)))
    without_segment(brokers, "t-1", 3)
    result = verdict(brokers)
    finding = only(result, "TXN_PARTLY_LOST")
    assert (finding.evidence["reason"], offsets(finding), finding.severity.value) == ("records_missing", (3, 5), "critical")
    assert finding.confidence.value == "suspected"  # nothing says that the topic is not cleaned
    assert kinds(result)["COMMITTED_LOST_EVERYWHERE", "critical"] == 1


def test_what_retention_took_is_not_lost(tmp_path: Path) -> None:
    assert said(scan(write_cluster(tmp_path, after_retention()))) == []


def test_a_marker_of_a_replaced_coordinator(tmp_path: Path) -> None:
    result = scan(write_cluster(tmp_path, {"t-0": replaced_coordinator()}))
    assert said(result) == [("TXN_COORDINATOR_EPOCH_REGRESSION", "warning", broker) for broker in BROKERS]
    finding = result.findings[0]
    assert (offsets(finding), finding.evidence["coordinator_epoch"], finding.evidence["previous_coordinator_epoch"]) == (
        (8, 9),
        4,
        5,
    )


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("restated", [False, True])
def test_f48_a_malformed_state_leaves_that_id_unknown_until_it_is_stated_again(tmp_path: Path, lie: str, restated: bool) -> None:
    log, state = ended(30, NOTHING, traffic=LATE), CoordinatorLog()
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.state(20, "Empty")
    wrong = state.value(30, write_transaction_log_key(APP), LIES[lie])
    state.transaction(40, (0,), commit=True, name=OTHER)
    if restated:
        state.state(50, "Empty")
    result = scan(write_cluster(tmp_path, {"t-0": log, "__transaction_state-0": state}))
    unknown: Said = [("TXN_OPEN", "info", broker) for broker in BROKERS]
    concluded: Said = [("TXN_HANGING", "error", 1)]
    assert said(result) == sorted([("METADATA_RECORD_MALFORMED", "error", 1), *(concluded if restated else unknown)], key=str)
    finding = only(result, "METADATA_RECORD_MALFORMED")
    assert (finding.place.topic, span(finding), offsets(finding)) == ("__transaction_state", (wrong.position, wrong.end), (4, 5))
    assert (finding.evidence["reason"], finding.evidence["transactional_id"]) == (lie.split()[0], APP)
    if not restated:
        told = {finding.evidence.get("unknown_after_offset") for finding in result.findings if finding.kind == "TXN_OPEN"}
        assert told == {3}


def test_f48_a_malformed_key_may_have_been_anybodys(tmp_path: Path) -> None:
    log, state = ended(30, NOTHING, traffic=LATE), CoordinatorLog()
    state.state(20, "Empty")
    state.value(30, b"\0\x07\0\x05app-1", b"")
    state.state(50, "Empty")
    result = scan(write_cluster(tmp_path, {"t-0": log, "__transaction_state-0": state}))
    assert kinds(result) == {("METADATA_RECORD_MALFORMED", "error"): 1, ("TXN_OPEN", "info"): 3}
    assert only(result, "METADATA_RECORD_MALFORMED").evidence["reason"] == "key_version"
    assert {finding.evidence.get("unknown_after_offset") for finding in result.findings if finding.kind == "TXN_OPEN"} == {0}


def test_f48_a_copy_of_the_log_that_is_damaged_yields_to_one_that_is_not(tmp_path: Path) -> None:
    paths = write_cluster(tmp_path, cluster(ended(30, COMMIT), ended(30, ABORT), decided(30)))
    file = paths[0] / "__transaction_state-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    result = scan(paths)
    assert only(result, "TXN_TORN").evidence["coordinator_broker"] == 2
    assert {finding.kind for finding in result.findings if finding.place.topic == "t"} - {"INCIDENT_SIGNATURE"} == {"TXN_TORN"}


def test_f48_no_value_breaks_the_scan(tmp_path: Path) -> None:
    """Every byte of a sound value set to four others, and every beginning of it."""
    sound = HEAD + b"\x02\x02t\x02\0\0\0\0\0" + TIMES + b"\x01\0\x08" + bytes(8)
    values = [sound[:at] + bytes([new]) + sound[at + 1 :] for at in range(len(sound)) for new in (0, 1, 0x7F, 0xFF)]
    values += [sound[:size] for size in range(len(sound))]
    state = CoordinatorLog()
    for number, value in enumerate(values):
        state.value(number, write_transaction_log_key(f"id-{number % 7}"), value)
    result = scan(write_cluster(tmp_path, {"t-0": ended(30, NOTHING, traffic=LATE), "__transaction_state-0": state}))
    told = kinds(result)
    assert told["METADATA_RECORD_MALFORMED", "error"] > len(sound)
    assert {kind for kind, _ in told} == {"METADATA_RECORD_MALFORMED", "TXN_OPEN"}


def test_the_log_of_one_clusters_coordinators_says_nothing_of_another(tmp_path: Path) -> None:
    ours = write_cluster(tmp_path / "a", cluster(ended(30, ABORT), ended(30, NOTHING), decided(30, commit=False)))
    theirs = write_cluster(tmp_path / "b", {"u-0": ended(30, COMMIT), "__transaction_state-0": decided(30)})
    for number, path in enumerate(theirs):
        (path / "meta.properties").write_bytes(write_meta_properties(node_id=10 + number, cluster_id=OTHER_CLUSTER_ID))
    assert kinds(scan([*ours, *theirs])) == {("CLUSTER_ID_MISMATCH", "error"): 1, ("TXN_OPEN", "info"): 3}


def test_markers_of_two_clusters_do_not_disagree(tmp_path: Path) -> None:
    ours = write_cluster(tmp_path / "a", {"t-0": ended(30, COMMIT, client=2)})
    theirs = write_cluster(tmp_path / "b", {"u-0": ended(9000, ABORT, client=2)})
    for number, path in enumerate(theirs):
        (path / "meta.properties").write_bytes(write_meta_properties(node_id=10 + number, cluster_id=OTHER_CLUSTER_ID))
    assert kinds(scan([*ours, *theirs])) == {("CLUSTER_ID_MISMATCH", "error"): 1}
