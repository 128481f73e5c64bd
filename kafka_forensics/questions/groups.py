"""`groups`: committed offsets against the logs they point into, and why the newest records of a partition cannot be read."""

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import Readable, readable, timestamps_of
from kafka_forensics.evidence.inputs import Inputs, gather, require_asked
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from kafka_forensics.model.coordinators import Committed, Group, GroupHistory, GroupLog, OffsetCommit, ShareLog, ShareState
from kafka_forensics.model.findings import Finding, TopicPartition
from kafka_forensics.model.results import ScanResult
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.coordinators import read_share_logs
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Where the copies of a partition start and end, and what holds its readers back."""

    log_start_offset: int
    """The smallest of all copies."""
    local_log_start_offset: int
    """Where the segments begin that are on a disk: the log start, but for a tiered topic."""
    log_end_offset: int
    """The largest of all copies."""
    readable: Readable
    all_read: bool = True
    """Whether all copies were read to their ends, and by that whether none may reach further."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """What one group committed on one partition; `ends` is None where no copy of the partition was given.

    `group` is None in rows of partitions on which no group committed, `topic` in those of groups that committed nothing and of
    share groups on a topic whose name nothing tells. `status` is `committed`; `pending`: in a transaction without a marker, so it
    does not count yet; or `share`: how far a share group is, which commits no offsets.
    """

    group: str | None
    about: Group | None
    topic: str | None
    partition: int | None
    commit: OffsetCommit | None = None
    status: str | None = None
    in_transaction: bool = False
    record_offset: int | None = None
    log_partition: int | None = None
    """Of `__consumer_offsets`, or of `__share_group_state`."""
    log_broker: int | str | None = None
    """Whose copy of it was read."""
    unknown_after_offset: int | None = None
    coordinator_partition: int | None = None
    """Of `__consumer_offsets`: the one that the group's coordinator reads, where that is not `log_partition`."""
    producer_id: int | None = None
    """Of a pending commit."""
    ends: PartitionEnds | None = None
    share: ShareState | None = None

    @property
    def topic_or_id(self) -> str | None:
        """The topic's name, of a share group's topic that nothing names its id."""
        return self.share.topic_id if self.topic is None and self.share is not None else self.topic

    @property
    def lag(self) -> int | None:
        """Records behind the leader's log end (the longest copy's if no leader is known), None if that or the offset is unknown.

        Of a share group those from its start offset on that are not done with.
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
        """Offsets from the committed one on that lie before the leader's log start, so that no consumer can read them any more."""
        if self.ends is None or self.commit is None:
            return None
        return max(self.ends.readable.log_start_offset - self.commit.offset, 0)

    @property
    def readable(self) -> int | None:
        """Offsets from the committed one on, or from the log start, that consumers can read; None where that is not known."""
        end = None if self.ends is None or not self.ends.all_read else self.ends.readable.readable_end_offset
        if self.ends is None or self.commit is None or end is None:
            return None
        return max(end - max(self.commit.offset, self.ends.readable.log_start_offset), 0)

    @property
    def beyond_end(self) -> int | None:
        """Offsets committed beyond the end of every copy; 0 where there are none, None where a copy not read may have them."""
        if self.ends is None or self.commit is None:
            return None
        beyond = max(self.commit.offset - self.ends.log_end_offset, 0)
        return beyond if self.ends.all_read or not beyond else None


