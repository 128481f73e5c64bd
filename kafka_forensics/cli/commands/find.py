"""`find`: which replicas hold these records, by key, offset, time, producer, header or a part of the value."""

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.dump import offsets
from kafka_forensics.cli.options import time_ms
from kafka_forensics.cli.streams import (
    Destination,
    chosen_format,
    open_output,
    printable,
    say,
    screen_of,
    shares_screen,
)
from kafka_forensics.errors import UsageError

if TYPE_CHECKING:
    from kafka_forensics.questions.search import Conditions, Search


_REPLICAS_NAMED: Final = 6
_HEX: Final = "hex:"
_TEXT: Final = "text:"

Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Records with this very key: text, or bytes as hex:00ff.")]
Offset = Annotated[
    str | None, typer.Option("--offset", metavar="A:B", help="Records from offset A up to and without B; also A:, :B, and A alone.")
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="A..B",
        help="Records from time A up to and without B, like 2026-03-01T12:00:00Z, or in milliseconds; A alone is that"
        " very millisecond.",
    ),
]
ProducerId = Annotated[int | None, typer.Option("--producer-id", metavar="N", min=0, help="Records of this producer.")]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME[=VALUE]", help="Records with such a header; may be given several times."),
]
ValueContains = Annotated[
    str | None, typer.Option("--value-contains", metavar="TEXT", help="Records in whose value this stands: text, or hex:00ff.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="Stop after so many records. Replicas are read one after another: which were not reached is said at the end.",
    ),
]


@options.flat
def find(
    paths: options.Paths,
    selection: options.BrokerSelection,
    access: options.Access,
    *,
    key: Key = None,
    offset: Offset = None,
    timestamp: Timestamp = None,
    producer_id: ProducerId = None,
    header: Header = None,
    value_contains: ValueContains = None,
    limit: Limit = None,
    show_payloads: options.ShowPayloads = False,
    form: options.Form,
    printing: options.Printing,
) -> int:
    """Which replicas still hold a record: every copy that fulfils all conditions given, on whatever broker.

    Searches the logs and files that are on their way in or out (.deleted, .swap, -delete and the like). Bytes are shown with
    --show-payloads only.
    """
    given = (key, offset, timestamp, producer_id, header or None, value_contains)
    if all(option is None for option in given):
        hint = "give --key, --offset, --timestamp, --producer-id, --header or --value-contains; `dump --records` shows all"
        raise UsageError("find needs to know what to look for", hint=hint)
    wanted = chosen_format(form.format_name, form.output)
    conditions = _conditions(key, offset, timestamp, producer_id, header or [], value_contains)

    from kafka_forensics.cli.outputs.dump import AS_RUNS, write_found
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.search import found_columns, search

    answer = search(paths, access.scope(selection), conditions, payloads=show_payloads, limit=limit)
    screen = screen_of(printing)
    with (
        open_output(form.output, color=printing.color, private=show_payloads) as to,
        Progress(screen, quiet=printing.quiet or shares_screen(form.output)) as progress,
    ):
        rows = answer.runs(progress) if wanted in AS_RUNS else answer.rows(progress)
        write_found(found_columns(payloads=show_payloads), rows, wanted, to)
    _say_rest(answer, screen, quiet=printing.quiet)
    return 3 if answer.incomplete else 0


def _conditions(
    key: str | None, offset: str | None, timestamp: str | None, producer_id: int | None, headers: list[str], part: str | None
) -> "Conditions":
    from kafka_forensics.questions.search import Conditions

    start, end = offsets(offset)
    first, last = times(timestamp)
    value_part = None if part is None else content("value", part)
    return Conditions(
        None if key is None else content("key", key), start, end, first, last, producer_id, tuple(map(_header, headers)), value_part
    )


def content(subject: str, text: str) -> bytes:
    """Bytes of a `key`, `value` or header given as text (UTF-8, as it was typed), `text:...` or `hex:...`. Raises UsageError."""
    if not text.startswith(_HEX):
        return os.fsencode(text.removeprefix(_TEXT))
    try:
        return bytes.fromhex(text.removeprefix(_HEX))
    except ValueError:
        hint = f"write it like hex:00ff; if the {subject} begins with hex: write text:{_HEX}..."
        raise UsageError(f"{text!r} holds no hexadecimal bytes", hint=hint) from None


def _header(text: str) -> tuple[bytes, bytes | None]:
    """`NAME`, `NAME=VALUE`; a name with `=` in it can be given in hexadecimal."""
    name, equals, value = text.partition("=")
    return content("header", name), content("header", value) if equals else None


def times(text: str | None) -> tuple[int | None, int | None]:
    """`A..B` as milliseconds [A, B), either open; `A` alone as that millisecond. Raises UsageError."""
    if text is None:
        return None, None
    start, dots, end = text.partition("..")
    if not (start or end):
        raise UsageError(f"{text!r} is no range of times", hint="write it like 2026-03-01T12:00:00Z..2026-03-01T12:05:00Z")
    first = time_ms(start) if start else None
    last = time_ms(end) if end else None if dots or first is None else first + 1
    if first is not None and last is not None and last <= first:
        raise UsageError(f"{text!r} holds no time", hint="the second time is the first left out")
    return first, last


def _say_rest(answer: "Search", screen: Destination, *, quiet: bool) -> None:
    """How many were found or that none was, and what could not be searched, on stderr."""
    from kafka_forensics.cli.outputs.words import gap_lines
    from kafka_forensics.model.amounts import plural, size

    lines = []
    searched = f"{plural(len(answer.log_files), 'segment')}, {size(answer.bytes_total)}"
    if not answer.log_files:
        lines.append("nothing found: no log was there to be searched, or none is asked for")
    elif not answer.found:
        lines.append(f"nothing found: no readable record in {searched} fulfils all that is asked")
    elif answer.stopped:
        lines.append(f"stopped after {plural(answer.found, 'record')}, as --limit says; there may be more")
        lines += _not_reached(answer)
    elif not quiet:
        lines.append(f"found {plural(answer.found, 'record')} in {searched}")
    for (topic, partition), local_start in answer.in_remote_storage.items():
        name = printable(f"{topic}-{partition}")
        lines.append(f"{name}: the topic is tiered; its records before offset {local_start} are in remote storage, not searched")
    if answer.damaged_places:
        places = plural(answer.damaged_places, "damaged place")
        lines.append(f"{places} could not be searched, or not to the end; a scan of the same paths tells of them")
    lines += gap_lines(answer.incomplete)
    say(screen, lines)


def _not_reached(answer: "Search") -> list[str]:
    """Which replicas the limit kept from being looked at: what was shown says nothing of them."""
    from kafka_forensics.model.amounts import first_few, plural

    names = answer.not_reached
    if not names:
        return []
    listed = first_few(map(printable, names), _REPLICAS_NAMED)
    were = "was" if len(names) == 1 else "were"
    return [f"of {plural(len(answer.replicas), 'replica')}, read one after another, {len(names)} {were} not reached: {listed}"]
