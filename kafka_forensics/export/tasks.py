"""An export in tasks: their list, and what a worker does with one, which is to write files under unique names and report these.

A task is bytes and its report lines of JSON, so that any engine can carry them. The process that distributes the tasks decides
which files count and what their final names are: nobody reports the files of a lost attempt.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, groupby
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import PathMissingError, SourceError, TransientError, UsageError
from kafka_forensics.evidence.inputs import ReplicaPlan, broker_order
from kafka_forensics.export.datasets import DatasetFile, name_of, replica_folder, replica_keys, write_part
from kafka_forensics.export.facts.answers import transaction_facts
from kafka_forensics.export.facts.facts import FactReader, place_of_replica
from kafka_forensics.export.facts.log import ReplicaReader
from kafka_forensics.export.facts.read import piece_facts
from kafka_forensics.export.facts.rows import FROM_FILES, FROM_LOGS, SPLIT_BYTES, FactQuery
from kafka_forensics.export.facts.splits import FactPiece, decode, replica_tasks
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema, with_labels
from kafka_forensics.export.places import ExportPlace, Storage, join_place
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.questions.transactions import KnownTransactions
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import thin_plans
from kafka_forensics.scanning.engine.work_plan import file_cost, packed_for_cores
from kafka_forensics.scanning.witnesses.remote_chains import remote_logs_of
from kafka_forensics.storage.code_cache import exclude_input, set_cache_directory
from kafka_forensics.storage.open import address_of, open_address, path_of_address
from kafka_forensics.storage.source import LostSource

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_forensics.storage.source import ByteSource

BY_TASKS: Final = (*FROM_LOGS, *FROM_FILES, "transactions")
"""Facts that tasks write; the process that distributes the tasks writes the others."""
RECORDS_BYTES: Final = 64 << 20
"""Bytes of logs of a task of the fact `records`, which takes several times as long as any other."""
ReplicaRows = tuple[Json, Iterable["pa.RecordBatch"]]
"""The keys of a replica and rows of it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task, which writes some rows of one fact."""

    fact: str
    work: bytes


@dataclass(slots=True)
class ExportArguments:
    """What all tasks of an export share; carried as JSON."""

    path: str
    """Of the target, absolute."""
    token: str
    storage: Storage = field(repr=False)
    names: dict[str, str] = field(default_factory=dict)
    """Address of a source → its name."""
    payloads: bool = False
    work_bytes: int = 0
    cache_dir: str | None = None
    """Of compiled kernels; None for the default."""
    label: SnapshotLabel | None = None
    """The snapshot that is added to a dataset of many; None for a new export."""

    def to_json(self) -> str:
        """These arguments as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ExportArguments":
        """The arguments of `to_json`."""
        fields = json.loads(text)
        label = None if fields["label"] is None else SnapshotLabel(**fields["label"])
        return cls(**fields | {"storage": tuple(map(tuple, fields["storage"])), "label": label})

    def target(self) -> ExportPlace:
        """The target. Raises UsageError if this process finds something else at its path."""
        return join_place(self.path, self.token, self.storage)


def export_arguments(
    reader: FactReader, token: str, path: str, *, work_bytes: int, label: SnapshotLabel | None = None
) -> ExportArguments:
    """What the tasks about the reader's facts share; workers find the target at `path`."""
    sources = [*reader.inputs.sources, *(plan.log_dir.source for plan in reader.inputs.remote)]
    names = {address_of(source): source.name for source in sources}
    options = reader.options
    return ExportArguments(path, token, options.storage_options, names, reader.payloads, work_bytes, options.cache_dir, label)


def known_transactions(reader: FactReader) -> bytes:
    """What the scan and the transaction coordinators' log say of single transactions; every task about them needs it."""
    findings = [finding for finding in reader.result.findings if finding.kind.startswith("TXN_")]
    return pack((reader.witnesses.transaction_log, findings))


def tasks(reader: FactReader, names: Sequence[str], split_bytes: int = SPLIT_BYTES, cores: int | None = None) -> list[Task]:
    """Tasks for those of the facts that are `BY_TASKS`, of at most about `split_bytes` of logs each, in the order of their rows.

    They are few for each of the cores if few bytes are read.
    """
    listed: list[Task] = []
    for name in names:
        if name == "transactions":
            listed += [Task(name, work) for work in _transaction_works(reader, split_bytes, cores)]
        elif name in BY_TASKS:
            size = min(split_bytes, RECORDS_BYTES) if name == "records" else split_bytes
            query = FactQuery(name, tuple(FACTS[name].schema.names), split_bytes=size)
            works = replica_tasks(reader.logs_of(name), query, deep=reader.result.totals.records_decoded, cores=cores)
            listed += [Task(name, json.dumps([size, work]).encode()) for work in works]
    return listed


def _transaction_works(reader: FactReader, split_bytes: int, cores: int | None) -> Iterator[bytes]:
    """Whole replicas, because a transaction's row needs its marker; all replicas in an archive that cannot seek together."""
    stable = reader.stable_offsets()
    streams: dict[int, list[ReplicaPlan]] = {}
    seekable: list[tuple[ReplicaPlan, int, int]] = []
    for plan in reader.logs_of("transactions"):
        source = plan.log_dir.source
        if source.seekable:
            seekable.append((plan, plan.bytes, file_cost(source) * len(plan.directory.segments)))
        else:
            streams.setdefault(id(source), []).append(plan)
    for plans in (*packed_for_cores(seekable, split_bytes, cores), *streams.values()):
        yield pack([(plan, stable.get(place_of_replica(plan)), _remote_logs(reader, plan)) for plan in thin_plans(plans)])


