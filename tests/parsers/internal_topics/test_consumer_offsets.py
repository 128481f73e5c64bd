"""Records of `__consumer_offsets`: the parser agrees with the declared layouts on every version and on any bytes."""

from base64 import urlsafe_b64encode
from typing import Any

import pytest
from construct import ConstructError
from hypothesis import given, strategies as st

from kafka_forensics.model.coordinators import MEMBERS_LISTED, RECORD_TYPES, GroupKey, GroupMember, GroupMetadata, OffsetCommit
from kafka_forensics.parsers.internal_topics.consumer_offsets import check_value, read_group_metadata, read_key, read_offset_commit
from tests.parsers.exact_readers import value_layout
from tests.support.groups import TOPIC_ID_BYTES, commit_key, commit_value, group_key, group_value, member
from tests.support.layouts.consumer_offsets import key_layout


def exact(layout: Any, data: bytes) -> dict[str, Any] | None:
    """The fields that the declaration reads; None if it cannot read them."""
    try:
        return dict(layout.parse(data))
    except ConstructError:
        return None


def assert_commits_agree(value: bytes) -> OffsetCommit | str:
    fast = read_offset_commit(value)
    layout = value_layout(1, int.from_bytes(value[:2], "big", signed=True)) if len(value) >= 2 else None
    read = None if layout is None else exact(layout, value)
    tag = None if read is None else read.get("tagged_fields", {}).get(0)
    if read is None or (tag is not None and len(tag) < 16):
        assert isinstance(fast, str)
        return fast
    assert isinstance(fast, OffsetCommit)
    topic_id = None if tag is None else urlsafe_b64encode(tag[:16]).decode().rstrip("=")
    assert fast == OffsetCommit(
        read["offset"],
        read.get("leader_epoch", -1),
        read["metadata"],
        read["commit_timestamp"],
        read.get("expire_timestamp", -1),
        topic_id,
    )
    return fast


def assert_groups_agree(value: bytes) -> GroupMetadata | str:
    fast = read_group_metadata(value)
    layout = value_layout(2, int.from_bytes(value[:2], "big", signed=True)) if len(value) >= 2 else None
    read = None if layout is None else exact(layout, value)
    if read is None:
        assert isinstance(fast, str)
        return fast
    assert isinstance(fast, GroupMetadata)
    members = tuple(
        GroupMember(
            *(row["member_id"], row.get("group_instance_id"), row["client_id"], row["client_host"]),
            *(row.get("rebalance_timeout", -1), row["session_timeout"], len(row["subscription"]), len(row["assignment"])),
        )
        for row in read["members"]
    )
    assert (fast.members, fast.members_count) == (members[:MEMBERS_LISTED], len(members))
    names = ("protocol_type", "generation", "protocol", "leader", "current_state_timestamp")
    assert [getattr(fast, name) for name in names] == [read.get(name, -1) for name in names]
    return fast


def assert_keys_agree(key: bytes) -> GroupKey | str:
    fast = read_key(key)
    record_type = int.from_bytes(key[:2], "big", signed=True) if len(key) >= 2 else None
    if record_type is None or record_type not in RECORD_TYPES:
        assert isinstance(fast, str) == (record_type is None)
        return fast
    read = exact(key_layout(record_type), key)
    if read is None:
        assert fast == "key"
    else:
        assert isinstance(fast, GroupKey)
        assert fast._asdict() == {name: read.get(name) for name in GroupKey._fields}
    return fast


