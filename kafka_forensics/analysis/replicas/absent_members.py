"""Replicas that are absent or empty, and may lead all the same: their followers would cut what only they hold.

A broker that finds no directory of a replica creates an empty log. Whether it may be elected with it, the controllers' log says;
under ZooKeeper, where the ISR is on no disk, nothing does, and an empty replica can only be suspected.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with, on_premises
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.controller_state import electable
from kafka_forensics.analysis.replicas.diff import BatchReader
from kafka_forensics.analysis.replicas.remote_segments import was_copied_by
from kafka_forensics.evidence.ledger import ExpectedReplica, Presence
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.json_objects import Json

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import AtRiskEvidence

_LOST_ALREADY: Final = kinds_with(Trait.LOST_BY_ELECTION) | {"FORK_BELOW_HW"}
_CREATED_LATER: Final = "the copy was made before its broker had created the replica"
_JUST_CREATED: Final = "it was created just before the copy was made, and had copied nothing yet"


@dataclass(frozen=True, slots=True)
class _LossUnderEmptyLeader:
    """What an empty leader would cost: offsets [start, end), committed by `witness` (None: not proven), and who holds them."""

    start: int
    end: int
    witness: str | None
    held_by: list[int | str]


def with_absent_members(replicas: list[Replica], findings: list[Finding], reader: BatchReader) -> list[Finding]:
    """`findings` about replicas that were compared, with those about absent and empty ones that may lead."""
    control = replicas[0].context.control
    absent = [row for row in replicas[0].context.without_copy if row.case is Presence.ABSENT]
    if control is not None:
        of_members = _without_nothing(_member(replicas, row, control, reader) for row in absent)
    else:
        of_members = _suspects(replicas, [row for row in absent if not (row.is_deleted or row.is_set_aside)], findings)
        suspects = {suspect.place.broker for suspect in of_members}
        if not any(replica.context.live for replica in replicas):  # running ones lag behind another's checkpoint all the time
            findings = [known if known.place.broker in suspects else _with_committed(replicas, known) for known in findings]
    brokers = {member.place.broker for member in of_members if member.kind != "EMPTY_REPLICA_MAY_LEAD"}
    return [known for known in findings if known.kind != "REPLICA_LAGS" or known.place.broker not in brokers] + of_members


def _without_nothing(findings: Iterable[Finding | None]) -> list[Finding]:
    return [suspect for suspect in findings if suspect is not None]


def _suspects(replicas: list[Replica], absent: list[ExpectedReplica], findings: list[Finding]) -> list[Finding]:
    """Who may lead as far as anyone knows, where no controller's log is there to say."""
    empty = [] if any(known.kind in _LOST_ALREADY for known in findings) else _empty(replicas)
    suspected = [_suspected(replicas, row) for row in absent]
    gone = {known.place.broker: known for known in findings if known.kind == "SEGMENT_MISSING" and "missing" in known.evidence}
    return _without_nothing([*suspected, *(_suspected_empty(replicas, replica, gone.get(replica.broker)) for replica in empty)])


def _loss_under_empty_leader(holding: Sequence[Replica]) -> _LossUnderEmptyLeader | None:
    """What `holding` hold, up to the highest of their watermarks; where none is known, all of it."""
    start = min((replica.log_start_offset for replica in holding), default=0)
    ends = [(min(replica.context.high_watermark or 0, replica.log_end_offset), number) for number, replica in enumerate(holding)]
    end, best = max(ends, key=lambda row: row[0], default=(0, 0))
    witness = None
    if end > start:
        witness = f"replication-offset-checkpoint of broker {holding[best].broker}"
    else:
        end = max((replica.log_end_offset for replica in holding), default=0)
    if end <= start:
        return None
    return _LossUnderEmptyLeader(start, end, witness, [replica.broker for replica in holding if replica.log_end_offset >= end])


def _member(replicas: list[Replica], row: ExpectedReplica, control: PartitionControl, reader: BatchReader) -> Finding | None:
    """`LRS_RISK` or `ISR_MEMBER_MISSING_COMMITTED` of a replica without a directory that the controllers' log may elect."""
    members = electable(control)
    holding = [replica for replica in replicas if replica.context.node != row.node]
    risk = _loss_under_empty_leader(holding)
    if row.node not in members or risk is None or not _older_than_control(holding, risk, control, reader):
        return None
    evidence: AtRiskEvidence = {
        "membership": members[row.node],
        "isr": control.isr,
        "elr": control.elr,
        "high_watermark": risk.end if risk.witness is not None else None,
        "witness": risk.witness,
        "log_end_offset": 0,
        "loses": risk.end - risk.start,
        "held_by": risk.held_by,
        "absent": True,
        "premises": [f"ISR and ELR as in record {control.last_offset} of __cluster_metadata", *_premises(row, risk)],
    }
    alone = set(members) == {row.node}
    sure = row.is_wiped or row.stopped_cleanly
    if not sure:
        evidence["harmless_if"] = _CREATED_LATER
    confidence = None if sure and risk.witness is not None else Confidence.SUSPECTED
    place = Place(row.topic, row.partition, row.broker, row.log_dir, offset_start=risk.start, offset_end=risk.end)
    kind = "LRS_RISK" if alone else "ISR_MEMBER_MISSING_COMMITTED"
    return on_premises(finding(kind, place, evidence, confidence=confidence), control.premises)


