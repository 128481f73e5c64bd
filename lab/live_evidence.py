"""Takes evidence from running brokers: a copy made file by file while they write, and scans of logs that change meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from lab.cluster import ADMIN_TIMEOUT_SECONDS
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.story import Story
from lab.unclean_election import fully_replicated

FIRST: Final = 1
"""The broker that leads every topic here and is copied first."""
TOPICS: Final[dict[str, dict[str, str]]] = {"busy": {"index.interval.bytes": "1"}, "grows": {}, "shrinks": {}, "vanishes": {}}
BEFORE: Final = 12
"""Records of each topic before the copy and the scans."""
LOG: Final = f"{0:020d}.log"


def take_live(story: Story) -> None:
    """Make the copy `live`, and put results of scans of changing logs into `story.disturbed`. All brokers run afterwards."""
    cluster = story.cluster
    cluster.start(*cluster.brokers)
    wait_until("all replicas in sync", lambda: fully_replicated(cluster), timeout_seconds=60)
    for topic, settings in TOPICS.items():
        cluster.create_topic(topic, assignment=[[1, 2, 3]], settings=settings)
        story.write(topic, BEFORE, batch_records=3)
    story.settle(*TOPICS)
    copy_file_by_file(story)
    story.disturbed["grows"] = scan_while(story, "grows", lambda: story.write("grows", 6, batch_records=3))
    story.disturbed["vanishes"] = scan_while(story, "vanishes", lambda: delete(story, "vanishes"))
    story.disturbed["shrinks"] = scan_a_truncation(story)


def copy_file_by_file(story: Story) -> None:
    """Copy as `cp -r` does: after the log of `busy` of the first broker is copied, write records, then copy all other files."""
    cluster = story.cluster
    log = cluster.log_dir(FIRST) / "busy-0" / LOG

    def write(copied: Path) -> None:
        if copied == log:
            story.write("busy", 9, batch_records=3)
            story.settle("busy")

    for broker in cluster.brokers:
        copy_tree(cluster.log_dir(broker), story.root / "live" / f"b{broker}", write)


def scan_while(story: Story, topic: str, change: Callable[[], object], first: int = FIRST) -> ScanResult:
    """Scan one topic in the running brokers' log directories; make the change after the log of broker `first` is read."""
    waiting = [change]

    def progress(_done: int, _total: int) -> None:
        if waiting:
            waiting.pop()()

    brokers = sorted(story.cluster.brokers, key=lambda broker: (broker != first, broker))
    paths = [str(story.cluster.log_dir(broker)) for broker in brokers]
    return local.scan(paths, ScanOptions(topic_glob=topic, jobs=1), progress)


def delete(story: Story, topic: str) -> None:
    """Delete a topic, and wait until every broker has renamed its directory."""
    cluster = story.cluster
    admin = cluster.admin()
    admin.delete_topics([topic], operation_timeout=ADMIN_TIMEOUT_SECONDS)[topic].result(ADMIN_TIMEOUT_SECONDS)
    directories = [cluster.log_dir(broker) / f"{topic}-0" for broker in cluster.brokers]
    wait_until(f"{topic} is set aside", lambda: not any(directory.exists() for directory in directories), timeout_seconds=20)


def scan_a_truncation(story: Story) -> ScanResult:
    """Scan `shrinks` while the former leader restarts and truncates six records that nobody had fetched."""
    cluster = story.cluster
    story.write_unfetched("shrinks")
    cluster.kill(FIRST)
    cluster.thaw(2, 3)
    wait_until("shrinks has another leader", lambda: cluster.leader_and_isr("shrinks")[0] in (2, 3), timeout_seconds=60)
    story.write("shrinks", 3, kind="instead")
    ours, theirs = (cluster.log_dir(broker) / "shrinks-0" / LOG for broker in (FIRST, 2))

    def come_back() -> None:
        cluster.start(FIRST)
        wait_until("the log is cut", lambda: ours.read_bytes() == theirs.read_bytes(), timeout_seconds=30)

    return scan_while(story, "shrinks", come_back, first=2)
