"""What each partition's salvaged log is made of: which copy is the base, what others give, which bytes; or why it is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, starmap
from operator import attrgetter
from typing import Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import lacks_remote_epochs
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.constants import INTERNAL_TOPICS
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.model.results import Read
from kafka_forensics.questions.plan import Planned, SalvageForecast
from kafka_forensics.questions.salvage.lineage import Copy, LeftBehind, committed_end, trace
from kafka_forensics.questions.salvage.manifest import Refused, RefusedError
from kafka_forensics.questions.salvage.slices import Choice, Source, slices_of
from kafka_forensics.questions.salvage.whole_copies import SAY_WHOSE, WholeCopies
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.planner import NO_END, Candidate, PlanReplica, losses_without
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader

ROUNDS: Final = 4
"""How often a lineage is traced again without offsets that turn out not to be there."""


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """What a salvage is asked for beyond what a scan is."""

    prefer_broker: str | None = None
    """Whose records stay in partitions that are refused otherwise, and whose copy of a compacted one is taken first."""
    allow_gaps: bool = False
    """Whether partitions are written of which no copy has some offsets."""

    @property
    def words(self) -> tuple[str, ...]:
        """As a command line has them."""
        prefer = () if self.prefer_broker is None else ("--prefer-broker", self.prefer_broker)
        return (*prefer, *(("--allow-gaps",) if self.allow_gaps else ()))


class Chooser:
    """Chooses for one partition after the other, as the user wants it."""

    def __init__(self, options: SalvageOptions) -> None:
        self._options = options

    def choose(self, sources: list[Source], planned: Planned, result: PartitionResult, reader: LogReader) -> Choice:
        """What to make a partition's log of. Raises RefusedError; SourceError where a copy cannot be read any more."""
        context = sources[0].plan.context
        if any(missing.kind == "topic_undecided" for missing in planned.plan.missing):
            reason = "copies are of several topics of this name, and nothing says which is the present one"
            hint = "give only copies with one topic id (partition.metadata)"
            raise RefusedError(Refused(context.topic, context.partition, "topic_undecided", reason, hint))
        if context.topic in INTERNAL_TOPICS or any(source.plan.context.compacted for source in sources):
            copies = WholeCopies(sources, planned, result.findings, reader)
            return copies.take(self._options.prefer_broker, allow_gaps=self._options.allow_gaps)
        prefer = self._options.prefer_broker
        try:
            return self._of_lineage(sources, planned)
        except RefusedError:
            if prefer not in [str(source.plan.context.broker) for source in sources]:
                raise
            return self._of_lineage(sources, planned, prefer)

    def _of_lineage(self, sources: list[Source], planned: Planned, prefer: str | None = None, rounds: int = ROUNDS) -> Choice:
        """Of an ordinary topic: the lineage of the copy that its plan recommends, or of the one to `prefer`, from all copies.

        Where the bytes of a copy are not what was folded, it is traced again without them, up to `rounds` times.
        """
        copies = [_copy(source, given) for source, given in zip(sources, planned.given.replicas, strict=False)]
        copies = _without_planted(copies, sources, planned.given.differing)
        context = sources[0].plan.context
        by_name = {str(copy.broker): number for number, copy in enumerate(copies)}
        if prefer is not None:
            base, chosen_by = by_name[prefer], "prefer-broker"
        elif str(planned.plan.recommended) in by_name:
            base, chosen_by = by_name[str(planned.plan.recommended)], "plan"
        else:
            base, chosen_by = max(range(len(copies)), key=lambda number: _length(copies[number])), "longest"
        lineage = trace(copies, planned.given.differing, base, preferred=prefer is not None)
        if planned.plan.contested_by is not None and prefer is None and lineage.left_behind:
            reason = "which of its copies holds what was committed is not known: one has no high watermark"
            raise RefusedError(Refused(context.topic, context.partition, "rivals", reason, SAY_WHOSE))
        if lineage.rivals:
            brokers = tuple(dict.fromkeys(rival.broker for rival in lineage.rivals))
            ours = tuple(dict.fromkeys(rival.rival_of for rival in lineage.rivals if rival.rival_of is not None))
            spans = normalised((rival.start, rival.end) for rival in lineage.rivals)
            reason = (
                f"from offset {spans[0][0]} on other records were committed on broker {listed(map(str, brokers))}"
                f" than on broker {listed(map(str, ours))}"
            )
            raise RefusedError(Refused(context.topic, context.partition, "rivals", reason, SAY_WHOSE, spans, (*ours, *brokers)))
        if lineage.log_start_offset > 0 or any(source.replica.is_tiered for source in sources):
            remote = _left_in_remote_storage(sources, lineage.base, planned)
            _check_remote(sources, lineage.base, remote, prefer=prefer is not None)
            base_context = sources[lineage.base].plan.context
            leading = planned.candidate(base_context.broker)
            spans = _behind_every_log(leading)
            if not self._options.allow_gaps:
                _check_remote_end(base_context, leading, spans)
            behind = [LeftBehind("remote storage", start, end, end, None) for start, end in spans]
            lineage = replace(lineage, left_behind=(*remote, *behind, *lineage.left_behind))
        choice = Choice(lineage, chosen_by if lineage.base == base else "committed", sources, planned)
        self._slice(choice)
        lacking = _not_delivered(choice)
        if lacking and rounds:
            less = [replace(source, good=without(source.good, lacking.get(number, ()))) for number, source in enumerate(sources)]
            return self._of_lineage(less, planned, prefer, rounds - 1)
        self._take_gaps(choice)
        return choice

    def _slice(self, choice: Choice) -> None:
        """Find the bytes of a choice's pieces."""
        pieces = choice.lineage.pieces
        for number in sorted({piece.copy for piece in pieces}):
            own = [piece for piece in pieces if piece.copy == number]
            choice.slices += slices_of(choice.sources[number], own, begins=own[0] == pieces[0])
        choice.slices.sort(key=attrgetter("start_offset"))

    def _take_gaps(self, choice: Choice) -> None:
        """Note what no copy has. Raises RefusedError where that is not allowed."""
        lineage, context = choice.lineage, choice.sources[0].plan.context
        taken = normalised((part.start_offset, part.end_offset) for part in choice.slices)
        gaps = without([(lineage.log_start_offset, lineage.log_end_offset)], taken)
        choice.lineage = replace(lineage, gaps=gaps)
        if gaps and not self._options.allow_gaps:
            offsets = ", ".join(f"[{start}, {end})" for start, end in gaps[:4]) + (" and more" if len(gaps) > 4 else "")
            reason = f"no copy has offsets {offsets} of this lineage"
            hint = "give the log directories of more brokers, or --allow-gaps"
            raise RefusedError(Refused(context.topic, context.partition, "gaps", reason, hint, gaps))


