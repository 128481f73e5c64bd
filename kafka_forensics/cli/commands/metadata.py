"""`metadata`: leader, ISR, ELR and leader epoch of every partition over time, from the controller's log."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli import options
from kafka_forensics.cli.outputs.rows import AnswerList
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, no_copy_message, open_output, say, screen_of
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.json_objects import Columns, attributes, rfc3339, times

if TYPE_CHECKING:
    from kafka_forensics.model.controller import ControllerHistory
    from kafka_forensics.questions.metadata import ControllerEvents


COLUMNS: Final[Columns] = {
    **attributes("topic partition topic_id offset=event.offset"),
    **times("timestamp", "event.timestamp_ms"),
    **attributes("event=event.kind leader=state.leader leader_epoch"),
    **attributes("partition_epoch isr elr last_known_elr replica_assignment adding_replicas removing_replicas", of="state"),
    **attributes("directories leader_recovery_state", of="state"),
    **attributes("is_unclean=event.is_unclean previous_leader loss lost_start_offset lost_end_offset"),
    **attributes("is_committed unknown_after", of="event"),
}
_MESSAGES_SHOWN: Final = 20
_CHANGES_SHOWN: Final = 16
"""Changes of several partitions that text lists."""


@options.expand_option_groups
def metadata(
    paths: options.Paths,
    selection: options.Selection,
    reading: options.ReadOptions,
    output: options.OutputOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """Show who led each partition and who was in sync, in which leader epoch and since when.

    Reads every copy of `__cluster_metadata`, on controllers and brokers. Marks unclean elections with the records that they
    cost, if the logs of the partition show it. The text of several partitions shows their last states and unclean elections; -v
    lists every change.
    """
    format_name = output.chosen_format()
    scan_options = reading.scan_options(selection)
    screen = screen_of(console)

    from kafka_forensics.cli.outputs.metadata import CHANGE_HEADS, CHANGE_RIGHT, change_cells, overview_lines
    from kafka_forensics.questions.metadata import controller_events

    with Progress(screen) as progress:
        events = controller_events(paths, scan_options, progress)
    is_short = len(events.rows) <= _CHANGES_SHOWN or len({(row.topic_id, row.partition) for row in events.rows}) == 1
    with open_output(output.output, color=console.color) as to:
        if format_name != "text" or is_short or console.is_verbose:
            AnswerList(COLUMNS, CHANGE_HEADS, CHANGE_RIGHT, change_cells).write(events.rows, format_name, to)
        else:
            to.stream.writelines(overview_lines(events, to.width))
    _print_summary(events, screen)
    return options.EXIT_INCOMPLETE if events.incomplete else 0


def _print_summary(events: "ControllerEvents", screen: Screen) -> None:
    """Print the extent of the controller's log, its faults, and inputs that could not be read."""
    from kafka_forensics.cli.outputs.words import gap_lines

    lines = gap_lines(events.incomplete)
    if events.history is None:
        no_history = f"the copies of {CLUSTER_METADATA_TOPIC} are empty, or from several clusters"
        lines.append(f"nothing to show: {no_history if events.copies else no_copy_message(CLUSTER_METADATA_TOPIC)}")
    elif not screen.quiet:
        lines += _history_lines(events, events.history)
    say(screen, lines)


def _history_lines(events: "ControllerEvents", history: "ControllerHistory") -> Iterator[str]:
    from kafka_forensics.wording import message, offset_range

    yield from (f"{finding.severity.value}: {message(finding)}" for finding in events.findings[:_MESSAGES_SHOWN])
    if history.malformed_records > _MESSAGES_SHOWN:
        yield f"{history.malformed_records} records could not be read in all"
    for start, end in history.gaps[:_MESSAGES_SHOWN]:
        gap = f"{plural(end - start, 'offset')} of {CLUSTER_METADATA_TOPIC} ({offset_range(start, end)})"
        yield f"warning: {gap} missing in every copy: changes there are not shown"
    partitions = {(row.topic_id, row.partition) for row in events.rows}
    unclean = sum(row.event.is_unclean for row in events.rows)
    last_write = "" if history.last_ms is None else f", last written at {rfc3339(history.last_ms)}"
    committed = "it is unknown whether all of it was committed: in these copies no majority of the voters has it"
    if history.committed_end_offset is not None:
        committed = f"committed below offset {history.committed_end_offset}"
    yield (
        f"{plural(len(partitions), 'partition')}, {plural(len(events.rows), 'change')}, {plural(unclean, 'unclean election')}; "
        f"log of offsets {offset_range(history.log_start_offset, history.log_end_offset)}{last_write}; {committed}"
    )
