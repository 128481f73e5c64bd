"""Cases of the gallery for compacted topics: replicas cleaned at different times, and different latest values."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.gallery.case import Case, segment
from tests.support.brokers import BROKERS, Brokers, put_brokers, put_compacted, put_differently_cleaned, write_checkpoint
from tests.support.logs import CLEANED, FUTURE_MS, History, Log, fill_segment, history, keyed_history
from tests.support.segments import BASE_TIMESTAMP, segment_file

SECOND: Final = segment(0)


def cleaned(story: Callable[[], History], dropped: dict[int, set[int]], cleaned: dict[int, int] | None = None) -> partial[Case]:
    return partial(Case, make=lambda root: put_differently_cleaned(root, story(), dropped, cleaned), damaged=SECOND)


def other_horizons(root: Path) -> Brokers:
    logs = {broker: keyed_history().left({0}, roll=CLEANED, horizon=1_700_000_000_000 + broker) for broker in (1, 2, 3)}
    return put_compacted(root, logs, dict.fromkeys(logs, CLEANED))


def before_its_marker(root: Path) -> Brokers:
    story = History().put(("a", "0")).transaction(1000, ("a", "1"), commit=True).fill(8)
    return put_compacted(root, {1: story.left(), 2: story.left(end=2)}, {}, 2)


def in_transaction(*, commit: bool) -> History:
    return fill_segment(History().put(("a", "0")).transaction(1000, ("a" if commit else "b", "1"), commit=commit))


def aborted() -> History:
    return fill_segment(History().put(("a", "1")).transaction(2000, ("a", "2"), ("b", "1"), commit=False))


def keyless() -> History:
    return fill_segment(History().put((None, "1")).put(("a", "1")))


def beyond_reach(root: Path, value: str | None) -> Brokers:
    """Broker 2 ends before a record of key d at offset 4 (a tombstone or another value) that made the others' cleaners drop an
    older one."""
    story = History().put(("a", "0")).put(("d", "1")).fill(2).put(("d", value)).fill(11)
    whole = story.left({1, 4} if value is None else {1}, roll=CLEANED)
    return put_compacted(root, {1: whole, 2: story.left(end=4), 3: whole}, {1: CLEANED, 3: CLEANED})


def hidden_by_damage(root: Path) -> Brokers:
    brokers = put_differently_cleaned(root, keyed_history(), {2: {1}})
    log = brokers.file(2, 0)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    return brokers


def cut_between_batches(root: Path) -> Brokers:
    """The last batches before broker 2's active segment are missing, without a torn batch."""
    brokers = put_differently_cleaned(root, keyed_history(), {}, dict.fromkeys(BROKERS, 5))
    path = brokers.file(2, 0)
    path.write_bytes(path.read_bytes()[: brokers.log.at(10).position])
    return brokers


def offset_rotted_upwards(root: Path) -> Brokers:
    brokers = put_differently_cleaned(root, keyed_history(), {broker: {6, 7, 8} for broker in BROKERS})
    brokers.flip(2, brokers.log.at(5), 7, bit=1)
    return brokers


HOUR_MS: Final = 60 * 60 * 1000
ROLLED: Final = 20
"""Number of closed segments, of two batches each, in the cases of cleaners."""


def rolled_log() -> Log:
    return history(*[("p", 0), ("p", 0), ("|", 0)] * ROLLED, ("p", 0))


def put_cleaners(
    root: Path,
    behind: Mapping[str, int] | None = None,
    *,
    hours: Callable[[int], float] = lambda segment: 2.0 * segment,
    partitions: Sequence[str] = ("t-0", "t-1"),
) -> Brokers:
    """Write three brokers that rolled a segment of each partition every two hours and cleaned all closed segments.

    On broker 2 the partitions in `behind` (default: all, up to segment 1) are cleaned only up to that segment (-1: no entry), and
    `hours` gives the hour in which each segment's file was last written.
    """
    log = rolled_log()
    behind = dict.fromkeys(partitions, 1) if behind is None else behind
    brokers = put_brokers(root, dict.fromkeys(partitions, log))
    for broker in BROKERS:
        log_dir = brokers.log_dir(broker)
        for partition in partitions:
            cleaned = behind.get(partition, ROLLED) if broker == 2 else ROLLED
            if cleaned >= 0:
                write_checkpoint(log_dir, "cleaner", log.segments[cleaned], partition)
            for number, base_offset in enumerate(log.segments):
                hour = hours(number) if broker == 2 else 2.0 * number
                seconds = (BASE_TIMESTAMP + hour * HOUR_MS) / 1000
                os.utime(log_dir / partition / segment_file(base_offset), (seconds, seconds))
    return brokers


