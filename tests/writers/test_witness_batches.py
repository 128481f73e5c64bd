"""Substitutes for batches of internal topics give the same answers, and contain no secret and no unused bytes."""

import re
import shutil
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import pytest
from hypothesis import given, strategies as st
from msgspec import Struct
from msgspec.structs import asdict

from kafka_forensics.analysis.internal_topics import ControllerReplay, GroupReplay
from kafka_forensics.analysis.internal_topics.controller import DEFAULTS
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.constants import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    CRC_START,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    WITNESS_TOPICS,
)
from kafka_forensics.model.controller import ControllerHistory, MetadataBatch, PartitionControl
from kafka_forensics.model.coordinators import (
    OFFSET_COMMIT_TYPES,
    RECORD_TYPES,
    GroupLog,
    GroupState,
    OffsetCommit,
    TransactionMetadata,
)
from kafka_forensics.model.findings import Finding
from kafka_forensics.parsers import internal_topics
from kafka_forensics.parsers.log import decode_batch, parse_control_record, plain_records
from kafka_forensics.questions.groups import groups
from kafka_forensics.questions.metadata import controller_events
from kafka_forensics.questions.transactions import transactions
from kafka_forensics.scanning.witnesses.controller_copies import open_batch, parse_snapshot
from kafka_forensics.scanning.witnesses.coordinators import read_share_logs
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
    write_legacy_entry,
    write_transaction_log_key,
    write_transaction_log_value,
)
from kafka_forensics.writers.witness_batches import KEPT_FEATURES, KEPT_SETTINGS, MAX_SUBSTITUTE_BYTES, witness_batch
from lab.mutations import batch_ranges
from tests.parsers.exact_readers import EARLY_SHARE_STATE_VALUES
from tests.parsers.metadata_records import FIELDS_BY_API_KEY, FULL
from tests.support.brokers import put_segment
from tests.support.controllers import ControllerLog, control, partition, partition_change, record, setting, snapshot, topic
from tests.support.groups import (
    TOPIC_ID_BYTES,
    TOPIC_ID_TEXT,
    commit_key,
    commit_value,
    group_key,
    group_value,
    member,
    new_group_value,
    share_key,
    share_value,
)
from tests.support.layouts.consumer_offsets import GROUP_VALUES, write_value
from tests.support.layouts.metadata_records import MESSAGES, write_metadata_record
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES
from tests.support.remote_log import copy_started, deleted_partition, segment_update
from tests.support.segments import BASE_TIMESTAMP, write_legacy_wrapper
from tests.support.strategies import CODECS, broken_batches, legacy_batches, record_batches

_INTERNAL: Final = re.compile(rf"(?:.*/)?({'|'.join(WITNESS_TOPICS)})-\d+/\d+(?:-\d+)?\.(?:log|checkpoint)")
_POSITION_FIELDS: Final = frozenset({"byte_start", "byte_end", "record_bytes", "size_in_bytes"})
_TOPIC: Final = 2


def rewritten(topic: str, log: bytes) -> bytes:
    """A log or a snapshot of an internal topic, in which substitutes replace batches with a right CRC."""
    ranges = batch_ranges(log)
    parts = []
    for start, end in ranges:
        batch = log[start:end]
        crc = int.from_bytes(batch[CRC_START - 4 : CRC_START], "big")
        is_good = batch[16] < 2 or google_crc32c.value(batch[CRC_START:]) == crc
        parts.append((witness_batch(topic, batch) if is_good else None) or batch)
    return b"".join([*parts, log[ranges[-1][1] if ranges else 0 :]])


def rewrite_tree(log_dirs: Path, target: Path) -> int:
    """Write a copy of folders to `target` with rewritten logs of internal topics; return the number of rewritten files."""
    shutil.copytree(log_dirs, target)
    internal = [(path, found[1]) for path in sorted(target.rglob("*")) if (found := _INTERNAL.fullmatch(path.as_posix()))]
    for path, topic_name in internal:
        path.write_bytes(rewritten(topic_name, path.read_bytes()))
    return len(internal)


def plain(answer: Any) -> Any:
    """An answer as plain values, without positions in files, sizes of records and fields that no analysis reads."""
    match answer:
        case OffsetCommit():
            return answer._replace(metadata=str(len(answer.metadata.encode())))
        case dict():
            return {name: plain(value) for name, value in answer.items() if name not in _POSITION_FIELDS}
        case list() | tuple():
            return [plain(value) for value in answer]
        case Struct():
            values = asdict(answer)
        case _ if is_dataclass(answer):
            values = {field.name: getattr(answer, field.name) for field in fields(answer)}
        case _:
            return answer
    if isinstance(answer, GroupState):
        del values["metadata"]
    if isinstance(answer, Finding):
        values["evidence"] = dict(answer.evidence)
    if isinstance(answer, PartitionControl):
        values["configs"] = _settings(answer.configs)
    if isinstance(answer, ControllerHistory):
        values["configs"] = {topic: _settings(configs) for topic, configs in answer.configs.items()}
        values["features"] = {name: level for name, level in answer.features.items() if name in KEPT_FEATURES}
    return plain(values)


