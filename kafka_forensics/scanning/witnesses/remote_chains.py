"""Logs in remote stores: the segments of a partition in chains without overlap, each to be read like a replica's log.

Segments of different leaders may overlap: each leader copies its segments as they are, and after an unclean election another
history (RemoteLogManager). The first chains are of the latest leader's log, the others are what no consumer reads.
"""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan, gather, read_leader_epochs
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.model.files import EpochEntry, LeaderEpochs
from kafka_forensics.model.remote_log import REMOTE, RemoteLog, RemoteLogHistory, StoredSegment
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_leader_epochs
from kafka_forensics.parsers.log_dir import LogDirectory, PartitionDirectory, SegmentFiles
from kafka_forensics.replication.epochs import assign_epoch, epochs_from
from kafka_forensics.replication.remote_segments import are_in_lineage
from kafka_forensics.scanning.folding.fold_split import FoldedStretch, FoldOptions, fold_replica
from kafka_forensics.scanning.folding.waiting import map_concurrently
from kafka_forensics.scanning.witnesses.remote_log import read_remote_log
from kafka_forensics.scanning.witnesses.remote_stores import RemoteStores, StoredPartition, list_remote_stores
from kafka_forensics.storage.source import Entry, EntryKind
from kafka_forensics.storage.tiered import RemotePart, stem_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.model.findings import TopicPartition

_MAX_CHAINS: Final = 64
"""Of one partition; segments that overlap more often are not read."""


class ChainSegment(NamedTuple):
    """A remote segment whose log object is in the store."""

    start_offset: int
    end_offset: int
    """Inclusive, by `__remote_log_metadata`; without it the start offset, because the object was not read yet."""
    epochs: Sequence[EpochEntry]
    """Leader epochs in the segment, ascending; empty if unknown."""
    stored: StoredSegment
    size_in_bytes: int
    """Of the log as the broker copied it."""

    def may_follow(self, before: "ChainSegment") -> bool:
        """Whether it may come later in the same log."""
        is_newer = not (self.epochs and before.epochs) or before.epochs[-1].leader_epoch <= self.epochs[0].leader_epoch
        return max(before.start_offset, before.end_offset) < self.start_offset and is_newer


class _Selected(NamedTuple):
    """A partition of a store whose logs are read."""

    stored: StoredPartition
    topic: str
    remote_log: RemoteLog | None
    replicas: list[ReplicaPlan]


def take_remote_logs(inputs: Inputs, options: ScanOptions, history: RemoteLogHistory | None) -> RemoteStores:
    """List the stores among the inputs, and set `inputs.remote_by_partition` to the logs in them that `options` select, and
    `inputs.stored`; once.

    Only segments whose copy is finished are taken; of a partition that `history` does not know, all. Whose topic id is that of no
    replica is another topic's of the same name. What cannot be read goes to `inputs.incomplete`.
    """
    stores = list_remote_stores(inputs)
    if inputs.remote_by_partition is not None:
        return stores
    replicas: dict[TopicPartition, list[ReplicaPlan]] = {}
    for plan in inputs.replicas if stores else ():
        replicas.setdefault(plan.context.topic_partition, []).append(plan)
    names = {plan.context.topic_id: plan.context.topic for plan in inputs.replicas if plan.context.topic_id is not None}
    selected = list[_Selected]()
    stored_partitions = ((key, StoredPartition(store, log)) for store in stores.stores for key, log in store.logs.items())
    for (topic_id, partition), stored in stored_partitions:
        remote_log = None if history is None else history.log_of(stored.log.topic, partition, topic_id)
        topic = names.get(topic_id, stored.log.topic) if remote_log is None else remote_log.topic
        plans = replicas.get((topic, partition), [])
        inputs.stored.add((topic, partition))
        ids = {plan.context.topic_id for plan in plans} - {None}
        if options.broker in (None, REMOTE) and fits((topic, partition), options) and (not ids or topic_id in ids):
            selected.append(_Selected(stored, topic, remote_log, plans))
    remote: dict[TopicPartition, list[ReplicaPlan]] = {}
    for partition_selected, segments in zip(selected, _segments(selected), strict=True):
        key = partition_selected.topic, partition_selected.stored.log.partition
        remote.setdefault(key, []).extend(_plans(inputs, partition_selected, segments))
    inputs.remote_by_partition = dict(sorted(remote.items()))
    return stores


def gather_logs(paths: list[str], options: ScanOptions, inputs: Inputs | None = None) -> Inputs:
    """`gather`, and the selected logs in remote stores; whether anything matches the options is not checked."""
    inputs = gather(paths, options, inputs, elsewhere=True)
    take_remote_logs(inputs, options, read_remote_log(inputs)[0] if inputs.store_places else None)
    return inputs


