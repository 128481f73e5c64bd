"""`dump --format kafka-dump-log`: the lines that Kafka's own tool prints (DumpLogSegments 4.3.0), and its complaints.

Lines equal the tool's, but that nothing from the evidence can reach a terminal unescaped. The tool ends at the first thing its
readers refuse; so do the lines of that file, with a complaint, and the dump goes on with the next file.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from kafka_forensics.cli.options import PeerOptions
from kafka_forensics.cli.streams import printable
from kafka_forensics.compiled import using_compiled
from kafka_forensics.engine.compiling import compiled_meanwhile
from kafka_forensics.errors import SourceError
from kafka_forensics.model.constants import COMPRESSION_MASK, DELETE_HORIZON_MASK, MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL_MASK
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.parsers.log import parse_control_record
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.questions.kafka_dump_log import (
    Decoder,
    PeerBatch,
    PeerGivesUpError,
    PeerLog,
    PeerRecord,
    PeerRecords,
    PeerSegment,
    aborted_txns,
    check_offset_index,
    check_time_index,
    cluster_metadata,
    consumer_offsets,
    is_empty_index,
    json_line,
    offset_entries,
    share_group_state,
    time_entries,
    together,
    transaction_log,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.questions.dump import DumpFile
    from kafka_forensics.storage.source import ByteFile, ByteSource


ENOUGH_RECORDS: Final = 16 << 10
ENOUGH_BYTES: Final = 4 << 20
"""Of batches whose lines are made together, one more than needed."""
MOST_COMPLAINTS: Final = 100
"""Of one kind about one file that are kept."""
_MARKER_TYPES: Final = (0, 1)
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_KRAFT_NAMES: Final = {
    2: "LeaderChange:",
    3: "SnapshotHeader",
    4: "SnapshotFooter",
    5: "KRaftVersion",
    6: "KRaftVoters",
}


def decoder_of(options: PeerOptions) -> Decoder | None:
    """What makes text of keys and values; None: they are text."""
    if options.offsets_decoder:
        return consumer_offsets
    if options.transaction_log_decoder:
        return transaction_log
    if options.share_group_state_decoder:
        return share_group_state
    return cluster_metadata if options.cluster_metadata_decoder else None


@dataclass(slots=True)
class Complaints:
    """What the tool says on standard error, by heading, in the order it was noted."""

    lines: dict[str, list[str]] = field(default_factory=dict)

    def add(self, heading: str, line: str) -> None:
        """Note `line` under `heading`; the first hundred of each are kept."""
        noted = self.lines.setdefault(heading, [])
        if len(noted) < MOST_COMPLAINTS:
            noted.append(line)


def log_lines(
    file: "ByteFile", name: str, shown: str, options: PeerOptions, complaints: Complaints, source: "ByteSource | None" = None
) -> Iterator[str | memoryview]:
    """The tool's lines for a segment or a KRaft snapshot, without ends; many at once, with theirs, as UTF-8.

    `shown` is its path, `source` where it lies. Raises PeerGivesUpError, SourceError.
    """
    yield from _opening(name)
    by_columns = options.deep and using_compiled() and decoder_of(options) is None and not options.skip_record_metadata
    rehearse = partial(_rehearse, file, name, shown, options)
    with compiled_meanwhile(_KERNELS, rehearse, source) if by_columns else nullcontext(_look_nowhere) as look:
        yield from _lines(PeerLog(file, name), shown, options, complaints, by_columns=by_columns, look=look)


_KERNELS: Final = ("parsers.kernels.records.scan_records",)
_REHEARSED: Final = 4


def _look_nowhere() -> None:
    """Kernels are what they are."""


def _rehearse(file: "ByteFile", name: str, shown: str, options: PeerOptions) -> None:
    """The lines of the first batches, which nobody wants."""
    log = PeerLog(file, name)
    log.most = _REHEARSED
    with suppress(PeerGivesUpError, SourceError):
        for _ in _lines(log, shown, options, Complaints(), by_columns=True, look=_look_nowhere):
            pass


def _lines(
    log: PeerLog, shown: str, options: PeerOptions, complaints: Complaints, *, by_columns: bool, look: Callable[[], None]
) -> Iterator[str | memoryview]:
    previous = -1
    held = _Held(options)
    try:
        for batch in log.batches():
            look()
            line = batch_line(batch)
            many = log.many_records(batch) if by_columns and using_compiled() and batch.compression_type is not None else None
            if many is not None:
                _note_gaps(many.offsets, previous, shown, complaints)
                previous = int(many.offsets[-1])
                yield from held.add(batch.timestamp_type, line, many)
                continue
            yield from held.take()
            if batch.compression_type is None:
                yield line[: line.index(" position: ")] if batch.magic >= 2 else line[: line.index(" magic: ")]
                _refuse_codec(batch)
            yield line
            for record in log.records(batch) if options.deep else ():
                if previous != record.offset - 1 and (previous != -1 or record.offset != 0):
                    complaints.add(f"Non-consecutive offsets in {shown}", f"  {previous} is followed by {record.offset}")
                previous = record.offset
                yield record_line(batch, record, options)
    except (PeerGivesUpError, SourceError):
        yield from held.take()
        raise
    yield from held.take()
    if trailing := log.size_in_bytes - log.end:
        yield f"Found {trailing} invalid bytes at the end of {log.name}"


def _refuse_codec(batch: PeerBatch) -> NoReturn:
    raise PeerGivesUpError(f"Unknown compression type id: {batch.attributes & COMPRESSION_MASK}")


@dataclass(slots=True)
class _Held:
    """Batches whose lines are made together, of one type of timestamps."""

    options: PeerOptions
    timestamp_type: str = ""
    lines: list[str] = field(default_factory=list)
    batches: list[PeerRecords] = field(default_factory=list)
    records: int = 0

    def add(self, timestamp_type: str, line: str, records: PeerRecords) -> Iterator[memoryview]:
        """Hold a batch, and give what is held once it is much."""
        if timestamp_type != self.timestamp_type:
            yield from self.take()
        self.timestamp_type = timestamp_type
        self.lines.append(line + "\n")
        self.batches.append(records)
        self.records += len(records.offsets)
        if self.records >= ENOUGH_RECORDS or sum(len(held.payload) for held in self.batches) >= ENOUGH_BYTES:
            yield from self.take()

    def take(self) -> Iterator[memoryview]:
        """The lines of what is held."""
        from kafka_forensics.cli.outputs.record_text import records_as_peer_lines

        if self.batches:
            lines, records = self.lines, together(self.batches)
            self.lines, self.batches, self.records = [], [], 0
            yield records_as_peer_lines(records, lines, self.timestamp_type, _text, payloads=self.options.prints)


def _note_gaps(offsets: "NDArray[np.int64]", previous: int, shown: str, complaints: Complaints) -> None:
    """Complain of offsets that do not follow the one before, the first of them `previous`."""
    before = np.append(previous, offsets[:-1])
    gaps = np.flatnonzero((before != offsets - 1) & ((before != -1) | (offsets != 0)))
    for index in gaps[:MOST_COMPLAINTS].tolist():
        complaints.add(f"Non-consecutive offsets in {shown}", f"  {before[index]} is followed by {offsets[index]}")


def _opening(name: str) -> Iterator[str]:
    stem = name.partition(".")[0]
    if name.endswith(".checkpoint"):
        offset, _, epoch = stem.partition("-")
        if epoch:
            yield f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"
        else:
            yield "KRaft bootstrap snapshot"
    else:
        yield f"Log starting offset: {int(stem) if stem.isdigit() else 0}"


def batch_line(batch: PeerBatch) -> str:
    """What the tool says of a batch."""
    tail = (
        f" position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} size: {batch.size_in_bytes}"
        f" magic: {batch.magic} compresscodec: {batch.compression_type} crc: {batch.crc} isvalid: {_java(batch.is_valid)}"
    )
    if batch.magic < 2:
        return f"offset: {batch.last_offset}{tail}"
    horizon = f"[{batch.base_timestamp}]" if batch.attributes & DELETE_HORIZON_MASK else ".empty"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.records_count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id}"
        f" producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {_java(batch.attributes & TRANSACTIONAL_MASK)} isControl: {_java(batch.is_control_batch)}"
        f" deleteHorizonMs: OptionalLong{horizon}{tail}"
    )


def record_line(batch: PeerBatch, record: PeerRecord, options: PeerOptions) -> str:
    """What the tool says of a record: its numbers unless left out, its bytes if asked for."""
    line = ""
    if not options.skip_record_metadata:
        key_size, value_size = (-1 if part is None else len(part) for part in (record.key, record.value))
        line = f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp} keySize: {key_size} valueSize: {value_size}"
        if batch.magic >= 2:
            line += f" sequence: {record.sequence} headerKeys: [{','.join(map(_text, record.header_keys))}]"
        else:
            line += f" isValid: {_java(record.is_valid)} crc: {record.crc}"
        if batch.is_control_batch:
            line += _control(record)
    if options.prints and not batch.is_control_batch:
        key, payload = (decoder_of(options) or _texts)(record)
        if key is not None:
            line += f"{' ' if line else '| '}key: {printable(key)}"
        if payload is not None:
            line += f"{' ' if line else '| '}payload: {printable(payload)}"
    return line


def _texts(record: PeerRecord) -> tuple[str | None, str | None]:
    return None if record.key is None else _text(record.key), None if record.value is None else _text(record.value)


def _control(record: PeerRecord) -> str:
    control = parse_control_record(record.key, record.value)
    if control.problem is not None:
        raise PeerGivesUpError(f"the control record's {control.problem} cannot be read")
    if control.type in _MARKER_TYPES:
        return f" endTxnMarker: {control.name} coordinatorEpoch: {control.coordinator_epoch}"
    if control.type not in _KRAFT_NAMES:
        return f" controlType: {control.name}({control.type})"
    return f" {_KRAFT_NAMES[control.type]} {printable(json_line({'version': control.version, **control.fields}))}"


def _text(data: bytes) -> str:
    """`data` as Java decodes UTF-8 (half a surrogate pair, whole or cut, is one mistake there), made safe to show."""
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return printable(_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace"))


def _java(flag: object) -> str:
    return "true" if flag else "false"


def offset_index_lines(file: "ByteFile", segment: PeerSegment, options: PeerOptions, complaints: Complaints) -> Iterator[str]:
    """The tool's lines for a `.index`. Raises PeerGivesUpError, SourceError."""
    if is_empty_index(file):
        yield f"{segment.name} is empty."
        return
    if options.index_sanity_check:
        check_offset_index(file, segment)
        yield f"{segment.name} passed sanity check."
        return
    for offset, position in offset_entries(file, segment, complaints.add):
        if not options.verify_index_only:
            yield f"offset: {offset} position: {position}"


