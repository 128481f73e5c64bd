"""Facts that no file tells by itself, read in one task: by what the internal topics say, or by a whole scan of this machine."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from kafka_forensics.compiled import use_compiled, worth_compiling
from kafka_forensics.engine.local import scan_inputs
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.facts.answers import group_facts, metadata_facts
from kafka_forensics.facts.facts import FactReader
from kafka_forensics.facts.query import FROM_SCANS, INCOMPLETE, FactQuery
from kafka_forensics.facts.read import projected
from kafka_forensics.facts.rows import cut
from kafka_forensics.facts.splits import require_brokers, require_readable
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.witnesses.witnesses import read_witnesses

if TYPE_CHECKING:
    import pyarrow as pa

Words = Callable[[Finding], tuple[str, str | None]]


def read_scan(
    task: str, query: FactQuery, words: Words, storage_options: tuple[tuple[str, str], ...] = ()
) -> "Iterator[pa.RecordBatch]":
    """Rows of the task of a fact that takes a scan, in the columns of the query, as `fact_splits_read.read_task` gives others.

    Every copy of what is asked for is read, those of other brokers too. Raises UsageError for paths that make no sense, and
    SourceError if anything could not be read, once all rows were given.
    """
    import pyarrow as pa

    assert query.fact in FROM_SCANS
    told = json.loads(task)
    options = options_of(query, storage_options)
    inputs = gather(told["scan"], options, elsewhere=True)
    if query.fact != INCOMPLETE:
        require_readable(inputs)
    if not told.get("checked"):  # what is asked for may be in other snapshots
        require_brokers(inputs, query)
    keep_wanted(inputs, query)
    use_compiled(worth_compiling(sum(replica_plan.bytes for replica_plan in [*inputs.replicas, *inputs.internal])))
    incomplete: list[Incomplete] = []
    fields: list[Any] = [FACTS[query.fact].schema.field(name) for name in query.columns]
    wanted = (projected(wanted_rows(batch, query), query) for batch in _batches(inputs, query, options, words, incomplete))
    for table in cut(wanted, pa.schema(fields)):
        yield from table.to_batches()
    for one in [] if query.fact == INCOMPLETE else [*incomplete, *inputs.incomplete]:
        raise SourceError(one.path, one.reason)


def _batches(
    inputs: Inputs, query: FactQuery, options: ScanOptions, words: Words, incomplete: list[Incomplete]
) -> "Iterator[pa.RecordBatch]":
    witnesses = read_witnesses(inputs)
    if query.fact == "metadata_history":
        yield from metadata_facts(witnesses, options)
        return
    if query.fact == "group_offsets":
        yield from group_facts(witnesses, options, payloads=query.payloads)
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
    inputs.aside = {where: found for where, found in inputs.aside.items() if query.wants(*where)}


def wanted_rows(batch: "pa.RecordBatch", query: FactQuery) -> "pa.RecordBatch":
    """Rows of the topics, partitions and brokers that are asked for."""
    import pyarrow as pa

    of_brokers = "broker" in batch.schema.names

    @cache
    def wants(topic: str | None, partition: int | None, broker: str | None) -> bool:
        return query.wants(topic, partition) and (not of_brokers or query.wants_broker(broker))

    if not (query.topics or query.partitions or query.brokers):
        return batch
    columns: list[Any] = [batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
                          for name in ("topic", "partition", "broker")]  # fmt: skip
    return batch.filter(pa.array([wants(*row) for row in zip(*columns, strict=True)], pa.bool_()))
