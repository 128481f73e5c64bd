"""All scenarios by name, and how one is played."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.model.json_objects import Json
from kafka_forensics.replication import acks as promises
from kafka_forensics.simulation.cluster import PROTOCOLS, Cluster, Partition, Truncating
from kafka_forensics.simulation.history import History, arrive, begin, end, end_arrives, late, write
from kafka_forensics.simulation.producers import FIRST_PRODUCER_ID, Producer
from kafka_forensics.simulation.transactions import Coordinator

# What a scenario is: a name, a sentence, and a function that plays it on a small cluster.


FROM_KIP_101: Final[tuple[Truncating, ...]] = ("kip-101", "kip-279", "kip-320")
"""Protocols with leader epochs."""
NEWEST: Final[tuple[Truncating, ...]] = ("kip-320",)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A history that can be played; `protocols` are those it makes sense under, the first unless another is asked for."""

    name: str
    sentence: str
    play: Callable[[History], None]
    protocols: tuple[Truncating, ...] = NEWEST
    brokers: tuple[int, ...] = (1, 2, 3)
    settings: Json = field(default_factory=dict)
    """Further fields of the cluster."""
    coordinator: Json | None = None
    """Fields of the transaction coordinator; None: there is none."""


# Named histories of replication, each a function that plays one on a small cluster.


def hw_lag_loss(h: History) -> None:
    """KIP-101's first case: a follower that restarts forgets a committed record, and is elected."""
    t = h.create("t")
    h.produce(t)
    h.settle(t)
    h.checkpoint()
    h.produce(t)
    h.fetch(t, 2)
    h.fetch(t, 2, answered=False, note="; broker 1 acknowledges r1")
    h.checkpoint(1)
    h.kill(2, noticed=False)
    h.start(2)
    h.kill(1)
    h.produce(t)
    h.shut_down()
    if h.cluster.epochs_known:
        h.expect("REPLICA_LAGS", "info", t, 1, (2, 3), [2])
        h.remark("Broker 2 keeps r1 when it restarts: it cuts nothing before it has asked the leader.")
        return
    h.expect("FORK_BELOW_HW", "critical", t, None, (1, 2), [])
    h.remark("r1 was acknowledged with acks=all, and nobody reads it: the new leader cut it off to be a good follower.")
    h.remark("When broker 1 comes back it will keep r1 below its high watermark, for good, where broker 2 has r2.")


def hw_lag_divergence(h: History) -> None:
    """KIP-101's second case: both lose power, and the one that is back first had less on its disk."""
    t = h.create("t")
    h.produce(t)
    h.settle(t)
    h.checkpoint()
    h.flush()
    h.produce(t)
    h.settle(t)
    h.checkpoint()
    h.flush(1)
    h.lose_power([1, 2], noticed=False)
    h.start(2)
    h.produce(t)
    h.start(1)
    h.fetch(t, 1)
    h.settle(t)
    h.shut_down()
    if h.cluster.epochs_known:
        h.remark("Broker 1 asks where epoch 0 ends and cuts r1: the logs agree. r1, which only one disk had, is gone all the same.")
        h.remark("No file shows that: a record that no copy holds, and no checkpoint still counts, leaves no trace.")
        return
    h.expect("FORK_BELOW_HW", "critical", t, None, (1, 2), [])
    h.remark(
        "Broker 1 is back in the ISR, its log of equal length, and no broker will ever notice. Who reads depends on who leads."
    )


def fast_leader_changes(h: History) -> None:
    """KIP-279: the leader changes twice before a broker hears of the first change."""
    t = h.create("t", assignment=(2, 1))
    h.produce(t)
    h.settle(t)
    h.freeze(2, noticed=True)
    h.thaw(2)
    h.settle(t)
    h.produce(t, acks=promises.LEADER)
    h.elect(t, preferred=True, hears=[2])
    h.produce(t, acks=promises.LEADER)
    h.stop(2)
    h.produce(t)
    h.start(2)
    h.fetch(t, 2)
    h.settle(t)
    h.shut_down()
    if h.cluster.protocol == "kip-101":
        h.expect("FORK_BELOW_HW", "critical", t, None, (1, 2), [])
        h.remark("Broker 2 asked for epoch 2, which broker 1 does not know; a later one begins at offset 2, so that r2 was kept.")
        h.remark("Lengths, last epochs and last records are equal: only a comparison from the front finds the fork.")
        return
    h.remark("Broker 2 was told of epoch 1, which it does not know, asked again for its own last one below, and cut r2.")


