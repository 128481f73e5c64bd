"""`transactions`: every transaction of the copies, what holds the last stable offset, and whether it is safe to end it."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import exit_status
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.outputs.rows import Listing, cell
from kafka_forensics.cli.streams import Destination, absent, chosen_format, open_output, printable, say, screen_of
from kafka_forensics.model.constants import TRANSACTION_STATES
from kafka_forensics.model.json_objects import Columns, attributes, rfc3339, times

if TYPE_CHECKING:
    from kafka_forensics.analysis.transactions_across import DamagedLog
    from kafka_forensics.questions.transactions import TransactionCounts, TransactionRow, TransactionsAnswer


COLUMNS: Final[Columns] = {
    **attributes("topic partition state transactional_id"),
    "producer_id": lambda row: None if row.state == "damaged" else row.producer_id,
    "producer_id_string": lambda row: None if row.state == "damaged" else str(row.producer_id),
    "producer_epoch": lambda row: None if row.state == "damaged" else row.producer_epoch,
    **attributes("first_offset last_offset"),
    **times("first_timestamp", "first_timestamp"),
    **times("last_timestamp", "last_timestamp"),
    **attributes("batches records marker marker_offset"),
    **times("marker_timestamp", "marker_timestamp"),
    **attributes("marker_epoch coordinator_epoch coordinator_state partitions holds_last_stable_offset last_stable_offset"),
    **attributes("safe_to_abort reason command age_ms transaction_timeout_ms broker"),
    **times("decided_timestamp", "decided_timestamp"),
}
_HEADS: Final = (
    "partition",
    "state",
    "transactional id",
    "producer",
    "epoch",
    "offsets",
    "records",
    "began",
    "ended",
    "marker",
    "notes",
)
_RIGHT: Final = ("producer", "epoch", "records")
_MESSAGES: Final = 20

ProducerId = Annotated[int | None, typer.Option("--producer-id", metavar="N", min=0, help="Only transactions of this producer.")]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE",
        autocompletion=lambda: list(TRANSACTION_STATES),
        help=f"Only transactions that are {', '.join(TRANSACTION_STATES[:-1])} or {TRANSACTION_STATES[-1]}.",
    ),
]


@options.flat
def transactions(
    paths: options.Paths,
    selection: options.BrokerSelection,
    reading: options.Reading,
    *,
    producer_id: ProducerId = None,
    state: State = None,
    fail_on: options.FailOn = "none",
    as_of: options.AsOf = None,
    form: options.Form,
    printing: options.VerbosePrinting,
) -> int:
    """Every transaction: state, transactional id, producer, epoch, offsets, marker, and how its coordinator decided it.

    Says for every partition what holds the last stable offset, whether it is safe to end that transaction, and the command that
    ends it.
    """
    wanted = chosen_format(form.format_name, form.output)
    choose("severity", fail_on, options.FAIL_ON)
    if state is not None:
        choose("state", state, TRANSACTION_STATES)
    scan_options = reading.scan_options(selection, deep=False, as_of=as_of)
    screen = screen_of(printing)

    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.transactions import transactions as list_transactions

    with Progress(screen, quiet=printing.quiet) as progress:
        answer = list_transactions(paths, scan_options, producer_id=producer_id, state=state, progress=progress)
    shown = [0]
    with open_output(form.output, color=printing.color) as to:
        Listing(COLUMNS, _HEADS, _RIGHT, _cells).write(_counting(answer.rows, shown), wanted, to)
    asked_for = ("" if producer_id is None else f" of producer {producer_id}") + ("" if state is None else f" that is {state}")
    _say_rest(answer, screen, None if shown[0] else asked_for, quiet=printing.quiet)
    return exit_status(answer.result, fail_on)


def _counting(rows: "Iterable[TransactionRow]", shown: list[int]) -> "Iterator[TransactionRow]":
    for row in rows:
        shown[0] += 1
        yield row


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else rfc3339(time_ms)


def _cells(row: "TransactionRow") -> list[str]:
    offsets = _span(row.first_offset, row.last_offset)
    marker = "" if row.marker_offset is None else f"{row.marker or '?'} at {row.marker_offset}"
    return [
        cell(f"{row.topic}-{row.partition}"),
        row.state,
        cell(row.transactional_id),
        "" if row.state == "damaged" else str(row.producer_id),
        "" if row.state == "damaged" else str(row.producer_epoch),
        offsets,
        str(row.records or ""),
        cell(_time(row.first_timestamp)),
        cell(_time(row.marker_timestamp)),
        marker,
        cell("; ".join(_notes(row))),
    ]


def _span(first_offset: int | None, last_offset: int | None) -> str:
    from kafka_forensics.wording import offset_range

    if first_offset is None:
        return ""
    return f"{first_offset} to ?" if last_offset is None else offset_range(first_offset, last_offset + 1)


def _notes(row: "TransactionRow") -> Iterator[str]:
    """What a table says of a transaction that is not simply ended."""
    if row.holds_last_stable_offset:
        yield f"holds the last stable offset at {row.last_stable_offset}"
    if row.state in ("open", "hanging", "torn", "lost"):
        yield from _unended_notes(row)
    if row.state == "damaged" and row.reason is not None:
        yield row.reason
    if row.command is not None and (row.safe_to_abort or row.state == "open"):
        yield row.command


def _unended_notes(row: "TransactionRow") -> Iterator[str]:
    """The same of one that did not end on all of its partitions."""
    from kafka_forensics.wording import duration

    if row.coordinator_state is not None:
        decided = "" if row.state != "lost" or row.decided_timestamp is None else f" of {_time(row.decided_timestamp)}"
        yield f"coordinator: {row.coordinator_state}{decided}"
    if row.age_ms is not None and row.state == "open":
        timeout = "" if row.transaction_timeout_ms is None else f", timeout {duration(row.transaction_timeout_ms)}"
        yield f"{duration(row.age_ms)} old{timeout}"
    if row.reason is not None:
        yield row.reason.replace("_", " ")
    if row.partitions:
        yield f"in {', '.join(row.partitions)}"
    if row.state != "lost":
        yield _whether_to_abort(row)


def _whether_to_abort(row: "TransactionRow") -> str:
    if row.safe_to_abort is not None:
        return "safe to abort" if row.safe_to_abort else "do not abort"
    if row.transaction_timeout_ms is not None and row.coordinator_state is not None:
        return "cannot tell whether it is safe to abort: see whether it is still open on the running cluster"
    return "cannot tell whether it is safe to abort: add __transaction_state of every broker to the copies"


def _say_rest(answer: "TransactionsAnswer", screen: Destination, nothing: str | None, *, quiet: bool) -> None:
    """What was found about transactions in the words of a scan, a line a partition, and what could not be read, on stderr.

    `nothing`: no row was shown of what was asked for in these words.
    """
    from kafka_forensics.cli.outputs.words import finding_lines, incomplete_lines
    from kafka_forensics.model.constants import TRANSACTION_STATE_TOPIC

    findings = [finding for finding in answer.result.findings if finding.kind.startswith("TXN") and finding.severity.rank > 0]
    lines = [] if quiet else [*finding_lines(findings)]
    if not quiet:
        counted = [
            printable(f"{topic}-{partition}: {_counts(partition_transactions)}")
            for (topic, partition), partition_transactions in answer.partitions.items()
        ]
        lines += counted[:_MESSAGES]
        if len(counted) > _MESSAGES:
            lines.append(f"and {len(counted) - _MESSAGES} more partitions")
    if nothing is not None:
        lines.append(f"nothing to show: no transaction{nothing if answer.partitions else ''} is in these copies")
    if not answer.has_log and answer.partitions and not quiet:
        lines.append(absent(TRANSACTION_STATE_TOPIC))
    lines += incomplete_lines(answer.result)
    say(screen, lines)


def _counts(partition: "TransactionCounts") -> str:
    """`23 committed, 17 aborted, 1 open; the last stable offset 0 is held by an open transaction (log end 25)`."""
    counts = f"{partition.committed} committed, {partition.aborted} aborted, {partition.open} open"
    hanging = f" ({partition.hanging} of them hanging)" if partition.hanging else ""
    stable = f"the last stable offset {partition.last_stable_offset} is held by an open transaction"
    if not partition.held:
        stable = f"no transaction holds back the last stable offset, {partition.last_stable_offset}"
    if partition.damage is not None:
        stable = _beside_damage(partition, partition.damage)
    end = "not known" if partition.log_end_offset is None else partition.log_end_offset
    return f"{counts}{hanging}; {stable} (log end {end})"


def _beside_damage(partition: "TransactionCounts", damage: "DamagedLog") -> str:
    """`126 damaged bytes (offsets 0 to 4): transactions in them are not told, and …`."""
    from kafka_forensics.wording import damaged_bytes

    damaged = f"{damaged_bytes(damage.size_in_bytes, damage.spans)}, so that transactions in them are not told"
    if partition.held:
        held = f"the last stable offset {partition.last_stable_offset} is held by an open transaction"
        doubt = "as a snapshot knows" if partition.hidden else "unless that ended in them or an earlier one began there"
        return f"{held}, {doubt}; {damaged}"
    beyond = min([partition.last_stable_offset, *(start for start, _ in damage.spans)])
    known = f" beyond {beyond}" if damage.spans else ""
    return f"{damaged}, and the last stable offset is not known{known}"
