"""`__consumer_offsets` replayed from log directories: what counts, what is dropped, what is in doubt, whose copy is read."""

from pathlib import Path

import pytest

from kafka_forensics.analysis.internal_topics import group_log
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.coordinators import Committed, GroupHistory, GroupKey, GroupLog
from kafka_forensics.parsers.internal_topics.consumer_offsets import MAX_VALUE_BYTES
from kafka_forensics.witnesses.coordinators import MALFORMED_KEPT, read_group_history
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from tests.support.archives import of_brokers
from tests.support.group_records import (
    TOPIC_ID_TEXT,
    commit_key,
    commit_value,
    group_key,
    group_value,
    log_of,
    member,
    new_value,
    put_offsets,
    transaction_of,
)
from tests.support.segments import BASE_TIMESTAMP, flipped, starts

KEY, OTHER = commit_key(), commit_key("audit")


def history(*log_dirs: Path) -> GroupHistory:
    group_history = read_group_history(gather([str(path) for path in log_dirs], ScanOptions()))
    assert group_history is not None
    return group_history


def replayed(tmp_path: Path, log: bytes) -> GroupLog:
    put_offsets(tmp_path / "b1", log)
    [one] = history(tmp_path / "b1").logs
    return one


def offsets(log: GroupLog) -> dict[str, int]:
    return {committed_offset.group: committed_offset.last.offset for committed_offset in log.committed}


def only(log: GroupLog) -> Committed:
    [committed_offset] = log.committed
    return committed_offset


def test_the_last_commit_is_in_force_and_the_greatest_is_remembered(tmp_path: Path) -> None:
    log = log_of((KEY, commit_value(5)), (KEY, commit_value(9)), (OTHER, commit_value(4)), (KEY, commit_value(7)))
    read = replayed(tmp_path, log)
    assert (read.end_offset, read.complete, read.malformed_count) == (4, True, 0)
    assert offsets(read) == {"audit": 4, "billing": 7}
    billing = read.committed[1]
    assert (billing.record_offset, billing.greatest.offset, billing.greatest_record_offset) == (3, 9, 1)


def test_a_tombstone_ends_everything_of_its_key(tmp_path: Path) -> None:
    log = log_of((KEY, commit_value(9)), (OTHER, commit_value(1)), (KEY, None), (OTHER, commit_value(2)))
    assert offsets(replayed(tmp_path, log)) == {"audit": 2}


@pytest.mark.parametrize(("commit", "expected", "pending"), [(True, 9, 0), (False, 5, 0), (None, 5, 1)])
def test_a_transaction_counts_only_with_its_marker(tmp_path: Path, commit: bool | None, expected: int, pending: int) -> None:
    log = log_of((KEY, commit_value(5))) + transaction_of((KEY, commit_value(9)), start=1, commit=commit)
    read = replayed(tmp_path, log)
    committed_offset = only(read)
    assert (committed_offset.last.offset, committed_offset.in_transaction, len(read.pending)) == (expected, commit is True, pending)
    assert [
        (pending_commit.group, pending_commit.commit.offset, pending_commit.producer_id, pending_commit.record_offset)
        for pending_commit in read.pending
    ] == ([("billing", 9, 7, 1)] if pending else [])


def test_what_was_committed_plainly_behind_a_transactions_record_wins(tmp_path: Path) -> None:
    log = transaction_of((KEY, commit_value(9)), start=0) + log_of((KEY, commit_value(6)), start=1)
    log += transaction_of(start=2, commit=True)
    assert only(replayed(tmp_path, log)).last.offset == 6


def test_a_tombstone_reaches_into_open_transactions(tmp_path: Path) -> None:
    log = transaction_of((KEY, commit_value(9)), (OTHER, commit_value(8)), start=0) + log_of((KEY, None), start=2)
    log += transaction_of(start=3, commit=True)
    assert offsets(replayed(tmp_path, log)) == {"audit": 8}


