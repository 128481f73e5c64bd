"""The files of `recover`: records as JSON Lines and as Parquet, a script that produces them again, and a report; they appear all
at once, or not at all."""

import os
import re
import uuid
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec import Struct

from kafka_forensics.errors import UsageError
from kafka_forensics.export.facts.rows import record_batch, rows_of
from kafka_forensics.export.json_document import tool
from kafka_forensics.export.parquet import parquet_writer
from kafka_forensics.export.target import HashedFile
from kafka_forensics.model.bundles import CollectRequest
from kafka_forensics.model.json_objects import Columns, Json, attribute, attributes, json_text, object_of, times
from kafka_forensics.model.recovered import (
    COMMITTED,
    MAYBE,
    OUTCOMES_COUNTED,
    PRODUCE_BACK,
    RECOVERED_FACT,
    UNREADABLE,
    RecoveredRecord,
)
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.results import SCHEMA_VERSION
from kafka_forensics.questions.recover import LogOf, RecoveredPartition, RecoveredRange, Recovery, RemoteLogNumber, Undecided
from kafka_forensics.storage.disks import UNFINISHED, publish_directory, sync_directory, why
from kafka_forensics.storage.private import private_files

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS_JSONL: Final = "records.jsonl"
RECORDS_PARQUET: Final = "records.parquet"
REPORT: Final = "report.json"
_RECORDS_LISTED: Final = 3
"""More ranges that a bundle lacks are listed in a file."""
_RECORDS_LIST: Final = re.compile(r"collect-[0-9]+\.txt")
_GROUP_ROWS: Final = 1 << 14
_GROUP_BYTES: Final = 32 << 20


class RecordsFile(Struct, frozen=True):
    """A file of records that is complete."""

    name: str
    records: int
    size_in_bytes: int
    sha256: str


class RecoveredFiles:
    """Both files of records while they are written; `written` lists them after the block of `recovered_files`."""

    def __init__(self, lines: HashedFile, write: "Callable[[pa.Table], None]") -> None:
        self._lines, self._write = lines, write
        self._group: list[RecoveredRecord] = []
        self._group_bytes = 0
        self.records = 0
        self.written: list[RecordsFile] = []

    def take(self, record: RecoveredRecord) -> None:
        """Write a record; records must come in order."""
        self._lines.write(f"{json_text(object_of(_LINE, record))}\n".encode("ascii"))
        self._group.append(record)
        self._group_bytes += record.size_in_bytes
        self.records += 1
        if len(self._group) >= _GROUP_ROWS or self._group_bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the pending rows to the Parquet file."""
        if self._group:
            self._write(_table(self._group))
        self._group, self._group_bytes = [], 0


@contextmanager
def recovery_directory(output: Path) -> Iterator[Path]:
    """A directory to write to, whose files are in `output` after the block; a failure leaves nothing.

    It becomes `output`, or stands in it if that exists. Files of an earlier answer without records are replaced. Raises UsageError
    if it cannot be written.
    """
    place = Path(os.path.abspath(output))
    parent = place if place.is_dir() else place.parent
    replaced = _files_without_records(place)
    unfinished = parent / f".{place.name}.{uuid.uuid4().hex[:12]}{UNFINISHED}"
    try:
        with private_files(str(output)):
            unfinished.mkdir()
            with publish_directory(unfinished, place):
                yield unfinished
                for file in replaced:
                    file.unlink()
            sync_directory(str(parent))
    except OSError as error:
        raise UsageError(
            f"cannot write to {output}: {why(error, str(output))}", hint="choose another directory, or make room there"
        ) from error


def may_be_replaced(output: Path) -> bool:
    """Whether a directory holds only an earlier answer, and that has no records."""
    return bool(_files_without_records(output))


def _files_without_records(directory: Path) -> list[Path]:
    """The files of an answer without records; none if the directory holds anything else."""
    try:
        files = list(directory.iterdir())
        has_records = (directory / RECORDS_JSONL).stat().st_size > 0
    except OSError:
        return []
    names = {RECORDS_JSONL, RECORDS_PARQUET, REPORT}
    is_answer = all(file.name in names or _RECORDS_LIST.fullmatch(file.name) for file in files)
    return files if is_answer and not has_records else []


def write_records_lists(directory: Path, requests: Iterable[CollectRequest]) -> dict[str, str]:
    """Write a file for each bundle that lacks many ranges, and return their names by bundle."""
    lists: dict[str, str] = {}
    for request in requests:
        if len(request.records) > _RECORDS_LISTED:
            lists[request.bundle] = f"collect-{len(lists) + 1}.txt"
            with (directory / lists[request.bundle]).open("x", encoding="ascii") as file:
                file.writelines(f"{value}\n" for value in request.records)
    return lists


@contextmanager
def recovered_files(directory: Path) -> Iterator[RecoveredFiles]:
    """The files of records in a directory, complete after the block, and for at least one record the script that produces them."""
    with ExitStack() as stack:
        opened = {}
        for name in (RECORDS_JSONL, RECORDS_PARQUET):
            opened[name] = HashedFile(stack.enter_context((directory / name).open("xb", buffering=1 << 20)))
        with parquet_writer(opened[RECORDS_PARQUET], RECOVERED_FACT.schema) as write:
            files = RecoveredFiles(opened[RECORDS_JSONL], write)
            yield files
            files.flush()
        for name, file in opened.items():
            file.close()
            files.written.append(RecordsFile(name, files.records, file.size_in_bytes, file.sha256))
    if files.records:
        script = resources.files("kafka_forensics.export").joinpath(PRODUCE_BACK).read_bytes()
        (directory / PRODUCE_BACK).write_bytes(script)


def write_report(directory: Path, report: Json) -> None:
    """Write the report."""
    with (directory / REPORT).open("xb") as file:
        file.write(f"{json_text(report)}\n".encode("ascii"))


_WITNESS: Final = attributes("kind broker name end_offset")
_LINE: Final[Columns] = {
    **attributes("topic partition offset=record.offset"),
    **times("timestamp", "record.timestamp"),
    "timestamp_type": attribute("record.timestamp_type"),
    "key": lambda row: _bytes(row.record.key),
    "value": lambda row: _bytes(row.record.value),
    "headers": lambda row: [[_bytes(name), _bytes(value)] for name, value in row.record.headers],
    **attributes("partition_leader_epoch producer_id"),
    "producer_id_string": lambda row: str(row.producer_id),
    **attributes("producer_epoch sequence=record.sequence txn_state held_by"),
    "proof": lambda row: MAYBE if row.proof is None else COMMITTED,
    "witness": lambda row: None if row.proof is None else object_of(_WITNESS, row.proof),
    "source": lambda row: {"broker": row.source_broker, "file": row.file, "batch_position": row.batch_position},
}
"""A record as an object of JSON Lines: bytes as text, or as `{"base64": ...}` if they are not UTF-8."""


def _bytes(content: bytes | None) -> str | Json | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


_COLUMNS: Final[Columns] = {
    **attributes("topic partition"),
    **attributes("offset timestamp timestamp_type key value", of="record"),
    "headers": lambda row: [{"key": name, "value": value} for name, value in row.record.headers],
    **attributes("partition_leader_epoch producer_id producer_epoch sequence=record.sequence txn_state"),
    "held_by": lambda row: [str(broker) for broker in row.held_by],
    "proof": lambda row: MAYBE if row.proof is None else COMMITTED,
    "witness_kind": attribute("proof.kind"),
    "witness_broker": lambda row: None if row.proof is None else str(row.proof.broker),
    **attributes("witness_name=proof.name witness_end_offset=proof.end_offset"),
    "source_broker": lambda row: str(row.source_broker),
    **attributes("file batch_position"),
}
assert [*_COLUMNS] == RECOVERED_FACT.schema.names


def _table(rows: list[RecoveredRecord]) -> pa.Table:
    return pa.Table.from_batches([record_batch(RECOVERED_FACT.schema, list(rows_of(_COLUMNS, rows)))])


_TALLY: Final = attributes(" ".join(OUTCOMES_COUNTED))
_AMOUNTS: Final = attributes("committed at_least at_most at_most_is_bound")


def report_of(recovery: Recovery, request: Json, written: list[RecordsFile]) -> Json:
    """The report; all counts except `records` and `bytes` are of offsets."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool("local"),
        "requested": request,
        "partitions_looked_at": recovery.looked_at,
        "records": recovery.count.all.recovered,
        "offsets": object_of(_TALLY, recovery.count.all),
        "left_out": [{"topic": topic, "partitions": count} for topic, count in sorted(recovery.left_out.items())],
        "may_hold_more": [
            {"kind": kind, "broker": broker, "partitions": count} for (kind, broker), count in recovery.may_hold_more.items()
        ],
        "files": [
            {"name": file.name, "records": file.records, "bytes": file.size_in_bytes, "sha256": file.sha256} for file in written
        ],
        "partitions": [_partition_object(partition) for partition in recovery.partitions],
        "incomplete": [object_of(attributes("path reason topic partition broker"), gap) for gap in recovery.incomplete],
    }


