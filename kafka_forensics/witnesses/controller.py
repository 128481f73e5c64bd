"""Reading the controller's log: every copy of `__cluster_metadata` once, one replay of what they agree on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.internal_topics import AgreedLog, MetadataCopy, Replay, add_copy, agree
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, typed_path
from kafka_forensics.model.batches import HARMLESS_TAILS, BatchChunk, BatchColumn
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from kafka_forensics.model.controller import ControllerHistory, MetadataBatch, MetadataRecord, MetadataSnapshot
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.internal_topics import decode_metadata_record, is_no_op_batch
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, SegmentReader, decode_batch, parse_control_record, read_batch
from kafka_forensics.rereading.logs_in_order import logs_of, rightly_placed
from kafka_forensics.storage.archives import reading_order
from kafka_forensics.storage.bundles import CollectedLog
from kafka_forensics.witnesses.malformed_records import MalformedRecords, UnknownKinds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.segments import Misplaced
    from kafka_forensics.storage.source import ByteFile, Entry

BLOCK_BYTES: Final = 4 << 20
LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VOTERS = 2, 3, 4, 6
NODES_NAMED: Final = 64
REPLAYED: Final = frozenset({2, 3, 4, 5, 9, 12, 23, 24, 25, 28})
"""Kinds whose fields a replay takes."""

_Key = tuple[int, int]
"""(base offset, identity) of a batch."""


@dataclass(slots=True)
class _Reading:
    """What was opened so far; equal batches of several copies are opened once."""

    inputs: Inputs
    opened: dict[_Key, MetadataBatch] = field(default_factory=dict)
    places: dict[_Key, list[tuple[ReplicaPlan, str, int, int]]] = field(default_factory=dict)
    """Of batches with malformed records: plan, file, first byte and size in each copy."""
    newest_ms: int = 0
    end_is_known: bool = True
    """See `ControllerHistory.end_is_known`."""


@dataclass(slots=True)
class ControllerEvidence:
    """The controller's history with the findings about its own records."""

    history: ControllerHistory
    findings: list[Finding]


def read_controller(inputs: Inputs) -> ControllerEvidence | None:
    """Replay `__cluster_metadata` from all its copies; None without any, or where copies of several clusters are mixed.

    `inputs.controller` is the history from then on.
    """
    plans = [plan for plan in inputs.internal if (plan.context.topic, plan.context.partition) == (CLUSTER_METADATA_TOPIC, 0)]
    clusters = {plan.log_dir.meta.cluster_id for plan in plans if plan.log_dir.meta is not None} - {None}
    if not plans or len(clusters) > 1:
        return None
    reading = _Reading(inputs)
    copies: list[MetadataCopy] = []
    for plan in _in_reading_order(plans):
        add_copy(copies, _read_copy(reading, plan))
    log = agree(copies)
    files = _snapshot_files(plans)
    if not log.base_offsets.size and not files:
        return None
    evidence = _replayed(reading, log, files)
    inputs.controller = evidence.history
    return evidence


def node_id(plan: ReplicaPlan) -> int | str:
    """What the controller calls the broker, whatever name it was given."""
    meta = plan.log_dir.meta
    return plan.context.broker if meta is None or meta.node_id is None else meta.node_id


def cleanup_policy(contexts: list[ReplicaContext]) -> str:
    """`delete`, `compact`, `compact,delete`, or `unknown` where neither the controller nor a cleaner's checkpoint tells.

    `contexts` are of one partition's replicas, at least one: whichever tells has the word. It is unknown, too, where they are told
    different ones, as of topics of one name.
    """
    policies = {context.control.cleanup_policy for context in contexts if context.control is not None} - {None}
    if contexts[0].topic in INTERNAL_TOPICS:
        return "compact"
    if policies:
        return (policies.pop() if len(policies) == 1 else None) or "unknown"
    return "compact" if any(context.compacted for context in contexts) else "unknown"


LastWord = tuple[int | None, int | None, list[int] | None, list[int] | None]