def _premises(row: ExpectedReplica, risk: _LossUnderEmptyLeader) -> list[str]:
    """What the claim stands on: how the log directory was read, and by what the records are known to be committed."""
    if row.is_wiped:
        premise = (
            f"the log directory of broker {row.broker} holds meta.properties alone: taken as wiped (--partial: as copied in part)"
        )
    else:
        premise = f"the log directory of broker {row.broker} was given, and no directory of the partition is in it"
    if risk.witness is None:
        return [premise, "no high watermark is known: whether the records were committed is not proven"]
    return [premise, f"committed up to {risk.end}: {risk.witness}"]


def _older_than_control(
    holding: Sequence[Replica], risk: _LossUnderEmptyLeader, control: PartitionControl, reader: BatchReader
) -> bool:
    """Whether the first of the records is not newer than the copy of the controllers' log, which else says nothing of them."""
    if control.as_of_ms is None:
        return False
    holder = next(replica for replica in holding if replica.broker in risk.held_by)
    if risk.start < holder.local_log_start_offset:
        return was_copied_by(holding, risk.start, control.as_of_ms)
    first = next((run for run in holder.state.continuity.runs if run.end_offset > risk.start), None)
    if first is None:
        return False
    start = max(first.start_offset, risk.start)
    rows = reader.batches(holder, start, start + 1)
    return not rows.shape[1] or bool(rows[BatchColumn.BASE_TIMESTAMP, 0] <= control.as_of_ms)


def _empty(replicas: list[Replica]) -> list[Replica]:
    """Replicas whose directory is there and whose log never held anything, as far as it shows."""
    return [
        replica
        for replica in replicas
        if replica.end_is_known
        and replica.log_start_offset == replica.log_end_offset == 0
        and not replica.state.framing.batches
        and not replica.state.framing.bytes_damaged
    ]


def _suspected(replicas: list[Replica], row: ExpectedReplica) -> Finding | None:
    """`EMPTY_REPLICA_MAY_LEAD` of a replica without a directory, where nothing says who is in sync."""
    risk = _loss_under_empty_leader([replica for replica in replicas if replica.broker != row.broker])
    if risk is None or risk.witness is None:
        return None
    evidence: Json = _evidence(risk) | {"absent": True, "premises": [*_premises(row, risk), _ISR_UNKNOWN]}
    if row.is_wiped:
        evidence |= {"wiped": True, "harmless_if": "the broker is new, or never had a replica of this partition"}
    place = Place(row.topic, row.partition, row.broker, row.log_dir, offset_start=risk.start, offset_end=risk.end)
    return finding("EMPTY_REPLICA_MAY_LEAD", place, evidence)


def _suspected_empty(replicas: list[Replica], empty: Replica, gone: Finding | None) -> Finding | None:
    """The same of a replica whose log is empty: a warning, since one that never copied anything looks so, too; but for one of whose
    segment, which is `gone`, other files tell."""
    risk = _loss_under_empty_leader([replica for replica in replicas if replica is not empty])
    if risk is None or risk.witness is None:
        return None
    premises = [f"the log of broker {empty.broker} is empty", f"committed up to {risk.end}: {risk.witness}", _ISR_UNKNOWN]
    evidence: Json = _evidence(risk) | {"premises": premises}
    place = empty.context.place(offset_start=risk.start, offset_end=risk.end)
    if gone is not None:
        premises.append(f"{gone.evidence['file']} is gone, and other files name {gone.evidence['missing']} offsets of it")
        return finding("EMPTY_REPLICA_MAY_LEAD", place, evidence)
    evidence["harmless_if"] = _JUST_CREATED
    return finding("EMPTY_REPLICA_MAY_LEAD", place, evidence, severity=Severity.WARNING)


def _with_committed(replicas: list[Replica], lags: Finding) -> Finding:
    """A replica that lags, with how much of what it lacks is committed, where nothing says who is in sync: one that is, and whose
    disks were replaced by an older copy of theirs, looks the same."""
    if lags.kind != "REPLICA_LAGS" or lags.place.offset_start is None:
        return lags
    risk = _loss_under_empty_leader([replica for replica in replicas if replica.broker != lags.place.broker])
    committed = 0 if risk is None or risk.witness is None else risk.end - lags.place.offset_start
    return lags if committed <= 0 else lags.with_evidence(committed=committed)


_ISR_UNKNOWN: Final = "no controller's log says who is in sync"


def _evidence(risk: _LossUnderEmptyLeader) -> Json:
    return {
        "high_watermark": risk.end,
        "witness": risk.witness,
        "log_end_offset": 0,
        "loses": risk.end - risk.start,
        "held_by": risk.held_by,
    }
