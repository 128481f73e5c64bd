"""Replicas of a compacted partition compared by the latest record of each key: read, sorted, swept."""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_forensics.analysis.compaction import KeyComparison, Pair, Side
from kafka_forensics.analysis.compaction_findings import Compared, Retention, cleaned_end, compaction_findings, retention, within
from kafka_forensics.analysis.compaction_word import is_compacted
from kafka_forensics.analysis.comparison import Comparison
from kafka_forensics.analysis.key_rows import State
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.engine.inputs import ReplicaPlan, typed_path
from kafka_forensics.engine.key_reader import KeyReader
from kafka_forensics.engine.key_runs import KeyRuns
from kafka_forensics.engine.reader import LogReader
from kafka_forensics.errors import SourceError
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Agreement, Incomplete

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
    readers: dict[int, KeyReader]
    kept: Retention

    def counted(self, name: str, start: int, end: int) -> dict[int, int]:
        """How many `records` (visible), `aborted`, `keyless` or `markers` of `[start, end)`, which are ends of pairs, each has."""
        return {number: within(self.keys.cuts, _counts(one, name), start, end) for number, one in self.readers.items()}


def sweep(
    plans: list[ReplicaPlan], replicas: list[Replica], pairs: list[Pair], reader: LogReader, evidence: list[str]
) -> Swept | None:
    """Compare the latest record of every key between these pairs of replicas; None if that cannot be, which the reader notes."""
    kept, limit = retention(replicas), cleaned_end(replicas)
    numbers = sorted({number for pair in pairs for number in (pair.left, pair.right)})
    sides = {number: Side(replicas[number].log_end_offset) for number in numbers}
    cuts = KeyComparison(sides, pairs, limit, 0).cuts
    seed = secrets.randbits(64)
    with KeyRuns(evidence) as runs:
        readers = {n: KeyReader(plans[n], replicas[n], n, cuts, seed, kept.milliseconds, runs) for n in numbers}
        try:
            for number, one in readers.items():
                one.read()
                reader.incomplete += one.incomplete
                reader.problems += [(replicas[number], segment, problem) for segment, problem in one.problems]
            sides = {n: Side(replicas[n].log_end_offset, one.damaged_end) for n, one in readers.items()}
            newest = max(_newest(one) for one in readers.values())
            keys = KeyComparison(sides, pairs, limit, newest if reader.as_of_ms is None else reader.as_of_ms)
            for block in runs.blocks():
                keys.step(block)
        except SourceError as error:
            plan = plans[numbers[0]]
            reader.incomplete.append(Incomplete(typed_path(plan.log_dir.source, plan.directory.path), error.reason))
            return None
    return Swept(keys, readers, kept)


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


def _newest(one: KeyReader) -> int:
    """The latest time known of a copy, ms: that of its newest record, or of the last change to a file of its log directory."""
    directory, log_dir = one.plan.directory, one.plan.log_dir.found
    entries = [*log_dir.entries.values(), *directory.entries.values(), *(segment.log for segment in directory.segments)]
    changed = max((entry.mtime_ns // 1_000_000 for entry in entries if entry is not None), default=-1)
    return max(one.newest_timestamp, changed)


def _told(replicas: list[Replica], comparison: Comparison, swept: Swept) -> list[Finding]:
    """The findings; where latest records differ, the partition's replicas do not agree."""
    keys, tally = swept.keys, swept.keys.tally
    start, end = max(pair.start for pair in keys.pairs), min(pair.end for pair in keys.pairs)
    counts = (swept.counted(name, start, end) for name in ("records", "aborted", "keyless", "markers"))
    compared = Compared(start, end, *counts)
    if tally.differing and comparison.agreement.kind == "compacted":
        comparison.agreement = Agreement("missing", tally.first_offset)
    return compaction_findings(replicas, tally, compared, swept.kept)


def _counts(one: KeyReader, name: str) -> "NDArray[np.int64]":
    """A count of a reader by interval."""
    counts = one.counts
    states = {"records": State.VISIBLE, "aborted": State.ABORTED}
    if name in states:
        by_interval: NDArray[np.int64] = counts.records[states[name]]
        return by_interval
    return counts.keyless if name == "keyless" else counts.markers
