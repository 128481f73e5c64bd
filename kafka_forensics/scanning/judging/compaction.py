"""Comparing replicas of a compacted partition by the latest record of each key."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kafka_forensics.analysis.compaction import (
    ComparedRange,
    KeyComparison,
    KeyTally,
    RecordState,
    ReplicaPair,
    TombstoneRetention,
    compaction_findings,
    retention,
    sum_between_cuts,
)
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import Comparison, is_compacted
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Agreement, Incomplete
from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyCounts, KeyPart, KeyQuestion, KeyReader, KeyRuns, key_question
from kafka_forensics.scanning.rereading.reader import LogReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def compacted_findings(
    plans: list[ReplicaPlan], replicas: list[Replica], comparison: Comparison, reader: LogReader, evidence: list[str]
) -> list[Finding]:
    """Findings about keys of a compacted partition; none if its logs hold the same batches where they overlap.

    `comparison` compares the replicas by batches; its agreement is updated. `evidence` names the inputs, below which no temporary
    file may be written. What cannot be read again is added to the reader's lists.
    """
    pairs = _pairs(replicas, comparison)
    compared = compare_keys(plans, replicas, pairs, reader, evidence) if pairs else None
    if compared is None:
        return []
    tally, start, end = compared.keys.tally, max(pair.start for pair in pairs), min(pair.end for pair in pairs)
    counts = (compared.counted(name, start, end) for name in ("records", "aborted", "keyless", "markers"))
    comparison.lacks_keys = tally.lacking_pairs()
    comparison.different_content |= tally.differing_pairs()
    if tally.differing and comparison.agreement.kind == "compacted":
        comparison.agreement = Agreement("missing", tally.first_offset)
    return compaction_findings(replicas, tally, ComparedRange(start, end, *counts), compared.kept)


class ComparedKeys(Struct):
    """The comparison of replicas by key, and what else their logs hold, by replica number."""

    keys: KeyComparison
    parts: dict[int, KeyPart]
    kept: TombstoneRetention

    def counted(self, name: str, start: int, end: int) -> dict[int, int]:
        """Replica number → count of `records` (visible), `aborted`, `keyless` or `markers` in `[start, end)`, which are ends of
        pairs."""
        return {
            number: sum_between_cuts(self.keys.cuts, _by_interval(part.counts, name), start, end)
            for number, part in self.parts.items()
        }


def _by_interval(counts: KeyCounts, name: str) -> "NDArray[np.int64]":
    if name in _STATES:
        by_interval: NDArray[np.int64] = counts.records[_STATES[name]]
        return by_interval
    return counts.keyless if name == "keyless" else counts.markers


_STATES: Final = {"records": RecordState.VISIBLE, "aborted": RecordState.ABORTED}


def compare_keys(
    plans: list[ReplicaPlan], replicas: list[Replica], pairs: list[ReplicaPair], reader: LogReader, evidence: list[str]
) -> ComparedKeys | None:
    """Compare the latest record of every key between pairs of replicas; None if they cannot be read, which the reader notes, or
    while its key questions wait for answers."""
    deferred = reader.deferred
    question = key_question(plans, replicas, pairs, plans if deferred is None else deferred.plans, reader.as_of_ms)
    answer = None
    if deferred is not None and deferred.is_deferred(question):
        deferred.questions.append(question)
        if deferred.answers is None:
            return None
        answer = deferred.answer(question)
    answer = answer or _answer_locally(question, plans, evidence)
    for number, part in answer.parts.items():
        reader.incomplete += part.incomplete
        reader.problems += [(replicas[number], segment, problem) for segment, problem in part.problems]
    if answer.failed is not None:
        plan = plans[min(question.logs)]
        reader.incomplete.append(Incomplete(typed_path(plan.log_dir.source, plan.directory.path), answer.failed))
        return None
    keys = question.comparison(answer.parts)
    keys.tally = answer.tally
    return ComparedKeys(keys, answer.parts, retention(replicas))


def _answer_locally(question: KeyQuestion, plans: list[ReplicaPlan], evidence: list[str]) -> KeyAnswer:
    parts: dict[int, KeyPart] = {}
    tally, failed = KeyTally(), None
    with KeyRuns(evidence) as rows:
        try:
            for number, log in sorted(question.logs.items()):
                key_reader = KeyReader(plans[number], log.decided, number, question.read_options, rows)
                key_reader.read()
                parts[number] = key_reader.part
            keys = question.comparison(parts)
            for block in rows.blocks():
                keys.step(block)
            tally = keys.tally
        except SourceError as error:
            failed = error.reason
    return KeyAnswer(question.identity, parts, tally, failed)


def _pairs(replicas: list[Replica], comparison: Comparison) -> list[ReplicaPair]:
    """Pairs of compacted replicas whose batches differ, and the offsets that both have, up to their first conflict."""
    pairs = []
    for left, right in comparison.differing_pairs:
        ours, theirs = replicas[left], replicas[right]
        start = max(ours.log_start_offset, theirs.log_start_offset)
        end = min(ours.log_end_offset, theirs.log_end_offset)
        conflicts = comparison.conflicts.get((left, right))
        if conflicts:
            end = min(end, conflicts[0].offset)
        readable = not ours.state.unread and not theirs.state.unread
        if is_compacted(*replicas) and readable and start < end:
            pairs.append(ReplicaPair(left, right, start, end))
    return pairs
