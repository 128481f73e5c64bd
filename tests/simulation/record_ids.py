"""Lost and truncated records from record ids alone, without rules of replication and without the package.

A log is a sequence of entries, one for each offset from 0 on; an entry is (leader epoch, record id), because a record that was sent
twice has two different entries.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

Entry = tuple[int, int]
Log = Sequence[Entry]
Ranges = tuple[tuple[int, int], ...]


class Cut(NamedTuple):
    """The offset at which a follower's log diverges from the leader's, and the ranges `[start, end)` that the leader lacks or has
    differently."""

    truncation_offset: int
    lost: Ranges


def common_prefix(left: Log, right: Log) -> int:
    shared = 0
    for entry, other in zip(left, right, strict=False):
        if entry != other:
            break
        shared += 1
    return shared


def forks(logs: Mapping[int, Log]) -> dict[tuple[int, int], int]:
    """Pairs of brokers whose logs have different entries at an offset → the first such offset."""
    found = {}
    for left, right in combinations(sorted(logs), 2):
        offset = common_prefix(logs[left], logs[right])
        if offset < min(len(logs[left]), len(logs[right])):
            found[left, right] = offset
    return found


def agree_again(logs: Mapping[int, Log]) -> bool:
    """Whether two logs have the same entry somewhere after an offset at which they differ."""
    tails = ((logs[left][offset:], logs[right][offset:]) for (left, right), offset in forks(logs).items())
    return any(entry == other for left, right in tails for entry, other in zip(left, right, strict=False))


def cuts(logs: Mapping[int, Log], leader: int) -> dict[int, Cut]:
    """The smallest truncation of every other log that makes it a prefix of the leader's."""
    leader_log = logs[leader]
    return {
        broker: Cut(common_prefix(log, leader_log), differing(log, leader_log, from_end=True))
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


def ids_of(logs: Iterable[Log]) -> set[int]:
    return {record for log in logs for _, record in log}


def lost(acknowledged: Iterable[int], logs: Iterable[Log]) -> set[int]:
    return set(acknowledged) - ids_of(logs)
