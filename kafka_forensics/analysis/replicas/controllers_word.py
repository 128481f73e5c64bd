"""What the controller's log adds to the logs of one partition: unclean elections, members of the ISR that lack committed records.

The ISR is the controller's word at the time of its copy. A replica in it (or in the ELR, KIP-966) holds all that is committed, or
something was lost below Kafka: electing it would be clean, and would lose the rest.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with, on_premises
from kafka_forensics.analysis.replica import Replica, kept_from
from kafka_forensics.analysis.replicas.diff import BatchReader, Conflicts
from kafka_forensics.analysis.replicas.forks import last_epoch, lineage
from kafka_forensics.analysis.replicas.holders import held_ranges, holding_all, same_as, with_held_ranges
from kafka_forensics.analysis.replicas.remote_segments import was_copied_by
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.controller import NO_LEADER, PartitionControl, PartitionEvent
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.json_objects import Json, rfc3339

MADE_IN_TURN: Final = "the copies were made one after another while brokers ran, this one before the others"

MAX_ELECTIONS: Final = 16
"""Unclean elections told of one partition, the newest."""
ELECTIONS_WEIGHED: Final = 256
"""Elections that are looked at for who lost a record, the newest."""
_HIDING: Final = kinds_with(Trait.STOPS_READERS) | {"HW_BEYOND_LEO"}
"""Kinds that leave open what a copy held; where it knows nothing of the new epoch, that may be what the election cost."""
_PARTED: Final = kinds_with(Trait.LOST_BY_ELECTION, Trait.IS_FORK) | {"SAME_EPOCH_DIVERGENCE"}


def judged_by_controller(
    replicas: list[Replica],
    conflicts: Conflicts,
    findings: list[Finding],
    reader: BatchReader,
    nodes_given: frozenset[int] | None = None,
    known: tuple[int | None, str | None] = (None, None),
) -> list[Finding]:
    """`findings` about replicas that were compared, with what the controller's log adds to them; as they are without it.

    `nodes_given`: ids of all nodes of which a log directory is among the copies; None where not every directory says whose it is.
    `known`: up to where all of them together say that records were committed, and by what; groups' offsets say so, too.
    """
    control = replicas[0].context.control if replicas else None
    if control is None:
        return findings
    judged = [_with_election(replicas, control, finding) for finding in findings]
    short = (
        [] if any(finding.kind in _PARTED for finding in judged) else _short_members(replicas, conflicts, control, reader, known)
    )
    brokers_short = {finding.place.broker for finding in short}
    nodes = {replica.broker: replica.context.node for replica in replicas}
    judged = [
        _with_isr(control, nodes, finding)
        for finding in judged
        if finding.kind != "REPLICA_LAGS" or finding.place.broker not in brokers_short
    ]
    as_given = {id(finding) for finding in findings}
    judged += short + _unclean_elections(replicas, conflicts, control, judged, nodes_given)
    return [finding if id(finding) in as_given else on_premises(finding, control.premises) for finding in judged]


def election_evidence(event: PartitionEvent) -> Json:
    """When, by which record, from whom to whom."""
    return {
        "election_ms": event.timestamp_ms,
        "election_time": rfc3339(event.timestamp_ms),
        "election_offset": event.offset,
        "old_leader": None if event.previous_leader == NO_LEADER else event.previous_leader,
        "new_leader": event.state.leader,
        "leader_epoch": None if event.unknown_after is not None else event.state.leader_epoch,
        "previous_isr": list(event.previous_isr),
    }


def _elections(control: PartitionControl) -> list[PartitionEvent]:
    """Events that gave the partition a leader in a new epoch, not those that tell of a leader who was there before."""
    events = [] if control.history is None else control.history.events
    begun = [event.is_unclean or event.kind == "created" for event in events[:1]] + [
        event.is_unclean
        or event.kind == "created"
        or (event.kind == "changed" and event.state.leader_epoch == before.state.leader_epoch + 1)
        for before, event in pairwise(events)
    ]
    return [event for event, begins in zip(events, begun, strict=True) if begins and event.state.leader != NO_LEADER]


def _with_isr(control: PartitionControl, nodes: dict[int | str, int | str], subject: Finding) -> Finding:
    """A replica that lags, with whether the controller counted it as in sync."""
    if subject.kind != "REPLICA_LAGS" or control.isr is None:
        return subject
    return subject.with_evidence(isr=control.isr, in_isr=nodes.get(subject.place.broker or 0) in control.isr)


def _with_election(replicas: list[Replica], control: PartitionControl, subject: Finding) -> Finding:
    """A loss, with the election that caused it, or the last of those of which one did; `LRS_LOSS` where it was clean and its leader
    stood alone in the ISR."""
    bills = _bills(replicas, control, _lost(replicas, subject)) if subject.kind == "UNCLEAN_LOSS" else []
    if not bills:
        return subject
    event, others = bills[-1].events[-1], bills[-1].events[:-1]
    later = [
        partition_event
        for partition_event in _elections(control)
        if partition_event.is_unclean and partition_event.offset > event.offset
    ]
    election = election_evidence(event) | {"unclean": event.is_unclean, "unclean_elections_since": len(later)}
    election |= {"or_in_epochs": _epochs_of(others)} if others else {}
    elected = subject.with_evidence(election=election)
    stood_alone = {*event.previous_isr} <= {event.state.leader}
    if event.is_unclean or not stood_alone or event.is_committed is False:
        return elected
    return finding("LRS_LOSS", subject.place, {**elected.evidence, **election_evidence(event)})


def _epochs_of(events: Iterable[PartitionEvent]) -> list[int]:
    return [event.state.leader_epoch for event in events]


@dataclass(frozen=True, slots=True)
class _Lost:
    """Offsets `[start_offset, end_offset)` of a log with leader epochs `held`, which the logs with epochs `leading` lack."""

    start_offset: int
    end_offset: int
    held: list[EpochEntry]
    leading: list[list[EpochEntry]]
    committed: bool = True
    """Whether they are known to have been."""


def _lost(replicas: list[Replica], loss: Finding) -> _Lost:
    """What a loss names: by the log of one of its holders, or, of remote segments that are of no log here, by their last epoch."""
    brokers = loss.evidence["held_by"] or [row["follower"] for row in loss.evidence["truncation_offsets"]]
    holder = next((replica for replica in replicas if replica.broker in brokers), None)
    held = [EpochEntry(loss.evidence["versions"][0]["epoch"], 0)] if holder is None else lineage(holder)
    leading = [lineage(replica) for replica in replicas if replica.broker in loss.evidence["leaders"]]
    return _Lost(loss.place.offset_start or 0, loss.place.offset_end or 0, held, leading)


def _given_up(replicas: list[Replica], conflicts: Conflicts, fork: Finding) -> Iterator[tuple[Finding, _Lost]]:
    """What each version of a fork holds from there on that the version of the latest epoch does not, with the fork as its loss;
    where all have the same last epoch, which is later than the fork, that of the latest epoch at the fork."""
    versions: list[Json] = [version for version in fork.evidence.get("versions", ()) if version["epoch"] >= 0]
    start, lasts = fork.evidence.get("offset"), [max(map(last_epoch, _of(replicas, version))) for version in versions]
    if start is None or not versions:
        return
    latest = [last if len(set(lasts)) > 1 else version["epoch"] for version, last in zip(versions, lasts, strict=True)]
    leading = [
        lineage(replica)
        for version, epoch in zip(versions, latest, strict=True)
        if epoch == max(latest)
        for replica in _of(replicas, version)
    ]
    for version, epoch in zip(versions, latest, strict=True):
        if epoch < max(latest):
            longest = max(_of(replicas, version), key=lambda replica: replica.log_end_offset)
            end = longest.log_end_offset
            if fork.kind == "FORK_BELOW_HW":
                end = min(end, fork.place.offset_end or end)
            held = [entry for entry in lineage(longest) if entry.leader_epoch <= epoch]
            lost = _Lost(start, end, held, leading, committed=fork.kind != "FORK_ABOVE_HW")
            proving = next(number for number, replica in enumerate(replicas) if replica is longest)
            rows = held_ranges(same_as(replicas, conflicts, proving, start, end), start, end)
            yield fork.with_evidence(held_by=holding_all(rows), held_ranges=rows), lost


def _of(replicas: list[Replica], version: Json) -> list[Replica]:
    return [replica for replica in replicas if replica.broker in version["brokers"]]


@dataclass(frozen=True, slots=True)
class _Bill:
    """Offsets `[start_offset, end_offset)` that a log lost, and the elections of which one lost them, in order."""

    events: tuple[PartitionEvent, ...]
    innocent: tuple[PartitionEvent, ...]
    """Elections of which no log shows anything, and which are taken to have lost nothing."""
    start_offset: int
    end_offset: int


def _bills(replicas: list[Replica], control: PartitionControl, lost: _Lost) -> list[_Bill]:
    """What of a loss each election cost, by offset: every offset counts to the first leader whose log lacks what its holders have.

    What the holders have last is what the earliest election cost, whose loser they are. Nothing where the controller's log has no
    such election.
    """
    start, end = lost.start_offset, lost.end_offset
    events = _losing_elections(control, lost)
    if not events or start >= end:
        return []
    held = _Lineage.of(lost.held)
    begun = [_begun(replicas, event.state.leader_epoch) for event in events]
    edges = {offset for log in (held, *begun) if log is not None for offset in log.starts if start < offset < end}
    bills: list[_Bill] = []
    for low, high in pairwise([start, *sorted(edges), end]):
        lacks = [None if log is None else log.lacks(low, held.at(low)) for log in begun]
        bill = _bill(events, lacks, low, high, committed=lost.committed)
        if bills and (bills[-1].events, bills[-1].innocent) == (bill.events, bill.innocent):
            bills[-1] = replace(bills[-1], end_offset=high)
        elif bill.events:
            bills.append(bill)
    return bills


def _bill(events: list[PartitionEvent], lacks: list[bool | None], low: int, high: int, *, committed: bool) -> _Bill:
    """Which election is the first whose leader's log lacked `[low, high)`; `lacks`: whether it did, None where no log shows it.

    It is the first that is known to, or one before it of which nothing is known, after the last leader that had the offsets. Where
    nothing is known, the same leader elected again is not suspected, nor of committed records who was elected from the ISR, which
    has all of them; not even if it is the first that is known to lack them, where the log of an unclean one before it is not known.
    """
    first = next((number for number, lacking in enumerate(lacks) if lacking), len(events))
    since = max((number + 1 for number in range(first) if lacks[number] is False), default=0)
    unknown = [event for event, lacking in zip(events[since:first], lacks[since:first], strict=True) if lacking is None]
    suspected = [event for event in unknown if (event.is_unclean or not committed) and event.previous_leader != event.state.leader]
    known = events[first : first + 1]
    if suspected and committed and not all(event.is_unclean for event in known):
        unknown, known = [*unknown, *known], []
    innocent = [event for event in unknown if event not in suspected]
    return _Bill((*suspected, *known), tuple(innocent), low, high)


def _losing_elections(control: PartitionControl, lost: _Lost) -> list[PartitionEvent]:
    """The elections by which the leaders' logs may have come to lack what others have, in order: those behind the last epoch that
    these know, up to the first epoch in the leaders' logs that they do not. None where the controller's log has no such epoch."""
    known = max((entry.leader_epoch for entry in lost.held), default=-1)
    begun = min((entry.leader_epoch for entries in lost.leading for entry in entries if entry.leader_epoch > known), default=-1)
    since = [event for event in _elections(control) if known < event.state.leader_epoch <= begun and event.unknown_after is None]
    return since[-ELECTIONS_WEIGHED:]


@dataclass(frozen=True, slots=True)
class _Lineage:
    """Leader epochs of a log in the order of their first offsets."""

    starts: list[int]
    epochs: list[int]

    @classmethod
    def of(cls, entries: Iterable[EpochEntry]) -> "_Lineage":
        """From entries in any order: an epoch reaches as far as no later one begins."""
        ascending = sorted(entries, key=lambda entry: entry.start_offset)
        return cls(
            [epoch_entry.start_offset for epoch_entry in ascending],
            list(accumulate((epoch_entry.leader_epoch for epoch_entry in ascending), max)),
        )

    def at(self, offset: int) -> int | None:
        """Leader epoch of an offset; None before the first."""
        number = bisect_right(self.starts, offset)
        return self.epochs[number - 1] if number else None

    def lacks(self, offset: int, leader_epoch: int | None) -> bool | None:
        """Whether a record of that epoch is not in this log; None where the log says nothing of it."""
        ours = self.at(offset)
        return None if ours is None or leader_epoch is None else ours != leader_epoch


def _begun(replicas: list[Replica], leader_epoch: int) -> _Lineage | None:
    """The epochs of the log with which a leader began, to the first offset of its own; None if none of the logs shows it."""
    logs = [[*replica.epochs, *(replica.context.epoch_checkpoint or ())] for replica in replicas]
    shown = [entries for entries in logs if any(entry.leader_epoch == leader_epoch for entry in entries)]
    if not shown:
        return None
    first = min(shown, key=lambda entries: min(entry.start_offset for entry in entries if entry.leader_epoch == leader_epoch))
    return _Lineage.of(entry for entry in first if entry.leader_epoch <= leader_epoch)


@dataclass(frozen=True, slots=True)
class _Committed:
    """Up to where records are known to have been committed, by whose checkpoint, and who holds them."""

    end: int
    witness: str
    held_by: list[int | str]


def electable(control: PartitionControl) -> dict[int, str]:
    """Nodes that may be elected without being forced → as what: `isr`, `elr`, or, where both are empty, `last_known_leader`.
    Empty where the controller's log does not say."""
    if control.isr is None:
        return {}
    members = dict.fromkeys(control.elr or (), "elr") | dict.fromkeys(control.isr, "isr")
    last = last_leader(control)
    return members or ({} if last is None else {last: "last_known_leader"})


