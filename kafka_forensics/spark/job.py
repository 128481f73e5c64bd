"""The scan as a Spark job: the tasks of `engine.tasks`, carried by Spark, for the answer that the local engine gives.

Partitions of small logs are folded and judged by one stage, many in a task. All others take two: each task of the first folds some
pieces of logs and gives their states, kilobytes each; these are shuffled to the slice they belong to, put in order there, and
judged by the tasks of the second, which read again only what differs. The driver lists files, reads checkpoints, and takes the
answers. DataFrames alone, so it runs on Spark Connect as well.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics import json_document, lanes_of
from kafka_forensics.errors import ForensicsError, TransientError, UsageError, is_transient
from kafka_forensics.evidence.inputs import METADATA, Inputs, gather, typed_path
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.views import ScanViews, words
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
    thin_plans,
)
from kafka_forensics.scanning.engine.tasks import fold, judge, judge_small_slices, parse_topic_ids, read_witness_logs
from kafka_forensics.scanning.engine.work_plan import SMALL_BYTES, fold_works, is_small, small_slice_works
from kafka_forensics.scanning.judging.whole_scan import Scan, ScanInterruptedError, digest_key
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from kafka_forensics.spark.keys import Batches, attempts_of, is_strict, kept, small_table
from kafka_forensics.spark.sessions import require_server_of_client
from kafka_forensics.storage.open import address_of, open_address
from kafka_forensics.storage.source import LostSource
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
"""A stretch's state, or with replica -1 the slice itself."""
ANSWER_SCHEMA: Final = "slice bigint, packed binary"
_OTHER_VERSION: Final = "Spark's workers have kafka-forensics"
_INSTALL: Final = "install the same kafka-forensics for the interpreter of the workers (PYSPARK_PYTHON)"
_SHARE: Final = "every worker must be able to read the paths: use shared storage, or a URI like s3://"
_ROWS_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 4 << 20
LEAST_WORK: Final = 256 << 20
"""Bytes of a task that decodes records, and of any where there is little to read."""
MOST_WORK: Final = 1 << 30
"""Of one that does not: it needs less than a second, so that starting it, and reading an index, is no small part of it."""
WORKS_SOUGHT: Final = 64
MOST_WORKS: Final = 100_000
"""Of a scan, so that Spark's scheduler keeps up."""
IDS_A_TASK: Final = 1024
"""Topic ids that one task reads, of small files that cost requests."""
WHOLE_WORK: Final = 256 << 20
"""Bytes that judging the partitions of a task costs as much as reading, where they are folded in it: an eighth of a second."""


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """How a scan is divided; none of it changes the answer."""

    split_bytes: int = 256 << 20
    """Bytes of one piece of a segment."""
    work_bytes: int | None = None
    """Bytes of pieces that one task folds; None: what suits the size of the whole."""
    slices_a_task: int = 32
    """Partitions that one task judges, where there are many."""
    deferred_keys_bytes: int = 512 << 20
    """From how many bytes of logs on the keys of a compacted partition whose replicas differ are compared by many tasks."""
    small_bytes: int = SMALL_BYTES
    """Up to how many bytes of logs a partition is folded where it is judged; -1: none is."""


USUAL: Final = TaskSizes()


def scan_inputs(
    spark: "SparkSession", inputs: Inputs, options: ScanOptions, sizes: TaskSizes = USUAL
) -> tuple[ScanResult, Witnesses]:
    """Scan what was gathered where Spark's workers read it: the answer, and what the internal topics say.

    Raises UsageError where the workers cannot do it. The scan can be of any size: the driver holds a few kilobytes a segment and a
    partition, never logs.
    """
    probe(spark, inputs, options)
    return scan_probed(spark, inputs, options, sizes)


