"""Which committed offsets must be set once the leaders of a plan are elected.

A coordinator goes on with the commits in its copy of `__consumer_offsets`. They may lie on a log that was not elected, or lack what
the group read of the elected log. Then the group would skip records, or read some again.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka_forensics.model.coordinators import CommittedOffset, OffsetCommit
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.offset_ranges import holds, normalised
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.epochs import epoch_at


class _Commit(NamedTuple):
    """A commit in a copy of `__consumer_offsets`; the coordinator loses it if that copy is given up."""

    commit: CommittedOffset
    is_lost: bool


def group_resets(plans: Plans, elect: str | None = None) -> dict[str, dict[TopicPartition, int]]:
    """Group → partition → the offset up to which the group read the elected log, where its coordinator has another.

    `elect` is the broker to lead; None: the recommended ones. Partitions that were not planned are left out.
    """
    planned_of = {(planned.plan.topic, planned.plan.partition): planned for planned in plans.planned}
    commits: defaultdict[tuple[str, TopicPartition], list[_Commit]] = defaultdict(list)
    for found in _commits(plans, elect):
        commits[found.commit.group, (found.commit.topic, found.commit.partition)].append(found)
    resets: defaultdict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for (group, partition), rows in sorted(commits.items()):
        planned = planned_of.get(partition)
        if planned is None and partition not in plans.agreeing:
            continue
        topic_id = plans.agreeing[partition] if planned is None else planned.topic_id
        of_topic = [row for row in rows if topic_id is None or row.commit.last.topic_id in (None, topic_id)]
        read_to = _read_to(planned, elect, [row.commit.last for row in of_topic]) if of_topic else None
        present = [row.commit.last.offset for row in of_topic if not row.is_lost]
        if read_to is not None and present != [read_to]:
            resets[group][partition] = read_to
    return resets


def _commits(plans: Plans, elect: str | None) -> Iterator[_Commit]:
    """Commits that the coordinators will have, and those that they will lack, on planned and unplanned partitions."""
    replayed = set()
    for planned in plans.planned:
        leader = planned.chosen(elect)
        if planned.group_logs and leader is not None:
            replayed.add(planned.plan.partition)
            for broker, log in planned.group_logs.items():
                lost = normalised((loss.start, loss.end) for loss in leader.losses if broker in loss.held_by)
                for commit in log.committed:
                    if broker == leader.broker or holds(lost, commit.record_offset):
                        yield _Commit(commit, broker != leader.broker)
    for planned in plans.planned:
        yield from (_Commit(commit, is_lost=False) for commit in planned.commits if commit.log_partition not in replayed)


def _read_to(planned: Planned | None, elect: str | None, commits: Sequence[OffsetCommit]) -> int | None:
    """Up to where a group with these commits, at least one, read the elected log; None if unknown. Unplanned logs agree."""
    if planned is None:
        return max(commit.offset for commit in commits)
    leader = planned.chosen(elect)
    end = None if leader is None else planned.end_as_leader(leader)
    if leader is None or end is None:
        return None
    fork = min([end, *planned.forks_of(leader)])
    replicas = {replica.broker: replica for replica in planned.planner_input.replicas}
    epochs = replicas[leader.broker].epochs
    end_of_others = max((replicas[broker].log_end_offset for loss in leader.losses for broker in loss.held_by), default=0)
    read_to, perhaps_to = 0, 0
    for commit in commits:
        if not fork < commit.offset <= end:
            read_to = max(read_to, min(commit.offset, fork))
        elif commit.offset > end_of_others or epoch_at(epochs, commit.offset - 1) == commit.leader_epoch:
            read_to = max(read_to, commit.offset)
        elif commit.leader_epoch < 0:
            perhaps_to = max(perhaps_to, commit.offset)
        else:
            read_to = max(read_to, fork)
    return read_to if read_to >= perhaps_to else None
