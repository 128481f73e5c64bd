"""A history told while it is played: every action with a sentence, and how all replicas stand after it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Unpack

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.elections import Elected
from kafka_forensics.simulation import actions, control, transactions
from kafka_forensics.simulation.actions import DroppedBatches, Fetched, Sending
from kafka_forensics.simulation.cluster import ABORT, COMMIT, Batch, Cluster, Partition, Sent
from kafka_forensics.simulation.producers import ConsumedIds, Producer, number, produce, read
from kafka_forensics.simulation.transactions import FENCED, INVALID, OK, Coordinator, complete

LEADS: Final = "leader"
FOLLOWS: Final = "follower"
FROZEN: Final = "frozen"
DEAD: Final = "dead"
STALE: Final = "stale leader"
"""It takes itself for the leader, and is not."""
PLAIN: Final = Producer()


class View(NamedTuple):
    """A replica at one moment; offsets are exclusive ends, `leader_epoch` the last it heard of."""

    broker: int
    state: str
    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    batches: tuple[Batch, ...]


class Moment(NamedTuple):
    """A partition at one moment: the controller's word, and its replicas in the order of the brokers."""

    topic_partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[View, ...]


class Event(NamedTuple):
    """A step: its number from 1 on, milliseconds since the beginning, what happened, how all partitions stand."""

    step: int
    after_ms: int
    text: str
    partitions: tuple[Moment, ...]


class Expected(NamedTuple):
    """A finding that a scan of the end must make; offsets `[start, end)`, None where it names none."""

    kind: str
    severity: str
    topic: str
    partition: int | None
    """None where it is about the topic."""
    broker: int | None = None
    offset_start: int | None = None
    offset_end: int | None = None
    held_by: tuple[int, ...] | None = None


