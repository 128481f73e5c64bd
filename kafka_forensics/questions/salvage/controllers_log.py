"""Chooses the copy of the controllers' log: one voter's whole copy, if the copies of a majority of the voters are whole.

What was committed is on a majority of the voters (Raft; KIP-595). So any majority of whole copies includes one that has all of it,
and the copy that an election would choose, by the epoch of its last record and then by its end, has no less. Copies are not
combined. Everything that does not prove this much is refused.

A copy is whole if nothing contradicts that it has all that its node had written, because Raft relies on what a node has
acknowledged. This excludes copies with damage, and those with gaps, or with a snapshot, an epoch or an index entry after their end
(KafkaRaftLog keeps these files; LeaderEpochFileCache, LogSegment).

A voter that starts without its `quorum-state`, or with an older one, may vote for a second leader of an epoch. So the salvage
writes one with a new epoch, no leader and no vote: a state in which any voter may be (QuorumState).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.model.amounts import plural
from kafka_forensics.model.controller import VoterSet
from kafka_forensics.model.results import ReadExtent
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.parsers.quorum_state import MAX_EPOCH
from kafka_forensics.questions.salvage.lineage import BASE, LeftBehind, LineageRange, LogLineage
from kafka_forensics.questions.salvage.manifest import CopiedFile, Refused, RefusedError, SalvagedQuorum
from kafka_forensics.questions.salvage.partition_files import CopyChangedError, new_file, write_file
from kafka_forensics.questions.salvage.slices import SegmentSlice, SourceCopy, slices_of
from kafka_forensics.scanning.witnesses.controller_copies import ControllerCopy, SnapshotFile, check_snapshot, voter_sets
from kafka_forensics.storage.copying import copy_range
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import sha256_of
from kafka_forensics.writers.files import write_quorum_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND: Final = "controllers_log"
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Of `__cluster_metadata` in every cluster (Uuid.METADATA_TOPIC_ID)."""
_MORE_COPIES: Final = "give the log directories of more controllers, or better copies of these, made after all had stopped"


class QuorumCopy(Struct):
    """One node's copy of the controllers' log."""

    source: SourceCopy
    facts: ControllerCopy
    defect: str | None
    """Why it is not whole, in words that follow "voter 3"; None if it is."""

    @property
    def end_offset(self) -> int:
        """Next offset to be written."""
        return self.source.replica.log_end_offset

    @property
    def rank(self) -> tuple[int, int]:
        """What elections compare to find the more up-to-date log."""
        return self.facts.last_epoch, self.end_offset

    def is_of_voter(self, voters: VoterSet) -> bool:
        """Whether it is one of these voters', in its voting directory (KIP-853)."""
        return voters.has(self.facts.node, self.facts.directory_id)


class ControllersLog(Struct):
    """The salvaged log, and the files beside it."""

    base: QuorumCopy
    lineage: LogLineage
    slices: list[SegmentSlice]
    quorum: SalvagedQuorum
    quorum_state: bytes
    directories: Mapping[int, str | None]
    """Voter → the id of its log directory, if the log names it."""
    unseen: list[str]
    """`voter:N` of each voter without a whole copy, `quorum_state:N` of each whose votes are not known (`SalvagedPartition`)."""

    def write_beside(self, directory: Path) -> list[CopiedFile]:
        """Write the snapshots of the base and the `quorum-state` to the directory of the log.

        Raises CopyChangedError for a snapshot that is no longer whole, SourceError, and OSError if nothing can be written.
        """
        write_file(directory / FileKind.QUORUM_STATE, self.quorum_state)
        return [self._copy_snapshot(directory, snapshot) for snapshot in self.base.facts.snapshots]

    def _copy_snapshot(self, directory: Path, snapshot: SnapshotFile) -> CopiedFile:
        plan, entry = self.base.source.plan, snapshot.entry
        with new_file(directory / entry.name) as descriptor, plan.log_dir.source.open(entry.path) as file:
            copy_range(file, entry.path, 0, file.size_in_bytes, descriptor)
        with LocalSource(str(directory)).open(entry.name) as written:
            if check_snapshot(written, snapshot.offset).problem is not None:
                raise CopyChangedError(f"{entry.name} is no longer whole; it was when it was scanned")
            size, digest = written.size_in_bytes, sha256_of(written)
        source_file = f"{plan.context.directory}/{entry.name}"
        return CopiedFile(f"{directory.name}/{entry.name}", size, plan.context.broker, plan.context.log_dir, source_file, digest)


