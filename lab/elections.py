"""Random elections on real brokers: histories in which copies come apart, the copies, and what Kafka then made of them.

All partitions share the fate of the three brokers, but not their leaders, their settings, or what is written to them when; so each
round of stopping and starting brokers is an election of every partition.
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
"""High watermarks are not written before a broker stops, so that copies of a killed one, and of one that has just cut its log, hold
old ones always and not by chance."""
TOPICS: Final = tuple(f"election-{number}" for number in range(8))
"""One partition each. Every second one has `min.insync.replicas` 2, the last two allow unclean elections."""
FORCE: Final = 0
"""Stands among the brokers to start: an unclean election of what has no leader yet."""
ENDS: Final = ("frozen, killed, and others go on", "all killed at once", "stopped one by one")
"""How the rounds take their brokers down."""
_TRUNCATING: Final = re.compile(r"partition=(?P<topic>[\w-]+)-0, .*Truncating to offset (?P<offset>\d+)")


@dataclass(frozen=True, slots=True)
class Round:
    """One time that all brokers were down, and came back."""

    before: Path
    """All log directories, controller's too, while every broker is down."""
    after: Path
    """The same, once all replicas are in sync again."""
    killed: frozenset[int]
    """Brokers that were not stopped cleanly."""
    steps: tuple[int, ...]
    """Brokers in the order they were started, and `FORCE`."""
    leaders: tuple[Mapping[str, int], ...]
    """Leader of each topic (-1: none) after each step."""
    truncated: Mapping[tuple[int, str], int]
    """(broker, topic) → the lowest offset to which the broker's own log says that it truncated."""


@dataclass(frozen=True, slots=True)
class Held:
    """All rounds, and the addresses at which the nodes listened."""

    rounds: tuple[Round, ...]
    listens: frozenset[str]


