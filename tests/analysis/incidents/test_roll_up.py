"""Findings folded into incidents: every one above info in exactly one, sums that add up, and nothing that hangs on their order."""

import random
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.analysis.catalogue import CATALOGUE, finding
from kafka_forensics.analysis.incidents import CAUSE_OF, SAME_TIME_MS, incidents
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.incidents import Cause, Incident

NOON = 1_795_233_370_014


def lost(partition: int, *, at: int | None = NOON, old_leader: int = 2, offsets: int = 70, topic: str = "audit") -> Finding:
    """Committed records that survive only where an unclean election will have them cut; `at` None: no controller's log tells."""
    election = {"election_ms": at, "old_leader": old_leader, "new_leader": 1, "unclean": True}
    evidence: dict[str, Any] = {"held_by": [old_leader], "loses": offsets}
    evidence |= {} if at is None else {"election": election}
    return finding("UNCLEAN_LOSS", Place(topic, partition, offset_start=300, offset_end=300 + offsets), evidence)


def matched(partition: int, issue: str = "KAFKA-10751", incident: str = "d6", **more: Any) -> Finding:
    """A known incident that the partition looks like."""
    evidence = {"incident": incident, "issue": issue, "does_not_fit": [], **more}
    return finding("INCIDENT_SIGNATURE", Place("audit", partition), evidence, confidence=Confidence.INFERRED)


def of(
    kind: str, partition: int = 0, broker: int | None = 2, start: int | None = None, end: int | None = None, **evidence: Any
) -> Finding:
    return finding(kind, Place("audit", partition, broker, offset_start=start, offset_end=end), evidence)


def only(findings: list[Finding]) -> Incident:
    (incident,) = incidents(findings)
    return incident


def test_every_kind_has_a_cause() -> None:
    assert set(CAUSE_OF) == set(CATALOGUE)


def test_one_election_of_many_partitions_is_one_incident_of_the_longest_loss_first() -> None:
    incident = only([lost(number, at=NOON + number * 900, offsets=10 + number) for number in range(200)])
    assert (incident.cause, incident.severity, incident.confidence) == (
        Cause.UNCLEAN_ELECTION,
        Severity.CRITICAL,
        Confidence.PROVEN,
    )
    assert (incident.brokers, incident.held_by) == ([2], [2])
    assert (incident.from_ms, incident.to_ms) == (NOON, NOON + 199 * 900)
    assert [partition.partition for partition in incident.partitions] == list(reversed(range(200)))
    assert incident.lost_at_least == incident.lost_at_most == sum(range(10, 210))
    assert incident.kinds == {"UNCLEAN_LOSS": 200}


def test_elections_far_apart_and_of_other_leaders_are_other_incidents() -> None:
    near, far, other = lost(0), lost(1, at=NOON + SAME_TIME_MS + 1), lost(2, old_leader=3)
    assert sorted(incident.findings for incident in incidents([near, far, other])) == [[0], [1], [2]]
    assert only([near, lost(1, at=NOON + SAME_TIME_MS)]).findings == [0, 1]


def test_steps_of_a_minute_connect_what_lies_further_apart() -> None:
    assert only([lost(number, at=NOON + number * SAME_TIME_MS) for number in (2, 0, 1)]).from_ms == NOON


def test_a_fork_without_a_known_election_claims_none() -> None:
    incident = only([lost(0, at=None), lost(1, at=None)])
    assert (incident.cause, incident.from_ms, incident.known_as) == (Cause.REPLICAS_DIVERGE, None, None)


def test_a_clean_election_is_no_unclean_one() -> None:
    clean = lost(0)
    election = {**clean.evidence["election"], "unclean": False}
    assert only([clean.with_evidence(election=election)]).cause is Cause.REPLICAS_DIVERGE


def test_a_fork_that_an_election_is_billed_with_has_its_cause_and_time() -> None:
    billed = of("UNCLEAN_ELECTION", 0, None, 300, 345, cost_finding="FORK_BELOW_HW", election_ms=NOON, old_leader=3)
    fork = of("FORK_BELOW_HW", 0, None, 300, 310, held_by=[], versions=[{"brokers": [1]}, {"brokers": [3]}])
    incident = only([fork, billed])
    assert (incident.cause, incident.brokers, incident.from_ms) == (Cause.UNCLEAN_ELECTION, [3], NOON)
    elsewhere = only([replace(fork, place=replace(fork.place, offset_start=400, offset_end=410)), billed])
    assert elsewhere.cause is Cause.REPLICAS_DIVERGE


