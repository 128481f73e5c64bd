"""Hashed records of collected logs, and the hashers that make records of other logs comparable with them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka_forensics.errors import FormatError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.parsers.log import HashedRecords, RecordHasher, SeededHasher, StrongHasher
from kafka_forensics.parsers.record_hashes import parse_record_hashes
from kafka_forensics.storage.bundles import BundleSource, CollectedLog

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class CollectedHashes:
    """The hashed records of a collected log."""

    def __init__(self, log: CollectedLog) -> None:
        self._log = log

    def hashed_records(self, positions: "Ints") -> HashedRecords:
        """Records of the good batches at these byte positions, in their ascending order.

        Batches that could not be decoded are in `unread`, and count as damage. Raises SourceError.
        """
        if not positions.size:
            return HashedRecords.none()
        try:
            sections = self._log.hashes(int(positions.min()), int(positions.max()) + 1)
            return HashedRecords.together([parse_record_hashes(section) for section in sections]).of(positions)
        except FormatError as error:
            raise self._log.broken(error.reason) from error


def hash_key_of(plans: Iterable[ReplicaPlan]) -> str | None:
    """The name of the key with which the collected replicas were hashed; "" without a key, None if no replica was collected.

    If they used several, it is one of them, and logs hashed with another cannot be compared.
    """
    keys = [plan.log_dir.source.about.redaction or "" for plan in plans if isinstance(plan.log_dir.source, BundleSource)]
    return "" if "" in keys else next(iter(keys), None)


def hasher_of(hash_key: str | None, seed: int) -> RecordHasher | None:
    """The hasher for a result of `hash_key_of`; with the seed if no log was collected, None if a key of a map was used, which is in
    no bundle."""
    if hash_key is None:
        return SeededHasher(seed)
    return None if hash_key else StrongHasher()
