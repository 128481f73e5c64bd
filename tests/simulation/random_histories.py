"""Random histories: a seed determines the cluster, the possible kinds of actions, and all actions.

Each seed switches off some kinds of actions and weights the others, so that rare combinations occur (swarm testing). The same seed
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
    *("acks-0", "acks-1", "crashes", "deaf", "elr", "freezes", "idempotent", "lost-answers", "power"),
    *("preferred", "resends", "shrinks", "shutdowns", "transactions", "unclean", "unnoticed"),
)
"""What a seed switches on or off; `deaf`: brokers learn metadata late, `power`: crashes lose what was not flushed."""
PROTOCOLS_DRAWN: Final[tuple[TruncationProtocol, ...]] = ("kip-320", "kip-320", "kip-320", "kip-279", "truncate-to-hw")
_NOT_UNDER: Final = {"truncate-to-hw": {"elr", "idempotent", "transactions"}, "kip-279": {"elr"}}
"""Features that Kafka did not have yet."""
_LAST_ELECTION_EPOCH: Final = MAX_EPOCHS - 3
"""Above this leader epoch no action may elect any more; one action may begin two epochs."""
_RANDOM_PRODUCERS: Final = 2
_NOTHING: Final = ("stays", "none")


class RandomHistory(NamedTuple):
    """The final state of a history, and its actions, a line each."""

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
    player = _Player(seed, protocol)
    for _ in range(ACTIONS):
        player.act()
    history = History(player.cluster, player.coordinator)
    if player.rng.random() < 0.5:
        history.shut_down()
        player.lines.append("all that run are shut down")
    return RandomHistory(seed, player.features, player.cluster, player.coordinator, tuple(player.lines), player.elected)


class _Player:
    """Draws actions and performs them."""

    def __init__(self, seed: int, protocol: TruncationProtocol | None) -> None:
        self.rng = rng = Random(seed)
        drawn = rng.choice(PROTOCOLS_DRAWN)
        chosen = protocol or drawn
        features = {feature for feature in FEATURES if rng.random() < 0.5}
        self.features = frozenset(features - _NOT_UNDER.get(chosen, set()))
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
        """A running or a dead broker; None: there is none."""
        cluster = self.cluster
        able = [broker for broker in cluster.brokers if (cluster.is_running(broker) if running else broker in cluster.dead)]
        return self.rng.choice(able) if able else None

    def noticed(self) -> bool:
        """Whether the controller notices a crash at once."""
        return not self.has("unnoticed") or self.rng.random() < 0.5

    def receivers(self) -> tuple[int, ...] | None:
        """The brokers that learn the result of an election at once; None: all."""
        if not self.has("deaf") or self.rng.random() < 0.5:
            return None
        return tuple(broker for broker in self.cluster.brokers if self.rng.random() < 0.5)

    def answered(self) -> bool:
        return not self.has("lost-answers") or self.rng.random() < 0.6

    def room(self) -> int:
        """The largest number of records of the next batch."""
        return min(2, MAX_RECORDS - self.cluster.next_id)

    def stale_leader(self, partition: SimulatedPartition) -> int | None:
        """A broker that only considers itself leader, to which a producer may send; None: the controller's leader."""
        stale = [replica.broker for replica in partition.replicas.values() if replica.leads and replica.broker != partition.leader]
        return self.rng.choice(stale) if stale and self.rng.random() < 0.3 else None


def _produce(player: _Player) -> str:
    if player.room() < 1:
        return ""
    partition, producer = player.partition(), player.rng.choice(player.producers)
    count, acks = player.rng.randint(1, player.room()), player.rng.choice(player.acks)
    sent = produce(
        player.cluster, partition, producer, count, acks=acks, leader=player.stale_leader(partition), answered=player.answered()
    )
    player.sent.append((producer, sent))
    return f"produce {partition.number} {sent.ids} acks={acks} at {sent.leader}: {sent.response}"


def _resend(player: _Player) -> str:
    """Retry an earlier request."""
    if not player.sent:
        return ""
    producer, sent = player.rng.choice(player.sent[-3:])
    partition = player.cluster.partitions[sent.topic_partition]
    if producer.transactional_id is None:
        done = produce(player.cluster, partition, producer, acks=sent.acks, leader=player.stale_leader(partition), retry_of=sent)
    elif player.coordinator is not None and sent.ids in producer.batch_sequences:
        done = transactions.write(player.cluster, player.coordinator, partition, producer, retry_of=sent)
    else:
        return ""
    return f"again {sent.ids} at {done.leader}: {done.response}"


