"""Reading each copy of the controllers' log, `__cluster_metadata`: its batches, its snapshots, and its voters."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.internal_topics import AgreedLog, MetadataCopy, add_copy
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import BatchChunk, BatchColumn, has_right_crc
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import MetadataBatch, MetadataRecord, MetadataSnapshot, QuorumLog, StatedVoters, VoterSet
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.internal_topics import REPLAYED_FIELDS, decode_metadata_record, is_no_op_batch
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, SegmentReader, decode_batch, parse_control_record, read_batch
from kafka_forensics.parsers.log_dir import FileKind, SegmentLog
from kafka_forensics.parsers.quorum_state import QuorumState, parse_quorum_state
from kafka_forensics.scanning.rereading.logs_in_order import corrected_chunks
from kafka_forensics.storage.archives import reading_order
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile, Entry

BLOCK_BYTES: Final = 4 << 20
LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = 2, 3, 4, 5, 6
UNREADABLE: Final = "unreadable"
PLACES_KEPT: Final = 64

BatchKey = tuple[int, int]
"""(base offset, identity) of a batch."""


class ControllerSnapshotCheck(NamedTuple):
    """Whether a `.checkpoint` is whole, and the statements of its control records."""

    problem: str | None
    """Why it cannot be used: `damaged`, `no_header`, `no_footer` or `UNREADABLE`; None if it is whole."""
    stated: tuple[StatedVoters, ...] = ()
    kraft_version: int = 0


class SnapshotFile(Struct, frozen=True):
    """A `<offset>-<epoch>.checkpoint` of one copy: the state after all records before `offset`, the last of this leader epoch."""

    offset: int
    leader_epoch: int
    plan: ReplicaPlan
    entry: "Entry"
    check: ControllerSnapshotCheck


class ControllerCopy(Struct):
    """One node's copy of the controllers' log."""

    plan: ReplicaPlan
    node: int | str
    directory_id: str | None
    log: MetadataCopy
    """Its good batches, in memory that copies of equal logs share."""
    sound_batches: int
    """How many of them precede the first damage, at which a start cuts the log."""
    is_led: bool
    """Whether leader epochs rise, and each begins with its leader's own record."""
    snapshots: list[SnapshotFile]
    """The whole ones, by offset."""
    damaged_snapshots: list[SnapshotFile]
    state: QuorumState | None
    """None without a readable `quorum-state`."""
    stated: list[StatedVoters] = field(default_factory=list)
    """In the order of the log, a snapshot before the records that follow it."""
    is_dynamic: bool = False
    """Whether its voters are in the log (`kraft.version` 1 or more)."""
    problem: str | None = None
    """Why it could not be read."""

    @property
    def was_read(self) -> bool:
        """Whether all of it could be read; otherwise its end is not known."""
        context = self.plan.context
        return self.problem is None and not context.log_unknown and not context.not_followed

    @property
    def usable_snapshots(self) -> list[int] | None:
        """Offsets of the snapshots from which the node may start: all whole ones, if the newest is. None if one was not read."""
        if any(file.check.problem == UNREADABLE for file in self.damaged_snapshots):
            return None
        files = [*self.snapshots, *self.damaged_snapshots]
        newest = max(files, key=lambda file: (file.leader_epoch, file.offset), default=None)
        is_whole = newest is None or newest.check.problem is None
        return [file.offset for file in self.snapshots] if is_whole else []

    @property
    def last_epoch(self) -> int:
        """The leader epoch of its last record, or else of its newest snapshot; -1 without any."""
        if self.log.base_offsets.size:
            return self.log.last_epoch
        return self.snapshots[-1].leader_epoch if self.snapshots else -1

    @property
    def epoch_seen(self) -> int:
        """The highest leader epoch in its log, its snapshots and its `quorum-state`; -1 without any."""
        states = [] if self.state is None else [self.state.leader_epoch]
        logged = int(self.log.epochs.max(initial=-1))
        return max(logged, -1, *states, *(snapshot.leader_epoch for snapshot in self.snapshots))

    @property
    def remembers_votes(self) -> bool:
        """Whether it has a `quorum-state` that is no older than its log."""
        return self.state is not None and self.state.leader_epoch >= self.last_epoch

    def end_after_start(self) -> tuple[int, int]:
        """(leader epoch of the last record, log end offset) after the node's next start, which cuts the log at its first damage, or
        replaces it by a newer snapshot (KafkaRaftLog)."""
        ends = [(snapshot.leader_epoch, snapshot.offset) for snapshot in self.snapshots]
        if self.sound_batches:
            last = self.sound_batches - 1
            ends.append((int(self.log.identities[last] >> 32), int(self.log.last_offsets[last]) + 1))
        return max(ends, default=(-1, 0))