def _settings(configs: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name in KEPT_SETTINGS[_TOPIC]}


WITNESS_FINDINGS = frozenset(
    {"GROUP_OFFSET_BEYOND_LOG", "METADATA_RECORD_MALFORMED", "METADATA_RECORD_UNKNOWN", "READERS_HELD_BACK"}
)


def facts_of(path: Path) -> Any:
    """The facts of logs of internal topics."""
    inputs = gather([str(path)], ScanOptions(), elsewhere=True)
    return plain([read_witnesses(inputs), read_share_logs(inputs), inputs.incomplete])


def answers_of(path: Path) -> Any:
    """The answers of commands that read internal topics."""
    options = ScanOptions()
    group_answer, metadata_answer = groups([str(path)], options), controller_events([str(path)], options)
    findings = [finding for finding in group_answer.result.findings if finding.kind in WITNESS_FINDINGS]
    return plain(
        [group_answer.rows, findings, metadata_answer.rows, metadata_answer.findings, list(transactions([str(path)], options).rows)]
    )


@pytest.mark.parametrize("name", ["healthy", "unclean-election"])
def test_redacted_samples_give_equal_answers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rewrite_tree(SAMPLES / name, tmp_path / name) >= 3
    answers = []
    for directory in (SAMPLES, tmp_path):
        monkeypatch.chdir(directory)
        answers.append((facts_of(Path(name)), answers_of(Path(name))))
    assert answers[0] == answers[1]
    [[witnesses, _, _], rows] = answers[0]
    assert witnesses["controller"] is not None
    assert all(rows[index] for index in (0, 2))


# Records of every kind and version, and every reason why one cannot be read.