def _fetch(player: _Player) -> str:
    partition, broker = player.partition(), player.broker(running=True)
    if broker is None or partition.replicas[broker].leads:
        return ""
    limit = player.rng.choice((None, None, 1))
    done = actions.fetch(player.cluster, partition, broker, answered=player.answered(), limit=limit)
    return f"fetch {partition.number} by {broker} of {done.leader}: cut {done.truncated}, [{done.start}, {done.end}) {done.failure}"


def _settle(player: _Player) -> str:
    """Some brokers fetch, in random order."""
    partition = player.partition()
    who = [broker for broker in player.rng.sample(player.cluster.brokers, len(player.cluster.brokers)) if player.rng.random() < 0.7]
    done = [actions.fetch(player.cluster, partition, broker) for broker in who if not partition.replicas[broker].leads]
    return f"fetch {partition.number} by {who}" if any(fetched.end > fetched.start or fetched.truncated for fetched in done) else ""


def _checkpoint(player: _Player) -> str:
    broker = player.broker(running=True)
    if broker is None:
        return ""
    if all(partition.replicas[broker].checkpointed == partition.replicas[broker].high_watermark for partition in player.partitions):
        return ""
    actions.checkpoint_high_watermarks(player.cluster, broker)
    return f"checkpoint {broker}"


def _flush(player: _Player) -> str:
    broker = player.broker(running=True)
    if broker is None:
        return ""
    if all(partition.replicas[broker].flushed_end == partition.replicas[broker].log_end_offset for partition in player.partitions):
        return ""
    actions.flush(player.cluster, broker)
    return f"flush {broker}"


def _hear(player: _Player) -> str:
    """A broker learns metadata late."""
    partition, broker = player.partition(), player.broker(running=True)
    if broker is None or partition.replicas[broker].leader_epoch == partition.leader_epoch:
        return ""
    actions.receive_metadata(player.cluster, partition, broker)
    return f"hear {partition.number} {broker}"


def _kill(player: _Player) -> str:
    broker, noticed = player.broker(running=True), player.noticed()
    if broker is None:
        return ""
    control.kill(player.cluster, broker, noticed=noticed)
    return f"kill {broker} noticed={noticed}"


def _lose_power(player: _Player) -> str:
    broker, noticed = player.broker(running=True), player.noticed()
    if broker is None:
        return ""
    cuts = control.lose_power(player.cluster, broker, noticed=noticed)
    return f"power {broker} noticed={noticed}: {[cut.ids for cut in cuts]}"


def _stop(player: _Player) -> str:
    broker = player.broker(running=True)
    if broker is None:
        return ""
    control.stop(player.cluster, broker)
    return f"stop {broker}"


def _start(player: _Player) -> str:
    broker = player.broker(running=False)
    if broker is None:
        return ""
    lossy = broker not in player.cluster.stopped_cleanly
    control.start(player.cluster, broker, lossy=lossy, receivers=player.receivers())
    return f"start {broker}"


def _freeze(player: _Player) -> str:
    broker, noticed = player.broker(running=True), player.noticed()
    if broker is None:
        return ""
    control.pause(player.cluster, broker, noticed=noticed)
    return f"freeze {broker} noticed={noticed}"


def _thaw(player: _Player) -> str:
    frozen = sorted(player.cluster.paused)
    if not frozen:
        return ""
    broker, hears = player.rng.choice(frozen), not player.has("deaf") or player.rng.random() < 0.5
    control.resume(player.cluster, broker, receives_metadata=hears)
    return f"thaw {broker} hears={hears}"


def _notice(player: _Player) -> str:
    """The controller notices a crash."""
    crashed = sorted((player.cluster.dead | player.cluster.paused) - player.cluster.fenced)
    if not crashed:
        return ""
    broker = player.rng.choice(crashed)
    control.fence(player.cluster, broker, receivers=player.receivers())
    return f"notice {broker}"


