"""From the copies to log directories on which brokers start: what each partition is made of is chosen, or why it is refused.

Then each is written once and read back. What a scan finds wrong with it refuses it; else it goes to every log directory that it
belongs to.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import retention_for
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan, gather
from kafka_forensics.evidence.ledger import ExpectedReplica
from kafka_forensics.evidence.options import ScanOptions, fits, listed
from kafka_forensics.model.amounts import size
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.json_objects import json_text
from kafka_forensics.model.offset_ranges import clipped
from kafka_forensics.model.results import Read, ScanResult
from kafka_forensics.questions.plan import PlanMaker, PlanOptions, check_names, name_here
from kafka_forensics.questions.salvage import controllers_log
from kafka_forensics.questions.salvage.choosing import Chooser, SalvageOptions
from kafka_forensics.questions.salvage.controllers_log import ControllersLog
from kafka_forensics.questions.salvage.lineage import Lineage
from kafka_forensics.questions.salvage.log_dirs import TargetDir, places_of, put_partition, target_dirs
from kafka_forensics.questions.salvage.manifest import (
    ELECTION_FILE,
    MANIFEST,
    NO_TOPIC_ID,
    Gap,
    PassedLimit,
    Refused,
    RefusedError,
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
from kafka_forensics.questions.salvage.quorum_copies import quorum_copy
from kafka_forensics.questions.salvage.rebuilding import index_interval
from kafka_forensics.questions.salvage.remote_parts import log_start_line, producers_before, remote_epochs
from kafka_forensics.questions.salvage.sealing import Sealing
from kafka_forensics.questions.salvage.slices import Choice, Slice, Source
from kafka_forensics.questions.salvage.target import built
from kafka_forensics.questions.salvage.whole_copies import first_dirty_offset, known_epochs
from kafka_forensics.replication.planner import NO_END, UNSEEN, Broker
from kafka_forensics.replication.recovery import CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafka_forensics.replication.retention import Retention, explains
from kafka_forensics.replication.small_files import BOOTSTRAP, META_PROPERTIES
from kafka_forensics.scanning.engine.local import Progress, scan, scan_inputs
from kafka_forensics.scanning.judging.absence import ledger_of, partitions_without_copy
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.judging.quorum import stops_controllers
from kafka_forensics.scanning.judging.whole_scan import is_deep
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.controller_copies import read_copies
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.writers.files import write_offset_checkpoint

BUILT: Final = ".built"
"""Where in the output each partition is built, until all are scanned;"""
APART: Final = ".controllers"
"""and the controllers' log."""
NAME: Final = "salvage"
"""What the output is called while it is scanned."""


def salvage(
    paths: list[str],
    output: Path,
    options: ScanOptions,
    salvage_options: SalvageOptions,
    progress: Progress | None = None,
    announce: Callable[[Salvaged], None] = lambda _: None,
) -> Salvaged:
    """Write a log directory for each that was given to `output`, which is new or empty, with the best log of every partition that
    `options` leave. `announce` hears what is to be written, before anything is.

    Raises UsageError for paths that make no sense, for a bundle (it holds no records), for a broker that none of the copies is of,
    for an empty log directory of no known node, and where nothing can be written, or not so much.
    """
    inputs, words = gather(paths, options, scanned=True), salvage_options.words
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
        salvaged.asked, salvaged.options = result.asked, words
        salvaged.is_selection = (options.topic_glob, options.partition, options.broker) != (None, None, None)
        salvaged.is_kraft = any(log_dir.meta is not None and log_dir.meta.version == 1 for log_dir in inputs.log_dirs)
        if salvager.witnesses.controller is not None:
            salvaged.combined = frozenset(salvager.witnesses.controller.voters or ())
        salvager.refuse_unread(result, allow_gaps=salvage_options.allow_gaps)
        salvager.find_places()
        free = shutil.disk_usage(directory).free
        if salvaged.bytes_to_write > free:
            text = f"{output} would take {size(salvaged.bytes_to_write)}, and its disk has {size(free)} free"
            raise UsageError(text, hint="choose a directory on another disk, or make room")
        announce(salvaged)
        salvager.write()
        salvager.write_checkpoints(directory / BUILT, [(one.topic, one.partition) for one in salvaged.partitions], ())
        salvager.check(result)
        salvager.seal()
        salvager.put_in_places()
        salvaged.to_mend = [
            finding for finding in result.findings if finding.evidence.get("starts") is False and _comes_back(finding, salvaged)
        ]
        if any(one.topic == CLUSTER_METADATA_TOPIC for one in salvaged.refused):
            salvaged.of_controllers = [finding for finding in result.findings if stops_controllers(finding)]
        tiered = {(plan.context.topic, plan.context.partition) for plan in inputs.replicas if plan.context.is_tiered}
        refused = sorted(salvaged.refused, key=lambda refused: (refused.topic, refused.partition))
        salvaged.refused = [replace(one, is_tiered=one.is_tiered or (one.topic, one.partition) in tiered) for one in refused]
        to_elect = [{"topic": topic, "partition": partition} for topic, partition in salvaged.to_elect()]
        write_file(directory / ELECTION_FILE, json_text({"partitions": to_elect}).encode())
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
class _Chosen:
    """A partition that is to be written: without the folded replicas, which are many."""

    partition: SalvagedPartition
    slices: list[Slice]
    plans: list[ReplicaPlan]
    lineage: Lineage
    settings: PartitionSettings
    metadata: ControllersLog | None = None
    places: list[TargetDir] = field(default_factory=list)

    @property
    def size_in_bytes(self) -> int:
        return sum(part.size_in_bytes for part in self.slices)


