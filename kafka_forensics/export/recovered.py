"""The files of `recover`: records as JSON Lines and as Parquet, and a report that adds up; there all at once, or not at all."""

import os
import shutil
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_forensics.errors import UsageError
from kafka_forensics.export.facts.rows import text
from kafka_forensics.export.json_document import tool
from kafka_forensics.export.parquet import parquet_writer
from kafka_forensics.export.target import HashedFile
from kafka_forensics.model.json_objects import Json, attributes, json_text, object_of, rfc3339
from kafka_forensics.model.recovered import (
    COMMITTED,
    MAYBE,
    OUTCOMES_COUNTED,
    RECOVERED_FACT,
    UNREADABLE,
    OutcomeCounts,
    Proof,
    RecoveredRecord,
)
from kafka_forensics.model.results import SCHEMA_VERSION
from kafka_forensics.questions.recover import KeptSide, RecoveredPartition, RecoveredRange, Recovery, Undecided
from kafka_forensics.storage.disks import UNFINISHED, sync_directory, why
from kafka_forensics.storage.private import private_files

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS_JSONL: Final = "records.jsonl"
RECORDS_PARQUET: Final = "records.parquet"
REPORT: Final = "report.json"
_GROUP_ROWS: Final = 1 << 14
_GROUP_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is whole."""

    name: str
    records: int
    size_in_bytes: int
    sha256: str


class RecoveredFiles:
    """Both files of records while they are written; `written` are the whole files, behind the block of `recovered_files`."""

    def __init__(self, lines: HashedFile, write: "Callable[[pa.Table], None]") -> None:
        self._lines, self._write = lines, write
        self._group: list[RecoveredRecord] = []
        self._group_bytes = 0
        self.records = 0
        self.written: list[WrittenFile] = []

    def take(self, record: RecoveredRecord) -> None:
        """Write a record; records come in their order."""
        self._lines.write(f"{json_text(line_of(record))}\n".encode("ascii"))
        self._group.append(record)
        self._group_bytes += record.size_in_bytes
        self.records += 1
        if len(self._group) >= _GROUP_ROWS or self._group_bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        if self._group:
            self._write(_table(self._group))
        self._group, self._group_bytes = [], 0


class RecoveryFolder:
    """A new directory, which has its name once all is in it; an empty one that is there gets its files at the end."""

    def __init__(self, output: Path) -> None:
        self.output = Path(os.path.abspath(output))
        place = self.output if self.output.is_dir() else self.output.parent
        self.work = place / f".{self.output.name}.{uuid.uuid4().hex[:12]}{UNFINISHED}"

    def finish(self) -> None:
        """Give the files their places, the report last."""
        sync_directory(str(self.work))
        if self.work.parent != self.output:
            self.work.rename(self.output)
            sync_directory(str(self.output.parent))
            return
        for name in (RECORDS_JSONL, RECORDS_PARQUET, REPORT):
            os.link(self.work / name, self.output / name)  # never in the place of another file
        shutil.rmtree(self.work)
        sync_directory(str(self.output))


@contextmanager
def recovery_folder(output: Path) -> Iterator[RecoveryFolder]:
    """A directory to write to, of which nothing is left unless it was finished. Raises UsageError if it cannot be written."""
    folder = RecoveryFolder(output)
    try:
        with private_files(str(output)):
            folder.work.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder.work, ignore_errors=True)
    except OSError as error:
        raise UsageError(
            f"cannot write to {output}: {why(error, str(output))}", hint="choose another directory, or make room there"
        ) from error


@contextmanager
def recovered_files(folder: RecoveryFolder) -> Iterator[RecoveredFiles]:
    """The files of records in a directory, on disk when the block has ended well."""
    with ExitStack() as stack:
        opened = {}
        for name in (RECORDS_JSONL, RECORDS_PARQUET):
            opened[name] = HashedFile(stack.enter_context((folder.work / name).open("xb", buffering=1 << 20)))
        with parquet_writer(opened[RECORDS_PARQUET], RECOVERED_FACT.schema) as write:
            files = RecoveredFiles(opened[RECORDS_JSONL], write)
            yield files
            files.flush()
        for name, file in opened.items():
            file.close(on_disk=True)
            files.written.append(WrittenFile(name, files.records, file.size_in_bytes, file.sha256))


def write_report(folder: RecoveryFolder, report: Json) -> None:
    """Write the report, a line a range."""
    with (folder.work / REPORT).open("xb") as file:
        file.write(f"{json_text(report)}\n".encode("ascii"))
        file.flush()
        os.fsync(file.fileno())


# A record as a line, and as a row.


_WITNESS: Final = attributes("kind broker name end_offset")


def line_of(row: RecoveredRecord) -> Json:
    """A record as an object of JSON Lines: bytes as text, those that are no UTF-8 as `{"base64": ...}`."""
    record = row.record
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "timestamp": rfc3339(record.timestamp),
        "timestamp_type": record.timestamp_type,
        "key": _bytes(record.key),
        "value": _bytes(record.value),
        "headers": [[_bytes(name), _bytes(value)] for name, value in record.headers],
        "partition_leader_epoch": row.partition_leader_epoch,
        "producer_id": row.producer_id,
        "producer_id_string": str(row.producer_id),
        "producer_epoch": row.producer_epoch,
        "sequence": record.sequence,
        "txn_state": row.txn_state,
        "held_by": row.held_by,
        "proof": MAYBE if row.proof is None else COMMITTED,
        "witness": witness_object(row.proof),
        "source": {"broker": row.source_broker, "file": row.file, "batch_position": row.batch_position},
    }


def witness_object(proof: Proof | None) -> Json | None:
    """A witness; also one of the planner's."""
    return None if proof is None else object_of(_WITNESS, proof)


