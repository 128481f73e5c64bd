"""Lanes: the replicas of a partition over its offsets, and what each election would cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.offset_ranges import counted
from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner import Candidate, FollowerPlan
from kafka_forensics.report.document import Broker, FindingRow, PartitionRow, ReplicaRow
from kafka_forensics.report.picture import LEFT, RIGHT, Picture, Scale, Text
from kafka_forensics.wording import offset_range

Range = tuple[int, int]
"""[start, end)."""

COLOURS: Final = 8
"""Of leader epochs; the ninth has the first one's again."""
_TOP: Final = 36.0
_LANE: Final = 22.0
_STEP: Final = 34.0
_CUT: Final = 14.0
_CUT_STEP: Final = 20.0
_EPOCHS_DRAWN: Final = 32
_OVERLAYS_DRAWN: Final = 24
_CUTS_DRAWN: Final = 12


@dataclass(frozen=True, slots=True)
class Cut:
    """What one replica would lose by one election."""

    leader: Broker
    follower: Broker
    truncation_offset: int
    log_end_offset: int
    lost: Sequence[Range]
    """What the new leader lacks or has differently."""
    kept: Sequence[Range]
    """What of that stays on its disk all the same, where no reader sees it."""


def lanes(row: PartitionRow, findings: Sequence[FindingRow], planned: Planned | None = None, *, titles: bool = True) -> Picture:
    """The picture of one partition; without `planned` no elections are drawn. `titles`: boxes say what they are."""
    return _Lanes(row, findings, planned, titles=titles).drawn()


def cuts(planned: Planned | None) -> list[Cut]:
    """What each election would cut, in the order of the candidates."""
    candidates: Sequence[Candidate] = () if planned is None else planned.plan.candidates
    return [
        Cut(candidate.broker, follower.broker, follower.truncation_offset, follower.log_end_offset, follower.lost, follower.kept)
        for candidate in candidates
        for follower in candidate.followers
        if follower.truncation_offset is not None and _costs(follower, follower.truncation_offset)
    ]


def _costs(follower: FollowerPlan, truncation_offset: int) -> bool:
    return bool(follower.lost) or truncation_offset < follower.log_end_offset


