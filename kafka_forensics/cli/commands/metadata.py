"""`metadata`: leader, ISR, ELR and leader epoch of every partition over time, from the controller's log."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli import options
from kafka_forensics.cli.outputs.rows import AnswerList, cell
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, no_copy_message, open_output, say, screen_of
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.json_objects import Columns, attributes, rfc3339, time_text, times

if TYPE_CHECKING:
    from kafka_forensics.model.controller import ControllerHistory, PartitionState
    from kafka_forensics.questions.metadata import ControllerEvents, EventRow


COLUMNS: Final[Columns] = {
    **attributes("topic partition topic_id offset=event.offset"),
    **times("timestamp", "event.timestamp_ms"),
    **attributes("event=event.kind leader=state.leader leader_epoch"),
    **attributes("partition_epoch isr elr last_known_elr replica_assignment adding_replicas removing_replicas", of="state"),
    **attributes("directories leader_recovery_state", of="state"),
    **attributes("is_unclean=event.is_unclean previous_leader cost cost_start_offset cost_end_offset"),
    **attributes("is_committed unknown_after", of="event"),
}
_HEADS: Final = ("partition", "offset", "time", "leader", "epoch", "ISR", "ELR", "replicas", "what changed")
_RIGHT: Final = ("offset", "leader", "epoch")
_COST_NOTES: Final = {
    "same_leader": "the last leader was elected again",
    "agree_again": "no copy has the records that it cost",
    "damage_hides": "what it cost is unknown: a copy from before it is damaged",
    "parted": "the copies differ",
    "no_copy": "no copy of this partition was given",
    "old_leader_not_given": "what it cost is unknown: no copy of broker {leader}, the leader before, was given",
    "old_leader_not_compared": "what it cost is unknown: the copy of broker {leader}, the leader before, was not compared",
    "not_told": "what it cost was not checked",
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

    from kafka_forensics.cli.outputs.metadata import overview_lines
    from kafka_forensics.questions.metadata import controller_events

    with Progress(screen) as progress:
        events = controller_events(paths, scan_options, progress)
    is_short = len(events.rows) <= _CHANGES_SHOWN or len({(row.topic_id, row.partition) for row in events.rows}) == 1
    with open_output(output.output, color=console.color) as to:
        if format_name != "text" or is_short or console.is_verbose:
            AnswerList(COLUMNS, _HEADS, _RIGHT, _cells).write(events.rows, format_name, to)
        else:
            to.stream.writelines(overview_lines(events, _cost_words, to.width))
    _print_summary(events, screen)
    return options.EXIT_INCOMPLETE if events.incomplete else 0


def _cells(row: "EventRow") -> list[str]:
    event, state = row.event, row.event.state
    first_cells = [cell(f"{row.topic or row.topic_id}-{row.partition}"), str(event.offset), time_text(event.timestamp_ms)]
    if row.deleted:
        return [*first_cells, "", "", "", "", "", "deleted"]
    leader = "none" if state.leader == -1 else str(state.leader)
    epoch = "?" if row.leader_epoch is None else str(row.leader_epoch)
    lists = (_numbers(brokers) for brokers in (state.isr, state.elr, state.replica_assignment))
    return [*first_cells, leader, epoch, *lists, "; ".join(_changes(row))]


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values)) or "-"


def _changes(row: "EventRow") -> Iterator[str]:
    event, before = row.event, None if row.before is None else row.before.state
    if event.kind != "changed" or before is None:
        yield "from a snapshot" if event.kind == "snapshot" else event.kind
    else:
        yield from list(_state_changes(event.state, before)) or ["nothing but the partition epoch"]
    if event.is_unclean:
        yield f"UNCLEAN election: {_cost_words(row)}"
    if event.is_committed is False:
        yield "NOT COMMITTED: on no majority of the voters"
    if event.unknown_after is not None:
        yield f"unknown what changed after offset {event.unknown_after - 1}"


def _cost_words(row: "EventRow") -> str:
    from kafka_forensics.wording import offset_range

    lost = f"cost offsets {offset_range(row.cost_start_offset or 0, row.cost_end_offset or 0)}"
    return _COST_NOTES.get(row.cost or "", lost).replace("{leader}", str(row.event.previous_leader))


def _state_changes(state: "PartitionState", before: "PartitionState") -> Iterator[str]:
    if state.leader != before.leader:
        yield "no leader" if state.leader == -1 else f"leader {state.leader}"
    elif state.leader_epoch != before.leader_epoch:
        yield "new epoch of the same leader"
    for name, brokers, previous in (
        ("ISR", state.isr, before.isr),
        ("ELR", state.elr, before.elr),
        ("last known ELR", state.last_known_elr, before.last_known_elr),
    ):
        if removed := [broker for broker in previous if broker not in brokers]:
            yield f"{name} -{_numbers(removed)}"
        if added := [broker for broker in brokers if broker not in previous]:
            yield f"{name} +{_numbers(added)}"
    if state.replica_assignment != before.replica_assignment:
        yield "replicas reassigned"
    else:
        yield from _replica_moves(state, before)
    if before.leader_recovery_state == 1 and state.leader_recovery_state == 0:
        yield "leader recovered"


def _replica_moves(state: "PartitionState", before: "PartitionState") -> Iterator[str]:
    """Replicas being added or removed, and changed log directories, of an unchanged assignment."""
    for name, replicas, previous in (
        ("adding", state.adding_replicas, before.adding_replicas),
        ("removing", state.removing_replicas, before.removing_replicas),
    ):
        if replicas != previous:
            yield f"{name} {_numbers(replicas)}" if replicas else f"no longer {name} {_numbers(previous)}"
    from kafka_forensics.evidence.ledger import RESERVED_DIRECTORY_IDS

    directories_before = before.directories or ("",) * len(state.replica_assignment)
    first_assigned, moved = list[int](), list[int]()
    for node, directory, previous_directory in zip(state.replica_assignment, state.directories, directories_before, strict=False):
        if directory != previous_directory:
            had_none = not previous_directory or previous_directory in RESERVED_DIRECTORY_IDS
            (first_assigned if had_none else moved).append(node)
    if first_assigned:
        yield f"log directory of {_numbers(first_assigned)} assigned"
    if moved:
        yield f"log directory of {_numbers(moved)} changed"


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
