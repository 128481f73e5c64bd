"""What is wrong with a small file (an index, a snapshot, a checkpoint), and what it costs to start without it."""

from typing import Final

from kafka_forensics.model.findings import Finding
from kafka_forensics.wording.values import clean, spoken

DEFECTS: Final = {
    "broker_epoch": "its broker epoch cannot be read",
    "cluster_id": "its cluster id cannot be read",
    "count": "the number of its entries is missing or wrong",
    "directory_id": "its directory id cannot be read",
    "epoch": "an epoch cannot be read",
    "escape": "a character is escaped wrongly",
    "fields": "a line has another form",
    "json": "it is no JSON",
    "line_too_long": "a line is too long",
    "missing": "a line is missing that must be there",
    "node_id": "its node id cannot be read",
    "offset": "an offset cannot be read",
    "oversized": "it is too large",
    "partition": "a partition cannot be read",
    "too_many_lines": "it has too many lines",
    "topic": "no topic can have such a name",
    "topic_id": "its topic id cannot be read",
    "unterminated": "its last line has no end",
    "version": "its version is missing or unknown",
    "zeros": "it is filled with zeros",
}
"""What the reasons say that reading a checkpoint or identity file gives."""
WITHOUT: Final = {
    "leader-epoch-checkpoint": (
        "without it Kafka knows no leader epochs of this log but those of batches that a recovery after an unclean stop walks;"
        " knowing none, it cuts it as a follower at its high watermark, not at a fork"
    ),
    "replication-offset-checkpoint": (
        "without it Kafka takes each log's start for its high watermark until replicas have fetched again, and before version 0.11"
        " a follower is cut there"
    ),
}
"""What it costs to start without a file."""


def defect(finding: Finding) -> str | None:
    """What is wrong with a small file, and in which line."""
    reason, line = finding.evidence.get("reason"), finding.evidence.get("line")
    if reason is None:
        return None
    words = DEFECTS.get(reason) if isinstance(reason, str) else None
    return (clean(spoken(reason)) if words is None else words) + (f" (line {clean(line)})" if isinstance(line, int) else "")


def without(finding: Finding) -> str | None:
    """What it costs to start without the file."""
    return WITHOUT.get(str(finding.place.file).rpartition("/")[2])
