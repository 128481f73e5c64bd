"""Lanes: the replicas of a partition over offsets, and what happens to their records under each possible leader."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, counted, normalised, without
from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner import Candidate, Loss
from kafka_forensics.report.document import Broker, FindingRow, PartitionRow, ReplicaRow
from kafka_forensics.report.picture import LINE, Picture, Scale
from kafka_forensics.report.words import named, offset_list, offsets, plural

LEGEND: Final = {
    "kept": "kept: the present leader has these records",
    "lost": "lost: the present leader does not have these records, and no consumer reads them",
    "new": "replaced: at the offsets of lost records, the present leader has these",
    "open": "records that differ, and no file shows which of them stay",
    "remote": "kept in remote storage",
    "missing": "offsets without records",
    "damaged": "damaged bytes",
    "unread": "not read",
    "waits": "records that read_committed consumers do not get yet",
    "hw": "high watermark: at least here",
    "fork": "from here on, the replicas differ",
}
"""Style → what it means."""
LINES: Final = frozenset({"hw", "fork"})
ABOVE: Final = frozenset({"missing", "damaged"})
"""Styles of bars that lie on others."""
_OVERLAYS_DRAWN: Final = 24
_ELECTIONS_DRAWN: Final = 12
_BAR: Final = 22
"""Height of a bar and the space below it."""

Span = tuple[str, Range]
"""A style, and the offsets [start, end) that have it."""


def election_losses(planned: Planned, candidate: Candidate) -> Iterator[tuple[str, tuple[Broker, ...], Ranges]]:
    """What an election loses, for each set of holders: a label (`elect 3: broker 1 loses 210–335, 126 records`), the holders, and
    the offsets."""
    by_holders: defaultdict[tuple[Broker, ...], list[Loss]] = defaultdict(list)
    for loss in candidate.losses:
        by_holders[loss.held_by].append(loss)
    is_recommended = planned.recommends_one_leader and candidate.broker == planned.plan.recommended
    tags = [tag for tag in ("leads", "unclean") if tag == candidate.election] + ["recommended"] * is_recommended
    for holders, losses in by_holders.items():
        ranges = normalised((loss.start, loss.end) for loss in losses)
        records = planned.total(losses).records
        size = "" if all(loss.committed_end >= loss.end for loss in losses) else "at most "
        size += plural(counted(ranges), "offset") if records is None else plural(records, "record")
        size += ", still on disk" if all(loss.kept_by for loss in losses) else ""
        who = "no given copy has" if not holders else f"{named(holders)} lose{'s' * (len(holders) == 1)}"
        tag = f" ({', '.join(tags)})" if tags else ""
        yield f"elect {candidate.broker}: {who} {offset_list(ranges)}, {size}{tag}", holders, ranges


def fork_of(row: PartitionRow, findings: Sequence[FindingRow]) -> int | None:
    """The first offset at which replicas differ; None where they agree."""
    fork = row.agreement.common_end_offset
    if row.agreement.kind not in ("conflict", "content"):
        return None
    if len(set(row.agreement.fork_epochs.values())) > 1:
        return fork
    starts = (finding.offset_start for finding in findings if finding.kind in kinds_with(Trait.PARTS_REPLICAS))
    return min((start for start in starts if start is not None), default=fork)


def leader_of(planned: Planned) -> Candidate | None:
    """The present leader, or, without one, the only one that an ordinary start can elect."""
    ordinary = planned.plan.ordinary
    return planned.current_leader or (planned.candidate(ordinary[0]) if len(ordinary) == 1 else None)


def spans_of(row: PartitionRow, fork: int | None, planned: Planned | None) -> list[list[Span]]:
    """For each replica, its log in parts: what the present leader has, lacks, or has at the offsets of lost records."""
    lost: dict[Broker, Ranges] = {}
    styled: dict[str, dict[Broker, Ranges]] = {"lost": lost, "new": {}, "open": {}}
    leader = None if planned is None else leader_of(planned)
    epochs = row.agreement.fork_epochs
    if leader is not None:
        for replica in row.replicas:
            ranges = ((loss.start, loss.end) for loss in leader.losses if replica.broker in loss.held_by)
            lost[replica.broker] = normalised(ranges)
        for broker, lost_here in lost.items():
            elsewhere = normalised(span for other, of_other in lost.items() if other != broker for span in of_other)
            styled["new"][broker] = without(elsewhere, lost_here)
    elif fork is not None:
        ends = {replica.broker: _end(replica) or fork for replica in row.replicas}
        latest = max(epochs.values(), default=None)
        older = [broker for broker in ends if epochs.get(str(broker), latest) != latest]
        for broker, end in ends.items():
            style = "open" if not older or str(broker) not in epochs else "lost" if broker in older else "new"
            reach = min(end, max(ends[other] for other in older)) if style == "new" else end
            styled[style][broker] = normalised([(fork, reach)])
    return [list(_spans(replica, styled)) for replica in row.replicas]


def _spans(replica: ReplicaRow, styled: dict[str, dict[Broker, Ranges]]) -> Iterator[Span]:
    start, end = replica.log_start_offset, _end(replica)
    if start is None or end is None:
        return
    others = [(style, span) for style, ranges in styled.items() for span in clipped(ranges.get(replica.broker, ()), start, end)]
    local_start = replica.local_log_start_offset
    others += [] if local_start is None or local_start <= start else [("remote", (start, min(local_start, end)))]
    kept = without(((start, end),) if start < end else (), normalised(span for _, span in others))
    yield from sorted([*(("kept", span) for span in kept), *others], key=lambda item: item[1])


def lanes(
    row: PartitionRow, findings: Sequence[FindingRow], planned: Planned | None = None, lost_everywhere: Ranges = ()
) -> Picture:
    """The picture of one partition, with elections if `planned` is given; no copy holds the lost offsets `lost_everywhere`."""
    return _LanesPicture(row, findings, planned, lost_everywhere).drawn()


class _LanesPicture:
    """Draws one partition."""

    def __init__(self, row: PartitionRow, findings: Sequence[FindingRow], planned: Planned | None, lost_everywhere: Ranges) -> None:
        self._row, self._findings, self._planned, self._lost_everywhere = row, findings, planned, lost_everywhere
        self._fork = fork_of(row, findings)
        self._spans = spans_of(row, self._fork, planned)
        self._elections = [] if planned is None else [(c, list(election_losses(planned, c))) for c in planned.plan.candidates]
        self._scale = Scale(offset for offset in self._marks() if offset is not None)
        self._picture = Picture(self._label())

    def _marks(self) -> Iterator[int | None]:
        """Offsets that should stay distinguishable, the most important first."""
        replicas = self._row.replicas
        for replica in replicas:
            yield from (replica.log_start_offset, _end(replica))
        yield from (self._fork, self._row.high_watermark_at_least)
        yield from (offset for span in self._lost_everywhere for offset in span)
        yield from (offset for spans in self._spans for _, span in spans for offset in span)
        yield from (offset for _, losses in self._elections for *_, ranges in losses for span in ranges for offset in span)
        for replica in replicas:
            yield replica.last_stable_offset
            yield from (offset for _, span in self._overlays(replica) for offset in span)

    def drawn(self) -> Picture:
        """The lanes with the fork and the high watermark, then the elections."""
        row, picture, scale = self._row, self._picture, self._scale
        marks = [("hw", row.high_watermark_at_least, "high watermark ≥ "), ("fork", self._fork, "replicas differ from ")]
        places = [(style, scale.place(offset), f"{text}{offset:,}") for style, offset, text in marks if offset is not None]
        tops = []
        for style, place, text in places:
            tops.append(picture.height)
            picture.height += LINE
            picture.label_at(f"{style}t", place, picture.height - 4, text)
        for replica, spans in zip(row.replicas, self._spans, strict=True):
            self._draw_replica(replica, spans)
        if self._lost_everywhere:
            self._draw(
                "nm", f"no copy holds {offset_list(self._lost_everywhere)}", [("lost", span) for span in self._lost_everywhere]
            )
        for (style, place, _), top in zip(places, tops, strict=True):
            picture.tick(style, place, (top, picture.height if place else top + LINE))
        picture.axis((place, f"{offset:,}") for place, offset in scale.ticks())
        self._draw_elections()
        self._add_notes()
        return picture

    def _draw(self, style: str, text: str, spans: Iterable[Span]) -> int:
        """A line of text, and a bar below it; returns the place of the bar."""
        picture = self._picture
        picture.write(style, text)
        y = picture.height + _BAR // 2 - 2
        picture.height += _BAR
        for kind, span in spans:
            picture.bar(kind, self._scale.span(span), y)
        return y

    def _draw_replica(self, replica: ReplicaRow, spans: list[Span]) -> None:
        overlays, end = self._overlays(replica), _end(replica)
        y = self._draw("nm", self._sentence(replica, overlays), [*spans, *overlays[:_OVERLAYS_DRAWN]])
        if replica.log_start_offset is None or replica.log_end_offset is None:
            self._picture.bar("unread", (0 if end is None else self._scale.place(end), 100), y)
        if (waiting := waiting_range(replica)) is not None:
            self._picture.bar("waits", self._scale.span(waiting), y + 9)

    def _sentence(self, replica: ReplicaRow, overlays: list[Span]) -> str:
        """A replica in words: `broker 1, leader: offsets 0–344`."""
        start, end = replica.log_start_offset, _end(replica)
        name = f"{named([replica.broker])}{', leader' if replica.broker == self._row.leader else ''}"
        if start is None or end is None:
            return f"{name}: not read"
        facts = [f"offsets {offsets((start, end))}" if start < end else f"no records, ends at {end:,}"]
        facts += [f"not read from {end:,} on"] if replica.log_end_offset is None else []
        if replica.high_watermark is not None and replica.high_watermark != end:
            facts.append(f"high watermark {replica.high_watermark:,}")
        for style in ("missing", "damaged"):
            ranges = normalised(span for kind, span in overlays if kind == style)
            facts += [f"{style} {offset_list(ranges)}"] if ranges else []
        if (waiting := waiting_range(replica)) is not None:
            facts.append(f"read_committed consumers wait at {waiting[0]:,}")
        return f"{name}: {', '.join(facts)}"

    def _draw_elections(self) -> None:
        """A bar for each loss of each election: the log of its holder, and what of it is lost."""
        picture, drawn = self._picture, 0
        logs = {replica.broker: (replica.log_start_offset or 0, _end(replica) or 0) for replica in self._row.replicas}
        if self._elections:
            picture.height += 6
            picture.write("hd", "What each election loses")
        for candidate, losses in self._elections:
            if not losses:
                picture.write("el", f"elect {candidate.broker}: loses nothing")
            for label, holders, ranges in losses[: max(_ELECTIONS_DRAWN - drawn, 0)]:
                drawn += 1
                log = normalised([logs.get(broker, (0, 0)) for broker in holders[:1]])
                spans = [("kept", span) for span in without(log, ranges)]
                self._draw("el", label, [*spans, *(("lost", span) for span in ranges)])
        if left_out := sum(len(losses) for _, losses in self._elections) - drawn:
            picture.notes.append(f"{plural(left_out, 'further loss')} by elections: `kafka-forensics plan` lists them.")

    def _add_notes(self) -> None:
        """What the picture does not show, or not to scale."""
        notes, planned = self._picture.notes, self._planned
        if not self._scale.is_true:
            notes.append("Distances are not to scale: close marks are drawn with a distance.")
        if self._row.high_watermark_at_least is None:
            notes.append("No file holds a high watermark.")
        drawable = [finding for finding in self._findings if _style(finding) is not None]
        left_out = sum(finding.offset_start is None or finding.offset_end is None for finding in drawable)
        left_out += sum(max(len(self._overlays(replica)) - _OVERLAYS_DRAWN, 0) for replica in self._row.replicas)
        if left_out:
            notes.append(f"Not drawn: {plural(left_out, 'damaged or missing range')} with unknown offsets, or too many to draw.")
        if planned is not None and planned.salvage is not None:
            notes.append("A salvage loses less than every election.")
        if planned is not None and not planned.plan.candidates:
            notes.append("No replica can lead with these copies.")
        if planned is not None and not planned.plan.at_most_is_bound:
            notes.append("More may be lost: further replicas may exist.")

    def _label(self) -> str:
        """A description of the picture for screen readers."""
        logs = [self._sentence(replica, self._overlays(replica)) for replica in self._row.replicas[:12]]
        fork = "" if self._fork is None else f"; they differ from offset {self._fork:,} on"
        least = self._row.high_watermark_at_least
        mark = "" if least is None else f"; high watermark at least {least:,}"
        return f"Replicas of {self._row.topic}-{self._row.partition} over offsets: {'; '.join(logs)}{fork}{mark}"

    def _overlays(self, replica: ReplicaRow) -> list[Span]:
        """Missing and damaged ranges of a replica, where their offsets are known."""
        return [
            (style, (finding.offset_start, max(finding.offset_end, finding.offset_start + 1)))
            for finding in self._findings
            if (style := _style(finding)) is not None
            and finding.broker == replica.broker
            and finding.log_dir in (None, replica.log_dir)
            and finding.offset_start is not None
            and finding.offset_end is not None
        ]


def _style(finding: FindingRow) -> str | None:
    """The style of a finding on a lane; None if it is not drawn."""
    if finding.kind in kinds_with(Trait.LACKS_OFFSETS, Trait.LACKS_LOG_START):
        return "missing"
    is_damage = finding.kind in kinds_with(Trait.WRONG_BYTES) and finding.severity != "info"
    return "damaged" if is_damage else None


def _end(replica: ReplicaRow) -> int | None:
    """The log end offset, or the end of the part that was read."""
    return replica.read_end_offset if replica.log_end_offset is None else replica.log_end_offset


def waiting_range(replica: ReplicaRow) -> Range | None:
    """Offsets from the last stable offset to the high watermark, or to the log end; None if there are none, or not known."""
    stable, end = replica.last_stable_offset, _end(replica)
    if stable is None or end is None:
        return None
    end = end if replica.high_watermark is None else min(end, replica.high_watermark)
    return (stable, end) if stable < end else None
