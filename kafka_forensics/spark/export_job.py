"""The export as Spark jobs: the scan, then tasks that read facts and write files to a target that all workers see.

An attempt reports its files when its task is done; Spark returns the report of one attempt of each task. The driver renames these
files, removes all others, and writes the manifest and `_SUCCESS` last: datasets do not depend on attempts.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kafka_forensics.errors import ForensicsError, TransientError, UsageError, is_transient
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.evidence.outputs import Output, check_outputs
from kafka_forensics.export.datasets import Dataset, ExportOrder, export_facts
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.opening import SnapshotOptions, open_export
from kafka_forensics.export.places import absolute_place
from kafka_forensics.export.tasks import (
    BY_TASKS,
    ExportArguments,
    Task,
    adopt_files,
    export_arguments,
    known_transactions,
    target_problem,
    tasks,
    write_task,
)
from kafka_forensics.export.views import finding_text
from kafka_forensics.model.findings import without_payloads
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS, fact_named
from kafka_forensics.scanning.witnesses.remote_chains import take_remote_logs
from kafka_forensics.spark.job import probe, scan_probed
from kafka_forensics.spark.keys import Batches, batch_of, has_attempts_left, max_attempts, small_table
from kafka_forensics.spark.sessions import core_count
from kafka_forensics.spark.watching import collected
from kafka_forensics.storage.remote import variables_here, with_missing_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK_SCHEMA: Final = "number bigint, fact string, work binary"
ANSWER_SCHEMA: Final = "number bigint, line string"
"""A line of a task's report; every report has at least `_DONE`."""
_DONE: Final = ""
_SHARE: Final = "every worker must be able to write there: use shared storage, or a URI like s3://"
_CHECK_TASKS: Final = 8
"""Tasks that check the target before the export begins."""


class Exported(Struct, frozen=True):
    """The result of an export: the dataset of each fact, and the scan's result, which lists what could not be read."""

    datasets: list[Dataset]
    result: ScanResult


def export_on_spark(
    spark: "SparkSession", inputs: Inputs, options: ScanOptions, order: ExportOrder
) -> tuple[FactReader, list[Dataset]]:
    """Scan the inputs, and write the ordered facts; the dataset of each.

    Raises UsageError if the workers cannot run tasks or write to the target.
    """
    opened, target = order.opened, order.opened.target
    probe(spark, inputs, options)
    target.share()
    path = absolute_place(opened.output)
    _check_target(spark, ExportArguments(path, target.token, options.storage_options, opened.label))
    result, witnesses = scan_probed(spark, inputs, options)
    take_remote_logs(inputs, options, witnesses.remote_log)
    reader = FactReader(inputs, options, result, witnesses, finding_text, order.payloads)
    if not order.payloads:
        result.findings = [without_payloads(finding) for finding in result.findings]
    work_bytes = sum(plan.bytes for plan in inputs.logs)
    listed = tasks(reader, order.names, order.split_bytes, core_count(spark))
    arguments = export_arguments(reader, target.token, path, opened.label, work_bytes=work_bytes)
    written, incomplete = adopt_files(_reports(spark, arguments, reader, listed), target, opened.label)
    reader.incomplete += incomplete
    target.clear()
    for name in order.names:
        if name in BY_TASKS:
            written.setdefault(name, [])
    datasets = export_facts(reader, order, written)
    result.incomplete = reader.unread_inputs()
    return reader, datasets


def export_paths(
    spark: "SparkSession",
    paths: list[str],
    output: str,
    facts: Sequence[str] | None,
    options: ScanOptions,
    snapshot: SnapshotOptions,
    **how: Any,
) -> Exported:
    """`spark.export`; `how` are further fields of `ExportOrder`."""
    requested = {fact_named(name).name for name in facts or FACTS}
    check_outputs([Output(output, "output", "any")], paths)
    paths, options = without_secrets(paths, options)
    inputs = gather(paths, options, ids_later=True)
    with open_export(output, options.storage_options, snapshot, inputs) as opened:
        names = [name for name in FACTS if name in requested]
        order = ExportOrder(opened, names, **how)
        reader, datasets = export_on_spark(spark, inputs, options, order)
    return Exported(datasets, reader.result)


def _check_target(spark: "SparkSession", arguments: ExportArguments) -> None:
    """Let some workers try to write. Raises UsageError if one cannot."""
    checks = small_table(spark, {"number": list(range(_CHECK_TASKS))}, "number bigint").repartitionByRange(_CHECK_TASKS, "number")
    check = partial(_target_problems, arguments.to_json(), variables_here())
    problems = collected(checks.mapInArrow(check, "problem string"), "check the target")
    _require_none(problems.column("problem").to_pylist())


def _require_none(problems: "Sequence[str | None]") -> None:
    for problem in problems:
        if problem is not None and is_transient(problem):
            raise TransientError(f"a worker of Spark: {problem}")
        raise UsageError(f"a worker of Spark: {problem}", hint=None if "://" in str(problem) else _SHARE)


def _target_problems(arguments: str, variables: tuple[str, ...], batches: Batches) -> Batches:
    """On a worker: why it cannot write to the target, if it cannot; `variables` are the driver's."""
    for batch in batches:
        problem = target_problem(arguments) if batch.num_rows else None
        if problem is not None:
            problem = with_missing_variables(problem, variables)
        yield batch_of("problem string", {"problem": [] if problem is None else [problem]})


def _reports(
    spark: "SparkSession", arguments: ExportArguments, reader: FactReader, listed: list[Task]
) -> Iterator[tuple[Task, list[str]]]:
    """The report of each task. Raises UsageError if one could not write."""
    if not listed:
        return
    known = known_transactions(reader) if any(task.fact == "transactions" for task in listed) else b""
    columns: dict[str, Sequence[object]] = {
        "number": list(range(len(listed))),
        "fact": [task.fact for task in listed],
        "work": [task.work for task in listed],
    }
    answers = (
        small_table(spark, columns, WORK_SCHEMA)
        .repartitionByRange(len(listed), "number")
        .mapInArrow(partial(_write, arguments.to_json(), known, max_attempts(spark)), ANSWER_SCHEMA)
    )
    lines_of: list[list[str]] = [[] for _ in listed]
    for row in collected(answers, "write facts").to_pylist():
        lines_of[row["number"]].append(row["line"])
    for task, lines in zip(listed, lines_of, strict=True):
        if lines.count(_DONE) != 1:
            raise ForensicsError("Spark did not give every task's answer once")
        report = [line for line in lines if line]
        _require_none([problem for line in report if (problem := json.loads(line).get("problem")) is not None])
        yield task, report


def _write(arguments: str, known: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: write the facts of each task, and report the files."""
    strict = has_attempts_left(attempts)
    for batch in batches:
        for number, fact, work in zip(*(batch.column(name).to_pylist() for name in ("number", "fact", "work")), strict=True):
            lines = [*_report(arguments, known, Task(fact, work), strict=strict), _DONE]
            yield batch_of(ANSWER_SCHEMA, {"number": [number] * len(lines), "line": lines})


def _report(arguments: str, known: bytes, task: Task, *, strict: bool) -> Iterator[str]:
    """The lines of a task. If it cannot write, the last attempt reports this, and earlier ones fail."""
    try:
        yield from write_task(arguments, known, task, strict=strict)
    except (UsageError, TransientError) as error:
        if strict:
            raise
        yield json.dumps({"problem": str(error)})
