"""From the copies to a directory on which brokers start: each partition is chosen, written and read back, or refused with a reason.

The whole is scanned before it gets its name; what that finds wrong with a partition refuses it.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.engine.local import Progress, scan, scan_inputs
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, fits, listed
from kafka_forensics.judging.partitions import PartitionResult
from kafka_forensics.judging.scanning import is_deep
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.json_objects import json_text
from kafka_forensics.model.results import Read, ScanResult
from kafka_forensics.questions.plan import PlanMaker, PlanOptions, check_names, name_here
from kafka_forensics.questions.salvage import controllers_log
from kafka_forensics.questions.salvage.choosing import Choice, Chooser, RefusedError, SalvageOptions
from kafka_forensics.questions.salvage.manifest import (
    MANIFEST,
    NO_TOPIC_ID,
    Gap,
    Refused,
    Salvaged,
    SalvagedPartition,
    document,
    open_ended,
)
from kafka_forensics.questions.salvage.output_findings import InputFindings
from kafka_forensics.questions.salvage.partition_files import (
    CopyChangedError,
    PartitionSettings,
    Written,
    write_file,
    write_partition,
)
from kafka_forensics.questions.salvage.quorum_copies import QuorumCopy, read_copy, share_memory
from kafka_forensics.questions.salvage.rebuilding import index_interval
from kafka_forensics.questions.salvage.sealing import Sealing
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.questions.salvage.target import built
from kafka_forensics.questions.salvage.whole_copies import first_dirty_offset, known_epochs
from kafka_forensics.replication.offset_ranges import clipped
from kafka_forensics.replication.planner import NO_END, UNSEEN, Broker
from kafka_forensics.replication.recovery import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafka_forensics.rereading.reader import LogReader
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.witnesses.witnesses import read_witnesses
from kafka_forensics.writers.files import write_offset_checkpoint

CLEANER_FILE: Final = "cleaner-offset-checkpoint"
APART: Final = ".controllers"
"""Where in the output the controllers' log stands until all is scanned."""
NAME: Final = "salvage"
"""What the output is called while it is scanned."""


def salvage(
    paths: list[str], output: Path, options: ScanOptions, salvage_options: SalvageOptions, progress: Progress | None = None
) -> Salvaged:
    """Write the best log of every partition that `options` leave to `output`, which is new or empty.

    Raises UsageError for paths that make no sense, for a bundle (it holds no records), for a broker that none of the copies is of,
    and where nothing can be written.
    """
    inputs = gather(paths, options)
    check_names(inputs)
    if salvage_options.prefer_broker is not None:
        salvage_options = replace(salvage_options, prefer_broker=name_here(salvage_options.prefer_broker, inputs))
    _check_given(inputs, salvage_options)
    with built(output) as directory, Sealing() as sealing:
        salvager = _Salvager(inputs, options, salvage_options, directory, sealing)
        result = scan_inputs(inputs, options, progress, salvager.look, salvager.witnesses)
        salvaged = salvager.salvaged
        salvaged.output = str(output)
        salvaged.incomplete = result.incomplete
        salvager.refuse_unread(result)
        salvager.write_checkpoints()
        salvager.check(result)
        salvager.seal()
        salvager.put_together()
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