def last_word(replicas: list[Replica]) -> LastWord:
    """Leader, leader epoch, ISR and replica assignment of a partition; None for each that is not known."""
    control = next((replica.context.control for replica in replicas if replica.context.control is not None), None)
    if control is None:
        return None, None, None, None
    return control.leader, control.leader_epoch, control.isr, control.replica_assignment


def present_topic(groups: Sequence[Sequence[int]], replicas: Sequence[Replica]) -> tuple[int, bool]:
    """Of groups of replicas by topic id (`partitions.identity_groups`): which is of the present topic, and whether that is known.

    It is the one whose id is the controller's, or the only one of which the controller's log can speak; else that of most copies.
    """

    def spoken_of(group: Sequence[int]) -> int:
        contexts = [replicas[number].context for number in group]
        said = [(context.control.topic_id, context.topic_id) for context in contexts if context.control is not None]
        return 2 if any(ours == theirs for ours, theirs in said) else 1 if said else 0

    ranks = [spoken_of(group) for group in groups]
    known = max(ranks) > 0 and ranks.count(max(ranks)) == 1
    return max(range(len(groups)), key=lambda number: (ranks[number], len(groups[number]))), known


def _in_reading_order(plans: list[ReplicaPlan]) -> list[ReplicaPlan]:
    """Copies that share an archive, as they lie in it."""
    by_source: dict[int, list[ReplicaPlan]] = {}
    for plan in plans:
        by_source.setdefault(id(plan.log_dir.source), []).append(plan)
    ordered = []
    for group in by_source.values():
        source = group[0].log_dir.source
        first = {segment.log.path: plan for plan in reversed(group) for segment in plan.directory.segments[:1] if segment.log}
        ordered += [first[path] for path in reading_order(source, first)]
        ordered += [plan for plan in group if not any(plan is replica_plan for replica_plan in ordered)]
    return ordered


def _read_copy(reading: _Reading, plan: ReplicaPlan) -> MetadataCopy:
    """Every good batch of a copy: its identity, and its records if no copy before held it."""
    rows: list[NDArray[np.int64]] = [np.empty((4, 0), np.int64)]
    for segment, log, behind in logs_of(plan):
        try:
            with plan.log_dir.source.open(log.path) as file:
                rows += _read_segment(reading, plan, file, log.name, rightly_placed(plan, segment, file, behind))
        except SourceError as error:
            reading.inputs.incomplete.append(Incomplete(typed_path(plan.log_dir.source, error.path), error.reason))
            reading.end_is_known = False
    columns = np.concatenate(rows, axis=1)
    rising = np.ones(columns.shape[1], np.bool_)
    rising[1:] = columns[0, 1:] > np.maximum.accumulate(columns[1])[:-1]
    columns = columns[:, rising]
    epoch = int(columns[3].max()) if columns.shape[1] else -1
    return MetadataCopy(node_id(plan), columns[0], columns[1], columns[2], epoch)


def _read_segment(
    reading: _Reading, plan: ReplicaPlan, file: "ByteFile", name: str, placed: Iterator[tuple[BatchChunk, dict[int, "Misplaced"]]]
) -> Iterator["NDArray[np.int64]"]:
    """(base offset, last offset, identity, leader epoch) of the good batches of the file `name`, chunk by chunk."""
    last = plan.directory.segments[-1].log
    for chunk, misplaced in placed:
        columns = chunk.columns
        good = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (columns[BatchColumn.MAGIC] >= 2)
        good &= columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES
        if last is not None and last.name == name and _ends_with_damage(chunk, good):
            reading.end_is_known = False
        columns = columns[:, good]
        if not columns.shape[1]:
            continue
        reading.newest_ms = max(reading.newest_ms, int(columns[BatchColumn.MAX_TIMESTAMP].max()))
        epochs = columns[BatchColumn.PARTITION_LEADER_EPOCH]
        identities = (epochs << 32) | columns[BatchColumn.CRC]
        bases = columns[BatchColumn.BASE_OFFSET]
        for row, data in _batches(file, columns):
            key = (int(bases[row]), int(identities[row]))
            if key in reading.opened and key not in reading.places:
                continue
            if is_no_op_batch(data, int(columns[BatchColumn.ATTRIBUTES, row])):
                continue
            wrong = misplaced.get(int(columns[BatchColumn.POSITION, row]))
            batch = reading.opened.get(key) or open_batch(data if wrong is None else wrong.rewritten(bytes(data)))
            reading.opened[key] = batch
            if any(record.problem is not None for _, record in batch.records):
                place = (plan, name, *columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES], row].tolist())
                held = reading.places.setdefault(key, [])
                held += [place] if len(held) < NODES_NAMED else []
        yield np.stack([bases, columns[BatchColumn.LAST_OFFSET], identities, epochs])


