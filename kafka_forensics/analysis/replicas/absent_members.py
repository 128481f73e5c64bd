"""Absent or empty replicas that may lead: their followers would delete records that only they have.

A broker without the directory of a replica creates an empty log. The controller's log says whether it may be elected; under
ZooKeeper, where no disk has the ISR, an empty replica can only be suspected.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with, with_premises
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
_JUST_CREATED: Final = "it was created just before the copy was made, and had not copied any records yet"


class _LossUnderEmptyLeader(Struct, frozen=True):
    """Offsets [start, end) lost under an empty leader, committed by `witness` (None: not proven), and who has them."""

    start: int
    end: int
    witness: str | None
    held_by: list[int | str]


def with_absent_members(replicas: list[Replica], findings: list[Finding], reader: BatchReader) -> list[Finding]:
    """`findings` of a comparison, with those about absent and empty replicas that may lead."""
    control = replicas[0].context.control
    absent = [row for row in replicas[0].context.without_copy if row.presence is Presence.ABSENT]
    if control is not None:
        judged = [_absent_member(replicas, row, control, reader) for row in absent]
    else:
        judged = _suspects(replicas, [row for row in absent if not (row.is_deleted or row.is_set_aside)], findings)
    may_lead = [member for member in judged if member is not None]
    brokers = {member.place.broker for member in may_lead}
    if control is None and not any(
        replica.context.live for replica in replicas
    ):  # logs of running brokers often end before a checkpoint
        findings = [found if found.place.broker in brokers else _with_committed(replicas, found) for found in findings]
    electable_brokers = {member.place.broker for member in may_lead if member.kind != "EMPTY_REPLICA_MAY_LEAD"}
    return [found for found in findings if found.kind != "REPLICA_LAGS" or found.place.broker not in electable_brokers] + may_lead


def _suspects(replicas: list[Replica], absent: list[ExpectedReplica], findings: list[Finding]) -> list[Finding | None]:
    """Replicas that may lead as far as is known without a controller's log."""
    suspected = [_suspected(replicas, row) for row in absent]
    if any(found.kind in _LOST_ALREADY for found in findings):
        return suspected
    missing = {found.place.broker: found for found in findings if found.kind == "SEGMENT_MISSING" and "missing" in found.evidence}
    for replica in replicas:
        is_empty = replica.end_is_known and replica.log_start_offset == replica.log_end_offset == 0
        if is_empty and not replica.state.framing.batches and not replica.state.framing.bytes_damaged:
            suspected.append(_suspected_empty(replicas, replica, missing.get(replica.broker)))
    return suspected


def _loss_under_empty_leader(holding: Sequence[Replica]) -> _LossUnderEmptyLeader | None:
    """The offsets of `holding` up to their highest watermark, or all of them if none is known; None if there are none."""
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


def _absent_member(replicas: list[Replica], row: ExpectedReplica, control: PartitionControl, reader: BatchReader) -> Finding | None:
    """`LRS_RISK` or `ISR_MEMBER_MISSING_COMMITTED` of a replica without a directory that may be elected by the controllers' log."""
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
    sure = row.is_wiped or row.stopped_cleanly
    if not sure:
        evidence["harmless_if"] = _CREATED_LATER
    confidence = None if sure and risk.witness is not None else Confidence.SUSPECTED
    place = Place(row.topic, row.partition, row.broker, row.log_dir, offset_start=risk.start, offset_end=risk.end)
    kind = "LRS_RISK" if set(members) == {row.node} else "ISR_MEMBER_MISSING_COMMITTED"
    return with_premises(finding(kind, place, evidence, confidence=confidence), control.premises)


def _premises(row: ExpectedReplica, risk: _LossUnderEmptyLeader) -> list[str]:
    """Premises of the finding: how the log directory was read, and why the records are committed."""
    if row.is_wiped:
        premise = (
            f"the log directory of broker {row.broker} holds only meta.properties: treated as wiped (with --partial: as copied in"
            " part)"
        )
    else:
        premise = f"the log directory of broker {row.broker} was given and has no directory of the partition"
    if risk.witness is None:
        return [premise, "no high watermark is known: it is not proven that the records were committed"]
    return [premise, f"committed up to {risk.end}: {risk.witness}"]


def _older_than_control(
    holding: Sequence[Replica], risk: _LossUnderEmptyLeader, control: PartitionControl, reader: BatchReader
) -> bool:
    """Whether the first of the records is not newer than the copy of the controller's log, which otherwise proves nothing about
    them."""
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


def _suspected(replicas: list[Replica], row: ExpectedReplica) -> Finding | None:
    """`EMPTY_REPLICA_MAY_LEAD` of a replica without a directory, if the ISR is unknown."""
    risk = _loss_under_empty_leader([replica for replica in replicas if replica.broker != row.broker])
    if risk is None or risk.witness is None:
        return None
    evidence: Json = _evidence(risk) | {"absent": True, "premises": [*_premises(row, risk), _ISR_UNKNOWN]}
    if row.is_wiped:
        evidence |= {"wiped": True, "harmless_if": "the broker is new, or never had a replica of this partition"}
    place = Place(row.topic, row.partition, row.broker, row.log_dir, offset_start=risk.start, offset_end=risk.end)
    return finding("EMPTY_REPLICA_MAY_LEAD", place, evidence)


def _suspected_empty(replicas: list[Replica], empty: Replica, missing: Finding | None) -> Finding | None:
    """`EMPTY_REPLICA_MAY_LEAD` of a replica with an empty log. A warning, because a replica that never copied anything looks the
    same, unless other files prove that its segment is missing."""
    risk = _loss_under_empty_leader([replica for replica in replicas if replica is not empty])
    if risk is None or risk.witness is None:
        return None
    premises = [f"the log of broker {empty.broker} is empty", f"committed up to {risk.end}: {risk.witness}", _ISR_UNKNOWN]
    evidence: Json = _evidence(risk) | {"premises": premises}
    place = empty.context.place(offset_start=risk.start, offset_end=risk.end)
    if missing is not None:
        premises.append(f"{missing.evidence['file']} is missing, and other files name {missing.evidence['missing']} of its offsets")
        return finding("EMPTY_REPLICA_MAY_LEAD", place, evidence)
    evidence["harmless_if"] = _JUST_CREATED
    return finding("EMPTY_REPLICA_MAY_LEAD", place, evidence, severity=Severity.WARNING)


def _with_committed(replicas: list[Replica], lags: Finding) -> Finding:
    """A lagging replica, with the number of committed records that it lacks if the ISR is unknown. An ISR member whose disks were
    replaced by an older copy looks the same."""
    if lags.kind != "REPLICA_LAGS" or lags.place.offset_start is None:
        return lags
    risk = _loss_under_empty_leader([replica for replica in replicas if replica.broker != lags.place.broker])
    committed = 0 if risk is None or risk.witness is None else risk.end - lags.place.offset_start
    return lags if committed <= 0 else lags.with_evidence(committed=committed)


_ISR_UNKNOWN: Final = "no controller's log shows which replicas are in sync"


def _evidence(risk: _LossUnderEmptyLeader) -> Json:
    return {
        "high_watermark": risk.end,
        "witness": risk.witness,
        "log_end_offset": 0,
        "loses": risk.end - risk.start,
        "held_by": risk.held_by,
    }
