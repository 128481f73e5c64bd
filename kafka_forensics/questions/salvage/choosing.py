"""Chooses the base copy, the other copies and the bytes that a partition's salvaged log consists of, or refuses the partition."""

from collections.abc import Mapping, Sequence
from itertools import product, starmap
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import lacks_remote_epochs
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.constants import INTERNAL_TOPICS
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, offset_ranges, without
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.results import ReadExtent
from kafka_forensics.questions.plan import Planned, SalvageForecast
from kafka_forensics.questions.salvage.lineage import LeftBehind, LogCopy, LogLineage, committed_end, common, trace
from kafka_forensics.questions.salvage.manifest import Refused, RefusedError
from kafka_forensics.questions.salvage.slices import Choice, SourceCopy, slices_of
from kafka_forensics.questions.salvage.whole_copies import CHOOSE_BROKER, WholeCopyChooser
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.planner import NO_END, Candidate, PlanReplica, losses_without
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader

ROUNDS: Final = 4
"""How often a lineage is traced again without offsets whose bytes are missing."""


class SalvageOptions(Struct, frozen=True):
    """Options of a salvage, in addition to those of a scan."""

    prefer_broker: str | None = None
    """The broker whose records are used in partitions that would be refused, and whose copy of a compacted one comes first."""
    allow_gaps: bool = False
    """Whether to write partitions for which no copy has some offsets."""
    metadata_partitions: int | None = None
    """Number of partitions of `__remote_log_metadata` where no controllers' log shows it; None: Kafka's default."""
    rebuild_metadata: bool = False
    """Whether `__remote_log_metadata` is rebuilt from a remote store although copies of it are here."""
    from_store: bool = False
    """Whether tiered topics become plain logs with the records of their remote segments."""

    @property
    def words(self) -> tuple[str, ...]:
        """As words of a command line."""
        prefer = () if self.prefer_broker is None else ("--prefer-broker", self.prefer_broker)
        count = () if self.metadata_partitions is None else ("--metadata-partitions", str(self.metadata_partitions))
        flags = {
            "--allow-gaps": self.allow_gaps,
            "--rebuild-metadata": self.rebuild_metadata,
            "--from-store": self.from_store,
        }
        return (*prefer, *count, *(flag for flag, is_set in flags.items() if is_set))


def choose(
    sources: list[SourceCopy], planned: Planned, result: PartitionResult, reader: LogReader, options: SalvageOptions
) -> Choice:
    """What a partition's log consists of. Raises RefusedError; SourceError if a copy cannot be read any more."""
    key, prefer = (result.summary.topic, result.summary.partition), options.prefer_broker
    if not sources:
        raise RefusedError(Refused(*key, "nothing_read", "no copy of it could be read"))
    if any(missing.kind == "topic_undecided" for missing in planned.plan.missing):
        reason = "the copies belong to several topics with this name, and no file shows which is the current one"
        hint = "give only copies with one topic id (partition.metadata)"
        raise RefusedError(Refused(*key, "topic_undecided", reason, hint))
    if key[0] in INTERNAL_TOPICS or any(source.plan.context.compacted for source in sources):
        return WholeCopyChooser(sources, planned, result.findings, reader).choose(prefer, allow_gaps=options.allow_gaps)
    try:
        return _choose_lineage(sources, planned, None, allow_gaps=options.allow_gaps)
    except RefusedError:
        if prefer not in [str(source.broker) for source in sources]:
            raise
        return _choose_lineage(sources, planned, prefer, allow_gaps=options.allow_gaps)


