"""What a scan of the output finds above `info`: a log that was built wrongly, what a copy has as well, and what is new."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.model.batches import LOG_DAMAGE
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Range, normalised, without
from kafka_forensics.replication.planner import NO_END

_WRONG: Final = LOG_DAMAGE | kinds_with(Trait.LACKS_OFFSETS, Trait.OUT_OF_ORDER, Trait.SPOILS_SALVAGE)
"""Kinds that tell of wrong bytes, offsets or epochs: no log that has one is salvaged."""


class Judged(NamedTuple):
    """What was found in one partition of the output, without the gaps that the manifest names."""

    wrong: list[Finding]
    inherited: list[Finding]
    """A copy has them, too."""
    new: list[Finding]
    """No copy has them at these offsets."""


class InputFindings:
    """What was found in the copies."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._found: dict[tuple[object, ...], list[Range | None]] = {}
        shown: dict[tuple[object, ...], list[Range]] = {}
        for finding in findings:
            offsets = _offsets(finding)
            self._found.setdefault(_key(finding), []).append(offsets)
            if "occurrences" in finding.evidence and offsets is not None:
                shown.setdefault((*_kind(finding), finding.place.broker, finding.place.log_dir), []).append(offsets)
        self._many: dict[tuple[object, ...], list[Range]] = {}
        """Of kinds that a copy has too often to show each: from the first to the last that it shows."""
        for (*kind, _, _), spans in shown.items():
            span = min(start for start, _ in spans), max(end for _, end in spans)
            self._many.setdefault(tuple(kind), []).append(span)

    def judge(self, found: Iterable[Finding], gaps: Sequence[Range]) -> Judged:
        """Sort out what was found in a partition of the output, of which the manifest names these gaps."""
        judged, gaps = Judged([], [], []), normalised(gaps)
        for finding in found:
            offsets = _offsets(finding)
            if finding.kind in kinds_with(Trait.LACKS_OFFSETS) and offsets is not None and not without([offsets], gaps):
                continue
            if finding.kind in _WRONG:
                judged.wrong.append(finding)
            elif self._has(finding):
                judged.inherited.append(finding)
            else:
                judged.new.append(finding)
        return judged

    def _has(self, finding: Finding) -> bool:
        """Whether a copy has a finding of the same kind, of the same producer and transaction, at these offsets."""
        if finding.kind in kinds_with(Trait.SALVAGE_BUILDS_FILE):
            return False
        ours, theirs = _offsets(finding), self._found.get(_key(finding), [])
        if ours is None:
            return None in theirs
        ranges = [span for span in theirs if span is not None]
        if finding.kind in kinds_with(Trait.ONE_TRANSACTION):
            return any(start == ours[0] for start, _ in ranges)
        if finding.kind in kinds_with(Trait.ABSENT_OFFSETS):
            return not without([ours], normalised(ranges))
        return any(start < ours[1] and ours[0] < end for start, end in (*ranges, *self._many.get(_kind(finding), ())))


def _kind(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.place.topic, finding.place.partition


def _key(finding: Finding) -> tuple[object, ...]:
    return *_kind(finding), finding.evidence.get("producer_id"), finding.evidence.get("coordinator_offset")


def _offsets(finding: Finding) -> Range | None:
    start, end = finding.place.offset_start, finding.place.offset_end
    return None if start is None else (start, NO_END if end is None else end)
