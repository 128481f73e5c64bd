"""Histories of a cluster of any version, each starting from the same healthy disks, and what brokers then lose.

Every history leaves all nodes stopped, and the disks are copied. Then all nodes start normally, without flags or forced elections;
what readers no longer get is lost.
"""

import os
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.cluster import Cluster
from lab.errors import LabError, LabTimeoutError
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.unclean_election import fully_replicated
from lab.version_workload import (
    EVENTS,
    EVENTS_COUNT,
    Contents,
    Place,
    lost,
    places_of,
    read_everything,
    settle,
    topics_of,
    write_events,
    write_workload,
)
from lab.versions import Version, ZooKeeperCluster

LAST: Final = 3
"""The broker that stops last: alone in sync, and the leader of every partition."""
FOLLOWER: Final = 1
COMPRESSED: Final = "codec-lz4"
AUDIT: Final = "audit"
OLD_LEADER, STOPPED, STALE = 2, 3, 1
COMMON, ALONE, AFTERWARDS = 300, 70, 45
MORE: Final = 100
SETTLING_SECONDS: Final = 40
META_PROPERTIES: Final = "meta.properties"
BATCH_OVERHEAD: Final = 61
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class State:
    """Disks at one moment, and what brokers lost after a start on them."""

    name: str
    paths: tuple[Path, ...]
    """Copies of log directories, the controllers' too."""
    live: bool = False
    touched: frozenset[Place] | None = frozenset()
    """Partitions that a history changed; None: all."""
    lost: Mapping[Place, list[int]] = field(default_factory=dict)
    """Offsets that readers got before and no longer get after an ordinary start."""
    started: bool = False
    """Whether brokers started on these disks, so that `lost` is known."""
    same_as: tuple[Path, ...] = ()
    """Log directories in which a scan must find the same replicas."""
    healed: bool = False
    """Whether the disks were copied after that start, when a loss may have left no trace."""
    only_suspect: bool = False
    """Whether no file shows that records will be lost: a scan must mention the possibility, and no more."""


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """What readers got before the ordinary start, and the partitions that the history changed (None: all)."""

    before: Contents
    touched: frozenset[Place] | None
    only_suspect: bool = False


class Histories:
    """A cluster of one version whose disks are restored before each history; copies go below `root`."""

    def __init__(self, cluster: Cluster, version: Version, root: Path) -> None:
        self.cluster = cluster
        self.version = version
        self.root = root
        self.base = root / "base"
        self.initial = root / "initial"
        self.before: Contents = {}

    @property
    def nodes(self) -> list[int]:
        """All nodes, controllers first."""
        return [*self.cluster.controllers, *self.cluster.brokers]

    def make_base(self) -> State:
        """Write the healthy workload, stop the brokers one by one, `LAST` last, and copy the disks from which every history
        starts."""
        self.cluster.copy(self.initial, self.nodes)
        write_workload(self.cluster, self.version)
        self.before = read_everything(self.cluster, places_of(topics_of(self.version)))
        self.stop_one_by_one()
        self.cluster.copy(self.base, self.nodes)
        return State("stopped one by one", scanned(self.base))

    def stop_one_by_one(self, *brokers: int) -> None:
        """Stop all brokers in order (default: `LAST` last), then the controllers."""
        for broker in brokers or self.cluster.brokers:
            self.cluster.stop(broker)
        self.cluster.stop(*self.cluster.controllers)

    def start(self) -> None:
        """Start all nodes as an operator would, and wait until their replicas are in sync, if they can be."""
        self.cluster.start(*self.nodes)
        self.await_in_sync()

    def await_in_sync(self) -> None:
        """Wait until all replicas are in sync, or until the timeout."""
        try:
            wait_until("all replicas in sync", lambda: fully_replicated(self.cluster), timeout_seconds=SETTLING_SECONDS)
        except LabTimeoutError:
            return

    def play(self, name: str, change: "Change", *, started: str | None = None) -> list[State]:
        """Restore the base, run `change`, copy, start, and find what was lost.

        With `started` the disks are copied again after the start, as a state of that name.
        """
        self.cluster.restore(self.base, self.nodes)
        played = change(self)
        folder = self.copy(name)
        self.start()
        after = read_everything(self.cluster, played.before)
        gone = lost(played.before, after)
        self.stop_one_by_one()
        before = State(name, scanned(folder), touched=played.touched, lost=gone, started=True, only_suspect=played.only_suspect)
        states = [before]
        if started is not None:
            later = self.copy(started)
            states.append(State(started, scanned(later), touched=played.touched, lost=gone, started=True, healed=True))
        return states

    def play_together(self, changes: Mapping[str, "Change"]) -> list[State]:
        """Play changes of different partitions: a copy of each change alone, and one start on all of them together."""
        copies: dict[str, tuple[Path, HistoryResult]] = {}
        for name, change in changes.items():
            self.cluster.restore(self.base, self.nodes)
            played = change(self)
            copies[name] = (self.copy(name), played)
        self.cluster.restore(self.base, self.nodes)
        for change in changes.values():
            change(self)
        self.start()
        gone = lost(self.before, read_everything(self.cluster, self.before))
        self.stop_one_by_one()
        states = []
        for name, (folder, played) in copies.items():
            others = frozenset(
                place for other, (_, change_result) in copies.items() if other != name for place in change_result.touched or ()
            )
            its_loss = {place: offsets for place, offsets in gone.items() if place not in others}
            states.append(State(name, scanned(folder), touched=played.touched, lost=its_loss, started=True))
        return states

    def copy(self, name: str) -> Path:
        """Copy all log directories."""
        folder = self.root / name.replace(" ", "-")
        self.cluster.copy(folder, self.nodes)
        return folder


