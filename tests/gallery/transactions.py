"""States of transactions in a small cluster: partitions `t-0`, `t-1` and the coordinators' log on three brokers."""

import struct
from pathlib import Path
from typing import Final

from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import BROKERS, TOPIC_ID, Brokers, put_brokers, put_epochs, put_topic_id, write_checkpoint
from tests.support.controllers import CONTROLLER, ControllerLog, partition, topic
from tests.support.logs import APP_ID, OTHER, CoordinatorLog, DataLog, Log, ms
from tests.support.segments import segment_file

TOO_LATE: Final = 20 * 60 + 1
"""Seconds: the maximum timeout of 15 minutes, plus five minutes, plus one second."""
LATE: Final = 20 * 60 + 20
COMMIT, ABORT, NOTHING = True, False, None
STATE: Final = "__transaction_state-0"
HEAD: Final = struct.pack(">hqhib", 1, APP_ID, 0, 60_000, 1)
TIMES: Final = struct.pack(">qq", 2, 1)
HUGE_VARINT: Final = b"\xff\xff\xff\xff\x07"
MALFORMED_VALUES: Final = {
    "version": struct.pack(">h", 9) + HEAD[2:] + b"\0" + TIMES + b"\0",
    "short": HEAD + HUGE_VARINT + b"\x02t\x02\0\0\0\0\0" * 3,
    "short of tags": HEAD + b"\0" + TIMES + HUGE_VARINT,
    "state": HEAD[:-1] + b"\x63\0" + TIMES + b"\0",
}
"""Kind of damage → malformed value of the coordinators' log."""


def put_unlisted(root: Path) -> None:
    """Write an open transaction of `t-0` that no coordinator lists: the coordinator ended the previous one, and its log
    continues."""
    log, state = DataLog(), CoordinatorLog()
    log.data(1)
    log.marker(1.07, commit=False)
    state.transaction(1, (0,), commit=False)
    log.data(5)
    state.transaction(6, (1,), commit=False)
    put_brokers(root, {"t-0": log, STATE: state})


def left_open(later: float) -> DataLog:
    """Two transactions end, a third starts at 10 s and gets records for two seconds; another producer writes at `later`."""
    log = DataLog()
    for number, commit in enumerate((True, False)):
        log.data(number)
        log.marker(number + 0.07, commit=commit)
    log.data(10)
    log.traffic(11)
    log.data(12)
    log.traffic(later)
    return log


def coordinator(later: float, *third: tuple[float, str, tuple[int, ...]]) -> CoordinatorLog:
    """The coordinators' log of `left_open`; `third` are the records of the third transaction (second, state, partitions)."""
    log = CoordinatorLog()
    for number, commit in enumerate((True, False)):
        log.transaction(number, (0,), commit=commit)
    for at, state, partitions in third:
        log.state(at, state, partitions)
    for at in (11, later):
        log.transaction(at, (0,), commit=True, name=OTHER)
    return log


def forgotten(later: float, reason: str) -> CoordinatorLog:
    """A coordinator that never ends the third transaction: `partition_not_listed`, `no_description` or `no_transactional_id`."""
    if reason == "no_transactional_id":
        return other_transactions(11, later)
    log = coordinator(later)
    if reason == "no_description":
        log.expire(later)
    return log


def other_transactions(*times: float) -> CoordinatorLog:
    log = CoordinatorLog()
    for at in times:
        log.transaction(at, (0,), commit=True, name=OTHER)
    return log


def late_write(later: float, epoch: int) -> tuple[DataLog, CoordinatorLog]:
    """A transaction is aborted with this epoch, then a delayed request of epoch 0 arrives (KAFKA-9144)."""
    data, state = DataLog(), CoordinatorLog()
    data.data(0)
    data.marker(5.07, commit=False, epoch=epoch)
    data.data(6 if epoch else 4.9)
    data.traffic(later)
    state.state(0, "Ongoing", (0,))
    state.state(5.05, "PrepareAbort", (0,), epoch=epoch, since=0)
    state.state(5.09, "CompleteAbort", epoch=epoch, since=0)
    state.transaction(later, (0,), commit=True, name=OTHER)
    return data, state


