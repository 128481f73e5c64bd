"""The gallery's cases of compacted topics: replicas that cleaned at different times, and latest values that differ."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.gallery.case import Case, segment
from tests.support.compacted import (
    CLEANED,
    FUTURE_MS,
    History,
    beyond_reach,
    compacted,
    cut_between_batches,
    filled,
    hidden_by_damage,
    history,
    offset_rotted_upwards,
    three,
)
from tests.support.faults import Brokers

SECOND: Final = segment(0)


def cleaned(story: Callable[[], History], dropped: dict[int, set[int]], cleaned: dict[int, int] | None = None) -> partial[Case]:
    return partial(Case, make=lambda root: three(root, story(), dropped, cleaned), damaged=SECOND)


def other_horizons(root: Path) -> Brokers:
    logs = {broker: history().left({0}, roll=CLEANED, horizon=1_700_000_000_000 + broker) for broker in (1, 2, 3)}
    return compacted(root, logs, dict.fromkeys(logs, CLEANED))


def before_its_marker(root: Path) -> Brokers:
    story = History().put(("a", "0")).transaction(1000, ("a", "1"), commit=True).fill(8)
    return compacted(root, {1: story.left(), 2: story.left(end=2)}, {}, 2)


def in_transaction(*, commit: bool) -> History:
    return filled(History().put(("a", "0")).transaction(1000, ("a" if commit else "b", "1"), commit=commit))


def marker_first() -> History:
    return filled(History().transaction(1000, ("a", "1"), commit=True).put(("a", "2")))


def aborted() -> History:
    return filled(History().put(("a", "1")).transaction(2000, ("a", "2"), ("b", "1"), commit=False))


def keyless() -> History:
    return filled(History().put((None, "1")).put(("a", "1")))


def repeated() -> History:
    return filled(History().put(("a", "1")).put(("b", "1")).put(("a", "1")))


def in_future() -> History:
    return history(FUTURE_MS)


RECORDS: Final = ("records", "keys_cleaned_differently")
COMPACTED: Final = (
    cleaned(history, {1: {0}, 2: {0}, 3: {0}})("F39", "equal replicas of a compacted topic", control=True),
    Case("F39", "equal records in batches that each cleaner wrote anew", other_horizons, SECOND, control=True),
    cleaned(history, {2: {0, 3}})("F39", "superseded records removed on b2 alone", shown=RECORDS, control=True),
    cleaned(history, {2: {0, 3, 4}, 3: {0, 3}})(
        "F39", "a tombstone past its horizon removed on b2 alone", shown=("tombstones_expired",), control=True
    ),
    cleaned(in_future, {2: {0, 3, 4}})("F39", "the same before its horizon", shown=("tombstones_early",), control=True),
    cleaned(marker_first, {2: {0, 1}, 3: {0}})(
        "F39", "a marker removed after its records on b2 alone", shown=("markers",), control=True
    ),
    cleaned(aborted, {2: {1, 2}})("F39", "aborted records removed on b2 alone", shown=("aborted",), control=True),
    cleaned(keyless, {2: {0}})("F39", "a record without key removed on b2 alone", shown=("keyless",), control=True),
    cleaned(repeated, {2: {2}})("F39", "b2 has only the first of two equal values of a key", shown=("same_value",), control=True),
    Case("F39", "undecided in b2's log, which ends before the marker", before_its_marker, SECOND, control=True),
    Case(
        "F39",
        "b2 ends before the tombstone that deleted a key on the others",
        partial(beyond_reach, value=None),
        SECOND,
        shown=("out_of_reach",),
        control=True,
    ),
    Case(
        "F39",
        "b2 ends before the value that superseded another on the others",
        partial(beyond_reach, value="2"),
        SECOND,
        shown=("superseded",),
        control=True,
    ),
    Case("F39", "b2 lacks a key, and its last batch is damaged", hidden_by_damage, SECOND, shown=("unreadable",)),
    Case("F39", "F03 upwards on b2 where the cleaner left a gap on all", offset_rotted_upwards, SECOND, shown=("same_value",)),
    cleaned(history, {2: {2}})("F39", "the latest value of a key is gone on b2, which has an older one", shown=("keys", "stale")),
    cleaned(history, {2: {1}})("F39", "a key is gone on b2 with nothing that deleted it", shown=("keys", "vanished")),
    cleaned(history, {2: {1}}, {3: 1})("F39", "the same where b2 was never cleaned", shown=("keys", "missing")),
    cleaned(history, {2: {1}})("F39", "the same cleaned, with `--live`", live=True),
    cleaned(history, {1: {0, 3, 4}, 2: {0, 4}, 3: {0, 3, 4}})(
        "F39", "a key is back on b2 after the others removed its tombstone", shown=("keys", "vanished")
    ),
    cleaned(history, {2: {4}})("F39", "b2 has a value that a tombstone deletes on the others", shown=("keys", "tombstones")),
    cleaned(partial(in_transaction, commit=True), {2: {2}})(
        "F39", "b2 never got the marker of a committed transaction", shown=("keys", "markers")
    ),
    cleaned(partial(in_transaction, commit=False), {1: {1, 2}, 2: {2}, 3: {1, 2}})(
        "F39", "aborted records stay on b2 when their marker is removed", shown=("keys", "markers")
    ),
    Case("F39", "b2's first segment cut between two batches", cut_between_batches, SECOND, shown=("keys", "missing")),
)
