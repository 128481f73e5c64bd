"""`find`: which replicas hold records with a given key, offset, time, producer, header or part of the value."""

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.ranges import OFFSETS_HELP, OFFSETS_METAVAR, offsets, times
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.model.safe_text import unquoted

if TYPE_CHECKING:
    from kafka_forensics.questions.search import Search


_REPLICAS_SHOWN: Final = 6
_RANGES_SHOWN: Final = 4
_HEX_PREFIX: Final = "hex:"
_TEXT_PREFIX: Final = "text:"

Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Records with this key: text, or bytes as hex:00ff.")]
Offset = Annotated[
    str | None, typer.Option("--offset", metavar=OFFSETS_METAVAR, help=f"Records from offset A to B, {OFFSETS_HELP}")
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="A..B",
        help="Records from time A to B, both included, e.g. 2026-03-01..2026-03-02T08:30Z: B means the whole day or minute."
        " Also A.., ..B, A, and milliseconds.",
    ),
]
ProducerId = Annotated[
    int | None,
    typer.Option("--producer-id", metavar="N", min=0, help="Records of this producer.", rich_help_panel=options.SELECTION),
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header", metavar="NAME[=VALUE]", help="Records with this header; repeatable.", rich_help_panel=options.SELECTION
    ),
]
ValueContains = Annotated[
    str | None, typer.Option("--value-contains", metavar="TEXT", help="Records whose value contains this: text, or hex:00ff.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="Stop after N records. The summary names the replicas that were not read.",
        rich_help_panel=options.SELECTION,
    ),
]


@options.expand_option_groups
def find(
    paths: options.Paths,
    selection: options.BrokerSelection,
    access: options.AccessOptions,
    *,
    key: Key = None,
    offset: Offset = None,
    timestamp: Timestamp = None,
    producer_id: ProducerId = None,
    header: Header = None,
    value_contains: ValueContains = None,
    limit: Limit = None,
    show_payloads: options.ShowPayloads = False,
    output: options.OutputOptions,
    console: options.ConsoleOptions,
) -> int:
    """Find records on every replica that holds them. A record must match all conditions.

    Also searches logs that Kafka is deleting or replacing (.deleted, .swap, -delete), and remote stores of tiered topics (as
    broker `remote`). --show-payloads shows keys and values.
    """
    conditions = (key, offset, timestamp, producer_id, header or None, value_contains)
    if all(condition is None for condition in conditions):
        hint = "give --key, --offset, --timestamp, --producer-id, --header or --value-contains; `dump --records` shows all"
        raise UsageError("find needs a condition", hint=hint)
    format_name = output.chosen_format()

    from kafka_forensics.cli.outputs.dump import FORMATS_WITH_RECORD_BATCHES, write_found
    from kafka_forensics.questions.search import Conditions, found_columns, search

    start_offset, end_offset = offsets(offset)
    start_ms, end_ms = times(timestamp)
    value_part = None if value_contains is None else content("value", value_contains)
    key_bytes = None if key is None else content("key", key)
    headers = tuple(map(_header, header or []))
    wanted = Conditions(key_bytes, start_offset, end_offset, start_ms, end_ms, producer_id, headers, value_part)
    answer = search(paths, access.scope(selection), wanted, payloads=show_payloads, limit=limit)
    screen = screen_of(console)
    with (
        open_output(output.output, color=console.color, private=show_payloads) as to,
        Progress(screen.without_progress_over(output.output)) as progress,
    ):
        rows = answer.runs(progress) if format_name in FORMATS_WITH_RECORD_BATCHES else answer.rows(progress)
        write_found(found_columns(payloads=show_payloads), rows, format_name, to)
    _print_summary(answer, screen)
    return options.EXIT_INCOMPLETE if answer.incomplete else 0


def content(subject: str, text: str) -> bytes:
    """The bytes of a `key`, `value` or header that is typed as text (UTF-8), `text:...` or `hex:...`. Raises UsageError."""
    if not text.startswith(_HEX_PREFIX):
        return os.fsencode(text.removeprefix(_TEXT_PREFIX))
    try:
        return bytes.fromhex(text.removeprefix(_HEX_PREFIX))
    except ValueError:
        hint = f"write it like hex:00ff; if the {subject} begins with hex: write text:{_HEX_PREFIX}..."
        raise UsageError(f"{text!r} holds no hexadecimal bytes", hint=hint) from None


def _header(text: str) -> tuple[bytes, bytes | None]:
    """(name, value) of `NAME=VALUE`, value None of `NAME`. A name that contains `=` can be typed in hexadecimal."""
    name, equals, value = text.partition("=")
    return content("header", name), content("header", value) if equals else None


def _print_summary(answer: "Search", screen: Screen) -> None:
    """Print how many records were found, and what could not be searched."""
    from kafka_forensics.cli.outputs.words import gap_lines
    from kafka_forensics.model.amounts import first_few, plural, size
    from kafka_forensics.model.offset_ranges import counted
    from kafka_forensics.wording import offset_range

    lines = []
    searched = f"{plural(len(answer.log_files), 'segment')}, {size(answer.bytes_total)}"
    if not answer.log_files:
        lines.append("nothing found: there is no log to search, or none matches the options")
    elif not answer.found:
        lines.append(f"nothing found: no readable record in {searched} matches all conditions")
    elif answer.stopped:
        lines.append(f"stopped after {plural(answer.found, 'record')}, the limit of --limit; there may be more")
        if names := answer.not_reached:
            replicas = f"of {plural(len(answer.replicas), 'replica')}, read one after another"
            listed = first_few(map(unquoted, names), _REPLICAS_SHOWN)
            lines.append(f"{replicas}, {len(names)} {'was' if len(names) == 1 else 'were'} not reached: {listed}")
    elif not screen.quiet:
        lines.append(f"found {plural(answer.found, 'record')} in {searched}")
    for (topic, partition), local_start in answer.in_remote_storage.items():
        name = unquoted(f"{topic}-{partition}")
        lines.append(f"{name}: records before offset {local_start} are in remote storage, which was not searched")
    for (topic, partition), missing in answer.missing_in_stores.items():
        named = first_few((offset_range(*part) for part in missing), _RANGES_SHOWN)
        offsets = f"offset {named} is" if counted(missing) == 1 else f"offsets {named} are"
        lines.append(f"{unquoted(f'{topic}-{partition}')}: {offsets} in no object of the store")
    if answer.damaged_places:
        places = plural(answer.damaged_places, "damaged place")
        lines.append(f"{places} could not be searched, or not to the end; a scan of the same paths shows them")
    say(screen, [*lines, *gap_lines(answer.incomplete)])
