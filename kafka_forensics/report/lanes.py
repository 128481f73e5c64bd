"""Lanes: pictures of a partition's replicas over offsets, and of what each election would cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.offset_ranges import counted
from kafka_forensics.questions.plan import Planned
from kafka_forensics.report.document import Broker, FindingRow, PartitionRow, ReplicaRow
from kafka_forensics.report.picture import LEFT, RIGHT, Label, Picture, Scale
from kafka_forensics.wording import offset_range

Range = tuple[int, int]
"""[start, end)."""

COLOURS: Final = 8
"""Colours of leader epochs; the ninth epoch has the first colour again."""
_TOP: Final = 36.0
_LANE: Final = 22.0
_STEP: Final = 34.0
_CUT: Final = 14.0
_CUT_STEP: Final = 20.0
_EPOCHS_DRAWN: Final = 32
_OVERLAYS_DRAWN: Final = 24
_CUTS_DRAWN: Final = 12


@dataclass(frozen=True, slots=True)
class ElectionCut:
    """What one replica would lose by one election."""

    leader: Broker
    follower: Broker
    truncation_offset: int
    log_end_offset: int
    lost: Sequence[Range]
    """Offsets where the new leader has no record or another one."""
    kept: Sequence[Range]
    """Those of `lost` that stay on the replica's disk, where no consumer reads them."""


def lanes(row: PartitionRow, findings: Sequence[FindingRow], planned: Planned | None = None, *, titles: bool = True) -> Picture:
    """The picture of one partition, with elections if `planned` is given; boxes have tooltips if `titles`."""
    return _LanesPicture(row, findings, planned, titles=titles).drawn()


def cuts(planned: Planned | None) -> list[ElectionCut]:
    """What each election would cut, in the order of the candidates."""
    found = []
    for candidate in () if planned is None else planned.plan.candidates:
        for follower in candidate.followers:
            offset, end = follower.truncation_offset, follower.log_end_offset
            if offset is not None and (follower.lost or offset < end):
                found.append(ElectionCut(candidate.broker, follower.broker, offset, end, follower.lost, follower.kept))
    return found


