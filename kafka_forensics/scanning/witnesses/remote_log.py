"""Reading `__remote_log_metadata` from the copies: one copy of each partition, and a finding for every record that is malformed."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafka_forensics.analysis.internal_topics import RemoteLogReplay, remote_logs
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import Record
from kafka_forensics.model.constants import REMOTE_LOG_METADATA_TOPIC
from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.remote_log import RemoteLogHistory
from kafka_forensics.parsers.internal_topics import decode_remote_log_record
from kafka_forensics.scanning.rereading.logs_in_order import LoggedRecords, logged_records
from kafka_forensics.scanning.witnesses.coordinators import cluster_of, reach
from kafka_forensics.scanning.witnesses.malformed_records import MalformedRecords

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import MetadataMalformedEvidence


def read_remote_log(inputs: Inputs) -> tuple[RemoteLogHistory | None, list[Finding]]:
    """Every partition of `__remote_log_metadata` among the inputs, replayed, and what is wrong with its records; None without one.

    Of several copies of a partition the one that reaches furthest is read; if that one is damaged and another is not, the other.
    What cannot be read is listed in `inputs.incomplete`.

    A copy is read to its end. Brokers see only what is below the high watermark, but its checkpoint is some seconds old in a copy
    of a live or killed broker; and what was appended above it was done to the store, or is about to be.
    """
    plans = copies_of_remote_log(inputs)
    if not plans:
        return None, []
    history, malformed, replays = RemoteLogHistory(), MalformedRecords(), []
    for copies in plans:
        best: _Replayed | None = None
        for plan in copies:
            replayed = _Replayed(inputs, plan)
            if best is None or (replayed.is_whole and not best.is_whole):
                best = replayed
            if best.is_whole:
                break
        if best is not None:
            replays.append(best.replay)
            malformed.take(best.malformed)
            history.damaged |= not best.is_whole or bool(best.malformed.count)
            history.copies_read.add(_copy(best.plan))
    history.logs = remote_logs(replays)
    history.partitions_read = {replay.metadata_partition for replay in replays}
    history.dropped = sum(replay.dropped for replay in replays)
    history.forgotten = sum(replay.forgotten for replay in replays)
    return history, malformed.findings()


def copies_of_remote_log(inputs: Inputs) -> list[list[ReplicaPlan]]:
    """The copies of each partition of `__remote_log_metadata`, by cluster and partition; the one that reaches furthest is first.

    A copy that does not tell its cluster is of the only one there is.
    """
    plans = [plan for plan in inputs.internal if plan.context.topic == REMOTE_LOG_METADATA_TOPIC]
    clusters = {cluster_of(plan) for plan in plans} - {None}
    unknown = "" if len(clusters) > 1 else next(iter(clusters), None) or ""
    copies: dict[tuple[str, int], list[ReplicaPlan]] = {}
    for plan in plans:
        copies.setdefault((cluster_of(plan) or unknown, plan.context.partition), []).append(plan)
    return [sorted(copies[key], key=reach, reverse=True) for key in sorted(copies)]


def _copy(plan: ReplicaPlan) -> tuple[int | str, str, int]:
    return plan.context.broker, plan.log_dir.name, plan.context.partition


class RemoteLogEvent(NamedTuple):
    """A record of `__remote_log_metadata`, and whether brokers take it."""

    batch: LoggedRecords
    offset: int
    timestamp: int
    decoded: MetadataRecord
    is_taken: bool

    @property
    def problem(self) -> str | None:
        """Why it cannot be read; None also where it is of an unknown kind."""
        return None if self.decoded.is_unknown else self.decoded.problem


def remote_log_events(inputs: Inputs, history: RemoteLogHistory | None) -> Iterator[tuple[ReplicaPlan, Iterator[RemoteLogEvent]]]:
    """The records of each copy that was replayed, by metadata partition and offset. Reading them raises SourceError."""
    copies_read = set() if history is None else history.copies_read
    for copies in copies_of_remote_log(inputs):
        for plan in copies:
            if _copy(plan) in copies_read:
                yield plan, _events(plan, RemoteLogReplay(plan.context.partition), [])


def _events(plan: ReplicaPlan, replay: RemoteLogReplay, lost: list[tuple[int, int]]) -> Iterator[RemoteLogEvent]:
    """Hand the records of a copy to the replay one by one; those of unknown kinds are passed over."""
    for batch in logged_records(plan, lost):
        for record in batch.records:
            decoded = decode_remote_log_record(record.value)
            if isinstance(record, Record) and record.is_oversized:
                decoded = replace(decoded, problem="oversized")
            is_taken = decoded.fields is not None and replay.take(decoded.fields, record.offset)
            yield RemoteLogEvent(batch, record.offset, record.timestamp, decoded, is_taken)


class _Replayed:
    """One copy of a partition, as far as it can be read."""

    def __init__(self, inputs: Inputs, plan: ReplicaPlan) -> None:
        self.plan = plan
        self.replay = RemoteLogReplay(plan.context.partition)
        self.malformed = MalformedRecords()
        self.is_whole = True
        lost: list[tuple[int, int]] = []
        try:
            for event in _events(plan, self.replay, lost):
                self.is_whole &= not event.batch.broken
                if event.problem is not None:
                    self.malformed.add(partial(_malformed, plan, event, event.problem))
        except SourceError as error:
            inputs.incomplete.append(not_read(plan.log_dir.source, error))
            self.is_whole = False
        self.is_whole &= not lost


def _malformed(plan: ReplicaPlan, event: RemoteLogEvent, reason: str) -> Finding:
    batch, offset = event.batch, event.offset
    place = plan.context.log_place(batch.segment, batch.position, batch.size_in_bytes, offset, offset + 1)
    evidence: MetadataMalformedEvidence = {"reason": reason, "unknown_after_offset": offset - 1}
    if event.decoded.api_key >= 0:
        evidence["record_type"] = event.decoded.name
    return finding("METADATA_RECORD_MALFORMED", place, evidence)
