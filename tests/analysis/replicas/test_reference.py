"""How replicas agree with their reference: every value, what chooses the reference, and that harmless differences are none.

Compacted topics, damage of real logs and missing starts are cases of the gallery (`tests/faults/answers.json`).
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import compare, reference_agreements
from kafka_forensics.model.controller import PartitionControl
from tests.analysis.replica_logs import Batch, Logs, batches

LOG = batches((0, "abcdef"))


def agreements(*logs: list[Batch], leader: int | None = None, damaged: int | None = None, **options: Any) -> list[Any]:
    """The agreement of each of these logs, on brokers 1, 2, …, and first the broker of the reference; broker `damaged` has a wrong
    CRC in its third batch."""
    reader = Logs(**options)
    replicas: list[Replica] = []
    for broker, log in enumerate(logs, 1):
        data = bytearray(b"".join(batch.written() for batch in log))
        if broker == damaged:
            data[sum(len(batch.written()) for batch in log[:3]) - 1] ^= 1
        replicas.append(reader.add(broker, log, data=bytes(data)))
        if leader is not None:
            replicas[-1].context.control = PartitionControl(leader, 0, [leader], [], [1, 2, 3])
    return agreed(replicas, reader)


def agreed(replicas: list[Replica], reader: Logs, *, all_read: bool = True, without_start: tuple[Replica, ...] = ()) -> list[Any]:
    found = reference_agreements(replicas, compare(replicas, reader), without_start, all_read=all_read)
    [reference] = {agreement.reference_broker for agreement in found}
    return [reference, *(agreement.kind for agreement in found)]


@pytest.mark.parametrize("leader", [None, 1, 2, 3])
def test_a_damaged_replica_differs_and_the_others_agree(leader: int | None) -> None:
    """Also if the leader has the damaged copy: what differs is known by the CRC."""
    found = agreements(LOG, LOG, LOG, leader=leader, damaged=2)
    reference, *kinds = found
    assert reference == (leader or 1)
    agreeing = ["reference", "content", "identical"] if reference == 1 else ["identical", "content", "identical"]
    assert kinds == (agreeing if reference != 3 else ["identical", "content", "reference"])


@pytest.mark.parametrize("leader", [None, 1, 2, 3])
def test_a_replica_with_a_gap_lacks_records_and_the_others_agree(leader: int | None) -> None:
    reference, *kinds = agreements(LOG, [*LOG[:2], *LOG[3:]], LOG, leader=leader)
    assert reference == (leader or 1)
    assert kinds[1] == "missing"
    assert {kinds[0], kinds[2]} <= {"reference", "identical"}


@pytest.mark.parametrize("gapped", [0, 1])
def test_a_gap_in_a_compacted_partition_is_what_the_cleaner_removed(gapped: int) -> None:
    """Even if only the other broker's checkpoint lists the partition."""
    reader, logs = Logs(), [LOG, LOG]
    logs[gapped] = [*LOG[:2], *LOG[3:]]
    replicas = [reader.add(broker + 1, log, compacted=broker != gapped) for broker, log in enumerate(logs)]
    assert agreed(replicas, reader) == [1, "reference", "compacted"]
    assert compare(replicas, reader).agreement.kind == "compacted"


def test_one_gap_on_all_replicas_is_no_difference() -> None:
    gap = [*LOG[:2], *LOG[3:]]
    assert agreements(gap, gap, gap) == [1, "reference", "identical", "identical"]


def test_a_shorter_log_is_behind_and_a_longer_one_ahead() -> None:
    assert agreements(LOG, LOG[:4], LOG[:5]) == [1, "reference", "behind", "behind"]
    assert agreements(LOG, LOG[:4], LOG[:4], leader=2) == [2, "ahead", "reference", "identical"]


def test_a_log_that_starts_later_is_identical() -> None:
    assert agreements(LOG, LOG[3:], LOG) == [1, "reference", "identical", "identical"]


def test_a_log_that_certainly_lacks_its_start_differs() -> None:
    reader = Logs()
    replicas = [reader.add(broker, log) for broker, log in enumerate((LOG, LOG[3:], LOG), 1)]
    assert agreed(replicas, reader, without_start=(replicas[1],)) == [1, "reference", "missing", "identical"]


def test_equal_records_in_other_batches_are_identical() -> None:
    other = [replace(batch, codec="gzip") for batch in LOG]
    assert agreements(LOG, other, LOG) == [1, "reference", "identical", "identical"]


def test_other_records_conflict_with_the_leader() -> None:
    fork = batches((0, "abxy"))
    assert agreements(LOG, fork, LOG, leader=1) == [1, "reference", "conflict", "identical"]
    assert agreements(LOG, fork, LOG, leader=2) == [2, "conflict", "reference", "conflict"]


def test_without_a_leader_the_latest_epoch_is_the_reference_however_short() -> None:
    assert agreements(LOG, batches((0, "ab"), (3, "x")), LOG[:2]) == [2, "conflict", "reference", "behind"]


def test_without_a_leader_replicas_of_one_epoch_in_conflict_have_no_reference() -> None:
    fork = batches((0, "abxyz"))
    assert agreements(LOG, fork, fork) == [None, "conflict", "conflict", "conflict"]
    assert agreements(LOG, fork, LOG[:2]) == [None, "conflict", "conflict", None]


def test_a_leader_without_a_copy_is_not_the_reference() -> None:
    assert agreements(LOG[:4], LOG, leader=3) == [2, "behind", "reference"]


def test_the_leader_is_found_by_its_node_id() -> None:
    reader = Logs()
    replicas = [reader.add(broker, LOG[:end]) for broker, end in ((1, 6), (2, 4))]
    for replica, name, node_id in zip(replicas, "ab", (101, 102), strict=True):
        replica.context.broker, replica.context.node_id = name, node_id
        replica.context.control = PartitionControl(102, 0, [102], [], [101, 102])
    reader.data |= {"a": reader.data[1], "b": reader.data[2]}
    assert agreed(replicas, reader) == ["b", "ahead", "reference"]


def test_a_log_read_in_part_is_not_compared_unless_it_differs() -> None:
    reader = Logs()
    replicas = [reader.add(broker, log) for broker, log in enumerate((LOG, LOG[:3], batches((0, "axc"))), 1)]
    for replica in replicas[1:]:
        replica.state.unread.add(0)
    assert agreed(replicas, reader) == [1, "reference", "not_compared", "conflict"]


def test_nothing_agrees_for_sure_if_something_could_not_be_read_again() -> None:
    reader = Logs()
    replicas = [reader.add(broker, log) for broker, log in enumerate((LOG, LOG, [*LOG[:2], *LOG[3:]]), 1)]
    assert agreed(replicas, reader, all_read=False) == [1, "reference", "not_compared", "missing"]


def test_a_replica_without_others_has_no_reference() -> None:
    assert agreements(LOG) == [None, None]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=2, max_size=4), st.one_of(st.none(), st.integers(1, 4)))
def test_parts_of_one_log_never_differ(parts: list[tuple[int, int]], leader: int | None) -> None:
    logs = [LOG[min(start, end - 1) : end] for start, end in parts]
    reference, *kinds = agreements(*logs, leader=leader)
    assert reference == (leader if leader is not None and leader <= len(logs) else 1 + ends(parts).index(max(ends(parts))))
    assert set(kinds) <= {"reference", "identical", "behind", "ahead"}
    assert kinds[reference - 1] == "reference"


def ends(parts: list[tuple[int, int]]) -> list[int]:
    return [end for _, end in parts]
