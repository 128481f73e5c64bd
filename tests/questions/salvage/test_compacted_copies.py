"""Compacted partitions of which no copy is whole: what several make together, and what would bring back the dead and is refused."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kafka_forensics.cli.outputs.salvage import summary_lines
from kafka_forensics.cli.outputs.salvage_runbook import salvage_runbook
from kafka_forensics.questions.salvage import MANIFEST
from kafka_forensics.questions.salvage.manifest import MAY_BE_GONE, MAY_BE_STALE
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.group_records import commit_key, commit_value, put_offsets
from tests.support.group_records import log_of as offsets_log
from tests.support.salvaged import NAME, check_output, log_of, put_copy, salvaged_of
from tests.support.segments import changed, flipped

STAMP = 1_700_000_000_000
VALUE_AT = 70
"""Byte of a batch that lies in its records."""


def keyed(offset: int, *records: tuple[str, str | None], epoch: int = 0, gaps: int = 0) -> bytes:
    """A batch of these keys and values; `gaps` is how many records a cleaner took from its end. A value of None is a tombstone."""
    return write_batch(
        [RecordToWrite(key.encode(), None if value is None else value.encode() * 20) for key, value in records],
        base_offset=offset,
        base_timestamp=STAMP + offset,
        partition_leader_epoch=epoch,
        last_offset_delta=len(records) - 1 + gaps,
    )


def put(
    folder: Path,
    broker: int,
    batches: Sequence[bytes],
    rest: Sequence[bytes] = (),
    *,
    dirty: int | None = 20,
    end: int = 24,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
) -> Path:
    """A copy with a cleaned segment and an active one from offset 20 on."""
    segments = {0: b"".join(batches), **({20: b"".join(rest)} if rest else {})}
    log_dir = put_copy(folder, broker, segments, high_watermark=end, epochs=epochs)
    if dirty is not None:
        (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {dirty}\n")
    return log_dir


CLEANED = [keyed(0, ("a", "0")), keyed(3, ("b", "3")), keyed(4, ("c", "4")), keyed(9, ("d", "9")), keyed(15, ("e", "15"))]
ACTIVE = [keyed(20, ("f", "20")), keyed(21, ("g", "21")), keyed(22, ("h", "22")), keyed(23, ("i", "23"))]
WHOLE = b"".join([*CLEANED, *ACTIVE])


def with_(batches: Sequence[bytes], changes: Mapping[int, bytes]) -> list[bytes]:
    """The batches with some of them replaced, by their places."""
    return [changes.get(number, data) for number, data in enumerate(batches)]


def zeroed(data: bytes) -> bytes:
    return bytes(len(data))


def test_a_batch_damaged_in_each_copy_is_taken_from_another(tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        put(tmp_path / "in", broker, with_(CLEANED, {broker: flipped(CLEANED[broker], VALUE_AT)}), ACTIVE)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert not salvaged.refused
    (partition,) = salvaged.partitions
    assert (partition.base, partition.chosen_by, partition.gaps) == (1, "merged", [])
    assert [(taken.offset_start, taken.broker, taken.why) for taken in partition.ranges] == [
        (0, 1, "base"),
        (3, 2, "filled"),
        (4, 1, "base"),
        (20, 1, "base"),
    ]
    assert log_of(tmp_path / "out") == WHOLE
    check_output(tmp_path / "in", tmp_path / "out")


def test_the_preferred_broker_is_the_base(tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        put(tmp_path / "in", broker, with_(CLEANED, {broker: flipped(CLEANED[broker], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="3").partitions
    assert partition.base == 3
    assert log_of(tmp_path / "out") == WHOLE


def test_what_nothing_tells_is_filled_where_a_copy_that_is_good_around_it_is_alike(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, with_(CLEANED, {1: zeroed(CLEANED[1]), 2: zeroed(CLEANED[2])}), ACTIVE)
    put(tmp_path / "in", 2, with_(CLEANED, {4: zeroed(CLEANED[4])}), ACTIVE)
    put(tmp_path / "in", 3, with_(CLEANED, {0: zeroed(CLEANED[0])}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert partition.chosen_by == "merged"
    assert log_of(tmp_path / "out") == WHOLE
    check_output(tmp_path / "in", tmp_path / "out")


def test_no_copy_that_is_good_on_two_ranges_means_none_at_all(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, with_(CLEANED, {1: zeroed(CLEANED[1])}), ACTIVE)
    put(tmp_path / "in", 2, with_(CLEANED, {3: zeroed(CLEANED[3])}), ACTIVE)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.offsets, refused.brokers) == ("compacted", ((1, 4), (5, 15)), (2, 1))
    assert "no copy holds both" in refused.reason
    assert not (tmp_path / "out" / NAME).exists()


def test_a_torn_tail_and_a_flip_elsewhere(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, CLEANED, [*ACTIVE[:3], ACTIVE[3][:-9]])
    put(tmp_path / "in", 2, with_(CLEANED, {3: flipped(CLEANED[3], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert log_of(tmp_path / "out") == WHOLE
    assert partition.log_end_offset == 24
    check_output(tmp_path / "in", tmp_path / "out")


def test_an_end_that_is_gone_is_taken_from_a_copy_that_is_damaged_elsewhere(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, CLEANED, ACTIVE[:1])
    put(tmp_path / "in", 2, with_(CLEANED, {3: zeroed(CLEANED[3])}), ACTIVE)
    for broker in ("1", "2"):
        output = tmp_path / f"out-{broker}"
        (partition,) = salvaged_of(tmp_path / "in", output, prefer=broker).partitions
        assert partition.base == int(broker)
        assert log_of(output) == WHOLE
        check_output(tmp_path / "in", output)
    assert [taken.why for taken in partition.ranges] == ["base", "filled", "base", "base"]


def test_where_the_longer_copys_end_was_cleaned_a_shorter_one_may_not_fill(tmp_path: Path) -> None:
    """A tombstone of what the shorter copy holds may have come and gone behind its end."""
    cleaned = [*CLEANED, keyed(21, ("g", "21"))]
    put(tmp_path / "in", 1, with_(cleaned, {3: zeroed(CLEANED[3])}), dirty=22, end=22)
    put(tmp_path / "in", 2, CLEANED, end=16)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.offsets == ((5, 15), (16, 22))


def test_copies_cleaned_apart_are_mended_by_the_headers_of_the_damaged_batches(tmp_path: Path) -> None:
    more = [keyed(0, ("a", "0")), keyed(1, ("z", "old")), *CLEANED[1:4], keyed(12, ("z", "new")), CLEANED[4]]
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(CLEANED[1], VALUE_AT)}), ACTIVE)
    put(tmp_path / "in", 2, with_(more, {4: flipped(more[4], VALUE_AT), 5: zeroed(more[5])}), ACTIVE)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    (partition,) = salvaged.partitions
    assert partition.base == 1
    assert log_of(tmp_path / "out") == WHOLE
    assert [(taken.offset_start, taken.broker) for taken in partition.ranges] == [(0, 1), (3, 2), (4, 1), (20, 1)]
    check_output(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("position", [8, 9, 10, 11, 16])
def test_a_length_or_magic_that_lies_is_told_by_the_crc_and_the_next_batch(tmp_path: Path, position: int) -> None:
    more = [CLEANED[0], keyed(1, ("z", "old")), *CLEANED[1:4], keyed(12, ("z", "new")), CLEANED[4]]
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(CLEANED[1], position)}), ACTIVE)
    put(tmp_path / "in", 2, with_(more, {5: zeroed(more[5])}), ACTIVE)
    assert [partition.base for partition in salvaged_of(tmp_path / "in", tmp_path / "out").partitions] == [1]
    assert log_of(tmp_path / "out") == WHOLE


@pytest.mark.parametrize("position", [7, 15, 17])
def test_a_header_that_names_another_batch_proves_nothing(tmp_path: Path, position: int) -> None:
    """Offset and epoch are covered by no CRC, and the CRC itself may be what is flipped."""
    more = [CLEANED[0], keyed(1, ("z", "old")), *CLEANED[1:4], keyed(12, ("z", "new")), CLEANED[4]]
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(flipped(CLEANED[1], position), VALUE_AT)}), ACTIVE)
    put(tmp_path / "in", 2, with_(more, {5: zeroed(more[5])}), ACTIVE)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.kind == "compacted"


def test_copies_cleaned_apart_and_lost_framing_are_refused_with_the_offsets(tmp_path: Path) -> None:
    more = [CLEANED[0], keyed(1, ("z", "old")), *CLEANED[1:4], keyed(12, ("z", "new")), CLEANED[4]]
    put(tmp_path / "in", 1, with_(CLEANED, {1: zeroed(CLEANED[1])}), ACTIVE)
    put(tmp_path / "in", 2, with_(more, {6: zeroed(more[6])}), ACTIVE)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.kind == "compacted"
    assert refused.offsets == ((1, 4), (4, 13))
    assert refused.brokers == (2, 1)
    assert refused.hint is not None


def test_a_deleted_key_is_never_brought_back(tmp_path: Path) -> None:
    """Broker 1 holds b and lost its tombstone to damage; broker 2 has cleaned both away."""
    put_deleted(tmp_path / "in")
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.offsets, refused.brokers) == ("compacted", ((0, 4), (10, 15)), (1, 2))
    assert "--allow-gaps" in (refused.hint or "")
    assert "back from deletion" in (refused.hint or "")
    assert not (tmp_path / "out" / NAME).exists()


def put_deleted(folder: Path) -> None:
    """Broker 1 holds b and lost its tombstone to damage, of which no header is left; broker 2 has cleaned both, and lost a."""
    put(folder, 1, [*CLEANED[:4], zeroed(keyed(12, ("b", None))), CLEANED[4]], ACTIVE)
    put(folder, 2, [zeroed(CLEANED[0]), *CLEANED[2:]], ACTIVE)


def test_the_last_resort_is_one_copy_with_gaps_where_another_was_cleaned_otherwise(tmp_path: Path) -> None:
    """The one that loses fewest offsets: a of broker 1 does not come along, for b would."""
    put_deleted(tmp_path / "in")
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True)
    (partition,) = salvaged.partitions
    assert (partition.chosen_by, partition.base, partition.brokers) == ("last-resort", 2, [2])
    assert [(gap.start, gap.end, gap.damaged_on) for gap in partition.gaps] == [(0, 4, (2,))]
    assert [(left.broker, left.start, left.end) for left in partition.left_behind] == [(1, 0, 4)]
    assert log_of(tmp_path / "out") == b"".join([*CLEANED[2:], *ACTIVE])
    check_output(tmp_path / "in", tmp_path / "out")
    assert "back from deletion" in json.loads((tmp_path / "out" / MANIFEST).read_text())["partitions"][0]["warning"]


def test_the_last_resort_is_of_the_broker_that_is_preferred(tmp_path: Path) -> None:
    """Then b is back, and the gap that its tombstone lay in is named."""
    put_deleted(tmp_path / "in")
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True, prefer="1").partitions
    assert (partition.chosen_by, partition.brokers) == ("last-resort", [1])
    assert [(gap.start, gap.end, gap.damaged_on) for gap in partition.gaps] == [(10, 15, (1,))]
    assert log_of(tmp_path / "out") == WHOLE
    check_output(tmp_path / "in", tmp_path / "out")


def test_the_last_resort_names_the_head_that_it_leaves_out(tmp_path: Path) -> None:
    """DeleteRecords may have taken it from broker 2, or a crash; broker 1 has it."""
    put(
        tmp_path / "in",
        1,
        [CLEANED[0], *CLEANED[2:3], keyed(5, ("b", "5")), CLEANED[3], zeroed(keyed(12, ("b", None))), CLEANED[4]],
        ACTIVE,
    )
    log_dir = put(tmp_path / "in", 2, [zeroed(CLEANED[2]), *CLEANED[3:]], ACTIVE)
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True, prefer="2")
    (partition,) = salvaged.partitions
    assert (partition.chosen_by, partition.base, partition.log_start_offset) == ("last-resort", 2, 3)
    assert [(gap.start, gap.end) for gap in partition.gaps] == [(3, 9)]
    assert [(left.broker, left.start, left.end, left.committed_end) for left in partition.left_behind] == [
        (1, 0, 1, 1),
        (1, 4, 6, 6),
    ]
    told = json.loads((tmp_path / "out" / MANIFEST).read_text())["partitions"][0]
    assert [(left["broker"], left["offset_start"], left["offset_end"]) for left in told["left_behind"]] == [(1, 0, 1), (1, 4, 6)]
    warning = f"orders-0: {MAY_BE_STALE}; {MAY_BE_GONE}"
    assert told["warning"] == warning.partition(": ")[2]
    assert f"note: {warning}" in summary_lines(salvaged, quiet=False)
    page = "".join(salvage_runbook(salvaged))
    assert (
        "nothing tells which of them still hold. Keep the copies:\n\n- orders-0: 0 to 0 on broker 1, 4 to 5 on broker 1\n" in page
    )
    assert "These offsets were left out of compacted topics: readers pass over them.\n\n- orders-0: 3 to 8\n" in page
    assert "No copy has these offsets" not in page
    assert f"\n{warning}.\n" in page
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "other", allow_gaps=True).partitions
    assert (partition.base, partition.log_start_offset, [left.start for left in partition.left_behind]) == (1, 0, [])


def test_the_last_resort_leaves_nothing_behind_that_was_deleted(tmp_path: Path) -> None:
    """Broker 1 has a batch before its own log start: nobody reads it any more."""
    put(
        tmp_path / "in",
        1,
        [CLEANED[0], *CLEANED[2:3], keyed(5, ("b", "5")), CLEANED[3], zeroed(keyed(12, ("b", None))), CLEANED[4]],
        ACTIVE,
    )
    log_dir = put(tmp_path / "in", 2, [zeroed(CLEANED[2]), *CLEANED[3:]], ACTIVE)
    for folder, start in ((log_dir, 3), (log_dir.parent / "broker-1", 2)):
        (folder / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True, prefer="2").partitions
    assert [(left.broker, left.start, left.end) for left in partition.left_behind] == [(1, 4, 6)]


def test_the_last_resort_takes_what_is_borne_out_all_the_same(tmp_path: Path) -> None:
    """Broker 1 gives what nobody had cleaned yet, and not what it had not cleaned as broker 2 had."""
    old = keyed(1, ("z", "old"))
    put(tmp_path / "in", 1, [CLEANED[0], old, *CLEANED[1:4], zeroed(keyed(12, ("z", None))), CLEANED[4]], ACTIVE)
    put(tmp_path / "in", 2, [zeroed(CLEANED[0]), *CLEANED[1:]], [ACTIVE[0], zeroed(ACTIVE[1]), *ACTIVE[2:]])
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True, prefer="2").partitions
    assert (partition.chosen_by, partition.brokers) == ("last-resort", [2, 1])
    assert [(gap.start, gap.end) for gap in partition.gaps] == [(0, 3)]
    assert log_of(tmp_path / "out") == b"".join([*CLEANED[1:], *ACTIVE])
    check_output(tmp_path / "in", tmp_path / "out")


def test_the_last_resort_does_not_carry_on_that_more_was_cleaned(tmp_path: Path) -> None:
    """The cleaner goes on from where it had come in the copy that was taken; the other's high watermark promises what is a gap."""
    put(tmp_path / "in", 1, [*CLEANED[:4], zeroed(keyed(12, ("b", None))), CLEANED[4]], ACTIVE, dirty=16)
    put(tmp_path / "in", 2, [zeroed(CLEANED[0]), *CLEANED[2:]], ACTIVE, dirty=20, end=30)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True, prefer="1").partitions
    assert (partition.log_end_offset, partition.high_watermark) == (30, 24)
    assert [(gap.start, gap.end) for gap in partition.gaps] == [(10, 15), (24, 30)]
    assert (tmp_path / "out" / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 16\n"


def test_a_value_whose_successor_is_damaged_everywhere_is_told_as_a_gap(tmp_path: Path) -> None:
    newest = keyed(12, ("b", "newest"))
    for broker in (1, 2):
        put(tmp_path / "in", broker, [*CLEANED[:4], zeroed(newest), CLEANED[4]], ACTIVE, dirty=12)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.offsets, refused.brokers) == ("compacted", ((10, 15),), (1, 2))
    assert refused.hint is not None
    assert "--allow-gaps" in refused.hint
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "gaps", allow_gaps=True).partitions
    assert [(gap.start, gap.end, gap.damaged_on) for gap in partition.gaps] == [(10, 15, (1, 2))]
    assert log_of(tmp_path / "gaps") == WHOLE
    check_output(tmp_path / "in", tmp_path / "gaps")


