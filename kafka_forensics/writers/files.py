"""Writes the small files of a log directory and of a partition directory; their layouts are in `parsers.spec` and `parsers`."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

import google_crc32c
from msgspec.structs import asdict

from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.parsers.spec.indexes import (
    ABORTED_TXN,
    PRODUCER_ENTRY,
    SNAPSHOT_CRC_START,
    SNAPSHOT_HEADER,
    SNAPSHOT_VERSION,
    build_entries,
)

_VERSION: Final = 0
_ZERO_UUID: Final = "A" * 22
_ESCAPED_IN_PROPERTIES: Final = re.compile(r"[\\=:#! \t\n\r\f]|[^\x20-\x7e]")
_CONTROL_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def write_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """A `leader-epoch-checkpoint` with the entries in this order."""
    return _checkpoint(f"{entry.leader_epoch} {entry.start_offset}" for entry in entries)


def write_offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """A `*-offset-checkpoint` of (topic, partition) → offset, in this order."""
    return _checkpoint(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def _checkpoint(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode()


def write_meta_properties(
    *, node_id: int | None = None, cluster_id: str | None = None, directory_id: str | None = None, version: int = 1
) -> bytes:
    """A `meta.properties` without the values that are None. The node's id is `broker.id` in version 0, `node.id` in version 1."""
    values = {
        "version": str(version),
        "node.id" if version else "broker.id": None if node_id is None else str(node_id),
        "cluster.id": cluster_id,
        "directory.id": directory_id,
    }
    return write_properties({key: value for key, value in values.items() if value is not None})


def write_properties(values: Mapping[str, str]) -> bytes:
    """A file of Java properties, in this order; keys are Kafka's and need no escapes."""
    lines = (f"{key}={_ESCAPED_IN_PROPERTIES.sub(_escape, value)}\n" for key, value in values.items())
    return ("#\n" + "".join(lines)).encode("ascii")


def _escape(match: re.Match[str]) -> str:
    """A character that Java properties would read otherwise; characters beyond ASCII as UTF-16 code units."""
    character = match[0]
    if " " <= character <= "~":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    unicode = "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
    return _CONTROL_ESCAPES.get(character, unicode)


def write_partition_metadata(topic_id: str) -> bytes:
    """A `partition.metadata` for a topic id of 22 characters of base64url."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}".encode()


def write_clean_shutdown(broker_epoch: int | None) -> bytes:
    """A `.kafka_cleanshutdown`; None gives an empty file, as before Kafka 3.7."""
    if broker_epoch is None:
        return b""
    return json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def write_quorum_state(
    leader_epoch: int, data_version: int, voters: Iterable[int] = (), *, cluster_id: str = "", applied_offset: int = 0
) -> bytes:
    """The `quorum-state` of a node that knows an epoch without a leader and has not voted in it (QuorumStateData.json).

    `data_version` is 0 or 1; only version 0 has voters, cluster id and applied offset.
    """
    fields: dict[str, object] = {"leaderId": -1, "leaderEpoch": leader_epoch, "votedId": -1}
    if data_version:
        fields["votedDirectoryId"] = _ZERO_UUID
    else:
        current_voters = [{"voterId": voter} for voter in voters]
        fields = {"clusterId": cluster_id, **fields, "appliedOffset": applied_offset, "currentVoters": current_voters}
    return json.dumps(fields | {"data_version": data_version}, separators=(",", ":")).encode()


def write_transaction_index(entries: Iterable[AbortedTxn]) -> bytes:
    """A `.txnindex`, each entry with its own version; the position of an entry is ignored."""
    return build_entries(ABORTED_TXN, map(asdict, entries))


def write_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """A `.snapshot` of version 1 with its CRC; ten bytes without entries. Raises FormatError."""
    rows = [asdict(entry) for entry in entries]
    body = build_entries(PRODUCER_ENTRY, rows)
    header = {"version": SNAPSHOT_VERSION, "crc": 0, "count": len(rows)}
    header["crc"] = google_crc32c.value(build_entries(SNAPSHOT_HEADER, [header])[SNAPSHOT_CRC_START:] + body)
    return build_entries(SNAPSHOT_HEADER, [header]) + body
