"""What files on their way out still hold that the live log has not, and indexes whose log is gone, as evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.continuity import Run
from kafka_forensics.analysis.recovery import subtract
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.model.findings import Confidence, Finding, Place

LISTED: Final = 16
_FILLED: Final = frozenset(
    {"OFFSET_GAP", "SEGMENT_MISSING", "HW_BEYOND_LEO", "COMMITTED_LOST_EVERYWHERE", "SEG_SHORT", "FRAMING_LOST", "SEG_HOLE"}
)
"""Kinds that say which offsets are missing."""


@dataclass(frozen=True, slots=True)
class HeldAside:
    """The good batches of one log file that no live log holds by its name: of `.deleted`, `.swap`, `.cleaned`, or in a directory
    named `-delete`, `-stray`, `-future` (`suffix`)."""

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
        """What one finding speaks of: the files of one kind in one directory."""
        return self.broker, self.log_dir, self.file.partition("/")[0], self.suffix


@dataclass(frozen=True, slots=True)
class LoneIndex:
    """Index files of a segment without its `.log`: its base offset, their names, the last offset they name (None: none)."""

    base_offset: int
    files: tuple[str, ...]
    last_offset: int | None


def leftover_findings(replicas: Sequence[Replica], aside: Sequence[HeldAside], findings: Sequence[Finding]) -> list[Finding]:
    """`LEFTOVER_HOLDS_DATA` for the files of each directory and suffix that hold offsets the broker's live log lacks.

    The findings of missing offsets that they would fill get `also_in`: where the offsets are.
    """
    groups: dict[tuple[object, ...], list[HeldAside]] = {}
    for one in aside:
        groups.setdefault(one.group, []).append(one)
    found = []
    for members in groups.values():
        first = members[0]
        live = [one for one in replicas if one.broker == first.broker]
        ids = {one.context.topic_id for one in replicas} - {None}
        other_topic = first.topic_id is not None and bool(ids) and first.topic_id not in ids
        lacking = _lacking(members, [] if other_topic else live)
        if not lacking:
            continue
        start, end = min(a for a, _ in lacking), max(b for _, b in lacking)
        fills = [] if other_topic else _fill(members, findings)
        evidence: dict[str, Any] = {
            "files": [one.file for one in members[:LISTED]],
            "suffix": first.suffix,
            "batches": sum(one.batches for one in members),
            "offsets": [[a, b] for a, b in lacking[:LISTED]],
            "expired": bool(live) and not other_topic and end <= min(one.log_start_offset for one in live),
            "behind_log_end": bool(live) and not other_topic and start >= max(one.log_end_offset for one in live),
            "fills": fills[:LISTED],
        }
        if other_topic:
            evidence["topic_id"] = first.topic_id
        place = Place(first.topic, first.partition, first.broker, first.log_dir, first.file, offset_start=start, offset_end=end)
        found.append(finding("LEFTOVER_HOLDS_DATA", place, evidence))
    return found


def _lacking(members: Sequence[HeldAside], live: Sequence[Replica]) -> list[tuple[int, int]]:
    """Offsets of these files that no live log of their broker has, ascending and joined.

    Between its ends a compacted log has what its cleaner left: what it took is no loss.
    """
    runs = [run for one in live for run in one.state.continuity.runs]
    runs += [Run(one.log_start_offset, one.log_end_offset, 0, 0, 0) for one in live if one.context.compacted]
    rest = sorted({span for one in members for run in one.runs for span in subtract(run.start_offset, run.end_offset, runs)})
    joined: list[tuple[int, int]] = []
    for start, end in rest:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _fill(members: Sequence[HeldAside], findings: Sequence[Finding]) -> list[str]:
    """Tell the findings of missing offsets which files have some; names of those findings."""
    fills: list[str] = []
    for one in findings:
        start, end = one.place.offset_start, one.place.offset_end
        if one.kind not in _FILLED or start is None or end is None:
            continue
        files = [
            _label(each, one.place)
            for each in members
            if any(run.start_offset < end and start < run.end_offset for run in each.runs)
        ]
        if not files:
            continue
        one.evidence["also_in"] = [*one.evidence.get("also_in", []), *files][:LISTED]
        name = one.kind if one.place.broker is None else f"{one.kind} on broker {one.place.broker}"
        fills += [] if name in fills else [name]
    return fills


def _label(one: HeldAside, place: Place) -> str:
    """The file as that finding may call it: its broker is named where it is another."""
    return one.file if (one.broker, one.log_dir) == (place.broker, place.log_dir) else f"broker {one.broker}: {one.file}"


def lone_index_findings(replica: Replica, lone: Sequence[LoneIndex], findings: list[Finding]) -> list[Finding]:
    """Index files prove a segment: evidence for `SEGMENT_MISSING` inside the log, and a finding of its own before or behind it.

    Before the log's first segment it would else look like retention. Nothing is said of what lies below the checkpointed log start,
    or of compacted logs, whose cleaner takes whole segments.
    """
    context = replica.context
    bases = context.segment_base_offsets
    found = []
    for one in lone:
        told = False
        for number, each in enumerate(findings):
            start, end = each.place.offset_start, each.place.offset_end
            if each.kind == "SEGMENT_MISSING" and start is not None and end is not None and start <= one.base_offset < end:
                files = [*each.evidence.get("index_files", []), *one.files][:LISTED]
                evidence = each.evidence | {"index_files": files}
                findings[number] = replace(each, confidence=Confidence.PROVEN, evidence=evidence)
                told = True
        if told or context.compacted or one.base_offset < (context.log_start_checkpoint or 0):
            continue
        if bases and bases[0] < one.base_offset < bases[-1]:
            continue
        behind = [base for base in bases if base > one.base_offset]
        end_offset = min(behind) if behind else None if one.last_offset is None else one.last_offset + 1
        evidence = {"file": context.log_file(one.base_offset), "index_files": list(one.files[:LISTED])}
        if end_offset is not None:
            evidence["missing"] = end_offset - one.base_offset
        place = context.place(offset_start=one.base_offset, offset_end=end_offset)
        found.append(finding("SEGMENT_MISSING", place, evidence))
    return found