@dataclass(slots=True)
class History:
    """A cluster, and what has happened to it so far."""

    cluster: Cluster
    coordinator: Coordinator | None = None
    events: list[Event] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    readings: list[ConsumedIds] = field(default_factory=list)
    """What consumers read at the end, of each partition."""
    remarks: list[str] = field(default_factory=list)
    """What the history teaches, a sentence each."""

    def tell(self, text: str) -> None:
        """Note a step that was just taken."""
        cluster = self.cluster
        if self.coordinator is not None:
            complete(cluster, self.coordinator)
        started = cluster.changes[0].timestamp_ms if cluster.changes else cluster.now_ms
        moments = tuple(moment(cluster, partition) for partition in cluster.partitions.values())
        self.events.append(Event(len(self.events) + 1, cluster.now_ms - started, text, moments))
        cluster.tick()

    def create(self, topic: str, number: int = 0, assignment: tuple[int, ...] = (), *, min_insync_replicas: int = 1) -> Partition:
        """A partition, led by the first of its assignment."""
        partition = self.cluster.create(topic, number, assignment, min_insync_replicas=min_insync_replicas)
        control.tell(self.cluster, partition)
        return partition

    def produce(
        self,
        partition: Partition,
        producer: Producer = PLAIN,
        count: int = 1,
        *,
        again: Sent | None = None,
        note: str = "",
        **how: Unpack[Sending],
    ) -> Sent:
        """A producer sends a batch, see `producers.produce`."""
        sent = produce(self.cluster, partition, producer, count, again=again, **how)
        who = producer_name(producer)
        verb = "sends" if again is None else "sends again"
        acks = {0: " (acks=0)", 1: " (acks=1)"}.get(sent.acks, "")
        self.tell(f"{who} {verb} {named(sent.ids)} to broker {sent.leader}{acks}{_answer(sent)}{note}")
        return sent

    def fetch(self, partition: Partition, follower: int, *, answered: bool = True, note: str = "") -> Fetched:
        """A follower fetches once."""
        done = actions.fetch(self.cluster, partition, follower, answered=answered)
        self.tell(f"broker {follower} {_fetched(partition, done, answered=answered)}{note}")
        return done

    def settle(self, partition: Partition, followers: Iterable[int] | None = None, *, quiet: bool = False) -> None:
        """Followers that run fetch until nothing changes."""
        who = tuple(partition.assignment if followers is None else followers)
        for _ in range(3):
            for broker in who:
                if broker != partition.leader:
                    actions.fetch(self.cluster, partition, broker)
        if not quiet:
            able = [broker for broker in who if broker != partition.leader and self.cluster.runs(broker)]
            self.tell(f"{_who(able)} {'fetch' if len(able) > 1 else 'fetches'} until nothing is left to copy")

    def elect(
        self,
        partition: Partition,
        *,
        unclean: bool | None = None,
        preferred: bool = False,
        hears: Iterable[int] | None = None,
        note: str = "",
    ) -> Elected:
        """The controller elects."""
        heard = None if hears is None else tuple(hears)
        done = control.run_election(self.cluster, partition, unclean=unclean, preferred=preferred, hears=heard)
        kind = {"unclean": "uncleanly ", "clean": "", "elr": "from the ELR "}.get(done.kind, f"({done.kind}) ")
        kind = f"for{self._which(partition)} {kind}" if self._which(partition) else kind
        said = (
            "nobody can be elected"
            if done.leader == NO_LEADER
            else f"broker {done.leader} is elected {kind}in epoch {partition.leader_epoch}"
        )
        deaf = (
            []
            if heard is None
            else [broker for broker in partition.assignment if broker not in heard and self.cluster.runs(broker)]
        )
        late = f"; {_who(deaf)} {'has' if len(deaf) == 1 else 'have'} not heard yet" if deaf else ""
        self.tell(f"{said}{late}{note}")
        return done

    def kill(self, broker: int, *, noticed: bool = True, note: str = "") -> None:
        """A process dies."""
        control.kill(self.cluster, broker, noticed=noticed)
        self.tell(f"broker {broker} is killed{self._new_leaders(noticed=noticed)}{note}")

    def lose_power(self, brokers: Iterable[int], *, noticed: bool = True, note: str = "") -> list[DroppedBatches]:
        """Machines die at one moment; what was not flushed goes."""
        who, cuts = tuple(brokers), list[DroppedBatches]()
        for broker in who:
            cuts += control.lose_power(self.cluster, broker, noticed=noticed)
        gone = "; ".join(f"{named(cut.ids)} of broker {cut.broker} had not reached the disk" for cut in cuts)
        self.tell(f"{_who(who)} {'loses' if len(who) == 1 else 'lose'} power{f': {gone}' if gone else ''}{note}")
        return cuts

    def stop(self, broker: int, *, note: str = "") -> None:
        """A clean shutdown."""
        control.stop(self.cluster, broker)
        self.tell(f"broker {broker} is shut down cleanly{self._new_leaders(noticed=True)}{note}")

    def start(self, broker: int, *, lossy: bool = False, note: str = "") -> list[DroppedBatches]:
        """A dead broker comes back."""
        before = {name: partition.leader_epoch for name, partition in self.cluster.partitions.items()}
        cuts = control.start(self.cluster, broker, lossy=lossy)
        led = [
            partition
            for name, partition in self.cluster.partitions.items()
            if partition.leader_epoch > before[name] and partition.leader == broker
        ]
        leads = f" and leads in epoch {led[0].leader_epoch}" if led else ""
        cut = "".join(f", cutting {named(gone.ids)} at its high watermark {gone.end_offset}" for gone in cuts)
        self.tell(f"broker {broker} starts{leads}{cut}{note}")
        return cuts

    def freeze(self, broker: int, *, noticed: bool = False, note: str = "") -> None:
        """A broker stands still."""
        control.freeze(self.cluster, broker, noticed=noticed)
        self.tell(f"broker {broker} stands still{self._new_leaders(noticed=noticed)}{note}")

    def thaw(self, broker: int, *, hears: bool = True, note: str = "") -> None:
        """It goes on."""
        control.thaw(self.cluster, broker, hears=hears)
        self.tell(f"broker {broker} goes on{'' if hears else ' and has heard nothing'}{note}")

    def shrink(self, partition: Partition, out: Iterable[int] | None = None, *, note: str = "") -> frozenset[int]:
        """The leader puts laggards out of the ISR."""
        gone = actions.shrink_isr(self.cluster, partition, out)
        self.tell(f"broker {partition.leader} puts {_who(sorted(gone)) if gone else 'nobody'} out of the ISR{note}")
        return gone

    def checkpoint(self, *brokers: int) -> None:
        """Brokers write their high watermarks down, as they do every five seconds."""
        for broker in brokers or self.cluster.brokers:
            if self.cluster.runs(broker):
                actions.checkpoint_high_watermarks(self.cluster, broker)

    def flush(self, *brokers: int) -> None:
        """Logs of brokers reach their disks."""
        for broker in brokers or self.cluster.brokers:
            if self.cluster.runs(broker):
                actions.flush(self.cluster, broker)

    def wait(self, seconds: float, note: str) -> None:
        """Time passes."""
        self.cluster.tick(round(1000 * seconds))
        self.tell(note)

    def shut_down(self) -> None:
        """The end: consumers read once more; then the controller is stopped, so that nobody is elected any more, and every broker
        that runs is shut down cleanly."""
        cluster = self.cluster
        self.readings = [read(cluster, partition) for partition in cluster.partitions.values()]
        for broker in cluster.brokers:
            if cluster.runs(broker):
                actions.checkpoint_high_watermarks(cluster, broker)
                actions.flush(cluster, broker)
                cluster.clean.add(broker)
                cluster.dead.add(broker)

    def expect(
        self,
        kind: str,
        severity: str,
        partition: Partition,
        broker: int | None = None,
        offsets: tuple[int, int] | None = None,
        held_by: Iterable[int] | None = None,
        *,
        of_topic: bool = False,
    ) -> None:
        """Note a finding that a scan must make of a partition, or of its topic."""
        start, end = offsets or (None, None)
        held = None if held_by is None else tuple(held_by)
        number = None if of_topic else partition.number
        self.expected.append(Expected(kind, severity, partition.topic, number, broker, start, end, held))

    def remark(self, sentence: str) -> None:
        """Note what the history teaches."""
        self.remarks.append(sentence)

    def _new_leaders(self, *, noticed: bool) -> str:
        if not noticed:
            return ", which nobody notices yet"
        last = {partition.topic_partition: partition for partition in self.events[-1].partitions} if self.events else {}
        said = []
        for name, partition in self.cluster.partitions.items():
            if name in last and partition.leader_epoch > last[name].leader_epoch:
                where = self._which(partition)
                new = (
                    f"broker {partition.leader} leads{where} in epoch {partition.leader_epoch}"
                    if partition.leader != NO_LEADER
                    else f"nobody leads{where}"
                )
                said.append(new)
        return f"; {', '.join(said)}" if said else ""

    def _which(self, partition: Partition) -> str:
        """A partition by name, where there are several."""
        return f" {partition.topic}-{partition.number}" if len(self.cluster.partitions) > 1 else ""