def quorum_copy(source: SourceCopy, copy: ControllerCopy) -> QuorumCopy:
    """A copy and what contradicts that it has all that its node had written."""
    return QuorumCopy(source, copy, _defect(source, copy))


def _defect(source: SourceCopy, copy: ControllerCopy) -> str | None:
    replica, plan = source.replica, source.plan
    start, end = replica.log_start_offset, replica.log_end_offset
    bases = [log.base_offset for log in plan.directory.logs()]
    ends = [snapshot.offset for snapshot in copy.snapshots]
    has_batches = bool(copy.log.base_offsets.size)
    if copy.problem is not None:
        return f"could not be read: {copy.problem}"
    if copy.damaged_snapshots:
        return f"has a snapshot that is not whole ({', '.join(file.entry.name for file in copy.damaged_snapshots)})"
    if replica.read is not ReadExtent.WHOLE or plan.context.log_unknown:
        return "could not be read whole"
    if not source.is_whole:
        return "is damaged"
    if not has_batches and not copy.snapshots:
        return "is empty"
    if has_batches and (source.good != ((start, end),) or bases[:1] != [start]):
        return "lacks its beginning or a part in the middle"
    if any(offset > end for offset in (*ends, *(offset for offset, _ in plan.directory.snapshots))):
        return "ends before its snapshot"
    if any(entry.start_offset > end for entry in plan.context.epoch_checkpoint or ()) or replica.index_entries_beyond_log:
        return "has lost its end: other files have later offsets"
    if not copy.is_led:
        return "has a batch with a leader epoch that no leader began there"
    if start > 0 and not any(start <= offset for offset in ends):
        return f"begins at offset {start}, without a snapshot of the records before it"
    recorded = any(not stated.is_leader_change for stated in copy.stated)
    if recorded and not copy.is_dynamic:
        return "has lost the record that marks that voters are in the log"
    if not recorded and (copy.is_dynamic or (copy.state is not None and copy.state.data_version > 0)):
        return "has lost the record of its voters"
    return None


def choose(copies: Sequence[QuorumCopy]) -> ControllersLog:
    """The log to salvage from copies of one cluster's controllers' log, at least one. Raises RefusedError; SourceError if the
    chosen copy cannot be read any more."""
    _refuse_different_moments(copies)
    nodes = [copy.facts.node for copy in copies]
    for copy in copies:
        if nodes.count(copy.facts.node) > 1:  # they are of different moments, and nothing says which is later
            copy.defect = "was given several times"
    whole = [copy for copy in copies if copy.defect is None]
    if not whole:
        defects = "; ".join(f"the copy of {copy.facts.node} {copy.defect}" for copy in copies)
        raise _refused(f"it has no whole, good copy: {defects}", _MORE_COPIES, copies)
    sets = _voter_sets(max(whole, key=lambda copy: copy.rank), copies)
    counted = [copy for copy in whole if any(copy.is_of_voter(voters) for voters in sets)]
    _require_majorities(sets, counted, copies)
    base = max(counted, key=lambda copy: copy.rank)
    sets = list(
        {tuple(sorted(voters.directories.items(), key=str)): voters for voters in (*sets, *_voter_sets(base, copies))}.values()
    )
    _require_majorities(sets, counted, copies)
    _refuse_contradictions(base, whole, copies)
    _require_votes(sets, copies)
    epoch = max(copy.facts.epoch_seen for copy in copies) + 1
    if epoch > MAX_EPOCH:
        raise _refused("copies have the highest possible leader epoch", None, copies)
    voters = sorted({voter for stated in sets for voter in stated.directories})
    complete = {copy.facts.node for copy in counted}
    remembered = {copy.facts.node for copy in copies if copy.facts.remembers_votes}
    return ControllersLog(
        base,
        *_log_of(base, copies),
        SalvagedQuorum(voters, [copy.source.broker for copy in counted], epoch),
        _quorum_state(base, sorted(sets[-1].directories), epoch),
        sets[-1].directories,
        [f"voter:{voter}" for voter in voters if voter not in complete]
        + [f"quorum_state:{voter}" for voter in voters if voter not in remembered],
    )