def test_keys_of_every_type_are_read_and_versions_of_values_are_checked() -> None:
    assert list(map(check_value, (b"\0\0", b"\0\0rest", b"\0\1", b"\0", b""))) == [None, None, "version", "truncated", "truncated"]
    assert assert_keys_agree(commit_key("g", "t", 3)) == GroupKey(1, "g", "t", 3)
    assert assert_keys_agree(commit_key("g", "t", 3, record_type=0)) == GroupKey(0, "g", "t", 3)
    for record_type in sorted(RECORD_TYPES)[2:]:
        read = assert_keys_agree(group_key("g", record_type, "m"))
        assert isinstance(read, GroupKey)
        assert (read.record_type, read.group) == (record_type, "g")
        assert read.member_id == ("m" if record_type in (5, 7, 8, 10, 13, 14, 16, 19, 21, 22) else None)
    assert read_key(b"\0\x63whatever") == GroupKey(99, "")
    assert [read_key(key) for key in (None, b"", b"\0", b"\0\1", b"\0\2\0\4abc", b"\0\2\xff\xff")] == ["key"] * 6


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "truncated"),
        (b"\0\5" + bytes(40), "version"),
        (b"\xff\xff" + bytes(40), "version"),
        (commit_value(1)[:14] + b"\xff\xff" + bytes(8), "length"),
        (commit_value(1)[:14] + b"\x7f\xff" + bytes(8), "truncated"),
        (commit_value(1, version=4)[:-1] + b"\xff\xff\xff\xff\x0f", "truncated"),
        (commit_value(1, version=4)[:-1] + b"\xff\xff\xff\xff\xff\x01", "varint"),
        (commit_value(1, version=4)[:-1] + b"\2\0\0\0\0", "tag"),
        (commit_value(1, version=4, topic_id=b"short"), "topic_id"),
        (commit_value(1, metadata="xx")[:16] + b"\xff\xfe" + bytes(8), "text"),
    ],
)
def test_malformed_commits_have_a_reason(value: bytes, reason: str) -> None:
    assert assert_commits_agree(value) == reason


@pytest.mark.parametrize("version", [0, 3])
def test_a_wrong_count_of_members_has_a_reason(version: int) -> None:
    value = group_value(version=version)
    assert assert_groups_agree(value[:-4] + b"\x7f\xff\xff\xff") == "truncated"
    assert assert_groups_agree(value[:-4] + b"\xff\xff\xff\xff") == "array"
    flexible = group_value(version=4)
    assert assert_groups_agree(flexible[:-2] + b"\xff\xff\xff\xff\x0f") == "truncated"
    assert assert_groups_agree(flexible[:-2] + b"\0\0") == "array"


def test_members_past_the_limit_are_counted_but_not_listed() -> None:
    empty = member("", client_id="", client_host="", subscription=b"", assignment=b"")
    read = assert_groups_agree(group_value(*[empty] * (MEMBERS_LISTED + 3), version=0))
    assert isinstance(read, GroupMetadata)
    assert (read.members_count, len(read.members)) == (MEMBERS_LISTED + 3, MEMBERS_LISTED)


SEEDS = [
    *(commit_value(5, version=version, metadata="länger\x1b", leader_epoch=9, expire_timestamp=8) for version in range(5)),
    commit_value(2**40, version=4, topic_id=TOPIC_ID_BYTES),
    *(
        group_value(member("a"), member("b", group_instance_id="static", subscription=b"", assignment=bytes(300)), version=version)
        for version in range(5)
    ),
    commit_key(),
    group_key(),
    group_key("g", 5, "m"),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_twins_agree_on_every_version_and_every_prefix_of_a_record(seed: bytes) -> None:
    answers = [assert_commits_agree(seed), assert_groups_agree(seed), assert_keys_agree(seed)]
    assert any(not isinstance(answer, str) for answer in answers)
    for data in (seed + b"trailing", *(seed[:size] for size in range(len(seed)))):
        assert_commits_agree(data)
        assert_groups_agree(data)
        assert_keys_agree(data)


@st.composite
def changed_seed(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4)):
        data[at] = byte
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@given(st.binary(max_size=80) | changed_seed())
def test_twins_agree_on_any_bytes(data: bytes) -> None:
    assert_commits_agree(data)
    assert_groups_agree(data)
    assert_keys_agree(data)
