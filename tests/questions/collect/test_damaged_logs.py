"""Bundles of logs that disks, copies and attackers changed give the same answers as the logs."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import kafka_forensics as kf
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap, redacted_logs
from tests.support.brokers import put_consumer_offsets, put_meta_properties
from tests.support.bundles import ORDERS, PAYMENTS, make_bundle, put_broker
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.segments import MUTATIONS, legacy_entry, log, write_legacy_wrapper

OLD = "old-0/00000000000000000000.log"
NEED_RECORDS = {"RECORD_MALFORMED", "RECOVERY_WOULD_TRUNCATE"}
MOST_OFFSET = 1 << 31


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory; the tests change one of its logs in a copy."""
    log_dir = put_broker(tmp_path_factory.mktemp("broker"), batches=9)
    wrapped = write_legacy_wrapper([legacy_entry(0), legacy_entry(1)], offset=3, magic=1, compression_type="gzip", timestamp=7)
    (log_dir / OLD).write_bytes(legacy_entry(0) + legacy_entry(1) + wrapped + b"".join(log(2, start=4)))
    return log_dir


def judged(path: Path) -> tuple[Any, ...]:
    scanned: dict[str, Any] = json.loads(kf.scan([str(path)]).to_json())
    findings = [{**finding, "log_dir": None, "message": None, "advice": None} for finding in scanned["findings"]]
    gaps = [gap for gap in scanned["incomplete"] if not gap["reason"].startswith("needs the records")]
    return findings, scanned["summary"], gaps


def judged_by_headers(path: Path) -> tuple[Any, ...]:
    """The answer of a scan that batch headers give, without offsets that no batch of the log can have."""
    scanned: dict[str, Any] = json.loads(kf.scan([str(path)]).to_json())
    findings = [
        [finding["kind"], finding["severity"], *(offset if (offset or 0) < MOST_OFFSET else None for offset in offsets)]
        for finding in scanned["findings"]
        if finding["kind"] not in NEED_RECORDS
        for offsets in [(finding["offset_start"], finding["offset_end"])]
    ]
    (replica,) = (replica for partition in scanned["partitions"] for replica in partition["replicas"])
    return sorted(map(str, findings)), replica["log_end_offset"], replica["records"]


@given(seed=st.integers(0, (1 << 32) - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_redacted_bundles_of_changed_logs_give_the_same_answers(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(redacted_logs, "PART_BYTES", rng.choice((1, 1 << 20)))
    log_dir = tmp_path / "broker-1"
    shutil.rmtree(log_dir, ignore_errors=True)
    put_meta_properties(log_dir, 1)
    data = b"".join(coordinator_batches((commit_key(f"group-{offset}"), commit_value(offset)), start=offset) for offset in range(9))
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(rng, data)
    place = rng.randrange(len(data))
    put_consumer_offsets(
        log_dir,
        data + rng.choice((b"", bytes(5), bytes(5000))) if rng.random() < 0.8 else data[:place] + bytes(9000) + data[place:],
    )
    bundle = make_bundle(log_dir, tmp_path / "redacted.kfb", CollectOptions(pseudonyms=PseudonymMap("07" * 32, {})))
    assert judged_by_headers(bundle) == judged_by_headers(log_dir)


@given(seed=st.integers(0, (1 << 32) - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bundles_of_changed_logs_give_the_same_answers(broker: Path, seed: int) -> None:
    rng = random.Random(seed)
    changed = broker.parent / "changed" / broker.name
    shutil.rmtree(changed.parent, ignore_errors=True)
    shutil.copytree(broker, changed)
    path = changed / rng.choice((ORDERS, PAYMENTS, OLD))
    data = path.read_bytes()
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(rng, data)
    path.write_bytes(data)
    assert judged(make_bundle(changed, broker.parent / "changed.kfb")) == judged(changed)
