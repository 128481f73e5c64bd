"""No bundle contains payloads or the secrets in internal topics; all members are searched, decompressed."""

from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import pytest

import kafka_forensics as kf
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.collect import CollectOptions
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import put_consumer_offsets, put_segment
from tests.support.bundles import decompressed_members, make_bundle
from tests.support.controllers import ControllerLog, record, setting, topic
from tests.support.groups import commit_key, commit_value, group_key, group_value, member
from tests.support.segments import BASE_TIMESTAMP, legacy_entry, write_legacy_wrapper
from tests.support.strategies import CODECS

SECRETS: Final = {
    name: f"hush-{name}-{number:04}".encode()
    for number, name in enumerate(
        ("salt", "stored", "server", "token", "config", "client", "host", "subscription", "assignment", "commit", "header-name")
    )
}
PAYLOADS: Final = {name: f"hush-{name}-payload".encode() for name in ("key", "value", "header", "old", "wrapped", "broken")}


def put_secrets(log_dir: Path, compression: Any) -> None:
    """A broker's log directory with everything that must not be in a bundle."""
    controller = ControllerLog().lead([1])
    salt, stored_key, server_key = (b64encode(SECRETS[name]).decode() for name in ("salt", "stored", "server"))
    controller.append(
        topic("orders"),
        record(11, name="alice", mechanism=1, salt=salt, stored_key=stored_key, server_key=server_key, iterations=4096),
        record(
            10,
            owner="User:a",
            requester="User:a",
            renewers=[],
            issue_timestamp=0,
            max_timestamp=1,
            expiration_timestamp=1,
            token_id=SECRETS["token"].decode(),
        ),
        setting("sasl.jaas.config", SECRETS["config"].decode(), "1", 4),
        setting("follower.replication.throttled.replicas", SECRETS["config"].decode(), "orders"),
    )
    controller.put(log_dir, 1)
    named = member(
        client_id=SECRETS["client"].decode(),
        client_host=SECRETS["host"].decode(),
        subscription=SECRETS["subscription"],
        assignment=SECRETS["assignment"],
    )
    records = [
        (commit_key(topic="orders"), commit_value(3, metadata=SECRETS["commit"].decode())),
        (group_key(), group_value(named)),
    ]
    batches = [
        write_batch([RecordToWrite(key, value)], base_offset=offset, base_timestamp=BASE_TIMESTAMP, compression_type=compression)
        for offset, (key, value) in enumerate(records)
    ]
    put_consumer_offsets(log_dir, b"".join(batches))
    payload = RecordToWrite(PAYLOADS["key"], PAYLOADS["value"], headers=((SECRETS["header-name"].decode(), PAYLOADS["header"]),))
    plain = write_batch([payload] * 3, base_offset=0, base_timestamp=BASE_TIMESTAMP, compression_type=compression)
    broken = bytearray(write_batch([RecordToWrite(None, PAYLOADS["broken"])], base_offset=3, base_timestamp=BASE_TIMESTAMP))
    broken[20] ^= 1
    torn = plain[: len(plain) - 4]
    put_segment(log_dir / "orders-0", 0, plain + bytes(broken) + b"hush-between" + torn)
    wrapped = write_legacy_wrapper(
        [legacy_entry(1, value=PAYLOADS["wrapped"])], offset=1, magic=1, compression_type="gzip", timestamp=7
    )
    put_segment(log_dir / "old-0", 0, legacy_entry(0, value=PAYLOADS["old"]) + wrapped)
    (log_dir / "notes.txt").write_bytes(b"hush-notes")
    (log_dir / "orders-0" / "core.1234").write_bytes(b"hush-core")


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("deep", [False, True])
def test_no_secret_is_in_a_bundle(compression: Any, deep: bool, tmp_path: Path) -> None:
    log_dir = tmp_path / "broker-1"
    put_secrets(log_dir, compression)
    if compression == "none":
        logs = b"".join(path.read_bytes() for path in log_dir.rglob("*.log"))
        assert [name for name, secret in {**SECRETS, **PAYLOADS}.items() if secret not in logs] == ["wrapped"]
    path = make_bundle(log_dir, tmp_path / "bundle.kfb", CollectOptions(ScanOptions(deep=deep)))
    members = decompressed_members(path)
    assert b"orders" in b"".join(members.values())
    for name, data in members.items():
        assert b"hush" not in data, name
    assert kf.scan([str(path)]).incomplete == []