class ControllerCopies(Struct):
    """All copies among the inputs; a batch that several of them have is decoded once."""

    inputs: Inputs
    copies: list[ControllerCopy] = field(default_factory=list)
    snapshots: list[SnapshotFile] = field(default_factory=list)
    """Every copy of every snapshot, by offset."""
    opened: dict[BatchKey, MetadataBatch] = field(default_factory=dict)
    places: dict[BatchKey, list[tuple[ReplicaPlan, int, int, int]]] = field(default_factory=dict)
    """(plan, segment, first byte, size in bytes) in each copy of a batch with records that cannot be read."""
    newest_ms: int = 0
    end_is_known: bool = True
    """See `ControllerHistory.end_is_known`."""

    def voters(self) -> VoterSet | None:
        """The voters by the newest statement of the most up-to-date copy, else by any `quorum-state`; None without either."""
        best = max(self.copies, key=lambda copy: copy.end_after_start())
        sets = voter_sets(best, self.copies)
        return None if not sets else sets[-1] if best.is_dynamic else sets[0]

    def quorum(self, agreed: AgreedLog) -> list[QuorumLog]:
        """The state that decides elections, of each node whose copy could be read.

        A node knows dynamic voters only by its own copy; its setting `controller.quorum.voters` is not among the evidence.
        """
        is_dynamic = any(copy.is_dynamic for copy in self.copies)
        configured = None if is_dynamic else self.voters()
        logs: dict[int | str, QuorumLog] = {}
        for copy in self.copies:
            if not copy.was_read:
                continue
            records = [stated.voters for stated in copy.stated if not stated.is_leader_change]
            voters = (records[-1] if records else None) if is_dynamic else configured
            epoch, end = copy.end_after_start()
            agreeing = [file.offset for file in copy.snapshots if agreed.agrees_with(file.offset, file.leader_epoch)]
            agreed_end = max(min(agreed.agreed_ends.get(copy.node, 0), end), *agreeing, 0)
            log = QuorumLog(copy.node, copy.directory_id, epoch, end, agreed_end, voters)
            if copy.node not in logs or logs[copy.node].rank < log.rank:
                logs[copy.node] = log
        return list(logs.values())


def read_copies(inputs: Inputs, partition: int = 0) -> ControllerCopies:
    """Read every copy of `__cluster_metadata`, whose only partition is 0."""
    key = (CLUSTER_METADATA_TOPIC, partition)
    plans = [plan for plan in inputs.internal if plan.context.topic_partition == key]
    copies = ControllerCopies(inputs)
    logs: list[MetadataCopy] = []
    for plan in _in_reading_order(plans):
        copy = _read_copy(copies, plan)
        add_copy(logs, copy.log)
        copies.copies.append(copy)
    for copy, log in zip(copies.copies, logs, strict=True):
        copy.log = log
    copies.snapshots.sort(key=lambda file: (file.offset, file.leader_epoch))
    return copies


