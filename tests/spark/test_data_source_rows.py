"""Rows of the data source equal those of the local engine for any bytes and any division of files. No JVM runs here."""

import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts import spans as facts_spans, splits as fact_splits
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.model.results import ScanResult, Totals
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from tests.gallery.case import Case
from tests.gallery.cases import SECTIONS, named
from tests.spark.source_facts import BY_FILE, as_source, read, rows
from tests.support.archives import archive_params
from tests.support.nightly import daily_subset, first_of_each_kind
from tests.support.places import SAMPLES

if TYPE_CHECKING:
    import pyarrow as pa

LOG_SECTIONS = ("Bytes of a batch", "Segments", "Compression", "Transactions")
LARGE_CASES = ("32 GiB", "256 MiB")
"""Parts of names of cases that take minutes and have only one batch."""
CASES = [
    case
    for name in LOG_SECTIONS
    for case in SECTIONS[name]
    if case.during is None and not any(size in case.injected for size in LARGE_CASES)
]
REAL = ("kafka-0.10.2.2-hw-divergence", "kafka-4.3.0-unclean", "public-magic0-golden")
LOG_FACTS = ("batches", "records", "spans", "control_records")
SMALL_FILE_FACTS = ("spans", "index_entries", "epoch_entries", "producer_states", "checkpoints")
SMALL = 2048
"""Bytes of a part: a few batches."""


@pytest.fixture(autouse=True)
def _short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_spans, "SPAN_BYTES", SMALL)
    monkeypatch.setattr(fact_splits, "SPAN_BYTES", SMALL)


def local(paths: list[Path]) -> FactReader:
    """A reader of facts as the local engine has, without a scan."""
    options = ScanOptions()
    result = ScanResult("local", [], [], [], Totals(records_decoded=True), [])
    return FactReader(
        gather(list(map(str, paths)), options), options, result, Witnesses(), lambda finding: (finding.kind, None), payloads=True
    )


def assert_equal(paths: list[Path], facts: Iterable[str], expected: FactReader | ScanResult, **options: object) -> int:
    """Assert that the rows of these facts are equal; return the number of tasks."""
    tasks = 0
    for fact in facts:
        wanted: pa.Table = expected.table(fact) if isinstance(expected, FactReader) else expected.facts(fact, payloads=True)
        table, number = read(paths, fact, **options)
        assert rows(table) == rows(as_source(wanted, fact)), fact
        tasks += number
    return tasks


@pytest.mark.parametrize("name", daily_subset(["unclean-election"], ["healthy", "silent-divergence", "unclean-election"]))
def test_every_fact_of_the_samples_is_equal(name: str) -> None:
    result = kf.scan(str(SAMPLES / name))
    assert assert_equal([SAMPLES / name], FACTS, result) <= len(FACTS)
    assert assert_equal([SAMPLES / name], BY_FILE, result, split_bytes=SMALL) > len(FACTS)


@pytest.mark.faults
@pytest.mark.parametrize("case", first_of_each_kind(CASES, lambda case: case.fault, named))
def test_facts_of_damaged_logs_are_equal(tmp_path: Path, case: Case) -> None:
    paths = case.make(tmp_path).log_dirs
    assert_equal(paths, LOG_FACTS, local(paths), split_bytes=SMALL)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("heading", ["Indexes, snapshots, checkpoints", "Environment"])
def test_facts_of_damaged_small_files_are_equal(tmp_path: Path, heading: str) -> None:
    for number, case in enumerate(case for case in SECTIONS[heading] if case.during is None):
        paths = case.make(tmp_path / str(number)).log_dirs
        if gather(list(map(str, paths)), ScanOptions()).incomplete:
            with pytest.raises(SourceError, match=r"not followed|not a regular file"):
                read(paths, "spans", split_bytes=SMALL)
        else:
            assert_equal(paths, SMALL_FILE_FACTS, local(paths), split_bytes=SMALL)


@pytest.mark.parametrize("name", archive_params(*REAL, nightly=REAL[1:]))
def test_facts_of_real_brokers_are_equal(archives: Path, tmp_path: Path, name: str) -> None:
    with tarfile.open(archives / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert_equal([tmp_path], BY_FILE, local([tmp_path]), split_bytes=SMALL)


@pytest.mark.parametrize(
    "name", archive_params("kafka-0.10.2.2-hw-truncation", "public-five-brokers", nightly=["public-five-brokers"])
)
def test_facts_of_an_archive_without_seek_are_equal(archives: Path, name: str) -> None:
    paths = [archives / f"{name}.tar.xz"]
    assert assert_equal(paths, BY_FILE, local(paths), split_bytes=SMALL) <= len(BY_FILE), "it is read by one task"
