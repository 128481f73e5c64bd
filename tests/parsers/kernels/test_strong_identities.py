"""Identities without a key: the compiled ones are a library's BLAKE2b, of any facts."""

import hashlib
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn
from kafka_forensics.parsers.kernels.strong_identities import fill_strong_hashes

WORDS = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(st.tuples(WORDS, WORDS, WORDS, st.integers(-1, 3), WORDS, WORDS, WORDS), max_size=20)
FACTS = (
    BatchColumn.BASE_OFFSET,
    BatchColumn.LAST_OFFSET,
    BatchColumn.PARTITION_LEADER_EPOCH,
    BatchColumn.MAGIC,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.CRC,
    BatchColumn.CRC_COMPUTED,
)


@given(ROWS)
def test_they_are_digests_of_a_library(rows: list[tuple[int, ...]]) -> None:
    columns = np.full((BATCH_COLUMNS, len(rows)), 7, np.int64)
    columns[list(FACTS)] = np.array(rows, np.int64).reshape(len(rows), len(FACTS)).T
    made = {name: columns.copy() for name in ("interpreted", "source", "compiled")}
    for name, filled in made.items():
        getattr(fill_strong_hashes, name)(filled, np.zeros(16, np.int64))
    for row, facts in enumerate(rows):
        expected = (
            b""
            if facts[3] < 2
            else hashlib.blake2b(struct.pack("<7q", *facts), digest_size=16, person=b"a batch of Kafka").digest()
        )
        for filled in made.values():
            halves = filled[[BatchColumn.HASH_HIGH, BatchColumn.HASH_LOW], row].tolist()
            assert struct.pack("<2q", *halves) == (expected or struct.pack("<2q", 7, 7))
    for filled in made.values():
        others = [column for column in range(BATCH_COLUMNS) if column not in (BatchColumn.HASH_HIGH, BatchColumn.HASH_LOW)]
        assert (filled[others] == columns[others]).all()
