"""Writes log directories on which brokers start from copies of log directories.

While the scan runs, the salvage chooses what each partition consists of, or refuses it. Then it writes every partition once, scans
the result, refuses what the scan finds damaged, and moves the others to the log directories they belong to.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.epochs import add_remote_epochs
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import lacks_remote_epochs, retention_for
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan, gather
from kafka_forensics.evidence.ledger import ExpectedReplica, Ledger, Presence
from kafka_forensics.evidence.options import ScanOptions, fits, listed
from kafka_forensics.model.amounts import size
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.files import LeaderEpochs
from kafka_forensics.model.findings import Finding, Place, Severity, TopicPartition
from kafka_forensics.model.json_objects import json_text
from kafka_forensics.model.offset_ranges import clipped, normalised, offset_ranges, without
from kafka_forensics.model.remote_log import RemoteLogHistory, RemoteSegment
from kafka_forensics.model.results import ReadExtent, ScanResult
from kafka_forensics.questions.plan import PlanMaker, PlanOptions, name_of_copy, require_matching_node_ids
from kafka_forensics.questions.salvage import controllers_log
from kafka_forensics.questions.salvage.choosing import SalvageOptions, choose
from kafka_forensics.questions.salvage.controllers_log import ControllersLog
from kafka_forensics.questions.salvage.copy_and_hash import CopyAndHash
from kafka_forensics.questions.salvage.lineage import LogLineage
from kafka_forensics.questions.salvage.log_dirs import METADATA_LOG, TargetDir, put_partition, target_dirs, targets_of
from kafka_forensics.questions.salvage.manifest import (
    ELECTION_FILE,
    MANIFEST,
    NO_TOPIC_ID,
    LogGap,
    PassedLimit,
    Refused,
    RefusedError,
    Salvaged,
    SalvagedPartition,
    document,
    open_ended,
)
from kafka_forensics.questions.salvage.origins import SegmentOrigin, copy_origin
from kafka_forensics.questions.salvage.output_findings import InputFindings
from kafka_forensics.questions.salvage.partition_files import (
    CopyChangedError,
    PartitionSettings,
    WrittenLog,
    write_file,
    write_partition,
)
from kafka_forensics.questions.salvage.rebuilding import index_interval
from kafka_forensics.questions.salvage.remote_parts import log_start_line, producers_before, remote_epochs
from kafka_forensics.questions.salvage.remote_records import remote_slices, store_origins
from kafka_forensics.questions.salvage.restoring import LEFT_OUT, Restorer, lacking, log_start_of
from kafka_forensics.questions.salvage.slices import Choice, SegmentSlice, SourceCopy
from kafka_forensics.questions.salvage.target import output_directory
from kafka_forensics.questions.salvage.whole_copies import first_dirty_offset, known_epochs
from kafka_forensics.replication.planner import MAY_HIDE_RECORDS, NO_END, Broker
from kafka_forensics.replication.recovery import CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafka_forensics.replication.remote_segments import is_in_lineage
from kafka_forensics.replication.retention import Retention, explains
from kafka_forensics.replication.small_files import BOOTSTRAP, META_PROPERTIES
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.absence import ledger_of, lost_partitions
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.judging.quorum import blocks_controllers
from kafka_forensics.scanning.judging.whole_scan import is_deep
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.controller_copies import read_copies
from kafka_forensics.scanning.witnesses.remote_stores import RemoteStores, is_of_this_cluster, list_remote_stores
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.writers.files import write_offset_checkpoint

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import RemoteHoleEvidence

BUILD_DIR: Final = ".built"
"""Directory of the output in which partitions are built until all of them are scanned."""
CONTROLLERS_BUILD_DIR: Final = ".controllers"
"""The same for the controllers' log. It is scanned separately, or the scan would expect the replicas that it lists."""
WHOLE_HINT: Final = "copy the whole log directory; or use --whole if the missing files are lost"
NAME: Final = "salvage"
"""Broker name of the output in its scan."""


