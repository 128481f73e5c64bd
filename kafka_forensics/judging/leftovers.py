"""Log files on their way out, read as evidence: `.deleted`, `.swap`, `.cleaned`, and directories `-delete`, `-stray`, `-future`."""

from typing import TYPE_CHECKING

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import HeldAside, LoneIndex, leftover_findings, lone_index_findings
from kafka_forensics.analysis.segments import ContinuityFold
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan, typed_path
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_partition_metadata
from kafka_forensics.parsers.indexes import parse_offset_index
from kafka_forensics.parsers.log import SegmentReader, believed_to
from kafka_forensics.parsers.log_dir import FileKind, PartitionDirectory, SegmentFiles

if TYPE_CHECKING:
    from kafka_forensics.storage.source import Entry


def leftovers_judged(
    key: tuple[str, int], replicas: list[Replica], inputs: Inputs, findings: list[Finding], incomplete: list[Incomplete]
) -> list[Finding]:
    """Findings about what a partition's leftovers hold; adds `also_in` to the `findings` of offsets they would fill."""
    aside = []
    for log_dir, directory in inputs.aside.get(key, ()):
        aside += _held(log_dir, directory, key, inputs, incomplete)
    return leftover_findings(replicas, aside, findings)


def lone_leftovers(inputs: Inputs) -> list[Finding]:
    """The same for partitions of which no broker has a live replica."""
    live = {(plan.context.topic, plan.context.partition) for plan in inputs.replicas}
    findings = []
    for key in sorted(inputs.aside.keys() - live):
        findings += leftovers_judged(key, [], inputs, [], inputs.incomplete)
    return findings


def _held(
    log_dir: LogDir, directory: PartitionDirectory, key: tuple[str, int], inputs: Inputs, incomplete: list[Incomplete]
) -> list[HeldAside]:
    """Every such log file of a directory, folded by itself; those that hold no good batch are left out."""
    entry = directory.entries.get("partition.metadata")
    metadata = None if entry is None else inputs.read(log_dir.source, entry, parse_partition_metadata)
    files: list[tuple[Entry, int, str]] = [
        (leftover_file.entry, leftover_file.base_offset or 0, leftover_file.suffix)
        for leftover_file in directory.leftovers
        if leftover_file.kind is FileKind.LOG
    ]
    if directory.suffix is not None:
        files += [(segment.log, segment.base_offset, directory.suffix) for segment in directory.segments if segment.log is not None]
    held = []
    for log, base_offset, suffix in sorted(files, key=lambda row: row[0].path):
        fold, batches = ContinuityFold(base_offset), 0
        try:
            with log_dir.source.open(log.path) as file:
                for chunk in SegmentReader(file, next_base_offset=believed_to(base_offset)).chunks():
                    fold.step(chunk.columns, chunk.damage)
                    batches += int((chunk.columns[BatchColumn.CRC] == chunk.columns[BatchColumn.CRC_COMPUTED]).sum())
        except SourceError as error:
            incomplete.append(Incomplete(typed_path(log_dir.source, log.path), error.reason))
        if fold.runs:
            topic_id = None if metadata is None else metadata.topic_id
            file_name = f"{directory.name}/{log.name}"
            held.append(HeldAside(*key, log_dir.broker, log_dir.name, file_name, suffix, topic_id, tuple(fold.runs), batches))
    return held


def lone_indexes_judged(plan: ReplicaPlan, replica: Replica, inputs: Inputs, findings: list[Finding]) -> list[Finding]:
    """Findings about index files without their `.log`; those beside which the log lies under another name say nothing."""
    aside = {file.base_offset for file in plan.directory.leftovers if file.kind is FileKind.LOG}
    gone = [one for one in plan.directory.segments if one.log is None and one.base_offset not in aside]
    lone = [_lone(segment, plan, inputs) for segment in gone]
    return lone_index_findings(replica, lone, findings)


def _lone(segment: SegmentFiles, plan: ReplicaPlan, inputs: Inputs) -> LoneIndex:
    entries = [entry for entry in (segment.index, segment.time_index, segment.transaction_index) if entry is not None]
    last_offset = None
    if segment.index is not None:
        base_offset = segment.base_offset
        parsed = inputs.read(plan.log_dir.source, segment.index, lambda file: parse_offset_index(file, base_offset))
        if parsed is not None and parsed.offsets.size:
            last_offset = int(parsed.offsets.max())
    return LoneIndex(segment.base_offset, tuple(entry.name for entry in entries), last_offset)
