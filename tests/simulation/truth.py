"""What became of records, from their ids alone: no rule of replication, and nothing of the package, is used here.

A log is a sequence of entries, one an offset from 0 on; an entry is (leader epoch, record id), so that a record that was sent twice
is told apart by the epochs in which it was taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

Entry = tuple[int, int]
Log = Sequence[Entry]
Ranges = tuple[tuple[int, int], ...]


class Cut(NamedTuple):
    """Where a follower's log stops being the leader's, and offsets `[start, end)` of what the leader lacks or has differently."""

    truncation_offset: int
    lost: Ranges


def common_prefix(left: Log, right: Log) -> int:
    shared = 0
    for ours, theirs in zip(left, right, strict=False):
        if ours != theirs:
            break
        shared += 1
    return shared


def forks(logs: Mapping[int, Log]) -> dict[tuple[int, int], int]:
    """Pairs whose logs hold different entries at an offset, and the first such offset; a shorter log does not differ."""
    found = {}
    for left, right in combinations(sorted(logs), 2):
        at = common_prefix(logs[left], logs[right])
        if at < min(len(logs[left]), len(logs[right])):
            found[left, right] = at
    return found


def agree_again(logs: Mapping[int, Log]) -> bool:
    """Whether two logs hold the same entry somewhere behind an offset at which they differ."""
    pairs = ((logs[left], logs[right], at) for (left, right), at in forks(logs).items())
    return any(ours == theirs for left, right, at in pairs for ours, theirs in zip(left[at:], right[at:], strict=False))


def cuts(logs: Mapping[int, Log], leader: int) -> dict[int, Cut]:
    """What becomes of every other log if it is made a prefix of the leader's by cutting as little as possible."""
    kept = logs[leader]
    return {
        broker: Cut(common_prefix(log, kept), differing(log, kept, from_end=True))
        for broker, log in logs.items()
        if broker != leader
    }


def differing(left: Log, right: Log, *, from_end: bool) -> Ranges:
    """Offsets at which the left log has another entry than the right; `from_end`: or the right has none."""
    end = len(left) if from_end else min(len(left), len(right))
    found: list[tuple[int, int]] = []
    for offset in range(end):
        if offset < len(right) and left[offset] == right[offset]:
            continue
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return tuple(found)


def at_offsets(log: Log, ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {log[offset][1] for start, end in ranges for offset in range(start, end)}


def left(logs: Iterable[Log]) -> set[int]:
    return {record for log in logs for _, record in log}


def lost(acknowledged: Iterable[int], logs: Iterable[Log]) -> set[int]:
    return set(acknowledged) - left(logs)
