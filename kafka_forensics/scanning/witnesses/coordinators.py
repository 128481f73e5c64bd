"""Reading `__transaction_state` from the copies: one copy of each partition, and a finding for every record that is malformed."""

from functools import partial
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.internal_topics import GroupReplay, ShareReplay, TransactionLogReplay
from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, broker_order, typed_path
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage, Record, has_right_crc
from kafka_forensics.model.constants import (
    CONSUMER_OFFSETS_TOPIC,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_MASK,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TRANSACTIONAL_MASK,
)
from kafka_forensics.model.coordinators import (
    GROUP_METADATA_TYPE,
    OFFSET_COMMIT_TYPES,
    RECORD_TYPES,
    GroupHistory,
    GroupKey,
    GroupLog,
    MalformedRecord,
    ShareLog,
    TransactionLog,
)
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.internal_topics import (
    SHARE_RECORDS,
    SNAPSHOT,
    check_value,
    parse_transaction_log_key,
    parse_transaction_log_value,
    read_group_metadata,
    read_group_value,
    read_key,
    read_offset_commit,
    read_share_key,
    read_share_value,
)
from kafka_forensics.parsers.kernels.commits import Superseded, mark_alive
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    PlainRecord,
    SegmentReader,
    decode_batch,
    plain_records,
    read_batch,
)
from kafka_forensics.scanning.rereading.logs_in_order import LoggedRecords, Placing, logged_records
from kafka_forensics.scanning.witnesses.malformed_records import MalformedRecords
from kafka_forensics.storage.bundles import BundleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.analysis.kinds.evidence_classes import MetadataMalformedEvidence
    from kafka_forensics.analysis.segments import Misplaced
    from kafka_forensics.storage.source import ByteFile


# Reading `__consumer_offsets`: one replica of each partition, the longest, replayed into what groups committed.


MALFORMED_KEPT: Final = 1000
WORTH_SKIPPING_BYTES: Final = 4 << 20
"""In logs of at least this size, commits that later ones supersede are passed over by a kernel."""
_KEYS_CACHED: Final = 1 << 17
_KEYS_BYTES: Final = 32 << 20
_ROW_FACTS: Final = (
    BatchColumn.POSITION,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.MAGIC,
    BatchColumn.ATTRIBUTES,
    BatchColumn.PRODUCER_ID,
    BatchColumn.CONTROL_RECORD_TYPE,
)
_NOT_TAKEN_APART: Final = frozenset({"kind", "oversized"})
"""Reasons for which a value is only named and measured."""


def read_group_history(inputs: Inputs) -> GroupHistory | None:
    """Every partition of `__consumer_offsets` among the inputs, replayed; None if there is none.

    What cannot be read is listed in `inputs.incomplete`. A damaged copy gives way to a whole one that is as long. A copy that does
    not tell its cluster is of the only one there is, and of none of several.
    """
    plans = [plan for plan in inputs.internal if plan.context.topic == CONSUMER_OFFSETS_TOPIC]
    clusters = {cluster_of(plan) for plan in plans} - {None}
    unknown = "" if len(clusters) > 1 else next(iter(clusters), None) or ""
    copies: dict[tuple[int, str], list[ReplicaPlan]] = {}
    for plan in plans:
        copies.setdefault((plan.context.partition, cluster_of(plan) or unknown), []).append(plan)
    if not copies:
        return None
    history = GroupHistory()
    for key in sorted(copies):
        history.add(_best(inputs, sorted(copies[key], key=longest_first)))
    return history


def cluster_of(plan: ReplicaPlan) -> str | None:
    """The id of the cluster a copy is of, None if it does not tell."""
    return None if plan.log_dir.meta is None else plan.log_dir.meta.cluster_id


def longest_first(plan: ReplicaPlan) -> tuple[object, ...]:
    """Sort key: the copy whose last segment begins latest and is largest has the newest records."""
    last = max(
        (
            (segment.base_offset, segment.log.size_in_bytes)
            for segment in plan.directory.segments
            if segment.log is not None and segment.log.size_in_bytes
        ),
        default=(-1, 0),
    )
    return -last[0], -last[1], broker_order(plan.context.broker), plan.log_dir.name


