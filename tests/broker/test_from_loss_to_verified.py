"""Runs docs/recovery-walkthrough.md on real clusters: records are lost, the page's commands run, and at the end no record is
missing.

Brokers stop and start between the page's blocks, as the page says.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from lab.cluster import Cluster
from lab.doc_blocks import Block, blocks_of
from lab.unclean_election import AFTERWARDS, ALONE, COMMON_END, OLD_LEADER, STALE, STOPPED, lose_audit
from lab.versions import VERSIONS, version_cluster
from tests.support.places import ROOT

pytestmark = pytest.mark.broker

PAGE = ROOT / "docs" / "recovery-walkthrough.md"
ACKNOWLEDGED = Counter(
    [
        *(("login", number) for number in range(COMMON_END + ALONE)),
        *(("login-again", number) for number in range(COMMON_END, COMMON_END + AFTERWARDS)),
    ]
)


@dataclass(frozen=True)
class Record:
    """A record of `audit` as a reader sees it."""

    event: tuple[str, int]
    timestamp_ms: int
    headers: list[tuple[str, bytes]]


class Walk:
    """Runs the blocks of the page once each, in order, in a folder that contains `kafka`."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.bootstrap = folder, cluster.bootstrap
        self.left = [block for block in blocks_of("docs/recovery-walkthrough.md") if "run by" in block.notes]
        (folder / "kafka").symlink_to(cluster.log_dir(STALE).parent)

    def next(self, heading: str) -> str:
        """Run the next block, which must be below this heading; return its output."""
        block = self.left.pop(0)
        assert re.findall(r"^## (.*)$", PAGE.read_text()[: self._position(block)], re.MULTILINE)[-1] == heading
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": programs, "BOOTSTRAP": self.bootstrap, "COLUMNS": "80"}
        done = subprocess.run(
            ["bash", "-e", "-c", block.body],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == int(block.note("exit") or 0), done.stdout + done.stderr
        return done.stdout + done.stderr

    @staticmethod
    def _position(block: Block) -> int:
        return PAGE.read_text().index(block.body)


def read_audit(bootstrap: str) -> list[Record]:
    """Every record of `audit` that a reader sees, in order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "auditors", "isolation.level": "read_committed", "log_level": 0}
    )
    try:
        place = TopicPartition("audit", 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        seen: list[Record] = []
        while len(seen) < end:
            messages = consumer.consume(num_messages=500, timeout=30)
            assert messages, f"{len(seen)} of {end}"
            for message in messages:
                value = json.loads(message.value() or b"")
                headers: Any = message.headers() or []
                seen.append(Record((value["event"], value["number"]), message.timestamp()[1], headers))
        return seen
    finally:
        consumer.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [pytest.param("4.3.0", marks=pytest.mark.slice), "3.9.1"])
def test_every_acknowledged_record_is_in_the_topic_once(version: str, tmp_path: Path) -> None:
    with version_cluster(tmp_path / "nodes", VERSIONS[version]) as cluster:
        lose_audit(cluster)
        walk = Walk(tmp_path, cluster)
        cluster.stop()
        follow(walk, cluster)
    assert walk.left == []


def follow(walk: Walk, cluster: Cluster) -> None:
    """Follow the page, from stopped brokers on."""
    walk.next("1. Stop and copy")
    output = " ".join(walk.next("2. What happened").split())
    assert f"committed records at offsets {COMMON_END} to {COMMON_END + ALONE - 1} survive only on broker 2" in output
    output = " ".join(walk.next("3. Compare the options").split())
    assert "`recover` writes these records to a file" in output
    walk.next("4. Recover the lost records from the copies")
    rows = [json.loads(row) for row in (walk.folder / "lost" / "records.jsonl").read_text().splitlines()]
    assert [row["offset"] for row in rows] == [*range(COMMON_END, COMMON_END + ALONE)]
    cluster.start(*cluster.controllers)
    cluster.start(STALE)
    cluster.start(STOPPED, OLD_LEADER)
    cluster.await_isr("audit", [STALE, STOPPED, OLD_LEADER])
    assert len(read_audit(cluster.bootstrap)) == COMMON_END + AFTERWARDS
    output = walk.next("6. Produce the records again")
    assert f"{ALONE} records acknowledged" in output
    cluster.await_high_watermark(STALE, "audit", COMMON_END + AFTERWARDS + ALONE)
    records = read_audit(cluster.bootstrap)
    assert Counter(record.event for record in records) == ACKNOWLEDGED
    back = records[COMMON_END + AFTERWARDS :]
    assert [record.timestamp_ms for record in back] == [row["timestamp_ms"] for row in rows]
    assert [record.headers for record in back] == [[("kafka-forensics-original-offset", b"%d" % row["offset"])] for row in rows]
    output = walk.next("7. Check the result")
    assert "7 promises kept" in output
