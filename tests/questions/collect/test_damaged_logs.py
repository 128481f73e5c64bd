"""Bundles of logs that disks, copies and attackers changed are judged like the logs themselves."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import kafka_forensics as kf
from tests.support.bundles import ORDERS, PAYMENTS, bundle_of, put_broker
from tests.support.segments import MUTATIONS, legacy_entry, log, write_legacy_wrapper

OLD = "old-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of which one log at a time is changed."""
    log_dir = put_broker(tmp_path_factory.mktemp("broker"), batches=9)
    wrapped = write_legacy_wrapper([legacy_entry(0), legacy_entry(1)], offset=3, magic=1, compression_type="gzip", timestamp=7)
    (log_dir / OLD).write_bytes(legacy_entry(0) + legacy_entry(1) + wrapped + b"".join(log(2, start=4)))
    return log_dir


def judged(path: Path) -> tuple[Any, ...]:
    scanned: dict[str, Any] = json.loads(kf.scan([str(path)]).to_json())
    findings = [{**finding, "log_dir": None, "message": None, "advice": None} for finding in scanned["findings"]]
    gaps = [gap for gap in scanned["incomplete"] if not gap["reason"].startswith("needs the records")]
    return findings, scanned["summary"], gaps


@given(seed=st.integers(0, (1 << 32) - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_logs_are_judged_alike(broker: Path, seed: int) -> None:
    rng = random.Random(seed)
    changed = broker.parent / "changed" / broker.name
    shutil.rmtree(changed.parent, ignore_errors=True)
    shutil.copytree(broker, changed)
    path = changed / rng.choice((ORDERS, PAYMENTS, OLD))
    data = path.read_bytes()
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(rng, data)
    path.write_bytes(data)
    assert judged(bundle_of(changed, broker.parent / "changed.kfb")) == judged(changed)
