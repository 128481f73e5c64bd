"""Damage where replicas have different histories: to which history a batch belongs, and which part of a loss remains only in a
damaged copy.

No CRC covers the leader epoch, so damage need not touch it. It counts where other evidence confirms it; a damaged batch with a
confirmed epoch and another replica's batch of another epoch are two histories, not two copies.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import MAX_RELATIVE_OFFSET
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Ranges, counted, normalised, without
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.model.json_objects import Json


class ReplicaBatch(NamedTuple):
    """A batch of a replica: a column of `BatchReader.batches`."""

    replica: Replica
    row: "NDArray[np.int64]"

    @property
    def place(self) -> tuple[int, int]:
        """(segment, byte position)."""
        return int(self.row[-1]), int(self.row[BatchColumn.POSITION])


def is_same_batch(left: "NDArray[np.int64]", right: "NDArray[np.int64]") -> bool:
    """Whether two batches have one base offset and one CRC: they are copies of one batch, and one copy is damaged."""
    return bool(left[BatchColumn.BASE_OFFSET] == right[BatchColumn.BASE_OFFSET] and left[BatchColumn.CRC] == right[BatchColumn.CRC])


def are_two_histories(left: ReplicaBatch, right: ReplicaBatch) -> bool:
    """Whether two batches at one place have different leader epochs, each confirmed by its replica."""
    if left.row[BatchColumn.PARTITION_LEADER_EPOCH] == right.row[BatchColumn.PARTITION_LEADER_EPOCH]:
        return False
    return not is_same_batch(left.row, right.row) and _epoch_is_confirmed(left) and _epoch_is_confirmed(right)


def has_good_copy(replica: Replica, row: "NDArray[np.int64]", others: "list[NDArray[np.int64]]") -> bool:
    """Whether a replica has all offsets of a damaged batch, or that very batch among `others`, its batches there."""
    covers = replica.covers(int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.LAST_OFFSET]) + 1)
    return covers or any(is_same_batch(row, other) for other in others)


def doubted_epoch(row: "NDArray[np.int64]", others: "list[NDArray[np.int64]]") -> list[str]:
    """The premise that a damaged batch is the same batch as `others` at its place; nothing if its header has their epoch, or its
    message format has none."""
    epoch = int(row[BatchColumn.PARTITION_LEADER_EPOCH])
    epochs = {
        int(other[BatchColumn.PARTITION_LEADER_EPOCH])
        for other in others
        if not is_same_batch(row, other) and min(row[BatchColumn.MAGIC], other[BatchColumn.MAGIC]) >= 2
    }
    if not epochs - {epoch}:
        return []
    epochs_text = " and ".join(map(str, sorted(epochs - {epoch})[:4]))
    return [f"one batch, although the damaged header names leader epoch {epoch} and the other {epochs_text}: no file confirms both"]


def _epoch_is_confirmed(batch: ReplicaBatch) -> bool:
    """Whether the checkpoint has a batch's leader epoch; without a checkpoint, whether the good batches do."""
    replica, row = batch
    entries = replica.context.epoch_checkpoint or replica.epochs
    offset, epoch = int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.PARTITION_LEADER_EPOCH])
    return epoch >= 0 and epoch == epoch_at(entries, offset)


def another_history(replica: Replica, other: Replica, start: int, end: int) -> bool:
    """Whether the leader epochs of two replicas differ within `[start, end)`, where each replica's checkpoint and batches agree."""
    offsets = {start, *(offset for offset in epoch_starts(replica) | epoch_starts(other) if start < offset < end)}
    epochs = ((_agreed_epoch(replica, offset), _agreed_epoch(other, offset)) for offset in offsets)
    return any(ours is not None and theirs is not None and ours != theirs for ours, theirs in epochs)


def epoch_starts(replica: Replica) -> set[int]:
    """First offsets of leader epochs, by the batches and the checkpoint."""
    return {entry.start_offset for entry in (*replica.epochs, *(replica.context.epoch_checkpoint or ()))}


def _agreed_epoch(replica: Replica, offset: int) -> int | None:
    """Leader epoch of an offset on which checkpoint and good batches agree, None if they do not; of a log without batches by the
    checkpoint."""
    by_checkpoint, by_batches = epoch_at(replica.context.epoch_checkpoint or (), offset), epoch_at(replica.epochs, offset)
    if not replica.state.framing.batches:
        return by_checkpoint
    return by_batches if by_checkpoint == by_batches else None


def with_whole_holders(replicas: list[Replica], finding: Finding) -> Finding:
    """A finding about one version with only those holders that have all of it undamaged.

    If none has, `not_whole` lists the damaged offsets of each.
    """
    start, end, holders = finding.place.offset_start, finding.place.offset_end, finding.evidence.get("held_by") or []
    if start is None or end is None or not holders:
        return finding
    damaged: dict[int | str, Ranges] = {}
    for broker in holders:  # of several copies of a broker, the one with the least damage
        copies = [damaged_offsets(replica, start, end) for replica in replicas if replica.broker == broker]
        damaged[broker] = min(copies, key=counted, default=())
    whole = [broker for broker in holders if not damaged[broker]]
    if len(whole) == len(holders):
        return finding
    if whole:
        return finding.with_evidence(held_by=whole)
    rows: list[Json] = [
        {"broker": broker, "offset_start": low, "offset_end": high}
        for broker in holders
        for low, high in damaged[broker][:_RANGES_LISTED]
    ]
    return finding.with_evidence(not_whole=rows)


_RANGES_LISTED: Final = 16
"""Damaged ranges listed of one holder."""


def damaged_offsets(replica: Replica, start: int, end: int) -> Ranges:
    """The damaged part of `[start, end)` in a log, ascending; not what is missing or was cleaned, nor anything of a log with too
    many runs or not read completely."""
    if replica.state.unread or replica.state.continuity.dropped_runs:
        return ()
    absent = normalised([*replica.good_ranges, *replica.offset_sequence.gaps(), *_empty_ends(replica)])
    spans = without(normalised([(max(start, replica.log_start_offset), min(end, replica.log_end_offset))]), absent)
    by_headers = [(max(start, low), min(end, high)) for low, high in damaged_by_headers(replica)]
    return normalised([*spans, *by_headers])


def damaged_by_headers(replica: Replica) -> list[tuple[int, int]]:
    """Offsets of a cleaned log's damaged batches by their headers: some of its offsets are missing in any case."""
    headers = replica.state.framing.damage.get("BATCH_CRC_MISMATCH", ()) if replica.context.compacted else ()
    return [
        (damage.base_offset, damage.last_offset + 1)
        for segment, damage in headers
        if segment <= damage.base_offset <= damage.last_offset <= segment + MAX_RELATIVE_OFFSET
    ]


def _empty_ends(replica: Replica) -> list[tuple[int, int]]:
    """Offsets without any bytes: before the first batch, and after the last one if only the name of an empty segment proves them.
    Cleaning leaves both; damage there may hide such batches."""
    continuity = replica.state.continuity
    runs = continuity.runs
    if not runs:
        return [] if continuity.damage_at_end else [(replica.log_start_offset, replica.log_end_offset)]
    first = runs[0].start_offset
    if runs[0].after_damage is not None:
        first = min((low for low, _ in damaged_by_headers(replica) if low < first), default=replica.log_start_offset)
    ends = [(replica.log_start_offset, first)]
    if continuity.damage_at_end is None:
        ends.append((runs[-1].end_offset, replica.log_end_offset))
    return ends
