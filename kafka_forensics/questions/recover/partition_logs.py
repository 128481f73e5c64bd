"""The logs of one partition: which of them each lost offset is read from, how transactions ended, and where two logs are equal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.coordinators import TransactionLog
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, counted, normalised, without
from kafka_forensics.replication.planner import NO_END, Broker, Loss, PlanPartition
from kafka_forensics.replication.remote_segments import with_equal_epochs
from kafka_forensics.scanning.rereading.log_ranges import LogRangeReader, TransactionEndings
from kafka_forensics.scanning.rereading.record_states import ABORTED, COMMITTED, UNKNOWN

if TYPE_CHECKING:
    from kafka_forensics.model.results import Incomplete


class RemoteLogNumber(NamedTuple):
    """Stands for the broker of one of several logs in remote stores."""

    number: int


LogOf = Broker | RemoteLogNumber
LossSource = tuple[int, int, LogOf | None]
"""Offsets `[start, end)` and whose log they are read from; None where no log has a good batch there."""


class PartitionLogs:
    """The logs a partition was planned with; `copies` belong to the first of `planned.replicas`, in order.

    `lost` are the offsets `[start, end)` from the first to the last lost one, `kept` is the broker whose log is kept. `remote` are
    the logs in remote stores.
    """

    def __init__(
        self,
        planned: PlanPartition,
        copies: Sequence[tuple[Replica, ReplicaPlan]],
        coordinators: TransactionLog | None,
        lost: Range,
        kept: Broker,
        remote: Sequence[tuple[Replica, ReplicaPlan]] = (),
    ) -> None:
        self.planned, self.kept = planned, kept
        self.incomplete: list[Incomplete] = []
        self._start, lost_end = lost
        self._coordinators = coordinators
        self._numbers: dict[Broker, int] = {}
        self._logs = []
        for number, planned_replica in enumerate(planned.replicas):
            self._numbers.setdefault(planned_replica.broker, number)
            if number < len(copies):
                end = max(lost_end, planned_replica.log_end_offset if planned_replica.broker == kept else 0)
                self._logs.append(LogRangeReader(*copies[number], self.incomplete, (self._start, end)))
        self._remote: dict[LogOf, LogRangeReader] = {
            RemoteLogNumber(number): LogRangeReader(*log, self.incomplete, (self._start, lost_end))
            for number, log in enumerate(remote)
        }
        self._endings: dict[tuple[LogOf, int], TransactionEndings] = {}
        self._sources: dict[Loss, list[LossSource]] = {}

    def log(self, broker: LogOf) -> LogRangeReader | None:
        """A broker's log; None if it has no copy here, and starts with an empty log."""
        if broker in self._remote:
            return self._remote[broker]
        number = self._number(broker)
        return self._logs[number] if number < len(self._logs) else None

    def endings(self, broker: LogOf, end: int = NO_END) -> TransactionEndings:
        """How transactions ended in a broker's log, from the first lost offset on.

        `end` is where recovery will truncate the log: then no coordinator writes missing markers again.
        """
        if broker in self._remote and (broker, end) not in self._endings:
            log = self._remote[broker]
            gaps = without(((self._start, log.replica.log_end_offset),), log.replica.good_ranges)
            self._endings[broker, end] = TransactionEndings(log, (self._start, end), gaps, open_end=True, coordinators=None)
        if (broker, end) not in self._endings:
            log, replica = self._logs[self._number(broker)], self.planned.replicas[self._number(broker)]
            doubtful = clipped(normalised((*replica.damaged, *replica.unread)), self._start, end)
            open_end = end == NO_END and (not replica.end_is_known or replica.has_unknown_bytes)
            coordinators = self._coordinators if end == NO_END else None
            self._endings[broker, end] = TransactionEndings(
                log, (self._start, end), doubtful, open_end=open_end, coordinators=coordinators
            )
        return self._endings[broker, end]

    def surviving_endings(self) -> TransactionEndings:
        """How transactions ended in what recovery leaves of the kept log."""
        replica = self.planned.replicas[self._numbers[self.kept]]
        is_truncated = bool(clipped(replica.on_disk, replica.log_end_offset, NO_END))
        return self.endings(self.kept, replica.log_end_offset if is_truncated else NO_END)

    def txn_state(self, loss: Loss, facts: Sequence[int], source: LogOf) -> str:
        """How the transaction of a lost batch ended, by the logs of all holders: one may end before its marker.

        `source` is the log that the batch was read from. Of a transaction that begins in a remote store the marker may be in a
        local log that follows.
        """
        holders = [broker for broker in loss.held_by if self.log(broker) is not None]
        if source in self._remote:
            state, end = self.endings(source).state(facts), self._remote[source].replica.log_end_offset
            if state != UNKNOWN:
                return state
            holders = [broker for broker in holders if self._logs[self._numbers[broker]].replica.local_log_start_offset <= end]
        states = {self.endings(broker).state(facts) for broker in holders} or {UNKNOWN}
        decided = states & {COMMITTED, ABORTED}
        if len(decided) == 1:
            return decided.pop()
        return states.pop() if len(states) == 1 else UNKNOWN

    def sources(self, loss: Loss) -> list[LossSource]:
        """The logs to read a loss from, by offset: those with payloads and the least damage there, then the others."""

        def order(broker: Broker) -> tuple[bool, int]:
            log, damaged = self.log(broker), self.planned.replicas[self._numbers[broker]].damaged
            return log is not None and log.is_collected, counted(clipped(damaged, loss.start, loss.end))

        if loss not in self._sources:
            left: Ranges = ((loss.start, loss.end),)
            sources: list[LossSource] = []
            for broker in sorted(loss.held_by, key=order):
                rest = without(left, clipped(self._good(broker), loss.start, loss.end))
                sources += [(start, end, broker) for start, end in without(left, rest)]
                left = rest
            for remote_log in sorted(self._remote, key=lambda remote_log: not self._has_witness(remote_log, loss)):
                rest = without(left, self._remote_part(remote_log, loss))
                sources += [(start, end, remote_log) for start, end in without(left, rest)]
                left = rest
            sources += [(start, end, None) for start, end in left]
            self._sources[loss] = sorted(sources, key=lambda source: source[0])
        return self._sources[loss]

    def _has_witness(self, broker: LogOf, loss: Loss) -> bool:
        """Whether a remote log has the segment that proves a loss committed."""
        return loss.witness is not None and loss.witness.name in self._remote[broker].replica.context.segment_ids.values()

    def _remote_part(self, broker: LogOf, loss: Loss) -> Ranges:
        """The offsets of a loss that a remote log has: as its holders, or without any, otherwise than the kept log."""
        log = self._remote[broker].replica
        good = clipped(log.good_ranges, loss.start, loss.end)
        if not loss.held_by:
            return without(good, with_equal_epochs(good, log.epochs, self._epochs(self.kept)))
        return normalised(span for holder in loss.held_by for span in with_equal_epochs(good, log.epochs, self._epochs(holder)))

    def _number(self, broker: LogOf) -> int:
        assert not isinstance(broker, RemoteLogNumber)
        return self._numbers[broker]

    def _epochs(self, broker: Broker) -> Sequence[EpochEntry]:
        replica = self.planned.replicas[self._numbers[broker]]
        return replica.brokers_epochs or replica.epochs

    def surviving_remote(self) -> list[tuple[LogRangeReader, Ranges, TransactionEndings]]:
        """What remote logs have of the kept log before its local part, from the first lost offset on."""
        replica = self.planned.replicas[self._numbers[self.kept]]
        parts = []
        for broker, log in self._remote.items():
            good = clipped(log.replica.good_ranges, max(self._start, replica.log_start_offset), replica.copied_from)
            if ranges := with_equal_epochs(good, log.replica.epochs, self._epochs(self.kept)):
                parts.append((log, ranges, self.endings(broker)))
        return parts

    @property
    def lacks_surviving(self) -> bool:
        """Whether the kept log may have records after the first lost offset in a remote store that was not given."""
        replica = self.planned.replicas[self._numbers[self.kept]]
        start = max(self._start, replica.log_start_offset)
        kept = normalised(span for _, ranges, _ in self.surviving_remote() for span in ranges)
        return bool(without(((start, max(start, replica.copied_from)),), kept))

    def surviving(self, holders: Sequence[Broker]) -> tuple[Ranges, Ranges]:
        """Offsets of good batches that recovery leaves in the kept log, from the first lost offset on.

        First those at which it equals a holder's log (all of them if it belongs to a holder), then the others.
        """
        number = self._numbers[self.kept]
        surviving = clipped(self._good(self.kept), self._start, self.planned.replicas[number].log_end_offset)
        if any(self._numbers[holder] == number for holder in holders):
            return surviving, ()
        equal: list[Range] = []
        for holder in holders:
            first, second = sorted((number, self._numbers[holder]))
            equal_to_holder = without(self._good(holder), self.planned.differing.get((first, second), ()))
            equal += without(surviving, without(surviving, equal_to_holder))
        return normalised(equal), without(surviving, normalised(equal))

    def note_uncollected_survivors(self, losses: Sequence[Loss]) -> None:
        """Note the records that the kept log's bundle lacks too: they are needed once the lost ones are collected."""
        log = self.log(self.kept)
        if log is None or not log.is_collected:
            return
        parts = [self.surviving(loss.held_by) for loss in losses]
        ranges = normalised(span for equal, others in parts for span in (*others, *(equal if self.planned.compacted else ())))
        any(batch.data is None for batch in log.batches(ranges))

    def is_damaged(self, loss: Loss, start: int, end: int) -> bool:
        """Whether a holder of a loss has damage at some of these offsets."""
        return any(clipped(self.planned.replicas[self._numbers[broker]].damaged, start, end) for broker in loss.held_by)

    def _good(self, broker: Broker) -> Ranges:
        log = self.log(broker)
        return () if log is None else log.replica.good_ranges
