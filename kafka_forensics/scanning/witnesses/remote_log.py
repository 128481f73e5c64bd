"""Reading `__remote_log_metadata`: one copy of each partition is replayed, and malformed records become findings."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from kafka_forensics.analysis.internal_topics import RemoteLogReplay, rejected_events, remote_logs
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
from kafka_forensics.scanning.witnesses.coordinators import copies_of, first_complete, malformed_finding, sort_key_of_newest
from kafka_forensics.scanning.witnesses.malformed_records import MalformedRecords

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import MetadataMalformedEvidence


def read_remote_log(inputs: Inputs) -> tuple[RemoteLogHistory | None, list[Finding]]:
    """Replay every partition of `__remote_log_metadata` among the inputs: (history, findings about its records).

    None if there is no copy. The copy that reaches furthest is read; if it is damaged, a whole one is preferred. What cannot be
    read is listed in `inputs.incomplete`.

    A copy is read to its end, though brokers read only up to the high watermark: its checkpoint is seconds old in a copy of a live
    or killed broker, and events above it describe what was done to the store, or is about to be.
    """
    plans = copies_of_remote_log(inputs)
    if not plans:
        return None, []
    history, malformed, replays = RemoteLogHistory(), MalformedRecords(), []
    for copies in plans:
        best = first_complete((_ReplayedCopy(inputs, plan) for plan in copies), lambda replayed: replayed.is_whole)
        if best is not None:
            replays.append(best.replay)
            malformed.take(best.malformed)
            history.damaged |= not best.is_whole or bool(best.malformed.count)
            history.copies_read.add(_copy_key(best.plan))
    history.logs = remote_logs(replays, is_complete=not history.damaged)
    history.partitions_read = {replay.metadata_partition for replay in replays}
    history.dropped = sum(replay.dropped for replay in replays)
    history.forgotten = sum(replay.forgotten for replay in replays)
    return history, [*malformed.findings(), *(finding for replay in replays for finding in rejected_events(replay))]


def copies_of_remote_log(inputs: Inputs) -> list[list[ReplicaPlan]]:
    """The copies of each partition of `__remote_log_metadata`, by cluster and partition; the one that reaches furthest is first."""
    copies = copies_of(inputs, REMOTE_LOG_METADATA_TOPIC)
    return [sorted(copies[key], key=sort_key_of_newest, reverse=True) for key in sorted(copies)]


def _copy_key(plan: ReplicaPlan) -> tuple[int | str, str, int]:
    return plan.context.broker, plan.log_dir.name, plan.context.partition


class RemoteLogEvent(NamedTuple):
    """A record of `__remote_log_metadata`; `is_taken` says whether brokers apply it."""

    batch: LoggedRecords
    offset: int
    timestamp: int
    decoded: MetadataRecord
    is_taken: bool

    @property
    def problem(self) -> str | None:
        """Why it cannot be read; None also for an unknown kind."""
        return None if self.decoded.is_unknown else self.decoded.problem

    @property
    def malformed_evidence(self) -> "MetadataMalformedEvidence":
        """Evidence of `METADATA_RECORD_MALFORMED` about it."""
        evidence: MetadataMalformedEvidence = {"reason": str(self.problem), "unknown_after_offset": self.offset - 1}
        if self.decoded.api_key >= 0:
            evidence["record_type"] = self.decoded.name
        return evidence


def remote_log_events(inputs: Inputs, history: RemoteLogHistory | None) -> Iterator[tuple[ReplicaPlan, Iterator[RemoteLogEvent]]]:
    """The records of each copy that was replayed, by metadata partition and offset. Reading them raises SourceError."""
    copies_read = set() if history is None else history.copies_read
    for copies in copies_of_remote_log(inputs):
        for plan in copies:
            if _copy_key(plan) in copies_read:
                yield plan, _events(plan, RemoteLogReplay(plan.context.partition), [])


def _events(plan: ReplicaPlan, replay: RemoteLogReplay, lost: list[tuple[int, int]]) -> Iterator[RemoteLogEvent]:
    """Replay the records of a copy one by one; unknown kinds are skipped. `lost` as for `logged_records`."""
    for batch in logged_records(plan, lost):
        for record in batch.records:
            decoded = decode_remote_log_record(record.value)
            if isinstance(record, Record) and record.is_oversized:
                decoded = replace(decoded, problem="oversized")
            is_taken = decoded.fields is not None and replay.take(decoded.fields, record.offset)
            yield RemoteLogEvent(batch, record.offset, record.timestamp, decoded, is_taken)


class _ReplayedCopy:
    """One copy of a partition: its readable part is replayed."""

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
                    self.malformed.add(partial(malformed_finding, plan, event.batch, event.offset, event.malformed_evidence))
        except SourceError as error:
            inputs.incomplete.append(not_read(plan.log_dir.source, error))
            self.is_whole = False
        self.is_whole &= not lost
