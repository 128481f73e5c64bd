"""Numbers, lists and ranges as short printable text. Evidence may be hostile: nothing here raises for it."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, SupportsIndex

from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import rfc3339
from kafka_forensics.model.offset_ranges import offset_range, offset_ranges
from kafka_forensics.model.safe_text import unquoted
from kafka_forensics.replication.small_files import ABSENT, PARTITION_METADATA, StartOutcome, table_name

TEXT_LIMIT: Final = 160
LIST_LIMIT: Final = 6
_UNITS: Final = ((172_800, 86_400, 3600, ("d", "h")), (3600, 3600, 60, ("h", "min")), (60, 60, 1, ("min", "s")))
"""From how many seconds on, the seconds of two units, and their names."""
_CODE: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")


def clean(value: object, limit: int = TEXT_LIMIT) -> str:
    """`value` as `unquoted` text of bounded length; only the type's name for values other than text, numbers and lists of them."""
    if isinstance(value, (list, tuple)) and limit:
        return ", ".join(clean(item, limit // 4) for item in value[:LIST_LIMIT])
    if isinstance(value, SupportsIndex):
        number = int(value)
        return str(number) if number.bit_length() <= 128 else "a huge number"
    text = str(value) if isinstance(value, (str, float)) else f"({type(value).__name__})"
    shown = unquoted(text[:limit])
    return shown if len(text) <= limit else f"{shown}…"


def listed(value: object) -> str | None:
    """`1 and 2`, or `a: x and b: y`: the first few of a list or dict, None if it is empty; other values as `clean` text."""
    if isinstance(value, dict):
        items = [f"{clean(key, 40)}: {clean(item, 60)}" for key, item in list(value.items())[:LIST_LIMIT]]
    elif isinstance(value, (list, tuple)):
        items = [clean(item, 72) for item in value[:LIST_LIMIT]]
    else:
        return clean(value)
    if len(value) > len(items):
        items.append(f"{len(value) - len(items)} more")
    return " and ".join(part for part in (", ".join(items[:-1]), *items[-1:]) if part) or None


def without_underscores(value: object) -> object:
    """One of our codes (`wrong_crc`) without underscores; other values unchanged."""
    return value.replace("_", " ") if isinstance(value, str) and _CODE.fullmatch(value) else value


def checksum(value: object) -> str:
    """A CRC in hexadecimal: `0x0000beef`."""
    return f"0x{value:08x}" if isinstance(value, int) and 0 <= value < 2**32 else clean(value)


def named_brokers(value: object) -> str | None:
    """`broker 2`, `brokers 1 and 2`; None without brokers."""
    return f"broker{'s' if len(value) > 1 else ''} {listed(value)}" if isinstance(value, (list, tuple)) and value else None


def copies_on(value: object) -> str | None:
    """`a good copy is on broker 2`, `good copies are on brokers 1 and 2`."""
    holders = named_brokers(value)
    return holders and (f"good copies are on {holders}" if holders.startswith("brokers") else f"a good copy is on {holders}")


def brokers_by_range(rows: object) -> str | None:
    """`brokers 1 and 2 (offsets 300 to 339) and broker 1 (offsets 340 to 369)`, of rows of `held_ranges`; None without brokers."""
    texts = []
    for row in rows if isinstance(rows, (list, tuple)) else []:
        brokers = named_brokers(row.get("brokers")) if isinstance(row, dict) else None
        offsets = offset_range(row.get("offset_start"), row.get("offset_end"), "offset") if brokers else ""
        texts += [f"{brokers} ({offsets})"] if offsets else []
    return listed(texts)


def amount(value: object, noun: str) -> str:
    """`1 batch`, `2 batches`."""
    return plural(clean(value), noun)


def utc_time(value: object) -> str:
    """Milliseconds since 1970 as UTC time; the number itself if it is out of range."""
    time = rfc3339(value) if isinstance(value, int) else None
    return clean(value) if time is None else f"{time[:19]}Z"


def duration(milliseconds: object) -> str:
    """A duration in its two largest units: `22 h 5 min`; `unknown` for invalid values."""
    if not isinstance(milliseconds, int) or not 0 <= milliseconds < 1 << 63:
        return "unknown"
    seconds = milliseconds // 1000
    for least, large, small, units in _UNITS:
        if seconds >= least:
            rest = seconds % large // small
            return f"{seconds // large} {units[0]}" + (f" {rest} {units[1]}" if rest else "")
    return f"{seconds} s"


def damaged_bytes(size_in_bytes: int, spans: Sequence[tuple[int, int]]) -> str:
    """`126 bytes of the log (offsets 0 to 4) are damaged`; `spans` are [start, end), empty if unknown."""
    where = f" ({offset_ranges(spans)})" if spans else ""
    noun, verb = ("byte", "is") if size_in_bytes == 1 else ("bytes", "are")
    return f"{size_in_bytes} {noun} of the log{where} {verb} damaged"


# Defects of small files (indexes, snapshots, checkpoints), and the cost of starting without such a file.


DEFECTS: Final = {
    "absent": "it is not in this copy",
    "batches": "its batches cannot be read",
    "broker_epoch": "its broker epoch cannot be read",
    "cluster_id": "its cluster id cannot be read",
    "cluster_id_empty": "its cluster.id is empty",
    "count": "the number of its entries is missing or wrong",
    "directory_id": "its directory id cannot be read",
    "empty": "it is empty",
    "epoch": "an epoch cannot be read",
    "escape": "a character has a wrong escape",
    "fields": "a line has the wrong format",
    "json": "it is not JSON",
    "line_too_long": "a line is too long",
    "missing": "a required line is missing",
    "negative": "an offset is below 0",
    "node_id": "its node id cannot be read",
    "offset": "an offset cannot be read",
    "oversized": "it is too large",
    "partition": "a partition cannot be read",
    "too_many_lines": "it has too many lines",
    "topic": "no topic can have this name",
    "topic_id": "its topic id cannot be read",
    "unterminated": "its last line has no line end",
    "version": "its version is missing or unknown",
    "zero_id": "its topic id is all zeros",
    "zeros": "it is filled with zeros",
}
"""Reasons why a checkpoint or identity file cannot be read."""
COST_OF_START_WITHOUT: Final = {
    "__cluster_metadata-0/leader-epoch-checkpoint": "the node reads the leader epochs from the batches of the controllers' log",
    "__cluster_metadata-0/partition.metadata": "the node writes it again",
    "__cluster_metadata-0/quorum-state": (
        "without it a controller does not know in which elections it voted, and may vote twice in one: start such a controller"
        " only when the other controllers have a leader; a node that is only a broker does not vote"
    ),
    "bootstrap.checkpoint": "a node whose controllers' log has records does not need it",
    "cleaner-offset-checkpoint": "without it the cleaner cleans each compacted log from its start again; nothing is lost",
    "leader-epoch-checkpoint": (
        "without it Kafka knows only the leader epochs of batches that a recovery after an unclean stop reads; if it knows none,"
        " a follower cuts this log at its high watermark, not at a fork"
    ),
    "log-start-offset-checkpoint": (
        "without it each log begins at its first segment again: records that DeleteRecords deleted there come back"
    ),
    "recovery-point-offset-checkpoint": (
        "without it a start after an unclean stop recovers every log from its start: this takes long, and it cuts each log at its"
        " first damage"
    ),
    "replication-offset-checkpoint": (
        "without it Kafka uses each log's start as its high watermark until replicas have fetched again; before version 0.11 a"
        " follower is cut there"
    ),
}
"""The cost of starting without a file, by its name."""


def defect(finding: Finding) -> str | None:
    """The defect of a small file, and its line."""
    reason, line = finding.evidence.get("reason"), finding.evidence.get("line")
    if reason is None:
        return None
    if finding.evidence.get("empty"):
        return "it has 0 bytes"
    text = DEFECTS.get(reason) if isinstance(reason, str) else None
    return (text or clean(without_underscores(reason))) + (f" (line {clean(line)})" if isinstance(line, int) else "")


ON_START: Final[Mapping[str, str]] = {
    StartOutcome.BROKER_STOPS.value: "a broker with this file does not start, even if it has other log directories",
    StartOutcome.DIRECTORY_OFFLINE.value: (
        "Kafka takes the log directory offline because of it; a broker without another log directory does not start"
    ),
    StartOutcome.REFUSED.value: "the node runs, but the other nodes of its cluster, if any, refuse it (INCONSISTENT_CLUSTER_ID)",
    StartOutcome.NOT_SERVED.value: "the broker starts but may serve no log of this directory",
    StartOutcome.SERVES_OTHER.value: (
        "the broker starts, and logs begin at their first segments again: records that DeleteRecords deleted there come back"
    ),
    StartOutcome.CLEANER_STOPS.value: "the broker starts, but its log cleaner stops until the next start",
}
"""What a broker does at a start with the file, unless it ignores it or writes it again."""


def on_start(finding: Finding) -> str | None:
    """What a broker does at a start with the file."""
    return ON_START.get(str(finding.evidence.get("on_start")))


def repair_advice(finding: Finding) -> str:
    """How to repair a damaged file before the broker starts, and what that costs."""
    cost = COST_OF_START_WITHOUT.get(table_name(str(finding.place.file)))
    if cost is not None:
        return f"move this file (never delete it) out of its log directory: {cost}"
    if finding.evidence.get("reason") == "cluster_id_empty":
        cluster_id = clean(finding.evidence.get("cluster_id") or "ID")
        return f"set `cluster.id={cluster_id}` in this file and leave its other lines as they are"
    topic_id_sources = finding.evidence.get("topic_id_sources")
    source = f" (the id is from {listed(topic_id_sources)})" if topic_id_sources else ""
    advice = f"write this file again with the lines {_identity_lines(finding)}{source}"
    return f"check whether the broker has this file; if not, {advice}" if finding.evidence.get("reason") == ABSENT else advice


def _identity_lines(finding: Finding) -> str:
    """The right lines of an identity file, with ID for values that no other file proves."""
    evidence = finding.evidence
    if str(finding.place.file).rpartition("/")[2] == PARTITION_METADATA:
        return f"`version: 0` and `topic_id: {clean(evidence.get('topic_id') or 'ID')}`"
    names = {"node.id": "node_id", "cluster.id": "cluster_id", "directory.id": "directory_id"}
    lines = [f"`{name}={clean(evidence.get(key) or 'ID')}`" for name, key in names.items()]
    unknown = any("=ID`" in line for line in lines)
    hint = " (to get each ID filled in, give this copy as N=PATH together with the other copies and the controllers' log)"
    where = hint if unknown else ""
    return f"`version=1`, {', '.join(lines[:-1])} and {lines[-1]}{where}"
