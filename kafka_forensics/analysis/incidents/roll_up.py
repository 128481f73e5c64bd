"""Findings folded into incidents: one cause, the same brokers, the same time.

A cause is what evidence shows, never what merely often goes with it: an unclean election only where a controller's log has it. What
follows of something else in the same partition (an index that no longer fits a damaged segment) is part of that, and the same is
true only where broker and offsets agree. Nothing here depends on the order of the findings.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafka_forensics.analysis.incidents.file_rules import FILES, RECORDS, TRANSACTIONS
from kafka_forensics.analysis.incidents.replication_rules import HISTORIES
from kafka_forensics.analysis.incidents.signatures import KIND as SIGNATURE, signature_key
from kafka_forensics.analysis.kinds import CATALOGUE, Trait, kinds_with
from kafka_forensics.model.findings import Broker, Confidence, Finding, Severity
from kafka_forensics.model.incidents import Cause, Incident, IncidentPartition
from kafka_forensics.model.json_objects import Json

SAME_TIME_MS: Final = 60_000
"""Two moments that are no further apart belong together, and so do all that such steps connect: a controller that elects leaders of
very many partitions needs some time for it."""


def _of(*causes: Cause) -> frozenset[str]:
    """Kinds that have one of these causes by themselves."""
    return frozenset(kind for kind, row in CATALOGUE.items() if row.cause in causes)


_OF_LOGS: Final = (Cause.DAMAGED_LOG, Cause.UNCLEAN_SHUTDOWN)
_OF_HISTORIES: Final = (
    Cause.UNCLEAN_ELECTION,
    Cause.LAST_REPLICA_ELECTED,
    Cause.REPLICAS_DIVERGE,
    Cause.LOG_DIRECTORY_GONE,
)


def _by_kind(*rows: tuple[Iterable[str], tuple[Cause, ...]]) -> dict[str, tuple[Cause, ...]]:
    return {kind: causes for kinds, causes in rows for kind in kinds}


_FOLLOWS: Final[tuple[dict[str, tuple[Cause, ...]], ...]] = (
    _by_kind(
        (kinds_with(Trait.IS_TAIL) | {"RECOVERY_WOULD_TRUNCATE"}, (Cause.DAMAGED_LOG,)),
        (kinds_with(Trait.ELECTION_MAY_LOSE) | _of(Cause.TORN_TRANSACTION), (*_OF_HISTORIES, Cause.DAMAGED_LOG)),
        ({"EMPTY_REPLICA_MAY_LEAD"}, (Cause.DAMAGED_LOG,)),
        ({"REPLICA_DIFFERS"}, (Cause.DAMAGED_LOG, *_OF_HISTORIES)),
        ({"COMMITTED_LOST_EVERYWHERE"}, (Cause.LOG_DIRECTORY_GONE, Cause.DAMAGED_LOG)),
    ),
    _by_kind(
        ({"GROUP_OFFSET_BEYOND_LOG"}, (*_OF_HISTORIES, Cause.COMMITTED_LOST, Cause.DAMAGED_LOG, Cause.UNCLEAN_SHUTDOWN)),
        (_of(Cause.PRODUCER_SEQUENCE), _OF_LOGS),
        (kinds_with(Trait.CHECKPOINT_BEYOND_LOG), (*_OF_LOGS, Cause.SHORT_REPLICA)),
        (kinds_with(Trait.FOLLOWS_TRANSACTION), (Cause.HANGING_TRANSACTION, Cause.TORN_TRANSACTION)),
    ),
    _by_kind((_of(Cause.DAMAGED_FILES), (*_OF_LOGS, Cause.SHORT_REPLICA))),
)
"""Kinds that may follow of something else, step by step: part of an incident of such a cause, the first of these that the partition
has. What stands in a later step may follow of what stands in an earlier one."""
_WHEREVER: Final = kinds_with(Trait.FOLLOWS_TRANSACTION) | _of(Cause.DAMAGED_FILES)
"""Of these the kinds that follow of what lies at other offsets of the log, too."""
_ALIKE: Final = frozenset({Cause.DAMAGED_LOG, Cause.PRODUCER_SEQUENCE, Cause.UNREADABLE_RECORDS})
"""Causes of what was written so and replicated, if it is found at the same offsets of several replicas."""

_TIMES: Final = {
    Cause.HANGING_TRANSACTION: ("transaction_start_timestamp", "first_timestamp"),
    Cause.TORN_TRANSACTION: ("decided_timestamp",),
}
"""Evidence that dates a finding, the first that it has."""

_IF_NOWHERE_ELSE: Final = {Cause.DAMAGED_LOG, Cause.UNCLEAN_SHUTDOWN, Cause.SHORT_REPLICA}
"""Causes whose offsets may be lost unless a good copy is known."""


_EXPLAINED_BY: Final = {signature.key: signature.explains for signature in (*HISTORIES, *FILES, *RECORDS, *TRANSACTIONS)}
"""Signature → the kinds of finding that it accounts for."""
_Partition = tuple[str, int]
_NOWHERE: Final[_Partition] = ("", -1)
_Group = tuple[Cause, tuple[str, ...], int | None]
"""Cause, brokers as text in order, first moment of the stretch of time."""


@dataclass(slots=True)
class _Member:
    """A finding with its place in the list and what it was found to be part of."""

    index: int
    finding: Finding
    cause: Cause
    brokers: tuple[Broker, ...]
    time_ms: int | None
    group: _Group | None = None

    @property
    def partition(self) -> _Partition | None:
        place = self.finding.place
        return None if place.topic is None or place.partition is None else (place.topic, place.partition)


@dataclass(slots=True)
class _Background:
    """What findings of `info` say of one partition: its unclean elections, and the known incidents that it looks like."""

    elections: list[Finding] = field(default_factory=list)
    signatures: list[Finding] = field(default_factory=list)


def incidents(findings: Sequence[Finding]) -> list[Incident]:
    """The incidents that the findings above `info` are, the worst first; `findings` in the order of the answer, which their numbers
    are of."""
    background = _background(findings)
    members = [
        _member(index, finding, background) for index, finding in enumerate(findings) if finding.severity is not Severity.INFO
    ]
    _join_replicas(members)
    _put_together(members)
    groups: dict[_Group, list[_Member]] = {}
    for member in members:
        assert member.group is not None
        groups.setdefault(member.group, []).append(member)
    return sorted((_incident(group, of_group, background) for group, of_group in groups.items()), key=_worst_first)


def incidents_between(findings: Sequence[Finding]) -> list[Incident]:
    """The same of what was found between snapshots: of each two that follow each other by themselves, the worst of all first."""
    between: dict[tuple[object, object], list[int]] = {}
    for number, finding in enumerate(findings):
        pair = finding.evidence.get("from_snapshot"), finding.evidence.get("to_snapshot")
        between.setdefault(pair, []).append(number)
    every = [
        replace(incident, findings=[numbers[number] for number in incident.findings])
        for numbers in between.values()
        for incident in incidents([findings[number] for number in numbers])
    ]
    return sorted(every, key=_worst_first)


def _worst_first(incident: Incident) -> tuple[object, ...]:
    """Sort key: severity, loss, how many partitions; then what tells incidents apart."""
    return (
        -incident.severity.rank,
        -incident.lost_at_least,
        -incident.lost_at_most,
        -len(incident.partitions),
        incident.cause.value,
        [str(broker) for broker in incident.brokers],
        -1 if incident.from_ms is None else incident.from_ms,
        incident.findings,
    )


def _background(findings: Iterable[Finding]) -> dict[_Partition, _Background]:
    by_partition: dict[_Partition, _Background] = {}
    for finding in findings:
        place = finding.place
        if finding.kind in ("UNCLEAN_ELECTION", SIGNATURE) and place.topic is not None and place.partition is not None:
            of_partition = by_partition.setdefault((place.topic, place.partition), _Background())
            (of_partition.elections if finding.kind == "UNCLEAN_ELECTION" else of_partition.signatures).append(finding)
    return by_partition


# What a finding is by itself: cause, brokers, time.


def _member(index: int, finding: Finding, background: dict[_Partition, _Background]) -> _Member:
    cause, evidence = CATALOGUE[finding.kind].cause, finding.evidence
    election = _election(finding, background)
    if election is not None and election.get("unclean", True):
        if election.get("or_in_epochs"):  # one of several, at different times, perhaps with different leaders before
            return _Member(index, finding, Cause.UNCLEAN_ELECTION, _held_by(finding), None)
        brokers = _brokers_in([election.get("old_leader")]) or _held_by(finding)
        return _Member(index, finding, Cause.UNCLEAN_ELECTION, brokers, _moment(election.get("election_ms")))
    if cause is Cause.LAST_REPLICA_ELECTED:
        brokers = _brokers_in([evidence.get("new_leader")]) or _held_by(finding)
        return _Member(index, finding, cause, brokers, _moment(evidence.get("election_ms")))
    if cause is Cause.SHORT_REPLICA and (evidence.get("absent") is True or evidence.get("wiped") is True):
        cause = Cause.LOG_DIRECTORY_GONE
    if finding.kind == "EMPTY_REPLICA_MAY_LEAD" and not (evidence.get("absent") is True or evidence.get("wiped") is True):
        cause = Cause.SHORT_REPLICA
    gone_on = _brokers_in(evidence.get("directories_missing_on"))
    if finding.kind == "COMMITTED_LOST_EVERYWHERE" and gone_on:
        return _Member(index, finding, Cause.LOG_DIRECTORY_GONE, gone_on, None)
    if finding.kind == "LOG_HEAD_MISSING" and not _held_by(finding):
        cause = Cause.DAMAGED_LOG
    if cause is Cause.UNCLEAN_SHUTDOWN and evidence.get("clean_shutdown") is True:
        cause = Cause.DAMAGED_LOG
    time_ms = next((time for name in _TIMES.get(cause, ()) if (time := _moment(evidence.get(name))) is not None), None)
    return _Member(index, finding, cause, _brokers(finding, cause), time_ms)


def _election(finding: Finding, background: dict[_Partition, _Background]) -> Json | None:
    """The election that a loss came of, as its own evidence has it or as the partition's background bills it with the loss."""
    place = finding.place
    own = finding.evidence.get("election")
    if finding.kind == "UNCLEAN_LOSS" and isinstance(own, dict):
        return own
    if finding.kind == "UNCLEAN_ELECTION":
        return dict(finding.evidence)
    of_partition = (
        background.get((place.topic, place.partition)) if place.topic is not None and place.partition is not None else None
    )
    billed = [
        election
        for election in ([] if of_partition is None else of_partition.elections)
        if election.evidence.get("cost_finding") == finding.kind and _overlap(election, finding)
    ]
    newest = max(billed, key=lambda election: _moment(election.evidence.get("election_ms")) or -1, default=None)
    return None if newest is None else dict(newest.evidence)


