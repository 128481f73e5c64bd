"""Facts of one `.log` file as Arrow, for notebooks and scripts: batches and records, a chunk at a time."""

from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.engine.record_states import RecordStates, later_segments
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.schemas import RECORDS, batches_to_arrow
from kafka_forensics.parsers.inspection import inspector
from kafka_forensics.parsers.records import decode_batch
from kafka_forensics.parsers.segment import SegmentReader
from kafka_forensics.storage.open import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def read_batches(path: str) -> "Iterator[pa.RecordBatch]":
    """Batches of a `.log` file, as `model.schemas.BATCHES`; damaged stretches are left out, batches with a bad CRC are not.

    Raises PathMissingError and SourceError.
    """
    source = open_source(path)
    with source.open("") as file:
        for chunk in SegmentReader(file, inspect=inspector(deep=False)).chunks():
            yield batches_to_arrow(chunk.columns)


def read_records(path: str) -> "Iterator[pa.RecordBatch]":
    """Records of every good batch of a `.log` file, as `model.schemas.RECORDS`, a batch at a time.

    Raises PathMissingError and SourceError.
    """
    import pyarrow as pa

    source = open_source(path)
    with source.open("") as file:
        states = RecordStates(file, goes_on=later_segments(path))
        for chunk in SegmentReader(file).chunks():
            columns = chunk.columns
            good = np.flatnonzero(columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED])
            for row in good:
                position = int(columns[BatchColumn.POSITION, row])
                batch = file.read_at(position, int(columns[BatchColumn.SIZE_IN_BYTES, row]))
                attributes = int(columns[BatchColumn.ATTRIBUTES, row]) if columns[BatchColumn.MAGIC, row] >= 2 else 0
                producer_id = int(columns[BatchColumn.PRODUCER_ID, row])
                rows = [
                    {
                        "offset": record.offset,
                        "timestamp": record.timestamp,
                        "timestamp_type": record.timestamp_type,
                        "sequence": record.sequence,
                        "key": record.key,
                        "value": record.value,
                        "headers": [{"key": key, "value": value} for key, value in record.headers],
                        "batch_position": position,
                        "txn_state": states.state(attributes, producer_id, record.offset),
                    }
                    for record in decode_batch(batch).iter_records()
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=RECORDS)
