"""The tasks of a comparison of snapshots, with keys read file by file and compared separately, as Spark does, without Spark."""

import random
from dataclasses import replace

from msgspec import structs

from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.questions.changes import partition, snapshots
from kafka_forensics.questions.changes.snapshots import SnapshotPaths, gather_snapshots, snapshot_paths
from kafka_forensics.scanning.engine.key_tasks import KeyQuestionRun
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import StretchRow, TaskArguments, shared_inputs
from kafka_forensics.scanning.engine.tasks import fold
from kafka_forensics.scanning.engine.work_plan import fold_works
from kafka_forensics.scanning.folding.keys.question import KeyQuestion
from kafka_forensics.scanning.judging.whole_scan import Scan, digest_key
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses
from tests.scanning.engine.task_engine import answered
from tests.support.evidence_schema import evidence_errors

SPLIT_BYTES = 1 << 28


def changes_with_key_tasks(paths: SnapshotPaths, options: ScanOptions) -> SnapshotsResult:
    """The local engine's result, which tasks that read keys file by file and compare them separately must give, too."""
    local_result = snapshots.changes(paths, options).result
    task_result, _ = changes(paths, options, deferred_keys_bytes=0)
    assert comparable(task_result) == comparable(local_result)
    return local_result


def comparable(result: SnapshotsResult) -> tuple[object, ...]:
    """All of a result except the name of the engine; checks the evidence of its findings."""
    assert evidence_errors(result.findings) == []
    scans = {name: "".join(document(replace(scan_result, engine="any"))) for name, scan_result in result.snapshots.items()}
    return scans, result.changes, result.findings, result.incomplete, result.notes


def changes(
    paths: SnapshotPaths, options: ScanOptions, *, deferred_keys_bytes: int | None
) -> tuple[SnapshotsResult, list[KeyQuestion]]:
    """The result, and the key questions of its tasks."""
    gathered = gather_snapshots(snapshot_paths(paths, options, (), []), options)
    key, order = digest_key(), random.Random(0)
    running: list[Scan] = []
    changes_common = partition.ChangesCommon([], [])
    for name, inputs in gathered.items():
        running.append(Scan("local", inputs, options, read_witnesses(inputs)))
        total = sum(plan.bytes for plan in inputs.replicas)
        common = TaskArguments(options, key, total, SPLIT_BYTES, shared_inputs(inputs), running[-1].deep, deferred_keys_bytes)
        changes_common.scans.append(common)
        changes_common.log_dirs.append(partition.snapshot_log_dirs(name, inputs, options))
    inputs_of_snapshots = list(gathered.values())
    parts = list(partition.change_slices(inputs_of_snapshots, [partition.SnapshotTopics(inputs) for inputs in inputs_of_snapshots]))
    rows = sorted(_rows(parts, changes_common), key=lambda row: (row.slice, row.replica, row.segment, row.start))
    sources = {source.name: source for inputs in inputs_of_snapshots for source in inputs.sources}

    def judged(number: int, change_slice: partition.ChangeSlice) -> partition.ChangeAnswer:
        slice_rows = [StretchRow(number, -1, -1, -1, pack(change_slice)), *(row for row in rows if row.slice == number)]
        answer: partition.ChangeAnswer = unpack(
            partition.judge_changes(pack(changes_common), iter(slice_rows)), lambda name, _: sources[name]
        )
        return answer

    partition_changes = partition.PartitionChanges()
    key_questions: list[KeyQuestion] = []
    common = structs.replace(changes_common.scans[0], shared=shared_inputs(Inputs(sources=list(sources.values()))))
    for number, change_slice in enumerate(parts):
        answer = judged(number, change_slice)
        if answer.questions:
            key_questions += answer.questions
            under_way = KeyQuestionRun([(change_slice.replicas, question) for question in answer.questions])
            answer = judged(number, structs.replace(change_slice, keys=answered(pack(common), under_way, 1, order)))
            assert not answer.questions
        _take(answer, running)
        partition_changes.changes += answer.compared.changes
        partition_changes.findings += answer.compared.findings
        partition_changes.incomplete += answer.compared.incomplete
    scans = {name: scan.finish() for name, scan in zip(gathered, running, strict=True)}
    return snapshots.finished(
        scans, partition_changes.changes, partition_changes.findings, partition_changes.incomplete, gathered
    ), key_questions


def _rows(parts: list[partition.ChangeSlice], changes_common: partition.ChangesCommon) -> list[StretchRow]:
    stretch_rows = []
    for number, common in enumerate(changes_common.scans):
        for work in fold_works(enumerate(change_slice.parts[number] for change_slice in parts), SPLIT_BYTES, 1):
            rows = fold(pack(common), pack(work), strict=False)
            stretch_rows += [structs.replace(row, replica=row.replica + number * partition.REPLICAS_A_SNAPSHOT) for row in rows]
    return stretch_rows


def _take(answer: partition.ChangeAnswer, running: list[Scan]) -> None:
    for slice_answer, scan in zip(answer.answers, running, strict=True):
        if slice_answer is None:
            continue
        for source, entry in slice_answer.task_notes.files:
            scan.inputs.manifest.record(source, entry)
        scan.inputs.incomplete += slice_answer.task_notes.incomplete
        scan.incomplete += slice_answer.incomplete
        scan.findings += slice_answer.leftover_findings
        if slice_answer.answer is not None:
            scan.take(slice_answer.answer)