Change = Callable[[Histories], HistoryResult]


def scanned(folder: Path) -> tuple[Path, ...]:
    """The log directories of brokers and controllers in a folder."""
    return tuple(path for path in sorted(folder.iterdir()) if not path.name.startswith("zookeeper-"))


def unclean_election(histories: Histories) -> HistoryResult:
    """`audit`: a leader alone in sync commits 70 records and dies; a replica that lacks them is elected and appends 45 others."""
    cluster = histories.cluster
    histories.start()
    settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true", "segment.index.bytes": "1024"}
    cluster.create_topic(AUDIT, assignment=[[OLD_LEADER, STOPPED, STALE]], settings=settings)
    write_events(cluster, AUDIT, COMMON)
    settle(cluster, {AUDIT: 1})
    cluster.stop(STOPPED)
    cluster.freeze(STALE)
    alone = (OLD_LEADER, [OLD_LEADER])
    wait_until("one is alone in sync", lambda: cluster.leader_and_isr(AUDIT) == alone, timeout_seconds=60)
    end = write_events(cluster, AUDIT, ALONE, first=COMMON, batch_records=10, acks="1")
    cluster.await_high_watermark(OLD_LEADER, AUDIT, end)
    promised = read_everything(cluster, [(AUDIT, 0)])
    cluster.kill(OLD_LEADER)
    cluster.thaw(STALE)
    wait_until("the stale replica leads", lambda: _elected(cluster), timeout_seconds=90)
    end = write_events(cluster, AUDIT, AFTERWARDS, first=1000, batch_records=15, acks="1")
    cluster.await_high_watermark(STALE, AUDIT, end)
    cluster.stop(STALE, *cluster.controllers)
    return HistoryResult({**histories.before, **promised}, frozenset(promised))


def _elected(cluster: Cluster) -> bool:
    """Whether the stale replica leads; under KRaft it is elected by a tool, because early controllers ignore the topic's
    setting."""
    if cluster.leader_and_isr(AUDIT)[0] != STALE and not isinstance(cluster, ZooKeeperCluster):
        try:
            cluster.elect_unclean(AUDIT)
        except LabError:
            return False  # the controller still waits for the dead leader, or for the stale replica to return
    return cluster.leader_and_isr(AUDIT)[0] == STALE


def wiped(histories: Histories) -> HistoryResult:
    """The disks of the only in-sync replica of every partition have only `meta.properties`."""
    for directory in histories.cluster.log_dirs(LAST):
        kept = (directory / META_PROPERTIES).read_bytes()
        shutil.rmtree(directory)
        directory.mkdir()
        (directory / META_PROPERTIES).write_bytes(kept)
    return HistoryResult(histories.before, None)


def older_backup(histories: Histories) -> HistoryResult:
    """The disks of the last leader are replaced by older copies.

    In between each partition of `events` gets 100 records, all brokers crash, the last leader leads again, 20 more records are
    written, and all brokers stop cleanly. Under ZooKeeper, where the ISR is on no disk, a follower that was down meanwhile looks
    the same.
    """
    cluster = histories.cluster
    histories.start()
    for partition in range(3):
        write_events(cluster, EVENTS, MORE, first=EVENTS_COUNT, partition=partition)
    settle(cluster, {EVENTS: 3})
    cluster.kill(*cluster.brokers)
    cluster.stop(*cluster.controllers)
    histories.start()
    for partition in range(3):
        write_events(cluster, EVENTS, 20, first=EVENTS_COUNT + MORE, partition=partition)
    settle(cluster, {EVENTS: 3})
    before = read_everything(cluster, histories.before)
    histories.stop_one_by_one()
    cluster.restore(histories.base, [LAST])
    touched = frozenset((EVENTS, partition) for partition in range(3))
    return HistoryResult(before, touched, only_suspect=histories.version.zookeeper)


