"""A simulated history: each action on a cluster, described in a sentence, with the state of all replicas after it."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Unpack

from msgspec import Struct, field

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.simulation import actions, control, transactions
from kafka_forensics.simulation.actions import FetchResult, SendOptions
from kafka_forensics.simulation.cluster import ABORT, COMMIT, Batch, Cluster, ProduceRequest, SimulatedPartition
from kafka_forensics.simulation.producers import ConsumedIds, Producer, base_sequence_of, consume, produce
from kafka_forensics.simulation.transactions import FENCED, INVALID, OK, Coordinator, complete

LEADS: Final = "leader"
FOLLOWS: Final = "follower"
PAUSED: Final = "frozen"
DEAD: Final = "dead"
STALE: Final = "stale leader"
"""It considers itself leader, and the controller has another."""
PLAIN_PRODUCER: Final = Producer()
_REFUSALS: Final = {FENCED: "refused, it is fenced", INVALID: "refused, there is no such transaction"}


class ReplicaView(NamedTuple):
    """A replica at one moment; offsets are exclusive ends, `leader_epoch` the last one that its broker learned."""

    broker: int
    state: str
    """`LEADS`, `FOLLOWS`, `PAUSED`, `DEAD` or `STALE`."""
    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    batches: tuple[Batch, ...]


class PartitionView(NamedTuple):
    """A partition at one moment: the controller's state, and the replicas by broker."""

    topic_partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[ReplicaView, ...]


class Event(NamedTuple):
    """An action: its number from 1 on, milliseconds since the start, a sentence, and all partitions after it."""

    step: int
    after_ms: int
    text: str
    partitions: tuple[PartitionView, ...]


class ExpectedFinding(NamedTuple):
    """A finding that a scan of the final state must make; offsets `[start, end)`, None where it names none."""

    kind: str
    severity: str
    topic: str
    partition: int | None
    """None where it is about the topic."""
    broker: int | None = None
    offset_start: int | None = None
    offset_end: int | None = None
    held_by: tuple[int, ...] | None = None


