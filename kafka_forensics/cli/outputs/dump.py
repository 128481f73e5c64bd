"""The rows of a dump in every format of the contract, written as they come: nothing is gathered but the head of a table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.cli.outputs.rows import TIMES, WIDE, markdown, plain, table_lines, text_of
from kafka_forensics.cli.streams import Destination, printable, write_pieces
from kafka_forensics.model.batches import PAYLOAD_COLUMNS
from kafka_forensics.model.json_objects import Json, JsonRow, JsonValue, json_text, rfc3339, time_text, with_number_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_forensics.questions.search import FoundRecords

_BATCH_TABLE: Final = ("position", "size_in_bytes", "base_offset", "last_offset", "records_count", "partition_leader_epoch")
_RECORD_TABLE: Final = (
    "position",
    "offset",
    "partition_leader_epoch",
    "timestamp",
    "key_size",
    "value_size",
    "headers_count",
)
_HEADINGS: Final = {
    "size_in_bytes": "size",
    "records_count": "records",
    "partition_leader_epoch": "epoch",
    "headers_count": "headers",
}
_NEEDLESS: Final = {
    "magic": 2,
    "compression_type": "none",
    "timestamp_type": "CreateTime",
    "is_valid": True,
    "txn_state": "none",
}
"""Values of a batch that go without saying in a table."""
_SILENT: Final = frozenset({"base_timestamp", "crc", "last_sequence", "producer_epoch", "size_in_bytes"})
"""Columns a table leaves out: the other formats have them."""


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one file; `rows` is read once. For TSV and JSON Lines many rows may come as one Arrow record batch, or as such a
    `table` beside a dictionary of what is the `same` in all of them."""

    file: str
    columns: tuple[str, ...]
    rows: Iterable[Any]


def write_sections(
    sections: Iterable[Section], columns: Sequence[str], format_name: str, to: Destination, *, several: bool
) -> None:
    """Write `sections` in one of the formats of `options.FORMATS`; `columns` are all they have, for formats with one header.

    `several` says that rows must tell which file they are of.
    """
    write = to.stream.write
    match format_name:
        case "table":
            for number, section in enumerate(sections):
                if several:
                    write(("\n" if number else "") + printable(section.file) + "\n")
                to.stream.writelines(_table_lines(section, to.width))
        case "tsv":
            write_pieces(to.stream, _tsv_lines(sections, columns, several=several))
        case "json":
            separator = "["
            for line in _json_objects(sections):
                write(separator + line)
                separator = ",\n "
            write("[]\n" if separator == "[" else "]\n")
        case "jsonl":
            write_pieces(to.stream, _json_lines(sections))
        case "markdown":
            to.stream.writelines(_markdown_lines(sections))
        case _:
            raise AssertionError(format_name)


def _tsv_lines(sections: Iterable[Section], columns: Sequence[str], *, several: bool) -> Iterator[str | memoryview]:
    yield "\t".join(["file", *columns] if several else columns) + "\n"
    for section in sections:
        prefix = printable(section.file) + "\t" if several else ""
        places = [section.columns.index(name) if name in section.columns else len(section.columns) for name in columns]
        same = section.columns == tuple(columns)
        for row in section.rows:
            if not isinstance(row, tuple):
                from kafka_forensics.cli.outputs.record_text import records_as_tsv

                alike, table = _parts(row)
                yield records_as_tsv(table, columns, prefix, alike)
            elif same:
                yield prefix + "\t".join(map(text_of, row)) + "\n"
            else:
                wide = (*row, None)
                yield prefix + "\t".join(text_of(wide[place]) for place in places) + "\n"


def _json_objects(sections: Iterable[Section]) -> Iterator[str]:
    for section in sections:
        as_json = _as_json(section)
        yield from map(as_json, section.rows)


def _json_lines(sections: Iterable[Section]) -> Iterator[str | memoryview]:
    for section in sections:
        as_json = _as_json(section)
        for row in section.rows:
            if isinstance(row, tuple):
                yield as_json(row) + "\n"
            else:
                from kafka_forensics.cli.outputs.record_text import records_as_json_lines

                alike, table = _parts(row)
                yield records_as_json_lines(table, section.file, section.columns, alike)