def _brokers(finding: Finding, cause: Cause) -> tuple[Broker, ...]:
    """Whom it happened to."""
    place, evidence = finding.place, finding.evidence
    if cause is Cause.REPLICAS_DIVERGE:
        versions = evidence.get("versions")
        sides = [side for side in versions if isinstance(side, dict)] if isinstance(versions, list) else []
        of_sides = _ordered(broker for side in sides for broker in _brokers_in(side.get("brokers")))
        return _held_by(finding) or of_sides or _brokers_in(evidence.get("minority")) or _own(finding)
    if cause is Cause.LOST_SINCE:
        return _brokers_in(evidence.get("brokers")) or _own(finding)
    if cause is Cause.TOPIC_RECREATED:
        ids = evidence.get("topic_ids")
        by_id = _ordered(int(name) if str(name).isdecimal() else str(name) for name in ids) if isinstance(ids, dict) else ()
        return _brokers_in(evidence.get("brokers")) or by_id or _own(finding)
    if cause in (Cause.HANGING_TRANSACTION, Cause.TORN_TRANSACTION, Cause.COMMITTED_LOST, Cause.SETTINGS) or place.broker is None:
        return ()
    return _own(finding)


def _own(finding: Finding) -> tuple[Broker, ...]:
    return () if finding.place.broker is None else (finding.place.broker,)


