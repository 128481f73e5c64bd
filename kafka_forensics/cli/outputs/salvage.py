"""What a salvage wrote and refused, a line a partition, or as its manifest."""

from collections.abc import Iterable, Iterator
from typing import Final

from kafka_forensics.cli.outputs.plan_words import wrapped
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines, table_lines, tsv_lines
from kafka_forensics.cli.outputs.salvage_steps import preamble, steps_of
from kafka_forensics.cli.outputs.steps import steps_markdown, steps_text
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.amounts import first_few, plural, size
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import Columns, Json, attributes, json_text, object_of
from kafka_forensics.questions.salvage import MANIFEST, Salvaged, SalvagedPartition, document
from kafka_forensics.wording import offset_range

COLUMNS: Final = (
    *("topic", "partition", "outcome", "log_start_offset", "log_end_offset", "bytes", "segments", "brokers", "gaps", "left_behind"),
    *("new", "reason"),
)
HEADS: Final = ("partition", "outcome", "offsets", "bytes", "from brokers", "gaps", "left behind")
_RIGHT: Final = ("bytes",)
_TIERED_NAMED: Final = 8
_FINDINGS_NAMED: Final = 8
"""New findings of a partition that the table names; the manifest has all."""


def write_salvaged(salvaged: Salvaged, format_name: str, to: Destination) -> None:
    """Write the answer to `to` as `text`, `tsv`, `json` or `markdown`."""
    if format_name == "json":
        to.stream.write(json_text(document(salvaged)) + "\n")
        return
    answer = {"text": _table(salvaged, to.width), "tsv": tsv_lines(COLUMNS, _rows(salvaged)), "markdown": _markdown(salvaged)}
    to.stream.writelines(answer[format_name])


def _table(salvaged: Salvaged, width: int) -> Iterator[str]:
    yield from table_lines(HEADS, _RIGHT, map(_cells, salvaged.partitions), width)
    for line in (*_new_findings(salvaged), *_refusals(salvaged)):
        yield from wrapped(line, width, "    " if line.startswith(" ") else "  ")
    yield from steps_text(preamble(salvaged), steps_of(salvaged), width)


def _markdown(salvaged: Salvaged) -> Iterator[str]:
    yield "# kafka-forensics: salvage\n\n"
    yield from markdown_lines(HEADS, map(_cells, salvaged.partitions))
    for line in (*_new_findings(salvaged), *_refusals(salvaged)):
        yield f"\n{markdown(line.strip())}\n"
    yield from steps_markdown(preamble(salvaged), steps_of(salvaged))


def remote_warnings(salvaged: Salvaged) -> list[str]:
    """A warning not to start brokers while tiered partitions are refused or have no copy here; none if DIR is for others."""
    lacking = [
        name(refusal.topic, refusal.partition) for refusal in (*salvaged.refused, *salvaged.begun_empty) if refusal.is_tiered
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
    lines = [f"incomplete: {printable(unread.path)}: {printable(unread.reason)}" for unread in salvaged.incomplete]
    if quiet:
        return lines
    count, refused = len(salvaged.partitions), len(salvaged.refused)
    where = printable(salvaged.output)
    summary = f"salvaged {plural(count, 'partition')} ({size(salvaged.size_in_bytes)} of segments) to {where}"
    summary += f"; {MANIFEST} there says what came from where" + (f"; {plural(refused, 'partition')} refused" if refused else "")
    warned: dict[str, list[str]] = {}
    for partition in salvaged.partitions:
        if partition.warning is not None:
            warned.setdefault(partition.warning, []).append(name(partition.topic, partition.partition))
    return [summary, *lines, *(f"note: {listed(names)}: {warning}" for warning, names in warned.items())]


def _ranges_text(ranges: Iterable[tuple[int, int | None]]) -> str:
    return ", ".join(f"{start} and later" if end is None else offset_range(start, end) for start, end in ranges)


def _left_behind_text(partition: SalvagedPartition) -> str:
    return ", ".join(f"{offset_range(left.start, left.end)} on {printable(str(left.broker))}" for left in partition.left_behind)


def _cells(partition: SalvagedPartition) -> list[str]:
    return [
        name(partition.topic, partition.partition),
        "with gaps" if partition.gaps else "whole",
        offset_range(partition.log_start_offset, partition.log_end_offset),
        f"{partition.size_in_bytes:,}",
        ", ".join(printable(str(broker)) for broker in partition.brokers),
        _ranges_text((gap.start, gap.end) for gap in partition.gaps),
        _left_behind_text(partition),
    ]


def _finding_text(finding: Finding) -> str:
    start, producer_id = finding.place.offset_start, finding.evidence.get("producer_id")
    offsets = "" if start is None else f" {_ranges_text([(start, finding.place.offset_end)])}"
    return finding.kind + offsets + ("" if producer_id is None else f" of producer {producer_id}")


def _new_findings(salvaged: Salvaged) -> Iterator[str]:
    if salvaged.new:
        yield f"new, of no single partition: {listed(map(_finding_text, salvaged.new))}\n"
    for partition in salvaged.partitions:
        if partition.new:
            found = first_few(map(_finding_text, partition.new), _FINDINGS_NAMED)
            yield f"new in {name(partition.topic, partition.partition)}: {found}\n"
            yield "  no copy has this at these offsets: compare the copies there before a broker starts on it\n"


def _refusals(salvaged: Salvaged) -> Iterator[str]:
    for refusal in salvaged.begun_empty:
        yield f"begun empty {name(refusal.topic, refusal.partition)}: {printable(refusal.reason)}\n"
    for refusal in salvaged.refused:
        yield f"refused {name(refusal.topic, refusal.partition)}: {printable(refusal.reason)}\n"
        if refusal.hint is not None:
            yield f"  {printable(refusal.hint)}\n"


def _rows(salvaged: Salvaged) -> Iterator[Json]:
    empty: Json = dict.fromkeys(COLUMNS)
    yield from (empty | object_of(_SALVAGED_COLUMNS, partition) for partition in salvaged.partitions)
    if salvaged.new:
        yield empty | {"new": ", ".join(map(_finding_text, salvaged.new))}
    for outcome, refusals in (("begun_empty", salvaged.begun_empty), ("refused", salvaged.refused)):
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
