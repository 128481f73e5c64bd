"""Kafka's load-time rules on small values; the same rules stand against a real broker in tests/broker."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.recovery import (
    ABORTED_TXN_ORDER,
    BATCH_INVALID,
    OFFSET_OVERFLOW,
    OFFSET_REGRESSION,
    PRODUCER_STATE,
    Cut,
    LogFacts,
    ReplayFault,
    SegmentFacts,
    SnapshotFacts,
    Stop,
    foretell,
    segment_file,
    swap_steps,
)


def segment(base: int, end: int, stop: Stop | None = None, **given: object) -> SegmentFacts:
    return replace(SegmentFacts(base, 1000, end, end, stop), **given)  # type: ignore[arg-type]


THREE = (segment(0, 10), segment(10, 20), segment(20, 30))


def log(*segments: SegmentFacts, **given: object) -> LogFacts:
    names = [
        segment_file(segment_facts.base_offset, suffix) for segment_facts in segments for suffix in ("log", "index", "timeindex")
    ]
    facts = LogFacts(segments, segments[-1].end_offset if segments else 0, clean_shutdown=False, files=tuple(sorted(names)))
    return replace(facts, **given)  # type: ignore[arg-type]


def checks(facts: LogFacts) -> list[int]:
    return [step.check for step in foretell(facts).steps]


def test_an_unclean_start_walks_from_the_segment_of_the_recovery_point() -> None:
    for recovery_point, walked in ((None, 3), (0, 3), (9, 3), (10, 2), (19, 2), (20, 1), (30, 1), (99, 1)):
        assert checks(log(*THREE, recovery_point=recovery_point)) == [17] * walked
    assert checks(log(*THREE, clean_shutdown=True, snapshots=(SnapshotFacts(20),))) == []


def test_a_cut_takes_every_segment_behind_it_and_none_below_the_recovery_point() -> None:
    stop = Stop(400, 13, BATCH_INVALID)
    facts = log(THREE[0], segment(10, 20, stop), THREE[2], recovery_point=10, high_watermark=25)
    forecast = foretell(facts)
    assert forecast.cuts == (Cut(10, 400, BATCH_INVALID, 13, 30, (20,)),)
    assert (forecast.log_end_offset, forecast.high_watermark, forecast.recovery_point, forecast.segments) == (13, 13, 10, (0, 10))
    assert foretell(replace(facts, recovery_point=20)).cuts == ()
    assert foretell(replace(facts, clean_shutdown=True)).cuts == ()


@pytest.mark.parametrize(
    ("clean", "base", "check", "is_refused"),
    [
        (True, 19, PRODUCER_STATE, False),
        (True, 20, PRODUCER_STATE, True),
        (True, 29, PRODUCER_STATE, True),
        (True, 20, ABORTED_TXN_ORDER, False),
        (False, 9, PRODUCER_STATE, False),
        (False, 10, PRODUCER_STATE, True),
        (False, 10, ABORTED_TXN_ORDER, False),
    ],
)
def test_producers_are_replayed_from_the_newest_snapshot_on(clean: bool, base: int, check: int, is_refused: bool) -> None:
    """After a clean stop from 20 to the end; after a crash from 10 to the segment of the recovery point, which is walked."""
    fault = ReplayFault(base // 10 * 10, 100, base, check)
    snapshots = tuple(SnapshotFacts(offset) for offset in (10, 20))[: 2 if clean else 1]
    facts = log(*THREE, clean_shutdown=clean, snapshots=snapshots, recovery_point=25, faults=(fault,))
    assert foretell(facts).refused is is_refused


def test_offsets_that_go_back_empty_their_segment() -> None:
    forecast = foretell(log(THREE[0], segment(10, 20, Stop(400, 10, OFFSET_REGRESSION)), THREE[2]))
    assert forecast.cuts == (Cut(10, 0, OFFSET_REGRESSION, 10, 30, (20,)),)
    assert forecast.log_end_offset == 10


def test_a_missing_index_recovers_its_segment_alone() -> None:
    damaged = segment(10, 20, Stop(400, 13, BATCH_INVALID), has_index=False)
    forecast = foretell(log(THREE[0], damaged, THREE[2], clean_shutdown=True))
    assert forecast.cuts == (Cut(10, 400, BATCH_INVALID, 13, 20),)
    assert forecast.log_end_offset == 30
    assert forecast.segments == (0, 10, 20)


@pytest.mark.parametrize(
    "bad",
    [
        segment(10, 20, transaction_index="version"),
        segment(10, 20, Stop(400, 10, OFFSET_REGRESSION), has_index=False),
        segment(10, 20, Stop(400, 10, OFFSET_OVERFLOW)),
        segment(10, 20, size_in_bytes=1 << 31),
    ],
)
def test_what_keeps_a_broker_down(bad: SegmentFacts) -> None:
    forecast = foretell(log(THREE[0], bad, THREE[2]))
    assert (forecast.refused, forecast.log_end_offset, forecast.steps[-1].action) == (True, None, "refuse")


def test_a_log_without_a_number_in_its_name_keeps_a_broker_down() -> None:
    facts = log(*THREE)
    assert foretell(replace(facts, files=(*facts.files, "notes.log"))).refused
    assert not foretell(replace(facts, files=(*facts.files, "notes.txt"))).refused


def test_the_active_segment_read_wrongly_after_a_clean_shutdown() -> None:
    facts = log(*THREE[:2], segment(20, 30, next_offset=20), clean_shutdown=True)
    forecast = foretell(facts)
    assert forecast.log_end_offset == forecast.recovery_point == 20
    assert forecast.cuts == (Cut(20, None, 39, 20, 30),)
    assert foretell(replace(facts, clean_shutdown=False)).log_end_offset == 30
    assert foretell(log(*THREE[:2], segment(20, 30, next_offset=None), clean_shutdown=True)).refused


def test_a_segment_whose_last_offset_overflows_is_split_and_not_foretold() -> None:
    end = 20 + (1 << 32)
    forecast = foretell(log(*THREE[:2], segment(20, end, Stop(900, 25, OFFSET_OVERFLOW))))
    assert (forecast.refused, forecast.log_end_offset, forecast.steps[-1].action) == (False, None, "split")


def test_log_start_recovery_point_and_high_watermark_are_held_in_bounds() -> None:
    forecast = foretell(log(*THREE, recovery_point=99, log_start=12, high_watermark=5))
    assert (forecast.log_start_offset, forecast.recovery_point, forecast.high_watermark) == (12, 30, 12)
    assert foretell(log(*THREE[1:], log_start=3)).log_start_offset == 10
    emptied = foretell(log(*THREE, log_start=31, high_watermark=28))
    assert (emptied.log_start_offset, emptied.log_end_offset, emptied.high_watermark, emptied.segments) == (31, 31, 31, (31,))
    nothing = foretell(log(log_start=7, end_offset=7))
    assert (nothing.log_start_offset, nothing.log_end_offset) == (7, 7)


def test_checkpoints_that_cannot_be_read() -> None:
    facts = log(*THREE, recovery_point=20, log_start=12, high_watermark=25)
    forgotten = foretell(replace(facts, unreadable=("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint")))
    assert [step.check for step in forgotten.steps] == [4, 17, 17, 17]
    assert foretell(replace(facts, unreadable=("log-start-offset-checkpoint",))).log_start_offset == 0
    for name in ("replication-offset-checkpoint", "leader-epoch-checkpoint"):
        forecast = foretell(replace(facts, unreadable=(name,)))
        assert (forecast.refused, [step.file for step in forecast.steps]) == (True, [name])


def test_epochs_at_the_end_are_forgotten() -> None:
    epochs = (EpochEntry(0, 0), EpochEntry(1, 15), EpochEntry(2, 30))
    forgotten = [step for step in foretell(log(*THREE, epochs=epochs, clean_shutdown=True)).steps if step.action == "forget"]
    assert [step.offset for step in forgotten] == [30]


def test_snapshots_kept_loaded_and_thrown_away() -> None:
    def deleted(*snapshots: SnapshotFacts, **given: object) -> list[str]:
        steps = foretell(log(*THREE, snapshots=snapshots, **given)).steps
        return [step.file for step in steps if step.check == 37]

    assert deleted(SnapshotFacts(10), SnapshotFacts(20), SnapshotFacts(30)) == []
    assert deleted(SnapshotFacts(10), SnapshotFacts(15), SnapshotFacts(20)) == [segment_file(15, "snapshot")]
    assert deleted(SnapshotFacts(20), SnapshotFacts(25), SnapshotFacts(30)) == [segment_file(25, "snapshot")]
    assert deleted(SnapshotFacts(20), SnapshotFacts(31)) == [segment_file(31, "snapshot")]
    bad = deleted(SnapshotFacts(10), SnapshotFacts(20, sound=False), SnapshotFacts(30, sound=False))
    assert bad == [segment_file(30, "snapshot"), segment_file(20, "snapshot")]
    assert deleted(SnapshotFacts(10), log_start=10) == [segment_file(10, "snapshot")]
    assert 38 in checks(log(*THREE, clean_shutdown=True))


def test_swaps_win_over_everything_in_their_range() -> None:
    facts = log(*THREE)
    names = (*facts.files, segment_file(10, "snapshot"), segment_file(10, "log.swap"), segment_file(10, "index.swap"))
    swapped = replace(facts, files=names, swaps=(segment(10, 25),))
    steps, left = swap_steps(swapped)
    assert [step.file for step in steps if step.action == "delete"] == sorted(
        segment_file(base, suffix)
        for base in (10, 20)
        for suffix in ("index", "log", "snapshot", "timeindex")
        if (base, suffix) != (20, "snapshot")
    )
    assert {step.file: step.to for step in steps if step.action == "rename"} == {
        segment_file(10, "log.swap"): segment_file(10),
        segment_file(10, "index.swap"): segment_file(10, "index"),
    }
    assert [(segment_facts.base_offset, segment_facts.end_offset) for segment_facts in left] == [(0, 10), (10, 25)]
    assert foretell(swapped).log_end_offset == 25


def test_swaps_behind_a_cleaned_file_are_thrown_away() -> None:
    facts = log(*THREE)
    names = (*facts.files, segment_file(10, "log.swap"), segment_file(0, "log.swap"), segment_file(10, "log.cleaned"))
    steps, left = swap_steps(replace(facts, files=names, swaps=(segment(0, 0), segment(10, 10))))
    done = [(step.action, step.file) for step in steps]
    assert ("delete", segment_file(10, "log.swap")) in done
    assert ("delete", segment_file(10, "log.cleaned")) in done
    assert ("rename", segment_file(0, "log.swap")) in done
    assert [segment_facts.base_offset for segment_facts in left] == [0, 10, 20]


STOPS = st.one_of(st.none(), st.tuples(st.integers(0, 9), st.sampled_from([18, 19, 20, 22, 24])))


@pytest.mark.properties
@given(st.lists(STOPS, min_size=1, max_size=6), st.integers(0, 80), st.booleans(), st.integers(0, 80), st.data())
def test_a_start_never_invents_offsets_and_a_second_changes_nothing(
    stops: list[tuple[int, int] | None], recovery_point: int, clean: bool, log_start: int, data: st.DataObject
) -> None:
    segments = []
    for number, stop in enumerate(stops):
        base = 10 * number
        where = None if stop is None else Stop(100 * stop[0], base + stop[0], stop[1])
        segments.append(segment(base, base + 10, where, has_index=data.draw(st.booleans())))
    facts = log(*segments, recovery_point=recovery_point, log_start=log_start, clean_shutdown=clean)
    forecast = foretell(facts)
    if forecast.refused:
        return
    assert forecast.log_end_offset is not None
    assert forecast.log_start_offset is not None
    assert forecast.log_start_offset <= forecast.log_end_offset <= max(facts.end_offset, log_start)
    for cut in forecast.cuts:
        assert cut.start_offset <= cut.end_offset
    kept = [
        replace(segment_facts, stop=None, has_index=True)
        for segment_facts in segments
        if segment_facts.base_offset in forecast.segments
    ]
    if kept and not any(cut.position is not None for cut in forecast.cuts):
        again = foretell(replace(facts, segments=tuple(kept), end_offset=forecast.log_end_offset))
        assert (again.log_end_offset, again.cuts) == (forecast.log_end_offset, ())
