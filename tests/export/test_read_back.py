"""Readers of an export get the facts of the scan with their declared types."""

from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS
from tests.export.exports import export, parquet_files, read_back, rows
from tests.support.places import SAMPLES

LABEL = SnapshotLabel("c", "s", "0" * 32, in_rows=False)


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exports") / "all"
    assert export(target, SAMPLES / "unclean-election", "--show-payloads") == 0
    return target


@pytest.fixture(scope="module")
def result() -> ScanResult:
    return kf.scan(str(SAMPLES / "unclean-election"))


@pytest.mark.parametrize("fact", FACTS)
def test_pyarrow_reads_the_facts_of_the_scan(export_dir: Path, result: ScanResult, fact: str) -> None:
    table, scanned = read_back(export_dir, fact), result.facts(fact, payloads=True)
    assert scanned.schema == FACTS[fact].schema
    empty = fact in ("incomplete", "remote_segments", "remote_events")  # the sample is readable and has no tiered topics
    assert (scanned.num_rows == 0) == empty
    assert table.schema.types == dataset_schema(FACTS[fact], LABEL).types
    assert rows(table) == rows(scanned)


def test_files_have_version_and_snapshot_and_use_zstd(export_dir: Path) -> None:
    for path, file in parquet_files(export_dir).items():
        fact = path.split("/")[0]
        metadata = file.schema_arrow.metadata or {}
        assert metadata[b"kf.schema_version"] == b"1.0"
        assert metadata[b"kf.fact"] == fact.encode()
        assert metadata[b"kf.snapshot"] == b"1"
        assert file.schema_arrow.names == FACTS[fact].schema.names
        for group in range(file.metadata.num_row_groups):
            assert file.metadata.row_group(group).column(0).compression == "ZSTD"
