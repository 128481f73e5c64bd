"""`transactions`: every transaction, what holds back the last stable offset, and whether it is safe to abort it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.outputs.rows import AnswerList, cell
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, no_copy_message, open_output, say, screen_of
from kafka_forensics.model.constants import TRANSACTION_STATE_TOPIC, TRANSACTION_STATES
from kafka_forensics.model.json_objects import Columns, attributes, rfc3339, times
from kafka_forensics.model.safe_text import unquoted

if TYPE_CHECKING:
    from kafka_forensics.analysis.transactions_across import DamagedLog
    from kafka_forensics.questions.transactions import TransactionRow, TransactionsAnswer, TransactionStateCounts


def _unless_damaged(value: "Callable[[TransactionRow], object]") -> "Callable[[TransactionRow], object]":
    """A column without a value where damage hides the producer."""
    return lambda row: None if row.state == "damaged" else value(row)


COLUMNS: Final[Columns] = {
    **attributes("topic partition state transactional_id"),
    "producer_id": _unless_damaged(lambda row: row.producer_id),
    "producer_id_string": _unless_damaged(lambda row: str(row.producer_id)),
    "producer_epoch": _unless_damaged(lambda row: row.producer_epoch),
    **attributes("first_offset last_offset"),
    **times("first_timestamp", "first_timestamp"),
    **times("last_timestamp", "last_timestamp"),
    **attributes("batches records marker marker_offset"),
    **times("marker_timestamp", "marker_timestamp"),
    **attributes("marker_epoch coordinator_epoch coordinator_state partitions holds_last_stable_offset last_stable_offset"),
    **attributes("safe_to_abort reason find_hanging command age_ms transaction_timeout_ms broker"),
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
_PARTITIONS_SHOWN: Final = 20
_HOW_TO_ABORT: Final = "Do this on the running cluster for each transaction with commands above. HOST:PORT is one of its brokers."
_ABORT_STEPS: Final = {
    "find_hanging": "Run find-hanging (Kafka 3.0 or later). If it does not list the transaction, do not abort it.",
    "abort": "Run abort, which prints nothing if it works.",
    "check": "Run find-hanging again: it prints only its heading, and read_committed readers go on.",
}

ProducerId = Annotated[
    int | None,
    typer.Option("--producer-id", metavar="N", min=0, help="Only this producer.", rich_help_panel=options.SELECTION),
]
State = Annotated[
    str | None,
    options.choice(
        "--state",
        "state",
        TRANSACTION_STATES,
        f"Only transactions that are {', '.join(TRANSACTION_STATES[:-1])} or {TRANSACTION_STATES[-1]}.",
    ),
]


@options.expand_option_groups
def transactions(
    paths: options.Paths,
    selection: options.BrokerSelection,
    reading: options.ReadOptions,
    *,
    producer_id: ProducerId = None,
    state: State = None,
    fail_on: options.FailOn = "none",
    output: options.OutputOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """List transactions: state, transactional id, producer, epoch, offsets, marker, and the coordinator's decision.

    Shows for each partition what holds the last stable offset, whether you may end that transaction, and the command that ends
    it.
    """
    format_name = output.chosen_format()
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(console)

    from kafka_forensics.questions.transactions import transactions as list_transactions

    with Progress(screen) as progress:
        answer = list_transactions(paths, scan_options, producer_id=producer_id, state=state, progress=progress)
    shown, abort_shown = 0, False

    def counted_rows() -> "Iterator[TransactionRow]":
        nonlocal shown, abort_shown
        for row in answer.rows:
            shown += 1
            abort_shown = abort_shown or row.command in _kafka_commands(row)
            yield row

    with open_output(output.output, color=console.color) as to:
        AnswerList(COLUMNS, _HEADS, _RIGHT, _cells).write(counted_rows(), format_name, to)
        if abort_shown and format_name == "text":
            from kafka_forensics.cli.outputs.steps import OperatorStep, steps_text

            to.stream.writelines(steps_text(_HOW_TO_ABORT, [OperatorStep(*step) for step in _ABORT_STEPS.items()], to.width))
    conditions = ("" if producer_id is None else f" of producer {producer_id}") + ("" if state is None else f" that is {state}")
    _print_summary(answer, screen, None if shown else conditions)
    return options.exit_status(answer.result, fail_on)


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else rfc3339(time_ms)


def _cells(row: "TransactionRow") -> list[str]:
    from kafka_forensics.wording import offset_range

    offsets = "" if row.first_offset is None else f"{row.first_offset} to ?"
    if row.first_offset is not None and row.last_offset is not None:
        offsets = offset_range(row.first_offset, row.last_offset + 1)
    return [
        unquoted(f"{row.topic}-{row.partition}"),
        row.state,
        unquoted(row.transactional_id or ""),
        "" if row.state == "damaged" else str(row.producer_id),
        "" if row.state == "damaged" else str(row.producer_epoch),
        offsets,
        str(row.records or ""),
        cell(_time(row.first_timestamp)),
        cell(_time(row.marker_timestamp)),
        "" if row.marker_offset is None else f"{row.marker or '?'} at {row.marker_offset}",
        cell("; ".join(_notes(row))),
    ]


def _notes(row: "TransactionRow") -> Iterator[str]:
    """Notes in a table about a transaction that did not simply end."""
    if row.holds_last_stable_offset:
        yield f"holds the last stable offset at {row.last_stable_offset}"
    if row.state in ("open", "hanging", "torn", "lost"):
        yield from _unended_notes(row)
    if row.state == "damaged" and row.reason is not None:
        yield row.reason
    yield from (f"`{unquoted(command)}`" for command in _kafka_commands(row))


def _kafka_commands(row: "TransactionRow") -> list[str]:
    """The commands that confirm on the running cluster that it hangs, then end it; empty unless aborting it may be safe."""
    if row.find_hanging is None or row.safe_to_abort is False:
        return []
    return [row.find_hanging, *([] if row.command is None else [row.command])]


def _unended_notes(row: "TransactionRow") -> Iterator[str]:
    """Notes about a transaction that did not end on all its partitions."""
    from kafka_forensics.wording import duration

    if row.coordinator_state is not None:
        decided = f" of {_time(row.decided_timestamp)}" if row.state == "lost" and row.decided_timestamp is not None else ""
        yield f"coordinator: {row.coordinator_state}{decided}"
    if row.age_ms is not None and row.state == "open":
        timeout = "" if row.transaction_timeout_ms is None else f", timeout {duration(row.transaction_timeout_ms)}"
        yield f"{duration(row.age_ms)} old{timeout}"
    if row.reason is not None:
        yield row.reason.replace("_", " ")
    if row.partitions:
        yield f"in {unquoted(', '.join(row.partitions))}"
    if row.state != "lost":
        yield _whether_to_abort(row)


def _whether_to_abort(row: "TransactionRow") -> str:
    if row.safe_to_abort is not None:
        return "hangs by these copies; confirm, then abort" if row.safe_to_abort else "do not abort"
    if row.find_hanging is not None:
        return "safe to abort only if find-hanging lists it"
    if row.transaction_timeout_ms is not None and row.coordinator_state is not None:
        return "unknown whether it is safe to abort: check whether it is still open on the running cluster"
    return "unknown whether it is safe to abort: add __transaction_state of every broker to the copies"


def _print_summary(answer: "TransactionsAnswer", screen: Screen, no_rows_with: str | None) -> None:
    """Print findings about transactions as a scan does, a line for each partition, and inputs that could not be read.

    `no_rows_with`: the conditions, such as ` of producer 7`, if no transaction meets them; None if there are rows.
    """
    from kafka_forensics.cli.outputs.words import finding_lines, incomplete_lines

    lines = []
    if not screen.quiet:
        findings = [finding for finding in answer.result.findings if finding.kind.startswith("TXN") and finding.severity.rank > 0]
        counts = [f"{topic}-{partition}: {_counts(found)}" for (topic, partition), found in answer.partitions.items()]
        lines = [*finding_lines(findings), *map(unquoted, counts[:_PARTITIONS_SHOWN])]
        if (more := len(counts) - _PARTITIONS_SHOWN) > 0:
            lines.append(f"and {more} more partitions")
    if no_rows_with is not None:
        lines.append(f"nothing to show: no transaction{no_rows_with if answer.partitions else ''} is in these copies")
    if not answer.has_log and answer.partitions and not screen.quiet:
        lines.append(no_copy_message(TRANSACTION_STATE_TOPIC))
    say(screen, [*lines, *incomplete_lines(answer.result)])


def _counts(partition: "TransactionStateCounts") -> str:
    """`23 committed, 17 aborted, 1 open; the last stable offset 0 is held by an open transaction (log end 25)`."""
    counts = f"{partition.committed} committed, {partition.aborted} aborted, {partition.open} open"
    hanging = f" ({partition.hanging} of them hanging)" if partition.hanging else ""
    if partition.damage is not None:
        stable = _beside_damage(partition, partition.damage)
    elif partition.held:
        stable = f"the last stable offset {partition.last_stable_offset} is held by an open transaction"
    else:
        stable = f"no transaction holds back the last stable offset, {partition.last_stable_offset}"
    end = "not known" if partition.log_end_offset is None else partition.log_end_offset
    return f"{counts}{hanging}; {stable} (log end {end})"


def _beside_damage(partition: "TransactionStateCounts", damage: "DamagedLog") -> str:
    """`126 damaged bytes (offsets 0 to 4); transactions in them are not shown, and …`."""
    from kafka_forensics.wording import damaged_bytes

    damaged = f"{damaged_bytes(damage.size_in_bytes, damage.spans)}; transactions in them are not shown"
    if partition.held:
        doubt = "as in a snapshot" if partition.hidden else "unless that ended in them or an earlier one began there"
        return f"the last stable offset {partition.last_stable_offset} is held by an open transaction, {doubt}; {damaged}"
    first_unknown = min([partition.last_stable_offset, *(start for start, _ in damage.spans)])
    beyond = f" beyond {first_unknown}" if damage.spans else ""
    return f"{damaged}, and the last stable offset is unknown{beyond}"