class History(Struct):
    """A cluster and what has happened to it; each method acts on the cluster and adds an event.

    The optional `note` is appended to the event's sentence.
    """

    cluster: Cluster
    coordinator: Coordinator | None = None
    events: list[Event] = field(default_factory=list)
    expected: list[ExpectedFinding] = field(default_factory=list)
    consumed: list[ConsumedIds] = field(default_factory=list)
    """What consumers read of each partition at the end."""
    remarks: list[str] = field(default_factory=list)
    """Conclusions, a sentence each."""

    def add_event(self, text: str) -> None:
        """Record the action that was just taken, and advance the time."""
        cluster = self.cluster
        if self.coordinator is not None:
            complete(cluster, self.coordinator)
        partitions = tuple(_partition_view(cluster, partition) for partition in cluster.partitions.values())
        self.events.append(Event(len(self.events) + 1, cluster.now_ms - cluster.changes[0].timestamp_ms, text, partitions))
        cluster.tick()

    def create(
        self, topic: str, number: int = 0, assignment: tuple[int, ...] = (), *, min_insync_replicas: int = 1
    ) -> SimulatedPartition:
        """Create a partition, led by the first of its assignment; adds no event."""
        partition = self.cluster.create(topic, number, assignment, min_insync_replicas=min_insync_replicas)
        control.publish_metadata(self.cluster, partition)
        return partition

    def produce(
        self,
        partition: SimulatedPartition,
        producer: Producer = PLAIN_PRODUCER,
        count: int = 1,
        *,
        retry_of: ProduceRequest | None = None,
        **options: Unpack[SendOptions],
    ) -> ProduceRequest:
        """A producer sends a batch, see `producers.produce`."""
        request = produce(self.cluster, partition, producer, count, retry_of=retry_of, **options)
        name = f"producer {producer.producer_id}" if producer.is_idempotent else "a producer"
        verb = "sends" if retry_of is None else "sends again"
        acks = {0: " (acks=0)", 1: " (acks=1)"}.get(request.acks, "")
        response = "" if request.response == "waiting" else f": {request.response}"
        response += ", it already existed" if request.is_acknowledged and request.is_duplicate else ""
        response = response if request.is_answered else ": the answer is lost"
        self.add_event(f"{name} {verb} {records_text(request.ids)} to broker {request.leader}{acks}{response}")
        return request

    def produce_and_copy(self, partition: SimulatedPartition, count: int = 1) -> None:
        """A producer sends a batch, then the followers copy it."""
        self.produce(partition, count=count)
        self.copy_all(partition)

    def fetch(self, partition: SimulatedPartition, follower: int, *, answered: bool = True, note: str = "") -> None:
        """A follower fetches once."""
        result = actions.fetch(self.cluster, partition, follower, answered=answered)
        self.add_event(f"broker {follower} {_fetch_text(partition, result, answered=answered)}{note}")

    def copy_all(self, *partitions: SimulatedPartition) -> None:
        """Followers that run fetch until nothing changes."""
        for partition in partitions:
            followers = [broker for broker in partition.assignment if broker != partition.leader]
            for broker in followers * 3:
                actions.fetch(self.cluster, partition, broker)
        able = [broker for broker in followers if self.cluster.is_running(broker)]
        who = (
            f"{_brokers_text(able)} {'fetch' if len(able) > 1 else 'fetches'}"
            if len(self.cluster.partitions) == 1
            else "followers fetch"
        )
        self.add_event(f"{who} until all records are copied")

    def elect(
        self,
        partition: SimulatedPartition,
        *,
        unclean: bool | None = None,
        preferred: bool = False,
        receivers: tuple[int, ...] | None = None,
    ) -> None:
        """The controller elects a leader; `receivers` as for `control.run_election`."""
        outcome = control.run_election(self.cluster, partition, unclean=unclean, preferred=preferred, receivers=receivers)
        name = self._name_if_several(partition)
        kind = f"{f'for{name} ' if name else ''}{'uncleanly ' if outcome.kind == 'unclean' else ''}"
        others = [] if receivers is None else [broker for broker in partition.assignment if broker not in receivers]
        uninformed = [broker for broker in others if self.cluster.is_running(broker)]
        late = f"; {_brokers_text(uninformed)} {'does' if len(uninformed) == 1 else 'do'} not know it yet" if uninformed else ""
        self.add_event(f"broker {outcome.leader} is elected {kind}in epoch {partition.leader_epoch}{late}")

    def kill(self, broker: int, *, detected: bool = True) -> None:
        """A broker's process dies."""
        control.kill(self.cluster, broker, detected=detected)
        self.add_event(f"broker {broker} is killed{self._new_leaders_text(detected=detected)}")

    def lose_power(self, *brokers: int, detected: bool = True) -> None:
        """Machines lose power at the same moment."""
        removed = [batches for broker in brokers for batches in control.lose_power(self.cluster, broker, detected=detected)]
        lost = "; ".join(f"{records_text(batches.ids)} of broker {batches.broker} had not reached the disk" for batches in removed)
        verb = "loses" if len(brokers) == 1 else "lose"
        self.add_event(f"{_brokers_text(brokers)} {verb} power{f': {lost}' if lost else ''}")

    def stop(self, broker: int) -> None:
        """A clean shutdown."""
        control.stop(self.cluster, broker)
        self.add_event(f"broker {broker} is shut down cleanly{self._new_leaders_text(detected=True)}")

    def start(self, broker: int) -> None:
        """A dead broker starts."""
        partitions = self.cluster.partitions.values()
        epochs = [partition.leader_epoch for partition in partitions]
        removed = control.start(self.cluster, broker)
        led = [
            f" and leads in epoch {partition.leader_epoch}"
            for partition, epoch in zip(partitions, epochs, strict=True)
            if partition.leader_epoch > epoch and partition.leader == broker
        ]
        cut = "".join(f", cutting {records_text(batches.ids)} at its high watermark {batches.end_offset}" for batches in removed)
        self.add_event(f"broker {broker} starts{''.join(led[:1])}{cut}")

    def pause(self, broker: int, *, detected: bool = False) -> None:
        """A broker stops responding."""
        control.pause(self.cluster, broker, detected=detected)
        self.add_event(f"broker {broker} stops responding{self._new_leaders_text(detected=detected)}")

    def resume(self, broker: int) -> None:
        """A paused broker continues."""
        control.resume(self.cluster, broker)
        self.add_event(f"broker {broker} continues")

    def shrink(self, partition: SimulatedPartition) -> None:
        """The leader removes lagging followers from the ISR."""
        removed = actions.shrink_isr(self.cluster, partition)
        self.add_event(f"broker {partition.leader} puts {_brokers_text(sorted(removed))} out of the ISR")

    def checkpoint(self, *brokers: int) -> None:
        """Brokers write their high watermarks to disk, as they do every five seconds; adds no event."""
        for broker in filter(self.cluster.is_running, brokers or self.cluster.brokers):
            actions.checkpoint_high_watermarks(self.cluster, broker)

    def flush(self, *brokers: int) -> None:
        """Brokers flush their logs; adds no event."""
        for broker in filter(self.cluster.is_running, brokers or self.cluster.brokers):
            actions.flush(self.cluster, broker)

    def wait(self, seconds: int, text: str) -> None:
        """Time passes."""
        self.cluster.tick(1000 * seconds)
        self.add_event(text)

    def shut_down(self) -> None:
        """The end: consumers read once more, the controller stops, and every running broker shuts down cleanly; adds no event."""
        cluster = self.cluster
        self.consumed = [consume(cluster, partition) for partition in cluster.partitions.values()]
        for broker in filter(cluster.is_running, cluster.brokers):
            actions.checkpoint_high_watermarks(cluster, broker)
            actions.flush(cluster, broker)
            cluster.stopped_cleanly.add(broker)
            cluster.dead.add(broker)

    def expect(
        self,
        kind: str,
        severity: str,
        partition: SimulatedPartition,
        broker: int | None = None,
        offsets: tuple[int, int] | None = None,
        held_by: Iterable[int] | None = None,
    ) -> None:
        """Add a finding about a partition that a scan must make; offsets `[start, end)`, None where it names none."""
        start, end = offsets or (None, None)
        holders = None if held_by is None else tuple(held_by)
        self.expected.append(ExpectedFinding(kind, severity, partition.topic, partition.number, broker, start, end, holders))

    def add_conclusion(self, sentence: str) -> None:
        """Add a conclusion."""
        self.remarks.append(sentence)

    def begin(self, producer: Producer, *, note: str = "") -> None:
        """A client gets its producer id and a new epoch."""
        result = transactions.init_producer_id(self.cluster, self._coordinator, producer)
        epoch = f"has epoch {producer.producer_epoch} of producer {producer.producer_id}"
        self.add_event(f"{producer.transactional_id} {epoch if result == OK else 'has to wait for its epoch'}{note}")

    def write(self, partition: SimulatedPartition, producer: Producer, *, adds_partition: bool = True, note: str = "") -> None:
        """A transaction writes a record; it adds the partition to the transaction first unless `adds_partition` is False."""
        if adds_partition:
            transactions.add_partitions(self.cluster, self._coordinator, producer, [partition.name])
        request = transactions.write(self.cluster, self._coordinator, partition, producer)
        target = f"{records_text(request.ids)} to {_name(partition)}"
        self.add_event(f"{producer.transactional_id} writes {target}{_refusal_text(request)}{note}")

    def send_delayed(self, partition: SimulatedPartition, producer: Producer) -> ProduceRequest:
        """A transaction sends a record that the network delays until `arrive`."""
        ids = self.cluster.new_ids(1)
        base_sequence_of(producer, partition, ids)
        self.add_event(f"{producer.transactional_id} sends {records_text(ids)} to {_name(partition)}, and the network delays it")
        return ProduceRequest(partition.name, ids, -1, partition.leader, partition.leader_epoch)

    def arrive(self, partition: SimulatedPartition, producer: Producer, delayed: ProduceRequest) -> None:
        """A delayed record arrives."""
        request = transactions.write(self.cluster, self._coordinator, partition, producer, retry_of=delayed)
        self.add_event(f"{records_text(delayed.ids)} arrives at {_name(partition)}{_refusal_text(request)}")

    def end(self, producer: Producer, *, commit: bool, delayed: bool = False, note: str = "") -> None:
        """A client ends its transaction; `delayed`: a request for an earlier transaction arrives only now."""
        name, verb = str(producer.transactional_id), "commit" if commit else "abort"
        coordinator = self._coordinator
        result = transactions.end_transaction(self.cluster, coordinator, name, producer.producer_epoch, commit=commit)
        outcome = _REFUSALS.get(result)
        if outcome is None:
            prepared = next(
                state for _, key, state in reversed(coordinator.log) if key == name and state.state.startswith("Prepare")
            )
            outcome = (
                f"{COMMIT if commit else ABORT} in {' and '.join(f'{topic}-{number}' for topic, number in prepared.partitions)}"
            )
        what = f"the late {verb} of {name} arrives" if delayed else f"{name} {verb}s"
        self.add_event(f"{what}: {outcome}{note}")
        if not delayed:
            transactions.take_next_epoch(coordinator, producer)

    @property
    def _coordinator(self) -> Coordinator:
        assert self.coordinator is not None
        return self.coordinator

    def _new_leaders_text(self, *, detected: bool) -> str:
        """The leaders that were elected since the last event."""
        if not detected:
            return ", which is not noticed yet"
        epochs = {partition.topic_partition: partition.leader_epoch for partition in self.events[-1].partitions}
        texts = []
        for partition in self.cluster.partitions.values():
            if partition.leader_epoch > epochs[partition.name]:
                name = self._name_if_several(partition)
                leads = f"broker {partition.leader} leads{name} in epoch {partition.leader_epoch}"
                texts.append(f"no leader{name}" if partition.leader == NO_LEADER else leads)
        return f"; {', '.join(texts)}" if texts else ""

    def _name_if_several(self, partition: SimulatedPartition) -> str:
        """The name of a partition after a space, where there are several."""
        return f" {_name(partition)}" if len(self.cluster.partitions) > 1 else ""


