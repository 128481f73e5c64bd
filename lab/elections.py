"""Random elections on real brokers: histories after which replicas differ, copies of them, and how Kafka resolved them.

The partitions share three brokers, but have different leaders, settings and writes; so every round of stopping and starting the
brokers elects a leader of every partition.
"""

import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster
from lab.errors import LabError
from lab.jvm import wait_until
from lab.processes import listening
from lab.unclean_election import fully_replicated
from lab.workload import FLUSH_TIMEOUT_SECONDS, Writer, event

SESSION_SECONDS: Final = 5
CONTROLLER_SETTINGS: Final = {"broker.session.timeout.ms": str(SESSION_SECONDS * 1000)}
BROKER_SETTINGS: Final = {
    "replica.lag.time.max.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "60000",
}
"""High watermarks are written only when a broker stops, so that copies of a broker that was killed, or that just truncated its log,
always hold old ones."""
TOPICS: Final = tuple(f"election-{number}" for number in range(8))
"""Topics of one partition. Every second has `min.insync.replicas` 2, the last two allow unclean elections."""
FORCE: Final = 0
"""A step between starts of brokers: an unclean election of every topic without a leader."""
ENDS: Final = ("frozen, killed, and others go on", "all killed at once", "stopped one by one")
"""How a round stops its brokers; the rounds take turns."""
_TRUNCATING: Final = re.compile(r"partition=(?P<topic>[\w-]+)-0, .*Truncating to offset (?P<offset>\d+)")


@dataclass(frozen=True, slots=True)
class Round:
    """A round in which all brokers went down and came back."""

    before: Path
    """Copy of all log directories, the controller's too, while every broker is down."""
    after: Path
    """Copy of all log directories after all replicas are in sync again."""
    killed: frozenset[int]
    """Brokers that were not stopped cleanly."""
    steps: tuple[int, ...]
    """Brokers in the order they were started, and `FORCE`."""
    leaders: tuple[Mapping[str, int], ...]
    """Leader of each topic (-1: none) after each step."""
    truncated: Mapping[tuple[int, str], int]
    """(broker, topic) → the lowest offset to which the broker truncated, by its application log."""


@dataclass(frozen=True, slots=True)
class ElectionRounds:
    """All rounds, and the addresses on which the nodes listened."""

    rounds: tuple[Round, ...]
    listens: frozenset[str]


