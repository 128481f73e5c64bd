"""`metadata`: leader, ISR, ELR and leader epoch of every partition over time, from the controller's log."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli import options
from kafka_forensics.cli.outputs.rows import Listing, cell
from kafka_forensics.cli.streams import Destination, absent, chosen_format, open_output, say, screen_of
from kafka_forensics.model.json_objects import Columns, attributes, rfc3339, time_text, times

if TYPE_CHECKING:
    from kafka_forensics.model.controller import PartitionState
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
_COSTS: Final = {
    "same_leader": "the last leader led again",
    "agree_again": "what it cost is on no copy any more",
    "damage_hides": "what it cost cannot be told: a copy from before it is damaged",
    "parted": "the copies differ",
    "no_copy": "no copy of this partition was given",
    "old_leader_not_given": "what it cost cannot be told: no copy of broker {leader}, the leader before, was given",
    "old_leader_not_compared": "what it cost cannot be told: the copy of broker {leader}, the leader before, was not compared",
    "not_told": "what it cost was not looked into",
}
_MESSAGES: Final = 20


@options.flat
def metadata(
    paths: options.Paths,
    selection: options.Selection,
    reading: options.Reading,
    form: options.Form,
    printing: options.Printing,
) -> int:
    """Who led each partition, who was in sync, in which leader epoch and since when, from the controller's log.

    Reads every copy of `__cluster_metadata` there is, on controllers and brokers, and marks unclean elections with what they
    cost as far as the partitions' own logs show it.
    """
    wanted = chosen_format(form.format_name, form.output)
    scan_options = reading.scan_options(selection)
    screen = screen_of(printing)

    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.metadata import controller_events

    with Progress(screen, quiet=printing.quiet) as progress:
        events = controller_events(paths, scan_options, progress)
    with open_output(form.output, color=printing.color) as to:
        Listing(COLUMNS, _HEADS, _RIGHT, _cells).write(events.rows, wanted, to)
    _say_rest(events, screen, quiet=printing.quiet)
    return 3 if events.incomplete else 0


def _cells(row: "EventRow") -> list[str]:
    event, state = row.event, row.event.state
    time = time_text(event.timestamp_ms)
    named = [cell(f"{row.topic or row.topic_id}-{row.partition}"), str(event.offset), time]
    if row.deleted:
        return [*named, "", "", "", "", "", "deleted"]
    leader = "none" if state.leader == -1 else str(state.leader)
    epoch = "?" if row.leader_epoch is None else str(row.leader_epoch)
    lists = (_numbers(brokers) for brokers in (state.isr, state.elr, state.replica_assignment))
    return [*named, leader, epoch, *lists, "; ".join(_changes(row))]


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values)) or "-"


def _changes(row: "EventRow") -> Iterator[str]:
    from kafka_forensics.wording import offset_range

    event, before = row.event, None if row.before is None else row.before.state
    state = event.state
    if event.kind != "changed" or before is None:
        yield "from a snapshot" if event.kind == "snapshot" else event.kind
    else:
        yield from list(_state_changes(state, before)) or ["nothing but the partition epoch"]
    if event.is_unclean:
        lost = f"cost offsets {offset_range(row.cost_start_offset or 0, row.cost_end_offset or 0)}"
        yield f"UNCLEAN election: {_COSTS.get(row.cost or '', lost).replace('{leader}', str(event.previous_leader))}"
    if event.is_committed is False:
        yield "NOT COMMITTED: on no majority of the voters"
    if event.unknown_after is not None:
        yield f"unknown what changed after offset {event.unknown_after - 1}"


def _state_changes(state: "PartitionState", before: "PartitionState") -> Iterator[str]:
    if state.leader != before.leader:
        yield "no leader" if state.leader == -1 else f"leader {state.leader}"
    elif state.leader_epoch != before.leader_epoch:
        yield "new epoch of the same leader"
    for name, now, then in (
        ("ISR", state.isr, before.isr),
        ("ELR", state.elr, before.elr),
        ("last known ELR", state.last_known_elr, before.last_known_elr),
    ):
        yield from (f"{name} {sign}{_numbers(some)}" for sign, some in _difference(now, then))
    if state.replica_assignment != before.replica_assignment:
        yield "replicas reassigned"
    else:
        yield from _moved(state, before)
    if before.leader_recovery_state == 1 and state.leader_recovery_state == 0:
        yield "leader recovered"


def _moved(state: "PartitionState", before: "PartitionState") -> Iterator[str]:
    """Replicas that are to come or go, and log directories that replicas came into; the brokers are the same."""
    for name, now, then in (
        ("adding", state.adding_replicas, before.adding_replicas),
        ("removing", state.removing_replicas, before.removing_replicas),
    ):
        if now != then:
            yield f"{name} {_numbers(now)}" if now else f"no longer {name} {_numbers(then)}"
    from kafka_forensics.evidence.ledger import RESERVED_DIRECTORY_IDS

    known = before.directories or ("",) * len(state.replica_assignment)
    where = list(zip(state.replica_assignment, state.directories, known, strict=False))
    unplaced = [node for node, now, then in where if now != then and (not then or then in RESERVED_DIRECTORY_IDS)]
    elsewhere = [node for node, now, then in where if now != then and node not in unplaced]
    if unplaced:
        yield f"log directory of {_numbers(unplaced)} told"
    if elsewhere:
        yield f"log directory of {_numbers(elsewhere)} changed"


def _difference(now: tuple[int, ...], then: tuple[int, ...]) -> Iterator[tuple[str, list[int]]]:
    gone, come = [broker for broker in then if broker not in now], [broker for broker in now if broker not in then]
    if gone:
        yield "-", gone
    if come:
        yield "+", come


def _say_rest(events: "ControllerEvents", screen: Destination, *, quiet: bool) -> None:
    """How far the log reaches, what is wrong in it, and what could not be read, on stderr."""
    from kafka_forensics.cli.outputs.words import gap_lines
    from kafka_forensics.model.amounts import plural
    from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
    from kafka_forensics.wording import message, offset_range

    history = events.history
    lines = gap_lines(events.incomplete)
    if history is None:
        parted = f"the copies of {CLUSTER_METADATA_TOPIC} are empty, or of several clusters"
        lines.append(f"nothing to show: {parted if events.copies else absent(CLUSTER_METADATA_TOPIC)}")
    elif not quiet:
        lines += [f"{finding.severity.value}: {message(finding)}" for finding in events.findings[:_MESSAGES]]
        if history.malformed_records > _MESSAGES:
            lines.append(f"{history.malformed_records} records could not be read in all")
        for first, behind in history.gaps[:_MESSAGES]:
            gap = f"{plural(behind - first, 'offset')} of {CLUSTER_METADATA_TOPIC} ({offset_range(first, behind)})"
            missing = f"{gap} missing in every copy"
            lines.append(f"warning: {missing}: what was written there is not shown")
        partitions = {(row.topic_id, row.partition) for row in events.rows}
        unclean = sum(row.event.is_unclean for row in events.rows)
        end = "" if history.last_ms is None else f", last written at {rfc3339(history.last_ms)}"
        lines.append(
            f"{plural(len(partitions), 'partition')}, {plural(len(events.rows), 'change')}, {plural(unclean, 'unclean election')}; "
            f"log of offsets {offset_range(history.log_start_offset, history.log_end_offset)}{end}; "
            + _committed(history.committed_end_offset)
        )
    say(screen, lines)


def _committed(end_offset: int | None) -> str:
    if end_offset is None:
        return "whether all of it was committed is not known: no majority of the voters has it in these copies"
    return f"committed below offset {end_offset}"
