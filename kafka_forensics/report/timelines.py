"""Who led a partition and who was in sync over time, and its open and aborted transactions over offsets."""

from typing import Final

from kafka_forensics.model.controller import NO_LEADER, PartitionControl, PartitionEvent
from kafka_forensics.questions.report import PartitionTransactions, TransactionSpan
from kafka_forensics.report.document import PartitionRow
from kafka_forensics.report.picture import LEFT, RIGHT, Line, Picture, Scale, Text
from kafka_forensics.report.words import moment
from kafka_forensics.wording import offset_range

EVENTS_DRAWN: Final = 24
"""Changes of a partition, the newest of them."""
_BROKERS_DRAWN: Final = 12
_TOP: Final = 20.0
_LANE: Final = 14.0
_STEP: Final = 20.0


def events_of(control: PartitionControl | None) -> list[PartitionEvent]:
    """The last changes of a partition that the controllers' log has, oldest first."""
    return [] if control is None or control.history is None else control.history.events[-EVENTS_DRAWN:]


def events_left_out(control: PartitionControl | None) -> int:
    """How many there were before."""
    if control is None or control.history is None:
        return 0
    return control.history.dropped_events + max(len(control.history.events) - EVENTS_DRAWN, 0)


def leadership(control: PartitionControl | None, topic: str, partition: int) -> Picture | None:
    """A lane for each broker that was assigned: when it led, and when it was in sync. None without any change."""
    events = events_of(control)
    if not events:
        return None
    last_ms = max(event.timestamp_ms for event in events)
    newest = last_ms if control is None or control.as_of_ms is None else max(control.as_of_ms, last_ms)
    times = [event.timestamp_ms for event in events]
    if newest <= max(times):
        newest += max((max(times) - min(times)) // 8, 1)  # so that the last state has some width
    scale = Scale([min(times), newest, *times])
    brokers = sorted({broker for event in events for broker in (*event.state.replica_assignment, *event.state.isr)})
    leaders = ", then ".join(_leader(event) for event in events[-6:])
    picture = Picture(f"Leadership and ISR of {topic}-{partition} over time: {leaders}")
    y = _TOP
    for broker in brokers[:_BROKERS_DRAWN]:
        picture.name(f"broker {broker}", y + 11)
        for number, event in enumerate(events):
            end_ms = events[number + 1].timestamp_ms if number + 1 < len(events) else newest
            style, said = _standing(event, broker)
            if style and end_ms > event.timestamp_ms:
                span = scale.place(event.timestamp_ms), scale.place(end_ms)
                picture.box(style, span, y, _LANE, said)
        y += _STEP
    bottom = y + 2
    for event in events:
        if event.is_unclean:
            place = scale.place(event.timestamp_ms)
            picture.upright("fk", place, (8, bottom))
            picture.label_at("fkt", place, 13, "unclean election")
    picture.lines.append(Line("ax", LEFT, bottom, RIGHT, bottom))
    picture.texts.append(Text("tk", LEFT, bottom + 16, moment(min(times))))
    picture.texts.append(Text("tk", RIGHT, bottom + 16, moment(newest), "end"))
    picture.height = bottom + 24
    if not scale.is_true:
        picture.notes.append("Distances between marks are not to scale: moments that stand close are drawn apart.")
    if left_out := events_left_out(control):
        picture.notes.append(f"{left_out} earlier changes are not drawn.")
    if len(brokers) > _BROKERS_DRAWN:
        picture.notes.append(f"{len(brokers) - _BROKERS_DRAWN} further brokers are not drawn.")
    if any(event.unknown_after is not None for event in events):
        picture.notes.append("A record of the controller's log could not be read, so that a change may be missing.")
    return picture


def _leader(event: PartitionEvent) -> str:
    if event.kind == "deleted":
        return "deleted"
    return "no leader" if event.state.leader == NO_LEADER else f"broker {event.state.leader}"


def _standing(event: PartitionEvent, broker: int) -> tuple[str, str]:
    """How a broker stood after a change: a style, and words."""
    state = event.state
    if event.kind == "deleted" or (broker not in state.replica_assignment and broker not in state.isr):
        return "", ""
    if broker == state.leader:
        return "ld", f"broker {broker} leads, leader epoch {state.leader_epoch}"
    return ("is", f"broker {broker} in the ISR") if broker in state.isr else ("os", f"broker {broker} out of the ISR")


def transactions(row: PartitionRow, known: PartitionTransactions | None) -> Picture | None:
    """A bar for each open or aborted transaction, with the last stable offset. None without any."""
    if known is None:
        return None
    own = next((replica for replica in row.replicas if replica.broker == known.broker), None)
    end = max(_end(span) for span in known.spans)
    if own is not None and own.log_end_offset is not None:
        end = max(end, own.log_end_offset)
    stable = None if own is None else own.last_stable_offset
    marks = [min(span.first_offset for span in known.spans), end, *([] if stable is None else [stable])]
    scale = Scale([*marks, *(offset for span in known.spans for offset in (span.first_offset, _end(span)))])
    still_open = sum(span.marker_offset is None for span in known.spans)
    said = "not known" if stable is None else str(stable)
    picture = Picture(
        f"Transactions of {row.topic}-{row.partition} on broker {known.broker}: {still_open} open and"
        f" {len(known.spans) - still_open} aborted drawn; last stable offset {said}"
    )
    y = _TOP
    for span in known.spans:
        picture.name(f"producer {span.producer_id}", y + 11)
        _draw(picture, scale, span, y, end)
        y += _STEP
    bottom = y + 2
    if stable is not None:
        place = scale.place(stable)
        picture.upright("so", place, (8, bottom))
        picture.label_at("sot", place, 13, f"last stable offset {stable}")
    picture.axis(scale, bottom)
    picture.height = bottom + 24
    if known.left_out:
        picture.notes.append(f"{known.left_out} further open or aborted transactions are not drawn.")
    if not scale.is_true:
        picture.notes.append("Distances between marks are not to scale: marks that stand close are drawn apart.")
    return picture


def _end(span: TransactionSpan) -> int:
    """Behind its marker, or its data."""
    return (span.last_offset if span.marker_offset is None else span.marker_offset) + 1


def _draw(picture: Picture, scale: Scale, span: TransactionSpan, y: float, end: int) -> None:
    """The bar of one transaction; an open one goes on to the log's end, faintly."""
    is_open = span.marker_offset is None
    places = scale.place(span.first_offset), scale.place(_end(span))
    words = f"{'open' if is_open else 'aborted'}, offsets {offset_range(span.first_offset, span.last_offset + 1)}"
    if is_open:
        picture.box("og", (places[1], scale.place(end)), y, _LANE, f"{words}; not ended")
    picture.box("op" if is_open else "ab", places, y, _LANE, words)
    picture.beside("ctt", (places[0], scale.place(end) if is_open else places[1]), y + 11, words)