class Elections:
    """A cluster, its topics, and the random choices."""

    def __init__(self, cluster: Cluster, root: Path, seed: int) -> None:
        self.cluster = cluster
        self.root = root
        self.rng = random.Random(seed)
        self.write_rng = random.Random(seed)
        """A separate generator: how often it is used depends on the leaders, which a race may decide."""
        self.killed: set[int] = set()
        self.written = 0

    def create_topics(self) -> None:
        """Create all topics, each with its replicas in a random order."""
        for number, topic in enumerate(TOPICS):
            order = self.rng.sample(self.cluster.brokers, 3)
            settings = {"min.insync.replicas": str(1 + number % 2)}
            if number >= len(TOPICS) - 2:
                settings["unclean.leader.election.enable"] = "true"
            self.cluster.create_topic(topic, assignment=[order], settings=settings)

    def states(self) -> dict[str, tuple[int, frozenset[int]]]:
        """Topic → leader (-1: none) and ISR, as the running brokers report."""
        admin = self.cluster.admin()
        states: dict[str, tuple[int, frozenset[int]]] = {}

        def all_known() -> bool:
            """Whether the answering broker knows all topics; a new topic reaches some brokers later."""
            topics = admin.list_topics(timeout=ADMIN_TIMEOUT_SECONDS).topics
            partitions = {topic: topics[topic].partitions.get(0) for topic in TOPICS if topic in topics}
            states.update(
                {
                    topic: (partition.leader, frozenset(partition.isrs))
                    for topic, partition in partitions.items()
                    if partition is not None
                }
            )
            return len(states) == len(TOPICS)

        wait_until("a broker knows all topics", all_known, timeout_seconds=ADMIN_TIMEOUT_SECONDS)
        return states

    def settled(self) -> dict[str, tuple[int, frozenset[int]]]:
        """The states after they have not changed for a second."""
        seen = [self.states()]

        def same() -> bool:
            seen.append(self.states())
            return seen[-1] == seen[-2]

        wait_until("leaders settle", same, timeout_seconds=30, step_seconds=1.0)
        return seen[-1]

    def write(self, led: Mapping[str, tuple[int, frozenset[int]]], by: Iterable[int], *, acks: str, sure: bool = False) -> None:
        """Write a few batches to topics led by `by`: to a random 70 % of them, or with `sure` to all. Raises LabError."""
        leaders = set(by)
        chosen = [topic for topic in TOPICS if led[topic][0] in leaders and (sure or self.write_rng.random() < 0.7)]
        awake = self.cluster.awake
        writer = Writer(self.cluster, acks=acks, bootstrap_servers=awake, socket_timeout_ms=3000, linger_ms=20)
        failures: list[str] = []
        for _ in range(self.write_rng.randint(1, 3)):
            for topic in chosen:
                for _ in range(self.write_rng.randint(1, 4)):
                    self.written += 1
                    value = event(topic, self.written, acks=acks)
                    writer.producer.produce(
                        topic, value, partition=0, on_delivery=lambda error, _: failures.append(str(error)) if error else None
                    )
            if writer.producer.flush(FLUSH_TIMEOUT_SECONDS) or failures:
                raise LabError(f"not written by {leaders}: {failures[:1] or 'no answer'}")

    def kill(self, *brokers: int) -> None:
        """Kill brokers as in a crash."""
        self.cluster.kill(*brokers)
        self.killed.update(brokers)

    def make_replicas_differ(self, number: int) -> None:
        """Go from all replicas in sync to all brokers down, as `ENDS[number]` says."""
        cluster, first, second, third = self.cluster, *self.rng.sample(self.cluster.brokers, 3)
        self.write(self.settled(), cluster.brokers, acks="all", sure=True)
        led = self.states()
        if number == 2:
            cluster.stop(first)
            self.write(self.settled(), (second, third), acks="1")
            cluster.stop(second)
            self.write(self.settled(), (third,), acks="1")
            cluster.stop(third)
            return
        cluster.freeze(first)
        self.write(led, (second, third), acks="1", sure=True)
        if self.rng.random() < 0.5:
            wait_until("the frozen one is out", lambda: self._out({first}), timeout_seconds=30)
            led = self.settled()
            self.write(led, (second, third), acks="1")
        cluster.freeze(second)
        self.write(led, (third,), acks="1", sure=True)
        if self.rng.random() < 0.5:
            wait_until("the last is alone", lambda: self._out({first, second}), timeout_seconds=30)
            self.write(self.states(), (third,), acks="1")
        if number == 1:
            self.kill(first, second, third)
            return
        self.kill(third)
        cluster.thaw(first, second)
        wait_until("the dead one leads nothing", lambda: not self._leads(third), timeout_seconds=30)
        self.write(self.settled(), (first, second), acks="1")
        self.kill(second)
        cluster.stop(first)

    def _out(self, frozen: set[int]) -> bool:
        """Whether no ISR contains both one of these brokers and another broker."""
        return not any(isr & frozen and isr - frozen for _, isr in self.states().values())

    def _leads(self, broker: int) -> bool:
        return any(leader == broker for leader, _ in self.states().values())

    def come_back(self, steps: Iterable[int]) -> list[dict[str, int]]:
        """Start brokers (`FORCE`: elect uncleanly) one by one, wait until all are in sync; return the leaders after each step."""
        leaders = []
        for step in steps:
            if step == FORCE:
                self.force()
            else:
                self.cluster.start(step)
            leaders.append({topic: leader for topic, (leader, _) in self.settled().items()})
        wait_until("all replicas in sync", lambda: fully_replicated(self.cluster), timeout_seconds=90)
        return leaders

    def force(self) -> None:
        """Elect a leader uncleanly for every topic without one."""
        leaderless = [topic for topic, (leader, _) in self.settled().items() if leader < 0]
        if leaderless:
            self.cluster.elect_unclean_all([(topic, 0) for topic in leaderless])

    def round(self, number: int) -> Round:
        """Take all brokers down, copy the log directories, bring the brokers back, copy again."""
        self.killed.clear()
        self.make_replicas_differ(number % len(ENDS))
        time.sleep(SESSION_SECONDS + 2)  # until the controller has fenced killed brokers
        nodes = [*self.cluster.controllers, *self.cluster.brokers]
        before, after = (self.root / f"round-{number}-{when}" for when in ("before", "after"))
        self.cluster.copy(before, nodes)
        steps = self.rng.sample(self.cluster.brokers, 3)
        steps.insert(self.rng.randint(1, 2), FORCE)
        leaders = self.come_back(steps)
        self.cluster.copy(after, nodes)
        return Round(before, after, frozenset(self.killed), tuple(steps), tuple(leaders), self._truncated())

    def _truncated(self) -> dict[tuple[int, str], int]:
        """The lowest truncation offsets in the brokers' application logs since their last start."""
        lowest: dict[tuple[int, str], int] = {}
        for broker in self.cluster.brokers:
            for match in _TRUNCATING.finditer(self.cluster.server(broker).output.read_text(errors="replace")):
                key = broker, match["topic"]
                lowest[key] = min(int(match["offset"]), lowest.get(key, 1 << 62))
        return lowest


def make_elections(directory: Path, root: Path, *, seed: int, rounds: int) -> ElectionRounds:
    """Run rounds of elections on a cluster in `directory`, about 25 s each, with copies below `root`. Raises LabError."""
    with Cluster(directory, broker_settings=BROKER_SETTINGS, controller_settings=CONTROLLER_SETTINGS) as cluster:
        story = Elections(cluster, root, seed)
        story.create_topics()
        done = tuple(story.round(number) for number in range(rounds))
        nodes = [cluster.server(node).pid for node in (*cluster.controllers, *cluster.brokers)]
        return ElectionRounds(done, frozenset(address for node in nodes for address, _ in listening(node)))
