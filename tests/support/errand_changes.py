"""The errands of a comparison of snapshots carried by nobody, keys read file by file and swept apart, as Spark does it."""

import random
from dataclasses import replace

from kafka_forensics.compiled import worth_compiling
from kafka_forensics.engine.key_tasks import QuestionsUnderWay
from kafka_forensics.engine.serialization import pack, unpack
from kafka_forensics.engine.slices import surroundings
from kafka_forensics.engine.task_values import Common, StretchRow
from kafka_forensics.engine.tasks import fold
from kafka_forensics.engine.work_plan import fold_works
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.folding.keys.question import KeyQuestion
from kafka_forensics.judging.scanning import Scan, digest_key
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.questions.changes import snapshots
from kafka_forensics.questions.changes.partition import PartitionChanges, Words, disks_of
from kafka_forensics.questions.changes.slices import REPLICAS_A_SNAPSHOT, ChangeAnswer, ChangesCommon, ChangeSlice, change_slices
from kafka_forensics.questions.changes.snapshots import Given, gather_snapshots, snapshot_paths
from kafka_forensics.questions.changes.tasks import judge_changes
from kafka_forensics.witnesses.witnesses import read_witnesses
from tests.support.errand_engine import answered

SPLIT_BYTES = 1 << 28


def with_keys_apart(given: Given, options: ScanOptions) -> SnapshotsResult:
    """The local engine's answer, which that of errands must equal whose keys are all read file by file and compared apart."""
    here = snapshots.changes(given, options).result
    apart, _ = changes(given, options, keys_apart_bytes=0)
    assert said(apart) == said(here)
    return here


def said(result: SnapshotsResult) -> tuple[object, ...]:
    """All that an answer holds, but for the name of the engine."""
    scans = {name: "".join(document(replace(one, engine="any"))) for name, one in result.snapshots.items()}
    return scans, result.changes, result.findings, result.incomplete, result.notes


def changes(given: Given, options: ScanOptions, *, keys_apart_bytes: int | None) -> tuple[SnapshotsResult, list[KeyQuestion]]:
    """The answer, and what was asked on the way to it."""
    gathered = gather_snapshots(snapshot_paths(given, options, (), []), options)
    key, order = digest_key(), random.Random(0)
    running: list[Scan] = []
    known = ChangesCommon([], [])
    for name, inputs in gathered.items():
        running.append(Scan("local", inputs, options, read_witnesses(inputs)))
        total = sum(plan.bytes for plan in inputs.replicas)
        common = Common(options, key, worth_compiling(total), SPLIT_BYTES, surroundings(inputs), running[-1].deep, keys_apart_bytes)
        known.scans.append(common)
        known.disks.append(disks_of(name, inputs, options))
    every = list(gathered.values())
    parts = list(change_slices(every, [Words(inputs) for inputs in every]))
    rows = sorted(_rows(parts, known), key=lambda row: (row.slice, row.replica, row.segment, row.start))
    sources = {source.name: source for inputs in every for source in inputs.sources}

    def judged(number: int, one: ChangeSlice) -> ChangeAnswer:
        of_slice = [StretchRow(number, -1, -1, -1, pack(one)), *(row for row in rows if row.slice == number)]
        answer: ChangeAnswer = unpack(judge_changes(pack(known), iter(of_slice)), lambda name, _: sources[name])
        return answer

    told = PartitionChanges()
    asked: list[KeyQuestion] = []
    common = replace(known.scans[0], around=surroundings(Inputs(sources=list(sources.values()))))
    for number, one in enumerate(parts):
        answer = judged(number, one)
        if answer.asked:
            asked += answer.asked
            under_way = QuestionsUnderWay([(one.replicas, question) for question in answer.asked])
            answer = judged(number, replace(one, keys=answered(pack(common), under_way, 1, order)))
            assert not answer.asked
        _take(answer, running)
        told.changes += answer.compared.changes
        told.findings += answer.compared.findings
        told.incomplete += answer.compared.incomplete
    scans = {name: one.finish() for name, one in zip(gathered, running, strict=True)}
    return snapshots.finished(scans, told.changes, told.findings, told.incomplete, gathered), asked


def _rows(parts: list[ChangeSlice], known: ChangesCommon) -> list[StretchRow]:
    found = []
    for number, common in enumerate(known.scans):
        for work in fold_works([one.parts[number] for one in parts], SPLIT_BYTES, 1):
            rows = fold(pack(common), pack(work), strict=False)
            found += [replace(row, replica=row.replica + number * REPLICAS_A_SNAPSHOT) for row in rows]
    return found


def _take(answer: ChangeAnswer, running: list[Scan]) -> None:
    for one, scan in zip(answer.answers, running, strict=True):
        if one is None:
            continue
        for source, entry in one.noticed.files:
            scan.inputs.manifest.record(source, entry)
        scan.inputs.incomplete += one.noticed.incomplete
        scan.incomplete += one.incomplete
        scan.findings += one.lone
        if one.answer is not None:
            scan.take(one.answer)
