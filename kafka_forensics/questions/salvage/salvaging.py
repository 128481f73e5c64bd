"""From the copies to a directory on which brokers start: each partition is chosen, written and read back, or refused with a reason.

The whole is scanned before it gets its name; what that finds wrong with a partition refuses it.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.engine.local import Progress, scan, scan_inputs
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, fits, listed
from kafka_forensics.judging.partitions import PartitionResult
from kafka_forensics.judging.scanning import is_deep
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.json_objects import Json, json_text
from kafka_forensics.model.results import Read, ScanResult
from kafka_forensics.questions.plan import PlanMaker, Planned, PlanOptions, check_names
from kafka_forensics.questions.salvage.lineage import BASE, Copy, Lineage, Piece, trace
from kafka_forensics.questions.salvage.manifest import MANIFEST, Gap, Refused, Salvaged, SalvagedPartition, document
from kafka_forensics.questions.salvage.partition_files import CopyChangedError, PartitionSettings, write_file, write_partition
from kafka_forensics.questions.salvage.rebuilding import index_interval
from kafka_forensics.questions.salvage.slices import Slice, Source, slices_of
from kafka_forensics.questions.salvage.target import built
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.replication.planner import UNSEEN, Broker, PlanReplica, loaded_epochs
from kafka_forensics.replication.recovery import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafka_forensics.rereading.reader import LogReader
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.witnesses.witnesses import read_witnesses
from kafka_forensics.writers.files import write_offset_checkpoint

CLEANER_FILE: Final = "cleaner-offset-checkpoint"
ROUNDS: Final = 4
"""How often a lineage is traced again without offsets that turn out not to be there."""
NAME: Final = "salvage"
"""What the output is called while it is scanned."""
WRITTEN_SO: Final = ("DUPLICATE_BATCH", "PRODUCER_", "TXN_")
"""How kinds of findings begin that tell what producers and coordinators wrote: a salvage carries that on."""
OF_WHAT_IS_LOST: Final = ("GROUP_OFFSET_BEYOND_LOG", "COMMITTED_LOST_EVERYWHERE", "TXN_")
"""The same of those that tell that something is missing, which gaps and what was left behind explain."""
DIFFERING: Final = frozenset(
    {
        "COMPACTED_VALUE_DIFFERS",
        "FORK_ABOVE_HW",
        "FORK_BELOW_HW",
        "REPLICA_DIFFERS",
        "SAME_EPOCH_DIVERGENCE",
        "TOPIC_ID_MISMATCH",
        "UNCLEAN_LOSS",
    }
)
"""Findings that tell of copies that hold different records."""
OF_A_GAP: Final = frozenset({"OFFSET_GAP", "SEGMENT_MISSING"})


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """What a salvage is asked for beyond what a scan is."""

    prefer_broker: str | None = None
    """Whose copy is the base, where it holds a replica."""
    allow_gaps: bool = False
    """Whether partitions are written of which no copy has some offsets."""


class _RefusedError(Exception):
    """A partition cannot be salvaged."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.refused = refused


def salvage(
    paths: list[str], output: Path, options: ScanOptions, salvage_options: SalvageOptions, progress: Progress | None = None
) -> Salvaged:
    """Write the best log of every partition that `options` leave to `output`, which is new or empty.

    Raises UsageError for paths that make no sense, for a bundle (it holds no records), for a broker that none of the copies is of,
    and where nothing can be written.
    """
    inputs = gather(paths, options)
    check_names(inputs)
    _check_given(inputs, salvage_options)
    with built(output, inputs.evidence) as directory:
        salvager = _Salvager(inputs, options, salvage_options, directory)
        result = scan_inputs(inputs, options, progress, salvager.look, salvager.witnesses)
        salvaged = salvager.salvaged
        salvaged.output = str(output)
        salvaged.incomplete = result.incomplete
        salvager.refuse_unread(result)
        salvager.write_checkpoints()
        salvager.check(result)
        salvager.write_checkpoints()
        salvaged.refused.sort(key=lambda refused: (refused.topic, refused.partition))
        write_file(directory / MANIFEST, f"{json_text(document(salvaged))}\n".encode())
    return salvaged


