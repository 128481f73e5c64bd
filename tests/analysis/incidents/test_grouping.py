"""Findings grouped into incidents: each one above `info` is in exactly one, sums add up, and their order does not matter."""

import random
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics.analysis.incidents import SAME_TIME_MS, incidents
from kafka_forensics.analysis.kinds import CATALOGUE, finding
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.incidents import Cause, Incident

NOON = 1_795_233_370_014


def lost(partition: int, *, at: int | None = NOON, old_leader: int = 2, offsets: int = 70, topic: str = "audit") -> Finding:
    """Committed records that survive only where an unclean election will truncate them; `at` None: without a controller's log."""
    election = {"election_ms": at, "old_leader": old_leader, "new_leader": 1, "unclean": True}
    evidence: dict[str, Any] = {"held_by": [old_leader], "loses": offsets}
    evidence |= {} if at is None else {"election": election}
    return finding("UNCLEAN_LOSS", Place(topic, partition, offset_start=300, offset_end=300 + offsets), evidence)


def matched(partition: int, issue: str = "KAFKA-10751", incident: str = "d6", **more: Any) -> Finding:
    """A match of the partition with a known incident."""
    evidence = {"incident": incident, "issue": issue, "does_not_fit": [], **more}
    return finding("INCIDENT_SIGNATURE", Place("audit", partition), evidence, confidence=Confidence.INFERRED)


def of(
    kind: str, partition: int = 0, broker: int | None = 2, start: int | None = None, end: int | None = None, **evidence: Any
) -> Finding:
    return finding(kind, Place("audit", partition, broker, offset_start=start, offset_end=end), evidence)


def only(findings: list[Finding]) -> Incident:
    (incident,) = incidents(findings)
    return incident


def test_one_election_of_many_partitions_is_one_incident_of_the_longest_loss_first() -> None:
    incident = only([lost(number, at=NOON + number * 900, offsets=10 + number) for number in range(200)])
    assert (incident.cause, incident.severity) == (Cause.UNCLEAN_ELECTION, Severity.CRITICAL)
    assert incident.confidence == Confidence.PROVEN
    assert (incident.brokers, incident.held_by) == ([2], [2])
    assert (incident.from_ms, incident.to_ms) == (NOON, NOON + 199 * 900)
    assert [partition.partition for partition in incident.partitions] == list(reversed(range(200)))
    assert incident.lost_at_least == incident.lost_at_most == sum(range(10, 210))
    assert incident.kinds == {"UNCLEAN_LOSS": 200}


