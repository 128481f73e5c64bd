"""What the controller's log adds to the logs of one partition: unclean elections, members of the ISR that lack committed records.

The ISR is that of the time when the controller's log was copied. A replica in it (or in the ELR, KIP-966) has all committed
records, or its disk lost some: electing it would be clean and lose them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with, with_premises
from kafka_forensics.analysis.replica import Replica, first_kept_offset
from kafka_forensics.analysis.replicas.diff import BatchReader, Conflicts
from kafka_forensics.analysis.replicas.forks import last_epoch, lineage
from kafka_forensics.analysis.replicas.holders import equal_ranges, held_ranges, holding_all, with_held_ranges
from kafka_forensics.analysis.replicas.remote_segments import was_copied_by
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.controller import NO_LEADER, PartitionControl, PartitionEvent
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.json_objects import Json, rfc3339

COPIED_IN_TURN: Final = "the copies were made one after another while brokers ran, and this one was made first"

MAX_ELECTIONS: Final = 16
"""Unclean elections reported of one partition, the newest."""
ELECTIONS_EXAMINED: Final = 256
"""Newest elections that are examined for losses."""
_HIDING_CONTENT: Final = kinds_with(Trait.STOPS_READERS) | {"HW_BEYOND_LEO"}
"""Kinds that leave open what a copy had; if it does not know the new epoch, the election may have cost that."""
_DIVERGENCE_KINDS: Final = kinds_with(Trait.LOST_BY_ELECTION, Trait.IS_FORK) | {"SAME_EPOCH_DIVERGENCE"}


def with_controller_findings(
    replicas: list[Replica],
    conflicts: Conflicts,
    findings: list[Finding],
    reader: BatchReader,
    nodes_with_copies: frozenset[int] | None = None,
    proven: tuple[int | None, str | None] = (None, None),
) -> list[Finding]:
    """`findings` of a comparison with what the controller's log adds to them; unchanged without that log.

    `nodes_with_copies`: ids of all nodes with a log directory among the copies; None if not every directory names its node.
    `proven`: the offset up to which checkpoints and committed group offsets prove the records committed, and the witness.
    """
    control = replicas[0].context.control if replicas else None
    if control is None:
        return findings
    judged = [_with_election(replicas, control, finding) for finding in findings]
    short: list[Finding] = []
    if not any(finding.kind in _DIVERGENCE_KINDS for finding in judged):
        short = _members_lacking_committed(replicas, conflicts, control, reader, proven)
    brokers_short = {finding.place.broker for finding in short}
    nodes = {replica.broker: replica.context.node for replica in replicas}
    for index, lagging in enumerate(judged):
        if lagging.kind == "REPLICA_LAGS" and control.isr is not None:
            in_isr = nodes.get(lagging.place.broker or 0) in control.isr
            judged[index] = lagging.with_evidence(isr=control.isr, in_isr=in_isr)
    judged = [finding for finding in judged if finding.kind != "REPLICA_LAGS" or finding.place.broker not in brokers_short]
    unchanged = {id(finding) for finding in findings}
    judged += short + _unclean_elections(replicas, conflicts, control, judged, nodes_with_copies)
    return [finding if id(finding) in unchanged else with_premises(finding, control.premises) for finding in judged]


def election_evidence(event: PartitionEvent) -> Json:
    """Time and record of an election, old and new leader."""
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
    """Events that gave the partition a leader in a new epoch, not those that report an earlier leader."""
    events = [] if control.history is None else control.history.events
    previous_epochs = [None, *(event.state.leader_epoch for event in events)]
    return [
        event
        for event, previous_epoch in zip(events, previous_epochs, strict=False)
        if event.state.leader != NO_LEADER
        and (
            event.is_unclean
            or event.kind == "created"
            or (event.kind == "changed" and previous_epoch is not None and event.state.leader_epoch == previous_epoch + 1)
        )
    ]


def _with_election(replicas: list[Replica], control: PartitionControl, subject: Finding) -> Finding:
    """A loss with the election that caused it, or the last that may have; `LRS_LOSS` if it was clean and its leader the only ISR
    member."""
    costs = _election_costs(replicas, control, _lost_range(replicas, subject)) if subject.kind == "UNCLEAN_LOSS" else []
    if not costs:
        return subject
    *others, event = costs[-1].events
    unclean_since = sum(later.is_unclean and later.offset > event.offset for later in _elections(control))
    election = election_evidence(event) | {"unclean": event.is_unclean, "unclean_elections_since": unclean_since}
    election |= {"or_in_epochs": _epochs_of(others)} if others else {}
    elected = subject.with_evidence(election=election)
    is_only_member = {*event.previous_isr} <= {event.state.leader}
    if event.is_unclean or not is_only_member or event.is_committed is False:
        return elected
    return finding("LRS_LOSS", subject.place, {**elected.evidence, **election_evidence(event)})


def _epochs_of(events: Iterable[PartitionEvent]) -> list[int]:
    return [event.state.leader_epoch for event in events]


class _LostRange(Struct, frozen=True):
    """Offsets `[start_offset, end_offset)` of a log with these leader epochs, missing in the leaders' logs with theirs."""

    start_offset: int
    end_offset: int
    epochs: list[EpochEntry]
    leaders_epochs: list[list[EpochEntry]]
    committed: bool = True
    """Whether they are known to have been committed."""


