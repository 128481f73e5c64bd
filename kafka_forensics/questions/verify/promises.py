"""Promises and their outcomes, and those of a single log: where it starts, and up to which offset it remains as it was."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import damaged_offsets
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import normalised, without
from kafka_forensics.questions.verify.documents import Broker, ManifestPartition, PlannedPartition


class Outcome(StrEnum):
    """The outcome of a promise."""

    KEPT = "kept"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """The copies do not show it."""


class Verified(Struct, frozen=True):
    """One promise. `planned` and `found` are a broker or an offset; None if there is none, or it is unknown.

    `promise`: `leader` · `start` (of a log) · `end` (the log continues from there) · `cut` (a follower truncates there, and follows
    the leader) · `bytes` (a log has all salvaged bytes) · `records` (recovered records are in it again; numbers of records) ·
    `segments` (brokers know all remote segments) · `intact` (no finding of the partition is above warning). `reason` is a key of
    `REASONS`.
    """

    topic: str
    partition: int
    promise: str
    broker: Broker
    outcome: Outcome
    reason: str
    planned: Broker | None = None
    found: Broker | None = None
    kinds: tuple[str, ...] = ()
    """Of `intact`: the kinds of the findings."""
    leader: Broker | None = None
    """Of `cut`: the leader of the follower."""

    @classmethod
    def of(
        cls,
        partition: PlannedPartition | ManifestPartition,
        promise: str,
        broker: Broker,
        reason: str,
        planned: Broker | None = None,
        found: Broker | None = None,
        kinds: tuple[str, ...] = (),
    ) -> "Verified":
        """A promise of a document's partition, with the outcome that its reason has."""
        return cls(partition.topic, partition.partition, promise, broker, REASONS[reason], reason, planned, found, kinds)


_KEPT = (
    "elected",
    "leads",
    "as_planned",
    "went_on_before",
    "moved_on",
    "follows",
    "same_bytes",
    "records_back",
    "nothing_found",
    "known_loss",
    "segments_known",
)
_BROKEN = (
    *(
        "other_elected",
        "no_leader_elected",
        "not_elected",
        "log_start_missing",
        "cut_short",
        "other_lineage",
        "differs",
        "goes_beyond",
    ),
    *(
        "damaged",
        "ends_before",
        "other_bytes",
        "segments_missing",
        "records_missing",
        "records_twice",
        "found",
        "segments_unknown",
        "offset_not_set",
    ),
)
_UNKNOWN = (
    *("no_controller_log", "election_not_known", "node_not_known", "copied_later", "no_bytes", "records_deleted", "not_all_given"),
    *("not_planned", "no_copy", "not_read", "no_remote_log"),
)
_REASONS = {Outcome.KEPT: _KEPT, Outcome.BROKEN: _BROKEN, Outcome.UNKNOWN: _UNKNOWN}
REASONS: Final = {reason: outcome for outcome, reasons in _REASONS.items() for reason in reasons}
"""Reason → whether a promise is kept, broken or unknown."""


class Judgement(NamedTuple):
    """The reason for an outcome, with what was promised and what was found."""

    reason: str
    planned: int | None = None
    found: int | None = None


def start_of(log: Replica, planned: int | None, findings: Sequence[Finding]) -> Judgement:
    """Whether a log still begins at the planned offset."""
    found = log.log_start_offset
    if planned is None:
        return Judgement("not_planned", None, found)
    if found <= planned:
        return Judgement("as_planned", planned, found)
    lost = any(
        finding.kind == "LOG_HEAD_MISSING" and finding.place.broker == log.broker and finding.severity is not Severity.INFO
        for finding in findings
    )
    return Judgement("log_start_missing" if lost else "moved_on", planned, found)


def end_of(
    log: Replica, end: int | None, epochs: Sequence[tuple[int, int]], damaged_before: Sequence[tuple[int, int]] = ()
) -> Judgement:
    """Whether a log is unchanged up to its planned `end`, and continued from there.

    `epochs` are those it had, with their first offsets, and `damaged_before` the offsets that were damaged before.
    """
    if end is None:
        return Judgement("not_planned", None, log.log_end_offset)
    if not log.end_is_known:
        return Judgement("not_read", end, log.offset_sequence.end_offset)
    before = [(epoch, start) for epoch, start in epochs if start < end]
    newest = max((epoch for epoch, _ in before), default=-1)
    went_on = next((entry.start_offset for entry in log.epochs if entry.leader_epoch > newest), log.log_end_offset)
    if went_on < end:
        return Judgement("cut_short", end, went_on)
    now = {entry.leader_epoch: entry.start_offset for entry in log.epochs}
    others = [start for epoch, start in before if start > log.log_start_offset and now.get(epoch) != start]
    if others:
        return Judgement("other_lineage", end, min(others))
    damage = without(normalised(damaged_offsets(log, log.log_start_offset, end)), normalised(damaged_before))
    if damage:
        return Judgement("damaged", end, damage[0][0])
    return Judgement("as_planned" if went_on == end or not before else "went_on_before", end, went_on)


def error_kinds(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Kinds of findings above warning."""
    return tuple(sorted({finding.kind for finding in findings if finding.severity.rank >= Severity.ERROR.rank}))