def last_leader(control: PartitionControl) -> int | None:
    """The last broker that led, over times without a leader; None where nothing says."""
    last = control.leader
    if last == NO_LEADER and control.history is not None and control.history.events:
        last = control.history.events[-1].previous_leader
    return None if last is None or last < 0 else last


def _short_members(
    replicas: list[Replica],
    conflicts: Conflicts,
    control: PartitionControl,
    reader: BatchReader,
    known: tuple[int | None, str | None],
) -> list[Finding]:
    """Replicas that may be elected cleanly though they lack committed records; said of logs that agree as far as they go."""
    members = electable(control)
    nodes = [replica.context.node for replica in replicas]
    findings = []
    for index, replica in enumerate(replicas):
        if nodes[index] not in members or not replica.end_is_known or any(index in pair for pair in conflicts):
            continue
        if nodes.count(nodes[index]) > 1:
            continue  # copies of one broker from different times: which one it has is not known
        committed = _beyond(_committed(replicas, conflicts, control, index), replicas, conflicts, replica, known)
        if committed is None or not _seen_by_controller(replicas, committed, replica, control, reader):
            continue
        start = kept_from(replica.log_end_offset, [other for other in replicas if other.broker in committed.held_by])
        if start >= committed.end:
            continue
        place = replica.context.place(offset_start=start, offset_end=committed.end)
        log = {"high_watermark": committed.end, "witness": committed.witness, "log_end_offset": replica.log_end_offset}
        risk = member_lacks(control, nodes[index], place, log, committed.held_by, stopped=replica.context.clean_shutdown)
        findings.append(with_held_ranges(replicas, conflicts, risk))
    return findings


