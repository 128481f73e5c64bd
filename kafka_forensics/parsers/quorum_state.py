"""KRaft files without which a node does not start: `quorum-state`, with leader epoch and vote of a node (FileQuorumStateStore), and
`bootstrap.checkpoint`."""

import json
from typing import Final

from msgspec import Struct

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import INT64_MAX, MAX_INT32
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.bounded import DamageList, read_text
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.storage.source import ByteFile

MAX_BYTES: Final = 1 << 20
MAX_EPOCH: Final = MAX_INT32
VERSIONS: Final = (0, 1)


class QuorumState(Struct, frozen=True):
    """The fields of a `quorum-state` that outlive an election (QuorumStateData.json)."""

    data_version: int
    """0 where voters are configured, 1 where they are in the log (`kraft.version` 1, KIP-853)."""
    leader_epoch: int
    voters: tuple[int, ...] = ()
    """`currentVoters` of version 0; empty in version 1."""
    cluster_id: str = ""
    """Of version 0; Kafka leaves it empty."""
    applied_offset: int = 0
    """Of version 0; Kafka writes 0."""


def parse_quorum_state(file: ByteFile) -> QuorumState | None:
    """The first line of a `quorum-state`, the only one that Kafka reads; None if it is malformed or not of version 0 or 1.
    Raises SourceError."""
    line, _, _ = file.read_at(0, min(file.size_in_bytes, MAX_BYTES)).partition(b"\n")
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return None
    if not isinstance(content, dict):
        return None
    version, epoch = _number(content, "data_version"), _number(content, "leaderEpoch")
    if version not in VERSIONS or epoch is None:
        return None
    if version:
        return QuorumState(version, epoch)
    named = content.get("currentVoters", [])
    rows = named if isinstance(named, list) and all(isinstance(row, dict) for row in named) else [{}]
    voters = [_number(row, "voterId") for row in rows]
    cluster_id, applied = content.get("clusterId", ""), _number({"appliedOffset": 0} | content, "appliedOffset", INT64_MAX)
    if None in voters or applied is None or not isinstance(cluster_id, str):
        return None
    return QuorumState(version, epoch, tuple(voter for voter in voters if voter is not None), cluster_id, applied)


def quorum_state_damage(file: ByteFile) -> list[Damage]:
    """`CHECKPOINT_MALFORMED` for a `quorum-state` with which a node does not start, reasons `zeros`, `json`."""
    damage = DamageList("CHECKPOINT_MALFORMED", 1)
    read_text(file, damage, MAX_BYTES)
    if parse_quorum_state(file) is None:
        damage.add(0, file.size_in_bytes, "json")
    return damage.rows()[:1]


def bootstrap_damage(file: ByteFile) -> list[Damage]:
    """`CHECKPOINT_MALFORMED` for a `bootstrap.checkpoint` with which a node does not start (BootstrapDirectory), reason `batches`:
    it is empty, or contains bytes that are not valid batches."""
    damage = DamageList("CHECKPOINT_MALFORMED", 1)
    if file.size_in_bytes == 0:
        damage.add(0, 0, "batches")
    elif file.size_in_bytes <= MAX_BYTES:
        for row in (row for chunk in SegmentReader(file).chunks() for row in chunk.damage):
            damage.add(row.position, row.size_in_bytes, "batches")
    return damage.rows()[:1]


def _number(fields: Json, name: str, largest: int = MAX_EPOCH) -> int | None:
    """An integer of `[0, largest]`; None for anything else."""
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest else None
