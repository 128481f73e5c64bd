"""One partition over several snapshots: each broker's replica compared with itself, from each snapshot to the next."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.over_time import Between, LogChanges, Newer, Went, change, committed_gone, keys_lost, log_changes
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import Counts, is_compacted
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, broker_order
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.changes import UNREADABLE, Change, ChangeKind
from kafka_forensics.model.findings import Broker, Finding
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete, PartitionSummary, Read
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.scanning.engine.serialization import make_serializable, pack, unpack
from kafka_forensics.scanning.engine.task_values import Common, Slice, SliceAnswer, StretchRow, inputs_of, slices
from kafka_forensics.scanning.engine.tasks import SliceRows, answered, keep_code_as, keys_apart, opener
from kafka_forensics.scanning.folding.fold_split import Merged
from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyQuestion
from kafka_forensics.scanning.rereading.reader import LogReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.scanning.folding.keys import KeysApart
    from kafka_forensics.scanning.judging.compaction import Swept


@dataclass(slots=True)
class Disks:
    """The log directories of a snapshot's brokers: broker → (name, directory id) of each."""

    snapshot: str
    by_broker: dict[Broker, list[tuple[str, str | None]]]
    left_out: list[Broker] = field(default_factory=list)
    """Brokers that are there and were not asked for."""


@dataclass(slots=True)
class Word:
    """What a snapshot says of a partition beside its replicas."""

    topic_ids: set[str] = field(default_factory=set)
    """Of the directories of its topic."""
    topic_is_there: bool = False
    deleted_ids: set[str] = field(default_factory=set)
    """Topics of that name that the controller's log says were deleted."""
    assignment: list[int] | None = None
    """By the controller's log."""
    suffixes: dict[Broker, set[str]] = field(default_factory=dict)
    """Of directories beside the live one, by broker: `delete`, `future`, `stray`."""


@dataclass(slots=True)
class At:
    """A partition in one snapshot: its replicas, none if there are none, and what was judged of them."""

    disks: Disks
    word: Word
    merged: Sequence[Merged] = ()
    summary: PartitionSummary | None = None
    evidence: list[str] = field(default_factory=list)
    """Names of the inputs, in which nothing may be written."""

    @property
    def replicas(self) -> dict[Broker, Replica]:
        """By broker; of a broker's several, the first."""
        replicas: dict[Broker, Replica] = {}
        for _, replica, _ in self.merged:
            replicas.setdefault(replica.broker, replica)
        return replicas


@dataclass(slots=True)
class PartitionChanges:
    """What came of comparing one partition."""

    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)


def disks_of(snapshot: str, inputs: Inputs, options: ScanOptions) -> Disks:
    """The log directories of a snapshot, of the broker asked for."""
    disks = Disks(snapshot, {})
    for log_dir in inputs.log_dirs:
        if options.broker not in (None, str(log_dir.broker)):
            disks.left_out += [] if log_dir.broker in disks.left_out else [log_dir.broker]
            continue
        disks.by_broker.setdefault(log_dir.broker, []).append(
            (log_dir.name, None if log_dir.meta is None else log_dir.meta.directory_id)
        )
    return disks


