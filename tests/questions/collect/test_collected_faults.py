"""Every case of the fault gallery, judged from bundles: the findings are those of the log directories themselves."""

from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.collect import CollectOptions, collect
from tests.support.gallery import SECTIONS
from tests.support.gallery_case import Case

NEEDS_RECORDS = {
    "another record at the same offset and epoch, CRC right",
    "the same, another one on each replica",
    "another topic id on b2, b1 and b3 in conflict",
}
"""Which records of two batches are the first to differ, only their payloads tell."""


@pytest.mark.parametrize("section", SECTIONS)
def test_faults_are_found_in_bundles(section: str, tmp_path: Path) -> None:
    cases = [case for case in SECTIONS[section] if case.during is None]
    assert cases
    for number, case in enumerate(cases):
        assert_equal(section, case, tmp_path / str(number))


def assert_equal(section: str, case: Case, folder: Path) -> None:
    brokers = case.make(folder / "brokers")
    options = ScanOptions(jobs=1, live=case.live, deep=case.deep)
    directories = [str(path) for path in brokers.log_dirs]
    wanted = CollectOptions(options, compacted="t" if section == "Compacted topics" else None)
    paths = [path if not Path(path).is_dir() else bundle(path, folder, wanted) for path in directories]
    expected, scanned = local.scan(directories, options), local.scan(paths, options)
    assert list(map(told, scanned.findings)) == list(map(told, expected.findings)), case.injected
    if case.injected in NEEDS_RECORDS:
        assert {gap.reason.split(":")[0] for gap in scanned.incomplete} == {"needs the records"}, case.injected
    else:
        assert [gap.reason for gap in scanned.incomplete] == [gap.reason for gap in expected.incomplete], case.injected


def bundle(path: str, folder: Path, wanted: CollectOptions) -> str:
    made = folder / f"{Path(path).name}.kfb"
    with made.open("w+b") as file:
        collect([path], wanted, file)
    return str(made)


def told(finding: Finding) -> tuple[object, ...]:
    place = finding.place
    offsets = place.byte_start, place.byte_end, place.offset_start, place.offset_end
    where = place.topic, place.partition, place.broker, place.file
    return finding.kind, finding.severity, finding.confidence, *where, *offsets, finding.evidence.get("held_by")