class _Lanes:
    """Draws one partition."""

    def __init__(self, row: PartitionRow, findings: Sequence[FindingRow], planned: Planned | None, *, titles: bool) -> None:
        self._row, self._findings, self._titles = row, findings, titles
        self._cuts = cuts(planned)
        epochs = sorted({epoch for replica in row.replicas for epoch, _ in replica.leader_epochs or ()})
        self._colour_of = {epoch: f"e{number % COLOURS}" for number, epoch in enumerate(epochs)}
        self.fork = row.agreement.common_end_offset if len(set(row.agreement.fork_epochs.values())) > 1 else None
        if self.fork is None and row.agreement.kind in ("conflict", "content"):
            starts = [
                finding.offset_start
                for finding in findings
                if finding.kind in kinds_with(Trait.PARTS_REPLICAS) and finding.offset_start is not None
            ]
            self.fork = min(starts, default=row.agreement.common_end_offset)
        self._scale = Scale(self._marks())

    def _marks(self) -> Iterator[int]:
        """Offsets that are to be told apart, the weightiest first."""
        row, replicas = self._row, self._row.replicas
        yield from (offset for replica in replicas for offset in (replica.log_start_offset, _end(replica)) if offset is not None)
        yield from (offset for offset in (self.fork, row.high_watermark_at_least) if offset is not None)
        for replica in replicas:
            for offset in (replica.high_watermark, replica.last_stable_offset):
                if offset is not None:
                    yield offset
        yield from (offset for cut in self._cuts for offset in (cut.truncation_offset, cut.log_end_offset))
        yield from (offset for replica in replicas for _, span in self._overlays(replica) for offset in span)
        yield from (start for replica in replicas for _, start in (replica.leader_epochs or ())[-_EPOCHS_DRAWN:])

    def drawn(self) -> Picture:
        """The whole of it."""
        row = self._row
        picture = Picture(self._label())
        y = _TOP
        for replica in row.replicas:
            self._replica(picture, replica, y)
            y += _STEP
        bottom = y - (_STEP - _LANE) + 8
        picture.axis(self._scale, bottom)
        for style, offset, text, level in (
            ("hw", row.high_watermark_at_least, "high watermark ≥ ", 26.0),
            ("fk", self.fork, "fork ", 12.0),
        ):
            if offset is not None:
                place = self._scale.place(offset)
                picture.upright(style, place, (level - 8, bottom))
                picture.label_at(f"{style}t", place, level, f"{text}{offset}")
        picture.height = bottom + 24
        self._elections(picture)
        self._notes(picture)
        return picture

    def _replica(self, picture: Picture, replica: ReplicaRow, y: float) -> None:
        picture.name(_called(replica.broker), y + 15)
        start, end = replica.log_start_offset, _end(replica)
        if start is None or end is None:
            picture.box("nr", (LEFT, RIGHT), y, _LANE)
            picture.inside("in", (LEFT, RIGHT), y + 15, "not read: where its log starts and ends is not known")
            return
        if end <= start:
            picture.box("nr", (self._scale.place(start), self._scale.place(start)), y, _LANE)
            picture.label_at("in", self._scale.place(start) + 4, y + 15, "empty")
            return
        for epoch, span in _epochs(replica, start, end):
            places = self._span(span)
            said = "no epoch" if epoch is None else f"epoch {epoch}"
            style = "en" if epoch is None else self._colour_of[epoch]
            picture.box(style, places, y, _LANE, self._title(f"{said}: offsets {offset_range(*span)}"))
            if not picture.inside("in", places, y + 15, said) and epoch is not None:
                picture.inside("in", places, y + 15, str(epoch))
        for style, span in list(self._overlays(replica))[:_OVERLAYS_DRAWN]:
            said = "missing" if style == "ms" else "damaged"
            picture.box(style, self._span(span), y, _LANE, self._title(f"{said}: offsets {offset_range(*span)}"))
        self._ends(picture, replica, y, end)

    def _ends(self, picture: Picture, replica: ReplicaRow, y: float, end: int) -> None:
        """Marks at a lane: where its log starts and ends, its own high watermark and last stable offset."""
        assert replica.log_start_offset is not None
        picture.upright("ls", self._scale.place(replica.log_start_offset), (y - 3, y + _LANE + 3))
        if replica.log_end_offset is None:
            picture.box("nr", (self._scale.place(end), RIGHT), y, _LANE, self._title(f"not read from offset {end} on"))
        if replica.high_watermark is not None:
            picture.upright("wm", self._scale.place(replica.high_watermark), (y - 4, y + 6))
        stable = replica.last_stable_offset
        if stable is not None and stable != (end if replica.high_watermark is None else replica.high_watermark):
            picture.upright("so", self._scale.place(stable), (y + _LANE - 6, y + _LANE + 4))

    def _elections(self, picture: Picture) -> None:
        """A row for each replica that an election would cut."""
        if not self._cuts:
            return
        y = picture.height + 14
        picture.texts.append(Text("hd", LEFT, y, "What each election would cut"))
        y += 10
        for cut in self._cuts[:_CUTS_DRAWN]:
            picture.name(f"elect {cut.leader}, broker {cut.follower}", y + 11)
            places = self._span((cut.truncation_offset, max(cut.log_end_offset, cut.truncation_offset)))
            if cut.log_end_offset > cut.truncation_offset:
                title = f"broker {cut.follower} cuts offsets {offset_range(cut.truncation_offset, cut.log_end_offset)}"
                picture.box("ct", places, y, _CUT, self._title(title))
            for lost in cut.lost:
                picture.box("lo", self._span(lost), y, _CUT, self._title(f"lost: offsets {offset_range(*lost)}"))
            picture.beside("ctt", places, y + 11, _said(cut))
            y += _CUT_STEP
        picture.height = y + 6

    def _notes(self, picture: Picture) -> None:
        """What the picture does not show as it is."""
        row = self._row
        if not self._scale.is_true:
            picture.notes.append("Distances between marks are not to scale: marks that stand close are drawn apart.")
        if row.high_watermark_at_least is None:
            picture.notes.append("The high watermark is not known: no file tells one.")
        unplaced = sum(
            _style(finding) is not None and (finding.offset_start is None or finding.offset_end is None)
            for finding in self._findings
        )
        left_out = sum(max(len(list(self._overlays(replica))) - _OVERLAYS_DRAWN, 0) for replica in row.replicas)
        if unplaced or left_out:
            picture.notes.append(
                f"{unplaced + left_out} damaged or missing places are not drawn: their offsets are not known, or they are too many."
            )
        if any(len(replica.leader_epochs or ()) > _EPOCHS_DRAWN for replica in row.replicas):
            picture.notes.append(f"Of each log the last {_EPOCHS_DRAWN} leader epochs are drawn.")
        if len(self._cuts) > _CUTS_DRAWN:
            picture.notes.append(f"{len(self._cuts) - _CUTS_DRAWN} further cuts are in the table of elections.")

    def _label(self) -> str:
        """What the picture shows, for who does not see it."""
        logs = []
        for replica in self._row.replicas:
            start, end = replica.log_start_offset, _end(replica)
            logs.append(
                f"{_called(replica.broker)} not read"
                if start is None or end is None
                else f"{_called(replica.broker)} offsets {start} to {end}"
            )
        fork = "" if self.fork is None else f"; they part at offset {self.fork}"
        least = self._row.high_watermark_at_least
        mark = "" if least is None else f"; high watermark at least {least}"
        return f"Replicas of {self._row.topic}-{self._row.partition} over offsets: {', '.join(logs[:12])}{fork}{mark}"

    def _overlays(self, replica: ReplicaRow) -> Iterator[tuple[str, Range]]:
        """What is missing or damaged in a replica, as far as offsets are known."""
        for finding in self._findings:
            style = _style(finding)
            own = finding.broker == replica.broker and finding.log_dir in (None, replica.log_dir)
            if style is not None and own and finding.offset_start is not None and finding.offset_end is not None:
                yield style, (finding.offset_start, max(finding.offset_end, finding.offset_start + 1))

    def _span(self, span: Range) -> tuple[float, float]:
        return self._scale.place(span[0]), self._scale.place(span[1])

    def _title(self, text: str) -> str:
        return text if self._titles else ""


