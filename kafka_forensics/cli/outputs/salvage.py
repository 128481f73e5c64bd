"""What a salvage wrote and refused, a line a partition, or as its manifest."""

from collections.abc import Iterable, Iterator
from typing import Final

from kafka_forensics.cli.outputs.rows import markdown, markdown_lines, table_lines, tsv_lines
from kafka_forensics.cli.outputs.salvage_steps import head, steps_of
from kafka_forensics.cli.outputs.steps import markdown_of, text_of
from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.amounts import first_few, plural, size
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import Json, json_text
from kafka_forensics.questions.salvage import MANIFEST, Salvaged, SalvagedPartition, document

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
    """Write the answer to `to` as `table`, `tsv`, `json` or `markdown`."""
    match format_name:
        case "table":
            to.stream.writelines(table_lines(HEADS, _RIGHT, map(_cells, salvaged.partitions), to.width))
            to.stream.writelines(_new_findings(salvaged))
            to.stream.writelines(_refusals(salvaged))
            to.stream.writelines(text_of(head(salvaged), steps_of(salvaged), to.width))
        case "markdown":
            to.stream.writelines(_page(salvaged))
        case "tsv":
            to.stream.writelines(tsv_lines(COLUMNS, _rows(salvaged)))
        case "json":
            to.stream.write(json_text(document(salvaged)) + "\n")
        case _:
            raise AssertionError(format_name)


def remote_warnings(salvaged: Salvaged) -> list[str]:
    """What must not be done while tiered partitions are refused, or no copy of them is here."""
    lacking = [printable(f"{one.topic}-{one.partition}") for one in (*salvaged.refused, *salvaged.begun_empty) if one.is_tiered]
    named = listed(lacking if len(lacking) <= _TIERED_NAMED else [*lacking[:_TIERED_NAMED], f"{len(lacking) - _TIERED_NAMED} more"])
    text = f"start no broker before {named} is salvaged or copied back: Kafka would delete what it has in remote storage"
    return [text] if lacking else []


def announcement(salvaged: Salvaged) -> str:
    """What is about to be written."""
    directories = "1 log directory" if len(salvaged.log_dirs) == 1 else f"{len(salvaged.log_dirs)} log directories"
    return f"to be written: {size(salvaged.bytes_to_write)} of segments, in {directories}"


def _page(salvaged: Salvaged) -> Iterator[str]:
    """The table, the refusals and the steps as Markdown."""
    yield "# kafka-forensics: salvage\n\n"
    yield from markdown_lines(HEADS, (dict(zip(HEADS, _cells(one), strict=True)) for one in salvaged.partitions))
    for line in (*_new_findings(salvaged), *_refusals(salvaged)):
        yield f"\n{markdown(line.strip())}\n"
    yield from markdown_of(head(salvaged), steps_of(salvaged))


def summary_lines(salvaged: Salvaged, *, quiet: bool) -> list[str]:
    """What was done, for stderr; what could not be read in any case."""
    lines = [f"incomplete: {printable(gap.path)}: {printable(gap.reason)}" for gap in salvaged.incomplete]
    if quiet:
        return lines
    count, refused = len(salvaged.partitions), len(salvaged.refused)
    where = printable(salvaged.output)
    said = f"salvaged {plural(count, 'partition')} ({size(salvaged.size_in_bytes)} of segments) to {where}"
    said += f"; {MANIFEST} there says what came from where"
    lines += [f"note: {line}" for line in warnings(salvaged.partitions)]
    return [said + (f"; {plural(refused, 'partition')} refused" if refused else ""), *lines]


def warnings(partitions: Iterable[SalvagedPartition]) -> list[str]:
    """The warnings about compacted topics, each with the partitions it concerns."""
    warned: dict[str, list[str]] = {}
    for partition in partitions:
        if partition.warning is not None:
            warned.setdefault(partition.warning, []).append(f"{printable(partition.topic)}-{partition.partition}")
    return [f"{listed(names)}: {warning}" for warning, names in warned.items()]


def _spans(spans: Iterable[tuple[int, int | None]]) -> str:
    return ", ".join(f"{start}..{'' if end is None else end}" for start, end in spans)


def _left(partition: SalvagedPartition) -> str:
    return ", ".join(f"{left.start}..{left.end} on {printable(str(left.broker))}" for left in partition.left_behind)


def _cells(partition: SalvagedPartition) -> list[str]:
    return [
        f"{printable(partition.topic)}-{partition.partition}",
        "with gaps" if partition.gaps else "whole",
        f"{partition.log_start_offset}..{partition.log_end_offset}",
        f"{partition.size_in_bytes:,}",
        ", ".join(printable(str(broker)) for broker in partition.brokers),
        _spans([(gap.start, gap.end) for gap in partition.gaps]),
        _left(partition),
    ]


def _found(finding: Finding) -> str:
    start, end = finding.place.offset_start, finding.place.offset_end
    producer_id = finding.evidence.get("producer_id")
    offsets = "" if start is None else f" {start}..{'' if end is None else end}"
    return finding.kind + offsets + ("" if producer_id is None else f" of producer {producer_id}")


def _new_findings(salvaged: Salvaged) -> Iterator[str]:
    if salvaged.new:
        yield f"new, of no single partition: {listed(map(_found, salvaged.new))}\n"
    for partition in salvaged.partitions:
        if partition.new:
            found = first_few(map(_found, partition.new), _FINDINGS_NAMED)
            yield f"new in {printable(partition.topic)}-{partition.partition}: {found}\n"
            yield "  no copy has this at these offsets: compare the copies there before a broker starts on it\n"


def _refusals(salvaged: Salvaged) -> Iterator[str]:
    for one in salvaged.begun_empty:
        yield f"begun empty {printable(one.topic)}-{one.partition}: {printable(one.reason)}\n"
    for refusal in salvaged.refused:
        yield f"refused {printable(refusal.topic)}-{refusal.partition}: {printable(refusal.reason)}\n"
        if refusal.hint is not None:
            yield f"  {printable(refusal.hint)}\n"


def _rows(salvaged: Salvaged) -> Iterator[Json]:
    for partition in salvaged.partitions:
        yield {
            "topic": partition.topic,
            "partition": partition.partition,
            "outcome": "gaps" if partition.gaps else "whole",
            "log_start_offset": partition.log_start_offset,
            "log_end_offset": partition.log_end_offset,
            "bytes": partition.size_in_bytes,
            "segments": partition.segments,
            "brokers": ",".join(map(str, partition.brokers)),
            "gaps": _spans([(gap.start, gap.end) for gap in partition.gaps]) or None,
            "left_behind": _left(partition) or None,
            "new": ", ".join(map(_found, partition.new)) or None,
            "reason": None,
        }
    if salvaged.new:
        yield dict.fromkeys(COLUMNS) | {"new": ", ".join(map(_found, salvaged.new))}
    outcomes = [("begun_empty", one) for one in salvaged.begun_empty] + [("refused", one) for one in salvaged.refused]
    for outcome, refusal in outcomes:
        row: Json = dict.fromkeys(COLUMNS)
        known = {"topic": refusal.topic, "partition": refusal.partition, "outcome": outcome, "reason": refusal.reason}
        yield row | known | {"brokers": ",".join(map(str, refusal.brokers)) or None, "gaps": _spans(refusal.offsets) or None}
