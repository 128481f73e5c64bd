"""`dump`: what is in these files, every Kafka file kind, batches or records, damage as rows among them."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import (
    Destination,
    chosen_format,
    destination,
    open_output,
    say,
)
from kafka_forensics.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_forensics.cli.outputs.dump import Section
    from kafka_forensics.questions.dump import DumpFile, DumpInputs, DumpOptions


_SHOWN_LEFT_OUT: Final = 5
_LINE_BY_LINE: Final = ("tsv", "jsonl")
"""Formats in which many records may be written at once."""

Records = Annotated[bool, typer.Option("--records", help="Records instead of batches.")]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset", metavar="A:B", help="Only what holds offsets from A up to and without B; also A: and :B, and A alone."
    ),
]
Explain = Annotated[bool, typer.Option("--explain", help="Bytes with the field they are, its value and meaning (annotated hex).")]


@options.flat
def dump(
    paths: options.Paths,
    selection: options.Selection,
    access: options.Access,
    *,
    records: Records = False,
    offset: Offset = None,
    explain: Explain = False,
    show_payloads: options.ShowPayloads = False,
    form: options.Form,
    printing: options.Printing,
) -> int:
    """What is in these files: batches or records, index entries, checkpoints, snapshots; damage as rows among them.

    Reads on behind damage. Keys, values and headers are shown with --show-payloads only; of Kafka's
    own topics' records --records takes them apart into fields.
    """
    wanted = chosen_format(form.format_name, form.output)
    start, end = offsets(offset)

    from kafka_forensics.questions.dump import DumpOptions, find_files

    scope = access.scope(selection)
    dump_options = DumpOptions(records, show_payloads, start, end, scope.topic_glob, scope.partition, scope.storage_options)
    inputs = find_files(paths, dump_options)
    with open_output(form.output, color=printing.color, private=show_payloads) as to:
        _write(inputs, dump_options, wanted, to, explain=explain)
    _say_rest(inputs, destination(sys.stderr, color="never"), quiet=printing.quiet)
    return 3 if inputs.incomplete else 0


def offsets(text: str | None) -> tuple[int | None, int | None]:
    """`A:B` as [A, B), either open; `A` alone as [A, A + 1). Raises UsageError."""
    if text is None:
        return None, None
    start, colon, end = text.partition(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in (start, end) if part) or not (start or end):
        raise UsageError(f"{text!r} is no range of offsets", hint="write it like 100:200, 100:, :200 or 100")
    first = int(start) if start else None
    last = int(end) if end else None if colon or first is None else first + 1
    if first is not None and last is not None and last <= first:
        raise UsageError(f"{text!r} holds no offset", hint="the second number is the first offset left out")
    return first, last


def _write(inputs: "DumpInputs", dump_options: "DumpOptions", wanted: str, to: Destination, *, explain: bool) -> None:
    from kafka_forensics.cli.outputs.dump import Section, write_sections
    from kafka_forensics.parsers.log_dir import LOG_KINDS
    from kafka_forensics.questions.dump import log_columns, log_rows, log_runs, small_columns, small_rows

    rows_of = log_runs if dump_options.records and wanted in _LINE_BY_LINE else log_rows

    def section(file: "DumpFile") -> "Section":
        if explain:
            from kafka_forensics.questions.dump import EXPLAIN_COLUMNS, explained_rows

            return Section(file.shown, EXPLAIN_COLUMNS, _readable(inputs, file, explained_rows(file, dump_options)))
        if file.kind in LOG_KINDS:
            return Section(file.shown, log_columns(dump_options), _readable(inputs, file, rows_of(file, dump_options)))
        return Section(file.shown, small_columns(file.kind), _readable(inputs, file, small_rows(file, dump_options)))

    columns = list(dict.fromkeys(name for file in inputs.files for name in section(file).columns))
    write_sections(map(section, inputs.files), columns, wanted, to, several=inputs.several)


def _readable(inputs: "DumpInputs", file: "DumpFile", rows: "Iterator[object]") -> "Iterator[object]":
    """`rows`, ended where the file cannot be read any more."""
    from kafka_forensics.model.results import Incomplete

    try:
        yield from rows
    except SourceError as error:
        inputs.incomplete.append(Incomplete(file.shown, error.reason))


def _say_rest(inputs: "DumpInputs", screen: Destination, *, quiet: bool) -> None:
    """What could not be read, and what is none of Kafka's files, on stderr."""
    from kafka_forensics.cli.outputs.words import gap_lines

    lines = gap_lines(inputs.incomplete)
    if not quiet:
        lines += [f"left out, no file of Kafka's: {path}" for path in inputs.left_out[:_SHOWN_LEFT_OUT]]
        more = len(inputs.left_out) - _SHOWN_LEFT_OUT
        lines += [f"left out, no files of Kafka's: {more} more"] if more > 0 else []
        lines += [] if inputs.files else ["nothing to dump: no file of Kafka's is there, or none is asked for"]
    say(screen, lines)
