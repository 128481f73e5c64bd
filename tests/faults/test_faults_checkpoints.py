"""Fault F32: any checkpoint of broker 2 that is none; the rest is judged, and what Kafka would make of it foretold."""

from pathlib import Path

import pytest

from tests.support.faults import HEALTHY, LOG_END, Brokers, healthy
from tests.support.faults_verdict import only, said, verdict

pytestmark = pytest.mark.faults

OFFLINE = {"replication-offset-checkpoint": 4, "t-0/leader-epoch-checkpoint": 4}
"""Without them the log directory goes offline."""
FORGOTTEN = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
FILES = (*OFFLINE, *FORGOTTEN, "cleaner-offset-checkpoint")
DIGITS = b"7" * 10_000_000


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def malformed(file: str, how: str) -> bytes:
    line = b"0 0" if file.startswith("t-0/") else b"t 0 72"
    entry = line.rpartition(b" ")[0]
    return {
        "count": b"0\n2147483647\n" + line + b"\n",
        "digits": b"0\n1\n" + entry + b" " + DIGITS + b"\n",
        "version": b"9\n1\n" + line + b"\n",
        "negative count": b"0\n-1\n" + line + b"\n",
        "digits of the count": b"0\n" + DIGITS + b"\n" + line + b"\n",
        "words": b"0\n1\n" + entry + b" seventy\n",
        "zeros": bytes(4096),
        "torn": b"0\n2\n" + line + b"\n" + entry,
    }[how]


HOW = ("count", "digits", "version", "negative count", "digits of the count", "words", "zeros", "torn")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", HOW)
def test_f32_checkpoint_that_is_none(brokers: Brokers, file: str, how: str) -> None:
    (brokers.log_dir(2) / file).write_bytes(malformed(file, how))
    brokers.flip(2, HEALTHY.at(40), 100)
    result = verdict(brokers)
    rest = [one for one in said(result) if one not in (("BATCH_CRC_MISMATCH", "error", 2), ("REPLICA_DIFFERS", "error", 2))]
    assert len(said(result)) == len(rest) + 2
    assert ("CHECKPOINT_MALFORMED", "warning", 2) in rest
    finding = only(result, "CHECKPOINT_MALFORMED")
    assert finding.place.file == file
    assert {kind for kind, severity, _ in rest if severity in ("error", "critical")} <= {"EPOCH_CACHE_MISMATCH"}
    replica = result.partitions[0].replicas[1]
    assert (replica.log_end_offset, replica.batches) == (LOG_END, len(HEALTHY.batches))
    assert replica.recovery is not None
    assert replica.recovery.starts == finding.evidence.get("starts", True) == (file not in OFFLINE)
    assert (4 in replica.recovery.checks) == (file in (*OFFLINE, *FORGOTTEN))


def test_f32_recovery_point_that_cannot_be_read_has_all_segments_walked(brokers: Brokers) -> None:
    brokers.crash(2)
    brokers.flip(2, HEALTHY.at(40), 100)
    assert "RECOVERY_WOULD_TRUNCATE" not in {kind for kind, _, _ in said(verdict(brokers))}
    (brokers.log_dir(2) / FORGOTTEN[0]).write_bytes(b"9\n1\nt 0 55\n")
    result = verdict(brokers)
    assert said(result) == [
        ("BATCH_CRC_MISMATCH", "error", 2),
        ("CHECKPOINT_MALFORMED", "warning", 2),
        ("RECOVERY_WOULD_TRUNCATE", "critical", 2),
        ("REPLICA_DIFFERS", "error", 2),
    ]
    assert only(result, "RECOVERY_WOULD_TRUNCATE").place.offset_start == 39