def time_index_lines(file: "ByteFile", segment: PeerSegment, options: PeerOptions, complaints: Complaints) -> Iterator[str]:
    """The tool's lines for a `.timeindex`. Raises PeerGivesUpError, SourceError."""
    if options.index_sanity_check:
        check_time_index(file, segment)
        yield f"{segment.name} passed sanity check."
        return
    for timestamp, offset in time_entries(file, segment, complaints.add):
        if not options.verify_index_only:
            yield f"timestamp: {timestamp} offset: {offset}"


def transaction_index_lines(file: "ByteFile") -> Iterator[str]:
    """The tool's lines for a `.txnindex`. Raises PeerGivesUpError, SourceError."""
    for version, producer_id, first_offset, last_offset, last_stable_offset in aborted_txns(file):
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset}"
            f" lastStableOffset: {last_stable_offset}"
        )


def snapshot_lines(file: "ByteFile", offset: int, complaints: Complaints) -> Iterator[str]:
    """The tool's lines for a `.snapshot`: none for one it does not believe."""
    snapshot = parse_producer_snapshot(file, offset)
    reasons = {damage.detail.get("reason"): damage for damage in snapshot.damage}
    declared = reasons["count"].detail["declared"] if "count" in reasons else len(snapshot.entries)
    counted = declared if isinstance(declared, int) else -1
    if "short" in reasons or counted < 0 or snapshot.version != 1:
        unknown = "short" not in reasons and counted >= 0
        reason = f"Snapshot contained an unknown file version {snapshot.version}" if unknown else "null"
        complaints.add(f"Snapshot failed schema validation: {reason}", "")
        return
    if snapshot.crc_computed not in {-1, snapshot.crc}:
        words = f"Stored crc: {snapshot.crc}. Computed crc: {snapshot.crc_computed}"
        complaints.add(f"Snapshot is corrupt (CRC is no longer valid). {words}", "")
        return
    for entry in snapshot.entries[:counted]:
        first = NO_SEQUENCE if entry.last_sequence < 0 else decremented(entry.last_sequence, entry.offset_delta)
        txn = "OptionalLong.empty" if entry.current_txn_first_offset < 0 else f"OptionalLong[{entry.current_txn_first_offset}]"
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} coordinatorEpoch: {entry.coordinator_epoch}"
            f" currentTxnFirstOffset: {txn} lastTimestamp: {entry.timestamp} "
        )
        if entry.last_offset >= 0:
            line += (
                f"firstSequence: {first} lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset}"
                f" offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
            )
        yield line


