"""Keys of logs that were collected: their records as hashes, and the hasher with which others can be compared with them."""

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
        """Records of the good batches of records that begin at these byte positions, ascending; they are in that order.

        Batches that could not be opened are among the unread ones: they count as damage. Raises SourceError where they cannot be
        read.
        """
        if not positions.size:
            return HashedRecords.none()
        try:
            sections = self._log.hashes(int(positions.min()), int(positions.max()) + 1)
            return HashedRecords.together([parse_record_hashes(section) for section in sections]).of(positions)
        except FormatError as error:
            raise self._log.broken(error.reason) from error


def hash_key_of(plans: Iterable[ReplicaPlan]) -> str | None:
    """Under which key, by its name, keys were hashed of those of the replicas that were collected; "": without one; None if no
    replica was collected.

    Where there are several ways it is one of them: of the others' logs nothing can be compared.
    """
    keys = [plan.log_dir.source.about.redaction or "" for plan in plans if isinstance(plan.log_dir.source, BundleSource)]
    return "" if "" in keys else next(iter(keys), None)


def hasher_of(hash_key: str | None, seed: int) -> RecordHasher | None:
    """The hasher that collected logs were hashed by, as `hash_key_of` says; one with the seed if none was collected. None if they
    were hashed with the key of a map, which is in no bundle."""
    if hash_key is None:
        return SeededHasher(seed)
    return None if hash_key else StrongHasher()