def _held_by(finding: Finding) -> tuple[Broker, ...]:
    return _brokers_in(finding.evidence.get("held_by"))


def _held_in_part(finding: Finding) -> Iterator[Broker]:
    """Brokers with a good copy of all of it, and of some of it."""
    yield from _held_by(finding)
    for row in _rows(finding):
        yield from _brokers_in(row.get("brokers"))


def _brokers_in(value: object) -> tuple[Broker, ...]:
    return _ordered(broker for broker in value if _is_broker(broker)) if isinstance(value, list | tuple) else ()


def _is_broker(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool) and value != -1


def _ordered(brokers: Iterable[Broker]) -> tuple[Broker, ...]:
    """Brokers once each: numbers first, then names."""
    return tuple(sorted(set(brokers), key=lambda broker: (0, broker, "") if isinstance(broker, int) else (1, 0, broker)))


def _moment(value: object) -> int | None:
    """A time that evidence has; -1 and what is no number are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _overlap(one: Finding, other: Finding) -> bool:
    """Whether their offsets have some in common; those of which either tells none are taken to."""
    first, second = _range(one), _range(other)
    return first is None or second is None or (first[0] < second[1] and second[0] < first[1])


def _range(finding: Finding) -> tuple[int, int] | None:
    start, end = finding.place.offset_start, finding.place.offset_end
    return (start, end) if start is not None and end is not None and start < end else None


def _join_replicas(members: Iterable[_Member]) -> None:
    """What is found alike at the same offsets of several replicas happened to all of these brokers."""
    alike: dict[tuple[_Partition, str, tuple[int, int]], list[_Member]] = {}
    for member in members:
        offsets = _range(member.finding)
        if member.cause in _ALIKE and member.partition is not None and offsets is not None:
            alike.setdefault((member.partition, member.finding.kind, offsets), []).append(member)
    for of_place in alike.values():
        brokers = _ordered(broker for member in of_place for broker in member.brokers)
        for member in of_place:
            member.brokers = brokers


# Putting together: by cause and brokers, by time, and what follows of something else with it.


def _put_together(members: list[_Member]) -> None:
    """Give every member its group: those that follow of nothing first, and of each step those that do with what they follow of."""
    near: dict[_Partition, dict[_Group, _Near]] = {}
    steps: list[list[_Member]] = [[] for _ in range(len(_FOLLOWS) + 1)]
    for member in members:
        follows = (number for number, kinds in enumerate(_FOLLOWS, 1) if member.finding.kind in kinds)
        steps[next(follows, 0)].append(member)
    for number, step in enumerate(steps):
        if number:
            for member in step:
                member.group = _followed(member, _FOLLOWS[number - 1], near.get(member.partition or _NOWHERE, {}))
        for member, began in _stretches(member for member in step if member.group is None):
            member.group = member.cause, tuple(map(str, member.brokers)), began
        for member in step:
            if member.partition is not None and member.group is not None:
                near.setdefault(member.partition, {}).setdefault(member.group, _Near()).take(member.finding)


def _stretches(members: Iterable[_Member]) -> Iterator[tuple[_Member, int | None]]:
    """Every member with the moment at which the stretch of time began that it lies in; of those without a time None."""
    by_key: dict[tuple[Cause, tuple[str, ...]], list[tuple[int, int, _Member]]] = {}
    for number, member in enumerate(members):
        if member.time_ms is None:
            yield member, None
        else:
            by_key.setdefault((member.cause, tuple(map(str, member.brokers))), []).append((member.time_ms, number, member))
    for of_key in by_key.values():
        began = before = None
        for time_ms, _, member in sorted(of_key, key=lambda row: row[:2]):
            if before is None or time_ms - before > SAME_TIME_MS:
                began = time_ms
            before = time_ms
            yield member, began


@dataclass(slots=True)
class _Near:
    """What of a group lies in one partition: brokers, None for a finding of none, and from where to where."""

    brokers: set[Broker | None] = field(default_factory=set)
    start: int | None = None
    end: int | None = None

    def take(self, finding: Finding) -> None:
        """Add a finding."""
        self.brokers.add(finding.place.broker)
        if (offsets := _range(finding)) is not None:
            self.start = offsets[0] if self.start is None else min(self.start, offsets[0])
            self.end = offsets[1] if self.end is None else max(self.end, offsets[1])

    def concerns(self, finding: Finding) -> bool:
        """Whether a finding is of a broker among them, and of offsets among them where both tell some."""
        offsets, broker = _range(finding), finding.place.broker
        if broker is not None and finding.kind not in kinds_with(Trait.FOLLOWS_TRANSACTION) and not self.brokers & {None, broker}:
            return False
        if finding.kind in _WHEREVER or offsets is None or self.start is None or self.end is None:
            return True
        return offsets[0] < self.end and self.start < offsets[1]


def _followed(member: _Member, follows: dict[str, tuple[Cause, ...]], near: dict[_Group, _Near]) -> _Group | None:
    """The group in its partition that a finding follows of; None if there is none."""
    causes = follows[member.finding.kind]
    groups = [group for group, of_group in near.items() if group[0] in causes and of_group.concerns(member.finding)]
    return min(groups, key=lambda group: (causes.index(group[0]), group[1], group[2] or -1), default=None)


# An incident of its findings.


def _incident(group: _Group, members: list[_Member], background: dict[_Partition, _Background]) -> Incident:
    worst = max((member.finding.severity for member in members), key=lambda severity: severity.rank)
    of_cause = [member.finding for member in members if member.cause is group[0]]
    gravest = max((finding.severity for finding in of_cause), key=lambda severity: severity.rank)
    sureness = tuple(Confidence)
    times = [member.time_ms for member in members if member.time_ms is not None and member.cause is group[0]]
    by_partition: dict[_Partition, list[Finding]] = {}
    for member in members:
        if member.partition is not None:
            by_partition.setdefault(member.partition, []).append(member.finding)
    partitions = sorted((_partition(key, own, group[0]) for key, own in by_partition.items()), key=_longest_first)
    kinds: dict[str, tuple[int, int]] = {}
    for member in members:
        rank, count = kinds.get(member.finding.kind, (0, 0))
        kinds[member.finding.kind] = (max(rank, member.finding.severity.rank), count + 1)
    return Incident(
        cause=group[0],
        severity=worst,
        confidence=max((finding.confidence for finding in of_cause if finding.severity is gravest), key=sureness.index),
        known_as=_known_as(by_partition, members, background),
        from_ms=min(times, default=None),
        to_ms=max(times, default=None),
        brokers=list(_ordered(broker for member in members if member.cause is group[0] for broker in member.brokers)),
        lost_at_least=sum(partition.lost_at_least for partition in partitions),
        lost_at_most=sum(partition.lost_at_most for partition in partitions),
        records_lost_at_least=_total(partition.records_lost_at_least for partition in partitions),
        records_lost_at_most=_total(partition.records_lost_at_most for partition in partitions),
        held_by=list(_ordered(broker for partition in partitions for broker in partition.held_by)),
        partitions=partitions,
        findings=sorted(member.index for member in members),
        kinds={kind: count for kind, (rank, count) in sorted(kinds.items(), key=lambda row: (-row[1][0], row[0]))},
    )


def _longest_first(partition: IncidentPartition) -> tuple[int, int, str, int]:
    return -partition.lost_at_least, -partition.lost_at_most, partition.topic, partition.partition


def _partition(key: _Partition, findings: list[Finding], cause: Cause) -> IncidentPartition:
    lost = [
        finding
        for finding in findings
        if finding.kind in kinds_with(Trait.LOST_COMMITTED)
        and finding.confidence is Confidence.PROVEN
        and not (cause is Cause.LOST_SINCE and _held_by(finding))
    ]
    risked = [
        finding
        for finding in findings
        if finding.kind in kinds_with(Trait.LOST_COMMITTED, Trait.COMMITTED_AT_RISK)
        or (cause in _IF_NOWHERE_ELSE and _may_cost_offsets(finding) and not _held_by(finding))
    ]
    told = [offsets for finding in risked or findings if (offsets := _range(finding)) is not None]
    return IncidentPartition(
        *key,
        lost_at_least=covered(lost),
        lost_at_most=covered(risked),
        records_lost_at_least=_records(lost),
        records_lost_at_most=_records(risked),
        offset_start=min((start for start, _ in told), default=None),
        offset_end=max((end for _, end in told), default=None),
        held_by=list(_ordered(broker for finding in risked or findings for broker in _held_in_part(finding))),
        held_ranges=_held_ranges(risked or findings),
    )


def _held_ranges(findings: Sequence[Finding]) -> list[Json]:
    """Who holds which offsets of these findings, where one of them tells ranges with different holders."""
    held: list[Json] = []
    for finding in sorted(findings, key=lambda finding: finding.place.offset_start or 0):
        rows, offsets = _rows(finding), _range(finding)
        if rows:
            held += rows
        elif offsets is not None and "held_by" in finding.evidence:
            held.append({"offset_start": offsets[0], "offset_end": offsets[1], "brokers": list(_held_by(finding))})
    return held if any(_rows(finding) for finding in findings) else []


def _rows(finding: Finding) -> list[Json]:
    rows = finding.evidence.get("held_ranges")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _may_cost_offsets(finding: Finding) -> bool:
    """Whether a finding is an error, and not only about a small file."""
    is_of_small_file = CATALOGUE[finding.kind].cause is Cause.DAMAGED_FILES and _range(finding) is None
    return finding.severity.rank >= Severity.ERROR.rank and not is_of_small_file


def covered(findings: Iterable[Finding]) -> int:
    """How many offsets lie in their ranges, each once; of scattered ones those that are told."""
    covered, reached = 0, -1
    for start, end in sorted(offsets for finding in findings for offsets in _ranges(finding)):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def _records(findings: Iterable[Finding]) -> int | None:
    """How many records the holders have of the offsets of findings, each once; None where one does not tell, or where they overlap
    otherwise than one within another."""
    outermost: list[tuple[int, int, int]] = []
    counted = list(findings)
    for finding in counted:
        if len(counted) > 1 and finding.evidence.get("scattered") is not None:
            return None
        offsets, records = _range(finding), finding.evidence.get("records_held")
        if offsets is None or not isinstance(records, int):
            return None
        outermost.append((offsets[0], -offsets[1], records))
    total, reached = 0, -1
    for start, end, records in sorted(outermost):
        if -end <= reached:
            continue
        if start < reached:
            return None
        total, reached = total + records, -end
    return total


def _total(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _ranges(finding: Finding) -> list[tuple[int, int]]:
    """Its offsets, in ranges; where only the first of very many are told, the whole of it."""
    whole, scattered, told = _range(finding), finding.evidence.get("scattered"), finding.evidence.get("ranges")
    if scattered is not None and isinstance(told, list):
        ranges = [(start, end) for start, end in told]
        if sum(end - start for start, end in ranges) == scattered:
            return ranges
    return [] if whole is None else [whole]


def _known_as(
    by_partition: dict[_Partition, list[Finding]], members: list[_Member], background: dict[_Partition, _Background]
) -> str | None:
    """The issue of the known incident that accounts for all that was found in every partition; None without one, or of several."""
    if not by_partition or any(member.partition is None for member in members):
        return None
    common: set[tuple[str, str]] | None = None
    for key, findings in by_partition.items():
        kinds = {finding.kind for finding in findings}
        of_partition = background.get(key, _Background())
        fitting = {
            (name, issue)
            for name, issue in map(_signature, of_partition.signatures)
            if kinds <= _EXPLAINED_BY.get(name, frozenset())
        }
        common = fitting if common is None else common & fitting
        if not common:
            return None
    issues = {issue for _, issue in common or ()}
    return issues.pop() if len(issues) == 1 else None


def _signature(match: Finding) -> tuple[str, str]:
    """A match's signature and its issue; nothing speaks against it, or it is no name for anything."""
    incident, issue = match.evidence.get("incident"), match.evidence.get("issue")
    against = match.evidence.get("does_not_fit")
    if not isinstance(incident, str) or not isinstance(issue, str) or against or match.confidence is Confidence.SUSPECTED:
        return "", ""
    return signature_key(incident, issue), issue
