"""Bundles with pseudonyms contain no name, and give the same answers as the directories."""

import json
import re
import shutil
import socket
import struct
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import pytest

import kafka_forensics as kf
from kafka_forensics.analysis.internal_topics.transaction_log import java_hash
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.model.coordinators import TransactionMetadata
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.pseudonyms import NameKind
from kafka_forensics.parsers.log_dir import parse_partition_name
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap, RequestedRecords, collect, collecting
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
    write_marker,
    write_transaction_log_key,
    write_transaction_log_value,
)
from kafka_forensics.writers.files import write_leader_epochs, write_offset_checkpoint, write_properties
from tests.support import groups, remote_log
from tests.support.brokers import put_consumer_offsets, put_meta_properties, put_segment, put_share_state
from tests.support.bundles import (
    LOG,
    Names,
    decompressed_members,
    make_bundle,
    names_by_pseudonym,
    replace_pseudonyms,
    unpack_bundle,
)
from tests.support.controllers import ControllerLog, control, put_snapshot, record, setting, snapshot, topic
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, log
from tests.support.unread import refuse

TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAABw"
HUSH: Final = "hush"
"""The start of every name in the test data."""
UNIQUE: Final = "0123456789abcdef" * 2
UNREADABLE: Final = f"{0:020}.txnindex"
ILLEGAL: Final = "HUSH not a partition"
VOTER: Final = {
    "voter_id": 1,
    "voter_directory_id": bytes(16),
    "endpoints": [{"name": "HUSH-LISTENER", "host": "hush-host.example.com", "port": 9093}],
    "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
}


def pseudonyms(folder: Path) -> PseudonymMap:
    return PseudonymMap.at(folder / "names.json")


# Names in the test data.


def put_names(log_dir: Path) -> None:
    """A log directory with a name in every place that can have one."""
    endpoint = {"name": "HUSH-LISTENER", "host": "hush-host.example.com", "port": 9092, "security_protocol": 0}
    broker: dict[str, Any] = {
        "broker_id": 1,
        "incarnation_id": bytes(16),
        "broker_epoch": 1,
        "end_points": [endpoint],
        "features": [],
        "rack": "hush-rack",
        "fenced": False,
        "in_controlled_shutdown": False,
        "log_dirs": [],
        "is_migrating_zk_broker": False,
    }
    access: dict[str, Any] = dict.fromkeys(("resource_name", "principal", "host"), "hush")
    controller = ControllerLog().lead([1])
    controller.append(
        topic("hush-orders", TOPIC_ID),
        record(0, **broker),
        setting("min.insync.replicas", "1", "hush-orders"),
        setting("hush.setting", "hush-value", "hush-orders"),
        setting("cleanup.policy", "hush", "hush-orders"),
        record(28, topic_name="hush-orders"),
        record(11, name="hush-user", mechanism=1, salt=b"hush", stored_key=b"hush", server_key=b"hush", iterations=4096),
        record(18, id=bytes(16), **access, **dict.fromkeys(("resource_type", "pattern_type", "operation", "permission_type"), 3)),
    )
    directory = controller.put(log_dir, 1)
    voters = write_batch([control(6, voters=[VOTER])], base_offset=9, base_timestamp=BASE_TIMESTAMP, is_control_batch=True)
    put_snapshot(directory, 9, snapshot(topic("hush-orders", TOPIC_ID)) + voters)
    (log_dir / "bootstrap.checkpoint").write_bytes(voters)
    (directory / "quorum-state").write_text(
        json.dumps({"clusterId": "hush-cluster", "leaderId": 1, "leaderEpoch": 3, "host": "hush-host", "data_version": 0})
    )
    put_groups(log_dir)
    put_transactions(log_dir)
    object_key = b64encode(b"hush-object").decode()
    events = (remote_log.copy_started(1, 0, 9, topic="hush-orders", custom_metadata=object_key), remote_log.deleted_partition())
    remote_log.put_remote_log(log_dir, *events, remote_log.segment_update(1, 1, topic="hush-orders", custom_metadata=object_key))
    marker = write_marker(True, base_offset=4, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=BASE_TIMESTAMP)  # noqa: FBT003
    odd = [RecordToWrite(b"\0\0\0\1hush-key", b"\0\0\0\0\0\0", (("hush-header", b"hush"),)), control(6, voters=[VOTER])]
    controls = b"".join(
        write_batch([record], base_offset=5 + number, base_timestamp=BASE_TIMESTAMP, is_control_batch=True)
        for number, record in enumerate(odd)
    )
    put_segment(log_dir / "hush-orders-0", 0, [*log(2), marker, controls])
    (log_dir / "hush-orders-0" / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([]) + b"0 hush\n")
    (log_dir / "hush-orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\nname: hush-orders\nhush\n")
    for suffix in ("delete", "future", "stray"):
        put_segment(log_dir / f"hush-gone-1.{UNIQUE}-{suffix}", 0, log(1))
    put_small_files(log_dir)


