"""The table of expected replicas: how log directories are read, and the case of each replica."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kafka_forensics.evidence.ledger import CopyExtent, GivenDirectory, Ledger, Presence, read_directory
from kafka_forensics.model.controller import ControllerHistory, PartitionControl, TopicHistory

A, B, C, D = ("a", 0), ("b", 0), ("c", 0), ("d", 0)
METADATA = ("__cluster_metadata", 0)
ONE, TWO, ELSE = "directoryAAAAAAAAAAAAA", "directoryBBBBBBBBBBBBB", "directoryCCCCCCCCCCCCC"


def given(broker: int, *there: tuple[str, int], named: Iterable[tuple[str, int]] = (), **more: object) -> GivenDirectory:
    """A log directory with whole replicas, and a checkpoint with an offset for each partition of `named`."""
    fields: dict[str, object] = {"node_id": broker, "there": dict.fromkeys(there, Presence.WHOLE)}
    fields["watermarks"] = dict.fromkeys(named, 10)
    return GivenDirectory(broker, **({"name": f"b{broker}"} | fields | more))  # type: ignore[arg-type]


def controller(**assigned: list[int]) -> ControllerHistory:
    """A controllers' log that assigns partition 0 of each topic to these brokers."""
    said = {(topic, 0): PartitionControl(nodes[0], 0, nodes, [], nodes, topic_id=topic) for topic, nodes in assigned.items()}
    return ControllerHistory(said)


def cases(ledger: Ledger, key: tuple[str, int]) -> dict[int | str, str]:
    return {row.broker: row.case.value for row in ledger.rows(*key)}


@pytest.mark.parametrize(
    ("directory", "asked", "reading", "reason"),
    [
        (given(1, A, B, named=[A, B]), None, CopyExtent.WHOLE, "whole"),
        (given(1, A, B, C, named=[A, B, C, D]), None, CopyExtent.WHOLE, "whole"),
        (given(1, A, named=[A, B]), None, CopyExtent.WHOLE, "whole"),
        (given(1, A, named=[A, B, C]), None, CopyExtent.PARTIAL, "most_absent"),
        (given(1, named=[A, B, C]), None, CopyExtent.WHOLE, "whole"),
        (given(1, A, has_identity=False, has_checkpoints=False), None, CopyExtent.PARTIAL, "no_small_files"),
        (given(1, A, is_lone_partition=True, named=[A]), None, CopyExtent.PARTIAL, "alone"),
        (given(1, A, has_checkpoints=False), None, CopyExtent.WHOLE, "whole"),
        (given(1, has_checkpoints=False), None, CopyExtent.WIPED, "identity_alone"),
        (given(1, METADATA, has_checkpoints=False), None, CopyExtent.WHOLE, "whole"),
        (given(1, has_identity=False, has_checkpoints=False, is_empty=True), None, CopyExtent.WIPED, "empty"),
        (given(1, has_identity=False, has_checkpoints=False, is_empty=True), CopyExtent.WHOLE, CopyExtent.WIPED, "said"),
        (given(1, has_checkpoints=False), CopyExtent.PARTIAL, CopyExtent.PARTIAL, "said"),
        (given(1, has_checkpoints=False), CopyExtent.WHOLE, CopyExtent.WIPED, "said"),
        (given(1, A, named=[A, B, C]), CopyExtent.WHOLE, CopyExtent.WHOLE, "said"),
        (given(1, A, B, named=[A, B, C]), CopyExtent.PARTIAL, CopyExtent.PARTIAL, "said"),
    ],
)
def test_each_row_of_the_table(directory: GivenDirectory, asked: CopyExtent | None, reading: CopyExtent, reason: str) -> None:
    directory_reading = read_directory(directory, directory.watermarks, asked)
    assert (directory_reading.reading, directory_reading.reason) == (reading, reason)


def test_only_a_directory_with_assigned_replicas_is_wiped() -> None:
    alone = given(1, METADATA, has_checkpoints=False)
    assert Ledger([alone], controller(a=[2])).readings[0].reading is CopyExtent.WHOLE
    assert Ledger([alone], controller(a=[1])).readings[0].reading is CopyExtent.WIPED


def test_a_checkpoint_expects_replicas_in_whole_and_partial_directories() -> None:
    whole, partial = given(1, A, B, named=[A, B, C]), given(2, A, named=[A, B, C])
    ledger = Ledger([whole, partial])
    assert cases(ledger, A) == {1: "whole", 2: "whole"}
    assert cases(ledger, B) == {1: "whole", 2: "not_copied"}
    assert cases(ledger, C) == {1: "absent", 2: "not_copied"}
    assert cases(Ledger([whole, partial], copied=CopyExtent.WHOLE), C) == {1: "absent", 2: "absent"}
    assert cases(Ledger([whole, partial], copied=CopyExtent.PARTIAL), C) == {1: "not_copied", 2: "not_copied"}


