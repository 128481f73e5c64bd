"""Copies of the controllers' log as a majority counts them: whose each is, whether it is whole and good, and who votes by it.

A copy counts only if nothing speaks against its being all that its node had written: Raft takes what a node has acknowledged for
kept. So not only damage rules a copy out, but whatever tells of more than is there: gaps, a snapshot, an epoch or an index entry
behind its end (KafkaRaftLog keeps these files; LeaderEpochFileCache, LogSegment).
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Read
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    SegmentReader,
    believed_to,
    decode_batch,
    inspector,
    parse_control_record,
    read_batch,
)
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.parsers.quorum_state import QuorumState, parse_quorum_state
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.rereading.logs_in_order import logs_of
from kafka_forensics.witnesses.controller import KRAFT_VOTERS, LEADER_CHANGE, node_id, snapshot_problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile, Entry

KRAFT_VERSION: Final = 5
BASE, LAST, IDENTITY = range(3)
"""Rows of `QuorumCopy.batches`."""


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Who votes: node id → directory id, None where the statement has none."""

    directories: Mapping[int, str | None]

    @property
    def majority(self) -> int:
        """How many of them decide."""
        return len(self.directories) // 2 + 1

    def has(self, copy: "QuorumCopy") -> bool:
        """Whether a copy is one of these voters', in the directory that votes (KIP-853)."""
        if copy.node not in self.directories:
            return False
        wanted = self.directories[int(copy.node)]
        return wanted is None or wanted == copy.directory_id


@dataclass(frozen=True, slots=True)
class Stated:
    """Voters as a copy states them: in a record at `offset`, or in the snapshot of all before `offset`."""

    offset: int
    voters: VoterSet
    in_snapshot: bool = False
    is_leader_change: bool = False
    """A leader named the voters that it knew, without their directories (LeaderChangeMessage of version 0); else it
    is the quorum's own record of them, which changes them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A `<offset>-<epoch>.checkpoint`, whole: all records before `offset`, the last of them of the epoch."""

    offset: int
    leader_epoch: int
    entry: "Entry"


