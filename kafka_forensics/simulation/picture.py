"""A history as an SVG picture: a row for each step, a lane for each replica, records as boxes coloured by their leader epoch."""

import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.simulation.cluster import Batch
from kafka_forensics.simulation.history import DEAD, FROZEN, LEADS, STALE, Event, History, View
from kafka_forensics.simulation.truth import at_the_end, lost, not_read

COLOURS: Final = ("#cfe3f7", "#fbd9a5", "#cdebc5", "#e6d3f2", "#f9c9c9", "#d5e8e4", "#f3efb0", "#dcdcdc")
"""Of the leader epochs 0, 1, 2 …, from the beginning again after the last."""
_BOX: Final = 24
_BOX_HEIGHT: Final = 20
_LINE: Final = 16
_TEXT_WIDTH: Final = 300
_TEXT_COLUMNS: Final = 44
_MARGIN: Final = 16
_GAP: Final = 24
_SMALL_LETTER: Final = 6
"""Pixels of a small letter, in a wide font."""
_LETTER: Final = 7.5
"""Of a heading's."""
_NAMES: Final = {LEADS: "leader", STALE: "stale leader", FROZEN: "stands still", DEAD: "dead"}
_HEADING: Final = 'font-weight="600"'
_SMALL: Final = 'font-size="10" fill="#556"'
_IN_BOX: Final = 'font-size="10" text-anchor="middle"'
_MISSING: Final = ' font-weight="700" fill="#b3261e" text-decoration="underline"'
"""Of a record that was acknowledged and that nobody reads at the end."""
_ABORTED: Final = ' font-style="italic" fill="#889"'
_NUMBER: Final = 'fill="#778" text-anchor="end"'
_OUTLINE: Final = 'stroke="#556" stroke-width="0.8"'
_MARK: Final = 'stroke="#b3261e" stroke-width="2.5"'
_RULE: Final = 'stroke="#e4e4ea"'
_DASHED: Final = ' stroke-dasharray="2 2"'
"""Presentation attributes, which every viewer knows; style sheets are not."""


class _Lane(NamedTuple):
    topic_partition: TopicPartition
    broker: int
    left: int


def svg(history: History, title: str) -> str:
    """The whole picture; every text in it is escaped."""
    last = history.events[-1]
    missing = frozenset(lost(history.cluster) | not_read(history))
    lanes, width = _lanes(history)
    body: list[str] = []
    y = _MARGIN + 20
    body.append(_text(_MARGIN, y, title, _HEADING))
    y += 26
    body += [_text(lane.left, y, _heading(lane, several=len(last.partitions) > 1), _HEADING) for lane in lanes]
    y += 14
    for event in history.events:
        rows, y = _event(event, lanes, y, width, missing)
        body += rows
    ending, y = _ending(history, y + 8, width)
    body += ending
    legend, y = _legend(history, y + 8, width, missing)
    body += legend
    height = y + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f'<g font-family="system-ui, Helvetica, Arial, sans-serif" font-size="12" fill="#222">\n'
        + "\n".join(body)
        + "\n</g>\n</svg>\n"
    )


def _batches(history: History) -> Iterator[Batch]:
    for event in history.events:
        for moment in event.partitions:
            for view in moment.replicas:
                yield from view.batches


def _lanes(history: History) -> tuple[list[_Lane], int]:
    """Where each replica's lane begins, and the width of the picture."""
    x = _MARGIN + 24 + _TEXT_WIDTH + _GAP
    lanes = []
    several = len(history.events[-1].partitions) > 1
    for moment in history.events[-1].partitions:
        moments = [
            partition
            for event in history.events
            for partition in event.partitions
            if partition.topic_partition == moment.topic_partition
        ]
        longest = max(view.log_end_offset for moment in moments for view in moment.replicas)
        label = max(len(_label(view, in_isr=view.broker in moment.isr)) for moment in moments for view in moment.replicas)
        for view in moment.replicas:
            lane = _Lane(moment.topic_partition, view.broker, x)
            lanes.append(lane)
            x += max(longest * _BOX, int(label * _SMALL_LETTER), int(len(_heading(lane, several=several)) * _LETTER)) + _GAP
    return lanes, x


def _views(event: Event, where: TopicPartition) -> Sequence[View]:
    return next((moment.replicas for moment in event.partitions if moment.topic_partition == where), ())


def _heading(lane: _Lane, *, several: bool) -> str:
    topic, number = lane.topic_partition
    return f"{topic}-{number} on broker {lane.broker}" if several else f"broker {lane.broker}"


def _event(event: Event, lanes: Sequence[_Lane], y: int, width: int, missing: frozenset[int]) -> tuple[list[str], int]:
    """One step's row, and where the next begins; `missing` at the end are these records."""
    lines = textwrap.wrap(event.text, _TEXT_COLUMNS)
    height = max(len(lines) * _LINE + 12, _BOX_HEIGHT + 28)
    rows = [f'<line {_RULE} x1="{_MARGIN}" x2="{width - _MARGIN}" y1="{y}" y2="{y}"/>']
    rows.append(_text(_MARGIN + 16, y + 20, str(event.step), _NUMBER))
    rows += [_text(_MARGIN + 26, y + 20 + number * _LINE, line) for number, line in enumerate(lines)]
    isrs = {moment.topic_partition: moment.isr for moment in event.partitions}
    for lane in lanes:
        view = next((view for view in _views(event, lane.topic_partition) if view.broker == lane.broker), None)
        if view is not None:
            rows += _log(view, lane.left, y + 6, missing, in_isr=view.broker in isrs[lane.topic_partition])
    return rows, y + height


