"""One partition over time: each broker's replica compared with itself, from each snapshot to the next."""

import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import Counts, is_compacted
from kafka_forensics.analysis.snapshot_changes import (
    LogChanges,
    LostOffsets,
    NewerSnapshot,
    SnapshotPair,
    change,
    committed_truncated_findings,
    keys_lost,
    log_changes,
)
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, broker_order
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.changes import UNREADABLE, Change, ChangeKind
from kafka_forensics.model.findings import Broker, Finding
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete, PartitionSummary, ReadExtent
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.scanning.engine.serialization import make_serializable, pack, unpack
from kafka_forensics.scanning.engine.task_values import PartitionSlice, SliceAnswer, StretchRow, TaskArguments, inputs_of, slices
from kafka_forensics.scanning.engine.tasks import SliceRows, answer_slice, configure_code_cache, deferred_keys, opener
from kafka_forensics.scanning.folding.fold_split import FoldedReplica
from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyQuestion
from kafka_forensics.scanning.judging.whole_scan import PartitionAnswer
from kafka_forensics.scanning.rereading.reader import LogReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.scanning.folding.keys import DeferredKeys


class SnapshotDirs(Struct):
    """The log directories of the requested brokers in a snapshot: broker → (name, directory id) of each."""

    snapshot: str
    by_broker: dict[Broker, list[tuple[str, str | None]]]
    left_out: list[Broker] = field(default_factory=list)
    """Brokers in the snapshot that were not requested."""


class TopicFacts(Struct):
    """What a snapshot shows of a partition's topic, in addition to the partition's replicas."""

    topic_ids: set[str] = field(default_factory=set)
    """In the directories of the topic."""
    topic_exists: bool = False
    deleted_ids: set[str] = field(default_factory=set)
    """Of deleted topics of that name, by the controllers' log."""
    assignment: list[int] | None = None
    """Of the partition, by the controllers' log."""
    suffixes: dict[Broker, set[str]] = field(default_factory=dict)
    """Broker → suffixes of the partition's renamed directories: `delete`, `future`, `stray`."""


class PartitionInSnapshot(Struct):
    """A partition in one snapshot: its replicas, which may be none, and their judgement."""

    log_dirs: SnapshotDirs
    topic: TopicFacts
    merged: Sequence[FoldedReplica] = ()
    summary: PartitionSummary | None = None
    evidence: list[str] = field(default_factory=list)
    """Names of the inputs, which must not be written into."""

    @property
    def replicas(self) -> dict[Broker, Replica]:
        """By broker; of several of one broker, the first."""
        replicas: dict[Broker, Replica] = {}
        for _, replica, _ in self.merged:
            replicas.setdefault(replica.broker, replica)
        return replicas


class PartitionChanges(Struct):
    """The result of comparing one partition."""

    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)


def snapshot_log_dirs(snapshot: str, inputs: Inputs, options: ScanOptions) -> SnapshotDirs:
    """The log directories of a snapshot, of the requested broker."""
    log_dirs = SnapshotDirs(snapshot, {})
    for log_dir in inputs.log_dirs:
        if options.broker in (None, str(log_dir.broker)):
            directory_id = None if log_dir.meta is None else log_dir.meta.directory_id
            log_dirs.by_broker.setdefault(log_dir.broker, []).append((log_dir.name, directory_id))
        elif log_dir.broker not in log_dirs.left_out:
            log_dirs.left_out.append(log_dir.broker)
    return log_dirs


class SnapshotTopics:
    """The topics of a snapshot, indexed by name."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        founds = [log_dir.found for log_dir in inputs.log_dirs]
        self._topics = {directory.topic for found in founds for directory in found.partitions if directory.is_replica}
        self._topics |= {partition.topic for found in founds for partition in found.unlisted if not partition.suffix}
        self._ids: dict[str, set[str]] = {}
        for plan in inputs.replicas:
            if plan.context.topic_id is not None:
                self._ids.setdefault(plan.context.topic, set()).add(plan.context.topic_id)
        self._deleted: dict[str, set[str]] = {}
        for topic in [] if inputs.controller is None else inputs.controller.topics.values():
            if topic.deleted_offset is not None:
                self._deleted.setdefault(topic.topic, set()).add(topic.topic_id)

    def of(self, topic: str, partition: int) -> TopicFacts:
        """The facts about one partition's topic."""
        control = None if self._inputs.controller is None else self._inputs.controller.partitions.get((topic, partition))
        suffixes = {
            broker: of_broker
            for (broker, name, number), of_broker in self._inputs.relatives.items()
            if name == topic and number == partition
        }
        assignment = None if control is None else control.replica_assignment
        return TopicFacts(self._ids.get(topic, set()), topic in self._topics, self._deleted.get(topic, set()), assignment, suffixes)