class Words:
    """What a snapshot says of its partitions, looked up by topic."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._topics = {
            directory.topic
            for log_dir in inputs.log_dirs
            for directory in log_dir.found.partitions
            if directory.legal and not directory.suffix
        }
        self._topics |= {
            partition_name.topic
            for log_dir in inputs.log_dirs
            for partition_name in log_dir.found.unlisted
            if not partition_name.suffix
        }
        self._ids: dict[str, set[str]] = {}
        for plan in inputs.replicas:
            if plan.context.topic_id is not None:
                self._ids.setdefault(plan.context.topic, set()).add(plan.context.topic_id)
        history = inputs.controller
        self._deleted: dict[str, set[str]] = {}
        for topic in [] if history is None else history.topics.values():
            if topic.deleted_offset is not None:
                self._deleted.setdefault(topic.topic, set()).add(topic.topic_id)

    def of(self, topic: str, partition: int) -> Word:
        """What it says of one partition."""
        control = None if self._inputs.controller is None else self._inputs.controller.partitions.get((topic, partition))
        suffixes = {
            broker: replica
            for (broker, name, number), replica in self._inputs.relatives.items()
            if name == topic and number == partition
        }
        assignment = None if control is None else control.replica_assignment
        return Word(self._ids.get(topic, set()), topic in self._topics, self._deleted.get(topic, set()), assignment, suffixes)


def partition_changes(times: Sequence[At], key: "NDArray[np.int64]", apart: "KeysApart | None" = None) -> PartitionChanges:
    """Every change of one partition between consecutive snapshots, and what was lost by them; none yet where `apart` is waiting.

    `key` is the one that all replicas were folded with.
    """
    changes = PartitionChanges()
    for older, newer in pairwise(times):
        if older.merged or newer.merged:
            _between(older, newer, LogReader([plan for plan, _, _ in [*older.merged, *newer.merged]], key), apart, changes)
    return changes


def _between(older: At, newer: At, reader: LogReader, apart: "KeysApart | None", result: PartitionChanges) -> None:
    reader.apart = apart
    between = Between(older.disks.snapshot, newer.disks.snapshot)
    changes: list[Change] = []
    findings: list[Finding] = []
    went: list[Went] = []
    before, after = older.replicas, newer.replicas
    for broker in sorted(before.keys() | after.keys(), key=broker_order):
        old, new = before.get(broker), after.get(broker)
        if old is not None and new is not None and not _made_anew(old, new):
            rows, (start, end) = _compared(old, new, older, newer, reader, findings)
            row = next((number for number, changed in enumerate(rows) if changed.kind in _CUT or changed.reason == "content"), None)
            if start is not None and row is not None:
                went.append(Went(old, start, len(changes) + row, end))
            changes += rows
            continue
        if old is not None:
            kind, reason, more = _why_gone(old, new, older, newer)
            if reason in _NEEDS_ANOTHER:
                went.append(Went(old, old.log_start_offset, len(changes)))
            changes.append(_whole(kind, reason, old, None, between, more))
        if new is not None:
            kind, reason = _why_there(new, old, older)
            if reason not in _NEW_PARTITION or new.read is not Read.WHOLE or new.log_end_offset:
                changes.append(_whole(kind, reason, None, new, between))
    if older.summary is not None and went:
        held = [before[broker_id] for broker_id in sorted(before, key=broker_order)]
        findings += committed_gone(went, held, _newer(before, older, newer, between), older.summary, changes, reader)
    result.changes += sorted(changes, key=Change.sort_key)
    result.findings += [replace(finding, alone=True) for finding in findings] if len(newer.replicas) == 1 else findings
    result.incomplete += reader.incomplete


_CUT = frozenset({ChangeKind.TRUNCATED, ChangeKind.DAMAGED})
_NEEDS_ANOTHER = frozenset({"moved_to_other_brokers", "replica_gone", "replica_being_deleted", "replica_stray"})
"""Reasons for which a replica may go as long as another has what it held."""

_NEW_PARTITION = frozenset({"topic_created", "partition_added"})
"""Reasons for which only the newer snapshot has a partition: one that never held a record gets no row."""


def _made_anew(old: Replica, new: Replica) -> bool:
    """Whether the two are of different topics of one name."""
    ids = old.context.topic_id, new.context.topic_id
    return None not in ids and ids[0] != ids[1]


def _newer(before: dict[Broker, Replica], older: At, newer: At, between: Between) -> Newer:
    """What the newer snapshot has of the partition as the older one knew it."""
    ids = {replica.context.topic_id for replica in before.values()} - {None}
    replicas = [
        replica
        for replica in newer.replicas.values()
        if not ids or replica.context.topic_id is None or replica.context.topic_id in ids
    ]
    given = {str(broker) for broker in newer.disks.by_broker}
    given |= {str(replica.context.node) for replica in newer.replicas.values()}
    assigned = newer.word.assignment or older.word.assignment
    known = {str(broker): broker for broker in [*before, *newer.disks.left_out, *(assigned or [])]}
    missing = [broker for name, broker in known.items() if name not in given]
    return Newer(between, replicas, sorted(missing, key=broker_order), assigned is not None)


def _compared(
    old: Replica, new: Replica, older: At, newer: At, reader: LogReader, findings: list[Finding]
) -> tuple[list[Change], tuple[int | None, int | None]]:
    """The rows about one replica that both snapshots have, and the offsets whose records went; see `LogChanges`."""
    between = Between(older.disks.snapshot, newer.disks.snapshot)
    result = log_changes(old, new, between, reader)
    rows = result.changes
    if result.unlike and is_compacted(old, new):
        cleaned, lost = _cleaned(old, new, older, newer, result, reader)
        rows += cleaned
        findings += [] if lost is None else [lost]
    if _moved(old, new, older.disks, newer.disks):
        rows.append(change(ChangeKind.MOVED, (new.log_start_offset, new.log_end_offset), old, new, between))
    if not rows:
        rows.append(change(ChangeKind.UNCHANGED, (new.log_start_offset, new.log_end_offset), old, new, between))
    return rows, (result.lost_from, result.lost_to)


def _cleaned(
    old: Replica, new: Replica, older: At, newer: At, result: LogChanges, reader: LogReader
) -> tuple[list[Change], Finding | None]:
    """The row about what compaction took, and a finding if it took what it never takes."""
    from kafka_forensics.analysis.compaction import Pair  # few partitions pay for it
    from kafka_forensics.scanning.judging.compaction import sweep

    start = max(old.log_start_offset, new.log_start_offset)
    end = min(old.log_end_offset, new.log_end_offset)
    end = end if result.cut is None else min(end, result.cut)
    if start >= end or old.state.unread or new.state.unread:
        return [], None
    between = Between(older.disks.snapshot, newer.disks.snapshot)
    plans = {id(plan.context): plan for plan, _, _ in [*older.merged, *newer.merged]}
    pair = [plans[id(replica.context)] for replica in (old, new)]
    evidence_names = [*older.evidence, *newer.evidence]
    swept = sweep(pair, [old, new], [Pair(0, 1, start, end)], reader, evidence_names)
    reader.problems.clear()  # the scans tell of them
    if swept is None:
        return [change(ChangeKind.NOT_COMPARED, (start, end), old, new, between, reason="unreadable")], None
    tally = swept.keys.tally
    reached = new.context.cleaner_checkpoint
    stop = end if reached is None or not start < reached < end else reached
    total, evidence = _taken(swept, start, end)
    kind, reason = (ChangeKind.CLEANED, None) if total > 0 else (ChangeKind.REWRITTEN, "cleaned_copy")
    if tally.differing:
        reason = "against_the_rules"
    taken = max(total, 0) or None
    row = change(kind, (start, stop), old, new, between, reason=reason, evidence=evidence, records=taken)
    return [row], keys_lost(old, new, tally, between)


def _taken(swept: "Swept", start: int, end: int) -> tuple[int, Json]:
    """How many records are there no more, of each sort, and why those of a key are not."""
    from kafka_forensics.analysis.compaction import EXPLANATIONS, REASONS

    tally = swept.keys.tally
    names = ("records", "aborted", "keyless", "markers")
    gone = {name: (counts := swept.counted(name, start, end))[0] - counts[1] for name in names}
    evidence: Json = {"keys": tally.keys, **{name: amount for name, amount in gone.items() if amount}}
    evidence |= {f"keys_{name}": tally.reasons[name] for name in REASONS if tally.reasons[name]}
    evidence |= {f"keys_{name}": tally.explanations[name] for name in EXPLANATIONS if tally.explanations[name]}
    return sum(gone.values()), evidence


def _whole(
    kind: ChangeKind,
    reason: str,
    old: Replica | None,
    new: Replica | None,
    between: Between,
    evidence: Json | None = None,
) -> Change:
    """A row about all of a replica that one of the snapshots lacks."""
    known = old or new
    assert known is not None
    framing = known.state.framing
    epochs = tuple(entry.leader_epoch for entry in known.epochs)
    offsets = (known.log_start_offset, known.log_end_offset)
    counts = Counts(framing.batches, framing.records, framing.bytes_decoded) if known.read is Read.WHOLE else None
    if known.read is Read.NONE:
        kind, reason, offsets, epochs = ChangeKind.NOT_COMPARED, UNREADABLE, (0, 0), ()
    more: Json = {"reason": reason, "evidence": evidence or {}, "leader_epochs": epochs}
    return change(kind, offsets, old, new, between, counts=counts, **more)


def _why_topic_gone(topic_id: str | None, word: Word) -> str | None:
    """Why there is no topic of this id any more, by the newer controllers' log; None: it does not say so."""
    if topic_id is None or (topic_id not in word.deleted_ids and not (word.topic_ids and topic_id not in word.topic_ids)):
        return None
    return "topic_recreated" if word.topic_ids - {topic_id} else "topic_deleted"