def test_an_offset_of_zero_expects_nothing_and_neither_does_a_directory_set_aside() -> None:
    nothing = given(1, A, watermarks={A: 1, B: 0})
    assert cases(Ledger([nothing, given(2, A, named=[A, B], set_aside=frozenset([B]))]), B) == {}


def test_a_replica_in_another_log_directory_of_its_broker_is_present() -> None:
    first, second = given(1, A, named=[A, B]), given(1, B, named=[B])
    assert cases(Ledger([first, second]), B) == {1: "whole"}


def test_the_controllers_log_expects_replicas_of_brokers_that_were_not_given() -> None:
    ledger = Ledger([given(1, A, named=[A]), given(2, named=[A])], controller(a=[1, 2, 3], b=[2]))
    assert cases(ledger, A) == {1: "whole", 2: "absent", 3: "not_given"}
    rows = {row.broker: row for row in ledger.rows(*A)}
    assert [rows[broker].is_assigned for broker in (1, 2, 3)] == [True, True, True]
    assert cases(ledger, B) == {2: "absent"}


def test_a_replica_that_is_no_longer_assigned() -> None:
    [_, moved] = Ledger([given(1, A), given(2, B, named=[A, B])], controller(a=[1], b=[2])).rows(*A)
    assert (moved.broker, moved.case, moved.is_assigned) == (2, Presence.ABSENT, False)


def test_a_partition_missing_from_the_controllers_log_is_deleted() -> None:
    known = controller(b=[1])
    known.topics["of a"] = TopicHistory(A[0], "of a")
    [row] = Ledger([given(1, B, named=[A, B])], known).rows(*A)
    assert (row.case, row.is_deleted, row.never_known) == (Presence.ABSENT, True, False)


def test_a_topic_that_a_complete_controllers_log_never_had_is_not_deleted() -> None:
    directory = given(1, B, named=[A, B])
    known = controller(b=[1])
    [row] = Ledger([directory], known).rows(*A)
    assert (row.case, row.is_deleted, row.never_known) == (Presence.ABSENT, False, True)
    [elsewhere] = Ledger([replace(directory, of_another_cluster=True)], known).rows(*A)
    assert (elsewhere.is_deleted, elsewhere.never_known) == (True, False)
    lacking: list[dict[str, Any]] = [{"log_start_offset": 1}, {"gaps": [(3, 4)]}, {"malformed_records": 1}, {"unknown_after": 7}]
    lacking.append({"end_is_known": False})
    for less in lacking:
        [row] = Ledger([directory], replace(known, **less)).rows(*A)
        assert (row.is_deleted, row.never_known) == (True, False)


@pytest.mark.parametrize(
    ("directories", "case", "log_dir"),
    [
        ([given(1, B, directory_id=ONE), given(1, C, directory_id=TWO, name="b1-b")], "absent", "b1"),
        ([given(1, B, directory_id=ELSE), given(1, C, directory_id=TWO, name="b1-b")], "not_given", None),
        ([given(1, directory_id=ELSE, has_checkpoints=False), given(1, C, directory_id=TWO, name="b1-b")], "absent", "b1"),
        ([given(1, B), given(1, C, name="b1-b")], "absent", "b1"),
    ],
)
def test_the_directory_that_the_controllers_assign(directories: list[GivenDirectory], case: str, log_dir: str | None) -> None:
    [row] = Ledger(directories, ControllerHistory({A: PartitionControl(1, 0, [1], [], [1], directories=[ONE])})).rows(*A)
    assert (row.case.value, row.log_dir) == (case, log_dir)


def test_a_wiped_directory_is_expected_to_have_the_partitions_of_others() -> None:
    wiped = given(3, has_checkpoints=False)
    ledger = Ledger([given(1, A, B), given(2, A), wiped])
    assert cases(ledger, A) == {1: "whole", 2: "whole", 3: "absent"}
    assert {row.is_wiped for row in ledger.rows(*A) if row.broker == 3} == {True}
    assert cases(Ledger([given(1, A), wiped], controller(a=[1])), A) == {1: "whole"}


def test_a_link_in_place_of_a_directory_is_not_absent() -> None:
    ledger = Ledger([given(1, named=[A, B], there={A: Presence.LINK, B: Presence.UNREADABLE})])
    assert (cases(ledger, A), cases(ledger, B)) == ({1: "link"}, {1: "unreadable"})


def test_many_partitions_take_seconds() -> None:
    """30,000 partitions of three brokers, a third missing on one: no step scans all partitions for each of them."""
    keys = [(f"t{number}", 0) for number in range(30_000)]
    brokers = [given(broker, *keys[(broker == 3) * 10_000 :], named=keys) for broker in (1, 2, 3)]
    history = ControllerHistory({key: PartitionControl(1, 0, [1, 2, 3], [], [1, 2, 3]) for key in keys})
    assert sum(row.case is Presence.ABSENT for row in Ledger(brokers, history).without_copy()) == 10_000