def member_lacks(
    control: PartitionControl, node: int | str, place: Place, log: Json, held_by: list[int | str], *, stopped: bool
) -> Finding:
    """`node` may be elected cleanly, and lacks the committed offsets of `place`; `log`: the witness, and where its own log ends."""
    members = electable(control)
    start, end = place.offset_start or 0, place.offset_end or 0
    evidence: Json = {
        "membership": next(role for member, role in members.items() if member == node),
        "isr": control.isr,
        "elr": control.elr,
        **log,
        "loses": end - start,
        "held_by": held_by,
        "premises": [
            f"ISR and ELR as in record {control.last_offset} of __cluster_metadata",
            f"committed up to {end}: {log['witness']}",
        ],
    }
    if not stopped:
        evidence["harmless_if"] = MADE_IN_TURN
    kind = "LRS_RISK" if set(members) == {node} else "ISR_MEMBER_MISSING_COMMITTED"
    return finding(kind, place, evidence, confidence=None if stopped else Confidence.SUSPECTED)


def _conflicting(conflicts: Conflicts, index: int) -> set[int]:
    """Itself and those it conflicts with; nobody if there are none."""
    return {k for pair in conflicts if index in pair for k in pair}


def _committed(replicas: list[Replica], conflicts: Conflicts, control: PartitionControl, index: int) -> _Committed | None:
    """What is known to be committed beyond the end of replica `index` and is held by others of the same log. A watermark from
    before an unclean election speaks of the log it was read with, and of no longer one."""
    replica = replicas[index]
    apart = _conflicting(conflicts, index) - {index}
    alike = [k for k in range(len(replicas)) if k not in apart]
    old = {k for k in alike if outlived(replicas[k], control, replicas)}
    longest = max((replicas[k].log_end_offset for k in alike if k not in old), default=0)
    reach = [replicas[k].log_end_offset if k in old else longest for k in alike]
    ends = [(min(replicas[k].context.high_watermark or 0, end), k) for k, end in zip(alike, reach, strict=True)]
    end, best = max(ends, key=lambda row: row[0], default=(0, index))
    if end <= replica.log_end_offset:
        return None
    apart |= _conflicting(conflicts, best) | {index}
    holders = [other.broker for k, other in enumerate(replicas) if (k == best or k not in apart) and other.log_end_offset >= end]
    return _Committed(end, f"replication-offset-checkpoint of broker {replicas[best].broker}", holders) if holders else None