def _why_gone(old: Replica, new: Replica | None, older: At, newer: At) -> tuple[ChangeKind, str, Json]:
    """Why the newer snapshot has no such replica, or only one of another topic."""
    broker, word = old.broker, newer.word
    if new is None and broker not in newer.disks.by_broker:
        return ChangeKind.NOT_COMPARED, "broker_not_given", {}
    if new is None and _disk_not_given(old, older.disks, newer.disks):
        return ChangeKind.NOT_COMPARED, "log_dir_not_given", {}
    if (reason := _why_topic_gone(old.context.topic_id, word)) is not None:
        return ChangeKind.DELETED, reason, {}
    suffixes = word.suffixes.get(broker, set())
    if not word.topic_is_there and word.assignment is None:
        return ChangeKind.DELETED, "topic_gone", _if_any("suffixes", sorted(suffixes))
    arrived = sorted(newer.replicas.keys() - older.replicas.keys(), key=broker_order)
    others = sorted(newer.replicas, key=broker_order)
    left_out = word.assignment is not None and old.context.node not in word.assignment
    if arrived or left_out:
        return ChangeKind.DELETED, "moved_to_other_brokers", {"brokers": arrived or others}
    for suffix, reason in (("delete", "replica_being_deleted"), ("stray", "replica_stray")):
        if suffix in suffixes:
            return ChangeKind.DELETED, reason, {}
    return ChangeKind.DELETED, "replica_gone", _if_any("brokers", others)


