"""A comparison in every format: one document, an object or a row for each replica at each offset, Markdown for a ticket."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafka_forensics.cli import compare_words as words
from kafka_forensics.cli.output_words import crowded_brokers, incomplete_lines, name, place_words, replica_words
from kafka_forensics.cli.rows import markdown, markdown_lines, tsv_lines
from kafka_forensics.cli.safe_text import printable
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import Shape, json_text, rfc3339
from kafka_forensics.questions.compare import Held, HeldRecord, SideBySide
from kafka_forensics.wording import message

Json = dict[str, Any]

RECORD_COLUMNS: Final = (
    "partition_leader_epoch",
    "timestamp_ms",
    "timestamp",
    "timestamp_type",
    "producer_id",
    "producer_id_string",
    "producer_epoch",
    "sequence",
    "control_record_type",
    "key_size",
    "key_digest",
    "value_size",
    "value_digest",
    "headers_count",
    "headers_digest",
    "is_valid",
)
"""Of a record, in every data format; null where a replica holds none."""
PAYLOAD_COLUMNS: Final = ("key", "key_base64", "value", "value_base64", "headers")
_TSV_LEAVES_OUT: Final = frozenset({"producer_id_string", "key_base64", "value_base64"})


def write_comparison(
    compared: SideBySide, format_name: str, to: Destination, shape: Shape, *, payloads: bool, verbose: bool
) -> None:
    """Write `compared` to `to` in one of the formats of `options.FORMATS`; `payloads` adds keys, values and headers.

    `shape` is that of JSON.
    """
    match format_name:
        case "table":
            from kafka_forensics.cli.compare_table import write_table

            write_table(compared, to, payloads=payloads, verbose=verbose)
        case "tsv":
            columns = [column for column in _columns(payloads) if column not in _TSV_LEAVES_OUT]
            to.stream.writelines(tsv_lines(["offset", "differs", "broker", "state", *columns], _flat(compared, payloads)))
        case "json":
            to.stream.writelines(_document(compared, shape, payloads))
        case "jsonl":
            to.stream.writelines(_lines(compared, shape, payloads))
        case "markdown":
            to.stream.writelines(_report(compared, verbose=verbose))
        case _:
            raise AssertionError(format_name)


def _columns(payloads: bool) -> Sequence[str]:
    return RECORD_COLUMNS + PAYLOAD_COLUMNS if payloads else RECORD_COLUMNS


def _held_object(held: Held, payloads: bool) -> Json:
    """What one replica holds at one offset."""
    told: Json = {"broker": held.broker, "state": held.state.value}
    values = {} if held.record is None else _record_values(held.record)
    return told | {column: values.get(column) for column in _columns(payloads)}


def _record_values(record: HeldRecord) -> Json:
    return {
        "partition_leader_epoch": record.partition_leader_epoch,
        "timestamp_ms": record.timestamp,
        "timestamp": rfc3339(record.timestamp),
        "timestamp_type": record.timestamp_type,
        "producer_id": record.producer_id,
        "producer_id_string": str(record.producer_id),
        "producer_epoch": record.producer_epoch,
        "sequence": record.sequence,
        "control_record_type": record.control_record_type,
        "key_size": record.key_size,
        "key_digest": record.key_digest,
        "value_size": record.value_size,
        "value_digest": record.value_digest,
        "headers_count": record.headers_count,
        "headers_digest": record.headers_digest,
        "is_valid": record.is_valid,
        "key": _text(record.key),
        "key_base64": _base64(record.key),
        "value": _text(record.value),
        "value_base64": _base64(record.value),
        "headers": [{"key": _text(key), "value": _text(value)} for key, value in record.headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else printable(data)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _flat(compared: SideBySide, payloads: bool) -> Iterator[Json]:
    for row in compared.rows:
        for held in row.held:
            yield {"offset": row.offset, "differs": row.differs} | _held_object(held, payloads)


def _offsets(compared: SideBySide, payloads: bool) -> Iterator[Json]:
    for row in compared.rows:
        held = [_held_object(each, payloads) for each in row.held]
        yield {"offset": row.offset, "differs": row.differs, "replicas": held}


def _document(compared: SideBySide, shape: Shape, payloads: bool) -> Iterator[str]:
    """The JSON document in pieces, a line an offset; `partition`, `findings` and `incomplete` as in a scan's."""
    result, partition = compared.result, compared.partition
    yield f'{{"schema_version": {json_text(shape.version)},\n "tool": {json_text(json_document.tool(result))},\n'
    yield f' "verdict": {json_text(shape.verdict(result.verdict, result.findings))},\n'
    replicas = [*shape.replicas(map(json_document.replica_object, partition.replicas))]
    yield f' "partition": {json_text({**_partition(compared, shape), "replicas": replicas})},\n'
    yield f' "first_difference": {json_text(compared.first_difference)},\n'
    lists = (
        ("offsets", ({**row, "replicas": [*shape.held(row["replicas"])]} for row in _offsets(compared, payloads))),
        ("findings", map(json_document.finding_object, result.findings)),
        ("incomplete", shape.gaps(map(json_document.incomplete_object, result.incomplete))),
    )
    for number, (key, objects) in enumerate(lists):
        items = ",".join(f"\n  {json_text(each)}" for each in objects)
        yield f' "{key}": [{items}]' + ("}\n" if number == len(lists) - 1 else ",\n")


