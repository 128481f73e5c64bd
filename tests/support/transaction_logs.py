"""A small cluster with transactions: partitions `t-0`, `t-1` and the coordinators' log on three brokers, written by the clock.

Times are given in seconds after `START`, so that a test says what happened when.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_forensics.model.coordinators import TransactionMetadata
from kafka_forensics.model.files import AbortedTxn, ProducerEntry
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
    write_marker,
    write_transaction_log_key,
    write_transaction_log_value,
)
from kafka_forensics.writers.files import write_clean_shutdown, write_meta_properties, write_offset_checkpoint
from tests.support.faults import CLUSTER_ID, Log, Written, put, write_files
from tests.support.segments import write_time_index

START = 1_700_000_000_000
APP, OTHER = "app-1", "other-1"
APP_ID, OTHER_ID = 1000, 2000
"""Producer ids of the two transactional ids."""
BROKERS = (1, 2, 3)


def ms(seconds: float) -> int:
    """Milliseconds of a moment."""
    return START + round(1000 * seconds)


@dataclass(slots=True)
class DataLog(Log):
    """A partition's log while it is written."""

    sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    def data(self, at: float, producer_id: int = APP_ID, epoch: int = 0, count: int = 2) -> Written:
        """Transactional records."""
        base, state = self.next_offset, self.producers.get(producer_id)
        sequence = self.sequences.get((producer_id, epoch), 0)
        self.sequences[producer_id, epoch] = sequence + count
        batch = write_batch(
            [replace(write, key=None, timestamp_delta=2) for write in self.records(count)],
            base_offset=base,
            base_timestamp=ms(at) - 2,
            partition_leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        first = base if state is None or state.current_txn_first_offset < 0 else state.current_txn_first_offset
        coordinator_epoch = -1 if state is None else state.coordinator_epoch
        last = base + count - 1
        self.producers[producer_id] = ProducerEntry(
            producer_id, epoch, sequence + count - 1, last, count - 1, ms(at), coordinator_epoch, first
        )
        return self.append(batch, last, ms(at))

    def marker(self, at: float, *, commit: bool, producer_id: int = APP_ID, epoch: int = 0, coordinator_epoch: int = 0) -> Written:
        """The marker that a coordinator wrote."""
        offset, state = self.next_offset, self.producers.get(producer_id)
        batch = write_marker(
            commit,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=ms(at),
            partition_leader_epoch=self.leader_epoch,
        )
        written = self.append(batch, offset, ms(at))
        known = state or ProducerEntry(producer_id, epoch, -1, -1, 0, ms(at), coordinator_epoch, -1)
        first = known.current_txn_first_offset
        bumped = {"producer_epoch": epoch, "last_sequence": -1, "last_offset": -1, "offset_delta": 0}
        changes = {"timestamp": ms(at), "coordinator_epoch": coordinator_epoch, "current_txn_first_offset": -1}
        changes |= bumped if epoch != known.producer_epoch else {}
        self.producers[producer_id] = replace(known, **changes)
        if not commit and first >= 0:
            still_open = [
                producer_entry.current_txn_first_offset
                for producer_entry in self.producers.values()
                if producer_entry.current_txn_first_offset >= 0
            ]
            entry = AbortedTxn(producer_id, first, offset, min(still_open, default=offset + 1))
            self.aborted.setdefault(written.segment, []).append(entry)
        return written

    def traffic(self, at: float) -> Written:
        """A transaction of somebody else, as a clock."""
        self.data(at, OTHER_ID)
        return self.marker(at + 0.02, commit=True, producer_id=OTHER_ID)


@dataclass(slots=True)
class CoordinatorLog(Log):
    """`__transaction_state-0` while it is written."""

    def value(self, at: float, key: bytes, value: bytes | None) -> Written:
        """Any record."""
        batch = write_batch(
            [RecordToWrite(key, value)],
            base_offset=self.next_offset,
            base_timestamp=ms(at),
            partition_leader_epoch=self.leader_epoch,
        )
        return self.append(batch, self.next_offset, ms(at))

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
        """The tombstone of an id."""
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