def test_a_name_only_where_it_explains_every_finding() -> None:
    both = [lost(0), lost(1), matched(0), matched(1)]
    assert only(both).known_as == "KAFKA-10751"
    assert only(both[:3]).known_as is None, "a partition that does not look like it"
    follows = of("ISR_MEMBER_MISSING_COMMITTED", 1, 1, 300, 370, held_by=[2])
    assert only([*both, follows]).known_as is None, "a kind that it does not explain"
    assert only([lost(0), matched(0, does_not_fit=["not so: the records are on one replica only"])]).known_as is None
    assert only([lost(0), replace(matched(0), confidence=Confidence.SUSPECTED)]).known_as is None


def test_what_follows_of_damage_is_part_of_it_where_broker_and_offsets_agree() -> None:
    damage = of("FRAMING_LOST", 0, 2, 100, 200)
    assert only([damage, of("INDEX_MISMATCH", 0, 2), of("RECOVERY_WOULD_TRUNCATE", 0, 2, 100, 300)]).findings == [0, 1, 2]
    assert len(incidents([damage, of("INDEX_MISMATCH", 0, 3)])) == 2
    assert len(incidents([damage, of("INDEX_MISMATCH", 1, 2)])) == 2
    assert len(incidents([damage, of("HW_BEYOND_LEO", 0, 2, 500, 600)])) == 2


def test_a_checkpoint_beyond_the_end_follows_of_what_cuts_the_log() -> None:
    cut = of("RECOVERY_WOULD_TRUNCATE", 0, 2, 100, 300, clean_shutdown=False)
    incident = only([of("CHECKPOINT_OUT_OF_ORDER", 0, 2), cut])
    assert (incident.cause, incident.findings) == (Cause.UNCLEAN_SHUTDOWN, [0, 1])


def test_what_is_damaged_alike_on_every_replica_is_one_incident() -> None:
    alike = [of("BATCH_CRC_MISMATCH", 0, broker, 10, 13, held_by=[]) for broker in (1, 2, 3)]
    assert (only(alike).brokers, only(alike).lost_at_most) == ([1, 2, 3], 3)
    apart = [of("BATCH_CRC_MISMATCH", 0, broker, broker, broker + 1) for broker in (1, 2, 3)]
    assert [incident.brokers for incident in incidents(apart)] == [[1], [2], [3]]


def test_a_batch_that_differs_where_it_is_damaged_is_part_of_the_damage() -> None:
    differs = of("REPLICA_DIFFERS", 0, None, 10, 13, minority=[2], held_by=[1, 3])
    assert only([of("BATCH_CRC_MISMATCH", 0, 2, 10, 13, held_by=[1, 3]), differs]).cause is Cause.DAMAGED_LOG
    assert len(incidents([of("BATCH_CRC_MISMATCH", 0, 2, 50, 53, held_by=[1, 3]), differs])) == 2


def test_late_writes_are_part_of_the_transaction_that_hangs_on_any_replica() -> None:
    late = [of("TXN_LATE_WRITE", 0, broker, 20, 21) for broker in (1, 2, 3)]
    incident = only([of("TXN_HANGING", 0, 1, 5, 21, first_timestamp=NOON), *late])
    assert (incident.cause, incident.from_ms, incident.kinds) == (
        Cause.HANGING_TRANSACTION,
        NOON,
        {"TXN_HANGING": 1, "TXN_LATE_WRITE": 3},
    )


def test_hanging_transactions_of_other_times_are_other_incidents() -> None:
    hanging = [of("TXN_HANGING", number, 1, first_timestamp=NOON + number * 2 * SAME_TIME_MS) for number in range(3)]
    assert len(incidents(hanging)) == 3


def test_a_directory_that_is_gone_is_one_incident_with_what_it_cost() -> None:
    wiped = finding("LOG_DIR_WIPED", Place(broker=2), {"may_have_held": 3})
    empty = [of("EMPTY_REPLICA_MAY_LEAD", number, 2, 0, 10, absent=True, wiped=True, held_by=[1, 3]) for number in range(3)]
    gone = of("COMMITTED_LOST_EVERYWHERE", 3, None, 0, 4, directories_missing_on=[2], held_by=[])
    incident = only([wiped, *empty, gone])
    assert (incident.cause, incident.brokers, incident.held_by) == (Cause.LOG_DIRECTORY_GONE, [2], [1, 3])
    assert (incident.lost_at_least, incident.lost_at_most) == (4, 34)