def partition_changes(
    snapshots: Sequence[PartitionInSnapshot], key: "NDArray[np.int64]", deferred: "DeferredKeys | None" = None
) -> PartitionChanges:
    """Every change of one partition between consecutive snapshots, and what was lost; incomplete while `deferred` waits for
    answers.

    `key` is the digest key with which all replicas were folded.
    """
    result = PartitionChanges()
    for older, newer in pairwise(snapshots):
        if older.merged or newer.merged:
            _PartitionPair(older, newer, key, deferred, result).compare()
    return result


_TRUNCATED = frozenset({ChangeKind.TRUNCATED, ChangeKind.DAMAGED})
_NEEDS_OTHER_REPLICA = frozenset({"moved_to_other_brokers", "replica_missing", "replica_being_deleted", "replica_stray"})
"""Reasons that permit a replica to be deleted as long as another one holds its records."""
_NEW_PARTITION = frozenset({"topic_created", "partition_added"})
"""Reasons why only the newer snapshot has a partition; it gets no row while it never held a record."""


class _PartitionPair:
    """Compares one partition in two consecutive snapshots, and adds to `result`."""

    def __init__(
        self,
        older: PartitionInSnapshot,
        newer: PartitionInSnapshot,
        key: "NDArray[np.int64]",
        deferred: "DeferredKeys | None",
        result: PartitionChanges,
    ) -> None:
        self._older, self._newer, self._result = older, newer, result
        self._before, self._after = older.replicas, newer.replicas
        self._between = SnapshotPair(older.log_dirs.snapshot, newer.log_dirs.snapshot)
        self._plans = {id(plan.context): plan for plan, _, _ in [*older.merged, *newer.merged]}
        self._reader = LogReader(list(self._plans.values()), key)
        self._reader.deferred = deferred
        self._changes: list[Change] = []
        self._findings: list[Finding] = []
        self._lost: list[LostOffsets] = []

    def compare(self) -> None:
        """Add the changes of every broker's replica, and what was lost by them."""
        for broker in sorted(self._before.keys() | self._after.keys(), key=broker_order):
            old, new = self._before.get(broker), self._after.get(broker)
            if old is not None and new is not None and not _are_of_different_topics(old, new):
                self._compare(old, new)
                continue
            if old is not None:
                kind, reason, evidence = self._why_deleted(old, new)
                if reason in _NEEDS_OTHER_REPLICA:
                    self._lost.append(LostOffsets(old, old.log_start_offset, len(self._changes)))
                self._changes.append(self._whole(kind, reason, old, None, evidence))
            if new is not None:
                kind, reason = self._why_created(new, old)
                if reason not in _NEW_PARTITION or new.read is not ReadExtent.WHOLE or new.log_end_offset:
                    self._changes.append(self._whole(kind, reason, None, new, {}))
        findings, summary = self._findings, self._older.summary
        if summary is not None and self._lost:
            held = [self._before[broker] for broker in sorted(self._before, key=broker_order)]
            findings += committed_truncated_findings(self._lost, held, self._newer_replicas(), summary, self._changes, self._reader)
        if len(self._after) == 1:
            findings = [replace(finding, is_only_copy=True) for finding in findings]
        self._result.changes += sorted(self._changes, key=Change.sort_key)
        self._result.findings += findings
        self._result.incomplete += self._reader.incomplete

    def _compare(self, old: Replica, new: Replica) -> None:
        result = log_changes(old, new, self._between, self._reader)
        rows = result.changes
        if result.has_differences and is_compacted(old, new):
            rows += self._cleaned(old, new, result)
        offsets = (new.log_start_offset, new.log_end_offset)
        now = self._present_log_dir(old)
        if now is not None and now != new.context.log_dir:
            rows.append(change(ChangeKind.MOVED, offsets, old, new, self._between))
        if not rows:
            rows.append(change(ChangeKind.UNCHANGED, offsets, old, new, self._between))
        lossy = (number for number, row in enumerate(rows) if row.kind in _TRUNCATED or row.reason == "content")
        if result.lost_from is not None and (number := next(lossy, None)) is not None:
            self._lost.append(LostOffsets(old, result.lost_from, len(self._changes) + number, result.lost_to))
        self._changes += rows

    def _cleaned(self, old: Replica, new: Replica, result: LogChanges) -> list[Change]:
        """The row about what compaction removed; adds a finding if it removed what it must keep."""
        from kafka_forensics.analysis.compaction import EXPLANATIONS, REASONS, ReplicaPair  # few partitions pay for it
        from kafka_forensics.scanning.judging.compaction import compare_keys

        start = max(old.log_start_offset, new.log_start_offset)
        end = min(old.log_end_offset, new.log_end_offset)
        end = end if result.cut is None else min(end, result.cut)
        if start >= end or old.state.unread or new.state.unread:
            return []
        pair = [self._plans[id(replica.context)] for replica in (old, new)]
        evidence_names = [*self._older.evidence, *self._newer.evidence]
        compared = compare_keys(pair, [old, new], [ReplicaPair(0, 1, start, end)], self._reader, evidence_names)
        self._reader.problems.clear()  # the scans report them
        if compared is None:
            return [change(ChangeKind.NOT_COMPARED, (start, end), old, new, self._between, reason="unreadable")]
        tally = compared.keys.tally
        checkpoint = new.context.cleaner_checkpoint
        cleaned_end = end if checkpoint is None or not start < checkpoint < end else checkpoint
        removed: dict[str, int] = {}
        for name in ("records", "aborted", "keyless", "markers"):
            counts = compared.counted(name, start, end)
            removed[name] = counts[0] - counts[1]
        total = sum(removed.values())
        evidence: Json = {"keys": tally.keys, **{name: count for name, count in removed.items() if count}}
        evidence |= {f"keys_{name}": tally.reasons[name] for name in REASONS if tally.reasons[name]}
        evidence |= {f"keys_{name}": tally.explanations[name] for name in EXPLANATIONS if tally.explanations[name]}
        kind, reason = (ChangeKind.CLEANED, None) if total > 0 else (ChangeKind.REWRITTEN, "cleaned_copy")
        row = change(
            kind,
            (start, cleaned_end),
            old,
            new,
            self._between,
            reason="against_the_rules" if tally.differing else reason,
            evidence=evidence,
            records=max(total, 0) or None,
        )
        lost = keys_lost(old, new, tally, self._between)
        self._findings += [] if lost is None else [lost]
        return [row]

    def _newer_replicas(self) -> NewerSnapshot:
        """The replicas in the newer snapshot of the topic that the older one has."""
        older, newer = self._older, self._newer
        ids = {replica.context.topic_id for replica in self._before.values()} - {None}
        replicas = [
            replica
            for replica in self._after.values()
            if not ids or replica.context.topic_id is None or replica.context.topic_id in ids
        ]
        present = {str(broker) for broker in newer.log_dirs.by_broker}
        present |= {str(replica.context.node) for replica in self._after.values()}
        assignment = newer.topic.assignment or older.topic.assignment
        brokers = {str(broker): broker for broker in [*self._before, *newer.log_dirs.left_out, *(assignment or [])]}
        missing = [broker for name, broker in brokers.items() if name not in present]
        return NewerSnapshot(self._between, replicas, sorted(missing, key=broker_order), assignment is not None)

    def _whole(self, kind: ChangeKind, reason: str, old: Replica | None, new: Replica | None, evidence: Json) -> Change:
        """A row about all of a replica that one of the snapshots lacks."""
        replica = old or new
        assert replica is not None
        framing = replica.state.framing
        epochs = tuple(entry.leader_epoch for entry in replica.epochs)
        offsets = (replica.log_start_offset, replica.log_end_offset)
        counts = Counts(framing.batches, framing.records, framing.bytes_decoded) if replica.read is ReadExtent.WHOLE else None
        if replica.read is ReadExtent.NONE:
            kind, reason, offsets, epochs = ChangeKind.NOT_COMPARED, UNREADABLE, (0, 0), ()
        details: Json = {"reason": reason, "evidence": evidence, "leader_epochs": epochs}
        return change(kind, offsets, old, new, self._between, counts=counts, **details)

    def _why_deleted(self, old: Replica, new: Replica | None) -> tuple[ChangeKind, str, Json]:
        """(kind, reason, evidence) where the newer snapshot lacks a replica, or has one of another topic."""
        broker, topic, topic_id = old.broker, self._newer.topic, old.context.topic_id
        if new is None:
            now, before = (log_dirs.by_broker.get(broker) for log_dirs in (self._newer.log_dirs, self._older.log_dirs))
            if now is None:
                return ChangeKind.NOT_COMPARED, "broker_not_given", {}
            if len(now) < len(before or []) and self._present_log_dir(old) is None:
                return ChangeKind.NOT_COMPARED, "log_dir_not_given", {}
        if topic_id is not None and (topic_id in topic.deleted_ids or (topic.topic_ids and topic_id not in topic.topic_ids)):
            return ChangeKind.DELETED, "topic_recreated" if topic.topic_ids - {topic_id} else "topic_deleted", {}
        suffixes = topic.suffixes.get(broker, set())
        if not topic.topic_exists and topic.assignment is None:
            return ChangeKind.DELETED, "topic_missing", {"suffixes": sorted(suffixes)} if suffixes else {}
        arrived = sorted(self._after.keys() - self._before.keys(), key=broker_order)
        others = sorted(self._after, key=broker_order)
        is_unassigned = topic.assignment is not None and old.context.node not in topic.assignment
        if arrived or is_unassigned:
            return ChangeKind.DELETED, "moved_to_other_brokers", {"brokers": arrived or others}
        for suffix, reason in (("delete", "replica_being_deleted"), ("stray", "replica_stray")):
            if suffix in suffixes:
                return ChangeKind.DELETED, reason, {}
        return ChangeKind.DELETED, "replica_missing", {"brokers": others} if others else {}

    def _why_created(self, new: Replica, old: Replica | None) -> tuple[ChangeKind, str]:
        """(kind, reason) where the older snapshot lacks a replica, or has one of another topic."""
        if old is None and new.broker not in self._older.log_dirs.by_broker:
            return ChangeKind.NOT_COMPARED, "broker_not_given"
        topic_id, topic = new.context.topic_id, self._older.topic
        if topic_id is not None and topic.topic_ids and topic_id not in topic.topic_ids:
            return ChangeKind.CREATED, "topic_recreated"
        if not topic.topic_exists:
            return ChangeKind.CREATED, "topic_created"
        return ChangeKind.CREATED, "replica_added" if self._before else "partition_added"

    def _present_log_dir(self, old: Replica) -> str | None:
        """The name in the newer snapshot of the log directory that held a replica: by its id, else by the last part of its name."""
        before, now = (log_dirs.by_broker.get(old.broker, []) for log_dirs in (self._older.log_dirs, self._newer.log_dirs))
        directory_id = next((found for name, found in before if name == old.context.log_dir), None)
        if directory_id is not None and all(found is not None for _, found in now):
            return next((name for name, found in now if found == directory_id), None)
        if len(before) == len(now) == 1:
            return now[0][0]
        last = os.path.basename(old.context.log_dir.rstrip("/"))
        names = [name for name, _ in now if os.path.basename(name.rstrip("/")) == last]
        return names[0] if len(names) == 1 else None


