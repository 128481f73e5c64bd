"""Findings grouped into incidents: one cause, the same brokers, the same time.

A cause is what evidence shows, not what often accompanies a finding: an unclean election needs a record in a controller's log. A
finding that is a consequence of another one in the same partition (an index that no longer fits a damaged segment) belongs to the
same incident, but only if broker and offsets agree. The order of the findings does not matter.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.incidents.file_rules import SIGNATURES
from kafka_forensics.analysis.incidents.signatures import KIND as SIGNATURE, signature_key
from kafka_forensics.analysis.kinds import CATALOGUE, Trait, kinds_with
from kafka_forensics.model.findings import Broker, Confidence, Finding, Severity, TopicPartition
from kafka_forensics.model.incidents import Cause, Incident, IncidentPartition
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.remote_log import REMOTE

SAME_TIME_MS: Final = 60_000
"""Times with at most this distance belong together, and so do chains of them: a controller needs some time to elect the leaders of
many partitions."""


def _of_cause(*causes: Cause) -> frozenset[str]:
    """Kinds whose catalogue row has one of these causes."""
    return frozenset(kind for kind, row in CATALOGUE.items() if row.cause in causes)


def _by_kind(*rows: tuple[Iterable[str], tuple[Cause, ...]]) -> dict[str, tuple[Cause, ...]]:
    return {kind: causes for kinds, causes in rows for kind in kinds}


_LOG_CAUSES: Final = (Cause.DAMAGED_LOG, Cause.UNCLEAN_SHUTDOWN)
_REPLICATION_CAUSES: Final = (
    Cause.UNCLEAN_ELECTION,
    Cause.LAST_REPLICA_ELECTED,
    Cause.REPLICAS_DIVERGE,
    Cause.LOG_DIRECTORY_MISSING,
)
_CONSEQUENCES: Final[tuple[dict[str, tuple[Cause, ...]], ...]] = (
    _by_kind(
        (kinds_with(Trait.IS_TAIL) | {"RECOVERY_WOULD_TRUNCATE"}, (Cause.DAMAGED_LOG,)),
        (kinds_with(Trait.ELECTION_MAY_LOSE) | _of_cause(Cause.TORN_TRANSACTION), (*_REPLICATION_CAUSES, Cause.DAMAGED_LOG)),
        ({"EMPTY_REPLICA_MAY_LEAD"}, (Cause.DAMAGED_LOG,)),
        ({"REPLICA_DIFFERS"}, (Cause.DAMAGED_LOG, *_REPLICATION_CAUSES)),
        ({"COMMITTED_LOST_EVERYWHERE"}, (Cause.LOG_DIRECTORY_MISSING, Cause.DAMAGED_LOG)),
    ),
    _by_kind(
        ({"GROUP_OFFSET_BEYOND_LOG"}, (*_REPLICATION_CAUSES, Cause.COMMITTED_LOST, *_LOG_CAUSES)),
        (_of_cause(Cause.PRODUCER_SEQUENCE), _LOG_CAUSES),
        (kinds_with(Trait.CHECKPOINT_BEYOND_LOG), (*_LOG_CAUSES, Cause.SHORT_REPLICA)),
        (kinds_with(Trait.FOLLOWS_TRANSACTION), (Cause.HANGING_TRANSACTION, Cause.TORN_TRANSACTION)),
    ),
    _by_kind((_of_cause(Cause.DAMAGED_FILES), (*_LOG_CAUSES, Cause.SHORT_REPLICA))),
)
"""Kinds that may be consequences, step by step, with the causes of incidents they may belong to; the first cause that the partition
has counts. Findings of a later step may be consequences of those of earlier steps."""
_AT_ANY_OFFSETS: Final = kinds_with(Trait.FOLLOWS_TRANSACTION) | _of_cause(Cause.DAMAGED_FILES)
"""The kinds of consequences whose causes may be at other offsets of the log."""
_REPLICATED: Final = frozenset({Cause.DAMAGED_LOG, Cause.PRODUCER_SEQUENCE, Cause.UNREADABLE_RECORDS})
"""Causes of findings that, at the same offsets of several replicas, come from one write that was replicated."""
_TIMES: Final = {
    Cause.HANGING_TRANSACTION: ("transaction_start_timestamp", "first_timestamp"),
    Cause.TORN_TRANSACTION: ("decided_timestamp",),
}
"""Evidence with the time of a finding; the first key it has counts."""
_LOST_WITHOUT_COPY: Final = {Cause.DAMAGED_LOG, Cause.UNCLEAN_SHUTDOWN, Cause.SHORT_REPLICA}
"""Causes whose offsets may be lost unless a good copy is known."""
_EXPLAINED_BY: Final = {signature.key: signature.explains for signature in SIGNATURES}
"""IncidentSignature → the kinds of findings that it accounts for."""
_NO_PARTITION: Final[TopicPartition] = ("", -1)
_Group = tuple[Cause, tuple[str, ...], int | None]
"""Cause, brokers as text in order, first time of the period."""


class _Member(Struct):
    """A finding: its index in the list, its cause, brokers and time, and its incident."""

    index: int
    finding: Finding
    cause: Cause
    brokers: tuple[Broker, ...]
    time_ms: int | None
    group: _Group | None = None

    @property
    def partition(self) -> TopicPartition | None:
        place = self.finding.place
        return None if place.topic is None or place.partition is None else (place.topic, place.partition)


class _Background(Struct):
    """Findings of `info` about one partition: its unclean elections, and the signatures of known incidents that it matches."""

    elections: list[Finding] = field(default_factory=list)
    signatures: list[Finding] = field(default_factory=list)


def incidents(findings: Sequence[Finding]) -> list[Incident]:
    """The incidents of the findings above `info`, the worst first; incidents refer to findings by their index."""
    background = _background(findings)
    members = [
        _member(index, finding, background) for index, finding in enumerate(findings) if finding.severity is not Severity.INFO
    ]
    _join_replicas(members)
    _assign_groups(members)
    groups: dict[_Group, list[_Member]] = {}
    for member in members:
        assert member.group is not None
        groups.setdefault(member.group, []).append(member)
    return sorted((_incident(group, of_group, background) for group, of_group in groups.items()), key=_worst_first)


def incidents_between(findings: Sequence[Finding]) -> list[Incident]:
    """The incidents of findings between snapshots, each of one pair of snapshots; the worst of all pairs first."""
    by_pair: dict[tuple[object, object], list[int]] = {}
    for index, finding in enumerate(findings):
        pair = finding.evidence.get("from_snapshot"), finding.evidence.get("to_snapshot")
        by_pair.setdefault(pair, []).append(index)
    found = [
        replace(incident, findings=[indices[index] for index in incident.findings])
        for indices in by_pair.values()
        for incident in incidents([findings[index] for index in indices])
    ]
    return sorted(found, key=_worst_first)


def _worst_first(incident: Incident) -> tuple[object, ...]:
    """Sort key: severity, loss, number of partitions; then what distinguishes incidents."""
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


def _background(findings: Iterable[Finding]) -> dict[TopicPartition, _Background]:
    by_partition: dict[TopicPartition, _Background] = {}
    for finding in findings:
        place = finding.place
        if finding.kind in ("UNCLEAN_ELECTION", SIGNATURE) and place.topic is not None and place.partition is not None:
            background = by_partition.setdefault((place.topic, place.partition), _Background())
            (background.elections if finding.kind == "UNCLEAN_ELECTION" else background.signatures).append(finding)
    return by_partition


def _member(index: int, finding: Finding, background: dict[TopicPartition, _Background]) -> _Member:
    cause, evidence = CATALOGUE[finding.kind].cause, finding.evidence
    if finding.place.broker == REMOTE:
        return _Member(index, finding, Cause.REMOTE_LOG, (), None)
    election = _election(finding, background)
    if election is not None and election.get("unclean", True):
        if election.get("or_in_epochs"):  # one of several, at different times, perhaps with different previous leaders
            return _Member(index, finding, Cause.UNCLEAN_ELECTION, _held_by(finding), None)
        brokers = _brokers_in([election.get("old_leader")]) or _held_by(finding)
        return _Member(index, finding, Cause.UNCLEAN_ELECTION, brokers, _timestamp(election.get("election_ms")))
    if cause is Cause.LAST_REPLICA_ELECTED:
        brokers = _brokers_in([evidence.get("new_leader")]) or _held_by(finding)
        return _Member(index, finding, cause, brokers, _timestamp(evidence.get("election_ms")))
    has_no_log = evidence.get("absent") is True or evidence.get("wiped") is True
    if cause is Cause.SHORT_REPLICA and has_no_log:
        cause = Cause.LOG_DIRECTORY_MISSING
    if finding.kind == "EMPTY_REPLICA_MAY_LEAD" and not has_no_log:
        cause = Cause.SHORT_REPLICA
    missing_on = _brokers_in(evidence.get("directories_missing_on"))
    if finding.kind == "COMMITTED_LOST_EVERYWHERE" and missing_on:
        return _Member(index, finding, Cause.LOG_DIRECTORY_MISSING, missing_on, None)
    if finding.kind == "LOG_HEAD_MISSING" and not _held_by(finding):
        cause = Cause.DAMAGED_LOG
    if cause is Cause.UNCLEAN_SHUTDOWN and evidence.get("clean_shutdown") is True:
        cause = Cause.DAMAGED_LOG
    time_ms = next((time for key in _TIMES.get(cause, ()) if (time := _timestamp(evidence.get(key))) is not None), None)
    return _Member(index, finding, cause, _brokers(finding, cause), time_ms)


def _election(finding: Finding, background: dict[TopicPartition, _Background]) -> Json | None:
    """The election that caused a loss, from its evidence or from the newest UNCLEAN_ELECTION that names this loss as its cost."""
    place, election = finding.place, finding.evidence.get("election")
    if finding.kind == "UNCLEAN_LOSS" and isinstance(election, dict):
        return election
    if finding.kind == "UNCLEAN_ELECTION":
        return dict(finding.evidence)
    if place.topic is None or place.partition is None:
        return None
    elections = [
        election
        for election in background.get((place.topic, place.partition), _Background()).elections
        if election.evidence.get("cost_finding") == finding.kind and _overlap(election, finding)
    ]
    newest = max(elections, key=lambda election: _timestamp(election.evidence.get("election_ms")) or -1, default=None)
    return None if newest is None else dict(newest.evidence)


def _brokers(finding: Finding, cause: Cause) -> tuple[Broker, ...]:
    """The brokers on which it happened; none if it is not specific to brokers."""
    place, evidence = finding.place, finding.evidence
    of_place = () if place.broker is None else (place.broker,)
    if cause is Cause.REPLICAS_DIVERGE:
        versions = evidence.get("versions")
        rows = [version for version in versions if isinstance(version, dict)] if isinstance(versions, list) else []
        of_versions = _ordered(broker for version in rows for broker in _brokers_in(version.get("brokers")))
        return _held_by(finding) or of_versions or _brokers_in(evidence.get("minority")) or of_place
    if cause is Cause.LOST_SINCE:
        return _brokers_in(evidence.get("brokers")) or of_place
    if cause is Cause.TOPIC_RECREATED:
        ids = evidence.get("topic_ids")
        by_id = _ordered(int(name) if str(name).isdecimal() else str(name) for name in ids) if isinstance(ids, dict) else ()
        return _brokers_in(evidence.get("brokers")) or by_id or of_place
    if cause in (Cause.HANGING_TRANSACTION, Cause.TORN_TRANSACTION, Cause.COMMITTED_LOST, Cause.SETTINGS):
        return ()
    return of_place


def _held_by(finding: Finding) -> tuple[Broker, ...]:
    return _brokers_in(finding.evidence.get("held_by"))


def _brokers_in(value: object) -> tuple[Broker, ...]:
    """The brokers in a list of the evidence, without -1 and values of other types."""
    brokers = value if isinstance(value, list | tuple) else ()
    return _ordered(broker for broker in brokers if isinstance(broker, int | str) and not isinstance(broker, bool) and broker != -1)


def _ordered(brokers: Iterable[Broker]) -> tuple[Broker, ...]:
    """Brokers without duplicates: numbers first, then names."""
    return tuple(sorted(set(brokers), key=lambda broker: (0, broker, "") if isinstance(broker, int) else (1, 0, broker)))


def _timestamp(value: object) -> int | None:
    """A time (ms) of the evidence; None for -1 and values of other types."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _overlap(left: Finding, right: Finding) -> bool:
    """Whether two findings have offsets in common; true if one of them has no offsets."""
    first, second = _range(left), _range(right)
    return first is None or second is None or (first[0] < second[1] and second[0] < first[1])


