"""Keys of some records of one log, as a fold: what of them is kept to tell by which rule they came into its partition."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.key_samples import KEY_SAMPLE_COLUMNS, KeySampleColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_KEPT: Final = 2048
"""Records with a key that are kept of a log, at most."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_OTHER_ODD: Final = np.uint64(0xBF58476D1CE4E5B9)


class KeyPlacementFold:
    """State: counts, and of the records with a key a sample that does not depend on how the log was cut.

    Kept are those whose offsets come first in a fixed order that has nothing to do with time or key.
    """

    def __init__(self) -> None:
        self.records = 0
        """That were looked at."""
        self.keyless = 0
        """Of them without a key, or with an empty one."""
        self._kept: list[NDArray[np.int64]] = []
        self._columns = 0

    def step(self, samples: "NDArray[np.int64]") -> None:
        """Add a (KEY_SAMPLE_COLUMNS, n) matrix of records."""
        if not samples.shape[1]:
            return
        keyed = samples[KeySampleColumn.KEY_LENGTH] > 0
        self.records += samples.shape[1]
        self.keyless += samples.shape[1] - int(keyed.sum())
        self._add(samples[:, keyed])

    def merge(self, right: "KeyPlacementFold") -> None:
        """Add the stretch that follows ours."""
        self.records += right.records
        self.keyless += right.keyless
        for samples in right._kept:
            self._add(samples)

    def _add(self, samples: "NDArray[np.int64]") -> None:
        self._kept.append(samples)
        self._columns += samples.shape[1]
        if self._columns > 2 * MOST_KEPT:
            self._kept = [thinned(self._all(), MOST_KEPT)]
            self._columns = self._kept[0].shape[1]

    def _all(self) -> "NDArray[np.int64]":
        return np.concatenate([np.empty((KEY_SAMPLE_COLUMNS, 0), np.int64), *self._kept], axis=1)

    def samples(self) -> "NDArray[np.int64]":
        """The records kept, a (KEY_SAMPLE_COLUMNS, n) matrix in order of offsets."""
        return thinned(self._all(), MOST_KEPT)


def thinned(samples: "NDArray[np.int64]", most: int) -> "NDArray[np.int64]":
    """At most `most` columns, in order of offsets; the same ones however the whole was put together."""
    offsets = samples[KeySampleColumn.OFFSET]
    if offsets.size > most:
        mixed = offsets.astype(np.uint64) * _ODD
        mixed = (mixed ^ (mixed >> np.uint64(31))) * _OTHER_ODD
        order = np.argsort(mixed ^ (mixed >> np.uint64(29)), kind="stable")
        samples = samples[:, np.sort(order[:most])]
    return samples[:, np.argsort(samples[KeySampleColumn.OFFSET], kind="stable")]


@dataclass(slots=True)
class PartitionKeys:
    """What was looked at of one partition: `samples` as the fold keeps them, the counts of records, and how many it has in all."""

    samples: "NDArray[np.int64]"
    looked_at: int
    keyless: int
    records: int
