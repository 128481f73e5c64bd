"""What happened to a cluster over time, by the controllers' log: elections, changes of ISRs, and brokers that were down."""

from collections import Counter, defaultdict

from msgspec import Struct, field

from kafka_forensics.model.controller import NO_LEADER, ControllerHistory, PartitionEvent
from kafka_forensics.model.findings import TopicPartition


class Moment(Struct):
    """Changes at one time. A counter has numbers of partitions by broker."""

    time_ms: int
    fenced: set[int] = field(default_factory=set)
    unfenced: set[int] = field(default_factory=set)
    elected: Counter[int] = field(default_factory=Counter)
    """Leaders from the ISR or the ELR."""
    unclean: defaultdict[int, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))
    """Leader of an unclean election → its partitions."""
    left_isr: Counter[int] = field(default_factory=Counter)
    joined_isr: Counter[int] = field(default_factory=Counter)
    out_of_sync: Counter[int] = field(default_factory=Counter)
    """Broker → change of the number of partitions that it should hold and in whose ISR it is not."""
    leaderless: int = 0
    """Partitions that lose their leader."""

    @property
    def changes(self) -> bool:
        """Whether there is more than a new partition."""
        parts = self.fenced, self.unfenced, self.elected, self.unclean, self.left_isr, self.joined_isr, self.leaderless
        return any(map(bool, parts))

    def add(self, later: "Moment") -> None:
        """Add the changes of a later moment."""
        self.fenced |= later.fenced
        self.unfenced |= later.unfenced
        self.elected.update(later.elected)
        self.left_isr.update(later.left_isr)
        self.joined_isr.update(later.joined_isr)
        self.out_of_sync.update(later.out_of_sync)
        self.leaderless += later.leaderless
        for broker, partitions in later.unclean.items():
            self.unclean[broker] += partitions


class ClusterHistory(Struct, frozen=True):
    """The moments of a cluster, ascending; `end_ms` is the newest time in the controllers' log."""

    moments: list[Moment]
    end_ms: int


def cluster_history(controller: ControllerHistory | None) -> ClusterHistory | None:
    """The history of all partitions and brokers in the controllers' log; None without one."""
    if controller is None or controller.last_ms is None:
        return None
    moments: dict[int, Moment] = {}
    for topic in controller.topics.values():
        for number, partition in topic.partitions.items():
            before: PartitionEvent | None = None
            for event in partition.events:
                moment = moments.setdefault(event.timestamp_ms, Moment(event.timestamp_ms))
                _add_change(moment, before, event, (topic.topic, number))
                before = event
    known: set[int] = set()
    for change in controller.brokers:
        if change.is_fenced and change.broker not in known:
            continue  # a broker registers before it runs
        known.add(change.broker)
        moment = moments.setdefault(change.timestamp_ms, Moment(change.timestamp_ms))
        (moment.fenced if change.is_fenced else moment.unfenced).add(change.broker)
    return ClusterHistory(sorted(moments.values(), key=lambda moment: moment.time_ms), controller.last_ms)


def _add_change(moment: Moment, before: PartitionEvent | None, event: PartitionEvent, partition: TopicPartition) -> None:
    """Add the difference between two successive states of a partition; `before` is None for the first."""
    out, out_before = _out_of_sync(event), _out_of_sync(before)
    moment.out_of_sync.update(out - out_before)
    moment.out_of_sync.subtract(out_before - out)
    if before is None or event.kind == "deleted":
        return
    leader, isr, isr_before = event.state.leader, set(event.state.isr), set(before.state.isr)
    moment.left_isr.update((isr_before - isr) & out)
    moment.joined_isr.update((isr - isr_before) & out_before - ({leader} if event.is_unclean else set()))
    if event.is_unclean:
        moment.unclean[leader].append(partition)
    elif leader not in (before.state.leader, NO_LEADER):
        moment.elected[leader] += 1
    moment.leaderless += leader == NO_LEADER != before.state.leader


def _out_of_sync(event: PartitionEvent | None) -> set[int]:
    if event is None or event.kind == "deleted":
        return set()
    return set(event.state.replica_assignment) - set(event.state.isr)
