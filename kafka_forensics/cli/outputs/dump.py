"""The rows of `dump` and `find` in every format, written as they are read; only a table keeps its first rows back."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kafka_forensics.cli.outputs.rows import TIMES, WIDE, json_array, plain, spellings, table_lines, text_of, time_names
from kafka_forensics.cli.streams import Destination, write_pieces
from kafka_forensics.model.batches import PAYLOAD_COLUMNS
from kafka_forensics.model.json_objects import Json, JsonRow, JsonValue, json_text, rfc3339, time_text, with_number_texts
from kafka_forensics.model.safe_text import printable
from kafka_forensics.scanning.folding.waiting import map_concurrently

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_forensics.questions.search import FoundRecords

_BATCH_TABLE: Final = (
    *("position", "size_in_bytes", "base_offset", "last_offset", "records_count", "partition_leader_epoch"),
    "max_timestamp",
)
_RECORD_TABLE: Final = (
    *("position", "offset", "partition_leader_epoch", "timestamp", "key_size", "value_size"),
    "headers_count",
)
_HEADINGS: Final = {
    "size_in_bytes": "size",
    "records_count": "records",
    "partition_leader_epoch": "epoch",
    "headers_count": "headers",
}
_USUAL: Final = {
    "magic": 2,
    "compression_type": "none",
    "timestamp_type": "CreateTime",
    "is_valid": True,
    "txn_state": "none",
}
"""Usual values of a batch, which the notes of a table leave out."""
_NOT_IN_TABLES: Final = frozenset({"base_timestamp", "crc", "last_sequence", "producer_epoch", "size_in_bytes"})
"""Columns that only the other formats have."""
FORMATTING_THREADS: Final = 2
"""Formatting takes twice the time of decoding."""


class FileRows(Struct, frozen=True):
    """The rows of one file; `rows` is read once. For TSV and JSON Lines its items may be Arrow record batches of many rows, or
    FoundRecords."""

    file: str
    columns: tuple[str, ...]
    rows: Iterable[Any]
    may_be_left_out: bool = False
    """Whether it is not shown without rows."""


def write_file_rows(
    sections: Iterable[FileRows], columns: Sequence[str], format_name: str, to: Destination, *, several: bool
) -> None:
    """Write `sections` in one of the formats of `options.FORMATS`.

    `columns` are those of all sections, for formats with one header; `several`: rows must say which file they come from.
    """
    lines: dict[str, Iterable[str | memoryview]] = {
        "text": _table_lines(sections, to.width, several=several),
        "tsv": _tsv_lines(sections, columns, several=several),
        "json": json_array(text for section in sections for text in map(_row_as_json(section), section.rows)),
        "jsonl": _json_lines(sections),
    }
    write_pieces(to.stream, lines[format_name])


def _tsv_lines(sections: Iterable[FileRows], columns: Sequence[str], *, several: bool) -> Iterator[str | memoryview]:
    heads = (head for name in columns for head in (time_names(name) if name in TIMES else (name,)))
    yield "\t".join(["file", *heads] if several else heads) + "\n"
    for section in sections:
        prefix = printable(section.file) + "\t" if several else ""
        places = [section.columns.index(name) if name in section.columns else len(section.columns) for name in columns]
        cells = [(place, spell) for place, name in zip(places, columns, strict=True) for spell in spellings(name)]
        yield from _formatted(section.rows, partial(_tsv_line, cells, prefix), partial(_tsv_of_records, columns, prefix))


def _tsv_line(cells: list[tuple[int, Callable[[object], str]]], prefix: str, row: JsonRow) -> str:
    """A line of one row; `cells` has the place of each value in the row, or its length for none, and how to spell it."""
    padded = (*row, None)
    return prefix + "\t".join([spell(padded[place]) for place, spell in cells]) + "\n"


def _tsv_of_records(columns: Sequence[str], prefix: str, records: "pa.RecordBatch | FoundRecords") -> memoryview:
    from kafka_forensics.cli.outputs.record_text import records_as_tsv

    constants, table = _constants_and_table(records)
    return records_as_tsv(table, columns, prefix, constants)


def _json_lines(sections: Iterable[FileRows]) -> Iterator[str | memoryview]:
    for section in sections:
        yield from _formatted(section.rows, partial(_json_line, _row_as_json(section)), partial(_json_of_records, section))


def _json_line(row_as_json: Callable[[JsonRow], str], row: JsonRow) -> str:
    return row_as_json(row) + "\n"


def _json_of_records(section: FileRows, records: "pa.RecordBatch | FoundRecords") -> memoryview:
    from kafka_forensics.cli.outputs.record_text import records_as_json_lines

    constants, table = _constants_and_table(records)
    return records_as_json_lines(table, section.file, section.columns, constants)


def _formatted(
    rows: Iterable[Any], line: Callable[[JsonRow], str], lines: Callable[[Any], memoryview]
) -> Iterator[str | memoryview]:
    """`line` of each row and `lines` of records of many rows, which are formatted on threads while the next ones are decoded."""
    for is_row, group in groupby(rows, key=lambda row: isinstance(row, tuple)):
        if is_row:
            yield from map(line, group)
        else:
            yield from map_concurrently(lines, group, FORMATTING_THREADS)


def _constants_and_table(records: "pa.RecordBatch | FoundRecords") -> "tuple[dict[str, object], pa.RecordBatch]":
    """The values that all these records share, and the other columns."""
    import pyarrow as pa

    return ({}, records) if isinstance(records, pa.RecordBatch) else (records.same, records.table)


def _row_as_json(section: FileRows) -> Callable[[JsonRow], str]:
    """The function that makes a JSON object of a row."""
    writers = [_json_writer(name) for name in section.columns]

    def row_as_json(row: JsonRow) -> str:
        document: Json = {"file": section.file}
        for write, value in zip(writers, row, strict=True):
            write(document, value)
        return json_text(document)

    return row_as_json


def _json_writer(name: str) -> Callable[[Json, JsonValue], None]:
    """The function that adds a column's value to an object: times also as text, 64-bit integers also as digits."""
    name_ms, name_of_text = time_names(name)

    def write_time(document: Json, value: int | None) -> None:
        document[name_ms] = value
        document[name_of_text] = None if value is None else rfc3339(value)

    def write_wide(document: Json, value: int | None) -> None:
        document[name] = value
        document[f"{name}_string"] = None if value is None else str(value)

    def write_detail(document: Json, value: object) -> None:
        document[name] = with_number_texts(plain(value))

    def write_other(document: Json, value: object) -> None:
        document[name] = plain(value) if isinstance(value, bytes | dict | list | tuple) else value

    return write_time if name in TIMES else write_wide if name in WIDE else write_detail if name == "detail" else write_other