def _batches(file: "ByteFile", columns: "NDArray[np.int64]") -> Iterator[tuple[int, memoryview]]:
    """The bytes of every row's batch, read in blocks; of a collected log of those rows alone that tell anything."""
    if isinstance(file, CollectedLog):
        for row, (start, size) in enumerate(columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]].T.tolist()):
            if data := read_batch(file, start, size):
                yield row, memoryview(data)
        return
    starts = columns[BatchColumn.POSITION].tolist()
    sizes = columns[BatchColumn.SIZE_IN_BYTES].tolist()
    block, at = memoryview(b""), 0
    for row, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if not at <= start <= start + size <= at + len(block):
            last = row
            while last + 1 < len(starts) and 0 <= starts[last + 1] - start <= BLOCK_BYTES - sizes[last + 1]:
                last += 1
            block, at = memoryview(file.read_at(start, max(starts[last] + sizes[last] - start, size))), start
        if start + size <= at + len(block):
            yield row, block[start - at : start - at + size]


def _ends_with_damage(chunk: BatchChunk, good: "NDArray[np.bool_]") -> bool:
    """Whether what comes last in a stretch of a log is no good batch, and not what a stopped broker may leave."""
    last = int(chunk.columns[BatchColumn.POSITION, -1]) if chunk.rows else -1
    damaged = [damage.position for damage in chunk.damage if damage.kind not in HARMLESS_TAILS]
    return max(damaged, default=-1) > last or (last >= 0 and not bool(good[-1]))


def open_batch(data: bytes | memoryview) -> MetadataBatch:
    """A batch of `__cluster_metadata`; what cannot be read in it is a record with a problem."""
    decoded = decode_batch(data)
    header = decoded.header
    if header is None:
        return MetadataBatch(-1, -1, ((-1, _UNREADABLE),))
    if header.is_control_batch:
        voters = None
        for record in decoded.iter_records():
            voters = _voters(record.key, record.value) or voters
        return MetadataBatch(header.base_offset, header.max_timestamp, voters=voters)
    records = [(record.offset, _needed(decode_metadata_record(record.value))) for record in decoded.iter_records()]
    if decoded.problems:
        records.append((header.last_offset, _UNREADABLE))
    return MetadataBatch(header.base_offset, header.max_timestamp, tuple(records))


def _needed(record: MetadataRecord) -> MetadataRecord:
    """The record, without the fields of kinds that are not replayed: logs hold many of them."""
    return record if record.fields is None or record.api_key in REPLAYED else replace(record, fields=None)


_UNREADABLE: Final = MetadataRecord(-1, "UNKNOWN", -1, 0, None, "batch")


def _voters(key: bytes | None, value: bytes | None) -> tuple[int, ...] | None:
    control = parse_control_record(key, value)
    if control.type not in (LEADER_CHANGE, KRAFT_VOTERS) or control.problem is not None:
        return None
    return tuple(voter["voter_id"] for voter in control.fields["voters"]) or None


@dataclass(frozen=True, slots=True)
class _SnapshotFile:
    offset: int
    epoch: int
    plan: ReplicaPlan
    entry: "Entry"


