"""An export in tasks: which there are, and what a worker does with one. It writes files under names of its own and tells of them.

A task is bytes, and what a worker tells is lines of JSON, so that anybody can carry them. Which files count, and what they are
called in the end, is settled by who gave the tasks out: an attempt that is lost leaves files that nobody tells of.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, groupby
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import PathMissingError, SourceError, TransientError, UsageError
from kafka_forensics.evidence.inputs import ReplicaPlan, broker_order
from kafka_forensics.export.datasets import Written, folder_of, name_of, write_part
from kafka_forensics.export.facts.answers import transaction_facts
from kafka_forensics.export.facts.facts import FactReader, Replica, place_of_replica
from kafka_forensics.export.facts.log import FactReading
from kafka_forensics.export.facts.read import piece_facts
from kafka_forensics.export.facts.rows import FROM_FILES, FROM_LOGS, SPLIT_BYTES, FactQuery
from kafka_forensics.export.facts.splits import Piece, decode, replica_tasks
from kafka_forensics.export.labels import Label, labelled, labelled_schema
from kafka_forensics.export.places import ExportPlace, join_place
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.questions.transactions import KnownTransactions
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import thin_plans
from kafka_forensics.scanning.engine.work_plan import file_cost, packed
from kafka_forensics.storage.code_cache import exclude_input, set_cache_directory
from kafka_forensics.storage.open import address_of, open_address
from kafka_forensics.storage.source import LostSource

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_forensics.storage.source import ByteSource

BY_TASKS: Final = (*FROM_LOGS, *FROM_FILES, "transactions")
"""Facts that tasks write; who gives them out holds the others."""
RECORDS_BYTES: Final = 64 << 20
"""Bytes of logs of a task that makes records, which takes several times as long as any other fact."""
Storage = tuple[tuple[str, str], ...]
Rows = tuple[Json, Iterable["pa.RecordBatch"]]
"""The keys of a replica and rows of it."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task: some rows of one fact."""

    fact: str
    work: bytes