def decremented(sequence: int, delta: int) -> int:
    """DefaultRecordBatch.decrementSequence: the ring of 31 bits."""
    return sequence - delta if sequence >= delta else MAX_SEQUENCE - (delta - sequence) + 1


def peer_lines(file: "DumpFile", options: PeerOptions, complaints: Complaints) -> Iterator[str | memoryview]:
    """All lines of the tool for one file, as `log_lines` gives them, the one that names it first.

    Raises PeerGivesUpError, SourceError.
    """
    yield f"Dumping {printable(file.shown)}"
    shown = printable(file.shown)
    with file.open() as data:
        match file.kind:
            case FileKind.LOG | FileKind.METADATA_CHECKPOINT:
                yield from log_lines(data, file.name, shown, options, complaints, file.source)
            case FileKind.INDEX | FileKind.TIME_INDEX:
                of_time = file.kind is FileKind.TIME_INDEX
                index = file.sibling(".index") if of_time else None
                log = file.sibling(".log")
                try:
                    segment = PeerSegment(shown, file.base_offset, log, f"{file.name.partition('.')[0]}.log", index)
                    yield from (time_index_lines if of_time else offset_index_lines)(data, segment, options, complaints)
                finally:
                    for opened in filter(None, (log, index)):
                        opened.close()
            case FileKind.TRANSACTION_INDEX:
                yield from transaction_index_lines(data)
            case FileKind.PRODUCER_SNAPSHOT:
                yield from snapshot_lines(data, file.base_offset, complaints)
            case _:
                complaints.add(f"Ignoring unknown file {shown}", "")
