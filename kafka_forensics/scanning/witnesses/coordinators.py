"""Reading the coordinators' topics: one copy of each partition is replayed, and malformed records become findings.

These are `__consumer_offsets`, `__share_group_state` and `__transaction_state`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

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
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, PlainRecord, SegmentReader, decode_batch, plain_records, read_batch
from kafka_forensics.scanning.rereading.logs_in_order import LoggedRecords, OffsetCorrector, logged_records
from kafka_forensics.scanning.witnesses.malformed_records import MalformedRecords
from kafka_forensics.storage.bundles import BundleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.analysis.kinds.evidence_classes import MetadataMalformedEvidence
    from kafka_forensics.analysis.segments import MisplacedBatch
    from kafka_forensics.storage.source import ByteFile


_Replayed = TypeVar("_Replayed")

MALFORMED_KEPT: Final = 1000
WORTH_SKIPPING_BYTES: Final = 4 << 20
"""Size of logs from which a kernel skips commits that later ones supersede."""
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
_SKIPPED_VALUES: Final = frozenset({"kind", "oversized"})
"""Why `read_group_value` does not decode a value, though it need not be malformed."""


def cluster_of(plan: ReplicaPlan) -> str | None:
    """The cluster id of a copy; None if it has none."""
    return None if plan.log_dir.meta is None else plan.log_dir.meta.cluster_id


def copies_of(inputs: Inputs, topic: str) -> dict[tuple[str, int], list[ReplicaPlan]]:
    """The copies of each partition of an internal topic, by (cluster id, partition).

    A copy without a cluster id belongs to the only cluster there is, or to "" if there are several.
    """
    plans = [plan for plan in inputs.internal if plan.context.topic == topic]
    clusters = {cluster_of(plan) for plan in plans} - {None}
    unknown = "" if len(clusters) > 1 else next(iter(clusters), None) or ""
    copies: dict[tuple[str, int], list[ReplicaPlan]] = {}
    for plan in plans:
        copies.setdefault((cluster_of(plan) or unknown, plan.context.partition), []).append(plan)
    return copies


def sort_key_of_longest(plan: ReplicaPlan) -> tuple[object, ...]:
    """Sort key: the copy whose last segment begins latest and is largest has the newest records."""
    logs = ((log.base_offset, log.entry.size_in_bytes) for log in plan.directory.logs() if log.entry.size_in_bytes)
    base_offset, size_in_bytes = max(logs, default=(-1, 0))
    return -base_offset, -size_in_bytes, broker_order(plan.context.broker), plan.log_dir.name


def sort_key_of_newest(plan: ReplicaPlan) -> tuple[object, ...]:
    """Sort key: last leader epoch, then the last segment and its size, then the high watermark, then the lower broker id."""
    context = plan.context
    entries = [] if context.leader_epochs is None else context.leader_epochs.entries
    logs = [(log.base_offset, log.entry.size_in_bytes) for log in plan.directory.logs()]
    kind, number, name = broker_order(context.broker)
    epoch = max((entry.leader_epoch for entry in entries), default=-1)
    return epoch, max(logs, default=(-1, -1)), context.high_watermark or 0, -kind, -number, name


def first_complete(replays: Iterable[_Replayed | None], is_whole: Callable[[_Replayed], bool]) -> _Replayed | None:
    """The first replay that is whole, else the first that is not None; replays after a whole one are not made."""
    first = None
    for replay in replays:
        if replay is not None and is_whole(replay):
            return replay
        first = replay if first is None else first
    return first


def malformed_finding(plan: ReplicaPlan, batch: LoggedRecords, offset: int, evidence: "MetadataMalformedEvidence") -> Finding:
    """`METADATA_RECORD_MALFORMED` of the record at `offset` of a batch."""
    place = plan.context.log_place(batch.segment, batch.position, batch.size_in_bytes, offset, offset + 1)
    return finding("METADATA_RECORD_MALFORMED", place, evidence)


def read_group_history(inputs: Inputs) -> GroupHistory | None:
    """Replay every partition of `__consumer_offsets` among the inputs; None if there is none.

    The longest copy is read; if it is damaged, a whole one of the same length is preferred. What cannot be read is listed in
    `inputs.incomplete`.
    """
    copies = copies_of(inputs, CONSUMER_OFFSETS_TOPIC)
    if not copies:
        return None
    history = GroupHistory()
    for key in sorted(copies, key=lambda key: key[::-1]):
        history.add(_best_group_log(inputs, sorted(copies[key], key=sort_key_of_longest)))
    return history


def _best_group_log(inputs: Inputs, plans: list[ReplicaPlan]) -> GroupLog:
    """The first whole copy that is as long as those before it, else the longest."""
    logs: list[GroupLog] = []
    for plan in plans:
        skips = plan.bytes >= WORTH_SKIPPING_BYTES and mark_alive.is_ready()
        log = replay_log(inputs, plan, Superseded(compiled=True) if skips else None)
        if log.complete and all(log.end_offset >= group_log.end_offset for group_log in logs):
            return log
        logs.append(log)
    return max(logs, key=lambda group_log: group_log.end_offset)


def replay_log(inputs: Inputs, plan: ReplicaPlan, superseded: Superseded | None = None) -> GroupLog:
    """Replay one copy; `superseded` skips commits that later ones supersede, which does not change the result."""
    return _GroupLogReader(inputs, plan, superseded).replayed()


class _GroupLogReader:
    """Replays every record of one copy, in file order.

    Records are decoded before it is known which batches have wrong base offsets. If any have, the log is read again.
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
        self._misplaced: dict[tuple[int, int], MisplacedBatch] = {}

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
        """Replay all records, correcting offsets of batches known to be misplaced, and find misplaced ones; what was not read."""
        source, unread = self._plan.log_dir.source, []
        for log in self._plan.directory.logs():
            self._segment, self._file = log.base_offset, f"{self._plan.context.directory}/{log.entry.name}"
            limit = log.max_plausible_offset
            try:
                with source.open(log.entry.path) as file:
                    reader = SegmentReader(
                        file, max_plausible_offset=limit, inspect=self._inspect, inspect_batch=self._inspect_batch
                    )
                    placing = OffsetCorrector(file, log.base_offset, log.base_offset, log.next_base_offset, self._plan)
                    for chunk in reader.chunks():
                        right, wrong = placing.correct_base_offsets(chunk)
                        self._misplaced |= {batch.place: batch for batch in wrong.values()}
                        self._note_end(right)
            except SourceError as error:
                unread.append(Incomplete(typed_path(source, log.entry.path), error.reason))
                self._log.complete = False
        return unread

    def _note_end(self, chunk: BatchChunk) -> None:
        """Update the log's end and whether it is complete."""
        columns = chunk.columns
        good = has_right_crc(columns)
        if good.any():
            self._log.end_offset = max(self._log.end_offset, int(columns[BatchColumn.LAST_OFFSET, good].max()) + 1)
        if not good.all() or any(damage.kind not in kinds_with(Trait.IS_TAIL) for damage in chunk.damage):
            self._log.complete = False

    def _inspect(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """Replay the batches of rows `[first, end)`, see `Inspector`."""
        good = has_right_crc(columns[:, first:end])
        if self._superseded is not None:
            good &= self._superseded.alive(buffer, position, columns, first, end)
        facts = columns[list(_ROW_FACTS), first:end][:, good].T.tolist()
        for start, size, magic, attributes, producer_id, control in facts:
            at = start - position
            self._batch = (start, size)
            producer_id = producer_id if attributes & TRANSACTIONAL_MASK else -1
            if magic == 2 and attributes & CONTROL_MASK:
                self._end_transaction(producer_id, control)
                continue
            data = self._corrected(buffer[at : at + size].tobytes(), start)
            records = plain_records(data)
            if records is None:
                self._decode(data, start)
                continue
            for record in records:
                self._take(record.key, record.value, record.offset, producer_id)
        return []

    def _inspect_batch(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Replay a batch after damage, or one that is too large for the window."""
        if size > MAX_BATCH_BYTES:
            self._log.complete = False
            return []
        self._batch = (position, size)
        if data := read_batch(file, position, size):
            self._decode(self._corrected(data, position), position)
        return []

    def _corrected(self, data: bytes, position: int) -> bytes:
        """A batch's bytes, with its right base offset if it is known to be misplaced."""
        misplaced = self._misplaced.get((self._segment, position)) if self._misplaced else None
        return data if misplaced is None else misplaced.rewritten(data)

    def _decode(self, data: bytes, position: int) -> None:
        """Replay a batch that `plain_records` cannot read: compressed, of an old format, with headers, or damaged."""
        batch = decode_batch(data, position=position)
        header = batch.header
        producer_id = header.producer_id if header is not None and header.is_transactional else -1
        if batch.problems:
            self._log.complete = False
        if header is not None and header.is_control_batch:
            record = next(batch.iter_records(), None)
            self._end_transaction(producer_id, -1 if record is None or not record.key else int.from_bytes(record.key[2:4], "big"))
            return
        for record in batch.iter_records():
            if record.is_oversized:
                self._malformed(None, record.offset, "oversized")
            else:
                self._take(record.key, record.value, record.offset, producer_id)

    def _end_transaction(self, producer_id: int, control_record_type: int) -> None:
        if control_record_type in (CONTROL_ABORT, CONTROL_COMMIT):
            self._replay.end_transaction(producer_id, commit=control_record_type == CONTROL_COMMIT)

    def _take(self, raw_key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
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
            self._take_group(key, value, offset)

    def _take_group(self, key: GroupKey, value: bytes | None, offset: int) -> None:
        """Replay a record about a group rather than an offset; unknown record types are skipped."""
        if key.record_type not in RECORD_TYPES:
            return
        if value is None:
            self._replay.group_tombstone(key)
        elif key.record_type == GROUP_METADATA_TYPE:
            metadata = read_group_metadata(value)
            if isinstance(metadata, str):
                self._malformed(key, offset, metadata)
            else:
                self._replay.classic_group(key.group, metadata)
        elif isinstance(fields := read_group_value(key.record_type, value), dict):
            self._replay.new_group(key, fields)
        elif (problem := check_value(value) if fields in _SKIPPED_VALUES else fields) is None:
            self._replay.new_group(key, {})
        else:
            self._malformed(key, offset, problem)

    def _malformed(self, key: GroupKey | None, offset: int, reason: str) -> None:
        self._replay.unreadable(key, offset)
        if len(self._log.malformed) < MALFORMED_KEPT:
            context, (position, size) = self._plan.context, self._batch
            place = (context.broker, context.log_dir, self._file, position, position + size, context.topic, context.partition)
            record_type = None if key is None else RECORD_TYPES.get(key.record_type)
            self._log.malformed.append(MalformedRecord(*place, offset, reason, record_type))


def read_share_logs(inputs: Inputs) -> tuple[list[ShareLog], list[Finding]]:
    """Replay every partition of `__share_group_state` among the inputs: (logs, findings about malformed records).

    The longest copy is read; if it is damaged, a whole one is preferred. What cannot be read is listed in `inputs.incomplete`.
    """
    copies: dict[tuple[str, int], list[ReplicaPlan]] = {}
    for plan in inputs.internal:
        if plan.context.topic == SHARE_GROUP_STATE_TOPIC:
            copies.setdefault((cluster_of(plan) or "", plan.context.partition), []).append(plan)
    logs: list[ShareLog] = []
    malformed = MalformedRecords()
    for _, plans in sorted(copies.items()):
        replays = (_replayed_shares(inputs, plan) for plan in sorted(plans, key=sort_key_of_longest))
        if (best := first_complete(replays, lambda replay: replay[0].complete)) is not None:
            logs.append(best[0])
            malformed.take(best[1])
    return logs, malformed.findings()


def _replayed_shares(inputs: Inputs, plan: ReplicaPlan) -> tuple[ShareLog, MalformedRecords]:
    """Replay the readable part of one copy."""
    log = ShareLog(plan.context.partition, plan.context.broker)
    replay = ShareReplay(log)
    records = MalformedRecords()
    lost: list[tuple[int, int]] = []
    try:
        for batch in logged_records(plan, lost):
            log.complete &= not batch.broken
            for record in batch.records:
                if (evidence := _take_share_record(record, replay)) is not None:
                    records.add(partial(malformed_finding, plan, batch, record.offset, evidence))
    except SourceError as error:
        inputs.incomplete.append(not_read(plan.log_dir.source, error))
        log.complete = False
    log.complete &= not lost
    return replay.finish(), records


def _take_share_record(record: PlainRecord | Record, replay: ShareReplay) -> "MetadataMalformedEvidence | None":
    """Replay one record; the evidence if it is malformed. Unknown record types are skipped."""
    key = "oversized" if isinstance(record, Record) and record.is_oversized else read_share_key(record.key)
    if isinstance(key, str):
        replay.unreadable(None, record.offset)
        return {"reason": key, "unknown_after_offset": record.offset - 1}
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
        return {"reason": fields, "unknown_after_offset": record.offset - 1, "record_type": SHARE_RECORDS[key.record_type]}
    take = replay.snapshot if key.record_type == SNAPSHOT else replay.update
    take(share_partition, fields, record.offset, record.timestamp)
    return None


def read_transaction_log(inputs: Inputs, partitions_known: int = 0) -> tuple[TransactionLog | None, list[Finding]]:
    """Replay `__transaction_state`: (log, findings about malformed records); None if no copy of it is among the inputs.

    The topic has at least `partitions_known` partitions. The copy that reaches furthest is read; if it is damaged, a whole one is
    preferred. What cannot be read is listed in `inputs.incomplete`. The log is empty if copies are of several clusters, where one
    producer id means different producers.
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
        replays = (_replayed_transactions(inputs, plan) for plan in sorted(plans, key=sort_key_of_newest, reverse=True))
        if (best := first_complete(replays, lambda replay: not replay[0].damaged)) is not None:
            together.merge(best[0])
            records.take(best[1])
    bundles = [source.about for source in inputs.sources if isinstance(source, BundleSource)]
    redacted = [about for about in bundles if about.redaction is not None]  # ids are pseudonyms, whose hashes say no partition
    partitions = max([partitions_known, *(about.transaction_partitions for about in redacted)])
    return together.finish([*copies, *range(partitions)], are_names=not redacted), records.findings()


def _replayed_transactions(inputs: Inputs, plan: ReplicaPlan) -> tuple[TransactionLogReplay, MalformedRecords] | None:
    """Replay one copy, in offset order; None if it cannot be read."""
    replay, records = TransactionLogReplay(), MalformedRecords()
    partition = plan.context.partition
    lost: list[tuple[int, int]] = []
    end_offset = plan.context.segment_base_offsets[0] if plan.context.segment_base_offsets else 0
    try:
        for batch in logged_records(plan, lost):
            if lost:
                replay.lost(partition, end_offset)
            for record in batch.records:
                if (evidence := _take_transaction_record(record, partition, replay)) is not None:
                    records.add(partial(malformed_finding, plan, batch, record.offset, evidence))
                end_offset = record.offset + 1
            if batch.broken:
                replay.lost(partition, end_offset)
    except SourceError as error:
        inputs.incomplete.append(not_read(plan.log_dir.source, error))
        return None
    if lost:
        replay.lost(partition, end_offset)
    replay.read(partition, plan.context.broker)
    return replay, records


def _take_transaction_record(
    record: PlainRecord | Record, partition: int, replay: TransactionLogReplay
) -> "MetadataMalformedEvidence | None":
    """Replay one record; the evidence if it is malformed."""
    metadata = None
    transactional_id, problem = parse_transaction_log_key(record.key)
    if transactional_id is None and isinstance(record, Record) and record.is_oversized:
        problem = "oversized"
    elif transactional_id is not None and record.value is not None:
        metadata, problem = parse_transaction_log_value(record.value)
    if transactional_id is not None and (record.value is None or metadata is not None):
        replay.take(transactional_id, partition, record.offset, record.timestamp, metadata)
        return None
    replay.malformed(transactional_id, partition, record.offset)
    evidence: MetadataMalformedEvidence = {
        "reason": str(problem),
        "record_type": "transaction state",
        "unknown_after_offset": record.offset - 1,
    }
    if transactional_id is not None:
        evidence["transactional_id"] = transactional_id
    return evidence
