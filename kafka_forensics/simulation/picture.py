"""Draws a history as SVG: a row for each event, a column for each replica, records as boxes coloured by leader epoch."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.simulation.cluster import Batch
from kafka_forensics.simulation.history import DEAD, LEADS, PAUSED, STALE, Event, History, ReplicaView
from kafka_forensics.simulation.truth import at_the_end, lost, not_read

COLOURS: Final = ("#cfe3f7", "#fbd9a5", "#cdebc5", "#e6d3f2", "#f9c9c9", "#d5e8e4", "#f3efb0", "#dcdcdc")
"""Of the leader epochs 0, 1, 2 …; they repeat after the last."""
_BOX: Final = 24
_BOX_HEIGHT: Final = 20
_LINE: Final = 16
_TEXT_WIDTH: Final = 300
_TEXT_COLUMNS: Final = 44
_MARGIN: Final = 16
_GAP: Final = 24
_SMALL_LETTER: Final = 6
"""Width of a small letter in pixels, in a wide font."""
_LETTER: Final = 7.5
"""The same of a heading."""
_STATE_NAMES: Final = {LEADS: "leader", STALE: "stale leader", PAUSED: "not responding", DEAD: "down"}
_HEADING: Final = 'font-weight="600"'
_SMALL: Final = 'font-size="10" fill="#556"'
_IN_BOX: Final = 'font-size="10" text-anchor="middle"'
_MISSING: Final = ' font-weight="700" fill="#b3261e" text-decoration="underline"'
"""Of an acknowledged record that no consumer reads at the end."""
_ABORTED: Final = ' font-style="italic" fill="#889"'
_NUMBER: Final = 'fill="#778" text-anchor="end"'
_OUTLINE: Final = 'stroke="#556" stroke-width="0.8"'
_MARK: Final = 'stroke="#b3261e" stroke-width="2.5"'
_ROW_LINE: Final = 'stroke="#e4e4ea"'
_DASHED: Final = ' stroke-dasharray="2 2"'
"""Presentation attributes, because not every viewer supports style sheets."""


class _Column(NamedTuple):
    """The column of one replica, from x = `left` on."""

    topic_partition: TopicPartition
    broker: int
    left: int
    heading: str


def svg(history: History, title: str) -> str:
    """The whole picture; every text in it is escaped."""
    missing = frozenset(lost(history.cluster) | not_read(history))
    columns, width = _columns(history)
    y = _MARGIN + 20
    body = [_text(_MARGIN, y, title, _HEADING)]
    y += 26
    body += [_text(column.left, y, column.heading, _HEADING) for column in columns]
    y += 14
    for event in history.events:
        rows, y = _event_row(event, columns, y, width, missing)
        body += rows
    y += 8
    for sentence in [*at_the_end(history), *history.remarks]:
        for line in textwrap.wrap(sentence, max(60, (width - 2 * _MARGIN) // 7)):
            y += _LINE
            body.append(_text(_MARGIN, y, line))
    x, y = _MARGIN, y + 8
    for swatch, label in _legend(history, missing):
        needed = 34 + int(_SMALL_LETTER * len(label))
        if x > _MARGIN and x + needed > width - _MARGIN:
            x, y = _MARGIN, y + 22
        body += [swatch.format(x=x, y=y, mark=x + 7, above=y - 2, below=y + 16, line=y + 11), _text(x + 19, y + 11, label, _SMALL)]
        x += needed
    height = y + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f'<g font-family="system-ui, Helvetica, Arial, sans-serif" font-size="12" fill="#222">\n'
        + "\n".join(body)
        + "\n</g>\n</svg>\n"
    )


def _views(events: Iterable[Event]) -> Iterator[tuple[TopicPartition, ReplicaView, bool]]:
    """Every replica after every event: its partition, itself, and whether it is in the ISR."""
    for event in events:
        for partition in event.partitions:
            for view in partition.replicas:
                yield partition.topic_partition, view, view.broker in partition.isr


def _columns(history: History) -> tuple[list[_Column], int]:
    """The columns of the replicas, and the width of the picture."""
    x = _MARGIN + 24 + _TEXT_WIDTH + _GAP
    columns = []
    last = history.events[-1]
    for partition in last.partitions:
        name = partition.topic_partition
        views = [(view, in_isr) for topic_partition, view, in_isr in _views(history.events) if topic_partition == name]
        longest_log = max(view.log_end_offset for view, _ in views)
        longest_label = max(len(_label(view, in_isr=in_isr)) for view, in_isr in views)
        for view in partition.replicas:
            prefix = f"{name[0]}-{name[1]} on " if len(last.partitions) > 1 else ""
            column = _Column(name, view.broker, x, f"{prefix}broker {view.broker}")
            columns.append(column)
            widths = longest_log * _BOX, int(longest_label * _SMALL_LETTER), int(len(column.heading) * _LETTER)
            x += max(widths) + _GAP
    return columns, x


def _event_row(event: Event, columns: Sequence[_Column], y: int, width: int, missing: frozenset[int]) -> tuple[list[str], int]:
    """The row of an event, and the y of the next; `missing` are the records that no consumer reads at the end."""
    lines = textwrap.wrap(event.text, _TEXT_COLUMNS)
    height = max(len(lines) * _LINE + 12, _BOX_HEIGHT + 28)
    rows = [f'<line {_ROW_LINE} x1="{_MARGIN}" x2="{width - _MARGIN}" y1="{y}" y2="{y}"/>']
    rows.append(_text(_MARGIN + 16, y + 20, str(event.step), _NUMBER))
    rows += [_text(_MARGIN + 26, y + 20 + number * _LINE, line) for number, line in enumerate(lines)]
    left = {(column.topic_partition, column.broker): column.left for column in columns}
    for topic_partition, view, in_isr in _views([event]):
        rows += _log(view, left[topic_partition, view.broker], y + 6, missing, in_isr=in_isr)
    return rows, y + height


def _log(view: ReplicaView, x: int, y: int, missing: frozenset[int], *, in_isr: bool) -> Iterator[str]:
    """A replica: a box for each offset, the high watermark, and a label."""
    opacity = ' opacity=".45"' if view.state in (DEAD, PAUSED) else ""
    yield f"<g{opacity}>"
    yield f'<line x1="{x}" x2="{x + max(view.log_end_offset * _BOX, 8)}" y1="{y + _BOX_HEIGHT}" y2="{y + _BOX_HEIGHT}" {_OUTLINE}/>'
    for number, batch in enumerate(view.batches):
        colour = COLOURS[batch.leader_epoch % len(COLOURS)]
        aborted = _ABORTED if _is_aborted(batch, view.batches[number + 1 :]) else ""
        dash = _DASHED if batch.is_transactional and batch.marker is None else ""
        for offset, record_id in enumerate(batch.ids, batch.base_offset):
            left = x + offset * _BOX
            yield f'<rect {_OUTLINE} x="{left}" y="{y}" width="{_BOX}" height="{_BOX_HEIGHT}" fill="{colour}"{dash}/>'
            style = _IN_BOX + (_MISSING if record_id in missing else aborted)
            yield _text(left + _BOX // 2, y + 14, batch.marker[0] if batch.marker else f"r{record_id}", style)
    mark = x + view.high_watermark * _BOX
    yield f'<line {_MARK} x1="{mark}" x2="{mark}" y1="{y - 4}" y2="{y + _BOX_HEIGHT + 4}"/>'
    yield _text(x, y + _BOX_HEIGHT + 13, _label(view, in_isr=in_isr), _SMALL)
    yield "</g>"


def _is_aborted(batch: Batch, later: Sequence[Batch]) -> bool:
    """Whether the transaction of a batch was aborted: the first later marker of its producer in the same log is ABORT."""
    markers = (marker.marker for marker in later if marker.marker is not None and marker.producer_id == batch.producer_id)
    return batch.is_transactional and batch.marker is None and next(markers, None) == "ABORT"


def _label(view: ReplicaView, *, in_isr: bool) -> str:
    """The state of a replica, below its log."""
    return " · ".join(filter(None, (_STATE_NAMES.get(view.state), f"epoch {view.leader_epoch}", "" if in_isr else "not in ISR")))


def _legend(history: History, missing: frozenset[int]) -> Iterator[tuple[str, str]]:
    """Each kind of drawing in the picture, as a format string with its position left open, and its meaning."""
    logs = [view.batches for _, view, _ in _views(history.events)]
    batches = [batch for log in logs for batch in log]
    box = f'<rect {_OUTLINE} x="{{x}}" y="{{y}}" width="14" height="14" fill="%s"%s/>'
    for epoch in sorted({batch.leader_epoch for batch in batches}):
        note = "" if history.cluster.has_leader_epochs else " (not in the log)"
        yield box % (COLOURS[epoch % len(COLOURS)], ""), f"epoch {epoch}{note}"
    yield f'<line {_MARK} x1="{{mark}}" x2="{{mark}}" y1="{{above}}" y2="{{below}}"/>', "high watermark of this broker"
    if any(batch.is_transactional for batch in batches):
        yield box % ("#fff", _DASHED), "record of a transaction; C and A: its COMMIT or ABORT marker"
    record = f'<text x="{{mark}}" y="{{line}}" {_IN_BOX}%s>r</text>'
    if any(_is_aborted(batch, log[number + 1 :]) for log in logs for number, batch in enumerate(log)):
        yield record % _ABORTED, "record of an aborted transaction"
    if missing & {record_id for batch in batches for record_id in batch.ids}:
        yield record % _MISSING, "acknowledged, but not readable at the end"


def _text(x: int, y: int, text: str, attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}"{" " * bool(attributes)}{attributes}>{escape(text)}</text>'
