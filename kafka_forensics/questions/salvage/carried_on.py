"""What a scan of a salvaged log may find: its gaps, what follows from what was left behind, and what was written so in the copies.

Nothing is let pass for its kind alone: what producers and coordinators wrote stands in a copy at the same offsets. Else the salvage
has brought it about, or damage hid it in every copy. Of one of these `written_apart` tells: where no copy has both of two batches.
"""

from collections.abc import Iterable
from typing import Final

from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.salvage.manifest import SalvagedPartition
from kafka_forensics.replication.offset_ranges import clipped, normalised, without

OF_A_GAP: Final = frozenset({"OFFSET_GAP", "SEGMENT_MISSING"})
_COMMITTED_LOST: Final = "COMMITTED_LOST_EVERYWHERE"
_OF_ENDS: Final = frozenset({_COMMITTED_LOST, "GROUP_OFFSET_BEYOND_LOG"})
"""Kinds that name offsets which are not there; of committed ones some are a gap, or were left behind."""
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
_HANGING: Final = "TXN_HANGING"
_OPEN: Final = "TXN_OPEN"
_OF_TRANSACTIONS: Final = frozenset({_HANGING, _OPEN, "TXN_PARTLY_LOST", "TXN_TORN"})
"""Kinds that name a transaction whose marker or whose data is not there; it goes on as far as the log does that was looked at."""
Written = tuple[str, str | None, int | None, int | None, int | None]
Copy = tuple[str, str | None, int | None, int | str | None, str | None]


class CarriedOn:
    """What was found in the copies; of those of running brokers (`live`), whose files are of different moments, a transaction may
    seem to hang in the salvage that only seemed open in them."""

    def __init__(self, given: Iterable[Finding], *, live: bool) -> None:
        self._live = live
        self._written: set[Written] = set()
        self._transactions: set[Written] = set()
        self._missing: dict[Written, list[tuple[int, int]]] = {}
        shown: dict[Copy, list[int]] = {}
        not_all: set[Copy] = set()
        for finding in given:
            place = finding.place
            start, end = place.offset_start, place.offset_end
            if finding.kind in _WRITTEN_SO:
                self._written.add(_key(finding, start, end))
                copy = finding.kind, place.topic, place.partition, place.broker, place.log_dir
                shown.setdefault(copy, []).extend([] if start is None else [start])
                if "occurrences" in finding.evidence:
                    not_all.add(copy)
            if finding.kind in _OF_TRANSACTIONS:
                self._transactions.add(self._transaction(finding, finding.kind))
            if finding.kind == _HANGING:
                self._transactions.add(self._transaction(finding, _OPEN))
            if finding.kind in _OF_ENDS and start is not None and end is not None:
                self._missing.setdefault(_key(finding), []).append((start, end))
        self._between = [(copy[:3], min(starts), max(starts)) for copy in not_all if (starts := shown[copy])]
        """Of copies with very many of a kind, where those are that are not shown."""

    def explains(self, finding: Finding, partition: SalvagedPartition) -> bool:
        """Whether a finding in the salvaged log of a partition is one of its gaps, or was so in the copies, or follows from what is
        known to be missing."""
        start, end = finding.place.offset_start, finding.place.offset_end
        gaps = [(gap.start, gap.end) for gap in partition.gaps]
        missing = normalised([*gaps, *((left.start, left.end) for left in partition.left_behind)])
        if finding.kind in _OF_TRANSACTIONS and self._transaction(finding, finding.kind) in self._transactions:
            return True
        if start is None or end is None:
            return False
        if finding.kind in OF_A_GAP:
            return bool(gaps) and not without([(start, end)], normalised(gaps))
        if finding.kind in _OF_ENDS:
            known = normalised([*missing, *self._missing.get(_key(finding), ())])
            is_new = finding.kind == _COMMITTED_LOST and not clipped(missing, start, end)
            return not is_new and not without([(start, end)], known)
        if finding.kind in _OF_TRANSACTIONS:
            return any(behind > start for _, behind in missing)
        return _key(finding, start, end) in self._written or self._is_among_many(finding, start)

    def _is_among_many(self, finding: Finding, start: int) -> bool:
        """Whether a copy has so many of a kind that not all are shown, and this one lies between the first and the last."""
        kind = finding.kind, finding.place.topic, finding.place.partition
        return any(kind == known and first <= start <= last for known, first, last in self._between)

    def _transaction(self, finding: Finding, kind: str) -> Written:
        """A transaction by its producer and first offset, or by that of its decision where none of it is left."""
        place, evidence = finding.place, finding.evidence
        first = evidence.get("coordinator_offset") if place.offset_start is None else place.offset_start
        return "" if self._live else kind, place.topic, place.partition, first, evidence.get("producer_id")


def _key(finding: Finding, start: int | None = None, end: int | None = None) -> Written:
    return finding.kind, finding.place.topic, finding.place.partition, start, end
