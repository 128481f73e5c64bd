"""The controllers' log of a salvage: the copy of one voter, whole, where a majority of the voters' copies is here whole and good.

What was committed is on a majority of the voters (Raft; KIP-595). Any majority of whole copies therefore includes one that has all
of it, and that which an election would choose, by the epoch of its last record and then by its end, holds no less. Nothing is put
together from several copies. Whatever does not prove that much is refused.

A voter that starts without its `quorum-state`, or with an older one, may give an epoch to a second leader. So the salvage has one
that knows of an epoch in which nobody was elected, no leader and no vote: a state in which any voter may be (QuorumState).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.amounts import plural
from kafka_forensics.model.controller import VoterSet
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.parsers.quorum_state import MAX_EPOCH
from kafka_forensics.questions.salvage.lineage import BASE, LeftBehind, Lineage, Piece
from kafka_forensics.questions.salvage.manifest import CopiedFile, Quorum, Refused, RefusedError
from kafka_forensics.questions.salvage.partition_files import CopyChangedError, new_file, write_file
from kafka_forensics.questions.salvage.quorum_copies import QuorumCopy
from kafka_forensics.questions.salvage.slices import Slice, slices_of
from kafka_forensics.scanning.witnesses.controller_copies import SnapshotFile, check_snapshot, voter_sets
from kafka_forensics.storage.copying import copy_range
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import sha256_of
from kafka_forensics.writers.files import write_quorum_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND: Final = "controllers_log"
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Of `__cluster_metadata` in every cluster (Uuid.METADATA_TOPIC_ID)."""
_MORE: Final = "give the log directories of more controllers, or better copies of these, as they were when all had stopped"


@dataclass(slots=True)
class ControllersLog:
    """What is salvaged of it, and what of that is in no batch."""

    base: QuorumCopy
    lineage: Lineage
    slices: list[Slice]
    quorum: Quorum
    quorum_state: bytes
    directories: Mapping[int, str | None]
    """Of each voter the id of its log directory, where its log names it."""
    unseen: list[str] = field(default_factory=list)
    """As the manifest has it: `voter:N` of each whose copy does not count, `quorum_state:N` of each whose votes are not known."""

    def write_beside(self, directory: Path) -> list[CopiedFile]:
        """Write what stands beside the segments of the log: snapshots as the base has them, and the state of the quorum.

        Raises CopyChangedError for a snapshot that is not whole any more, SourceError, OSError where nothing can be written.
        """
        write_file(directory / FileKind.QUORUM_STATE, self.quorum_state)
        return [self._copied(directory, snapshot) for snapshot in self.base.facts.snapshots]

    def _copied(self, directory: Path, snapshot: SnapshotFile) -> CopiedFile:
        plan, entry = self.base.source.plan, snapshot.entry
        with new_file(directory / entry.name) as descriptor, plan.log_dir.source.open(entry.path) as file:
            copy_range(file, entry.path, 0, file.size_in_bytes, descriptor)
        with LocalSource(str(directory)).open(entry.name) as written:
            if check_snapshot(written, snapshot.offset).problem is not None:
                raise CopyChangedError(f"{entry.name} is not whole any more, and was when it was scanned")
            size, digest = written.size_in_bytes, sha256_of(written)
        source_file = f"{plan.context.directory}/{entry.name}"
        return CopiedFile(f"{directory.name}/{entry.name}", size, plan.context.broker, plan.context.log_dir, source_file, digest)


def choose(copies: Sequence[QuorumCopy]) -> ControllersLog:
    """What to salvage of copies of one cluster's controllers' log, at least one. Raises RefusedError; SourceError where the copy
    that was chosen cannot be read any more."""
    _refuse_moments(copies)
    _count_each_once(copies)
    whole = [copy for copy in copies if copy.wrong is None]
    if not whole:
        raise _refused("no copy of it is whole and good: " + "; ".join(_said(copy) for copy in copies), _MORE, copies)
    sets = _voter_sets(max(whole, key=lambda copy: copy.rank), copies)
    counted = [copy for copy in whole if any(copy.votes_by(voters) for voters in sets)]
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
        raise _refused("copies tell of the last leader epoch that there can be", None, copies)
    voters = sorted({voter for stated in sets for voter in stated.directories})
    return ControllersLog(
        base,
        *_taken(base, copies),
        Quorum(voters, [copy.broker for copy in counted], epoch),
        _undecided(base, sets, epoch),
        sets[-1].directories,
        _unseen(voters, counted, copies),
    )


