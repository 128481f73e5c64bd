"""`epochs`: leader epochs of every replica, by its checkpoint, its batches and the controller's log."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli import options
from kafka_forensics.cli.outputs.rows import AnswerList, cell
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.json_objects import Columns, attributes, time_text, times
from kafka_forensics.model.safe_text import unquoted

if TYPE_CHECKING:
    from kafka_forensics.analysis.transactions_across import DamagedLog
    from kafka_forensics.questions.epochs import EpochRow, Lineages


COLUMNS: Final[Columns] = {
    **attributes("topic partition broker log_dir leader_epoch status checkpoint_start_offset start_offset end_offset batches"),
    **times("first_timestamp"),
    **times("last_timestamp"),
    **attributes("truncation_offset_by_checkpoint truncation_offset_by_batches leader"),
    **times("elected"),
    **attributes("is_unclean controller"),
}
_HEADS: Final = ("partition", "broker", "epoch", "checkpoint", "log", "batches", "first batch", "leader", "since", "notes")
_RIGHT: Final = ("epoch", "checkpoint", "batches", "leader")
_STATUS_NOTES: Final = {
    "agrees": "",
    "start_removed": "first records missing",
    "at_log_end": "nothing written yet",
    "below_log_start": "below the log start",
    "in_remote_storage": "in remote storage, or its first records",
    "wrote_nothing": "wrote nothing",
    "compacted_away": "compacted away",
    "no_checkpoint": "no readable checkpoint",
    "malformed_checkpoint": "CHECKPOINT MALFORMED: Kafka refuses it",
    "controller_only": "only the controller's log has it",
    "continues": "goes on",
    "stray": "STRAY: neighbouring batches have another epoch",
    "regression": "GOES BACK to an older epoch",
    "starts_differ": "CHECKPOINT AND BATCHES DISAGREE",
    "not_in_checkpoint": "NOT IN THE CHECKPOINT",
    "not_read": "not all of the log could be read",
    "no_batches": "NO BATCHES of it in the log",
}
_DAMAGED_LOGS_SHOWN: Final = 20


@options.expand_option_groups
def epochs(
    paths: options.Paths,
    selection: options.BrokerSelection,
    reading: options.ReadOptions,
    output: options.OutputOptions,
    console: options.ConsoleOptions,
) -> int:
    """Show the leader epochs of each replica: its checkpoint, its batches, and the controller's history.

    Shows where a follower would truncate if checkpoint and batches disagree.
    """
    format_name = output.chosen_format()
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(console)

    from kafka_forensics.questions.epochs import epoch_lineages

    with Progress(screen) as progress:
        answer = epoch_lineages(paths, scan_options, progress)
    with open_output(output.output, color=console.color) as to:
        AnswerList(COLUMNS, _HEADS, _RIGHT, _cells).write(answer.rows, format_name, to)
    _print_summary(answer, screen)
    return options.EXIT_INCOMPLETE if answer.result is not None and answer.result.incomplete else 0


def _cells(row: "EpochRow") -> list[str]:
    from kafka_forensics.wording import offset_range

    start, end = row.start_offset, row.end_offset
    first_time, elected = ("" if time is None else time_text(time) for time in (row.first_timestamp_ms, row.elected_ms))
    return [
        cell(f"{row.topic}-{row.partition}"),
        cell(row.broker),
        str(row.leader_epoch),
        cell(row.checkpoint_start_offset),
        "" if start is None or end is None else offset_range(start, end),
        str(row.batches) if row.batches else "",
        first_time,
        "none" if row.leader == -1 else cell(row.leader),
        elected,
        "; ".join(_notes(row)),
    ]


def _notes(row: "EpochRow") -> Iterator[str]:
    if note := _STATUS_NOTES[row.status]:
        yield note
    if row.truncation_offset_by_checkpoint is not None:
        by_file, by_batches = (
            "not given an end" if offset == -1 else f"cut at {offset}"
            for offset in (row.truncation_offset_by_checkpoint, row.truncation_offset_by_batches)
        )
        yield f"a follower that requests its end is {by_file} by the checkpoint, {by_batches} by the batches"
    if row.is_unclean:
        yield "UNCLEAN election"
    if row.controller == "unknown":
        yield "UNKNOWN to the controller"


def _print_summary(epoch_lineages: "Lineages", screen: Screen) -> None:
    """Print disagreements as a scan does, damaged logs, and inputs that could not be read."""
    from kafka_forensics.cli.outputs.words import finding_lines, incomplete_lines

    lines = [] if screen.quiet else [*finding_lines(epoch_lineages.findings)]
    if not epoch_lineages.rows or not (screen.quiet or epoch_lineages.findings):
        lines.append(_agreement(epoch_lineages))
    if not screen.quiet:
        lines += [unquoted(_damaged(*damage)) for damage in epoch_lineages.damaged[:_DAMAGED_LOGS_SHOWN]]
        if (more := len(epoch_lineages.damaged) - _DAMAGED_LOGS_SHOWN) > 0:
            lines.append(f"and {plural(more, 'more damaged log')}; a scan of the same paths shows all")
    say(screen, [*lines, *([] if epoch_lineages.result is None else incomplete_lines(epoch_lineages.result))])


def _agreement(epoch_lineages: "Lineages") -> str:
    """Whether checkpoints and batches agree, or why there is nothing to compare."""
    from kafka_forensics.questions.epochs import DISAGREEMENTS

    if not epoch_lineages.replicas:
        return "nothing to show: there is no replica, or none matches the options"
    replicas = plural(epoch_lineages.replicas, "replica")
    if not epoch_lineages.rows:
        return f"{replicas}: no leader epochs; logs from before Kafka 0.11 have none"
    if differing := sum(row.status in DISAGREEMENTS for row in epoch_lineages.rows):
        return f"{replicas}: {plural(differing, 'epoch')} to check"
    is_partial = bool(epoch_lineages.damaged) or any(row.status == "not_read" for row in epoch_lineages.rows)
    return f"{replicas}: checkpoints and batches agree" + (", as far as batches can be read" if is_partial else "")


def _damaged(topic: str, partition: int, broker: int | str, damage: "DamagedLog") -> str:
    """`t-0 on broker 2: 126 bytes of the log (offsets 0 to 4) are damaged; only the checkpoint has their epochs`."""
    from kafka_forensics.wording import damaged_bytes

    extent = damaged_bytes(damage.size_in_bytes, damage.spans)
    return f"{topic}-{partition} on broker {broker}: {extent}; only the checkpoint has their epochs"
