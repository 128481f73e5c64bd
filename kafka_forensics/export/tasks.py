"""An export in tasks: their list, and what a worker does with one, which is to write files under unique names and report these.

A task is bytes, and its report lines of JSON: any engine can carry them. The process that distributes the tasks decides which files
count and what their final names are: no task reports the files of a lost attempt.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from kafka_forensics.errors import PathMissingError, SourceError, TransientError, UsageError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.export.datasets import DatasetFile, write_part
from kafka_forensics.export.facts.answers import transaction_facts
from kafka_forensics.export.facts.facts import FactReader, place_of_replica
from kafka_forensics.export.facts.log import ReplicaReader
from kafka_forensics.export.facts.read import piece_facts
from kafka_forensics.export.facts.rows import FROM_FILES, FROM_LOGS, SPLIT_BYTES, FactQuery
from kafka_forensics.export.facts.splits import FactPiece, decode, replica_tasks
from kafka_forensics.export.labels import SnapshotLabel
from kafka_forensics.export.places import ExportPlace, Storage, join_place
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS, ReplicaKeys
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.questions.transactions import KnownTransactions
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import trimmed_plans
from kafka_forensics.scanning.engine.work_plan import file_cost, packed_for_cores
from kafka_forensics.scanning.witnesses.remote_chains import remote_logs_of
from kafka_forensics.storage.code_cache import exclude_input, set_cache_directory
from kafka_forensics.storage.open import address_of, open_address, path_of_address
from kafka_forensics.storage.source import UnopenedSource

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_forensics.storage.source import ByteSource

BY_TASKS: Final = (*FROM_LOGS, *FROM_FILES, "transactions")
"""Facts that tasks write; the process that distributes the tasks writes the others."""
MAX_TASKS: Final = 512
"""Of a fact: each leaves a file that is not full."""
RECORDS_BYTES: Final = 64 << 20
"""Bytes of logs of a task of the fact `records`, which takes several times as long as any other."""


class Task(Struct, frozen=True):
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
    label: SnapshotLabel
    names: dict[str, str] = field(default_factory=dict)
    """Address of a source → its name."""
    payloads: bool = False
    work_bytes: int = 0
    cache_dir: str | None = None
    """Of compiled kernels; None for the default."""

    def to_json(self) -> str:
        """These arguments as JSON."""
        return json.dumps(to_builtins(self))

    @classmethod
    def from_json(cls, text: str) -> "ExportArguments":
        """The arguments of `to_json`."""
        fields = json.loads(text)
        return cls(**fields | {"storage": tuple(map(tuple, fields["storage"])), "label": SnapshotLabel(**fields["label"])})

    def target(self) -> ExportPlace:
        """The target. Raises UsageError if this process finds something else at its path."""
        return join_place(self.path, self.token, self.storage)


def export_arguments(reader: FactReader, token: str, path: str, label: SnapshotLabel, *, work_bytes: int) -> ExportArguments:
    """What the tasks about the reader's facts share; workers find the target at `path`."""
    sources = [*reader.inputs.sources, *(plan.log_dir.source for plan in reader.inputs.remote)]
    names = {address_of(source): source.name for source in sources}
    options = reader.options
    return ExportArguments(path, token, options.storage_options, label, names, reader.payloads, work_bytes, options.cache_dir)


def known_transactions(reader: FactReader) -> bytes:
    """What the scan and the transaction coordinators' log say of single transactions; every task about them needs it."""
    findings = [finding for finding in reader.result.findings if finding.kind.startswith("TXN_")]
    return pack((reader.witnesses.transaction_log, findings))


