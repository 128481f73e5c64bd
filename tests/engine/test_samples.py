"""The samples that ship give what `expected.json` says, no matter how they are read."""

import itertools
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.compiled import Kernel, use_compiled, using_compiled
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.folding import splits
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.results import ScanResult

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))


def brokers(sample: str) -> list[str]:
    return sorted(str(path) for path in (SAMPLES / sample).iterdir() if path.is_dir())


def text(result: ScanResult) -> str:
    return "".join(document(result))


@pytest.mark.parametrize("sample", sorted(EXPECTED))
def test_each_sample_gives_what_it_must(sample: str) -> None:
    expected = EXPECTED[sample]
    result = local.scan(brokers(sample), ScanOptions())
    serious = [finding for finding in result.findings if finding.severity is not Severity.INFO]
    found = [
        (
            finding.kind,
            finding.place.topic,
            finding.place.partition,
            finding.place.offset_start,
            finding.place.offset_end,
            finding.evidence["held_by"],
        )
        for finding in serious
    ]
    wanted = [
        (one["kind"], one["topic"], one["partition"], one["offset_start"], one["offset_end"], one["held_by"])
        for one in expected["findings"]
    ]
    assert found == wanted
    for finding, row in zip(serious, expected["findings"], strict=True):
        if "versions" in row:
            assert [version["brokers"] for version in finding.evidence["versions"]] == row["versions"]


@pytest.mark.parametrize("sample", sorted(EXPECTED))
def test_both_forms_of_the_kernels_give_the_same_bytes(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = using_compiled()
    answers = []
    for compiled in (True, False):
        monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled" if compiled else "interpreted")
        answers.append(text(local.scan(brokers(sample), ScanOptions(jobs=2))))
        assert using_compiled() is compiled
    use_compiled(before)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("sample", sorted(EXPECTED))
def test_forms_that_change_from_call_to_call_give_the_same_bytes(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where code is made while a scan goes on."""
    whole = text(local.scan(brokers(sample), ScanOptions(jobs=1)))
    calls = itertools.count()

    def now_and_then(kernel: Kernel[Any], *arguments: object) -> Any:
        return (kernel.compiled if next(calls) % 3 else kernel.interpreted)(*arguments)

    before = using_compiled()
    monkeypatch.setattr(Kernel, "__call__", now_and_then)
    monkeypatch.setattr(local, "compile_as_needed", lambda _: use_compiled(compiled=True))
    monkeypatch.setattr(splits, "SPLIT_BYTES", 5000)
    for jobs in (1, 2):
        assert text(local.scan(brokers(sample), ScanOptions(jobs=jobs))) == whole
    assert next(calls) > 20
    use_compiled(before)


def test_any_splits_and_any_jobs_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = brokers("unclean-election")
    whole = text(local.scan(paths, ScanOptions(jobs=1)))
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    for split_bytes in (600, 5000):
        monkeypatch.setattr(splits, "SPLIT_BYTES", split_bytes)
        for jobs in (1, 3):
            assert text(local.scan(paths, ScanOptions(jobs=jobs))) == whole


def test_an_archive_gives_what_its_directory_gives(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "unclean-election", tmp_path / "unclean-election")
    archive = tmp_path / "copies.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "unclean-election", "unclean-election")
    packed = local.scan([str(archive)], ScanOptions())
    plain = local.scan([str(tmp_path / "unclean-election")], ScanOptions())
    assert [(finding.kind, finding.place.offset_start, finding.evidence.get("held_by")) for finding in packed.findings] == [
        (finding.kind, finding.place.offset_start, finding.evidence.get("held_by")) for finding in plain.findings
    ]
    assert packed.totals == plain.totals
