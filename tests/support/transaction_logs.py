"""A small cluster with transactions: partitions `t-0`, `t-1` and the coordinators' log on three brokers, written by the clock, and
what befell its transactions.

Times are given in seconds after `START`, so that a test says what happened when.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kafka_forensics.model.coordinators import TransactionMetadata
from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_transaction_log_key, write_transaction_log_value
from kafka_forensics.writers.files import (
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
)
from tests.support.controller_log import CONTROLLER, ControllerLog, partition, topic
from tests.support.faults import CLUSTER_ID, TOPIC_ID, Brokers, Log, Written, put, write_files
from tests.support.segments import write_time_index

START = 1_700_000_000_000
APP, OTHER = "app-1", "other-1"
APP_ID, OTHER_ID = 1000, 2000
"""Producer ids of the two transactional ids."""
BROKERS = (1, 2, 3)


def ms(seconds: float) -> int:
    return START + round(1000 * seconds)


@dataclass(slots=True)
class DataLog(Log):
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    def data(self, at: float, producer_id: int = APP_ID, epoch: int = 0, count: int = 2) -> Written:
        sequence = self.sequences.get((producer_id, epoch), 0)
        self.sequences[producer_id, epoch] = sequence + count
        records = [replace(write, key=None, timestamp_delta=2) for write in self.records(count)]
        header = {"producer_id": producer_id, "epoch": epoch, "sequence": sequence}
        return self.write(records, ms(at), transactional=True, base_timestamp=ms(at) - 2, **header)

    def marker(self, at: float, *, commit: bool, producer_id: int = APP_ID, epoch: int = 0, coordinator_epoch: int = 0) -> Written:
        return self.end(producer_id, ms(at), commit=commit, epoch=epoch, coordinator_epoch=coordinator_epoch)

    def traffic(self, at: float) -> Written:
        """A transaction of somebody else, as a clock."""
        self.data(at, OTHER_ID)
        return self.marker(at + 0.02, commit=True, producer_id=OTHER_ID)


@dataclass(slots=True)
class CoordinatorLog(Log):
    def value(self, at: float, key: bytes, value: bytes | None) -> Written:
        return self.write([RecordToWrite(key, value)], ms(at))

    def state(
        self,
        at: float,
        state: str,
        partitions: tuple[int, ...] = (),
        *,
        name: str = APP,
        epoch: int = 0,
        version: int = 1,
        since: float | None = None,
        client: int = 0,
    ) -> Written:
        """The state of a transactional id from now on; `partitions` are those of `t`."""
        producer_id = APP_ID if name == APP else OTHER_ID
        listed = tuple(("t", number) for number in partitions)
        started = ms(at if since is None else since)
        metadata = TransactionMetadata(
            producer_id, epoch, 60_000, state, listed, ms(at), started, client_transaction_version=client
        )
        return self.value(at, write_transaction_log_key(name), write_transaction_log_value(metadata, version))

    def transaction(
        self, at: float, partitions: tuple[int, ...], *, commit: bool, name: str = APP, epoch: int = 0, client: int = 0
    ) -> None:
        """A whole transaction: 50 ms of data, then the decision, 40 ms for the markers; the epoch rises in version 2."""
        verdict, after = ("Commit" if commit else "Abort"), epoch + (client == 2)
        self.state(at, "Ongoing", partitions, name=name, epoch=epoch, client=client)
        self.state(at + 0.05, f"Prepare{verdict}", partitions, name=name, epoch=after, since=at, client=client)
        self.state(at + 0.09, f"Complete{verdict}", name=name, epoch=after, since=at, client=client)

    def expire(self, at: float, name: str = APP) -> Written:
        return self.value(at, write_transaction_log_key(name), None)


def _index_times(directory: Path, log: Log) -> None:
    """The time index as brokers write it: an entry only where the largest timestamp has risen."""
    for segment in log.segments or [0]:
        rising: list[tuple[int, int]] = []
        for one in log.of_segment(segment)[1:]:
            if not rising or one.max_timestamp > rising[-1][0]:
                rising.append((one.max_timestamp, one.last_offset))
        put(directory, segment, "timeindex", write_time_index(rising, segment))


Logs = Mapping[str, Log | Mapping[int, Log]]


def write_cluster(root: Path, logs: Logs, *, clean: bool = True) -> list[Path]:
    """The log directories of all brokers; a directory name (`t-0`) maps to one log, or to one a broker."""
    for broker in BROKERS:
        log_dir = root / f"b{broker}"
        log_dir.mkdir(parents=True)
        ends: dict[tuple[str, int], int] = {}
        for name, given in logs.items():
            log = given if isinstance(given, Log) else given.get(broker)
            if log is None:
                continue
            write_files(log_dir / name, log)
            _index_times(log_dir / name, log)
            topic, _, number = name.rpartition("-")
            ends[topic, int(number)] = log.next_offset
        (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, cluster_id=CLUSTER_ID))
        if clean:
            (log_dir / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(7))
        for which in ("replication", "recovery-point"):
            (log_dir / f"{which}-offset-checkpoint").write_bytes(write_offset_checkpoint(ends))
        (log_dir / "log-start-offset-checkpoint").write_bytes(write_offset_checkpoint(dict.fromkeys(ends, 0)))
        (log_dir / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({}))
    return sorted(root.iterdir())


TOO_LATE: Final = 20 * 60 + 1
"""Seconds: the maximum timeout of 15 minutes, five more, and one."""
LATE: Final = 20 * 60 + 20
COMMIT, ABORT, NOTHING = True, False, None
STATE: Final = "__transaction_state-0"
HEAD: Final = struct.pack(">hqhib", 1, APP_ID, 0, 60_000, 1)
TIMES: Final = struct.pack(">qq", 2, 1)
HUGE: Final = b"\xff\xff\xff\xff\x07"
LIES: Final = {
    "version": struct.pack(">h", 9) + HEAD[2:] + b"\0" + TIMES + b"\0",
    "short": HEAD + HUGE + b"\x02t\x02\0\0\0\0\0" * 3,
    "short of tags": HEAD + b"\0" + TIMES + HUGE,
    "state": HEAD[:-1] + b"\x63\0" + TIMES + b"\0",
}
"""Values of the coordinators' log that cannot be read, by what is wrong with them."""


