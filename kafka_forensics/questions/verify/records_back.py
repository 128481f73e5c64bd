"""Whether the records that `recover` wrote are in the leader's log again, after its planned end, each once.

A record is identified by key, value, headers, and its old offset if `produce_back.py` wrote that into a header: the last
header of that name, since records that were produced again and lost again have several. Without the header its timestamp counts.
Records of aborted and open transactions do not count, because no consumer sees them. In a compacted topic a record counts as found
if a later one of its key is: the cleaner may have removed it.
"""

import json
from base64 import b64decode
from collections import Counter
from hashlib import sha256
from typing import Annotated, Final

import msgspec
from msgspec import Struct, field

from kafka_forensics.errors import UsageError
from kafka_forensics.model.batches import Record
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.questions.recover import content, digest
from kafka_forensics.questions.verify.documents import Broker
from kafka_forensics.questions.verify.promises import Judgement
from kafka_forensics.scanning.rereading.log_ranges import LogRangeReader, TransactionEndings
from kafka_forensics.scanning.rereading.record_states import COMMITTED, NONE, UNKNOWN
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.documents import MAX_BYTES, document_bytes, open_document

OFFSET_HEADER: Final = b"kafka-forensics-original-offset"
_HOW: Final = "give the directory that `recover --output` wrote"
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_RecordKey = tuple[bytes, int]
"""The digest of key, value and headers, and an offset or a timestamp."""


class _Base64(msgspec.Struct):
    base64: str


class _RecordLine(msgspec.Struct):
    """A line of records.jsonl."""

    topic: str
    partition: _Int
    offset: _Int
    timestamp_ms: _Int
    key: str | _Base64 | None
    value: str | _Base64 | None
    headers: list[tuple[str | _Base64 | None, str | _Base64 | None]]


class LostRecords(Struct):
    """The records of one partition that should be present again, by the features that identify them."""

    by_offset: dict[_RecordKey, list[int]] = field(default_factory=dict)
    """→ numbers of the records, ascending; several where several versions of the log were lost."""
    by_time: dict[_RecordKey, list[int]] = field(default_factory=dict)
    keys: list[bytes | None] = field(default_factory=list)
    """The digest of each record's key."""
    kept: Broker | None = None
    """The broker that was kept when they were recovered."""

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.keys)

    def add(self, key: bytes | None, inside: bytes, offset: int, timestamp: int) -> None:
        """Add a record; `inside` is the digest of key, value and headers."""
        self.by_offset.setdefault((inside, offset), []).append(self.count)
        self.by_time.setdefault((inside, max(timestamp, 0)), []).append(self.count)
        self.keys.append(None if key is None else digest(key))


class _ReportFile(msgspec.Struct):
    name: str
    sha256: str


class _KeptCopy(msgspec.Struct):
    broker: Broker


class _ReportPartition(msgspec.Struct):
    topic: str
    partition: _Int
    kept: _KeptCopy | None


class _RecoveryReport(msgspec.Struct):
    """The parts of report.json about the other files, and about the brokers that were kept."""

    files: list[_ReportFile]
    partitions: list[_ReportPartition]


def read_lost_records(directory: str) -> dict[tuple[str, int], LostRecords]:
    """(topic, partition) → records, from a directory that `recover` wrote.

    Raises UsageError for anything else, and for records that do not belong to the report in the directory.
    """
    lost: dict[tuple[str, int], LostRecords] = {}
    try:
        report = msgspec.convert(json.loads(document_bytes(f"{directory}/report.json", _HOW)), _RecoveryReport)
        hasher = sha256()
        with open_document(f"{directory}/records.jsonl", _HOW, max_bytes=None) as lines:
            while line := lines.readline(MAX_BYTES):
                hasher.update(line)
                row = msgspec.convert(json.loads(line), _RecordLine)
                key, headers = _bytes(row.key), [(_bytes(name), _bytes(value)) for name, value in row.headers]
                inside = content(key, _bytes(row.value), headers)
                lost.setdefault((row.topic, row.partition), LostRecords()).add(key, inside, row.offset, row.timestamp_ms)
    except (ValueError, RecursionError, MemoryError, msgspec.ValidationError) as error:
        raise UsageError(f"{directory} has no records of `recover`: {str(error)[:200]}", hint=_HOW) from error
    if not any(file.name == "records.jsonl" and file.sha256 == hasher.hexdigest() for file in report.files):
        raise UsageError(f"records.jsonl in {directory} is not the one in report.json there", hint=_HOW)
    for recovered in report.partitions:
        if recovered.kept is not None and (recovered.topic, recovered.partition) in lost:
            lost[recovered.topic, recovered.partition].kept = recovered.kept.broker
    if any(records.kept is None for records in lost.values()):
        raise UsageError(f"report.json in {directory} does not name the broker for all of these records", hint=_HOW)
    return lost