def put_groups(log_dir: Path) -> None:
    someone = groups.member("hush-member", client_id="hush-client", client_host="/hush-host", group_instance_id="hush-instance")
    shared = [{"topic_id": TOPIC_ID, "topic_name": "hush-orders", "partitions": [0]}]
    records = [
        (groups.commit_key("hush-group", "hush-orders"), groups.commit_value(3, metadata="hush-metadata")),
        (groups.commit_key("hush-group", "hush-old", record_type=0), groups.commit_value(3, version=1)),
        (
            groups.group_key("hush-group"),
            groups.group_value(someone, protocol_type="hush", protocol="hush-assignor", leader="hush-member"),
        ),
        (groups.group_key("hush-new", 3), groups.new_group_value(3, epoch=1)),
        (
            groups.group_key("hush-new", 5, "hush-member"),
            groups.new_group_value(5, client_id="hush-client", client_host="/hush-host"),
        ),
        (groups.group_key("hush-new", 16, "hush.*"), groups.new_group_value(16, topics=["hush-orders"])),
        (groups.group_key("hush-share", 15), groups.new_group_value(15, initialized_topics=shared)),
    ]
    put_consumer_offsets(log_dir, groups.coordinator_batches(*records))
    put_share_state(log_dir, groups.coordinator_batches((groups.share_key("hush-share"), groups.share_value(3))))


def put_transactions(log_dir: Path) -> None:
    ongoing = TransactionMetadata(7, 0, 60_000, "Ongoing", (("hush-orders", 0), ("__consumer_offsets", 0)), 1, 1)
    records = [
        (write_transaction_log_key("hush-txn"), write_transaction_log_value(ongoing)),
        (write_transaction_log_key("hush-gone"), None),
    ]
    put_segment(log_dir / "__transaction_state-0", 0, groups.coordinator_batches(*records))


def put_small_files(log_dir: Path) -> None:
    checkpoint = write_offset_checkpoint({("hush-orders", 0): 4, ("__consumer_offsets", 0): 7}) + b"hush-orders x 5\nhush\n"
    for name in ("replication", "recovery-point", "log-start", "cleaner"):
        (log_dir / f"{name}-offset-checkpoint").write_bytes(checkpoint)
    (log_dir / "replication-offset-checkpoint.tmp").write_bytes(checkpoint)
    meta = {"version": "1", "node.id": "1", "cluster.id": "hush-cluster", "hush.key": "hush"}
    (log_dir / "meta.properties").write_bytes(b"# hush-host\n" + write_properties(meta))
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5,"host":"hush-host"}')
    (log_dir / "hush-notes.txt").write_text("hush")
    (log_dir / "hush-orders-0" / "hush.core").write_text("hush")
    (log_dir / ILLEGAL).mkdir()
    (log_dir / ILLEGAL / "hush").write_text("hush")
    (log_dir / "hush-link").symlink_to("/nowhere/hush-orders-0")
    (log_dir / "hush-linked-3").symlink_to("/nowhere/hush-orders-0")
    put_segment(log_dir / "hush-torn-0", 0, b"".join(log(1)) + HUSH.encode() * 50)
    (log_dir / "hush-torn-0" / UNREADABLE).write_bytes(b"hush")


@pytest.mark.parametrize("layout", ["alone", "with another", "as a partition", "folder", "segments alone"])
def test_no_bundle_contains_a_name(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "hush-host")
    refuse(monkeypatch, lambda path: path.name == UNREADABLE, "hush-host says no")
    log_dir = tmp_path / "hush-logs" / "hush-dir-1"
    put_names(log_dir)
    other = tmp_path / "hush-logs" / "hush-dir-2"
    put_segment(other / "hush-more-0", 0, log(1))
    (tmp_path / "hush-logs" / "hush-empty").mkdir()  # a log message would name it
    segments = shutil.copytree(other / "hush-more-0", tmp_path / "hush-alone")
    paths = {
        "alone": [f"hush-broker={log_dir}"],
        "with another": [str(log_dir), str(other)],
        "as a partition": [str(log_dir / "hush-orders-0")],
        "folder": [str(tmp_path / "hush-logs")],
        "segments alone": [str(segments)],
    }[layout]
    path = tmp_path / "bundle.kfb"
    wanted = ["--topic", "hush*", "--deep", "--compacted", "hush*", "--hash", "-v", "--debug", "--output", str(path)]
    assert outcome(["collect", *paths, *wanted]) in (0, 3)
    assert HUSH.encode() in b"".join(decompressed_members(path).values())
    capsys.readouterr()
    private = ["--redact", "--redact-map", str(tmp_path / "names.json")]
    assert outcome(["collect", *paths, *wanted, *private, "--estimate"]) == 0
    assert not (tmp_path / "names.json").exists()
    assert outcome(["collect", *paths, *wanted, *private]) in (0, 3)
    printed = "".join(capsys.readouterr()).encode()
    names = pseudonyms(tmp_path)
    for name, data in {**decompressed_members(path), "the file": path.read_bytes(), "streams": printed}.items():
        assert not re.search(b"hush|hsuh", data.lower()), name
    listed = [row[0] for row in unpack_bundle(path).listing["files"]]
    topics = {parsed.topic for path in listed for part in path.split("/") if (parsed := parse_partition_name(part)) is not None}
    if layout != "segments alone":
        assert names.pseudonym(NameKind.TOPIC, "hush-orders") in topics
    assert outcome(["scan", str(path), "-q"]) in (0, 1, 3)


