"""The copies of one partition: from whose log each lost offset is read, and what two logs have in common."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.coordinators import TransactionLog
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, normalised, without
from kafka_forensics.replication.planner import NO_END, Broker, Loss, PlanPartition
from kafka_forensics.scanning.rereading.log_ranges import Endings, ReadLog
from kafka_forensics.scanning.rereading.record_states import ABORTED, COMMITTED, UNKNOWN

if TYPE_CHECKING:
    from kafka_forensics.model.results import Incomplete

Source = tuple[int, int, Broker | None]
"""Offsets `[start, end)` and from whose copy they are read; None: no copy has a good batch there."""
_NOTHING: Final[Ranges] = ()


class Copies:
    """The copies that were planned with; `replicas` and their `plans` are the first of `given.replicas`, in the same order.

    `asked` are the offsets from the first to the last that are lost, `kept` is the broker whose log stays.
    """

    def __init__(
        self,
        given: PlanPartition,
        replicas: Sequence[Replica],
        plans: Sequence[ReplicaPlan],
        coordinators: TransactionLog | None,
        asked: tuple[int, int],
        kept: Broker,
    ) -> None:
        self.given = given
        self.incomplete: list[Incomplete] = []
        self._replicas = replicas
        self._number: dict[Broker, int] = {}
        for number, replica in enumerate(given.replicas):
            self._number.setdefault(replica.broker, number)
        wanted = [(asked[0], max(asked[1], value.log_end_offset if value.broker == kept else 0)) for value in given.replicas]
        self._logs = [
            ReadLog(replica, plan, self.incomplete, offsets)
            for replica, plan, offsets in zip(replicas, plans, wanted[: len(plans)], strict=True)
        ]
        self._endings: dict[tuple[Broker, int], Endings] = {}
        self._coordinators = coordinators
        self.start = asked[0]
        self._sources: dict[Loss, list[Source]] = {}

    def log(self, broker: Broker) -> ReadLog | None:
        """A broker's log; None of one that has no copy here, and begins with an empty log."""
        number = self._number[broker]
        return self._logs[number] if number < len(self._logs) else None

    def endings(self, broker: Broker, end: int = NO_END) -> Endings:
        """How transactions ended in a broker's log, from the first lost offset on; `end`: where recovery will have cut it, and
        no coordinator writes a marker again."""
        if (broker, end) not in self._endings:
            log, replica = self._logs[self._number[broker]], self.given.replicas[self._number[broker]]
            doubtful = clipped(normalised((*replica.damaged, *replica.unread)), self.start, end)
            open_end = end == NO_END and (not replica.end_is_known or replica.has_unknown_bytes)
            coordinators = self._coordinators if end == NO_END else None
            self._endings[broker, end] = Endings(log, (self.start, end), doubtful, open_end=open_end, coordinators=coordinators)
        return self._endings[broker, end]

    def surviving_endings(self, kept: Broker) -> Endings:
        """The same in what stays of the log of `kept`."""
        replica = self.given.replicas[self._number[kept]]
        is_cut = bool(clipped(replica.on_disk, replica.log_end_offset, NO_END))
        return self.endings(kept, replica.log_end_offset if is_cut else NO_END)

    def txn_state(self, loss: Loss, facts: Sequence[int]) -> str:
        """How the transaction of a batch of a loss ended, by the logs of all who hold it: one may end before its marker."""
        states = {self.endings(broker).state(facts) for broker in loss.held_by if self.log(broker) is not None}
        decided = states & {COMMITTED, ABORTED}
        if len(decided) == 1:
            return decided.pop()
        return states.pop() if len(states) == 1 else UNKNOWN

    def sources(self, loss: Loss) -> list[Source]:
        """From whose copies to read a loss, by offsets: of who has payloads and the least damage there, then of the others."""
        if loss not in self._sources:
            left: Ranges = ((loss.start, loss.end),)
            sources: list[Source] = []
            for broker in sorted(loss.held_by, key=lambda broker: self._soundness(broker, loss)):
                rest = without(left, clipped(self._good(broker), loss.start, loss.end))
                sources += [(start, end, broker) for start, end in without(left, rest)]
                left = rest
            sources += [(start, end, None) for start, end in left]
            self._sources[loss] = sorted(sources, key=lambda source: source[0])
        return self._sources[loss]

    def surviving(self, kept: Broker) -> Ranges:
        """Offsets, from the first that is lost on, of the good batches that recovery leaves to the log of `kept`."""
        return clipped(self._good(kept), self.start, self.given.replicas[self._number[kept]].log_end_offset)

    def alike(self, kept: Broker, holders: Sequence[Broker]) -> Ranges:
        """Those of them at which it has what one of the holders has; all of them if it is a holder itself."""
        own, number = self.surviving(kept), self._number[kept]
        ranges: list[tuple[int, int]] = []
        for holder in holders:
            other = self._number[holder]
            if other == number:
                return own
            pair = (min(number, other), max(number, other))
            same = without(self._good(holder), self.given.differing.get(pair, ()))
            ranges += without(own, without(own, same))
        return normalised(ranges)

    def own(self, kept: Broker, holders: Sequence[Broker]) -> Ranges:
        """Those of them at which it has what none of the holders has."""
        return without(self.surviving(kept), self.alike(kept, holders))

    def is_damaged(self, loss: Loss, start: int, end: int) -> bool:
        """Whether a holder of a loss has damage at some of these offsets."""
        return any(clipped(self.given.replicas[self._number[broker]].damaged, start, end) for broker in loss.held_by)

    def _good(self, broker: Broker) -> Ranges:
        """Offsets of the good batches of a log."""
        number = self._number[broker]
        if number >= len(self._replicas):
            return _NOTHING
        return normalised((run.start_offset, run.end_offset) for run in self._replicas[number].state.continuity.runs)

    def _soundness(self, broker: Broker, loss: Loss) -> tuple[bool, int]:
        number = self._number[broker]
        in_bundle = number < len(self._logs) and self._logs[number].in_bundle
        return in_bundle, counted(clipped(self.given.replicas[number].damaged, loss.start, loss.end))