def forecast(
    copies: Sequence[tuple[ReplicaPlan, Replica]], planned: Planned, result: PartitionResult, reader: LogReader
) -> SalvageForecast | None:
    """The losses of a salvage with the options that it needs, and the recommended broker preferred; None: it is refused."""
    read = [(plan, replica) for plan, replica in copies if replica.read is not Read.NONE]
    sources = [Source.of(plan, replica, result.findings, deep=False) for plan, replica in read]
    preferred = (None,) if planned.plan.contested_by is not None else (None, str(planned.plan.recommended))
    for options in starmap(SalvageOptions, product(preferred, (False, True))):
        try:
            lineage = Chooser(options).choose(sources, planned, result, reader).lineage
        except (RefusedError, SourceError):
            continue
        base = sources[lineage.base].replica
        kept = [(piece.copy, piece.start, piece.end) for piece in lineage.pieces]
        kept += [(lineage.base, *span) for span in base.remote]
        start = base.log_start_offset if base.is_tiered else lineage.log_start_offset
        losses = losses_without(planned.given, planned.plan.truncate_by, kept, start)
        leading = planned.candidate(base.broker)
        losses += () if leading is None else tuple([loss for loss in leading.losses if not loss.held_by])  # in remote storage alone
        return SalvageForecast(losses, options.words)
    return None


def _not_delivered(choice: Choice) -> dict[int, Ranges]:
    """Of each copy, by its number, the offsets of its pieces for which no bytes were found."""
    lacking: dict[int, Ranges] = {}
    for number in range(len(choice.sources)):
        pieces = normalised((piece.start, piece.end) for piece in choice.lineage.pieces if piece.copy == number)
        found = normalised((part.start_offset, part.end_offset) for part in choice.slices if part.copy == number)
        if rest := without(pieces, found):
            lacking[number] = rest
    return lacking


def _copy(source: Source, given: PlanReplica) -> Copy:
    """A copy as a lineage is traced through it."""
    good = clipped(source.good, given.copied_from, NO_END)
    return Copy(
        given.broker,
        good,
        given.copied_from,
        source.replica.log_end_offset,
        given.epochs,
        given.damaged,
        min(committed_end(given), source.replica.log_end_offset),
        given.head_start,
        0 if source.replica.context.live else given.high_watermark or 0,
    )