def _snapshot_files(plans: list[ReplicaPlan]) -> list[_SnapshotFile]:
    """Every copy of every snapshot, by offset."""
    files = [
        _SnapshotFile(offset, epoch, plan, entry) for plan in plans for offset, epoch, entry in plan.directory.metadata_snapshots
    ]
    return sorted(files, key=lambda file: (file.offset, file.epoch))


def _stated_voters(batches: list[MetadataBatch]) -> list[int] | None:
    """Those that the last batch states which states any."""
    return next((list(batch.voters) for batch in reversed(batches) if batch.voters), None)


def _replayed(reading: _Reading, log: AgreedLog, files: list[_SnapshotFile]) -> ControllerEvidence:
    keys = list(zip(log.base_offsets.tolist(), log.identities.tolist(), strict=True))
    batches = [(key, reading.opened[key]) for key in keys if key in reading.opened]
    voters = _stated_voters([batch for _, batch in batches])
    replay = Replay(log.start_offset, committed_end=log.committed_end(voters), possible_end=log.possible_end(voters))
    replay.history.voters = voters
    replay.history.copy_ends = log.agreed_ends
    replay.history.gaps = log.gaps
    replay.history.end_is_known = reading.end_is_known
    malformed = MalformedRecords()
    unknown = UnknownKinds()
    whole = [file for file in files if _is_whole(reading.inputs, file, malformed)]
    for file in whole:
        file.plan.context.snapshots.append(file.offset)
    waiting = [file for file in reversed(whole) if log.agrees_with(file.offset, file.epoch)]

    def restate(known_end: int, offset: int) -> int:
        """Take the state from the newest snapshot up to `offset`, if it reaches beyond `known_end` or something before is in doubt.

        Returns up to where all is known then: the snapshot's offset, else `known_end`.
        """
        usable = []
        while waiting and waiting[-1].offset <= offset:
            usable.append(waiting.pop())
        while usable and (replay.in_doubt or usable[-1].offset > known_end):
            file = usable.pop()
            snapshot = _read_snapshot(reading.inputs, file, malformed, unknown)
            if snapshot is not None:
                replay.restate(snapshot)
                return max(file.offset, known_end)
        return known_end

    gaps = [*log.missing_ranges(max((file.offset for file in files), default=0)), (1 << 63, 1 << 63)]
    for key, batch in [*batches, (None, None)]:
        offset = 1 << 62 if batch is None else batch.base_offset
        while gaps[0][0] < offset:
            start, end = gaps.pop(0)
            if (start := restate(start, end)) < end:
                replay.gap(start)
        restate(offset, offset)
        if key is None or batch is None:
            break
        for record_offset, record in batch.records:
            replay.step(record_offset, batch.timestamp_ms, record)
        if key in reading.places:
            _add_malformed(malformed, reading, key, batch)
            _add_unknown(unknown, reading, key, batch)
    replay.history.last_ms = max(reading.newest_ms, replay.history.last_ms or 0) or None
    history = replay.finish(max([log.end_offset, *(file.offset for file in files)]))
    return ControllerEvidence(history, malformed.findings() + unknown.findings())


def _add_unknown(unknown: UnknownKinds, reading: _Reading, key: _Key, batch: MetadataBatch) -> None:
    """Count the records of unknown kinds in a batch, at their place in the first copy."""
    plan, name, position, size = reading.places[key][0]
    holders = [replica_plan.context.broker for replica_plan, _, _, _ in reading.places[key]]
    for offset, record in batch.records:
        if record.is_unknown:
            place = plan.context.place(
                name, byte_start=position, byte_end=position + size, offset_start=offset, offset_end=offset + 1
            )
            unknown.add(record, place, holders)


