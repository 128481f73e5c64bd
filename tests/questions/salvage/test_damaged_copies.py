"""Compacted partitions without a whole copy: refused with the reason, or, if gaps are allowed, one copy and its gaps."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kafka_forensics.cli.outputs.salvage import summary_lines
from kafka_forensics.questions.salvage import MANIFEST, SalvagedPartition, document
from kafka_forensics.questions.salvage.whole_copies import MAY_BE_STALE
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.questions.salvage.salvaged import NAME, check_output, log_of, of_first, refused, salvaged_of, taken
from tests.support.brokers import put_consumer_offsets, put_copies, put_meta_properties, put_replica, put_segment, write_checkpoint
from tests.support.groups import commit_key, commit_value, coordinator_batches as offsets_log
from tests.support.json_schemas import json_schema
from tests.support.segments import BASE_TIMESTAMP, flip_bit, keyed_batch, replace_bytes, segment_file

VALUE_AT = 70
"""A byte in the records of a batch."""
CLEANED = [
    keyed_batch(0, ("a", "0")),
    keyed_batch(3, ("b", "3")),
    keyed_batch(4, ("c", "4")),
    keyed_batch(9, ("d", "9")),
    keyed_batch(15, ("e", "15")),
]
ACTIVE = [keyed_batch(20, ("f", "20")), keyed_batch(21, ("g", "21")), keyed_batch(22, ("h", "22")), keyed_batch(23, ("i", "23"))]
WHOLE = b"".join([*CLEANED, *ACTIVE])


def put_cleaned(
    folder: Path,
    broker: int,
    batches: Sequence[bytes],
    active: Sequence[bytes] = (),
    *,
    dirty: int | None = 20,
    end: int = 24,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
) -> Path:
    segments = {0: batches} | ({20: active} if active else {})
    return put_replica(folder, broker, segments, high_watermark=end, cleaned=dirty, epochs=epochs)


def with_changes(batches: Sequence[bytes], changes: Mapping[int, bytes]) -> list[bytes]:
    return [changes.get(number, data) for number, data in enumerate(batches)]


def zeroed(data: bytes) -> bytes:
    return bytes(len(data))


def gaps_of(partition: SalvagedPartition) -> list[tuple[int, int | None, tuple[int | str, ...]]]:
    return [(gap.start, gap.end, gap.damaged_on) for gap in partition.gaps]


def left_behind_of(partition: SalvagedPartition) -> list[tuple[int | str, int, int]]:
    return [(records.broker, records.start, records.end) for records in partition.left_behind]


@pytest.mark.parametrize("prefer", [None, "2"])
def test_copies_damaged_at_different_places_are_refused_or_one_is_taken_with_gaps(prefer: str | None, tmp_path: Path) -> None:
    for broker in (1, 2):
        put_cleaned(tmp_path / "in", broker, with_changes(CLEANED, {broker: flip_bit(CLEANED[broker], VALUE_AT)}), ACTIVE)
    refusal = refused(tmp_path)
    assert (refusal.kind, refusal.offsets, refusal.brokers) == ("compacted", ((1, 4),), (1, 2))
    assert refusal.reason == (
        "it is compacted, and no copy of it is whole: the copy of broker 1 is damaged at offsets 1 to 3; "
        "the copy of broker 2 is damaged at offsets 4 to 8"
    )
    assert "--allow-gaps: the copy of broker 1 is used" in str(refusal.hint)
    broker = int(prefer or 1)
    partition = taken(tmp_path, [*CLEANED[:broker], *CLEANED[broker + 1 :], *ACTIVE], allow_gaps=True, prefer=prefer)
    assert (partition.base_broker, partition.brokers) == (broker, [broker])
    assert partition.chosen_by == ("prefer_broker" if prefer else "plan")
    assert gaps_of(partition) == [(*CLEANED_SPANS[broker], (broker,))]
    assert left_behind_of(partition) == [(3 - broker, 3, 4) if broker == 1 else (1, 4, 5)]
    assert partition.warning == MAY_BE_STALE


CLEANED_SPANS = {1: (1, 4), 2: (4, 9), 4: (10, 20)}
"""Number of a batch → offsets between its neighbours."""


@pytest.mark.parametrize("number", CLEANED_SPANS)
@pytest.mark.parametrize("damage", [zeroed, lambda data: flip_bit(data, VALUE_AT), lambda data: flip_bit(data, 9)])
def test_any_damage_is_reported_as_a_gap(number: int, damage: object, tmp_path: Path) -> None:
    assert callable(damage)
    put_cleaned(tmp_path / "in", 1, with_changes(CLEANED, {number: damage(CLEANED[number])}), ACTIVE)
    assert refused(tmp_path).offsets == (CLEANED_SPANS[number],)
    partition = taken(tmp_path, [*CLEANED[:number], *CLEANED[number + 1 :], *ACTIVE], allow_gaps=True)
    assert gaps_of(partition) == [(*CLEANED_SPANS[number], (1,))]


def test_a_deleted_key_comes_back_only_with_a_gap(tmp_path: Path) -> None:
    """Broker 1 has b, and its tombstone is damaged; broker 2 has cleaned both, and lost a."""
    put_cleaned(tmp_path / "in", 1, [*CLEANED[:4], zeroed(keyed_batch(12, ("b", None))), CLEANED[4]], ACTIVE)
    put_cleaned(tmp_path / "in", 2, [zeroed(CLEANED[0]), *CLEANED[2:]], ACTIVE)
    assert "present although deleted" in str(refused(tmp_path).hint)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "one", allow_gaps=True, prefer="1")
    (partition,) = salvaged.partitions
    assert gaps_of(partition) == [(10, 15, (1,))]
    assert left_behind_of(partition) == []
    assert log_of(tmp_path / "one") == WHOLE
    assert f"note: {NAME}: {MAY_BE_STALE}" in summary_lines(salvaged, quiet=False)
    assert json.loads((tmp_path / "one" / MANIFEST).read_text())["partitions"][0]["warning"] == MAY_BE_STALE
    partition = taken(tmp_path, [*CLEANED[2:], *ACTIVE], "two", allow_gaps=True, prefer="2")
    assert gaps_of(partition) == [(0, 4, (2,))]
    assert left_behind_of(partition) == [(1, 0, 4)]


def test_records_of_other_copies_before_the_start_are_left_behind(tmp_path: Path) -> None:
    """DeleteRecords or a crash may have removed them from broker 2; broker 1's below its own log start do not count."""
    cleaned = [*CLEANED[:3], keyed_batch(5, ("b", "5")), CLEANED[3], zeroed(keyed_batch(12, ("b", None))), CLEANED[4]]
    put_cleaned(tmp_path / "in", 1, cleaned, ACTIVE)
    log_dir = put_cleaned(tmp_path / "in", 2, [zeroed(CLEANED[2]), *CLEANED[3:]], ACTIVE)
    for folder, start in ((log_dir, 4), (log_dir.parent / "broker-1", 2)):
        write_checkpoint(folder, "log-start", start, "orders-0")
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True, prefer="2").partitions
    assert (partition.log_start_offset, gaps_of(partition)) == (4, [(4, 9, (2,))])
    assert left_behind_of(partition) == [(1, 3, 6)]