def _are_of_different_topics(old: Replica, new: Replica) -> bool:
    ids = old.context.topic_id, new.context.topic_id
    return None not in ids and ids[0] != ids[1]


# Judging one partition in a task: values small enough to send to where it runs, bytes in and bytes out, as in `engine.tasks`.


REPLICAS_A_SNAPSHOT: Final = 1 << 16
"""The replicas of a partition are numbered from a multiple of this in each snapshot."""


class ChangesCommon(Struct):
    """Values shared by all slices of a comparison: of each snapshot those of its scan's tasks, and its log directories."""

    scans: list[TaskArguments]
    log_dirs: list[SnapshotDirs]


class ChangeSlice(Struct):
    """One partition: of each snapshot its slice, which may be empty, and the facts about its topic."""

    topic: str
    partition: int
    parts: list[PartitionSlice] = field(default_factory=list)
    topics: list[TopicFacts] = field(default_factory=list)
    keys: list[KeyAnswer] | None = None
    """Answers about its keys, None before there are any."""

    @property
    def replicas(self) -> list[ReplicaPlan]:
        """Of all snapshots, in their order."""
        return [plan for part in self.parts for plan in part.replicas]


class ChangeAnswer(Struct):
    """The answer of each snapshot, None where it lacks the partition, and the changes between them."""

    answers: list[SliceAnswer | None]
    compared: PartitionChanges
    questions: list[KeyQuestion] = field(default_factory=list)
    """Questions that must be answered first, as in a `SliceAnswer`."""