def _add_malformed(malformed: MalformedRecords, reading: _Reading, key: _Key, batch: MetadataBatch) -> None:
    """Add the records of a batch that could not be read, at their place in the first copy."""
    plan, name, position, size = reading.places[key][0]
    holders = [replica_plan.context.broker for replica_plan, _, _, _ in reading.places[key]]

    def found(offset: int, record: MetadataRecord) -> Finding:
        place = plan.context.place(name, byte_start=position, byte_end=position + size, offset_start=offset, offset_end=offset + 1)
        return finding("METADATA_RECORD_MALFORMED", place, _told(record) | {"brokers": holders, "unknown_after_offset": offset - 1})

    for offset, record in batch.records:
        if record.problem is not None and not record.is_unknown:
            malformed.add(partial(found, offset, record))


def _told(record: MetadataRecord) -> Json:
    named = record.name.removesuffix("_RECORD").lower().replace("_", " ") if record.api_key >= 0 else "cluster metadata"
    evidence: Json = {"reason": record.problem, "record_type": named, "record_bytes": record.size_in_bytes}
    return evidence | ({"api_key": record.api_key, "record_version": record.version} if record.api_key >= 0 else {})


def _is_whole(inputs: Inputs, file: _SnapshotFile, malformed: MalformedRecords) -> bool:
    """Whether a snapshot can be used; of one that cannot, a finding."""
    problem = inputs.read(file.plan.log_dir.source, file.entry, lambda opened: snapshot_problem(opened) or "")
    if problem:
        evidence = {"reason": problem, "record_type": "snapshot"} | _of_snapshot(file)
        malformed.add(partial(finding, "METADATA_RECORD_MALFORMED", _place(file), evidence))
    return problem == ""


def _place(file: _SnapshotFile) -> Place:
    return file.plan.context.place(file.entry.name, byte_start=0, byte_end=file.entry.size_in_bytes, offset_end=file.offset)


def _of_snapshot(file: _SnapshotFile) -> Json:
    return {"brokers": [file.plan.context.broker], "unknown_after_offset": file.offset - 1}


def _read_snapshot(
    inputs: Inputs, file: _SnapshotFile, malformed: MalformedRecords, unknown: UnknownKinds
) -> MetadataSnapshot | None:
    """A `.checkpoint` that is whole, None if it cannot be read any more. Records in it that cannot be read, and those of unknown
    kinds, are added to the others."""
    snapshot = inputs.read(file.plan.log_dir.source, file.entry, lambda opened: parse_snapshot(opened, file.offset))
    for record in () if snapshot is None else (record for batch in snapshot.batches for _, record in batch.records):
        if record.is_unknown:
            unknown.add(record, _place(file), [file.plan.context.broker])
        elif record.problem is not None:
            malformed.add(partial(finding, "METADATA_RECORD_MALFORMED", _place(file), _told(record) | _of_snapshot(file)))
    return snapshot


def snapshot_problem(file: "ByteFile") -> str | None:
    """Why the snapshot in a `.checkpoint` file cannot be used: `damaged`, `no_header`, `no_footer`; None if it is whole."""
    first = last = None
    for chunk in SegmentReader(file).chunks():
        columns = chunk.columns
        if chunk.damage or (columns[BatchColumn.CRC] != columns[BatchColumn.CRC_COMPUTED]).any():
            return "damaged"
        types = columns[BatchColumn.CONTROL_RECORD_TYPE]
        first = int(types[0]) if first is None and types.size else first
        last = int(types[-1]) if types.size else last
    if first is not None and first != SNAPSHOT_HEADER:
        return "no_header"
    return None if last == SNAPSHOT_FOOTER else "no_footer"


def parse_snapshot(file: "ByteFile", offset: int) -> MetadataSnapshot:
    """The snapshot in a `.checkpoint` file that is whole (`snapshot_problem`)."""
    batches: list[MetadataBatch] = []
    moment = -1
    for chunk in SegmentReader(file).chunks():
        for _, data in _batches(file, chunk.columns):
            if not batches:
                first = next(decode_batch(data).iter_records(), None)
                record = None if first is None else parse_control_record(first.key, first.value)
                moment = -1 if record is None else int(record.fields.get("last_contained_log_timestamp", -1))
            batches.append(open_batch(data))
    return MetadataSnapshot(offset, moment, tuple(batches))