def test_an_old_copy_of_a_broker_is_one_incident() -> None:
    short = [of("ISR_MEMBER_MISSING_COMMITTED", number, 3, 10, 20, held_by=[1, 2]) for number in range(50)]
    incident = only(short)
    assert (incident.cause, incident.brokers, len(incident.partitions)) == (Cause.SHORT_REPLICA, [3], 50)
    assert (incident.lost_at_least, incident.lost_at_most) == (0, 500)


def test_offsets_that_several_findings_tell_count_once() -> None:
    twice = [of("GROUP_OFFSET_BEYOND_LOG", 0, None, 10, 30), of("COMMITTED_LOST_EVERYWHERE", 0, None, 20, 40)]
    assert (only(twice).lost_at_least, only(twice).lost_at_most) == (30, 30)


def test_how_sure_it_is_hangs_on_its_cause_and_not_on_what_follows() -> None:
    torn = replace(of("TXN_PARTLY_LOST", 0, None, 10, 13, held_by=[]), confidence=Confidence.SUSPECTED)
    gap = of("OFFSET_GAP", 0, 2, 10, 13, held_by=[])
    assert only([gap, torn]).confidence is Confidence.PROVEN
    assert only([gap, of("SEGMENT_MISSING", 0, 2, 10, 13)]).confidence is Confidence.INFERRED


def test_what_no_copy_holds_since_its_segment_is_gone_everywhere_is_one_incident() -> None:
    gone = [of("SEGMENT_MISSING", 0, broker, 10, 20, held_by=[]) for broker in (1, 2)]
    lost = [of("COMMITTED_LOST_EVERYWHERE", 0, None, 10, 20, held_by=[]), of("GROUP_OFFSET_BEYOND_LOG", 0, None, 15, 20)]
    incident = only([*gone, *lost])
    assert (incident.cause, incident.lost_at_least, incident.lost_at_most) == (Cause.DAMAGED_LOG, 10, 10)
    assert len(incidents([*gone, of("GROUP_OFFSET_BEYOND_LOG", 0, None, 30, 40)])) == 2


def test_records_add_up_where_each_offset_is_counted_once() -> None:
    def held(start: int, end: int, records: int | None) -> Finding:
        more = {} if records is None else {"records_held": records}
        return of("UNCLEAN_LOSS", 0, 2, start, end, held_by=[2], loses=end - start, **more)

    def records(*findings: Finding) -> tuple[int | None, int | None]:
        incident = only(list(findings))
        return incident.records_lost_at_least, incident.records_lost_at_most

    assert records(held(0, 10, 7), held(20, 30, 4)) == (11, 11)
    assert records(held(0, 10, 7), held(2, 8, 5), held(2, 8, 5)) == (7, 7)
    assert records(held(0, 10, 7), held(5, 15, 6)) == (None, None)
    assert records(held(0, 10, 7), held(20, 30, None)) == (None, None)
    scattered = held(0, 100, 20).with_evidence(scattered=20, ranges=[[0, 10], [90, 100]])
    assert records(scattered) == (20, 20)
    assert records(scattered, held(40, 50, 9)) == (None, None)


def test_what_is_not_proven_is_not_lost_at_least() -> None:
    suspected = replace(of("COMMITTED_LOST_EVERYWHERE", 0, None, 20, 40), confidence=Confidence.SUSPECTED)
    assert (only([suspected]).lost_at_least, only([suspected]).lost_at_most) == (0, 20)


def test_damage_costs_nothing_where_a_good_copy_is_known() -> None:
    assert only([of("BATCH_CRC_MISMATCH", 0, 2, 0, 10, held_by=[1])]).lost_at_most == 0
    assert only([of("BATCH_CRC_MISMATCH", 0, 2, 0, 10, held_by=[])]).lost_at_most == 10


def test_info_alone_is_no_incident() -> None:
    assert incidents([of("UNCLEAN_ELECTION", 0, None, election_ms=NOON), matched(0)]) == []


