"""The facts that only several snapshots yield."""

from typing import Any, Final

import pyarrow as pa

from kafka_forensics.model.schemas.columns import BROKER, PARTITION, TOPIC, Fact, column, fact, maybe

SNAPSHOT: Final = column("snapshot", pa.string(), "name of the snapshot; of what shows between two, that of the newer one")
"""The first column of every other fact, where several snapshots were scanned."""


def _at(prefix: str, which: str) -> list[Any]:
    """A replica as one of the snapshots has it."""
    absent = f"in the {which} snapshot; null, here and below: it has no such replica"
    return [
        maybe(f"{prefix}_log_dir", pa.string(), f"the log directory, {absent}"),
        maybe(f"{prefix}_topic_id", pa.string(), "22 characters of base64url; null: not known"),
        maybe(f"{prefix}_log_start_offset", pa.int64(), "first readable offset"),
        maybe(f"{prefix}_log_end_offset", pa.int64(), "next offset to be written, exclusive"),
        maybe(f"{prefix}_high_watermark", pa.int64(), "by replication-offset-checkpoint, exclusive; null: not there"),
        maybe(f"{prefix}_leader_epoch", pa.int32(), "of its last batch, or of what began at its end; null: it has none"),
        maybe(f"{prefix}_segments", pa.int64(), "`.log` files"),
    ]


CHANGES_FACT: Final = fact(
    "changes",
    "What became of each replica from one snapshot to the next; one row at least for every replica of either (docs/changes.md).",
    [
        TOPIC,
        PARTITION,
        BROKER,
        column("from_snapshot", pa.string(), "name of the older snapshot"),
        column("to_snapshot", pa.string(), "name of the newer snapshot"),
        column(
            "kind",
            pa.string(),
            "appended · truncated · cleaned · deleted · missing · damaged · rewritten · restored · created · moved · unchanged ·"
            " not_compared",
        ),
        maybe("reason", pa.string(), "what explains it, where that is known"),
        maybe("offset_start", pa.int64(), "first offset concerned; null: neither snapshot's log could be read"),
        maybe("offset_end", pa.int64(), "exclusive"),
        column("leader_epochs", pa.list_(pa.int32()), "of what came, or of what went"),
        maybe("replaced_by", pa.int32(), "leader epoch of what took the place of truncated records; null: nothing did"),
        maybe("batches", pa.int64(), "that came or went; null, here and below: not counted"),
        maybe("records", pa.int64(), "in them"),
        maybe("bytes", pa.int64(), "of them"),
        maybe("committed_end", pa.int64(), "up to where the older snapshot proves that what went was committed, exclusive"),
        column("held_by", pa.list_(pa.string()), "brokers that have all of it that went in the newer snapshot"),
        *_at("from", "older"),
        *_at("to", "newer"),
        column("evidence", pa.string(), "more numbers, as a JSON object"),
    ],
    by_replica=False,
)
SNAPSHOT_FACTS: Final[dict[str, Fact]] = {CHANGES_FACT.name: CHANGES_FACT}
"""Name → fact; `FACTS` are there as well, with the column `snapshot` before the others."""
