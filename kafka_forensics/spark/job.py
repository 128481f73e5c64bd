"""The scan as a Spark job: Spark runs the tasks of `engine.tasks`, with the result of the local engine.

One stage folds and judges partitions with small logs, many in a task. All others take two stages: each task of the first folds some
parts of logs to states of some kilobytes; these are shuffled to their slice, sorted, and judged by the tasks of the second stage,
which read logs again only where replicas differ. The driver lists files, reads checkpoints, and collects the answers. Only
DataFrames are used, for Spark Connect.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics import json_document, lanes_of
from kafka_forensics.errors import ForensicsError, TransientError, UsageError, is_transient
from kafka_forensics.evidence.inputs import METADATA, Inputs, gather, typed_path
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.facts.listings import listing_of
from kafka_forensics.export.views import ScanViews, finding_text
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.model.schemas import fact_named
from kafka_forensics.questions.changes import (
    REPLICAS_A_SNAPSHOT,
    ChangeAnswer,
    ChangesCommon,
    ChangeSlice,
    ComparedSnapshots,
    Snapshot,
    SnapshotTopics,
    change_slices,
    finished,
    judge_changes,
    judge_whole_changes,
    snapshot_log_dirs,
)
from kafka_forensics.scanning.engine.garbage import gc_less_often
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import (
    PartitionSlice,
    SliceAnswer,
    StretchRow,
    TaskArguments,
    WitnessAnswer,
    merge_notes,
    shared_inputs,
    slices,
    trimmed_plans,
)
from kafka_forensics.scanning.engine.tasks import fold, judge, judge_small_slices, parse_topic_ids, read_witness_logs
from kafka_forensics.scanning.engine.work_plan import SMALL_BYTES, fold_works, is_small, small_slice_works
from kafka_forensics.scanning.judging.whole_scan import Scan, ScanInterruptedError, digest_key
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from kafka_forensics.spark import keys
from kafka_forensics.spark.data_source import parse_options
from kafka_forensics.spark.keys import (
    Batches,
    arrow_schema,
    batch_of,
    cached,
    has_attempts_left,
    max_attempts,
    small_table,
    works_of,
    works_table,
)
from kafka_forensics.spark.sessions import core_count, require_server_of_client
from kafka_forensics.spark.watching import collected
from kafka_forensics.storage.open import address_of, open_address
from kafka_forensics.storage.remote import variables_here, with_missing_variables
from kafka_forensics.storage.source import UnopenedSource
from kafka_forensics.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kafka_forensics.model.changes import Change
    from kafka_forensics.model.findings import Finding
    from kafka_forensics.scanning.folding.keys import KeyAnswer


Task = Callable[[Batches], Batches]

ROW_SCHEMA: Final = "slice bigint, replica int, segment bigint, start bigint, packed binary"
"""A state of a log (`StretchRow`), or with replica -1 the slice itself."""
ANSWER_SCHEMA: Final = "slice bigint, packed binary"
_TOPIC_ID_SCHEMA: Final = "number bigint, topic_id string, damaged boolean, reason string"
_OTHER_VERSION: Final = "Spark's workers have kafka-forensics"
_INSTALL: Final = "install the same kafka-forensics for the interpreter of the workers (PYSPARK_PYTHON)"
_SHARE: Final = "every worker must be able to read the paths: use shared storage, or a URI like s3://"
_ROWS_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 4 << 20
MIN_WORK_BYTES: Final = 256 << 20
"""Of a task that decodes records, and of any task of a small scan."""
MAX_WORK_BYTES: Final = 1 << 30
"""Of a task that does not decode: it takes less than a second, to which starting it and reading an index adds much."""
TARGET_WORKS: Final = 64
MAX_WORKS: Final = 100_000
"""Of a scan, as many as Spark's scheduler can handle."""
TOPIC_IDS_PER_TASK: Final = 1024
"""Each is a small file that costs a request."""
SMALL_SLICES_WORK_BYTES: Final = 256 << 20
"""Of a task that also judges: judging its partitions costs as much as reading this, an eighth of a second."""


class TaskSizes(Struct, frozen=True):
    """How a scan is divided; the result does not depend on it."""

    split_bytes: int = 256 << 20
    """Bytes of a part of a segment."""
    work_bytes: int | None = None
    """Bytes of parts that one task folds; None: depends on the size of the scan."""
    slices_a_task: int = 32
    """Partitions that one task judges, where there are many."""
    deferred_keys_bytes: int = 512 << 20
    """Many tasks compare the keys of a compacted partition from this number of bytes of logs on, if its replicas differ."""
    small_bytes: int = SMALL_BYTES
    """A partition with at most this number of bytes of logs is folded where it is judged; -1: none is."""


