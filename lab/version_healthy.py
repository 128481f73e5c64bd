"""Healthy disks of a cluster of any version: copied at rest, after crashes, while a replica moves, and live under traffic."""

import threading
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException

from lab.cluster import Cluster
from lab.errors import LabError
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.version_histories import Histories, State, scanned
from lab.version_workload import EVENTS, TRIMMED, begin_move, delete_records, write_events
from lab.workload import FLUSH_TIMEOUT_SECONDS, Message, Writer, event

PAUSE_SECONDS: Final = 0.01
KILLED_AFTER_ROUNDS: Final = 4
LIVE: Final = "copied live"
DOWN: Final = 2
_BYTES_A_SECOND: Final = 1


class Traffic:
    """Clients that write until the `with` block ends: batches, transactions, keyed records to be cleaned, deleted records."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rounds = 0

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until("clients write", lambda: self.rounds > 0 or not self._thread.is_alive(), timeout_seconds=60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(4 * FLUSH_TIMEOUT_SECONDS)

    def await_rounds(self, more: int) -> None:
        """Wait for `more` rounds of writes to all topics. Raises LabError if the clients stopped."""
        wanted = self.rounds + more

        def written() -> bool:
            if not self._thread.is_alive():
                raise LabError("the clients gave up")
            return self.rounds >= wanted

        wait_until(f"{more} rounds of traffic", written, timeout_seconds=60)

    def _run(self) -> None:
        try:
            self._write()
        except (LabError, KafkaException):
            return  # the brokers were killed

    def _write(self) -> None:
        plain = Writer(self._cluster, linger_ms=5, message_timeout_ms=5000)
        sure = Writer(self._cluster, enable_idempotence=True, linger_ms=5, compression_type="lz4", message_timeout_ms=5000)
        cashier = Writer(self._cluster, transactional_id="cashier", linger_ms=5, transaction_timeout_ms=900_000)
        cashier.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
        while not self._stop.wait(PAUSE_SECONDS):
            for partition in range(3):
                plain.batch(EVENTS, _messages(EVENTS, self.rounds, 20), partition)
            sure.batch("orders", _messages("order", self.rounds, 10))
            plain.batch("profiles", _messages("profile", self.rounds, 20))
            plain.batch(TRIMMED, _messages(TRIMMED, self.rounds, 10))
            if self.rounds % 5 == 4:
                delete_records(self._cluster, TRIMMED, plain.end_offset - 5)
            cashier.producer.begin_transaction()
            for partition in range(2):
                cashier.batch("payments", _messages("payment", self.rounds, 5), partition)
            if self.rounds % 3:
                cashier.producer.commit_transaction(FLUSH_TIMEOUT_SECONDS)
            else:
                cashier.producer.abort_transaction(FLUSH_TIMEOUT_SECONDS)
            self.rounds += 1


def _messages(kind: str, turn: int, count: int) -> list[Message]:
    return [Message(event(kind, turn * count + n), b"user-%02d" % ((turn + n) % 40)) for n in range(count)]


def at_rest(histories: Histories) -> list[State]:
    """Copies of a running cluster, with a lagging stopped broker, after `kill -9`, and after all brokers stopped at once."""
    cluster = histories.cluster
    cluster.restore(histories.base, histories.nodes)
    histories.start()
    states = [State("running", scanned(histories.copy("running")))]
    cluster.stop(DOWN)
    for partition in range(3):
        write_events(cluster, EVENTS, 40, partition=partition)
    states.append(State("one broker down", scanned(histories.copy("one broker down"))))
    cluster.start(DOWN)
    histories.await_in_sync()
    states.append(_killed(histories, "killed at rest"))
    histories.start()
    cluster.stop()
    states.append(State("stopped at once", scanned(histories.copy("stopped at once"))))
    return states


def killed_under_traffic(histories: Histories, kills: int) -> list[State]:
    """Copies of `kills` crashes of all brokers while clients write; the brokers recover before each next crash."""
    cluster = histories.cluster
    cluster.restore(histories.base, histories.nodes)
    states = []
    for number in range(1, kills + 1):
        histories.start()
        with Traffic(cluster) as traffic:
            traffic.await_rounds(KILLED_AFTER_ROUNDS)
            states.append(_killed(histories, "killed under traffic", folder=f"killed-under-traffic-{number}"))
    return states


def _killed(histories: Histories, name: str, folder: str | None = None) -> State:
    """Kill all brokers at once, stop the controllers, and copy the disks."""
    cluster = histories.cluster
    cluster.freeze(*cluster.brokers)
    cluster.kill(*cluster.brokers)
    cluster.stop(*cluster.controllers)
    return State(name, scanned(histories.copy(folder or name)))


def moving(histories: Histories) -> State:
    """A copy of a broker that is moving a replica to its other log directory."""
    cluster = histories.cluster
    cluster.restore(histories.base, histories.nodes)
    histories.start()
    source = cluster.partition_dir(DOWN, EVENTS)
    [target] = [directory for directory in cluster.log_dirs(DOWN) if directory != source.parent]
    begin_move(cluster, histories.version, EVENTS, DOWN, target, bytes_a_second=_BYTES_A_SECOND)
    wait_until("a future copy begins", partial(_holds_data, target), timeout_seconds=60)
    folder = histories.copy("moving")
    histories.stop_one_by_one()
    return State("moving between disks", scanned(folder))


def _holds_data(target: Path) -> bool:
    return any(path.stat().st_size for path in target.glob(f"{EVENTS}-0.*-future/*.log"))


def copied_live(histories: Histories, count: int) -> list[State]:
    """`count` copies of all log directories, file by file, while clients write."""
    cluster = histories.cluster
    cluster.restore(histories.base, histories.nodes)
    histories.start()
    states = []
    with Traffic(cluster) as traffic:
        for number in range(count):
            folder = histories.root / f"live-{number}"
            for directory in [directory for node in histories.nodes for directory in cluster.log_dirs(node)]:
                copy_tree(directory, folder / directory.name)
            states.append(State(LIVE, scanned(folder), live=True))
            traffic.await_rounds(1)
    histories.stop_one_by_one()
    return states
