"""Electable replicas that lack what a transaction's marker proves committed: told by a scan as a plan counts it, and by no less."""

from pathlib import Path

import pytest

from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.engine.planning import PlanOptions, make_plans
from kafka_forensics.model.findings import Finding
from kafka_forensics.wording import message
from kafka_forensics.writers.checkpoints import write_offset_checkpoint
from tests.support.controller_log import CONTROLLER, ControllerLog, partition, topic
from tests.support.plan_law import broken_laws
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
    found = [one for one in plans.result.findings if one.kind in (MISSING, "LRS_RISK")]
    if found:
        [summary] = plans.result.partitions
        assert summary.high_watermark_at_least == END
        assert summary.verdict == "critical"
    return found


@pytest.mark.parametrize(("isr", "kind"), [((1, 2), MISSING), ((1,), "LRS_RISK")])
def test_a_replica_that_may_be_elected_lacks_what_a_marker_proves(tmp_path: Path, isr: tuple[int, ...], kind: str) -> None:
    (one,) = told(tmp_path, isr=isr)
    assert (one.kind, one.severity.value, one.confidence.value, one.place.broker) == (kind, "critical", "inferred", 1)
    assert (one.place.offset_start, one.place.offset_end, one.evidence["held_by"]) == (END - 3, END, [2, 3])
    assert f"once committed according to transaction marker {END - 1} of app-1 on broker" in message(one)


def test_of_brokers_that_were_not_stopped_cleanly_it_is_suspected(tmp_path: Path) -> None:
    (one,) = told(tmp_path, clean=False)
    assert one.confidence.value == "suspected"
    assert "which is harmless if the copies were made one after another" in message(one)


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