def check_kept(topic: str, partition: int, elected: Broker, lost: LostRecords) -> None:
    """Raise UsageError for records that were recovered to keep another broker than the elected one."""
    if lost.kept is not None and lost.kept != elected:
        text = f"the records of {topic}-{partition} were recovered to keep broker {lost.kept}, but broker {elected} should lead"
        raise UsageError(text, hint=f"add --elected {lost.kept}, or give the records that were recovered to keep broker {elected}")


def _bytes(content: str | _Base64 | None) -> bytes | None:
    if isinstance(content, _Base64):
        return b64decode(content.base64, validate=True)
    return None if content is None else content.encode("utf-8", "surrogateescape")


def are_back(lost: LostRecords, log: LogRangeReader, start: int, endings: TransactionEndings, *, compacted: bool) -> Judgement:
    """Whether every record is in a log once from offset `start` on, and how many are."""
    search = _RecordSearch(lost)
    for batch in log.batches(((start, INT64_MAX),)):
        if batch.is_control or batch.data is None:
            continue
        state = endings.state(batch.facts)
        for record in batch.opened()[0]:
            if record.offset >= start and not record.is_oversized:
                search.take(record, state, with_key=compacted)
    count = len(search.found) + search.superseded()
    if log.incomplete:
        is_bundle = isinstance(log.plan.log_dir.source, BundleSource)
        return Judgement("no_bytes" if is_bundle else "not_read", lost.count, count)
    if count < lost.count:
        was_deleted = log.replica.log_start_offset > start
        reason = "not_read" if search.in_doubt else "records_deleted" if was_deleted else "records_missing"
        return Judgement(reason, lost.count, count)
    surplus = search.found.total() - len(search.found)
    return Judgement("records_twice" if surplus else "records_back", lost.count, count + surplus)


class _RecordSearch:
    """Counts how often each lost record is found, by its number, in a log that is read in order."""

    def __init__(self, lost: LostRecords) -> None:
        self._lost = lost
        self.found: Counter[int] = Counter()
        self.in_doubt = False
        """Whether one is in a transaction whose end is unknown."""
        self._free: dict[int, int] = {}
        """`id` of a list of numbers → how many of them, from the first on, are found."""
        self._keys = {key for key in lost.keys if key is not None}
        self._latest: dict[bytes, int] = {}
        """Key → the largest number of its records in the log; `count` for a record that was not lost."""

    def take(self, record: Record, state: str, *, with_key: bool) -> None:
        """Take the next record of the log, if consumers see it; with `with_key` also as a later record of its key."""
        numbers = self._candidates(record)
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
        """How many lost records are not found, and have a later record of their key."""
        keys = self._lost.keys
        return sum(
            number not in self.found and key is not None and self._latest.get(key, -1) > number for number, key in enumerate(keys)
        )

    def _candidates(self, record: Record) -> list[int]:
        """Numbers of the lost records that a record may be."""
        at = max((at for at, (name, _) in enumerate(record.headers) if name == OFFSET_HEADER), default=None)
        if at is not None:
            old_offset = record.headers[at][1]
            if old_offset is not None and old_offset.isascii() and old_offset.isdigit() and len(old_offset) < 20:
                others = (*record.headers[:at], *record.headers[at + 1 :])
                numbers = self._lost.by_offset.get((content(record.key, record.value, others), int(old_offset)))
                if numbers is not None:
                    return numbers
        return self._lost.by_time.get((content(record.key, record.value, record.headers), max(record.timestamp, 0)), [])

    def _next(self, numbers: list[int]) -> int:
        """The first of some numbers that is not found yet; the first of all if all are."""
        at = self._free.get(id(numbers), 0)
        while at < len(numbers) and numbers[at] in self.found:
            at += 1
        self._free[id(numbers)] = at
        return numbers[at] if at < len(numbers) else numbers[0]
