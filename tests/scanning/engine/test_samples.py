"""The shipped samples give the findings in `expected.json`, in every way of reading them."""

import itertools
import json
from typing import Any

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.parsers.kernels.compiling import Kernel
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.folding import splits
from tests.support.kernels import kernels
from tests.support.places import SAMPLES

EXPECTED: dict[str, dict[str, Any]] = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))


def text(result: ScanResult) -> str:
    return "".join(document(result))


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def sample(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def paths(sample: str) -> list[str]:
    return sorted(str(path) for path in (SAMPLES / sample).iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def result(paths: list[str]) -> ScanResult:
    return local.scan(paths, ScanOptions(jobs=1))


def test_samples_give_the_expected_findings(sample: str, result: ScanResult) -> None:
    serious = [finding for finding in result.findings if finding.severity is not Severity.INFO]
    rows = EXPECTED[sample]["findings"]
    places = [
        (finding.kind, finding.place.topic, finding.place.partition, finding.place.offset_start, finding.place.offset_end)
        for finding in serious
    ]
    assert places == [(row["kind"], row["topic"], row["partition"], row["offset_start"], row["offset_end"]) for row in rows]
    assert [finding.evidence["held_by"] for finding in serious] == [row["held_by"] for row in rows]
    for finding, row in zip(serious, rows, strict=True):
        if "versions" in row:
            assert [version["brokers"] for version in finding.evidence["versions"]] == row["versions"]


def test_kernels_that_change_their_form_give_the_same_bytes(
    paths: list[str], result: ScanResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sample gives the same bytes if the form of kernels changes during a scan."""
    calls = itertools.count()

    def alternating_form(kernel: Kernel[Any], *arguments: object) -> Any:
        return (kernel.compiled if next(calls) % 3 else kernel.interpreted)(*arguments)

    monkeypatch.setattr(Kernel, "__call__", alternating_form)
    monkeypatch.setattr(local, "compile_as_needed", lambda _: None)
    monkeypatch.setattr(splits, "SPLIT_BYTES", 5000)
    with kernels(compiled=True):
        assert text(local.scan(paths, ScanOptions(jobs=2))) == text(result)
    assert next(calls) > 10
