"""Scan agrees with plan on the gallery and on archives of real brokers; tests of random histories check it, too."""

import tarfile
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import PlanOptions, make_plans
from tests.gallery.case import Case
from tests.gallery.cases import FAULTS, one_of_each_fault
from tests.support.archives import BROKER_ARCHIVES, archive_params
from tests.support.plan_values import unreported_losses

DAILY = {"kafka-4.3.0-unclean", "kafka-0.10.2.2-hw-truncation"}


@pytest.mark.faults
@pytest.mark.parametrize("case", one_of_each_fault(case for case in FAULTS if not case.live))
def test_scan_agrees_with_plan_on_every_fault(case: Case, tmp_path: Path) -> None:
    brokers = case.make(tmp_path)
    plans = make_plans([str(path) for path in brokers.log_dirs], ScanOptions(deep=False), PlanOptions())
    assert list(unreported_losses(plans)) == []


@pytest.mark.parametrize("archive", archive_params(*BROKER_ARCHIVES, nightly=[*{*BROKER_ARCHIVES} - DAILY]))
def test_scan_agrees_with_plan_on_real_brokers(archive: str, archives: Path, tmp_path: Path) -> None:
    with tarfile.open(archives / f"{archive}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    plans = make_plans([str(tmp_path)], ScanOptions(), PlanOptions())
    assert plans.partitions
    assert list(unreported_losses(plans)) == []