def _left_in_remote_storage(sources: Sequence[Source], base: int, planned: Planned) -> list[LeftBehind]:
    """What other copies have otherwise than the base where its log is in remote storage."""
    left = []
    for number, source in enumerate(sources):
        pair, broker = (min(base, number), max(base, number)), source.plan.context.broker
        committed = committed_end(planned.given.replicas[number])
        for start, end in source.replica.remote if number != base else ():
            apart = clipped(planned.given.differing.get(pair, ()), start, end)
            longer = ((max(start, sources[base].replica.log_end_offset), end),)
            for low, high in normalised(span for span in (*apart, *longer) if span[0] < span[1]):
                left.append(LeftBehind(broker, low, high, min(max(committed, low), high), sources[base].plan.context.broker))
    return left


def _check_remote(sources: Sequence[Source], base: int, remote: Sequence[LeftBehind], *, prefer: bool) -> None:
    """Raise RefusedError where the log of the base begins in remote storage and its copy does not tell the epochs there, without
    which brokers delete remote segments; and where copies have committed other records there (`remote`)."""
    replica, context = sources[base].replica, sources[base].plan.context
    line = context.log_start_checkpoint
    may_be_tiered = context.control is None and line is not None and line < replica.local_log_start_offset and not context.compacted
    if (replica.remote or may_be_tiered) and lacks_remote_epochs(replica):
        reason = f"its leader-epoch-checkpoint on broker {context.broker} does not tell the epochs of its remote segments"
        hint = "give the copy of another replica, or --prefer-broker N for one that has the file"
        raise RefusedError(Refused(context.topic, context.partition, "tiered", reason, hint, brokers=(context.broker,)))
    committed = [left for left in remote if left.committed_end > left.start]
    if committed and not prefer:
        first = committed[0]
        reason = (
            f"from offset {first.start} on other records were committed on broker {first.broker} than on broker {context.broker},"
            " and are in remote storage"
        )
        spans = normalised((left.start, left.end) for left in committed)
        brokers = (context.broker, *dict.fromkeys(left.broker for left in committed))
        raise RefusedError(Refused(context.topic, context.partition, "rivals", reason, SAY_WHOSE, spans, brokers))


def _behind_every_log(leading: Candidate | None) -> Ranges:
    """Offsets that remote segments alone hold, and a log that ends as the leader's does would not have."""
    return normalised((loss.start, loss.end) for loss in (() if leading is None else leading.losses) if not loss.held_by)


def _check_remote_end(context: ReplicaContext, leading: Candidate | None, behind: Ranges) -> None:
    """Raise RefusedError where a start deletes remote segments, for no log knows their epochs; and where these prove offsets
    `behind` the end of the base's log to be committed: a leader that ends before them gives these offsets to other records."""
    if leading is not None and leading.remote.forgotten:
        reason = f"its leader would delete {leading.remote.forgotten} remote segments of epochs that no copy's log knows"
        hint = "give the copy of another replica, or --allow-gaps"
        raise RefusedError(Refused(context.topic, context.partition, "tiered", reason, hint))
    if behind:
        offsets = ", ".join(f"[{start}, {end})" for start, end in behind[:4])
        reason = f"remote segments have offsets {offsets} of it, behind the end of every copy's log"
        hint = "give the log directories of more brokers, or --allow-gaps"
        raise RefusedError(Refused(context.topic, context.partition, "gaps", reason, hint, behind))


def _without_planted(copies: Sequence[Copy], sources: Sequence[Source], apart: Mapping[tuple[int, int], Ranges]) -> list[Copy]:
    """The copies without what was found behind lost framing, from the first batch on of which another copy holds another of the
    same epoch: the value of a record may hold a batch, which is read as one where the frame around it is lost."""
    doubted: dict[int, Ranges] = {}
    for pair, ranges in apart.items():
        for number, other in (pair, pair[::-1]):
            ours, theirs = copies[number], copies[other]
            for low, high, _ in sources[number].searched():
                both = (span for edge in clipped(ours.good, low, high) for span in clipped(ranges, *edge))
                apart_at = next((span[0] for start, end in both for span in clipped(theirs.good, start, end)), None)
                if apart_at is not None and epoch_at(ours.epochs, apart_at) == epoch_at(theirs.epochs, apart_at):
                    doubted[number] = normalised((*doubted.get(number, ()), (apart_at, high)))
    return [
        replace(copy, good=without(copy.good, doubts), damaged=normalised((*copy.damaged, *doubts)))
        if (doubts := doubted.get(number))
        else copy
        for number, copy in enumerate(copies)
    ]


def _length(copy: Copy) -> tuple[int, int]:
    return copy.committed_end, sum(end - start for start, end in copy.good)