def _partition_object(partition: RecoveredPartition) -> Json:
    """A partition of the report: the side that is kept, the plan's bounds, and the ranges, which add up to these."""
    side, undecided = None, None
    if isinstance(partition.side, Undecided):
        undecided = {"reason": partition.side.reason, "hint": partition.side.hint}
    else:
        candidate = partition.side.candidate
        election = {"broker": candidate.broker, "election": candidate.election}
        side = {**election, "why": partition.side.why, "message": partition.side.message}
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "kept": side,
        "undecided": undecided,
        "plan": {**object_of(_AMOUNTS, partition), "records": partition.planned.records, "bytes": partition.planned.bytes},
        "offsets": object_of(_TALLY, partition.count.all),
        "committed_offsets": object_of(_TALLY, partition.count.committed),
        "ranges": [_range_object(recovered) for recovered in partition.ranges],
        "unreadable": {why: partition.unreadable[why] for why in UNREADABLE},
        "not_compared": partition.not_compared,
        "below_log_start": [{"broker": broker, "offsets": offsets} for broker, offsets in partition.below_log_start],
        "missing_witnesses": [{"kind": kind, "broker": broker} for kind, broker in partition.missing],
    }


def _read_from(source: LogOf | None) -> int | str | None:
    return REMOTE if isinstance(source, RemoteLogNumber) else source


def _range_object(recovered: RecoveredRange) -> Json:
    """A range of the report."""
    loss = recovered.loss
    return {
        "offset_start": loss.start,
        "offset_end": loss.end,
        "committed_end_offset": loss.committed_end,
        "witness": None if loss.witness is None else object_of(_WITNESS, loss.witness),
        "held_by": list(loss.held_by),
        "kept_by": list(loss.kept_by),
        "read_from": [[start, end, _read_from(source)] for start, end, source in recovered.sources],
        "plan": {"records": recovered.planned.records, "bytes": recovered.planned.bytes},
        "offsets": object_of(_TALLY, recovered.count.all),
        "committed_offsets": object_of(_TALLY, recovered.count.committed),
    }