def test_a_torn_tail_is_no_damage_but_a_lost_end_is(tmp_path: Path) -> None:
    put_cleaned(tmp_path / "in", 1, CLEANED, [*ACTIVE[:3], ACTIVE[3][:-9]], end=23)
    partition = taken(tmp_path, [*CLEANED, *ACTIVE[:3]], "one")
    assert (partition.log_end_offset, partition.warning) == (23, None)
    put_cleaned(tmp_path / "in", 2, with_changes(CLEANED, {3: flip_bit(CLEANED[3], VALUE_AT)}), ACTIVE)
    assert "the copy of broker 1 ends at offset 23, before 24" in refused(tmp_path).reason
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "gap", allow_gaps=True, prefer="1").partitions
    assert (partition.log_end_offset, gaps_of(partition)) == (24, [(23, 24, ())])
    assert left_behind_of(partition) == [(2, 23, 24)]


@pytest.mark.parametrize("tail", [bytes(200), bytes(range(1, 200))], ids=["zeros", "unknown"])
def test_bytes_at_the_end_that_may_be_more_records_are_damage(tmp_path: Path, tail: bytes) -> None:
    """A crash leaves a tail of zeros; other bytes may have been any number of records."""
    put_cleaned(tmp_path / "in", 1, CLEANED, [*ACTIVE, tail])
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    if any(tail):
        assert ["is damaged" in refused.reason for refused in salvaged.refused] == [True]
        salvaged = salvaged_of(tmp_path / "in", tmp_path / "out-with-gaps", allow_gaps=True)
    assert [partition.log_end_offset for partition in salvaged.partitions] == [24]