def _range(finding: Finding) -> tuple[int, int] | None:
    start, end = finding.place.offset_start, finding.place.offset_end
    return (start, end) if start is not None and end is not None and start < end else None


def _join_replicas(members: Iterable[_Member]) -> None:
    """Give findings of one kind at the same offsets of several replicas the brokers of all of them."""
    by_place: dict[tuple[TopicPartition, str, tuple[int, int]], list[_Member]] = {}
    for member in members:
        offsets = _range(member.finding)
        if member.cause in _REPLICATED and member.partition is not None and offsets is not None:
            by_place.setdefault((member.partition, member.finding.kind, offsets), []).append(member)
    for of_place in by_place.values():
        brokers = _ordered(broker for member in of_place for broker in member.brokers)
        for member in of_place:
            member.brokers = brokers


def _assign_groups(members: list[_Member]) -> None:
    """Give every member its group: first the findings that are not consequences of others, then step by step the others."""
    by_partition: dict[TopicPartition, dict[_Group, _GroupExtent]] = {}
    steps: list[list[_Member]] = [[] for _ in range(len(_CONSEQUENCES) + 1)]
    for member in members:
        possible = (number for number, kinds in enumerate(_CONSEQUENCES, 1) if member.finding.kind in kinds)
        steps[next(possible, 0)].append(member)
    for number, step in enumerate(steps):
        if number:
            for member in step:
                causes = _CONSEQUENCES[number - 1][member.finding.kind]
                member.group = _group_of_cause(member, causes, by_partition.get(member.partition or _NO_PARTITION, {}))
        for member, first_ms in _with_first_times(member for member in step if member.group is None):
            member.group = member.cause, tuple(map(str, member.brokers)), first_ms
        for member in step:
            if member.partition is not None and member.group is not None:
                by_partition.setdefault(member.partition, {}).setdefault(member.group, _GroupExtent()).add(member.finding)


