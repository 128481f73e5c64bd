"""Findings of a scan of the output: inherited from a copy at the same offsets, new, or so wrong that the partition is refused."""

from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.cli.outputs.salvage import write_salvaged
from kafka_forensics.cli.streams import Destination
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.questions.salvage import document, partition_files, salvaging
from kafka_forensics.questions.salvage.output_findings import InputFindings
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.questions.salvage.salvaged import log_of, of_first, salvaged_of
from tests.support.brokers import put_brokers, put_copies, put_replica, put_segment
from tests.support.json_schemas import json_schema
from tests.support.logs import APP_ID, CoordinatorLog, DataLog
from tests.support.segments import batch, keyed_batch


def finding_at(
    kind: str, start: int | None, end: int | None, broker: int | None = 1, partition: int = 0, **evidence: Any
) -> Finding:
    place = Place("orders", partition, broker, "d", offset_start=start, offset_end=end)
    return finding(kind, place, cast("Any", evidence))


def classified(inputs: list[Finding], *of_output: Finding, gaps: tuple[tuple[int, int], ...] = ()) -> tuple[int, int, int]:
    """The numbers of wrong, inherited and new findings."""
    wrong, inherited, new = InputFindings(inputs).classify(of_output, gaps)
    return len(wrong), len(inherited), len(new)


WRONG, INHERITED, NEW = (1, 0, 0), (0, 1, 0), (0, 0, 1)


@pytest.mark.parametrize("kind", ["DUPLICATE_BATCH", "PRODUCER_SEQ_GAP", "TXN_LATE_WRITE", "RECOVERY_WOULD_TRUNCATE"])
def test_findings_of_a_copy_at_overlapping_offsets_are_inherited_and_all_others_new(kind: str) -> None:
    inputs = [finding_at(kind, 4, 6)]
    overlapping: list[tuple[int, int | None]] = [(4, 6), (5, 6), (2, 5), (5, None)]
    for start, end in overlapping:
        assert classified(inputs, finding_at(kind, start, end, broker=None)) == INHERITED
    elsewhere: list[tuple[int | None, int | None]] = [(6, 8), (2, 4), (6, None), (None, None)]
    for other_start, other_end in elsewhere:
        assert classified(inputs, finding_at(kind, other_start, other_end)) == NEW
    assert classified(inputs, finding_at(kind, 4, 6, partition=1)) == NEW
    assert classified(inputs, finding_at("PRODUCER_SEQ_REGRESSION", 4, 6)) == NEW
    assert classified(inputs, finding_at(kind, 4, 6), gaps=((0, 20),)) == INHERITED
    assert classified([], finding_at(kind, 4, 6), gaps=((0, 20),)) == NEW
    assert classified([finding_at(kind, 4, 6, producer_id=7)], finding_at(kind, 4, 6, producer_id=8)) == NEW
    assert classified([finding_at(kind, None, None)], finding_at(kind, None, None)) == INHERITED


@pytest.mark.parametrize(
    "kind",
    ["BATCH_CRC_MISMATCH", "OFFSET_REGRESSION", "EPOCH_FIELD_MISMATCH", "EPOCH_CACHE_MISMATCH", "FRAMING_LOST", "OFFSET_GAP"],
)
def test_wrong_bytes_offsets_and_epochs_are_wrong_even_if_a_copy_has_them(kind: str) -> None:
    assert classified([finding_at(kind, 4, 6)], finding_at(kind, 4, 6)) == WRONG


@pytest.mark.parametrize("kind", ["OFFSET_GAP", "SEGMENT_MISSING"])
def test_gaps_in_the_manifest_are_no_findings(kind: str) -> None:
    assert classified([], finding_at(kind, 4, 6), gaps=((4, 5), (5, 8))) == (0, 0, 0)
    assert classified([], finding_at(kind, 4, 9), gaps=((4, 8),)) == WRONG


@pytest.mark.parametrize("kind", ["INDEX_MISMATCH", "PRODUCER_SNAPSHOT_CORRUPT", "TXNINDEX_PHANTOM_ABORT", "HW_BEYOND_LEO"])
def test_files_that_a_salvage_builds_inherit_no_findings(kind: str) -> None:
    assert classified([finding_at(kind, 4, 6)], finding_at(kind, 4, 6)) == NEW


@pytest.mark.parametrize("kind", ["TXN_HANGING", "TXN_OPEN"])
def test_a_transaction_is_the_same_by_its_producer_and_its_first_offset(kind: str) -> None:
    inputs = [finding_at(kind, 4, None, producer_id=7)]
    assert classified(inputs, finding_at(kind, 4, 9, producer_id=7)) == INHERITED
    assert classified(inputs, finding_at(kind, 900, 905, producer_id=7)) == NEW
    assert classified(inputs, finding_at(kind, 4, 9, producer_id=8)) == NEW


def test_a_transaction_without_records_is_the_same_by_its_decision() -> None:
    inputs = [finding_at("TXN_PARTLY_LOST", None, None, producer_id=7, coordinator_offset=3)]
    assert classified(inputs, finding_at("TXN_PARTLY_LOST", None, None, producer_id=7, coordinator_offset=3)) == INHERITED
    assert classified(inputs, finding_at("TXN_PARTLY_LOST", None, None, producer_id=7, coordinator_offset=40)) == NEW


@pytest.mark.parametrize("kind", ["GROUP_OFFSET_BEYOND_LOG", "COMMITTED_LOST_EVERYWHERE"])
def test_absent_offsets_are_inherited_if_the_copies_lack_all_of_them(kind: str) -> None:
    inputs = [finding_at(kind, 10, 12), finding_at(kind, 12, 14, broker=2)]
    assert classified(inputs, finding_at(kind, 10, 14)) == INHERITED
    assert classified(inputs, finding_at(kind, 8, 14)) == NEW