@pytest.mark.parametrize("checkpoints", [(5, 16), (16, 5), (None, 16)])
def test_cleaning_goes_on_from_the_lowest_first_dirty_offset(tmp_path: Path, checkpoints: tuple[int | None, int | None]) -> None:
    """Gaps below it and above are no findings of the output's own scan."""
    for broker, dirty in enumerate(checkpoints, 1):
        put(tmp_path / "in", broker, with_(CLEANED, {broker: flipped(CLEANED[broker], VALUE_AT)}), ACTIVE, dirty=dirty)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert not partition.inherited
    lowest = min(dirty or 0 for dirty in checkpoints)
    assert (tmp_path / "out" / "cleaner-offset-checkpoint").read_text() == f"0\n1\norders 0 {lowest}\n"
    check_output(tmp_path / "in", tmp_path / "out")


def test_what_is_absent_where_a_copy_was_not_cleaned_is_a_hole(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, CLEANED, [*ACTIVE[:1], *ACTIVE[2:]])
    put(tmp_path / "in", 2, with_(CLEANED, {3: flipped(CLEANED[3], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1").partitions
    assert partition.base == 1
    assert log_of(tmp_path / "out") == WHOLE


def test_a_gap_where_a_copy_was_not_cleaned_does_not_tell_that_damage_held_nothing(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(CLEANED[1], VALUE_AT)}), [ACTIVE[0], *ACTIVE[2:]])
    put(tmp_path / "in", 2, CLEANED, [ACTIVE[0], zeroed(ACTIVE[1]), *ACTIVE[2:]])
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="2").refused
    assert (refused.offsets, refused.brokers) == (((21, 22),), (1, 2))


def test_a_batch_in_the_value_of_a_damaged_one_is_not_taken(tmp_path: Path) -> None:
    planted = keyed(5, ("b", "planted")) + keyed(6, ("b", "cut short"))[:40]
    carrier = write_batch(
        [RecordToWrite(b"c", b"x" * 40 + planted + b"x" * 40)], base_offset=4, base_timestamp=STAMP, partition_leader_epoch=0
    )
    batches = with_(CLEANED, {2: carrier})
    put(tmp_path / "in", 1, with_(batches, {2: changed(carrier, 0, bytes(61))}), ACTIVE)
    put(tmp_path / "in", 2, with_(batches, {4: flipped(CLEANED[4], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1").partitions
    assert partition.base == 1
    assert log_of(tmp_path / "out") == b"".join([*batches, *ACTIVE])


def test_other_batches_at_the_same_offsets_are_two_histories(tmp_path: Path) -> None:
    forked = [*ACTIVE[:2], keyed(22, ("h", "other"), ("i", "other"), epoch=1)]
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(CLEANED[1], VALUE_AT)}), ACTIVE)
    put(tmp_path / "in", 2, with_(CLEANED, {2: flipped(CLEANED[2], VALUE_AT)}), forked, epochs=[(0, 0), (1, 22)])
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.kind == "compacted"


def test_a_lost_range_is_not_filled_with_what_another_leader_wrote(tmp_path: Path) -> None:
    """Broker 1 ends in records that no one took over from epoch 0; broker 2's are damaged, and the next are of epoch 5."""
    put(tmp_path / "in", 1, with_(CLEANED, {4: zeroed(CLEANED[4])}), ACTIVE[:3], end=22, epochs=[(0, 0)])
    later = [*ACTIVE[:2], zeroed(keyed(22, ("h", "other"), epoch=5)), keyed(23, ("i", "23"), epoch=5)]
    put(tmp_path / "in", 2, CLEANED, later, epochs=[(0, 0), (5, 22)])
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.offsets == ((22, 23),)
    assert "of the same history" in refused.reason


def test_damage_elsewhere_does_not_excuse_a_copy_that_lacks_what_no_cleaner_took(tmp_path: Path) -> None:
    """Broker 1 lacks two records below its cleaner's checkpoint: what it took no tombstone explains, nor damage behind them."""
    put(tmp_path / "in", 1, [flipped(CLEANED[0], VALUE_AT), *CLEANED[1:3]], ACTIVE)
    put(tmp_path / "in", 2, [CLEANED[0], flipped(CLEANED[1], VALUE_AT), *CLEANED[2:]], ACTIVE)
    for prefer in ("1", "2"):
        (refused,) = salvaged_of(tmp_path / "in", tmp_path / prefer, prefer=prefer).refused
        assert refused.kind == "compacted"
        assert "COMPACTED_VALUE_DIFFERS" in refused.reason


@pytest.mark.parametrize("lost", [False, True])
def test_bytes_at_the_end_that_may_be_more_records_are_told(tmp_path: Path, *, lost: bool) -> None:
    """A tail of zeros is what a crash leaves; of other bytes nobody knows how many records they were."""
    tail = bytes(range(1, 200)) if lost else bytes(200)
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(CLEANED[1], VALUE_AT)}), [*ACTIVE, tail])
    put(tmp_path / "in", 2, with_(CLEANED, {2: flipped(CLEANED[2], VALUE_AT)}), ACTIVE[:3], end=23)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    if lost:
        assert [refused.offsets for refused in salvaged.refused] == [((24, 25),)]
        salvaged = salvaged_of(tmp_path / "in", tmp_path / "out-with-gaps", allow_gaps=True)
    assert [partition.log_end_offset for partition in salvaged.partitions] == [24]