def _if_any(name: str, values: Sequence[object]) -> Json:
    return {name: values} if values else {}


def _why_there(new: Replica, old: Replica | None, older: At) -> tuple[ChangeKind, str]:
    """Why the older snapshot has no such replica, or only one of another topic."""
    if old is None and new.broker not in older.disks.by_broker:
        return ChangeKind.NOT_COMPARED, "broker_not_given"
    topic_id, known = new.context.topic_id, older.word
    if topic_id is not None and known.topic_ids and topic_id not in known.topic_ids:
        return ChangeKind.CREATED, "topic_recreated"
    if not known.topic_is_there:
        return ChangeKind.CREATED, "topic_created"
    return ChangeKind.CREATED, "replica_added" if older.replicas else "partition_added"


def _disk_not_given(old: Replica, before: Disks, after: Disks) -> bool:
    """Whether the log directory that held the replica is not among those given of its broker any more."""
    there, now = before.by_broker.get(old.broker, []), after.by_broker.get(old.broker, [])
    return len(now) < len(there) and _on(old, before, after) is None


def _moved(old: Replica, new: Replica, before: Disks, after: Disks) -> bool:
    """Whether a replica lies in another log directory of its broker, of those that are there still."""
    now = _on(old, before, after)
    return now is not None and now != new.context.log_dir


def _on(old: Replica, before: Disks, after: Disks) -> str | None:
    """The log directory in the newer snapshot that is the one the replica was in: by its id, else by the end of its name."""
    there, now = before.by_broker.get(old.broker, []), after.by_broker.get(old.broker, [])
    mine = next((replica for name, replica in there if name == old.context.log_dir), None)
    if mine is not None and all(replica is not None for _, replica in now):
        return next((name for name, replica in now if replica == mine), None)
    if len(there) == len(now) == 1:
        return now[0][0]
    last = os.path.basename(old.context.log_dir.rstrip("/"))
    named = [name for name, _ in now if os.path.basename(name.rstrip("/")) == last]
    return named[0] if len(named) == 1 else None


# What judging one partition over several snapshots needs, small enough to go where it is judged.


REPLICAS_A_SNAPSHOT: Final = 1 << 16
"""Replicas of a partition are numbered from a multiple of this on in each snapshot."""


@dataclass(slots=True)
class ChangesCommon:
    """What all slices of a comparison have in common: of each snapshot what its scan's tasks have, and its log directories."""

    scans: list[Common]
    disks: list[Disks]


@dataclass(slots=True)
class ChangeSlice:
    """One partition: its slice of each snapshot, empty where that has nothing of it, and what each says beside."""

    topic: str
    partition: int
    parts: list[Slice] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    keys: list[KeyAnswer] | None = None
    """What was answered about its keys, None where nothing was asked yet."""

    @property
    def replicas(self) -> list[ReplicaPlan]:
        """Of all snapshots, by these."""
        return [plan for part in self.parts for plan in part.replicas]


