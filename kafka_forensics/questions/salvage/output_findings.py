"""What a scan of the output finds above `info`: a log that was built wrongly, what a copy has as well, and what is new."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafka_forensics.model.batches import LOG_DAMAGE
from kafka_forensics.model.findings import Finding
from kafka_forensics.replication.offset_ranges import Range, normalised, without
from kafka_forensics.replication.planner import NO_END

_OF_A_GAP: Final = frozenset({"OFFSET_GAP", "SEGMENT_MISSING"})
_WRONG: Final = (
    LOG_DAMAGE
    | _OF_A_GAP
    | {
        "EPOCH_CACHE_MISMATCH",
        "EPOCH_FIELD_MISMATCH",
        "HIDDEN_BYTES",
        "OFFSET_DISCONTINUITY",
        "OFFSET_NON_MONOTONIC",
        "OFFSET_REGRESSION",
        "SEG_NAME_MISMATCH",
        "SEG_SHORT",
    }
)
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
        for finding in findings:
            self._found.setdefault(_key(finding), []).append(_offsets(finding))

    def judge(self, found: Iterable[Finding], gaps: Sequence[Range]) -> Judged:
        """Sort out what was found in a partition of the output, of which the manifest names these gaps."""
        judged, gaps = Judged([], [], []), normalised(gaps)
        for finding in found:
            offsets = _offsets(finding)
            if finding.kind in _OF_A_GAP and offsets is not None and not without([offsets], gaps):
                continue
            if finding.kind in _WRONG:
                judged.wrong.append(finding)
            elif self._has(finding):
                judged.inherited.append(finding)
            else:
                judged.new.append(finding)
        return judged

    def _has(self, finding: Finding) -> bool:
        """Whether a copy has a finding of the same kind, of the same producer, at offsets that overlap, or has it without offsets
        if this one has none."""
        ours = _offsets(finding)
        for theirs in self._found.get(_key(finding), ()):
            if ours == theirs or (ours and theirs and ours[0] < theirs[1] and theirs[0] < ours[1]):
                return True
        return False


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.place.topic, finding.place.partition, finding.evidence.get("producer_id")


def _offsets(finding: Finding) -> Range | None:
    start, end = finding.place.offset_start, finding.place.offset_end
    return None if start is None else (start, NO_END if end is None else end)