def moment(cluster: Cluster, partition: Partition) -> Moment:
    """How a partition stands."""
    views = []
    for broker, replica in sorted(partition.replicas.items()):
        state = _state(cluster, partition, broker)
        views.append(
            View(broker, state, replica.log_end_offset, replica.high_watermark, replica.leader_epoch, tuple(replica.batches))
        )
    isr, elr = (tuple(broker for broker in partition.assignment if broker in members) for members in (partition.isr, partition.elr))
    return Moment(partition.name, partition.leader, partition.leader_epoch, isr, elr, tuple(views))


def named(ids: Iterable[int]) -> str:
    """Records by name, runs of them by their first and last; then how many markers."""
    given = list(ids)
    records = [record_id for record_id in given if record_id >= 0]
    markers = len(given) - len(records)
    said = " ".join(f"r{record}" for record in records)
    if len(records) > 2 and records == list(range(records[0], records[-1] + 1)):
        said = f"r{records[0]}..r{records[-1]}"
    counted = "" if not markers else "a marker" if markers == 1 else f"{markers} markers"
    return " and ".join(part for part in (said, counted) if part) or "nothing"


def producer_name(producer: Producer) -> str:
    """How a producer is called."""
    if producer.transactional_id is not None:
        return producer.transactional_id
    return "a producer" if not producer.idempotent else f"producer {producer.producer_id}"


def _state(cluster: Cluster, partition: Partition, broker: int) -> str:
    replica = partition.replicas[broker]
    if broker in cluster.dead:
        return DEAD
    if broker in cluster.frozen:
        return FROZEN
    if not replica.leads:
        return FOLLOWS
    return LEADS if partition.leader == broker else STALE


