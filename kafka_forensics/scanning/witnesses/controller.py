"""Replaying the records of `__cluster_metadata` on which its copies agree."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from kafka_forensics.analysis.internal_topics import REPLAY_EXCEPTIONS, AgreedLog, ControllerReplay, MetadataChecks, merge_copies
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, broker_order
from kafka_forensics.model.constants import INTERNAL_TOPICS
from kafka_forensics.model.controller import ControllerHistory, MetadataBatch, MetadataRecord, MetadataSnapshot
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.json_objects import Json
from kafka_forensics.scanning.witnesses.controller_copies import (
    UNREADABLE,
    BatchKey,
    ControllerCopies,
    SnapshotFile,
    parse_snapshot,
    read_copies,
)
from kafka_forensics.scanning.witnesses.malformed_records import MalformedRecords, UnknownKinds


class ControllerEvidence(Struct):
    """The controller's history and findings about its records."""

    history: ControllerHistory
    findings: list[Finding]


def read_controller(inputs: Inputs) -> ControllerEvidence | None:
    """Replay `__cluster_metadata` from all its copies, and set `inputs.controller`; None without copies, or if they are of several
    clusters."""
    copies = read_copies(inputs)
    metas = [copy.plan.log_dir.meta for copy in copies.copies]
    if not copies.copies or len({meta.cluster_id for meta in metas if meta is not None} - {None}) > 1:
        return None
    log = merge_copies([copy.log for copy in copies.copies])
    if not log.base_offsets.size and not copies.snapshots:
        return None
    evidence = _replayed(copies, log)
    inputs.controller = evidence.history
    return evidence


def cleanup_policy(contexts: list[ReplicaContext]) -> str:
    """`delete`, `compact`, `compact,delete` or `unknown`, by the controller or else by the cleaner's checkpoint.

    `contexts` are those of a partition's replicas, at least one. It is unknown if they name several, as topics of one name may.
    """
    policies = {context.control.cleanup_policy for context in contexts if context.control is not None} - {None}
    if contexts[0].topic in INTERNAL_TOPICS:
        return "compact"
    if policies:
        return (policies.pop() if len(policies) == 1 else None) or "unknown"
    return "compact" if any(context.compacted for context in contexts) else "unknown"


ControllerState = tuple[int | None, int | None, list[int] | None, list[int] | None]


def latest_controller_state(replicas: list[Replica]) -> ControllerState:
    """(leader, leader epoch, ISR, replica assignment) of a partition; None for each that is not known."""
    control = next((replica.context.control for replica in replicas if replica.context.control is not None), None)
    if control is None:
        return None, None, None, None
    return control.leader, control.leader_epoch, control.isr, control.replica_assignment


def present_topic(groups: Sequence[Sequence[int]], replicas: Sequence[Replica]) -> tuple[int, bool]:
    """Which group of replicas (`partitions.identity_groups`) belongs to the current topic, and whether that is certain.

    It is the group with the controller's topic id, else the only group that has a controller state, else the largest.
    """

    def rank(group: Sequence[int]) -> int:
        contexts = [replicas[number].context for number in group]
        ids = [(context.control.topic_id, context.topic_id) for context in contexts if context.control is not None]
        return 2 if any(ours == theirs for ours, theirs in ids) else 1 if ids else 0

    ranks = [rank(group) for group in groups]
    is_certain = max(ranks) > 0 and ranks.count(max(ranks)) == 1
    return max(range(len(groups)), key=lambda number: (ranks[number], len(groups[number]))), is_certain


def _replayed(copies: ControllerCopies, log: AgreedLog) -> ControllerEvidence:
    replayer = _Replayer(copies, log)
    keys = list(zip(log.base_offsets.tolist(), log.identities.tolist(), strict=True))
    gaps = [(1 << 63, 1 << 63), *reversed(log.missing_ranges(max((file.offset for file in copies.snapshots), default=0)))]
    for key, batch in [*((key, copies.opened[key]) for key in keys if key in copies.opened), (None, None)]:
        offset = 1 << 62 if batch is None else batch.base_offset
        while gaps[-1][0] < offset:
            replayer.skip_gap(*gaps.pop())
        replayer.load_snapshot(offset, offset)
        if key is not None and batch is not None:
            replayer.step(key, batch)
    return replayer.finish(log)