def _parts(run: "pa.RecordBatch | FoundRecords") -> "tuple[dict[str, object], pa.RecordBatch]":
    """What is alike in all rows of a run, and the rest as an Arrow record batch."""
    import pyarrow as pa

    return ({}, run) if isinstance(run, pa.RecordBatch) else (run.same, run.table)


def _as_json(section: Section) -> Callable[[JsonRow], str]:
    """The function that makes an object of a row."""
    writers = [_json_writer(name) for name in section.columns]

    def as_json(row: JsonRow) -> str:
        document: Json = {"file": section.file}
        for write, value in zip(writers, row, strict=True):
            write(document, value)
        return json_text(document)

    return as_json


def _json_writer(name: str) -> Callable[[Json, JsonValue], None]:
    """How a column's value enters an object: times and wide integers with their twins, as the contract has it."""
    short = name.removesuffix("_ms")

    def time(evidence: Json, value: int | None) -> None:
        evidence[f"{short}_ms"] = value
        evidence[short] = None if value is None else rfc3339(value)

    def wide(evidence: Json, value: int | None) -> None:
        evidence[name] = value
        evidence[f"{name}_string"] = None if value is None else str(value)

    def detail(evidence: Json, value: object) -> None:
        evidence[name] = with_number_texts(plain(value))

    def other(evidence: Json, value: object) -> None:
        evidence[name] = plain(value) if isinstance(value, bytes | dict | list | tuple) else value

    return time if name in TIMES else wide if name in WIDE else detail if name == "detail" else other


def _markdown_lines(sections: Iterable[Section]) -> Iterator[str]:
    for number, section in enumerate(sections):
        yield ("\n" if number else "") + f"## {markdown(section.file)}\n\n"
        yield f"| {' | '.join(map(markdown, section.columns))} |\n"
        yield f"|{' --- |' * len(section.columns)}\n"
        for row in section.rows:
            yield f"| {' | '.join(markdown(text_of(value)) for value in row)} |\n"


def _table_lines(section: Section, width: int) -> Iterator[str]:
    """A table whose columns are as wide as its first rows need; later ones may stand out. A short one has no empty columns."""
    shape = _shape(section.columns)
    lines = table_lines(_table_names(section.columns), None, (shape(row) for row in section.rows), width)
    yield next(lines, "(nothing)\n")
    yield from lines


def _table_names(columns: tuple[str, ...]) -> list[str]:
    shown = _shown(columns)
    headings = _HEADINGS | ({"headers_count": "headers_count"} if "headers" in columns else {})
    return [*(headings.get(name, name) for name in shown), *(["notes"] if shown is not columns else [])]


