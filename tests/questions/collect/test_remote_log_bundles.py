"""Bundles of brokers with tiered topics: the facts of the remote store, with names and with pseudonyms."""

from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.model.pseudonyms import NameKind
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap
from tests.support.brokers import put_meta_properties
from tests.support.bundles import make_bundle, unpack_bundle
from tests.support.remote_log import copy_started, put_remote_log, segment_id, segment_update

INDEX = f"340_{segment_id(1)}.timeindex"
IN_CACHE = (INDEX, f"{INDEX}.deleted", f"0340_{segment_id(1)}.index", f"340_{'x' * 22}.index", "orders_notes.index")


@pytest.mark.parametrize("is_redacted", [False, True])
def test_bundles_have_the_facts_of_the_remote_store(is_redacted: bool, tmp_path: Path) -> None:
    log_dir = tmp_path / "broker-1"
    events = (
        copy_started(1, 340, 399, topic="orders", custom_metadata="AAEC"),
        segment_update(1, 1, topic="orders", custom_metadata="AAEC"),
    )
    put_remote_log(log_dir, *events, segment_update(2, 1, topic="orders"), b"\1\1\0\0", copy_started(3, 9, 0), segment_update(1, 7))
    put_meta_properties(log_dir, 1)
    for directory in (log_dir / "remote-log-index-cache", log_dir / "orders-0"):
        directory.mkdir()
        for name in IN_CACHE:
            (directory / name).write_bytes(b"")
    pseudonyms = PseudonymMap.at(tmp_path / "names.json") if is_redacted else None
    bundle = make_bundle(log_dir, tmp_path / "one.kfb", CollectOptions(pseudonyms=pseudonyms))
    if pseudonyms is None:
        assert facts(bundle) == facts(log_dir)
        return
    topic = pseudonyms.pseudonym(NameKind.TOPIC, "orders")
    renamed = {"topic": topic, "custom_metadata": None}
    assert facts(bundle) == [row | {name: renamed[name] for name in renamed if row[name] is not None} for row in facts(log_dir)]
    files = {row[0] for row in unpack_bundle(bundle).listing["files"]}
    kept = {f"remote-log-index-cache/{name}" for name in IN_CACHE[:2]}
    assert {path for path in files if "_" in path.rpartition("/")[2] and "cache/" in path} == kept
    assert not [path for path in files if "orders" in path or f"{topic}-0/340" in path]


def facts(path: Path) -> list[dict[str, Any]]:
    result = kf.scan(str(path))
    return [row for fact in ("remote_segments", "remote_events") for row in result.facts(fact, payloads=True).to_pylist()]