BROKERS = st.one_of(st.integers(-1, 4), st.sampled_from(["old", "7", ""]))
OFFSETS = st.one_of(st.none(), st.integers(-1, 40), st.just(1 << 63))
TIMES = st.one_of(st.none(), st.integers(-1, 4 * SAME_TIME_MS), st.just("yesterday"))
EVIDENCE = st.fixed_dictionaries(
    {},
    optional={
        "held_by": st.one_of(st.lists(BROKERS, max_size=3), st.just("broker 2")),
        "versions": st.one_of(st.lists(st.fixed_dictionaries({"brokers": st.lists(BROKERS, max_size=2)}), max_size=2), st.none()),
        "election": st.fixed_dictionaries({"election_ms": TIMES, "old_leader": BROKERS, "unclean": st.booleans()}),
        "election_ms": TIMES,
        "cost_finding": st.sampled_from(["UNCLEAN_LOSS", "FORK_BELOW_HW"]),
        "first_timestamp": TIMES,
        "decided_timestamp": TIMES,
        "absent": st.booleans(),
        "clean_shutdown": st.booleans(),
        "directories_missing_on": st.lists(BROKERS, max_size=2),
        "topic_ids": st.dictionaries(st.sampled_from(["1", "2", "old"]), st.just("id"), max_size=3),
        "incident": st.just("d6"),
        "issue": st.just("KAFKA-10751"),
        "does_not_fit": st.lists(st.just("no"), max_size=1),
    },
)
PLACES = st.builds(
    Place,
    topic=st.one_of(st.none(), st.sampled_from(["audit", "orders"])),
    partition=st.one_of(st.none(), st.integers(0, 2)),
    broker=st.one_of(st.none(), BROKERS),
    offset_start=OFFSETS,
    offset_end=OFFSETS,
)
ANY = st.builds(
    Finding, st.sampled_from(sorted(CATALOGUE)), st.sampled_from(Severity), st.sampled_from(Confidence), PLACES, EVIDENCE
)


def told(found: list[Incident], findings: list[Finding]) -> list[str]:
    """Incidents without the places of their findings in the list: those are of one order."""
    return sorted(
        f"{replace(incident, findings=[])} {sorted(repr(findings[index]) for index in incident.findings)}" for incident in found
    )


@given(st.lists(ANY, max_size=25), st.randoms(use_true_random=False))
def test_any_findings_fold_whole_and_in_any_order(findings: list[Finding], shuffling: random.Random) -> None:
    found = incidents(findings)
    grave = [index for index, each in enumerate(findings) if each.severity is not Severity.INFO]
    assert sorted(index for incident in found for index in incident.findings) == grave
    for incident in found:
        own = [findings[index] for index in incident.findings]
        assert incident.severity is max((each.severity for each in own), key=lambda severity: severity.rank)
        assert sum(incident.kinds.values()) == len(own)
        assert incident.lost_at_least == sum(partition.lost_at_least for partition in incident.partitions)
        assert incident.lost_at_most == sum(partition.lost_at_most for partition in incident.partitions)
        assert all(0 <= partition.lost_at_least <= partition.lost_at_most for partition in incident.partitions)
        of_partitions = {(each.place.topic, each.place.partition) for each in own}
        named = [(partition.topic, partition.partition) for partition in incident.partitions]
        assert len(set(named)) == len(named)
        assert set(named) == {key for key in of_partitions if None not in key}
        losses = [(-partition.lost_at_least, -partition.lost_at_most) for partition in incident.partitions]
        assert losses == sorted(losses)
    ranks = [-incident.severity.rank for incident in found]
    assert ranks == sorted(ranks)
    shuffled = list(findings)
    shuffling.shuffle(shuffled)
    assert told(incidents(shuffled), shuffled) == told(found, findings)


@pytest.mark.parametrize("spread", ["of many partitions", "in one partition"])
def test_the_work_grows_with_the_findings_and_not_faster(spread: str) -> None:
    def calls(count: int) -> int:
        findings = []
        for number in range(count):
            partition = number if spread == "of many partitions" else 0
            findings += [of("FRAMING_LOST", partition, 2, number, number + 1), of("INDEX_MISMATCH", partition, 2), lost(partition)]
        counted = Counter[str]()
        sys.setprofile(lambda _frame, event, _argument: counted.update([event]))
        try:
            folded = incidents(findings)
        finally:
            sys.setprofile(None)
        assert sum(len(incident.findings) for incident in folded) == 3 * count
        return counted["call"] + counted["c_call"]

    assert calls(4000) < 25 * calls(200)
