"""A real cluster loses acknowledged records; they are recovered from copies, produced back, and each is there once."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_forensics.cli.main import outcome
from lab.cluster import Cluster
from lab.unclean_election import AFTERWARDS, ALONE, COMMON_END, OLD_LEADER, STALE, STOPPED, lose_audit

pytestmark = [pytest.mark.broker, pytest.mark.slice]

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "produce_back.py"
ACKNOWLEDGED = [
    *(("login", number) for number in range(COMMON_END + ALONE)),
    *(("login-again", number) for number in range(COMMON_END, COMMON_END + AFTERWARDS)),
]


def produce_back(folder: Path, cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder), "--bootstrap-servers", cluster.awake, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def read_all(cluster: Cluster) -> list[tuple[dict[str, Any], int, object]]:
    """Value, timestamp and headers of every record of audit-0 that a reader sees, in order."""
    consumer = Consumer({"bootstrap.servers": cluster.awake, "group.id": "auditors", "log_level": 0})
    try:
        place = TopicPartition("audit", 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        records: list[tuple[dict[str, Any], int, object]] = []
        while len(records) < end:
            messages = consumer.consume(num_messages=500, timeout=30)
            assert messages, f"{len(records)} of {end}"
            records += [(json.loads(each.value() or b""), each.timestamp()[1], each.headers() or []) for each in messages]
        return records
    finally:
        consumer.close()


def test_every_acknowledged_record_is_there_once(tmp_path: Path) -> None:
    with Cluster(tmp_path / "nodes") as cluster:
        lose_audit(cluster)
        cluster.copy(tmp_path / "copies")
        lost = tmp_path / "lost"
        assert outcome(["recover", str(tmp_path / "copies"), "--live", "--topic", "audit", "--output", str(lost), "-q"]) == 1
        rows = [json.loads(line) for line in (lost / "records.jsonl").read_text().splitlines()]
        assert [row["offset"] for row in rows] == [*range(COMMON_END, COMMON_END + ALONE)]
        rehearsed = produce_back(lost, cluster)
        assert (rehearsed.returncode, rehearsed.stderr) == (0, "")
        assert f"{ALONE} records to audit-0, proven committed" in rehearsed.stdout
        assert len(read_all(cluster)) == COMMON_END + AFTERWARDS, "a dry run sends nothing"
        done = produce_back(lost, cluster, "--send")
        assert (done.returncode, done.stdout) == (0, f"{ALONE} records acknowledged\n"), done.stderr
        again = produce_back(lost, cluster, "--send")
        assert (again.returncode, again.stdout) == (0, "0 records acknowledged\n"), again.stderr
        cluster.start(OLD_LEADER, STOPPED)
        cluster.await_isr("audit", [OLD_LEADER, STOPPED, STALE])
        records = read_all(cluster)
    assert Counter((record["event"], record["number"]) for record, _, _ in records) == Counter(ACKNOWLEDGED)
    back = records[COMMON_END + AFTERWARDS :]
    assert [stamp for _, stamp, _ in back] == [row["timestamp_ms"] for row in rows]
    assert [headers for _, _, headers in back] == [[("kafka-forensics-original-offset", b"%d" % row["offset"])] for row in rows]
