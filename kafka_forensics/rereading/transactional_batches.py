"""The batches of a log that belong to transactions, in file order."""

from collections.abc import Iterator

import numpy as np

from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.rereading.misplaced import logs_of, rightly_placed


def transactional_batches(plan: ReplicaPlan) -> Iterator[list[int]]:
    """The transactional batches and markers of a log in file order, good ones, as lists by BatchColumn, with the offsets that
    belong to their places. Raises SourceError."""
    for segment, log, behind in logs_of(plan):
        with plan.log_dir.source.open(log.path) as file:
            for chunk, _ in rightly_placed(plan, segment, file, behind):
                columns = chunk.columns
                attributes, control = columns[BatchColumn.ATTRIBUTES], columns[BatchColumn.CONTROL_RECORD_TYPE]
                is_marker = (attributes & CONTROL_MASK != 0) & (control <= CONTROL_COMMIT)
                is_data = attributes & (CONTROL_MASK | TRANSACTIONAL_MASK) == TRANSACTIONAL_MASK
                good = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (columns[BatchColumn.PRODUCER_ID] >= 0)
                yield from columns[:, np.flatnonzero(good & (is_marker | is_data))].T.tolist()