def voter_sets(copy: ControllerCopy, copies: Sequence[ControllerCopy]) -> list[VoterSet | None]:
    """The voter sets, one of which decides elections, by a copy; None for one that is not known.

    KRaftVoters records add or remove one voter each, and only after the change before is committed (KIP-853). So it is the last set
    or, unless that is proven committed, as by a snapshot, the one before. Without such records the voters are configured: every set
    that a leader or a `quorum-state` names may be it.
    """
    records = [stated for stated in copy.stated if not stated.is_leader_change]
    if not records:
        named = [frozenset(stated.voters.directories) for stated in copy.stated[-1:]]
        named += [frozenset(other.state.voters) for other in copies if other.state is not None and other.state.voters]
        return [VoterSet(dict.fromkeys(sorted(voters))) for voters in dict.fromkeys(named)]
    newest = copy.snapshots[-1].offset if copy.snapshots else 0
    last = records[-1]
    if last.in_snapshot or last.offset < newest:
        return [last.voters]
    led = (stated for stated in reversed(copy.stated) if stated.is_leader_change and stated.offset < last.offset)
    before = records[-2] if len(records) > 1 else next(led, None)
    return [None if before is None else before.voters, last.voters]


def node_id(plan: ReplicaPlan) -> int | str:
    """The broker's node id, whatever name the user gave it."""
    meta = plan.log_dir.meta
    return plan.context.broker if meta is None or meta.node_id is None else meta.node_id


def _in_reading_order(plans: list[ReplicaPlan]) -> list[ReplicaPlan]:
    """The plans by source, those of an archive in its order."""
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


def _read_copy(copies: ControllerCopies, plan: ReplicaPlan) -> ControllerCopy:
    """Read all good batches of a copy, and decode those that no earlier copy had."""
    rows: list[NDArray[np.int64]] = [np.empty((6, 0), np.int64)]
    problem, sound, is_sound = None, 0, True
    for log in plan.directory.logs():
        try:
            with plan.log_dir.source.open(log.entry.path) as file:
                for batches, damaged_at in _read_segment(copies, plan, file, log):
                    rows.append(batches)
                    if is_sound:
                        sound += batches.shape[1] if damaged_at is None else int((batches[-1] < damaged_at).sum())
                        is_sound = damaged_at is None
        except SourceError as error:
            copies.inputs.incomplete.append(not_read(plan.log_dir.source, error))
            copies.end_is_known, is_sound, problem = False, False, problem or error.reason
    columns = np.concatenate(rows, axis=1)
    rising = np.ones(columns.shape[1], np.bool_)
    rising[1:] = columns[0, 1:] > np.maximum.accumulate(columns[1])[:-1]
    rising &= columns[1] >= columns[0]
    sound = int(rising[:sound].sum())
    bases, lasts, identities, epochs, types, _ = columns[:, rising]
    meta, node = plan.log_dir.meta, node_id(plan)
    directory_id = None if meta is None else meta.directory_id
    metadata = MetadataCopy(node, bases, lasts, identities)
    # no CRC covers a batch's leader epoch; a leader's first record is its LeaderChangeMessage (LeaderState)
    is_led = bool((np.diff(epochs) >= 0).all() and (types[1:][np.diff(epochs) > 0] == LEADER_CHANGE).all())
    copy = ControllerCopy(plan, node, directory_id, metadata, sound, is_led, [], [], _quorum_state(plan), problem=problem)
    _add_snapshots(copies, copy)
    _add_statements(copies, copy, np.flatnonzero(types >= 0))
    return copy


def _quorum_state(plan: ReplicaPlan) -> QuorumState | None:
    entry = plan.directory.entries.get(FileKind.QUORUM_STATE)
    if entry is None:
        return None
    try:
        with plan.log_dir.source.open(entry.path) as file:
            return parse_quorum_state(file)
    except SourceError:
        return None


def _add_snapshots(copies: ControllerCopies, copy: ControllerCopy) -> None:
    plan = copy.plan
    for offset, leader_epoch, entry in plan.directory.metadata_snapshots:
        check = copies.inputs.read(plan.log_dir.source, entry, partial(check_snapshot, offset=offset))
        file = SnapshotFile(offset, leader_epoch, plan, entry, check or ControllerSnapshotCheck(UNREADABLE))
        copies.snapshots.append(file)
        (copy.snapshots if file.check.problem is None else copy.damaged_snapshots).append(file)
    copy.snapshots.sort(key=lambda snapshot: (snapshot.offset, snapshot.leader_epoch))