def _lost_range(replicas: list[Replica], loss: Finding) -> _LostRange:
    """The lost range, by the log of one of its holders, or, if it is only in remote segments, by their last epoch."""
    brokers = loss.evidence["held_by"] or [row["follower"] for row in loss.evidence["truncation_offsets"]]
    holder = next((replica for replica in replicas if replica.broker in brokers), None)
    epochs = [EpochEntry(loss.evidence["versions"][0]["epoch"], 0)] if holder is None else lineage(holder)
    leaders_epochs = [lineage(replica) for replica in replicas if replica.broker in loss.evidence["leaders"]]
    return _LostRange(loss.place.offset_start or 0, loss.place.offset_end or 0, epochs, leaders_epochs)


def _lost_versions(replicas: list[Replica], conflicts: Conflicts, fork: Finding) -> Iterator[tuple[Finding, _LostRange]]:
    """The range from the fork on that each version has and the version of the latest epoch lacks, with the fork as its loss; if all
    have one last epoch, later than the fork, the version of the latest epoch at the fork."""
    versions: list[Json] = [version for version in fork.evidence.get("versions", ()) if version["epoch"] >= 0]
    start = fork.evidence.get("offset")
    if start is None or not versions:
        return
    members = [[replica for replica in replicas if replica.broker in version["brokers"]] for version in versions]
    latest = [max(map(last_epoch, holders)) for holders in members]
    if len(set(latest)) == 1:
        latest = [version["epoch"] for version in versions]
    leaders_epochs = [
        lineage(replica) for holders, epoch in zip(members, latest, strict=True) if epoch == max(latest) for replica in holders
    ]
    for holders, epoch in zip(members, latest, strict=True):
        if epoch < max(latest):
            longest = max(holders, key=lambda replica: replica.log_end_offset)
            end = longest.log_end_offset
            if fork.kind == "FORK_BELOW_HW":
                end = min(end, fork.place.offset_end or end)
            epochs = [entry for entry in lineage(longest) if entry.leader_epoch <= epoch]
            lost = _LostRange(start, end, epochs, leaders_epochs, committed=fork.kind != "FORK_ABOVE_HW")
            proving = next(number for number, replica in enumerate(replicas) if replica is longest)
            rows = held_ranges(equal_ranges(replicas, conflicts, proving, start, end), start, end)
            yield fork.with_evidence(held_by=holding_all(rows), held_ranges=rows), lost


class _ElectionCost(Struct, frozen=True):
    """Offsets `[start_offset, end_offset)` that a log lost, and the elections one of which lost them, in order."""

    events: tuple[PartitionEvent, ...]
    assumed_harmless: tuple[PartitionEvent, ...]
    """Elections that no log shows anything about, assumed to have lost nothing."""
    start_offset: int
    end_offset: int


def _election_costs(replicas: list[Replica], control: PartitionControl, lost: _LostRange) -> list[_ElectionCost]:
    """The part of a loss that each election cost, by offset: an offset counts for the first leader whose log lacks the record.

    Nothing if the controller's log has no such election.
    """
    start, end = lost.start_offset, lost.end_offset
    events = _suspected_elections(control, lost)
    if not events or start >= end:
        return []
    lost_epochs = _LogEpochs.of(lost.epochs)
    elected = [_epochs_at_election(replicas, event.state.leader_epoch) for event in events]
    edges = {offset for log in (lost_epochs, *elected) if log is not None for offset in log.starts if start < offset < end}
    costs: list[_ElectionCost] = []
    for low, high in pairwise([start, *sorted(edges), end]):
        lacks = [None if log is None else log.lacks(low, lost_epochs.at(low)) for log in elected]
        cost = _cost_of_range(events, lacks, low, high, committed=lost.committed)
        if costs and (costs[-1].events, costs[-1].assumed_harmless) == (cost.events, cost.assumed_harmless):
            costs[-1] = replace(costs[-1], end_offset=high)
        elif cost.events:
            costs.append(cost)
    return costs


