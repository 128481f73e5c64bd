"""The part of a log whose producers a start would replay, read for what would end the start there."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_ABORT, CONTROL_COMMIT, CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, SegmentReader, decode_batch, parse_control_record
from kafka_forensics.replication.producer_replay import Marker, ProducerReplay, ReplayedBatch
from kafka_forensics.replication.recovery import replayed_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
    from kafka_forensics.replication.recovery_facts import LogFacts, ReplayFault
    from kafka_forensics.storage.source import ByteFile

MAX_REPLAYED_BYTES: Final = 64 << 20
"""Of more than this, only logs in which something of producers, transactions or offsets was found are read once more."""
_SUSPECT: Final = ("TXN_", "PRODUCER_", "OFFSET_", "RECORD_", "BATCH_")
"""How kinds of findings begin that make a long log worth another reading."""


def producer_faults(
    plan: "ReplicaPlan", facts: "LogFacts", inputs: "Inputs", kinds: set[str], *, transactions: int
) -> "tuple[ReplayFault, ...]":
    """The first fault that a start after a crash would meet, or none; nothing is read where there is nothing to replay.

    `kinds` are those of the replica's findings, `transactions` how many its log holds. Raises SourceError.
    """
    suspect = any(kind.startswith(_SUSPECT) for kind in kinds)
    first = replayed_from(facts)
    segments = [one for one in plan.directory.segments if one.log is not None]
    if not segments:
        return ()
    bases = [one.base_offset for one in segments]
    wanted = [
        one for one, behind in zip(segments, [*bases[1:], facts.end_offset], strict=True) if behind > first or one is segments[-1]
    ]
    size = sum(one.log.size_in_bytes for one in wanted if one.log is not None)
    over = facts.clean_shutdown and any(
        snapshot_facts.sound and snapshot_facts.offset == facts.end_offset for snapshot_facts in facts.snapshots
    )
    if over or first >= facts.end_offset or not (suspect or (transactions and size <= MAX_REPLAYED_BYTES)):
        return ()
    replay = ProducerReplay(_open_producers(plan, inputs, first))
    for segment in wanted:
        assert segment.log is not None
        replay.begin(segment.base_offset)
        with plan.log_dir.source.open(segment.log.path) as file:
            for batch in _batches(file, first):
                fault = None if batch is None else replay.step(batch)
                if fault is not None:
                    return (fault,)
                if batch is None:
                    return ()
    return ()


def _open_producers(plan: "ReplicaPlan", inputs: "Inputs", offset: int) -> set[int]:
    """Producers with an open transaction by the snapshot of that offset, none if there is no such."""
    entry = dict(plan.directory.snapshots).get(offset)
    parsed = None if entry is None else inputs.read(plan.log_dir.source, entry, lambda file: parse_producer_snapshot(file, offset))
    return (
        set()
        if parsed is None
        else {producer_entry.producer_id for producer_entry in parsed.entries if producer_entry.current_txn_first_offset >= 0}
    )


def _batches(file: "ByteFile", first: int) -> "Iterator[ReplayedBatch | None]":
    """Batches of producers from offset `first` on; None last where the walk ends at damage."""
    for chunk in SegmentReader(file).chunks():
        columns = chunk.columns
        good = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
        stop = min([damage.position for damage in chunk.damage] + columns[BatchColumn.POSITION, ~good].tolist(), default=None)
        wanted = (columns[BatchColumn.PRODUCER_ID] >= 0) & (columns[BatchColumn.MAGIC] >= 2)
        wanted &= columns[BatchColumn.LAST_OFFSET] >= first
        if stop is not None:
            wanted &= columns[BatchColumn.POSITION] < stop
        for row in np.flatnonzero(wanted).tolist():
            yield _batch(file, columns[:, row])
        if stop is not None:
            yield None


def _batch(file: "ByteFile", column: "NDArray[np.int64]") -> ReplayedBatch:
    attributes = int(column[BatchColumn.ATTRIBUTES])
    return ReplayedBatch(
        int(column[BatchColumn.POSITION]),
        int(column[BatchColumn.BASE_OFFSET]),
        int(column[BatchColumn.PRODUCER_ID]),
        bool(attributes & TRANSACTIONAL_MASK),
        _marker(file, column) if attributes & CONTROL_MASK else None,
    )


def _marker(file: "ByteFile", column: "NDArray[np.int64]") -> Marker:
    """What a control batch says; opened only where its columns do not tell."""
    kind = {CONTROL_ABORT: Marker.ABORT, CONTROL_COMMIT: Marker.COMMIT}.get(int(column[BatchColumn.CONTROL_RECORD_TYPE]))
    if kind is not None and column[BatchColumn.COORDINATOR_EPOCH] >= 0:
        return kind
    position, size = int(column[BatchColumn.POSITION]), int(column[BatchColumn.SIZE_IN_BYTES])
    batch = decode_batch(file.read_at(position, min(size, MAX_BATCH_BYTES)), position=position)
    record = next(batch.iter_records(), None)
    if record is None:
        return Marker.INVALID if batch.problems else Marker.EMPTY
    control_record = parse_control_record(record.key, record.value)
    return Marker.INVALID if kind is None or control_record.problem is not None else kind