DEFAULT_SIZES: Final = TaskSizes()


def scan_inputs(
    spark: "SparkSession", inputs: Inputs, options: ScanOptions, sizes: TaskSizes = DEFAULT_SIZES
) -> tuple[ScanResult, Witnesses]:
    """Scan inputs that Spark's workers read: the result, and what the internal topics say.

    Raises UsageError if the workers cannot run tasks. The driver holds a few kilobytes for each segment and partition, never logs.
    """
    probe(spark, inputs, options)
    return scan_probed(spark, inputs, options, sizes)


def scan_probed(
    spark: "SparkSession", inputs: Inputs, options: ScanOptions, sizes: TaskSizes = DEFAULT_SIZES
) -> tuple[ScanResult, Witnesses]:
    """`scan_inputs` after a `probe` of the workers."""
    total = sum(plan.bytes for plan in [*inputs.replicas, *inputs.internal])
    common = TaskArguments(
        options, digest_key(), total, sizes.split_bytes, shared_inputs(inputs), deferred_keys_bytes=sizes.deferred_keys_bytes
    )
    read_topic_ids(spark, inputs, common)
    running, witnesses = _begin_scan(spark, inputs, common)
    parts = list(slices(inputs))
    try:
        for answer in _answers(spark, inputs, parts, common, sizes) if parts else ():
            _add_answer(running, answer)
    except KeyboardInterrupt as interruption:
        raise ScanInterruptedError(running.partial_result()) from interruption
    return running.finish(), witnesses


def _begin_scan(
    spark: "SparkSession", inputs: Inputs, common: TaskArguments, *, reads_stores: bool = True
) -> tuple[Scan, Witnesses]:
    """A scan with what the internal topics say; `common` then has what judging needs."""
    witnesses = witnesses_of(spark, inputs, common)
    running = Scan("spark", inputs, common.options, witnesses, reads_stores=reads_stores)
    common.deep, common.shared = running.deep, shared_inputs(inputs)
    return running, witnesses


def _add_answer(running: Scan, answer: SliceAnswer) -> None:
    merge_notes(running.inputs, answer.task_notes)
    running.incomplete += answer.incomplete
    running.findings += answer.leftover_findings
    if answer.answer is not None:
        running.take(answer.answer)


