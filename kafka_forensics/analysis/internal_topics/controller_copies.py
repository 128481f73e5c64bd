"""Several copies of `__cluster_metadata` made into one log: what a majority of the voters holds is committed (KIP-595)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class MetadataCopy:
    """One node's copy: `base_offsets`, `last_offsets` and `identities` (leader epoch and CRC) of its good batches, ascending."""

    node: int | str
    base_offsets: "NDArray[np.int64]"
    last_offsets: "NDArray[np.int64]"
    identities: "NDArray[np.int64]"
    last_epoch: int

    @property
    def start_offset(self) -> int:
        """First offset; 0 of an empty log."""
        return int(self.base_offsets[0]) if self.base_offsets.size else 0

    @property
    def end_offset(self) -> int:
        """Next offset to be written."""
        return int(self.last_offsets[-1]) + 1 if self.last_offsets.size else 0

    def within(self, other: "MetadataCopy") -> "MetadataCopy | None":
        """This copy as a stretch of `other`'s arrays, None if it holds anything else: a cluster has a copy on every broker."""
        if not self.base_offsets.size:
            return self
        at = int(np.searchsorted(other.base_offsets, self.base_offsets[0]))
        stop = at + self.base_offsets.size
        stretch = other.base_offsets[at:stop], other.last_offsets[at:stop], other.identities[at:stop]
        own = self.base_offsets, self.last_offsets, self.identities
        if not all(np.array_equal(mine, theirs) for mine, theirs in zip(own, stretch, strict=True)):
            return None
        return MetadataCopy(self.node, *stretch, self.last_epoch)


def add_copy(copies: list[MetadataCopy], new: MetadataCopy) -> None:
    """Add a copy to the others, memory shared with one that it equals as far as both go."""
    for index, known in enumerate(copies):
        shared, longer = new.within(known), known.within(new)
        if longer is not None:
            copies[index] = longer
        if shared is not None:
            new = shared
            break
    copies.append(new)


@dataclass(slots=True)
class AgreedLog:
    """The log that the copies agree on, with what one lost filled in from the others; `gaps` [start, end) are on none of them."""

    base_offsets: "NDArray[np.int64]"
    identities: "NDArray[np.int64]"
    start_offset: int
    end_offset: int
    gaps: list[tuple[int, int]]
    agreed_ends: dict[int | str, int]
    """Node → up to where its copy is this log."""

    def committed_end(self, voters: list[int] | None) -> int | None:
        """Up to where a majority of `voters` holds the log; None if the copies given cannot show a majority."""
        return self._majority_end(voters or [], -1)

    def possible_end(self, voters: list[int] | None) -> int | None:
        """Up to where a majority of `voters` may hold the log, if those do whose copies were not given; None if that may be all."""
        return self._majority_end(voters or [], self.end_offset + 1)

    def _majority_end(self, voters: list[int], unknown: int) -> int | None:
        """The end that a majority reaches; None if it is `unknown`, which is taken for the end of a copy that was not given."""
        ends = sorted((self.agreed_ends.get(voter, unknown) for voter in set(voters)), reverse=True)
        end = ends[len(ends) // 2] if ends else unknown
        return None if end == unknown else end


def agree(copies: list[MetadataCopy]) -> AgreedLog:
    """The log of the copy that would win an election (highest last epoch, then longest), completed from copies of the same log."""
    best = max(copies, key=lambda copy: (copy.last_epoch, copy.end_offset))
    ends: dict[int | str, int] = {}
    bases, lasts, identities = [best.base_offsets], [best.last_offsets], [best.identities]
    for copy in copies:
        end = _agreed_end(copy, best)
        ends[copy.node] = max(end, ends.get(copy.node, 0))
        missing = ~np.isin(copy.base_offsets, best.base_offsets) & (copy.last_offsets < end)
        if copy is not best and missing.any():
            bases.append(copy.base_offsets[missing])
            lasts.append(copy.last_offsets[missing])
            identities.append(copy.identities[missing])
    base_offsets, first = np.unique(np.concatenate(bases), return_index=True)
    last_offsets = np.concatenate(lasts)[first]
    if not base_offsets.size:
        return AgreedLog(base_offsets, base_offsets, 0, 0, [], ends)
    gaps = np.flatnonzero(base_offsets[1:] > np.maximum.accumulate(last_offsets)[:-1] + 1)
    reached = np.maximum.accumulate(last_offsets)
    return AgreedLog(
        base_offsets,
        np.concatenate(identities)[first],
        int(base_offsets[0]),
        int(reached[-1]) + 1,
        [(int(reached[at]) + 1, int(base_offsets[at + 1])) for at in gaps],
        ends,
    )


def _agreed_end(copy: MetadataCopy, best: MetadataCopy) -> int:
    """Where `copy` first holds another batch than `best` at one offset, else its end."""
    common, ours, theirs = np.intersect1d(copy.base_offsets, best.base_offsets, return_indices=True)
    differs = np.flatnonzero(copy.identities[ours] != best.identities[theirs])
    return int(common[differs[0]]) if differs.size else min(copy.end_offset, max(best.end_offset, copy.start_offset))