def _bytes(content: bytes | None) -> str | Json | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def _table(rows: list[RecoveredRecord]) -> pa.Table:
    columns: list[list[object]] = [
        [row.topic for row in rows],
        [row.partition for row in rows],
        [row.record.offset for row in rows],
        [row.record.timestamp for row in rows],
        [row.record.timestamp_type for row in rows],
        [row.record.key for row in rows],
        [row.record.value for row in rows],
        [[{"key": name, "value": value} for name, value in row.record.headers] for row in rows],
        [row.partition_leader_epoch for row in rows],
        [row.producer_id for row in rows],
        [row.producer_epoch for row in rows],
        [row.record.sequence for row in rows],
        [row.txn_state for row in rows],
        [[text(str(broker)) for broker in row.held_by] for row in rows],
        [MAYBE if row.proof is None else COMMITTED for row in rows],
        [None if row.proof is None else row.proof.kind for row in rows],
        [None if row.proof is None else text(str(row.proof.broker)) for row in rows],
        [None if row.proof is None else row.proof.name for row in rows],
        [None if row.proof is None else row.proof.end_offset for row in rows],
        [text(str(row.source_broker)) for row in rows],
        [row.file for row in rows],
        [row.batch_position for row in rows],
    ]
    schema = RECOVERED_FACT.schema
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


# The report: what was asked, which side is kept, and what became of every offset that is lost.


_TALLY: Final = attributes(" ".join(OUTCOMES_COUNTED))
_AMOUNTS: Final = attributes("committed at_least at_most at_most_is_bound")


def report_of(recovery: Recovery, asked: Json, written: list[WrittenFile]) -> Json:
    """The report; all its counts are of offsets but `records` and `bytes`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool("local"),
        "asked": asked,
        "partitions_looked_at": recovery.looked_at,
        "records": recovery.count.all.recovered,
        "offsets": tally_object(recovery.count.all),
        "may_hold_more": [
            {"kind": kind, "broker": broker, "partitions": count} for (kind, broker), count in recovery.may_hold_more.items()
        ],
        "files": [
            {"name": file.name, "records": file.records, "bytes": file.size_in_bytes, "sha256": file.sha256} for file in written
        ],
        "partitions": [partition_object(partition) for partition in recovery.partitions],
        "incomplete": [object_of(attributes("path reason topic partition broker"), gap) for gap in recovery.incomplete],
    }


def tally_object(tally: OutcomeCounts) -> Json:
    """What became of offsets, by reason."""
    return object_of(_TALLY, tally)


def partition_object(partition: RecoveredPartition) -> Json:
    """A partition of the report: the side that is kept, the plan's bounds, and the ranges, which add up to these."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "kept": _kept_object(partition.side),
        "undecided": {"reason": partition.side.reason, "hint": partition.side.hint}
        if isinstance(partition.side, Undecided)
        else None,
        "plan": {**object_of(_AMOUNTS, partition), "records": partition.planned.records, "bytes": partition.planned.bytes},
        "offsets": tally_object(partition.count.all),
        "committed_offsets": tally_object(partition.count.committed),
        "ranges": [range_object(recovered) for recovered in partition.ranges],
        "unreadable": {why: partition.unreadable[why] for why in UNREADABLE},
        "not_compared": partition.not_compared,
        "below_log_start": [{"broker": broker, "offsets": offsets} for broker, offsets in partition.below_log_start],
        "missing_witnesses": [{"kind": kind, "broker": broker} for kind, broker in partition.missing],
    }


def _kept_object(side: KeptSide | Undecided) -> Json | None:
    if isinstance(side, Undecided):
        return None
    candidate = side.candidate
    return {"broker": candidate.broker, "election": candidate.election, "why": side.why, "sentence": side.sentence}


def range_object(recovered: RecoveredRange) -> Json:
    """A range of the report."""
    loss = recovered.loss
    return {
        "offset_start": loss.start,
        "offset_end": loss.end,
        "committed_end_offset": loss.committed_end,
        "witness": None if loss.witness is None else object_of(_WITNESS, loss.witness),
        "held_by": list(loss.held_by),
        "kept_by": list(loss.kept_by),
        "read_from": [[start, end, broker] for start, end, broker in recovered.sources],
        "plan": {"records": recovered.planned.records, "bytes": recovered.planned.bytes},
        "offsets": tally_object(recovered.count.all),
        "committed_offsets": tally_object(recovered.count.committed),
    }