class _Salvager:
    """Salvages a partition whenever the scan has judged one."""

    def __init__(
        self, inputs: Inputs, options: ScanOptions, salvage_options: SalvageOptions, directory: Path, sealing: Sealing
    ) -> None:
        self.salvaged = Salvaged("")
        self.witnesses = read_witnesses(inputs)
        self._maker = PlanMaker(inputs, self.witnesses, PlanOptions(counted=False))
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}
        self._options, self._directory, self._sealing = options, directory, sealing
        self._written: dict[tuple[str, int], Written] = {}
        self._chooser = Chooser(salvage_options)
        self._deep = is_deep(options.deep, sum(plan.bytes for plan in inputs.replicas))
        self._cleaned: dict[tuple[str, int], int] = {}
        """Of compacted partitions, the first dirty offset."""

    def look(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Take the replicas of one partition, which were judged."""
        context = replicas[0].context
        try:
            if context.topic == CLUSTER_METADATA_TOPIC:
                partition = self._write_controllers(replicas, result)
            else:
                partition = self._write(self._choice(replicas, reader, result))
            self.salvaged.partitions.append(partition)
        except RefusedError as error:
            self.salvaged.refused.append(error.refused)
        except (SourceError, CopyChangedError) as error:
            self._remove(context.topic, context.partition)
            kind = "not_readable" if isinstance(error, SourceError) else "not_sound"
            self.salvaged.refused.append(Refused(context.topic, context.partition, kind, str(error), error.hint))

    def _choice(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> Choice:
        topic, partition = replicas[0].context.topic, replicas[0].context.partition
        planned = self._maker.plan_of(replicas, reader, result)
        read = [replica for replica in self._maker.present(replicas)[0] if replica.read is not Read.NONE]
        if not read:
            raise RefusedError(Refused(topic, partition, "nothing_read", "no copy of it could be read"))
        sources = [Source.of(self._plan_of[id(replica.context)], replica, result.findings, deep=self._deep) for replica in read]
        return self._chooser.choose(sources, planned, result, reader)

    def _write_controllers(self, replicas: list[Replica], result: PartitionResult) -> SalvagedPartition:
        """Write the controllers' log. Raises RefusedError, SourceError, CopyChangedError."""
        copies: list[QuorumCopy] = []
        for replica in replicas:
            copy = read_copy(self._plan_of[id(replica.context)], replica, result.findings, deep=self._deep)
            share_memory(copies, copy)
            copies.append(copy)
        chosen = controllers_log.choose(copies)
        partition = self._write(Choice(chosen.lineage, "quorum", [chosen.base.source], None, slices=chosen.slices))
        partition.quorum, partition.unseen = chosen.quorum, chosen.unseen
        partition.files = chosen.write_beside(self._place_of(partition.topic, partition.partition))
        return partition

    def _write(self, choice: Choice) -> SalvagedPartition:
        """Write a partition."""
        lineage = choice.lineage
        base = choice.sources[lineage.base].plan.context
        topic_id = _topic_id(choice.sources) or (controllers_log.TOPIC_ID if base.topic == CLUSTER_METADATA_TOPIC else None)
        directory = self._place_of(base.topic, base.partition)
        directory.mkdir(parents=True)
        interval = index_interval(None if base.control is None else base.control.setting("index.interval.bytes"))
        epochs = known_epochs(lineage, choice.sources[lineage.base]) if choice.is_cleaned else None
        settings = PartitionSettings(topic_id, interval, epochs)
        written = write_partition(directory, choice.slices, choice.sources, lineage, settings, self._sealing)
        self._written[base.topic, base.partition] = written
        if choice.is_cleaned:
            self._cleaned[base.topic, base.partition] = first_dirty_offset(lineage, choice.sources[lineage.base])
        absent_of_plan = () if choice.planned is None else choice.planned.plan.missing
        missing = [absent for absent in absent_of_plan if absent.kind in UNSEEN or absent.kind == "topic_unknown"]
        return SalvagedPartition(
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
            [
                Gap(start, end, _damaged_on(choice, start, NO_END if end is None else end))
                for start, end in open_ended(lineage.gaps)
            ],
            list(lineage.left_behind),
            unseen=[
                *(absent.kind if absent.broker is None else f"{absent.kind}:{absent.broker}" for absent in missing),
                *([NO_TOPIC_ID] if topic_id is None and _under_kraft(choice.sources) else ()),
            ],
            warning=choice.warning,
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
        """Write what a log directory has once, of the partitions that stand. Recovery begins at the start of each log.

        Of the controllers' log nothing stands there: it is recovered whole, and begins with its first segment (KafkaRaftLog).
        """
        partitions = [one for one in self.salvaged.partitions if one.topic != CLUSTER_METADATA_TOPIC]
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
        if (self._directory / APART).exists():
            (self._directory / APART / RECOVERY_POINT_FILE).write_bytes(write_offset_checkpoint({}))

    def check(self, given: ScanResult) -> None:
        """Scan what was written: refuse partitions whose bytes, offsets or epochs are wrong, and note what else is found."""
        options = ScanOptions(jobs=self._options.jobs, deep=self._deep, cache_dir=self._options.cache_dir)
        folders = dict.fromkeys(self._place_of(one.topic, one.partition).parent for one in self.salvaged.partitions)
        results = [scan([f"{NAME}={folder}"], options) for folder in folders]
        in_copies = InputFindings(given.findings)
        found: dict[tuple[str | None, int | None], list[Finding]] = {}
        for finding in (finding for result in results for finding in result.findings):
            if finding.severity.rank > Severity.INFO.rank:
                found.setdefault((finding.place.topic, finding.place.partition), []).append(finding)
        outlooks = {(one.topic, one.partition): one.replicas[0].recovery for result in results for one in result.partitions}
        of_all = in_copies.judge([finding for (_, number), rows in found.items() if number is None for finding in rows], ())
        self.salvaged.inherited, self.salvaged.new = of_all.inherited, of_all.new
        sound = []
        for partition in self.salvaged.partitions:
            key = partition.topic, partition.partition
            gaps = [(gap.start, gap.end) for gap in partition.gaps if gap.end is not None]
            judged = in_copies.judge(found.get(key, ()), gaps)
            wrong = sorted({finding.kind for finding in (*judged.wrong, *of_all.wrong)})
            outlook = outlooks.get(key)
            if outlook is None or not outlook.starts or outlook.log_end_offset != partition.log_end_offset:
                wrong.append("that a broker would cut it, or not start")
            if wrong:
                reason = f"a scan of the salvaged log finds {listed(wrong)}"
                self.salvaged.refused.append(Refused(*key, "not_sound", reason, "its copies are not what they seem: scan them"))
                self._remove(*key)
                continue
            partition.inherited, partition.new = judged.inherited, judged.new
            sound.append(partition)
        self.salvaged.partitions = sound

    def seal(self) -> None:
        """Wait until all that stands is on disk; whence its bytes came. Raises OSError, SourceError."""
        for partition in self.salvaged.partitions:
            partition.ranges = self._written[partition.topic, partition.partition].ranges()

    def put_together(self) -> None:
        """Put what was built apart beside the rest."""
        apart = self._directory / APART
        for path in [path for path in apart.glob("*") if path.is_dir()]:
            path.rename(self._directory / path.name)
        shutil.rmtree(apart, ignore_errors=True)

    def _remove(self, topic: str, partition: int) -> None:
        place = self._place_of(topic, partition)
        if place.exists():
            shutil.rmtree(place)

    def _place_of(self, topic: str, partition: int) -> Path:
        """Where a partition is built: the controllers' log apart, for it bears witness, and what it says of others is not asked."""
        return self._directory / (APART if topic == CLUSTER_METADATA_TOPIC else "") / f"{topic}-{partition}"


def _topic_id(sources: list[Source]) -> str | None:
    """The topic's id: of a copy that has it, else by the controllers' log. Brokers under KRaft set a log without one aside as a
    stray, and begin anew (`LogManager.isStrayKraftReplica`)."""
    contexts = [source.plan.context for source in sources]
    told = [context.topic_id for context in contexts]
    told += [context.control.topic_id for context in contexts if context.control is not None]
    return next((topic_id for topic_id in told if topic_id), None)


def _under_kraft(sources: list[Source]) -> bool:
    """Whether the brokers of some copies are known to have no ZooKeeper: their `meta.properties` are of version 1."""
    metas = [source.plan.log_dir.meta for source in sources]
    return any(meta is not None and meta.version == 1 for meta in metas)


def _high_watermark(choice: Choice) -> int | None:
    """The furthest that copies whose bytes were taken know, no further than the log goes."""
    taken = {choice.lineage.base, *(part.copy for part in choice.slices)}
    known = [choice.sources[number].plan.context.high_watermark for number in taken]
    largest = max((mark for mark in known if mark is not None), default=None)
    if largest is None:
        return None
    return max(min(largest, choice.lineage.log_end_offset), choice.lineage.log_start_offset)


def _damaged_on(choice: Choice, start: int, end: int) -> tuple[Broker, ...]:
    """Who has damaged bytes of some offsets."""
    replicas = [] if choice.planned is None else choice.planned.given.replicas
    damaged = [replica.damaged for replica in replicas] if choice.damaged is None else choice.damaged
    return tuple(replica.broker for replica, ranges in zip(replicas, damaged, strict=False) if clipped(ranges, start, end))
