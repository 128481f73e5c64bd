"""What a salvage wrote and refused, as text, rows, a page of steps, or its manifest."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from kafka_forensics.cli.outputs.console_page import FirstScreen, first_screen_text
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines, tsv_lines
from kafka_forensics.cli.outputs.salvage_steps import preamble, steps_of
from kafka_forensics.cli.outputs.steps import OperatorStep, partitions_words, steps_markdown, steps_text
from kafka_forensics.cli.outputs.words import SHOWN_ROWS, GroupedTable, broker_name, name
from kafka_forensics.cli.streams import Destination, wrapped
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.amounts import first_few, plural, size
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.grouped import grouped
from kafka_forensics.model.json_objects import Columns, Json, attributes, json_text, object_of
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.questions.salvage import MANIFEST, Salvaged, SalvagedPartition, document
from kafka_forensics.wording import offset_range

COLUMNS: Final = (
    *("topic", "partition", "outcome", "log_start_offset", "log_end_offset", "bytes", "segments", "brokers", "gaps", "left_behind"),
    *("new", "reason"),
)
HEADS: Final = ("partition", "offsets", "bytes", "from brokers", "gaps", "not salvaged")
_RIGHT: Final = ("bytes",)
_TIERED_NAMED: Final = 8
_NEW_SHOWN: Final = 5
_TOPICS_SHOWN: Final = 6
_FINDINGS_NAMED: Final = 8
"""New findings of a partition that the table names; the manifest has all."""


def write_salvaged(salvaged: Salvaged, format_name: str, to: Destination, *, by: str = "incident") -> None:
    """Write the answer to `to` as `text`, `tsv`, `json` or `markdown`."""
    if format_name == "json":
        to.stream.write(json_text(document(salvaged)) + "\n")
        return
    answer = {"text": _text(salvaged, to, by), "tsv": tsv_lines(COLUMNS, _rows(salvaged)), "markdown": _markdown(salvaged)}
    to.stream.writelines(answer[format_name])


def _text(salvaged: Salvaged, to: Destination, by: str) -> Iterator[str]:
    """The first screen; a line for all whole partitions from the same brokers, and for those of a topic with gaps, or for each
    partition if `by` is "partition"; what was refused; the steps."""
    steps = steps_of(salvaged)
    yield first_screen_text(_first_screen(salvaged, steps), to)
    if salvaged.partitions:
        yield "\n"
        groups = [[partition] for partition in salvaged.partitions] if by == "partition" else _groups(salvaged.partitions)
        yield from GroupedTable(HEADS, _RIGHT, _group_cells).lines(groups, None if by == "partition" else SHOWN_ROWS, to.width)
    lines = [*_new_findings(salvaged, most=None if by == "partition" else _NEW_SHOWN), *_refusals(salvaged)]
    if lines:
        yield "\n"
    for line in lines:
        yield from wrapped(line, to.width, "    " if line.startswith(" ") else "  ")
    yield from steps_text(preamble(salvaged), steps, to.width)


def _first_screen(salvaged: Salvaged, steps: Sequence[OperatorStep]) -> FirstScreen:
    gaps = [gap for partition in salvaged.partitions for gap in partition.gaps]
    left = [left for partition in salvaged.partitions for left in partition.left_behind]
    verdict = "warning" if gaps or left or salvaged.started_empty else "clean"
    if not salvaged.is_whole or salvaged.has_new_findings:
        verdict = "error"
    lines = [("manifest", f"{unquoted(salvaged.output)}/{MANIFEST} says which copy each byte is from")]
    if gaps:
        missing = sum(gap.end - gap.start for gap in gaps if gap.end is not None)
        more = "" if all(gap.end is not None for gap in gaps) else ", and unknown numbers of later ones"
        lines.append(("gaps", f"no copy holds {plural(missing, 'offset')} of the salvaged partitions{more}"))
    if salvaged.started_empty:
        lines.append(("empty", f"{partitions_words([empty.key for empty in salvaged.started_empty])} start without records"))
    if left:
        others = sum(part.end - part.start for part in left)
        lines.append(("left", f"other copies hold {plural(others, 'offset')} that are not salvaged"))
    if steps and steps[0].kind in ("refused", "salvage"):
        lines.append(("stopped", "start no broker on this salvage: it lacks partitions"))
    elif steps:
        lines.append(("next", "follow the steps below"))
    return FirstScreen(verdict, _summary(salvaged), lines)


def _summary(salvaged: Salvaged) -> str:
    """What was salvaged to where, and how many partitions were refused."""
    refused = f"; {plural(len(salvaged.refused), 'partition')} refused" if salvaged.refused else ""
    count, size_in_bytes = plural(len(salvaged.partitions), "partition"), size(salvaged.size_in_bytes)
    return f"salvaged {count} ({size_in_bytes} of segments) to {unquoted(salvaged.output)}{refused}"


def _groups(partitions: list[SalvagedPartition]) -> list[list[SalvagedPartition]]:
    """Partitions with gaps or with offsets left behind, those of a topic together, or of all topics if there are many; then whole
    partitions from the same brokers."""
    special = [partition for partition in partitions if partition.gaps or partition.left_behind]
    is_long = len({partition.topic for partition in special}) > _TOPICS_SHOWN
    topics = grouped(special, lambda partition: ("" if is_long else partition.topic, bool(partition.gaps), *partition.brokers))
    whole = grouped(
        (partition for partition in partitions if not (partition.gaps or partition.left_behind)),
        lambda partition: (*partition.brokers,),
    )
    return [*topics.values(), *whole.values()]


def _markdown(salvaged: Salvaged) -> Iterator[str]:
    yield "# kafka-forensics: salvage\n\n"
    yield from markdown_lines(HEADS, (_group_cells([partition]) for partition in salvaged.partitions))
    for line in (*_new_findings(salvaged), *_refusals(salvaged)):
        yield f"\n{markdown(line.strip())}\n"
    yield from steps_markdown(preamble(salvaged), steps_of(salvaged))


def remote_warnings(salvaged: Salvaged) -> list[str]:
    """A warning not to start brokers while tiered partitions are refused or have no copy here; none if DIR is for others."""
    lacking = [
        name(refusal.topic, refusal.partition) for refusal in (*salvaged.refused, *salvaged.started_empty) if refusal.is_tiered
    ]
    named = listed(lacking if len(lacking) <= _TIERED_NAMED else [*lacking[:_TIERED_NAMED], f"{len(lacking) - _TIERED_NAMED} more"])
    text = f"start no broker before {named} is salvaged or copied back: Kafka would delete what it has in remote storage"
    return [text] if lacking and not salvaged.from_store else []


def announcement(salvaged: Salvaged) -> str:
    """How much is about to be written."""
    directories = "1 log directory" if len(salvaged.log_dirs) == 1 else f"{len(salvaged.log_dirs)} log directories"
    return f"to be written: {size(salvaged.bytes_to_write)} of segments, in {directories}"


def summary_lines(salvaged: Salvaged, *, quiet: bool) -> list[str]:
    """What was salvaged, for stderr; with `quiet` only what could not be read."""
    lines = [f"incomplete: {unquoted(unread.path)}: {printable(unread.reason)}" for unread in salvaged.incomplete]
    if quiet:
        return lines
    warned = grouped(salvaged.partitions, attrgetter("warning"))
    notes = [
        f"note: {partitions_words([partition.key for partition in partitions])}: {warning}"
        for warning, partitions in warned.items()
        if warning is not None
    ]
    return [_summary(salvaged), *lines, *notes]


def _ranges_text(ranges: Iterable[tuple[int, int | None]]) -> str:
    return ", ".join(f"{start} and later" if end is None else offset_range(start, end) for start, end in ranges)


def _left_behind_text(partition: SalvagedPartition) -> str:
    return ", ".join(f"{offset_range(left.start, left.end)} on {broker_name(left.broker)}" for left in partition.left_behind)


def _group_cells(group: Sequence[SalvagedPartition]) -> list[str]:
    """A row for partitions; offsets, gaps and what was left behind only of a single one."""
    first = group[0]
    gaps = sum(gap.end - gap.start for partition in group for gap in partition.gaps if gap.end is not None)
    left = sum(part.end - part.start for partition in group for part in partition.left_behind)
    is_single = len(group) == 1
    return [
        partitions_words([partition.key for partition in group]),
        offset_range(first.log_start_offset, first.log_end_offset) if is_single else "",
        str(sum(partition.size_in_bytes for partition in group)),
        ", ".join(map(broker_name, first.brokers)),
        _ranges_text((gap.start, gap.end) for gap in first.gaps) if is_single else _counted(gaps),
        _left_behind_text(first) if is_single else _counted(left),
    ]


def _counted(offsets: int) -> str:
    return plural(offsets, "offset") if offsets else ""


def _finding_text(finding: Finding) -> str:
    start, producer_id = finding.place.offset_start, finding.evidence.get("producer_id")
    offsets = "" if start is None else f" {_ranges_text([(start, finding.place.offset_end)])}"
    return finding.kind + offsets + ("" if producer_id is None else f" of producer {producer_id}")


def _new_findings(salvaged: Salvaged, most: int | None = None) -> Iterator[str]:
    """Findings that no copy has, of at most `most` partitions."""
    if salvaged.new:
        yield f"new, of no single partition: {listed(map(_finding_text, salvaged.new))}\n"
    partitions = [partition for partition in salvaged.partitions if partition.new]
    for partition in partitions[:most]:
        yield f"new in {name(*partition.key)}: {first_few(map(_finding_text, partition.new), _FINDINGS_NAMED)}\n"
    if partitions:
        others = len(partitions) - len(partitions[:most])
        yield from [f"new in {plural(others, 'more partition')}; {MANIFEST} lists them\n"] if others else []
        yield "  no copy has these findings there: compare the copies before a broker starts on this salvage\n"


def _refusals(salvaged: Salvaged) -> Iterator[str]:
    """Partitions that were not salvaged: those with the same kind of reason, brokers and advice together."""
    for outcome, refusals in (("begun empty", salvaged.started_empty), ("refused", salvaged.refused)):
        groups = grouped(refusals, lambda refusal: (refusal.kind, refusal.hint, *refusal.brokers))
        hints = Counter(group[0].hint for group in groups.values())
        for group in groups.values():
            partitions, first = [refusal.key for refusal in group], group[0]
            example = f", such as {name(*first.key)}" if len(group) > 1 else ""
            yield f"{outcome} {partitions_words(partitions)}{example}: {unquoted(first.reason)}\n"
            hints[first.hint] -= 1
            if first.hint is not None and not hints[first.hint]:
                yield f"  {printable(first.hint)}\n"


def _rows(salvaged: Salvaged) -> Iterator[Json]:
    empty: Json = dict.fromkeys(COLUMNS)
    yield from (empty | object_of(_SALVAGED_COLUMNS, partition) for partition in salvaged.partitions)
    if salvaged.new:
        yield empty | {"new": ", ".join(map(_finding_text, salvaged.new))}
    for outcome, refusals in (("started_empty", salvaged.started_empty), ("refused", salvaged.refused)):
        yield from (empty | object_of(_REFUSED_COLUMNS, refusal) | {"outcome": outcome} for refusal in refusals)


_SALVAGED_COLUMNS: Final[Columns] = {
    **attributes("topic partition log_start_offset log_end_offset bytes=size_in_bytes segments"),
    "outcome": lambda partition: "gaps" if partition.gaps else "whole",
    "brokers": lambda partition: ",".join(map(str, partition.brokers)),
    "gaps": lambda partition: _ranges_text((gap.start, gap.end) for gap in partition.gaps) or None,
    "left_behind": lambda partition: _left_behind_text(partition) or None,
    "new": lambda partition: ", ".join(map(_finding_text, partition.new)) or None,
}
_REFUSED_COLUMNS: Final[Columns] = {
    **attributes("topic partition reason"),
    "brokers": lambda refusal: ",".join(map(str, refusal.brokers)) or None,
    "gaps": lambda refusal: _ranges_text(refusal.offsets) or None,
}
