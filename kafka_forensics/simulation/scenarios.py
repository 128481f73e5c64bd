"""Named scenarios: what happens in each, as a function that plays it on a small cluster, and what a scan must find at the end."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from kafka_forensics.errors import UsageError
from kafka_forensics.replication.acks import ACKS_LEADER
from kafka_forensics.simulation.cluster import PROTOCOLS, Cluster, SimulatedPartition, TruncationProtocol
from kafka_forensics.simulation.history import ExpectedFinding, History
from kafka_forensics.simulation.producers import FIRST_PRODUCER_ID, Producer
from kafka_forensics.simulation.transactions import TV2, Coordinator

FROM_KIP_101: Final[tuple[TruncationProtocol, ...]] = ("kip-101", "kip-279", "kip-320")
"""Protocols with leader epochs."""
NEWEST: Final[tuple[TruncationProtocol, ...]] = ("kip-320",)
VERSION_2: Final = (TV2, True)
"""`Coordinator.version` and `verifies` of Kafka 4."""
BEFORE_KIP_890: Final = (0, False)
"""The same up to Kafka 3.5."""
LATER_S: Final = 30 * 60
"""Longer than any transaction may take (15 minutes, and five that brokers grant on top)."""


class Scenario(Struct, frozen=True):
    """A history that can be played; `protocols` are those under which it makes sense, its default first."""

    name: str
    message: str
    play: Callable[[History], None]
    protocols: tuple[TruncationProtocol, ...]
    brokers: tuple[int, ...]
    transactions: tuple[int, bool] | None
    """`version` and `verifies` of the transaction coordinator; None: there is none."""


SCENARIOS: Final[dict[str, Scenario]] = {}
"""By name, in the order in which they are listed."""


def play(name: str, protocol: TruncationProtocol | None = None) -> History:
    """Play a scenario, under its default protocol unless another is given. Raises UsageError where it has no meaning there."""
    scenario = SCENARIOS[name]
    chosen = protocol or scenario.protocols[0]
    if chosen not in scenario.protocols:
        raise UsageError(f"{name} does not support {chosen}", hint=f"choose from {', '.join(scenario.protocols)}")
    coordinator = None if scenario.transactions is None else Coordinator(*scenario.transactions)
    history = History(Cluster(scenario.brokers, chosen), coordinator)
    scenario.play(history)
    return history


def _scenario(
    name: str,
    message: str,
    *,
    protocols: tuple[TruncationProtocol, ...] = NEWEST,
    brokers: tuple[int, ...] = (1, 2, 3),
    transactions: tuple[int, bool] | None = None,
) -> Callable[[Callable[[History], None]], Callable[[History], None]]:
    """Add the decorated function to `SCENARIOS`."""

    def add(plays: Callable[[History], None]) -> Callable[[History], None]:
        SCENARIOS[name] = Scenario(name, message, plays, protocols, brokers, transactions)
        return plays

    return add


@_scenario(
    "hw-lag-loss",
    "A follower restarts and cuts a committed record at its high watermark; then it is elected.",
    protocols=PROTOCOLS,
    brokers=(1, 2),
)
def _hw_lag_loss(history: History) -> None:
    # the first case of KIP-101: a restarted follower forgets a committed record
    partition = history.create("t")
    history.produce_and_copy(partition)
    history.checkpoint()
    history.produce(partition)
    history.fetch(partition, 2)
    history.fetch(partition, 2, answered=False, note="; broker 1 acknowledges r1")
    history.checkpoint(1)
    history.kill(2, detected=False)
    history.start(2)
    history.kill(1)
    history.produce(partition)
    history.shut_down()
    if history.cluster.has_leader_epochs:
        history.expect("REPLICA_LAGS", "info", partition, 1, (2, 3), [2])
        history.add_conclusion("Broker 2 keeps r1 when it restarts: it truncates nothing before the leader's answer.")
        return
    history.expect("FORK_BELOW_HW", "critical", partition, None, (1, 2), [])
    history.add_conclusion(
        "r1 was acknowledged with acks=all, but no consumer can read it: the new leader truncated it when it was a follower."
    )
    history.add_conclusion("When broker 1 comes back it keeps r1 below its high watermark, permanently, where broker 2 has r2.")


@_scenario(
    "hw-lag-divergence",
    "Two brokers lose power; after that they permanently have different records at the same offset.",
    protocols=PROTOCOLS,
    brokers=(1, 2),
)
def _hw_lag_divergence(history: History) -> None:
    # the second case of KIP-101: both brokers lose power, and the first to restart has less on its disk
    partition = history.create("t")
    history.produce_and_copy(partition)
    history.checkpoint()
    history.flush()
    history.produce_and_copy(partition)
    history.checkpoint()
    history.flush(1)
    history.lose_power(1, 2, detected=False)
    history.start(2)
    history.produce(partition)
    history.start(1)
    history.fetch(partition, 1)
    history.copy_all(partition)
    history.shut_down()
    if history.cluster.has_leader_epochs:
        history.add_conclusion(
            "Broker 1 requests the end of epoch 0 and truncates r1: the logs agree. r1, which only one disk had, is lost"
            " nevertheless."
        )
        history.add_conclusion("No file shows that: a record that no copy has and no checkpoint counts leaves no trace.")
        return
    history.expect("FORK_BELOW_HW", "critical", partition, None, (1, 2), [])
    history.add_conclusion(
        "Broker 1 is back in the ISR, its log has the same length, and no broker notices. What consumers read depends on the"
        " leader."
    )


@_scenario(
    "fast-leader-changes",
    "The leader changes twice before a broker learns of the first change, and two logs diverge below the last epoch.",
    protocols=FROM_KIP_101,
    brokers=(1, 2),
)
def _fast_leader_changes(history: History) -> None:
    # KIP-279
    partition = history.create("t", assignment=(2, 1))
    history.produce_and_copy(partition)
    history.pause(2, detected=True)
    history.resume(2)
    history.copy_all(partition)
    history.produce(partition, acks=ACKS_LEADER)
    history.elect(partition, preferred=True, receivers=(2,))
    history.produce(partition, acks=ACKS_LEADER)
    history.stop(2)
    history.produce(partition)
    history.start(2)
    history.fetch(partition, 2)
    history.copy_all(partition)
    history.shut_down()
    if history.cluster.protocol == "kip-101":
        history.expect("FORK_BELOW_HW", "critical", partition, None, (1, 2), [])
        history.add_conclusion(
            "Broker 2 requested the end of epoch 2, which broker 1 does not have; a later epoch begins at offset 2, so r2 was kept."
        )
        history.add_conclusion("Lengths, last epochs and last records are equal: only a comparison from the front finds the fork.")
        return
    history.add_conclusion(
        "Broker 2 got epoch 1, which it does not have, sent a second request with its last lower epoch, and truncated r2."
    )


@_scenario("unclean-election", "All in-sync replicas are down, and a broker that lags is elected.")
def _unclean_election(history: History) -> None:
    partition = history.create("t")
    history.produce_and_copy(partition, count=2)
    history.checkpoint()
    history.stop(2)
    history.kill(3)
    history.produce(partition, count=2)
    history.checkpoint()
    history.kill(1)
    history.start(2)
    history.elect(partition, unclean=True)
    history.produce(partition)
    history.shut_down()
    history.expect("UNCLEAN_ELECTION", "info", partition, None, (2, 4), [1])
    history.expect("UNCLEAN_LOSS", "critical", partition, None, (2, 4), [1])
    history.expect("REPLICA_LAGS", "info", partition, 3, (2, 4), [])
    history.add_conclusion("r2 and r3 were acknowledged and are on broker 1 only, which truncates them when it comes back.")


@_scenario("last-replica-standing", "The last member of the ISR loses records that only it had, and is elected cleanly.")
def _last_replica_standing(history: History) -> None:
    # KIP-966
    partition = history.create("t")
    history.flush()
    history.produce_and_copy(partition)
    history.flush()
    history.stop(2)
    history.produce_and_copy(partition)
    history.checkpoint()
    history.kill(3)
    history.lose_power(1)
    history.start(1)
    history.produce(partition)
    history.shut_down()
    history.expect("LRS_LOSS", "critical", partition, None, (1, 2), [3])
    history.expect("REPLICA_LAGS", "info", partition, 2, (1, 2), [])
    history.add_conclusion(
        "The election was clean, but its leader has no records: r1 is only on broker 3, which left the ISR when it failed."
    )


@_scenario("acks1-leader-failure", "A leader acknowledges with acks=1 and fails before a follower has fetched.")
def _acks1_leader_failure(history: History) -> None:
    partition = history.create("t", min_insync_replicas=2)
    history.produce_and_copy(partition)
    history.checkpoint()
    history.produce(partition, acks=ACKS_LEADER)
    history.kill(1)
    history.produce_and_copy(partition)
    history.shut_down()
    history.expect("FORK_ABOVE_HW", "info", partition, None, (1, 2), [])
    history.add_conclusion("Only broker 1 acknowledged r1, and no rule is broken: it truncates r1 when it comes back.")


@_scenario("retry-without-idempotence", "A response is lost and the producer sends again: the record is in the log twice.")
def _retry_without_idempotence(history: History) -> None:
    partition = history.create("t")
    history.produce_and_copy(partition)
    sent = history.produce(partition, answered=False)
    history.copy_all(partition)
    history.produce(partition, retry_of=sent)
    history.copy_all(partition)
    history.shut_down()
    history.add_conclusion(
        "The logs are good, and r1 is in them twice: a batch without a producer id does not show that it was sent again."
    )


@_scenario("retry-with-idempotence", "The same with sequence numbers: leaders recognise repeated batches.")
def _retry_with_idempotence(history: History) -> None:
    partition = history.create("t")
    producer = Producer(FIRST_PRODUCER_ID, 0)
    history.produce(partition, producer)
    history.copy_all(partition)
    sent = history.produce(partition, producer, answered=False)
    history.copy_all(partition)
    history.produce(partition, producer, retry_of=sent)
    late = history.produce(partition, producer, answered=False)
    history.copy_all(partition)
    history.kill(1)
    history.produce(partition, producer, retry_of=late)
    history.start(1)
    history.copy_all(partition)
    history.shut_down()
    history.add_conclusion("Both leaders knew the batches by producer id, epoch and sequence, the second one from its log.")


@_scenario("slow-follower", "A follower stops responding, is removed from the ISR, catches up and returns.")
def _slow_follower(history: History) -> None:
    partition = history.create("t", min_insync_replicas=2)
    history.produce_and_copy(partition)
    history.pause(3)
    history.produce_and_copy(partition)
    history.wait(31, "half a minute passes")
    history.copy_all(partition)
    history.shrink(partition)
    history.produce_and_copy(partition)
    history.resume(3)
    history.fetch(partition, 3)
    history.fetch(partition, 3)
    history.copy_all(partition)
    history.shut_down()
    history.add_conclusion(
        "r1 was acknowledged only when broker 3 was out of the ISR; with one member less, acks=all would be refused."
    )


@_scenario("txn-committed", "A transaction over two partitions is committed.", transactions=VERSION_2)
def _committed(history: History) -> None:
    first, second, app = _two_partitions(history)
    history.write(first, app)
    history.write(second, app)
    history.copy_all(first, second)
    history.end(app, commit=True)
    history.copy_all(first, second)
    history.shut_down()
    history.add_conclusion("Until the markers came, read_committed stopped before r0 and r1, though all replicas had them.")


@_scenario("txn-aborted", "A transaction over two partitions is aborted, the next one committed.", transactions=VERSION_2)
def _aborted(history: History) -> None:
    first, second, app = _two_partitions(history)
    history.write(first, app)
    history.write(second, app)
    history.end(app, commit=False)
    history.copy_all(first, second)
    history.write(first, app)
    history.end(app, commit=True)
    history.copy_all(first, second)
    history.shut_down()
    history.add_conclusion("r0 and r1 stay in the logs permanently; only read_uncommitted returns them.")


@_scenario(
    "txn-hanging",
    "A record arrives after its transaction was aborted, and read_committed stops before it permanently.",
    transactions=BEFORE_KIP_890,
)
def _hanging(history: History) -> None:
    # KAFKA-14402: the late record opens a transaction that nobody ends
    first, second, app = _two_partitions(history)
    history.write(first, app)
    lost = history.send_delayed(first, app)
    history.end(app, commit=False)
    history.arrive(first, app, lost)
    history.copy_all(first, second)
    history.wait(LATER_S, "half an hour passes")
    history.produce(first)
    history.copy_all(first, second)
    history.shut_down()
    history.expect("TXN_HANGING", "error", first, 1, (2, 3))
    history.add_conclusion(
        "The coordinator has no open transaction: read_committed consumers wait at offset 2 until an operator ends it."
    )


@_scenario(
    "txn-torn",
    "A delayed EndTxn commits the first half of the next transaction; the second half is aborted.",
    transactions=BEFORE_KIP_890,
)
def _torn(history: History) -> None:
    # KAFKA-17754: the late commit ends the next transaction in the middle
    first, second, app = _two_partitions(history)
    history.write(first, app)
    history.end(app, commit=True, note="; its first request for that is still on its way")
    history.copy_all(first, second)
    history.write(first, app)
    history.end(app, commit=True, delayed=True)
    history.copy_all(first, second)
    history.write(first, app, adds_partition=False)
    history.write(second, app)
    history.end(app, commit=False)
    history.copy_all(first, second)
    history.wait(LATER_S, "half an hour passes")
    history.produce(first)
    history.copy_all(first, second)
    history.shut_down()
    history.expect("TXN_HANGING", "error", first, 1, (4, 5))
    history.add_conclusion(
        "The application wrote r1, r2 and r3 in one transaction and aborted it: r1 is committed, r2 hangs, r3 is aborted."
    )
    history.add_conclusion("The files show only r2: the coordinator decided two transactions, and each has its markers.")


@_scenario("fenced-zombie", "An application comes back after another instance replaced it.", transactions=VERSION_2)
def _fenced_zombie(history: History) -> None:
    first, second, app = _two_partitions(history)
    history.write(first, app)
    other = Producer(transactional_id=app.transactional_id)
    history.begin(other, note=": a second instance, for which the first one's transaction is aborted")
    history.copy_all(first, second)
    history.begin(other, note=" (the second instance)")
    history.write(first, app, adds_partition=False, note=" (the first instance)")
    history.end(app, commit=True, note=" (the first instance)")
    history.write(second, other)
    history.end(other, commit=True)
    history.copy_all(first, second)
    history.shut_down()
    history.add_conclusion(
        "The first instance had epoch 0; the abort was written with epoch 1, and nothing with an older epoch is accepted after it."
    )


@_scenario(
    "txn-partly-lost",
    "A committed transaction is lost in one topic, whose only replica was on a lost disk.",
    transactions=VERSION_2,
)
def _partly_lost(history: History) -> None:
    orders, payments = history.create("orders", assignment=(1, 2)), history.create("payments", assignment=(3,))
    app = Producer(transactional_id="app")
    history.begin(app)
    history.write(orders, app)
    history.write(payments, app)
    history.end(app, commit=True)
    history.copy_all(orders)
    history.flush()
    history.checkpoint()
    history.wait(30, "half a minute passes")
    history.write(orders, app)
    history.write(payments, app)
    history.end(app, commit=True)
    history.copy_all(orders)
    history.flush(1, 2)
    history.lose_power(3)
    history.start(3)
    history.shut_down()
    history.expected.append(ExpectedFinding("RISKY_CONFIG", "info", "payments", None))
    history.expect("TXN_PARTLY_LOST", "critical", payments, 3, held_by=[])
    history.add_conclusion("orders-0 shows r2, and payments-0 does not have r3: only half of the transaction is left.")


@_scenario("txn-marker-lost", "A committed transaction loses one of its markers by an unclean election.", transactions=VERSION_2)
def _marker_lost(history: History) -> None:
    first, second, app = _two_partitions(history)
    history.write(first, app)
    history.write(second, app)
    history.copy_all(first, second)
    history.checkpoint()
    history.stop(3)
    history.stop(2)
    history.end(app, commit=True)
    history.checkpoint()
    history.kill(1)
    history.start(2)
    history.elect(second, unclean=True)
    history.start(1)
    history.start(3)
    history.copy_all(first, second)
    history.wait(LATER_S, "half an hour passes")
    history.produce(first)
    history.produce(second)
    history.copy_all(first, second)
    history.shut_down()
    history.expect("UNCLEAN_ELECTION", "info", second)
    history.expect("TXN_TORN", "critical", second, 2, (0, 1))
    history.add_conclusion(
        "The coordinator no longer has the transaction and does not write the marker again: read_committed stops before r1."
    )


def _two_partitions(history: History) -> tuple[SimulatedPartition, SimulatedPartition, Producer]:
    """Partitions t-0 and t-1, and a client that has its producer id."""
    first, second = history.create("t", 0), history.create("t", 1)
    app = Producer(transactional_id="app")
    history.begin(app)
    return first, second, app
