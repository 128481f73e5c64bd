"""`metadata` of several partitions for a person: their unclean elections and their last states, the worst first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kafka_forensics.cli.outputs.rows import table_lines
from kafka_forensics.cli.outputs.steps import partitions_words
from kafka_forensics.cli.outputs.words import first_rows
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.json_objects import time_text
from kafka_forensics.questions.metadata import ControllerEvents, EventRow

_ROWS_SHOWN: Final = 8
"""Rows of each table, a row for equal partitions."""
_STATES: Final = ("NO LEADER", "ISR BELOW MIN", "unknown", "replicas not in sync", "all in sync")
"""States of a partition, the worst first."""


def overview_lines(events: ControllerEvents, cost_words: Callable[[EventRow], str], width: int | None) -> Iterator[str]:
    """The unclean elections with their cost, the state of each partition at the end of the log, and how to list all changes."""
    yield from _state_lines(events, width)
    yield from _election_lines([row for row in events.rows if row.event.is_unclean], cost_words, width)
    yield f"\n{plural(len(events.rows), 'change')}: -v lists all, --topic and --partition those of one partition\n"


def _state_lines(events: ControllerEvents, width: int | None) -> Iterator[str]:
    groups: dict[tuple[int, str, str, str], list[TopicPartition]] = {}
    controls = {} if events.history is None else events.history.partitions
    for key in sorted({(row.topic, row.partition) for row in events.rows} & controls.keys()):
        control, state = controls[key], _state(controls[key])
        cells = ("", "", "") if state == len(_STATES) - 1 else (_leaders(control), _numbers(control.isr), _numbers(control.elr))
        groups.setdefault((state, *cells), []).append(key)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1]), group[1]))
    shown, hidden = first_rows(ordered, _ROWS_SHOWN)
    heads = ("partitions at the end of the log", "state", "leader", "ISR", "ELR")
    rows = ([partitions_words(partitions), _STATES[state], *cells] for (state, *cells), partitions in shown)
    yield from table_lines(heads, (), rows, width)
    yield from _more_line([key for _, partitions in hidden for key in partitions])


def _election_lines(rows: Iterable[EventRow], cost_words: Callable[[EventRow], str], width: int | None) -> Iterator[str]:
    groups: dict[tuple[bool, str, str], list[EventRow]] = {}
    for row in rows:
        is_lost = row.cost == "lost"
        groups.setdefault((not is_lost, _elected(row), "" if is_lost else cost_words(row)), []).append(row)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1]), _keys(group[1])))
    shown, hidden = first_rows(ordered, _ROWS_SHOWN)
    if shown:
        yield "\n"
    heads = ("unclean elections", "first at", "leader", "cost")
    cells = (
        [partitions_words(_keys(group)), time_text(min(row.event.timestamp_ms for row in group)), elected, cost or _lost(group)]
        for (_, elected, cost), group in shown
    )
    yield from table_lines(heads, (), cells, width)
    yield from _more_line(_keys([row for _, group in hidden for row in group]))


def _more_line(partitions: Sequence[TopicPartition]) -> Iterator[str]:
    if partitions:
        yield f"{partitions_words(partitions)} more\n"


def _keys(rows: Iterable[EventRow]) -> list[TopicPartition]:
    return sorted({(row.topic, row.partition) for row in rows})


def _lost(rows: Iterable[EventRow]) -> str:
    return plural(sum((row.cost_end_offset or 0) - (row.cost_start_offset or 0) for row in rows), "offset")


def _elected(row: EventRow) -> str:
    before, after = row.event.previous_leader, row.event.state.leader
    return f"{after}" if before == NO_LEADER else f"{after} after {before}"


def _state(control: PartitionControl) -> int:
    """Index of its state in `_STATES`."""
    if control.leader is None or control.isr is None or control.unknown_after is not None:
        return 2
    if control.leader == NO_LEADER:
        return 0
    if control.isr_is_below_minimum:
        return 1
    return 3 if len(control.isr) < len(control.replica_assignment or ()) else 4


def _leaders(control: PartitionControl) -> str:
    return "none" if control.leader == NO_LEADER else "?" if control.leader is None else str(control.leader)


def _numbers(brokers: list[int] | None) -> str:
    return ",".join(map(str, sorted(brokers or ()))) or "-"