def salvage(
    paths: list[str],
    output: Path,
    options: ScanOptions,
    salvage_options: SalvageOptions,
    progress: Progress | None = None,
    announce: Callable[[Salvaged], None] = lambda _: None,
) -> Salvaged:
    """Write to `output`, which is new or empty, a log directory for each given one, with the best log of every partition that
    `options` select. `announce` is called before anything is written.

    Raises UsageError for invalid paths, for a bundle (it has no records), for a preferred broker without a copy, for an empty log
    directory of an unknown node, and if the output cannot be written or its disk is too small.
    """
    inputs = gather(paths, options, scanned=True)
    require_matching_node_ids(inputs)
    salvaged = Salvaged(str(output), from_store=salvage_options.from_store, options=salvage_options.words)
    if salvage_options.prefer_broker is not None:
        salvage_options = replace(salvage_options, prefer_broker=name_of_copy(salvage_options.prefer_broker, inputs))
    _check_inputs(inputs, salvage_options)
    with output_directory(output) as directory, CopyAndHash() as copier:
        salvager = _Salvager(inputs, options, salvage_options, salvaged, directory, copier)
        if salvager.foreign_store and (salvage_options.from_store or salvage_options.rebuild_metadata):
            raise UsageError(salvager.foreign_store, hint="give the remote store of this cluster")
        result = scan_inputs(inputs, options, progress, salvager.add, salvager.witnesses)
        salvaged.incomplete, salvaged.rerun_arguments = result.incomplete, result.rerun_arguments
        salvaged.is_selection = (options.topic_glob, options.partition, options.broker) != (None, None, None)
        salvaged.is_kraft = any(log_dir.meta is not None and log_dir.meta.version == 1 for log_dir in inputs.log_dirs)
        if salvager.witnesses.controller is not None:
            salvaged.controller_voters = frozenset(salvager.witnesses.controller.voters or ())
        salvager.refuse_unread(result)
        salvager.find_targets()
        free = shutil.disk_usage(directory).free
        if salvaged.bytes_to_write > free:
            text = f"{output} needs {size(salvaged.bytes_to_write)}, but its disk has {size(free)} free"
            raise UsageError(text, hint="choose a directory on another disk, or make room")
        announce(salvaged)
        salvager.write()
        salvager.check(result)
        salvager.move_to_targets()
        _finish(salvaged, result, inputs)
        to_elect = [{"topic": topic, "partition": partition} for topic, partition in salvaged.to_elect()]
        write_file(directory / ELECTION_FILE, json_text({"partitions": to_elect}).encode())
        write_file(directory / MANIFEST, f"{json_text(document(salvaged))}\n".encode())
    return salvaged


def _check_inputs(inputs: Inputs, salvage_options: SalvageOptions) -> None:
    bundle = next((source for source in inputs.sources if isinstance(source, BundleSource)), None)
    if bundle is not None:
        raise UsageError(f"{bundle.name} is a bundle, which has no records", hint="give the log directories")
    prefer = salvage_options.prefer_broker
    names = list(dict.fromkeys(str(plan.context.broker) for plan in inputs.replicas))
    flags = {"--from-store": salvage_options.from_store, "--rebuild-metadata": salvage_options.rebuild_metadata}
    for flag in [flag for flag, is_set in flags.items() if is_set and not inputs.store_places]:
        raise UsageError(f"{flag} needs a remote store among the paths", hint="give the directory or bucket with its objects")
    if prefer is not None and prefer not in names:
        raise UsageError(f"no copy belongs to broker {prefer}", hint=f"brokers here: {listed(names)}")


def _finish(salvaged: Salvaged, result: ScanResult, inputs: Inputs) -> None:
    """Add what must be repaired before a start, and sort the refused partitions."""
    salvaged.files_to_repair = [
        finding for finding in result.findings if finding.evidence.get("starts") is False and _is_kept(finding, salvaged)
    ]
    if any(refused.topic == CLUSTER_METADATA_TOPIC for refused in salvaged.refused):
        salvaged.controller_findings = [finding for finding in result.findings if blocks_controllers(finding)]
    tiered = {plan.context.topic_partition for plan in inputs.replicas if plan.context.is_tiered}
    salvaged.refused = [
        replace(refused, is_tiered=refused.is_tiered or refused.key in tiered)
        for refused in sorted(salvaged.refused, key=lambda refused: refused.key)
    ]


class _PartitionToWrite(Struct):
    """A partition to be written; it does not hold the folded replicas, which would need too much memory."""

    partition: SalvagedPartition
    slices: list[SegmentSlice]
    plans: list[ReplicaPlan]
    lineage: LogLineage
    settings: PartitionSettings
    log_start: int | None
    """Its line in `log-start-offset-checkpoint`."""
    first_dirty_offset: int | None
    """Its line in `cleaner-offset-checkpoint`."""
    origins: list[SegmentOrigin] = field(default_factory=list)
    """Of a partition that no copy has."""
    remote: Sequence[RemoteSegment] | None = None
    """Its remote segments; None if it is not tiered."""
    metadata: ControllersLog | None = None
    targets: list[TargetDir] = field(default_factory=list)
    written: WrittenLog | None = None


