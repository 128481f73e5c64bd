"""Which copies show that no coordinator reads a group's offsets."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap
from kafka_forensics.scanning.engine.local import scan
from tests.gallery.of_groups import grown
from tests.support.brokers import put_log_dir
from tests.support.bundles import make_bundle


def is_found(*paths: Path) -> bool:
    found = scan([str(path) for path in paths], ScanOptions(jobs=1)).findings
    return any(finding.kind == "COORDINATOR_STATE_MISPLACED" for finding in found)


@pytest.mark.parametrize(
    ("options", "expected"), [(CollectOptions(), True), (CollectOptions(pseudonyms=PseudonymMap("07" * 32, {})), False)]
)
def test_state_with_pseudonyms_is_never_misplaced(tmp_path: Path, options: CollectOptions, expected: bool) -> None:
    log_dirs = grown(tmp_path / "copies").log_dirs
    bundles = [make_bundle(log_dir, tmp_path / f"{log_dir.name}.kfb", options) for log_dir in log_dirs]
    assert is_found(*log_dirs)
    assert is_found(*bundles) is expected


def test_the_partitions_of_two_clusters_are_not_counted_together(tmp_path: Path) -> None:
    log_dirs = grown(tmp_path / "copies").log_dirs
    put_log_dir(tmp_path / "stranger", 9, {}, cluster_id="AAAAAAAAAAAAAAAAAAAACQ")
    assert not is_found(*log_dirs, tmp_path / "stranger")
