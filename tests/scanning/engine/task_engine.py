"""The tasks of a scan run in shuffled order, as Spark does, without Spark."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from kafka_forensics.analysis.compaction import KeyColumn
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.engine.key_tasks import KeyQuestionRun, KeyRows, compare_sorted_keys, read_keys
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
from kafka_forensics.scanning.engine.tasks import fold, judge, judge_small_slices, read_witness_logs
from kafka_forensics.scanning.engine.work_plan import FILE_COST_BYTES, fold_works, is_small, small_slice_works
from kafka_forensics.scanning.folding.keys.question import KeyAnswer
from kafka_forensics.scanning.judging.whole_scan import Scan, digest_key


@dataclass(frozen=True, slots=True)
class Sizes:
    """How a scan is divided; `seed` gives the order of its works."""

    split_bytes: int = 1 << 28
    work_bytes: int = 1 << 28
    seed: int = 0
    deferred_keys_bytes: int | None = None
    small_bytes: int = -1


def scan(paths: list[str], options: ScanOptions, **sizes: int) -> ScanResult:
    return scan_inputs(gather(paths, options), options, Sizes(**sizes))


def scan_with_key_tasks(paths: list[str], options: ScanOptions) -> ScanResult:
    """The local engine's result, which tasks that read keys file by file and compare them separately must give, too."""
    local_result = local.scan(paths, options)
    task_result = scan(paths, options, work_bytes=1, deferred_keys_bytes=0)
    assert "".join(json_document.document(task_result)) == "".join(json_document.document(local_result))
    return local_result


def scan_inputs(inputs: Inputs, options: ScanOptions, sizes: Sizes) -> ScanResult:
    order = random.Random(sizes.seed)
    by_name = {source.name: source for source in inputs.sources}
    total = sum(plan.bytes for plan in [*inputs.replicas, *inputs.internal])
    common = TaskArguments(options, digest_key(), total, sizes.split_bytes, shared_inputs(inputs))
    witness_answer: WitnessAnswer = unpack(
        read_witness_logs(pack(common), pack(trimmed_plans(inputs.internal))), lambda name, _: by_name[name]
    )
    inputs.incomplete += witness_answer.task_notes.incomplete
    inputs.controller = witness_answer.witnesses.controller
    running = Scan("local", inputs, options, witness_answer.witnesses)
    common.deep, common.shared, common.deferred_keys_bytes = running.deep, shared_inputs(inputs), sizes.deferred_keys_bytes
    packed, parts = pack(common), list(slices(inputs))
    small = [(number, part) for number, part in enumerate(parts) if is_small(part.replicas, sizes.small_bytes)]
    answers = dict(_judged_whole(packed, small, order))
    large = [(number, part) for number, part in enumerate(parts) if number not in answers]
    works = [pack(fold_work) for fold_work in fold_works(large, sizes.split_bytes, sizes.work_bytes)]
    order.shuffle(works)
    rows = [row for work in works for row in fold(packed, work, strict=False)]
    rows.sort(key=lambda row: (row.slice, row.replica, row.segment, row.start))

    def judged(number: int, part: PartitionSlice) -> SliceAnswer:
        slice_rows = [StretchRow(number, -1, -1, -1, pack(part)), *(row for row in rows if row.slice == number)]
        answer: SliceAnswer = unpack(judge(packed, iter(slice_rows)), lambda name, _: by_name[name])
        return answer

    for number, part in enumerate(parts):
        answer = unpack(answers[number], lambda name, _: by_name[name]) if number in answers else judged(number, part)
        if answer.questions:
            under_way = KeyQuestionRun([(part.replicas, question) for question in answer.questions])
            answer = judged(number, replace(part, keys=answered(packed, under_way, sizes.work_bytes, order)))
        merge_notes(inputs, answer.task_notes)
        running.incomplete += answer.incomplete
        running.findings += answer.leftover_findings
        if answer.answer is not None:
            running.take(answer.answer)
    return running.finish()


def _judged_whole(common: bytes, small: list[tuple[int, PartitionSlice]], order: random.Random) -> Iterator[tuple[int, bytes]]:
    """(number, packed answer) of small slices, a few in each task."""
    works = list(small_slice_works(small, 24 * FILE_COST_BYTES, 1000))
    order.shuffle(works)
    for work in works:
        yield from judge_small_slices(common, pack(work))


def answered(common: bytes, under_way: KeyQuestionRun, work_bytes: int, order: random.Random) -> list[KeyAnswer]:
    """The answers to key questions: rows are shuffled, partitioned by key, sorted, and compared in small chunks."""
    decided = under_way.decided()
    works = [(pack(key_work), pack(decided[key_work.log])) for key_work in under_way.works(work_bytes)]
    order.shuffle(works)
    key_rows_read = [key_rows for work in works for key_rows in read_keys(common, *work, strict=False)]
    under_way.take_readings(unpack(key_rows.packed) for key_rows in key_rows_read if key_rows.packed is not None)
    rows = [(key_rows.question, row) for key_rows in key_rows_read for row in key_rows.rows]
    order.shuffle(rows)
    columns = [KeyColumn.KEY_HIGH, KeyColumn.KEY_LOW]
    for part in range(3):
        rows_of_part = [(question, row) for question, row in rows if hash(tuple(row[columns].tolist())) % 3 == part]
        rows_of_part.sort(key=lambda numbered: (numbered[0], *numbered[1][columns].tolist()))
        chunks = (KeyRows(question, row[np.newaxis]) for question, row in rows_of_part)
        for question, packed in compare_sorted_keys(under_way.comparisons(), chunks):
            under_way.take_tally(question, unpack(packed))
    return under_way.answers()


def answered_without(log: Path, aside: Path, unreadable: list[str]) -> Callable[..., list[KeyAnswer]]:
    """`answered`, but `log` is at `aside` meanwhile, as if it had been deleted; paths that tasks cannot read go to `unreadable`."""
    unpatched = answered

    def answer(common: bytes, under_way: KeyQuestionRun, work_bytes: int, order: random.Random) -> list[KeyAnswer]:
        moved_log = log.rename(aside)
        for work in under_way.works(work_bytes):
            try:
                list(read_keys(common, pack(work), pack(under_way.decided()[work.log]), strict=True))
            except SourceError as error:
                unreadable.append(error.path)
        key_answers = unpatched(common, under_way, work_bytes, order)
        moved_log.rename(log)
        return key_answers

    return answer
