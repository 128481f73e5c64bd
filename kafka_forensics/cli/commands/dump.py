"""`dump`: the contents of Kafka files of every kind: batches or records, entries, and damage as rows among them."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.ranges import OFFSETS_HELP, OFFSETS_METAVAR, offsets
from kafka_forensics.cli.streams import Destination, Screen, open_output, say, screen_of
from kafka_forensics.errors import SourceError
from kafka_forensics.model.safe_text import unquoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_forensics.cli.outputs.dump import FileRows
    from kafka_forensics.questions.dump import DumpFile, DumpInputs, DumpOptions


_SKIPPED_FILES_SHOWN: Final = 5
_LINE_FORMATS: Final = ("tsv", "jsonl")
"""Formats for which records are formatted in bulk."""

Records = Annotated[bool, typer.Option("--records", help="List records, not batches.")]
Offset = Annotated[
    str | None,
    typer.Option("--offset", metavar=OFFSETS_METAVAR, help=f"Only offsets A to B, {OFFSETS_HELP}"),
]
Explain = Annotated[bool, typer.Option("--explain", help="Show bytes with the field they encode (annotated hex).")]


@options.expand_option_groups
def dump(
    paths: options.Paths,
    selection: options.Selection,
    access: options.AccessOptions,
    *,
    records: Records = False,
    offset: Offset = None,
    explain: Explain = False,
    show_payloads: options.ShowPayloads = False,
    output: options.OutputOptions,
    console: options.ConsoleOptions,
) -> int:
    """Show what is in files: batches or records, index entries, checkpoints, snapshots, and damage.

    Continues after damage. --records decodes the records of Kafka's internal topics into fields. --show-payloads adds keys,
    values and headers.
    """
    format_name = output.chosen_format()
    start, end = offsets(offset)

    from kafka_forensics.questions.dump import DumpOptions, find_files

    scope = access.scope(selection)
    dump_options = DumpOptions(records, show_payloads, start, end, scope.topic_glob, scope.partition, scope.storage_options)
    inputs = find_files(paths, dump_options)
    with open_output(output.output, color=console.color, private=show_payloads) as to:
        _write(inputs, dump_options, format_name, to, explain=explain)
    _print_summary(inputs, screen_of(console))
    return options.EXIT_INCOMPLETE if inputs.incomplete else 0


def _write(inputs: "DumpInputs", dump_options: "DumpOptions", format_name: str, to: Destination, *, explain: bool) -> None:
    from kafka_forensics.cli.outputs.dump import FileRows, write_file_rows
    from kafka_forensics.parsers.log_dir import LOG_KINDS
    from kafka_forensics.questions.dump import (
        EXPLAIN_COLUMNS,
        explained_rows,
        log_columns,
        log_rows,
        log_runs,
        small_columns,
        small_rows,
    )

    rows_of = log_runs if dump_options.records and format_name in _LINE_FORMATS else log_rows

    def section(file: "DumpFile") -> "FileRows":
        columns: tuple[str, ...]
        rows: Iterator[object]
        if explain:
            columns, rows = EXPLAIN_COLUMNS, explained_rows(file, dump_options)
        elif file.kind in LOG_KINDS:
            columns, rows = log_columns(dump_options), rows_of(file, dump_options)
        else:
            columns, rows = small_columns(file.kind), small_rows(file, dump_options)
        may_be_left_out = file.is_remote and inputs.several and (dump_options.offset_start, dump_options.offset_end) != (None, None)
        return FileRows(file.shown, columns, _readable(inputs, file, rows), may_be_left_out)

    all_columns = list(dict.fromkeys(name for file in inputs.files for name in section(file).columns))
    write_file_rows(map(section, inputs.files), all_columns, format_name, to, several=inputs.several)


def _readable(inputs: "DumpInputs", file: "DumpFile", rows: "Iterator[object]") -> "Iterator[object]":
    """`rows`, up to the place where the file cannot be read."""
    from kafka_forensics.model.results import Incomplete

    try:
        yield from rows
    except SourceError as error:
        inputs.incomplete.append(Incomplete(file.shown, error.reason))


def _print_summary(inputs: "DumpInputs", screen: Screen) -> None:
    """Print which files could not be read, and which are not Kafka's."""
    from kafka_forensics.cli.outputs.words import gap_lines

    lines = gap_lines(inputs.incomplete)
    if not screen.quiet:
        lines += [f"left out, not a Kafka file: {unquoted(path)}" for path in inputs.left_out[:_SKIPPED_FILES_SHOWN]]
        more = len(inputs.left_out) - _SKIPPED_FILES_SHOWN
        lines += [f"left out, not Kafka files: {more} more"] if more > 0 else []
        lines += [] if inputs.files else ["nothing to dump: there is no Kafka file, or none matches the options"]
    say(screen, lines)
