"""Every case of the fault gallery, judged from bundles of blocks: nothing is told that the log directories do not tell, and what
is not told is of the kinds of which that is said."""

from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.bundles import UNTOLD_BY_BLOCKS, Detail
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.collect import CollectOptions, blocks, collect, log_facts
from tests.support.gallery import SECTIONS
from tests.support.gallery_case import Case


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of as few batches as there are in a gallery's logs."""
    monkeypatch.setattr(log_facts, "LEAST_BYTES", 0)
    monkeypatch.setattr(log_facts, "NEWEST_BATCHES", 0)
    monkeypatch.setattr(blocks, "EDGE_BATCHES", 1)
    monkeypatch.setattr(blocks, "LEAST_BATCHES", 1)


@pytest.mark.parametrize("mixed", [False, True], ids=["bundles", "beside directories"])
@pytest.mark.parametrize("section", SECTIONS)
def test_blocks_tell_nothing_that_is_not_so(section: str, mixed: bool, tmp_path: Path) -> None:
    cases = [case for case in SECTIONS[section] if case.during is None]
    assert cases
    for number, case in enumerate(cases):
        assert_implied(section, case, tmp_path / str(number), mixed=mixed)


def assert_implied(section: str, case: Case, folder: Path, *, mixed: bool) -> None:
    brokers = case.make(folder / "brokers")
    options = ScanOptions(jobs=1, live=case.live, deep=case.deep)
    directories = [str(path) for path in brokers.log_dirs]
    wanted = CollectOptions(options, compacted="t" if section == "Compacted topics" else None, detail=Detail.BLOCKS)
    paths = [path if not Path(path).is_dir() else bundle(path, folder, wanted) for path in directories]
    if mixed:
        paths[1:2] = directories[1:2]
    expected, scanned = local.scan(directories, options), local.scan(paths, options)
    told_too_much = [told(finding) for finding in scanned.findings if not is_implied(finding, expected.findings)]
    assert told_too_much == [], (case.injected, [told(finding) for finding in expected.findings])
    untold = {told(finding) for finding in expected.findings if not any(is_same(finding, other) for other in scanned.findings)}
    assert {kind for kind, *_ in untold} <= UNTOLD_BY_BLOCKS.keys(), (case.injected, untold)
    if untold:
        assert scanned.incomplete, case.injected


def bundle(path: str, folder: Path, wanted: CollectOptions) -> str:
    made = folder / f"{Path(path).name}.kfb"
    with made.open("w+b") as file:
        collect([path], wanted, file)
    return str(made)


def is_implied(finding: Finding, expected: list[Finding]) -> bool:
    """Whether the directories tell the same of the same place, of as many offsets at most."""
    return any(is_same(finding, other) and holds(finding, other) for other in expected)


def is_same(finding: Finding, other: Finding) -> bool:
    places = [(known.kind, known.place.topic, known.place.partition, known.place.broker) for known in (finding, other)]
    return places[0] == places[1]


def holds(finding: Finding, other: Finding) -> bool:
    """Whether a finding's offsets hold those of the other."""
    start, end = finding.place.offset_start, finding.place.offset_end
    other_start, other_end = other.place.offset_start, other.place.offset_end
    if start is None or end is None or other_start is None or other_end is None:
        return start is None or start == other_start
    return start <= other_start and other_end <= end


def told(finding: Finding) -> tuple[object, ...]:
    place = finding.place
    return finding.kind, finding.severity.name, place.topic, place.partition, place.broker, place.offset_start, place.offset_end
