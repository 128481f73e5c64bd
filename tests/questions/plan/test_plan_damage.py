"""Plans on damaged copies: one flipped byte hides no offset, and a rotten copy is known as the good one's."""

from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import Amount, Planned, PlanOptions, make_plans
from kafka_forensics.replication.planner.plans import Missing
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteFile
from tests.support.replicas import put_replica
from tests.support.segments import batch

LOG = [batch(0, 3), batch(3, 3), batch(6, 4)]


def flipped(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 0x40]) + log[at + 1 :]


def stop_cleanly(log_dir: Path) -> None:
    """No recovery runs at the next start, not even for want of an index."""
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    for kind in ("index", "timeindex"):
        (log_dir / "orders-0" / f"{0:020d}.{kind}").write_bytes(b"")


def planned_of(tmp_path: Path, *logs: bytes, clean: bool = True) -> Planned:
    for broker, log in enumerate(logs, 1):
        log_dir = put_replica(tmp_path, broker, log, high_watermark=10 if len(log) == sum(map(len, LOG)) else 6)
        if clean:
            stop_cleanly(log_dir)
    (planned,) = make_plans([str(tmp_path)], ScanOptions(), PlanOptions()).planned
    return planned


def costs(planned: Planned, broker: int) -> tuple[int, int]:
    candidate = planned.candidate(broker)
    assert candidate is not None
    return candidate.at_least, candidate.at_most


@pytest.mark.parametrize("clean", [True, False])
def test_the_only_copy_of_the_tail_is_damaged(tmp_path: Path, clean: bool) -> None:
    whole = b"".join(LOG)
    planned = planned_of(tmp_path, b"".join(LOG[:2]), flipped(whole, len(whole) - 3), clean=clean)
    first = planned.candidate(1)
    assert first is not None
    (loss,) = first.losses
    assert (loss.start, loss.end, loss.held_by, loss.committed) == (6, 10, (2,), 4)
    assert planned.amount(loss) == Amount(4, len(LOG[2]))
    assert costs(planned, 1) == (4, 4)
    assert costs(planned, 2) == ((0, 4) if clean else (4, 4)), "what recovery does not cut stays there, damaged"
    assert planned.plan.at_most_is_bound is False, "no controller's log is here"
    assert {finding.kind for finding in planned.findings} == {"BATCH_CRC_MISMATCH"}


def test_a_damaged_copy_of_what_another_holds_is_that(tmp_path: Path) -> None:
    whole = b"".join(LOG)
    planned = planned_of(tmp_path, whole, flipped(whole, len(LOG[0]) + 70))
    assert planned.given.replicas[1].damaged == ((3, 6),)
    assert planned.given.differing == {}
    assert costs(planned, 1) == (0, 0)
    second = planned.candidate(2)
    assert second is not None
    (loss,) = second.losses
    assert (loss.start, loss.end, loss.held_by, loss.kept_by) == (3, 6, (1, 2), (1, 2))
    assert planned.plan.recommended == 1


def test_what_a_damaged_copy_does_not_tell_a_good_one_does(tmp_path: Path) -> None:
    """Not even the header is left of a batch of the first who holds what the third lacks."""
    rotten = LOG[0] + bytes((37 * number + 11) % 256 for number in range(len(LOG[1]))) + LOG[2]
    planned = planned_of(tmp_path, rotten, b"".join(LOG), LOG[0])
    third = planned.candidate(3)
    assert third is not None
    (loss,) = third.losses
    assert (loss.start, loss.end, loss.held_by) == (3, 10, (1, 2))
    assert planned.amount(loss) == planned.total(third.losses) == Amount(7, len(LOG[1] + LOG[2]))


