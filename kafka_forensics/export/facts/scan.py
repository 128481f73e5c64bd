"""Facts that no file tells by itself, read in one task: by what the internal topics say, or by a whole scan of this machine."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, gather, gather_log_dirs
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.answers import between_batches, change_batches, group_facts, metadata_facts
from kafka_forensics.export.facts.facts import FactReader, Words
from kafka_forensics.export.facts.read import asked, read_task
from kafka_forensics.export.facts.remote_log import remote_event_facts, remote_segment_facts
from kafka_forensics.export.facts.rows import FROM_COMPARISONS, FROM_SCANS, INCOMPLETE, FactQuery, repeated
from kafka_forensics.export.facts.splits import require_brokers, require_readable, require_there, tasks_of
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS, SNAPSHOT, SNAPSHOT_FACTS, fact_named
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.questions.changes import compared, gather_snapshots, require_two_snapshots
from kafka_forensics.scanning.engine.local import scan_inputs
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses

if TYPE_CHECKING:
    from kafka_forensics.model.schemas import ArrowArray, ArrowField


def read_scan(
    task: str, query: FactQuery, words: Words, storage_options: tuple[tuple[str, str], ...] = ()
) -> Iterator[pa.RecordBatch]:
    """Rows of the task of a fact that takes a scan, in the columns of the query, as `fact_splits_read.read_task` gives others.

    Every copy of what is asked for is read, those of other brokers too. Raises UsageError for paths that make no sense, and
    SourceError if anything could not be read, once all rows were given.
    """
    assert query.fact in FROM_SCANS
    parameters = json.loads(task)
    options = options_of(query, storage_options)
    inputs = gather(parameters["scan"], options, elsewhere=True)
    if query.fact != INCOMPLETE:
        require_readable(inputs)
    if not parameters.get("checked"):  # what is asked for may be in other snapshots
        require_brokers(inputs, query)
    keep_wanted(inputs, query)
    compile_as_needed(sum(replica_plan.bytes for replica_plan in [*inputs.replicas, *inputs.internal]))
    incomplete: list[Incomplete] = []
    batches = _batches(inputs, query, options, words, incomplete)
    yield from asked((wanted_rows(batch, query) for batch in batches), query, FACTS[query.fact].schema)
    for gap in [] if query.fact == INCOMPLETE else [*incomplete, *inputs.incomplete]:
        raise SourceError(gap.path, gap.reason)


def _batches(
    inputs: Inputs, query: FactQuery, options: ScanOptions, words: Words, incomplete: list[Incomplete]
) -> Iterator[pa.RecordBatch]:
    witnesses = read_witnesses(inputs)
    if query.fact == "metadata_history":
        yield from metadata_facts(witnesses, options)
        return
    if query.fact == "group_offsets":
        yield from group_facts(witnesses, options, payloads=query.payloads)
        return
    if query.fact == "remote_segments":
        yield from remote_segment_facts(witnesses, options, payloads=query.payloads)
        return
    if query.fact == "remote_events":
        yield from remote_event_facts(inputs, witnesses, options, incomplete, payloads=query.payloads)
        return
    result = scan_inputs(inputs, options, witnesses=witnesses)
    incomplete += result.incomplete
    yield from FactReader(inputs, options, result, witnesses, words, query.payloads, incomplete).batches(query.fact)


def options_of(query: FactQuery, storage_options: tuple[tuple[str, str], ...]) -> ScanOptions:
    """The options of the scan that a fact takes."""
    return ScanOptions(
        copied=query.copied, live=query.live, deep=query.deep, as_of_ms=query.as_of_ms, storage_options=storage_options
    )


def keep_wanted(inputs: Inputs, query: FactQuery) -> None:
    """Leave out topics and partitions that are not asked for."""
    inputs.replicas = [
        replica_plan for replica_plan in inputs.replicas if query.wants(replica_plan.context.topic, replica_plan.context.partition)
    ]
    inputs.aside = {where: paths for where, paths in inputs.aside.items() if query.wants(*where)}


def wanted_rows(batch: pa.RecordBatch, query: FactQuery) -> pa.RecordBatch:
    """Rows of the topics, partitions and brokers that are asked for."""
    of_brokers = "broker" in batch.schema.names

    @cache
    def wants(topic: str | None, partition: int | None, broker: str | None) -> bool:
        return query.wants(topic, partition) and (not of_brokers or query.wants_broker(broker))

    if not (query.topics or query.partitions or query.brokers):
        return batch
    columns = [batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
                          for name in ("topic", "partition", "broker")]  # fmt: skip
    return batch.filter(pa.array([wants(*row) for row in zip(*columns, strict=True)], pa.bool_()))


# Facts of several snapshots: the tasks of each, and rows that begin with the name of the snapshot they are of.


_NAME: Final = SNAPSHOT.name
Pairs = tuple[tuple[str, str], ...]


def plan_snapshots(snapshots: Mapping[str, list[str]], query: FactQuery, storage_options: Pairs = ()) -> list[str]:
    """Tasks as text: those that `fact_splits.plan_tasks` gives for each snapshot, by names in their order.

    `changes`, and the findings of several snapshots, are one task, which compares them. Raises UsageError for paths that make no
    sense and for limits that fit nothing in any snapshot, and SourceError for what cannot be listed or read.
    """
    if query.fact in FROM_COMPARISONS:
        require_two_snapshots(snapshots)
    if query.fact in FROM_COMPARISONS or (query.fact == "findings" and len(snapshots) > 1):
        return [json.dumps({"compare": dict(snapshots)})]
    gathered = {name: gather_log_dirs(paths, storage_options) for name, paths in snapshots.items()}
    for inputs in gathered.values():
        require_readable(inputs)
    everything = _together(gathered)
    if query.fact in FROM_SCANS:
        require_brokers(everything, query)
        tasks = [(name, json.dumps({"scan": paths, "checked": True})) for name, paths in snapshots.items()]
    else:
        require_there(everything, query)
        tasks = [(name, task) for name, inputs in gathered.items() for task in tasks_of(inputs, query)]
    return [json.dumps({"snapshot": name, "task": task}) for name, task in tasks]


def _together(gathered: Mapping[str, Inputs]) -> Inputs:
    return Inputs([log_dir for inputs in gathered.values() for log_dir in inputs.log_dirs])


def read_snapshots(task: str, query: FactQuery, words: Words, storage_options: Pairs = ()) -> Iterator[pa.RecordBatch]:
    """Rows of a task in the columns of the query, of which `snapshot` may be one.

    Raises what `fact_splits_read.read_task` and `fact_splits_scan.read_scan` do.
    """
    parameters = json.loads(task)
    if "compare" in parameters:
        yield from _read_compared(parameters["compare"], query, words, storage_options)
        return
    own = tuple(name for name in query.columns if name != _NAME)
    without = replace(query, columns=own)
    if query.fact in FROM_SCANS:
        batches = read_scan(parameters["task"], without, words, storage_options)
    else:
        batches = read_task(parameters["task"], without, storage_options)
    for batch in batches:
        yield _named(batch, query, parameters["snapshot"]) if _NAME in query.columns else batch


def _named(batch: pa.RecordBatch, query: FactQuery, name: str) -> pa.RecordBatch:
    """The rows with the name of their snapshot, in the columns of the query."""
    of_snapshot = repeated(name, batch.num_rows)
    columns: list[ArrowArray] = [of_snapshot if column == _NAME else batch.column(column) for column in query.columns]
    fields: list[ArrowField] = [SNAPSHOT if column == _NAME else batch.schema.field(column) for column in query.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _read_compared(
    snapshots: dict[str, list[str]], query: FactQuery, words: Words, storage_options: Pairs
) -> Iterator[pa.RecordBatch]:
    """Rows of what takes a comparison of the snapshots, as the local engine compares them."""
    options = options_of(query, storage_options)
    gathered = gather_snapshots(snapshots, options)
    for inputs in gathered.values():
        require_readable(inputs)
    require_brokers(_together(gathered), query)
    for inputs in gathered.values():
        keep_wanted(inputs, query)
    incomplete: list[Incomplete] = []
    schema = pa.schema([SNAPSHOT, *fact_named(query.fact, SNAPSHOT_FACTS).schema])
    batches = _compared_batches(gathered, query, options, words, incomplete)
    yield from asked((wanted_rows(batch, query) for batch in batches), query, schema)
    for gap in [*incomplete, *(gap for inputs in gathered.values() for gap in inputs.incomplete)]:
        raise SourceError(gap.path, gap.reason)


def _compared_batches(
    gathered: Mapping[str, Inputs], query: FactQuery, options: ScanOptions, words: Words, incomplete: list[Incomplete]
) -> Iterator[pa.RecordBatch]:
    compared_snapshots = compared(gathered, options)
    result = compared_snapshots.result
    incomplete += [*result.incomplete, *(gap for scan in result.snapshots.values() for gap in scan.incomplete)]
    if query.fact != "findings":
        yield from change_batches(result.changes)
        return
    every = replace(query, columns=(_NAME, *fact_named(query.fact).schema.names))
    for snapshot in compared_snapshots.snapshots:
        reader = FactReader(
            snapshot.inputs, options, result.snapshots[snapshot.name], snapshot.witnesses, words, query.payloads, incomplete
        )
        yield from (_named(batch, every, snapshot.name) for batch in reader.batches("findings"))
    yield from between_batches(result.findings, reader.finding_row)