def _partition(compared: SideBySide, shape: Shape) -> Json:
    """The partition without its replicas, which is told in every shape."""
    told = json_document.partition_object(compared.partition)
    [told] = shape.partitions([told | {"verdict": shape.verdict(compared.partition.verdict, compared.result.findings)}])
    return told


def _lines(compared: SideBySide, shape: Shape, payloads: bool) -> Iterator[str]:
    """An object with its `type` a line: the partition, its replicas, what each holds, findings, the summary."""
    result, partition = compared.result, compared.partition
    place = {"topic": partition.topic, "partition": partition.partition}
    objects: list[tuple[str, Json]] = [("partition", _partition(compared, shape))]
    objects += [("replica", place | replica) for replica in shape.replicas(map(json_document.replica_object, partition.replicas))]
    objects += [("held", place | row) for row in shape.held(_flat(compared, payloads))]
    objects += [("finding", json_document.finding_object(finding)) for finding in result.findings]
    objects += [("incomplete", gap) for gap in shape.gaps(map(json_document.incomplete_object, result.incomplete))]
    tool = {"schema_version": shape.version, "tool": json_document.tool(result)}
    verdict = shape.verdict(result.verdict, result.findings)
    objects.append(("summary", tool | {"verdict": verdict, "first_difference": compared.first_difference}))
    for kind, content in objects:
        yield json_text({"type": kind, **content}) + "\n"


def _report(compared: SideBySide, *, verbose: bool) -> Iterator[str]:
    """Verdict, replicas, findings and the table as Markdown."""
    partition, result = compared.partition, compared.result
    crowded = crowded_brokers(result)
    where = name(partition.topic, partition.partition)
    yield f"# kafka-forensics: {markdown(where)}: {result.verdict}\n\n"
    yield f"{markdown(words.title(compared))}.\n\n"
    for label, replica in zip(words.labels(compared), partition.replicas, strict=True):
        told = ", ".join(word for word in replica_words(replica) if word)
        yield f"- {markdown(f'{label}: {told}' if label.startswith('#') else told)}\n"
    shown, _ = words.told(result.findings, verbose=verbose)
    for finding in shown:
        yield f"\n**{markdown(finding.kind)}** ({finding.severity.value}): {markdown(message(finding))}"
        place = "" if finding.place.file is None else place_words(finding.place, crowded)
        yield f" Where: {markdown(place)}\n" if place else "\n"
    yield from (f"\n{markdown(line)}\n" for line in incomplete_lines(result))
    lines = words.lines_of(compared)
    if lines:
        columns = words.columns_of(lines)
        yield "\n"
        yield from markdown_lines(["", *columns], (_cells(line, columns) for line in lines))
        date = words.common_date(compared)
        times = f"Times are of {date}, UTC. " if date else "Times are UTC. "
        yield f"\n{times}Digests are the first digits of the SHA-256.\n"


def _cells(line: words.Line, columns: list[str]) -> dict[str, str]:
    cells = {column: line.cells.get(column, "") for column in columns} | {"": ">" if line.differs else ""}
    return cells if line.nothing is None else cells | {"time": line.nothing}
