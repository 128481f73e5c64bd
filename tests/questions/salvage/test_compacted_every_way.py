"""A deleted key in two copies, cleaned so far or further, and damaged anywhere: in no way does a salvage bring it back.

The key `gone` has a value, then a tombstone, each in a batch of its own with others around. A cleaner takes the value first and the
tombstone later. A reader of what is salvaged must find of every key what was written last; with gaps a key may be wrong only where
its newest record lay in one.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path

from tests.oracles.decoder import batches
from tests.support.salvaged import ACTIVE, log_of, put_cleaned, salvaged_of, zeroed
from tests.support.segments import keyed

LOG = [
    keyed(0, ("a", "0")),
    keyed(3, ("gone", "3")),
    keyed(6, ("b", "6")),
    keyed(9, ("gone", None)),
    keyed(15, ("c", "15")),
]
VALUE, TOMBSTONE = 1, 3
STAGES = ((), (VALUE,), (VALUE, TOMBSTONE))
"""What a cleaner has taken."""
LATEST = {"a", "b", "c", "f", "g", "h", "i"}
NEWEST = {"a": 0, "b": 6, "gone": 9, "c": 15}
"""Offset of the last record of a key."""


def copies() -> Iterator[tuple[tuple[int, ...], int | None]]:
    """What a cleaner took from a copy, and which batch is overwritten with zeros."""
    for taken in STAGES:
        for damaged in (None, *(number for number in range(len(LOG)) if number not in taken)):
            yield taken, damaged


def put_copy_of(folder: Path, broker: int, taken: tuple[int, ...], damaged: int | None) -> None:
    left = [zeroed(data) if number == damaged else data for number, data in enumerate(LOG) if number not in taken]
    put_cleaned(folder, broker, left, ACTIVE)


def keys_in(log: bytes) -> set[str]:
    """Keys that a reader has in the end."""
    state: dict[str, bool] = {}
    for batch in batches(log):
        for record in batch.records:
            state[(record.key or b"").decode()] = record.value is not None
    return {key for key, is_there in state.items() if is_there}


def test_no_salvage_of_two_copies_brings_it_back(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for number, pair in enumerate(combinations_with_replacement(list(copies()), 2)):
        folder = tmp_path / str(number)
        for broker, (taken, damaged) in enumerate(pair, 1):
            put_copy_of(folder / "in", broker, taken, damaged)
        whole = [broker for broker, (_, damaged) in enumerate(pair, 1) if damaged is None]
        salvaged = salvaged_of(folder / "in", folder / "out")
        assert [partition.base in whole for partition in salvaged.partitions] == ([True] if whole else []), pair
        if whole:
            assert keys_in(log_of(folder / "out")) == LATEST, pair
        else:
            (partition,) = salvaged_of(folder / "in", folder / "gaps", allow_gaps=True).partitions
            (gap,) = partition.gaps
            assert gap.end is not None
            wrong = keys_in(log_of(folder / "gaps")) ^ LATEST
            assert all(gap.start <= NEWEST[key] < gap.end for key in wrong), pair
            outcomes["wrong" if wrong else "right"] += 1
        outcomes["whole" if whole else "refused"] += 1
    assert min(outcomes.values()) >= 10, outcomes