def _refuse_different_moments(copies: Sequence[QuorumCopy]) -> None:
    """Refuse copies that may be of several clusters or of different moments."""
    if copies[0].source.plan.context.partition != 0:
        raise _refused("the controllers' log has one partition, 0", None, copies)
    metas = [copy.source.plan.log_dir.meta for copy in copies]
    if len({meta.cluster_id for meta in metas if meta is not None} - {None}) > 1:
        raise _refused("its copies belong to several clusters", "give the log directories of one cluster", copies)
    if any(copy.source.plan.context.live for copy in copies):
        reason = "its copies were made from running nodes at different times: a majority of them may lack committed records"
        raise _refused(reason, "stop all controllers, then copy their log directories", copies)


def _voter_sets(copy: QuorumCopy, copies: Sequence[QuorumCopy]) -> list[VoterSet]:
    """Every possible voter set, by this copy. Raises RefusedError if the copies do not name the voters."""
    sets = voter_sets(copy.facts, [other.facts for other in copies])
    if not sets:
        raise _refused("no file names its voters", _MORE_COPIES, copies)
    certain = [voters for voters in sets if voters is not None]
    if len(certain) < len(sets):
        raise _refused("its voters before their last change are unknown", _MORE_COPIES, copies)
    return certain


def _require_majorities(sets: Sequence[VoterSet], counted: Sequence[QuorumCopy], copies: Sequence[QuorumCopy]) -> None:
    for voters in sets:
        nodes = [copy.facts.node for copy in counted if copy.is_of_voter(voters)]
        if len(nodes) < voters.majority:
            complete = f"{', '.join(map(str, nodes))} {'was' if len(nodes) == 1 else 'were'}" if nodes else "none was"
            needed = f"{voters.majority} of {plural(len(voters.directories), 'voter')} {'is' if voters.majority == 1 else 'are'}"
            others = "; ".join(_absences(sorted(set(voters.directories) - set(nodes)), copies))
            raise _refused(f"{needed} needed, and {complete} given whole: {others}", _MORE_COPIES, copies)


def _absences(voters: Sequence[int], copies: Sequence[QuorumCopy]) -> Iterator[str]:
    """Why each of these voters does not count."""
    for voter in voters:
        copy = next((copy for copy in copies if copy.facts.node == voter), None)
        yield f"{voter} {'was not given' if copy is None else copy.defect or 'votes in another log directory'}"


def _refuse_contradictions(base: QuorumCopy, whole: Sequence[QuorumCopy], copies: Sequence[QuorumCopy]) -> None:
    """Refuse copies that contradict each other: two leaders of an epoch, or committed records after the end."""
    for other in whole:
        if other is not base and (offset := _conflict(base, other)) is not None:
            reason = (
                f"from offset {offset} on, {base.facts.node} and {other.facts.node} have different records of the same leader epoch"
            )
            raise _refused(reason, "compare the copies: an epoch has one leader", [base, other], ((offset, base.end_offset),))
    for other in copies:
        if other.facts.snapshots and other.facts.snapshots[-1].offset > base.end_offset:
            reason = (
                f"{other.facts.node} has a snapshot of committed records up to offset {other.facts.snapshots[-1].offset}, and no"
                " voter's whole copy reaches that offset"
            )
            raise _refused(reason, _MORE_COPIES, copies)


def _agreed_end(left: QuorumCopy, right: QuorumCopy) -> int:
    """The offset before which two logs must be the same: the end of their highest common epoch (KIP-101); 0 if they share none."""
    both = np.intersect1d(left.facts.log.epochs, right.facts.log.epochs)
    if not both.size:
        return 0
    return min(int(log.last_offsets[log.epochs == both[-1]].max()) + 1 for log in (left.facts.log, right.facts.log))