def _beyond(
    committed: _Committed | None,
    replicas: list[Replica],
    conflicts: Conflicts,
    replica: Replica,
    known: tuple[int | None, str | None],
) -> _Committed | None:
    """`committed`, or what a group's offset says beyond every checkpoint, in logs that agree as far as they go."""
    end, witness = known
    checkpoints = max((replica.context.high_watermark or 0 for replica in replicas), default=0)
    if end is None or witness is None or conflicts or end <= max(checkpoints, replica.log_end_offset):
        return committed
    holders = [replica.broker for replica in replicas if replica.log_end_offset >= end]
    return _Committed(end, witness, holders) if holders else committed


def outlived(replica: Replica, control: PartitionControl, replicas: list[Replica]) -> bool:
    """Whether an unclean election after the replica's last epoch made its watermark a word about another history.

    One that made the last leader the leader again did not, unless its new epoch begins below that watermark: its log went on.
    """
    entries = lineage(replica)
    last = entries[-1].leader_epoch if entries else -1
    watermark = replica.context.high_watermark or 0
    for event in _elections(control):
        if not event.is_unclean or event.state.leader_epoch <= last:
            continue
        start = _epoch_start(replicas, event.state.leader_epoch)
        if event.previous_leader != event.state.leader or (start is not None and start < watermark):
            return True
    return False