def read_topic_ids(spark: "SparkSession", inputs: Inputs, common: TaskArguments) -> None:
    """Read the topic ids that `gather` left out, each from a file, many by one task."""
    plans, inputs.without_ids = inputs.without_ids, []
    if not plans:
        return
    numbers = {id(source): number for number, source in enumerate(inputs.sources)}
    entries = [plan.directory.entries[METADATA] for plan in plans]
    columns: dict[str, Sequence[object]] = {
        "number": range(len(plans)),
        "source": [numbers[id(plan.log_dir.source)] for plan in plans],
        "path": [entry.path for entry in entries],
        "size": [entry.size_in_bytes for entry in entries],
    }
    files = small_table(spark, columns, "number bigint, source bigint, path string, size bigint")
    spread = files.repartitionByRange(-(-len(plans) // TOPIC_IDS_PER_TASK), "number")
    rows = spread.mapInArrow(partial(_topic_ids, pack(common), max_attempts(spark)), _TOPIC_ID_SCHEMA)
    for row in collected(rows, "read topic ids").to_pylist():
        plan = plans[row["number"]]
        plan.context.topic_id, plan.context.has_damaged_topic_id = row["topic_id"], row["damaged"]
        if row["reason"] is not None:
            path = typed_path(plan.log_dir.source, plan.directory.entries[METADATA].path)
            inputs.incomplete.append(Incomplete(path, row["reason"]))


def witnesses_of(spark: "SparkSession", inputs: Inputs, common: TaskArguments) -> Witnesses:
    """What the internal topics say, read by one task."""
    plans = trimmed_plans(inputs.internal)
    if not plans and len({log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None}) < 2:
        return Witnesses()
    request = small_table(spark, {"packed": [pack(plans)]}, "packed binary")
    rows = request.mapInArrow(partial(_witness_logs, pack(common), max_attempts(spark)), "packed binary")
    answer: WitnessAnswer = unpacked(inputs, collected(rows, "read internal topics").column("packed")[0])
    merge_notes(inputs, answer.task_notes)
    inputs.controller, inputs.remote_log = answer.witnesses.controller, answer.witnesses.remote_log
    return answer.witnesses


def _answers(
    spark: "SparkSession", inputs: Inputs, parts: list[PartitionSlice], common: TaskArguments, sizes: TaskSizes
) -> Iterator[SliceAnswer]:
    """The answers about all slices, in their order."""
    packed = pack(common)
    functions = _SliceFunctions(partial(judge, packed), partial(judge_small_slices, packed), packed)

    def states(numbers: Sequence[int]) -> "tuple[DataFrame, int]":
        return fold_states(spark, packed, [(number, parts[number]) for number in numbers], sizes, deep=common.deep)

    yield from judged_slices(spark, parts, states, functions, inputs, sizes)


class _SliceFunctions(Struct, frozen=True):
    """What workers do with slices: judge one with the states of its logs, or fold and judge several small ones.

    `common` is the packed `TaskArguments` for reading keys.
    """

    judge: Callable[..., bytes]
    judge_small_slices: Callable[..., Iterator[tuple[int, bytes]]]
    common: bytes


def judged_slices(
    spark: "SparkSession",
    parts: "Sequence[PartitionSlice | ChangeSlice]",
    states_of_numbers: "Callable[[Sequence[int]], tuple[DataFrame, int]]",
    functions: _SliceFunctions,
    inputs: Inputs,
    sizes: TaskSizes,
) -> Iterator[Any]:
    """The answers about all slices, in their order; slices with questions about keys are judged again with the answers to these.

    `states_of_numbers` folds the logs of some slices: (states, number of works).
    """
    may_ask = [number for number, part in enumerate(parts) if _may_have_key_questions(part, sizes)]
    small = {number for number, part in enumerate(parts) if is_small(part.replicas, sizes.small_bytes)}.difference(may_ask)
    others = [number for number in range(len(parts)) if number not in small]
    attempts = max_attempts(spark)
    judge_task = partial(_judge, functions.judge, attempts)
    tables = []
    with ExitStack() as caches:
        if small:
            works = small_slice_works(
                [(number, parts[number]) for number in sorted(small)], SMALL_SLICES_WORK_BYTES, MAX_WORKS, core_count(spark)
            )
            judge_small = partial(_judge_whole, functions.judge_small_slices, attempts)
            tables.append(works_table(spark, [pack(work) for work in works]).mapInArrow(judge_small, ANSWER_SCHEMA))
        if others:
            states, works_count = states_of_numbers(others)
            states = caches.enter_context(cached(states)) if may_ask else states
            tasks = max(1, min(len(others), max(-(-len(others) // sizes.slices_a_task), works_count)))
            slice_table = slice_rows(spark, others, [pack(parts[number]) for number in others])
            tables.append(judge_with_states(slice_table, states, tasks, judge_task))
        all_answers = tables[0] if len(tables) == 1 else tables[0].unionByName(tables[1])
        packed = list(in_order(all_answers, range(len(parts))))
        answers = {number: unpacked(inputs, packed[number]) for number in may_ask}
        if waiting := [number for number in may_ask if answers[number].questions]:
            questions = [(number, question) for number in waiting for question in answers[number].questions]
            with_plans = [(parts[number].replicas, question) for number, question in questions]
            key_answers = keys.answer_key_questions(spark, functions.common, with_plans, sizes.work_bytes or MIN_WORK_BYTES)
            answers_for: dict[int, list[KeyAnswer]] = {number: [] for number in waiting}
            for (number, _), key_answer in zip(questions, key_answers, strict=True):
                answers_for[number].append(key_answer)
            slice_table = slice_rows(spark, waiting, [pack(replace(parts[number], keys=answers_for[number])) for number in waiting])
            of_waiting = states.filter(states["slice"].isin(waiting))
            again = in_order(judge_with_states(slice_table, of_waiting, len(waiting), judge_task), waiting)
            answers |= {number: unpacked(inputs, answer) for number, answer in zip(waiting, again, strict=True)}
    for number, packed_answer in enumerate(packed):
        yield answers[number] if number in answers else unpacked(inputs, packed_answer)


def _may_have_key_questions(part: "PartitionSlice | ChangeSlice", sizes: TaskSizes) -> bool:
    """Whether judging the slice may ask questions about keys (`DeferredKeys`)."""
    plans = part.replicas
    compacted = any(plan.context.compacted for plan in plans)
    return compacted and len(plans) > 1 and sum(plan.bytes for plan in plans) >= sizes.deferred_keys_bytes


def fold_states(
    spark: "SparkSession", common: bytes, parts: Sequence[tuple[int, PartitionSlice]], sizes: TaskSizes, *, deep: bool
) -> "tuple[DataFrame, int]":
    """Rows with the states of all logs of numbered slices, and the number of works; `common` is the packed `TaskArguments`."""
    total = sum(plan.bytes for _, part in parts for plan in part.replicas)
    least = MIN_WORK_BYTES if deep else min(max(total // TARGET_WORKS, MIN_WORK_BYTES), MAX_WORK_BYTES)
    work_bytes = sizes.work_bytes or max(least, total // MAX_WORKS)
    works = [pack(work) for work in fold_works(parts, sizes.split_bytes, work_bytes)]
    return works_table(spark, works).mapInArrow(partial(fold_on_worker, common, max_attempts(spark)), ROW_SCHEMA), len(works)


def slice_rows(spark: "SparkSession", numbers: Collection[int], packed: Iterable[bytes]) -> "DataFrame":
    """Rows with the slices themselves."""
    none = dict.fromkeys(("replica", "segment", "start"), [-1] * len(numbers))
    return small_table(spark, {"slice": list(numbers), **none, "packed": list(packed)}, ROW_SCHEMA)


def judge_with_states(slice_table: "DataFrame", states: "DataFrame", tasks: int, judge_task: Task) -> "DataFrame":
    """The answers about slices from their states, as `ANSWER_SCHEMA`."""
    rows = slice_table.unionByName(states).repartition(tasks, "slice")
    return rows.sortWithinPartitions("slice", "replica", "segment", "start").mapInArrow(judge_task, ANSWER_SCHEMA)


def in_order(answers: "DataFrame", numbers: Sequence[int]) -> "Iterator[pa.BinaryScalar]":
    """The packed answers about the slices with these ascending numbers, in their order."""
    ordered = collected(answers, "fold logs and judge partitions").sort_by("slice")
    if ordered.column("slice").to_pylist() != list(numbers):
        raise ForensicsError("Spark did not give every partition's answer once")
    yield from ordered.column("packed")


def unpacked(inputs: Inputs, packed: "pa.BinaryScalar") -> Any:
    """A value from a worker; its sources are those of the inputs."""
    by_name = {source.name: source for source in inputs.sources}
    return unpack(packed.as_py(), lambda name, _: by_name[name])


def _topic_ids(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: read topic ids."""
    strict = has_attempts_left(attempts)
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("source", "path", "size")]
        rows = list(parse_topic_ids(common, zip(*columns, strict=True), strict=strict))
        ids, damaged, reasons = ([row[column] for row in rows] for column in range(3))
        numbers = batch.column("number").to_pylist()
        yield batch_of(_TOPIC_ID_SCHEMA, {"number": numbers, "topic_id": ids, "damaged": damaged, "reason": reasons})


def _witness_logs(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: read the internal topics."""
    strict = has_attempts_left(attempts)
    for work in works_of(batches):
        yield batch_of("packed binary", {"packed": [read_witness_logs(common, work, strict=strict)]})


def fold_on_worker(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: fold parts of logs to states."""
    strict = has_attempts_left(attempts)
    with gc_less_often():
        for work in works_of(batches):
            yield from _rows_as_batches(fold(common, work, strict=strict))


def _rows_as_batches(rows: Iterator[StretchRow]) -> Batches:
    pending: list[StretchRow] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row.packed)
        if len(pending) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield _as_batch(pending)
            pending, size = [], 0
    if pending:
        yield _as_batch(pending)


def _as_batch(rows: list[StretchRow]) -> "pa.RecordBatch":
    return batch_of(ROW_SCHEMA, {name: [getattr(row, name) for row in rows] for name in arrow_schema(ROW_SCHEMA).names})


def state_rows(batches: Batches) -> Iterator[StretchRow]:
    """The rows of these batches."""
    for batch in batches:
        for row in zip(*(batch.column(name) for name in arrow_schema(ROW_SCHEMA).names), strict=True):
            yield StretchRow(*(value.as_py() for value in row))


def _judge(judge_slice: Callable[..., bytes], attempts: int, batches: Batches) -> Batches:
    """On a worker: judge each slice from sorted rows, the slice itself before its states."""
    strict = has_attempts_left(attempts)
    with gc_less_often():
        for number, rows in groupby(state_rows(batches), key=lambda row: row.slice):
            yield batch_of(ANSWER_SCHEMA, {"slice": [number], "packed": [judge_slice(rows, strict=strict)]})


def _judge_whole(judge_slices: Callable[..., Iterator[tuple[int, bytes]]], attempts: int, batches: Batches) -> Batches:
    """On a worker: fold and judge small slices."""
    strict = has_attempts_left(attempts)
    with gc_less_often():
        for work in works_of(batches):
            for number, packed in judge_slices(work, strict=strict):
                yield batch_of(ANSWER_SCHEMA, {"slice": [number], "packed": [packed]})


def probe(spark: "SparkSession", inputs: Inputs, options: ScanOptions) -> None:
    """Check by one task whether workers can run tasks. Raises UsageError that says what they lack."""
    require_server_of_client(spark)
    sources = [source for source in inputs.sources if not isinstance(source, UnopenedSource)]
    columns = {"name": [source.name for source in sources], "place": [address_of(source) for source in sources]}
    places = small_table(spark, columns, "name string, place string").coalesce(1)
    checks = places.mapInArrow(partial(_first_problem, __version__, pack(options), variables_here()), "problem string")
    problems = collected(checks, "check the workers")
    for problem in map(str, problems.column("problem").to_pylist()):
        if is_transient(problem):
            raise TransientError(problem)
        raise UsageError(problem, hint=_INSTALL if problem.startswith(_OTHER_VERSION) else None if "://" in problem else _SHARE)


def _first_problem(version: str, options: bytes, variables: tuple[str, ...], batches: Batches) -> Batches:
    """On a worker: the first problem, which is another version or a path that it cannot read; `variables` are the driver's."""
    problems = [] if version == __version__ else [f"{_OTHER_VERSION} {__version__}, and this is {version}"]
    scan_options: ScanOptions | None = None if problems else unpack(options)
    for batch in batches:
        for name, place in zip(batch.column("name"), batch.column("place"), strict=True):
            if scan_options is None:
                break
            try:
                open_address(str(place), scan_options.storage_options).stat("")
            except ForensicsError as error:
                problems.append(f"a worker of Spark cannot read {name}: {with_missing_variables(str(error), variables)}")
    yield batch_of("problem string", {"problem": problems[:1]})


def compare_inputs(
    spark: "SparkSession", gathered: "Mapping[str, Inputs]", options: ScanOptions, sizes: TaskSizes = DEFAULT_SIZES
) -> ComparedSnapshots:
    """Scan every snapshot, which Spark's workers read, and compare each with the next: the result of the local engine.

    A slice is a partition in all snapshots, folded once, judged and compared by one task. Raises UsageError if the workers cannot
    run tasks. The driver holds as much as for a scan of each snapshot.
    """
    everything = Inputs(sources=[source for inputs in gathered.values() for source in inputs.sources])
    probe(spark, everything, options)
    key = digest_key()
    work_bytes = max(
        sum(plan.bytes for plan in plans) for inputs in gathered.values() for plans in (inputs.replicas, inputs.internal)
    )
    snapshots: list[Snapshot] = []
    scans: list[TaskArguments] = []
    for name, inputs in gathered.items():
        common = TaskArguments(
            options, key, work_bytes, sizes.split_bytes, shared_inputs(inputs), deferred_keys_bytes=sizes.deferred_keys_bytes
        )
        running, witnesses = _begin_scan(spark, inputs, common, reads_stores=False)
        scans.append(common)
        snapshots.append(
            Snapshot(name, inputs, witnesses, running, snapshot_log_dirs(name, inputs, options), SnapshotTopics(inputs))
        )
    parts = list(change_slices([snapshot.inputs for snapshot in snapshots], [snapshot.topics for snapshot in snapshots]))
    changes_common = ChangesCommon(scans, [snapshot.log_dirs for snapshot in snapshots])
    changes: list[Change] = []
    findings: list[Finding] = []
    incomplete: list[Incomplete] = []
    for answer in _changes_answers(spark, everything, parts, changes_common, sizes) if parts else ():
        for slice_answer, snapshot in zip(answer.answers, snapshots, strict=True):
            if slice_answer is not None:
                _add_answer(snapshot.running, slice_answer)
        changes += answer.compared.changes
        findings += answer.compared.findings
        incomplete += answer.compared.incomplete
    results = {snapshot.name: snapshot.running.finish() for snapshot in snapshots}
    return ComparedSnapshots(finished(results, changes, findings, incomplete, gathered), snapshots)


def _changes_answers(
    spark: "SparkSession", everything: Inputs, parts: list[ChangeSlice], common: ChangesCommon, sizes: TaskSizes
) -> "Iterator[ChangeAnswer]":
    """The answers about all partitions, in their order."""
    from pyspark.sql.functions import col, lit

    def states(numbers: Sequence[int]) -> "tuple[DataFrame, int]":
        tables: list[DataFrame] = []
        works = 0
        for snapshot, scan_common in enumerate(common.scans):
            of_snapshot = [(number, parts[number].parts[snapshot]) for number in numbers]
            folded_states, count = fold_states(spark, pack(scan_common), of_snapshot, sizes, deep=scan_common.deep)
            numbered = (col("replica") + lit(snapshot * REPLICAS_A_SNAPSHOT)).cast("int")
            tables.append(folded_states.withColumn("replica", numbered))
            works += count
        return reduce(lambda left, right: left.unionByName(right), tables), works

    for_keys = pack(replace(common.scans[0], shared=shared_inputs(everything)))
    packed = pack(common)
    functions = _SliceFunctions(partial(judge_changes, packed), partial(judge_whole_changes, packed), for_keys)
    yield from judged_slices(spark, parts, states, functions, everything, sizes)


_IN_RESULT: Final = ("findings", "replicas", "checkpoints")
"""Facts that the result holds; Spark reads all others."""


@dataclass(slots=True, repr=False)
class SparkScanResult(ScanResult):
    """A `ScanResult` that also gives DataFrames of the session it was made with."""

    spark: "SparkSession | None" = field(default=None, repr=False, compare=False)
    options: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Options of the data source `kafka_log` equal to those of the scan; may hold secrets."""
    paths: list[str] = field(default_factory=list)

    inputs: Inputs | None = field(default=None, repr=False, compare=False)
    """What the scan listed."""

    def dataframe(self, fact: str, *, payloads: bool = False, allow_incomplete: bool = False) -> "DataFrame":
        """A fact (docs/facts.md) of everything that was scanned: those of `_IN_RESULT` from this result, others read by Spark.

        Without `payloads`, keys, values and headers of records are null. If its files were changed, added or removed since the
        scan, the read fails with IncompleteError, unless `allow_incomplete`. Raises UsageError for an unknown fact.
        """
        name = fact_named(fact).name
        assert self.spark is not None
        assert self.inputs is not None
        if name in _IN_RESULT:
            return self.spark.createDataFrame(self.facts(name, payloads=payloads, allow_incomplete=allow_incomplete))
        options = self.options | {"fact": name, "payloads": str(payloads).lower()}
        if not allow_incomplete:
            query = parse_options(options | {"paths": json.dumps(self.paths)}).query
            options["scanned"] = listing_of(self.inputs, query)
        return self.spark.read.format("kafka_log").options(**options).load(self.paths)


def scan_on_spark(spark: "SparkSession", paths: list[str], options: ScanOptions, inputs: Inputs | None = None) -> SparkScanResult:
    """The scan of these paths, with their `inputs` if they are gathered already.

    Raises UsageError for invalid paths, and if the workers cannot run tasks.
    """
    paths, options = without_secrets(paths, options)
    with gc_less_often():
        inputs = gather(paths, options, ids_later=True, scanned=True) if inputs is None else inputs
        plain, witnesses = scan_inputs(spark, inputs, options)
    optional = {
        "topics": options.topic_glob,
        "partitions": None if options.partition is None else str(options.partition),
        "brokers": options.broker,
        "deep": str(plain.totals.records_decoded).lower(),  # None may have been given
        "live": "true" if options.live else None,
        "copied": None if options.copied is None else options.copied.value,
        "as_of": None if options.as_of_ms is None else f"{options.as_of_ms:09d}",  # eight digits would be a date
    }
    source_options = {name: value for name, value in optional.items() if value is not None}
    source_options |= {f"storage.{name}": value for name, value in options.storage_options}
    result = SparkScanResult(plain.engine, plain.brokers, plain.partitions, plain.findings, plain.totals, plain.incomplete)
    result.incidents, result.rerun_arguments, result.final_partitions = (
        plain.incidents,
        plain.rerun_arguments,
        plain.final_partitions,
    )
    result.remote = plain.remote
    result.spark, result.options, result.paths, result.inputs = spark, source_options, paths, inputs
    result.views = ScanViews(FactReader(inputs, options, result, witnesses, finding_text), json_document, lanes_of)
    return result