BILLED = of("UNCLEAN_ELECTION", 0, None, 300, 345, cost_finding="FORK_BELOW_HW", election_ms=NOON, old_leader=3)
FORK = of("FORK_BELOW_HW", 0, None, 300, 310, held_by=[], versions=[{"brokers": [1]}, {"brokers": [3]}])
ELSEWHERE = replace(FORK, place=replace(FORK.place, offset_start=400, offset_end=410))
CLEAN = lost(0).with_evidence(election={**lost(0).evidence["election"], "unclean": False})
BOTH = [lost(0), lost(1), matched(0), matched(1)]
FOLLOWS = of("ISR_MEMBER_MISSING_COMMITTED", 1, 1, 300, 370, held_by=[2])
DAMAGE = of("FRAMING_LOST", 0, 2, 100, 200)
CUT = of("RECOVERY_WOULD_TRUNCATE", 0, 2, 100, 300, clean_shutdown=False)
EQUAL_DAMAGE = [of("BATCH_CRC_MISMATCH", 0, broker, 10, 13, held_by=[]) for broker in (1, 2, 3)]
DIFFERS = of("REPLICA_DIFFERS", 0, None, 10, 13, minority=[2], held_by=[1, 3])
LATE = [of("TXN_LATE_WRITE", 0, broker, 20, 21) for broker in (1, 2, 3)]
WIPED = [
    finding("LOG_DIR_WIPED", Place(broker=2), {"may_have_held": 3}),
    *(of("EMPTY_REPLICA_MAY_LEAD", number, 2, 0, 10, absent=True, wiped=True, held_by=[1, 3]) for number in range(3)),
    of("COMMITTED_LOST_EVERYWHERE", 3, None, 0, 4, directories_missing_on=[2], held_by=[]),
]
SHORT = [of("ISR_MEMBER_MISSING_COMMITTED", number, 3, 10, 20, held_by=[1, 2]) for number in range(50)]
GAP = of("OFFSET_GAP", 0, 2, 10, 13, held_by=[])
TORN = replace(of("TXN_PARTLY_LOST", 0, None, 10, 13, held_by=[]), confidence=Confidence.SUSPECTED)
GONE = [of("SEGMENT_MISSING", 0, broker, 10, 20, held_by=[]) for broker in (1, 2)]
LOST = [of("COMMITTED_LOST_EVERYWHERE", 0, None, 10, 20, held_by=[]), of("GROUP_OFFSET_BEYOND_LOG", 0, None, 15, 20)]
SUSPECTED = replace(of("COMMITTED_LOST_EVERYWHERE", 0, None, 20, 40), confidence=Confidence.SUSPECTED)
TOGETHER: dict[str, tuple[list[Finding], dict[str, Any]]] = {
    "steps of a minute connect distant findings": (
        [lost(number, at=NOON + number * SAME_TIME_MS) for number in (2, 0, 1)], {"from_ms": NOON}
    ),
    "a fork without a known election claims none": (
        [lost(0, at=None), lost(1, at=None)], {"cause": Cause.REPLICAS_DIVERGE, "from_ms": None, "known_as": None}
    ),
    "a clean election is no unclean one": ([CLEAN], {"cause": Cause.REPLICAS_DIVERGE}),
    "a fork that an election is billed with": ([FORK, BILLED], {"cause": Cause.UNCLEAN_ELECTION, "brokers": [3], "from_ms": NOON}),
    "one that it is not billed with": ([ELSEWHERE, BILLED], {"cause": Cause.REPLICAS_DIVERGE}),
    "a name that explains every finding": (BOTH, {"known_as": "KAFKA-10751"}),
    "not a partition that does not look like it": (BOTH[:3], {"known_as": None}),
    "not a kind that it does not explain": ([*BOTH, FOLLOWS], {"known_as": None}),
    "not what does not fit": ([lost(0), matched(0, does_not_fit=["only one replica had the records"])], {"known_as": None}),
    "not what is suspected": ([lost(0), replace(matched(0), confidence=Confidence.SUSPECTED)], {"known_as": None}),
    "what follows of damage": (
        [DAMAGE, of("INDEX_MISMATCH", 0, 2), of("RECOVERY_WOULD_TRUNCATE", 0, 2, 100, 300)], {"findings": [0, 1, 2]}
    ),
    "a checkpoint beyond the end that a crash cuts": (
        [of("CHECKPOINT_OUT_OF_ORDER", 0, 2), CUT], {"cause": Cause.UNCLEAN_SHUTDOWN, "findings": [0, 1]}
    ),
    "equal damage on every replica": (EQUAL_DAMAGE, {"brokers": [1, 2, 3], "lost_at_most": 3}),
    "a batch that differs where it is damaged": (
        [of("BATCH_CRC_MISMATCH", 0, 2, 10, 13, held_by=[1, 3]), DIFFERS], {"cause": Cause.DAMAGED_LOG}
    ),
    "late writes on any replica": (
        [of("TXN_HANGING", 0, 1, 5, 21, first_timestamp=NOON), *LATE],
        {"cause": Cause.HANGING_TRANSACTION, "from_ms": NOON, "kinds": {"TXN_HANGING": 1, "TXN_LATE_WRITE": 3}},
    ),
    "a directory that is gone with what it cost": (
        WIPED, {"cause": Cause.LOG_DIRECTORY_MISSING, "brokers": [2], "held_by": [1, 3], "lost_at_least": 4, "lost_at_most": 34}
    ),
    "an old copy of a broker": (SHORT, {"cause": Cause.SHORT_REPLICA, "brokers": [3], "lost_at_least": 0, "lost_at_most": 500}),
    "offsets that several tell": (
        [of("GROUP_OFFSET_BEYOND_LOG", 0, None, 10, 30), of("COMMITTED_LOST_EVERYWHERE", 0, None, 20, 40)],
        {"lost_at_least": 30, "lost_at_most": 30},
    ),
    "as sure as its cause": ([GAP, TORN], {"confidence": Confidence.PROVEN}),
    "and no surer": ([GAP, of("SEGMENT_MISSING", 0, 2, 10, 13)], {"confidence": Confidence.INFERRED}),
    "what no copy holds since its segment is gone": (
        [*GONE, *LOST], {"cause": Cause.DAMAGED_LOG, "lost_at_least": 10, "lost_at_most": 10}
    ),
    "what is not proven": ([SUSPECTED], {"lost_at_least": 0, "lost_at_most": 20}),
    "damage where a good copy is known": ([of("BATCH_CRC_MISMATCH", 0, 2, 0, 10, held_by=[1])], {"lost_at_most": 0}),
    "damage where none is": ([of("BATCH_CRC_MISMATCH", 0, 2, 0, 10, held_by=[])], {"lost_at_most": 10}),
}  # fmt: skip


@pytest.mark.parametrize("case", TOGETHER)
def test_findings_of_one_incident(case: str) -> None:
    findings, expected = TOGETHER[case]
    incident = only(findings)
    assert {name: getattr(incident, name) for name in expected} == expected


