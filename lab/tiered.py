"""Disks of a cluster with tiered topics (KIP-405) in many states: `python -m lab.tiered FOLDER` makes all of them.

Kafka 4.3.1 with `LocalTieredStorage` of Kafka's tests: the remote store is a directory, one file per object. Broker 4 holds no
client topic, only `__remote_log_metadata`, which therefore survives elections in which the others lose records.
"""

import json
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from lab.cluster import ADMIN_TIMEOUT_SECONDS, FIRST_CONTROLLER
from lab.errors import LabError
from lab.files import copy_tree
from lab.jvm import run_tool, wait_until
from lab.kafka_jars import LAB, kafka_jars
from lab.salvage_states import Acknowledged, go_on, values, write_transactions
from lab.unclean_election import fully_replicated
from lab.version_healthy import Traffic
from lab.version_histories import META_PROPERTIES
from lab.version_workload import Contents, Place, delete_records, lost, read_everything, spans
from lab.versions import PROMPT, SESSION, SinceKafka4
from lab.workload import SMALL_SEGMENTS, Writer

VERSION: Final = "4.3.1"
GET_OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
WANTED_OFFSETS: Final = ("earliest", "earliest-local", "latest-tiered", "latest")
TASK_INTERVAL_SECONDS: Final = 1
QUIET_SECONDS: Final = 8
"""Nothing is copied or deleted for this long, which is many runs of every task."""
STAYING_SECONDS: Final = 40
"""Time after a start; with a wrong log start Kafka deleted 43 of 44 segments within seconds."""
STORE: Final = "remote"
METADATA: Final = f"{CLUSTER_METADATA_TOPIC}-0"
METADATA_HOLDER: Final = 4
WIPED: Final = 3
LEADER, BEHIND, FAR_BEHIND = 1, 2, 3
COMMON, WITHOUT_ONE, ALONE, AFTERWARDS = 300, 100, 75, 45
"""Records of `aud` and `lag` on three replicas, on two, on the leader only, and of the leader elected uncleanly."""
TRIMMED_TO: Final = 100
EXPIRING: Final = "expiring"
"""A topic whose retention may delete segments at any time: nothing is asserted about what is left of it."""

TIERED: Final = {"remote.storage.enable": "true", "retention.ms": "-1"}
DRAINED: Final = {**TIERED, "local.retention.ms": "1000"}
"""All segments become remote; local logs are empty when nobody writes."""
PARTLY: Final = {**TIERED, "local.retention.bytes": "16384"}
"""Some segments stay local, as on most clusters."""
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "drained": DRAINED,
    "partly": PARTLY,
    "trimmed": PARTLY,
    EXPIRING: {**TIERED, "retention.bytes": "32768", "local.retention.bytes": "8192"},
    "late": {"retention.ms": "-1"},
    "frozen": DRAINED,
    "off": DRAINED,
    "deleted": DRAINED,
    "flat": {"retention.ms": "-1"},
}
WRITTEN_ON: Final = ("drained", "partly", "trimmed", EXPIRING, "late", "frozen", "flat")
"""Topics under traffic; `transactions` has an open transaction, and `off` and `deleted` are as their names say."""
REMOTE_TOPICS: Final = ("drained", "partly", "trimmed", EXPIRING, "late", "frozen", "transactions")
"""Topics with remote segments."""
TOPICS_LEFT: Final = (*(topic for topic in TOPICS if topic != "deleted"), "transactions")
UNCLEAN_TOPICS: Final[Mapping[str, Mapping[str, str]]] = {"aud": DRAINED, "lag": PARTLY}

SETTINGS: Final = {
    **PROMPT,
    "default.replication.factor": "3",
    "log.retention.check.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.local.retention.ms": "-2",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": str(TASK_INTERVAL_SECONDS * 1000),
    "remote.log.manager.copier.thread.pool.size": "2",
    "remote.log.manager.expiration.thread.pool.size": "2",
    "remote.log.reader.threads": "2",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "4",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
}
METADATA_TOPIC_SETTINGS: Final = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
}
"""Settings for a cluster of three brokers."""


