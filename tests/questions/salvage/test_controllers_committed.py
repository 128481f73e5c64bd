"""A log salvaged from any majority of the copies has everything that the quorum committed.

The quorum is simulated: it elects, writes and loses nodes in random steps.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from kafka_forensics.questions.salvage import Salvaged
from kafka_forensics.writers.files import write_quorum_state
from tests.questions.salvage.salvaged import log_of, of_first, salvaged_of
from tests.support.controllers import START_MS, ControllerLog, topic
from tests.support.nightly import daily_subset

METADATA = "__cluster_metadata-0"
Entry = tuple[int, int]
"""(leader epoch, number): number 0 is the leader's own record."""


@dataclass
class Node:
    """A voter: its log, the last epoch that it knows, and whether it voted in it."""

    log: list[Entry] = field(default_factory=list)
    epoch: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        return (self.log[-1][0] if self.log else 0, len(self.log))


@dataclass
class Quorum:
    """Nodes that elect and follow leaders by Raft (Ongaro & Ousterhout, figure 2), one message at a time."""

    nodes: list[Node]
    leader: int | None = None
    committed: list[Entry] = field(default_factory=list)
    led: set[int] = field(default_factory=set)
    """Epochs with a leader."""
    numbers: int = 0

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def elect(self, candidate: int, reached: set[int]) -> None:
        """A node is a candidate among those that it reaches: they learn the epoch, and vote unless its log is older."""
        epoch = self.nodes[candidate].epoch + 1
        votes = 0
        for number in reached | {candidate}:
            voter = self.nodes[number]
            if voter.epoch < epoch:
                voter.epoch = epoch
                votes += self.nodes[candidate].rank >= voter.rank
        if votes >= self.majority:
            assert epoch not in self.led
            self.led.add(epoch)
            self.leader = candidate
            self.nodes[candidate].log.append((epoch, 0))

    def write(self) -> None:
        """The leader appends a record."""
        if self.leader is not None:
            self.numbers += 1
            self.nodes[self.leader].log.append((self.nodes[self.leader].log[-1][0], self.numbers))

    def follow(self, follower: int, count: int) -> None:
        """A follower truncates records that the leader lacks and fetches; records of this epoch on a majority are committed."""
        if self.leader is None or follower == self.leader or self.nodes[follower].epoch > self._leading():
            return
        leader, node = self.nodes[self.leader], self.nodes[follower]
        node.epoch = self._leading()
        same = next((at for at, pair in enumerate(zip(node.log, leader.log, strict=False)) if pair[0] != pair[1]), None)
        del node.log[min(len(node.log), len(leader.log)) if same is None else same :]
        node.log += leader.log[len(node.log) : len(node.log) + count]
        for end in range(len(leader.log), len(self.committed), -1):
            holders = sum(other.log[:end] == leader.log[:end] for other in self.nodes)
            if holders >= self.majority and leader.log[end - 1][0] == self._leading():
                assert leader.log[: len(self.committed)] == self.committed
                self.committed = leader.log[:end]
                return

    def _leading(self) -> int:
        assert self.leader is not None
        return next(entry[0] for entry in reversed(self.nodes[self.leader].log) if entry[1] == 0)


def as_log(entries: list[Entry], voters: list[int]) -> ControllerLog:
    log = ControllerLog()
    for epoch, number in entries:
        log.start_ms = START_MS + 37 * epoch
        if number:
            log.append(topic(f"t{number}"))
        else:
            log.lead(voters, epoch)
    return log


def put(folder: Path, quorum: Quorum, given_nodes: set[int], observer: list[Entry]) -> Salvaged:
    voters = list(range(1, len(quorum.nodes) + 1))
    for number in given_nodes:
        directory = as_log(quorum.nodes[number].log, voters).put(folder / "in" / f"broker-{number + 1}", number + 1)
        (directory / "quorum-state").write_bytes(write_quorum_state(quorum.nodes[number].epoch, 0, voters))
    as_log(observer, voters).put(folder / "in" / "broker-9", 9)
    return salvaged_of(folder / "in", folder / "out")


def lived(chance: Random, size: int) -> Quorum:
    """A quorum after random steps."""
    quorum = Quorum([Node() for _ in range(size)])
    nodes = range(size)
    quorum.elect(0, set(nodes))
    for _ in range(chance.randrange(10, 60)):
        match chance.choices(("elect", "write", "follow"), (2, 4, 10))[0]:
            case "elect":
                quorum.elect(chance.choice(nodes), set(chance.sample(nodes, chance.randrange(1, size + 1))))
            case "write":
                quorum.write()
            case _:
                quorum.follow(chance.choice(nodes), chance.randrange(1, 4))
    return quorum


@pytest.mark.parametrize("seed", daily_subset(map(str, range(20)), range(100)))
def test_committed_records_are_salvaged(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    size = chance.choice((3, 3, 5))
    quorum = lived(chance, size)
    given_nodes = set(chance.sample(range(size), chance.randrange(quorum.majority - 1, size + 1)))
    whole = {number for number in given_nodes if quorum.nodes[number].log}
    salvaged = put(tmp_path, quorum, given_nodes, chance.choice(quorum.nodes).log or [(1, 0)])
    assert bool(salvaged.partitions) == (len(whole) >= quorum.majority)
    if salvaged.partitions:
        written = b"".join(data for _, data in as_log(quorum.committed, list(range(1, size + 1))).batches)
        assert log_of(tmp_path / "out", METADATA).startswith(written)
        epoch = json.loads((of_first(tmp_path / "out", METADATA) / "quorum-state").read_text())["leaderEpoch"]
        assert epoch > max(quorum.led)