def unclean_election(h: History) -> None:
    """Everybody in sync is dead, and a broker that lags is elected."""
    t = h.create("t")
    h.produce(t, count=2)
    h.settle(t)
    h.checkpoint()
    h.stop(2)
    h.kill(3)
    h.produce(t, count=2)
    h.checkpoint()
    h.kill(1)
    h.start(2)
    h.elect(t, unclean=True)
    h.produce(t)
    h.shut_down()
    h.expect("UNCLEAN_ELECTION", "info", t, None, (2, 4), [1])
    h.expect("UNCLEAN_LOSS", "critical", t, None, (2, 4), [1])
    h.expect("REPLICA_LAGS", "info", t, 3, (2, 4), [])
    h.remark("r2 and r3 were acknowledged and are on broker 1 only, which will cut them off when it comes back.")


def last_replica_standing(h: History) -> None:
    """The last member of the ISR loses what it alone had to keep, and leads again: a clean election (KIP-966)."""
    t = h.create("t")
    h.flush()
    h.produce(t)
    h.settle(t)
    h.flush()
    h.stop(2)
    h.produce(t)
    h.settle(t)
    h.checkpoint()
    h.kill(3)
    h.lose_power([1])
    h.start(1)
    h.produce(t)
    h.shut_down()
    h.expect("LRS_LOSS", "critical", t, None, (1, 2), [3])
    h.expect("REPLICA_LAGS", "info", t, 2, (1, 2), [])
    h.remark("The election was clean, and its leader empty-handed: r1 is on broker 3 only, which left the ISR because it died.")


def acks1_leader_failure(h: History) -> None:
    """acks=1: the leader alone promises, and dies."""
    t = h.create("t", min_insync_replicas=2)
    h.produce(t)
    h.settle(t)
    h.checkpoint()
    h.produce(t, acks=promises.LEADER)
    h.kill(1)
    h.produce(t)
    h.settle(t)
    h.shut_down()
    h.expect("FORK_ABOVE_HW", "info", t, None, (1, 2), [])
    h.remark("r1 was acknowledged by broker 1 alone, and no rule is broken: it will cut it off when it comes back.")


def retry_without_idempotence(h: History) -> None:
    """An answer is lost, the producer sends again, and the record is there twice."""
    t = h.create("t")
    h.produce(t)
    h.settle(t)
    sent = h.produce(t, answered=False)
    h.settle(t)
    h.produce(t, again=sent)
    h.settle(t)
    h.shut_down()
    h.remark("The logs are sound, and r1 is there twice: nothing in a batch without a producer id says that it was sent again.")


def retry_with_idempotence(h: History) -> None:
    """The same with a numbered batch, and again after the leader died: each leader knows what it has."""
    t = h.create("t")
    producer = Producer(FIRST_PRODUCER_ID, 0)
    h.produce(t, producer)
    h.settle(t)
    sent = h.produce(t, producer, answered=False)
    h.settle(t)
    h.produce(t, producer, again=sent)
    late = h.produce(t, producer, answered=False)
    h.settle(t)
    h.kill(1)
    h.produce(t, producer, again=late)
    h.start(1)
    h.settle(t)
    h.shut_down()
    h.remark("Both leaders knew the batches by producer id, epoch and sequence, the second one from its log alone.")


def slow_follower(h: History) -> None:
    """A follower stands still: the watermark waits for it, until it is put out of the ISR; then it catches up and is back."""
    t = h.create("t", min_insync_replicas=2)
    h.produce(t)
    h.settle(t)
    h.freeze(3)
    h.produce(t)
    h.settle(t)
    h.wait(31, "half a minute passes")
    h.settle(t)
    h.shrink(t)
    h.produce(t)
    h.settle(t)
    h.thaw(3)
    h.fetch(t, 3)
    h.fetch(t, 3)
    h.settle(t)
    h.shut_down()
    h.remark("r1 was acknowledged only when broker 3 was out of the ISR; with one member less, acks=all would have been refused.")


