"""Records of a dump as lines of text, made column by column without an object for each record.

A column whose bytes need no escape, as nearly all do, is copied from Arrow's buffers; values of others are escaped one by one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_forensics.cli.outputs.rows import TIMES, WIDE, plain, spellings, text_of, time_names
from kafka_forensics.model.arrow import numbers, strings_array
from kafka_forensics.model.json_objects import LAST_TIME_MS, json_text

Column = Any
"""An Arrow array, whose stubs lack types, or a string that is the same in all rows."""
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C


def records_as_tsv(table: pa.RecordBatch, columns: Sequence[str], prefix: str, same: Mapping[str, object]) -> memoryview:
    """Lines of tab-separated values of these columns, as `spellings` writes them, each after `prefix`.

    A column that is not in `table` has one value for all rows in `same`, or none.
    """
    cells: list[list[Column]] = []
    for name in columns:
        if name not in table.schema.names:
            cells += [[spell(same.get(name))] for spell in spellings(name)]
            continue
        values = table.column(name)
        cells += [_tsv_pieces(values), *([_unless_null(_times(values), "")] if name in TIMES else [])]
    pieces = [piece for number, cell in enumerate(cells) for piece in ("\t" if number else prefix, *cell)]
    return _encoded_rows([*pieces, "\n"], table.num_rows)


def records_as_json_lines(table: pa.RecordBatch, file: str, columns: Sequence[str], same: Mapping[str, object]) -> memoryview:
    """A line of JSON for each row; `same` has the columns that are not in `table`, and may replace `file`."""
    pieces: list[Column] = [f'{{"file": {json_text(same.get("file", file))}']
    for name in columns:
        if name in table.schema.names:
            for key, values in _members(name, table.column(name)):
                pieces += [f", {json_text(key)}: ", *values]
        elif name != "file":
            pieces.append(f", {json_text(name)}: {json_text(plain(same[name]))}")
    return _encoded_rows([*pieces, "}\n"], table.num_rows)


def _members(name: str, values: Column) -> list[tuple[str, list[Column]]]:
    """(key, pieces of the JSON of each value) of a column; two keys for times and 64-bit integers."""
    pieces = _json_pieces(values)
    if name in TIMES:
        name_ms, name_of_text = time_names(name)
        return [(name_ms, pieces), (name_of_text, _unless_null(['"', *_times(values), '"']))]
    if name in WIDE:
        return [(name, pieces), (f"{name}_string", _quoted(_mapped(values, _text)))]
    return [(name, pieces)]


def _quoted(values: Column) -> list[Column]:
    return ['"', values, '"']


def _unless_null(pieces: list[Column], text: str = "null") -> list[Column]:
    """The pieces, or `text` in rows where one of them is null."""
    if any(not isinstance(piece, str) and piece.null_count for piece in pieces):
        return [pc.fill_null(_join_rows(pieces), text)]
    return pieces


def _mapped(values: Column, spell: Callable[[Column], Column]) -> Column:
    """`spell` of a column, of a dictionary column only of its distinct values; a string where all rows are equal."""
    if not isinstance(values, pa.DictionaryArray):
        return spell(values)
    spelled = spell(values.dictionary)
    if isinstance(spelled, str):
        return spelled
    return spelled[0].as_py() if len(spelled) == 1 else spelled.take(values.indices)


def _text(values: Column) -> Column:
    """Numbers, booleans and strings as text; empty for null."""
    return pc.fill_null(values.cast(pa.string()), "") if values.null_count else values.cast(pa.string())


def _tsv_pieces(values: Column) -> list[Column]:
    """Pieces of the text of each value."""
    kind = _kind(values)
    if pa.types.is_null(kind):
        return [""]
    if pa.types.is_binary(kind):
        return [_text(values.view(pa.string()) if _needs_no_escape(values) else _each(values, text_of))]
    if pa.types.is_list(kind):
        return _header_lists(values)
    return [_mapped(values, _text)]


def _kind(values: Column) -> pa.DataType:
    """The type of a column's values, also of a dictionary's."""
    kind: pa.DataType = values.type.value_type if isinstance(values, pa.DictionaryArray) else values.type
    return kind


def _json_pieces(values: Column) -> list[Column]:
    """Pieces of the JSON of each value."""
    kind = _kind(values)
    if pa.types.is_null(kind):
        return ["null"]
    if pa.types.is_string(kind):
        return _unless_null(_quoted(_mapped(values, lambda part: part)))
    if pa.types.is_binary(kind):
        return _bytes_in_quotes(values)
    if pa.types.is_list(kind):
        return _header_lists(values)
    return [_mapped(values, lambda part: part.cast(pa.string()))]


def _bytes_in_quotes(values: Column) -> list[Column]:
    """Bytes as JSON, see `plain`; null for null."""
    if _needs_no_escape(values, in_quotes=True):
        return _unless_null(_quoted(values.view(pa.string())))
    return [pc.fill_null(_each(values, lambda value: json_text(plain(value))), "null")]


def _header_lists(values: Column) -> list[Column]:
    """Pieces of lists of headers as JSON, `["key", "value"]` for each header."""
    if not len(values.values):
        return ["[]"]
    key, value = (_bytes_in_quotes(values.values.field(name)) for name in ("key", "value"))
    pairs = _join_rows(["[", *key, ", ", *value, "]"])
    return ["[", pc.binary_join(pa.ListArray.from_arrays(values.offsets, pairs), ", "), "]"]


def _times(values: Column) -> list[Column]:
    """Pieces of times as RFC 3339; null for those outside the calendar."""
    times = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values)]
    in_calendar = numbers(times, null=(times < 0) | (times > LAST_TIME_MS))
    moments = in_calendar.cast(pa.timestamp("ms")).cast(pa.string())
    return [pc.binary_replace_slice(moments, 10, 11, "T"), "Z"]


def _each(values: Column, spell: Callable[[Column], str]) -> Column:
    return pa.array([None if value is None else spell(value) for value in values.to_pylist()], pa.string())


def _needs_no_escape(values: Column, *, in_quotes: bool = False) -> bool:
    """Whether all bytes of a column are visible ASCII, with `in_quotes` also none of them a quote or backslash."""
    _, offsets, data = values.buffers()
    if data is None:
        return True
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, np.uint8)[edges[0] : edges[-1]] if len(edges) else np.empty(0, np.uint8)
    if not text.size:
        return True
    is_visible = int(text.min()) >= 0x20 and int(text.max()) < 0x7F
    return is_visible and not (in_quotes and bool(((text == _QUOTE) | (text == _BACKSLASH)).any()))


def _join_rows(pieces: Sequence[Column]) -> Column:
    """The pieces of each row joined, null where one is null; at least one piece is a column."""
    return pc.binary_join_element_wise(*(strings_array([piece])[0] if isinstance(piece, str) else piece for piece in [*pieces, ""]))


def _encoded_rows(pieces: Sequence[Column], rows: int) -> memoryview:
    """The pieces of all rows joined as UTF-8; a string is repeated in every row."""
    merged: list[Column] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    if all(isinstance(piece, str) for piece in merged):
        return memoryview(("".join(merged) * rows).encode())
    lines: Column = _join_rows(merged)
    _, offsets, data = lines.buffers()
    edges = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + rows + 1]
    return memoryview(data)[int(edges[0]) : int(edges[-1])]
