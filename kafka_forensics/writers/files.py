"""`.index`, `.timeindex` and `.txnindex` from their entries."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

import google_crc32c

from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.parsers.spec.indexes import (
    ABORTED_TXN,
    PRODUCER_ENTRY,
    SNAPSHOT_CRC_START,
    SNAPSHOT_HEADER,
    SNAPSHOT_VERSION,
    build_entries,
)

# Text files of a log directory: checkpoints, and the files that say whose a directory is.


_VERSION: Final = 0
_ZERO_UUID: Final = "A" * 22
_ESCAPED_IN_PROPERTIES: Final = re.compile(r"[\\=:#! \t\n\r\f]|[^\x20-\x7e]")
_CONTROL_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def write_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """A `leader-epoch-checkpoint` with the entries in the order given."""
    return _checkpoint(f"{entry.leader_epoch} {entry.start_offset}" for entry in entries)


def write_offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """A `*-offset-checkpoint` of (topic, partition) → offset, in the order given."""
    return _checkpoint(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def write_meta_properties(
    *, node_id: int | None = None, cluster_id: str | None = None, directory_id: str | None = None, version: int = 1
) -> bytes:
    """A `meta.properties`; what is None is left out. Version 0 calls the node's id `broker.id`, version 1 `node.id`."""
    values = {
        "version": str(version),
        "node.id" if version else "broker.id": None if node_id is None else str(node_id),
        "cluster.id": cluster_id,
        "directory.id": directory_id,
    }
    return write_properties({key: value for key, value in values.items() if value is not None})


def write_properties(values: Mapping[str, str]) -> bytes:
    """A file of Java's properties, in the order given; keys are Kafka's own."""
    lines = (f"{key}={_property_text(value)}\n" for key, value in values.items())
    return ("#\n" + "".join(lines)).encode("ascii")


def write_partition_metadata(topic_id: str) -> bytes:
    """A `partition.metadata` for a topic id of 22 characters of base64url."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}".encode()


def write_clean_shutdown(broker_epoch: int | None) -> bytes:
    """A `.kafka_cleanshutdown`: with None as before Kafka 3.7, without a byte."""
    if broker_epoch is None:
        return b""
    return json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def write_quorum_state(
    leader_epoch: int, data_version: int, voters: Iterable[int] = (), *, cluster_id: str = "", applied_offset: int = 0
) -> bytes:
    """The `quorum-state` of a node that knows of an epoch, of no leader in it, and gave nobody its vote (QuorumStateData.json).

    `data_version` is 0 or 1; the rest stands in version 0 alone.
    """
    undecided: dict[str, object] = {"leaderId": -1, "leaderEpoch": leader_epoch, "votedId": -1}
    if data_version:
        fields = undecided | {"votedDirectoryId": _ZERO_UUID}
    else:
        named = [{"voterId": voter} for voter in voters]
        fields = {"clusterId": cluster_id, **undecided, "appliedOffset": applied_offset, "currentVoters": named}
    return json.dumps(fields | {"data_version": data_version}, separators=(",", ":")).encode()


def _checkpoint(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode()


def _property_text(value: str) -> str:
    """`value` with whatever Java's properties would read otherwise escaped; characters past ASCII as UTF-16 code units."""
    return _ESCAPED_IN_PROPERTIES.sub(_escape, value)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if " " <= character <= "~":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    unicode = "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
    return _CONTROL_ESCAPES.get(character, unicode)


def write_transaction_index(entries: Iterable[AbortedTxn]) -> bytes:
    """A `.txnindex`, each entry with the version it carries; where an entry once stood does not matter."""
    return build_entries(ABORTED_TXN, map(asdict, entries))


# `.snapshot` of producer state from its entries.


def write_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """A `.snapshot` of version 1 with its CRC; without entries the ten bytes of an empty one. Raises FormatError."""
    rows = [asdict(entry) for entry in entries]
    body = build_entries(PRODUCER_ENTRY, rows)
    header = {"version": SNAPSHOT_VERSION, "crc": 0, "count": len(rows)}
    header["crc"] = google_crc32c.value(build_entries(SNAPSHOT_HEADER, [header])[SNAPSHOT_CRC_START:] + body)
    return build_entries(SNAPSHOT_HEADER, [header]) + body