def _check_given(inputs: Inputs, salvage_options: SalvageOptions) -> None:
    bundle = next((source for source in inputs.sources if isinstance(source, BundleSource)), None)
    if bundle is not None:
        raise UsageError(f"{bundle.name} is a bundle, and holds no records", hint="give the log directories themselves")
    prefer = salvage_options.prefer_broker
    names = list(dict.fromkeys(str(plan.context.broker) for plan in inputs.replicas))
    if prefer is not None and prefer not in names:
        raise UsageError(f"no copy here is of broker {prefer}", hint=f"brokers here: {listed(names)}")


@dataclass(slots=True)
class _Choice:
    """What a partition's log is to be made of."""

    lineage: Lineage
    chosen_by: str
    sources: list[Source]
    planned: Planned
    gaps_in_order: bool = False
    """Whether a cleaner took what is missing."""
    slices: list[Slice] = field(default_factory=list)


class _Salvager:
    """Salvages a partition whenever the scan has judged one."""

    def __init__(self, inputs: Inputs, options: ScanOptions, salvage_options: SalvageOptions, directory: Path) -> None:
        self.salvaged = Salvaged("")
        self.witnesses = read_witnesses(inputs)
        self._maker = PlanMaker(inputs, self.witnesses, PlanOptions())
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}
        self._options, self._salvage_options, self._directory = options, salvage_options, directory
        self._deep = is_deep(options.deep, sum(plan.bytes for plan in inputs.replicas))
        self._cleaned: dict[tuple[str, int], int] = {}
        """Of compacted partitions, the first dirty offset."""

    def look(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Take the replicas of one partition, which were judged."""
        context = replicas[0].context
        try:
            choice = self._choice(replicas, reader, result)
            self._write(choice)
        except _RefusedError as error:
            self.salvaged.refused.append(error.refused)
        except (SourceError, CopyChangedError) as error:
            self._remove(context.topic, context.partition)
            kind = "not_readable" if isinstance(error, SourceError) else "not_sound"
            self.salvaged.refused.append(Refused(context.topic, context.partition, kind, str(error), error.hint))

    def _choice(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> _Choice:
        topic, partition = replicas[0].context.topic, replicas[0].context.partition
        if topic == CLUSTER_METADATA_TOPIC:
            reason = "the controllers' log is no topic's: a majority of voters decides what is in it"
            hint = "take it whole from a controller that ran last; brokers fetch it anew"
            raise _RefusedError(Refused(topic, partition, "controllers_log", reason, hint))
        planned = self._maker.plan_of(replicas, reader, result)
        read = [replica for replica in self._maker.of_present_topic(replicas)[0] if replica.read is not Read.NONE]
        if not read:
            raise _RefusedError(Refused(topic, partition, "nothing_read", "no copy of it could be read"))
        sources = [Source.of(self._plan_of[id(replica.context)], replica, result.findings, deep=self._deep) for replica in read]
        if topic in INTERNAL_TOPICS or any(replica.context.compacted for replica in read):
            return self._whole_copy(sources, planned, result)
        return self._of_lineage(sources, planned)

    def _whole_copy(self, sources: list[Source], planned: Planned, result: PartitionResult) -> _Choice:
        """Of a topic whose copies may differ for good reasons: one copy, whole and good, as it is."""
        context = sources[0].plan.context
        kind, noun = ("internal_topic", "an internal topic") if context.topic in INTERNAL_TOPICS else ("compacted", "compacted")
        brokers = tuple(source.plan.context.broker for source in sources)
        differing = sorted({finding.kind for finding in result.findings if finding.kind in DIFFERING})
        good = [number for number, source in enumerate(sources) if source.is_whole]
        longest = max(source.replica.log_end_offset for source in sources)
        good = [number for number in good if sources[number].replica.log_end_offset == longest]
        if differing or not good:
            why = f"its copies differ ({listed(differing)})" if differing else "no copy of it is whole, good, and as long as any"
            hint = "compare the copies, and take one of them as it is"
            raise _RefusedError(Refused(context.topic, context.partition, kind, f"it is {noun}, and {why}", hint, (), brokers))
        prefer, recommended = self._salvage_options.prefer_broker, planned.plan.recommended
        best = max(good, key=lambda number: (str(brokers[number]) == prefer, brokers[number] == recommended, -number))
        replica = sources[best].replica
        start, end = replica.log_start_offset, replica.log_end_offset
        lineage = Lineage(best, start, end, (Piece(best, start, end, BASE),) if start < end else (), ())
        choice = _Choice(lineage, "whole-copy", sources, planned, gaps_in_order=True)
        self._slice(choice)
        return choice

    def _of_lineage(self, sources: list[Source], planned: Planned, rounds: int = ROUNDS) -> _Choice:
        """Of an ordinary topic: the lineage of the copy that its plan recommends, or that the user prefers, from all copies.

        Where the bytes of a copy are not what was folded, it is traced again without them, up to `rounds` times.
        """
        prefer = self._salvage_options.prefer_broker
        copies = [_copy(source, given) for source, given in zip(sources, planned.given.replicas, strict=False)]
        copies = _without_planted(copies, sources, planned.given.differing)
        context = sources[0].plan.context
        by_name = {str(copy.broker): number for number, copy in enumerate(copies)}
        preferred = by_name.get(prefer) if prefer is not None else None
        if preferred is not None:
            base, chosen_by = preferred, "prefer-broker"
        elif planned.plan.recommended is not None:
            base, chosen_by = by_name[str(planned.plan.recommended)], "plan"
        else:
            base, chosen_by = max(range(len(copies)), key=lambda number: _length(copies[number])), "longest"
        lineage = trace(copies, planned.given.differing, base, preferred=preferred is not None)
        if lineage.rivals:
            brokers = tuple(dict.fromkeys(rival.broker for rival in lineage.rivals))
            ours = tuple(dict.fromkeys(rival.rival_of for rival in lineage.rivals if rival.rival_of is not None))
            spans = normalised((rival.start, rival.end) for rival in lineage.rivals)
            reason = (
                f"from offset {spans[0][0]} on other records were committed on broker {listed(map(str, brokers))}"
                f" than on broker {listed(map(str, ours))}"
            )
            hint = "say whose are to stay, with --prefer-broker; `plan` and `compare` show both sides"
            raise _RefusedError(Refused(context.topic, context.partition, "rivals", reason, hint, spans, (*ours, *brokers)))
        choice = _Choice(lineage, chosen_by if lineage.base == base else "committed", sources, planned)
        self._slice(choice)
        lacking = _not_delivered(choice)
        if lacking and rounds:
            less = [replace(source, good=without(source.good, lacking.get(number, ()))) for number, source in enumerate(sources)]
            return self._of_lineage(less, planned, rounds - 1)
        self._take_gaps(choice)
        return choice

    def _slice(self, choice: _Choice) -> None:
        """Find the bytes of a choice's pieces."""
        for number, piece in enumerate(choice.lineage.pieces):
            found = slices_of(choice.sources[piece.copy], piece, gaps=choice.gaps_in_order, is_first=not number)
            choice.slices += found

    def _take_gaps(self, choice: _Choice) -> None:
        """Note what no copy has. Raises _RefusedError where that is not allowed."""
        lineage, context = choice.lineage, choice.sources[0].plan.context
        taken = normalised((part.start_offset, part.end_offset) for part in choice.slices)
        gaps = without([(lineage.log_start_offset, lineage.log_end_offset)], taken)
        choice.lineage = replace(lineage, gaps=gaps)
        if gaps and not self._salvage_options.allow_gaps:
            offsets = ", ".join(f"[{start}, {end})" for start, end in gaps[:4]) + (" and more" if len(gaps) > 4 else "")
            reason = f"no copy has offsets {offsets} of this lineage"
            hint = "give the log directories of more brokers, or --allow-gaps"
            raise _RefusedError(Refused(context.topic, context.partition, "gaps", reason, hint, gaps))

    def _write(self, choice: _Choice) -> None:
        """Write a partition."""
        lineage = choice.lineage
        base = choice.sources[lineage.base].plan.context
        topic_id = next((source.plan.context.topic_id for source in choice.sources if source.plan.context.topic_id), None)
        directory = self._directory / f"{base.topic}-{base.partition}"
        directory.mkdir()
        interval = index_interval(None if base.control is None else base.control.setting("index.interval.bytes"))
        epochs = None
        if choice.gaps_in_order and base.epoch_checkpoint is not None:
            epochs = loaded_epochs(base.epoch_checkpoint, lineage.log_end_offset)
        settings = PartitionSettings(topic_id, interval, epochs)
        written = write_partition(directory, choice.slices, choice.sources, lineage, settings)
        if base.compacted:
            dirty = max(base.cleaner_checkpoint or 0, lineage.log_start_offset)
            self._cleaned[base.topic, base.partition] = min(dirty, lineage.log_end_offset)
        missing = [absent for absent in choice.planned.plan.missing if absent.kind in UNSEEN]
        self.salvaged.partitions.append(
            SalvagedPartition(
                base.topic,
                base.partition,
                topic_id,
                base.broker,
                choice.chosen_by,
                lineage.log_start_offset,
                lineage.log_end_offset,
                _high_watermark(choice),
                written.epochs,
                written.segments,
                written.size_in_bytes,
                written.ranges,
                [Gap(start, end, _damaged_on(choice, start, end)) for start, end in lineage.gaps],
                list(lineage.left_behind),
                [absent.kind if absent.broker is None else f"{absent.kind}:{absent.broker}" for absent in missing],
            )
        )

    def refuse_unread(self, result: ScanResult) -> None:
        """Refuse partitions that a scan knows of and none was looked at."""
        known = {(written.topic, written.partition) for written in self.salvaged.partitions}
        known |= {(refused.topic, refused.partition) for refused in self.salvaged.refused}
        for partition in result.partitions:
            if (partition.topic, partition.partition) not in known and fits((partition.topic, partition.partition), self._options):
                reason = "no copy of it could be read"
                self.salvaged.refused.append(Refused(partition.topic, partition.partition, "nothing_read", reason))

    def write_checkpoints(self) -> None:
        """Write what a log directory has once, of the partitions that stand. Recovery begins at the start of each log."""
        partitions = self.salvaged.partitions
        files = {
            RECOVERY_POINT_FILE: {(one.topic, one.partition): one.log_start_offset for one in partitions},
            LOG_START_FILE: {(one.topic, one.partition): one.log_start_offset for one in partitions if one.log_start_offset},
            HIGH_WATERMARK_FILE: {
                (one.topic, one.partition): one.high_watermark for one in partitions if one.high_watermark is not None
            },
            CLEANER_FILE: {key: self._cleaned[key] for one in partitions if (key := (one.topic, one.partition)) in self._cleaned},
        }
        for name, offsets in files.items():
            (self._directory / name).unlink(missing_ok=True)
            write_file(self._directory / name, write_offset_checkpoint(offsets))

    def check(self, given: ScanResult) -> None:
        """Scan what was written, and refuse each partition of which more is found than its gaps, and than was so in the copies."""
        if not self.salvaged.partitions:
            return
        options = ScanOptions(jobs=self._options.jobs, deep=self._deep, cache_dir=self._options.cache_dir)
        result = scan([f"{NAME}={self._directory}"], options)
        before = {(finding.kind, finding.place.topic, finding.place.partition) for finding in given.findings}
        for partition in list(self.salvaged.partitions):
            key = partition.topic, partition.partition
            loud = [
                finding
                for finding in result.findings
                if finding.severity.rank > Severity.INFO.rank
                and (finding.place.topic is None or (finding.place.topic, finding.place.partition) == key)
            ]
            wrong = [finding for finding in loud if not _is_known(finding, partition, before)]
            summary = next((one for one in result.partitions if (one.topic, one.partition) == key), None)
            outlook = None if summary is None else summary.replicas[0].recovery
            starts = outlook is not None and outlook.starts and outlook.log_end_offset == partition.log_end_offset
            if wrong or not starts:
                found = listed(sorted({finding.kind for finding in wrong})) or "that a broker would cut it or not start"
                reason = f"a scan of the salvaged log finds {found}"
                self.salvaged.partitions.remove(partition)
                self.salvaged.refused.append(Refused(*key, "not_sound", reason, "its copies are not what they seem: scan them"))
                self._remove(*key)
            partition.inherited = [_inherited(finding) for finding in loud if finding.kind not in OF_A_GAP]

    def _remove(self, topic: str, partition: int) -> None:
        shutil.rmtree(self._directory / f"{topic}-{partition}", ignore_errors=True)


def _not_delivered(choice: _Choice) -> dict[int, Ranges]:
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
    witnesses = [witness.end_offset for witness in given.witnesses]
    good = clipped(source.good, given.log_start_offset, 1 << 62)
    return Copy(
        given.broker,
        good,
        given.log_start_offset,
        source.replica.log_end_offset,
        given.epochs,
        given.damaged,
        min(max([given.high_watermark or 0, *witnesses]), source.replica.log_end_offset),
        given.head_start,
    )


def _without_planted(copies: Sequence[Copy], sources: Sequence[Source], apart: Mapping[tuple[int, int], Ranges]) -> list[Copy]:
    """The copies without what was found behind lost framing, from the first batch on of which another copy holds another of the
    same epoch: the value of a record may hold a batch, which is read as one where the frame around it is lost."""
    doubted: dict[int, Ranges] = {}
    for pair, ranges in apart.items():
        for number, other in (pair, pair[::-1]):
            ours, theirs = copies[number], copies[other]
            for low, high in sources[number].searched():
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


def _high_watermark(choice: _Choice) -> int | None:
    """The furthest that copies whose bytes were taken know, no further than the log goes."""
    taken = {choice.lineage.base, *(part.copy for part in choice.slices)}
    known = [choice.sources[number].plan.context.high_watermark for number in taken]
    largest = max((mark for mark in known if mark is not None), default=None)
    if largest is None:
        return None
    return max(min(largest, choice.lineage.log_end_offset), choice.lineage.log_start_offset)


def _damaged_on(choice: _Choice, start: int, end: int) -> tuple[Broker, ...]:
    """Who has damaged bytes of some offsets."""
    return tuple(replica.broker for replica in choice.planned.given.replicas if clipped(replica.damaged, start, end))


def _is_known(finding: Finding, partition: SalvagedPartition, before: set[tuple[str, str | None, int | None]]) -> bool:
    """Whether a finding is one of the gaps, or tells what was written so, or what is known to be missing."""
    start, end = finding.place.offset_start, finding.place.offset_end
    if finding.kind in OF_A_GAP and start is not None and end is not None:
        gaps = tuple((gap.start, gap.end) for gap in partition.gaps)
        return bool(gaps) and not without([(start, end)], gaps)
    if finding.kind.startswith(WRITTEN_SO) and (finding.kind, partition.topic, partition.partition) in before:
        return True
    return finding.kind.startswith(OF_WHAT_IS_LOST) and bool(partition.gaps or partition.left_behind)


def _inherited(finding: Finding) -> Json:
    place = finding.place
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "offset_start": place.offset_start,
        "offset_end": place.offset_end,
    }