def _seen_by_controller(
    replicas: list[Replica], committed: _Committed, replica: Replica, control: PartitionControl, reader: BatchReader
) -> bool:
    """Whether the copy of the controller's log is not older than the last committed record that is missing: else it may not know
    yet that the replica left the ISR, without which no newer one would have been committed, and perhaps none of them."""
    if control.as_of_ms is None:
        return False
    holder = next(other for other in replicas if other.broker in committed.held_by)
    if committed.end <= holder.local_log_start_offset:
        return was_copied_by(replicas, committed.end - 1, control.as_of_ms)
    stop, step = committed.end, 1
    while stop > replica.log_end_offset:
        start = max(stop - step, replica.log_end_offset)
        rows = reader.batches(holder, start, stop)
        if rows.shape[1]:
            return bool(rows[BatchColumn.MAX_TIMESTAMP, -1] <= control.as_of_ms)
        stop, step = start, 2 * step
    return False


def _unclean_elections(
    replicas: list[Replica],
    conflicts: Conflicts,
    control: PartitionControl,
    findings: list[Finding],
    nodes_given: frozenset[int] | None,
) -> list[Finding]:
    """One finding each, with what it cost as far as the files show it."""
    elections = [event for event in _elections(control) if event.is_unclean]
    context = replicas[0].context
    losses = [
        (loss, _lost(replicas, loss))
        for loss in findings
        if loss.kind in kinds_with(Trait.LOST_BY_ELECTION) and "election" in loss.evidence
    ]
    forks = [fork for fork in findings if fork.kind in kinds_with(Trait.IS_FORK)]
    losses += [
        row for fork in sorted(forks, key=lambda fork: fork.kind == "FORK_ABOVE_HW") for row in _given_up(replicas, conflicts, fork)
    ]
    bills = [(loss, bill) for loss, lost in losses for bill in _bills(replicas, control, lost)]
    unclean = []
    for event in elections[-MAX_ELECTIONS:]:
        evidence = election_evidence(event) | {"unclean_elections": len(elections)}
        start = None if event.unknown_after is not None else _epoch_start(replicas, event.state.leader_epoch)
        cost = _cost(event, bills)
        place = Place(context.topic, context.partition)
        if start is not None:
            evidence["epoch_start_offset"] = start
        if cost is not None:
            loss, bill = cost
            place = replace(place, offset_start=bill.start_offset, offset_end=bill.end_offset)
            evidence |= {"cost_finding": loss.kind} | _holders_of(loss, bill)
            others = [other for other in bill.events if other is not event]
            evidence |= {"or_in_epochs": _epochs_of(others)} if others else {}
            evidence |= {"premises": [_taken_for_innocent(bill)]} if bill.innocent else {}
        elif (why := _why_no_cost(event, start, replicas, control, findings, nodes_given)) is not None:
            evidence[why] = True
        sure = Confidence.SUSPECTED if event.is_committed is False else None
        severity = Severity.WARNING if "old_leader_not_given" in evidence else None
        unclean.append(finding("UNCLEAN_ELECTION", place, evidence, severity=severity, confidence=sure))
    return unclean


