"""`groups`: committed offsets compared with the logs of their partitions, and why consumers cannot read the newest records."""

from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import ReadersLimit, readable, segment_problem, timestamps_of
from kafka_forensics.evidence.inputs import Inputs, gather, require_requested
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from kafka_forensics.model.coordinators import GroupHistory, GroupLog, GroupState, OffsetCommit, ShareLog, ShareState
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.offset_ranges import Ranges, normalised, without
from kafka_forensics.model.results import ScanResult
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.replication.remote_segments import is_in_lineage
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.coordinators import read_share_logs
from kafka_forensics.scanning.witnesses.remote_stores import list_remote_stores
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses


class RemoteCoverage(NamedTuple):
    """What finished remote segments of the leader's log have between its start and the local log start."""

    missing: Ranges
    """Offsets in none of them, or in one of which the store lacks objects or has a log of another size."""
    has_store: bool
    """Whether the store was listed: then the objects are known to be there."""


class PartitionEnds(Struct, frozen=True):
    """Start and end of a partition's copies, and what keeps consumers from reading further."""

    log_start_offset: int
    """The smallest of all copies."""
    local_log_start_offset: int
    """Start of the segments on disks: the log start, except for a tiered topic."""
    log_end_offset: int
    """The largest of all copies."""
    readable: ReadersLimit
    all_read: bool = True
    """Whether all copies were read to their ends: none may reach further."""
    remote: "RemoteCoverage | None" = None
    """What remote storage has of the log before its local start; None if it is not known, or there is nothing."""


class GroupRow(Struct, frozen=True):
    """What one group committed for one partition; `ends` is None without a copy of the partition.

    `group` is None in rows of partitions without a committed offset, `topic` in rows of groups that committed nothing and of share
    groups on a topic of unknown name. `status` is `committed`; `pending`: in a transaction without a marker, which does not count
    yet; or `share`: the state of a share group, which commits no offsets.
    """

    group: str | None
    about: GroupState | None
    topic: str | None
    partition: int | None
    commit: OffsetCommit | None = None
    status: str | None = None
    in_transaction: bool = False
    record_offset: int | None = None
    log_partition: int | None = None
    """Partition of `__consumer_offsets`, or of `__share_group_state`."""
    log_broker: int | str | None = None
    """The broker whose copy of it was read."""
    unknown_after_offset: int | None = None
    coordinator_partition: int | None = None
    """Partition of `__consumer_offsets` that the group's coordinator reads, if it is not `log_partition`."""
    producer_id: int | None = None
    """Of a pending commit."""
    ends: PartitionEnds | None = None
    share: ShareState | None = None

    @property
    def topic_or_id(self) -> str | None:
        """The topic's name; the topic id of a share group's topic of unknown name."""
        return self.share.topic_id if self.topic is None and self.share is not None else self.topic

    @property
    def lag(self) -> int | None:
        """Records up to the leader's log end (the longest copy's if no leader is known); None if an end or the offset is unknown.

        Of a share group, records from its start offset on that are not completed.
        """
        if self.ends is None or not self.ends.all_read:
            return None
        if self.share is not None:
            start, done = self.share.start_offset, self.share.delivery_complete_count
            return None if start < 0 or done < 0 else max(self.ends.readable.log_end_offset - start - done, 0)
        if self.commit is None:
            return None
        return max(self.ends.readable.log_end_offset - self.commit.offset, 0)

    @property
    def deleted_unread(self) -> int | None:
        """Offsets from the committed one to the leader's log start, which consumers can no longer read."""
        if self.ends is None or self.commit is None:
            return None
        return max(self.ends.readable.log_start_offset - self.commit.offset, 0)

    @property
    def readable(self) -> int | None:
        """Offsets from the committed one, or from the log start, that consumers can read; None if unknown."""
        end = None if self.ends is None or not self.ends.all_read else self.ends.readable.readable_end_offset
        if self.ends is None or self.commit is None or end is None:
            return None
        return max(end - max(self.commit.offset, self.ends.readable.log_start_offset), 0)

    @property
    def beyond_end(self) -> int | None:
        """Offsets from the end of every copy to the committed one; 0 if there are none, None if an unread copy may hold them."""
        if self.ends is None or self.commit is None:
            return None
        beyond = max(self.commit.offset - self.ends.log_end_offset, 0)
        return beyond if self.ends.all_read or not beyond else None


class GroupsAnswer(Struct):
    """Rows by group, topic and partition; the logs they come from; the scan of the partitions, with its findings about groups."""

    rows: list[GroupRow]
    logs: list[GroupLog]
    result: ScanResult
    partitions: dict[TopicPartition, PartitionEnds] = field(default_factory=dict)
    has_log: bool = True
    """Whether a copy of `__consumer_offsets` is here."""
    share_logs: list[ShareLog] = field(default_factory=list)
    """Logs of `__share_group_state`."""

    @property
    def names(self) -> list[str]:
        """Every group in the logs, requested or not."""
        committed = {committed_offset.group for log in self.logs for committed_offset in log.committed}
        committed |= {commit.group for log in self.logs for commit in log.pending}
        committed |= {state.group for log in self.share_logs for state in log.states}
        return sorted(committed.union(*(log.groups for log in self.logs)))