APART: dict[str, tuple[list[Finding], list[list[int]]]] = {
    "distant elections or elections of different leaders": (
        [lost(0), lost(1, at=NOON + SAME_TIME_MS + 1), lost(2, old_leader=3)], [[0], [1], [2]]
    ),
    "elections near": ([lost(0), lost(1, at=NOON + SAME_TIME_MS)], [[0, 1]]),
    "damage and an index of another broker": ([DAMAGE, of("INDEX_MISMATCH", 0, 3)], [[0], [1]]),
    "damage and an index of another partition": ([DAMAGE, of("INDEX_MISMATCH", 1, 2)], [[0], [1]]),
    "damage and a watermark elsewhere": ([DAMAGE, of("HW_BEYOND_LEO", 0, 2, 500, 600)], [[0], [1]]),
    "other damage on every replica": ([of("BATCH_CRC_MISMATCH", 0, n, n, n + 1) for n in (1, 2, 3)], [[0], [1], [2]]),
    "a batch that differs elsewhere": ([of("BATCH_CRC_MISMATCH", 0, 2, 50, 53, held_by=[1, 3]), DIFFERS], [[0], [1]]),
    "transactions that hang at other times": (
        [of("TXN_HANGING", n, 1, first_timestamp=NOON + n * 2 * SAME_TIME_MS) for n in range(3)], [[0], [1], [2]]
    ),
    "a group's offset beyond what is gone": ([*GONE, of("GROUP_OFFSET_BEYOND_LOG", 0, None, 30, 40)], [[0, 1], [2]]),
    "info alone": ([of("UNCLEAN_ELECTION", 0, None, election_ms=NOON), matched(0)], []),
}  # fmt: skip


@pytest.mark.parametrize("case", APART)
def test_findings_of_separate_incidents(case: str) -> None:
    findings, expected = APART[case]
    assert sorted(incident.findings for incident in incidents(findings)) == expected


def test_records_add_up_if_each_offset_is_counted_once() -> None:
    def with_records(start: int, end: int, records: int | None) -> Finding:
        more = {} if records is None else {"records_held": records}
        return of("UNCLEAN_LOSS", 0, 2, start, end, held_by=[2], loses=end - start, **more)

    def records(*findings: Finding) -> tuple[int | None, int | None]:
        incident = only(list(findings))
        return incident.records_lost_at_least, incident.records_lost_at_most

    assert records(with_records(0, 10, 7), with_records(20, 30, 4)) == (11, 11)
    assert records(with_records(0, 10, 7), with_records(2, 8, 5), with_records(2, 8, 5)) == (7, 7)
    assert records(with_records(0, 10, 7), with_records(5, 15, 6)) == (None, None)
    assert records(with_records(0, 10, 7), with_records(20, 30, None)) == (None, None)
    scattered = with_records(0, 100, 20).with_evidence(scattered=20, ranges=[[0, 10], [90, 100]])
    assert records(scattered) == (20, 20)
    assert records(scattered, with_records(40, 50, 9)) == (None, None)


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


def described(incidents: list[Incident], findings: list[Finding]) -> list[str]:
    """Incidents without the indices of their findings, which depend on the order."""
    return sorted(
        f"{replace(found, findings=[])} {sorted(repr(findings[index]) for index in found.findings)}" for found in incidents
    )


@given(st.lists(ANY, max_size=25), st.randoms(use_true_random=False))
def test_every_finding_is_in_one_incident_in_any_order(findings: list[Finding], shuffling: random.Random) -> None:
    found = incidents(findings)
    above_info = [index for index, shown in enumerate(findings) if shown.severity is not Severity.INFO]
    assert sorted(index for incident in found for index in incident.findings) == above_info
    for incident in found:
        of_incident = [findings[index] for index in incident.findings]
        assert incident.severity is max((shown.severity for shown in of_incident), key=lambda severity: severity.rank)
        assert sum(incident.kinds.values()) == len(of_incident)
        assert incident.lost_at_least == sum(partition.lost_at_least for partition in incident.partitions)
        assert incident.lost_at_most == sum(partition.lost_at_most for partition in incident.partitions)
        assert all(0 <= partition.lost_at_least <= partition.lost_at_most for partition in incident.partitions)
        of_partitions = {(shown.place.topic, shown.place.partition) for shown in of_incident}
        named = [(partition.topic, partition.partition) for partition in incident.partitions]
        assert len(set(named)) == len(named)
        assert set(named) == {key for key in of_partitions if None not in key}
        losses = [(-partition.lost_at_least, -partition.lost_at_most) for partition in incident.partitions]
        assert losses == sorted(losses)
    ranks = [-incident.severity.rank for incident in found]
    assert ranks == sorted(ranks)
    shuffled = list(findings)
    shuffling.shuffle(shuffled)
    assert described(incidents(shuffled), shuffled) == described(found, findings)


@pytest.mark.parametrize("spread", ["of many partitions", "in one partition"])
def test_the_time_grows_linearly_with_the_findings(spread: str) -> None:
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

    assert calls(1600) < 25 * calls(80)
