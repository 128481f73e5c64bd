"""Topics of which copies may differ for good reasons: one copy is taken, whole and good, where there is one."""

from pathlib import Path
from typing import Any, cast

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.questions.salvage.histories import between
from tests.support.salvaged import NAME, check_output, log_of, put_copy, salvaged_of
from tests.support.segments import batch, flipped

CLEANED = [batch(0, 2, value=b"first"), batch(4, 1, value=b"second"), batch(8, 2, value=b"third")]
REST = [batch(10, 2, value=b"fourth")]


def put_cleaned(folder: Path, broker: int, batches: list[bytes], dirty: int = 10) -> Path:
    """A copy of a compacted log."""
    log_dir = put_copy(folder, broker, {0: b"".join(batches[:3]), 10: b"".join(batches[3:])}, high_watermark=12, epochs=[(0, 0)])
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {dirty}\n")
    return log_dir


def test_a_damaged_copy_gives_way_to_a_whole_one(tmp_path: Path) -> None:
    put_cleaned(tmp_path / "in", 1, [CLEANED[0], flipped(CLEANED[1], 70), CLEANED[2], *REST])
    put_cleaned(tmp_path / "in", 2, [*CLEANED, *REST])
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert not salvaged.refused
    (partition,) = salvaged.partitions
    assert (partition.base, partition.chosen_by, partition.gaps) == (2, "whole-copy", [])
    assert log_of(tmp_path / "out") == b"".join([*CLEANED, *REST])
    assert (tmp_path / "out" / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 10\n"
    assert (tmp_path / "out" / NAME / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    check_output(tmp_path / "in", tmp_path / "out")


def test_two_damaged_copies_that_prove_to_be_alike_make_one(tmp_path: Path) -> None:
    put_cleaned(tmp_path / "in", 1, [CLEANED[0], flipped(CLEANED[1], 70), CLEANED[2], *REST])
    put_cleaned(tmp_path / "in", 2, [*CLEANED, flipped(REST[0], 70)])
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert (partition.chosen_by, partition.brokers) == ("merged", [1, 2])
    assert log_of(tmp_path / "out") == b"".join([*CLEANED, *REST])


def test_one_damaged_copy_alone_is_refused(tmp_path: Path) -> None:
    put_cleaned(tmp_path / "in", 1, [CLEANED[0], flipped(CLEANED[1], 70), CLEANED[2], *REST])
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, refused.offsets) == ("compacted", ((2, 8),))
    assert not (tmp_path / "out" / NAME).exists()


def test_of_copies_with_other_values_that_is_taken_whose_broker_is_preferred(tmp_path: Path) -> None:
    other = [*CLEANED[:2], batch(8, 2, value=b"other"), *REST]
    put_cleaned(tmp_path / "in", 1, [*CLEANED, *REST])
    put_cleaned(tmp_path / "in", 2, other)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.kind == "compacted"
    assert "its copies differ (SAME_EPOCH_DIVERGENCE)" in refused.reason
    assert "--prefer-broker" in str(refused.hint)
    for broker, batches in (("1", [*CLEANED, *REST]), ("2", other)):
        (partition,) = salvaged_of(tmp_path / "in", tmp_path / broker, prefer=broker).partitions
        assert (partition.base, partition.chosen_by) == (int(broker), "prefer-broker")
        assert log_of(tmp_path / broker) == b"".join(batches)
        assert [(left.broker, left.start, left.end) for left in partition.left_behind] == [(3 - int(broker), 8, 10)]
        check_output(tmp_path / "in", tmp_path / broker)


OLD = [*CLEANED, *REST, batch(12, 2, value=b"old")]
NEW = [*CLEANED, *REST, batch(12, 2, value=b"new", epoch=2), batch(14, 2, value=b"newer", epoch=2)]


def put_rivals(folder: Path, damaged: dict[int, int] | None = None, *, high_watermark: int = 14) -> None:
    """Broker 1 has what a leader took of which brokers 2 and 3 know nothing, who went on without it; in some a batch is damaged."""
    for broker, batches in ((1, OLD), (2, NEW), (3, NEW)):
        lost = (damaged or {}).get(broker)
        log = [flipped(one, 70) if number == lost else one for number, one in enumerate(batches)]
        log_dir = put_cleaned(folder, broker, log)
        (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {high_watermark}\n")
        epochs = "0\n1\n0 0\n" if broker == 1 else "0\n2\n0 0\n2 12\n"
        (log_dir / NAME / "leader-epoch-checkpoint").write_text(epochs)


def test_of_rival_histories_that_is_taken_whose_broker_is_preferred(tmp_path: Path) -> None:
    put_rivals(tmp_path / "in")
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, set(refused.brokers)) == ("compacted", {1, 2, 3})
    assert "its copies differ (UNCLEAN_LOSS)" in refused.reason
    for broker, batches in (("1", OLD), ("2", NEW)):
        (partition,) = salvaged_of(tmp_path / "in", tmp_path / broker, prefer=broker).partitions
        assert (partition.base, partition.chosen_by, partition.gaps) == (int(broker), "prefer-broker", [])
        assert log_of(tmp_path / broker) == b"".join(batches)
        check_output(tmp_path / "in", tmp_path / broker)
    assert [(left.broker, left.start, left.end, left.committed_end, left.rival_of) for left in partition.left_behind] == [
        (1, 12, 14, 14, 2)
    ]


def test_damage_is_mended_from_copies_of_the_same_history_alone(tmp_path: Path) -> None:
    put_rivals(tmp_path / "in", {2: 4, 3: 2})
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="2").partitions
    assert (partition.chosen_by, partition.brokers) == ("merged", [2, 3])
    assert log_of(tmp_path / "out") == b"".join(NEW)
    assert {left.broker for left in partition.left_behind} == {1}
    put_rivals(tmp_path / "both", {2: 2, 3: 2})
    (refused,) = salvaged_of(tmp_path / "both", tmp_path / "none", prefer="2").refused
    assert refused.kind == "compacted", "broker 1 has it, and is of another history"