class _Salvager:
    """Chooses for a partition whenever the scan has judged one; writes all of them then."""

    def __init__(
        self, inputs: Inputs, options: ScanOptions, salvage_options: SalvageOptions, directory: Path, sealing: Sealing
    ) -> None:
        self.salvaged = Salvaged("")
        self.witnesses = read_witnesses(inputs)
        self._maker = PlanMaker(inputs, self.witnesses, PlanOptions(counted=False))
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}
        self._options, self._directory, self._sealing = options, directory, sealing
        self._inputs = inputs
        self._chosen: list[_Chosen] = []
        self._written: dict[tuple[str, int], Written] = {}
        self._chooser = Chooser(salvage_options)
        self._deep = is_deep(options.deep, sum(plan.bytes for plan in inputs.replicas))
        self._cleaned: dict[tuple[str, int], int] = {}
        """Of compacted partitions, the first dirty offset."""
        self._log_starts: dict[tuple[str, int], int | None] = {}
        """What `log-start-offset-checkpoint` is to say of each partition."""

    def look(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Take the replicas of one partition, which were judged."""
        context = replicas[0].context
        try:
            if context.topic == CLUSTER_METADATA_TOPIC:
                self._chosen.append(self._chosen_of_controllers(replicas, result))
            else:
                self._chosen.append(self._chosen_of(self._choice(replicas, reader, result)))
        except RefusedError as error:
            self.salvaged.refused.append(error.refused)
        except SourceError as error:
            self._refuse(context.topic, context.partition, error)

    def _refuse(self, topic: str, partition: int, error: SourceError | CopyChangedError) -> None:
        self._remove(topic, partition)
        kind = "not_readable" if isinstance(error, SourceError) else "not_sound"
        self.salvaged.refused.append(Refused(topic, partition, kind, str(error), error.hint))

    def _choice(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> Choice:
        topic, partition = replicas[0].context.topic, replicas[0].context.partition
        planned = self._maker.plan_of(replicas, reader, result)
        read = [replica for replica in self._maker.present(replicas)[0] if replica.read is not Read.NONE]
        if not read:
            raise RefusedError(Refused(topic, partition, "nothing_read", "no copy of it could be read"))
        sources = [Source.of(self._plan_of[id(replica.context)], replica, result.findings, deep=self._deep) for replica in read]
        return self._chooser.choose(sources, planned, result, reader)

    def _chosen_of_controllers(self, replicas: list[Replica], result: PartitionResult) -> _Chosen:
        """Choose the controllers' log. Raises RefusedError, SourceError."""
        read = read_copies(self._inputs, replicas[0].context.partition).copies
        of_context = {id(copy.plan.context): copy for copy in read}
        copies = []
        for replica in replicas:
            source = Source.of(self._plan_of[id(replica.context)], replica, result.findings, deep=self._deep)
            copies.append(quorum_copy(source, of_context[id(replica.context)]))
        log = controllers_log.choose(copies)
        if rejected := [one for one in self.witnesses.findings if one.kind == "METADATA_RECORD_REJECTED"]:
            hint = "`kafka-forensics scan` says which record it is, and why"
            offsets = tuple((one.place.offset_start or 0, one.place.offset_end or 0) for one in rejected)
            reason = f"controllers stop at its record {offsets[0][0]}, which they cannot apply"
            raise RefusedError(Refused(CLUSTER_METADATA_TOPIC, 0, controllers_log.KIND, reason, hint, offsets))
        chosen = self._chosen_of(Choice(log.lineage, "quorum", [log.base.source], None, slices=log.slices))
        chosen.partition.quorum, chosen.partition.unseen, chosen.metadata = log.quorum, log.unseen, log
        return chosen

    def _chosen_of(self, choice: Choice) -> _Chosen:
        """What is to be written of a partition."""
        lineage = choice.lineage
        base = choice.sources[lineage.base].plan.context
        topic_id = _topic_id(choice.sources) or (controllers_log.TOPIC_ID if base.topic == CLUSTER_METADATA_TOPIC else None)
        interval = index_interval(None if base.control is None else base.control.setting("index.interval.bytes"))
        replica = choice.sources[lineage.base].replica
        epochs = known_epochs(lineage, choice.sources[lineage.base]) if choice.is_cleaned else remote_epochs(replica, lineage)
        if choice.is_cleaned:
            self._cleaned[base.topic, base.partition] = first_dirty_offset(lineage, choice.sources[lineage.base])
        absent_of_plan = () if choice.planned is None else choice.planned.plan.missing
        missing = [absent for absent in absent_of_plan if absent.kind in UNSEEN or absent.kind == "topic_unknown"]
        partition = SalvagedPartition(
            base.topic,
            base.partition,
            topic_id,
            base.broker,
            choice.chosen_by,
            replica.log_start_offset if replica.is_tiered else lineage.log_start_offset,
            lineage.log_start_offset,
            lineage.log_end_offset,
            _high_watermark(choice),
            gaps=[
                Gap(start, end, _damaged_on(choice, start, NO_END if end is None else end))
                for start, end in open_ended(lineage.gaps)
            ],
            left_behind=list(lineage.left_behind),
            unseen=[
                *(absent.kind if absent.broker is None else f"{absent.kind}:{absent.broker}" for absent in missing),
                *([NO_TOPIC_ID] if topic_id is None and _under_kraft(choice.sources) else ()),
            ],
            warning=choice.warning,
        )
        self._log_starts[base.topic, base.partition] = log_start_line(replica, lineage)
        plans = [source.plan for source in choice.sources]
        producers = producers_before(self._inputs, choice.sources[lineage.base], lineage)
        settings = PartitionSettings(topic_id, interval, self._deep, epochs, producers)
        return _Chosen(partition, choice.slices, plans, lineage, settings)

    def find_places(self) -> None:
        """Find the log directories of every partition; refuse those that belong to none that was given."""
        controller = self.witnesses.controller
        voters = next((chosen.metadata.directories for chosen in self._chosen if chosen.metadata is not None), {})
        self.salvaged.log_dirs = target_dirs(self._inputs, controller, voters)
        for chosen in self._chosen:
            key = chosen.partition.topic, chosen.partition.partition
            chosen.places = places_of(key, self.salvaged.log_dirs, controller)
            if not chosen.places:
                reason = "the controllers' log assigns it to log directories that were not given"
                hint = "give them, or an empty directory for a disk that is replaced: N=DIR"
                self.salvaged.refused.append(Refused(*key, "no_log_dir", reason, hint))
        self._chosen = [chosen for chosen in self._chosen if chosen.places]
        self.salvaged.bytes_to_write = sum(chosen.size_in_bytes * len(chosen.places) for chosen in self._chosen)

    def write(self) -> None:
        """Write every partition once. Raises OSError."""
        (self._directory / BUILT).mkdir()
        for chosen in self._chosen:
            partition = chosen.partition
            try:
                self._write(chosen)
                self.salvaged.partitions.append(partition)
            except (SourceError, CopyChangedError) as error:
                self._refuse(partition.topic, partition.partition, error)

    def _write(self, chosen: _Chosen) -> None:
        """Write a partition. Raises SourceError, CopyChangedError, OSError."""
        partition = chosen.partition
        directory = self._place_of(partition.topic, partition.partition)
        directory.mkdir(parents=True)
        written = write_partition(directory, chosen.slices, chosen.plans, chosen.lineage, chosen.settings, self._sealing)
        self._written[partition.topic, partition.partition] = written
        partition.leader_epochs, partition.segments = written.epochs, written.segments
        partition.size_in_bytes = written.size_in_bytes
        partition.passed_limits = tuple(_passed_limits(chosen, written, self.witnesses.controller))
        if chosen.metadata is not None:
            partition.files = chosen.metadata.write_beside(directory)

    def refuse_unread(self, result: ScanResult, *, allow_gaps: bool) -> None:
        """Refuse partitions of which no copy was looked at, or none is here; with `allow_gaps` brokers begin the latter empty."""
        known = {(chosen.partition.topic, chosen.partition.partition) for chosen in self._chosen}
        known |= {(refused.topic, refused.partition) for refused in self.salvaged.refused}
        for partition in result.partitions:
            if (partition.topic, partition.partition) not in known and fits((partition.topic, partition.partition), self._options):
                reason = "no copy of it could be read"
                self.salvaged.refused.append(Refused(partition.topic, partition.partition, "nothing_read", reason))
        ledger = ledger_of(self._inputs, self.witnesses.controller, self._options.copied)
        into = self.salvaged.begun_empty if allow_gaps else self.salvaged.refused
        for key, rows in partitions_without_copy(self._inputs, ledger).items():
            if fits(key, self._options):
                control = self.witnesses.control(*key)
                is_tiered = REMOTE_LOG_METADATA_TOPIC in rows[0].expected_by or (control is not None and control.is_tiered)
                into.append(_no_copy(key, rows, is_tiered=is_tiered))

    def write_checkpoints(self, directory: Path, keys: list[tuple[str, int]], given: Iterable[LogDir]) -> None:
        """Write what a log directory has once, of some partitions. Recovery begins at the start of each log. Refused partitions
        keep the lines of the directory that was `given`: without them Kafka would recover a log from its start, and cut it.

        Of the controllers' log nothing stands there: it is recovered whole, and begins with its first segment (KafkaRaftLog).
        """
        written = {(one.topic, one.partition): one for one in self.salvaged.partitions if one.topic != CLUSTER_METADATA_TOPIC}
        partitions = [written[key] for key in keys if key in written]
        refused = {(one.topic, one.partition) for one in self.salvaged.refused}
        files = {
            RECOVERY_POINT_FILE: {(one.topic, one.partition): one.local_log_start_offset for one in partitions},
            LOG_START_FILE: {key: start for key in written if (start := self._log_starts[key]) is not None and key in keys},
            HIGH_WATERMARK_FILE: {
                (one.topic, one.partition): one.high_watermark for one in partitions if one.high_watermark is not None
            },
            CLEANER_FILE: {key: self._cleaned[key] for one in partitions if (key := (one.topic, one.partition)) in self._cleaned},
        }
        for name, offsets in files.items():
            lines = [log_dir.checkpoints[name].offsets for log_dir in given if name in log_dir.checkpoints]
            kept = {key: offset for named in lines for key, offset in named.items() if key in refused}
            write_file(directory / name, write_offset_checkpoint(kept | offsets))
        if (self._directory / APART).exists() and directory.name == BUILT:
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

    def put_in_places(self) -> None:
        """Put every partition that stands in its log directories, and beside them what each directory has once. Raises OSError."""
        standing = {(one.topic, one.partition): one for one in self.salvaged.partitions}
        written = [chosen for chosen in self._chosen if (chosen.partition.topic, chosen.partition.partition) in standing]
        for chosen in written:
            partition = chosen.partition
            partition.replicas = [(target.node, target.directory) for target in chosen.places]
            for target in chosen.places:
                target.partitions.append((partition.topic, partition.partition))
                target.size_in_bytes += partition.size_in_bytes
        wanted = [target for target in self.salvaged.log_dirs if target.partitions or not target.is_of_controller]
        self.salvaged.log_dirs = wanted if written else []
        for target in self.salvaged.log_dirs:
            directory = self._directory / target.directory
            directory.mkdir(parents=True)
            for name, data in target.files.items():
                write_file(directory / name, data)
            if not target.is_of_controller:
                self.write_checkpoints(directory, target.partitions, target.given)
        for chosen in written:
            built = self._place_of(chosen.partition.topic, chosen.partition.partition)
            put_partition(built, [self._directory / target.directory / built.name for target in chosen.places])
        for name in (BUILT, APART):
            shutil.rmtree(self._directory / name, ignore_errors=True)

    def _remove(self, topic: str, partition: int) -> None:
        place = self._place_of(topic, partition)
        if place.exists():
            shutil.rmtree(place)

    def _place_of(self, topic: str, partition: int) -> Path:
        """Where a partition is built: the controllers' log apart, for it bears witness, and what it says of others is not asked."""
        return self._directory / (APART if topic == CLUSTER_METADATA_TOPIC else BUILT) / f"{topic}-{partition}"


def _no_copy(key: tuple[str, int], rows: list[ExpectedReplica], *, is_tiered: bool) -> Refused:
    """A partition of which no copy is here, and who says that there should be one."""
    best = max(rows, key=lambda row: row.high_watermark or 0)
    reason = f"the controllers' log assigns it to broker {listed(str(row.broker) for row in rows)}"
    if best.high_watermark:
        reason = f"{HIGH_WATERMARK_FILE} of broker {best.broker} gives it {best.high_watermark} committed offsets"
    elif REMOTE_LOG_METADATA_TOPIC in best.expected_by:
        reason = f"broker {best.broker} copied segments of it to remote storage, as {REMOTE_LOG_METADATA_TOPIC} says"
    if key[0] == REMOTE_LOG_METADATA_TOPIC:
        reason += "; without it brokers know no remote segment that it lists"
    hint = "give further copies: other brokers, other log directories, backups; or --allow-gaps: brokers then begin it empty"
    brokers = tuple(row.broker for row in rows)
    return Refused(*key, "no_copy", f"no copy of it is here, though {reason}", hint, brokers=brokers, is_tiered=is_tiered)


def _comes_back(finding: Finding, salvaged: Salvaged) -> bool:
    """Whether a finding is about a small file that is not built: it comes from the copy, or from the directory moved aside."""
    file, log_dir = finding.place.file or "", (finding.place.log_dir or "").rstrip("/")
    if file == META_PROPERTIES:
        return any(target.meta_properties is None and target.log_dir == log_dir for target in salvaged.log_dirs)
    is_refused = any(one.topic == CLUSTER_METADATA_TOPIC for one in salvaged.refused)
    return file == BOOTSTRAP or (is_refused and file.startswith(f"{CLUSTER_METADATA_TOPIC}-0/"))


def _topic_id(sources: list[Source]) -> str | None:
    """The topic's id: of a copy that has it, else by the controllers' log. Brokers under KRaft set a log without one aside as a
    stray, and begin anew (`LogManager.isStrayKraftReplica`)."""
    contexts = [source.plan.context for source in sources]
    told = [context.topic_id for context in contexts]
    told += [context.control.topic_id for context in contexts if context.control is not None]
    return next((topic_id for topic_id in told if topic_id), None)


def _passed_limits(chosen: _Chosen, written: Written, controller: ControllerHistory | None) -> Iterator[PassedLimit]:
    """The limits of retention over which brokers would delete the first segment of a log by now.

    The controllers' log has limits of its own, and internal topics have the settings that brokers made them with: where these are
    not known, Kafka's defaults do not hold for them.
    """
    context = chosen.plans[chosen.lineage.base].context
    control, now = context.control, int(time.time() * 1000)
    policy = None if control is None else control.setting("cleanup.policy")
    if "delete" not in (policy or ("compact" if context.compacted or context.topic in INTERNAL_TOPICS else "delete")):
        return
    first = _first_remote_segment(chosen, context) if context.is_tiered else _first_segment(written, now)
    if first is None or context.topic == CLUSTER_METADATA_TOPIC:
        return
    timestamp, remaining_bytes = first
    retention, settings = retention_for(control), {} if control is None else control.configs
    by_time, by_size = Retention(retention.retention_ms, -1), Retention(-1, retention.retention_bytes)
    for name, limit, value in (("ms", by_time, by_time.retention_ms), ("bytes", by_size, by_size.retention_bytes)):
        setting = f"retention.{name}"
        holds = setting in settings or context.topic not in WITNESS_TOPICS
        if holds and explains(limit, timestamp, now, remaining_bytes):
            known = None if control is None else control.setting(setting)
            of_topic_is_known = control is not None and controller is not None and controller.is_complete
            yield PassedLimit(setting, value, known is not None, settings.get(setting), of_topic_is_known)


def _first_segment(written: Written, now_ms: int) -> tuple[int, int] | None:
    """The largest timestamp of the first segment and the bytes of the others; of records without a time the file's counts, which
    is new. None: there is no segment."""
    timestamp, size_in_bytes = written.first_segment
    return (now_ms if timestamp < 0 else timestamp, written.size_in_bytes - size_in_bytes) if written.segments else None


def _first_remote_segment(chosen: _Chosen, context: ReplicaContext) -> tuple[int, int] | None:
    """The largest timestamp of the oldest remote segment of a tiered topic, whose leader deletes by the whole limits there
    (RemoteLogManager), and the bytes of the others with those that are on disk alone. None: no remote segment is known.

    What the local limits delete is in remote storage.
    """
    segments = () if context.remote_log is None else context.remote_log.finished
    if not segments:
        return None
    end_offset = max(segment.end_offset for segment in segments) + 1
    local = sum(part.size_in_bytes for part in chosen.slices if part.start_offset >= end_offset)
    oldest = min(segments, key=lambda segment: segment.start_offset)
    return oldest.max_timestamp_ms, local + sum(segment.size_in_bytes for segment in segments) - oldest.size_in_bytes


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