def _elect_uncleanly(player: _Player) -> str:
    """An operator requests an unclean election, of any or one broker."""
    partition = player.partition()
    leader = player.rng.choice((None, *player.cluster.brokers))
    done = control.run_election(player.cluster, partition, unclean=True, leader=leader, receivers=player.receivers())
    return "" if done.kind in _NOTHING else f"elect {partition.number} uncleanly: {done.leader} {done.kind}"


def _elect_preferred(player: _Player) -> str:
    partition = player.partition()
    done = control.run_election(player.cluster, partition, unclean=False, preferred=True, receivers=player.receivers())
    return "" if done.kind in _NOTHING else f"elect {partition.number} preferred: {done.leader}"


def _shrink(player: _Player) -> str:
    """Half a minute passes, and leaders remove lagging followers from the ISR."""
    player.cluster.tick(player.cluster.replica_lag_time_max_ms + 1)
    removed = [actions.shrink_isr(player.cluster, partition) for partition in player.partitions]
    return f"shrink {[sorted(brokers) for brokers in removed]}" if any(removed) else ""


def _begin(player: _Player) -> str:
    assert player.coordinator is not None
    app = player.rng.choice(player.apps)
    if app.is_idempotent and player.rng.random() < 0.8:
        return ""
    done = transactions.init_producer_id(player.cluster, player.coordinator, app)
    return f"begin {app.transactional_id}: {done} {app.producer_epoch}"


def _write(player: _Player) -> str:
    assert player.coordinator is not None
    app, partition = player.rng.choice(player.apps), player.partition()
    if player.room() < 1 or not app.is_idempotent:
        return _begin(player)
    if player.rng.random() < 0.9:
        transactions.add_partitions(player.cluster, player.coordinator, app, [partition.name])
    count = player.rng.randint(1, player.room())
    if player.rng.random() < 0.2:  # the network keeps it; `_resend` delivers it
        sent = ProduceRequest(partition.name, player.cluster.new_ids(count), ACKS_ALL, partition.leader, partition.leader_epoch)
        base_sequence_of(app, partition, sent.ids)
    else:
        sent = transactions.write(player.cluster, player.coordinator, partition, app, count, answered=player.answered())
    player.sent.append((app, sent))
    return f"write {app.transactional_id} {partition.number} {sent.ids}: {sent.response}"


def _end(player: _Player) -> str:
    """A transaction ends, or a late request ends another one of the same epoch."""
    assert player.coordinator is not None
    app, commit = player.rng.choice(player.apps), player.rng.random() < 0.5
    name = str(app.transactional_id)
    if not app.is_idempotent:
        return ""
    if player.rng.random() < 0.15:
        player.ends.append((name, app.producer_epoch))
        return f"end {name} is late"
    epoch = app.producer_epoch
    if player.ends and player.rng.random() < 0.3:
        name, epoch = player.ends.pop()
    done = transactions.end_transaction(player.cluster, player.coordinator, name, epoch, commit=commit)
    if name == app.transactional_id:
        transactions.take_next_epoch(player.coordinator, app)
    return f"end {name} commit={commit}: {done}"


def _markers(player: _Player) -> str:
    """The coordinator resends markers and aborts timed-out transactions."""
    assert player.coordinator is not None
    due = sorted(name for name, left in player.coordinator.unmarked.items() if left)
    for name in due:
        transactions.write_markers(player.cluster, player.coordinator, name)
    late = transactions.abort_timed_out(player.cluster, player.coordinator)
    return f"markers {due}, timed out {late}" if due or late else ""


_Kind = Callable[[_Player], str]
_KINDS: Final[tuple[tuple[_Kind, str], ...]] = (
    (_produce, ""),
    (_produce, ""),
    (_resend, "resends"),
    (_fetch, ""),
    (_fetch, ""),
    (_settle, ""),
    (_checkpoint, ""),
    (_flush, ""),
    (_hear, "deaf"),
    (_kill, "crashes"),
    (_lose_power, "power"),
    (_stop, "shutdowns"),
    (_start, ""),
    (_freeze, "freezes"),
    (_thaw, "freezes"),
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
_MAY_ELECT: Final = frozenset({_kill, _lose_power, _stop, _start, _freeze, _thaw, _notice, _elect_uncleanly, _elect_preferred})
