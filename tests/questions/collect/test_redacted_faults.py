"""Every case of the fault gallery, judged from bundles with pseudonyms: the findings are those of the log directories."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap, collect
from tests.questions.collect.test_collected_faults import told
from tests.support.bundles import Names, read_back
from tests.support.gallery import SECTIONS
from tests.support.gallery_case import Case
from tests.support.nightly import nightly_but

DAILY = ("Indexes, snapshots, checkpoints", "Replicas and producers", "Transactions", "Internal topics")
"""Whose findings name the most."""


@pytest.mark.parametrize("section", nightly_but(DAILY, SECTIONS))
def test_faults_are_found_in_redacted_bundles(section: str, tmp_path: Path) -> None:
    cases = [case for case in SECTIONS[section] if case.during is None]
    assert cases
    for number, case in enumerate(cases):
        assert_alike(section, case, tmp_path / str(number))


def assert_alike(section: str, case: Case, folder: Path) -> None:
    brokers = case.make(folder / "brokers")
    names: dict[str, tuple[str, str]] = {}
    options = ScanOptions(jobs=1, live=case.live, deep=case.deep)
    directories = [str(path) for path in brokers.log_dirs]
    wanted = CollectOptions(
        options, compacted="t" if section == "Compacted topics" else None, pseudonyms=PseudonymMap("00" * 32, names)
    )
    paths = [path if not Path(path).is_dir() else bundle(path, folder, wanted) for path in directories]
    expected, scanned = local.scan(directories, options), local.scan(paths, options)
    assert placed(scanned.findings, names) == placed(expected.findings), case.injected


def bundle(path: str, folder: Path, wanted: CollectOptions) -> str:
    made = folder / f"{Path(path).name}.kfb"
    with made.open("w+b") as file:
        collect([path], wanted, file)
    return str(made)


def placed(findings: list[Finding], names: Names | None = None) -> list[str]:
    """Findings, with names in the place of pseudonyms, in their order; bytes of small files with pseudonyms differ."""
    compared = (without_bytes(finding) if finding.kind == "CHECKPOINT_MALFORMED" else finding for finding in findings)
    return sorted(read_back(str(told(finding)), names or {}) for finding in compared)


def without_bytes(finding: Finding) -> Finding:
    return replace(finding, place=replace(finding.place, byte_start=None, byte_end=None))