@dataclass(frozen=True, slots=True)
class Truth:
    """At the moment of a copy: the records acknowledged to clients, the offsets that brokers report, and the objects of the remote
    store."""

    acknowledged: Contents
    """Offset → value of each partition, from its log start; without deleted topics and `EXPIRING`."""
    offsets: Mapping[str, Mapping[Place, int]]
    """`earliest`, `earliest-local`, `latest-tiered` and `latest` of each partition; empty if no broker ran."""
    objects: tuple[str, ...]
    """The `.log` objects of the remote store, `TOPIC-PARTITION-ID/OFFSET-SEGMENT.log`."""


@dataclass(frozen=True, slots=True)
class State:
    """Copies of all log directories (`broker-1` …, `controller-100`) and of the remote store, in one folder."""

    name: str
    folder: Path
    truth: Truth
    live: bool = False
    lost: Contents = field(default_factory=dict)
    """Acknowledged records lost by an election."""

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The copies of log directories."""
        return tuple(path for path in sorted(self.folder.iterdir()) if path.name != STORE)


def tiered_jars() -> Path:
    """The jars of Kafka with those of its tests."""
    return kafka_jars(VERSION, LAB / "pom-tiered.xml", "kafka-tiered")


class TieredCluster(SinceKafka4):
    """Controller 100 and brokers 1 … 4, whose remote store is the directory `remote` beside their log directories."""

    def __init__(self, directory: Path, brokers: int = METADATA_HOLDER, settings: Mapping[str, str] | None = None) -> None:
        self.store = directory.resolve() / STORE
        super().__init__(
            directory,
            brokers,
            version_jars=tiered_jars(),
            broker_settings={**SETTINGS, **(settings or {}), "rsm.config.dir": str(self.store)},
            controller_settings={**SESSION, "remote.log.storage.system.enable": "true"},
        )

    def create_topic(
        self, name: str, *, assignment: list[list[int]] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, by default on brokers 1 to 3."""
        super().create_topic(name, assignment=assignment or [[1, 2, 3]], settings=settings)

    def objects(self) -> tuple[str, ...]:
        """The `.log` objects of the remote store."""
        return tuple(sorted(f"{path.parent.name}/{path.name}" for path in self.store.rglob("*.log")))

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic; its other settings stay."""
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)

    def offsets(self, wanted: str) -> dict[Place, int]:
        """The offsets that `kafka-get-offsets --time` prints for client topics; partitions without such an offset are left out.
        Raises LabError."""
        arguments = ["--bootstrap-server", self.awake, "--time", wanted, "--exclude-internal-topics"]
        done = run_tool(GET_OFFSETS, arguments, jars=self._jars)
        if done.exit_code != 0:
            raise LabError(f"no offsets {wanted}: {(done.stdout + done.stderr)[-500:].decode(errors='replace')}")
        rows = [line.rsplit(":", 2) for line in done.stdout.decode().splitlines() if line.count(":") == 2]
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows if offset and not topic.startswith("__")}

    def local_starts(self) -> dict[tuple[int, str], int]:
        """(broker, partition directory) → base offset of the first local segment."""
        starts: dict[tuple[int, str], int] = {}
        for broker in self.brokers:
            for path in self.log_dir(broker).glob("*-[0-9]*/*.log"):
                key, base_offset = (broker, path.parent.name), int(path.stem)
                starts[key] = min(starts.get(key, base_offset), base_offset)
        return starts

    def await_quiet(self, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Wait until nothing was copied to the remote store or deleted, remotely or locally, for `quiet_seconds`. Raises
        LabError."""
        seen: list[tuple[object, float]] = []

        def quiet() -> bool:
            now = (self.objects(), self.local_starts())
            if not seen or seen[-1][0] != now:
                seen.append((now, time.monotonic()))
            return time.monotonic() - seen[-1][1] > quiet_seconds

        wait_until("the remote store is quiet", quiet, timeout_seconds=120, step_seconds=0.5)

    def await_in_sync(self) -> None:
        """Wait until every partition has a leader and all its replicas are in sync. Raises LabError."""
        wait_until("all replicas are in sync", lambda: fully_replicated(self), timeout_seconds=90, step_seconds=1.0)


