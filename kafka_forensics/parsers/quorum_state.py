"""Files of KRaft over which no node starts if they are damaged: `quorum-state` beside the controllers' log, which says which leader
epoch a node has seen and whom it chose (FileQuorumStateStore), and `bootstrap.checkpoint`."""

import json
from dataclasses import dataclass
from typing import Final

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.bounded import DamageList, read_text
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.storage.source import ByteFile

MAX_BYTES: Final = 1 << 20
MAX_EPOCH: Final = 2**31 - 1
VERSIONS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a `quorum-state` says that outlives an election (QuorumStateData.json)."""

    data_version: int
    """0 where voters are configured, 1 where they are in the log (`kraft.version` 1, KIP-853)."""
    leader_epoch: int
    voters: tuple[int, ...] = ()
    """`currentVoters` of version 0; version 1 has none."""
    cluster_id: str = ""
    """As version 0 has it: Kafka leaves it empty."""
    applied_offset: int = 0
    """Of version 0, where Kafka writes 0."""


def parse_quorum_state(file: ByteFile) -> QuorumState | None:
    """The first line of a `quorum-state`, which is all that Kafka reads; None where it is not of version 0 or 1, or malformed.
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
    cluster_id, applied = content.get("clusterId", ""), _number({"appliedOffset": 0} | content, "appliedOffset", 2**63 - 1)
    if None in voters or applied is None or not isinstance(cluster_id, str):
        return None
    return QuorumState(version, epoch, tuple(voter for voter in voters if voter is not None), cluster_id, applied)


def quorum_state_damage(file: ByteFile) -> list[Damage]:
    """`CHECKPOINT_MALFORMED` of a `quorum-state` over which a node does not start: `zeros`, or `json` of any other."""
    damage = DamageList("CHECKPOINT_MALFORMED", 1)
    read_text(file, damage, MAX_BYTES)
    if parse_quorum_state(file) is None:
        damage.add(0, file.size_in_bytes, "json")
    return damage.rows()[:1]


def bootstrap_damage(file: ByteFile) -> list[Damage]:
    """`CHECKPOINT_MALFORMED` of a `bootstrap.checkpoint` over which a node does not start (BootstrapDirectory): `batches` of one
    that is empty or holds anything but whole batches."""
    damage = DamageList("CHECKPOINT_MALFORMED", 1)
    if file.size_in_bytes == 0:
        damage.add(0, 0, "batches")
    elif file.size_in_bytes <= MAX_BYTES:
        for row in (row for chunk in SegmentReader(file).chunks() for row in chunk.damage):
            damage.add(row.position, row.size_in_bytes, "batches")
    return damage.rows()[:1]


def _number(fields: Json, name: str, largest: int = MAX_EPOCH) -> int | None:
    """A whole number of `[0, largest]`; None for anything else."""
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest else None