def _cost_of_range(
    events: list[PartitionEvent], lacks: list[bool | None], low: int, high: int, *, committed: bool
) -> _ElectionCost:
    """The first election whose leader's log lacked `[low, high)`; `lacks`: whether each did, None if no log shows it.

    It is the first election that a log shows to lack them, or one before it that no log shows, after the last leader that had the
    offsets. Not suspected are: the same leader elected again; for committed records, a leader from the ISR, which has all of them;
    and the election that a log shows, if a suspected unclean one precedes it.
    """
    first = next((number for number, lacking in enumerate(lacks) if lacking), len(events))
    since = max((number + 1 for number in range(first) if lacks[number] is False), default=0)
    unknown = [event for event, lacking in zip(events[since:first], lacks[since:first], strict=True) if lacking is None]
    suspected = [event for event in unknown if (event.is_unclean or not committed) and event.previous_leader != event.state.leader]
    shown = events[first : first + 1]
    if suspected and committed and not all(event.is_unclean for event in shown):
        unknown, shown = [*unknown, *shown], []
    assumed_harmless = [event for event in unknown if event not in suspected]
    return _ElectionCost((*suspected, *shown), tuple(assumed_harmless), low, high)


def _suspected_elections(control: PartitionControl, lost: _LostRange) -> list[PartitionEvent]:
    """The elections that may have lost the range, in order: after the last epoch that its holders know, up to the first epoch in
    the leaders' logs that they do not know. None if the controller's log has no such epoch."""
    last = max((entry.leader_epoch for entry in lost.epochs), default=-1)
    first = min(
        (entry.leader_epoch for entries in lost.leaders_epochs for entry in entries if entry.leader_epoch > last), default=-1
    )
    events = [event for event in _elections(control) if last < event.state.leader_epoch <= first and event.unknown_after is None]
    return events[-ELECTIONS_EXAMINED:]


class _LogEpochs(Struct, frozen=True):
    """Leader epochs of a log in the order of their first offsets."""

    starts: list[int]
    epochs: list[int]

    @classmethod
    def of(cls, entries: Iterable[EpochEntry]) -> "_LogEpochs":
        """From entries in any order: an epoch extends to the start of a later one."""
        ascending = sorted(entries, key=lambda entry: entry.start_offset)
        epochs = accumulate((entry.leader_epoch for entry in ascending), max)
        return cls([entry.start_offset for entry in ascending], list(epochs))

    def at(self, offset: int) -> int | None:
        """Leader epoch of an offset; None before the first."""
        number = bisect_right(self.starts, offset)
        return self.epochs[number - 1] if number else None

    def lacks(self, offset: int, leader_epoch: int | None) -> bool | None:
        """Whether a record of that epoch is missing in this log; None if the log does not show it."""
        ours = self.at(offset)
        return None if ours is None or leader_epoch is None else ours != leader_epoch


def _epochs_at_election(replicas: list[Replica], leader_epoch: int) -> _LogEpochs | None:
    """The epochs of a leader's log at its election, up to its own epoch; None if no log shows them."""
    logs = [[*replica.epochs, *(replica.context.epoch_checkpoint or ())] for replica in replicas]
    starts = [min((entry.start_offset for entry in log if entry.leader_epoch == leader_epoch), default=None) for log in logs]
    shown = [(start, number) for number, start in enumerate(starts) if start is not None]
    return _LogEpochs.of(entry for entry in logs[min(shown)[1]] if entry.leader_epoch <= leader_epoch) if shown else None


class _CommittedEnd(Struct, frozen=True):
    """The end of the records known to be committed, by which witness, and who has them."""

    end: int
    witness: str
    held_by: list[int | str]


def electable(control: PartitionControl) -> dict[int, str]:
    """Nodes that may be elected without force → as what: `isr`, `elr`, or, if both are empty, `last_known_leader`. Empty if the
    controller's log does not say."""
    if control.isr is None:
        return {}
    members = dict.fromkeys(control.elr or (), "elr") | dict.fromkeys(control.isr, "isr")
    last = last_leader(control)
    return members or ({} if last is None else {last: "last_known_leader"})


def last_leader(control: PartitionControl) -> int | None:
    """The last broker that led, also while there is no leader; None if unknown."""
    last = control.leader
    if last == NO_LEADER and control.history is not None and control.history.events:
        last = control.history.events[-1].previous_leader
    return None if last is None or last < 0 else last


