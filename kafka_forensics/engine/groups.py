"""Committed offsets against the logs they point into, and why the newest records of a partition cannot be read."""

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from kafka_forensics.analysis.group_offsets import timestamps_of
from kafka_forensics.analysis.readable import Readable, readable
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.compiled import use_compiled, worth_compiling
from kafka_forensics.engine.inputs import gather, require_asked
from kafka_forensics.engine.local import Progress, scan_inputs
from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.engine.partitions import PartitionResult
from kafka_forensics.engine.reader import LogReader
from kafka_forensics.engine.witnesses import read_witnesses
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC
from kafka_forensics.model.group_log import Committed, Group, GroupHistory, GroupLog, OffsetCommit
from kafka_forensics.model.results import ScanResult

TopicPartition = tuple[str, int]
_OWN_KINDS = frozenset({"GROUP_OFFSET_BEYOND_LOG", "READERS_HELD_BACK"})


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Where the copies of a partition start and end, and what holds its readers back."""

    log_start_offset: int
    """The smallest of all copies."""
    log_end_offset: int
    """The largest of all copies."""
    readable: Readable


@dataclass(frozen=True, slots=True)
class GroupRow:
    """What one group committed on one partition; `ends` is None where no copy of the partition was given.

    `group` is None in rows of partitions on which no group committed, `topic` in those of groups that committed nothing. `status`
    is `committed`, or `pending`: in a transaction without a marker, so it does not count yet.
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
    """Of `__consumer_offsets`."""
    log_broker: int | str | None = None
    """Whose copy of it was read."""
    unknown_after_offset: int | None = None
    producer_id: int | None = None
    """Of a pending commit."""
    ends: PartitionEnds | None = None

    @property
    def lag(self) -> int | None:
        """Records behind the leader's log end (the longest copy's if no leader is known), None if that or the offset is unknown."""
        if self.ends is None or self.commit is None:
            return None
        return max(self.ends.readable.log_end_offset - self.commit.offset, 0)

    @property
    def beyond_end(self) -> int | None:
        """Offsets committed beyond the end of every copy; 0 where there are none."""
        if self.ends is None or self.commit is None:
            return None
        return max(self.commit.offset - self.ends.log_end_offset, 0)


@dataclass(slots=True)
class GroupsAnswer:
    """Rows by group, topic and partition; the logs they were read from; the scan of the partitions, with what it found of them."""

    rows: list[GroupRow]
    logs: list[GroupLog]
    result: ScanResult
    partitions: dict[TopicPartition, PartitionEnds] = field(default_factory=dict)
    has_log: bool = True
    """Whether there is any copy of `__consumer_offsets`."""

    @property
    def names(self) -> list[str]:
        """Every group of the logs, asked for or not."""
        committed = {one.group for log in self.logs for one in log.committed} | {
            one.group for log in self.logs for one in log.pending
        }
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
    use_compiled(worth_compiling(sum(plan.bytes for plan in inputs.internal)))
    witnesses = read_witnesses(inputs)
    history = witnesses.groups
    every = [] if history is None else _rows(history, ScanOptions(), None)
    require_asked(
        inputs, options, {(row.topic, row.partition) for row in every if row.topic is not None and row.partition is not None}
    )
    rows = [] if history is None else _rows(history, options, group_glob)
    wanted = {(row.topic, row.partition) for row in rows}
    if not every_partition:
        inputs.replicas = [plan for plan in inputs.replicas if (plan.context.topic, plan.context.partition) in wanted]
    ends: dict[TopicPartition, PartitionEnds] = {}

    def look(replicas: list[Replica], reader: LogReader, _: PartitionResult) -> None:
        context = replicas[0].context
        if context.topic != CLUSTER_METADATA_TOPIC:  # its readers are the quorum's, which know no ISR
            ends[context.topic, context.partition] = _ends(replicas, reader)

    result = scan_inputs(inputs, options, progress, look, witnesses)
    result.findings = [one for one in result.findings if one.kind in _OWN_KINDS or one.place.topic == CONSUMER_OFFSETS_TOPIC]
    rows = [_with_ends(row, ends) for row in rows]
    if every_partition and group_glob is None:
        rows += [GroupRow(None, None, *key, ends=ends[key]) for key in ends if key not in wanted]
    rows.sort(key=lambda row: (row.group is None, row.group or "", row.topic or "", row.partition or 0, row.status or ""))
    return GroupsAnswer(rows, [] if history is None else history.logs, result, ends, history is not None)


def _rows(history: GroupHistory, options: ScanOptions, group_glob: str | None) -> list[GroupRow]:
    """A row for each offset that is committed or pending, and one for each group that has none."""
    rows: list[GroupRow] = []
    for log in history.logs:
        rows += [_committed(log, one) for one in log.committed]
        rows += [
            GroupRow(
                one.group,
                log.groups.get(one.group),
                one.topic,
                one.partition,
                one.commit,
                "pending",
                in_transaction=True,
                record_offset=one.record_offset,
                log_partition=log.partition,
                log_broker=log.broker,
                producer_id=one.producer_id,
            )
            for one in log.pending
        ]
        if options.topic_glob is None and options.partition is None:
            named = {row.group for row in rows}
            rows += [
                GroupRow(
                    name,
                    one,
                    None,
                    None,
                    log_partition=log.partition,
                    log_broker=log.broker,
                    unknown_after_offset=one.unknown_after,
                )
                for name, one in log.groups.items()
                if name not in named
            ]
    return [row for row in rows if _is_wanted(row, options, group_glob)]


def _is_wanted(row: GroupRow, options: ScanOptions, group_glob: str | None) -> bool:
    if group_glob is not None and not fnmatchcase(row.group or "", group_glob):
        return False
    if options.partition is not None and row.partition != options.partition:
        return False
    return options.topic_glob is None or fnmatchcase(row.topic or "", options.topic_glob)


def _committed(log: GroupLog, one: Committed) -> GroupRow:
    return GroupRow(
        one.group,
        log.groups.get(one.group),
        one.topic,
        one.partition,
        one.last,
        "committed",
        one.in_transaction,
        one.record_offset,
        log.partition,
        log.broker,
        one.unknown_after,
    )


def _with_ends(row: GroupRow, ends: dict[TopicPartition, PartitionEnds]) -> GroupRow:
    if row.topic is None or row.partition is None:
        return row
    return replace(row, ends=ends.get((row.topic, row.partition)))


def _ends(replicas: list[Replica], reader: LogReader) -> PartitionEnds:
    answer = readable(replicas, replicas[0].context.control, timestamps_of(reader))
    start = min(one.log_start_offset for one in replicas)
    return PartitionEnds(start, max(one.log_end_offset for one in replicas), answer)