def remote_logs_of(inputs: Inputs, context: ReplicaContext, start: int = 0) -> list[ReplicaPlan]:
    """The logs in remote stores of a replica's partition, without segments that end before `start`."""
    plans = (inputs.remote_by_partition or {}).get(context.topic_partition, ())
    same = [plan for plan in plans if context.topic_id in (None, plan.context.topic_id)]
    return [plan for plan in (_from_offset(plan, start) for plan in same) if plan.directory.segments]


def fold_remote_logs(
    inputs: Inputs, context: ReplicaContext, key: "NDArray[np.int64]", incomplete: list[Incomplete], start: int = 0
) -> list[tuple[ReplicaPlan, Replica]]:
    """Fold the logs in remote stores of a replica's partition, from an offset on, here; `key` is the `digest_key`."""

    def on_merged(stretch: FoldedStretch) -> None:
        incomplete.extend([] if stretch.incomplete is None else [stretch.incomplete])

    options = FoldOptions(key, deep=False)
    folded = (fold_replica(plan, inputs, options, on_merged) for plan in remote_logs_of(inputs, context, start))
    return [(plan, replica) for plan, replica, _ in folded]


def _from_offset(plan: ReplicaPlan, start: int) -> ReplicaPlan:
    logs = [log for log in plan.directory.logs() if log.reaches(start)]
    if len(logs) == len(plan.directory.segments):
        return plan
    directory = replace(plan.directory, segments=[log.segment for log in logs])
    context = replace(plan.context, segment_base_offsets=[log.base_offset for log in logs])
    return ReplicaPlan(plan.log_dir, directory, context, sum(log.entry.size_in_bytes for log in logs))


def _plans(inputs: Inputs, selected: _Selected, segments: list[ChainSegment]) -> Iterator[ReplicaPlan]:
    """The plans of a partition's chains; none without a segment."""
    stored, topic, remote_log, replicas = selected
    epochs = _latest_epochs(inputs, replicas) or _epochs_of_store(stored, segments)
    chains, left_out = chains_of(segments, epochs)
    if left_out:
        reason = f"{left_out} of {len(segments)} segments overlap with more than {_MAX_CHAINS} others"
        inputs.incomplete.append(Incomplete(stored.store.name, reason, topic, stored.log.partition))
    for chain in chains:
        yield _plan(stored, topic, remote_log, chain)


def chains_of(segments: Iterable[ChainSegment], epochs: Sequence[EpochEntry]) -> tuple[list[list[ChainSegment]], int]:
    """Segments in chains without overlap, each ascending, and how many were left out because of the limit.

    `epochs` are those of the latest leader, whose segments come in the first chains; empty if unknown.
    """
    chains: list[list[ChainSegment]] = []
    left_out = first = 0
    of_leader: list[ChainSegment] = []
    others: list[ChainSegment] = []
    for segment in segments:
        is_others = segment.epochs and epochs and not are_in_lineage(segment.epochs, segment.end_offset, epochs)
        (others if is_others else of_leader).append(segment)
    for of_history in (of_leader, others):
        for segment in sorted(of_history, key=lambda segment: (segment.start_offset, -segment.end_offset, -segment.size_in_bytes)):
            chain = next((chain for chain in chains[first:] if segment.may_follow(chain[-1])), None)
            if chain is not None:
                chain.append(segment)
            elif len(chains) < _MAX_CHAINS:
                chains.append([segment])
            else:
                left_out += 1
        first = len(chains)
    return chains, left_out


def _segments(selected: Sequence[_Selected]) -> list[list[ChainSegment]]:
    """The segments to read of each partition: finished ones by `__remote_log_metadata`, without it all in the store."""
    found = [list(_finished(item)) for item in selected]
    without_events = [
        (segments, item.stored, objects)
        for segments, item in zip(found, selected, strict=True)
        for objects in (item.stored.log.segments.values() if item.remote_log is None else ())
        if item.stored.log.needed[0] in objects.objects
    ]
    waits = any(stored.store.source.request_seconds is not None for _, stored, _ in without_events)
    read = map_concurrently if waits else map
    described = read(lambda item: _described(*item[1:]), without_events)
    for (segments, _, _), segment in zip(without_events, described, strict=True):
        segments.append(segment)
    return found


def _finished(selected: _Selected) -> Iterator[ChainSegment]:
    """The finished segments whose log is in the store; none without `__remote_log_metadata`."""
    log, suffix, is_plain = selected.stored.log, selected.stored.log.needed[0], selected.stored.log.is_plain
    for segment in () if selected.remote_log is None else selected.remote_log.finished:
        objects = log.segments.get(segment.segment_id)
        if objects is not None and suffix in objects.objects:
            size = objects.objects[suffix] if is_plain else segment.size_in_bytes
            yield ChainSegment(segment.start_offset, segment.end_offset, segment.leader_epochs, objects, max(size, 0))