def _style(finding: FindingRow) -> str | None:
    """How a finding is drawn on a lane; None: it is not."""
    if finding.kind in kinds_with(Trait.LACKS_OFFSETS, Trait.LACKS_LOG_START):
        return "ms"
    is_damage = finding.kind in kinds_with(Trait.WRONG_BYTES) and finding.severity != "info"
    return "dm" if is_damage else None


def _end(replica: ReplicaRow) -> int | None:
    """Its log end; of a log that was read in part, how far it was read."""
    return replica.read_end_offset if replica.log_end_offset is None else replica.log_end_offset


def _epochs(replica: ReplicaRow, start: int, end: int) -> list[tuple[int | None, Range]]:
    """The log in stretches of one leader epoch; None: before the first that is known, or of batches that have none."""
    entries = sorted((replica.leader_epochs or ())[-_EPOCHS_DRAWN:], key=lambda entry: entry[1])
    stretches: list[tuple[int | None, Range]] = []
    edges = [(None, start), *entries, (None, end)]
    for (epoch, low), (_, high) in pairwise(edges):
        span = max(low, start), min(high, end)
        if span[0] < span[1]:
            stretches.append((epoch, span))
    return stretches


def _called(broker: Broker) -> str:
    return f"broker {broker}"


def _said(cut: Cut) -> str:
    """What a cut costs, in words."""
    where = f"cut at {cut.truncation_offset}" if cut.truncation_offset < cut.log_end_offset else "not cut"
    kept = f", {_offsets(cut.kept)} still on its disk" if cut.kept else ""
    return f"{where}: {_offsets(cut.lost)} lost{kept}"


def _offsets(ranges: Sequence[Range]) -> str:
    return plural(counted(ranges), "offset")