REPLICATION: Final = (
    Scenario(
        "hw-lag-loss",
        "A follower restarts and cuts a committed record at its high watermark; then it is elected.",
        hw_lag_loss,
        PROTOCOLS,
        brokers=(1, 2),
    ),
    Scenario(
        "hw-lag-divergence",
        "Two brokers lose power; afterwards each holds another record at the same offset, for good.",
        hw_lag_divergence,
        PROTOCOLS,
        brokers=(1, 2),
    ),
    Scenario(
        "fast-leader-changes",
        "The leader changes twice before a broker hears of the first change, and two logs part below the last epoch.",
        fast_leader_changes,
        FROM_KIP_101,
        brokers=(1, 2),
    ),
    Scenario("unclean-election", "Everybody in sync is dead, and a broker that lags behind is elected.", unclean_election),
    Scenario(
        "last-replica-standing",
        "The last member of the ISR loses what it alone had to keep, and is elected cleanly.",
        last_replica_standing,
    ),
    Scenario("acks1-leader-failure", "A leader acknowledges with acks=1 and dies before anybody fetched.", acks1_leader_failure),
    Scenario(
        "retry-without-idempotence",
        "An answer is lost, the producer sends again: the record is there twice.",
        retry_without_idempotence,
    ),
    Scenario("retry-with-idempotence", "The same with sequence numbers: leaders know what they have.", retry_with_idempotence),
    Scenario("slow-follower", "A follower stands still, is put out of the ISR, catches up and is back.", slow_follower),
)


# Named histories of transactions: ended well, left open, torn, fenced, and lost in part.


LATER_S: Final = 30 * 60
"""Longer than any transaction may take (15 minutes, and five that brokers grant on top)."""
VERSION_2: Final = {"version": 2}
"""Kafka 4: every transaction has an epoch of its own, and leaders ask the coordinator before they take its first batch."""
BEFORE_KIP_890: Final = {"version": 0, "verifies": False}
"""Kafka 3.5 and before."""


def committed(h: History) -> None:
    """One transaction over two partitions, ended as it should be."""
    first, second, app = _two_partitions(h)
    write(h, first, app)
    write(h, second, app)
    _settle(h, first, second)
    end(h, app, commit=True)
    _settle(h, first, second)
    h.shut_down()
    h.remark("Until the markers came, read_committed stopped before r0 and r1, though all replicas had them.")


def aborted(h: History) -> None:
    """The same, aborted: the records stay in the log, and only read_uncommitted shows them."""
    first, second, app = _two_partitions(h)
    write(h, first, app)
    write(h, second, app)
    end(h, app, commit=False)
    _settle(h, first, second)
    write(h, first, app)
    end(h, app, commit=True)
    _settle(h, first, second)
    h.shut_down()
    h.remark("r0 and r1 stay in the logs for good; only read_uncommitted shows them.")


def hanging(h: History) -> None:
    """A record arrives after its transaction was aborted, and opens one that nobody will end (KAFKA-14402)."""
    first, second, app = _two_partitions(h)
    write(h, first, app)
    lost = late(h, first, app)
    end(h, app, commit=False)
    arrive(h, first, app, lost)
    _settle(h, first, second)
    h.wait(LATER_S, "half an hour passes")
    h.produce(first)
    _settle(h, first, second)
    h.shut_down()
    h.expect("TXN_HANGING", "error", first, 1, (2, 3))
    h.remark("The coordinator knows of no open transaction: readers of committed data wait at offset 2 until an operator ends it.")


def torn(h: History) -> None:
    """A commit that was delayed ends the next transaction in the middle (KAFKA-17754)."""
    first, second, app = _two_partitions(h)
    write(h, first, app)
    end(h, app, commit=True, note="; its first request for that is still on its way")
    _settle(h, first, second)
    write(h, first, app)
    end_arrives(h, app, commit=True)
    _settle(h, first, second)
    write(h, first, app, named_before=False)
    write(h, second, app)
    end(h, app, commit=False)
    _settle(h, first, second)
    h.wait(LATER_S, "half an hour passes")
    h.produce(first)
    _settle(h, first, second)
    h.shut_down()
    h.expect("TXN_HANGING", "error", first, 1, (4, 5))
    h.remark("The application wrote r1, r2 and r3 in one transaction and aborted it: r1 is committed, r2 hangs, r3 is aborted.")
    h.remark("Of that the files show r2 only: the coordinator decided two transactions, and each has its markers.")


def fenced_zombie(h: History) -> None:
    """An application stands still, another instance takes over, and the first comes back."""
    first, second, app = _two_partitions(h)
    write(h, first, app)
    other = Producer(transactional_id=app.transactional_id)
    begin(h, other, note=": a second instance, for which the first one's transaction is aborted")
    _settle(h, first, second)
    begin(h, other, note=" (the second instance)")
    write(h, first, app, named_before=False, note=" (the first instance)")
    end(h, app, commit=True, note=" (the first instance)")
    write(h, second, other)
    end(h, other, commit=True)
    _settle(h, first, second)
    h.shut_down()
    h.remark("The first instance had epoch 0; the abort was written with epoch 1, and nothing older is taken after it.")