def _choose_lineage(
    sources: list[SourceCopy], planned: Planned, prefer: str | None, *, allow_gaps: bool, rounds: int = ROUNDS
) -> Choice:
    """The log of an ordinary topic: the lineage of the recommended copy, or of the preferred one, from all copies.

    If the bytes of a copy are not what the scan read, its lineage is traced again without them, up to `rounds` times.
    """
    differences = planned.planner_input.differing
    copies = [_log_copy(source, replica) for source, replica in zip(sources, planned.planner_input.replicas, strict=False)]
    copies = _without_embedded(copies, sources, differences)
    numbers = {str(copy.broker): number for number, copy in enumerate(copies)}
    if prefer is not None:
        base, chosen_by = numbers[prefer], "prefer_broker"
    elif str(planned.plan.recommended) in numbers:
        base, chosen_by = numbers[str(planned.plan.recommended)], "plan"
    else:
        sizes = [(copy.committed_end, sum(end - start for start, end in copy.good)) for copy in copies]
        base, chosen_by = sizes.index(max(sizes)), "longest"
    lineage = trace(copies, differences, base, preferred=prefer is not None)
    _check_rivals(sources, planned, lineage, prefer)
    if lineage.log_start_offset > 0 or any(source.replica.is_tiered for source in sources):
        remote = _rivals_in_remote_storage(sources, lineage.base, planned)
        _check_remote(sources, lineage.base, remote, prefer=prefer is not None)
        leader = planned.candidate(sources[lineage.base].broker)
        remote_only = _only_in_remote_storage(leader)
        if not allow_gaps:
            _check_remote_end(sources[0], leader, remote_only)
        left_remote = [LeftBehind(REMOTE, start, end, end, None) for start, end in remote_only]
        lineage = replace(lineage, left_behind=(*remote, *left_remote, *lineage.left_behind))
    choice = Choice(lineage, chosen_by if lineage.base == base else "committed", sources, planned)
    for number in sorted({range_.copy for range_ in lineage.ranges}):
        ranges = [range_ for range_ in lineage.ranges if range_.copy == number]
        choice.slices += slices_of(sources[number], ranges, starts_log=ranges[0] == lineage.ranges[0])
    choice.slices.sort(key=attrgetter("start_offset"))
    lacking = _without_bytes(choice)
    if lacking and rounds:
        less = [replace(source, good=without(source.good, lacking.get(number, ()))) for number, source in enumerate(sources)]
        return _choose_lineage(less, planned, prefer, allow_gaps=allow_gaps, rounds=rounds - 1)
    found = normalised((part.start_offset, part.end_offset) for part in choice.slices)
    gaps = without([(lineage.log_start_offset, lineage.log_end_offset)], found)
    choice.lineage = replace(lineage, gaps=gaps)
    if gaps and not allow_gaps:
        reason = f"no copy has {offset_ranges(gaps)}"
        hint = "give the log directories of more brokers; without any, --allow-gaps leaves these offsets out"
        raise RefusedError(Refused(*sources[0].key, "gaps", reason, hint, gaps))
    return choice


def _check_rivals(sources: Sequence[SourceCopy], planned: Planned, lineage: LogLineage, prefer: str | None) -> None:
    """Raise RefusedError if other records than those of the lineage were, or may have been, committed."""
    key = sources[0].key
    if planned.plan.contested_by is not None and prefer is None and lineage.left_behind:
        reason = "it is unknown which of its copies has the committed records: one has no high watermark"
        raise RefusedError(Refused(*key, "rivals", reason, CHOOSE_BROKER))
    if lineage.rivals:
        theirs = tuple(dict.fromkeys(rival.broker for rival in lineage.rivals))
        ours = tuple(dict.fromkeys(rival.rival_of for rival in lineage.rivals if rival.rival_of is not None))
        spans = normalised((rival.start, rival.end) for rival in lineage.rivals)
        reason = (
            f"from offset {spans[0][0]} on, broker {listed(map(str, theirs))} has other committed records than"
            f" broker {listed(map(str, ours))}"
        )
        raise RefusedError(Refused(*key, "rivals", reason, CHOOSE_BROKER, spans, (*ours, *theirs)))


def forecast(
    copies: Sequence[tuple[ReplicaPlan, Replica]], planned: Planned, result: PartitionResult, reader: LogReader
) -> SalvageForecast | None:
    """The losses of a salvage with the fewest options, or with the recommended broker preferred; None if it is refused."""
    read = [(plan, replica) for plan, replica in copies if replica.read is not ReadExtent.NONE]
    sources = [SourceCopy.of(plan, replica, result.findings, deep=False) for plan, replica in read]
    preferred = (None,) if planned.plan.contested_by is not None else (None, str(planned.plan.recommended))
    for options in starmap(SalvageOptions, product(preferred, (False, True))):
        try:
            lineage = choose(sources, planned, result, reader, options).lineage
        except (RefusedError, SourceError):
            continue
        base = sources[lineage.base].replica
        kept = [(range_.copy, range_.start, range_.end) for range_ in lineage.ranges]
        kept += [(lineage.base, *span) for span in base.remote]
        start = base.log_start_offset if base.is_tiered else lineage.log_start_offset
        losses = losses_without(planned.planner_input, planned.plan.truncate_by, kept, start)
        leader = planned.candidate(base.broker)
        losses += () if leader is None else tuple([loss for loss in leader.losses if not loss.held_by])  # only in remote storage
        return SalvageForecast(losses, options.words)
    return None


def _without_bytes(choice: Choice) -> dict[int, Ranges]:
    """The offsets of each copy's ranges for which no bytes were found, by the number of the copy."""
    lacking: dict[int, Ranges] = {}
    for number in range(len(choice.sources)):
        ranges = normalised((range_.start, range_.end) for range_ in choice.lineage.ranges if range_.copy == number)
        found = normalised((part.start_offset, part.end_offset) for part in choice.slices if part.copy == number)
        if rest := without(ranges, found):
            lacking[number] = rest
    return lacking


