"""Named histories of transactions: ended well, left open, torn, fenced, and lost in part."""

from typing import Final

from kafka_forensics.simulation.cluster import Partition
from kafka_forensics.simulation.history import History
from kafka_forensics.simulation.history_transactions import arrive, begin, end, end_arrives, late, write
from kafka_forensics.simulation.producers import Producer
from kafka_forensics.simulation.scenario import Scenario

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