def test_damage_after_the_last_batch_of_the_longest_copy_has_no_end(tmp_path: Path) -> None:
    """Its number of offsets is unknown: the log ends before it, and the gap has no end."""
    garbage = bytes(range(1, 200))
    put_cleaned(tmp_path / "in", 1, with_changes(CLEANED, {1: flip_bit(CLEANED[1], VALUE_AT)}), [*ACTIVE, garbage])
    put_cleaned(tmp_path / "in", 2, CLEANED, [*ACTIVE[:3], garbage])
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "none", prefer="1")
    (refused,) = salvaged.refused
    assert "the copy of broker 1 is damaged at offsets 1 to 3 and from offset 24 on;" in refused.reason
    assert "the copy of broker 2 is damaged at offset 23" in refused.reason
    assert refused.offsets == ((1, 4), (24, None))
    (row,) = document(salvaged)["refused"]
    assert row["offsets"] == [[1, 4], [24, None]]
    Draft202012Validator(json_schema("salvage")).validate(document(salvaged))
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1", allow_gaps=True)
    (partition,) = salvaged.partitions
    assert (partition.log_end_offset, gaps_of(partition)) == (24, [(1, 4, (1,)), (24, None, (1,))])
    assert log_of(tmp_path / "out") == b"".join([CLEANED[0], *CLEANED[2:], *ACTIVE])
    check_output(tmp_path / "in", tmp_path / "out")


def test_cleaning_continues_where_it_was_in_the_used_copy(tmp_path: Path) -> None:
    put_cleaned(tmp_path / "in", 1, CLEANED, ACTIVE, dirty=5)
    put_cleaned(tmp_path / "in", 2, CLEANED, ACTIVE, dirty=16)
    for prefer, dirty in (("1", 5), ("2", 16)):
        assert salvaged_of(tmp_path / "in", tmp_path / prefer, prefer=prefer).is_whole
        assert of_first(tmp_path / prefer, "cleaner-offset-checkpoint").read_text() == f"0\n1\norders 0 {dirty}\n"


def test_a_batch_in_the_value_of_a_damaged_one_is_not_used(tmp_path: Path) -> None:
    """Batches found after lost framing count if another copy has the first of them, or no copy continues there."""
    planted = keyed_batch(5, ("b", "planted")) + keyed_batch(6, ("b", "cut short"))[:40]
    carrier = write_batch(
        [RecordToWrite(b"c", b"x" * 40 + planted + b"x" * 40)],
        base_offset=4,
        base_timestamp=BASE_TIMESTAMP,
        partition_leader_epoch=0,
    )
    batches = with_changes(CLEANED, {2: carrier})
    put_cleaned(tmp_path / "in", 1, with_changes(batches, {2: replace_bytes(carrier, 0, bytes(61))}), ACTIVE)
    put_cleaned(tmp_path / "in", 2, with_changes(batches, {0: flip_bit(CLEANED[0], VALUE_AT)}), ACTIVE)
    partition = taken(tmp_path, [*batches[:2], *ACTIVE], prefer="1", allow_gaps=True)
    assert partition.base_broker == 1
    assert gaps_of(partition) == [(4, 20, (1,))]


def test_batches_after_lost_framing_are_used_if_another_copy_has_them(tmp_path: Path) -> None:
    put_cleaned(tmp_path / "in", 1, with_changes(CLEANED, {1: replace_bytes(CLEANED[1], 0, b"\7" * 61)}), ACTIVE)
    put_cleaned(tmp_path / "in", 2, with_changes(CLEANED, {0: flip_bit(CLEANED[0], VALUE_AT)}), ACTIVE)
    assert gaps_of(taken(tmp_path, [CLEANED[0], *CLEANED[2:], *ACTIVE], prefer="1", allow_gaps=True)) == [(1, 4, (1, 2))]