Records = list[tuple[bytes | None, bytes | None]]
TRANSACTION = TransactionMetadata(7, 1, 60_000, "PrepareCommit", (("t", 0), ("t", 3), ("u", 1)), 5, 6, 4, 8, 2, 3)
RECREATED_TOPIC_ID = TOPIC_ID_TEXT[::-1]
"""Id of a topic that was deleted and created again."""
SHARED_TOPIC = {"topic_id": TOPIC_ID_TEXT, "topic_name": "orders", "partitions": [0, 1]}
COMMIT_4 = b"\0\4" + bytes(11) + b"\7"
TRANSACTION_1 = b"\0\1" + bytes(15)
METADATA: Records = [
    *(
        (None, record(api_key, version, **FULL | FIELDS_BY_API_KEY.get(api_key, {})))
        for api_key in MESSAGES
        for version in range(len(MESSAGES[api_key]))
    ),
    (None, topic("orders", RECREATED_TOPIC_ID)),
    (
        None,
        partition([1, 2], 1, topic_id=RECREATED_TOPIC_ID, directories=[bytes([number]) * 16 for number in (1, 2)], leader_epoch=3),
    ),
    (
        None,
        partition_change(
            topic_id=RECREATED_TOPIC_ID, replicas=[3, 4], adding_replicas=[3], removing_replicas=[1], leader_recovery_state=1
        ),
    ),
    (None, partition_change(topic_id=RECREATED_TOPIC_ID, directories=[bytes([number]) * 16 for number in (3, 4)])),
    *((None, setting(name, f"compact {name}", "orders", kind)) for kind, names in KEPT_SETTINGS.items() for name in sorted(names)),
    *((None, setting(name, f"delete {name}", "", 4)) for name in sorted(KEPT_SETTINGS[4])),
    *((None, record(12, name=name, feature_level=3)) for name in sorted(KEPT_FEATURES)),
    (None, record(23, name="began")),
    (None, partition_change(topic_id=RECREATED_TOPIC_ID, leader=2, isr=[], eligible_leader_replicas=[1], last_known_elr=[2])),
    (None, record(24)),
    (None, None),
    (None, b""),
    (None, b"\1\xff\xff\xff\xff\xff"),
    (None, bytes([1, 99, 7, 5, 5])),
    (None, bytes([1, 3, 77, 5, 5])),
    (None, bytes([1, 5, 0, 5, 5])),
    (None, bytes([1, 11, 0, 5, 5])),
]
GROUPS: Records = [
    *((commit_key(f"c{version}"), commit_value(9, version=version, metadata="kept", expire_timestamp=8)) for version in range(5)),
    *((commit_key("empty", partition=version), commit_value(9, version=version) + b"more") for version in range(5)),
    (commit_key("named"), commit_value(9, version=4, topic_id=TOPIC_ID_BYTES)),
    (commit_key("old", record_type=0), commit_value(4, version=0)),
    *((group_key(f"g{version}"), group_value(member(), member("m-2"), version=version)) for version in range(5)),
    *((group_key(f"idle{version}"), group_value(version=version)) for version in range(5)),
    *((group_key(f"n{kind}", kind, f"m{kind}"), new_group_value(kind)) for kind in sorted(GROUP_VALUES)),
    *((group_key(f"e{kind}", kind), new_group_value(kind, epoch=kind)) for kind in (3, 11, 17, 23)),
    *((group_key(f"t{kind}", kind), new_group_value(kind, assignment_epoch=kind)) for kind in (6, 12, 20)),
    *((group_key("members", 5, f"m{number}"), new_group_value(5)) for number in (1, 2, 2)),
    (group_key("members", 5, "m2"), None),
    (group_key("rebalancing"), group_value(member(), protocol=None)),
    (
        group_key("shares", 15),
        new_group_value(15, initializing_topics=[SHARED_TOPIC], initialized_topics=[SHARED_TOPIC], deleting_topics=[]),
    ),
    (group_key("early", 15), b"\0\0\1\2" + TOPIC_ID_BYTES[::-1] + b"\7orders\1\0\0"),
    (group_key("early", 9), b"\0\0\1\0"),
    (group_key("large", 3), bytes(internal_topics.MAX_VALUE_BYTES + 1)),
    (group_key("unheard", 24), b"\0\0anything"),
    (group_key("unheard", 24), b"\0\1anything"),
    (commit_key("gone"), None),
    (b"\0\x63unknown", b"anything"),
    (b"\0\1\0", b"anything"),
    *(
        (commit_key("bad", partition=number), value)
        for number, value in enumerate(
            (b"\0\x09", b"", b"\0\3", commit_value(1, metadata="a")[:-9] + b"\xff" + bytes(8), b"\0\3" + bytes(12) + b"\xff\xfe")
        )
    ),
    *(
        (commit_key("worse", partition=number), COMMIT_4 + value)
        for number, value in enumerate(
            (b"\xff" * 6, b"\1" + bytes(8) + b"\1\0\3abc", b"\1" + bytes(8) + b"\2\4\0\4\0", b"\2\xff", b"\0")
        )
    ),
    *(
        (group_key(f"bad{number}"), value)
        for number, value in enumerate(
            (b"\0\x09", b"", b"\0\3\0\1\xff", b"\0\3\xff\xfe", b"\0\4" + b"\xff" * 6, group_value(version=3)[:-4] + b"\xff" * 4)
        )
    ),
    (group_key("bad tags"), group_value(version=4)[:-1] + b"\2\7\0\7\0"),
    *((group_key(f"bad{kind}", kind), b"\0\0" + b"\xff" * 9) for kind in sorted(GROUP_VALUES)),
    *((group_key("bad", 3), value) for value in (b"", b"\0\1")),
]
SHARES: Records = [
    (share_key(), share_value(4, (5, 5, 0, 2), (6, 6, 4, 3))),
    (share_key(record_type=1), share_value(5, (7, 9, 2, 1), record_type=1, delivery_complete_count=5)),
    (
        share_key(partition=1),
        write_value(
            EARLY_SHARE_STATE_VALUES[0],
            {"snapshot_epoch": 65535, "state_epoch": 1, "leader_epoch": 2, "start_offset": 3, "state_batches": []},
        ),
    ),
    (share_key(partition=2), share_value(1)),
    (share_key(partition=2), None),
    (b"\0\7unknown", b"anything"),
    (b"\0\1\0", b"anything"),
    *((share_key(), value) for value in (b"", b"\0\1", b"\0\0\1", bytes(internal_topics.MAX_VALUE_BYTES + 1))),
]
TRANSACTIONS: Records = [
    *((write_transaction_log_key(f"app-{version}"), write_transaction_log_value(TRANSACTION, version)) for version in (0, 1)),
    (write_transaction_log_key("idle"), write_transaction_log_value(TransactionMetadata(1, 2, 3, "Empty", (), 5, 6)) + b"more"),
    (write_transaction_log_key("gone"), None),
    *((key, b"anything") for key in (None, b"\0", b"\0\7\0\1a", b"\0\0\xff\xff", b"\0\0\0\2\xff\xfe")),
    *(
        (write_transaction_log_key(f"bad-{number}"), value)
        for number, value in enumerate(
            (
                b"\0\7anything",
                b"\0\0",
                TRANSACTION_1 + b"\2\0",
                TRANSACTION_1 + b"\2\3\xff\xfe",
                TRANSACTION_1 + b"\xff" * 6,
                b"\0\0" + bytes(14) + b"\x63" + bytes(20),
                TRANSACTION_1 + b"\0" + bytes(16) + b"\1\2\1a",
                b"\0\0" + bytes(15) + b"\0\0\0\1\0\1t\0\2\0\0" + bytes(4 << 17),
            )
        )
    ),
]
REMOTE: Records = [
    *((None, copy_started(number, 10 * number, 10 * number + 9, custom_metadata="AAEC", broker_id=number)) for number in (1, 2)),
    (None, copy_started(3, 30, 39, epochs=((0, 30), (2, 35)), txn_index_empty=False)),
    *((None, segment_update(number, number)) for number in (1, 2, 3)),
    *((b"key", deleted_partition(state)) for state in (0, 3)),
    *(
        (None, value)
        for value in (None, b"", b"\7", b"\1\4\0abc", b"\1\0\1abc", b"\1\1\0abc", segment_update(1, 4), copy_started(9, 1, 0))
    ),
    (None, copy_started(9, 0, 1, segment_leader_epochs=[])),
]
ALL: dict[str, Records] = {
    CLUSTER_METADATA_TOPIC: METADATA,
    CONSUMER_OFFSETS_TOPIC: GROUPS,
    REMOTE_LOG_METADATA_TOPIC: REMOTE,
    SHARE_GROUP_STATE_TOPIC: SHARES,
    TRANSACTION_STATE_TOPIC: TRANSACTIONS,
}
REASONS = {
    CLUSTER_METADATA_TOPIC: {"value", "frame", "version", "fields"},
    CONSUMER_OFFSETS_TOPIC: {"key", "version", "truncated", "text", "length", "varint", "topic_id", "tag", "array", "fields"},
    REMOTE_LOG_METADATA_TOPIC: {"value", "frame", "version", "fields", "state", "offsets", "epochs"},
    SHARE_GROUP_STATE_TOPIC: {"key", "truncated", "version", "fields", "oversized"},
    TRANSACTION_STATE_TOPIC: {
        *("key_null", "key_short", "key_version", "key_string"),
        *("version", "short", "null", "string", "varint", "state", "tag", "partitions"),
    },
}
"""Every reason why a record cannot be read, except too large records, and unknown kinds, which are no fault."""