def _refuse_moments(copies: Sequence[QuorumCopy]) -> None:
    """Refuse copies of which nothing says that they are of one cluster at one moment."""
    if copies[0].source.plan.context.partition != 0:
        raise _refused("the controllers' log has one partition, 0", None, copies)
    metas = [copy.source.plan.log_dir.meta for copy in copies]
    if len({meta.cluster_id for meta in metas if meta is not None} - {None}) > 1:
        raise _refused("its copies are of several clusters", "give the log directories of one cluster", copies)
    if any(copy.source.plan.context.live for copy in copies):
        reason = "its copies are of running nodes, and so of different moments: no majority of them need hold what was committed"
        raise _refused(reason, "stop all controllers, and copy their log directories then", copies)


def _count_each_once(copies: Sequence[QuorumCopy]) -> None:
    """Two copies of one node are of different moments, and nothing tells which is the later."""
    nodes = [copy.node for copy in copies]
    for copy in copies:
        if nodes.count(copy.node) > 1:
            copy.wrong = "was given several times"


def _voter_sets(copy: QuorumCopy, copies: Sequence[QuorumCopy]) -> list[VoterSet]:
    """Every possible voter set, by this copy. Raises RefusedError if the copies do not name the voters."""
    sets = voter_sets(copy.facts, [other.facts for other in copies])
    if not sets:
        raise _refused("nothing here names its voters", _MORE, copies)
    known = [voters for voters in sets if voters is not None]
    if len(known) < len(sets):
        raise _refused("who voted before its voters last changed is not known", _MORE, copies)
    return known


def _require_majorities(sets: Sequence[VoterSet], counted: Sequence[QuorumCopy], copies: Sequence[QuorumCopy]) -> None:
    for voters in sets:
        own = [copy for copy in counted if copy.votes_by(voters)]
        if len(own) < voters.majority:
            given = f"{', '.join(str(copy.node) for copy in own)} {'was' if len(own) == 1 else 'were'}" if own else "none was"
            others = "; ".join(_missing(voters, own, copies))
            needed = f"{voters.majority} of {plural(len(voters.directories), 'voter')} {'is' if voters.majority == 1 else 'are'}"
            reason = f"{needed} needed, and {given} given whole: {others}"
            raise _refused(reason, _MORE, copies)


def _missing(voters: VoterSet, own: Sequence[QuorumCopy], copies: Sequence[QuorumCopy]) -> Iterator[str]:
    """A word on each voter that does not count."""
    for voter in sorted(set(voters.directories) - {copy.node for copy in own}):
        copy = next((copy for copy in copies if copy.node == voter), None)
        if copy is None:
            yield f"{voter} was not given"
        else:
            yield f"{voter} {copy.wrong or 'votes in another log directory'}"


def _said(copy: QuorumCopy) -> str:
    return f"that of {copy.node} {copy.wrong}"


def _refuse_contradictions(base: QuorumCopy, whole: Sequence[QuorumCopy], copies: Sequence[QuorumCopy]) -> None:
    """Refuse copies that cannot all be true: two leaders of an epoch, or something committed behind the end."""
    for other in whole:
        if other is not base and (offset := _conflict(base, other)) is not None:
            reason = f"from offset {offset} on {base.node} and {other.node} have other records of the same leader epoch"
            raise _refused(reason, "compare the copies: an epoch has one leader", [base, other], ((offset, base.end_offset),))
    for other in copies:
        if other.facts.snapshots and other.facts.snapshots[-1].offset > base.end_offset:
            committed = other.facts.snapshots[-1].offset
            reason = (
                f"{other.node} has a snapshot of what was committed up to offset {committed}, and no voter's whole copy reaches it"
            )
            raise _refused(reason, _MORE, copies)


def _agreed_end(left: QuorumCopy, right: QuorumCopy) -> int:
    """Up to where two logs must be the same: the end of the highest leader epoch that both have (KIP-101); 0 if they share none."""
    both = np.intersect1d(left.facts.log.epochs, right.facts.log.epochs)
    if not both.size:
        return 0
    return min(int(log.last_offsets[log.epochs == both[-1]].max()) + 1 for log in (left.facts.log, right.facts.log))


