"""Named histories of replication, each a function that plays one on a small cluster."""

from typing import Final

from kafka_forensics.replication import acks as promises
from kafka_forensics.simulation.cluster import PROTOCOLS
from kafka_forensics.simulation.history import History
from kafka_forensics.simulation.producers import FIRST_PRODUCER_ID, Producer
from kafka_forensics.simulation.scenario import FROM_KIP_101, Scenario


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
