"""Pictures of a partition's leaders and ISR over time, and of its open and aborted transactions over offsets."""

from typing import Final

from kafka_forensics.model.controller import NO_LEADER, PartitionControl, PartitionEvent
from kafka_forensics.questions.report import PartitionTransactions, TransactionSpan
from kafka_forensics.report.document import PartitionRow
from kafka_forensics.report.picture import LEFT, RIGHT, Label, Line, Picture, Scale
from kafka_forensics.report.words import moment
from kafka_forensics.wording import offset_range

EVENTS_DRAWN: Final = 24
"""Changes of a partition that are drawn, the newest ones."""
_BROKERS_DRAWN: Final = 12
_TOP: Final = 20.0
_LANE: Final = 14.0
_STEP: Final = 20.0


def events_of(control: PartitionControl | None) -> list[PartitionEvent]:
    """The newest changes of a partition in the controllers' log, oldest first."""
    return [] if control is None or control.history is None else control.history.events[-EVENTS_DRAWN:]


def leadership(control: PartitionControl | None, topic: str, partition: int) -> Picture | None:
    """A lane for each assigned broker: when it led, and when it was in the ISR. None without any change."""
    events = events_of(control)
    if control is None or control.history is None or not events:
        return None
    times = [event.timestamp_ms for event in events]
    oldest, last = min(times), max(times)
    newest = last if control.as_of_ms is None else max(control.as_of_ms, last)
    if newest == last:
        newest += max((last - oldest) // 8, 1)  # a width for the last state
    scale = Scale([oldest, newest, *times])
    brokers = sorted({broker for event in events for broker in (*event.state.replica_assignment, *event.state.isr)})
    leaders = ", then ".join(_leader(event) for event in events[-6:])
    picture = Picture(f"Leadership and ISR of {topic}-{partition} over time: {leaders}")
    y = _TOP
    for broker in brokers[:_BROKERS_DRAWN]:
        picture.name(f"broker {broker}", y + 11)
        for event, end_ms in zip(events, [*times[1:], newest], strict=True):
            style, title = _broker_state(event, broker)
            if style and end_ms > event.timestamp_ms:
                picture.box(style, scale.span((event.timestamp_ms, end_ms)), y, _LANE, title)
        y += _STEP
    bottom = y + 2
    for event in events:
        if event.is_unclean:
            place = scale.place(event.timestamp_ms)
            picture.upright("fk", place, (8, bottom))
            picture.label_at("fkt", place, 13, "unclean election")
    picture.lines.append(Line("ax", LEFT, bottom, RIGHT, bottom))
    picture.texts.append(Label("tk", LEFT, bottom + 16, moment(oldest)))
    picture.texts.append(Label("tk", RIGHT, bottom + 16, moment(newest), "end"))
    picture.height = bottom + 24
    picture.note_scale(scale, "moments")
    if left_out := control.history.dropped_events + max(len(control.history.events) - EVENTS_DRAWN, 0):
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


def _broker_state(event: PartitionEvent, broker: int) -> tuple[str, str]:
    """The state of a broker after a change: (style, tooltip), both empty if it is not a replica."""
    state = event.state
    if event.kind == "deleted" or (broker not in state.replica_assignment and broker not in state.isr):
        return "", ""
    if broker == state.leader:
        return "ld", f"broker {broker} leads, leader epoch {state.leader_epoch}"
    return ("is", f"broker {broker} in the ISR") if broker in state.isr else ("os", f"broker {broker} out of the ISR")


def transactions(row: PartitionRow, of_partition: PartitionTransactions | None) -> Picture | None:
    """A bar for each open or aborted transaction, with the last stable offset. None without any."""
    if of_partition is None:
        return None
    spans, broker = of_partition.spans, of_partition.broker
    replica = next((replica for replica in row.replicas if replica.broker == broker), None)
    end = max(_end(span) for span in spans)
    if replica is not None and replica.log_end_offset is not None:
        end = max(end, replica.log_end_offset)
    stable = None if replica is None else replica.last_stable_offset
    marks = [min(span.first_offset for span in spans), end, *([] if stable is None else [stable])]
    scale = Scale([*marks, *(offset for span in spans for offset in (span.first_offset, _end(span)))])
    still_open = sum(span.marker_offset is None for span in spans)
    picture = Picture(
        f"Transactions of {row.topic}-{row.partition} on broker {broker}: {still_open} open and"
        f" {len(spans) - still_open} aborted drawn; last stable offset {'not known' if stable is None else stable}"
    )
    y = _TOP
    for span in spans:
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
    if of_partition.left_out:
        picture.notes.append(f"{of_partition.left_out} further open or aborted transactions are not drawn.")
    picture.note_scale(scale)
    return picture


def _end(span: TransactionSpan) -> int:
    """The offset after its marker, or after its last record."""
    return (span.last_offset if span.marker_offset is None else span.marker_offset) + 1


def _draw(picture: Picture, scale: Scale, span: TransactionSpan, y: float, end: int) -> None:
    """The bar of one transaction; that of an open one continues faintly to the log end."""
    is_open = span.marker_offset is None
    places = scale.span((span.first_offset, _end(span)))
    title = f"{'open' if is_open else 'aborted'}, offsets {offset_range(span.first_offset, span.last_offset + 1)}"
    if is_open:
        picture.box("og", (places[1], scale.place(end)), y, _LANE, f"{title}; not ended")
    picture.box("op" if is_open else "ab", places, y, _LANE, title)
    picture.beside("ctt", (places[0], scale.place(end) if is_open else places[1]), y + 11, title)
