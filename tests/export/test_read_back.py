"""Readers of an export get the facts of the scan with their declared types."""

from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS
from tests.export.exports import export, manifest, parquet_files, read_back, rows
from tests.support.places import SAMPLES


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
    assert [field.type for field in table.schema] == [field.type for field in scanned.schema]
    assert rows(table) == rows(scanned)


def test_files_have_version_and_partition_keys_and_use_zstd(export_dir: Path) -> None:
    for path, file in parquet_files(export_dir).items():
        fact = path.split("/")[0]
        metadata = file.schema_arrow.metadata or {}
        assert metadata[b"kf.schema_version"] == b"1.0"
        assert metadata[b"kf.fact"] == fact.encode()
        assert file.schema_arrow.equals(FACTS[fact].file_schema)
        if FACTS[fact].by_replica:
            keys = [metadata[f"kf.{key}".encode()].decode() for key in ("topic", "partition", "broker")]
            assert f"{fact}/topic={keys[0]}/partition={keys[1]}/broker={keys[2]}/part-00000.parquet" == path
        for group in range(file.metadata.num_row_groups):
            assert file.metadata.row_group(group).column(0).compression == "ZSTD"


@pytest.mark.nightly
def test_the_python_examples_of_the_page_work(export_dir: Path) -> None:
    page = (SAMPLES.parent / "docs" / "facts.md").read_text()
    code = page.split("```python\n")[1].split("```")[0].replace("DIR", str(export_dir))
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - an example of the page
    count = manifest(export_dir)["datasets"]["batches"]["rows"]
    assert names["table"].num_rows == len(names["frame"]) == names["lazy"].collect().height == count
    assert sum(row[-1] for row in names["rows"].fetchall()) == count
    assert "UNCLEAN_LOSS" in set(names["findings"]["kind"])
