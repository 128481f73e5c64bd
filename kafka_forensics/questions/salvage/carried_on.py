"""What a scan of a salvaged log may find: its gaps, what follows from what was left behind, and what was written so in the copies.

Nothing is let pass for its kind alone: what producers and coordinators wrote stands in a copy at the same offsets, or else the
salvage has brought it about.
"""

from collections.abc import Iterable
from typing import Final

from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.salvage.manifest import SalvagedPartition
from kafka_forensics.replication.offset_ranges import clipped, normalised, without

OF_A_GAP: Final = frozenset({"OFFSET_GAP", "SEGMENT_MISSING"})
_OF_ENDS: Final = frozenset({"COMMITTED_LOST_EVERYWHERE", "GROUP_OFFSET_BEYOND_LOG"})
"""Kinds that name offsets which are not there."""
_WRITTEN_SO: Final = frozenset(
    {
        "DUPLICATE_BATCH",
        "PRODUCER_EPOCH_REGRESSION",
        "PRODUCER_SEQ_GAP",
        "PRODUCER_SEQ_REGRESSION",
        "TXN_COORDINATOR_EPOCH_REGRESSION",
        "TXN_LATE_WRITE",
        "TXN_MARKERS_DISAGREE",
    }
)
"""Kinds that name the batches of what was written so."""
_OF_TRANSACTIONS: Final = frozenset({"TXN_HANGING", "TXN_PARTLY_LOST", "TXN_TORN"})
"""Kinds that name a transaction whose marker or whose data is not there; it goes on as far as the log does that was looked at."""
_UNDECIDED: Final = _OF_TRANSACTIONS | {"TXN_OPEN"}
Written = tuple[str, str | None, int | None, int | None, int | None]


class CarriedOn:
    """What was found in the copies; of those of running brokers (`live`), whose files are of different moments, a transaction may
    seem to hang in the salvage that only seemed open in them."""

    def __init__(self, given: Iterable[Finding], *, live: bool) -> None:
        self._live = live
        self._written: set[Written] = set()
        self._transactions: set[Written] = set()
        self._missing: dict[Written, list[tuple[int, int]]] = {}
        for finding in given:
            start, end = finding.place.offset_start, finding.place.offset_end
            if finding.kind in _WRITTEN_SO:
                self._written.add(_key(finding, start, end))
            if finding.kind in (_UNDECIDED if live else _OF_TRANSACTIONS):
                self._transactions.add(self._transaction(finding))
            if finding.kind in _OF_ENDS and start is not None and end is not None:
                self._missing.setdefault(_key(finding), []).append((start, end))

    def explains(self, finding: Finding, partition: SalvagedPartition) -> bool:
        """Whether a finding in the salvaged log of a partition is one of its gaps, or was so in the copies, or follows from what is
        known to be missing."""
        start, end = finding.place.offset_start, finding.place.offset_end
        gaps = [(gap.start, gap.end) for gap in partition.gaps]
        missing = normalised([*gaps, *((left.start, left.end) for left in partition.left_behind)])
        if start is None or end is None:
            return False
        if finding.kind in OF_A_GAP:
            return bool(gaps) and not without([(start, end)], normalised(gaps))
        if finding.kind in _OF_ENDS:
            known = normalised([*missing, *self._missing.get(_key(finding), ())])
            return bool(clipped(missing, start, end)) and not without([(start, end)], known)
        if finding.kind in _OF_TRANSACTIONS:
            return self._transaction(finding) in self._transactions or any(behind > start for _, behind in missing)
        return _key(finding, start, end) in self._written

    def _transaction(self, finding: Finding) -> Written:
        kind = "" if self._live else finding.kind
        place = finding.place
        return kind, place.topic, place.partition, place.offset_start, finding.evidence.get("producer_id")


def _key(finding: Finding, start: int | None = None, end: int | None = None) -> Written:
    return finding.kind, finding.place.topic, finding.place.partition, start, end