def _add_statements(copies: ControllerCopies, copy: ControllerCopy, rows: "NDArray[np.intp]") -> None:
    """Add the voters that the control batches in these rows of a copy, and its snapshots, state."""
    log = copy.log
    keys = zip(log.base_offsets[rows].tolist(), log.identities[rows].tolist(), strict=True)
    batches = [copies.opened[key] for key in keys if key in copies.opened]
    copy.is_dynamic = any(batch.kraft_version for batch in batches) or any(file.check.kraft_version for file in copy.snapshots)
    copy.stated = [batch.voters for batch in batches if batch.voters is not None]
    copy.stated += [stated for file in copy.snapshots for stated in file.check.stated]
    copy.stated.sort(key=lambda stated: (stated.offset, not stated.in_snapshot))


def _read_segment(
    copies: ControllerCopies, plan: ReplicaPlan, file: "ByteFile", log: "SegmentLog"
) -> Iterator[tuple["NDArray[np.int64]", int | None]]:
    """Chunk by chunk: (base offset, last offset, identity, leader epoch, control record type, position) of the good batches, and
    the byte position of the first damage."""
    last, name = plan.directory.segments[-1].log, log.entry.name
    for chunk, misplaced in corrected_chunks(plan, log, file):
        columns = chunk.columns
        good = has_right_crc(columns) & (columns[BatchColumn.MAGIC] >= 2)
        good &= columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES
        if last is not None and last.name == name and _ends_with_damage(chunk, good):
            copies.end_is_known = False
        damaged = [*columns[BatchColumn.POSITION, ~good].tolist(), *(damage.position for damage in chunk.damage)]
        columns = columns[:, good]
        copies.newest_ms = max(copies.newest_ms, int(columns[BatchColumn.MAX_TIMESTAMP].max(initial=0)))
        epochs = columns[BatchColumn.PARTITION_LEADER_EPOCH]
        identities = (epochs << 32) | columns[BatchColumn.CRC]
        bases = columns[BatchColumn.BASE_OFFSET]
        for row, data in _batches(file, columns):
            key = (int(bases[row]), int(identities[row]))
            if key in copies.opened and key not in copies.places:
                continue
            if is_no_op_batch(data, int(columns[BatchColumn.ATTRIBUTES, row])):
                continue
            wrong = misplaced.get(int(columns[BatchColumn.POSITION, row]))
            batch = copies.opened.get(key) or open_batch(data if wrong is None else wrong.rewritten(bytes(data)))
            copies.opened[key] = batch
            if any(record.problem is not None for _, record in batch.records):
                places = copies.places.setdefault(key, [])
                if len(places) < PLACES_KEPT:
                    places.append(
                        (plan, log.base_offset, *columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES], row].tolist())
                    )
        rest = columns[[BatchColumn.CONTROL_RECORD_TYPE, BatchColumn.POSITION]]
        yield np.stack([bases, columns[BatchColumn.LAST_OFFSET], identities, epochs, *rest]), min(damaged, default=None)


def _batches(file: "ByteFile", columns: "NDArray[np.int64]") -> Iterator[tuple[int, memoryview]]:
    """(row, bytes) of every batch, read in blocks; of a collected log, only the batches that it has."""
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
    """Whether a chunk ends with damage other than a stopped broker may leave."""
    last = int(chunk.columns[BatchColumn.POSITION, -1]) if chunk.rows else -1
    damaged = [damage.position for damage in chunk.damage if damage.kind not in kinds_with(Trait.IS_TAIL)]
    return max(damaged, default=-1) > last or (last >= 0 and not bool(good[-1]))