def _best(inputs: Inputs, plans: list[ReplicaPlan]) -> GroupLog:
    """The first copy that is whole, else the one that reaches furthest."""
    logs: list[GroupLog] = []
    for plan in plans:
        skips = plan.bytes >= WORTH_SKIPPING_BYTES and mark_alive.is_ready()
        log = replay_log(inputs, plan, Superseded(compiled=True) if skips else None)
        if log.complete and all(log.end_offset >= group_log.end_offset for group_log in logs):
            return log
        logs.append(log)
    return max(logs, key=lambda group_log: group_log.end_offset)


def replay_log(inputs: Inputs, plan: ReplicaPlan, superseded: Superseded | None = None) -> GroupLog:
    """One replica's log, replayed; the answer is the same with `superseded`, which knows what need not be looked at."""
    return _LogWalk(inputs, plan, superseded).replayed()


class _LogWalk:
    """Hands every record of one replica's log to a replay, in file order.

    Records are decoded before it is known which batches bear wrong base offsets. If any did, the log is read once more.
    """

    def __init__(self, inputs: Inputs, plan: ReplicaPlan, superseded: Superseded | None) -> None:
        self._inputs = inputs
        self._plan = plan
        self._log = GroupLog(plan.context.partition, plan.context.broker, cluster_of(plan))
        self._replay = GroupReplay(self._log)
        self._keys: dict[bytes, GroupKey | str] = {}
        self._keys_size = 0
        self._superseded = superseded
        self._file = ""
        self._segment = 0
        self._batch = (0, 0)
        self._misplaced: dict[tuple[int, int], Misplaced] = {}

    def replayed(self) -> GroupLog:
        """Read the whole log."""
        unread = self._read()
        if self._misplaced:
            self._log = GroupLog(self._log.partition, self._log.broker, self._log.cluster_id)
            self._replay = GroupReplay(self._log)
            unread = self._read()
        self._inputs.incomplete.extend(unread)
        return self._replay.finish()

    def _read(self) -> list[Incomplete]:
        """Hand over the records, those of batches known to be misplaced by their right offsets, and learn which are misplaced.

        The answer is what could not be read.
        """
        source, unread = self._plan.log_dir.source, []
        for log in self._plan.directory.logs():
            self._segment, self._file = log.base_offset, f"{self._plan.context.directory}/{log.entry.name}"
            limit = log.max_plausible_offset
            try:
                with source.open(log.entry.path) as file:
                    reader = SegmentReader(file, limit, inspect=self._inspect, inspect_alone=self._alone)
                    placing = Placing(file, log.base_offset, log.base_offset, log.next_base_offset, self._plan)
                    for chunk in reader.chunks():
                        right, wrong = placing.put_right(chunk)
                        self._misplaced |= {batch.place: batch for batch in wrong.values()}
                        self._account(right)
            except SourceError as error:
                unread.append(Incomplete(typed_path(source, log.entry.path), error.reason))
                self._log.complete = False
        return unread

    def _account(self, chunk: BatchChunk) -> None:
        """Note how far the log goes, and whether it is whole."""
        columns = chunk.columns
        good = has_right_crc(columns)
        if good.any():
            self._log.end_offset = max(self._log.end_offset, int(columns[BatchColumn.LAST_OFFSET, good].max()) + 1)
        if not good.all() or any(damage.kind not in kinds_with(Trait.IS_TAIL) for damage in chunk.damage):
            self._log.complete = False

    def _inspect(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """Rows whose bytes are at hand."""
        good = columns[BatchColumn.CRC, first:end] == columns[BatchColumn.CRC_COMPUTED, first:end]
        if self._superseded is not None:
            good &= self._superseded.alive(buffer, position, columns, first, end)
        facts = columns[list(_ROW_FACTS), first:end][:, good].T.tolist()
        for start, size, magic, attributes, producer_id, control in facts:
            at = start - position
            self._batch = (start, size)
            producer_id = producer_id if attributes & TRANSACTIONAL_MASK else -1
            if magic == 2 and attributes & CONTROL_MASK:
                self._marker(producer_id, control)
                continue
            data = self._rewritten(buffer[at : at + size].tobytes(), start)
            records = plain_records(data)
            if records is None:
                self._open(data, start)
                continue
            for record in records:
                self._record(record.key, record.value, record.offset, producer_id)
        return []

    def _alone(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """A batch found behind damage, or too large for the window."""
        if size > MAX_BATCH_BYTES:
            self._log.complete = False
            return []
        self._batch = (position, size)
        if data := read_batch(file, position, size):
            self._open(self._rewritten(data, position), position)
        return []

    def _rewritten(self, data: bytes, position: int) -> bytes:
        """A batch's bytes with the base offset that belongs to its place, as far as it is known to be another."""
        misplaced = self._misplaced.get((self._segment, position)) if self._misplaced else None
        return data if misplaced is None else misplaced.rewritten(data)

    def _open(self, data: bytes, position: int) -> None:
        """A batch that takes more than a plain walk: compressed, of an old format, with headers or faults."""
        batch = decode_batch(data, position=position)
        header = batch.header
        producer_id = header.producer_id if header is not None and header.is_transactional else -1
        if batch.problems:
            self._log.complete = False
        if header is not None and header.is_control_batch:
            record = next(batch.iter_records(), None)
            self._marker(producer_id, -1 if record is None or not record.key else int.from_bytes(record.key[2:4], "big"))
            return
        for record in batch.iter_records():
            if record.is_oversized:
                self._malformed(None, record.offset, "oversized")
            else:
                self._record(record.key, record.value, record.offset, producer_id)

    def _marker(self, producer_id: int, control_record_type: int) -> None:
        if control_record_type in (CONTROL_ABORT, CONTROL_COMMIT):
            self._replay.end_transaction(producer_id, commit=control_record_type == CONTROL_COMMIT)

    def _record(self, raw_key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        """One record."""
        key = self._keys.get(raw_key) if raw_key is not None else None
        if key is None:
            key = read_key(raw_key)
            if raw_key is not None:
                self._keys_size += len(raw_key)
                if len(self._keys) >= _KEYS_CACHED or self._keys_size > _KEYS_BYTES:
                    self._keys.clear()
                    self._keys_size = len(raw_key)
                self._keys[raw_key] = key
        if isinstance(key, str):
            self._malformed(None, offset, key)
        elif key.record_type in OFFSET_COMMIT_TYPES:
            if value is None:
                self._replay.tombstone(key)
                return
            commit = read_offset_commit(value)
            if isinstance(commit, str):
                self._malformed(key, offset, commit)
            else:
                self._replay.commit(key, commit, offset, producer_id)
        else:
            self._group_record(key, value, offset)

    def _group_record(self, key: GroupKey, value: bytes | None, offset: int) -> None:
        """A record that tells of a group, not of an offset; those of unknown types are passed over."""
        if key.record_type not in RECORD_TYPES:
            return
        if value is None:
            self._replay.group_tombstone(key)
            return
        if key.record_type == GROUP_METADATA_TYPE:
            metadata = read_group_metadata(value)
            if isinstance(metadata, str):
                self._malformed(key, offset, metadata)
            else:
                self._replay.classic_group(key.group, metadata)
            return
        fields = read_group_value(key.record_type, value)
        if isinstance(fields, dict):
            self._replay.new_group(key, fields)
            return
        problem = check_value(value) if fields in _NOT_TAKEN_APART else fields
        if problem is None:
            self._replay.new_group(key, {})
        else:
            self._malformed(key, offset, problem)

    def _malformed(self, key: GroupKey | None, offset: int, reason: str) -> None:
        self._replay.unreadable(key, offset)
        if len(self._log.malformed) < MALFORMED_KEPT:
            context, (position, size) = self._plan.context, self._batch
            self._log.malformed.append(
                MalformedRecord(
                    context.broker,
                    context.log_dir,
                    self._file,
                    position,
                    position + size,
                    context.topic,
                    context.partition,
                    offset,
                    reason,
                    None if key is None else RECORD_TYPES.get(key.record_type),
                )
            )


# Reading `__share_group_state` from the copies: one copy of each partition, and a finding for every record that is malformed.


_TOO_LARGE = "oversized"


def read_share_logs(inputs: Inputs) -> tuple[list[ShareLog], list[Finding]]:
    """Every partition of `__share_group_state` among the inputs, replayed, and what is wrong with their records.

    Of several copies the longest is read; if that one is damaged and another is not, the other. What cannot be read is listed in
    `inputs.incomplete`.
    """
    copies: dict[tuple[str, int], list[ReplicaPlan]] = {}
    for plan in inputs.internal:
        if plan.context.topic == SHARE_GROUP_STATE_TOPIC:
            copies.setdefault((cluster_of(plan) or "", plan.context.partition), []).append(plan)
    logs: list[ShareLog] = []
    malformed = MalformedRecords()
    for _, plans in sorted(copies.items()):
        best: tuple[ShareLog, MalformedRecords] | None = None
        for plan in sorted(plans, key=longest_first):
            replayed = _replayed_shares(inputs, plan)
            if best is None or (replayed[0].complete and not best[0].complete):
                best = replayed
            if best[0].complete:
                break
        if best is not None:
            logs.append(best[0])
            malformed.take(best[1])
    return logs, malformed.findings()


def _replayed_shares(inputs: Inputs, plan: ReplicaPlan) -> tuple[ShareLog, MalformedRecords]:
    """One copy of a partition, as far as it can be read."""
    log = ShareLog(plan.context.partition, plan.context.broker)
    replay = ShareReplay(log)
    records = MalformedRecords()
    lost: list[tuple[int, int]] = []
    try:
        for batch in logged_records(plan, lost):
            log.complete &= not batch.broken
            for record in batch.records:
                problem = _take_share_record(record, replay)
                if problem is not None:
                    records.add(partial(_malformed_share_record, plan, batch, record.offset, *problem))
    except SourceError as error:
        inputs.incomplete.append(not_read(plan.log_dir.source, error))
        log.complete = False
    log.complete &= not lost
    return replay.finish(), records


def _take_share_record(record: PlainRecord | Record, replay: ShareReplay) -> tuple[str, str | None] | None:
    """Hand one record on; (why it is malformed, Kafka's name of its kind) if it is. Those of unknown types are passed over."""
    key = _TOO_LARGE if isinstance(record, Record) and record.is_oversized else read_share_key(record.key)
    if isinstance(key, str):
        replay.unreadable(None, record.offset)
        return key, None
    if key.record_type not in SHARE_RECORDS:
        return None
    share_partition = key[1:]
    if record.value is None:
        if key.record_type == SNAPSHOT:
            replay.tombstone(share_partition)
        return None
    fields = read_share_value(key.record_type, record.value)
    if isinstance(fields, str):
        replay.unreadable(share_partition, record.offset)
        return fields, SHARE_RECORDS[key.record_type]
    take = replay.snapshot if key.record_type == SNAPSHOT else replay.update
    take(share_partition, fields, record.offset, record.timestamp)
    return None


def _malformed_share_record(plan: ReplicaPlan, batch: LoggedRecords, offset: int, reason: str, record_type: str | None) -> Finding:
    context = plan.context
    place = context.log_place(batch.segment, batch.position, batch.size_in_bytes, offset, offset + 1)
    evidence: MetadataMalformedEvidence = {"reason": reason, "unknown_after_offset": offset - 1}
    if record_type is not None:
        evidence["record_type"] = record_type
    return finding("METADATA_RECORD_MALFORMED", place, evidence)


def read_transaction_log(inputs: Inputs, partitions_known: int = 0) -> tuple[TransactionLog | None, list[Finding]]:
    """The coordinators' log, None if no copy of it is among the inputs, and what is wrong with its records.

    `partitions_known` is how many partitions the topic has at least. Of several copies of a partition the one that reaches
    furthest is read; if that one is damaged and another is not, the other. A copy that cannot be read counts as incomplete.
    Among copies of several clusters, whose producer ids are not the same, no log is a witness: an empty one is the answer.
    """
    copies: dict[int, list[ReplicaPlan]] = {}
    for plan in inputs.internal:
        if plan.context.topic == TRANSACTION_STATE_TOPIC:
            copies.setdefault(plan.context.partition, []).append(plan)
    if len({log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None}) > 1:
        return TransactionLog(), []
    if not copies:
        return None, []
    together = TransactionLogReplay()
    records = MalformedRecords()
    for _, plans in sorted(copies.items()):
        first: tuple[TransactionLogReplay, MalformedRecords] | None = None
        for plan in sorted(plans, key=reach, reverse=True):
            replayed = _replayed(plan, inputs)
            if replayed is not None and (first is None or not replayed[0].damaged):
                first = replayed
            if first is not None and not first[0].damaged:
                break
        if first is not None:
            together.merge(first[0])
            records.take(first[1])
    told, are_names = _told_by_bundles(inputs)
    known = [*copies, *range(max(partitions_known, told))]
    return together.finish(known, are_names=are_names), records.findings()


def _told_by_bundles(inputs: Inputs) -> tuple[int, bool]:
    """How many partitions the log has at least by the bundles in which ids are pseudonyms, and whether there is none of these."""
    bundles = [source.about for source in inputs.sources if isinstance(source, BundleSource)]
    redacted = [about for about in bundles if about.redaction is not None]
    return max((about.transaction_partitions for about in redacted), default=0), not redacted


def reach(plan: ReplicaPlan) -> tuple[object, ...]:
    """Sort key of copies: last leader epoch, then the last segment and its size, then the high watermark, then the lower id."""
    context = plan.context
    entries = [] if context.leader_epochs is None else context.leader_epochs.entries
    logs = [(log.base_offset, log.entry.size_in_bytes) for log in plan.directory.logs()]
    kind, number, name = broker_order(context.broker)
    epoch = max((entry.leader_epoch for entry in entries), default=-1)
    return epoch, max(logs, default=(-1, -1)), context.high_watermark or 0, -kind, -number, name


def _replayed(plan: ReplicaPlan, inputs: Inputs) -> tuple[TransactionLogReplay, MalformedRecords] | None:
    """One copy of a partition, replayed; None if it cannot be read."""
    replay = TransactionLogReplay()
    try:
        records = _replay(plan, replay)
    except SourceError as error:
        inputs.incomplete.append(not_read(plan.log_dir.source, error))
        return None
    replay.read(plan.context.partition, plan.context.broker)
    return replay, records


def _replay(plan: ReplicaPlan, replay: TransactionLogReplay) -> MalformedRecords:
    """Take every record of a copy, in offset order; those that are malformed. Raises SourceError."""
    records = MalformedRecords()
    partition = plan.context.partition
    lost: list[tuple[int, int]] = []
    behind = plan.context.segment_base_offsets[0] if plan.context.segment_base_offsets else 0
    for batch in logged_records(plan, lost):
        if lost:
            replay.lost(partition, behind)
        for record in batch.records:
            problem = _take(record, partition, replay)
            if problem is not None:
                records.add(partial(_malformed, plan, batch, record.offset, *problem))
            behind = record.offset + 1
        if batch.broken:
            replay.lost(partition, behind)
    if lost:
        replay.lost(partition, behind)
    return records


def _take(record: PlainRecord | Record, partition: int, replay: TransactionLogReplay) -> tuple[str, str | None] | None:
    """Hand one record on; (why it is malformed, transactional id) if it is."""
    name, problem = parse_transaction_log_key(record.key)
    if name is None:
        problem = "oversized" if isinstance(record, Record) and record.is_oversized else problem
        replay.malformed(None, partition, record.offset)
        return str(problem), None
    if record.value is None:
        replay.take(name, partition, record.offset, record.timestamp, None)
        return None
    metadata, problem = parse_transaction_log_value(record.value)
    if metadata is None:
        replay.malformed(name, partition, record.offset)
        return str(problem), name
    replay.take(name, partition, record.offset, record.timestamp, metadata)
    return None


def _malformed(plan: ReplicaPlan, batch: LoggedRecords, offset: int, reason: str, name: str | None) -> Finding:
    context = plan.context
    place = context.log_place(batch.segment, batch.position, batch.size_in_bytes, offset, offset + 1)
    evidence: MetadataMalformedEvidence = {"reason": reason, "record_type": "transaction state", "unknown_after_offset": offset - 1}
    if name is not None:
        evidence["transactional_id"] = name
    return finding("METADATA_RECORD_MALFORMED", place, evidence)
