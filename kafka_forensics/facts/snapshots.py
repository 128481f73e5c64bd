"""Facts of several snapshots: the tasks of each, and rows that begin with the name of the snapshot they are of."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, gather_log_dirs
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.facts.change_rows import between_batches, change_batches
from kafka_forensics.facts.facts import FactReader
from kafka_forensics.facts.query import FROM_COMPARISONS, FROM_SCANS, FactQuery
from kafka_forensics.facts.read import projected, read_task
from kafka_forensics.facts.rows import cut, repeated
from kafka_forensics.facts.scan import Words, keep_wanted, options_of, read_scan, wanted_rows
from kafka_forensics.facts.splits import require_brokers, require_readable, require_there, tasks_of
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import fact_named
from kafka_forensics.model.schemas.changes import SNAPSHOT, SNAPSHOT_FACTS
from kafka_forensics.questions.changes import compared, gather_snapshots, require_several

if TYPE_CHECKING:
    import pyarrow as pa

_NAME: Final = SNAPSHOT.name
Pairs = tuple[tuple[str, str], ...]


def plan_snapshots(snapshots: Mapping[str, list[str]], query: FactQuery, storage_options: Pairs = ()) -> list[str]:
    """Tasks as text: those that `fact_splits.plan_tasks` gives for each snapshot, by names in their order.

    `changes`, and the findings of several snapshots, are one task, which compares them. Raises UsageError for paths that make no
    sense and for limits that fit nothing in any snapshot, and SourceError for what cannot be listed or read.
    """
    if query.fact in FROM_COMPARISONS:
        require_several(snapshots)
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


def read_snapshots(task: str, query: FactQuery, words: Words, storage_options: Pairs = ()) -> "Iterator[pa.RecordBatch]":
    """Rows of a task in the columns of the query, of which `snapshot` may be one.

    Raises what `fact_splits_read.read_task` and `fact_splits_scan.read_scan` do.
    """
    told = json.loads(task)
    if "compare" in told:
        yield from _read_compared(told["compare"], query, words, storage_options)
        return
    own = tuple(name for name in query.columns if name != _NAME)
    without = replace(query, columns=own)
    if query.fact in FROM_SCANS:
        batches = read_scan(told["task"], without, words, storage_options)
    else:
        batches = read_task(told["task"], without, storage_options)
    for batch in batches:
        yield _named(batch, query, told["snapshot"]) if _NAME in query.columns else batch


def _named(batch: "pa.RecordBatch", query: FactQuery, name: str) -> "pa.RecordBatch":
    """The rows with the name of their snapshot, in the columns of the query."""
    import pyarrow as pa

    of_snapshot = repeated(name, batch.num_rows)
    columns: list[Any] = [of_snapshot if column == _NAME else batch.column(column) for column in query.columns]
    fields: list[Any] = [SNAPSHOT if column == _NAME else batch.schema.field(column) for column in query.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _read_compared(
    snapshots: dict[str, list[str]], query: FactQuery, words: Words, storage_options: Pairs
) -> "Iterator[pa.RecordBatch]":
    """Rows of what takes a comparison of the snapshots, as the local engine compares them."""
    import pyarrow as pa

    options = options_of(query, storage_options)
    gathered = gather_snapshots(snapshots, options)
    for inputs in gathered.values():
        require_readable(inputs)
    require_brokers(_together(gathered), query)
    for inputs in gathered.values():
        keep_wanted(inputs, query)
    incomplete: list[Incomplete] = []
    schema = fact_named(query.fact, SNAPSHOT_FACTS).schema
    fields: list[Any] = [SNAPSHOT if name == _NAME else schema.field(name) for name in query.columns]
    rows = _compared_batches(gathered, query, options, words, incomplete)
    for table in cut((projected(wanted_rows(batch, query), query) for batch in rows), pa.schema(fields)):
        yield from table.to_batches()
    for one in [*incomplete, *(one for inputs in gathered.values() for one in inputs.incomplete)]:
        raise SourceError(one.path, one.reason)


def _compared_batches(
    gathered: Mapping[str, Inputs], query: FactQuery, options: ScanOptions, words: Words, incomplete: list[Incomplete]
) -> "Iterator[pa.RecordBatch]":
    found = compared(gathered, options)
    result = found.result
    incomplete += [*result.incomplete, *(one for scan in result.snapshots.values() for one in scan.incomplete)]
    if query.fact != "findings":
        yield from change_batches(result.changes)
        return
    every = replace(query, columns=(_NAME, *fact_named(query.fact).schema.names))
    for snapshot in found.snapshots:
        reader = FactReader(
            snapshot.inputs, options, result.snapshots[snapshot.name], snapshot.witnesses, words, query.payloads, incomplete
        )
        yield from (_named(batch, every, snapshot.name) for batch in reader.batches("findings"))
    yield from between_batches(result.findings, reader.finding_row)