def test_of_what_was_never_committed_the_plan_decides(tmp_path: Path) -> None:
    put_rivals(tmp_path / "in", high_watermark=12)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert (partition.base, partition.chosen_by) == (2, "plan")
    assert log_of(tmp_path / "out") == b"".join(NEW)
    assert {(left.broker, left.committed_end) for left in partition.left_behind} == {(1, 12)}


def test_a_value_is_a_question_between_copies_of_which_one_has_it() -> None:
    def missing(held_by: list[int], not_on: list[int], keys: int = 1) -> Finding:
        records = [{"offset": 4, "reason": "missing", "key_hash": "", "held_by": held_by, "not_on": not_on}]
        return finding("COMPACTED_VALUE_DIFFERS", Place("orders", 0), cast("Any", {"keys": keys, "records": records}))

    assert between(missing([2], [3]), {2, 3})
    assert not between(missing([1], [2]), {2, 3})
    assert not between(missing([1], [2], keys=2), {2})
    assert between(missing([1], [2], keys=2), {2, 3}), "not all of them are listed"


def test_of_copies_cleaned_apart_the_preferred_one_is_taken(tmp_path: Path) -> None:
    more = batch(2, 1, value=b"cleaned elsewhere")
    put_cleaned(tmp_path / "in", 1, [*CLEANED, *REST])
    log_dir = put_copy(tmp_path / "in", 2, {0: CLEANED[0] + more + b"".join(CLEANED[1:]), 10: REST[0]}, high_watermark=12)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    for broker in ("1", "2"):
        output = tmp_path / f"out-{broker}"
        salvaged = salvaged_of(tmp_path / "in", output, prefer=broker)
        assert [partition.base for partition in salvaged.partitions] == [int(broker)]
        segments = sorted((tmp_path / "in" / f"broker-{broker}" / NAME).glob("*.log"))
        assert log_of(output) == b"".join(path.read_bytes() for path in segments)


def test_what_producers_wrote_twice_is_carried_on_and_told(tmp_path: Path) -> None:
    written = [
        batch(0, 2, producer_id=7, producer_epoch=0, base_sequence=0),
        batch(2, 2, producer_id=7, producer_epoch=0, base_sequence=2),
        batch(4, 2, producer_id=7, producer_epoch=0, base_sequence=2),
    ]
    for broker in (1, 2):
        put_copy(tmp_path / "in", broker, {0: b"".join(written)}, high_watermark=6)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert log_of(tmp_path / "out") == b"".join(written)
    assert [(row["kind"], row["offset_start"]) for row in partition.inherited] == [("DUPLICATE_BATCH", 4)]
