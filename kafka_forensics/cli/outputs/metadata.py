"""`metadata` for a person: the changes, or of several partitions the unclean elections and last states, the worst first."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafka_forensics.cli.outputs.rows import cell, table_lines
from kafka_forensics.cli.outputs.steps import partitions_words
from kafka_forensics.cli.outputs.words import first_rows
from kafka_forensics.evidence.ledger import RESERVED_DIRECTORY_IDS
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.controller import NO_LEADER, PartitionControl, PartitionEvent, PartitionState
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.grouped import grouped
from kafka_forensics.model.json_objects import time_text
from kafka_forensics.questions.metadata import ControllerEvents, EventRow
from kafka_forensics.wording import offset_range

CHANGE_HEADS: Final = ("partition", "offset", "time", "leader", "epoch", "ISR", "ELR", "replicas", "what changed")
CHANGE_RIGHT: Final = ("offset", "leader", "epoch")
_COST_NOTES: Final = {
    "same_leader": "the last leader was elected again",
    "agree_again": "no copy has the records that it cost",
    "damage_hides": "what it cost is unknown: a copy from before it is damaged",
    "copies_differ": "the copies differ",
    "no_copy": "no copy of this partition was given",
    "old_leader_not_given": "what it cost is unknown: no copy of broker {leader}, the leader before, was given",
    "old_leader_not_compared": "what it cost is unknown: the copy of broker {leader}, the leader before, was not compared",
    "not_compared": "what it cost was not checked",
}
_ROWS_SHOWN: Final = 8
"""Rows of each table, a row for equal partitions."""
_STATES: Final = ("NO LEADER", "ISR BELOW MIN", "not committed", "unknown", "replicas not in sync", "all in sync")
"""States of a partition, the worst first."""
_NOT_COMMITTED: Final = "not committed: on no majority of the voters"


def overview_lines(events: ControllerEvents, width: int | None) -> Iterator[str]:
    """The unclean elections with their cost, the state of each partition at the end of the log, and how to list all changes."""
    yield from _state_lines(events, width)
    yield from _election_lines([row for row in events.rows if row.event.is_unclean], width)
    yield f"\n{plural(len(events.rows), 'change')}: -v lists all, --topic and --partition those of one partition\n"


def _state_lines(events: ControllerEvents, width: int | None) -> Iterator[str]:
    controls = {} if events.history is None else events.history.partitions
    last = {(row.topic, row.partition): row.event for row in events.rows}

    def cells(key: TopicPartition) -> tuple[int, str, str, str]:
        control, state = controls[key], _state(controls[key], last[key])
        if state == len(_STATES) - 1:
            return state, "", "", ""
        isr, elr = ("?" if brokers is None else _numbers(sorted(brokers)) for brokers in (control.isr, control.elr))
        return state, _leader(control), isr, elr

    groups = grouped(sorted(last.keys() & controls.keys()), cells)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1]), group[1]))
    shown, hidden = first_rows(ordered, _ROWS_SHOWN)
    heads = ("partitions at the end of the log", "state", "leader", "ISR", "ELR")
    rows = ([partitions_words(partitions), _STATES[state], *cells] for (state, *cells), partitions in shown)
    yield from table_lines(heads, (), rows, width)
    yield from _more_line([key for _, partitions in hidden for key in partitions])


def _election_lines(rows: Iterable[EventRow], width: int | None) -> Iterator[str]:
    groups = grouped(rows, lambda row: (_elected(row), _cost(row)))
    ordered = sorted(groups.items(), key=lambda group: (bool(group[0][1]), -len(group[1]), _keys(group[1])))
    shown, hidden = first_rows(ordered, _ROWS_SHOWN)
    if shown:
        yield "\n"
    heads = ("unclean elections", "first at", "leader", "cost")
    cells = (
        [partitions_words(_keys(group)), time_text(min(row.event.timestamp_ms for row in group)), elected, cost or _lost(group)]
        for (elected, cost), group in shown
    )
    yield from table_lines(heads, (), cells, width)
    yield from _more_line(_keys([row for _, group in hidden for row in group]))


def _more_line(partitions: Sequence[TopicPartition]) -> Iterator[str]:
    if partitions:
        yield f"{partitions_words(partitions)} more\n"


def _keys(rows: Iterable[EventRow]) -> list[TopicPartition]:
    return sorted({(row.topic, row.partition) for row in rows})


def _lost(rows: Iterable[EventRow]) -> str:
    return plural(sum((row.lost_end_offset or 0) - (row.lost_start_offset or 0) for row in rows), "offset")


def _cost(row: EventRow) -> str:
    """What an election cost, or why that is unknown; empty where offsets were lost, which are counted."""
    if row.event.is_committed is False:
        return _NOT_COMMITTED
    return "" if row.loss == "lost" else _cost_words(row)


def _elected(row: EventRow) -> str:
    before, after = row.event.previous_leader, row.event.state.leader
    return f"{after}" if before == NO_LEADER else f"{before} → {after}"


def _state(control: PartitionControl, last: PartitionEvent) -> int:
    """Index of its state in `_STATES`; `last` is the last change."""
    if last.is_committed is False:
        return 2
    if control.leader is None or control.isr is None or control.unknown_after is not None:
        return 3
    if control.leader == NO_LEADER:
        return 0
    if control.isr_is_below_minimum:
        return 1
    return 4 if len(control.isr) < len(control.replica_assignment or ()) else 5


def _leader(control: PartitionControl) -> str:
    return "none" if control.leader == NO_LEADER else "?" if control.leader is None else str(control.leader)


def change_cells(row: EventRow) -> list[str]:
    """A change as a row of a table with the columns `CHANGE_HEADS`."""
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


def _changes(row: EventRow) -> Iterator[str]:
    event, before = row.event, None if row.before is None else row.before.state
    if event.kind != "changed" or before is None:
        yield "from a snapshot" if event.kind == "snapshot" else event.kind
    else:
        yield from list(_state_changes(event.state, before)) or ["nothing but the partition epoch"]
    if event.is_unclean:
        yield f"UNCLEAN election: {_cost_words(row)}"
    if event.is_committed is False:
        yield _NOT_COMMITTED.replace("not committed", "NOT COMMITTED")
    if event.unknown_after is not None:
        yield f"unknown what changed after offset {event.unknown_after - 1}"


def _cost_words(row: EventRow) -> str:
    lost = f"cost offsets {offset_range(row.lost_start_offset or 0, row.lost_end_offset or 0)}"
    return _COST_NOTES.get(row.loss or "", lost).replace("{leader}", str(row.event.previous_leader))


def _state_changes(state: PartitionState, before: PartitionState) -> Iterator[str]:
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


def _replica_moves(state: PartitionState, before: PartitionState) -> Iterator[str]:
    """Replicas being added or removed, and changed log directories, of an unchanged assignment."""
    for name, replicas, previous in (
        ("adding", state.adding_replicas, before.adding_replicas),
        ("removing", state.removing_replicas, before.removing_replicas),
    ):
        if replicas != previous:
            yield f"{name} {_numbers(replicas)}" if replicas else f"no longer {name} {_numbers(previous)}"
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