def scan_probed(
    spark: "SparkSession", inputs: Inputs, options: ScanOptions, sizes: TaskSizes = USUAL
) -> tuple[ScanResult, Witnesses]:
    """`scan_inputs` where workers have been asked already whether they can do the work (`probe`)."""
    total = sum(plan.bytes for plan in [*inputs.replicas, *inputs.internal])
    common = TaskArguments(options, digest_key(), total, sizes.split_bytes, shared_inputs(inputs))
    read_topic_ids(spark, inputs, common)
    witnesses = witnesses_of(spark, inputs, common)
    running = Scan("spark", inputs, options, witnesses)
    common.deep, common.shared = running.deep, shared_inputs(inputs)
    common.deferred_keys_bytes = sizes.deferred_keys_bytes
    parts = list(slices(inputs))
    try:
        for answer in _answers(spark, inputs, parts, common, sizes) if parts else ():
            merge_notes(inputs, answer.task_notes)
            running.incomplete += answer.incomplete
            running.findings += answer.leftover_findings
            if answer.answer is not None:
                running.take(answer.answer)
    except KeyboardInterrupt as interruption:
        raise ScanInterruptedError(running.partial_result()) from interruption
    return running.finish(), witnesses


def read_topic_ids(spark: "SparkSession", inputs: Inputs, common: TaskArguments) -> None:
    """Let replicas have the topic ids that were left to be read (`gather`): a file each, many by a task."""
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
    spread = files.repartitionByRange(-(-len(plans) // IDS_A_TASK), "number")
    schema = "number bigint, topic_id string, damaged boolean, reason string"
    told = spread.mapInArrow(partial(_topic_ids, pack(common), attempts_of(spark)), schema)
    for row in told.toArrow().to_pylist():
        plan = plans[row["number"]]
        plan.context.topic_id, plan.context.has_damaged_topic_id = row["topic_id"], row["damaged"]
        if row["reason"] is not None:
            path = typed_path(plan.log_dir.source, plan.directory.entries[METADATA].path)
            inputs.incomplete.append(Incomplete(path, row["reason"]))


def witnesses_of(spark: "SparkSession", inputs: Inputs, common: TaskArguments) -> Witnesses:
    """What the internal topics say, read by one task."""
    plans = thin_plans(inputs.internal)
    if not plans and len({log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None}) < 2:
        return Witnesses()
    request = small_table(spark, {"packed": [pack(plans)]}, "packed binary")
    rows = request.mapInArrow(partial(_tell, pack(common), attempts_of(spark)), "packed binary")
    answer: WitnessAnswer = unpacked(inputs, rows.toArrow().column("packed")[0])
    merge_notes(inputs, answer.task_notes)
    inputs.controller = answer.witnesses.controller
    return answer.witnesses


def _answers(
    spark: "SparkSession", inputs: Inputs, parts: list[PartitionSlice], common: TaskArguments, sizes: TaskSizes
) -> Iterator[SliceAnswer]:
    """The answers about all slices, in their order."""
    packed = pack(common)
    there = _There(partial(judge, packed), partial(judge_small_slices, packed), packed)

    def states(numbers: Sequence[int]) -> "tuple[DataFrame, int]":
        return states_of(spark, packed, [(number, parts[number]) for number in numbers], sizes, deep=common.deep)

    yield from judged_slices(spark, parts, states, there, inputs, sizes)


@dataclass(frozen=True, slots=True)
class _There:
    """What workers do with slices: judge one by the states of its logs, or fold and judge several. `common` is the packed
    `TaskArguments` with which keys are read."""

    judge: Callable[..., bytes]
    judge_small_slices: Callable[..., Iterator[tuple[int, bytes]]]
    common: bytes


def judged_slices(
    spark: "SparkSession",
    parts: "Sequence[PartitionSlice | ChangeSlice]",
    states_of_numbers: "Callable[[Sequence[int]], tuple[DataFrame, int]]",
    there: _There,
    inputs: Inputs,
    sizes: TaskSizes,
) -> Iterator[Any]:
    """The answers about all slices, in their order; what they ask is answered first.

    `states_of_numbers` gives what the logs of some slices fold to, and how many works that comes of.
    """
    asking = [number for number, part in enumerate(parts) if _may_ask(part, sizes)]
    small = {number for number, part in enumerate(parts) if is_small(part.replicas, sizes.small_bytes)}.difference(asking)
    others = [number for number in range(len(parts)) if number not in small]
    attempts = attempts_of(spark)
    judge_there = partial(_judge, there.judge, attempts)
    tables = []
    with ExitStack() as lasting:
        if small:
            tables.append(_judged_whole(spark, [(number, parts[number]) for number in sorted(small)], there, attempts))
        if others:
            states, works = states_of_numbers(others)
            states = lasting.enter_context(kept(states)) if asking else states
            tasks = max(1, min(len(others), max(-(-len(others) // sizes.slices_a_task), works)))
            heads = heads_of(spark, others, [pack(parts[number]) for number in others])
            tables.append(put_together(heads, states, tasks, judge_there))
        every = tables[0] if len(tables) == 1 else tables[0].unionByName(tables[1])
        packed = list(in_order(every, range(len(parts))))
        answers = {number: unpacked(inputs, packed[number]) for number in asking}
        if waiting := [number for number in asking if answers[number].questions]:
            from kafka_forensics.spark.keys import answered_keys  # few scans pay for it

            questions = [(number, question) for number in waiting for question in answers[number].questions]
            with_plans = [(parts[number].replicas, question) for number, question in questions]
            key_answers = answered_keys(spark, there.common, with_plans, sizes.work_bytes or LEAST_WORK)
            keys: dict[int, list[KeyAnswer]] = {number: [] for number in waiting}
            for (number, _), key_answer in zip(questions, key_answers, strict=True):
                keys[number].append(key_answer)
            heads = heads_of(spark, waiting, [pack(replace(parts[number], keys=keys[number])) for number in waiting])
            of_waiting = states.filter(states["slice"].isin(waiting))
            again = in_order(put_together(heads, of_waiting, len(waiting), judge_there), waiting)
            answers |= {number: unpacked(inputs, answer) for number, answer in zip(waiting, again, strict=True)}
    for number, packed_answer in enumerate(packed):
        yield answers[number] if number in answers else unpacked(inputs, packed_answer)


def _judged_whole(
    spark: "SparkSession", parts: "Iterable[tuple[int, PartitionSlice | ChangeSlice]]", there: _There, attempts: int
) -> "DataFrame":
    """Answers about small slices, as `ANSWER_SCHEMA` says, many of a task."""
    works = [pack(work) for work in small_slice_works(parts, WHOLE_WORK, MOST_WORKS)]
    return _spread(spark, works).mapInArrow(partial(_judge_whole, there.judge_small_slices, attempts), ANSWER_SCHEMA)


def _spread(spark: "SparkSession", works: list[bytes]) -> "DataFrame":
    """Packed works as rows, each for a task of its own."""
    listed = small_table(spark, {"work": list(range(len(works))), "packed": works}, "work bigint, packed binary")
    return listed.repartitionByRange(max(len(works), 1), "work")


def _may_ask(part: "PartitionSlice | ChangeSlice", sizes: TaskSizes) -> bool:
    """Whether judging the slice may ask for keys (`DeferredKeys`)."""
    plans = part.replicas
    compacted = any(plan.context.compacted for plan in plans)
    return compacted and len(plans) > 1 and sum(plan.bytes for plan in plans) >= sizes.deferred_keys_bytes


def states_of(
    spark: "SparkSession", common: bytes, parts: Sequence[tuple[int, PartitionSlice]], sizes: TaskSizes, *, deep: bool
) -> "tuple[DataFrame, int]":
    """Rows of the states of all stretches of numbered slices, and how many works they come of; `common`: packed `TaskArguments`."""
    total = sum(plan.bytes for _, part in parts for plan in part.replicas)
    suitable = max(LEAST_WORK if deep else min(max(total // WORKS_SOUGHT, LEAST_WORK), MOST_WORK), total // MOST_WORKS)
    works = [pack(work) for work in fold_works(parts, sizes.split_bytes, sizes.work_bytes or suitable)]
    return _spread(spark, works).mapInArrow(partial(fold_works_there, common, attempts_of(spark)), ROW_SCHEMA), len(works)


def heads_of(spark: "SparkSession", numbers: Collection[int], packed: Iterable[bytes]) -> "DataFrame":
    """Rows of the slices themselves."""
    none = [-1] * len(numbers)
    columns: dict[str, Sequence[object]] = {
        "slice": list(numbers),
        "replica": none,
        "segment": none,
        "start": none,
        "packed": list(packed),
    }
    return small_table(spark, columns, ROW_SCHEMA)


def put_together(heads: "DataFrame", states: "DataFrame", tasks: int, judge_there: Task) -> "DataFrame":
    """What slices give with their states, as `ANSWER_SCHEMA` says."""
    rows = heads.unionByName(states).repartition(tasks, "slice")
    return rows.sortWithinPartitions("slice", "replica", "segment", "start").mapInArrow(judge_there, ANSWER_SCHEMA)


def in_order(answers: "DataFrame", numbers: Sequence[int]) -> "Iterator[pa.BinaryScalar]":
    """The packed answers about the slices of these ascending numbers, in their order."""
    ordered = answers.toArrow().sort_by("slice")
    if ordered.column("slice").to_pylist() != list(numbers):
        raise ForensicsError("Spark did not give every partition's answer once")
    yield from ordered.column("packed")


def unpacked(inputs: Inputs, packed: "pa.BinaryScalar") -> Any:
    """A value that came back, an Arrow scalar; its sources are those that are open here."""
    by_name = {source.name: source for source in inputs.sources}
    return unpack(packed.as_py(), lambda name, _: by_name[name])


def _topic_ids(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: read topic ids."""
    import pyarrow as pa

    strict = is_strict(attempts)
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("source", "path", "size")]
        told = list(parse_topic_ids(common, zip(*columns, strict=True), strict=strict))
        ids, damaged, reasons = (
            pa.array([row[column] for row in told], of) for column, of in enumerate((pa.string(), pa.bool_(), pa.string()))
        )
        yield pa.record_batch({"number": batch.column("number"), "topic_id": ids, "damaged": damaged, "reason": reasons})


def _tell(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: read the witnesses."""
    import pyarrow as pa

    strict = is_strict(attempts)
    for batch in batches:
        for work in batch.column("packed"):
            yield pa.record_batch({"packed": pa.array([read_witness_logs(common, work.as_py(), strict=strict)], pa.binary())})


def fold_works_there(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: fold."""
    strict = is_strict(attempts)
    with gc_less_often():
        for batch in batches:
            for work in batch.column("packed"):
                yield from _rows_as_batches(fold(common, work.as_py(), strict=strict))


def _rows_as_batches(rows: Iterator[StretchRow]) -> Batches:
    import pyarrow as pa

    kinds = {"slice": pa.int64(), "replica": pa.int32(), "segment": pa.int64(), "start": pa.int64(), "packed": pa.binary()}
    schema = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
    held: list[StretchRow] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.packed)
        if len(held) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield _as_batch(held, schema)
            held, size = [], 0
    if held:
        yield _as_batch(held, schema)


def _as_batch(rows: list[StretchRow], schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    arrays = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _judge(judge_slice: Callable[..., bytes], attempts: int, batches: Batches) -> Batches:
    """On a worker: judge slice after slice, from rows in their order, the slice itself before its states."""
    strict = is_strict(attempts)
    with gc_less_often():
        for number, rows in groupby(stretch_rows(batches), key=lambda row: row.slice):
            yield _answer_batch(number, judge_slice(rows, strict=strict))


def _judge_whole(judge_slices: Callable[..., Iterator[tuple[int, bytes]]], attempts: int, batches: Batches) -> Batches:
    """On a worker: fold and judge the slices of each row."""
    strict = is_strict(attempts)
    with gc_less_often():
        for batch in batches:
            for work in batch.column("packed"):
                for number, packed in judge_slices(work.as_py(), strict=strict):
                    yield _answer_batch(number, packed)


def _answer_batch(number: int, packed: bytes) -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.record_batch({"slice": pa.array([number], pa.int64()), "packed": pa.array([packed], pa.binary())})


def stretch_rows(batches: Batches) -> Iterator[StretchRow]:
    """The rows of these batches."""
    for batch in batches:
        columns = [batch.column(name) for name in ("slice", "replica", "segment", "start", "packed")]
        for row in range(batch.num_rows):
            yield StretchRow(*(column[row].as_py() for column in columns))


def probe(spark: "SparkSession", inputs: Inputs, options: ScanOptions) -> None:
    """Ask one task whether workers can do the work. Raises UsageError that says what is missing there."""
    require_server_of_client(spark)
    there = [source for source in inputs.sources if not isinstance(source, LostSource)]
    columns = {"name": [source.name for source in there], "place": [address_of(source) for source in there]}
    places = small_table(spark, columns, "name string, place string").coalesce(1)
    try:
        problems = places.mapInArrow(partial(_look, __version__, pack(options)), "problem string").toArrow()
    except _failures() as error:
        reason = _reason(str(error))
        if reason is None:
            raise
        raise UsageError(f"Spark's workers {reason}", hint=_INSTALL) from error
    for problem in map(str, problems.column("problem").to_pylist()):
        if is_transient(problem):
            raise TransientError(problem)
        other = problem.startswith(_OTHER_VERSION)
        raise UsageError(problem, hint=_INSTALL if other else _SHARE)


def _failures() -> tuple[type[Exception], ...]:
    """What Spark raises where tasks fail; a client of Connect alone comes without Py4J."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JError


def _reason(text: str) -> str | None:
    """What workers lack, from the text of an exception; None if it tells of something else."""
    if (missing := re.search(r"No module named '([\w.]+)'", text)) is not None:
        return f"have no module {missing[1]}"
    if (program := re.search(r'Cannot run program "([^"\n]+)"', text)) is not None:
        return f"cannot run {program[1]}"
    if (differs := re.search(r"^.*(?:PYTHON_VERSION_MISMATCH|Can't get attribute).*$", text, re.MULTILINE)) is not None:
        return f"cannot do the work: {differs[0].strip()}"
    return None


def _look(version: str, options: bytes, batches: Batches) -> Batches:
    """On a worker: whether it is of our version and sees every path."""
    import pyarrow as pa

    problems = [] if version == __version__ else [f"{_OTHER_VERSION} {__version__}, and this is {version}"]
    known: ScanOptions | None = None if problems else unpack(options)
    for batch in batches:
        for name, place in zip(batch.column("name"), batch.column("place"), strict=True):
            if known is None:
                break
            try:
                open_address(str(place), known.storage_options).stat("")
            except ForensicsError as error:
                problems.append(f"a worker of Spark cannot read {name}: {error}")
    yield pa.record_batch({"problem": pa.array(problems[:1], pa.string())})


# Several snapshots as one Spark job: a slice is a partition in all of them, folded once, judged and compared in one task.


def compare_inputs(
    spark: "SparkSession", gathered: "Mapping[str, Inputs]", options: ScanOptions, sizes: TaskSizes = USUAL
) -> ComparedSnapshots:
    """Scan every snapshot and compare each with the next, where Spark's workers read them: the local engine's answer.

    Raises UsageError where the workers cannot do it. The driver holds what a scan's does, for each snapshot.
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
        witnesses = witnesses_of(spark, inputs, common)
        running = Scan("spark", inputs, options, witnesses)
        common.deep, common.shared = running.deep, shared_inputs(inputs)
        scans.append(common)
        snapshots.append(
            Snapshot(name, inputs, witnesses, running, snapshot_log_dirs(name, inputs, options), SnapshotTopics(inputs))
        )
    parts = list(change_slices([snapshot.inputs for snapshot in snapshots], [snapshot.words for snapshot in snapshots]))
    known = ChangesCommon(scans, [snapshot.disks for snapshot in snapshots])
    changes: list[Change] = []
    findings: list[Finding] = []
    incomplete: list[Incomplete] = []
    for answer in _changes_answers(spark, everything, parts, known, sizes) if parts else ():
        _take(answer, snapshots)
        changes += answer.compared.changes
        findings += answer.compared.findings
        incomplete += answer.compared.incomplete
    results = {snapshot.name: snapshot.running.finish() for snapshot in snapshots}
    return ComparedSnapshots(finished(results, changes, findings, incomplete, gathered), snapshots)


def _take(answer: ChangeAnswer, snapshots: list[Snapshot]) -> None:
    """Add a partition to the scan of each snapshot that has it."""
    for slice_answer, snapshot in zip(answer.answers, snapshots, strict=True):
        if slice_answer is None:
            continue
        merge_notes(snapshot.inputs, slice_answer.task_notes)
        snapshot.running.incomplete += slice_answer.incomplete
        snapshot.running.findings += slice_answer.leftover_findings
        if slice_answer.answer is not None:
            snapshot.running.take(slice_answer.answer)


def _changes_answers(
    spark: "SparkSession", everything: Inputs, parts: list[ChangeSlice], known: ChangesCommon, sizes: TaskSizes
) -> "Iterator[ChangeAnswer]":
    """The answers about all partitions, in their order. States of all snapshots are folded side by side."""
    from pyspark.sql.functions import col, lit

    def states(numbers: Sequence[int]) -> "tuple[DataFrame, int]":
        tables: list[DataFrame] = []
        works = 0
        for snapshot, common in enumerate(known.scans):
            of_snapshot = [(number, parts[number].parts[snapshot]) for number in numbers]
            folded_states, count = states_of(spark, pack(common), of_snapshot, sizes, deep=common.deep)
            numbered = (col("replica") + lit(snapshot * REPLICAS_A_SNAPSHOT)).cast("int")
            tables.append(folded_states.withColumn("replica", numbered))
            works += count
        return reduce(lambda left, right: left.unionByName(right), tables), works

    packed = pack(replace(known.scans[0], shared=shared_inputs(everything)))
    packed_changes = pack(known)
    there = _There(partial(judge_changes, packed_changes), partial(judge_whole_changes, packed_changes), packed)
    yield from judged_slices(spark, parts, states, there, everything, sizes)


# The answer of a scan on Spark: what the local engine gives, and every fact as a DataFrame as well.


_HELD = ("findings", "replicas")
"""Facts that the answer itself holds; all others are read anew."""


@dataclass(slots=True, repr=False)
class SparkScanResult(ScanResult):
    """A `ScanResult` that also gives DataFrames of the session it was made with."""

    spark: "SparkSession | None" = field(default=None, repr=False, compare=False)
    options: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Of the data source `kafka_log`, as the scan was told; may hold secrets."""
    paths: list[str] = field(default_factory=list)

    def dataframe(self, fact: str) -> "DataFrame":
        """A fact (docs/facts.md) of everything that was scanned: findings and replicas from this answer, others read by Spark.

        Raises UsageError if there is no such fact.
        """
        name = fact_named(fact).name
        assert self.spark is not None
        if name in _HELD:
            return self.spark.createDataFrame(self.facts(name))
        reader = self.spark.read.format("kafka_log").option("fact", name).options(**self.options)
        return reader.load(self.paths)


def scanned(spark: "SparkSession", paths: list[str], options: ScanOptions, inputs: Inputs | None = None) -> SparkScanResult:
    """The scan of these paths, gathered unless they have been already.

    Raises UsageError for paths that make no sense, and where the workers cannot do the work.
    """
    paths, options = without_secrets(paths, options)
    with gc_less_often():
        inputs = gather(paths, options, ids_later=True, scanned=True) if inputs is None else inputs
        plain, witnesses = scan_inputs(spark, inputs, options)
    selection = {
        "topics": options.topic_glob,
        "partitions": None if options.partition is None else str(options.partition),
        "brokers": options.broker,
    }
    known = {name: value for name, value in selection.items() if value is not None}
    known["payloads"] = "true"  # as `facts` gives them
    known["deep"] = str(plain.totals.records_decoded).lower()  # as it was, where the size of the input decided
    known |= {"live": "true"} if options.live else {}
    known |= {} if options.copied is None else {"copied": options.copied.value}
    known |= {} if options.as_of_ms is None else {"as_of": f"{options.as_of_ms:09d}"}  # eight digits would be a date
    known |= {f"storage.{name}": value for name, value in options.storage_options}
    result = SparkScanResult(plain.engine, plain.brokers, plain.partitions, plain.findings, plain.totals, plain.incomplete)
    result.incidents, result.asked, result.settled = plain.incidents, plain.asked, plain.settled
    result.spark, result.options, result.paths = spark, known, paths
    result.views = ScanViews(FactReader(inputs, options, result, witnesses, words), json_document, lanes_of)
    return result