def _with_first_times(members: Iterable[_Member]) -> Iterator[tuple[_Member, int | None]]:
    """Every member with the first time of its chain of times with gaps of at most SAME_TIME_MS; None for those without a time."""
    by_key: dict[tuple[Cause, tuple[str, ...]], list[tuple[int, int, _Member]]] = {}
    for number, member in enumerate(members):
        if member.time_ms is None:
            yield member, None
        else:
            by_key.setdefault((member.cause, tuple(map(str, member.brokers))), []).append((member.time_ms, number, member))
    for of_key in by_key.values():
        first = previous = None
        for time_ms, _, member in sorted(of_key, key=lambda row: row[:2]):
            if previous is None or time_ms - previous > SAME_TIME_MS:
                first = time_ms
            previous = time_ms
            yield member, first


class _GroupExtent(Struct):
    """The part of a group in one partition: brokers (None for a finding without one), and the range of its offsets."""

    brokers: set[Broker | None] = field(default_factory=set)
    start: int | None = None
    end: int | None = None

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self.brokers.add(finding.place.broker)
        if (offsets := _range(finding)) is not None:
            self.start = offsets[0] if self.start is None else min(self.start, offsets[0])
            self.end = offsets[1] if self.end is None else max(self.end, offsets[1])

    def includes(self, finding: Finding) -> bool:
        """Whether the broker of a finding is among these and, if both have offsets, the offsets overlap."""
        offsets, broker = _range(finding), finding.place.broker
        if broker is not None and finding.kind not in kinds_with(Trait.FOLLOWS_TRANSACTION) and not self.brokers & {None, broker}:
            return False
        if finding.kind in _AT_ANY_OFFSETS or offsets is None or self.start is None or self.end is None:
            return True
        return offsets[0] < self.end and self.start < offsets[1]