def first_segment_deleted(histories: Histories) -> HistoryResult:
    """The first segment of a partition is deleted on its leader."""
    delete_segment(histories.cluster.partition_dir(LAST, EVENTS, 0), 0)
    return HistoryResult(histories.before, frozenset({(EVENTS, 0)}))


def middle_segment_deleted(histories: Histories) -> HistoryResult:
    """A middle segment of a partition is deleted on its leader."""
    directory = histories.cluster.partition_dir(LAST, EVENTS, 1)
    delete_segment(directory, len(segments(directory)) // 2)
    return HistoryResult(histories.before, frozenset({(EVENTS, 1)}))


def segments(directory: Path) -> list[Path]:
    """The `.log` files of a partition directory, in the order of offsets."""
    return sorted(directory.glob("*.log"))


def delete_segment(directory: Path, which: int) -> None:
    """Delete a segment's log and indexes, but not its producer snapshot."""
    for path in directory.glob(f"{segments(directory)[which].stem}.*"):
        if path.suffix != ".snapshot":
            path.unlink()


def follower_cut(histories: Histories) -> HistoryResult:
    """The last segment with data of a follower is cut in the middle of a batch."""
    directory = histories.cluster.partition_dir(FOLLOWER, EVENTS, 2)
    log = [path for path in segments(directory) if path.stat().st_size][-1]
    with log.open("r+b") as file:
        file.truncate(batch_positions(log)[-1] + BATCH_OVERHEAD + 20)
    return HistoryResult(histories.before, frozenset({(EVENTS, 2)}))


def bit_flipped(histories: Histories) -> HistoryResult:
    """A bit is flipped in the records of a batch in the middle of a leader's log."""
    [log] = segments(histories.cluster.partition_dir(LAST, COMPRESSED))
    data = bytearray(log.read_bytes())
    positions = batch_positions(log)
    data[positions[len(positions) // 2] + BATCH_OVERHEAD + 30] ^= 4
    log.write_bytes(bytes(data))
    return HistoryResult(histories.before, frozenset({(COMPRESSED, 0)}))


def batch_positions(log: Path) -> list[int]:
    """The positions of the batches in a log file."""
    data = log.read_bytes()
    positions = [0]
    while positions[-1] < len(data):
        _, length = _OFFSET_AND_LENGTH.unpack_from(data, positions[-1])
        positions.append(positions[-1] + _OFFSET_AND_LENGTH.size + length)
    return positions[:-1]


def old_controllers_log(histories: Histories) -> HistoryResult:
    """The controllers' disks are replaced by copies from before the first topic was created."""
    histories.cluster.restore(histories.initial, histories.cluster.controllers)
    return HistoryResult(histories.before, None)


def one_topic_copied(histories: Histories) -> State:
    """The directories of one topic of each broker, copied by hand with `meta.properties` and the checkpoints."""
    folder = histories.root / "one-topic-copied"
    for directory in histories.base.glob("broker-*"):
        target = folder / directory.name
        target.mkdir(parents=True)
        for entry in directory.iterdir():
            if entry.is_file() and (entry.name == META_PROPERTIES or entry.name.endswith("-checkpoint")):
                shutil.copy2(entry, target / entry.name)
            elif entry.name.rpartition("-")[0] == EVENTS:
                copy_tree(entry, target / entry.name)
    return State("one topic copied", scanned(folder))


def linked_directories(histories: Histories) -> State:
    """A log directory, a partition directory and a segment are symbolic links into a folder that is scanned too."""
    folder = histories.root / "linked-directories"
    copy_tree(histories.base, folder)
    disks = folder / "disks"
    disks.mkdir()
    log_dir = folder / f"broker-{FOLLOWER}"
    [partition] = folder.glob(f"broker-{LAST}*/{EVENTS}-0")
    [other] = folder.glob(f"broker-{LAST}*/{EVENTS}-1")
    for number, linked in enumerate((log_dir, partition, segments(other)[0])):
        target = disks / f"disk-{number}"
        linked.rename(target)
        linked.symlink_to(os.path.relpath(target, linked.parent))
    return State("linked directories", (folder,), same_as=scanned(histories.base))