def test_a_damaged_batch_of_another_history_is_its_own_version(tmp_path: Path) -> None:
    other = [*LOG[:2], batch(6, 4, epoch=1, value=b"other")]
    mine = b"".join([*LOG, batch(10, 2)])
    place = len(LOG[0]) + len(LOG[1]) + 70
    for broker, log, epochs in ((1, b"".join(other), "2\n0 0\n1 6\n"), (2, flipped(mine, place), "1\n0 0\n")):
        log_dir = put_replica(tmp_path, broker, log, high_watermark=10)
        (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text(f"0\n{epochs}")
        stop_cleanly(log_dir)
    (planned,) = make_plans([str(tmp_path)], ScanOptions(), PlanOptions()).planned
    first = planned.candidate(1)
    assert first is not None
    assert [(loss.start, loss.end, loss.held_by) for loss in first.losses] == [(6, 12, (2,))]
    assert costs(planned, 1) == (4, 6)


def test_bytes_behind_the_last_batch_that_nothing_names(tmp_path: Path) -> None:
    whole = b"".join(LOG)
    rubble = bytearray(whole)
    start = len(LOG[0]) + len(LOG[1])
    rubble[start : start + 40] = bytes(range(1, 41))
    rubble[start + 8 : start + 12] = (30).to_bytes(4, "big")
    planned = planned_of(tmp_path, b"".join(LOG[:2]), bytes(rubble))
    assert Missing("unknown_bytes", 2) in planned.plan.missing
    assert not planned.plan.at_most_is_bound


def test_damage_at_the_head_of_a_log_hides_what_the_others_hold(tmp_path: Path) -> None:
    """Framing is lost in the first batch. The checkpoint knows in which epoch the log begins, and it goes on in that."""
    zeroed = bytearray(b"".join(LOG[:2]))
    start = len(LOG[0]) - 8
    zeroed[start : start + 20] = bytes(20)
    for broker, log in ((1, bytes(zeroed)), (2, b"".join(LOG[:2]))):
        log_dir = put_replica(tmp_path, broker, log, high_watermark=10)
        (log_dir / "orders-0" / f"{6:020d}.log").write_bytes(LOG[2])
        (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        stop_cleanly(log_dir)
    (planned,) = make_plans([str(tmp_path)], ScanOptions(), PlanOptions()).planned
    assert planned.given.replicas[0].damaged == ((0, 6),)
    assert planned.given.differing == {}
    assert (costs(planned, 1), costs(planned, 2)) == ((0, 6), (0, 0))
    first = planned.candidate(1)
    assert first is not None
    assert [(loss.start, loss.end, loss.held_by) for loss in first.losses] == [(0, 6, (1, 2))]


@pytest.mark.parametrize(("checkpoint", "epoch"), [(None, 0), ("0\n2\n0 0\n1 6\n", 1)])
def test_damage_at_the_head_that_no_epoch_joins_stays_another_version(tmp_path: Path, checkpoint: str | None, epoch: int) -> None:
    """Nothing tells in which epoch the log begins, or it goes on in another: another leader may have written what stood there."""
    zeroed = bytearray(b"".join(LOG[:2]))
    zeroed[len(LOG[0]) - 8 : len(LOG[0]) + 12] = bytes(20)
    for broker, log in ((1, bytes(zeroed)), (2, b"".join(LOG[:2]))):
        log_dir = put_replica(tmp_path, broker, log, high_watermark=10)
        (log_dir / "orders-0" / f"{6:020d}.log").write_bytes(batch(6, 4, epoch=epoch))
        if checkpoint is not None:
            (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text(checkpoint)
        stop_cleanly(log_dir)
    (planned,) = make_plans([str(tmp_path)], ScanOptions(), PlanOptions()).planned
    assert planned.given.differing == {(0, 1): ((0, 6),)}


def test_a_log_that_cannot_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two segments of broker 1, as without the permission to read it."""
    for broker in (1, 2):
        log_dir = put_replica(tmp_path, broker, b"".join(LOG[:2]), high_watermark=10)
        (log_dir / "orders-0" / f"{6:020d}.log").write_bytes(LOG[2])
        stop_cleanly(log_dir)
    real = LocalSource.open

    def refusing(self: LocalSource, path: str) -> ByteFile:
        if path == f"broker-1/orders-0/{0:020d}.log":
            raise SourceError(path, "permission denied")
        return real(self, path)

    monkeypatch.setattr(LocalSource, "open", refusing)
    (planned,) = make_plans([str(tmp_path)], ScanOptions(), PlanOptions()).planned
    replica = planned.given.replicas[0]
    assert (replica.damaged, replica.unread, replica.end_is_known) == ((), ((0, 6),), True)
    assert Missing("log_not_read", 1) in planned.plan.missing
    assert costs(planned, 2) == (0, 0)
    assert planned.plan.recommended == 2
