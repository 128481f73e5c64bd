"""Records found, in every format of the contract, written as they come; a table has a line a record, for a person."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kafka_forensics.cli.outputs.dump import Section, text_of, write_sections
from kafka_forensics.cli.outputs.rows import table_lines
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export.json_document import rfc3339

Row = tuple[Any, ...]

_DIGEST_DIGITS: Final = 6
_TITLE: Final = "records found"
_PLAIN: Final = ("broker", "offset", "key_size", "value_size")
_HEADINGS: Final = {"key_size": "key", "value_size": "value"}
_PAYLOADS: Final = {"key": "key bytes", "value": "value bytes", "headers": "headers"}


def write_found(columns: Sequence[str], rows: Iterable[Row], format_name: str, to: Destination) -> None:
    """Write `rows`, whose values are named by `columns`, in one of the formats of `options.FORMATS`."""
    if format_name == "table":
        to.stream.writelines(_table_lines(columns, rows, to.width))
        return
    write_sections([Section(_TITLE, tuple(columns), rows)], columns, format_name, to, several=False)


def _table_lines(columns: Sequence[str], rows: Iterable[Row], width: int) -> Iterator[str]:
    shown = [name for name in _PAYLOADS if name in columns]
    plain = [_HEADINGS.get(name, name) for name in _PLAIN]
    heads = ["partition", *plain, "value digest", "time", *(_PAYLOADS[name] for name in shown), "notes", "file"]
    return table_lines(heads, plain[1:], (_cells(dict(zip(columns, row, strict=True)), shown) for row in rows), width)


def _cells(record: dict[str, Any], payloads: list[str]) -> list[str]:
    plain = [_size(record[name]) if name in _HEADINGS else text_of(record[name]) for name in _PLAIN]
    time = rfc3339(record["timestamp"]) or text_of(record["timestamp"])
    shown = [text_of(record[name]) for name in payloads]
    where = f"{text_of(record['file'])} at {record['position']}"
    digest = (record["value_digest"] or "")[:_DIGEST_DIGITS]
    return [text_of(f"{record['topic']}-{record['partition']}"), *plain, digest, time, *shown, " ".join(_notes(record)), where]


def _size(size_in_bytes: int) -> str:
    """In bytes, which a key or value would not be taken for."""
    return "null" if size_in_bytes < 0 else f"{size_in_bytes} B"


def _notes(record: dict[str, Any]) -> Iterator[str]:
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
