"""Whether records that `recover` wrote stand in the leader's log again, behind what it held when they were lost, each once.

A record is known again by its key, value and headers and by its old offset, where `examples/produce_back.py` wrote that into a
header; else by its timestamp.
"""

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

import msgspec

from kafka_forensics.errors import UsageError
from kafka_forensics.model.batches import Record
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.questions.recover import ReadLog, digest
from kafka_forensics.questions.verify.documents import Broker
from kafka_forensics.questions.verify.promises import Answer
from kafka_forensics.storage.bundles import BundleSource

OFFSET_HEADER: Final = b"kafka-forensics-original-offset"
_HOW: Final = "give the directory that `recover --output` wrote"
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Known = tuple[bytes, int]
"""The digest of key, value and headers, and an offset or a timestamp."""


class _Base64(msgspec.Struct):
    base64: str


class _Line(msgspec.Struct):
    """A line of records.jsonl."""

    topic: str
    partition: _Int
    offset: _Int
    timestamp_ms: _Int
    key: str | _Base64 | None
    value: str | _Base64 | None
    headers: list[tuple[str | _Base64 | None, str | _Base64 | None]]


@dataclass(slots=True)
class LostRecords:
    """The records of one partition that are to be there again, by what they are known by."""

    by_offset: dict[_Known, int] = field(default_factory=dict)
    """→ the number of the record."""
    by_time: dict[_Known, list[int]] = field(default_factory=dict)
    count: int = 0
    kept: Broker | None = None
    """For whom they were recovered."""

    def add(self, known: bytes, offset: int, timestamp: int) -> None:
        """One more."""
        self.by_offset[known, offset] = self.count
        self.by_time.setdefault((known, max(timestamp, 0)), []).append(self.count)
        self.count += 1


class _File(msgspec.Struct):
    name: str
    sha256: str


class _Kept(msgspec.Struct):
    broker: Broker


class _Partition(msgspec.Struct):
    topic: str
    partition: _Int
    kept: _Kept | None


class _Report(msgspec.Struct):
    """What report.json says of the other files, and for whom they were made."""

    files: list[_File]
    partitions: list[_Partition]


def read_lost_records(directory: str) -> dict[tuple[str, int], LostRecords]:
    """By topic and partition, from what `recover` wrote into a directory. Raises UsageError for anything else, and for records that
    are not those of its report."""
    lost: dict[tuple[str, int], LostRecords] = {}
    try:
        report = msgspec.convert(json.loads((Path(directory) / "report.json").read_bytes()), _Report)
        hasher = sha256()
        with (Path(directory) / "records.jsonl").open("rb") as lines:
            for line in lines:
                hasher.update(line)
                row = msgspec.convert(json.loads(line), _Line)
                headers = [part for header in row.headers for part in map(_bytes, header)]
                known = digest(_bytes(row.key), _bytes(row.value), *headers)
                lost.setdefault((row.topic, row.partition), LostRecords()).add(known, row.offset, row.timestamp_ms)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}", hint=_HOW) from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(f"{directory} holds no records of `recover`: {str(error)[:200]}", hint=_HOW) from error
    if not any(file.name == "records.jsonl" and file.sha256 == hasher.hexdigest() for file in report.files):
        raise UsageError(f"records.jsonl in {directory} is not the one that report.json there speaks of", hint=_HOW)
    for told in report.partitions:
        if told.kept is not None and (told.topic, told.partition) in lost:
            lost[told.topic, told.partition].kept = told.kept.broker
    return lost


def check_kept(topic: str, partition: int, elected: Broker, lost: LostRecords) -> None:
    """Raise UsageError where records were recovered for another leader than the one that was elected."""
    if lost.kept is not None and lost.kept != elected:
        text = f"the records of {topic}-{partition} were recovered to keep broker {lost.kept}, and broker {elected} was to lead"
        raise UsageError(text, hint=f"add --elected {lost.kept}, or give what was recovered to keep broker {elected}")


def _bytes(content: str | _Base64 | None) -> bytes | None:
    if isinstance(content, _Base64):
        return b64decode(content.base64, validate=True)
    return None if content is None else content.encode("utf-8", "surrogateescape")


def are_back(lost: LostRecords, log: ReadLog, start: int) -> Answer:
    """Whether every record stands once in a log from offset `start` on, and how many do."""
    found: Counter[int] = Counter()
    for record in _records(log, start):
        number = _number(lost, record, found)
        if number is not None:
            found[number] += 1
    if log.incomplete:
        is_bundle = isinstance(log.plan.log_dir.source, BundleSource)
        return Answer("no_bytes" if is_bundle else "not_read", lost.count, len(found))
    if len(found) < lost.count:
        return Answer("records_missing", lost.count, len(found))
    return Answer("records_twice" if found.total() > lost.count else "records_back", lost.count, found.total())


def _records(log: ReadLog, start: int) -> Iterator[Record]:
    for batch in log.batches(((start, INT64_MAX),)):
        if not batch.is_control and batch.data is not None:
            yield from (record for record in batch.opened()[0] if record.offset >= start and not record.is_oversized)


def _number(lost: LostRecords, record: Record, found: Counter[int]) -> int | None:
    """Which of the lost records it is; of several alike the first that was not found yet."""
    old = next((value for name, value in record.headers if name == OFFSET_HEADER), None)
    own = [part for header in record.headers if header[0] != OFFSET_HEADER for part in header]
    known = digest(record.key, record.value, *own)
    if old is not None and old.isascii() and old.isdigit() and len(old) < 20:
        return lost.by_offset.get((known, int(old)))
    alike = lost.by_time.get((known, max(record.timestamp, 0)), [])
    return next((number for number in alike if number not in found), alike[0] if alike else None)
