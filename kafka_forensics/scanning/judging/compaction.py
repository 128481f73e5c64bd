"""Replicas of a compacted partition compared by the latest record of each key: read, sorted, swept."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_forensics.analysis.compaction import (
    ComparedRange,
    KeyComparison,
    KeyTally,
    Pair,
    RecordState,
    TombstoneRetention,
    compaction_findings,
    retention,
    within,
)
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import Comparison, is_compacted
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Agreement, Incomplete
from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyPart, KeyQuestion, KeyReader, KeyRuns, key_question
from kafka_forensics.scanning.rereading.reader import LogReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def compacted_findings(
    plans: list[ReplicaPlan], replicas: list[Replica], comparison: Comparison, reader: LogReader, evidence: list[str]
) -> list[Finding]:
    """Findings about keys of a compacted partition, none if its logs hold the same batches where they overlap.

    `comparison` is that of the replicas by batches; its agreement is made to fit. `evidence` names the inputs, in which nothing
    may be written. What cannot be read again is added to the reader's lists.
    """
    pairs = _pairs(replicas, comparison)
    swept = sweep(plans, replicas, pairs, reader, evidence) if pairs else None
    return [] if swept is None else _told(replicas, comparison, swept)


@dataclass(slots=True)
class Swept:
    """The keys of some replicas compared, and what each replica's log holds, by its number."""

    keys: KeyComparison
    parts: dict[int, KeyPart]
    kept: TombstoneRetention

    def counted(self, name: str, start: int, end: int) -> dict[int, int]:
        """How many `records` (visible), `aborted`, `keyless` or `markers` of `[start, end)`, which are ends of pairs, each has."""
        return {number: within(self.keys.cuts, _counts(key_part, name), start, end) for number, key_part in self.parts.items()}


def sweep(
    plans: list[ReplicaPlan], replicas: list[Replica], pairs: list[Pair], reader: LogReader, evidence: list[str]
) -> Swept | None:
    """Compare the latest record of every key between these pairs of replicas; None if that cannot be, which the reader notes.

    None as well if the reader has the question answered apart, and there is no answer yet.
    """
    apart = reader.apart
    question = key_question(plans, replicas, pairs, plans if apart is None else apart.plans, reader.as_of_ms)
    answer = None
    if apart is not None and apart.wanted(question):
        apart.questions.append(question)
        if apart.answers is None:
            return None
        answer = apart.answer(question)
    answer = answer or _answered(question, plans, evidence)
    for number, part in answer.parts.items():
        reader.incomplete += part.incomplete
        reader.problems += [(replicas[number], segment, problem) for segment, problem in part.problems]
    if answer.failed is not None:
        plan = plans[min(question.logs)]
        reader.incomplete.append(Incomplete(typed_path(plan.log_dir.source, plan.directory.path), answer.failed))
        return None
    keys = question.comparison(answer.parts)
    keys.tally = answer.tally
    return Swept(keys, answer.parts, retention(replicas))


def _answered(question: KeyQuestion, plans: list[ReplicaPlan], evidence: list[str]) -> KeyAnswer:
    """The answer, worked out here and now."""
    parts: dict[int, KeyPart] = {}
    tally, failed = KeyTally(), None
    with KeyRuns(evidence) as runs:
        try:
            for number, log in sorted(question.logs.items()):
                kept = question.delete_retention_ms
                key_reader = KeyReader(plans[number], log.decided, number, question.cuts, question.seed, kept, runs)
                key_reader.hash_as(question.hash_key)
                key_reader.read()
                parts[number] = key_reader.part
            keys = question.comparison(parts)
            for block in runs.blocks():
                keys.step(block)
            tally = keys.tally
        except SourceError as error:
            failed = error.reason
    return KeyAnswer(question.gist, parts, tally, failed)


def _pairs(replicas: list[Replica], comparison: Comparison) -> list[Pair]:
    """Pairs of compacted replicas whose batches differ, and the offsets both have; behind a conflict nothing is compared again."""
    pairs = []
    for left, right in comparison.unlike:
        ours, theirs = replicas[left], replicas[right]
        start = max(ours.log_start_offset, theirs.log_start_offset)
        end = min(ours.log_end_offset, theirs.log_end_offset)
        conflicts = comparison.conflicts.get((left, right))
        if conflicts:
            end = min(end, conflicts[0].offset)
        readable = not ours.state.unread and not theirs.state.unread
        if is_compacted(*replicas) and readable and start < end:
            pairs.append(Pair(left, right, start, end))
    return pairs


def _told(replicas: list[Replica], comparison: Comparison, swept: Swept) -> list[Finding]:
    """The findings; where latest records differ, the partition's replicas do not agree."""
    keys, tally = swept.keys, swept.keys.tally
    start, end = max(pair.start for pair in keys.pairs), min(pair.end for pair in keys.pairs)
    counts = (swept.counted(name, start, end) for name in ("records", "aborted", "keyless", "markers"))
    compared = ComparedRange(start, end, *counts)
    if tally.differing and comparison.agreement.kind == "compacted":
        comparison.agreement = Agreement("missing", tally.first_offset)
    return compaction_findings(replicas, tally, compared, swept.kept)


def _counts(key_part: KeyPart, name: str) -> "NDArray[np.int64]":
    """A count by interval."""
    counts = key_part.counts
    states = {"records": RecordState.VISIBLE, "aborted": RecordState.ABORTED}
    if name in states:
        by_interval: NDArray[np.int64] = counts.records[states[name]]
        return by_interval
    return counts.keyless if name == "keyless" else counts.markers
