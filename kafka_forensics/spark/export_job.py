"""The export as Spark jobs: the scan, then tasks that read facts and write their files themselves where all of them see the target.

What an attempt has written it tells only when its task is done; Spark gives one attempt of each task. The driver gives these files
their names, takes away whatever else was written, and puts manifest and seal last, so that datasets do not depend on attempts.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.errors import ForensicsError, TransientError, UsageError, is_transient
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.evidence.outputs import Output, check_outputs
from kafka_forensics.export.datasets import Dataset, ExportOrder, export_facts
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.places import absolute, opened_place
from kafka_forensics.export.tasks import BY_TASKS, ExportCommon, Task, common, known_transactions, look, tasks, told, write_task
from kafka_forensics.export.views import words
from kafka_forensics.model.findings import without_payloads
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS, fact_named
from kafka_forensics.spark.job import probe, scan_probed
from kafka_forensics.spark.keys import attempts_of, is_strict, small_table
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.private import private_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Batches = Iterator["pa.RecordBatch"]

WORK_SCHEMA: Final = "number bigint, fact string, work binary"
ANSWER_SCHEMA: Final = "number bigint, line string"
"""A line that a task told; each tells at least that it is done."""
_DONE: Final = ""
_SHARE: Final = "every worker must be able to write there: use shared storage, or a URI like s3://"
_LOOKS: Final = 8
"""Tasks that look at the target before the work begins."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of an export: what was written of each fact, and the scan's answer, which says what could not be read."""

    datasets: list[Dataset]
    result: ScanResult


def exported(spark: "SparkSession", inputs: Inputs, options: ScanOptions, order: ExportOrder) -> tuple[FactReader, list[Dataset]]:
    """Scan what was gathered, and write the facts that are ordered; what was written of each.

    Raises UsageError where workers cannot do the work, and where nothing can be written.
    """
    target = order.target
    probe(spark, inputs, options)
    target.share()
    where = absolute(order.output)
    _look_at_target(spark, ExportCommon(where, target.token, options.storage_options))
    result, witnesses = scan_probed(spark, inputs, options)
    reader = FactReader(inputs, options, result, witnesses, words, order.payloads)
    if not order.payloads:
        result.findings = [without_payloads(finding) for finding in result.findings]
    work_bytes = sum(plan.bytes for plan in inputs.replicas)
    given = tasks(reader, order.names, order.split_bytes)
    shared = common(reader, target.token, where, work_bytes=work_bytes, label=order.label)
    written, gaps = told(_answers(spark, shared, reader, given), target, order.label)
    reader.incomplete += gaps
    target.clear()
    for name in order.names:
        if name in BY_TASKS:
            written.setdefault(name, [])
    datasets = export_facts(reader, order, written)
    result.incomplete = reader.gaps()
    return reader, datasets


def export_paths(
    spark: "SparkSession",
    paths: list[str],
    output: str,
    facts: Sequence[str] | None,
    options: ScanOptions,
    **how: Any,
) -> Exported:
    """See `spark.export`; `how` is the rest of an `ExportOrder`."""
    wanted = {fact_named(name).name for name in facts or FACTS}
    check_outputs([Output(output, "output", "any")], paths)
    with private_files(local_path(output)), opened_place(output, options.storage_options) as target:
        order = ExportOrder(target, [name for name in FACTS if name in wanted], output, **how)
        paths, options = without_secrets(paths, options)
        reader, datasets = exported(spark, gather(paths, options, ids_later=True), options, order)
    return Exported(datasets, reader.result)


def _look_at_target(spark: "SparkSession", shared: ExportCommon) -> None:
    """Let some workers try whether they can write. Raises UsageError."""
    looks = small_table(spark, {"number": list(range(_LOOKS))}, "number bigint").repartitionByRange(_LOOKS, "number")
    _require_none(looks.mapInArrow(partial(_look, shared.packed()), "problem string").toArrow().column("problem").to_pylist())


def _require_none(problems: "Sequence[str | None]") -> None:
    for problem in problems:
        if problem is not None and is_transient(problem):
            raise TransientError(f"a worker of Spark: {problem}")
        raise UsageError(f"a worker of Spark: {problem}", hint=_SHARE)


def _look(shared: str, batches: Batches) -> Batches:
    """On a worker: whether something can be written."""
    import pyarrow as pa

    for batch in batches:
        problem = look(shared) if batch.num_rows else None
        yield pa.record_batch({"problem": pa.array([] if problem is None else [problem], pa.string())})


def _answers(
    spark: "SparkSession", shared: ExportCommon, reader: FactReader, given: list[Task]
) -> Iterator[tuple[Task, list[str]]]:
    """What each task told. Raises UsageError where one could not write."""
    if not given:
        return
    known = known_transactions(reader) if any(task.fact == "transactions" for task in given) else b""
    facts, works = [task.fact for task in given], [task.work for task in given]
    columns: dict[str, Sequence[object]] = {"number": list(range(len(given))), "fact": facts, "work": works}
    answers = (
        small_table(spark, columns, WORK_SCHEMA)
        .repartitionByRange(len(given), "number")
        .mapInArrow(partial(_write, shared.packed(), known, attempts_of(spark)), ANSWER_SCHEMA)
        .toArrow()
    )
    lines: list[list[str]] = [[] for _ in given]
    for row in answers.to_pylist():
        lines[row["number"]].append(row["line"])
    for task, lines_of_task in zip(given, lines, strict=True):
        if lines_of_task.count(_DONE) != 1:
            raise ForensicsError("Spark did not give every task's answer once")
        said = [line for line in lines_of_task if line]
        _require_none([problem for line in said if (problem := json.loads(line).get("problem")) is not None])
        yield task, said


def _write(shared: str, known: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: read facts and write them."""
    import pyarrow as pa

    strict = is_strict(attempts)
    for batch in batches:
        for number, fact, work in zip(*(batch.column(name).to_pylist() for name in ("number", "fact", "work")), strict=True):
            lines = [*_lines(shared, known, Task(fact, work), strict=strict), _DONE]
            yield pa.record_batch({"number": pa.array([number] * len(lines), pa.int64()), "line": pa.array(lines, pa.string())})


def _lines(shared: str, known: bytes, task: Task, *, strict: bool) -> Iterator[str]:
    """What a task tells. Where it cannot write, the last attempt tells so, those before it fail."""
    try:
        yield from write_task(shared, known, task, strict=strict)
    except (UsageError, TransientError) as error:
        if strict:
            raise
        yield json.dumps({"problem": str(error)})
