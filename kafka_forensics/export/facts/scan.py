"""Facts that come from more than one file, read in one task from the internal topics or by a whole scan, and facts of snapshots."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec.structs import replace

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, NodeIds, ReplicaPlan, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.answers import between_batches, change_batches
from kafka_forensics.export.facts.facts import FactReader, FindingText, internal_topic_facts
from kafka_forensics.export.facts.read import read_task, select_batches
from kafka_forensics.export.facts.rows import (
    FROM_COMPARISONS,
    FROM_INTERNAL_TOPICS,
    FROM_SCANS,
    INCOMPLETE,
    FactQuery,
    repeated,
)
from kafka_forensics.export.facts.splits import gather_files, require_brokers, require_matches, require_readable, tasks_of
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS, SNAPSHOT, SNAPSHOT_FACTS, fact_named
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.questions.changes import compared, gather_snapshots, require_two_snapshots
from kafka_forensics.scanning.engine.local import scan_inputs
from kafka_forensics.scanning.witnesses.remote_chains import take_remote_logs
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses

if TYPE_CHECKING:
    from kafka_forensics.model.findings import TopicPartition
    from kafka_forensics.model.schemas import ArrowArray, ArrowField

Pairs = tuple[tuple[str, str], ...]
Batches = Iterator[pa.RecordBatch]
_NAME: Final = SNAPSHOT.name


def read_scan(task: str, query: FactQuery, finding_text: FindingText, storage_options: Pairs = ()) -> Batches:
    """Rows of the task of a fact of `FROM_SCANS`, in the columns of the query.

    Reads every requested replica with the copies of other brokers. Raises UsageError for invalid paths, and after all rows
    SourceError if anything could not be read.
    """
    assert query.fact in FROM_SCANS
    parameters = json.loads(task)
    options = _scan_options(query, storage_options)
    inputs = gather(parameters["scan"], options, elsewhere=True)
    if query.fact != INCOMPLETE:
        require_readable(inputs)
    if not parameters.get("checked"):  # other snapshots may have what is requested
        require_brokers(inputs, query)
    _drop_unrequested(inputs, query)
    compile_as_needed(sum(plan.bytes for plan in [*inputs.replicas, *inputs.internal]))
    incomplete: list[Incomplete] = []
    batches = _scan_batches(inputs, query, options, finding_text, incomplete)
    yield from select_batches((_requested_rows(batch, query) for batch in batches), query, FACTS[query.fact].schema)
    if query.fact != INCOMPLETE:
        _raise_first([*incomplete, *inputs.incomplete])


def _raise_first(incomplete: Iterable[Incomplete]) -> None:
    for first in incomplete:
        raise SourceError(first.path, first.reason)


def _scan_batches(
    inputs: Inputs, query: FactQuery, options: ScanOptions, finding_text: FindingText, incomplete: list[Incomplete]
) -> Batches:
    witnesses = read_witnesses(inputs)
    if query.fact in FROM_INTERNAL_TOPICS:
        yield from internal_topic_facts(query.fact, inputs, witnesses, options, incomplete, payloads=query.payloads)
        return
    take_remote_logs(inputs, options, witnesses.remote_log)
    requested = {key: plans for key, plans in (inputs.remote_by_partition or {}).items() if query.includes(*key)}
    inputs.remote_by_partition = requested
    result = scan_inputs(inputs, options, witnesses=witnesses)
    incomplete += result.incomplete
    yield from FactReader(inputs, options, result, witnesses, finding_text, query.payloads, incomplete).batches(query.fact)


def _scan_options(query: FactQuery, storage_options: Pairs) -> ScanOptions:
    return ScanOptions(
        copied=query.copied, live=query.live, deep=query.deep, as_of_ms=query.as_of_ms, storage_options=storage_options
    )


def _drop_unrequested(inputs: Inputs, query: FactQuery) -> None:
    """Drop topics and partitions that are not requested."""
    inputs.replicas = [plan for plan in inputs.replicas if query.includes(plan.context.topic, plan.context.partition)]
    inputs.renamed_directories = {
        partition: paths for partition, paths in inputs.renamed_directories.items() if query.includes(*partition)
    }


def _requested_rows(batch: pa.RecordBatch, query: FactQuery) -> pa.RecordBatch:
    """Rows of the requested topics, partitions and brokers."""
    has_brokers = "broker" in batch.schema.names

    @cache
    def includes(topic: str | None, partition: int | None, broker: str | None) -> bool:
        return query.includes(topic, partition) and (not has_brokers or query.includes_broker(broker))

    if not (query.topics or query.partitions or query.brokers):
        return batch
    columns = [batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
                          for name in ("topic", "partition", "broker")]  # fmt: skip
    return batch.filter(pa.array([includes(*row) for row in zip(*columns, strict=True)], pa.bool_()))


def plan_snapshots(snapshots: Mapping[str, list[str]], query: FactQuery, storage_options: Pairs = ()) -> list[str]:
    """Tasks as text, for each snapshot in its order those of `splits.plan_tasks`; rows begin with the snapshot's name.

    `changes`, and the findings of several snapshots, are one task, which compares them. Raises UsageError for invalid paths and for
    limits that nothing in any snapshot matches, and SourceError for what cannot be listed or read.
    """
    if query.fact in FROM_COMPARISONS:
        require_two_snapshots(snapshots)
    if query.fact in FROM_COMPARISONS or (query.fact == "findings" and len(snapshots) > 1):
        return [json.dumps({"compare": dict(snapshots)})]
    gathered = {name: gather_files(paths, storage_options) for name, paths in snapshots.items()}
    for inputs in gathered.values():
        require_readable(inputs)
    if query.fact in FROM_SCANS:
        require_brokers(_all_log_dirs(gathered), query)
        tasks = [(name, json.dumps({"scan": paths, "checked": True})) for name, paths in snapshots.items()]
    else:
        require_matches(_all_log_dirs(gathered), query)
        tasks = [(name, task) for name, inputs in gathered.items() for task in tasks_of(inputs, query)]
    return [json.dumps({"snapshot": name, "task": task}) for name, task in tasks]


def _all_log_dirs(gathered: Mapping[str, Inputs]) -> Inputs:
    log_dirs = [log_dir for inputs in gathered.values() for log_dir in inputs.log_dirs]
    remote: dict[TopicPartition, list[ReplicaPlan]] = {}
    for plan in (plan for inputs in gathered.values() for plan in inputs.remote):
        remote.setdefault(plan.context.topic_partition, []).append(plan)
    return Inputs(log_dirs, remote_by_partition=remote)


def read_snapshots(task: str, query: FactQuery, finding_text: FindingText, storage_options: Pairs = ()) -> Batches:
    """Rows of a task of `plan_snapshots` in the columns of the query. Raises what `read.read_task` and `read_scan` raise."""
    parameters = json.loads(task)
    if "compare" in parameters:
        yield from _read_compared(parameters["compare"], query, finding_text, storage_options)
        return
    without_name = replace(query, columns=tuple(name for name in query.columns if name != _NAME))
    if query.fact in FROM_SCANS:
        batches = read_scan(parameters["task"], without_name, finding_text, storage_options)
    else:
        batches = read_task(parameters["task"], without_name, storage_options)
    for batch in batches:
        yield _with_name(batch, query.columns, parameters["snapshot"]) if _NAME in query.columns else batch


def _with_name(batch: pa.RecordBatch, names: Iterable[str], snapshot: str) -> pa.RecordBatch:
    """The columns `names` of a batch, one of which is the name of its snapshot."""
    of_snapshot = repeated(snapshot, batch.num_rows)
    columns: list[ArrowArray] = [of_snapshot if name == _NAME else batch.column(name) for name in names]
    fields: list[ArrowField] = [SNAPSHOT if name == _NAME else batch.schema.field(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _read_compared(snapshots: dict[str, list[str]], query: FactQuery, finding_text: FindingText, storage_options: Pairs) -> Batches:
    """Rows of a fact that compares the snapshots, as the local engine compares them."""
    options = _scan_options(query, storage_options)
    gathered = gather_snapshots(snapshots, options)
    for inputs in gathered.values():
        require_readable(inputs)
    require_brokers(_all_log_dirs(gathered), query)
    for inputs in gathered.values():
        _drop_unrequested(inputs, query)
    incomplete: list[Incomplete] = []
    schema = pa.schema([SNAPSHOT, *fact_named(query.fact, SNAPSHOT_FACTS).schema])
    batches = _compared_batches(gathered, query, options, finding_text, incomplete)
    yield from select_batches((_requested_rows(batch, query) for batch in batches), query, schema)
    _raise_first([*incomplete, *(found for inputs in gathered.values() for found in inputs.incomplete)])


def _compared_batches(
    gathered: Mapping[str, Inputs], query: FactQuery, options: ScanOptions, finding_text: FindingText, incomplete: list[Incomplete]
) -> Batches:
    compared_snapshots = compared(gathered, options)
    result = compared_snapshots.result
    incomplete += [*result.incomplete, *(found for scan in result.snapshots.values() for found in scan.incomplete)]
    node_ids = NodeIds.of(log_dir for inputs in gathered.values() for log_dir in inputs.log_dirs)
    if query.fact != "findings":
        yield from change_batches(result.changes, node_ids)
        return
    names = (_NAME, *fact_named(query.fact).schema.names)
    for snapshot in compared_snapshots.snapshots:
        scan = result.snapshots[snapshot.name]
        reader = FactReader(snapshot.inputs, options, scan, snapshot.witnesses, finding_text, query.payloads, incomplete)
        yield from (_with_name(batch, names, snapshot.name) for batch in reader.batches("findings"))
    reader.node_ids = node_ids
    yield from between_batches(result.findings, reader.finding_row)
