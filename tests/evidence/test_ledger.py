"""The ledger of expected replicas: the extent of each log directory, and the case of each replica."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from kafka_forensics.evidence.ledger import CopyExtent, GivenDirectory, Ledger, Presence, read_directory
from kafka_forensics.model.controller import ControllerHistory, PartitionControl, TopicHistory

A, B, C, D = ("a", 0), ("b", 0), ("c", 0), ("d", 0)
METADATA = ("__cluster_metadata", 0)
FIRST_ID, SECOND_ID, UNKNOWN_ID = "directoryAAAAAAAAAAAAA", "directoryBBBBBBBBBBBBB", "directoryCCCCCCCCCCCCC"


def log_dir(
    broker: int, *replicas: tuple[str, int], checkpointed: Iterable[tuple[str, int]] = (), **other_fields: object
) -> GivenDirectory:
    """A log directory with whole replicas, and a checkpoint with an offset for each partition of `checkpointed`."""
    fields: dict[str, object] = {"name": f"b{broker}", "node_id": broker, "partitions": dict.fromkeys(replicas, Presence.WHOLE)}
    fields["watermarks"] = dict.fromkeys(checkpointed, 10)
    return GivenDirectory(broker, **(fields | other_fields))  # type: ignore[arg-type]


def controller(**assigned: list[int]) -> ControllerHistory:
    """A controllers' log that assigns partition 0 of each topic to these brokers."""
    partitions = {(topic, 0): PartitionControl(nodes[0], 0, nodes, [], nodes, topic_id=topic) for topic, nodes in assigned.items()}
    return ControllerHistory(partitions)


def cases(ledger: Ledger, key: tuple[str, int]) -> dict[int | str, str]:
    return {row.broker: row.presence.value for row in ledger.rows(*key)}


@pytest.mark.parametrize(
    ("directory", "requested", "reading", "reason"),
    [
        (log_dir(1, A, B, checkpointed=[A, B]), None, CopyExtent.WHOLE, "whole"),
        (log_dir(1, A, B, C, checkpointed=[A, B, C, D]), None, CopyExtent.WHOLE, "whole"),
        (log_dir(1, A, checkpointed=[A, B]), None, CopyExtent.WHOLE, "whole"),
        (log_dir(1, A, checkpointed=[A, B, C]), None, CopyExtent.PARTIAL, "most_absent"),
        (log_dir(1, checkpointed=[A, B, C]), None, CopyExtent.WHOLE, "whole"),
        (log_dir(1, A, has_identity=False, has_checkpoints=False), None, CopyExtent.PARTIAL, "no_small_files"),
        (log_dir(1, A, is_without_log_dir=True, checkpointed=[A]), None, CopyExtent.PARTIAL, "alone"),
        (log_dir(1, A, has_checkpoints=False), None, CopyExtent.WHOLE, "whole"),
        (log_dir(1, has_checkpoints=False), None, CopyExtent.WIPED, "identity_alone"),
        (log_dir(1, METADATA, has_checkpoints=False), None, CopyExtent.WHOLE, "whole"),
        (log_dir(1, has_identity=False, has_checkpoints=False, is_empty=True), None, CopyExtent.WIPED, "empty"),
        (log_dir(1, has_identity=False, has_checkpoints=False, is_empty=True), CopyExtent.WHOLE, CopyExtent.WIPED, "said"),
        (log_dir(1, has_checkpoints=False), CopyExtent.PARTIAL, CopyExtent.PARTIAL, "said"),
        (log_dir(1, has_checkpoints=False), CopyExtent.WHOLE, CopyExtent.WIPED, "said"),
        (log_dir(1, A, checkpointed=[A, B, C]), CopyExtent.WHOLE, CopyExtent.WHOLE, "said"),
        (log_dir(1, A, B, checkpointed=[A, B, C]), CopyExtent.PARTIAL, CopyExtent.PARTIAL, "said"),
    ],
)
def test_a_log_directory_is_whole_partial_or_wiped(
    directory: GivenDirectory, requested: CopyExtent | None, reading: CopyExtent, reason: str
) -> None:
    directory_reading = read_directory(directory, directory.watermarks, requested)
    assert (directory_reading.extent, directory_reading.reason) == (reading, reason)


def test_only_a_directory_with_assigned_replicas_is_wiped() -> None:
    alone = log_dir(1, METADATA, has_checkpoints=False)
    assert Ledger([alone], controller(a=[2])).readings[0].extent is CopyExtent.WHOLE
    assert Ledger([alone], controller(a=[1])).readings[0].extent is CopyExtent.WIPED


def test_a_checkpoint_expects_replicas_in_whole_and_partial_directories() -> None:
    whole, partial = log_dir(1, A, B, checkpointed=[A, B, C]), log_dir(2, A, checkpointed=[A, B, C])
    ledger = Ledger([whole, partial])
    assert cases(ledger, A) == {1: "whole", 2: "whole"}
    assert cases(ledger, B) == {1: "whole", 2: "not_copied"}
    assert cases(ledger, C) == {1: "absent", 2: "not_copied"}
    assert cases(Ledger([whole, partial], copied=CopyExtent.WHOLE), C) == {1: "absent", 2: "absent"}
    assert cases(Ledger([whole, partial], copied=CopyExtent.PARTIAL), C) == {1: "not_copied", 2: "not_copied"}


