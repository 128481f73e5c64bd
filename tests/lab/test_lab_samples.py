"""Every tree in `sample_logs/` has a maker, and new trees replace old ones only if a scan has the expected findings."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lab.errors import LabError
from lab.make_samples import DIVERGENCE, SAMPLE_LOGS, SAMPLES, UNCLEAN, expected, expected_fork, listing, put, shortfalls

EXPECTED: dict[str, dict[str, Any]] = json.loads((SAMPLE_LOGS / "expected.json").read_text())


def test_every_tree_has_a_maker() -> None:
    assert {path.name for path in SAMPLE_LOGS.iterdir() if path.is_dir()} == set(SAMPLES) == set(EXPECTED)
    for sample in SAMPLES.values():
        assert (SAMPLE_LOGS.parent / sample.maker).is_file()
    readme = (SAMPLE_LOGS / "README.md").read_text()
    assert all(f"`{name}`" in readme and sample.maker in readme and sample.kafka in readme for name, sample in SAMPLES.items())


def test_a_tree_has_its_expected_findings() -> None:
    assert shortfalls(SAMPLE_LOGS / UNCLEAN, EXPECTED[UNCLEAN]) == []


def test_a_tree_with_other_findings_replaces_nothing(tmp_path: Path) -> None:
    work, into = tmp_path / "work", tmp_path / "into"
    shutil.copytree(SAMPLE_LOGS / DIVERGENCE, work / DIVERGENCE)
    with pytest.raises(LabError, match=r"besides: .*FORK_BELOW_HW"):
        put(work, {DIVERGENCE: expected(0)}, into)
    assert not into.exists()
    other = expected_fork() | {"offset_end": 4}
    with pytest.raises(LabError, match=r"missing: .*4, \[\].*besides: .*3, \[\]"):
        put(work, {DIVERGENCE: expected(1, other)}, into)
    put(work, {DIVERGENCE: expected(1, expected_fork())}, into)
    assert json.loads((into / "expected.json").read_text()) == {DIVERGENCE: EXPECTED[DIVERGENCE]}
    made, *_ = [line for line in listing(into) if line.startswith(DIVERGENCE)]
    assert "Kafka 0.10.2.2" in made
    assert "not made" not in made
    assert [line.split()[0] for line in listing(into) if "not made" in line] == ["healthy", "unclean-election", "tiered"]