def _conflict(left: QuorumCopy, right: QuorumCopy) -> int | None:
    """The first offset at which two logs have different batches although they must not; None if there is none."""
    end, start = _agreed_end(left, right), max(left.source.replica.log_start_offset, right.source.replica.log_start_offset)
    ours, theirs = _batches(left, start, end), _batches(right, start, end)
    count = min(ours.shape[1], theirs.shape[1])
    differing = np.flatnonzero((ours[:, :count] != theirs[:, :count]).any(axis=0))
    if differing.size:
        return int(min(ours[0, differing[0]], theirs[0, differing[0]]))
    return None if ours.shape == theirs.shape else int(max((ours, theirs), key=lambda rows: rows.shape[1])[0, count])


def _batches(copy: QuorumCopy, start: int, end: int) -> "NDArray[np.int64]":
    """Base offset, last offset and identity of the batches in `[start, end)`, (3, n)."""
    log = copy.facts.log
    inside = (log.base_offsets >= start) & (log.last_offsets < end)
    return np.stack([log.base_offsets[inside], log.last_offsets[inside], log.identities[inside]])


def _require_votes(sets: Sequence[VoterSet], copies: Sequence[QuorumCopy]) -> None:
    """Refuse if a leader may have been elected in an epoch that no copy shows.

    Those who elect a leader remember it in their `quorum-state`, and the leader has a record of it in its log. So a majority must
    lack the former, and one of them the latter.
    """
    for voters in sets:
        of_voters = [copy for copy in copies if copy.is_of_voter(voters)]
        remembered = {copy.facts.node for copy in of_voters if copy.facts.remembers_votes}
        shown = remembered | {copy.facts.node for copy in of_voters if copy.defect is None}
        forgetful = sorted(set(voters.directories) - remembered)
        unknown = [voter for voter in forgetful if voter not in shown]
        if len(forgetful) >= voters.majority and unknown:
            names = ", ".join(map(str, forgetful))
            reason = f"the quorum-state of voters {names} is unknown, and {unknown[0]} may have led an epoch that no file names"
            raise _refused(reason, "give the log directories of these voters, with quorum-state", copies)


def _log_of(base: QuorumCopy, copies: Sequence[QuorumCopy]) -> tuple[LogLineage, list[SegmentSlice]]:
    """The base's log from start to end, as bytes of its segments, and what other copies have beyond it."""
    start, end = base.source.replica.log_start_offset, base.end_offset
    ranges = (LineageRange(0, start, end, BASE),) if start < end else ()
    left = []
    for copy in copies:
        agreed = min(max(_agreed_end(base, copy), start), copy.end_offset)
        if copy is not base and copy.defect is None and copy.end_offset > agreed:
            rival_of = base.source.broker if agreed < end else None
            left.append(LeftBehind(copy.source.broker, agreed, copy.end_offset, agreed, rival_of))
    slices = list(slices_of(base.source, ranges, starts_log=True))
    if sum(part.size_in_bytes for part in slices) != base.source.replica.state.framing.bytes_decoded:
        raise _refused(f"the copy of {base.facts.node} has gaps between its bytes", None, [base])
    return LogLineage(0, start, end, ranges, (), left_behind=tuple(left)), slices


def _quorum_state(base: QuorumCopy, voters: Sequence[int], epoch: int) -> bytes:
    """The `quorum-state` of a node that knows an epoch without a leader, in the version of the base's file."""
    state = base.facts.state
    if state is None:
        return write_quorum_state(epoch, int(base.facts.is_dynamic), voters)
    return write_quorum_state(
        epoch, state.data_version, state.voters or voters, cluster_id=state.cluster_id, applied_offset=state.applied_offset
    )


def _refused(
    reason: str, hint: str | None, copies: Sequence[QuorumCopy], offsets: tuple[tuple[int, int], ...] = ()
) -> RefusedError:
    brokers = tuple(dict.fromkeys(copy.source.broker for copy in copies))
    return RefusedError(Refused(*copies[0].source.key, KIND, reason, hint, offsets, brokers))