def groups(
    paths: list[str],
    options: ScanOptions,
    *,
    group_glob: str | None = None,
    every_partition: bool = False,
    progress: Progress | None = None,
) -> GroupsAnswer:
    """What groups committed, compared with the logs of the partitions that `options` select.

    `every_partition` includes partitions without a committed offset. Raises UsageError for invalid paths.
    """
    inputs = gather(paths, options, elsewhere=True)
    compile_as_needed(sum(plan.bytes for plan in inputs.internal))
    witnesses = read_witnesses(inputs)
    in_stores = {(stored.log.topic, stored.log.partition) for stored in list_remote_stores(inputs).partitions.values()}
    share_logs, malformed = read_share_logs(inputs)
    history = witnesses.groups or GroupHistory()
    names = _topic_names(inputs, witnesses) if share_logs else {}
    all_rows = _rows(history, share_logs, names)
    committed = {(row.topic_or_id, row.partition) for row in all_rows if row.topic_or_id and row.partition is not None}
    require_requested(inputs, options, committed | in_stores)
    rows = [
        row
        for row in all_rows
        if (group_glob is None or fnmatchcase(row.group or "", group_glob))
        and (options.topic_glob is None or row.partition is not None)
        and fits((row.topic_or_id or "", row.partition), options)
    ]
    wanted = {(row.topic, row.partition) for row in rows}
    if not every_partition:
        inputs.replicas = [plan for plan in inputs.replicas if plan.context.topic_partition in wanted]
    ends: dict[TopicPartition, PartitionEnds] = {}

    def look(replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        context = replicas[0].context
        read = [replica for replica in replicas if replica.end_is_known]
        if read and context.topic != CLUSTER_METADATA_TOPIC:  # only the controllers read it, which have no ISR
            ends[context.topic_partition] = PartitionEnds(
                min(replica.log_start_offset for replica in read),
                min(replica.local_log_start_offset for replica in read),
                max(replica.log_end_offset for replica in read),
                readable(read, read[0].context.control, timestamps_of(reader), result.summary.high_watermark_at_least),
                len(read) == len(replicas),
                _remote_coverage(read),
            )

    result = scan_inputs(inputs, options, progress, look, witnesses)
    kinds, topics = kinds_with(Trait.CONCERNS_GROUPS), (CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC)
    result.findings = [finding for finding in result.findings if finding.kind in kinds or finding.place.topic in topics] + malformed
    rows = [replace(row, ends=ends.get((row.topic or "", -1 if row.partition is None else row.partition))) for row in rows]
    if every_partition and group_glob is None:
        rows += [GroupRow(None, None, *key, ends=ends[key]) for key in ends if key not in wanted]
    rows.sort(key=lambda row: (row.group is None, row.group or "", row.topic or "", row.partition or 0, row.status or ""))
    return GroupsAnswer(rows, history.logs, result, ends, witnesses.groups is not None, share_logs)


def _remote_coverage(replicas: list[Replica]) -> RemoteCoverage | None:
    contexts = [replica.context for replica in replicas]
    log = next((context.remote_log for context in contexts if context.remote_log is not None), None)
    stored = next((context.stored_log for context in contexts if context.stored_log is not None), None)
    start = min(replica.log_start_offset for replica in replicas)
    local_start = min(replica.local_log_start_offset for replica in replicas)
    if log is None or not log.is_complete or start >= local_start:
        return None
    epochs = max((replica.epochs for replica in replicas), key=lambda entries: entries[-1].leader_epoch if entries else -1)
    segments = [segment for segment in log.finished if is_in_lineage(segment, epochs)]
    whole = [segment for segment in segments if stored is None or segment_problem(segment, stored) == ("", ())]
    covered = normalised(segment.offsets for segment in whole)
    return RemoteCoverage(without(((start, local_start),), covered), stored is not None)


def _topic_names(inputs: Inputs, witnesses: Witnesses) -> dict[str, str]:
    """Topic id → name by the share groups' coordinators, overridden by the controllers' log, and by the directories."""
    names: dict[str, str] = {}
    for log in [] if witnesses.groups is None else witnesses.groups.logs:
        names |= log.topic_names
    if witnesses.controller is not None:
        names |= {topic_id: topic.topic for topic_id, topic in witnesses.controller.topics.items() if topic.topic}
    for plan in (*inputs.replicas, *inputs.internal):
        if plan.context.topic_id is not None:
            names[plan.context.topic_id] = plan.context.topic
    return names


def _rows(history: GroupHistory, share_logs: list[ShareLog], names: dict[str, str]) -> list[GroupRow]:
    """A row for each committed or pending offset and each share partition, and one for each group without any."""
    groups = {name: group for log in history.logs for name, group in log.groups.items()}
    rows = [
        GroupRow(
            state.group,
            groups.get(state.group, GroupState(state.group, "share")),
            names.get(state.topic_id),
            state.partition,
            status="share",
            record_offset=state.record_offset,
            log_partition=share_log.partition,
            log_broker=share_log.broker,
            unknown_after_offset=state.unknown_after,
            share=state,
        )
        for share_log in share_logs
        for state in share_log.states
    ]
    for log in history.logs:
        of_log = partial(GroupRow, log_partition=log.partition, log_broker=log.broker)
        for committed in log.committed:
            place = committed.group, log.groups.get(committed.group), committed.topic, committed.partition
            state = committed.last, "committed", committed.in_transaction, committed.record_offset
            read = history.read_from.get(committed.group)
            other = None if read == log.partition else read
            rows.append(of_log(*place, *state, unknown_after_offset=committed.unknown_after, coordinator_partition=other))
        for pending in log.pending:
            place = pending.group, log.groups.get(pending.group), pending.topic, pending.partition
            state = pending.commit, "pending", True, pending.record_offset
            rows.append(of_log(*place, *state, producer_id=pending.producer_id))
        with_rows = {row.group for row in rows}
        rows += [
            of_log(name, group, None, None, unknown_after_offset=group.unknown_after)
            for name, group in log.groups.items()
            if name not in with_rows
        ]
    return rows