def open_batch(data: bytes | memoryview) -> MetadataBatch:
    """Decode a batch of `__cluster_metadata`; what cannot be decoded is a record with a problem."""
    decoded = decode_batch(data)
    header = decoded.header
    if header is None:
        return MetadataBatch(-1, -1, ((-1, _UNREADABLE),))
    if header.is_control_batch:
        voters, kraft_version = None, None
        for record in decoded.iter_records():
            control = parse_control_record(record.key, record.value)
            if control.problem is not None:
                continue
            if control.type == KRAFT_VERSION:
                kraft_version = control.fields["kraft_version"]
            is_change = control.type == LEADER_CHANGE
            if (is_change or control.type == KRAFT_VOTERS) and control.fields["voters"]:
                voters = StatedVoters(record.offset, _voter_set(control.fields["voters"]), is_leader_change=is_change)
        return MetadataBatch(header.base_offset, header.max_timestamp, voters=voters, kraft_version=kraft_version)
    records = [(record.offset, _fields_for_replay(decode_metadata_record(record.value))) for record in decoded.iter_records()]
    if decoded.problems:
        records.append((header.last_offset, _UNREADABLE))
    return MetadataBatch(header.base_offset, header.max_timestamp, tuple(records))


def _fields_for_replay(record: MetadataRecord) -> MetadataRecord:
    """The record with only the fields that a replay uses, to save memory."""
    names = REPLAYED_FIELDS.get(record.api_key)
    if record.fields is None or names is None:
        return replace(record, fields=None)
    return replace(record, fields={name: record.fields[name] for name in names if name in record.fields})


_UNREADABLE: Final = MetadataRecord(-1, "UNKNOWN", -1, 0, None, "batch")


def _voter_set(voters: list[Json]) -> VoterSet:
    """Voters with directory ids as `meta.properties` has them; None for a missing or zero id."""
    raw_ids = {voter["voter_id"]: voter.get("voter_directory_id") for voter in voters}
    return VoterSet(
        {voter: urlsafe_b64encode(raw).decode().rstrip("=") if raw and any(raw) else None for voter, raw in raw_ids.items()}
    )


def check_snapshot(file: "ByteFile", offset: int) -> ControllerSnapshotCheck:
    """Check the `.checkpoint` file of a snapshot at `offset`. Raises SourceError."""
    first = last = None
    stated: list[StatedVoters] = []
    kraft_version = 0
    for chunk in SegmentReader(file).chunks():
        columns = chunk.columns
        if chunk.damage or not has_right_crc(columns).all():
            return ControllerSnapshotCheck("damaged")
        types = columns[BatchColumn.CONTROL_RECORD_TYPE]
        first = int(types[0]) if first is None and types.size else first
        last = int(types[-1]) if types.size else last
        for _, data in _batches(file, columns[:, types >= 0]):
            batch = open_batch(data)
            kraft_version = kraft_version if batch.kraft_version is None else batch.kraft_version
            stated += [] if batch.voters is None else [replace(batch.voters, offset=offset, in_snapshot=True)]
    if first is not None and first != SNAPSHOT_HEADER:
        return ControllerSnapshotCheck("no_header")
    return ControllerSnapshotCheck(None if last == SNAPSHOT_FOOTER else "no_footer", tuple(stated), kraft_version)


def parse_snapshot(file: "ByteFile", offset: int) -> MetadataSnapshot:
    """Decode a whole `.checkpoint` file. Raises SourceError."""
    batches: list[MetadataBatch] = []
    last_timestamp = -1
    for chunk in SegmentReader(file).chunks():
        for _, data in _batches(file, chunk.columns):
            if not batches:
                first = next(decode_batch(data).iter_records(), None)
                record = None if first is None else parse_control_record(first.key, first.value)
                last_timestamp = -1 if record is None else int(record.fields.get("last_contained_log_timestamp", -1))
            batches.append(open_batch(data))
    return MetadataSnapshot(offset, last_timestamp, tuple(batches))
