"""Kafka's rules for loading a log, on small values; tests/broker compares them with a real broker."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import asdict, replace

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication import recovery
from tests.support.kept_answers import write_answers


def segment(base: int, end: int, stop: recovery.RecoveryStop | None = None, **fields: object) -> recovery.SegmentFacts:
    return replace(recovery.SegmentFacts(base, 1000, end, end, stop), **fields)


THREE = (segment(0, 10), segment(10, 20), segment(20, 30))


def log(*segments: recovery.SegmentFacts, **fields: object) -> recovery.LogFacts:
    names = [
        recovery.segment_file(segment_facts.base_offset, suffix)
        for segment_facts in segments
        for suffix in ("log", "index", "timeindex")
    ]
    facts = recovery.LogFacts(
        segments, segments[-1].end_offset if segments else 0, clean_shutdown=False, files=tuple(sorted(names))
    )
    return replace(facts, **fields)


def cut_short(base: int, stop: recovery.RecoveryStop, **fields: object) -> tuple[recovery.SegmentFacts, ...]:
    """Three segments; recovery of the second ends at `stop`."""
    return (THREE[0], segment(base, base + 10, stop, **fields), THREE[2])


INVALID, BACK = recovery.RecoveryStop(400, 13, recovery.BATCH_INVALID), recovery.RecoveryStop(400, 10, recovery.OFFSET_REGRESSION)
OVERFLOW = recovery.RecoveryStop(900, 25, recovery.OFFSET_OVERFLOW)
SHORT = log(*cut_short(10, INVALID), recovery_point=10, high_watermark=25)
AT_10, AT_20 = (recovery.segment_file(base, "snapshot") for base in (10, 20))
EPOCHS = (EpochEntry(0, 0), EpochEntry(1, 15), EpochEntry(2, 30))
BOUNDS = log(*THREE, recovery_point=20, log_start=12, high_watermark=25)
SNAPSHOTS: dict[str, tuple[recovery.SnapshotFacts, ...]] = {
    "of each segment": tuple(map(recovery.SnapshotFacts, (10, 20, 30))),
    "between": tuple(map(recovery.SnapshotFacts, (10, 15, 20))),
    "within the last": tuple(map(recovery.SnapshotFacts, (20, 25, 30))),
    "beyond the end": tuple(map(recovery.SnapshotFacts, (20, 31))),
    "unsound": (recovery.SnapshotFacts(10), recovery.SnapshotFacts(20, sound=False), recovery.SnapshotFacts(30, sound=False)),
}
FILES = log(*THREE).files
SWAPPED = (*FILES, AT_10, recovery.segment_file(10, "log.swap"), recovery.segment_file(10, "index.swap"))
CLEANED = (
    *FILES,
    recovery.segment_file(10, "log.swap"),
    recovery.segment_file(0, "log.swap"),
    recovery.segment_file(10, "log.cleaned"),
)
STARTS: dict[str, recovery.LogFacts] = {
    **{
        f"walked from the segment of the recovery point {point} on": log(*THREE, recovery_point=point)
        for point in (None, 0, 9, 10, 19, 20, 30, 99)
    },
    "not walked after a clean shutdown": log(*THREE, clean_shutdown=True, snapshots=(recovery.SnapshotFacts(20),)),
    "a cut takes every segment behind it": SHORT,
    "no cut below the recovery point": replace(SHORT, recovery_point=20),
    "no cut after a clean shutdown": replace(SHORT, clean_shutdown=True),
    **{
        f"replayed, clean {clean}: fault {check} at {base}": log(
            *THREE,
            clean_shutdown=clean,
            snapshots=tuple(map(recovery.SnapshotFacts, (10, 20)[: 2 if clean else 1])),
            recovery_point=25,
            faults=(recovery.ReplayFault(base // 10 * 10, 100, base, check),),
        )
        for clean, base, check in (
            *((True, base, recovery.PRODUCER_STATE) for base in (19, 20, 29)),
            *((False, base, recovery.PRODUCER_STATE) for base in (9, 10)),
            *((True, 20, recovery.ABORTED_TXN_ORDER), (False, 10, recovery.ABORTED_TXN_ORDER)),
        )
    },
    "offsets that go back empty their segment": log(*cut_short(10, BACK)),
    "a missing index recovers its segment alone": log(*cut_short(10, INVALID, has_index=False), clean_shutdown=True),
    "kept down by a transaction index": log(THREE[0], segment(10, 20, transaction_index="version"), THREE[2]),
    "kept down by offsets that go back without an index": log(*cut_short(10, BACK, has_index=False)),
    "kept down by an overflow at the first offset": log(*cut_short(10, recovery.RecoveryStop(400, 10, recovery.OFFSET_OVERFLOW))),
    "kept down by a size": log(THREE[0], segment(10, 20, size_in_bytes=1 << 31), THREE[2]),
    "kept down by a log without a number in its name": log(*THREE, files=(*FILES, "notes.log")),
    "a text without a number in its name": log(*THREE, files=(*FILES, "notes.txt")),
    "the active segment read wrongly after a clean shutdown": log(*THREE[:2], segment(20, 30, next_offset=20), clean_shutdown=True),
    "the same after a crash": log(*THREE[:2], segment(20, 30, next_offset=20)),
    "the active segment has no next offset": log(*THREE[:2], segment(20, 30, next_offset=None), clean_shutdown=True),
    "an overflow is split": log(*THREE[:2], segment(20, 20 + (1 << 32), OVERFLOW)),
    "bounds: a recovery point beyond, a watermark below": log(*THREE, recovery_point=99, log_start=12, high_watermark=5),
    "bounds: a log start below the first segment": log(*THREE[1:], log_start=3),
    "bounds: a log start beyond the end": log(*THREE, log_start=31, high_watermark=28),
    "bounds: no segments": log(log_start=7, end_offset=7),
    **{
        f"unreadable ({damage}): {name}": replace(BOUNDS, unreadable=((name, damage),))
        for damage, names in (
            ("version", ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "leader-epoch-checkpoint")),
            ("offset", ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")),
            ("negative", ("log-start-offset-checkpoint",)),
        )
        for name in names
    },
    "epochs at the end are forgotten": log(*THREE, epochs=EPOCHS, clean_shutdown=True),
    **{f"snapshots {words}": log(*THREE, snapshots=snapshots) for words, snapshots in SNAPSHOTS.items()},
    "snapshots at the log start": log(*THREE, snapshots=(recovery.SnapshotFacts(10),), log_start=10),
    "no snapshots": log(*THREE, clean_shutdown=True),
    "a swap wins over everything in its range": log(*THREE, files=SWAPPED, swaps=(segment(10, 25),)),
    "swaps behind a cleaned file": log(*THREE, files=CLEANED, swaps=(segment(0, 0), segment(10, 10))),
}
EXPECTED_PATH = Path(__file__).with_name("starts.json")
EXPECTED: dict[str, Any] = json.loads(EXPECTED_PATH.read_text()) if EXPECTED_PATH.exists() else {}


def document_of(name: str) -> Any:
    """The whole forecast of a start, and the steps of swap files and the segments that remain after them."""
    done, left = recovery.swap_steps(STARTS[name])
    swaps = (
        [[(step.action, step.file, step.to) for step in done], [segment.base_offset for segment in left]]
        if STARTS[name].swaps
        else []
    )
    return json.loads(json.dumps([recovery.load_forecast(STARTS[name]), swaps], default=asdict))


@pytest.mark.parametrize("name", STARTS)
def test_the_forecast_of_a_start_is_unchanged(name: str) -> None:
    """After a change of a rule, run `python -m tests.replication.test_recovery_rules` and review the difference."""
    assert document_of(name) == EXPECTED[name]


STOPS = st.one_of(st.none(), st.tuples(st.integers(0, 9), st.sampled_from([18, 19, 20, 22, 24])))


@given(st.lists(STOPS, min_size=1, max_size=6), st.integers(0, 80), st.booleans(), st.integers(0, 80), st.data())
def test_a_start_adds_no_offsets_and_a_second_start_changes_nothing(
    stops: list[tuple[int, int] | None], recovery_point: int, clean: bool, log_start: int, data: st.DataObject
) -> None:
    segments = []
    for number, stop in enumerate(stops):
        base = 10 * number
        recovery_stop = None if stop is None else recovery.RecoveryStop(100 * stop[0], base + stop[0], stop[1])
        segments.append(segment(base, base + 10, recovery_stop, has_index=data.draw(st.booleans())))
    facts = log(*segments, recovery_point=recovery_point, log_start=log_start, clean_shutdown=clean)
    forecast = recovery.load_forecast(facts)
    if forecast.refused:
        return
    assert forecast.log_end_offset is not None
    assert forecast.log_start_offset is not None
    assert forecast.log_start_offset <= forecast.log_end_offset <= max(facts.end_offset, log_start)
    for cut in forecast.cuts:
        assert cut.start_offset <= cut.end_offset
    remaining = [
        replace(segment_facts, stop=None, has_index=True)
        for segment_facts in segments
        if segment_facts.base_offset in forecast.segments
    ]
    if remaining and not any(cut.position is not None for cut in forecast.cuts):
        again = recovery.load_forecast(replace(facts, segments=tuple(remaining), end_offset=forecast.log_end_offset))
        assert (again.log_end_offset, again.cuts) == (forecast.log_end_offset, ())


if __name__ == "__main__":
    write_answers(EXPECTED_PATH, {name: document_of(name) for name in STARTS}, depth=4)