def test_other_batches_of_the_same_records_are_two_histories(tmp_path: Path) -> None:
    """No record tells; but a cleaner never joins batches."""
    joined = keyed(22, ("h", "22"), ("i", "23"))
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(CLEANED[1], VALUE_AT)}), ACTIVE)
    put(tmp_path / "in", 2, with_(CLEANED, {2: flipped(CLEANED[2], VALUE_AT)}), [*ACTIVE[:2], joined])
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.brokers) == ("compacted", (1, 2))


def test_a_batch_that_lacks_records_may_have_had_a_tombstone(tmp_path: Path) -> None:
    cleaned = [*CLEANED, keyed(16, ("g", "16"), gaps=5)]
    put(tmp_path / "in", 1, with_(cleaned, {3: zeroed(CLEANED[3])}), dirty=22, end=22)
    put(tmp_path / "in", 2, CLEANED, end=16)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.offsets == ((5, 15), (16, 22))


def test_offsets_that_fall_are_of_a_batch_that_lies(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, with_(CLEANED, {1: flipped(CLEANED[1], 7, bit=4)}), ACTIVE)
    put(tmp_path / "in", 2, with_(CLEANED, {3: flipped(CLEANED[3], VALUE_AT)}), ACTIVE)
    put(tmp_path / "in", 3, with_(CLEANED, {4: flipped(CLEANED[4], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1").partitions
    assert partition.base == 1
    assert log_of(tmp_path / "out") == WHOLE


def test_a_damaged_batch_before_an_empty_segment_is_missed(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, with_(CLEANED, {4: zeroed(CLEANED[4])}), [b""])
    put(tmp_path / "in", 2, with_(CLEANED, {0: flipped(CLEANED[0], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1").partitions
    assert partition.base == 1
    assert log_of(tmp_path / "out") == WHOLE


def test_an_index_tells_what_a_segment_that_is_cut_between_batches_had(tmp_path: Path) -> None:
    log_dir = put(tmp_path / "in", 1, CLEANED[:4], ACTIVE)
    entry = struct.pack(">ii", 15, sum(map(len, CLEANED[:4])))
    (log_dir / NAME / f"{0:020d}.index").write_bytes(entry)
    put(tmp_path / "in", 2, with_(CLEANED, {0: flipped(CLEANED[0], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1").partitions
    assert partition.base == 1
    assert log_of(tmp_path / "out") == WHOLE


@pytest.mark.parametrize("base_offset", [0, 9])
def test_a_segment_that_is_gone_while_its_index_is_there_or_from_the_head_is_missed(tmp_path: Path, base_offset: int) -> None:
    segments = {0: b"".join(CLEANED[:3]), 9: b"".join(CLEANED[3:]), 20: b"".join(ACTIVE)}
    for broker in (1, 2):
        log_dir = put_copy(tmp_path / "in", broker, segments, high_watermark=24, epochs=[(0, 0)])
        (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 20\n")
        logs = sorted((log_dir / NAME).glob("*.log"))
        if broker == 1:
            gone = log_dir / NAME / f"{base_offset:020d}.log"
            gone.unlink()
            if base_offset:
                gone.with_suffix(".index").touch()
        else:
            logs[2].write_bytes(flipped(logs[2].read_bytes(), VALUE_AT))
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert log_of(tmp_path / "out") == WHOLE
    assert partition.log_start_offset == 0
    check_output(tmp_path / "in", tmp_path / "out")


def test_a_whole_copy_with_a_gap_where_it_was_not_cleaned_gives_way(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, CLEANED, [*ACTIVE[:1], *ACTIVE[2:]])
    put(tmp_path / "in", 2, CLEANED, ACTIVE)
    assert not salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert log_of(tmp_path / "out") == WHOLE


def test_epochs_are_those_of_the_copy_that_goes_on(tmp_path: Path) -> None:
    later = [keyed(22, ("h", "22"), epoch=3), keyed(23, ("i", "23"), epoch=3)]
    put(tmp_path / "in", 1, CLEANED, ACTIVE[:2], epochs=[(0, 0)])
    put(tmp_path / "in", 2, with_(CLEANED, {1: zeroed(CLEANED[1])}), [*ACTIVE[:2], *later], epochs=[(0, 0), (3, 22)])
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1").partitions
    assert partition.base == 1
    assert (tmp_path / "out" / NAME / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 22\n"
    check_output(tmp_path / "in", tmp_path / "out")


def test_an_epoch_begins_no_later_than_its_first_batch(tmp_path: Path) -> None:
    """Broker 1, which gives the end, began anew from a leader that had cleaned the first batch: its epoch begins behind that."""
    put(tmp_path / "in", 1, with_(CLEANED, {3: flipped(CLEANED[3], VALUE_AT)})[1:], ACTIVE, epochs=[(0, 3)])
    old = [keyed(0, ("b", "old")), *with_(CLEANED, {2: flipped(CLEANED[2], VALUE_AT)})[1:]]
    put(tmp_path / "in", 2, old, ACTIVE[:2], end=22)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="2").partitions
    assert [(entry.leader_epoch, entry.start_offset) for entry in partition.leader_epochs] == [(0, 0)]
    assert (tmp_path / "out" / NAME / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    check_output(tmp_path / "in", tmp_path / "out")


def test_a_shorter_log_than_a_high_watermark_promises_is_refused(tmp_path: Path) -> None:
    for broker in (1, 2):
        put(tmp_path / "in", broker, with_(CLEANED, {broker: flipped(CLEANED[broker], VALUE_AT)}), ACTIVE, end=30)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.offsets == ((24, 30),)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "gaps", allow_gaps=True).partitions
    assert ([(gap.start, gap.end) for gap in partition.gaps], partition.log_end_offset) == ([(24, 30)], 30)


def test_a_segment_in_the_middle_that_is_cut_short_makes_no_whole_copy(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, [*CLEANED[:4], CLEANED[4][:-9]], ACTIVE)
    put(tmp_path / "in", 2, with_(CLEANED, {1: flipped(CLEANED[1], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert partition.chosen_by == "merged"
    assert log_of(tmp_path / "out") == WHOLE


def test_a_whole_copy_that_is_shorter_than_a_high_watermark_is_refused_too(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, CLEANED, ACTIVE, end=30)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.offsets == ((24, 30),)


def test_behind_a_torn_batch_in_the_middle_more_may_be_gone(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, [*CLEANED[:3], CLEANED[3][:-9]], ACTIVE)
    put(tmp_path / "in", 2, with_(CLEANED, {1: flipped(CLEANED[1], VALUE_AT)}), ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1").partitions
    assert partition.base == 1
    assert log_of(tmp_path / "out") == WHOLE


def test_internal_topics_are_merged_alike(tmp_path: Path) -> None:
    records = [(commit_key(partition=number), commit_value(number)) for number in range(6)]
    commits = [offsets_log(record, start=3 * number) for number, record in enumerate(records)]
    for broker in (1, 2):
        batches = with_(commits, {broker: flipped(commits[broker], VALUE_AT), broker + 3: flipped(commits[broker + 3], VALUE_AT)})
        put_offsets(tmp_path / "in" / f"broker-{broker}", b"".join(batches))
        (tmp_path / "in" / f"broker-{broker}" / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=c\n")
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert (partition.topic, partition.chosen_by) == ("__consumer_offsets", "merged")
    assert log_of(tmp_path / "out", "__consumer_offsets-0") == b"".join(commits)
    check_output(tmp_path / "in", tmp_path / "out")


def test_internal_topics_that_cannot_be_merged_are_refused_by_their_name(tmp_path: Path) -> None:
    commits = [offsets_log((commit_key(partition=number), commit_value(number)), start=3 * number) for number in range(6)]
    for broker in (1, 2):
        batches = with_(commits, {2: flipped(commits[2], VALUE_AT)})
        put_offsets(tmp_path / "in" / f"broker-{broker}", b"".join(batches))
        (tmp_path / "in" / f"broker-{broker}" / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=c\n")
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.offsets) == ("internal_topic", ((4, 9),))