def _log_copy(source: SourceCopy, replica: PlanReplica) -> LogCopy:
    log_end_offset = source.replica.log_end_offset
    return LogCopy(
        replica.broker,
        clipped(source.good, replica.copied_from, NO_END),
        replica.copied_from,
        log_end_offset,
        replica.epochs,
        replica.damaged,
        min(committed_end(replica), log_end_offset),
        replica.expected_log_start,
        0 if source.replica.context.live else replica.high_watermark or 0,
    )


def _rivals_in_remote_storage(sources: Sequence[SourceCopy], base: int, planned: Planned) -> list[LeftBehind]:
    """Other records that copies have at offsets of their remote segments, or remote segments after the end of the base."""
    left = []
    for number, source in enumerate(sources):
        differing = planned.planner_input.differing.get((min(base, number), max(base, number)), ())
        committed = committed_end(planned.planner_input.replicas[number])
        for start, end in source.replica.remote if number != base else ():
            longer = max(start, sources[base].replica.log_end_offset), end
            for low, high in normalised((*clipped(differing, start, end), longer)):
                left.append(LeftBehind(source.broker, low, high, min(max(committed, low), high), sources[base].broker))
    return left


def _check_remote(sources: Sequence[SourceCopy], base: int, remote: Sequence[LeftBehind], *, prefer: bool) -> None:
    """Raise RefusedError if the base lacks the epochs of its remote segments, without which brokers delete these, or if `remote`,
    rivals in remote storage, were committed."""
    replica, context, key = sources[base].replica, sources[base].plan.context, sources[base].key
    line = context.log_start_checkpoint
    may_be_tiered = context.control is None and line is not None and line < replica.local_log_start_offset and not context.compacted
    if (replica.remote or may_be_tiered) and lacks_remote_epochs(replica):
        reason = f"its leader-epoch-checkpoint on broker {context.broker} lacks the epochs of its remote segments"
        hint = "give the copy of another replica, or the remote store; or --prefer-broker N for one that has the file"
        raise RefusedError(Refused(*key, "tiered", reason, hint, brokers=(context.broker,)))
    committed = [left for left in remote if left.committed_end > left.start]
    if committed and not prefer:
        reason = (
            f"from offset {committed[0].start} on broker {committed[0].broker} has other committed records, in remote storage, than"
            f" broker {context.broker}"
        )
        spans = normalised((left.start, left.end) for left in committed)
        brokers = (context.broker, *dict.fromkeys(left.broker for left in committed))
        raise RefusedError(Refused(*key, "rivals", reason, CHOOSE_BROKER, spans, brokers))


def _only_in_remote_storage(leader: Candidate | None) -> Ranges:
    """Offsets that only remote segments have, and a log that ends like the leader's lacks."""
    return normalised((loss.start, loss.end) for loss in (() if leader is None else leader.losses) if not loss.held_by)


def _check_remote_end(source: SourceCopy, leader: Candidate | None, remote_only: Ranges) -> None:
    """Raise RefusedError if brokers would delete remote segments because no log has their epochs, or if remote segments prove
    offsets after the end of the base committed: a leader whose log ends before them writes other records there."""
    if leader is not None and leader.remote.forgotten:
        reason = f"its leader would delete {leader.remote.forgotten} remote segments with epochs that no copy's log has"
        hint = "give the copy of another replica, or --allow-gaps"
        raise RefusedError(Refused(*source.key, "tiered", reason, hint))
    if remote_only:
        reason = f"remote segments have {offset_ranges(remote_only)} of it, after the end of every copy's log"
        hint = "give the log directories of more brokers, or --allow-gaps"
        raise RefusedError(Refused(*source.key, "gaps", reason, hint, remote_only))


def _without_embedded(
    copies: Sequence[LogCopy], sources: Sequence[SourceCopy], differences: Mapping[tuple[int, int], Ranges]
) -> list[LogCopy]:
    """The copies without batches found after lost framing, from the first one for which another copy has a different batch of the
    same epoch: the value of a record may contain a batch, which is found where the framing around it is lost."""
    doubted: dict[int, Ranges] = {}
    for pair, differing in differences.items():
        for number, other in (pair, pair[::-1]):
            ours, theirs = copies[number], copies[other]
            for low, high, _ in sources[number].found_batches():
                both = common(common(clipped(ours.good, low, high), differing), theirs.good)
                if both and epoch_at(ours.epochs, both[0][0]) == epoch_at(theirs.epochs, both[0][0]):
                    doubted[number] = normalised((*doubted.get(number, ()), (both[0][0], high)))
    return [
        replace(copy, good=without(copy.good, doubts), damaged=normalised((*copy.damaged, *doubts)))
        if (doubts := doubted.get(number))
        else copy
        for number, copy in enumerate(copies)
    ]