def test_a_checkpoint_offset_of_zero_or_a_renamed_directory_expects_no_replica() -> None:
    zero_offset = log_dir(1, A, watermarks={A: 1, B: 0})
    assert cases(Ledger([zero_offset, log_dir(2, A, checkpointed=[A, B], set_aside=frozenset([B]))]), B) == {}


def test_a_replica_in_another_log_directory_of_its_broker_is_present() -> None:
    first, second = log_dir(1, A, checkpointed=[A, B]), log_dir(1, B, checkpointed=[B])
    assert cases(Ledger([first, second]), B) == {1: "whole"}


def test_the_controllers_log_expects_replicas_of_brokers_that_were_not_log_dir() -> None:
    ledger = Ledger([log_dir(1, A, checkpointed=[A]), log_dir(2, checkpointed=[A])], controller(a=[1, 2, 3], b=[2]))
    assert cases(ledger, A) == {1: "whole", 2: "absent", 3: "not_given"}
    rows = {row.broker: row for row in ledger.rows(*A)}
    assert [rows[broker].is_assigned for broker in (1, 2, 3)] == [True, True, True]
    assert cases(ledger, B) == {2: "absent"}


def test_a_replica_that_is_no_longer_assigned() -> None:
    [_, moved] = Ledger([log_dir(1, A), log_dir(2, B, checkpointed=[A, B])], controller(a=[1], b=[2])).rows(*A)
    assert (moved.broker, moved.presence, moved.is_assigned) == (2, Presence.ABSENT, False)


def test_a_partition_missing_from_the_controllers_log_is_deleted() -> None:
    known = controller(b=[1])
    known.topics["of a"] = TopicHistory(A[0], "of a")
    [row] = Ledger([log_dir(1, B, checkpointed=[A, B])], known).rows(*A)
    assert (row.presence, row.is_deleted, row.never_known) == (Presence.ABSENT, True, False)


def test_a_topic_that_a_complete_controllers_log_never_had_is_not_deleted() -> None:
    directory = log_dir(1, B, checkpointed=[A, B])
    known = controller(b=[1])
    [row] = Ledger([directory], known).rows(*A)
    assert (row.presence, row.is_deleted, row.never_known) == (Presence.ABSENT, False, True)
    [elsewhere] = Ledger([replace(directory, of_another_cluster=True)], known).rows(*A)
    assert (elsewhere.is_deleted, elsewhere.never_known) == (True, False)
    lacking: list[dict[str, Any]] = [{"log_start_offset": 1}, {"gaps": [(3, 4)]}, {"malformed_records": 1}, {"unknown_after": 7}]
    lacking.append({"end_is_known": False})
    for less in lacking:
        [row] = Ledger([directory], replace(known, **less)).rows(*A)
        assert (row.is_deleted, row.never_known) == (True, False)


@pytest.mark.parametrize(
    ("directories", "case", "name"),
    [
        ([log_dir(1, B, directory_id=FIRST_ID), log_dir(1, C, directory_id=SECOND_ID, name="b1-b")], "absent", "b1"),
        ([log_dir(1, B, directory_id=UNKNOWN_ID), log_dir(1, C, directory_id=SECOND_ID, name="b1-b")], "not_given", None),
        (
            [log_dir(1, directory_id=UNKNOWN_ID, has_checkpoints=False), log_dir(1, C, directory_id=SECOND_ID, name="b1-b")],
            "absent",
            "b1",
        ),
        ([log_dir(1, B), log_dir(1, C, name="b1-b")], "absent", "b1"),
    ],
)
def test_a_replica_is_expected_in_the_directory_that_the_controllers_assign(
    directories: list[GivenDirectory], case: str, name: str | None
) -> None:
    [row] = Ledger(directories, ControllerHistory({A: PartitionControl(1, 0, [1], [], [1], directories=[FIRST_ID])})).rows(*A)
    assert (row.presence.value, row.log_dir) == (case, name)


def test_a_wiped_directory_is_expected_to_have_the_partitions_of_other_brokers() -> None:
    wiped = log_dir(3, has_checkpoints=False)
    ledger = Ledger([log_dir(1, A, B), log_dir(2, A), wiped])
    assert cases(ledger, A) == {1: "whole", 2: "whole", 3: "absent"}
    assert {row.is_wiped for row in ledger.rows(*A) if row.broker == 3} == {True}
    assert cases(Ledger([log_dir(1, A), wiped], controller(a=[1])), A) == {1: "whole"}


def test_a_link_in_place_of_a_directory_is_not_absent() -> None:
    ledger = Ledger([log_dir(1, checkpointed=[A, B], partitions={A: Presence.LINK, B: Presence.UNREADABLE})])
    assert (cases(ledger, A), cases(ledger, B)) == ({1: "link"}, {1: "unreadable"})


def test_the_ledger_takes_linear_time() -> None:
    """30,000 partitions of three brokers, a third missing on one: no step scans all partitions for each of them."""
    keys = [(f"t{number}", 0) for number in range(30_000)]
    brokers = [log_dir(broker, *keys[(broker == 3) * 10_000 :], checkpointed=keys) for broker in (1, 2, 3)]
    history = ControllerHistory({key: PartitionControl(1, 0, [1, 2, 3], [], [1, 2, 3]) for key in keys})
    assert sum(row.presence is Presence.ABSENT for row in Ledger(brokers, history).without_copy()) == 10_000