@dataclass(slots=True)
class QuorumCopy:
    """One node's copy of the controllers' log."""

    source: Source
    node: int | str
    directory_id: str | None
    state: QuorumState | None = None
    """None where there is no `quorum-state` that can be read."""
    batches: "NDArray[np.int64]" = field(default_factory=lambda: np.empty((3, 0), np.int64))
    """(base offset, last offset, leader epoch and CRC as one number) of its good batches, (3, n), in file order; memory is shared
    with a longer copy of the same log."""
    is_led: bool = True
    """Whether leader epochs rise, and each begins with its leader's own record."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """By offset."""
    stated: list[Stated] = field(default_factory=list)
    """In the order of the log, a snapshot before the records that follow it."""
    is_dynamic: bool = False
    """Whether it says that its voters are in the log (`kraft.version` 1 or more)."""
    wrong: str | None = None
    """Why it is not whole and good, in words that follow "voter 3"; None if it is."""

    @property
    def broker(self) -> int | str:
        """Who holds it, as it is called here."""
        return self.source.plan.context.broker

    @property
    def end_offset(self) -> int:
        """Next offset to be written."""
        return self.source.replica.log_end_offset

    @property
    def epochs(self) -> "NDArray[np.int64]":
        """Leader epoch of each batch."""
        epochs: NDArray[np.int64] = self.batches[IDENTITY] >> 32
        return epochs

    @property
    def last_epoch(self) -> int:
        """The leader epoch of its last record; of an empty log that of the snapshot that it follows, -1 of nothing at all."""
        if self.batches.shape[1]:
            return int(self.batches[IDENTITY, -1] >> 32)
        return self.snapshots[-1].leader_epoch if self.snapshots else -1

    @property
    def rank(self) -> tuple[int, int]:
        """What decides whose log is the more up-to-date in an election."""
        return self.last_epoch, self.end_offset

    @property
    def epoch_seen(self) -> int:
        """The highest leader epoch of which it tells; -1 of none."""
        told = [snapshot.leader_epoch for snapshot in self.snapshots] + ([] if self.state is None else [self.state.leader_epoch])
        return max(-1, *told, int(self.epochs.max(initial=-1)))

    @property
    def remembers_votes(self) -> bool:
        """Whether its `quorum-state` is there, and no older than its log."""
        return self.state is not None and self.state.leader_epoch >= self.last_epoch


def read_copy(plan: ReplicaPlan, replica: Replica, findings: Sequence[Finding], *, deep: bool) -> QuorumCopy:
    """A copy, read once more for what a majority asks of it; what cannot be read is `wrong` with it."""
    meta = plan.log_dir.meta
    copy = QuorumCopy(Source.of(plan, replica, findings, deep=deep), node_id(plan), None if meta is None else meta.directory_id)
    copy.state = _state(plan)
    try:
        copy.batches = np.concatenate([copy.batches, *_walked(copy)], axis=1)
        bad = _take_snapshots(copy)
    except SourceError as error:
        copy.wrong = f"could not be read: {error.reason}"
        return copy
    copy.stated.sort(key=lambda stated: (stated.offset, not stated.in_snapshot))
    copy.wrong = bad or _wrong(copy)
    return copy


def _state(plan: ReplicaPlan) -> QuorumState | None:
    entry = plan.directory.entries.get(FileKind.QUORUM_STATE)
    if entry is None:
        return None
    try:
        with plan.log_dir.source.open(entry.path) as file:
            return parse_quorum_state(file)
    except SourceError:
        return None


def _walked(copy: QuorumCopy) -> Iterator["NDArray[np.int64]"]:
    """The good batches of a copy as `QuorumCopy.batches`, chunk by chunk; takes what control records state. Raises SourceError."""
    plan, last = copy.source.plan, -1
    for segment, log, behind in logs_of(plan):
        lies = [position for base_offset, position in copy.source.lies if base_offset == segment.base_offset]
        with plan.log_dir.source.open(log.path) as file:
            reader = SegmentReader(
                file, next_base_offset=believed_to(segment.base_offset, behind), inspect=inspector(deep=copy.source.deep)
            )
            for chunk in reader.chunks():
                columns = chunk.columns
                good = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (columns[BatchColumn.MAGIC] >= 2)
                good &= ~np.isin(columns[BatchColumn.POSITION], np.array(lies, np.int64))
                columns = columns[:, good]
                _take_statements(copy, file, columns, None)
                epochs = columns[BatchColumn.PARTITION_LEADER_EPOCH]
                identities = (epochs << 32) | columns[BatchColumn.CRC]
                copy.is_led = copy.is_led and _is_led(last, epochs, columns[BatchColumn.CONTROL_RECORD_TYPE])
                last = int(epochs[-1]) if epochs.size else last
                yield np.stack([columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET], identities])


def _take_snapshots(copy: QuorumCopy) -> str | None:
    """Take the snapshots that are whole; what is wrong with one that is not. Raises SourceError."""
    plan = copy.source.plan
    wrong = None
    for offset, leader_epoch, entry in plan.directory.metadata_snapshots:
        with plan.log_dir.source.open(entry.path) as file:
            if problem := snapshot_problem(file):
                wrong = wrong or f"has a snapshot that is not whole ({entry.name}: {problem.replace('_', ' ')})"
                continue
            copy.snapshots.append(Snapshot(offset, leader_epoch, entry))
            for chunk in SegmentReader(file).chunks():
                _take_statements(copy, file, chunk.columns, offset)
    copy.snapshots.sort(key=lambda snapshot: (snapshot.offset, snapshot.leader_epoch))
    return wrong


def _take_statements(copy: QuorumCopy, file: "ByteFile", columns: "NDArray[np.int64]", of_snapshot: int | None) -> None:
    """Take what control records of good batches state: who votes, and whether that is in the log. Raises SourceError."""
    is_control = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES)
    rows = columns[:, is_control][[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]]
    for position, size in rows.T.tolist():
        for record in decode_batch(read_batch(file, position, size)).iter_records():
            control = parse_control_record(record.key, record.value)
            if control.problem is not None:
                continue
            if control.type == KRAFT_VERSION:
                copy.is_dynamic = copy.is_dynamic or control.fields["kraft_version"] > 0
                continue
            is_change = control.type == LEADER_CHANGE and control.version == 0
            if (is_change or control.type == KRAFT_VOTERS) and control.fields["voters"]:
                offset = record.offset if of_snapshot is None else of_snapshot
                copy.stated.append(Stated(offset, _voters(control.fields), of_snapshot is not None, is_change))


def _voters(fields: Json) -> VoterSet:
    return VoterSet({voter["voter_id"]: _directory(voter.get("voter_directory_id")) for voter in fields["voters"]})


def _directory(raw: bytes | None) -> str | None:
    """A directory id as `meta.properties` has it; None for none, and for that of zeros, which stands for none."""
    return urlsafe_b64encode(raw).decode().rstrip("=") if raw and any(raw) else None


def _wrong(copy: QuorumCopy) -> str | None:
    """What speaks against a copy's being all that its node had written."""
    source, replica, plan = copy.source, copy.source.replica, copy.source.plan
    start, end = replica.log_start_offset, copy.end_offset
    bases = [segment.base_offset for segment, _, _ in logs_of(plan)]
    epochs = plan.context.epoch_checkpoint or []
    ends = [snapshot.offset for snapshot in copy.snapshots]
    has_batches = bool(copy.batches.shape[1])
    if replica.read is not Read.WHOLE or plan.context.unlisted:
        return "could not be read whole"
    if not source.is_whole:
        return "is damaged"
    if not has_batches and not copy.snapshots:
        return "is empty"
    if has_batches and (source.good != ((start, end),) or bases[:1] != [start]):
        return "lacks a part in the middle, or its beginning"
    if any(offset > end for offset in (*ends, *(offset for offset, _ in plan.directory.snapshots))):
        return "ends before a snapshot of it"
    if any(entry.start_offset > end for entry in epochs) or replica.entries_beyond:
        return "has lost its end: files beside it know of more"
    if not copy.is_led:
        return "has a batch of a leader epoch that no leader began there"
    if start > 0 and not any(start <= offset for offset in ends):
        return f"begins at offset {start}, and has no snapshot of what was before"
    recorded = any(not stated.is_leader_change for stated in copy.stated)
    if recorded and not copy.is_dynamic:
        return "has lost the record that says that voters are in the log"
    if not recorded and (copy.is_dynamic or (copy.state is not None and copy.state.data_version > 0)):
        return "has lost the record of its voters"
    return None


def _is_led(before: int, epochs: "NDArray[np.int64]", types: "NDArray[np.int64]") -> bool:
    """Whether leader epochs rise behind the epoch `before` (-1: the log begins), and each begins with its leader's own record
    (LeaderState); no CRC covers the epoch of a batch."""
    earlier = np.concatenate(([before], epochs[:-1]))[: epochs.size]
    begins = (epochs != earlier) & (earlier >= 0)
    return bool((epochs >= earlier).all() and (types[begins] == LEADER_CHANGE).all())


def share_memory(copies: Sequence[QuorumCopy], new: QuorumCopy) -> None:
    """Hold the batches of whole copies of one log once, as long as it is: a cluster has a copy on every node."""
    for known in copies:
        long, short = (known, new) if known.batches.shape[1] >= new.batches.shape[1] else (new, known)
        if long.wrong is not None or short.wrong is not None or not short.batches.shape[1]:
            continue
        at = int(np.searchsorted(long.batches[BASE], short.batches[BASE, 0]))
        stretch = long.batches[:, at : at + short.batches.shape[1]]
        if np.array_equal(stretch, short.batches):
            short.batches = stretch
