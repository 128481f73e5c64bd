"""`__consumer_offsets` replayed from log directories: commits, tombstones, damage, limits, and the choice of a copy."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kafka_forensics.analysis.internal_topics import group_log
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.coordinators import CommittedOffset, GroupHistory, GroupKey, GroupLog
from kafka_forensics.parsers.internal_topics.consumer_offsets import MAX_VALUE_BYTES
from kafka_forensics.scanning.witnesses.coordinators import MALFORMED_KEPT, read_group_history
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from tests.support.archives import archive_params
from tests.support.brokers import put_consumer_offsets, put_meta_properties, put_segment
from tests.support.groups import (
    TOPIC_ID_TEXT,
    commit_key,
    commit_value,
    coordinator_batches,
    group_key,
    group_value,
    member,
    new_group_value,
    transaction_batches,
)
from tests.support.segments import BASE_TIMESTAMP, batch_positions, flip_bit

KEY, OTHER = commit_key(), commit_key("audit")


def history(*log_dirs: Path) -> GroupHistory:
    group_history = read_group_history(gather([str(path) for path in log_dirs], ScanOptions()))
    assert group_history is not None
    return group_history


def replayed(tmp_path: Path, log: bytes) -> GroupLog:
    put_consumer_offsets(tmp_path / "b1", log)
    [group_log] = history(tmp_path / "b1").logs
    return group_log


def only(log: GroupLog) -> CommittedOffset:
    [commit] = log.committed
    return commit


LIAR = commit_value(9)[:12]
SHARED = {"topic_id": TOPIC_ID_TEXT, "topic_name": "orders", "partitions": [0]}
NEW, MEMBER = group_key("new", 3), group_key("new", 5, "m")
HEADED = [RecordToWrite(KEY, commit_value(3)), RecordToWrite(OTHER, commit_value(4), [("h", b"v")])]
BATCHES = [coordinator_batches((KEY, commit_value(number)), start=number) for number in range(6)]
LOGS: dict[str, bytes] = {
    "the last commit is in force, the greatest is remembered": coordinator_batches(
        (KEY, commit_value(5)), (KEY, commit_value(9)), (OTHER, commit_value(4)), (KEY, commit_value(7))
    ),
    "a tombstone": coordinator_batches((KEY, commit_value(9)), (OTHER, commit_value(1)), (KEY, None), (OTHER, commit_value(2))),
    **{
        f"a transaction that ends by {commit}": coordinator_batches((KEY, commit_value(5)))
        + transaction_batches((KEY, commit_value(9)), start=1, commit=commit)
        for commit in (True, False, None)
    },
    "a plain commit behind a transaction's record": transaction_batches((KEY, commit_value(9)), start=0)
    + coordinator_batches((KEY, commit_value(6)), start=1)
    + transaction_batches(start=2, commit=True),
    "a tombstone reaches into open transactions": transaction_batches((KEY, commit_value(9)), (OTHER, commit_value(8)), start=0)
    + coordinator_batches((KEY, None), start=2)
    + transaction_batches(start=3, commit=True),
    "groups of every kind": coordinator_batches(
        (group_key("classic"), group_value(member("a"), member("b"))),
        *((group_key("left"), group_value(*members)) for members in ([member("a")], [])),
        *((group_key("gone"), value) for value in (group_value(), None)),
        (KEY, commit_value(1)),
        (NEW, new_group_value(3, epoch=5)),
        *((group_key("new", 5, f"m-{number}"), new_group_value(5)) for number in (1, 2)),
        (group_key("new", 5, "m-1"), None),
        (group_key("new", 8, "m-2"), new_group_value(8)),
        *((group_key(name, kind), new_group_value(kind, epoch=5)) for name, kind in (("shared", 11), ("streams", 17))),
        (group_key("streams", 20), new_group_value(20, assignment_epoch=4)),
        (group_key("streams", 23), new_group_value(23, epoch=2)),
        (group_key("streams", 19, "m-1"), new_group_value(19)),
        (group_key("streams", 18), b"\0\0rest"),
        (b"\0\x63unknown", b"anything"),
    ),
    "a new group's record that cannot be read leaves the group in doubt": coordinator_batches(
        (NEW, new_group_value(3, epoch=5)), (NEW, new_group_value(3, epoch=6)[:-1]), (MEMBER, b"\0\0rest")
    ),
    "kinds without a layout and huge values are not malformed": coordinator_batches(
        (group_key("g", 18), b"\0\0any"), (group_key("g", 24), b"\0\0"), (group_key("h", 16, "r"), b"\0\0" + bytes(MAX_VALUE_BYTES))
    ),
    "names of topics that share groups know": coordinator_batches(
        (group_key("shared", 15), new_group_value(15, initialized_topics=[SHARED]))
    ),
    **{
        f"batches by {codec}": write_batch(HEADED, base_offset=0, base_timestamp=BASE_TIMESTAMP, compression_type=codec)
        + write_batch(HEADED[1:], base_offset=2, base_timestamp=BASE_TIMESTAMP)
        for codec in ("gzip", "zstd")
    },
    "messages of the old formats": write_legacy_entry(KEY, commit_value(3, version=1), offset=0, magic=1, timestamp=BASE_TIMESTAMP),
    "an unreadable value leaves its key in doubt until it is committed again": coordinator_batches(
        (KEY, commit_value(5)), (OTHER, commit_value(4)), *((key, LIAR) for key in (KEY, OTHER, KEY)), (OTHER, commit_value(6))
    ),
    "an unreadable key leaves all in doubt that is not said again": coordinator_batches(
        (KEY, commit_value(5)), (None, b"x"), (OTHER, commit_value(4)), (b"\0\1\0\5", b"x"), (group_key("g"), group_value())
    ),
    "damage makes a log incomplete and the rest is read": flip_bit(b"".join(BATCHES), batch_positions(BATCHES)[2] + 8, 4),
}
ANSWERS = Path(__file__).with_name("group_logs.json")
EXPECTED: dict[str, str] = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}


def replayed_text(name: str, root: Path) -> str:
    """The result of replaying a log, as text."""
    return repr(replayed(root, LOGS[name])).replace(str(root), "")


@pytest.mark.parametrize("name", LOGS)
def test_replays_give_the_golden_text(name: str, tmp_path: Path) -> None:
    """After a change of a rule: `python -m tests.scanning.witnesses.test_group_log`, and read the difference."""
    assert replayed_text(name, tmp_path) == EXPECTED[name]


def test_unreadable_records_are_sampled_and_counted(tmp_path: Path) -> None:
    records = [RecordToWrite(group_key(), b"\0\x63")] * (MALFORMED_KEPT + 500)
    read = replayed(tmp_path, write_batch(records, base_offset=0, base_timestamp=BASE_TIMESTAMP))
    assert (len(read.malformed), read.malformed_count) == (MALFORMED_KEPT, MALFORMED_KEPT + 500)


def test_the_longest_undamaged_copy_is_read(tmp_path: Path) -> None:
    first, second = coordinator_batches((KEY, commit_value(5))), coordinator_batches((KEY, commit_value(6)), start=1)
    for broker, log in ((1, first), (2, first + second), (3, first + second)):
        put_consumer_offsets(tmp_path / f"b{broker}", log)
        put_meta_properties(tmp_path / f"b{broker}", broker, cluster_id=None)
    [read] = history(*sorted(tmp_path.iterdir())).logs
    assert (read.broker, read.end_offset, only(read).last.offset) == (2, 2, 6)
    put_segment(tmp_path / "b2" / "__consumer_offsets-0", 0, flip_bit(first + second, 80))
    [read] = history(*sorted(tmp_path.iterdir())).logs
    assert (read.broker, read.complete) == (3, True)


def test_commits_belong_to_partitions_of_their_cluster(tmp_path: Path) -> None:
    for cluster, offset in (("A", 5), ("B", 9)):
        put_consumer_offsets(tmp_path / cluster, coordinator_batches((KEY, commit_value(offset))))
        put_meta_properties(tmp_path / cluster, 1, cluster_id=cluster * 22)
    group_history = history(tmp_path / "A", tmp_path / "B")
    for cluster_id, expected in (("A" * 22, [5]), ("B" * 22, [9]), ("C" * 22, []), (None, [5, 9])):
        assert [commit.last.offset for commit in group_history.committed("t", 0, cluster_id)] == expected


@pytest.mark.parametrize(("clusters", "logs"), [("AA-", 1), ("---", 1), ("AB-", 3), ("-A", 1)])
def test_a_copy_without_a_cluster_id_belongs_to_the_only_cluster(tmp_path: Path, clusters: str, logs: int) -> None:
    for number, cluster in enumerate(clusters):
        put_consumer_offsets(tmp_path / str(number), coordinator_batches((KEY, commit_value(5))))
        properties = "" if cluster == "-" else f"version=1\nnode.id={number}\ncluster.id={cluster * 22}\n"
        (tmp_path / str(number) / "meta.properties").write_text(properties)
    group_history = history(*(tmp_path / str(number) for number in range(len(clusters))))
    assert len(group_history.logs) == logs
    assert len(group_history.committed("t", 0, None)) == logs


@pytest.mark.parametrize("name", archive_params("kafka-4.3.0-healthy", "kafka-4.3.0-unclean"))
def test_a_group_of_a_real_cluster(archives: Path, name: str) -> None:
    group_history = history(archives / f"{name}.tar.xz")
    [commit] = group_history.committed("orders", 0, None)
    assert (commit.group, commit.last.offset) == ("billing", 30000)
    assert (commit.log_partition, commit.unknown_after) == (1, None)
    assert commit.last.topic_id == "P4lgI7hrTS-H5e19fVWzng"
    [log] = [group_log for group_log in group_history.logs if group_log.groups]
    group = log.groups["billing"]
    assert (group.kind, group.state, group.members_count, group.generation) == ("classic", "Empty", 0, 2)
    assert all(group_log.complete and not group_log.malformed_count for group_log in group_history.logs)


def test_memory_is_bounded_and_the_limit_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_forensics.analysis.internal_topics.group_log.MAX_TEXT", 400)
    many = [(commit_key(f"group-{number}"), commit_value(number, metadata="m" * 20)) for number in range(40)]
    read = replayed(tmp_path / "text", coordinator_batches(*many))
    assert (len(read.committed), read.limited) == (14, True)
    again = [(KEY, commit_value(number, metadata="m" * (number % 100))) for number in range(200)]
    read = replayed(tmp_path / "again", coordinator_batches(*again, (KEY, None), *many[:14], (KEY, None), (KEY, None)))
    assert (len(read.committed), read.limited) == (14, False)
    grown = replayed(tmp_path / "grown", coordinator_batches((KEY, commit_value(1)), (KEY, commit_value(2, metadata="m" * 500))))
    assert (only(grown).last.offset, only(grown).last.metadata, grown.limited) == (2, "", True)
    monkeypatch.setattr("kafka_forensics.analysis.internal_topics.group_log.MAX_KEYS", 3)
    pending = replayed(tmp_path / "keys", transaction_batches(*many[:9], start=0) + coordinator_batches(*many[:9], start=9))
    assert (len(pending.pending), len(pending.committed), pending.limited) == (3, 3, True)
    groups = [(group_key(f"g-{number}"), group_value(member())) for number in range(9)]
    assert len(replayed(tmp_path / "groups", coordinator_batches(*groups)).groups) == 3


def test_members_of_groups_beyond_the_limit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "MAX_KEYS", 10)
    replay = group_log.GroupReplay(GroupLog(0, 1, None))
    for number in range(1000):
        replay.new_group(GroupKey(5, f"group-{number}", member_id="m"), {})
    assert (len(replay.log.groups), len(replay._members), replay.log.limited) == (10, 10, True)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        answers = {name: replayed_text(name, Path(folder) / str(number)) for number, name in enumerate(LOGS)}
    ANSWERS.write_text(json.dumps(answers, indent=0) + "\n")