def _log(view: View, x: int, y: int, missing: frozenset[int], *, in_isr: bool) -> Iterator[str]:
    """A replica: a box for each offset, the high watermark, and what it is."""
    faded = ' opacity=".45"' if view.state in (DEAD, FROZEN) else ""
    yield f"<g{faded}>"
    yield f'<line x1="{x}" x2="{x + max(view.log_end_offset * _BOX, 8)}" y1="{y + _BOX_HEIGHT}" y2="{y + _BOX_HEIGHT}" {_OUTLINE}/>'
    for number, batch in enumerate(view.batches):
        colour = COLOURS[batch.leader_epoch % len(COLOURS)]
        ended = _ABORTED if _is_aborted(batch, view.batches[number + 1 :]) else ""
        for offset, record_id in enumerate(batch.ids, batch.base_offset):
            left = x + offset * _BOX
            dash = _DASHED if batch.is_transactional and batch.marker is None else ""
            yield f'<rect {_OUTLINE} x="{left}" y="{y}" width="{_BOX}" height="{_BOX_HEIGHT}" fill="{colour}"{dash}/>'
            look = _IN_BOX + (_MISSING if record_id in missing else ended)
            yield _text(left + _BOX // 2, y + 14, batch.marker[0] if batch.marker else f"r{record_id}", look)
    mark = x + view.high_watermark * _BOX
    yield f'<line {_MARK} x1="{mark}" x2="{mark}" y1="{y - 4}" y2="{y + _BOX_HEIGHT + 4}"/>'
    yield _text(x, y + _BOX_HEIGHT + 13, _label(view, in_isr=in_isr), _SMALL)
    yield "</g>"


def _is_aborted(batch: Batch, behind: Sequence[Batch]) -> bool:
    """Whether a batch's transaction was aborted, by the marker of its producer in the same log."""
    if not batch.is_transactional or batch.marker is not None:
        return False
    return (
        next((marker.marker for marker in behind if marker.marker is not None and marker.producer_id == batch.producer_id), None)
        == "ABORT"
    )


def _label(view: View, *, in_isr: bool) -> str:
    """What a replica is, below its log."""
    said = [_NAMES.get(view.state, ""), f"epoch {view.leader_epoch}", "" if in_isr else "not in ISR"]
    return " · ".join(part for part in said if part)


def _ending(history: History, y: int, width: int) -> tuple[list[str], int]:
    """What consumers read at the end, what is missing, and the remarks."""
    columns = max(60, (width - 2 * _MARGIN) // 7)
    rows = []
    for sentence in [*at_the_end(history), *history.remarks]:
        for line in textwrap.wrap(sentence, columns):
            y += _LINE
            rows.append(_text(_MARGIN, y, line))
    return rows, y


def _legend(history: History, y: int, width: int, missing: frozenset[int]) -> tuple[list[str], int]:
    """What colours, lines and letters mean, in as many rows as it takes, and where the last of them begins."""
    rows: list[str] = []
    x = _MARGIN
    for swatch, label in _meanings(history, missing):
        needed = 34 + int(_SMALL_LETTER * len(label))
        if x > _MARGIN and x + needed > width - _MARGIN:
            x, y = _MARGIN, y + 22
        rows += [swatch.format(x=x, y=y, mark=x + 7, above=y - 2, below=y + 16, line=y + 11), _text(x + 19, y + 11, label, _SMALL)]
        x += needed
    return rows, y


def _meanings(history: History, missing: frozenset[int]) -> Iterator[tuple[str, str]]:
    """A drawing, its place left open, and what it means: of all that the picture has."""
    batches = list(_batches(history))
    box = f'<rect {_OUTLINE} x="{{x}}" y="{{y}}" width="14" height="14" fill="%s"%s/>'
    for epoch in sorted({batch.leader_epoch for batch in batches}):
        known = "" if history.cluster.has_leader_epochs else " (not in the log)"
        yield box % (COLOURS[epoch % len(COLOURS)], ""), f"epoch {epoch}{known}"
    yield f'<line {_MARK} x1="{{mark}}" x2="{{mark}}" y1="{{above}}" y2="{{below}}"/>', "high watermark as this broker knows it"
    if any(batch.is_transactional for batch in batches):
        yield box % ("#fff", _DASHED), "record of a transaction; C and A: its COMMIT or ABORT marker"
    record = f'<text x="{{mark}}" y="{{line}}" {_IN_BOX}%s>r</text>'
    logs = [view.batches for event in history.events for moment in event.partitions for view in moment.replicas]
    if any(_is_aborted(batch, log[number + 1 :]) for log in logs for number, batch in enumerate(log)):
        yield record % _ABORTED, "record of an aborted transaction"
    if missing & {record_id for batch in batches for record_id in batch.ids}:
        yield record % _MISSING, "acknowledged, and not to be read at the end"


def _text(x: int, y: int, text: str, attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}"{" " * bool(attributes)}{attributes}>{escape(text)}</text>'
