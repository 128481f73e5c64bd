"""Random histories: a seed determines the cluster, the possible kinds of actions, and all actions.

Each seed switches off some kinds of actions and weights the others, to reach rare combinations (swarm testing). The same seed
gives the same history.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.acks import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from kafka_forensics.simulation import actions, control, transactions
from kafka_forensics.simulation.cluster import Cluster, ProduceRequest, SimulatedPartition, TruncationProtocol
from kafka_forensics.simulation.history import History
from kafka_forensics.simulation.producers import FIRST_PRODUCER_ID, Producer, base_sequence_of, produce
from kafka_forensics.simulation.transactions import Coordinator
from tests.simulation.record_ids import Log

MAX_REPLICAS: Final = 5
MAX_RECORDS: Final = 16
MAX_EPOCHS: Final = 8
ACTIONS: Final = 60
"""Actions of a history."""
FEATURES: Final = (
    *("acks-0", "acks-1", "crashes", "late-metadata", "elr", "pauses", "idempotent", "lost-responses", "power"),
    *("preferred", "resends", "shrinks", "shutdowns", "transactions", "unclean", "unnoticed"),
)
"""Features of a seed; with `late-metadata`, brokers receive metadata late; with `power`, crashes lose unflushed batches."""
PROTOCOLS_DRAWN: Final[tuple[TruncationProtocol, ...]] = ("kip-320", "kip-320", "kip-320", "kip-279", "truncate-to-hw")
_UNSUPPORTED: Final = {"truncate-to-hw": {"elr", "idempotent", "transactions"}, "kip-279": {"elr"}}
"""Protocol → features that Kafka did not have with it."""
_LAST_ELECTION_EPOCH: Final = MAX_EPOCHS - 3
"""Above this leader epoch, no action may elect a leader; one action may start two epochs."""
_RANDOM_PRODUCERS: Final = 2
_NOTHING: Final = ("stays", "none")


class RandomHistory(NamedTuple):
    """The final state of a history, and one line for each action."""

    seed: int
    features: frozenset[str]
    cluster: Cluster
    coordinator: Coordinator | None
    actions: tuple[str, ...]
    elected: Mapping[tuple[TopicPartition, int], Log]
    """By partition and leader epoch: the log of the leader at its election."""

    @property
    def is_gentle(self) -> bool:
        """Whether no action can lose records acknowledged with acks=all: no power failure and no unclean election."""
        return self.cluster.fences_fetches and not self.features & {"power", "unclean", "elr"}


def random_history(seed: int, protocol: TruncationProtocol | None = None) -> RandomHistory:
    """The history of a seed, under the protocol of the seed unless one is given."""
    builder = _HistoryBuilder(seed, protocol)
    for _ in range(ACTIONS):
        builder.act()
    history = History(builder.cluster, builder.coordinator)
    if builder.rng.random() < 0.5:
        history.shut_down()
        builder.lines.append("shut down all running brokers")
    return RandomHistory(seed, builder.features, builder.cluster, builder.coordinator, tuple(builder.lines), builder.elected)


class _HistoryBuilder:
    """Draws actions and performs them."""

    def __init__(self, seed: int, protocol: TruncationProtocol | None) -> None:
        self.rng = rng = Random(seed)
        drawn = rng.choice(PROTOCOLS_DRAWN)
        chosen = protocol or drawn
        features = {feature for feature in FEATURES if rng.random() < 0.5}
        self.features = frozenset(features - _UNSUPPORTED.get(chosen, set()))
        brokers = tuple(range(1, rng.randint(2, MAX_REPLICAS) + 1))
        self.cluster = Cluster(brokers, chosen, elr_enabled=self.has("elr"), unclean=self.has("unclean") and rng.random() < 0.5)
        self.coordinator: Coordinator | None = None
        with_transactions = self.has("transactions")
        if with_transactions:
            self.coordinator = Coordinator(version=rng.choice((0, transactions.TV2)), verifies=rng.random() < 0.5)
        for index in range(2 if with_transactions and rng.random() < 0.5 else 1):
            order = tuple(rng.sample(brokers, len(brokers)))
            partition = self.cluster.create("t", index, order, min_insync_replicas=rng.randint(1, min(2, len(brokers))))
            control.publish_metadata(self.cluster, partition)
        self.partitions = list(self.cluster.partitions.values())
        self.producers = [Producer()]
        if self.has("idempotent"):
            self.producers = [Producer(FIRST_PRODUCER_ID - 1 - index, 0) for index in range(_RANDOM_PRODUCERS)]
        self.apps = [Producer(transactional_id=f"app-{index}") for index in range(rng.randint(1, 2))] if with_transactions else []
        self.acks = [ACKS_ALL, *(ACKS_LEADER,) * self.has("acks-1"), *(ACKS_NONE,) * self.has("acks-0")]
        self.sent: list[tuple[Producer, ProduceRequest]] = []
        self.lines: list[str] = []
        self.kinds = [(kind, rng.randint(1, 4)) for kind, feature in _KINDS if feature == "" or self.has(feature)]
        self.ends: list[tuple[str, int]] = []
        self.elected: dict[tuple[TopicPartition, int], Log] = {}
        self.changes_seen = 0

    def has(self, feature: str) -> bool:
        return feature in self.features

    def act(self) -> None:
        """Perform one action; draws again if it is not possible."""
        self.cluster.tick()
        for _ in range(8):
            kind: _Kind = _start
            if not self.cluster.dead or self.rng.random() >= 0.15:
                (kind,) = self.rng.choices([kind for kind, _ in self.kinds], [weight for _, weight in self.kinds])
            if kind in _MAY_ELECT and max(partition.leader_epoch for partition in self.partitions) > _LAST_ELECTION_EPOCH:
                continue
            sentence = kind(self)
            self._note_elections()
            if self.coordinator is not None:
                transactions.complete(self.cluster, self.coordinator)
            if sentence:
                self.lines.append(sentence)
                return

    def _note_elections(self) -> None:
        """Keep the logs of new leaders: no action changes them after an election."""
        for change in self.cluster.changes[self.changes_seen :]:
            if change.elected and change.leader >= 0:
                batches = self.cluster.partitions[change.topic_partition].replicas[change.leader].batches
                log = [(batch.leader_epoch, record) for batch in batches for record in batch.ids]
                self.elected[change.topic_partition, change.leader_epoch] = log
        self.changes_seen = len(self.cluster.changes)

    def partition(self) -> SimulatedPartition:
        return self.rng.choice(self.partitions)

    def broker(self, *, running: bool) -> int | None:
        """A running or a dead broker; None if there is none."""
        cluster = self.cluster
        candidates = [broker for broker in cluster.brokers if (cluster.is_running(broker) if running else broker in cluster.dead)]
        return self.rng.choice(candidates) if candidates else None

    def detected(self) -> bool:
        """Whether the controller notices a crash at once."""
        return not self.has("unnoticed") or self.rng.random() < 0.5

    def receivers(self) -> tuple[int, ...] | None:
        """The brokers that receive the result of an election at once; None for all."""
        if not self.has("late-metadata") or self.rng.random() < 0.5:
            return None
        return tuple(broker for broker in self.cluster.brokers if self.rng.random() < 0.5)

    def responds(self) -> bool:
        return not self.has("lost-responses") or self.rng.random() < 0.6

    def max_batch_records(self) -> int:
        """The largest number of records of the next batch."""
        return min(2, MAX_RECORDS - self.cluster.next_id)

    def stale_leader(self, partition: SimulatedPartition) -> int | None:
        """A broker with stale metadata that considers itself leader; None for the leader at the controller."""
        stale = [replica.broker for replica in partition.replicas.values() if replica.leads and replica.broker != partition.leader]
        return self.rng.choice(stale) if stale and self.rng.random() < 0.3 else None


def _produce(builder: _HistoryBuilder) -> str:
    if builder.max_batch_records() < 1:
        return ""
    partition, producer = builder.partition(), builder.rng.choice(builder.producers)
    count, acks = builder.rng.randint(1, builder.max_batch_records()), builder.rng.choice(builder.acks)
    sent = produce(
        builder.cluster, partition, producer, count, acks=acks, leader=builder.stale_leader(partition), answered=builder.responds()
    )
    builder.sent.append((producer, sent))
    return f"produce {partition.number} {sent.ids} acks={acks} at {sent.leader}: {sent.response}"


def _resend(builder: _HistoryBuilder) -> str:
    """Retry an earlier request."""
    if not builder.sent:
        return ""
    producer, sent = builder.rng.choice(builder.sent[-3:])
    partition = builder.cluster.partitions[sent.topic_partition]
    if producer.transactional_id is None:
        done = produce(builder.cluster, partition, producer, acks=sent.acks, leader=builder.stale_leader(partition), retry_of=sent)
    elif builder.coordinator is not None and sent.ids in producer.batch_sequences:
        done = transactions.write(builder.cluster, builder.coordinator, partition, producer, retry_of=sent)
    else:
        return ""
    return f"again {sent.ids} at {done.leader}: {done.response}"


def _fetch(builder: _HistoryBuilder) -> str:
    partition, broker = builder.partition(), builder.broker(running=True)
    if broker is None or partition.replicas[broker].leads:
        return ""
    limit = builder.rng.choice((None, None, 1))
    done = actions.fetch(builder.cluster, partition, broker, answered=builder.responds(), limit=limit)
    return f"fetch {partition.number} by {broker} of {done.leader}: cut {done.truncated}, [{done.start}, {done.end}) {done.failure}"


def _fetch_from_some(builder: _HistoryBuilder) -> str:
    """Some brokers fetch, in random order."""
    partition = builder.partition()
    followers = [
        broker for broker in builder.rng.sample(builder.cluster.brokers, len(builder.cluster.brokers)) if builder.rng.random() < 0.7
    ]
    done = [actions.fetch(builder.cluster, partition, broker) for broker in followers if not partition.replicas[broker].leads]
    return (
        f"fetch {partition.number} by {followers}"
        if any(fetched.end > fetched.start or fetched.truncated for fetched in done)
        else ""
    )


def _checkpoint(builder: _HistoryBuilder) -> str:
    broker = builder.broker(running=True)
    if broker is None:
        return ""
    if all(
        partition.replicas[broker].checkpointed == partition.replicas[broker].high_watermark for partition in builder.partitions
    ):
        return ""
    actions.checkpoint_high_watermarks(builder.cluster, broker)
    return f"checkpoint {broker}"


def _flush(builder: _HistoryBuilder) -> str:
    broker = builder.broker(running=True)
    if broker is None:
        return ""
    if all(partition.replicas[broker].flushed_end == partition.replicas[broker].log_end_offset for partition in builder.partitions):
        return ""
    actions.flush(builder.cluster, broker)
    return f"flush {broker}"


def _receive_metadata(builder: _HistoryBuilder) -> str:
    """A broker receives metadata late."""
    partition, broker = builder.partition(), builder.broker(running=True)
    if broker is None or partition.replicas[broker].leader_epoch == partition.leader_epoch:
        return ""
    actions.receive_metadata(builder.cluster, partition, broker)
    return f"receive metadata {partition.number} {broker}"


def _kill(builder: _HistoryBuilder) -> str:
    broker, detected = builder.broker(running=True), builder.detected()
    if broker is None:
        return ""
    control.kill(builder.cluster, broker, detected=detected)
    return f"kill {broker} noticed={detected}"


def _lose_power(builder: _HistoryBuilder) -> str:
    broker, detected = builder.broker(running=True), builder.detected()
    if broker is None:
        return ""
    cuts = control.lose_power(builder.cluster, broker, detected=detected)
    return f"power {broker} noticed={detected}: {[cut.ids for cut in cuts]}"


def _stop(builder: _HistoryBuilder) -> str:
    broker = builder.broker(running=True)
    if broker is None:
        return ""
    control.stop(builder.cluster, broker)
    return f"stop {broker}"


def _start(builder: _HistoryBuilder) -> str:
    broker = builder.broker(running=False)
    if broker is None:
        return ""
    lossy = broker not in builder.cluster.stopped_cleanly
    control.start(builder.cluster, broker, lossy=lossy, receivers=builder.receivers())
    return f"start {broker}"


def _pause(builder: _HistoryBuilder) -> str:
    broker, detected = builder.broker(running=True), builder.detected()
    if broker is None:
        return ""
    control.pause(builder.cluster, broker, detected=detected)
    return f"pause {broker} noticed={detected}"


def _resume(builder: _HistoryBuilder) -> str:
    paused = sorted(builder.cluster.paused)
    if not paused:
        return ""
    broker, receives = builder.rng.choice(paused), not builder.has("late-metadata") or builder.rng.random() < 0.5
    control.resume(builder.cluster, broker, receives_metadata=receives)
    return f"resume {broker} receives metadata={receives}"


def _notice(builder: _HistoryBuilder) -> str:
    """The controller notices a crash."""
    crashed = sorted((builder.cluster.dead | builder.cluster.paused) - builder.cluster.fenced)
    if not crashed:
        return ""
    broker = builder.rng.choice(crashed)
    control.fence(builder.cluster, broker, receivers=builder.receivers())
    return f"notice {broker}"


def _elect_uncleanly(builder: _HistoryBuilder) -> str:
    """An operator requests an unclean election, of any or one broker."""
    partition = builder.partition()
    leader = builder.rng.choice((None, *builder.cluster.brokers))
    done = control.run_election(builder.cluster, partition, unclean=True, leader=leader, receivers=builder.receivers())
    return "" if done.kind in _NOTHING else f"elect {partition.number} uncleanly: {done.leader} {done.kind}"


def _elect_preferred(builder: _HistoryBuilder) -> str:
    partition = builder.partition()
    done = control.run_election(builder.cluster, partition, unclean=False, preferred=True, receivers=builder.receivers())
    return "" if done.kind in _NOTHING else f"elect {partition.number} preferred: {done.leader}"


def _shrink(builder: _HistoryBuilder) -> str:
    """Half a minute passes, and leaders remove lagging followers from the ISR."""
    builder.cluster.tick(builder.cluster.replica_lag_time_max_ms + 1)
    removed = [actions.shrink_isr(builder.cluster, partition) for partition in builder.partitions]
    return f"shrink {[sorted(brokers) for brokers in removed]}" if any(removed) else ""


def _begin(builder: _HistoryBuilder) -> str:
    assert builder.coordinator is not None
    app = builder.rng.choice(builder.apps)
    if app.is_idempotent and builder.rng.random() < 0.8:
        return ""
    done = transactions.init_producer_id(builder.cluster, builder.coordinator, app)
    return f"begin {app.transactional_id}: {done} {app.producer_epoch}"


def _write(builder: _HistoryBuilder) -> str:
    assert builder.coordinator is not None
    app, partition = builder.rng.choice(builder.apps), builder.partition()
    if builder.max_batch_records() < 1 or not app.is_idempotent:
        return _begin(builder)
    if builder.rng.random() < 0.9:
        transactions.add_partitions(builder.cluster, builder.coordinator, app, [partition.name])
    count = builder.rng.randint(1, builder.max_batch_records())
    if builder.rng.random() < 0.2:  # the request is delayed; `_resend` delivers it
        sent = ProduceRequest(partition.name, builder.cluster.new_ids(count), ACKS_ALL, partition.leader, partition.leader_epoch)
        base_sequence_of(app, partition, sent.ids)
    else:
        sent = transactions.write(builder.cluster, builder.coordinator, partition, app, count, answered=builder.responds())
    builder.sent.append((app, sent))
    return f"write {app.transactional_id} {partition.number} {sent.ids}: {sent.response}"


def _end(builder: _HistoryBuilder) -> str:
    """A transaction ends, or a late request ends another one of the same epoch."""
    assert builder.coordinator is not None
    app, commit = builder.rng.choice(builder.apps), builder.rng.random() < 0.5
    name = str(app.transactional_id)
    if not app.is_idempotent:
        return ""
    if builder.rng.random() < 0.15:
        builder.ends.append((name, app.producer_epoch))
        return f"end {name} is late"
    epoch = app.producer_epoch
    if builder.ends and builder.rng.random() < 0.3:
        name, epoch = builder.ends.pop()
    done = transactions.end_transaction(builder.cluster, builder.coordinator, name, epoch, commit=commit)
    if name == app.transactional_id:
        transactions.take_next_epoch(builder.coordinator, app)
    return f"end {name} commit={commit}: {done}"


def _markers(builder: _HistoryBuilder) -> str:
    """The coordinator resends markers and aborts timed-out transactions."""
    assert builder.coordinator is not None
    due = sorted(name for name, left in builder.coordinator.unmarked.items() if left)
    for name in due:
        transactions.write_markers(builder.cluster, builder.coordinator, name)
    late = transactions.abort_timed_out(builder.cluster, builder.coordinator)
    return f"markers {due}, timed out {late}" if due or late else ""


_Kind = Callable[[_HistoryBuilder], str]
_KINDS: Final[tuple[tuple[_Kind, str], ...]] = (
    (_produce, ""),
    (_produce, ""),
    (_resend, "resends"),
    (_fetch, ""),
    (_fetch, ""),
    (_fetch_from_some, ""),
    (_checkpoint, ""),
    (_flush, ""),
    (_receive_metadata, "late-metadata"),
    (_kill, "crashes"),
    (_lose_power, "power"),
    (_stop, "shutdowns"),
    (_start, ""),
    (_pause, "pauses"),
    (_resume, "pauses"),
    (_notice, "unnoticed"),
    (_elect_uncleanly, "unclean"),
    (_elect_preferred, "preferred"),
    (_shrink, "shrinks"),
    (_begin, "transactions"),
    (_write, "transactions"),
    (_end, "transactions"),
    (_markers, "transactions"),
)
"""Kinds of actions, and the feature that each requires."""
_MAY_ELECT: Final = frozenset({_kill, _lose_power, _stop, _start, _pause, _resume, _notice, _elect_uncleanly, _elect_preferred})