def tasks(reader: FactReader, names: Sequence[str], split_bytes: int = SPLIT_BYTES, cores: int | None = None) -> list[Task]:
    """Tasks for those of the facts that are `BY_TASKS`, in the order of their rows.

    They have about `split_bytes` of logs each, or more if there would be more than `MAX_TASKS` of a fact; they are few for each of
    the cores if few bytes are read.
    """
    listed: list[Task] = []
    least_bytes = sum(plan.bytes for plan in reader.inputs.logs) // MAX_TASKS
    for name in names:
        size = max(min(split_bytes, RECORDS_BYTES) if name == "records" else split_bytes, least_bytes)
        if name == "transactions":
            listed += [Task(name, work) for work in _transaction_works(reader, size, cores)]
        elif name in BY_TASKS:
            query = FactQuery(name, tuple(FACTS[name].schema.names), split_bytes=size)
            works = replica_tasks(
                reader.logs_of(name), reader.node_ids, query, deep=reader.result.totals.records_decoded, cores=cores
            )
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
        works = [
            (plan, reader.keys_of(plan).node_id, stable.get(place_of_replica(plan)), _remote_logs(reader, plan))
            for plan in trimmed_plans(plans)
        ]
        yield pack(works)


def _remote_logs(reader: FactReader, plan: ReplicaPlan) -> list[ReplicaPlan]:
    """What remote stores have of a replica's log."""
    return [] if plan.context.is_remote else trimmed_plans(remote_logs_of(reader.inputs, plan.context))


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
    for topic, of_topic in groupby(rows, key=lambda row: label.topic_of(fact, row[0])):
        for file in write_part(fact, label, of_topic, target.temporary_file, names):
            file.topic = topic
            yield json.dumps(to_builtins(file))
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
                sources[address] = UnopenedSource(name, error)
        return sources[address]

    return open_once


def _pieces(
    arguments: ExportArguments, task: Task, incomplete: list[Incomplete], *, strict: bool
) -> Iterator[tuple[ReplicaKeys, "Iterable[pa.RecordBatch]"]]:
    """The rows of the pieces of a task, replica by replica."""
    split_bytes, text = json.loads(task.work)
    pieces, deep = decode(text)
    fact = FACTS[task.fact]
    query = FactQuery(fact.name, tuple(fact.schema.names), split_bytes=split_bytes, payloads=arguments.payloads)
    open_once = _opener(arguments)

    def rows(of_replica: Iterable[FactPiece]) -> "Iterator[pa.RecordBatch]":
        for piece in of_replica:
            yield from piece_facts(piece, open_once(piece.source), query, incomplete.append, deep=deep, strict=strict)

    for keys, of_replica in groupby(pieces, key=lambda piece: piece.keys):
        yield keys, rows(of_replica)


def _transactions(
    arguments: ExportArguments, known: bytes, task: Task, incomplete: list[Incomplete], *, strict: bool
) -> Iterator[tuple[ReplicaKeys, "Iterable[pa.RecordBatch]"]]:
    """The transactions of the replicas of a task, replica by replica."""
    open_once = _opener(arguments)
    transactions = KnownTransactions(*unpack(known))
    for plan, node_id, last_stable_offset, remote in unpack(task.work, lambda _, address: open_once(address)):
        context = plan.context
        unread: list[Incomplete] = []
        keys = ReplicaKeys(context.topic, context.partition, str(context.broker), node_id)
        yield keys, transaction_facts(ReplicaReader(plan, unread.append, remote=remote), last_stable_offset, transactions)
        if unread and strict:
            raise SourceError(unread[0].path, unread[0].reason)
        incomplete += unread


def adopt_files(
    reports: Iterable[tuple[Task, list[str]]], target: ExportPlace, label: SnapshotLabel
) -> tuple[dict[str, list[DatasetFile]], list[Incomplete]]:
    """Give their names to the files that one attempt of each task reports: the files of each fact, and what could not be read.

    Reports are in the order of the tasks, as are the files. Raises UsageError if a file is missing.
    """
    files_of: dict[str, list[DatasetFile]] = {}
    incomplete: dict[Incomplete, None] = {}
    for task, lines in reports:
        files = files_of.setdefault(task.fact, [])
        for line in map(json.loads, lines):
            if "gap" in line:
                incomplete[Incomplete(*line["gap"])] = None
                continue
            file = DatasetFile(**line)
            path = label.file(task.fact, len(files), topic=file.topic)
            target.adopt(file.path, path)
            file.path = path
            files.append(file)
    return files_of, list(incomplete)
