"""Classifies the findings above `info` of a scan of the output: wrong, inherited from a copy, or new."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.model.batches import LOG_DAMAGE
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Range, normalised, without
from kafka_forensics.replication.planner import NO_END

_WRONG: Final = LOG_DAMAGE | kinds_with(Trait.LACKS_OFFSETS, Trait.OUT_OF_ORDER, Trait.PREVENTS_SALVAGE)
"""Kinds about wrong bytes, offsets or epochs: a log with one of them is refused."""


class OutputFindings(NamedTuple):
    """Findings of one partition of the output, without the gaps in the manifest."""

    wrong: list[Finding]
    inherited: list[Finding]
    """A copy also has them."""
    new: list[Finding]
    """No copy has them at these offsets."""


class InputFindings:
    """The findings of the copies."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._ranges: dict[tuple[object, ...], list[Range | None]] = {}
        listed: dict[tuple[object, ...], list[Range]] = {}
        for finding in findings:
            offsets = _offsets(finding)
            self._ranges.setdefault(_key(finding), []).append(offsets)
            if "occurrences" in finding.evidence and offsets is not None:
                listed.setdefault((*_kind(finding), finding.place.broker, finding.place.log_dir), []).append(offsets)
        self._summarised: dict[tuple[object, ...], list[Range]] = {}
        """For kinds that a copy has too often to list every place: from the first listed place to the last."""
        for (*kind, _, _), ranges in listed.items():
            span = min(start for start, _ in ranges), max(end for _, end in ranges)
            self._summarised.setdefault(tuple(kind), []).append(span)

    def classify(self, findings: Iterable[Finding], gaps: Sequence[Range]) -> OutputFindings:
        """Classify the findings of a partition of the output, with its gaps by the manifest."""
        classes, gaps = OutputFindings([], [], []), normalised(gaps)
        for finding in findings:
            offsets = _offsets(finding)
            if finding.kind in kinds_with(Trait.LACKS_OFFSETS) and offsets is not None and not without([offsets], gaps):
                continue
            rows = classes.wrong if finding.kind in _WRONG else classes.inherited if self._has(finding) else classes.new
            rows.append(finding)
        return classes

    def _has(self, finding: Finding) -> bool:
        """Whether a copy has a finding of the same kind, producer and transaction at these offsets."""
        if finding.kind in kinds_with(Trait.SALVAGE_BUILDS_FILE):
            return False
        ours, theirs = _offsets(finding), self._ranges.get(_key(finding), [])
        if ours is None:
            return None in theirs
        ranges = [span for span in theirs if span is not None]
        if finding.kind in kinds_with(Trait.ONE_TRANSACTION):
            return any(start == ours[0] for start, _ in ranges)
        if finding.kind in kinds_with(Trait.ABSENT_OFFSETS):
            return not without([ours], normalised(ranges))
        return any(start < ours[1] and ours[0] < end for start, end in (*ranges, *self._summarised.get(_kind(finding), ())))


def _kind(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.place.topic, finding.place.partition


def _key(finding: Finding) -> tuple[object, ...]:
    return *_kind(finding), finding.evidence.get("producer_id"), finding.evidence.get("coordinator_offset")


def _offsets(finding: Finding) -> Range | None:
    start, end = finding.place.offset_start, finding.place.offset_end
    return None if start is None else (start, NO_END if end is None else end)