def partly_lost(h: History) -> None:
    """A transaction over two topics is committed; of one topic there is only one replica, and its disk is lost."""
    orders, payments = h.create("orders", assignment=(1, 2)), h.create("payments", assignment=(3,))
    app = Producer(transactional_id="app")
    begin(h, app)
    write(h, orders, app)
    write(h, payments, app)
    end(h, app, commit=True)
    _settle(h, orders)
    h.flush()
    h.checkpoint()
    h.wait(30, "half a minute passes")
    write(h, orders, app)
    write(h, payments, app)
    end(h, app, commit=True)
    _settle(h, orders)
    h.flush(1, 2)
    h.lose_power([3])
    h.start(3)
    h.shut_down()
    h.expect("RISKY_CONFIG", "info", payments, of_topic=True)
    h.expect("TXN_PARTLY_LOST", "critical", payments, 3, held_by=[])
    h.remark("orders-0 shows r2, and payments-0 does not have r3: what was one transaction is half of one.")


def marker_lost(h: History) -> None:
    """A transaction is committed in two partitions; an unclean election takes one of the markers back."""
    first, second, app = _two_partitions(h)
    write(h, first, app)
    write(h, second, app)
    _settle(h, first, second)
    h.checkpoint()
    h.stop(3)
    h.stop(2)
    end(h, app, commit=True)
    h.checkpoint()
    h.kill(1)
    h.start(2)
    h.elect(second, unclean=True)
    h.start(1)
    h.start(3)
    _settle(h, first, second)
    h.wait(LATER_S, "half an hour passes")
    h.produce(first)
    h.produce(second)
    _settle(h, first, second)
    h.shut_down()
    h.expect("UNCLEAN_ELECTION", "info", second)
    h.expect("TXN_TORN", "critical", second, 2, (0, 1))
    h.remark(
        "The coordinator has long forgotten the transaction, so nobody writes the marker again: read_committed stops before r1."
    )


def _two_partitions(h: History) -> tuple[Partition, Partition, Producer]:
    """Partitions t-0 and t-1, and a client that has begun."""
    first, second = h.create("t", 0), h.create("t", 1)
    app = Producer(transactional_id="app")
    begin(h, app)
    return first, second, app


def _settle(h: History, *partitions: Partition) -> None:
    for partition in partitions:
        h.settle(partition, quiet=True)
    h.tell("followers fetch until nothing is left to copy")


TRANSACTIONS: Final = (
    Scenario("txn-committed", "A transaction over two partitions is committed.", committed, coordinator=VERSION_2),
    Scenario(
        "txn-aborted", "A transaction over two partitions is aborted, the next one committed.", aborted, coordinator=VERSION_2
    ),
    Scenario(
        "txn-hanging",
        "A record arrives after its transaction was aborted, and read_committed stops before it for good.",
        hanging,
        coordinator=BEFORE_KIP_890,
    ),
    Scenario(
        "txn-torn",
        "A delayed EndTxn commits the first half of the next transaction; the second half is aborted.",
        torn,
        coordinator=BEFORE_KIP_890,
    ),
    Scenario("fenced-zombie", "An application comes back after another instance took over.", fenced_zombie, coordinator=VERSION_2),
    Scenario(
        "txn-partly-lost",
        "A committed transaction is lost in one topic, whose only replica was on a disk that is gone.",
        partly_lost,
        coordinator=VERSION_2,
    ),
    Scenario(
        "txn-marker-lost",
        "A committed transaction loses one of its markers by an unclean election.",
        marker_lost,
        coordinator=VERSION_2,
    ),
)


SCENARIOS: Final[dict[str, Scenario]] = {scenario.name: scenario for scenario in (*REPLICATION, *TRANSACTIONS)}
"""In the order in which they are listed."""


def play(name: str, protocol: Truncating | None = None) -> History:
    """Play a scenario, under another protocol than its own if one is given. Raises UsageError where it has no meaning there."""
    scenario = SCENARIOS[name]
    chosen = protocol or scenario.protocols[0]
    if chosen not in scenario.protocols:
        raise UsageError(f"{name} is not played under {chosen}", hint=f"choose from {', '.join(scenario.protocols)}")
    coordinator = None if scenario.coordinator is None else Coordinator(**scenario.coordinator)
    history = History(Cluster(scenario.brokers, chosen, **scenario.settings), coordinator)
    scenario.play(history)
    return history
