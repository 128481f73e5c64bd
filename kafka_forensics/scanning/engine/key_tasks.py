"""Tasks that answer key questions about large compacted logs.

`read_keys` turns a `KeyWork` into rows of keys and a `KeyWorkResult`. The engine sorts the rows of all replicas by key, and
`compare_sorted_keys` compares them and gives tallies. `KeyQuestionRun` makes the works and assembles the answers in the driver.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.compaction import ROW_WIDTH, KeyColumn, KeyComparison, KeyTally, reduce_rows
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import KeyWork, KeyWorkResult
from kafka_forensics.scanning.engine.tasks import opener, unpack_common
from kafka_forensics.scanning.engine.work_plan import bare_plan, file_cost
from kafka_forensics.scanning.folding.keys import (
    KeyAnswer,
    KeyCounts,
    KeyPart,
    KeyQuestion,
    KeyReader,
    KeyRuns,
    TransactionOutcomes,
    count_below,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


class KeyRows(Struct, frozen=True):
    """Rows of a question, ascending by key and place; or, at the end of a work, no rows and its packed `KeyWorkResult`."""

    question: int
    rows: "Rows"
    packed: bytes | None = None


def read_keys(common: bytes, work: bytes, decided: bytes, *, strict: bool) -> Iterator[KeyRows]:
    """Read the keys of a packed `KeyWork`; `decided` are the packed `TransactionOutcomes` of its log.

    With `strict`, raises SourceError where a log cannot be read, and where there is no space to sort.
    """
    arguments = unpack_common(common)
    compile_as_needed(arguments.work_bytes)
    key_work: KeyWork = unpack(work, opener(arguments))
    outcomes: TransactionOutcomes = unpack(decided)
    strict &= not key_work.plan.log_dir.source.problems  # a broken archive stays broken
    with KeyRuns(arguments.shared.source_names) as rows:
        reader = KeyReader(key_work.plan, outcomes, key_work.number, key_work.options, rows, key_work.next_base_offset, strict)
        try:
            reader.read()
            for block in rows.blocks():
                yield KeyRows(key_work.question, block)
        except SourceError as error:
            if strict:
                raise
            reader.part.failed = error.reason
    reading = KeyWorkResult(key_work.question, key_work.number, key_work.first, reader.part)
    yield KeyRows(key_work.question, np.empty((0, ROW_WIDTH), np.int64), pack(reading))


def compare_sorted_keys(comparisons: bytes, sorted_rows: Iterable[KeyRows]) -> Iterator[tuple[int, bytes]]:
    """Compare the rows of questions, ascending by question and key, all rows of a key together: (question, packed `KeyTally`)."""
    by_question: list[KeyComparison] = unpack(comparisons)
    for number, of_question in groupby(sorted_rows, key=lambda key_rows: key_rows.question):
        comparison, waiting = by_question[number], np.empty((0, ROW_WIDTH), np.int64)
        for key_rows in of_question:
            waiting = np.concatenate((waiting, key_rows.rows))
            complete = count_below(waiting, tuple(waiting[-1, : KeyColumn.PLACE].tolist())) if len(waiting) else 0
            if complete:
                comparison.step(reduce_rows(waiting[:complete]))
                waiting = waiting[complete:]
        comparison.step(reduce_rows(waiting))
        yield number, pack(comparison.tally)


class KeyQuestionRun:
    """Numbered key questions, each with the plans of all replicas of its partition, in every snapshot."""

    def __init__(self, questions: Sequence[tuple[Sequence[ReplicaPlan], KeyQuestion]]) -> None:
        self._questions = questions
        self._parts = [
            {number: KeyPart(KeyCounts.none(len(question.cuts) + 1)) for number in question.logs} for _, question in questions
        ]
        self._tallies = [KeyTally() for _ in questions]

    def works(self, work_bytes: int) -> Iterator[KeyWork]:
        """Works that each read about `work_bytes`; a log in an archive that cannot seek is one work."""
        logs = count()
        for question_number, (plans, question) in enumerate(self._questions):
            options = question.read_options
            for number, log in question.logs.items():
                plan, log_number = plans[log.plan], next(logs)
                bare, seekable = bare_plan(plan), plan.log_dir.source.seekable
                for segments, next_base_offset in _segment_groups(plan, int(options.cuts[0]), work_bytes if seekable else None):
                    part, first = replace(bare, directory=replace(bare.directory, segments=segments)), segments[0].base_offset
                    yield KeyWork(question_number, log_number, number, first, part, next_base_offset, options)

    def decided(self) -> list[TransactionOutcomes]:
        """The transaction outcomes of each log, by `KeyWork.log`."""
        return [log.decided for _, question in self._questions for log in question.logs.values()]

    def take_readings(self, readings: Iterable[KeyWorkResult]) -> None:
        """Add the readings of all works."""
        for reading in sorted(readings, key=lambda reading: (reading.question, reading.number, reading.first)):
            self._parts[reading.question][reading.number].merge(reading.part)

    def comparisons(self) -> bytes:
        """The packed argument of `compare_sorted_keys`; call it after `take_readings`."""
        with_parts = zip(self._questions, self._parts, strict=True)
        return pack([question.comparison(parts) for (_, question), parts in with_parts])

    def take_tally(self, question_number: int, tally: KeyTally) -> None:
        """Add a tally of `compare_sorted_keys`."""
        self._tallies[question_number].merge(tally)

    def answers(self) -> list[KeyAnswer]:
        """The answers to all questions, in their order."""
        key_answers = []
        for (_, question), parts, tally in zip(self._questions, self._parts, self._tallies, strict=True):
            failed = next((part.failed for _, part in sorted(parts.items()) if part.failed is not None), None)
            key_answers.append(KeyAnswer(question.identity, parts, tally, failed))
        return key_answers


def _segment_groups(plan: ReplicaPlan, start: int, work_bytes: int | None) -> Iterator[tuple[list[SegmentFiles], int | None]]:
    """Groups of segments with offsets from `start` on, each with the base offset of the segment after it.

    A group ends when it costs `work_bytes` or more; None: all segments are one group.
    """
    cost_of_file = file_cost(plan.log_dir.source)
    group: list[SegmentFiles] = []
    size = 0
    for log in plan.directory.logs():
        if not log.reaches(start):
            continue
        group.append(log.segment)
        size += log.entry.size_in_bytes + cost_of_file
        if log.next_base_offset is None or (work_bytes is not None and size >= work_bytes):
            yield group, log.next_base_offset
            group, size = [], 0