class _Replayer:
    """Replays batches and snapshots, and collects findings about their records."""

    def __init__(self, copies: ControllerCopies, log: AgreedLog) -> None:
        voter_set, files = copies.voters(), copies.snapshots
        voters = None if voter_set is None else sorted(voter_set.directories)
        usable = [file for file in files if file.check.problem is None and log.agrees_with(file.offset, file.leader_epoch)]
        snapshot_end = max((file.offset for file in usable), default=0)  # a snapshot holds only committed records
        ends = [None if end is None else max(end, snapshot_end) for end in (log.committed_end(voters), log.possible_end(voters))]
        self._replay, self._checks = (
            ControllerReplay(log.start_offset, committed_end=ends[0], possible_end=ends[1]),
            MetadataChecks(),
        )
        self._malformed, self._unknown, self._rejected = MalformedRecords(), UnknownKinds(), MalformedRecords()
        self._copies = copies
        self._snapshots = usable[::-1]
        history = self._replay.history
        history.voters = voters
        history.copy_ends = log.agreed_ends
        history.voters_in_log = any(copy.is_dynamic for copy in copies.copies)
        history.quorum = copies.quorum(log)
        history.unread = [copy.node for copy in copies.copies if not copy.was_read]
        history.gaps = log.gaps
        history.end_is_known = copies.end_is_known
        history.proven_end = snapshot_end
        self._committed_end = 1 << 63 if history.committed_end_offset is None else history.committed_end_offset
        for copy in copies.copies:
            history.snapshots[copy.plan.context.broker, copy.plan.context.log_dir] = copy.usable_snapshots
        for file in files:
            if file.check.problem not in (None, UNREADABLE):
                self._add_malformed(
                    _place(file), {"reason": file.check.problem, "record_type": "snapshot", "is_snapshot": True}, file
                )

    def load_snapshot(self, known_end: int, offset: int) -> int:
        """Replace the state by the newest snapshot up to `offset`, if it reaches beyond `known_end` or the state is in doubt.

        Returns the offset up to which the state is known then.
        """
        reached = []
        while self._snapshots and self._snapshots[-1].offset <= offset:
            reached.append(self._snapshots.pop())
        while reached and (self._replay.in_doubt or not self._checks.is_known or reached[-1].offset > known_end):
            file = reached.pop()
            snapshot = self._read_snapshot(file)
            if snapshot is not None:
                if self._replay.in_doubt or file.offset > known_end:
                    self._replay.replace_state(snapshot)
                self._checks.replace_state(snapshot)
                return max(file.offset, known_end)
        return known_end

    def skip_gap(self, start: int, end: int) -> None:
        """Pass offsets that no copy has."""
        if (start := self.load_snapshot(start, end)) < end:
            self._replay.gap(start)
            self._checks.gap()

    def step(self, key: BatchKey, batch: MetadataBatch) -> None:
        """Replay the records of a batch."""
        for offset, record in batch.records:
            self._replay.step(offset, batch.timestamp_ms, record)
            if (problem := self._checks.step(record)) is not None and offset < self._committed_end:
                self._rejected.add(partial(_rejected, self._copies, key, offset, record, problem))
        if key not in self._copies.places:
            return
        places = sorted(self._copies.places[key], key=lambda place: broker_order(place[0].context.broker))
        plan, segment, position, size = places[0]
        holders = [plan.context.broker for plan, _, _, _ in places]
        for offset, record in batch.records:
            if record.problem is None:
                continue
            place = plan.context.log_place(segment, position, size, offset, offset + 1)
            if record.is_unknown:
                self._unknown.add(record, place, holders)
            else:
                evidence = _malformed_evidence(record) | {"brokers": holders, "unknown_after_offset": offset - 1}
                self._malformed.add(partial(finding, "METADATA_RECORD_MALFORMED", place, evidence))

    def finish(self, log: AgreedLog) -> ControllerEvidence:
        """The history, and the findings about records."""
        history = self._replay.history
        history.last_ms = max(self._copies.newest_ms, history.last_ms or 0) or None
        history = self._replay.finish(max([log.end_offset, *(file.offset for file in self._copies.snapshots)]))
        return ControllerEvidence(history, self._malformed.findings() + self._unknown.findings() + self._rejected.findings())

    def _read_snapshot(self, file: SnapshotFile) -> MetadataSnapshot | None:
        """A whole `.checkpoint`, None if it can no longer be read; notes its malformed records and those of unknown kinds."""
        snapshot = self._copies.inputs.read(
            file.plan.log_dir.source, file.entry, lambda opened: parse_snapshot(opened, file.offset)
        )
        for record in () if snapshot is None else (record for batch in snapshot.batches for _, record in batch.records):
            if record.is_unknown:
                self._unknown.add(record, _place(file), [file.plan.context.broker])
            elif record.problem is not None:
                self._add_malformed(_place(file), _malformed_evidence(record), file)
        return snapshot

    def _add_malformed(self, place: Place, evidence: Json, file: SnapshotFile) -> None:
        evidence |= {"brokers": [file.plan.context.broker], "unknown_after_offset": file.offset - 1}
        self._malformed.add(partial(finding, "METADATA_RECORD_MALFORMED", place, evidence))


def _place(file: SnapshotFile) -> Place:
    return file.plan.context.place(file.entry.name, byte_start=0, byte_end=file.entry.size_in_bytes, offset_end=file.offset)


def _rejected(copies: ControllerCopies, key: BatchKey, offset: int, record: MetadataRecord, problem: str) -> Finding:
    """`METADATA_RECORD_REJECTED`, in the first copy that has the batch."""
    holders = sorted(
        (copy for copy in copies.copies if copy.log.has(*key)), key=lambda copy: broker_order(copy.plan.context.broker)
    )
    context, directory = holders[0].plan.context, holders[0].plan.directory
    segment = max((segment.base_offset for segment in directory.segments if segment.base_offset <= key[0]), default=0)
    place = context.place(context.log_file(segment), offset_start=offset, offset_end=offset + 1)
    fields = record.fields or {}
    evidence: Json = {
        "record_type": _kind(record),
        "reason": problem,
        "exception": " or ".join(REPLAY_EXCEPTIONS.get(problem, ("RuntimeException",))),
        "brokers": [copy.plan.context.broker for copy in holders],
    }
    evidence |= {name: fields[name] for name in _SUBJECT_FIELDS if name in fields}
    evidence |= {"broker_id": fields["id"]} if isinstance(fields.get("id"), int) else {}
    return finding("METADATA_RECORD_REJECTED", place, evidence)


_SUBJECT_FIELDS = ("name", "topic_name", "topic_id", "partition_id", "broker_id", "controller_id")
"""Fields that name the subject of a record."""


def _kind(record: MetadataRecord) -> str:
    return record.name.removesuffix("_RECORD").lower().replace("_", " ")


def _malformed_evidence(record: MetadataRecord) -> Json:
    kind = _kind(record) if record.api_key >= 0 else "cluster metadata"
    evidence: Json = {"reason": record.problem, "record_type": kind, "record_bytes": record.size_in_bytes}
    return evidence | ({"api_key": record.api_key, "record_version": record.version} if record.api_key >= 0 else {})