class _Salvager:
    """Chooses what each partition consists of when the scan has judged it, and then writes all partitions."""

    def __init__(
        self,
        inputs: Inputs,
        options: ScanOptions,
        salvage_options: SalvageOptions,
        salvaged: Salvaged,
        directory: Path,
        copier: CopyAndHash,
    ) -> None:
        self.witnesses = read_witnesses(inputs)
        self._salvaged = salvaged
        self._maker = PlanMaker(inputs, self.witnesses, PlanOptions(counted=False))
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}
        self._inputs, self._options, self._salvage_options = inputs, options, salvage_options
        self._directory, self._copier = directory, copier
        self._partitions: list[_PartitionToWrite] = []
        self._deep = is_deep(options.deep, sum(plan.bytes for plan in inputs.replicas))

    def add(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Choose what a partition consists of, by its judged replicas, or refuse it."""
        key = replicas[0].context.topic, replicas[0].context.partition
        try:
            if key[0] == CLUSTER_METADATA_TOPIC:
                self._add_controllers_log(replicas, result)
            else:
                for replica in replicas:
                    self._take_epochs_from_store(replica)
                planned = self._maker.plan_of(replicas, reader, result)
                read = [replica for replica in self._maker.present(replicas)[0] if replica.read is not ReadExtent.NONE]
                sources = [self._source(replica, result) for replica in read]
                self._partitions.append(self._to_write(choose(sources, planned, result, reader, self._salvage_options)))
        except RefusedError as error:
            self._salvaged.refused.append(error.refused)
        except SourceError as error:
            self._refuse(key, error)

    def _source(self, replica: Replica, result: PartitionResult) -> SourceCopy:
        return SourceCopy.of(self._plan_of[id(replica.context)], replica, result.findings, deep=self._deep)

    def _refuse(self, key: TopicPartition, error: SourceError | CopyChangedError) -> None:
        self._remove(key)
        kind = "not_readable" if isinstance(error, SourceError) else "not_sound"
        self._salvaged.refused.append(Refused(*key, kind, str(error), error.hint))

    def _add_controllers_log(self, replicas: list[Replica], result: PartitionResult) -> None:
        """Choose the copy of the controllers' log. Raises RefusedError, SourceError."""
        copies = {id(copy.plan.context): copy for copy in read_copies(self._inputs, replicas[0].context.partition).copies}
        sources = [self._source(replica, result) for replica in replicas]
        log = controllers_log.choose([controllers_log.quorum_copy(source, copies[id(source.plan.context)]) for source in sources])
        if rejected := [finding for finding in self.witnesses.findings if finding.kind == "METADATA_RECORD_REJECTED"]:
            hint = "`scan` shows the record and the reason"
            offsets = tuple((finding.place.offset_start or 0, finding.place.offset_end or 0) for finding in rejected)
            reason = f"controllers stop at its record {offsets[0][0]}, which they cannot apply"
            raise RefusedError(Refused(*METADATA_LOG, controllers_log.KIND, reason, hint, offsets))
        to_write = self._to_write(Choice(log.lineage, "quorum", [log.base.source], None, slices=log.slices))
        to_write.partition.quorum, to_write.partition.unseen, to_write.metadata = log.quorum, log.unseen, log
        self._partitions.append(to_write)

    def _to_write(self, choice: Choice) -> _PartitionToWrite:
        lineage, base = choice.lineage, choice.sources[choice.lineage.base]
        context, replica = base.plan.context, base.replica
        topic_id = _topic_id(choice.sources) or (controllers_log.TOPIC_ID if context.topic == CLUSTER_METADATA_TOPIC else None)
        missing = [] if choice.planned is None else choice.planned.plan.missing
        unseen = [absent for absent in missing if absent.kind in MAY_HIDE_RECORDS or absent.kind == "topic_unknown"]
        partition = SalvagedPartition(
            *base.key,
            topic_id,
            base.broker,
            choice.chosen_by,
            replica.log_start_offset if replica.is_tiered else lineage.log_start_offset,
            lineage.log_start_offset,
            lineage.log_end_offset,
            _high_watermark(choice),
            gaps=[LogGap(start, end, _damaged_on(choice, start, end)) for start, end in open_ended(lineage.gaps)],
            left_behind=list(lineage.left_behind),
            unseen=[
                *(absent.kind if absent.broker is None else f"{absent.kind}:{absent.broker}" for absent in unseen),
                *([NO_TOPIC_ID] if topic_id is None and _under_kraft(choice.sources) else ()),
            ],
            warning=choice.warning,
        )
        settings = PartitionSettings(
            topic_id,
            index_interval(None if context.control is None else context.control.setting("index.interval.bytes")),
            self._deep,
            known_epochs(lineage, base) if choice.is_cleaned else remote_epochs(replica, lineage),
            producers_before(self._inputs, base, lineage),
        )
        plans = [source.plan for source in choice.sources]
        dirty = first_dirty_offset(lineage, base) if choice.is_cleaned else None
        remote = () if context.remote_log is None else context.remote_log.finished
        to_write = _PartitionToWrite(partition, choice.slices, plans, lineage, settings, log_start_line(replica, lineage), dirty)
        to_write.remote = remote if context.is_tiered else None
        return to_write

    def find_targets(self) -> None:
        """Find the log directories of every partition; refuse partitions that belong to none of the given ones."""
        controller = self.witnesses.controller
        voters = next((to_write.metadata.directories for to_write in self._partitions if to_write.metadata is not None), {})
        self._salvaged.log_dirs = target_dirs(self._inputs, controller, voters)
        for to_write in self._partitions:
            to_write.targets = targets_of(to_write.partition.key, self._salvaged.log_dirs, controller)
            if not to_write.targets:
                reason = "the controllers' log assigns it to log directories that were not given"
                hint = "give them, or an empty directory for a replaced disk: N=DIR"
                self._salvaged.refused.append(Refused(*to_write.partition.key, "no_log_dir", reason, hint))
        self._partitions = [to_write for to_write in self._partitions if to_write.targets]
        used = {id(target) for to_write in self._partitions for target in to_write.targets}
        self._salvaged.log_dirs = [
            target for target in self._salvaged.log_dirs if id(target) in used or not target.is_only_of_controller
        ]
        self._salvaged.bytes_to_write = sum(
            part.size_in_bytes * len(to_write.targets) for to_write in self._partitions for part in to_write.slices
        )

    def write(self) -> None:
        """Write every partition once. Raises OSError."""
        (self._directory / BUILD_DIR).mkdir()
        for to_write in self._partitions:
            try:
                self._write(to_write)
            except (SourceError, CopyChangedError) as error:
                to_write.written = None
                self._refuse(to_write.partition.key, error)
        self._set_partitions([to_write for to_write in self._partitions if to_write.written is not None])
        self._write_checkpoints(self._directory / BUILD_DIR, self._partitions, ())
        if (self._directory / CONTROLLERS_BUILD_DIR).exists():
            (self._directory / CONTROLLERS_BUILD_DIR / RECOVERY_POINT_FILE).write_bytes(write_offset_checkpoint({}))

    def _set_partitions(self, partitions: list[_PartitionToWrite]) -> None:
        self._partitions = partitions
        self._salvaged.partitions = [to_write.partition for to_write in partitions]

    def _write(self, to_write: _PartitionToWrite) -> None:
        """Write a partition. Raises SourceError, CopyChangedError, OSError."""
        partition = to_write.partition
        directory = self._build_place(partition.key)
        directory.mkdir(parents=True)
        origins = to_write.origins or [copy_origin(plan) for plan in to_write.plans]
        written = write_partition(directory, to_write.slices, origins, to_write.lineage, to_write.settings, self._copier)
        to_write.written = written
        partition.leader_epochs, partition.segments = written.epochs, written.segments
        partition.size_in_bytes = written.size_in_bytes
        partition.passed_limits = tuple(_passed_limits(to_write, written, self.witnesses.controller))
        if to_write.metadata is not None:
            partition.files = to_write.metadata.write_beside(directory)

    def refuse_unread(self, result: ScanResult) -> None:
        """Refuse partitions whose copies were not read, and those without a copy; if gaps are allowed, the latter start empty, but
        for those that may have remote segments, which brokers would delete."""
        handled = {to_write.partition.key for to_write in self._partitions} | {refused.key for refused in self._salvaged.refused}
        for partition in result.partitions:
            key = partition.topic, partition.partition
            if key not in handled and fits(key, self._options):
                self._salvaged.refused.append(Refused(*key, "nothing_read", "no copy of it could be read"))
        without_copy = self._salvaged.started_empty if self._salvage_options.allow_gaps else self._salvaged.refused
        lost = {key: rows for key, rows in self._lost.items() if fits(key, self._options)}
        if not self._salvage_options.from_store:
            self._keep_remote_parts()
        restored = self._restore(lost)
        if self._salvage_options.from_store:
            self._take_remote_records()
        for key, rows in lost.items():
            is_unneeded = self._salvage_options.from_store and key[0] == REMOTE_LOG_METADATA_TOPIC
            if key not in restored and not is_unneeded:
                is_tiered = self._is_tiered(rows[0]) and not self._restorer.has_nothing_remote(key)
                refusal = _no_copy(key, rows, is_tiered=is_tiered, has_store=bool(self._restorer.stores))
                if self.foreign_store and (is_tiered or key[0] == REMOTE_LOG_METADATA_TOPIC):
                    refusal = replace(refusal, reason=f"{refusal.reason}; {self.foreign_store}")
                (self._salvaged.refused if is_tiered else without_copy).append(refusal)
        refused = {refusal.key for refusal in (*without_copy, *self._salvaged.refused)}
        for row in self._ledger.without_copy():
            key = row.key
            if (
                row.presence is Presence.NOT_COPIED
                and self._is_tiered(row)
                and fits(key, self._options)
                and key not in handled | refused
            ):
                refused.add(key)
                reason = f"it is not in the copy of broker {row.broker}, which seems to be only a part of its log directory"
                self._salvaged.refused.append(Refused(*key, "no_copy", reason, WHOLE_HINT, brokers=(row.broker,), is_tiered=True))

    def _is_tiered(self, row: ExpectedReplica) -> bool:
        """Whether an expected replica is of a tiered topic."""
        control = self.witnesses.control(*row.key)
        return REMOTE_LOG_METADATA_TOPIC in row.expected_by or (control is not None and control.is_tiered)

    @cached_property
    def _lost(self) -> dict[TopicPartition, list[ExpectedReplica]]:
        """The partitions that no copy has."""
        return lost_partitions(self._inputs, self._ledger)

    @cached_property
    def _ledger(self) -> Ledger:
        return ledger_of(self._inputs, self.witnesses.controller, self._options.copied)

    @cached_property
    def foreign_store(self) -> str | None:
        """Why nothing is taken from the stores; None if they are of this cluster, or none was given."""
        stores, controller = list_remote_stores(self._inputs), self.witnesses.controller
        if is_of_this_cluster(self._inputs, stores, () if controller is None else controller.topics):
            return None
        return f"{stores.names} has no topic id of these copies: does the store belong to another cluster?"

    @cached_property
    def _restorer(self) -> Restorer:
        stores = RemoteStores() if self.foreign_store else list_remote_stores(self._inputs)
        options, copied = self._salvage_options, [plan.context.topic_partition for plan in self._inputs.internal]
        keys = (*self._lost, *(copied if options.rebuild_metadata else ())) if stores else ()
        metadata = {partition for topic, partition in keys if topic == REMOTE_LOG_METADATA_TOPIC}
        return Restorer(self._inputs, self.witnesses, stores, metadata, options.metadata_partitions, options.from_store)

    def _take_epochs_from_store(self, replica: Replica) -> None:
        """Set the epochs of the remote part of a replica whose leader-epoch-checkpoint lacks them."""
        if not replica.is_tiered or not lacks_remote_epochs(replica):
            return
        epochs, start = replica.epochs, replica.local_log_start_offset
        lineage = self._restorer.remote_part(replica.context, start, epochs)
        if lineage is not None:
            replica.epochs = add_remote_epochs(epochs, lineage.epochs, start)
            replica.context.leader_epochs = LeaderEpochs(replica.epochs)

    def _keep_remote_parts(self) -> None:
        """Give logs whose remote segments brokers will know again by the rebuilt `__remote_log_metadata` the epochs and the start
        of these: brokers that ran without it have cut them away."""
        for to_write in self._partitions if self._restorer.rebuilt else ():
            if not to_write.plans:
                continue
            context, start = to_write.plans[to_write.lineage.base].context, to_write.lineage.log_start_offset
            if not context.is_tiered:
                continue
            begin, key = to_write.partition.log_start_offset, to_write.partition.key
            is_rebuilt = self._restorer.is_rebuilt(context)
            lineage = self._restorer.remote_part(context, start, context.epoch_checkpoint or ()) if is_rebuilt else None
            if lineage is None:
                self._restorer.require(key, to_write.partition.topic_id, ((begin, start),) if begin < start else ())
                continue
            after = (segment for segment in self._restorer.remote_segments(context) if segment.start_offset >= start)
            to_write.remote = [*lineage.segments, *after]
            to_write.log_start = log_start_of(lineage, to_write.log_start, is_rebuilt=True)
            if not any(entry.start_offset <= to_write.log_start for entry in to_write.settings.epochs or ()):
                to_write.settings = replace(to_write.settings, epochs=list(lineage.epochs))
            is_start_known = context.log_start_checkpoint is not None or bool(context.epoch_checkpoint)
            to_write.partition.log_start_offset = to_write.log_start
            self._restorer.set_log_start(lineage, (str(to_write.partition.topic_id), context.partition), to_write.log_start)
            begin = min(begin, to_write.log_start) if is_start_known else to_write.log_start
            if gaps := without([(begin, start)], lineage.stored):
                self._restorer.require(key, to_write.partition.topic_id, gaps)
                to_write.partition.warning = f"remote storage lacks {offset_ranges(gaps)} of it; readers do not get them"
            elif lineage.segments[0].end_offset < to_write.log_start:
                to_write.partition.warning = LEFT_OUT

    def _take_remote_records(self) -> None:
        """Put the records of remote segments before those of local ones; leave out what only brokers with remote storage need."""
        kept = []
        for to_write in self._partitions:
            context = to_write.plans[to_write.lineage.base].context if to_write.plans else None
            try:
                if context is not None and context.is_tiered:
                    self._prepend_remote_records(to_write, context)
            except RefusedError as error:
                self._salvaged.refused.append(error.refused)
                continue
            if to_write.partition.topic != REMOTE_LOG_METADATA_TOPIC:
                kept.append(to_write)
        self._partitions = kept

    def _prepend_remote_records(self, to_write: _PartitionToWrite, context: ReplicaContext) -> None:
        """Make a plain log of a tiered one. Raises RefusedError if offsets are lost and gaps are not allowed."""
        partition, local_start = to_write.partition, to_write.lineage.log_start_offset
        stored = self._restorer.stored_of(partition.key, partition.topic_id)
        lineage = self._restorer.remote_part(context, local_start, context.epoch_checkpoint or ())
        to_write.origins = [copy_origin(plan) for plan in to_write.plans]
        log_start, unread = partition.log_start_offset, None
        if stored is not None and lineage is not None:
            log_start = log_start_of(lineage, to_write.log_start, is_rebuilt=self._restorer.is_rebuilt(context))
            origins = store_origins(stored, lineage)
            slices, unread = remote_slices(origins, len(to_write.plans), log_start, local_start, deep=self._deep)
            to_write.origins += origins
            to_write.slices = [*slices, *to_write.slices]
        end = to_write.lineage.log_end_offset
        gaps = without([(log_start, end)], normalised((part.start_offset, part.end_offset) for part in to_write.slices))
        if gaps and not self._salvage_options.allow_gaps:
            raise RefusedError(lacking(partition.key, gaps, unread))
        partition.gaps = [LogGap(*gap) for gap in open_ended(gaps)]
        partition.log_start_offset = partition.local_log_start_offset = log_start
        to_write.lineage = replace(to_write.lineage, log_start_offset=log_start, gaps=gaps)
        to_write.settings = replace(to_write.settings, epochs=None, producers=())
        to_write.log_start, to_write.remote = log_start or None, None

    def _restore(self, lost: Mapping[TopicPartition, list[ExpectedReplica]]) -> set[TopicPartition]:
        """Restore from remote stores what no copy has; the partitions that are restored, or refused."""
        handled, rebuilt = set(), {(REMOTE_LOG_METADATA_TOPIC, number) for number in self._restorer.rebuilt}
        self._partitions = [to_write for to_write in self._partitions if to_write.partition.key not in rebuilt]
        self._salvaged.refused[:] = [refused for refused in self._salvaged.refused if refused.key not in rebuilt]
        for key, rows in lost.items():
            if self._is_tiered(rows[0]) and key[0] != REMOTE_LOG_METADATA_TOPIC:
                self._restorer.require_lost(key, rows)
        for restored in self._restorer.restore(lost, deep=self._deep, allow_gaps=self._salvage_options.allow_gaps):
            key = restored.key if isinstance(restored, Refused) else restored.partition.key
            handled.add(key)
            if isinstance(restored, Refused):
                self._salvaged.refused.append(restored)
            elif fits(key, self._options):
                partition, origins, slices, lineage, settings, log_start, remote = restored
                to_write = _PartitionToWrite(
                    partition, slices, [], lineage, settings, log_start, None, origins=origins, remote=remote
                )
                self._partitions.append(to_write)
        for to_write in self._partitions:
            key = str(to_write.partition.topic_id), to_write.partition.partition
            to_write.partition.remote_segments = self._restorer.taken.get(key, ())
        return handled

    def _write_checkpoints(self, directory: Path, partitions: Sequence[_PartitionToWrite], given: Iterable[LogDir]) -> None:
        """Write the offset checkpoints of a log directory. Recovery starts at the start of each log. Refused partitions keep the
        lines of the `given` directory: without them Kafka would recover a log from its start, and truncate it.

        They do not list the controllers' log, which is recovered whole and starts with its first segment (KafkaRaftLog).
        """
        refused = {refused.key for refused in self._salvaged.refused}
        files: dict[str, dict[TopicPartition, int | None]] = {
            RECOVERY_POINT_FILE: {},
            LOG_START_FILE: {},
            HIGH_WATERMARK_FILE: {},
            CLEANER_FILE: {},
        }
        for to_write in partitions:
            partition = to_write.partition
            if partition.topic != CLUSTER_METADATA_TOPIC:
                offsets = (
                    partition.local_log_start_offset,
                    to_write.log_start,
                    partition.high_watermark,
                    to_write.first_dirty_offset,
                )
                for lines, offset in zip(files.values(), offsets, strict=True):
                    lines[partition.key] = offset
        for name, lines in files.items():
            given_lines = [log_dir.checkpoints[name].offsets for log_dir in given if name in log_dir.checkpoints]
            kept = {key: offset for offsets in given_lines for key, offset in offsets.items() if key in refused}
            current = {key: offset for key, offset in lines.items() if offset is not None}
            write_file(directory / name, write_offset_checkpoint(kept | current))

    def check(self, inputs_result: ScanResult) -> None:
        """Scan what was written. Refuse partitions with wrong bytes, offsets or epochs, and add all other findings."""
        options = ScanOptions(jobs=self._options.jobs, deep=self._deep, cache_dir=self._options.cache_dir)
        folders = dict.fromkeys(self._build_place(to_write.partition.key).parent for to_write in self._partitions)
        outputs = [gather([f"{NAME}={folder}"], options, scanned=True) for folder in folders]
        for output in outputs:
            if any(plan.context.topic == REMOTE_LOG_METADATA_TOPIC for plan in output.internal):
                self._add_listed_stores(output)
        results = [scan_inputs(output, options) for output in outputs]
        history = next((output.remote_log for output in outputs if output.remote_log is not None), None)
        in_copies = InputFindings(inputs_result.findings)
        found: dict[tuple[str | None, int | None], list[Finding]] = {}
        for row in (row for result in results for row in result.findings):
            if row.severity.rank > Severity.INFO.rank:
                found.setdefault((row.place.topic, row.place.partition), []).append(row)
        recoveries = {(row.topic, row.partition): row.replicas[0].recovery for result in results for row in result.partitions}
        of_all = in_copies.classify([row for (_, number), rows in found.items() if number is None for row in rows], ())
        self._salvaged.inherited, self._salvaged.new = of_all.inherited, of_all.new
        accepted = []
        for to_write in self._partitions:
            partition, key = to_write.partition, to_write.partition.key
            gaps = [(gap.start, gap.end) for gap in partition.gaps if gap.end is not None]
            rows = found.get(key, [])
            if not any(row.kind == "REMOTE_LOG_HOLE" for row in rows):
                rows = [*rows, *self._holes(partition, history)]
            if to_write.origins:  # batches without records fill its gaps
                rows = [row for row in rows if without([(row.place.offset_start or 0, row.place.offset_end or NO_END)], gaps)]
            of_partition = in_copies.classify(rows, gaps)
            wrong = sorted({finding.kind for finding in (*of_partition.wrong, *of_all.wrong)})
            recovery = recoveries.get(key)
            if recovery is None or not recovery.starts or recovery.log_end_offset != partition.log_end_offset:
                wrong.append("that a broker would cut it, or not start")
            if wrong:
                reason = f"a scan of the salvaged log finds {listed(wrong)}"
                hint = "scan its copies: they have more damage than the salvage found"
                self._salvaged.refused.append(Refused(*key, "not_sound", reason, hint))
                self._remove(key)
                continue
            partition.inherited, partition.new = of_partition.inherited, of_partition.new
            accepted.append(to_write)
        self._set_partitions(accepted)

    def _add_listed_stores(self, output: Inputs) -> None:
        """Have a scan of the output compare the objects of the stores, as they were listed, with its events; it reads none."""
        stores = self._restorer.stores
        output.stores = list(stores.stores)
        output.store_places = [(store.source, "") for store in stores.stores]
        output.stored = {(stored.log.topic, stored.log.partition) for stored in stores.partitions.values()}

    def _holes(self, partition: SalvagedPartition, history: RemoteLogHistory | None) -> list[Finding]:
        """Offsets before a local log of which the rebuilt `__remote_log_metadata`, as it was written, has no segment."""
        numbers = set() if partition.topic_id is None else self._restorer.rebuilt_for(partition.topic_id, partition.partition)
        if history is None or not partition.has_remote_part or not numbers & history.partitions_read:
            return []
        log, start = history.log_of(*partition.key, partition.topic_id), partition.local_log_start_offset
        finished = [segment for segment in (() if log is None else log.finished) if is_in_lineage(segment, partition.leader_epochs)]
        covered = normalised(segment.offsets for segment in finished)
        evidence: RemoteHoleEvidence = {
            "log_start_offset": partition.log_start_offset,
            "local_log_start_offset": start,
            "leaders": [NAME],
            "held_by": [],
        }
        return [
            finding("REMOTE_LOG_HOLE", Place(*partition.key, offset_start=hole[0], offset_end=hole[1]), evidence)
            for hole in without([(partition.log_start_offset, start)], covered)
        ]

    def move_to_targets(self) -> None:
        """Wait until all files are on disk; move every partition to its log directories, and write the other files of these.
        Raises OSError, SourceError."""
        for to_write in self._partitions:
            partition = to_write.partition
            partition.ranges = [] if to_write.written is None else to_write.written.ranges()
            partition.replicas = [(target.node, target.directory) for target in to_write.targets]
            for target in to_write.targets:
                target.partitions.append(partition.key)
                target.size_in_bytes += partition.size_in_bytes
        used = [target for target in self._salvaged.log_dirs if target.partitions or not target.is_only_of_controller]
        self._salvaged.log_dirs = used if self._partitions else []
        for target in self._salvaged.log_dirs:
            directory = self._directory / target.directory
            directory.mkdir(parents=True)
            for name, data in target.files.items():
                write_file(directory / name, data)
            if not target.is_only_of_controller:
                partitions = [to_write for to_write in self._partitions if to_write.partition.key in target.partitions]
                self._write_checkpoints(directory, partitions, target.given)
        for to_write in self._partitions:
            built = self._build_place(to_write.partition.key)
            put_partition(built, [self._directory / target.directory / built.name for target in to_write.targets])
        for name in (BUILD_DIR, CONTROLLERS_BUILD_DIR):
            shutil.rmtree(self._directory / name, ignore_errors=True)

    def _remove(self, key: TopicPartition) -> None:
        place = self._build_place(key)
        if place.exists():
            shutil.rmtree(place)

    def _build_place(self, key: TopicPartition) -> Path:
        folder = CONTROLLERS_BUILD_DIR if key[0] == CLUSTER_METADATA_TOPIC else BUILD_DIR
        return self._directory / folder / f"{key[0]}-{key[1]}"


def _no_copy(key: TopicPartition, rows: list[ExpectedReplica], *, is_tiered: bool, has_store: bool) -> Refused:
    """A partition without a copy, and the source that expects one."""
    best = max(rows, key=lambda row: row.high_watermark or 0)
    reason = f"the controllers' log assigns it to broker {listed(str(row.broker) for row in rows)}"
    if best.high_watermark:
        reason = f"{HIGH_WATERMARK_FILE} of broker {best.broker} has {best.high_watermark} committed offsets of it"
    elif REMOTE_LOG_METADATA_TOPIC in best.expected_by:
        reason = f"broker {best.broker} copied its segments to remote storage, according to {REMOTE_LOG_METADATA_TOPIC}"
    if key[0] == REMOTE_LOG_METADATA_TOPIC:
        reason += "; without it brokers do not find the remote segments that it lists"
    needs_store = not has_store and (is_tiered or key[0] == REMOTE_LOG_METADATA_TOPIC)
    hint = "give the remote store, too, or " if needs_store else "give "
    hint += "further copies: other brokers, other log directories, backups"
    hint += "" if is_tiered else "; or --allow-gaps: brokers then start it empty"
    brokers = tuple(row.broker for row in rows)
    return Refused(*key, "no_copy", f"it has no copy, although {reason}", hint, brokers=brokers, is_tiered=is_tiered)


def _is_kept(finding: Finding, salvaged: Salvaged) -> bool:
    """Whether a finding is about a small file that is not built, but kept from the copy or from the directory moved aside."""
    file, log_dir = finding.place.file or "", (finding.place.log_dir or "").rstrip("/")
    if file == META_PROPERTIES:
        return any(target.meta_properties is None and target.log_dir == log_dir for target in salvaged.log_dirs)
    is_refused = any(refused.topic == CLUSTER_METADATA_TOPIC for refused in salvaged.refused)
    return file == BOOTSTRAP or (is_refused and file.startswith(f"{CLUSTER_METADATA_TOPIC}-0/"))


def _topic_id(sources: list[SourceCopy]) -> str | None:
    """The topic's id by a copy, else by the controllers' log. Brokers under KRaft set a log without an id aside as a stray, and
    start an empty one (`LogManager.isStrayKraftReplica`)."""
    contexts = [source.plan.context for source in sources]
    ids = [context.topic_id for context in contexts]
    ids += [context.control.topic_id for context in contexts if context.control is not None]
    return next((topic_id for topic_id in ids if topic_id), None)


def _passed_limits(to_write: _PartitionToWrite, written: WrittenLog, controller: ControllerHistory | None) -> Iterator[PassedLimit]:
    """The retention limits by which brokers would delete the first segment of a log now.

    The controllers' log has other limits. Brokers create internal topics with settings that differ from Kafka's defaults, so for
    these only known settings count.
    """
    context = to_write.plans[to_write.lineage.base].context if to_write.plans else None
    topic, now = to_write.partition.topic, int(time.time() * 1000)
    control = (
        context.control
        if context is not None
        else None
        if controller is None
        else controller.partitions.get(to_write.partition.key)
    )
    policy = None if control is None else control.setting("cleanup.policy")
    is_compacted = topic in INTERNAL_TOPICS or (context is not None and context.compacted)
    if "delete" not in (policy or ("compact" if is_compacted else "delete")):
        return
    remote = to_write.remote
    first = _first_segment(written, now) if remote is None else _first_remote_segment(to_write, remote)
    if first is None or topic == CLUSTER_METADATA_TOPIC:
        return
    retention, settings = retention_for(control), {} if control is None else control.configs
    by_time, by_size = Retention(retention.retention_ms, -1), Retention(-1, retention.retention_bytes)
    for name, limit, value in (("ms", by_time, by_time.retention_ms), ("bytes", by_size, by_size.retention_bytes)):
        setting = f"retention.{name}"
        applies = setting in settings or topic not in WITNESS_TOPICS
        if applies and explains(limit, first[0], now, first[1]):
            value_of_topic = None if control is None else control.setting(setting)
            topic_value_is_known = control is not None and controller is not None and controller.is_complete
            yield PassedLimit(setting, value, value_of_topic is not None, settings.get(setting), topic_value_is_known)


def _first_segment(written: WrittenLog, now_ms: int) -> tuple[int, int] | None:
    """The largest timestamp (ms) of the first segment and the bytes of the other ones; None without segments. For records without
    timestamps brokers use the time of the file, which is new."""
    timestamp, size_in_bytes = written.first_segment
    return (now_ms if timestamp < 0 else timestamp, written.size_in_bytes - size_in_bytes) if written.segments else None


def _first_remote_segment(to_write: _PartitionToWrite, segments: Sequence[RemoteSegment]) -> tuple[int, int] | None:
    """The largest timestamp (ms) of the oldest remote segment of a tiered topic, to which the total limits apply
    (RemoteLogManager), and the bytes of the other segments, local ones included; None without remote segments.

    What the local limits delete remains in remote storage.
    """
    if not segments:
        return None
    end_offset = max(segment.end_offset for segment in segments) + 1
    local = sum(part.size_in_bytes for part in to_write.slices if part.start_offset >= end_offset)
    oldest = min(segments, key=lambda segment: segment.start_offset)
    return oldest.max_timestamp_ms, local + sum(segment.size_in_bytes for segment in segments) - oldest.size_in_bytes


def _under_kraft(sources: list[SourceCopy]) -> bool:
    """Whether a broker is known to run without ZooKeeper: its `meta.properties` has version 1."""
    metas = [source.plan.log_dir.meta for source in sources]
    return any(meta is not None and meta.version == 1 for meta in metas)


def _high_watermark(choice: Choice) -> int | None:
    """The largest high watermark of the copies that supply bytes, within the log."""
    used = {choice.lineage.base, *(part.copy for part in choice.slices)}
    marks = [choice.sources[number].plan.context.high_watermark for number in used]
    largest = max((mark for mark in marks if mark is not None), default=None)
    if largest is None:
        return None
    return max(min(largest, choice.lineage.log_end_offset), choice.lineage.log_start_offset)


def _damaged_on(choice: Choice, start: int, end: int | None) -> tuple[Broker, ...]:
    """The brokers whose copies have damaged bytes of some offsets."""
    replicas = [] if choice.planned is None else choice.planned.planner_input.replicas
    damaged = [replica.damaged for replica in replicas] if choice.damaged is None else choice.damaged
    end = NO_END if end is None else end
    return tuple(replica.broker for replica, ranges in zip(replicas, damaged, strict=False) if clipped(ranges, start, end))