def change_slices(snapshot_inputs: Sequence[Inputs], topics: Sequence[SnapshotTopics]) -> Iterator[ChangeSlice]:
    """A slice for every partition in any of the snapshots, by topic and partition."""
    by_partition = [
        {(partition.topic, partition.partition): partition for partition in slices(inputs)} for inputs in snapshot_inputs
    ]
    for key in sorted({key for of_snapshot in by_partition for key in of_snapshot}):
        parts = [of_snapshot.get(key) or PartitionSlice(*key) for of_snapshot in by_partition]
        yield ChangeSlice(*key, parts, [of_snapshot.of(*key) for of_snapshot in topics])


make_serializable(sys.modules[__name__])


@lru_cache(maxsize=2)
def _common(packed: bytes) -> ChangesCommon:
    common: ChangesCommon = unpack(packed)
    for scan in common.scans:
        configure_code_cache(scan)
    return common


def judge_changes(common: bytes, rows: Iterator[StretchRow], *, strict: bool = False) -> bytes:
    """Judge one partition in every snapshot, and compare it over time: its rows into a packed `ChangeAnswer`.

    The first row is the packed `ChangeSlice`; stretches follow by replica, segment and start, the replicas of each snapshot with
    numbers from a multiple of `REPLICAS_A_SNAPSHOT`. With `strict`, raises SourceError if something has become unreadable. If the
    answer has questions, judge the slice again with their answers.
    """
    unpacked = _common(common)
    compile_as_needed(unpacked.scans[0].work_bytes)
    change_slice: ChangeSlice = unpack(next(rows).packed, opener(unpacked.scans[0]))
    return pack(_changes_of(change_slice, unpacked, SliceRows(rows), strict=strict))


