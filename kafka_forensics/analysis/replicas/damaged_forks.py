"""Damage where replicas have different histories: whose batch it was, and what of a loss only a damaged copy is left of.

The leader epoch lies outside a batch's CRC, so that what spoils a batch need not touch it. It is believed where something else
bears it out; a damaged batch of a believed epoch and another replica's batch of another epoch are two histories, not two copies.
"""

from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
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


def one_batch(left: "NDArray[np.int64]", right: "NDArray[np.int64]") -> bool:
    """Whether two batches begin at one offset and carry one CRC: copies of one, of which bytes were spoiled."""
    return bool(left[BatchColumn.BASE_OFFSET] == right[BatchColumn.BASE_OFFSET] and left[BatchColumn.CRC] == right[BatchColumn.CRC])


def of_two_histories(left: Replica, a: "NDArray[np.int64]", right: Replica, b: "NDArray[np.int64]") -> bool:
    """Whether two batches at one place are of different leader epochs, each borne out by its own replica."""
    epochs = [int(row[BatchColumn.PARTITION_LEADER_EPOCH]) for row in (a, b)]
    if epochs[0] == epochs[1] or one_batch(a, b):
        return False
    return _epoch_is_borne_out(left, a) and _epoch_is_borne_out(right, b)


def has_good_copy(other: Replica, row: "NDArray[np.int64]", beside: "list[NDArray[np.int64]]") -> bool:
    """Whether a replica has the offsets of a damaged batch whole, or that very batch; `beside` are its batches there."""
    whole = other.covers(int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.LAST_OFFSET]) + 1)
    return whole or any(one_batch(row, other_row) for other_row in beside)


def doubted_epoch(row: "NDArray[np.int64]", beside: "list[NDArray[np.int64]]") -> list[str]:
    """The premise on which a damaged batch is held to be one with those `beside` it; nothing if its header names their epoch, or
    where a message format has none."""
    epoch = int(row[BatchColumn.PARTITION_LEADER_EPOCH])
    others = sorted(
        {
            int(other_row[BatchColumn.PARTITION_LEADER_EPOCH])
            for other_row in beside
            if not one_batch(row, other_row) and min(row[BatchColumn.MAGIC], other_row[BatchColumn.MAGIC]) >= 2
        }
        - {epoch}
    )
    if not others:
        return []
    epochs_there = " and ".join(map(str, others[:4]))
    return [f"one batch, though the damaged header names leader epoch {epoch} and the other {epochs_there}: nothing bears out both"]


def _epoch_is_borne_out(replica: Replica, row: "NDArray[np.int64]") -> bool:
    """Whether the checkpoint gives a batch the leader epoch it carries; without a checkpoint, whether the good batches do."""
    entries = replica.context.epoch_checkpoint or replica.epochs
    offset, epoch = int(row[BatchColumn.BASE_OFFSET]), int(row[BatchColumn.PARTITION_LEADER_EPOCH])
    return epoch >= 0 and epoch == epoch_at(entries, offset)


def another_history(replica: Replica, other: Replica, start: int, end: int) -> bool:
    """Whether the leader epochs of two replicas differ within `[start, end)`, wherever a replica's checkpoint and batches agree."""
    points = {start, *(offset for offset in epoch_starts(replica) | epoch_starts(other) if start < offset < end)}
    for point in points:
        ours, theirs = _agreed_epoch(replica, point), _agreed_epoch(other, point)
        if ours is not None and theirs is not None and ours != theirs:
            return True
    return False


def epoch_starts(replica: Replica) -> set[int]:
    """First offsets of leader epochs, by the batches and the checkpoint."""
    return {entry.start_offset for entry in (*replica.epochs, *(replica.context.epoch_checkpoint or ()))}


def _agreed_epoch(replica: Replica, offset: int) -> int | None:
    """Leader epoch of an offset where the checkpoint and the good batches give it the same, of a log without batches by the
    checkpoint; None where they do not."""
    by_checkpoint, by_batches = epoch_at(replica.context.epoch_checkpoint or (), offset), epoch_at(replica.epochs, offset)
    if not replica.state.framing.batches:
        return by_checkpoint
    return by_batches if by_checkpoint == by_batches else None


def with_damage_told(replicas: list[Replica], findings: list[Finding]) -> list[Finding]:
    """`findings` with the holders of a version judged by what of it they hold whole.

    Who has all of it is the holder; where nobody has, `not_whole` says what lies damaged on each.
    """
    return [
        _with_damage_told(replicas, finding) if finding.kind in kinds_with(Trait.NAMES_ONE_VERSION) else finding
        for finding in findings
    ]


def _with_damage_told(replicas: list[Replica], finding: Finding) -> Finding:
    start, end, holders = finding.place.offset_start, finding.place.offset_end, finding.evidence.get("held_by") or []
    if start is None or end is None or not holders:
        return finding
    holes = {broker: _damaged_on([replica for replica in replicas if replica.broker == broker], start, end) for broker in holders}
    whole = [broker for broker in holders if not holes[broker]]
    if len(whole) == len(holders):
        return finding
    if whole:
        return finding.with_evidence(held_by=whole)
    rows: list[Json] = [
        {"broker": broker, "offset_start": low, "offset_end": high}
        for broker in holders
        for low, high in holes[broker][:_HOLES_TOLD]
    ]
    return finding.with_evidence(not_whole=rows)


_HOLES_TOLD: Final = 16
"""Ranges of damaged offsets told of one holder."""


def _damaged_on(copies: list[Replica], start: int, end: int) -> Ranges:
    """What of `[start, end)` lies damaged on the copy of a broker that has the least of that."""
    spans_by_copy = [damaged_offsets(replica, start, end) for replica in copies]
    return min(spans_by_copy, key=counted, default=())


def damaged_offsets(replica: Replica, start: int, end: int) -> Ranges:
    """What of `[start, end)` lies damaged in a log, ascending; not what is missing or was cleaned away, nor anything of a log that
    is rubble or was not read to its end."""
    continuity = replica.state.continuity
    if replica.state.unread or continuity.dropped_runs:
        return ()
    absent = [(run.start_offset, run.end_offset) for run in continuity.runs]
    absent += [*replica.course.gaps(), *_empty_ends(replica)]
    spans = without(normalised([(max(start, replica.log_start_offset), min(end, replica.log_end_offset))]), normalised(absent))
    named = [(max(start, low), min(end, high)) for low, high in damaged_by_headers(replica)]
    return normalised([*spans, *named])


def damaged_by_headers(replica: Replica) -> list[tuple[int, int]]:
    """Offsets of a cleaned log's damaged batches as their headers tell them: of its offsets some are missing anyway."""
    headers = replica.state.framing.damage.get("BATCH_CRC_MISMATCH", ()) if replica.context.compacted else ()
    return [
        (damage.base_offset, damage.last_offset + 1)
        for segment, damage in headers
        if segment <= damage.base_offset <= damage.last_offset <= segment + MAX_RELATIVE_OFFSET
    ]


def _empty_ends(replica: Replica) -> list[tuple[int, int]]:
    """Offsets that no bytes are there for: before the first batch, and behind the last where an empty segment's name alone tells of
    them. A cleaner leaves both; damage that lies there may have held them."""
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