def test_groups_of_every_kind(tmp_path: Path) -> None:
    read = replayed(
        tmp_path,
        log_of(
            (group_key("classic"), group_value(member("a"), member("b"))),
            (group_key("left"), group_value(member("a"))),
            (group_key("left"), group_value()),
            (group_key("gone"), group_value()),
            (group_key("gone"), None),
            (KEY, commit_value(1)),
            (group_key("new", 3), new_value(3, epoch=5)),
            (group_key("new", 5, "m-1"), new_value(5)),
            (group_key("new", 5, "m-2"), new_value(5)),
            (group_key("new", 5, "m-1"), None),
            (group_key("new", 8, "m-2"), new_value(8)),
            (group_key("shared", 11), new_value(11, epoch=5)),
            (group_key("streams", 17), new_value(17, epoch=5)),
            (group_key("streams", 20), new_value(20, assignment_epoch=4)),
            (group_key("streams", 23), new_value(23, epoch=2)),
            (group_key("streams", 19, "m-1"), new_value(19)),
            (group_key("streams", 18), b"\0\0rest"),
            (b"\0\x63unknown", b"anything"),
        ),
    )
    assert read.malformed_count == 0
    assert {group.group: (group.kind, group.state, group.members_count, group.generation) for group in read.groups.values()} == {
        "classic": ("classic", "Stable", 2, 7),
        "left": ("classic", "Empty", 0, 7),
        "billing": ("simple", "Empty", 0, None),
        "new": ("consumer", None, 1, 5),
        "shared": ("share", "Empty", 0, 5),
        "streams": ("streams", None, 1, 5),
    }
    assert (read.groups["streams"].assignment_epoch, read.groups["streams"].topology_epoch) == (4, 2)


def test_a_new_group_s_record_that_cannot_be_read_leaves_the_group_in_doubt(tmp_path: Path) -> None:
    key, member_key = group_key("new", 3), group_key("new", 5, "m")
    read = replayed(tmp_path, log_of((key, new_value(3, epoch=5)), (key, new_value(3, epoch=6)[:-1]), (member_key, b"\0\0rest")))
    assert [(record.offset, record.reason, record.record_type) for record in read.malformed] == [
        (1, "fields", "ConsumerGroupMetadata"),
        (2, "fields", "ConsumerGroupMemberMetadata"),
    ]
    assert (read.groups["new"].generation, read.groups["new"].unknown_after, read.groups["new"].members_count) == (5, 0, 0)


def test_kinds_without_a_layout_and_huge_values_are_no_malformed_records(tmp_path: Path) -> None:
    huge = b"\0\0" + bytes(MAX_VALUE_BYTES)
    read = replayed(
        tmp_path, log_of((group_key("g", 18), b"\0\0any"), (group_key("g", 24), b"\0\0"), (group_key("h", 16, "r"), huge))
    )
    assert (read.malformed_count, set(read.groups)) == (0, {"g", "h"})


def test_names_of_topics_that_share_groups_know(tmp_path: Path) -> None:
    shared = {"topic_id": TOPIC_ID_TEXT, "topic_name": "orders", "partitions": [0]}
    read = replayed(tmp_path, log_of((group_key("shared", 15), new_value(15, initialized_topics=[shared]))))
    assert read.topic_names == {TOPIC_ID_TEXT: "orders"}


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_and_headed_batches_are_opened(tmp_path: Path, codec: str) -> None:
    records = [RecordToWrite(KEY, commit_value(3)), RecordToWrite(OTHER, commit_value(4), [("h", b"v")])]
    log = write_batch(records, base_offset=0, base_timestamp=BASE_TIMESTAMP, compression_type=codec)
    log += write_batch(records[1:], base_offset=2, base_timestamp=BASE_TIMESTAMP)
    assert offsets(replayed(tmp_path, log)) == {"billing": 3, "audit": 4}


def test_messages_of_the_old_formats_are_read(tmp_path: Path) -> None:
    log = write_legacy_entry(KEY, commit_value(3, version=1), offset=0, magic=1, timestamp=BASE_TIMESTAMP)
    assert offsets(replayed(tmp_path, log)) == {"billing": 3}


