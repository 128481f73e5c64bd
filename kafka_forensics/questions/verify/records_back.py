"""Whether records that `recover` wrote stand in the leader's log again, behind what it held when they were lost, each once.

A record is known again by its key, value and headers and by its old offset, where `examples/produce_back.py` wrote that into a
header, the last of that name: what was put back, and lost again, has more. Else it is known by its timestamp. Records of aborted
and of open transactions do not count, as no reader sees them. In a compacted topic a record counts as back if a later one of its
key is there: a cleaner may have taken it.
"""

import json
from base64 import b64decode
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from kafka_forensics.errors import UsageError
from kafka_forensics.model.batches import Record
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.questions.recover import content, digest
from kafka_forensics.questions.verify.documents import Broker
from kafka_forensics.questions.verify.promises import Answer
from kafka_forensics.scanning.rereading.log_ranges import Endings, ReadLog
from kafka_forensics.scanning.rereading.record_states import COMMITTED, NONE, UNKNOWN
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.documents import MAX_BYTES, document_bytes, opened_document

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

    by_offset: dict[_Known, list[int]] = field(default_factory=dict)
    """→ the numbers of the records, ascending; of one offset there are several, if several versions of the log were lost."""
    by_time: dict[_Known, list[int]] = field(default_factory=dict)
    keys: list[bytes | None] = field(default_factory=list)
    """The digest of each record's key."""
    kept: Broker | None = None
    """For whom they were recovered."""

    @property
    def count(self) -> int:
        """How many."""
        return len(self.keys)

    def add(self, key: bytes | None, known: bytes, offset: int, timestamp: int) -> None:
        """One more."""
        self.by_offset.setdefault((known, offset), []).append(self.count)
        self.by_time.setdefault((known, max(timestamp, 0)), []).append(self.count)
        self.keys.append(None if key is None else digest(key))


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
        report = msgspec.convert(json.loads(document_bytes(f"{directory}/report.json", _HOW)), _Report)
        hasher = sha256()
        with opened_document(f"{directory}/records.jsonl", _HOW, max_bytes=None) as lines:
            while line := lines.readline(MAX_BYTES):
                hasher.update(line)
                row = msgspec.convert(json.loads(line), _Line)
                key, headers = _bytes(row.key), [(_bytes(name), _bytes(value)) for name, value in row.headers]
                known = content(key, _bytes(row.value), headers)
                lost.setdefault((row.topic, row.partition), LostRecords()).add(key, known, row.offset, row.timestamp_ms)
    except (ValueError, RecursionError, MemoryError, msgspec.ValidationError) as error:
        raise UsageError(f"{directory} holds no records of `recover`: {str(error)[:200]}", hint=_HOW) from error
    if not any(file.name == "records.jsonl" and file.sha256 == hasher.hexdigest() for file in report.files):
        raise UsageError(f"records.jsonl in {directory} is not the one that report.json there speaks of", hint=_HOW)
    for told in report.partitions:
        if told.kept is not None and (told.topic, told.partition) in lost:
            lost[told.topic, told.partition].kept = told.kept.broker
    if any(records.kept is None for records in lost.values()):
        raise UsageError(f"report.json in {directory} does not say for whom all of these records were recovered", hint=_HOW)
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


def are_back(lost: LostRecords, log: ReadLog, start: int, endings: Endings, *, compacted: bool) -> Answer:
    """Whether every record stands once in a log from offset `start` on, and how many do."""
    finding = _Finding(lost)
    for batch in log.batches(((start, INT64_MAX),)):
        if batch.is_control or batch.data is None:
            continue
        state = endings.state(batch.facts)
        for record in batch.opened()[0]:
            if record.offset >= start and not record.is_oversized:
                finding.take(record, state, with_key=compacted)
    count = len(finding.found) + finding.superseded()
    if log.incomplete:
        is_bundle = isinstance(log.plan.log_dir.source, BundleSource)
        return Answer("no_bytes" if is_bundle else "not_read", lost.count, count)
    if count < lost.count:
        was_deleted = log.replica.log_start_offset > start
        reason = "not_read" if finding.in_doubt else "records_deleted" if was_deleted else "records_missing"
        return Answer(reason, lost.count, count)
    surplus = finding.found.total() - len(finding.found)
    return Answer("records_twice" if surplus else "records_back", lost.count, count + surplus)


class _Finding:
    """How often each of the lost records is found, by its number, in a log that is read in order."""

    def __init__(self, lost: LostRecords) -> None:
        self._lost = lost
        self.found: Counter[int] = Counter()
        self.in_doubt = False
        """Whether one stands in a transaction of which nobody can tell how it ended."""
        self._free: dict[int, int] = {}
        """`id` of a list of numbers → how many of them, from the first on, are known to be found."""
        self._keys = {key for key in lost.keys if key is not None}
        self._latest: dict[bytes, int] = {}
        """Key → the largest number of a record of it that stands in the log; `count` for others than the lost ones."""

    def take(self, record: Record, state: str, *, with_key: bool) -> None:
        """The next record of the log; only readers' records count, and with `with_key` as a later one of its key, too."""
        numbers = self._alike(record)
        if state not in (NONE, COMMITTED):
            self.in_doubt = self.in_doubt or (state == UNKNOWN and bool(numbers))
            return
        number = self._next(numbers) if numbers else self._lost.count
        if numbers:
            self.found[number] += 1
        key = digest(record.key) if with_key and record.key is not None else None
        if key in self._keys:
            self._latest[key] = max(self._latest.get(key, -1), number)

    def superseded(self) -> int:
        """How many are not found, and have a later record of their key."""
        keys = self._lost.keys
        return sum(
            number not in self.found and key is not None and self._latest.get(key, -1) > number for number, key in enumerate(keys)
        )

    def _alike(self, record: Record) -> list[int]:
        """Numbers of the lost records that it may be."""
        at = max((at for at, (name, _) in enumerate(record.headers) if name == OFFSET_HEADER), default=None)
        if at is not None:
            old = record.headers[at][1]
            if old is not None and old.isascii() and old.isdigit() and len(old) < 20:
                others = (*record.headers[:at], *record.headers[at + 1 :])
                numbers = self._lost.by_offset.get((content(record.key, record.value, others), int(old)))
                if numbers is not None:
                    return numbers
        return self._lost.by_time.get((content(record.key, record.value, record.headers), max(record.timestamp, 0)), [])

    def _next(self, numbers: list[int]) -> int:
        """The first of some numbers that was not found yet; if all were, the first."""
        at = self._free.get(id(numbers), 0)
        while at < len(numbers) and numbers[at] in self.found:
            at += 1
        self._free[id(numbers)] = at
        return numbers[at] if at < len(numbers) else numbers[0]