def records_text(ids: Iterable[int]) -> str:
    """Record ids as `r0 r1`, longer runs as `r0..r4`, and the number of markers."""
    all_ids = list(ids)
    records = [record_id for record_id in all_ids if record_id >= 0]
    markers = len(all_ids) - len(records)
    text = " ".join(f"r{record}" for record in records)
    if len(records) > 2 and records == list(range(records[0], records[-1] + 1)):
        text = f"r{records[0]}..r{records[-1]}"
    markers_text = "" if not markers else "a marker" if markers == 1 else f"{markers} markers"
    return " and ".join(filter(None, (text, markers_text))) or "nothing"


def _partition_view(cluster: Cluster, partition: SimulatedPartition) -> PartitionView:
    replicas = tuple(
        ReplicaView(
            broker,
            _state(cluster, partition, broker),
            replica.log_end_offset,
            replica.high_watermark,
            replica.leader_epoch,
            tuple(replica.batches),
        )
        for broker, replica in sorted(partition.replicas.items())
    )
    isr, elr = partition.in_order(partition.isr), partition.in_order(partition.elr)
    return PartitionView(partition.name, partition.leader, partition.leader_epoch, isr, elr, replicas)


def _state(cluster: Cluster, partition: SimulatedPartition, broker: int) -> str:
    if not cluster.is_running(broker):
        return DEAD if broker in cluster.dead else PAUSED
    if not partition.replicas[broker].leads:
        return FOLLOWS
    return LEADS if partition.leader == broker else STALE


def _brokers_text(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {' and '.join(map(str, brokers))}"


def _fetch_text(partition: SimulatedPartition, result: FetchResult, *, answered: bool) -> str:
    assert not result.failure
    parts = []
    if result.truncated is not None:
        parts.append(f"cuts {records_text(result.truncated.ids)}, back to {result.truncated.end_offset}")
    if not answered:
        parts.append(f"fetches from broker {result.leader}; the response is lost")
    elif result.end > result.start:
        batches = partition.replicas[result.leader].batches
        copied = [record_id for batch in batches if result.start <= batch.base_offset < result.end for record_id in batch.ids]
        parts.append(f"fetches {records_text(copied)} from broker {result.leader}")
    else:
        parts.append(f"fetches from broker {result.leader} and gets no new record")
    if result.joined:
        parts.append("is back in the ISR")
    return ", ".join(parts)


def _refusal_text(request: ProduceRequest) -> str:
    if request.response in ("waiting", "acknowledged"):
        return ""
    return f": {_REFUSALS.get(request.response, request.response)}"


def _name(partition: SimulatedPartition) -> str:
    return f"{partition.topic}-{partition.number}"