def _members_lacking_committed(
    replicas: list[Replica],
    conflicts: Conflicts,
    control: PartitionControl,
    reader: BatchReader,
    proven: tuple[int | None, str | None],
) -> list[Finding]:
    """Replicas that may be elected cleanly though they lack committed records; only of logs that agree as far as they go."""
    members = electable(control)
    nodes = [replica.context.node for replica in replicas]
    findings = []
    for index, replica in enumerate(replicas):
        if nodes[index] not in members or not replica.end_is_known or any(index in pair for pair in conflicts):
            continue
        if nodes.count(nodes[index]) > 1:
            continue  # copies of one broker from different times: its present one is unknown
        committed = _committed_or_proven(_committed(replicas, conflicts, control, index), replicas, conflicts, replica, proven)
        if committed is None or not _controller_log_is_newer(replicas, committed, replica, control, reader):
            continue
        start = first_kept_offset(replica.log_end_offset, [other for other in replicas if other.broker in committed.held_by])
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
    """`node` may be elected cleanly and lacks the committed offsets of `place`; `log`: evidence of the witness and of the end of
    its own log."""
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
        evidence["harmless_if"] = COPIED_IN_TURN
    kind = "LRS_RISK" if set(members) == {node} else "ISR_MEMBER_MISSING_COMMITTED"
    return finding(kind, place, evidence, confidence=None if stopped else Confidence.SUSPECTED)


def _conflicting(conflicts: Conflicts, index: int) -> set[int]:
    """A replica and those it conflicts with; empty if there are none."""
    return {number for pair in conflicts if index in pair for number in pair}


def _committed(replicas: list[Replica], conflicts: Conflicts, control: PartitionControl, index: int) -> _CommittedEnd | None:
    """The records known to be committed after the end of replica `index` that others of the same history have. A watermark from
    before an unclean election counts only for the log that it was read with."""
    replica = replicas[index]
    conflicting = _conflicting(conflicts, index) - {index}
    agreeing = [k for k in range(len(replicas)) if k not in conflicting]
    old = {k for k in agreeing if watermark_is_outdated(replicas[k], control, replicas)}
    longest = max((replicas[k].log_end_offset for k in agreeing if k not in old), default=0)
    reach = [replicas[k].log_end_offset if k in old else longest for k in agreeing]
    ends = [(min(replicas[k].context.high_watermark or 0, end), k) for k, end in zip(agreeing, reach, strict=True)]
    end, best = max(ends, key=lambda row: row[0], default=(0, index))
    if end <= replica.log_end_offset:
        return None
    conflicting |= _conflicting(conflicts, best) | {index}
    holders = [
        other.broker for k, other in enumerate(replicas) if (k == best or k not in conflicting) and other.log_end_offset >= end
    ]
    return _CommittedEnd(end, f"replication-offset-checkpoint of broker {replicas[best].broker}", holders) if holders else None


def _committed_or_proven(
    committed: _CommittedEnd | None,
    replicas: list[Replica],
    conflicts: Conflicts,
    replica: Replica,
    proven: tuple[int | None, str | None],
) -> _CommittedEnd | None:
    """`committed`, or what a group's offset proves after every checkpoint, if all logs agree as far as they go."""
    end, witness = proven
    checkpoints = max((replica.context.high_watermark or 0 for replica in replicas), default=0)
    if end is None or witness is None or conflicts or end <= max(checkpoints, replica.log_end_offset):
        return committed
    holders = [replica.broker for replica in replicas if replica.log_end_offset >= end]
    return _CommittedEnd(end, witness, holders) if holders else committed


