"""The timeline of a cluster, to scale: elections, changes of ISRs, brokers that are down, times of committed and lost records."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from kafka_forensics.evidence.inputs import broker_order
from kafka_forensics.model.json_objects import rfc3339
from kafka_forensics.questions.cluster_history import ClusterHistory, Moment
from kafka_forensics.questions.report import PageFacts
from kafka_forensics.report.lanes import leader_of
from kafka_forensics.report.picture import LINE, Label, Picture
from kafka_forensics.report.words import moment, named, plural, shown

LEGEND: Final = {
    "sync": "runs, and is in the ISR of all its partitions",
    "out": "runs, and is outside the ISR of some of its partitions",
    "down": "down: the controllers fenced it",
    "unclean": "unclean election",
    "change": "another change, with its number in the list",
    "newest": "newest record below the high watermark of this copy",
    "lost": "records that the present leaders do not have",
}
LINES: Final = frozenset({"unclean", "change"})
_BROKERS_DRAWN: Final = 24
_MOMENTS: Final = 24
"""Moments that are marked and listed; closer ones are one moment."""
_CLOSE: Final = 1 / 500
"""Part of the picture in which changes are one moment."""
_STILL: Final = 4
"""A pause that is longer than so many times the whole picture ends it."""
_MIN_MS: Final = 600_000
_STEPS: Final = tuple(1000 * seconds for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200))
_DAY: Final = 86_400_000
_TICKS: Final = 4


class Timeline(Struct, frozen=True):
    """The picture, and the moments in words: (time, sentences, whether an election was unclean)."""

    picture: Picture
    moments: list[tuple[str, str, bool]]


def timeline(facts: PageFacts, incident_ms: int | None) -> Timeline | None:
    """The timeline around an incident, or up to the end of the controllers' log; None without changes in such a log."""
    history = facts.history
    changes = [] if history is None else [change for change in history.moments if change.changes]
    if history is None or not changes:
        return None
    first, last = _window(changes, history.end_ms if incident_ms is None else incident_ms)
    start, end = changes[first].time_ms, changes[last].time_ms
    margin = max((end - start) // 20, 1000)
    start, end = start - margin, end + margin
    moments = _joined(changes[first : last + 1], (end - start) * _CLOSE)
    picture = _picture(facts, history, moments, (start, end))
    for count, where in ((first, "earlier"), (len(changes) - last - 1, "later")):
        if count:
            picture.notes.append(f"{plural(count, f'{where} change')} of the cluster not drawn.")
    listed = [(moment(change.time_ms), " ".join(_sentences(change)), bool(change.unclean)) for change in moments]
    return Timeline(picture, listed)


def _window(changes: Sequence[Moment], focus_ms: int) -> tuple[int, int]:
    """The first and the last change that belong together with the one nearest to the incident: no long pause is between them."""
    times = [change.time_ms for change in changes]
    first = last = min(range(len(times)), key=lambda number: abs(times[number] - focus_ms))
    grows = True
    while grows:
        reach = _STILL * max(times[last] - times[first], _MIN_MS)
        grows = False
        if first and times[first] - times[first - 1] <= reach:
            first, grows = first - 1, True
        if last + 1 < len(times) and times[last + 1] - times[last] <= reach:
            last, grows = last + 1, True
    return first, last


def _joined(changes: Sequence[Moment], width_ms: float) -> list[Moment]:
    """The changes, those within `width_ms` as one; within more, where they are too many to mark."""
    joined: list[Moment] = []
    for change in changes:
        if not joined or change.time_ms - joined[-1].time_ms > width_ms:
            joined.append(Moment(change.time_ms))
        joined[-1].add(change)
    return joined if len(joined) <= _MOMENTS else _joined(changes, width_ms * 2)


def _picture(facts: PageFacts, history: ClusterHistory, moments: Sequence[Moment], window: tuple[int, int]) -> Picture:
    start, end = window

    def place(time_ms: int) -> float:
        return 100 * (min(max(time_ms, start), end) - start) / (end - start)

    unclean = sum(len(partitions) for change in moments for partitions in change.unclean.values())
    picture = Picture(
        f"Cluster from {moment(start)} to {moment(end)}: {plural(len(moments), 'moment')} with changes, which the list"
        f" below has in words, and {plural(unclean, 'unclean election')}"
    )
    rows: list[float] = []
    marks = []
    for number, change in enumerate(moments, 1):
        x = place(change.time_ms)
        row = next((row for row, reached in enumerate(rows) if x - reached >= 7), len(rows))
        rows[row : row + 1] = [x]
        marks.append(("unclean" if change.unclean else "change", x, row, str(number)))
    picture.height = LINE * len(rows)
    for style, x, row, text in marks:
        picture.label_at(f"{style}t", x, (row + 1) * LINE - 4, text)
    states = _states(history, window)
    for broker in sorted({*states, *facts.committed_ms}, key=broker_order)[:_BROKERS_DRAWN]:
        picture.write("nm", named([broker]))
        y = picture.height + 8
        for style, from_ms, to_ms in states.get(broker, []):
            picture.bar(style, (place(from_ms), place(to_ms)), y)
        committed = facts.committed_ms.get(broker)
        if committed is not None and start <= committed <= end:
            picture.shapes["newest"].append(Label(place(committed), y + 5, "◆", "middle"))
        picture.height += 22
    lost = _lost_times(facts)
    if lost is not None and lost[0] <= end and lost[1] >= start:
        picture.write("nm", f"lost records, written {moment(lost[0])} to {moment(lost[1])}")
        picture.bar("lost", (place(lost[0]), place(lost[1])), picture.height + 8)
        picture.height += 22
    for style, x, row, _ in marks:
        picture.tick(style, x, (row * LINE, picture.height))
    picture.axis((place(time_ms), text) for time_ms, text in _ticks(start, end))
    return picture


def _states(history: ClusterHistory, window: tuple[int, int]) -> dict[int | str, list[tuple[str, int, int]]]:
    """The states of each broker as (style, first time, last time), within the window."""
    start, end = window[0], min(window[1], history.end_ms)
    fenced: dict[int, bool] = {}
    out: Counter[int] = Counter()
    changes: dict[int | str, list[tuple[int, str]]] = {}
    for change in history.moments:
        if change.time_ms > end:
            break
        fenced |= dict.fromkeys(change.fenced, True) | dict.fromkeys(change.unfenced, False)
        out.update(change.out_of_sync)
        for broker in {*change.fenced, *change.unfenced, *change.out_of_sync}:
            style = "down" if fenced.get(broker) else "out" if out[broker] else "sync"
            known = changes.setdefault(broker, [])
            if not known or known[-1][1] != style:
                known.append((max(change.time_ms, start), style))
    return {
        broker: [(style, low, high) for (low, style), (high, _) in pairwise([*known, (end, "")]) if low < high]
        for broker, known in changes.items()
    }


def _lost_times(facts: PageFacts) -> tuple[int, int] | None:
    """The oldest and the newest time of records that present leaders do not have; None if there are none, or no times."""
    leaders = ((planned, leader_of(planned)) for planned in facts.planned.values())
    sizes = [planned.amount(loss) for planned, leader in leaders if leader is not None for loss in leader.losses]
    times = [time for size in sizes for time in (size.oldest_ms, size.newest_ms) if time is not None]
    return (min(times), max(times)) if times else None


def _ticks(start: int, end: int) -> list[tuple[int, str]]:
    """(time, text) of round times."""
    step = next((step for step in _STEPS if (end - start) / step <= _TICKS), None)
    if step is None:
        step = -(-(end - start) // (_TICKS * _DAY)) * _DAY
    times = range(-(-start // step) * step, end + 1, step)
    return [(time, _clock(time, step)) for time in times]


def _clock(time_ms: int, step_ms: int) -> str:
    """`03:56:10`, or `11-21` where a tick is a day."""
    text = rfc3339(time_ms) or ""
    return text[5:10] if step_ms >= _DAY else text[11:19] if step_ms < 60_000 else text[11:16]


def _sentences(change: Moment) -> Iterator[str]:
    """A moment in words, the gravest first."""
    for broker, partitions in sorted(change.unclean.items()):
        name = shown(f"{partitions[0][0]}-{partitions[0][1]}", 80)
        what = name if len(partitions) == 1 else plural(len(partitions), "partition")
        yield f"Unclean election: broker {broker}, from outside the ISR, becomes leader of {what}."
    if change.leaderless:
        yield f"{plural(change.leaderless, 'partition')} {'has' if change.leaderless == 1 else 'have'} no leader."
    if change.fenced:
        yield _sentence(change.fenced, "is down", "are down")
    if change.unfenced:
        yield _sentence(change.unfenced, "is up", "are up")
    for counters, singular, verb in (
        (change.elected, "becomes leader of", "become leaders of"),
        (change.left_isr, "leaves the ISR of", "leave the ISR of"),
        (change.joined_isr, "joins the ISR of", "join the ISR of"),
    ):
        for count in sorted(set(counters.values()), reverse=True):
            what = plural(count, "partition") + (" each" if len(counters) > 1 else "")
            brokers = {broker for broker in counters if counters[broker] == count}
            yield _sentence(brokers, f"{singular} {what.removesuffix(' each')}", f"{verb} {what}")


def _sentence(brokers: set[int], singular: str, plural_verb: str) -> str:
    return f"{named(sorted(brokers)).capitalize()} {singular if len(brokers) == 1 else plural_verb}."