def _shown(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that stand by themselves in a table; the others are told in notes if they say anything."""
    if "records_count" in columns:
        return (*_BATCH_TABLE, "max_timestamp")
    return _RECORD_TABLE + tuple(name for name in columns if name in PAYLOAD_COLUMNS) if "headers_count" in columns else columns


def _shape(columns: tuple[str, ...]) -> Callable[[JsonRow], list[str]]:
    """The function that makes the cells of a row."""
    shown = _shown(columns)
    places = [(columns.index(name), name in TIMES) for name in shown]
    others = [(index, name) for index, name in enumerate(columns) if name not in shown and name not in _SILENT]
    epoch = columns.index("producer_epoch") if "producer_epoch" in columns else 0

    def cells(row: JsonRow) -> list[str]:
        made = [_time(row[place]) if is_time else text_of(row[place]) for place, is_time in places]
        if shown is not columns:
            made.append(" ".join(_notes(row, others, epoch)))
        return made

    return cells


def _time(value: int | None) -> str:
    return "" if value is None else time_text(value)


def _notes(row: JsonRow, others: list[tuple[int, str]], epoch: int) -> Iterator[str]:
    """What is not usual about a batch or record, in words."""
    for index, name in others:
        value = row[index]
        if value is None or value == _NEEDLESS.get(name) or (value is False and name != "is_valid") or value == -1:
            continue
        if name == "producer_id":
            yield f"producer {value}/{row[epoch]}"
        elif name == "is_valid":
            yield "CRC WRONG"
        elif name in {"span", "compression_type", "timestamp_type", "control_record_type"}:
            if value not in {"batch", "record"}:
                yield str(value)
        elif name == "is_transactional":
            yield "transactional"
        elif name == "txn_state":
            yield f"transaction {value}"
        elif name == "is_control_batch":
            yield "control"
        elif name == "detail":
            yield _in_words(value) if isinstance(value, dict) and "record" in value else text_of(value)
        else:
            yield f"{name.replace('_', ' ')} {text_of(value)}"


def _in_words(fields: Json) -> str:
    """The fields of an internal topic's record, `name value` each; those that say nothing (null, -1, empty) are left out."""
    words = [str(fields["record"])]
    for name, value in fields.items():
        if name == "value" and value is None:
            words.append("TOMBSTONE")
        elif name in ("key", "value"):
            words += _pairs(value)
        elif name == "problem":
            words.append(f"CANNOT BE READ ({value})")
        elif name != "record":
            words += _pairs({name: value})
    return printable(" ".join(words))


def _pairs(fields: Json) -> list[str]:
    said = {name: value for name, value in fields.items() if value is not None and value not in (-1, "", [])}
    return [f"{name.replace('timestamp_ms', 'timestamp').replace('_', ' ')} {_word(name, value)}" for name, value in said.items()]


def _word(name: str, value: object) -> str:
    if isinstance(value, dict):
        return f"({', '.join(_pairs(value))})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_word('', item) for item in value)}]"
    if isinstance(value, int) and name.removesuffix("_ms").endswith("timestamp"):
        return time_text(value)
    return text_of(value)


# Records found, in every format of the contract, written as they come; a table has a line a record, for a person.


_DIGEST_DIGITS: Final = 6
_TITLE: Final = "records found"
_PLAIN: Final = ("broker", "offset", "key_size", "value_size")
_SIZE_HEADINGS: Final = {"key_size": "key", "value_size": "value"}
_PAYLOAD_HEADINGS: Final = {"key": "key bytes", "value": "value bytes", "headers": "headers"}


AS_RUNS: Final = frozenset({"tsv", "jsonl"})
"""Formats in which many records found may come together."""


def write_found(columns: Sequence[str], rows: Iterable[Any], format_name: str, to: Destination) -> None:
    """Write `rows` of these `columns` in one of the formats of `options.FORMATS`; for those in AS_RUNS they may be runs, too."""
    if format_name == "table":
        to.stream.writelines(_found_lines(columns, rows, to.width))
        return
    write_sections([Section(_TITLE, tuple(columns), rows)], columns, format_name, to, several=False)


def _found_lines(columns: Sequence[str], rows: Iterable[JsonRow], width: int) -> Iterator[str]:
    shown = [name for name in _PAYLOAD_HEADINGS if name in columns]
    sizes = [_SIZE_HEADINGS.get(name, name) for name in _PLAIN]
    heads = ["partition", *sizes, "value digest", "time", *(_PAYLOAD_HEADINGS[name] for name in shown), "notes", "file"]
    return table_lines(heads, sizes[1:], (_found_cells(dict(zip(columns, row, strict=True)), shown) for row in rows), width)


def _found_cells(record: Json, payloads: list[str]) -> list[str]:
    sizes = [_size(record[name]) if name in _SIZE_HEADINGS else text_of(record[name]) for name in _PLAIN]
    time = time_text(record["timestamp"])
    shown = [text_of(record[name]) for name in payloads]
    where = f"{text_of(record['file'])} at {record['position']}"
    digest = (record["value_digest"] or "")[:_DIGEST_DIGITS]
    return [
        text_of(f"{record['topic']}-{record['partition']}"),
        *sizes,
        digest,
        time,
        *shown,
        " ".join(_found_notes(record)),
        where,
    ]


def _size(size_in_bytes: int) -> str:
    """In bytes, which a key or value would not be taken for."""
    return "null" if size_in_bytes < 0 else f"{size_in_bytes} B"


def _found_notes(record: Json) -> Iterator[str]:
    """What is to be told beside: the producer, and what is not usual."""
    if record["producer_id"] >= 0:
        sequence = "" if record["sequence"] < 0 else f":{record['sequence']}"
        yield f"producer {record['producer_id']}/{record['producer_epoch']}{sequence}"
    if record["control_record_type"] is not None:
        yield text_of(record["control_record_type"])
    if record["timestamp_type"] != "CreateTime":
        yield text_of(record["timestamp_type"])
    if not record["is_valid"]:
        yield "CRC WRONG"
    if record["leftover"] is not None:
        yield f"not in the log: {text_of(record['leftover'])}"