def judge_whole_changes(common: bytes, work: bytes, *, strict: bool = False) -> Iterator[tuple[int, bytes]]:
    """(number, packed `ChangeAnswer`) of every `ChangeSlice` in a packed list of numbered ones, whose logs are folded here."""
    unpacked = _common(common)
    compile_as_needed(unpacked.scans[0].work_bytes)
    numbered: list[tuple[int, ChangeSlice]] = unpack(work, opener(unpacked.scans[0]))
    for number, change_slice in numbered:
        yield number, pack(_changes_of(change_slice, unpacked, None, strict=strict))


def _changes_of(change_slice: ChangeSlice, common: ChangesCommon, stretches: SliceRows | None, *, strict: bool) -> ChangeAnswer:
    """The answer about a partition, whose logs are folded here if there are no `stretches`."""
    deferred = None if stretches is None else deferred_keys(common.scans[0], change_slice.replicas, change_slice.keys)
    answers: list[SliceAnswer | None] = []
    snapshots = []
    for part, scan, log_dirs, topic in zip(change_slice.parts, common.scans, common.log_dirs, change_slice.topics, strict=True):
        if not (part.replicas or part.renamed_directories):
            answers.append(None)
            snapshots.append(PartitionInSnapshot(log_dirs, topic))
            continue
        answer, merged = answer_slice(part, scan, stretches, deferred, len(snapshots) * REPLICAS_A_SNAPSHOT, strict=strict)
        answers.append(answer)
        summary = answer.answer.result.summary if isinstance(answer.answer, PartitionAnswer) else None
        snapshots.append(PartitionInSnapshot(log_dirs, topic, merged, summary, inputs_of(part, scan.shared).evidence))
    compared = partition_changes(snapshots, common.scans[0].key, deferred)
    if deferred is not None and deferred.is_waiting:
        return ChangeAnswer([], PartitionChanges(), deferred.questions)
    reported = {
        unread for answer in answers if answer is not None for unread in (*answer.incomplete, *answer.task_notes.incomplete)
    }
    reported.update(() if deferred is None else deferred.gaps())
    for unread in compared.incomplete if strict else ():
        if unread not in reported:
            raise SourceError(unread.path, unread.reason)
    return ChangeAnswer(answers, compared)
