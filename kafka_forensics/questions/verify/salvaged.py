"""The promises of a salvage: every replica starts with the salvaged log, keeps every byte, and continues after it."""

from typing import Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import ReadExtent
from kafka_forensics.questions.verify.documents import Broker, ManifestPartition
from kafka_forensics.questions.verify.promises import Judgement, Verified, end_of, error_kinds, start_of
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.open import sha256_of

_PROMISES: Final = ("start", "end", "bytes")
"""Promises about every replica."""


def promised(salvaged: ManifestPartition, replicas: list[tuple[Replica, ReplicaPlan]], result: PartitionResult) -> list[Verified]:
    """The promises of one partition, compared with its present replicas."""
    new = [finding for finding in result.findings if not _is_in_manifest(salvaged, finding)]
    promises = [
        Verified.of(salvaged, promise, broker, "no_copy") for broker in _absent(salvaged, replicas) for promise in _PROMISES
    ]
    unseen = bool(promises) or any(replica.read is not ReadExtent.WHOLE for replica, _ in replicas)
    for replica, plan in replicas:
        if replica.read is ReadExtent.NONE:
            promises += [Verified.of(salvaged, promise, replica.broker, "not_read") for promise in _PROMISES]
            continue
        start = start_of(replica, salvaged.log_start_offset, new)
        end = end_of(replica, salvaged.log_end_offset, salvaged.leader_epochs)
        answers = ("start", start), ("end", end), ("bytes", _bytes_of(salvaged, replica, plan))
        promises += [Verified.of(salvaged, promise, replica.broker, *answer) for promise, answer in answers]
    if salvaged.remote_segments:
        answer = _remote_segments_of(salvaged, [replica for replica, _ in replicas])
        promises.append(Verified.of(salvaged, "segments", salvaged.base_broker, *answer))
    errors = error_kinds(new)
    intact = "found" if errors else "not_all_given" if unseen else "nothing_found"
    return [*promises, Verified.of(salvaged, "intact", salvaged.base_broker, intact, kinds=errors)]


def without_copies(salvaged: ManifestPartition) -> list[Verified]:
    """The promises of a partition without a copy."""
    return [Verified.of(salvaged, promise, salvaged.base_broker, "no_copy") for promise in _PROMISES]


def _remote_segments_of(salvaged: ManifestPartition, replicas: list[Replica]) -> Judgement:
    """Whether `__remote_log_metadata` has events of every remote segment that was taken, also of those deleted since."""
    taken, logs = salvaged.remote_segments, [replica.context.remote_log for replica in replicas]
    log = next((log for log in logs if log is not None), None)
    known = set() if log is None else {segment.segment_id for segment in log.segments}
    unknown = [segment.offset_start for segment in taken if segment.segment_id not in known]
    if unknown and (log is None or not log.is_complete or log.lacks_deleted):
        return Judgement("no_remote_log", len(taken))
    return Judgement("segments_unknown", len(taken), min(unknown)) if unknown else Judgement("segments_known", len(taken))


def _absent(salvaged: ManifestPartition, replicas: list[tuple[Replica, ReplicaPlan]]) -> list[Broker]:
    """Brokers that should have a replica and have no copy: by the manifest, the controllers' log, and other evidence."""
    context = replicas[0][0].context
    assignment = () if context.control is None else context.control.replica_assignment or ()
    absent = (
        {replica.broker: replica.broker for replica in salvaged.replicas}
        | {node: node for node in assignment}
        | {
            row.broker if row.node is None else row.node: row.broker
            for row in context.without_copy
            if row.is_assigned is not False and not row.is_deleted
        }
    )
    given = {replica.context.node for replica, _ in replicas}
    left = [broker for node, broker in absent.items() if node not in given]
    return left if len(left) > sum(isinstance(node, str) for node in given) else []


def _is_in_manifest(salvaged: ManifestPartition, finding: Finding) -> bool:
    """Whether the manifest has a finding: as a gap, or from the scan of the salvage."""
    start, end = finding.place.offset_start, finding.place.offset_end
    gaps = start is not None and end is not None and any(gap.holds(start, end) for gap in salvaged.gaps)
    producer_id = finding.evidence.get("producer_id")
    rows = (row for row in (*salvaged.inherited, *salvaged.new) if row.kind == finding.kind)
    return gaps or any(row.is_of(start, end, producer_id) for row in rows)


def _bytes_of(salvaged: ManifestPartition, replica: Replica, plan: ReplicaPlan) -> Judgement:
    """Whether a replica still has every salvaged byte, except in deleted segments; the first offset where it has not."""
    if isinstance(plan.log_dir.source, BundleSource):
        return Judgement("no_bytes")
    logs = {segment.log.name: segment.log.path for segment in plan.directory.segments if segment.log is not None}
    for taken in salvaged.ranges:
        path = logs.get(taken.file.rpartition("/")[2])
        if path is None:
            if taken.offset_end > replica.log_start_offset:
                return Judgement("segments_missing", found=taken.offset_start)
            continue
        try:
            with plan.log_dir.source.open(path) as file:
                same = sha256_of(file, taken.byte_start, taken.byte_end) == taken.sha256
        except SourceError:
            return Judgement("not_read", found=taken.offset_start)
        if not same:
            return Judgement("other_bytes", found=taken.offset_start)
    return Judgement("same_bytes")