def _why_no_cost(
    event: PartitionEvent,
    start: int | None,
    replicas: list[Replica],
    control: PartitionControl,
    findings: list[Finding],
    nodes_given: frozenset[int] | None,
) -> str | None:
    """Why no finding tells what an unclean election cost, as evidence calls it; None where that is not known."""
    if event.previous_leader == event.state.leader:
        return "same_leader"
    if nodes_given is not None and _has_more(replicas, control, event):
        return "old_leader_not_compared" if event.previous_leader in nodes_given else "old_leader_not_given"
    if len(replicas) < 2 or any(
        finding.kind in _PARTED or finding.kind in kinds_with(Trait.ELECTION_MAY_LOSE) for finding in findings
    ):
        return None
    older = {
        replica.broker
        for replica in replicas
        if max((entry.leader_epoch for entry in lineage(replica)), default=-1) < event.state.leader_epoch
    }
    is_hidden = any(finding.kind in _HIDING and finding.place.broker in older and _reaches(finding, start) for finding in findings)
    return "damage_hides" if is_hidden else "agree_again"


def _reaches(subject: Finding, start: int | None) -> bool:
    """Whether what is damaged may be at or behind offset `start`; offsets that are not known may."""
    return start is None or subject.place.offset_end is None or subject.place.offset_end > start


def _has_more(replicas: list[Replica], control: PartitionControl, event: PartitionEvent) -> bool:
    """Whether the leader before an unclean election may still hold what that cost: it has been a replica since, but never in sync,
    and its copy is not among those compared."""
    leader = event.previous_leader
    events = [event] if control.history is None else control.history.events
    since = [partition_event.state for partition_event in events if partition_event.offset >= event.offset]
    if leader == NO_LEADER or any(replica.context.node == leader for replica in replicas):
        return False
    return all(leader in partition_state.replica_assignment and leader not in partition_state.isr for partition_state in since)


def _epoch_start(replicas: list[Replica], leader_epoch: int) -> int | None:
    """The first offset of an epoch, as batches or checkpoints of any replica show it."""
    starts = [
        entry.start_offset
        for replica in replicas
        for entry in (*replica.epochs, *(replica.context.epoch_checkpoint or ()))
        if entry.leader_epoch == leader_epoch
    ]
    return min(starts, default=None)


def _cost(event: PartitionEvent, bills: list[tuple[Finding, _Bill]]) -> tuple[Finding, _Bill] | None:
    """The loss of which this election is billed most, those first that it alone is billed with; and losses before forks."""
    billed = [(loss, bill) for loss, bill in bills if event in bill.events]
    return min(
        billed,
        key=lambda row: (row[0].kind in kinds_with(Trait.IS_FORK), len(row[1].events) > 1, row[1].start_offset - row[1].end_offset),
        default=None,
    )


def _taken_for_innocent(bill: _Bill) -> str:
    epochs = ", ".join(map(str, _epochs_of(bill.innocent)))
    return (
        f"elections from the ISR, or of the leader before, lost nothing, though no log shows what they began with: epoch {epochs}"
    )


def _holders_of(loss: Finding, bill: _Bill) -> Json:
    """Evidence: who holds what an election cost of a loss."""
    rows = loss.evidence.get("held_ranges")
    if not rows:
        return {"held_by": loss.evidence.get("held_by", [])}
    start, end = bill.start_offset, bill.end_offset
    rows = [
        row | {"offset_start": max(row["offset_start"], start), "offset_end": min(row["offset_end"], end)}
        for row in rows
        if row["offset_start"] < end and start < row["offset_end"]
    ]
    return {"held_by": holding_all(rows)} | ({"held_ranges": rows} if len(rows) > 1 else {})
