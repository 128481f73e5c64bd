"""Facts of small files: index entries, epoch entries, producer states of snapshots, and lines of offset checkpoints."""

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, NodeIds, broker_order
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.export.facts.log import ReplicaReader
from kafka_forensics.export.facts.rows import MAX_ROWS, batch_without_keys, place_columns, record_batches
from kafka_forensics.model.arrow import numbers, times
from kafka_forensics.model.constants import (
    INDEX_ENTRY_SIZE,
    PRODUCER_SNAPSHOT_ENTRY_SIZE,
    PRODUCER_SNAPSHOT_HEADER_SIZE,
    TIME_INDEX_ENTRY_SIZE,
)
from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.checkpoints import parse_leader_epochs
from kafka_forensics.parsers.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index, parse_transaction_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.schemas import ArrowArray
    from kafka_forensics.storage.source import ByteFile, Entry

Parsed = TypeVar("Parsed")


def _parsed(replica: ReplicaReader, entry: "Entry", parse: "Callable[[ByteFile], Parsed]") -> Parsed | None:
    """A file's parsed content; None if it cannot be read, which is noted."""
    try:
        with replica.plan.log_dir.source.open(entry.path) as file:
            return parse(file)
    except SourceError as error:
        replica.missing(entry, error)
        return None


def index_facts(replica: ReplicaReader) -> Iterator[pa.RecordBatch]:
    """Record batches of `index_entries`, with the columns `Fact.file_schema`."""
    for segment in replica.plan.directory.segments:
        base_offset = segment.base_offset
        if segment.index is not None:
            index = _parsed(replica, segment.index, partial(parse_offset_index, base_offset=base_offset))
            if index is not None:
                columns = {"offset": index.offsets, "log_position": index.positions}
                yield from _index_batches(replica, segment.index, "offset", INDEX_ENTRY_SIZE, columns)
        if segment.time_index is not None:
            times = _parsed(replica, segment.time_index, partial(parse_time_index, base_offset=base_offset))
            if times is not None:
                columns = {"offset": times.offsets, "timestamp": times.timestamps}
                yield from _index_batches(replica, segment.time_index, "time", TIME_INDEX_ENTRY_SIZE, columns)
        if segment.transaction_index is not None:
            yield from _aborted_batches(replica, segment.transaction_index)


def _index_batches(
    replica: ReplicaReader, entry: "Entry", index_type: str, width: int, columns: "dict[str, NDArray[np.int64]]"
) -> Iterator[pa.RecordBatch]:
    fact = FACTS["index_entries"]
    entries = len(columns["offset"])
    for start in range(0, entries, MAX_ROWS):
        rows = min(MAX_ROWS, entries - start)
        log_dir, file, kind = place_columns((*replica.place(entry), index_type), rows)
        arrays: dict[str, ArrowArray] = {"log_dir": log_dir, "file": file, "index_type": kind}
        for name, values in columns.items():
            to_arrow = times if name == "timestamp" else numbers
            arrays[name] = to_arrow(values[start : start + rows])
        arrays["position"] = numbers(np.arange(start, start + rows, dtype=np.int64) * width)
        yield batch_without_keys(fact, [arrays.get(field.name, pa.nulls(rows, field.type)) for field in fact.file_schema])


def _aborted_batches(replica: ReplicaReader, entry: "Entry") -> Iterator[pa.RecordBatch]:
    index = _parsed(replica, entry, parse_transaction_index)
    place = replica.place(entry)
    rows = (
        (
            *place,
            *("transaction", txn.position, None, None, None),
            *(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset),
        )
        for txn in (() if index is None else index.entries)
    )
    return record_batches(FACTS["index_entries"].file_schema, rows)


def epoch_facts(replica: ReplicaReader) -> Iterator[pa.RecordBatch]:
    """Record batches of `epoch_entries`, with the columns `Fact.file_schema`."""
    entry = replica.plan.directory.entries.get("leader-epoch-checkpoint")
    parsed = None if entry is None else _parsed(replica, entry, parse_leader_epochs)
    if entry is None or parsed is None:
        return iter(())
    place = replica.place(entry)
    rows = ((*place, row, epoch_entry.leader_epoch, epoch_entry.start_offset) for row, epoch_entry in enumerate(parsed.entries))
    return record_batches(FACTS["epoch_entries"].file_schema, rows)


def producer_facts(replica: ReplicaReader) -> Iterator[pa.RecordBatch]:
    """Record batches of `producer_states`, with the columns `Fact.file_schema`."""
    return record_batches(FACTS["producer_states"].file_schema, _producer_rows(replica))


_producer_columns = attrgetter(*ProducerEntry.__struct_fields__)


def _producer_rows(replica: ReplicaReader) -> Iterator[tuple[object, ...]]:
    for offset, entry in replica.plan.directory.snapshots:
        snapshot = _parsed(replica, entry, partial(parse_producer_snapshot, offset=offset))
        place = replica.place(entry)
        for row, producer_entry in enumerate(() if snapshot is None else snapshot.entries):
            position = PRODUCER_SNAPSHOT_HEADER_SIZE + row * PRODUCER_SNAPSHOT_ENTRY_SIZE
            yield (*place, offset, position, *_producer_columns(producer_entry))


def checkpoint_facts(inputs: Inputs, options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Record batches of `checkpoints`, by topic, partition, broker, log directory and file; only those that the options select."""
    return record_batches(FACTS["checkpoints"].schema, _checkpoint_rows(inputs, options))


def _checkpoint_rows(inputs: Inputs, options: ScanOptions) -> Iterator[tuple[object, ...]]:
    node_ids = NodeIds.of(inputs.log_dirs)
    lines = [
        (key, number, file, offset)
        for number, log_dir in enumerate(inputs.log_dirs)
        if options.broker is None or str(log_dir.broker) == options.broker
        for file in CHECKPOINTS
        if (checkpoint := log_dir.checkpoints.get(file)) is not None
        for key, offset in checkpoint.offsets.items()
        if fits(key, options)
    ]
    order = {number: (broker_order(log_dir.broker), log_dir.name) for number, log_dir in enumerate(inputs.log_dirs)}
    for key, number, file, offset in sorted(lines, key=lambda line: (line[0], order[line[1]], line[2])):
        log_dir = inputs.log_dirs[number]
        yield *node_ids.replica(*key, log_dir.broker), log_dir.name, file, offset
