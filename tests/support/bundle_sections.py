"""Sections of batches as a bundle holds them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.writers.bundle_columns import write_batches


def section_of(columns: Any, damage: Sequence[tuple[Damage, bool]] = (), *, written: Any = None, digests: Any = None) -> bytes:
    """The section of a (BATCH_COLUMNS, n) matrix; without `digests` those of batches that could not be digested."""
    rows = columns.shape[1]
    return write_batches(
        columns,
        damage,
        written=columns[BatchColumn.LAST_OFFSET] if written is None else written,
        digests=np.zeros((rows, 2), np.uint64) if digests is None else digests,
    )
