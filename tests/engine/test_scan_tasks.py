"""A scan carried piece by piece, packed and out of order, gives what the local engine gives, row for row."""

from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.results import ScanResult
from tests.support import task_engine
from tests.support.gallery_case import Case
from tests.support.nightly import one_of_each_fault

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"


def text(result: ScanResult) -> str:
    return "".join(json_document.document(result))


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
@pytest.mark.parametrize("split_bytes", [1 << 28, 2048])
def test_samples_are_judged_alike(sample: str, split_bytes: int) -> None:
    paths = [str(path) for path in sorted((SAMPLES / sample).iterdir()) if path.is_dir()]
    options = ScanOptions()
    carried = task_engine.scan(paths, options, split_bytes=split_bytes, work_bytes=10_000, seed=split_bytes)
    assert text(carried) == text(local.scan(paths, options))


@pytest.mark.parametrize("small_bytes", [0, 20_000, 1 << 24])
@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_small_partitions_are_judged_alike_where_they_are_folded(sample: str, small_bytes: int) -> None:
    paths = [str(path) for path in sorted((SAMPLES / sample).iterdir()) if path.is_dir()]
    carried = task_engine.scan(paths, ScanOptions(), small_bytes=small_bytes, seed=small_bytes)
    assert text(carried) == text(local.scan(paths, ScanOptions()))


@pytest.mark.parametrize("case", one_of_each_fault())
def test_every_fault_is_judged_alike(case: Case, tmp_path: Path) -> None:
    brokers = case.make(tmp_path)
    paths, options = [str(path) for path in brokers.log_dirs], ScanOptions(live=case.live, deep=case.deep)
    largest = max((file.stat().st_size for file in tmp_path.rglob("*.log") if file.is_file()), default=0)  # one is 8 TiB of hole
    here = text(local.scan(paths, options))
    carried = task_engine.scan(paths, options, split_bytes=max(512, largest >> 6), work_bytes=3000, seed=len(case.injected))
    assert text(carried) == here
    assert text(task_engine.scan(paths, options, small_bytes=1 << 62)) == here