class _LanesPicture:
    """Draws one partition."""

    def __init__(self, row: PartitionRow, findings: Sequence[FindingRow], planned: Planned | None, *, titles: bool) -> None:
        self._row, self._findings, self._titles = row, findings, titles
        self._cuts = cuts(planned)
        epochs = sorted({epoch for replica in row.replicas for epoch, _ in replica.leader_epochs or ()})
        self._colour_of = {epoch: f"e{number % COLOURS}" for number, epoch in enumerate(epochs)}
        self._fork = row.agreement.common_end_offset if len(set(row.agreement.fork_epochs.values())) > 1 else None
        if self._fork is None and row.agreement.kind in ("conflict", "content"):
            starts = (finding.offset_start for finding in findings if finding.kind in kinds_with(Trait.PARTS_REPLICAS))
            self._fork = min((start for start in starts if start is not None), default=row.agreement.common_end_offset)
        self._scale = Scale(offset for offset in self._marks() if offset is not None)
        self._picture = Picture(self._label())

    def _marks(self) -> Iterator[int | None]:
        """Offsets that should stay distinguishable, the most important first."""
        replicas = self._row.replicas
        for replica in replicas:
            yield from (replica.log_start_offset, _end(replica))
        yield from (self._fork, self._row.high_watermark_at_least)
        for replica in replicas:
            yield from (replica.high_watermark, replica.last_stable_offset)
        yield from (offset for cut in self._cuts for offset in (cut.truncation_offset, cut.log_end_offset))
        yield from (offset for replica in replicas for _, span in self._overlays(replica) for offset in span)
        yield from (start for replica in replicas for _, start in (replica.leader_epochs or ())[-_EPOCHS_DRAWN:])

    def drawn(self) -> Picture:
        """The lanes with the fork and the high watermark, then the cuts of elections."""
        row, picture = self._row, self._picture
        y = _TOP
        for replica in row.replicas:
            self._draw_replica(replica, y)
            y += _STEP
        bottom = y - (_STEP - _LANE) + 8
        picture.axis(self._scale, bottom)
        for style, offset, text, level in (
            ("hw", row.high_watermark_at_least, "high watermark ≥ ", 26.0),
            ("fk", self._fork, "fork ", 12.0),
        ):
            if offset is not None:
                place = self._scale.place(offset)
                picture.upright(style, place, (level - 8, bottom))
                picture.label_at(f"{style}t", place, level, f"{text}{offset}")
        picture.height = bottom + 24
        self._draw_elections()
        self._add_notes()
        return picture

    def _draw_replica(self, replica: ReplicaRow, y: float) -> None:
        picture = self._picture
        picture.name(f"broker {replica.broker}", y + 15)
        start, end = replica.log_start_offset, _end(replica)
        if start is None or end is None:
            picture.box("nr", (LEFT, RIGHT), y, _LANE)
            picture.inside("in", (LEFT, RIGHT), y + 15, "not read: where its log starts and ends is not known")
            return
        if end <= start:
            picture.box("nr", self._scale.span((start, start)), y, _LANE)
            picture.label_at("in", self._scale.place(start) + 4, y + 15, "empty")
            return
        for epoch, span in _epoch_ranges(replica, start, end):
            text = "no epoch" if epoch is None else f"epoch {epoch}"
            self._box("en" if epoch is None else self._colour_of[epoch], span, y, f"{text}: offsets {offset_range(*span)}")
            places = self._scale.span(span)
            if not picture.inside("in", places, y + 15, text) and epoch is not None:
                picture.inside("in", places, y + 15, str(epoch))
        for style, span in list(self._overlays(replica))[:_OVERLAYS_DRAWN]:
            self._box(style, span, y, f"{'missing' if style == 'ms' else 'damaged'}: offsets {offset_range(*span)}")
        picture.upright("ls", self._scale.place(start), (y - 3, y + _LANE + 3))
        if replica.log_end_offset is None:
            title = f"not read from offset {end} on" if self._titles else ""
            picture.box("nr", (self._scale.place(end), RIGHT), y, _LANE, title)
        if replica.high_watermark is not None:
            picture.upright("wm", self._scale.place(replica.high_watermark), (y - 4, y + 6))
        stable = replica.last_stable_offset
        if stable is not None and stable != (end if replica.high_watermark is None else replica.high_watermark):
            picture.upright("so", self._scale.place(stable), (y + _LANE - 6, y + _LANE + 4))

    def _draw_elections(self) -> None:
        """A row for each replica that an election would cut."""
        picture = self._picture
        if not self._cuts:
            return
        y = picture.height + 14
        picture.texts.append(Label("hd", LEFT, y, "What each election would cut"))
        y += 10
        for cut in self._cuts[:_CUTS_DRAWN]:
            picture.name(f"elect {cut.leader}, broker {cut.follower}", y + 11)
            span = cut.truncation_offset, max(cut.log_end_offset, cut.truncation_offset)
            if cut.log_end_offset > cut.truncation_offset:
                self._box("ct", span, y, f"broker {cut.follower} cuts offsets {offset_range(*span)}", _CUT)
            for lost in cut.lost:
                self._box("lo", lost, y, f"lost: offsets {offset_range(*lost)}", _CUT)
            where = f"cut at {cut.truncation_offset}" if cut.truncation_offset < cut.log_end_offset else "not cut"
            kept = f", {plural(counted(cut.kept), 'offset')} still on its disk" if cut.kept else ""
            picture.beside("ctt", self._scale.span(span), y + 11, f"{where}: {plural(counted(cut.lost), 'offset')} lost{kept}")
            y += _CUT_STEP
        picture.height = y + 6

    def _add_notes(self) -> None:
        """What the picture does not show, or not to scale."""
        row, notes = self._row, self._picture.notes
        self._picture.note_scale(self._scale)
        if row.high_watermark_at_least is None:
            notes.append("The high watermark is not known: no file tells one.")
        drawable = [finding for finding in self._findings if _style(finding) is not None]
        left_out = sum(finding.offset_start is None or finding.offset_end is None for finding in drawable)
        left_out += sum(max(len(list(self._overlays(replica))) - _OVERLAYS_DRAWN, 0) for replica in row.replicas)
        if left_out:
            why = "their offsets are not known, or they are too many"
            notes.append(f"{left_out} damaged or missing places are not drawn: {why}.")
        if any(len(replica.leader_epochs or ()) > _EPOCHS_DRAWN for replica in row.replicas):
            notes.append(f"Of each log the last {_EPOCHS_DRAWN} leader epochs are drawn.")
        if len(self._cuts) > _CUTS_DRAWN:
            notes.append(f"{len(self._cuts) - _CUTS_DRAWN} further cuts are in the table of elections.")

    def _label(self) -> str:
        """A description of the picture for screen readers."""
        logs = []
        for replica in self._row.replicas:
            start, end = replica.log_start_offset, _end(replica)
            logs.append(
                f"broker {replica.broker} " + ("not read" if start is None or end is None else offset_range(start, end, "offset"))
            )
        fork = "" if self._fork is None else f"; they part at offset {self._fork}"
        least = self._row.high_watermark_at_least
        mark = "" if least is None else f"; high watermark at least {least}"
        return f"Replicas of {self._row.topic}-{self._row.partition} over offsets: {', '.join(logs[:12])}{fork}{mark}"

    def _overlays(self, replica: ReplicaRow) -> Iterator[tuple[str, Range]]:
        """(style, offsets) of missing and damaged ranges of a replica, where their offsets are known."""
        for finding in self._findings:
            style = _style(finding)
            is_of_replica = finding.broker == replica.broker and finding.log_dir in (None, replica.log_dir)
            if style is not None and is_of_replica and finding.offset_start is not None and finding.offset_end is not None:
                yield style, (finding.offset_start, max(finding.offset_end, finding.offset_start + 1))

    def _box(self, style: str, span: Range, y: float, title: str, height: float = _LANE) -> None:
        self._picture.box(style, self._scale.span(span), y, height, title if self._titles else "")


def _style(finding: FindingRow) -> str | None:
    """The style of a finding on a lane; None if it is not drawn."""
    if finding.kind in kinds_with(Trait.LACKS_OFFSETS, Trait.LACKS_LOG_START):
        return "ms"
    is_damage = finding.kind in kinds_with(Trait.WRONG_BYTES) and finding.severity != "info"
    return "dm" if is_damage else None


def _end(replica: ReplicaRow) -> int | None:
    """The log end offset, or the end of the part that was read."""
    return replica.read_end_offset if replica.log_end_offset is None else replica.log_end_offset


def _epoch_ranges(replica: ReplicaRow, start: int, end: int) -> list[tuple[int | None, Range]]:
    """(leader epoch, offsets) within the log; None before the first known epoch, and for batches without one."""
    entries = sorted((replica.leader_epochs or ())[-_EPOCHS_DRAWN:], key=lambda entry: entry[1])
    edges = [(None, start), *entries, (None, end)]
    ranges = [(epoch, (max(low, start), min(high, end))) for (epoch, low), (_, high) in pairwise(edges)]
    return [(epoch, span) for epoch, span in ranges if span[0] < span[1]]