def test_an_unreadable_value_leaves_its_key_in_doubt_until_it_is_committed_again(tmp_path: Path) -> None:
    liar = commit_value(9)[:12]
    read = replayed(
        tmp_path,
        log_of((KEY, commit_value(5)), (OTHER, commit_value(4)), (KEY, liar), (OTHER, liar), (KEY, liar), (OTHER, commit_value(6))),
    )
    assert {
        committed_offset.group: (committed_offset.last.offset, committed_offset.unknown_after)
        for committed_offset in read.committed
    } == {"billing": (5, 1), "audit": (6, None)}
    assert [(record.offset, record.reason, record.record_type) for record in read.malformed] == [
        (offset, "truncated", "OffsetCommit") for offset in (2, 3, 4)
    ]
    assert read.complete


def test_an_unreadable_key_leaves_all_in_doubt_that_is_not_said_again(tmp_path: Path) -> None:
    read = replayed(
        tmp_path,
        log_of(
            (KEY, commit_value(5)), (None, b"x"), (OTHER, commit_value(4)), (b"\0\1\0\5", b"x"), (group_key("g"), group_value())
        ),
    )
    assert {committed_offset.group: committed_offset.unknown_after for committed_offset in read.committed} == {
        "billing": 0,
        "audit": 2,
    }
    assert [(record.reason, record.record_type) for record in read.malformed] == [("key", None)] * 2
    assert read.groups["g"].unknown_after == 0


def test_of_endless_unreadable_records_some_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    records = [RecordToWrite(group_key(), b"\0\x63")] * (MALFORMED_KEPT + 500)
    read = replayed(tmp_path, write_batch(records, base_offset=0, base_timestamp=BASE_TIMESTAMP))
    assert (len(read.malformed), read.malformed_count) == (MALFORMED_KEPT, MALFORMED_KEPT + 500)


def test_the_longest_copy_is_read_and_a_damaged_one_gives_way(tmp_path: Path) -> None:
    one, two = log_of((KEY, commit_value(5))), log_of((KEY, commit_value(6)), start=1)
    for broker, log in ((1, one), (2, one + two), (3, one + two)):
        put_offsets(tmp_path / f"b{broker}", log)
        (tmp_path / f"b{broker}" / "meta.properties").write_text(f"version=1\nnode.id={broker}\n")
    [read] = history(*sorted(tmp_path.iterdir())).logs
    assert (read.broker, read.end_offset, only(read).last.offset) == (2, 2, 6)
    (tmp_path / "b2" / "__consumer_offsets-0" / f"{0:020d}.log").write_bytes(flipped(one + two, 80))
    [read] = history(*sorted(tmp_path.iterdir())).logs
    assert (read.broker, read.complete) == (3, True)


def test_damage_makes_a_log_incomplete_and_the_rest_is_read(tmp_path: Path) -> None:
    batches = [log_of((KEY, commit_value(number)), start=number) for number in range(6)]
    log = b"".join(batches)
    read = replayed(tmp_path, flipped(log, starts(batches)[2] + 8, 4))
    assert (read.complete, only(read).last.offset) == (False, 5)


def test_logs_of_other_clusters_speak_of_their_own_partitions(tmp_path: Path) -> None:
    for cluster, offset in (("A", 5), ("B", 9)):
        put_offsets(tmp_path / cluster, log_of((KEY, commit_value(offset))))
        (tmp_path / cluster / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster * 22}\n")
    group_history = history(tmp_path / "A", tmp_path / "B")
    for told, expected in (("A" * 22, [5]), ("B" * 22, [9]), ("C" * 22, []), (None, [5, 9])):
        assert [committed_offset.last.offset for committed_offset in group_history.committed("t", 0, told)] == expected


