"""Electable replicas that lack what a marker or a group's offset proves committed: a scan tells it as a plan counts it."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.wording import message
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support.controller_log import CONTROLLER, ControllerLog, partition, topic
from tests.support.faults import TOPIC_ID
from tests.support.group_records import commit_key, commit_value, log_of, put_offsets
from tests.support.plan_values import broken_laws
from tests.support.replicas import put_replica
from tests.support.segments import BASE_TIMESTAMP, batch
from tests.support.transaction_logs import CoordinatorLog, DataLog, Logs, ms, write_cluster

MISSING = "ISR_MEMBER_MISSING_COMMITTED"
END = 6
"""Behind the marker: three records of traffic, two of the transaction, the marker."""


def told(
    root: Path,
    *,
    client: int = 2,
    parted: bool = False,
    completed: bool = True,
    as_of: float = 2,
    isr: tuple[int, ...] = (1, 2),
    clean: bool = True,
    live: bool = False,
) -> list[Finding]:
    """Of broker 1, which ends before the transaction that 2 and 3 have; checkpoints know no watermark."""
    short, full, coordinator, other = DataLog(), DataLog(), CoordinatorLog(), DataLog()
    for log in (short, full, other):
        log.traffic(0)
    other.plain()
    epoch = 1 if client == 2 else 0
    full.data(1, epoch=epoch)
    full.marker(1.07, commit=True, epoch=epoch)
    coordinator.state(1, "Ongoing", (0,), client=client)
    coordinator.state(1.05, "PrepareCommit", (0,), epoch=epoch, since=1, client=client)
    if completed:
        coordinator.state(1.09, "CompleteCommit", epoch=epoch, since=1, client=client)
    logs: Logs = {"t-0": {1: short, 2: full, 3: other if parted else full}, "__transaction_state-0": coordinator}
    write_cluster(root, logs, clean=clean)
    for broker in (1, 2, 3):
        low = write_offset_checkpoint({("t", 0): 0, ("__transaction_state", 0): coordinator.next_offset})
        (root / f"b{broker}" / "replication-offset-checkpoint").write_bytes(low)
    controllers = ControllerLog(start_ms=ms(as_of) - 2000).lead([CONTROLLER]).append(topic())
    controllers.append(partition([*isr], isr[0], replicas=[1, 2, 3])).put(root / f"c{CONTROLLER}")
    paths = [str(path) for path in sorted(root.iterdir())]
    plans = make_plans(paths, ScanOptions(topic_glob="t", live=live), PlanOptions())
    assert plans.result is not None
    assert live or list(broken_laws(plans)) == []
    findings = [finding for finding in plans.result.findings if finding.kind in (MISSING, "LRS_RISK")]
    if findings:
        [summary] = plans.result.partitions
        assert summary.high_watermark_at_least == END
        assert summary.verdict == "critical"
    return findings


@pytest.mark.parametrize(("isr", "kind"), [((1, 2), MISSING), ((1,), "LRS_RISK")])
def test_a_replica_that_may_be_elected_lacks_what_a_marker_proves(tmp_path: Path, isr: tuple[int, ...], kind: str) -> None:
    (finding,) = told(tmp_path, isr=isr)
    assert (finding.kind, finding.severity.value, finding.confidence.value) == (kind, "critical", "inferred")
    assert finding.place.broker == 1
    assert (finding.place.offset_start, finding.place.offset_end, finding.evidence["held_by"]) == (END - 3, END, [2, 3])
    assert f"once committed according to transaction marker {END - 1} of app-1 on broker" in message(finding)


def test_of_brokers_that_were_not_stopped_cleanly_it_is_suspected(tmp_path: Path) -> None:
    (finding,) = told(tmp_path, clean=False)
    assert finding.confidence.value == "suspected"
    assert "which is harmless if the copies were made one after another" in message(finding)


@pytest.mark.parametrize(
    "otherwise",
    [
        {"completed": False},
        {"client": 0},
        {"parted": True},
        {"as_of": 1.0},
        {"isr": (2, 3)},
        {"live": True},
    ],
    ids=str,
)
def test_where_nothing_proves_it_nothing_is_said(tmp_path: Path, otherwise: dict[str, object]) -> None:
    """Not completed; a marker of whatever transaction; another log; a controllers' log older than the marker; nobody who may be
    elected; copies of running brokers."""
    assert told(tmp_path, **otherwise) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "at_ms", "isr", "kinds"),
    [
        (8, 100, (1, 2), [MISSING]),
        (8, 100, (1,), ["LRS_RISK"]),
        (8, 100, (2,), []),
        (6, 100, (1, 2), []),
        (8, -100, (1, 2), []),
        (10, 100, (1, 2), []),
    ],
    ids=["in sync", "alone in sync", "not in sync", "it has them", "older than the record", "beyond every log"],
)
def test_what_a_group_committed_was_committed(
    tmp_path: Path, offset: int, at_ms: int, isr: tuple[int, ...], kinds: list[str]
) -> None:
    """Broker 1 ends at 6, broker 2 at 9; checkpoints know no watermark."""
    first = put_replica(tmp_path, 1, batch(0, 6), partition="t-0", topic_id=TOPIC_ID)
    second = put_replica(tmp_path, 2, batch(0, 6) + batch(6, 3), partition="t-0", topic_id=TOPIC_ID)
    put_offsets(second, log_of((commit_key(), commit_value(offset, timestamp=BASE_TIMESTAMP + at_ms))))
    for log_dir in (first, second):
        (log_dir / ".kafka_cleanshutdown").write_bytes(b"{}")
    controllers = ControllerLog().lead([CONTROLLER]).append(topic())
    controllers.append(partition([*isr], isr[0], replicas=[1, 2])).put(tmp_path / f"c{CONTROLLER}")
    plans = make_plans([str(path) for path in sorted(tmp_path.iterdir())], ScanOptions(topic_glob="t"), PlanOptions())
    assert plans.result is not None
    assert list(broken_laws(plans)) == []
    findings = [finding for finding in plans.result.findings if finding.kind in (MISSING, "LRS_RISK")]
    assert [finding.kind for finding in findings] == kinds
    for finding in findings:
        assert (finding.place.broker, finding.place.offset_start, finding.place.offset_end) == (1, 6, 8)
        assert finding.evidence["held_by"] == [2]
        assert "once committed according to offset 8 committed by group" in message(finding)