def test_a_log_that_grows_before_its_index_is_read(tmp_path: Path) -> None:
    batches = [groups.coordinator_batches((groups.commit_key(), groups.commit_value(number)), start=number) for number in range(3)]
    path = put_consumer_offsets(tmp_path / "broker-1", b"".join(batches[:2]))

    def grow(_done: int, _total: int) -> None:
        path.write_bytes(b"".join(batches))
        path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", row, row * len(batches[0])) for row in (1, 2)))

    with (tmp_path / "bundle.kfb").open("w+b") as file:
        collect([str(tmp_path / "broker-1")], CollectOptions(pseudonyms=pseudonyms(tmp_path)), file, grow)
    assert "INDEX_MISMATCH" not in {finding.kind for finding in kf.scan([file.name]).findings}


def test_an_index_of_a_log_with_names_has_no_entries(tmp_path: Path) -> None:
    batches = [groups.coordinator_batches((groups.commit_key(), groups.commit_value(number)), start=number) for number in range(3)]
    path = put_consumer_offsets(tmp_path / "broker-1", b"".join(batches))
    for kind, entry in (
        ("index", struct.pack(">ii", 2, 2 * len(batches[0]))),
        ("timeindex", struct.pack(">qi", BASE_TIMESTAMP, 2)),
    ):
        path.with_suffix(f".{kind}").write_bytes(entry)
    bundle = make_bundle(tmp_path / "broker-1", tmp_path / "one.kfb", CollectOptions(pseudonyms=pseudonyms(tmp_path)))
    for kind in ("index", "timeindex"):
        with BundleSource(str(bundle)).open(f"{path.parent.name}/{path.stem}.{kind}") as index:
            assert index.size_in_bytes == 0
    assert [finding.kind for finding in kf.scan([str(bundle)]).findings if "INDEX" in finding.kind] == []


def test_whole_records_are_refused(tmp_path: Path) -> None:
    options = CollectOptions(records=(RequestedRecords("audit", 0, 1, 2),), pseudonyms=pseudonyms(tmp_path))
    with (tmp_path / "bundle.kfb").open("w+b") as file, pytest.raises(UsageError, match="pseudonyms"):
        collect([str(SAMPLES / "unclean-election" / "broker-1")], options, file)


# Answers.


def scanned(paths: list[str], capsys: pytest.CaptureFixture[str], names: Names | None = None) -> Json:
    """The answer of a scan, with these names instead of pseudonyms."""
    assert outcome(["scan", *paths, "--format", "json", "-q"]) in (0, 1)
    answer: Json = json.loads(replace_pseudonyms(capsys.readouterr().out, names or {}))
    assert answer["incomplete"] == []
    return answer


@pytest.mark.parametrize("is_in_bundle", [True, False])
def test_a_bundle_says_how_many_partitions_the_coordinators_log_has(
    is_in_bundle: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions of transactional ids show how many partitions there are. Those of pseudonyms do not."""
    log_dir = tmp_path / "broker-1"
    for directory in ("payments-0", "__transaction_state-0", "__transaction_state-1"):
        (log_dir / directory).mkdir(parents=True)
    state = TransactionMetadata(7, 0, 60_000, "CompleteCommit", (), BASE_TIMESTAMP, BASE_TIMESTAMP)
    for partition in (0, 1):
        ids = [name for number in range(100) if java_hash(name := f"app-{number}") % 3 == partition]
        records = [(write_transaction_log_key(name), write_transaction_log_value(state)) for name in ids]
        (log_dir / f"__transaction_state-{partition}" / LOG).write_bytes(groups.coordinator_batches(*records))
    (log_dir / "payments-0" / LOG).write_bytes(groups.transaction_batches((b"key", b"value"), start=0, producer_id=99))
    put_meta_properties(log_dir, 1, cluster_id="one")
    if not is_in_bundle:
        monkeypatch.setattr(collecting._CollectInputs, "transaction_partitions", lambda _: 0)
    made = pseudonyms(tmp_path)
    path = make_bundle(log_dir, tmp_path / "one.kfb", CollectOptions(pseudonyms=made))
    made.keep()
    assert BundleSource(str(path)).about.transaction_partitions == (3 if is_in_bundle else 0)
    as_of, names = ["--as-of", "2100-01-01"], names_by_pseudonym(tmp_path / "names.json")
    expected, answer = (open_transaction(scanned([str(source), *as_of], capsys, names)) for source in (log_dir, path))
    assert expected["missing_partitions"] == [2]
    assert (answer == expected) is is_in_bundle


def open_transaction(answer: Json) -> Json:
    """The evidence about the open transaction."""
    [evidence] = [finding["evidence"] for finding in answer["findings"] if finding["kind"].startswith("TXN_")]
    return dict(evidence)
