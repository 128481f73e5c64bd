"""Any bytes in any file give findings and no exception; every byte is counted, and no input changes."""

import os
import random
import shutil
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine.local import scan
from tests.support.brokers import put_clean_shutdown
from tests.support.places import SAMPLES
from tests.support.segments import MUTATIONS, segment_file

SAMPLE = SAMPLES / "unclean-election" / "broker-1"
CASES_A_FILE = 800
DAILY = 50
"""Cases of each file in every run; `make nightly` runs all."""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    target = tmp_path / "broker-1"
    shutil.copytree(SAMPLE / "payments-0", target / "payments-0")
    for name in os.listdir(SAMPLE):
        if (SAMPLE / name).is_file():
            shutil.copy(SAMPLE / name, target / name)
    put_clean_shutdown(target)
    return target


INDEXES = [segment_file(0, kind) for kind in ("log", "index", "timeindex", "txnindex")]
OF_A_PARTITION = (*INDEXES, segment_file(79, "snapshot"), "leader-epoch-checkpoint", "partition.metadata")
CHECKPOINTS = [f"{kind}-offset-checkpoint" for kind in ("replication", "recovery-point", "log-start", "cleaner")]
NAMES = (*(f"payments-0/{name}" for name in OF_A_PARTITION), *CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown")


def test_every_kind_of_file_is_mutated(log_dir: Path) -> None:
    files = {path.relative_to(log_dir).as_posix() for path in log_dir.rglob("*") if path.is_file()}
    assert set(NAMES) == files - {"bootstrap.checkpoint"}
    assert len(NAMES) * CASES_A_FILE >= 10_000


@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_give_findings_and_no_exception(log_dir: Path, name: str, request: pytest.FixtureRequest) -> None:
    rng = random.Random(name)
    victim = log_dir / name
    original = victim.read_bytes()
    options = ScanOptions(deep=True)
    for case in range(CASES_A_FILE if request.config.getoption("--nightly") else DAILY):
        data = MUTATIONS[case % len(MUTATIONS)](rng, original)
        victim.write_bytes(data)
        result = scan([str(log_dir)], options)
        totals = result.totals
        assert totals.bytes_total == totals.bytes_decoded + totals.bytes_damaged + totals.bytes_skipped
        if name.endswith(".log"):
            assert totals.bytes_total == len(data), case
        assert result.incomplete == []
        assert victim.read_bytes() == data