def _conflict(left: QuorumCopy, right: QuorumCopy) -> int | None:
    """The first offset at which two logs hold other batches although they must not; None if there is none."""
    end, start = _agreed_end(left, right), max(left.source.replica.log_start_offset, right.source.replica.log_start_offset)
    ours, theirs = _stretch(left, start, end), _stretch(right, start, end)
    count = min(ours.shape[1], theirs.shape[1])
    differing = np.flatnonzero((ours[:, :count] != theirs[:, :count]).any(axis=0))
    if differing.size:
        return int(min(ours[0, differing[0]], theirs[0, differing[0]]))
    return None if ours.shape == theirs.shape else int(max((ours, theirs), key=lambda rows: rows.shape[1])[0, count])


def _stretch(copy: QuorumCopy, start: int, end: int) -> "NDArray[np.int64]":
    """Base offset, last offset and identity of the batches that lie in `[start, end)`, (3, n)."""
    log = copy.facts.log
    inside = (log.base_offsets >= start) & (log.last_offsets < end)
    return np.stack([log.base_offsets[inside], log.last_offsets[inside], log.identities[inside]])


def _require_votes(sets: Sequence[VoterSet], copies: Sequence[QuorumCopy]) -> None:
    """Refuse where a leader may have been elected in an epoch of which nothing here tells.

    Who elects it remembers that in its `quorum-state`, and the leader has a record of it in its own log. So a majority must be
    without the one, and one of them without the other.
    """
    for voters in sets:
        remembered = {copy.node for copy in copies if copy.votes_by(voters) and copy.facts.remembers_votes}
        known = remembered | {copy.node for copy in copies if copy.votes_by(voters) and copy.wrong is None}
        forgetful = sorted(set(voters.directories) - remembered)
        unknown = [voter for voter in forgetful if voter not in known]
        if len(forgetful) >= voters.majority and unknown:
            names = ", ".join(map(str, forgetful))
            reason = (
                f"the quorum-state of voters {names} is not known, and {unknown[0]} may have led an epoch that nothing here names"
            )
            raise _refused(reason, "give the log directories of these voters, quorum-state and all", copies)


def _taken(base: QuorumCopy, copies: Sequence[QuorumCopy]) -> tuple[Lineage, list[Slice]]:
    """The base's log from start to end, as bytes of its segments; what others hold beside it stays behind."""
    start, end = base.source.replica.log_start_offset, base.end_offset
    piece = Piece(0, start, end, BASE)
    left = []
    for copy in copies:
        agreed = min(max(_agreed_end(base, copy), start), copy.end_offset)
        if copy is not base and copy.wrong is None and copy.end_offset > agreed:
            left.append(LeftBehind(copy.broker, agreed, copy.end_offset, agreed, base.broker if agreed < end else None))
    lineage = Lineage(0, start, end, (piece,) if start < end else (), (), left_behind=tuple(left))
    slices = list(slices_of(base.source, lineage.pieces, gaps=False, begins=True))
    if sum(part.size_in_bytes for part in slices) != base.source.replica.state.framing.bytes_decoded:
        raise _refused(f"not all bytes of the copy of {base.node} follow each other", None, [base])
    return lineage, slices


def _undecided(base: QuorumCopy, sets: Sequence[VoterSet], epoch: int) -> bytes:
    """The `quorum-state` of a node that knows of an epoch and of nobody in it, of the base's own version."""
    if base.facts.state is None:
        return write_quorum_state(epoch, int(base.facts.is_dynamic), sorted(sets[-1].directories))
    state = base.facts.state
    voters = state.voters or sorted(sets[-1].directories)
    return write_quorum_state(epoch, state.data_version, voters, cluster_id=state.cluster_id, applied_offset=state.applied_offset)


def _unseen(voters: Sequence[int], counted: Sequence[QuorumCopy], copies: Sequence[QuorumCopy]) -> list[str]:
    good = {copy.node for copy in counted}
    remembered = {copy.node for copy in copies if copy.facts.remembers_votes}
    return [
        *(f"voter:{voter}" for voter in voters if voter not in good),
        *(f"quorum_state:{voter}" for voter in voters if voter not in remembered),
    ]


def _refused(
    reason: str, hint: str | None, copies: Sequence[QuorumCopy], offsets: tuple[tuple[int, int], ...] = ()
) -> RefusedError:
    brokers = tuple(dict.fromkeys(copy.broker for copy in copies))
    context = copies[0].source.plan.context
    return RefusedError(Refused(context.topic, context.partition, KIND, reason, hint, offsets, brokers))
