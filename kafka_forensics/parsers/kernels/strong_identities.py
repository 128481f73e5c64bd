"""Identities of batches that need no key: BLAKE2b of 128 bits of seven facts, for blocks whose sums anybody may compare.

They say what the keyed ones of a scan say (`identities`), of offsets, epoch, magic, size and both CRCs, as seven words of 64 bits
in little-endian order: one block of BLAKE2b (RFC 7693), which is far less than a call of a library costs.
"""

import hashlib
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafka_forensics.compiled import interpreted_by, primitive
from kafka_forensics.model.batches import IDENTITY, BatchColumn
from kafka_forensics.parsers.kernels.strong_content import BLOCK_WORDS, DIGEST_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

PERSON: Final = b"a batch of Kafka"
"""What these digests are for, so that no others are equal to them."""
WORDS: Final = 7
_BASE_OFFSET, _LAST_OFFSET, _EPOCH, _MAGIC, _SIZE, _CRC, _CRC_COMPUTED = map(int, IDENTITY)
_HASH_HIGH: Final = int(BatchColumn.HASH_HIGH)
_HASH_LOW: Final = int(BatchColumn.HASH_LOW)


def _native(name: str) -> Any:
    return getattr(import_module("kafka_forensics.parsers.kernels.strong_identities_native"), name)


@primitive(partial(_native, "digest"))
def digest(words: "Ints") -> tuple[int, int]:
    """The BLAKE2b of the first `WORDS` of 16 words, of which the others are 0, as two int64 bit patterns."""
    made = hashlib.blake2b(words[:WORDS].astype("<i8").tobytes(), digest_size=DIGEST_BYTES, person=PERSON).digest()
    return int.from_bytes(made[:8], "little", signed=True), int.from_bytes(made[8:], "little", signed=True)


def _by_library(columns: "Ints", _words: "Ints") -> None:
    """`fill_strong_hashes` by one call of a library for each batch."""
    rows = np.flatnonzero(columns[_MAGIC] >= 2)
    facts = np.ascontiguousarray(columns[list(IDENTITY)][:, rows].T.astype("<i8", copy=False)).tobytes()
    size = 8 * WORDS
    made = b"".join(
        hashlib.blake2b(facts[at : at + size], digest_size=DIGEST_BYTES, person=PERSON).digest()
        for at in range(0, len(facts), size)
    )
    halves = np.frombuffer(made, "<i8").reshape(-1, 2)
    columns[_HASH_HIGH, rows], columns[_HASH_LOW, rows] = halves[:, 0], halves[:, 1]


@interpreted_by(_by_library)
def fill_strong_hashes(columns: "Ints", words: "Ints") -> None:
    """`fill_strong_identities` with `words` that are `BLOCK_WORDS` zeros."""
    for row in range(columns.shape[1]):
        if columns[_MAGIC, row] < 2:
            continue
        words[0] = columns[_BASE_OFFSET, row]
        words[1] = columns[_LAST_OFFSET, row]
        words[2] = columns[_EPOCH, row]
        words[3] = columns[_MAGIC, row]
        words[4] = columns[_SIZE, row]
        words[5] = columns[_CRC, row]
        words[6] = columns[_CRC_COMPUTED, row]
        high, low = digest(words)
        columns[_HASH_HIGH, row] = high
        columns[_HASH_LOW, row] = low


def fill_strong_identities(columns: "Ints") -> None:
    """Fill the two rows of hashes of a (BATCH_COLUMNS, n) matrix; those of magic 0 and 1 stay as they are, for no block holds
    any."""
    fill_strong_hashes(columns, np.zeros(BLOCK_WORDS, np.int64))
