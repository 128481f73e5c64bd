"""Topics of which copies may differ for good reasons: one copy is taken, whole and good, where there is one."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("prefer", [None, "1", "2"])
def test_copies_with_other_values_are_refused_whoever_is_preferred(tmp_path: Path, prefer: str | None) -> None:
    put_cleaned(tmp_path / "in", 1, [*CLEANED, *REST])
    put_cleaned(tmp_path / "in", 2, [*CLEANED[:2], batch(8, 2, value=b"other"), *REST])
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer=prefer).refused
    assert refused.kind == "compacted"
    assert "its copies differ" in refused.reason


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