def put_logs(log_dir: Path, codec: str, headers: Any = ()) -> None:
    """Write logs of all internal topics, in batches of three records."""
    for name, records in ALL.items():
        batches = [
            write_batch(
                [
                    RecordToWrite(key, value, headers, timestamp_delta=index)
                    for index, (key, value) in enumerate(records[at : at + 3])
                ],
                base_offset=at,
                base_timestamp=BASE_TIMESTAMP + at,
                compression_type=codec,
                timestamp_type="LogAppendTime" if at % 2 else "CreateTime",
            )
            for at in range(0, len(records), 3)
        ]
        put_segment(log_dir / f"{name}-0", 0, batches)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("headers", [(), (("trace", b"id"),)], ids=["plain", "headers"])
def test_substitutes_of_every_kind_and_fault_give_the_same_facts(
    codec: str, headers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_logs(tmp_path / "original" / "b", codec, headers)
    assert rewrite_tree(tmp_path / "original" / "b", tmp_path / "copy" / "b") == 5
    answers = []
    for directory in ("original", "copy"):
        monkeypatch.chdir(tmp_path / directory)
        answers.append(facts_of(Path("b")))
    assert answers[0] == answers[1]
    [witnesses, [_, share_findings], _] = answers[0]
    reasons: dict[str, set[str]] = {}
    for finding in [*witnesses["findings"], *share_findings]:
        if finding["kind"] == "METADATA_RECORD_MALFORMED":
            reasons.setdefault(finding["place"]["topic"], set()).add(finding["evidence"]["reason"])
    assert reasons == REASONS
    controller = witnesses["controller"]
    assert controller["configs"]["orders"].keys() == KEPT_SETTINGS[2]
    assert len(controller["defaults"]) == len(KEPT_SETTINGS[4])
    assert controller["features"].keys() == KEPT_FEATURES


# Snapshots, voters, and the no-op records of an idle controller.


def test_a_snapshot_of_substitutes_gives_the_same_facts() -> None:
    data = snapshot(topic(), partition([1, 2], 1), setting("cleanup.policy", "compact"), record(11, **FULL))
    copy = rewritten(CLUSTER_METADATA_TOPIC, data)
    assert copy != data
    original, substitute = (parse_snapshot(MemoryFile(log), 9) for log in (data, copy))
    assert not isinstance(original, str)
    assert not isinstance(substitute, str)
    assert (substitute.offset, substitute.timestamp_ms) == (original.offset, original.timestamp_ms)
    assert [facts_of_metadata(batch) for batch in substitute.batches] == [facts_of_metadata(batch) for batch in original.batches]


def test_voters_are_kept_without_their_endpoints() -> None:
    voter = {
        "voter_id": 3000,
        "voter_directory_id": TOPIC_ID_BYTES,
        "endpoints": [{"name": "CONTROLLER", "host": "secret.example.com", "port": 9093}],
        "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
    }
    batch = write_batch([control(6, voters=[voter])], base_offset=0, base_timestamp=1, is_control_batch=True)
    substitute = witness_batch(CLUSTER_METADATA_TOPIC, batch)
    assert substitute is not None
    assert b"secret" not in substitute
    voters = open_batch(substitute).voters
    assert voters is not None
    assert [*voters.voters.directories] == [3000]
    [read] = decode_batch(substitute).iter_records()
    assert parse_control_record(read.key, read.value).fields["voters"] == [voter | {"endpoints": []}]


@given(
    keys=st.lists(st.text(max_size=200), max_size=5),
    base_offset=st.integers(0, 1 << 62),
    times=st.lists(st.integers(-(1 << 40), 1 << 40), min_size=5, max_size=5),
    by_broker=st.booleans(),
)
def test_batches_of_used_fields_only_are_unchanged(keys: list[str], base_offset: int, times: list[int], by_broker: bool) -> None:
    records = [
        RecordToWrite(commit_key(key), commit_value(index), (), 0 if by_broker else times[index], index * 300)
        for index, key in enumerate(keys)
    ]
    kind = "LogAppendTime" if by_broker else "CreateTime"
    batch = write_batch(records, base_offset=base_offset, base_timestamp=1 << 41, timestamp_type=kind, delete_horizon_ms=1 << 41)
    assert witness_batch(CONSUMER_OFFSETS_TOPIC, batch) == batch


def test_batches_without_used_records_have_no_substitute() -> None:
    idle = ControllerLog().append(record(20)).batches[0][1]
    assert witness_batch(CLUSTER_METADATA_TOPIC, idle) is None
    assert witness_batch("orders", idle) is None
    assert witness_batch(CLUSTER_METADATA_TOPIC, b"") is None
    compressed = write_batch([RecordToWrite(None, record(20))], base_offset=0, base_timestamp=1, compression_type="gzip")
    substitute = witness_batch(CLUSTER_METADATA_TOPIC, compressed)
    assert substitute is not None
    assert witness_batch(CLUSTER_METADATA_TOPIC, substitute) is not None, "readers must not take it for a no-op batch"


def test_all_settings_that_the_analysis_reads_are_kept() -> None:
    source = "".join(path.read_text() for path in sorted((SAMPLES.parent / "kafka_forensics").rglob("*.py")))
    assert set(re.findall(r'(?:\.setting|\b(?:configs|settings)\.get)\("([a-z.]+)"', source)) == KEPT_SETTINGS[2]
    assert set(re.findall(r'\bfeatures\.get\("([a-z.]+)"', source)) == KEPT_FEATURES
    assert DEFAULTS.keys() == KEPT_SETTINGS[4]


def test_different_keys_have_different_substitutes() -> None:
    for name in (CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC):
        keys = {key for key, _ in ALL[name] if key is not None and READERS[name](key, None) != READERS[name](b"", None)}
        batch = write_batch([RecordToWrite(key, None) for key in sorted(keys)], base_offset=0, base_timestamp=1)
        substitute = witness_batch(name, batch)
        assert substitute is not None
        assert len({record.key for record in decode_batch(substitute).iter_records()}) == len(keys)


# Secrets.


SECRET = "s3cr3t"  # noqa: S105 - a text for tests
LONG_SECRET = f"{SECRET}-{SECRET}-{SECRET}"
SECRET_BYTES = LONG_SECRET.encode()
TEXTS = dict.fromkeys(("owner", "requester", "token_id", "principal", "host", "key", "reason"), LONG_SECRET)
RECORDS_WITH_SECRETS: dict[str, Records] = {
    CLUSTER_METADATA_TOPIC: [
        (None, record(11, **FULL | {"name": LONG_SECRET, "salt": "czNjcjN0", "stored_key": "czNjcjN0", "server_key": "czNjcjN0"})),
        *(
            (None, record(kind, **FULL | FIELDS_BY_API_KEY.get(kind, {}) | TEXTS | {"renewers": [LONG_SECRET]}))
            for kind in (10, 14, 18, 25, 26)
        ),
        (None, setting("follower.replication.throttled.replicas", LONG_SECRET)),
        (None, setting("ssl.keystore.password", LONG_SECRET, "1", 4)),
        (None, setting("listener.name.internal.ssl.key.password", LONG_SECRET, "", 4)),
        (None, setting("min.insync.replicas", LONG_SECRET, "1", 4)),
        (None, setting(LONG_SECRET, LONG_SECRET)),
        (
            None,
            record(
                0,
                **FULL
                | {"rack": LONG_SECRET, "end_points": [{"name": "a", "host": LONG_SECRET, "port": 1, "security_protocol": 0}]},
            ),
        ),
        (None, record(12, name=LONG_SECRET, feature_level=1)),
        (None, record(23, name=LONG_SECRET)),
        (None, write_metadata_record(5, 2, FULL)[:-1] + b"\7\7" + SECRET_BYTES),
        (None, partition_change(leader=2)[:-7] + b"\2\1\4\0\0\0\2\x63" + bytes([len(SECRET_BYTES)]) + SECRET_BYTES),
        (SECRET_BYTES, bytes([1, 99, 0]) + SECRET_BYTES),
        (SECRET_BYTES, b"\0" + SECRET_BYTES),
    ],
    CONSUMER_OFFSETS_TOPIC: [
        *((commit_key(), commit_value(1, version=version, metadata=LONG_SECRET) + SECRET_BYTES) for version in range(5)),
        (commit_key() + SECRET_BYTES, commit_value(1, version=4, tagged_fields={0: TOPIC_ID_BYTES, 9: SECRET_BYTES})),
        *(
            (
                group_key(),
                group_value(
                    member(
                        LONG_SECRET,
                        client_id=LONG_SECRET,
                        client_host=LONG_SECRET,
                        subscription=SECRET_BYTES,
                        assignment=SECRET_BYTES,
                    ),
                    version=version,
                    protocol_type=LONG_SECRET,
                    protocol=LONG_SECRET,
                    leader=LONG_SECRET,
                )
                + SECRET_BYTES,
            )
            for version in range(5)
        ),
        (
            group_key("g", 5, LONG_SECRET),
            new_group_value(5, client_id=LONG_SECRET, client_host=LONG_SECRET, subscribed_topic_names=[LONG_SECRET]),
        ),
        (group_key("g", 16, LONG_SECRET), new_group_value(16, topics=[LONG_SECRET])),
        (
            group_key("g", 19, LONG_SECRET),
            new_group_value(19, process_id=LONG_SECRET, client_tags=[{"key": LONG_SECRET, "value": LONG_SECRET}]),
        ),
        (
            group_key("g", 17),
            write_value(
                GROUP_VALUES[17],
                {"epoch": 1, "metadata_hash": 0, "last_assignment_configs": [{"key": LONG_SECRET, "value": LONG_SECRET}]},
            ),
        ),
        (group_key("g", 3), new_group_value(3) + SECRET_BYTES),
        (group_key("g", 24), b"\0\0" + SECRET_BYTES),
        (commit_key(), b"\0\x63" + SECRET_BYTES),
        (b"\0\x63" + SECRET_BYTES, SECRET_BYTES),
        (b"\0\1\0\1" + SECRET_BYTES, SECRET_BYTES),
    ],
    SHARE_GROUP_STATE_TOPIC: [
        (share_key() + SECRET_BYTES, share_value(1) + SECRET_BYTES),
        (b"\0\x63" + SECRET_BYTES, SECRET_BYTES),
        (share_key(), b"\0\x63" + SECRET_BYTES),
    ],
    REMOTE_LOG_METADATA_TOPIC: [
        (SECRET_BYTES, segment_update(1, 1)[:-1] + b"\1\7" + bytes([len(SECRET_BYTES)]) + SECRET_BYTES),
        *(
            (None, head + SECRET_BYTES)
            for head in (copy_started(1, 0, 9), b"\1\x63\0", b"\1\0\x63", SECRET_BYTES, segment_update(1, 9))
        ),
    ],
    TRANSACTION_STATE_TOPIC: [
        (write_transaction_log_key("app") + SECRET_BYTES, write_transaction_log_value(TRANSACTION, 0) + SECRET_BYTES),
        (write_transaction_log_key("app"), write_transaction_log_value(TRANSACTION, 1) + SECRET_BYTES),
        (write_transaction_log_key("app"), b"\0\x63" + SECRET_BYTES),
        (b"\0\x63" + SECRET_BYTES, SECRET_BYTES),
    ],
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", sorted(RECORDS_WITH_SECRETS))
def test_substitutes_contain_no_secret(name: str, codec: str) -> None:
    records = [
        (key, value, headers) for key, value in RECORDS_WITH_SECRETS[name] for headers in ((), ((LONG_SECRET, SECRET_BYTES),))
    ]
    for key, value, headers in records:
        batch = write_batch([RecordToWrite(key, value, headers)], base_offset=5, base_timestamp=1, compression_type=codec)
        assert codec != "none" or SECRET.encode() in batch, "the batch must contain the secret"
        substitute = witness_batch(name, batch)
        assert substitute is not None
        assert SECRET.encode() not in substitute
        assert substitute[22] & 7 == 0


def test_substitutes_of_control_batches_contain_no_unused_bytes() -> None:
    for key, value in (
        (b"\0\0\0\1" + SECRET_BYTES, bytes(6) + SECRET_BYTES),
        (b"\0\0\0\x63" + SECRET_BYTES, SECRET_BYTES),
        (b"\0\0\0\2", b"\0\0" + SECRET_BYTES),
        (b"\0", SECRET_BYTES),
    ):
        for name in sorted(WITNESS_TOPICS):
            batch = write_batch([RecordToWrite(key, value)], base_offset=5, base_timestamp=1, is_control_batch=True)
            substitute = witness_batch(name, batch)
            assert substitute is not None
            assert SECRET.encode() not in substitute
            assert facts_of_batch(name, substitute) == facts_of_batch(name, batch)


# Any bytes: the same facts, and not many more bytes.


def facts_of_metadata(batch: MetadataBatch) -> Any:
    """The facts that a replay reads from a batch, and the problems of its records."""
    replay = ControllerReplay(0)
    replay.step(0, 0, open_batch(TOPIC_BATCH).records[0][1])
    for offset, read in batch.records:
        replay.step(offset, batch.timestamp_ms, read)
    kinds = [(offset, read.api_key, read.name, read.version, read.problem) for offset, read in batch.records]
    return plain([batch.base_offset, batch.timestamp_ms, batch.voters, kinds, replay.finish(1 << 40)])


TOPIC_BATCH = write_batch([RecordToWrite(None, topic("t", TOPIC_ID_TEXT))], base_offset=0, base_timestamp=1)


def facts_of_group(key: bytes | None, value: bytes | None) -> Any:
    """The facts that a reader of `__consumer_offsets` reads from a record."""
    read = internal_topics.read_key(key)
    if isinstance(read, str) or read.record_type not in RECORD_TYPES:
        return read
    read = read._replace(member_id=None)
    if value is None:
        return read, None
    if read.record_type in OFFSET_COMMIT_TYPES:
        commit = internal_topics.read_offset_commit(value)
        return read, commit if isinstance(commit, str) else plain(commit)
    log = GroupLog(0, 1)
    replay = GroupReplay(log)
    if read.record_type == 2:
        group = internal_topics.read_group_metadata(value)
        if isinstance(group, str):
            return read, group
        replay.classic_group("g", group)
        return read, plain(log)
    fields = internal_topics.read_group_value(read.record_type, value)
    replay.new_group(read, {} if isinstance(fields, str) else fields)
    return read, plain(log), fields if isinstance(fields, str) else "", internal_topics.check_value(value)


def facts_of_share(key: bytes | None, value: bytes | None) -> Any:
    """The facts that a reader of `__share_group_state` reads from a record."""
    read = internal_topics.read_share_key(key)
    if isinstance(read, str) or read.record_type not in internal_topics.SHARE_RECORDS or value is None:
        return read, None
    fields = internal_topics.read_share_value(read.record_type, value)
    if isinstance(fields, str):
        return read, fields
    return read, {name: value for name, value in fields.items() if name not in ("create_timestamp", "write_timestamp")}


def facts_of_transaction(key: bytes | None, value: bytes | None) -> Any:
    """The facts that a reader of `__transaction_state` reads from a record."""
    name, problem = internal_topics.parse_transaction_log_key(key)
    return name, problem, None if name is None or value is None else internal_topics.parse_transaction_log_value(value)


def facts_of_remote_log(_: bytes | None, value: bytes | None) -> Any:
    """The facts that a reader of `__remote_log_metadata` reads from a record."""
    read = internal_topics.decode_remote_log_record(value)
    return read.api_key, read.name, read.version, read.fields, read.problem


READERS = {
    CONSUMER_OFFSETS_TOPIC: facts_of_group,
    REMOTE_LOG_METADATA_TOPIC: facts_of_remote_log,
    SHARE_GROUP_STATE_TOPIC: facts_of_share,
    TRANSACTION_STATE_TOPIC: facts_of_transaction,
}


def facts_of_batch(name: str, batch: bytes) -> Any:
    """The facts that a reader reads from a batch of an internal topic."""
    decoded = decode_batch(batch)
    if name == CLUSTER_METADATA_TOPIC:
        if decoded.header is None:
            return None
        return facts_of_metadata(open_batch(batch)), decoded.header[2], [facts_of_control(decoded)], bool(decoded.problems)
    records: list[Any] = facts_of_control(decoded)
    if decoded.header is None or not decoded.header.is_control_batch:
        records = [(record.offset, record.timestamp, READERS[name](record.key, record.value)) for record in decoded.iter_records()]
    plain = plain_records(batch)
    assert plain is None or [(record.offset, record.timestamp) for record in plain] == [record[:2] for record in records]
    if decoded.header is None:
        return records, bool(decoded.problems)
    header = decoded.header._replace(batch_length=0, magic=2, crc=0, attributes=decoded.header.attributes & ~7, records_count=0)
    return records, bool(decoded.problems), header


def facts_of_control(decoded: Any) -> list[Any]:
    """The control records that a reader reads from a batch."""
    if decoded.header is None or not decoded.header.is_control_batch:
        return []
    read = [(record.offset, record.timestamp, parse_control_record(record.key, record.value)) for record in decoded.iter_records()]
    for _, _, control_record in read:
        for voter in control_record.fields.get("voters", ()):
            voter.pop("endpoints", None)
    return read


def assert_same_facts(name: str, batch: bytes) -> None:
    """The substitute of a batch gives the same facts and is not much larger."""
    substitute = witness_batch(name, batch)
    if substitute is None:
        return
    decoded = decode_batch(batch)
    assert len(substitute) <= 4 * len(decoded.payload) + 61
    assert len(substitute) <= MAX_SUBSTITUTE_BYTES + 61
    facts = facts_of_batch(name, substitute)
    if decoded.header is None and name == CLUSTER_METADATA_TOPIC:
        assert open_batch(substitute).records[-1][1].problem == "batch"
    elif decoded.header is None:
        assert facts[: len(facts_of_batch(name, batch))] == facts_of_batch(name, batch)
    else:
        assert facts == facts_of_batch(name, batch)


@st.composite
def changed(draw: st.DrawFn, sound: list[bytes | None]) -> bytes | None:
    """One of `sound`, with changed bytes, shorter or longer; or any bytes."""
    data = draw(st.sampled_from(sound) | st.none() | st.binary(max_size=40))
    if data is None or len(data) > 1000 or draw(st.booleans()):
        return data
    changing = bytearray(data)
    for _ in range(draw(st.integers(0, 3)) if changing else 0):
        changing[draw(st.integers(0, len(changing) - 1))] = draw(st.integers(0, 255))
    return bytes(changing[: draw(st.none() | st.integers(0, len(changing)))]) + draw(st.binary(max_size=9))


@st.composite
def records_like(draw: st.DrawFn, name: str) -> list[RecordToWrite]:
    """Changed keys and values of the topic's records in any combination."""
    keys, values = (changed(sorted({pair[part] for pair in ALL[name]}, key=str)) for part in (0, 1))
    return draw(st.lists(st.builds(RecordToWrite, keys, values), max_size=4))


@pytest.mark.parametrize("name", sorted(ALL))
@given(data=st.data(), codec=st.sampled_from(CODECS), is_control_batch=st.integers(0, 9).map(lambda number: number == 0))
def test_substitutes_of_changed_records_give_the_same_facts(
    name: str, data: st.DataObject, codec: str, is_control_batch: bool
) -> None:
    records = data.draw(records_like(name))
    assert_same_facts(
        name, write_batch(records, base_offset=7, base_timestamp=9, compression_type=codec, is_control_batch=is_control_batch)
    )


@pytest.mark.parametrize("name", sorted(ALL))
@given(batch=record_batches() | broken_batches() | legacy_batches() | st.binary(max_size=90))
def test_substitutes_of_any_batch_give_the_same_facts(name: str, batch: bytes) -> None:
    assert_same_facts(name, batch)


def test_the_substitute_of_a_bomb_is_small() -> None:
    records = [RecordToWrite(group_key("g", 3), bytes(internal_topics.MAX_VALUE_BYTES + 1))] * 24
    batch = write_batch(records, base_offset=0, base_timestamp=1, compression_type="zstd")
    assert len(batch) < 100_000
    substitute = witness_batch(CONSUMER_OFFSETS_TOPIC, batch)
    assert substitute is not None
    assert len(substitute) <= MAX_SUBSTITUTE_BYTES + 61
    assert decode_batch(substitute).problems


def test_a_too_large_record_has_an_empty_substitute() -> None:
    batch = write_batch([RecordToWrite(None, bytes(17 << 20))], base_offset=3, base_timestamp=1, compression_type="zstd")
    for name in sorted(WITNESS_TOPICS):
        substitute = witness_batch(name, batch)
        assert substitute is not None
        assert len(substitute) < 100
        [read] = decode_batch(substitute).iter_records()
        assert (read.offset, read.key, read.value) == (3, None, None)


# Formats before magic 2.


@pytest.mark.parametrize(("magic", "kind"), [(0, "CreateTime"), (1, "CreateTime"), (1, "LogAppendTime")])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_substitutes_of_old_messages_have_their_offsets_and_timestamps(magic: int, kind: str, codec: str) -> None:
    pairs = [(commit_key("a"), commit_value(5, version=1, metadata=LONG_SECRET)), (commit_key("b"), commit_value(6, version=0))]
    timestamp = BASE_TIMESTAMP if magic else -1
    fields: dict[str, Any] = {"magic": magic, "timestamp": timestamp, "timestamp_type": kind}
    first = 40 if codec == "none" or not magic else 0  # in a wrapper of magic 1 offsets start at 0
    entries = [write_legacy_entry(key, value, offset=first + index, **fields) for index, (key, value) in enumerate(pairs)]
    if codec != "none":
        entries = [write_legacy_wrapper(entries, offset=41, compression_type=codec, **fields)]
    read = []
    for entry in entries:
        assert_same_facts(CONSUMER_OFFSETS_TOPIC, entry)
        substitute = witness_batch(CONSUMER_OFFSETS_TOPIC, entry)
        assert substitute is not None
        assert SECRET.encode() not in substitute
        decoded = decode_batch(substitute)
        assert decoded.header is not None
        assert decoded.header.timestamp_type == kind
        read += [(record.offset, record.timestamp, internal_topics.read_key(record.key)) for record in decoded.iter_records()]
    assert read == [(40 + index, timestamp, internal_topics.read_key(key)) for index, (key, _) in enumerate(pairs)]
