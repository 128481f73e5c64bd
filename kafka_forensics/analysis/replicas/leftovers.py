"""Offsets that leftover files have and the live log lacks, and index files without a log, as evidence."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import Run
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.offset_ranges import Range, Ranges, normalised, without

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import SegmentMissingEvidence
    from kafka_forensics.evidence.context import ReplicaContext

LISTED: Final = 16
_NEVER_COMMITTED: Final = (
    "none of it was committed: a replica that follows a new leader truncates records that the leader never had"
)
SEARCHED: Final = 4096
"""Runs of leftovers examined for one finding of missing offsets."""


class LeftoverLog(Struct, frozen=True):
    """The good batches of a log file that is not part of a live log: `.deleted`, `.swap`, `.cleaned`, or in a directory named
    `-delete`, `-stray`, `-future` (`suffix`)."""

    topic: str
    partition: int
    broker: int | str
    log_dir: str
    file: str
    """Relative to the log directory."""
    suffix: str
    topic_id: str | None
    runs: tuple[Run, ...]
    batches: int

    @property
    def group(self) -> tuple[object, ...]:
        """Key of one finding: the files of one kind in one directory."""
        return self.broker, self.log_dir, self.file.partition("/")[0], self.suffix


class IndexWithoutLog(Struct, frozen=True):
    """Index files of a segment without its `.log`: its base offset, their names, and the end offsets that they prove."""

    base_offset: int
    files: tuple[str, ...]
    ends: Mapping[str, int]
    """By `offset index`, `time index` and `transaction index`, of those that prove any."""


def with_leftover_findings(
    replicas: Sequence[Replica], leftover_logs: Sequence[LeftoverLog], findings: list[Finding]
) -> list[Finding]:
    """`LEFTOVER_HOLDS_DATA` for the files of each directory and suffix with offsets that the broker's live log lacks.

    Truncated segments that no live log extends to are the last copy of their records: a `warning`, suspected. Kafka keeps truncated
    segments for a minute (`file.delete.delay.ms`), or until its next start.

    Findings of missing offsets that they have get `also_in`: the files. The live log of a recreated topic has none of the old
    topic's offsets, whatever other brokers have.
    """
    groups: dict[tuple[object, ...], list[LeftoverLog]] = {}
    for leftover in leftover_logs:
        groups.setdefault(leftover.group, []).append(leftover)
    leftovers = []
    for members in groups.values():
        found, findings = _leftover(members, replicas, findings)
        leftovers += [] if found is None else [found]
    return findings + leftovers


def _contents(members: Sequence[LeftoverLog], lacking: Sequence[Range], live: Sequence[Replica]) -> Json:
    evidence: Json = {
        "files": [leftover.file for leftover in members[:LISTED]],
        "suffix": members[0].suffix,
        "batches": sum(leftover.batches for leftover in members),
        "offsets": [[low, high] for low, high in lacking[:LISTED]],
        "expired": bool(live) and lacking[-1][1] <= min(replica.log_start_offset for replica in live),
        "after_log_end": bool(live) and lacking[0][0] >= max(replica.log_end_offset for replica in live),
    }
    if live and not any(without(lacking, normalised(replica.remote)) for replica in live):
        evidence["in_remote_storage"] = True
    return evidence


def _leftover(
    members: Sequence[LeftoverLog], replicas: Sequence[Replica], findings: list[Finding]
) -> tuple[Finding | None, list[Finding]]:
    """The finding about the files of one directory and suffix, None if the live log has all their offsets or is not known; and
    `findings`, with those files where they have missing offsets."""
    first = members[0]
    live = [replica for replica in replicas if replica.broker == first.broker]
    topic_ids = {replica.context.topic_id for replica in live or replicas} - {None}
    other_topic = first.topic_id is not None and bool(topic_ids) and first.topic_id not in topic_ids
    if other_topic:
        live = []
    elif any(replica.state.unread for replica in live):
        return None, findings
    lacking = _lacking(members, live)
    if not lacking:
        return None, findings
    start, end = lacking[0][0], lacking[-1][1]
    findings, fills = (findings, []) if other_topic else _with_leftovers(members, findings)
    evidence = _contents(members, lacking, live) | {"fills": fills[:LISTED]}
    if first.suffix == "stray":
        evidence["is_stray"] = True
    if other_topic:
        evidence["topic_id"] = first.topic_id
    place = Place(first.topic, first.partition, first.broker, first.log_dir, first.file, offset_start=start, offset_end=end)
    reached = any(replica.log_end_offset > start or replica.state.unread or not replica.end_is_known for replica in replicas)
    if evidence["after_log_end"] and first.suffix == "deleted" and not reached:
        evidence["harmless_if"] = _NEVER_COMMITTED
        last = finding("LEFTOVER_HOLDS_DATA", place, evidence, severity=Severity.WARNING, confidence=Confidence.SUSPECTED)
        return last, findings
    return finding("LEFTOVER_HOLDS_DATA", place, evidence), findings


def _lacking(members: Sequence[LeftoverLog], live: Sequence[Replica]) -> Ranges:
    """Offsets of these files that no live log of their broker has, ascending and joined.

    Offsets missing inside a compacted log were removed by its cleaner.
    """
    covered = [span for replica in live for span in replica.good_ranges]
    covered += [(replica.log_start_offset, replica.log_end_offset) for replica in live if replica.context.compacted]
    runs = normalised((run.start_offset, run.end_offset) for leftover in members for run in leftover.runs)
    return without(runs, normalised(covered))


def _with_leftovers(members: Sequence[LeftoverLog], findings: list[Finding]) -> tuple[list[Finding], list[str]]:
    """`findings`, with the files in those about missing offsets that they have; and names of these findings."""
    spans = sorted((run.start_offset, run.end_offset, number) for number, leftover in enumerate(members) for run in leftover.runs)
    starts = [start for start, _, _ in spans]
    fills: dict[str, None] = {}
    answer: list[Finding] = []
    for missing in findings:
        answer.append(missing)
        start, end = missing.place.offset_start, missing.place.offset_end
        if missing.kind not in kinds_with(Trait.LEFTOVERS_MAY_FILL) or start is None or end is None:
            continue
        before = bisect_left(starts, end)
        near = spans[max(before - SEARCHED, 0) : before]
        numbers = dict.fromkeys(number for _, run_end, number in near if run_end > start)
        if numbers:
            place = missing.place.broker, missing.place.log_dir
            files = [
                leftover.file if (leftover.broker, leftover.log_dir) == place else f"broker {leftover.broker}: {leftover.file}"
                for leftover in (members[number] for number in numbers)
            ]
            answer[-1] = missing.with_evidence(also_in=[*missing.evidence.get("also_in", []), *files][:LISTED])
            fills[missing.kind if missing.place.broker is None else f"{missing.kind} on broker {missing.place.broker}"] = None
    return answer, list(fills)


def _proves_gap(index: IndexWithoutLog, gaps: list[tuple[int, int]], findings: list[Finding]) -> bool:
    """Whether an index is in one of the gaps, (start, number of the finding); adds it as evidence there."""
    after = bisect_right(gaps, index.base_offset, key=lambda gap: gap[0])
    number = gaps[after - 1][1] if after else -1
    if number < 0 or index.base_offset >= (findings[number].place.offset_end or 0):
        return False
    files = [*findings[number].evidence.get("index_files", []), *index.files][:LISTED]
    findings[number] = replace(findings[number].with_evidence(index_files=files), confidence=Confidence.PROVEN)
    return True


def with_segments_of_indexes_without_log(
    replica: Replica, indexes: Sequence[IndexWithoutLog], snapshots: Sequence[int], findings: list[Finding]
) -> list[Finding]:
    """`findings`, with the segments that index files without a log prove: evidence for `SEGMENT_MISSING` inside the log, a finding
    before or after it. `snapshots`: offsets in the names of producer snapshots.

    Without it, a missing first segment looks like retention. Nothing is reported below the checkpointed log start, or before the
    last segment of compacted logs, whose cleaner removes whole segments.
    """
    context = replica.context
    bases = context.segment_base_offsets
    start = replica.local_log_start_offset if replica.is_tiered else context.log_start_checkpoint or 0
    gaps = sorted((gap.place.offset_start or 0, number) for number, gap in enumerate(findings) if gap.kind == "SEGMENT_MISSING")
    findings = list(findings)
    edges: dict[bool, list[IndexWithoutLog]] = {}
    for index in indexes:
        if _proves_gap(index, gaps, findings):
            continue
        is_first, is_last = (index.base_offset < bases[0], index.base_offset > bases[-1]) if bases else (False, True)
        if index.base_offset >= start and (is_last or (is_first and not context.compacted)):
            edges.setdefault(is_first, []).append(index)
    for is_first, edge in edges.items():
        if is_first:
            first_offset, evidence = _remaining_files(replica, edge)
            evidence["missing"] = bases[0] - first_offset
            place = context.place(offset_start=first_offset, offset_end=bases[0])
            findings.append(finding("SEGMENT_MISSING", place, evidence))
        else:
            findings.append(_at_end(replica, edge, snapshots))
    return findings


def _at_end(replica: Replica, indexes: Sequence[IndexWithoutLog], snapshots: Sequence[int]) -> Finding:
    """`SEGMENT_MISSING` for the last segments without logs, as far as remaining files prove offsets; a `warning` if none does.
    After a clean shutdown the end is known: the broker writes the log end twice."""
    start, evidence = _remaining_files(replica, indexes)
    ends = {witness: end for witness, end in _ends(replica.context, indexes, snapshots).items() if end > start}
    if not ends:
        evidence["harmless_if"] = "the segment was empty: no file names one of its records"
        place = replica.context.place(offset_start=start)
        return finding("SEGMENT_MISSING", place, evidence, severity=Severity.WARNING, confidence=Confidence.SUSPECTED)
    recovery_point = ends.get("recovery point") if replica.context.clean_shutdown else None
    is_known = recovery_point is not None and recovery_point == ends.get("producer snapshot")
    end_offset = recovery_point if is_known and recovery_point is not None else max(ends.values())
    evidence |= {
        "missing": end_offset - start,
        "end_offsets": ends,
        "witnesses": [witness for witness, end in ends.items() if end == end_offset],
    }
    if not is_known:
        evidence["at_least"] = True
    return finding("SEGMENT_MISSING", replica.context.place(offset_start=start, offset_end=end_offset), evidence)


def _remaining_files(replica: Replica, indexes: Sequence[IndexWithoutLog]) -> "tuple[int, SegmentMissingEvidence]":
    """Where the first of these segments began, and evidence of their remaining files."""
    start = min(index.base_offset for index in indexes)
    files = [name for index in indexes for name in index.files][:LISTED]
    return start, {"file": replica.context.log_file(start), "index_files": files}


def _ends(context: "ReplicaContext", indexes: Sequence[IndexWithoutLog], snapshots: Sequence[int]) -> dict[str, int]:
    """How far the log extended at least, by file: a snapshot's name, an epoch's first offset, the high watermark and the recovery
    point are past log ends or lower (ProducerStateManager, LeaderEpochFileCache, LogManager)."""
    by_file = {
        "producer snapshot": max(snapshots, default=None),
        "recovery point": context.recovery_point,
        "high watermark": context.high_watermark,
        "leader-epoch-checkpoint": max((entry.start_offset for entry in context.epoch_checkpoint or ()), default=None),
    }
    ends = {witness: end for witness, end in by_file.items() if end is not None}
    for index in indexes:
        for witness, end in index.ends.items():
            ends[witness] = max(end, ends.get(witness, end))
    return ends
