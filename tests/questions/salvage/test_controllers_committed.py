"""Whatever a quorum committed is in the log that is salvaged from any majority of its copies: held to a quorum that elects, writes,
loses nodes and forgets nothing, step by step as drawn."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_forensics.questions.salvage import Salvaged
from kafka_forensics.writers.files import write_quorum_state
from tests.support.controller_log import START_MS, ControllerLog, topic
from tests.support.salvaged import log_of, salvaged_of

METADATA = "__cluster_metadata-0"
Entry = tuple[int, int]
"""(leader epoch, number): number 0 is the leader's own record."""


@dataclass
class Node:
    """A voter: its log, the last epoch it knows of, and whether it voted in that."""

    log: list[Entry] = field(default_factory=list)
    epoch: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        return (self.log[-1][0] if self.log else 0, len(self.log))


@dataclass
class Quorum:
    """Nodes that elect leaders and follow them as Raft says (Ongaro & Ousterhout, figure 2), a message at a time."""

    nodes: list[Node]
    leader: int | None = None
    committed: list[Entry] = field(default_factory=list)
    led: set[int] = field(default_factory=set)
    """Epochs in which somebody led."""
    numbers: int = 0

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def elect(self, candidate: int, reached: set[int]) -> None:
        """A node stands for election among those that it reaches: they learn the epoch, and vote unless its log is behind."""
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
        """A follower cuts what the leader has not, and takes so many records; what a majority has is committed, if of its epoch."""
        if self.leader is None or follower == self.leader or self.nodes[follower].epoch > self._leading():
            return
        leader, node = self.nodes[self.leader], self.nodes[follower]
        node.epoch = self._leading()
        same = next((at for at, pair in enumerate(zip(node.log, leader.log, strict=False)) if pair[0] != pair[1]), None)
        del node.log[min(len(node.log), len(leader.log)) if same is None else same :]
        node.log += leader.log[len(node.log) : len(node.log) + count]
        for end in range(len(leader.log), len(self.committed), -1):
            held = sum(other.log[:end] == leader.log[:end] for other in self.nodes)
            if held >= self.majority and leader.log[end - 1][0] == self._leading():
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


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("elect"), st.integers(0, 4), st.sets(st.integers(0, 4), min_size=1)),
        st.tuples(st.just("write"), st.just(0), st.just(0)),
        st.tuples(st.just("follow"), st.integers(0, 4), st.integers(1, 3)),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, size=st.sampled_from([3, 5]), chosen=st.sets(st.integers(0, 4)), copied=st.integers(0, 4))
def test_what_was_committed_is_there(
    steps: list[tuple[str, int, int | set[int]]], size: int, chosen: set[int], copied: int
) -> None:
    quorum = Quorum([Node() for _ in range(size)])
    quorum.elect(0, set(range(size)))
    for kind, node, more in steps:
        if kind == "elect" and isinstance(more, set):
            quorum.elect(node % size, {number % size for number in more})
        elif kind == "write":
            quorum.write()
        elif isinstance(more, int):
            quorum.follow(node % size, more)
    given_nodes = {number for number in chosen if number < size}
    whole = {number for number in given_nodes if quorum.nodes[number].log}
    with TemporaryDirectory() as folder:
        salvaged = put(Path(folder), quorum, given_nodes, quorum.nodes[copied % size].log or [(1, 0)])
        assert bool(salvaged.partitions) == (len(whole) >= quorum.majority)
        if salvaged.partitions:
            written = b"".join(data for _, data in as_log(quorum.committed, list(range(1, size + 1))).batches)
            assert log_of(Path(folder) / "out", METADATA).startswith(written)
            epoch = json.loads((Path(folder) / "out" / METADATA / "quorum-state").read_text())["leaderEpoch"]
            assert epoch > max(quorum.led)
            assert salvaged.partitions[0].log_end_offset >= len(quorum.committed)
            assert [entry.leader_epoch for entry in salvaged.partitions[0].leader_epochs][-1] in quorum.led