@dataclass(slots=True)
class ChangeAnswer:
    """What came of it: an answer for each snapshot, None where it has nothing, and the changes between them."""

    answers: list[SliceAnswer | None]
    compared: PartitionChanges
    questions: list[KeyQuestion] = field(default_factory=list)
    """What must be answered first, as in a `SliceAnswer`."""


def change_slices(every: Sequence[Inputs], words: Sequence[Words]) -> Iterator[ChangeSlice]:
    """A slice for every partition that any of the snapshots has, by topic and partition."""
    by_partition = [{(partition.topic, partition.partition): partition for partition in slices(inputs)} for inputs in every]
    for key in sorted({key for of_snapshot in by_partition for key in of_snapshot}):
        parts = [of_snapshot.get(key) or Slice(*key) for of_snapshot in by_partition]
        yield ChangeSlice(*key, parts, [word.of(*key) for word in words])


# The task that judges one partition over several snapshots: bytes in, bytes out, as those of `engine.tasks`.


make_serializable(sys.modules[__name__])


@lru_cache(maxsize=2)
def _common(packed: bytes) -> ChangesCommon:
    """The common part, unpacked once in a process."""
    common: ChangesCommon = unpack(packed)
    for known in common.scans:
        keep_code_as(known)
    return common


def judge_changes(common: bytes, rows: Iterator[StretchRow], *, strict: bool = False) -> bytes:
    """Judge one partition in every snapshot, and compare it over time: its rows into a packed `ChangeAnswer`.

    The first row is the packed `ChangeSlice`; stretches follow by replica, segment and start, each snapshot's replicas numbered
    from a multiple of `REPLICAS_A_SNAPSHOT` on. With `strict`, raises SourceError where something cannot be read that could be
    before. Where the answer asks something, the slice is to be judged again with what is told.
    """
    known = _common(common)
    compile_as_needed(known.scans[0].work_bytes)
    change_slice: ChangeSlice = unpack(next(rows).packed, opener(known.scans[0]))
    return pack(_changes_of(change_slice, known, SliceRows(rows), strict=strict))


def judge_whole_changes(common: bytes, work: bytes, *, strict: bool = False) -> Iterator[tuple[int, bytes]]:
    """The same of every `ChangeSlice` of a packed list of numbered ones, whose logs are folded here: its number and a packed
    `ChangeAnswer`."""
    known = _common(common)
    compile_as_needed(known.scans[0].work_bytes)
    numbered: list[tuple[int, ChangeSlice]] = unpack(work, opener(known.scans[0]))
    for number, change_slice in numbered:
        yield number, pack(_changes_of(change_slice, known, None, strict=strict))


def _changes_of(change_slice: ChangeSlice, known: ChangesCommon, stretches: SliceRows | None, *, strict: bool) -> ChangeAnswer:
    """The answer about a partition in every snapshot, folded here where there are no `stretches`."""
    apart = None if stretches is None else keys_apart(known.scans[0], change_slice.replicas, change_slice.keys)
    answers: list[SliceAnswer | None] = []
    times = []
    for part, scan, disks, word in zip(change_slice.parts, known.scans, known.disks, change_slice.words, strict=True):
        if not (part.replicas or part.aside):
            answers.append(None)
            times.append(At(disks, word))
            continue
        answer, merged = answered(part, scan, stretches, apart, len(times) * REPLICAS_A_SNAPSHOT, strict=strict)
        answers.append(answer)
        summary = None if answer.answer is None else answer.answer.result.summary
        times.append(At(disks, word, merged, summary, inputs_of(part, scan.around).evidence))
    compared = partition_changes(times, known.scans[0].key, apart)
    if apart is not None and apart.is_waiting:
        return ChangeAnswer([], PartitionChanges(), apart.questions)
    seen = {gap for answer in answers if answer is not None for gap in (*answer.incomplete, *answer.noticed.incomplete)}
    seen.update(() if apart is None else apart.gaps())
    for gap in compared.incomplete if strict else ():
        if gap not in seen:
            raise SourceError(gap.path, gap.reason)
    return ChangeAnswer(answers, compared)
