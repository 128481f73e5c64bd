"""Offsets that groups must be set to after elections, on two forked copies of a partition and of `__consumer_offsets`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.group_resets import group_resets
from kafka_forensics.questions.plan import PlanOptions, make_plans
from tests.support.brokers import put_consumer_offsets, put_replica
from tests.support.groups import TOPIC_ID_BYTES, TOPIC_ID_TEXT, commit_key, commit_value, coordinator_batches
from tests.support.segments import batch

Commit = tuple[int, int]
"""(offset, leader epoch, -1: none)."""
COMMON = batch(0, 10, epoch=0)
LOGS = {1: COMMON + batch(10, 5, epoch=1, value=b"of 1"), 2: COMMON + batch(10, 20, epoch=2, value=b"of 2")}
"""Broker 1 ends at 15, broker 2 at 30; they fork at 10."""


def put_copies(
    folder: Path, commits: Mapping[int, Sequence[Commit]], logs: Mapping[int, bytes] = LOGS, common: Sequence[Commit] = ()
) -> Path:
    """Brokers whose coordinators took these commits after those that both have; they differ from the record after them on."""
    for broker, log in logs.items():
        log_dir = put_replica(folder, broker, log, high_watermark=10, clean=True)
        records = [(commit_key(topic="orders"), commit_value(offset, leader_epoch=epoch)) for offset, epoch in common]
        own = [(commit_key(topic="orders"), commit_value(offset, leader_epoch=epoch)) for offset, epoch in commits.get(broker, ())]
        filler = (commit_key(f"of broker {broker}"), None)
        data = coordinator_batches(*records, partition_leader_epoch=0)
        data += coordinator_batches(filler, *own, start=len(records), partition_leader_epoch=broker)
        put_consumer_offsets(log_dir, data)
    return folder


def resets(folder: Path, elect: int) -> dict[str, dict[tuple[str, int], int]]:
    return group_resets(make_plans([str(folder)], ScanOptions(), PlanOptions()), str(elect))


@pytest.mark.parametrize(
    ("elect", "commits", "offset"),
    [
        # the elected coordinator has what the group read of the elected log
        (2, {2: [(20, 2)]}, None),
        (2, {1: [(12, 1)], 2: [(20, 2)]}, None),
        (2, {2: [(8, 0)]}, None),
        # the given-up coordinator has it
        (1, {1: [(9, 0)], 2: [(10, 0)]}, 10),
        (2, {1: [(25, 2)], 2: [(20, 2)]}, 25),
        (2, {1: [(25, 2)]}, 25),
        # it has less, or on the other log
        (2, {1: [(14, 1)], 2: [(12, 2)]}, None),
        (2, {1: [(9, 0)], 2: [(12, 2)]}, None),
        # the elected coordinator has an offset on the other log
        (2, {2: [(14, 1)]}, 10),
        (2, {1: [(25, 2)], 2: [(14, 1)]}, 25),
        (1, {1: [(14, 2)]}, 10),
        # beyond the end of the elected log
        (1, {1: [(20, 2)]}, 10),
        # without an epoch: only the longer log has these offsets
        (2, {1: [(20, -1)], 2: [(14, -1)]}, 20),
        (2, {2: [(20, -1)]}, None),
        # without an epoch: both logs have these offsets
        (2, {2: [(14, -1)]}, None),
        (1, {1: [(14, -1)]}, None),
    ],
)
def test_a_group_goes_on_where_it_stopped_to_read_the_elected_log(
    elect: int, commits: dict[int, list[Commit]], offset: int | None, tmp_path: Path
) -> None:
    expected = {} if offset is None else {"billing": {("orders", 0): offset}}
    assert resets(put_copies(tmp_path, commits), elect) == expected


def test_a_reset_by_hand_that_both_coordinators_have_is_kept(tmp_path: Path) -> None:
    assert resets(put_copies(tmp_path, {}, common=[(10, 0), (3, -1)]), 2) == {}


def test_where_logs_agree_the_largest_commit_counts(tmp_path: Path) -> None:
    copies = put_copies(tmp_path, {1: [(5, -1)], 2: [(8, -1)]}, logs=dict.fromkeys((1, 2), COMMON))
    assert (resets(copies, 1), resets(copies, 2)) == ({"billing": {("orders", 0): 8}}, {})


def test_a_follower_that_lags_shows_no_lost_commit(tmp_path: Path) -> None:
    """Broker 3 has what the elected coordinator committed before the offset was set back by hand."""
    own: dict[int, list[Commit]] = {2: [(25, 2), (12, 2)], 1: [(9, 0)]}
    copies = put_copies(tmp_path, own)
    log_dir = put_replica(tmp_path, 3, LOGS[2], high_watermark=10, clean=True)
    commit = (commit_key(topic="orders"), commit_value(25, leader_epoch=2))
    put_consumer_offsets(log_dir, coordinator_batches((commit_key("of broker 2"), None), commit, partition_leader_epoch=2))
    assert resets(copies, 2) == {}


@pytest.mark.parametrize("logs", [LOGS, dict.fromkeys((1, 2), COMMON)], ids=["forked", "equal"])
@pytest.mark.parametrize(("topic_id", "offset"), [(TOPIC_ID_BYTES, 8), (bytes(16), None)])
def test_a_commit_on_another_topic_of_that_name_does_not_count(
    topic_id: bytes, offset: int | None, logs: dict[int, bytes], tmp_path: Path
) -> None:
    for broker, log in logs.items():
        log_dir = put_replica(tmp_path, broker, log, high_watermark=10, topic_id=TOPIC_ID_TEXT, clean=True)
        commit = (commit_key(topic="orders"), commit_value(8, version=4, topic_id=topic_id) if broker == 2 else None)
        put_consumer_offsets(log_dir, coordinator_batches(commit, partition_leader_epoch=broker))
    assert resets(tmp_path, 1) == ({} if offset is None else {"billing": {("orders", 0): offset}})
