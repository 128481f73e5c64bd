"""Tasks that answer what judges ask about keys of large compacted logs, which are read, sorted by whoever carries them, swept.

`QuestionsUnderWay` keeps the books where the scan is led: works for readers, who give rows of keys and, with each work, a
`KeyReading`; comparisons for sweepers, who get the rows of all replicas in the order of keys and give tallies; then the answers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.analysis.compaction import ROW_WIDTH, KeyComparison, KeyTally, Row, reduced
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import KeyReading, KeyWork
from kafka_forensics.scanning.engine.tasks import common_of, opener
from kafka_forensics.scanning.engine.work_plan import bare_plan, file_cost
from kafka_forensics.scanning.folding.keys import Decided, KeyAnswer, KeyCounts, KeyPart, KeyQuestion, KeyReader, KeyRuns, below

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows of the question, ascending by key and place; or without any, at a work's end, its packed `KeyReading`."""

    question: int
    rows: "Rows"
    packed: bytes | None = None


def read_keys(common: bytes, work: bytes, decided: bytes, *, strict: bool) -> Iterator[KeyRows]:
    """Read the keys that a packed `KeyWork` names, of a log of whose transactions so much is `decided`, packed too.

    With `strict`, raises SourceError where a log cannot be read, and where there is no room to sort.
    """
    known = common_of(common)
    compile_as_needed(known.work_bytes)
    key_work: KeyWork = unpack(work, opener(known))
    of_log: Decided = unpack(decided)
    strict &= not key_work.plan.log_dir.source.problems  # a broken archive stays one
    with KeyRuns(known.around.source_names) as runs:
        cuts, seed, kept = key_work.cuts, key_work.seed, key_work.delete_retention_ms
        reader = KeyReader(key_work.plan, of_log, key_work.number, cuts, seed, kept, runs, key_work.next_base_offset, strict)
        reader.hash_as(key_work.hash_key)
        try:
            reader.read()
            for block in runs.blocks():
                yield KeyRows(key_work.question, block)
        except SourceError as error:
            if strict:
                raise
            reader.part.failed = error.reason
    reading = KeyReading(key_work.question, key_work.number, key_work.first, reader.part)
    yield KeyRows(key_work.question, np.empty((0, ROW_WIDTH), np.int64), pack(reading))


def sweep_keys(comparisons: bytes, sorted_rows: Iterable[KeyRows]) -> Iterator[tuple[int, bytes]]:
    """Sweep over rows of questions, ascending by question and key, all rows of a key among them: (question, packed `KeyTally`)."""
    known: list[KeyComparison] = unpack(comparisons)
    number, held = -1, np.empty((0, ROW_WIDTH), np.int64)
    for key_rows in sorted_rows:
        if key_rows.question != number:
            if number >= 0:
                known[number].step(reduced(held))
                yield number, pack(known[number].tally)
            number, held = key_rows.question, held[:0]
        held = np.concatenate((held, key_rows.rows))
        whole = below(held, tuple(held[-1, : Row.PLACE].tolist())) if len(held) else 0
        if whole:
            known[number].step(reduced(held[:whole]))
            held = held[whole:]
    if number >= 0:
        known[number].step(reduced(held))
        yield number, pack(known[number].tally)


class QuestionsUnderWay:
    """Questions by their numbers, each with the plans of all replicas of its partition, in every snapshot."""

    def __init__(self, questions: Sequence[tuple[Sequence[ReplicaPlan], KeyQuestion]]) -> None:
        self._questions = questions
        self._parts = [
            {number: KeyPart(KeyCounts.none(len(question.cuts) + 1)) for number in question.logs} for _, question in questions
        ]
        self._tallies = [KeyTally() for _ in questions]

    def works(self, work_bytes: int) -> Iterator[KeyWork]:
        """What is to be read, in works of about `work_bytes`; a log in an archive that cannot seek is one work."""
        logs = count()
        for question_number, (plans, question) in enumerate(self._questions):
            cuts = question.cuts
            for number, log in question.logs.items():
                plan, log_number = plans[log.plan], next(logs)
                bare, seekable = bare_plan(plan), plan.log_dir.source.seekable
                for segments, following in _stretches(plan, int(cuts[0]), work_bytes if seekable else None):
                    part = replace(bare, directory=replace(bare.directory, segments=segments))
                    kept = question.delete_retention_ms
                    first = segments[0].base_offset
                    yield KeyWork(
                        question_number, log_number, number, first, part, following, cuts, question.seed, kept, question.hash_key
                    )

    def decided(self) -> list[Decided]:
        """What was decided in the log of each replica, by `KeyWork.log`."""
        return [log.decided for _, question in self._questions for log in question.logs.values()]

    def take_readings(self, readings: Iterable[KeyReading]) -> None:
        """What every work's reader gave beside rows."""
        for reading in sorted(readings, key=lambda reading: (reading.question, reading.number, reading.first)):
            self._parts[reading.question][reading.number].merge(reading.part)

    def comparisons(self) -> bytes:
        """For `sweep_keys`, packed, once the readings are taken."""
        with_parts = zip(self._questions, self._parts, strict=True)
        return pack([question.comparison(parts) for (_, question), parts in with_parts])

    def take_tally(self, question_number: int, tally: KeyTally) -> None:
        """What one sweeper gave."""
        self._tallies[question_number].merge(tally)

    def answers(self) -> list[KeyAnswer]:
        """What came of every question, in their order."""
        key_answers = []
        for (_, question), parts, tally in zip(self._questions, self._parts, self._tallies, strict=True):
            failed = next((part.failed for _, part in sorted(parts.items()) if part.failed is not None), None)
            key_answers.append(KeyAnswer(question.gist, parts, tally, failed))
        return key_answers


def _stretches(plan: ReplicaPlan, start: int, work_bytes: int | None) -> Iterator[tuple[list[SegmentFiles], int | None]]:
    """Segments of a replica with a log that reach beyond offset `start`, some at a time, and the base offset of the next."""
    cost_of_file = file_cost(plan.log_dir.source)
    held: list[SegmentFiles] = []
    size = 0
    for log in plan.directory.logs():
        if not log.reaches(start):
            continue
        held.append(log.segment)
        size += log.entry.size_in_bytes + cost_of_file
        if log.next_base_offset is None or (work_bytes is not None and size >= work_bytes):
            yield held, log.next_base_offset
            held, size = [], 0