class TieredTraffic(Traffic):
    """Clients that write to the tiered topics until the `with` block ends; acknowledged records are remembered."""

    def __init__(self, cluster: TieredCluster, written: Mapping[str, Acknowledged]) -> None:
        super().__init__(cluster)
        self._written = written

    def _write(self) -> None:
        writer = Writer(self._cluster, enable_idempotence=True, linger_ms=5, message_timeout_ms=5000)
        while not self._stop.wait(0.05):
            for topic in WRITTEN_ON:
                self._written[topic].batch(writer, topic, values(f"{topic} under traffic", self.rounds * 10, 10))
            self.rounds += 1


@dataclass
class TieredHistory:
    """A cluster whose disks go through states in order; their copies go below `root`."""

    cluster: TieredCluster
    root: Path
    written: dict[str, Acknowledged] = field(default_factory=dict)
    starts: dict[Place, int] = field(default_factory=dict)
    """The log starts that brokers reported last."""

    @property
    def nodes(self) -> list[int]:
        """All nodes."""
        return [*self.cluster.controllers, *self.cluster.brokers]

    def write(self, topic: str, count: int) -> None:
        """Write further records to a topic."""
        written = self.written.setdefault(topic, Acknowledged())
        first = max(written.records, default=-1) + 1
        go_on(self.cluster, topic, written, first, first + count)

    def make_topics(self) -> None:
        """Make every legal state of a topic: see `TOPICS`."""
        cluster = self.cluster
        for topic, settings in TOPICS.items():
            cluster.create_topic(topic, settings={**SMALL_SEGMENTS, **settings})
            self.write(topic, 300)
        self.written["transactions"] = write_transactions(cluster, "transactions")
        cluster.alter_topic("transactions", DRAINED)
        cluster.await_quiet()
        cluster.alter_topic("late", DRAINED)
        delete_records(cluster, "trimmed", TRIMMED_TO)
        cluster.alter_topic(
            "frozen", {"remote.log.copy.disable": "true", "local.retention.ms": "-2", "local.retention.bytes": "-2"}
        )
        cluster.alter_topic("off", {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
        admin = cluster.admin()
        admin.delete_topics(["deleted"])["deleted"].result(ADMIN_TIMEOUT_SECONDS)
        for topic in WRITTEN_ON:
            self.write(topic, 60)
        del self.written["deleted"]
        cluster.await_quiet()

    def truth(self, *, with_offsets: bool = True) -> Truth:
        """The truth at this moment."""
        offsets = {wanted: self.cluster.offsets(wanted) for wanted in WANTED_OFFSETS} if with_offsets else {}
        self.starts.update(offsets.get("earliest", {}))
        acknowledged = {
            (topic, 0): {
                offset: value for offset, (value, _) in sorted(written.records.items()) if offset >= self.starts.get((topic, 0), 0)
            }
            for topic, written in self.written.items()
            if topic != EXPIRING
        }
        return Truth(acknowledged, offsets, self.cluster.objects())

    def copy(self, name: str, truth: Truth, *, live: bool = False, gone: Contents | None = None) -> State:
        """Copy all log directories and the remote store: live directories file by file, others with frozen brokers."""
        state = State(name, self.root / name, truth, live, gone or {})
        if live:
            for node in self.nodes:
                copy_tree(self.cluster.log_dir(node), state.folder / self.cluster.log_dir(node).name)
        else:
            self.cluster.copy(state.folder, self.nodes)
        copy_tree(self.cluster.store, state.folder / STORE)
        (self.root / f"{name}.truth.json").write_text(json.dumps(truth_document(state), indent=1))
        return state

    def restore(self, state: State) -> None:
        """Replace the disks of the stopped nodes and the remote store by those of a state."""
        cluster = self.cluster
        shutil.rmtree(cluster.store)
        copy_tree(state.folder / STORE, cluster.store)
        for node in self.nodes:
            for directory in (cluster.log_dir(node), before(cluster.log_dir(node))):
                shutil.rmtree(directory, ignore_errors=True)
            copy_tree(state.folder / cluster.log_dir(node).name, cluster.log_dir(node))

    def stop(self) -> None:
        """Stop all nodes cleanly, broker 1 last, so that it leads after the next start."""
        for broker in reversed(self.cluster.brokers):
            self.cluster.stop(broker)
        self.cluster.stop(*self.cluster.controllers)

    def start(self) -> None:
        """Start all nodes, and wait until all replicas are in sync."""
        self.cluster.start(*self.nodes)
        self.cluster.await_in_sync()

    # States without any loss.

    def silent_states(self) -> list[State]:
        """Running, live, killed, stopped, and with a replaced disk. All nodes are stopped afterwards."""
        cluster = self.cluster
        self.make_topics()
        states = [self.copy("running", self.truth())]
        with TieredTraffic(cluster, self.written) as traffic:
            for number in range(3):
                states.append(self.copy(f"live-{number}", self.truth(with_offsets=False), live=True))
                traffic.await_rounds(5)
            cluster.freeze(*cluster.brokers)
            cluster.kill(*cluster.brokers)
        cluster.stop(*cluster.controllers)
        states.append(self.copy("killed", self.truth(with_offsets=False)))
        self.start()
        cluster.await_quiet()
        truth = self.truth()
        self.stop()
        states.append(self.copy("stopped", truth))
        self.wipe(WIPED)
        self.start()
        cluster.await_quiet()
        truth = self.truth()
        self.stop()
        states.append(self.copy("rebuilt", truth))
        return states

    def wipe(self, broker: int) -> None:
        """Replace a broker's disk by one that has only `meta.properties`."""
        log_dir = self.cluster.log_dir(broker)
        kept = (log_dir / META_PROPERTIES).read_bytes()
        shutil.rmtree(log_dir)
        log_dir.mkdir()
        (log_dir / META_PROPERTIES).write_bytes(kept)

    # States of a leader that acknowledged and tiered records alone.

    def isolate(self) -> State:
        """Make broker 1 the only one with all records of `aud` and `lag`, and kill it: broker 3 lacks 175 records, broker 2 lacks
        75.

        All segments of `aud` are remote, some of `lag` are local. All nodes are stopped afterwards.
        """
        cluster = self.cluster
        for topic, settings in UNCLEAN_TOPICS.items():
            cluster.create_topic(topic, settings={**SMALL_SEGMENTS, **settings, "min.insync.replicas": "1"})
            self.write(topic, COMMON)
        cluster.await_quiet()
        for stopped, count, isr in ((FAR_BEHIND, WITHOUT_ONE, [LEADER, BEHIND]), (BEHIND, ALONE, [LEADER])):
            cluster.stop(stopped)
            for topic in UNCLEAN_TOPICS:
                cluster.await_isr(topic, isr)
                self.write(topic, count)
            cluster.await_quiet()
        truth = self.truth()
        cluster.kill(LEADER)
        self._await_metadata()
        cluster.stop()
        return self.copy("isolated", truth)

    def elect(self, leader: int, isolated: State) -> Contents:
        """Start all brokers but 1, elect `leader` uncleanly, and return the acknowledged records that readers no longer get.

        The other replica joins afterwards. All topics lost their leader; only `aud` and `lag` lose records.
        """
        cluster = self.cluster
        cluster.start(FIRST_CONTROLLER, METADATA_HOLDER)
        self._await_metadata()
        cluster.start(leader)
        wait_until("all partitions are led", partial(self._all_led, leader), timeout_seconds=90, step_seconds=1.0)
        cluster.start(*{BEHIND, FAR_BEHIND} - {leader})
        for topic in (*TOPICS_LEFT, *UNCLEAN_TOPICS):
            cluster.await_isr(topic, [BEHIND, FAR_BEHIND])
        return self.missing(isolated.truth)

    def _leaders(self) -> dict[Place, int]:
        listed = self.cluster.admin().list_topics(timeout=ADMIN_TIMEOUT_SECONDS).topics
        return {(topic, number): partition.leader for topic in listed for number, partition in listed[topic].partitions.items()}

    def _await_metadata(self) -> None:
        """Wait until broker 4 leads `__remote_log_metadata`; otherwise an unclean election would lose its records too."""

        def led() -> bool:
            return {led for (topic, _), led in self._leaders().items() if topic == REMOTE_LOG_METADATA_TOPIC} == {METADATA_HOLDER}

        wait_until("broker 4 leads the metadata", led, timeout_seconds=90, step_seconds=1.0)

    def _all_led(self, leader: int) -> bool:
        leaders = self._leaders()
        if leaderless := [place for place, led in leaders.items() if led < 0 or (place[0] in UNCLEAN_TOPICS and led == LEADER)]:
            try:
                self.cluster.elect_unclean_all(leaderless)
            except LabError:
                return False  # the controller does not know yet that the old leader is dead
        return not leaderless and all(leaders.get((topic, 0)) == leader for topic in UNCLEAN_TOPICS)

    def missing(self, truth: Truth) -> dict[Place, dict[int, bytes]]:
        """Acknowledged records that readers no longer get."""
        gone = lost(truth.acknowledged, read_everything(self.cluster, truth.acknowledged))
        return {place: {offset: truth.acknowledged[place][offset] for offset in offsets} for place, offsets in gone.items()}

    def lose(self, isolated: State) -> State:
        """Elect broker 2 uncleanly, and write other records at the offsets of those that it lacks. All nodes are stopped
        afterwards."""
        gone = self.elect(BEHIND, isolated)
        for topic in UNCLEAN_TOPICS:
            go_on(self.cluster, topic, Acknowledged(), 1000, 1000 + AFTERWARDS)
        self.cluster.await_quiet()
        truth = self.truth()
        self.cluster.stop()
        return self.copy("unclean", truth, gone=gone)


def before(log_dir: Path) -> Path:
    """The path to which `put_in_place` renames a log directory."""
    return log_dir.with_name(f"{log_dir.name}.before")


def truth_document(state: State) -> dict[str, object]:
    """The truth of a state as JSON."""
    truth = state.truth
    return {
        "version": VERSION,
        "live": state.live,
        "lost": {f"{topic}-{partition}": spans(records) for (topic, partition), records in state.lost.items()},
        "acknowledged": {f"{topic}-{partition}": len(records) for (topic, partition), records in truth.acknowledged.items()},
        "offsets": {
            wanted: {f"{topic}-{partition}": offset for (topic, partition), offset in sorted(rows.items())}
            for wanted, rows in truth.offsets.items()
        },
        "remote_log_objects": truth.objects,
    }


def without_controllers_log(state: State, target: Path) -> tuple[Path, ...]:
    """Copy the brokers' log directories without the controllers' log."""
    for log_dir in state.folder.glob("broker-*"):
        copy_tree(log_dir, target / log_dir.name)
        shutil.rmtree(target / log_dir.name / METADATA)
    return tuple(sorted(target.iterdir()))


def without_topics(state: State, target: Path, topics: Collection[str]) -> tuple[Path, ...]:
    """Copy a state, its remote store included, without the replicas of these topics."""
    for path in state.folder.iterdir():
        copy_tree(path, target / path.name)
    for path in target.glob("broker-*/*-[0-9]*"):
        if path.name.rpartition("-")[0] in topics:
            shutil.rmtree(path)
    return tuple(sorted(target.iterdir()))


def states(history: TieredHistory) -> Iterator[State]:
    """All states, in order. All nodes are stopped afterwards."""
    yield from history.silent_states()
    history.start()
    isolated = history.isolate()
    yield isolated
    yield history.lose(isolated)


def main() -> None:
    """Make all states below the new folder on the command line."""
    root = Path(sys.argv[1])
    with TieredCluster(root / "nodes") as cluster:
        for state in states(TieredHistory(cluster, root)):
            print(state.name, flush=True)


if __name__ == "__main__":
    main()