@dataclass(slots=True)
class GroupsAnswer:
    """Rows by group, topic and partition; the logs they were read from; the scan of the partitions, with what it found of them."""

    rows: list[GroupRow]
    logs: list[GroupLog]
    result: ScanResult
    partitions: dict[TopicPartition, PartitionEnds] = field(default_factory=dict)
    has_log: bool = True
    """Whether there is any copy of `__consumer_offsets`."""
    share_logs: list[ShareLog] = field(default_factory=list)
    """Those of `__share_group_state`."""

    @property
    def names(self) -> list[str]:
        """Every group of the logs, asked for or not."""
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
    """What groups committed, against the logs of the partitions that `options` leave.

    `every_partition` also reads partitions on which no group committed. Raises UsageError for paths that make no sense.
    """
    inputs = gather(paths, options, elsewhere=True)
    compile_as_needed(sum(plan.bytes for plan in inputs.internal))
    witnesses = read_witnesses(inputs)
    share_logs, malformed = read_share_logs(inputs)
    history = witnesses.groups or GroupHistory()
    names = _topic_names(inputs, witnesses) if share_logs else {}
    require_asked(inputs, options, _partitions_of(_rows(history, share_logs, names, ScanOptions(), None)))
    rows = _rows(history, share_logs, names, options, group_glob)
    wanted = {(row.topic, row.partition) for row in rows}
    if not every_partition:
        inputs.replicas = [plan for plan in inputs.replicas if (plan.context.topic, plan.context.partition) in wanted]
    ends: dict[TopicPartition, PartitionEnds] = {}

    def look(replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        context = replicas[0].context
        read = [replica for replica in replicas if replica.end_is_known]
        if read and context.topic != CLUSTER_METADATA_TOPIC:  # its readers are the quorum's, which know no ISR
            proven = result.summary.high_watermark_at_least
            ends[context.topic, context.partition] = _ends(read, reader, proven, all_read=len(read) == len(replicas))

    result = scan_inputs(inputs, options, progress, look, witnesses)
    result.findings = [finding for finding in result.findings if _is_of_groups(finding)] + malformed
    rows = [_with_ends(row, ends) for row in rows]
    if every_partition and group_glob is None:
        rows += [GroupRow(None, None, *key, ends=ends[key]) for key in ends if key not in wanted]
    rows.sort(key=_by_group)
    return GroupsAnswer(rows, history.logs, result, ends, witnesses.groups is not None, share_logs)


def _partitions_of(rows: list[GroupRow]) -> set[TopicPartition]:
    return {(row.topic_or_id, row.partition) for row in rows if row.topic_or_id and row.partition is not None}


def _is_of_groups(finding: Finding) -> bool:
    return finding.kind in kinds_with(Trait.CONCERNS_GROUPS) or finding.place.topic in (
        CONSUMER_OFFSETS_TOPIC,
        SHARE_GROUP_STATE_TOPIC,
    )


def _by_group(row: GroupRow) -> tuple[bool, str, str, int, str]:
    return row.group is None, row.group or "", row.topic or "", row.partition or 0, row.status or ""


def _topic_names(inputs: Inputs, witnesses: Witnesses) -> dict[str, str]:
    """Topic id → name: as share groups were told, as the controller's log has it, and as the directories say."""
    names: dict[str, str] = {}
    for log in [] if witnesses.groups is None else witnesses.groups.logs:
        names |= log.topic_names
    if witnesses.controller is not None:
        names |= {topic_id: topic.topic for topic_id, topic in witnesses.controller.topics.items() if topic.topic}
    for plan in (*inputs.replicas, *inputs.internal):
        if plan.context.topic_id is not None:
            names[plan.context.topic_id] = plan.context.topic
    return names


def _share_row(log: ShareLog, state: ShareState, topic: str | None, groups: dict[str, Group]) -> GroupRow:
    return GroupRow(
        state.group,
        groups.get(state.group, Group(state.group, "share")),
        topic,
        state.partition,
        status="share",
        record_offset=state.record_offset,
        log_partition=log.partition,
        log_broker=log.broker,
        unknown_after_offset=state.unknown_after,
        share=state,
    )


def _rows(
    history: GroupHistory, share_logs: list[ShareLog], names: dict[str, str], options: ScanOptions, group_glob: str | None
) -> list[GroupRow]:
    """A row for each offset that is committed or pending, each share partition, and one for each group that has none."""
    groups = {name: group for log in history.logs for name, group in log.groups.items()}
    shares = [_share_row(log, state, names.get(state.topic_id), groups) for log in share_logs for state in log.states]
    rows: list[GroupRow] = [*shares]
    for log in history.logs:
        rows += [_committed(log, committed_offset, history) for committed_offset in log.committed]
        rows += [
            GroupRow(
                commit.group,
                log.groups.get(commit.group),
                commit.topic,
                commit.partition,
                commit.commit,
                "pending",
                in_transaction=True,
                record_offset=commit.record_offset,
                log_partition=log.partition,
                log_broker=log.broker,
                producer_id=commit.producer_id,
            )
            for commit in log.pending
        ]
        if options.topic_glob is None and options.partition is None:
            named = {row.group for row in rows}
            rows += [
                GroupRow(
                    name,
                    group,
                    None,
                    None,
                    log_partition=log.partition,
                    log_broker=log.broker,
                    unknown_after_offset=group.unknown_after,
                )
                for name, group in log.groups.items()
                if name not in named
            ]
    return [row for row in rows if _is_wanted(row, options, group_glob)]


def _is_wanted(row: GroupRow, options: ScanOptions, group_glob: str | None) -> bool:
    if group_glob is not None and not fnmatchcase(row.group or "", group_glob):
        return False
    return fits((row.topic_or_id or "", row.partition), options)


def _committed(log: GroupLog, committed_offset: Committed, history: GroupHistory) -> GroupRow:
    coordinator_partition = history.read_from.get(committed_offset.group)
    return GroupRow(
        committed_offset.group,
        log.groups.get(committed_offset.group),
        committed_offset.topic,
        committed_offset.partition,
        committed_offset.last,
        "committed",
        committed_offset.in_transaction,
        committed_offset.record_offset,
        log.partition,
        log.broker,
        committed_offset.unknown_after,
        None if coordinator_partition == log.partition else coordinator_partition,
    )


def _with_ends(row: GroupRow, ends: dict[TopicPartition, PartitionEnds]) -> GroupRow:
    if row.topic is None or row.partition is None:
        return row
    return replace(row, ends=ends.get((row.topic, row.partition)))


def _ends(replicas: list[Replica], reader: LogReader, proven: int | None, *, all_read: bool) -> PartitionEnds:
    answer = readable(replicas, replicas[0].context.control, timestamps_of(reader), proven)
    start = min(replica.log_start_offset for replica in replicas)
    local_start = min(replica.local_log_start_offset for replica in replicas)
    return PartitionEnds(start, local_start, max(replica.log_end_offset for replica in replicas), answer, all_read)