RECORDS: Final = ("records", "keys_cleaned_differently")
COMPACTED: Final = (
    cleaned(keyed_history, {1: {0}, 2: {0}, 3: {0}})("F39", "equal replicas of a compacted topic", control=True),
    Case("F39", "equal records in batches that each cleaner wrote again", other_horizons, SECOND, control=True),
    cleaned(keyed_history, {2: {0, 3}})("F39", "superseded records removed on b2 alone", shown=RECORDS, control=True),
    cleaned(keyed_history, {2: {0, 3, 4}, 3: {0, 3}})(
        "F39", "a tombstone past its horizon removed on b2 alone", shown=("tombstones_expired",), control=True
    ),
    cleaned(partial(keyed_history, FUTURE_MS), {2: {0, 3, 4}})(
        "F39", "the same before its horizon", shown=("tombstones_early",), control=True
    ),
    cleaned(lambda: fill_segment(History().transaction(1000, ("a", "1"), commit=True).put(("a", "2"))), {2: {0, 1}, 3: {0}})(
        "F39", "a marker removed after its records on b2 alone", shown=("markers",), control=True
    ),
    cleaned(aborted, {2: {1, 2}})("F39", "aborted records removed on b2 alone", shown=("aborted",), control=True),
    cleaned(keyless, {2: {0}})("F39", "a record without key removed on b2 alone", shown=("keyless",), control=True),
    cleaned(lambda: fill_segment(History().put(("a", "1")).put(("b", "1")).put(("a", "1"))), {2: {2}})(
        "F39", "b2 has only the first of two equal values of a key", shown=("same_value",), control=True
    ),
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
    cleaned(keyed_history, {2: {2}})(
        "F39", "the latest value of a key is missing on b2, which has an older one", shown=("keys", "stale")
    ),
    cleaned(keyed_history, {2: {1}})("F39", "a key is missing on b2 with nothing that deleted it", shown=("keys", "vanished")),
    cleaned(keyed_history, {2: {1}}, {3: 1})("F39", "the same where b2 was never cleaned", shown=("keys", "missing")),
    cleaned(keyed_history, {2: {1}})("F39", "the same cleaned, with `--live`", live=True),
    cleaned(keyed_history, {1: {0, 3, 4}, 2: {0, 4}, 3: {0, 3, 4}})(
        "F39", "a key is back on b2 after the others removed its tombstone", shown=("keys", "vanished")
    ),
    cleaned(keyed_history, {2: {4}})("F39", "b2 has a value that a tombstone deletes on the others", shown=("keys", "tombstones")),
    cleaned(partial(in_transaction, commit=True), {2: {2}})(
        "F39", "b2 never got the marker of a committed transaction", shown=("keys", "markers")
    ),
    cleaned(partial(in_transaction, commit=False), {1: {1, 2}, 2: {2}, 3: {1, 2}})(
        "F39", "aborted records stay on b2 when their marker is removed", shown=("keys", "markers")
    ),
    Case("F39", "b2's first segment cut between two batches", cut_between_batches, SECOND, shown=("keys", "missing")),
    Case(
        "-",
        "b2 cleaned nothing for a day and a half, in which the others cleaned both partitions",
        put_cleaners,
        shown=("partitions", "dirty_bytes", "clean_bytes"),
    ),
    Case(
        "-",
        "the same entries, but b2 was down and wrote all since in the last hour",
        partial(put_cleaners, hours=lambda segment: 2.0 * segment if segment < 1 else 39 + segment / ROLLED),
        control=True,
    ),
    Case("-", "b2 lags in one of the two partitions", partial(put_cleaners, behind={"t-0": 1}), control=True),
)