def _group_of_cause(member: _Member, causes: tuple[Cause, ...], extents: dict[_Group, _GroupExtent]) -> _Group | None:
    """The group of its partition, with the first of `causes` that explains the finding."""
    groups = [group for group, extent in extents.items() if group[0] in causes and extent.includes(member.finding)]
    return min(groups, key=lambda group: (causes.index(group[0]), group[1], group[2] or -1), default=None)


def _incident(group: _Group, members: list[_Member], background: dict[TopicPartition, _Background]) -> Incident:
    of_cause = [member for member in members if member.cause is group[0]]
    most_severe = max((member.finding.severity for member in of_cause), key=lambda severity: severity.rank)
    confidences = [member.finding.confidence for member in of_cause if member.finding.severity is most_severe]
    times = [member.time_ms for member in of_cause if member.time_ms is not None]
    by_partition: dict[TopicPartition, list[Finding]] = {}
    kinds: dict[str, tuple[int, int]] = {}
    for member in members:
        if member.partition is not None:
            by_partition.setdefault(member.partition, []).append(member.finding)
        rank, count = kinds.get(member.finding.kind, (0, 0))
        kinds[member.finding.kind] = (max(rank, member.finding.severity.rank), count + 1)
    partitions = [_partition(partition, findings, group[0]) for partition, findings in by_partition.items()]
    partitions.sort(key=lambda row: (-row.lost_at_least, -row.lost_at_most, row.topic, row.partition))
    return Incident(
        cause=group[0],
        severity=max((member.finding.severity for member in members), key=lambda severity: severity.rank),
        confidence=max(confidences, key=tuple(Confidence).index),
        known_as=_known_as(by_partition, members, background),
        from_ms=min(times, default=None),
        to_ms=max(times, default=None),
        brokers=list(_ordered(broker for member in of_cause for broker in member.brokers)),
        lost_at_least=sum(partition.lost_at_least for partition in partitions),
        lost_at_most=sum(partition.lost_at_most for partition in partitions),
        records_lost_at_least=_total([partition.records_lost_at_least for partition in partitions]),
        records_lost_at_most=_total([partition.records_lost_at_most for partition in partitions]),
        held_by=list(_ordered(broker for partition in partitions for broker in partition.held_by)),
        partitions=partitions,
        findings=sorted(member.index for member in members),
        kinds={kind: count for kind, (rank, count) in sorted(kinds.items(), key=lambda row: (-row[1][0], row[0]))},
    )


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _partition(partition: TopicPartition, findings: list[Finding], cause: Cause) -> IncidentPartition:
    costly = findings
    if cause is Cause.REMOTE_LOG:  # brokers or other segments hold what is not critical
        costly = [finding for finding in findings if finding.severity is Severity.CRITICAL]
    lost = [
        finding
        for finding in costly
        if finding.kind in kinds_with(Trait.LOST_COMMITTED)
        and finding.confidence is Confidence.PROVEN
        and not (cause is Cause.LOST_SINCE and _held_by(finding))
    ]
    at_risk = [
        finding
        for finding in costly
        if finding.kind in kinds_with(Trait.LOST_COMMITTED, Trait.COMMITTED_AT_RISK)
        or (cause in _LOST_WITHOUT_COPY and _may_cost_offsets(finding) and not _held_by(finding))
    ]
    shown = findings if cause is Cause.REMOTE_LOG else at_risk or findings
    ranges = [offsets for finding in shown if (offsets := _range(finding)) is not None]
    holders = [broker for finding in shown for broker in _held_by(finding)]
    holders += [broker for finding in shown for row in _held_range_rows(finding) for broker in _brokers_in(row.get("brokers"))]
    return IncidentPartition(
        *partition,
        lost_at_least=count_offsets(lost),
        lost_at_most=count_offsets(at_risk),
        records_lost_at_least=_records(lost),
        records_lost_at_most=_records(at_risk),
        offset_start=min((start for start, _ in ranges), default=None),
        offset_end=max((end for _, end in ranges), default=None),
        held_by=list(_ordered(holders)),
        held_ranges=_held_ranges(shown),
    )