@pytest.mark.parametrize("base_offset", [0, 9])
def test_a_missing_segment_with_an_index_or_at_the_start_is_noticed(tmp_path: Path, base_offset: int) -> None:
    segments = {0: b"".join(CLEANED[:3]), 9: b"".join(CLEANED[3:]), 20: b"".join(ACTIVE)}
    put_copies(tmp_path / "in", (1, 2), segments, high_watermark=24, cleaned=20, epochs=[(0, 0)])
    segment_path = tmp_path / "in" / "broker-1" / NAME / segment_file(base_offset)
    segment_path.unlink()
    if base_offset:
        segment_path.with_suffix(".index").touch()
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "whole").partitions
    assert (partition.base_broker, partition.warning) == (2, None)
    other = tmp_path / "in" / "broker-2" / NAME / segment_file(20)
    other.write_bytes(flip_bit(other.read_bytes(), VALUE_AT))
    refusal = refused(tmp_path, prefer="1")
    lost = "has lost a segment, or the end of a segment, at offsets 9 to 19"
    if not base_offset:
        lost = "lacks the start of the log at offsets 0 to 8"
    assert f"the copy of broker 1 {lost}" in refusal.reason
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1", allow_gaps=True).partitions
    assert gaps_of(partition) == ([(9, 20, (1,))] if base_offset else [])
    assert left_behind_of(partition) == [(2, 9, 16) if base_offset else (2, 0, 5)]
    check_output(tmp_path / "in", tmp_path / "out")


def test_an_index_shows_the_end_of_a_segment_truncated_between_batches(tmp_path: Path) -> None:
    log_dir = put_cleaned(tmp_path / "in", 1, CLEANED[:4], ACTIVE)
    put_segment(log_dir / NAME, 0, struct.pack(">ii", 15, sum(map(len, CLEANED[:4]))), "index")
    assert "has lost a segment, or the end of a segment, at offsets 10 to 19" in refused(tmp_path).reason
    put_cleaned(tmp_path / "in", 2, CLEANED, ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert partition.base_broker == 2


@pytest.mark.parametrize("lost", [1, 6], ids=["cleaned", "not-cleaned"])
def test_a_copy_that_lacks_the_latest_value_of_a_key_is_not_used(lost: int, tmp_path: Path) -> None:
    """The damage is not visible; another copy has the value."""
    kept = [data for number, data in enumerate([*CLEANED, *ACTIVE]) if number != lost]
    put_cleaned(tmp_path / "in", 1, kept[: 4 if lost == 1 else 5], kept[4 if lost == 1 else 5 :])
    put_cleaned(tmp_path / "in", 2, CLEANED, ACTIVE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert (partition.base_broker, log_of(tmp_path / "out")) == (2, WHOLE)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "other", prefer="1").partitions
    assert partition.base_broker == 2, "a copy that is not whole gives way to one of the same history"


def test_two_copies_that_each_lack_a_value_are_refused_or_one_is_used(tmp_path: Path) -> None:
    put_cleaned(tmp_path / "in", 1, [CLEANED[0], *CLEANED[2:]], ACTIVE)
    put_cleaned(tmp_path / "in", 2, [*CLEANED[:3], CLEANED[4]], ACTIVE)
    lacking = "the copy of broker 1 lacks the latest value of a key that another copy has at offset 3"
    assert lacking in refused(tmp_path).reason
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="1", allow_gaps=True).partitions
    assert (gaps_of(partition), left_behind_of(partition)) == ([], [(2, 3, 4)])
    assert partition.warning == MAY_BE_STALE


def test_a_copy_that_was_not_read_to_its_end_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka_forensics.analysis.replica import Replica
    from kafka_forensics.model.results import ReadExtent

    put_cleaned(tmp_path / "in", 1, CLEANED, ACTIVE)
    monkeypatch.setattr(Replica, "read", property(lambda _: ReadExtent.PART))
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True).refused
    assert refused.reason == "it is compacted, and no copy of it is whole: the copy of broker 1 could not be read to its end"
    assert refused.hint == "give the log directories of more brokers"


def test_internal_topics_follow_the_same_rules(tmp_path: Path) -> None:
    commits = [offsets_log((commit_key(partition=number), commit_value(number)), start=3 * number) for number in range(6)]
    for broker, batches in ((1, with_changes(commits, {2: flip_bit(commits[2], VALUE_AT)})), (2, commits)):
        put_consumer_offsets(tmp_path / "in" / f"broker-{broker}", b"".join(batches))
        put_meta_properties(tmp_path / "in" / f"broker-{broker}", broker, cluster_id="c")
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert (partition.topic, partition.base_broker) == ("__consumer_offsets", 2)
    assert log_of(tmp_path / "out", "__consumer_offsets-0") == b"".join(commits)
    check_output(tmp_path / "in", tmp_path / "out")
    (log,) = (tmp_path / "in" / "broker-2" / "__consumer_offsets-0").glob("*.log")
    log.write_bytes(b"".join(with_changes(commits, {4: flip_bit(commits[4], VALUE_AT)})))
    refusal = refused(tmp_path)
    assert (refusal.kind, refusal.offsets) == ("internal_topic", ((10, 15),))
