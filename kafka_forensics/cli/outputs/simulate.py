"""A simulated history as a page for a person, and as rows: one for each step and partition."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli.outputs.rows import plain_table, rich_lines
from kafka_forensics.cli.streams import Destination, wrapped
from kafka_forensics.model.json_objects import Json, attributes, object_of
from kafka_forensics.simulation.history import DEAD, LEADS, PAUSED, STALE, Event, History, PartitionView
from kafka_forensics.simulation.truth import at_the_end

if TYPE_CHECKING:
    from rich.text import Text

    from kafka_forensics.simulation.scenarios import Scenario


COLUMNS: Final = (
    *("scenario", "protocol", "step", "after_ms", "what"),
    *("topic", "partition", "leader", "leader_epoch", "isr", "elr", "replicas"),
)
_VIEW: Final = attributes("broker state log_end_offset high_watermark leader_epoch")
_MARKS: Final = {LEADS: "*", STALE: "?", PAUSED: "~", DEAD: "x"}
_LEGEND: Final = "log end/high watermark, leader epoch of each broker; * leader, x down, ~ not responding, ? stale leader"


def rows(history: History, name: str) -> Iterator[Json]:
    """A row for every step and partition."""
    for event in history.events:
        for moment in event.partitions:
            topic, partition = moment.topic_partition
            yield {
                "scenario": name,
                "protocol": history.cluster.protocol,
                **object_of(attributes("step after_ms what=text"), event),
                "topic": topic,
                "partition": partition,
                **object_of(attributes("leader leader_epoch isr elr"), moment),
                "replicas": [object_of(_VIEW, view) for view in moment.replicas],
            }


def lines(history: History, name: str, to: Destination) -> Iterator[str]:
    """The page: a table of the steps, what consumers read and what is lost at the end, and remarks."""
    yield f"{name} under {history.cluster.protocol}\n\n"
    yield from _table(history, to)
    yield "\n"
    for text in [_LEGEND, "", *at_the_end(history), "", *history.remarks]:
        yield from wrapped(text, to.width)


def scenario_lines(scenarios: Iterable["Scenario"], to: Destination) -> Iterator[str]:
    """The list of scenarios: each name, with a sentence below it."""
    for scenario in scenarios:
        yield f"{scenario.name}  ({', '.join(scenario.protocols)})\n"
        yield from wrapped(scenario.message, to.width, "    ", "    ")


def _table(history: History, to: Destination) -> Iterator[str]:
    """A table of the steps with the partitions that each step changed."""
    from rich.text import Text

    def stacked(cells: "Iterable[Text]") -> Text:
        return Text("\n").join(cells)

    brokers = history.cluster.brokers
    several = len(history.events[-1].partitions) > 1
    table = plain_table()
    table.add_column(Text("step"), justify="right", no_wrap=True)
    table.add_column(Text("what happened"), overflow="fold", ratio=1)
    if several:
        table.add_column(Text("partition"), no_wrap=True)
    for broker in brokers:
        table.add_column(Text(f"broker {broker}"), no_wrap=True)
    table.add_column(Text("ISR"), no_wrap=True)
    before: Event | None = None
    for event in history.events:
        changed = _changed(event, before)
        partitions = stacked(Text("-".join(map(str, moment.topic_partition))) for moment in changed)
        cells = [stacked(_cell(moment, broker) for moment in changed) for broker in brokers]
        isrs = stacked(Text(",".join(map(str, moment.isr))) for moment in changed)
        table.add_row(Text(str(event.step)), Text(event.text), *([partitions] if several else []), *cells, isrs)
        before = event
    return rich_lines(table, to)


def _changed(event: Event, before: Event | None) -> list[PartitionView]:
    """Partitions that a step changed; the first one if it changed none."""
    earlier = {} if before is None else {moment.topic_partition: moment for moment in before.partitions}
    changed = [moment for moment in event.partitions if earlier.get(moment.topic_partition) != moment]
    return changed or list(event.partitions[:1])


def _cell(moment: PartitionView, broker: int) -> "Text":
    from rich.text import Text

    view = next((replica for replica in moment.replicas if replica.broker == broker), None)
    if view is None:
        return Text("")
    mark = _MARKS.get(view.state, " ")
    style = {"*": "bold", "x": "dim", "~": "dim", "?": "yellow"}.get(mark, "")
    return Text(f"{mark}{view.log_end_offset}/{view.high_watermark} e{view.leader_epoch}", style=style)