def _held_ranges(findings: Sequence[Finding]) -> list[Json]:
    """The holders of these findings' offsets, range by range; empty if no finding has ranges with different holders."""
    held: list[Json] = []
    for finding in sorted(findings, key=lambda finding: finding.place.offset_start or 0):
        rows, offsets = _held_range_rows(finding), _range(finding)
        if rows:
            held += rows
        elif offsets is not None and "held_by" in finding.evidence:
            held.append({"offset_start": offsets[0], "offset_end": offsets[1], "brokers": list(_held_by(finding))})
    return held if any(_held_range_rows(finding) for finding in findings) else []


def _held_range_rows(finding: Finding) -> list[Json]:
    rows = finding.evidence.get("held_ranges")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _may_cost_offsets(finding: Finding) -> bool:
    """Whether a finding is an error, and not only about a small file."""
    is_of_small_file = CATALOGUE[finding.kind].cause is Cause.DAMAGED_FILES and _range(finding) is None
    return finding.severity.rank >= Severity.ERROR.rank and not is_of_small_file


def count_offsets(findings: Iterable[Finding]) -> int:
    """The number of different offsets in the ranges of these findings; of scattered offsets those that are listed."""
    count, reached = 0, -1
    for start, end in sorted(offsets for finding in findings for offsets in _ranges(finding)):
        count += max(0, end - max(start, reached))
        reached = max(reached, end)
    return count


