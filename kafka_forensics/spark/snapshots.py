"""Several snapshots as one Spark job: a slice is a partition in all of them, folded once, judged and compared in one task."""

from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from kafka_forensics.compiled import worth_compiling
from kafka_forensics.engine.serialization import pack
from kafka_forensics.engine.task_values import Common, surroundings
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.judging.scanning import Scan, digest_key
from kafka_forensics.questions.changes import (
    REPLICAS_A_SNAPSHOT,
    ChangeAnswer,
    ChangesCommon,
    ChangeSlice,
    ComparedSnapshots,
    Snapshot,
    Words,
    change_slices,
    disks_of,
    finished,
    judge_changes,
)
from kafka_forensics.spark.job import USUAL, Judging, TaskSizes, judged_slices, notice, probe, states_of, stretch_rows, witnesses_of
from kafka_forensics.spark.keys import Batches, attempts_of, is_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from kafka_forensics.model.changes import Change
    from kafka_forensics.model.findings import Finding
    from kafka_forensics.model.results import Incomplete


def compare_inputs(
    spark: "SparkSession", gathered: "Mapping[str, Inputs]", options: ScanOptions, sizes: TaskSizes = USUAL
) -> ComparedSnapshots:
    """Scan every snapshot and compare each with the next, where Spark's workers read them: the local engine's answer.

    Raises UsageError where the workers cannot do it. The driver holds what a scan's does, for each snapshot.
    """
    everything = Inputs(sources=[source for inputs in gathered.values() for source in inputs.sources])
    probe(spark, everything, options)
    key = digest_key()
    compiled = worth_compiling(
        max(sum(plan.bytes for plan in plans) for one in gathered.values() for plans in (one.replicas, one.internal))
    )
    snapshots: list[Snapshot] = []
    scans: list[Common] = []
    for name, inputs in gathered.items():
        common = Common(options, key, compiled, sizes.split_bytes, surroundings(inputs), keys_apart_bytes=sizes.keys_apart_bytes)
        witnesses = witnesses_of(spark, inputs, common)
        running = Scan("spark", inputs, options, witnesses)
        common.deep, common.around = running.deep, surroundings(inputs)
        scans.append(common)
        snapshots.append(Snapshot(name, inputs, witnesses, running, disks_of(name, inputs, options), Words(inputs)))
    parts = list(change_slices([snapshot.inputs for snapshot in snapshots], [snapshot.words for snapshot in snapshots]))
    known = ChangesCommon(scans, [snapshot.disks for snapshot in snapshots])
    changes: list[Change] = []
    findings: list[Finding] = []
    incomplete: list[Incomplete] = []
    for answer in _answers(spark, everything, parts, known, sizes) if parts else ():
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
        notice(snapshot.inputs, slice_answer.noticed)
        snapshot.running.incomplete += slice_answer.incomplete
        snapshot.running.findings += slice_answer.lone
        if slice_answer.answer is not None:
            snapshot.running.take(slice_answer.answer)


def _answers(
    spark: "SparkSession", everything: Inputs, parts: list[ChangeSlice], known: ChangesCommon, sizes: TaskSizes
) -> "Iterator[ChangeAnswer]":
    """The answers about all partitions, in their order. States of all snapshots are folded side by side."""
    from pyspark.sql.functions import col, lit

    states: DataFrame | None = None
    works = 0
    for number, common in enumerate(known.scans):
        found, count = states_of(
            spark, pack(common), [change_slice.parts[number] for change_slice in parts], sizes, deep=common.deep
        )
        numbered = (col("replica") + lit(number * REPLICAS_A_SNAPSHOT)).cast("int")
        found = found.withColumn("replica", numbered)
        states = found if states is None else states.unionByName(found)
        works += count
    assert states is not None
    told = pack(replace(known.scans[0], around=surroundings(everything)))
    judge_there = partial(_judge, pack(known), attempts_of(spark))
    yield from judged_slices(spark, parts, states, works, Judging(judge_there, told, everything, sizes))


def _judge(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: judge and compare partition after partition, from rows in their order, the slice itself before its states."""
    import pyarrow as pa

    strict = is_strict(attempts)
    for number, rows in groupby(stretch_rows(batches), key=lambda row: row.slice):
        packed = judge_changes(common, rows, strict=strict)
        yield pa.record_batch({"slice": pa.array([number], pa.int64()), "packed": pa.array([packed], pa.binary())})
