"""`dump --records` of internal topics shows fields instead of bytes, and a reason for unreadable records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, strategies as st

from kafka_forensics.model.coordinators import RECORD_TYPES
from kafka_forensics.parsers.internal_topics.internal_records import record_describer
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support import remote_log
from tests.support.controllers import partition_change, setting, topic
from tests.support.layouts.metadata_records import write_metadata_record
from tests.support.places import DUMP_INPUTS, SAMPLES
from tests.support.segments import segment_file

BROKER = SAMPLES / "unclean-election" / "broker-1"
TOPICS = ("__cluster_metadata", "__transaction_state", "__consumer_offsets", "__share_group_state", "__remote_log_metadata")
COMMIT_KEY = b"\0\1\0\1g\0\1t\0\0\0\3"
COMMIT = b"\0\3" + (77).to_bytes(8, "big") + b"\xff" * 4 + b"\0\6secret" + (1_700_000_000_000).to_bytes(8, "big")
SECRETS = {"salt": "c2FsdA==", "stored_key": "", "server_key": "a2V5"}
CREDENTIAL = {"name": "alice", "mechanism": 2, **SECRETS, "iterations": 4096}

NOT_WRITTEN_BY_KAFKA = (
    "LegacyOffsetCommit",
    "ShareGroupPartitionMetadata",
    "StreamsGroupPartitionMetadata",
    "StreamsGroupTargetAssignmentResolvedTopicIds",
)

Dump = Callable[..., str]


def details(dump: Dump, path: Path, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line)["detail"] for line in dump(path, "--records", "--format", "jsonl", *options).splitlines()]


def put(root: Path, directory: str, *records: tuple[bytes | None, bytes | None]) -> Path:
    path = root / directory / segment_file(0)
    path.parent.mkdir()
    path.write_bytes(write_batch([RecordToWrite(key, value) for key, value in records], base_offset=0, base_timestamp=1))
    return path


def test_records_of_the_controllers_log_are_decoded(dump: Dump, tmp_path: Path) -> None:
    secret = b"\1\4\0\4\2\1" + b"\6token\x07hidden\0"
    values = (topic(), partition_change(isr=[1]), setting("cleanup.policy", "compact"), secret, b"\1\x63\0abc", b"\1\5\x63", b"\7")
    path = put(tmp_path, "__cluster_metadata-0", *((None, value) for value in values))
    named, changed, configured, broker, unknown, newer, broken = details(dump, path)
    assert (named["record"], named["version"], named["value"]["name"]) == ("TOPIC_RECORD", 0, "t")
    assert (changed["record"], changed["value"]["isr"]) == ("PARTITION_CHANGE_RECORD", [1])
    assert configured["value"]["value"] == "compact"
    assert unknown == {"record": "UNKNOWN", "api_key": 99, "version": 0, "problem": "kind"}
    assert (newer["record"], newer["problem"], "value" in newer) == ("PARTITION_CHANGE_RECORD", "version", False)
    assert broken == {"record": "UNKNOWN", "problem": "frame"}
    assert (broker["record"], "value" in broker.get("value", {})) == ("CONFIG_RECORD", False)
    table = dump(path, "--records", "--format", "text")
    assert "TOPIC_RECORD" in table
    assert "CANNOT BE READ" in table


def test_credentials_are_shown_only_with_show_payloads(dump: Dump, tmp_path: Path) -> None:
    path = put(tmp_path, "__cluster_metadata-0", (None, write_metadata_record(11, 0, CREDENTIAL)))
    assert [detail["value"] for detail in details(dump, path)] == [{"name": "alice", "mechanism": 2, "iterations": 4096}]
    assert [detail["value"] for detail in details(dump, path, "--show-payloads")] == [CREDENTIAL]


def test_committed_offsets_are_decoded_and_their_metadata_is_hidden(dump: Dump, tmp_path: Path) -> None:
    path = put(
        tmp_path, "__consumer_offsets-3", (COMMIT_KEY, COMMIT), (COMMIT_KEY, None), (b"\0\1", COMMIT), (COMMIT_KEY, b"\0\x09")
    )
    commit, tombstone, no_key, newer = details(dump, path)
    assert commit["key"] == {"record_type": 1, "group": "g", "topic": "t", "partition": 3}
    assert (commit["record"], commit["value"]["offset"], "metadata" in commit["value"]) == ("OffsetCommit", 77, False)
    assert commit["value"]["commit_timestamp"] == "2023-11-14T22:13:20.000Z"
    assert tombstone["value"] is None
    assert no_key == {"record": "UNKNOWN", "problem": "key"}
    assert newer["problem"] == "version"
    assert details(dump, path, "--show-payloads")[0]["value"]["metadata"] == "secret"
    text = " ".join(dump(path, "--records", "--format", "text").split())
    assert "OffsetCommit record type 1 group g topic t partition 3 offset 77 commit timestamp 2023-11-14 22:13:20" in text
    assert "TOMBSTONE" in text


def copy_input(name: str, root: Path, directory: str) -> Path:
    """A golden input, copied as the log of a topic."""
    path = root / directory / segment_file(0)
    path.parent.mkdir()
    path.write_bytes((DUMP_INPUTS / name / path.name).read_bytes())
    return path


def test_every_record_type_of_a_real_group_coordinator_is_decoded(dump: Dump, tmp_path: Path) -> None:
    records = details(dump, copy_input("group-kinds", tmp_path, "__consumer_offsets-0"))
    assert all("problem" not in record for record in records)
    assert {record["record"] for record in records} == set(RECORD_TYPES.values()) - set(NOT_WRITTEN_BY_KAFKA)
    assert not [record for record in records if record["record"] != "OffsetCommit" and "value" not in record]
    expression = next(record for record in records if record["record"] == "ConsumerGroupRegularExpression" and record["value"])
    assert (expression["key"]["member_id"], expression["value"]["topics"]) == ("orders.*", ["orders", "orders-eu"])
    topology = next(record["value"] for record in records if record["record"] == "StreamsGroupTopology")
    assert [subtopology["subtopology_id"] for subtopology in topology["subtopologies"]] == ["subtopology-0", "subtopology-1"]
    members = [record["value"] for record in records if record["record"] == "ConsumerGroupMemberMetadata" and record["value"]]
    classic = [member["classic_member_metadata"] for member in members if member.get("classic_member_metadata") is not None]
    protocols = [member["supported_protocols"] for member in classic]
    assert protocols == [[{"name": "range"}, {"name": "cooperative-sticky"}]] * len(protocols)
    assert protocols
    with_payloads = [record["value"] for record in details(dump, tmp_path / "__consumer_offsets-0", "--show-payloads")]
    shown_metadata = [
        member["classic_member_metadata"] for member in with_payloads if member and member.get("classic_member_metadata")
    ]
    assert all(set(protocol) == {"name", "metadata"} for member in shown_metadata for protocol in member["supported_protocols"])


def test_records_of_a_real_share_coordinator_are_decoded(dump: Dump, tmp_path: Path) -> None:
    records = details(dump, copy_input("share-state", tmp_path, "__share_group_state-0"))
    assert all("problem" not in record for record in records)
    assert {record["record"] for record in records} == {"ShareSnapshot", "ShareUpdate"}
    update = next(record for record in records if record["record"] == "ShareUpdate")
    assert (update["key"]["group"], update["key"]["partition"], update["value"]["start_offset"]) == ("workers", 0, 0)
    assert {batch["delivery_state"] for batch in update["value"]["state_batches"]} == {"available", "acknowledged", "archived"}
    assert any(record["value"] is None for record in records)


def test_malformed_share_records_have_a_problem(dump: Dump, tmp_path: Path) -> None:
    key = b"\0\0\0\1g" + bytes(20)
    path = put(tmp_path, "__share_group_state-0", (key, b"\0\0\0"), (b"\0\7", None), (None, b""), (key, b"\0\1"))
    assert [record["problem"] for record in details(dump, path)] == ["fields", "kind", "key", "version"]


def test_records_of_remote_log_metadata_are_decoded(dump: Dump, tmp_path: Path) -> None:
    started, inverted = remote_log.copy_started(1, 0, 9, custom_metadata="AAEC"), remote_log.copy_started(1, 9, 0)
    values = (started, remote_log.segment_update(1, 1), remote_log.deleted_partition(0), b"\1\x63\0", inverted, None)
    path = put(tmp_path, "__remote_log_metadata-7", *((None, value) for value in values))
    first, finished, deleted, unknown, broken, without_value = details(dump, path)
    assert (first["record"], first["api_key"], first["version"]) == ("RemoteLogSegmentMetadataRecord", 0, 0)
    assert first["value"]["remote_log_segment_id"]["topic_id_partition"]["name"] == "t"
    assert (first["value"]["end_offset"], "custom_metadata" in first["value"]) == (9, False)
    assert finished["value"]["remote_log_segment_state"] == "COPY_SEGMENT_FINISHED"
    assert deleted["value"]["remote_partition_delete_state"] == "DELETE_PARTITION_MARKED"
    assert [record["problem"] for record in (unknown, broken, without_value)] == ["kind", "offsets", "value"]
    assert details(dump, path, "--show-payloads")[0]["value"]["custom_metadata"] == "AAEC"
    table = " ".join(dump(path, "--records", "--format", "text").split())
    assert "event timestamp 2023-11-14 22:13:21" in table
    assert "CANNOT BE READ (offsets)" in table


def test_records_of_other_topics_and_of_single_segments_are_not_decoded(dump: Dump, tmp_path: Path) -> None:
    assert details(dump, put(tmp_path, "orders-0", (COMMIT_KEY, COMMIT))) == [None]
    assert details(dump, DUMP_INPUTS / "transaction-state" / segment_file(0))[0] is None
    bootstrap = DUMP_INPUTS / "bootstrap" / "00000000000000000000-0000000000.checkpoint"
    assert details(dump, bootstrap)[1]["record"] == "FEATURE_LEVEL_RECORD"


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=120))
def test_any_bytes_have_a_record_type(key: bytes | None, value: bytes | None) -> None:
    for name in TOPICS:
        describe = record_describer(name)
        assert describe is not None
        assert describe(key, value, key is None)["record"]