def _remote_logs(reader: FactReader, plan: ReplicaPlan) -> list[ReplicaPlan]:
    """What remote stores have of a replica's log."""
    return [] if plan.context.is_remote else thin_plans(remote_logs_of(reader.inputs, plan.context))


def write_task(packed_arguments: str, known: bytes, task: Task, *, strict: bool) -> Iterator[str]:
    """Do a task and report the files and what could not be read, as lines of JSON for `adopt_files`.

    With `strict`, raises SourceError for what may be readable at the next attempt. Raises UsageError if the target is missing or
    cannot be written to.
    """
    arguments = ExportArguments.from_json(packed_arguments)
    target = arguments.target()
    set_cache_directory(arguments.cache_dir)
    for address in arguments.names:
        exclude_input(path_of_address(address))
    compile_as_needed(arguments.work_bytes)
    incomplete: list[Incomplete] = []
    attempt = uuid.uuid4().hex
    names = (f"{attempt}-{number}.parquet" for number in count())
    fact, label = FACTS[task.fact], arguments.label
    if task.fact == "transactions":
        rows = _transactions(arguments, known, task, incomplete, strict=strict)
    else:
        rows = _pieces(arguments, task, incomplete, strict=strict)
    if label is not None:
        rows = iter([(label.keys, with_labels(fact, label, rows))])
    schema = fact.file_schema if label is None else dataset_schema(fact, label)
    for keys, batches in rows:
        for file in write_part(schema, batches, target.temporary_file, names, keys):
            yield json.dumps(asdict(file))
    yield from (json.dumps({"gap": [unread.path, unread.reason]}) for unread in incomplete)


def target_problem(packed: str) -> str | None:
    """What keeps this process from writing to the target; None if it can."""
    try:
        with ExportArguments.from_json(packed).target().temporary_file(f"{uuid.uuid4().hex}.look"):
            return None
    except (UsageError, TransientError) as error:
        return str(error)


def _opener(arguments: ExportArguments) -> Callable[[str], "ByteSource"]:
    """A function that opens each source once for a task, under the name that the user gave."""
    sources: dict[str, ByteSource] = {}

    def open_once(address: str) -> "ByteSource":
        if address not in sources:
            name = arguments.names.get(address, address)
            try:
                sources[address] = open_address(address, arguments.storage)
                vars(sources[address])["name"] = name
            except (PathMissingError, SourceError) as error:
                sources[address] = LostSource(name, error)
        return sources[address]

    return open_once


def _pieces(arguments: ExportArguments, task: Task, incomplete: list[Incomplete], *, strict: bool) -> Iterator[ReplicaRows]:
    """The rows of the pieces of a task, replica by replica."""
    split_bytes, text = json.loads(task.work)
    pieces, deep = decode(text)
    fact = FACTS[task.fact]
    query = FactQuery(fact.name, tuple(fact.schema.names), split_bytes=split_bytes, payloads=arguments.payloads)
    open_once = _opener(arguments)

    def rows(of_replica: Iterable[FactPiece]) -> "Iterator[pa.RecordBatch]":
        for piece in of_replica:
            yield from piece_facts(piece, open_once(piece.source), query, incomplete.append, deep=deep, strict=strict)

    for (topic, partition, broker), of_replica in groupby(
        pieces, key=lambda piece: (piece.topic, piece.partition, str(piece.broker))
    ):
        yield replica_keys(topic, partition, broker), rows(of_replica)


def _transactions(
    arguments: ExportArguments, known: bytes, task: Task, incomplete: list[Incomplete], *, strict: bool
) -> Iterator[ReplicaRows]:
    """The transactions of the replicas of a task, replica by replica."""
    open_once = _opener(arguments)
    transactions = KnownTransactions(*unpack(known))
    for plan, last_stable_offset, remote in unpack(task.work, lambda _, address: open_once(address)):
        context = plan.context
        unread: list[Incomplete] = []
        keys = replica_keys(context.topic, context.partition, str(context.broker))
        yield keys, transaction_facts(ReplicaReader(plan, unread.append, remote=remote), last_stable_offset, transactions)
        if unread and strict:
            raise SourceError(unread[0].path, unread[0].reason)
        incomplete += unread


def adopt_files(
    reports: Iterable[tuple[Task, list[str]]], target: ExportPlace, label: SnapshotLabel | None = None
) -> tuple[dict[str, list[DatasetFile]], list[Incomplete]]:
    """Give their names to the files that one attempt of each task reports: the files of each fact, and what could not be read.

    Reports are in the order of the tasks, as are the files of a snapshot with its `label`. Raises UsageError if a file is missing.
    """
    files_of: dict[str, list[DatasetFile]] = {}
    incomplete: dict[Incomplete, None] = {}
    for task, lines in reports:
        files = files_of.setdefault(task.fact, [])
        for line in map(json.loads, lines):
            if "gap" in line:
                incomplete[Incomplete(*line["gap"])] = None
            else:
                files.append(DatasetFile(**line))
    for fact, files in files_of.items():
        if label is None:
            files.sort(key=_scan_order)
        numbers: dict[str, Iterator[int]] = {}
        for number, file in enumerate(files):
            if label is None:
                folder = replica_folder(FACTS[fact], **file.keys)
                path = name_of(folder, next(numbers.setdefault(folder, count())))
            else:
                path = label.file(fact, number)
            target.adopt(file.path, path)
            file.path = path
    return files_of, list(incomplete)


def _scan_order(file: DatasetFile) -> tuple[object, ...]:
    broker = file.keys["broker"]
    broker_id = int(broker) if broker.isascii() and broker.isdigit() else broker
    return file.keys["topic"], file.keys["partition"], broker_order(broker_id), broker
