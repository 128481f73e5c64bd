"""Any bytes in any file: findings, never an exception, every byte accounted for, and inputs left as they were."""

import os
import random
import shutil
from pathlib import Path

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from tests.support.segments import MUTATIONS

pytestmark = pytest.mark.properties

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election" / "broker-1"
CASES_A_FILE = 800
DAILY = 50
"""Of each file's cases, in every run; `make nightly` takes them all."""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    target = tmp_path / "broker-1"
    shutil.copytree(SAMPLE / "payments-0", target / "payments-0")
    for name in os.listdir(SAMPLE):
        if (SAMPLE / name).is_file():
            shutil.copy(SAMPLE / name, target / name)
    (target / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":7}')
    return target


NAMES = (
    "payments-0/00000000000000000000.log",
    "payments-0/00000000000000000000.index",
    "payments-0/00000000000000000000.timeindex",
    "payments-0/00000000000000000000.txnindex",
    "payments-0/00000000000000000079.snapshot",
    "payments-0/leader-epoch-checkpoint",
    "payments-0/partition.metadata",
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
)


def test_every_kind_of_file_is_mutated(log_dir: Path) -> None:
    there = {path.relative_to(log_dir).as_posix() for path in log_dir.rglob("*") if path.is_file()}
    assert set(NAMES) == there - {"bootstrap.checkpoint"}
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