def _who(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {' and '.join(map(str, brokers))}"


def _answer(sent: Sent) -> str:
    if not sent.answered:
        return ": the answer is lost"
    if sent.answer == "acknowledged" and sent.duplicate:
        return ": acknowledged, it was there already"
    if sent.answer == "waiting":
        return ""
    return f": {sent.answer}"


def _fetched(partition: Partition, done: Fetched, *, answered: bool) -> str:
    if done.failure:
        return (
            f"cannot fetch: its leader is {done.failure}"
            if done.failure == actions.UNREACHABLE
            else "is refused: it is in another epoch"
        )
    parts = []
    if done.cut is not None:
        parts.append(f"cuts {named(done.cut.ids)}, back to {done.cut.end_offset}")
    if not answered:
        parts.append(f"asks broker {done.leader}; the answer is lost")
    elif done.end > done.start:
        held = partition.replicas[done.leader].batches
        ids = [record_id for batch in held if done.start <= batch.base_offset < done.end for record_id in batch.ids]
        parts.append(f"fetches {named(ids)} from broker {done.leader}")
    else:
        parts.append(f"asks broker {done.leader} and gets nothing new")
    if done.joined:
        parts.append("is back in the ISR")
    return ", ".join(parts)


# Transactions told while they are played: what clients ask the coordinator for, and what becomes of it.


_MARKERS = {True: COMMIT, False: ABORT}


def begin(h: History, producer: Producer, *, note: str = "") -> None:
    """A client takes its producer id and a new epoch."""
    done = transactions.init_producer_id(h.cluster, coordinator_of(h), producer)
    said = f"has epoch {producer.producer_epoch} of producer {producer.producer_id}" if done == OK else "has to wait for its epoch"
    h.tell(f"{producer.transactional_id} {said}{note}")


def write(h: History, partition: Partition, producer: Producer, *, named_before: bool = True, note: str = "") -> Sent:
    """A record of a transaction; `named_before`: its partition is named to the coordinator first, as clients do once in each."""
    coordinator = coordinator_of(h)
    if named_before and transactions.add_partitions(h.cluster, coordinator, producer, [partition.name]) != OK:
        ids = h.cluster.new_ids(1)
        h.tell(f"{producer.transactional_id} may not write {named(ids)}: it is fenced{note}")
        return Sent(partition.name, ids, -1, partition.leader, partition.leader_epoch, FENCED)
    return _sent(h, partition, producer, transactions.write(h.cluster, coordinator, partition, producer), "writes", note)


def late(h: History, partition: Partition, producer: Producer, *, note: str = "") -> Sent:
    """A record that is on its way for long: it has its number, and arrives with `arrive`."""
    ids = h.cluster.new_ids(1)
    number(producer, partition, ids)
    h.tell(f"{producer.transactional_id} sends {named(ids)} to {_place(partition)}, and the network keeps it{note}")
    return Sent(partition.name, ids, -1, partition.leader, partition.leader_epoch)


def arrive(h: History, partition: Partition, producer: Producer, sent: Sent, *, note: str = "") -> Sent:
    """A late record arrives."""
    done = transactions.write(h.cluster, coordinator_of(h), partition, producer, again=sent)
    h.tell(f"{named(sent.ids)} arrives at {_place(partition)}{_refusal(done)}{note}")
    return done


def end(h: History, producer: Producer, *, commit: bool, note: str = "") -> str:
    """A client ends its transaction, and the coordinator has the markers written."""
    name = str(producer.transactional_id)
    done = transactions.end_transaction(h.cluster, coordinator_of(h), name, producer.producer_epoch, commit=commit)
    verb = "commits" if commit else "aborts"
    h.tell(f"{name} {verb}{_markers(h, name, commit=commit) if done == OK else f': {_why(done)}'}{note}")
    transactions.begin_next(coordinator_of(h), producer)
    return done


def end_arrives(h: History, producer: Producer, *, commit: bool, note: str = "") -> str:
    """A late EndTxn of an earlier transaction arrives."""
    name = str(producer.transactional_id)
    done = transactions.end_transaction(h.cluster, coordinator_of(h), name, producer.producer_epoch, commit=commit)
    verdict = "commit" if commit else "abort"
    came = _markers(h, name, commit=commit) if done == OK else f": {_why(done)}"
    h.tell(f"the late {verdict} of {name} arrives{came}{note}")
    return done


def coordinator_of(h: History) -> Coordinator:
    """The coordinator, which such a history must have."""
    assert h.coordinator is not None
    return h.coordinator


def _sent(h: History, partition: Partition, producer: Producer, sent: Sent, verb: str, note: str) -> Sent:
    h.tell(f"{producer.transactional_id} {verb} {named(sent.ids)} to {_place(partition)}{_refusal(sent)}{note}")
    return sent


def _refusal(sent: Sent) -> str:
    return "" if sent.answer in ("waiting", "acknowledged") else f": {_why(sent.answer)}"


def _why(answer: str) -> str:
    return {FENCED: "refused, it is fenced", INVALID: "refused, there is no such transaction"}.get(answer, answer)


def _markers(h: History, name: str, *, commit: bool) -> str:
    """What the coordinator had written just now."""
    log = coordinator_of(h).log
    prepared = next(
        state for _, transactional_id, state in reversed(log) if transactional_id == name and state.state.startswith("Prepare")
    )
    where = " and ".join(f"{topic}-{number}" for topic, number in prepared.partitions)
    return f": {_MARKERS[commit]} in {where}"


def _place(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"