def _described(stored: StoredPartition, objects: StoredSegment) -> ChainSegment:
    """A segment by its objects."""
    epochs = epochs_from(_epochs_beside(stored, objects), objects.start_offset)
    end = max((entry.start_offset for entry in epochs), default=objects.start_offset)
    return ChainSegment(objects.start_offset, end, epochs, objects, _log_size(stored, objects))


def _epochs_beside(stored: StoredPartition, segment: StoredSegment) -> list[EpochEntry]:
    """The epochs of the log up to the end of a segment, by the object beside it; none if it cannot be read."""
    try:
        with stored.store.open(stored.log, segment, RemotePart.LEADER_EPOCHS) as file:
            epochs = parse_leader_epochs(file)
    except SourceError:  # the log of the segment may be readable
        return []
    return [] if epochs.damage else epochs.entries


def _log_size(stored: StoredPartition, segment: StoredSegment) -> int:
    """Size of a segment's log as the broker copied it; of one that cannot be opened, which reading it reports, the object's."""
    size = segment.objects[stored.log.needed[0]]
    if stored.store.layout.is_plain:
        return size
    try:
        with stored.store.open(stored.log, segment, RemotePart.LOG) as file:
            return file.size_in_bytes
    except SourceError:
        return size


def _latest_epochs(inputs: Inputs, replicas: list[ReplicaPlan]) -> Sequence[EpochEntry]:
    """The epochs of the replica that has the latest one; empty if no replica has epochs."""
    for plan in replicas:
        read_leader_epochs(inputs, plan)
    checkpoints = [plan.context.epoch_checkpoint or [] for plan in replicas]
    return max(checkpoints, key=lambda entries: entries[-1].leader_epoch if entries else -1, default=[])


def _epochs_of_store(stored: StoredPartition, segments: list[ChainSegment]) -> Sequence[EpochEntry]:
    """The epochs of the log of the latest leader that copied a segment, by the object beside its last one, else those in that."""
    with_epochs = [segment for segment in segments if segment.epochs]
    if not with_epochs:
        return ()
    last = max(with_epochs, key=lambda segment: (segment.epochs[-1].leader_epoch, segment.end_offset))
    return _epochs_beside(stored, last.stored) or last.epochs


def _plan(stored: StoredPartition, topic: str, remote_log: RemoteLog | None, chain: list[ChainSegment]) -> ReplicaPlan:
    store, log = stored
    path = posixpath.commonpath([segment.stored.directory for segment in chain])
    log_dir_name, directory_name = store.name, path[len(store.path) :].strip("/")
    if not directory_name:  # the store is the partition's directory
        log_dir_name, _, directory_name = store.name.rstrip("/").rpartition("/")
    segments = [_files(stored, segment) for segment in chain]
    directory = PartitionDirectory(path, directory_name, topic, log.partition, segments=segments, legal=True)
    log_dir = LogDir(store.parts, log_dir_name, LogDirectory(store.path, partitions=[directory]), REMOTE, identified=True)
    context = ReplicaContext(topic, log.partition, REMOTE, log_dir_name, directory_name, log.topic_id)
    context.is_remote, context.remote_log = True, remote_log
    context.object_names = {
        files.base_offset: files.log.path[len(path) :].lstrip("/") for files in segments if files.log is not None
    }
    context.segment_ids = {segment.start_offset: segment.stored.segment_id for segment in chain}
    context.segment_base_offsets = [files.base_offset for files in segments]
    context.leader_epochs = LeaderEpochs(_merged(chain))
    return ReplicaPlan(log_dir, directory, context, sum(segment.size_in_bytes for segment in chain))


def _merged(chain: list[ChainSegment]) -> list[EpochEntry]:
    """The epochs of a chain."""
    epochs: list[EpochEntry] = []
    for entry in (entry for segment in chain for entry in segment.epochs):
        if not epochs or entry.leader_epoch > epochs[-1].leader_epoch:
            assign_epoch(epochs, entry)
    return epochs


def _files(stored: StoredPartition, segment: ChainSegment) -> SegmentFiles:
    """The log of a segment, and its indexes where they are separate objects."""
    stem, objects = stem_of(stored.log, segment.stored), segment.stored.objects

    def entry(part: RemotePart, size: int | None) -> Entry | None:
        return None if size is None else Entry(f"{stem}.{part.value}", EntryKind.FILE, size, 0, None)

    log = entry(RemotePart.LOG, segment.size_in_bytes)
    if not stored.store.layout.is_plain:
        return SegmentFiles(segment.start_offset, log)
    indexes = (entry(part, objects.get(part.value)) for part in (RemotePart.OFFSET_INDEX, RemotePart.TIME_INDEX))
    return SegmentFiles(segment.start_offset, log, *indexes)