class Elections:
    """A cluster and its topics, and the dice."""

    def __init__(self, cluster: Cluster, root: Path, seed: int) -> None:
        self.cluster = cluster
        self.root = root
        self.dice = random.Random(seed)
        self.amounts = random.Random(seed)
        """Dice of their own: how often they are thrown depends on who leads, which a race may decide."""
        self.killed: set[int] = set()
        self.written = 0

    def create_topics(self) -> None:
        """All topics, each with its replicas in an order of its own."""
        for number, topic in enumerate(TOPICS):
            order = self.dice.sample(self.cluster.brokers, 3)
            settings = {"min.insync.replicas": str(1 + number % 2)}
            if number >= len(TOPICS) - 2:
                settings["unclean.leader.election.enable"] = "true"
            self.cluster.create_topic(topic, assignment=[order], settings=settings)

    def states(self) -> dict[str, tuple[int, frozenset[int]]]:
        """Topic → leader (-1: none) and ISR, as the brokers awake say."""
        admin = self.cluster.admin()
        known: dict[str, tuple[int, frozenset[int]]] = {}

        def all_known() -> bool:
            """Not every broker knows at once of a topic that another has made."""
            topics = admin.list_topics(timeout=ADMIN_TIMEOUT_SECONDS).topics
            partitions = {topic: topics[topic].partitions.get(0) for topic in TOPICS if topic in topics}
            known.update(
                {
                    topic: (partition.leader, frozenset(partition.isrs))
                    for topic, partition in partitions.items()
                    if partition is not None
                }
            )
            return len(known) == len(TOPICS)

        wait_until("a broker knows all topics", all_known, timeout_seconds=ADMIN_TIMEOUT_SECONDS)
        return known

    def settled(self) -> dict[str, tuple[int, frozenset[int]]]:
        """The states once they have not changed for a second."""
        seen = [self.states()]

        def same() -> bool:
            seen.append(self.states())
            return seen[-1] == seen[-2]

        wait_until("leaders settle", same, timeout_seconds=30, step_seconds=1.0)
        return seen[-1]

    def write(self, led: Mapping[str, tuple[int, frozenset[int]]], by: Iterable[int], *, acks: str, sure: bool = False) -> None:
        """Some batches to topics that `by` lead, a few to each and none to some; `sure`: to all."""
        leaders = set(by)
        chosen = [topic for topic in TOPICS if led[topic][0] in leaders and (sure or self.amounts.random() < 0.7)]
        awake = self.cluster.awake
        writer = Writer(self.cluster, acks=acks, bootstrap_servers=awake, socket_timeout_ms=3000, linger_ms=20)
        failures: list[str] = []
        for _ in range(self.amounts.randint(1, 3)):
            for topic in chosen:
                for _ in range(self.amounts.randint(1, 4)):
                    self.written += 1
                    value = event(topic, self.written, acks=acks)
                    writer.producer.produce(
                        topic, value, partition=0, on_delivery=lambda error, _: failures.append(str(error)) if error else None
                    )
            if writer.producer.flush(FLUSH_TIMEOUT_SECONDS) or failures:
                raise LabError(f"not written by {leaders}: {failures[:1] or 'no answer'}")

    def kill(self, *brokers: int) -> None:
        """End brokers as a crash would."""
        self.cluster.kill(*brokers)
        self.killed.update(brokers)

    def come_apart(self, number: int) -> None:
        """From all in sync to all down, by way `number` of `ENDS`."""
        cluster, first, second, third = self.cluster, *self.dice.sample(self.cluster.brokers, 3)
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
        if self.dice.random() < 0.5:
            wait_until("the frozen one is out", lambda: self._out({first}), timeout_seconds=30)
            led = self.settled()
            self.write(led, (second, third), acks="1")
        cluster.freeze(second)
        self.write(led, (third,), acks="1", sure=True)
        if self.dice.random() < 0.5:
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

    def _out(self, gone: set[int]) -> bool:
        """Whether these brokers are in no ISR beside others."""
        return not any(isr & gone and isr - gone for _, isr in self.states().values())

    def _leads(self, broker: int) -> bool:
        return any(leader == broker for leader, _ in self.states().values())

    def come_back(self, steps: Iterable[int]) -> list[dict[str, int]]:
        """Start brokers one by one, force what is to be forced; the leaders after each step, and all in sync at last."""
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
        """An unclean election of every topic without a leader."""
        headless = [topic for topic, (leader, _) in self.settled().items() if leader < 0]
        if headless:
            self.cluster.elect_unclean_all([(topic, 0) for topic in headless])

    def round(self, number: int) -> Round:
        """Take all brokers down, copy, bring them back, copy."""
        self.killed.clear()
        self.come_apart(number % len(ENDS))
        time.sleep(SESSION_SECONDS + 2)  # the controller fences who was killed
        nodes = [*self.cluster.controllers, *self.cluster.brokers]
        before, after = (self.root / f"round-{number}-{when}" for when in ("before", "after"))
        self.cluster.copy(before, nodes)
        steps = self.dice.sample(self.cluster.brokers, 3)
        steps.insert(self.dice.randint(1, 2), FORCE)
        leaders = self.come_back(steps)
        self.cluster.copy(after, nodes)
        return Round(before, after, frozenset(self.killed), tuple(steps), tuple(leaders), self._truncated())

    def _truncated(self) -> dict[tuple[int, str], int]:
        """What the brokers' own logs say since they were started last."""
        lowest: dict[tuple[int, str], int] = {}
        for broker in self.cluster.brokers:
            for match in _TRUNCATING.finditer(self.cluster.server(broker).output.read_text(errors="replace")):
                key = broker, match["topic"]
                lowest[key] = min(int(match["offset"]), lowest.get(key, 1 << 62))
        return lowest


def make_elections(directory: Path, root: Path, *, seed: int, rounds: int) -> Held:
    """Rounds of elections of a cluster in `directory`, about 25 s each, copies below `root`. Raises LabError."""
    with Cluster(directory, broker_settings=BROKER_SETTINGS, controller_settings=CONTROLLER_SETTINGS) as cluster:
        story = Elections(cluster, root, seed)
        story.create_topics()
        done = tuple(story.round(number) for number in range(rounds))
        nodes = [cluster.server(node).pid for node in (*cluster.controllers, *cluster.brokers)]
        return Held(done, frozenset(address for node in nodes for address, _ in listening(node)))
