"""The largest sections that a chunk of a log can fill: with the smallest batches, and with damage."""

from pathlib import Path

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.evidence.paths import open_paths
from kafka_forensics.model.batches import CHUNK_ROWS
from kafka_forensics.questions.collect import CollectOptions, collect
from kafka_forensics.questions.collect.collecting import RequestedRecords
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.storage.bundles import CollectedLog
from tests.questions.salvage.salvaged import NAME, TOPIC
from tests.support.brokers import put_replica
from tests.support.segments import batch, flip_bit, legacy_entry, segment_file

BATCHES = CHUNK_ROWS + 400


def collected(folder: Path, options: CollectOptions) -> Path:
    bundle = folder / "bundle.kfb"
    with bundle.open("w+b") as file:
        assert not collect([str(folder / "in" / "broker-1")], options, file).incomplete
    return bundle


def test_the_smallest_batches_with_their_records(tmp_path: Path) -> None:
    put_replica(tmp_path / "in", 1, [legacy_entry(offset, 0, value=b"") for offset in range(BATCHES)])
    bundle = collected(tmp_path, CollectOptions(records=(RequestedRecords(TOPIC, 0, 0, BATCHES),)))
    expected, read = (scan([str(path)], ScanOptions(deep=False)) for path in (tmp_path / "in", bundle))
    assert not read.incomplete
    assert [finding.kind for finding in read.findings] == [finding.kind for finding in expected.findings]
    assert read.partitions[0].replicas[0].log_end_offset == BATCHES


def test_nearly_only_damaged_batches(tmp_path: Path) -> None:
    right, wrong = batch(0)[8:], flip_bit(batch(0), 65)[8:]
    data = b"".join(offset.to_bytes(8, "big") + (wrong if offset % 900 else right) for offset in range(BATCHES))
    put_replica(tmp_path / "in", 1, data)
    (opened,) = open_paths([str(collected(tmp_path, CollectOptions()))])
    with opened.source.open(f"{NAME}/{segment_file(0)}") as log:
        assert isinstance(log, CollectedLog)
        assert len(log.frames(0, len(data))) == sum(offset % 900 != 0 for offset in range(BATCHES))