def _table_lines(sections: Iterable[FileRows], width: int, *, several: bool) -> Iterator[str]:
    """A table for each section, below the name of its file if there are `several`."""
    number, is_left_out = 0, False
    for section in sections:
        columns = section.columns
        shown = _columns_shown(columns)
        heads = [name if name == "headers_count" and "headers" in columns else _HEADINGS.get(name, name) for name in shown]
        heads += [] if shown is columns else ["notes"]
        lines = table_lines(heads, None, map(_cells_of(columns), section.rows), width)
        first = next(lines, None)
        if first is None and section.may_be_left_out:
            is_left_out = True
            continue
        if several:
            yield ("\n" if number else "") + printable(section.file) + "\n"
        yield first or "(nothing)\n"
        yield from lines
        number += 1
    if is_left_out and not number:
        yield "(nothing)\n"


def _columns_shown(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a table shows; unusual values of the others are in its notes."""
    if "records_count" in columns:
        return _BATCH_TABLE
    return _RECORD_TABLE + tuple(name for name in columns if name in PAYLOAD_COLUMNS) if "headers_count" in columns else columns


def _cells_of(columns: tuple[str, ...]) -> Callable[[JsonRow], list[str]]:
    """The function that makes the cells of a row."""
    shown = _columns_shown(columns)
    places = [(columns.index(name), name in TIMES) for name in shown]
    others = [(index, name) for index, name in enumerate(columns) if name not in shown and name not in _NOT_IN_TABLES]
    producer_epoch = columns.index("producer_epoch") if "producer_epoch" in columns else 0

    def cells(row: JsonRow) -> list[str]:
        texts = [_time(row[place]) if is_time else text_of(row[place]) for place, is_time in places]
        return texts if shown is columns else [*texts, " ".join(_notes(row, others, producer_epoch))]

    return cells


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else time_text(time_ms)


def _notes(row: JsonRow, others: list[tuple[int, str]], producer_epoch: int) -> Iterator[str]:
    """What is unusual about a batch or record; `others` are (index, name) of the columns that the table does not show."""
    for index, name in others:
        value = row[index]
        if value is None or value == _USUAL.get(name) or (value is False and name != "is_valid") or value == -1:
            continue
        if name == "producer_id":
            yield f"producer {value}/{row[producer_epoch]}"
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
            yield _detail_text(value) if isinstance(value, dict) and "record" in value else text_of(value)
        else:
            yield f"{name.replace('_', ' ')} {text_of(value)}"


def _detail_text(fields: Json) -> str:
    """The fields of an internal topic's record as `name value`, without null, -1 and empty values."""
    texts = [str(fields["record"])]
    for name, value in fields.items():
        if name == "value" and value is None:
            texts.append("TOMBSTONE")
        elif name in ("key", "value"):
            texts += _field_texts(value)
        elif name == "problem":
            texts.append(f"CANNOT BE READ ({value})")
        elif name != "record":
            texts += _field_texts({name: value})
    return printable(" ".join(texts))


def _field_texts(fields: Json) -> list[str]:
    return [
        f"{name.replace('timestamp_ms', 'timestamp').replace('_', ' ')} {_field_value(name, value)}"
        for name, value in fields.items()
        if value is not None and value not in (-1, "", [])
    ]


def _field_value(name: str, value: object) -> str:
    if isinstance(value, dict):
        return f"({', '.join(_field_texts(value))})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_field_value('', item) for item in value)}]"
    if isinstance(value, int) and name.removesuffix("_ms").endswith("timestamp"):
        return time_text(value)
    return text_of(value)


# Records that `find` found.


_DIGEST_DIGITS: Final = 6
_TITLE: Final = "records found"
_FOUND_COLUMNS: Final = ("broker", "offset", "key_size", "value_size")
_SIZE_HEADINGS: Final = {"key_size": "key", "value_size": "value"}
_PAYLOAD_HEADINGS: Final = {"key": "key bytes", "value": "value bytes", "headers": "headers"}

FORMATS_WITH_RECORD_BATCHES: Final = frozenset({"tsv", "jsonl"})
"""Formats for which `write_found` takes FoundRecords among the rows."""


def write_found(columns: Sequence[str], rows: Iterable[Any], format_name: str, to: Destination) -> None:
    """Write `rows` of these `columns` in one of `options.FORMATS`; FORMATS_WITH_RECORD_BATCHES take FoundRecords as well."""
    if format_name == "text":
        to.stream.writelines(_found_lines(columns, rows, to.width))
    else:
        write_file_rows([FileRows(_TITLE, tuple(columns), rows)], columns, format_name, to, several=False)


def _found_lines(columns: Sequence[str], rows: Iterable[JsonRow], width: int) -> Iterator[str]:
    payloads = [name for name in _PAYLOAD_HEADINGS if name in columns]
    names = [_SIZE_HEADINGS.get(name, name) for name in _FOUND_COLUMNS]
    heads = ["partition", *names, "value digest", "time", *(_PAYLOAD_HEADINGS[name] for name in payloads), "notes", "file"]

    def cells(row: JsonRow) -> list[str]:
        record = dict(zip(columns, row, strict=True))
        return [
            text_of(f"{record['topic']}-{record['partition']}"),
            *(_size(record[name]) if name in _SIZE_HEADINGS else text_of(record[name]) for name in _FOUND_COLUMNS),
            (record["value_digest"] or "")[:_DIGEST_DIGITS],
            time_text(record["timestamp"]),
            *(text_of(record[name]) for name in payloads),
            " ".join(_found_notes(record)),
            f"{text_of(record['file'])} at {record['position']}",
        ]

    return table_lines(heads, names[1:], map(cells, rows), width)


def _size(size_in_bytes: int) -> str:
    """A size with its unit: a bare number could be taken for the key or value."""
    return "null" if size_in_bytes < 0 else f"{size_in_bytes} B"


def _found_notes(record: Json) -> Iterator[str]:
    """The producer, and what is unusual about a record."""
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
