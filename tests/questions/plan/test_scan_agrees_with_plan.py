"""Scan agrees with plan: over the gallery and the archives of real brokers; random histories have it, too."""

import tarfile
from pathlib import Path

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import PlanOptions, make_plans
from tests.gallery.case import Case
from tests.gallery.cases import FAULTS, named
from tests.support.archives import OF_BROKERS
from tests.support.nightly import daily_subset
from tests.support.plan_values import broken_laws

CASES = [case for case in FAULTS if not case.live]


@pytest.mark.faults
@pytest.mark.parametrize("case", CASES, ids=named)
def test_of_every_fault(case: Case, tmp_path: Path) -> None:
    brokers = case.make(tmp_path)
    try:
        plans = make_plans([str(path) for path in brokers.log_dirs], ScanOptions(deep=False), PlanOptions())
    except UsageError:
        return  # nothing to plan: what was given is no log directory, or is given under another broker's number
    assert list(broken_laws(plans)) == []


@pytest.mark.corpora
@pytest.mark.parametrize("archive", daily_subset(["kafka-4.3.0-unclean", "kafka-0.10.2.2-hw-truncation"], OF_BROKERS))
def test_of_real_brokers(archive: str, corpora: Path, tmp_path: Path) -> None:
    with tarfile.open(corpora / f"{archive}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    plans = make_plans([str(tmp_path)], ScanOptions(), PlanOptions())
    assert plans.partitions
    assert list(broken_laws(plans)) == []