def _records(findings: Sequence[Finding]) -> int | None:
    """How many records the holders have of the findings' offsets, without duplicates. None if a finding has no count, or if ranges
    overlap without one containing the other."""
    outermost: list[tuple[int, int, int]] = []
    for finding in findings:
        if len(findings) > 1 and finding.evidence.get("scattered") is not None:
            return None
        offsets, records = _range(finding), finding.evidence.get("records_held")
        if offsets is None or not isinstance(records, int):
            return None
        outermost.append((offsets[0], -offsets[1], records))
    total, reached = 0, -1
    for start, negative_end, records in sorted(outermost):
        if -negative_end <= reached:
            continue
        if start < reached:
            return None
        total, reached = total + records, -negative_end
    return total


def _ranges(finding: Finding) -> list[tuple[int, int]]:
    """The offsets of a finding, in ranges; its whole range if not all of its scattered ranges are listed."""
    whole, scattered, listed = _range(finding), finding.evidence.get("scattered"), finding.evidence.get("ranges")
    if scattered is not None and isinstance(listed, list):
        ranges = [(start, end) for start, end in listed]
        if sum(end - start for start, end in ranges) == scattered:
            return ranges
    return [] if whole is None else [whole]


def _known_as(
    by_partition: dict[TopicPartition, list[Finding]], members: list[_Member], background: dict[TopicPartition, _Background]
) -> str | None:
    """The issue of the one known incident that accounts for all findings of every partition; else None."""
    if not by_partition or any(member.partition is None for member in members):
        return None
    fitting = [
        {
            (name, issue)
            for name, issue in map(_signature, background.get(partition, _Background()).signatures)
            if {finding.kind for finding in findings} <= _EXPLAINED_BY.get(name, frozenset())
        }
        for partition, findings in by_partition.items()
    ]
    issues = {issue for _, issue in set.intersection(*fitting)}
    return issues.pop() if len(issues) == 1 else None


def _signature(match: Finding) -> tuple[str, str]:
    """The key and the issue of a matched signature; empty if the match is only suspected or a condition against it holds."""
    incident, issue = match.evidence.get("incident"), match.evidence.get("issue")
    against = match.evidence.get("does_not_fit")
    if not isinstance(incident, str) or not isinstance(issue, str) or against or match.confidence is Confidence.SUSPECTED:
        return "", ""
    return signature_key(incident, issue), issue