def retained(root: Path, later: float, *, listed: bool) -> Brokers:
    """A transaction's records were deleted with their segment; the snapshot at the log start still has it open."""
    data, state = DataLog(), CoordinatorLog()
    data.data(10)
    data.roll()
    data.traffic(later)
    state.state(10, "Ongoing" if listed else "Empty", (0,) if listed else ())
    state.transaction(later, (0,), commit=True, name=OTHER)
    brokers = put_brokers(root, {"t-0": data, STATE: state})
    without_segment(brokers, "t-0", 0)
    for path in brokers.log_dirs:
        put_epochs(path / "t-0", (0, 2))
    return brokers


def ended(at: float, commit: bool | None, *, client: int = 0, traffic: float | None = 20.0) -> DataLog:
    """A partition with a transaction at `at` and its marker (None: no marker), and other transactions before and after it."""
    log = DataLog()
    log.traffic(0)
    log.data(at)
    if commit is not None:
        log.marker(at + 0.07, commit=commit, epoch=client // 2)
    if traffic is not None:
        log.traffic(at + traffic)
    return log


def decided(at: float, partitions: tuple[int, ...] = (0, 1), *, commit: bool = True, client: int = 0) -> CoordinatorLog:
    """The coordinators' log of one transaction over both partitions."""
    log = CoordinatorLog()
    log.transaction(0, (0, 1), commit=True, name=OTHER)
    log.transaction(at, partitions, commit=commit, client=client)
    return log


def prepared() -> CoordinatorLog:
    log = CoordinatorLog()
    log.transaction(0, (0, 1), commit=True, name=OTHER)
    log.state(30, "Ongoing", (0, 1))
    log.state(30.05, "PrepareCommit", (0, 1), since=30)
    return log


def another_one(client: int) -> DataLog:
    """The partition of a later transaction, which was aborted; in version 2 it has a higher epoch."""
    log = DataLog()
    log.traffic(0)
    log.data(30.2, epoch=client // 2)
    log.marker(30.27, commit=False, epoch=client)
    log.traffic(50)
    return log


def cut_before() -> DataLog:
    """A partition whose copies were truncated before the transaction, and then continued."""
    log = DataLog()
    log.traffic(0)
    log.lead(1)
    log.traffic(60)
    return log


def segmented() -> DataLog:
    """A partition with the transaction's records in a separate segment, at offset 3."""
    log = DataLog()
    log.traffic(0)
    log.roll()
    log.data(30)
    log.roll()
    log.marker(30.07, commit=True)
    log.traffic(60)
    return log


def cut_within(client: int, *, one_epoch: bool = False) -> dict[str, Log]:
    """Three transactions, committed, aborted and committed; the log ends after the records of the first."""
    data, state = DataLog(), CoordinatorLog()
    data.traffic(0)
    data.data(30)
    state.transaction(0, (0,), commit=True, name=OTHER)
    for number, commit in enumerate((COMMIT, ABORT, COMMIT)):
        state.transaction(30 + 10 * number, (0,), commit=commit, epoch=0 if one_epoch else number, client=client)
    return {"t-0": data, STATE: state}


def replaced_coordinator() -> DataLog:
    """Markers of coordinator epochs 3, 5, 4 and 5."""
    log = DataLog()
    for number, epoch in enumerate((3, 5, 4, 5)):
        log.data(number)
        log.marker(number + 0.07, commit=True, coordinator_epoch=epoch)
    return log


def many(torn: int | None) -> dict[str, Log]:
    """A hundred transactions, a tenth of a second each, with clocks that differ by seven seconds; one may be torn."""
    first, second, state = DataLog(), DataLog(), CoordinatorLog()
    first.traffic(0)
    second.traffic(0)
    for number in range(100):
        at = 30 + number / 10
        commit = number % 3 != 0
        for log, skew in ((first, 0.0), (second, 7.0)):
            log.data(at)
            shown = commit if log is first or number != torn else not commit
            log.marker(at + skew + 0.07, commit=shown)
        state.transaction(at, (0, 1), commit=commit)
    first.traffic(80)
    second.traffic(80)
    return cluster(first, second, state)


def epochs_of(client: int) -> tuple[DataLog, CoordinatorLog]:
    """Six sound transactions: version 2 raises the epoch by one (early 4.0: by two when it fenced); older versions keep it."""
    data, state = DataLog(), CoordinatorLog()
    epoch = 0
    for number in range(6):
        commit = number % 2 == 0
        twice = client == 2 and number == 3
        data.data(number, epoch=epoch)
        state.state(number, "Ongoing", (0,), epoch=epoch, client=client)
        epoch += (client == 2) + twice
        data.marker(number + 0.07, commit=commit, epoch=epoch)
        verdict = "Commit" if commit else "Abort"
        state.state(number + 0.05, f"Prepare{verdict}", (0,), epoch=epoch, since=number, client=client)
        state.state(number + 0.09, f"Complete{verdict}", epoch=epoch, since=number, client=client)
    return data, state


def wrong_clock() -> DataLog:
    """A partition with one record of an idempotent producer that uses microseconds as timestamps."""
    log = DataLog()
    stamp = 1000 * ms(0)
    records = [RecordToWrite(b"k", b"v")]
    batch = write_batch(records, base_offset=0, base_timestamp=stamp, producer_id=3000, producer_epoch=0, base_sequence=0)
    log.producers[3000] = ProducerEntry(3000, 0, 0, 0, 0, stamp, -1, -1)
    log.append(batch, 0, stamp)
    return log


def cluster(first: DataLog, second: DataLog, state: CoordinatorLog | None = None) -> dict[str, Log]:
    logs: dict[str, Log] = {"t-0": first, "t-1": second}
    return logs if state is None else logs | {STATE: state}


def after_retention() -> dict[str, Log]:
    second = DataLog(next_offset=90)
    second.traffic(60)
    return cluster(ended(30, COMMIT), second, decided(30))


def without_segment(brokers: Brokers, directory: str, base_offset: int) -> None:
    for path in brokers.log_dirs:
        for file in (path / directory).glob(segment_file(base_offset, "*")):
            file.unlink()


def without_transaction(
    root: Path, *, commit: bool = True, clean: bool = True, start: int = 0, topic_id: str = TOPIC_ID
) -> list[Path]:
    """Write three brokers with `t-0` as the coordinator decided, and `t-1`, also listed in the decision, empty from `start` on."""
    state = CoordinatorLog()
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.transaction(30, (0, 1), commit=commit)
    state.transaction(60, (0,), commit=True, name=OTHER)
    logs = {"t-0": ended(30, COMMIT if commit else ABORT), "t-1": DataLog(next_offset=start), "__transaction_state-0": state}
    paths = put_brokers(root, logs, clean=clean).log_dirs
    for path in paths:
        write_checkpoint(path, "log-start", start, "t-1")
        for name in ("t-0", "t-1"):
            put_topic_id(path / name, topic_id)
        for file in (path / "t-1").glob(segment_file(0, "*")) if start else ():
            file.rename(file.with_name(segment_file(start, file.suffix[1:])))
    return paths


def controller_since(root: Path, created: float, isr: tuple[int, ...] = BROKERS) -> Path:
    """Write the controller's log of a topic created at second `created`, with this ISR."""
    states = [partition(list(isr), isr[0], partition_id=number, replicas=[1, 2, 3]) for number in (0, 1)]
    return ControllerLog(start_ms=ms(created)).lead([CONTROLLER]).append(topic(), *states).put(root)
