"""Copies of the controllers' log as a majority counts them: whose each is, whether it is whole and good, and who votes by it.

A copy counts only if nothing speaks against its being all that its node had written: Raft takes what a node has acknowledged for
kept. So not only damage rules a copy out, but whatever tells of more than is there: gaps, a snapshot, an epoch or an index entry
behind its end (KafkaRaftLog keeps these files; LeaderEpochFileCache, LogSegment).
"""

from dataclasses import dataclass

from kafka_forensics.model.controller import VoterSet
from kafka_forensics.model.results import Read
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.scanning.witnesses.controller_copies import ControllerCopy


@dataclass(slots=True)
class QuorumCopy:
    """One node's copy of the controllers' log, as a salvage counts it."""

    source: Source
    facts: ControllerCopy
    wrong: str | None = None
    """Why it is not whole and good, in words that follow "voter 3"; None if it is."""

    @property
    def node(self) -> int | str:
        """Whose it is."""
        return self.facts.node

    @property
    def broker(self) -> int | str:
        """Who holds it, as it is called here."""
        return self.facts.plan.context.broker

    @property
    def end_offset(self) -> int:
        """Next offset to be written."""
        return self.source.replica.log_end_offset

    @property
    def rank(self) -> tuple[int, int]:
        """What decides whose log is the more up-to-date in an election."""
        return self.facts.last_epoch, self.end_offset

    def votes_by(self, voters: VoterSet) -> bool:
        """Whether it is one of these voters', in the directory that votes (KIP-853)."""
        return voters.has(self.node, self.facts.directory_id)


def quorum_copy(source: Source, copy: ControllerCopy) -> QuorumCopy:
    """A copy with what speaks against its being whole and good."""
    return QuorumCopy(source, copy, _wrong(source, copy))


def _wrong(source: Source, copy: ControllerCopy) -> str | None:
    """What speaks against a copy's being all that its node had written."""
    replica, plan = source.replica, source.plan
    start, end = replica.log_start_offset, replica.log_end_offset
    bases = [log.base_offset for log in plan.directory.logs()]
    epochs = plan.context.epoch_checkpoint or []
    ends = [snapshot.offset for snapshot in copy.snapshots]
    has_batches = bool(copy.log.base_offsets.size)
    if copy.problem is not None:
        return f"could not be read: {copy.problem}"
    if copy.damaged_snapshots:
        return f"has a snapshot that is not whole ({', '.join(file.entry.name for file in copy.damaged_snapshots)})"
    if replica.read is not Read.WHOLE or plan.context.log_unknown:
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