@dataclass(slots=True)
class ExportCommon:
    """What all tasks of an export have in common; goes along as JSON."""

    path: str
    """Of the target, as any process finds it."""
    token: str
    storage: Storage = field(repr=False)
    names: dict[str, str] = field(default_factory=dict)
    """Where a source is → what it is called."""
    payloads: bool = False
    work_bytes: int = 0
    cache_dir: str | None = None
    """Where compiled kernels are kept, None: where it is usual."""
    label: Label | None = None
    """The snapshot that is added to a dataset of many; None where the export is a new one."""

    def packed(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def unpacked(cls, packed: str) -> "ExportCommon":
        """Of JSON."""
        fields = json.loads(packed)
        label = None if fields["label"] is None else Label(**fields["label"])
        return cls(**fields | {"storage": tuple(map(tuple, fields["storage"])), "label": label})

    def target(self) -> ExportPlace:
        """The target. Raises UsageError if it is not what is there."""
        return join_place(self.path, self.token, self.storage)


def common(reader: FactReader, token: str, path: str, *, work_bytes: int, label: Label | None = None) -> ExportCommon:
    """What tasks about the reader's facts have in common; workers find the target at `path`."""
    names = {address_of(source): source.name for source in reader.inputs.sources}
    options = reader.options
    return ExportCommon(path, token, options.storage_options, names, reader.payloads, work_bytes, options.cache_dir, label)


def known_transactions(reader: FactReader) -> bytes:
    """What the scan and the coordinators' log say of single transactions, which every task about them is told."""
    about = [finding for finding in reader.result.findings if finding.kind.startswith("TXN_")]
    return pack((reader.witnesses.transaction_log, about))


def tasks(reader: FactReader, names: Sequence[str], split_bytes: int = SPLIT_BYTES) -> list[Task]:
    """Tasks for those of the facts that are `BY_TASKS`, of at most about `split_bytes` of logs each, in the order of their rows."""
    listed: list[Task] = []
    for name in names:
        if name == "transactions":
            listed += [Task(name, task) for task in _transaction_tasks(reader, split_bytes)]
        elif name in BY_TASKS:
            size = min(split_bytes, RECORDS_BYTES) if name == "records" else split_bytes
            query = FactQuery(name, tuple(FACTS[name].schema.names), split_bytes=size)
            packed_tasks = replica_tasks(reader.inputs.replicas, query, deep=reader.result.totals.records_decoded)
            listed += [Task(name, json.dumps([size, packed]).encode()) for packed in packed_tasks]
    return listed


def _transaction_tasks(reader: FactReader, split_bytes: int) -> Iterator[bytes]:
    """Whole replicas together, for a transaction is told once its marker is met; all those of an archive that cannot seek."""
    stable = reader.stable_offsets()
    alone: dict[int, list[ReplicaPlan]] = {}
    seekable: list[tuple[ReplicaPlan, int]] = []
    for plan in reader.inputs.replicas:
        source = plan.log_dir.source
        if source.seekable:
            seekable.append((plan, plan.bytes + file_cost(source) * len(plan.directory.segments)))
        else:
            alone.setdefault(id(source), []).append(plan)
    for plans in (*packed(seekable, split_bytes), *alone.values()):
        yield _replicas(plans, stable)


def _replicas(plans: list[ReplicaPlan], stable: dict[Replica, int | None]) -> bytes:
    return pack([(plan, stable.get(place_of_replica(plan))) for plan in thin_plans(plans)])


def write_task(packed: str, known: bytes, task: Task, *, strict: bool) -> Iterator[str]:
    """Do a task: what was written, file by file, and what could not be read, as lines of JSON for `told`.

    With `strict`, raises SourceError for what may be readable at the next attempt. Raises UsageError if the target is not there or
    cannot be written to.
    """
    shared = ExportCommon.unpacked(packed)
    target = shared.target()
    set_cache_directory(shared.cache_dir)
    for place in shared.names:
        exclude_input(place)
    compile_as_needed(shared.work_bytes)
    gaps: list[Incomplete] = []
    attempt = uuid.uuid4().hex
    names = (f"{attempt}-{number}.parquet" for number in count())
    read = _transactions if task.fact == "transactions" else _pieces
    fact = FACTS[task.fact]
    rows = read(shared, known, task, gaps, strict=strict)
    if shared.label is not None:
        rows = iter([(shared.label.keys, labelled(fact, shared.label, rows))])
    schema = fact.own if shared.label is None else labelled_schema(fact, shared.label)
    for keys, batches in rows:
        for file in write_part(schema, batches, target.temporary_file, names, keys):
            yield json.dumps(asdict(file))
    yield from (json.dumps({"gap": [incomplete.path, incomplete.reason]}) for incomplete in gaps)


def look(packed: str) -> str | None:
    """What keeps this process from writing to the target; None if it can."""
    try:
        with ExportCommon.unpacked(packed).target().temporary_file(f"{uuid.uuid4().hex}.look"):
            return None
    except (UsageError, TransientError) as error:
        return str(error)


def _opener(shared: ExportCommon) -> Callable[[str], "ByteSource"]:
    """Opens each source once for a task, called as its user called it."""
    sources: dict[str, ByteSource] = {}

    def opened(place: str) -> "ByteSource":
        if place not in sources:
            name = shared.names.get(place, place)
            try:
                sources[place] = open_address(place, shared.storage)
                vars(sources[place])["name"] = name
            except (PathMissingError, SourceError) as error:
                sources[place] = LostSource(name, error)
        return sources[place]

    return opened


def _pieces(shared: ExportCommon, _: bytes, task: Task, gaps: list[Incomplete], *, strict: bool) -> Iterator[Rows]:
    """Replica by replica what the pieces of a task say."""
    split_bytes, text = json.loads(task.work)
    pieces, deep = decode(text)
    query = FactQuery(task.fact, tuple(FACTS[task.fact].schema.names), split_bytes=split_bytes, payloads=shared.payloads)
    opened = _opener(shared)

    def rows(of_one: Iterable[Piece]) -> "Iterator[pa.RecordBatch]":
        for piece in of_one:
            yield from piece_facts(piece, opened(piece.source), query, gaps.append, deep=deep, strict=strict)

    for (topic, partition, broker), of_one in groupby(pieces, key=lambda piece: (piece.topic, piece.partition, str(piece.broker))):
        yield folder_of(FACTS[task.fact], topic, partition, broker)[1], rows(of_one)


def _transactions(shared: ExportCommon, known: bytes, task: Task, gaps: list[Incomplete], *, strict: bool) -> Iterator[Rows]:
    """Replica by replica the transactions."""
    opened = _opener(shared)
    transactions = KnownTransactions(*unpack(known))
    for plan, stable in unpack(task.work, lambda _, place: opened(place)):
        context = plan.context
        missing: list[Incomplete] = []
        reading = FactReading(plan, missing.append, lambda _: None)
        _, keys = folder_of(FACTS[task.fact], context.topic, context.partition, str(context.broker))
        yield keys, transaction_facts(reading, stable, transactions)
        if missing and strict:
            raise SourceError(missing[0].path, missing[0].reason)
        gaps += missing


def told(
    answers: Iterable[tuple[Task, list[str]]], target: ExportPlace, label: Label | None = None
) -> tuple[dict[str, list[Written]], list[Incomplete]]:
    """Give the files of each task's one attempt that counts their names: the files of each fact, and what could not be read.

    Tasks are in their order, and so are the files of a snapshot with its `label`. Raises UsageError where a file cannot be had.
    """
    written: dict[str, list[Written]] = {}
    gaps: dict[Incomplete, None] = {}
    for task, lines in answers:
        files = written.setdefault(task.fact, [])
        for line in map(json.loads, lines):
            if "gap" in line:
                gaps[Incomplete(*line["gap"])] = None
            else:
                files.append(Written(**line))
    for name, files in written.items():
        if label is None:
            files.sort(key=_order)
        used: dict[str, Iterator[int]] = {}
        for number, file in enumerate(files):
            if label is None:
                folder, _ = folder_of(FACTS[name], **file.keys)
                path = name_of(folder, next(used.setdefault(folder, count())))
            else:
                path = label.file(name, number)
            target.adopt(file.path, path)
            file.path = path
    return written, list(gaps)


def _order(file: Written) -> tuple[object, ...]:
    """By topic, partition and broker, as replicas are in a scan."""
    broker = file.keys["broker"]
    known = int(broker) if broker.isascii() and broker.isdigit() else broker
    return file.keys["topic"], file.keys["partition"], broker_order(known), broker