def watermark_is_outdated(replica: Replica, control: PartitionControl, replicas: list[Replica]) -> bool:
    """Whether an unclean election after the replica's last epoch started another history than that of its watermark.

    The same leader elected again continues its log, unless its new epoch begins below the watermark.
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


def _controller_log_is_newer(
    replicas: list[Replica], committed: _CommittedEnd, replica: Replica, control: PartitionControl, reader: BatchReader
) -> bool:
    """Whether the copy of the controller's log is not older than the last missing committed record. If it is older, it may not know
    that the replica left the ISR, which allowed newer records to be committed."""
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
    nodes_with_copies: frozenset[int] | None,
) -> list[Finding]:
    """A finding for each unclean election, with its cost as far as the files show it."""
    elections = [event for event in _elections(control) if event.is_unclean]
    lost_by_election = kinds_with(Trait.LOST_BY_ELECTION)
    losses = [
        (loss, _lost_range(replicas, loss)) for loss in findings if loss.kind in lost_by_election and "election" in loss.evidence
    ]
    forks = [fork for fork in findings if fork.kind in kinds_with(Trait.IS_FORK)]
    for fork in sorted(forks, key=lambda fork: fork.kind == "FORK_ABOVE_HW"):
        losses += _lost_versions(replicas, conflicts, fork)
    costs = [(loss, cost) for loss, lost in losses for cost in _election_costs(replicas, control, lost)]
    unclean = []
    for event in elections[-MAX_ELECTIONS:]:
        evidence = election_evidence(event) | {"unclean_elections": len(elections)}
        start = None if event.unknown_after is not None else _epoch_start(replicas, event.state.leader_epoch)
        place = Place(replicas[0].context.topic, replicas[0].context.partition)
        if start is not None:
            evidence["epoch_start_offset"] = start
        if (most := _most_costly(event, costs)) is not None:
            loss, cost = most
            place = replace(place, offset_start=cost.start_offset, offset_end=cost.end_offset)
            evidence |= {"cost_finding": loss.kind} | _holders_of(loss, cost)
            others = [other for other in cost.events if other is not event]
            evidence |= {"or_in_epochs": _epochs_of(others)} if others else {}
            if cost.assumed_harmless:
                epochs = ", ".join(map(str, _epochs_of(cost.assumed_harmless)))
                evidence["premises"] = [f"{_LOST_NOTHING}: epoch {epochs}"]
        elif (why := _why_no_cost(event, start, replicas, control, findings, nodes_with_copies)) is not None:
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
    nodes_with_copies: frozenset[int] | None,
) -> str | None:
    """Why no finding has the cost of an unclean election, as a name of evidence; None if that is unknown."""
    if event.previous_leader == event.state.leader:
        return "same_leader"
    if nodes_with_copies is not None and _may_hold_more(replicas, control, event):
        return "old_leader_not_compared" if event.previous_leader in nodes_with_copies else "old_leader_not_given"
    diverging = _DIVERGENCE_KINDS | kinds_with(Trait.ELECTION_MAY_LOSE)
    if len(replicas) < 2 or any(finding.kind in diverging for finding in findings):
        return None
    older = {replica.broker for replica in replicas if last_epoch(replica) < event.state.leader_epoch}
    hiding = [finding for finding in findings if finding.kind in _HIDING_CONTENT and finding.place.broker in older]
    reaches = any(start is None or finding.place.offset_end is None or finding.place.offset_end > start for finding in hiding)
    return "damage_hides" if reaches else "agree_again"


def _may_hold_more(replicas: list[Replica], control: PartitionControl, event: PartitionEvent) -> bool:
    """Whether the leader before an unclean election may still have the lost records: since then a replica but never in sync, and no
    copy of it is among those compared."""
    leader = event.previous_leader
    events = [event] if control.history is None else control.history.events
    if leader == NO_LEADER or any(replica.context.node == leader for replica in replicas):
        return False
    states = [later.state for later in events if later.offset >= event.offset]
    return all(leader in state.replica_assignment and leader not in state.isr for state in states)


def _epoch_start(replicas: list[Replica], leader_epoch: int) -> int | None:
    """The first offset of an epoch, by batches or checkpoints of any replica."""
    starts = [
        entry.start_offset
        for replica in replicas
        for entry in (*replica.epochs, *(replica.context.epoch_checkpoint or ()))
        if entry.leader_epoch == leader_epoch
    ]
    return min(starts, default=None)


def _most_costly(event: PartitionEvent, costs: list[tuple[Finding, _ElectionCost]]) -> tuple[Finding, _ElectionCost] | None:
    """The largest loss of this election: losses before forks, those that only it may have caused first."""

    def order(row: tuple[Finding, _ElectionCost]) -> tuple[bool, bool, int]:
        loss, cost = row
        return loss.kind in kinds_with(Trait.IS_FORK), len(cost.events) > 1, cost.start_offset - cost.end_offset

    return min((row for row in costs if event in row[1].events), key=order, default=None)


_LOST_NOTHING: Final = "elections from the ISR, or of the previous leader, lost nothing, although no log shows where they began"


def _holders_of(loss: Finding, cost: _ElectionCost) -> Json:
    """Evidence: who has what an election cost."""
    rows = loss.evidence.get("held_ranges")
    if not rows:
        return {"held_by": loss.evidence.get("held_by", [])}
    start, end = cost.start_offset, cost.end_offset
    rows = [
        row | {"offset_start": max(row["offset_start"], start), "offset_end": min(row["offset_end"], end)}
        for row in rows
        if row["offset_start"] < end and start < row["offset_end"]
    ]
    return {"held_by": holding_all(rows)} | ({"held_ranges": rows} if len(rows) > 1 else {})