def test_findings_that_a_copy_does_not_list_also_count() -> None:
    """A copy lists only the first and the last findings of many of a kind."""
    many = [finding_at("DUPLICATE_BATCH", offset, offset + 2, occurrences=90) for offset in (4, 6, 150, 152)]
    assert classified(many, finding_at("DUPLICATE_BATCH", 80, 82)) == INHERITED
    for kind, start in (("DUPLICATE_BATCH", 2), ("DUPLICATE_BATCH", 160), ("PRODUCER_SEQ_GAP", 80)):
        assert classified(many, finding_at(kind, start, start + 2)) == NEW


def kinds(findings: list[Finding]) -> list[tuple[str, int | None]]:
    return [(row.kind, row.place.offset_start) for row in findings]


def numbered(offset: int, sequence: int) -> bytes:
    return batch(offset, 2, producer_id=7, producer_epoch=0, base_sequence=sequence)


TWICE = [numbered(0, 0), numbered(2, 2), numbered(4, 2), numbered(6, 4)]


def test_duplicates_of_producers_are_inherited(tmp_path: Path) -> None:
    put_copies(tmp_path / "in", (1, 2), TWICE, high_watermark=8)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    (partition,) = salvaged.partitions
    assert log_of(tmp_path / "out") == b"".join(TWICE)
    assert (kinds(partition.inherited), partition.new) == ([("DUPLICATE_BATCH", 4)], [])
    (row,) = document(salvaged)["partitions"]
    assert [(listed["kind"], listed["producer_id"]) for listed in row["inherited"]] == [("DUPLICATE_BATCH", 7)]


def introduce(monkeypatch: pytest.MonkeyPatch, name: str, old: bytes, new: bytes) -> None:
    """Make every salvage replace these bytes in the log of a partition."""
    whole = partition_files.write_partition

    def changed(directory: Path, *inputs: Any) -> Any:
        written = whole(directory, *inputs)
        for path in directory.glob("*.log") if directory.name == name else ():
            path.write_bytes(path.read_bytes().replace(old, new))
        for path in directory.glob("*.snapshot") if directory.name == name else ():
            path.unlink()
        return written

    monkeypatch.setattr(salvaging, "write_partition", changed)


def test_a_duplicate_that_a_salvage_makes_is_new_next_to_one_of_the_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_replica(tmp_path / "in", 1, TWICE, high_watermark=8)
    introduce(monkeypatch, "orders-0", TWICE[3], numbered(6, 2))
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert (kinds(partition.inherited), kinds(partition.new)) == ([("DUPLICATE_BATCH", 4)], [("DUPLICATE_BATCH", 6)])


def test_a_wrong_output_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_replica(tmp_path / "in", 1, TWICE, high_watermark=8)
    introduce(monkeypatch, "orders-0", TWICE[3], numbered(8, 4))
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.kind == "not_sound"
    assert "OFFSET_GAP" in refused.reason
    assert not of_first(tmp_path / "out", "orders-0").exists()


def test_a_finding_of_no_single_partition_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = put_replica(tmp_path / "in", 1, TWICE, high_watermark=8)
    (log_dir / "orders-1").mkdir()
    put_segment(log_dir / "orders-1", 0, keyed_batch(0, ("other", "key")))

    def malformed_if_empty(offsets: dict[tuple[str, int], int]) -> bytes:
        return write_offset_checkpoint(offsets) if offsets else b"0\n0"

    monkeypatch.setattr(salvaging, "write_offset_checkpoint", malformed_if_empty)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert [kinds(partition.new) for partition in salvaged.partitions] == [[], []]
    assert "CHECKPOINT_MALFORMED" in {kind for kind, _ in kinds(salvaged.new)}
    assert len(salvaged.new) == len({(row.place.file, row.kind) for row in salvaged.new})
    assert salvaged.has_new_findings
    manifest = document(salvaged)
    Draft202012Validator(json_schema("salvage")).validate(manifest)
    assert [row["kind"] for row in manifest["new"]] == [row.kind for row in salvaged.new]
    for format_name in ("text", "tsv"):
        with StringIO() as stream:
            write_salvaged(salvaged, format_name, Destination(stream, width=200, colour=False))
            assert stream.getvalue().count("CHECKPOINT_MALFORMED") == len(salvaged.new)


def test_a_transaction_whose_marker_a_salvage_loses_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies have a longer hanging transaction."""
    data, coordinators, other = DataLog(), CoordinatorLog(), 3000
    data.data(0.0, APP_ID)
    data.data(1.0, other)
    marker = data.marker(1.1, commit=True, producer_id=other)
    coordinators.transaction(10_000, (0,), commit=True, name="later")
    data.traffic(10_000)
    put_brokers(tmp_path / "in", {"t-0": data, "__transaction_state-0": coordinators})
    right = {partition.topic: partition for partition in salvaged_of(tmp_path / "in", tmp_path / "right").partitions}
    assert (kinds(right["t"].inherited), right["t"].new) == ([("TXN_HANGING", 0)], [])
    assert marker.data in log_of(tmp_path / "right", "t-0")
    introduce(monkeypatch, "t-0", marker.data, batch(marker.base_offset, 1))
    lost = {partition.topic: partition for partition in salvaged_of(tmp_path / "in", tmp_path / "out").partitions}
    assert kinds(lost["t"].inherited) == [("TXN_HANGING", 0)]
    assert "TXN_HANGING" in {kind for kind, _ in kinds(lost["t"].new)}