@pytest.mark.parametrize(("clusters", "logs"), [("AA-", 1), ("---", 1), ("AB-", 3), ("-A", 1)])
def test_a_copy_that_tells_no_cluster_is_of_the_only_one(tmp_path: Path, clusters: str, logs: int) -> None:
    for number, cluster in enumerate(clusters):
        put_offsets(tmp_path / str(number), log_of((KEY, commit_value(5))))
        told = "" if cluster == "-" else f"version=1\nnode.id={number}\ncluster.id={cluster * 22}\n"
        (tmp_path / str(number) / "meta.properties").write_text(told)
    group_history = history(*(tmp_path / str(number) for number in range(len(clusters))))
    assert len(group_history.logs) == logs
    assert len(group_history.committed("t", 0, None)) == logs


def test_no_such_log_is_no_history(tmp_path: Path) -> None:
    put_offsets(tmp_path / "b1", b"").parent.rename(tmp_path / "b1" / "other-0")
    assert read_group_history(gather([str(tmp_path / "b1")], ScanOptions())) is None


@pytest.mark.parametrize("name", of_brokers("kafka-4.3.0-healthy", "kafka-4.3.0-unclean"))
def test_billing_of_a_real_cluster(archives: Path, name: str) -> None:
    group_history = history(archives / f"{name}.tar.xz")
    [committed_offset] = group_history.committed("orders", 0, None)
    assert (committed_offset.group, committed_offset.last.offset) == ("billing", 30000)
    assert (committed_offset.log_partition, committed_offset.unknown_after) == (1, None)
    assert committed_offset.last.topic_id == "P4lgI7hrTS-H5e19fVWzng"
    [log] = [each for each in group_history.logs if each.groups]
    group = log.groups["billing"]
    assert (group.kind, group.state, group.members_count, group.generation) == ("classic", "Empty", 0, 2)
    assert all(each.complete and not each.malformed_count for each in group_history.logs)


@pytest.mark.corpora
def test_groups_of_kafka_2(corpora: Path) -> None:
    group_history = history(corpora / "public-five-brokers.tar.xz")
    ends = {
        (committed_offset.group, committed_offset.topic, committed_offset.partition): committed_offset.last.offset
        for log in group_history.logs
        for committed_offset in log.committed
    }
    assert ends["LogService", "ECOMMERCE_NEW_ORDER", 1] == 3
    assert ends["EmailService", "ECOMMERCE_SEND_EMAIL", 1] == 3
    members = {group.group: group.members_count for log in group_history.logs for group in log.groups.values()}
    assert members["CreateUserService"] == 1


def test_what_is_held_is_limited_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_forensics.analysis.internal_topics.group_log.MAX_TEXT", 400)
    many = [(commit_key(f"group-{number}"), commit_value(number, metadata="m" * 20)) for number in range(40)]
    read = replayed(tmp_path / "text", log_of(*many))
    assert (len(read.committed), read.limited) == (14, True)
    again = [(KEY, commit_value(number, metadata="m" * (number % 100))) for number in range(200)]
    read = replayed(tmp_path / "again", log_of(*again, (KEY, None), *many[:14], (KEY, None), (KEY, None)))
    assert (len(read.committed), read.limited) == (14, False)
    grown = replayed(tmp_path / "grown", log_of((KEY, commit_value(1)), (KEY, commit_value(2, metadata="m" * 500))))
    assert (only(grown).last.offset, only(grown).last.metadata, grown.limited) == (2, "", True)
    monkeypatch.setattr("kafka_forensics.analysis.internal_topics.group_log.MAX_KEYS", 3)
    pending = replayed(tmp_path / "keys", transaction_of(*many[:9], start=0) + log_of(*many[:9], start=9))
    assert (len(pending.pending), len(pending.committed), pending.limited) == (3, 3, True)
    groups = [(group_key(f"g-{number}"), group_value(member())) for number in range(9)]
    assert len(replayed(tmp_path / "groups", log_of(*groups)).groups) == 3


def test_members_of_groups_that_find_no_room_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "MAX_KEYS", 10)
    replay = group_log.GroupReplay(GroupLog(0, 1, None))
    for number in range(1000):
        replay.new_group(GroupKey(5, f"group-{number}", member_id="m"), {})
    assert (len(replay.log.groups), len(replay._members), replay.log.limited) == (10, 10, True)