def left_open(later: float) -> DataLog:
    """Two transactions end, a third begins at 10 s and is written to for two; somebody else goes on at `later`."""
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
    """What the coordinator wrote meanwhile; `third` is what it says of the third transaction."""
    log = CoordinatorLog()
    for number, commit in enumerate((True, False)):
        log.transaction(number, (0,), commit=commit)
    for at, state, partitions in third:
        log.state(at, state, partitions)
    for at in (11, later):
        log.transaction(at, (0,), commit=True, name=OTHER)
    return log


def forgotten(later: float, reason: str) -> CoordinatorLog:
    """A coordinator that will never end the third: `partition_not_listed`, `no_description` or `no_transactional_id`."""
    if reason == "no_transactional_id":
        return strangers(11, later)
    log = coordinator(later)
    if reason == "no_description":
        log.expire(later)
    return log


def strangers(*times: float) -> CoordinatorLog:
    log = CoordinatorLog()
    for at in times:
        log.transaction(at, (0,), commit=True, name=OTHER)
    return log


def late_write(later: float, epoch: int) -> tuple[DataLog, CoordinatorLog]:
    """A transaction is aborted under this epoch, and then a delayed request of epoch 0 arrives (KAFKA-9144)."""
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
    """A transaction's records are gone with their segment; the snapshot at the log start still holds it open."""
    data, state = DataLog(), CoordinatorLog()
    data.data(10)
    data.roll()
    data.traffic(later)
    state.state(10, "Ongoing" if listed else "Empty", (0,) if listed else ())
    state.transaction(later, (0,), commit=True, name=OTHER)
    brokers = brokers_of(root, {"t-0": data, STATE: state})
    without_segment(brokers, "t-0", 0)
    for path in brokers.log_dirs:
        (path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 2\n")
    return brokers


def ended(at: float, commit: bool | None, *, client: int = 0, traffic: float | None = 20.0) -> DataLog:
    """A partition with a transaction at `at` that ended so (None: not at all), and others before and behind it."""
    log = DataLog()
    log.traffic(0)
    log.data(at)
    if commit is not None:
        log.marker(at + 0.07, commit=commit, epoch=client // 2)
    if traffic is not None:
        log.traffic(at + traffic)
    return log


def decided(at: float, partitions: tuple[int, ...] = (0, 1), *, commit: bool = True, client: int = 0) -> CoordinatorLog:
    """The coordinator's log of one transaction over both partitions."""
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
    """The partition of a later transaction, which was aborted; in version 2 it has an epoch of its own."""
    log = DataLog()
    log.traffic(0)
    log.data(30.2, epoch=client // 2)
    log.marker(30.27, commit=False, epoch=client)
    log.traffic(50)
    return log


def cut_before() -> DataLog:
    """A partition whose copies were cut before the transaction, and then went on."""
    log = DataLog()
    log.traffic(0)
    log.lead(1)
    log.traffic(60)
    return log


def segmented() -> DataLog:
    """A partition that has the transaction's records in a segment of their own, at offset 3."""
    log = DataLog()
    log.traffic(0)
    log.roll()
    log.data(30)
    log.roll()
    log.marker(30.07, commit=True)
    log.traffic(60)
    return log


def cut_within(client: int, *, one_epoch: bool = False) -> dict[str, Log]:
    """Three transactions, committed, aborted and committed; the log ends behind the first one's records."""
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
    """A hundred transactions, a tenth of a second each, by clocks that differ by seven seconds; one may be torn."""
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
    """Six sound transactions: version 2 raises the epoch by one each (early 4.0: by two where it fenced); before, it stays."""
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
    """A partition with one record of an idempotent producer that stamps in microseconds."""
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


def brokers_of(root: Path, logs: Logs, *, clean: bool = True) -> Brokers:
    write_cluster(root, logs, clean=clean)
    first = next(iter(logs.values()))
    return Brokers(root, next(iter(first.values())) if isinstance(first, Mapping) else first)


def without_segment(brokers: Brokers, directory: str, base_offset: int) -> None:
    for path in brokers.log_dirs:
        for file in (path / directory).glob(f"{base_offset:020d}.*"):
            file.unlink()


def without_transaction(
    root: Path, *, commit: bool = True, clean: bool = True, start: int = 0, topic_id: str = TOPIC_ID
) -> list[Path]:
    """Three brokers: `t-0` as the coordinator decided, and `t-1`, which the decision lists too, empty from offset `start` on."""
    state = CoordinatorLog()
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.transaction(30, (0, 1), commit=commit)
    state.transaction(60, (0,), commit=True, name=OTHER)
    logs = {"t-0": ended(30, COMMIT if commit else ABORT), "t-1": DataLog(next_offset=start), "__transaction_state-0": state}
    paths = write_cluster(root, logs, clean=clean)
    for path in paths:
        starts = {("t", 0): 0, ("t", 1): start, ("__transaction_state", 0): 0}
        (path / "log-start-offset-checkpoint").write_bytes(write_offset_checkpoint(starts))
        for name in ("t-0", "t-1"):
            (path / name / "partition.metadata").write_bytes(write_partition_metadata(topic_id))
            if start and name == "t-1":
                for file in (path / name).glob(f"{0:020d}.*"):
                    file.rename(file.with_name(f"{start:020d}{file.suffix}"))
    return paths


def controller_since(root: Path, created: float, isr: tuple[int, ...] = BROKERS) -> Path:
    """The controller's log of a topic that was created at second `created`, with these replicas in sync."""
    states = [partition(list(isr), isr[0], partition_id=number, replicas=[1, 2, 3]) for number in (0, 1)]
    return ControllerLog(start_ms=ms(created)).lead([CONTROLLER]).append(topic(), *states).put(root)
