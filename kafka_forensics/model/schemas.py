"""Arrow schemas of the facts, from which Parquet files, notebooks, Spark and docs/facts.md derive theirs.

A fact is declared by its columns with types and meanings; its schema has a version. `FACTS` lists all facts.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct

from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.model.arrow import TIME, numbers, times
from kafka_forensics.model.batches import BatchColumn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.model.arrow import ArrowArray as ArrowArray

    ArrowField = pa.Field[pa.DataType]


FACT_SCHEMA_VERSION: Final = "1.0"
"""Version of all schemas; under the same first number columns are only added."""
VERSION_KEY: Final = "kf.schema_version"
FACT_KEY: Final = "kf.fact"
ABOUT_KEY: Final = "about"
"""Metadata key of a column's meaning."""


class ReplicaKeys(NamedTuple):
    """The columns that name a replica, which are the same in all rows about it."""

    topic: str
    partition: int
    broker: str
    node_id: int | None
    """Null: unknown, or a remote store."""


PARTITION_KEYS: Final = ReplicaKeys._fields


class Fact(Struct, frozen=True):
    """A fact: a table. `by_replica`: each row comes from the files of one replica, which its keys name."""

    name: str
    about: str
    schema: pa.Schema
    file_schema: pa.Schema
    """The schema without the keys of the replica if `by_replica`, else the whole schema."""
    by_replica: bool = True


def column(name: str, kind: pa.DataType, about: str, *, nullable: bool = False) -> "ArrowField":
    """A column with its meaning."""
    return pa.field(name, kind, nullable=nullable, metadata={ABOUT_KEY: about})


def nullable_column(name: str, kind: pa.DataType, about: str) -> "ArrowField":
    """A column that may be null: unknown or not applicable, as `about` says."""
    return column(name, kind, about, nullable=True)


def time_column(name: str, about: str) -> "ArrowField":
    """A column of times; null where the evidence has none (-1), or a number that no calendar holds."""
    return nullable_column(name, TIME, about)


def fact(name: str, about: str, columns: "list[ArrowField]", *, by_replica: bool = True) -> Fact:
    """A fact; its schema has the version in its metadata."""
    schema = pa.schema(columns, metadata={FACT_KEY: name, VERSION_KEY: FACT_SCHEMA_VERSION})
    others = [field for field in schema if field.name not in PARTITION_KEYS]
    file_schema = pa.schema(others).with_metadata(schema.metadata) if by_replica else schema
    return Fact(name, about, schema, file_schema, by_replica)


def about(field: "ArrowField") -> str:
    """The meaning of a column."""
    return str((field.metadata or {}).get(ABOUT_KEY.encode(), b"").decode())


TOPIC: Final = column("topic", pa.string(), "name of the topic")
PARTITION: Final = column("partition", pa.int32(), "number of the partition")
BROKER: Final = column("broker", pa.string(), "id of the broker, or its given name; always text")
NODE_ID: Final = nullable_column(
    "node_id", pa.int32(), "the broker's `node.id`, as in `leader` and `isr`; null: unknown, or a remote store"
)
LOG_DIR: Final = column("log_dir", pa.string(), "the log directory as given on the command line")
FILE: Final = column("file", pa.string(), "the partition's directory and the name of the file, with `/`; as in `findings`")
REPLICA: Final = [TOPIC, PARTITION, BROKER, NODE_ID, LOG_DIR]
IN_FILE: Final = [*REPLICA, FILE]
"""The first columns of facts from one file of a replica."""
_NONE: Final = "-1: none"
_COLUMNS: Final[dict[BatchColumn, tuple[pa.DataType, str]]] = {
    BatchColumn.POSITION: (pa.int64(), "byte at which the batch begins in its file"),
    BatchColumn.SIZE_IN_BYTES: (pa.int64(), "the whole batch: `batch_length` + 12"),
    BatchColumn.BASE_OFFSET: (pa.int64(), "first offset; compaction keeps it"),
    BatchColumn.LAST_OFFSET: (pa.int64(), "last offset, inclusive"),
    BatchColumn.LAST_OFFSET_DELTA: (pa.int32(), "`last_offset` - `base_offset` as stored"),
    BatchColumn.PARTITION_LEADER_EPOCH: (pa.int32(), f"epoch of the leader that appended it, outside the CRC; {_NONE}"),
    BatchColumn.MAGIC: (pa.int16(), "format: 0, 1 or 2"),
    BatchColumn.CRC: (pa.int64(), "CRC as stored"),
    BatchColumn.CRC_COMPUTED: (pa.int64(), "CRC of the bytes in the file"),
    BatchColumn.ATTRIBUTES: (pa.int16(), "bits: 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon"),
    BatchColumn.BASE_TIMESTAMP: (TIME, "of the first record; the delete horizon if bit 6 is set"),
    BatchColumn.MAX_TIMESTAMP: (TIME, "latest of its records"),
    BatchColumn.PRODUCER_ID: (pa.int64(), _NONE),
    BatchColumn.PRODUCER_EPOCH: (pa.int16(), _NONE),
    BatchColumn.BASE_SEQUENCE: (pa.int32(), _NONE),
    BatchColumn.RECORDS_COUNT: (pa.int32(), "as stored; fewer than the offsets after compaction"),
    BatchColumn.CONTROL_RECORD_TYPE: (pa.int16(), "of the first control record (0 ABORT, 1 COMMIT, ...); -1: not a control batch"),
    BatchColumn.COORDINATOR_EPOCH: (pa.int32(), "of an ABORT or COMMIT marker, else -1"),
}
"""All but the two hash columns, which have a meaning only within one scan."""

_BATCH_FIELDS: Final = [
    column(batch_column.name.lower(), kind, about, nullable=kind == TIME) for batch_column, (kind, about) in _COLUMNS.items()
]
BATCHES: Final[pa.Schema] = pa.schema(_BATCH_FIELDS)
"""A row for each batch with the columns of `BatchColumn`; -1 means none, as in the file; times are null then."""

HEADER: Final = pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
_RECORD_FIELDS: Final = [
    column("offset", pa.int64(), "of the record in its partition"),
    time_column("timestamp", "of the record, by `timestamp_type`"),
    column("timestamp_type", pa.string(), "CreateTime, LogAppendTime or NoTimestampType"),
    column("sequence", pa.int32(), _NONE),
    nullable_column("key", pa.binary(), "null and empty are different"),
    nullable_column("value", pa.binary(), "null and empty are different"),
    nullable_column("headers", pa.list_(HEADER), "in order; null where payloads are left out"),
    column("batch_position", pa.int64(), "byte at which its batch begins in the file"),
    column("size_in_bytes", pa.int64(), "of the record, decompressed"),
    column("key_length", pa.int64(), "bytes of the key, -1 for null; also where the key is left out"),
    column("value_length", pa.int64(), "bytes of the value, -1 for null; also where the value is left out"),
    column("is_oversized", pa.bool_(), "the record is too large: key, value and headers are left out"),
    column(
        "txn_state", pa.string(), "none, committed, aborted, open (no marker in the log) or unknown (its marker may be elsewhere)"
    ),
]
RECORDS: Final[pa.Schema] = pa.schema(_RECORD_FIELDS)
"""A row for each record; null and empty keys and values differ."""

BATCHES_FACT: Final = fact(
    "batches",
    "Every batch of every `.log`, including those with a wrong CRC; other bytes are in `spans`.",
    [*IN_FILE, *_BATCH_FIELDS],
)
RECORDS_FACT: Final = fact(
    "records",
    "Every record of every batch with a right CRC, including control records; records after damage in a batch are missing.",
    [*IN_FILE, *_RECORD_FIELDS],
)


def batches_to_arrow(columns: "NDArray[np.int64]") -> pa.RecordBatch:
    """The (BATCH_COLUMNS, n) matrix of a chunk as Arrow, without shared memory, because chunks are reused."""
    return pa.RecordBatch.from_arrays(batch_arrays(columns), schema=BATCHES)


def batch_arrays(columns: "NDArray[np.int64]") -> "list[ArrowArray]":
    """The arrays of `batches_to_arrow`, one for each column."""
    return [
        times(columns[batch_column].copy()) if kind == TIME else numbers(columns[batch_column].astype(kind.to_pandas_dtype()))
        for batch_column, (kind, _) in _COLUMNS.items()
    ]


# Facts of a replica's files except batches: spans, indexes, snapshots and checkpoints.

SPANS_FACT: Final = fact(
    "spans",
    "The content of every byte of every `.log`, `.index`, `.timeindex`, `.txnindex` and `.snapshot`. The spans of a file cover it"
    " without gap or overlap from 0 to its size.",
    [
        *IN_FILE,
        column("position", pa.int64(), "first byte"),
        column("size_in_bytes", pa.int64(), "bytes"),
        column(
            "kind",
            pa.string(),
            "batches (consecutive whole batches with a right CRC, cut at every 64 MiB) · header · entries · zero_tail (zeros after"
            " the last) · damaged · skipped (not examined, or not readable)",
        ),
        nullable_column("damage_kind", pa.string(), "the kind of the finding there; null: there is none"),
        nullable_column("base_offset", pa.int64(), "of the first batch, or the first affected offset; null: unknown"),
        nullable_column("last_offset", pa.int64(), "of the last batch, inclusive; null: unknown"),
        column("count", pa.int64(), "batches or entries in it"),
        nullable_column("detail", pa.string(), "numbers about the damage, as JSON"),
    ],
)
INDEX_ENTRIES_FACT: Final = fact(
    "index_entries",
    "Entries of `.index`, `.timeindex` and `.txnindex` files, in file order.",
    [
        *IN_FILE,
        column("index_type", pa.string(), "offset · time · transaction"),
        column("position", pa.int64(), "byte at which the entry begins in its file"),
        nullable_column("offset", pa.int64(), "absolute; null in a transaction index"),
        nullable_column("log_position", pa.int64(), "byte in the `.log`; only in an offset index"),
        time_column("timestamp", "only in a time index"),
        nullable_column("producer_id", pa.int64(), "of the aborted transaction; this and what follows only in a transaction index"),
        nullable_column("first_offset", pa.int64(), "of the transaction"),
        nullable_column("last_offset", pa.int64(), "of its ABORT marker, inclusive"),
        nullable_column("last_stable_offset", pa.int64(), "when the marker was written"),
    ],
)
EPOCH_ENTRIES_FACT: Final = fact(
    "epoch_entries",
    "Lines of `leader-epoch-checkpoint`, in file order.",
    [
        *IN_FILE,
        column("entry", pa.int32(), "number of the entry in the file, from 0"),
        column("leader_epoch", pa.int32(), "of a leader"),
        column("start_offset", pa.int64(), "first offset written in it"),
    ],
)
PRODUCER_STATES_FACT: Final = fact(
    "producer_states",
    "Producers in `.snapshot` files: the state before `snapshot_offset`.",
    [
        *IN_FILE,
        column("snapshot_offset", pa.int64(), "from the file's name, exclusive"),
        column("position", pa.int64(), "byte at which the entry begins in its file"),
        column("producer_id", pa.int64(), "of the producer"),
        column("producer_epoch", pa.int16(), "the last one"),
        column("last_sequence", pa.int32(), _NONE),
        column("last_offset", pa.int64(), f"of its last batch; {_NONE}"),
        column("offset_delta", pa.int32(), "offsets of its last batch - 1"),
        time_column("timestamp", "of its last batch"),
        column("coordinator_epoch", pa.int32(), f"of its last marker; {_NONE}"),
        column("current_txn_first_offset", pa.int64(), f"of its open transaction; {_NONE}"),
    ],
)
CHECKPOINTS_FACT: Final = fact(
    "checkpoints",
    "Lines of the four `*-offset-checkpoint` files of every log directory; the file determines the meaning of the offset.",
    [
        column("topic", pa.string(), "as in the line"),
        column("partition", pa.int32(), "as in the line"),
        BROKER,
        NODE_ID,
        LOG_DIR,
        column("file", pa.string(), "name of the checkpoint"),
        column("offset", pa.int64(), "high watermark, recovery point, log start or first uncleaned offset"),
    ],
    by_replica=False,
)
CONTROL_RECORDS_FACT: Final = fact(
    "control_records",
    "Every control record of batches with a right CRC: transaction markers and the control records of KRaft's leaders and"
    " snapshots.",
    [
        *IN_FILE,
        column("batch_position", pa.int64(), "byte at which its batch begins in the file"),
        column("offset", pa.int64(), "of the record"),
        time_column("timestamp", "of the record"),
        column("partition_leader_epoch", pa.int32(), "of its batch"),
        column("producer_id", pa.int64(), f"producer whose transaction a marker ends; {_NONE}"),
        column("producer_epoch", pa.int16(), f"producer epoch of the marker; {_NONE}"),
        column("type", pa.int16(), "number of the type, -1 where the key cannot be read"),
        column("type_name", pa.string(), "ABORT, COMMIT, LEADER_CHANGE, ...; UNKNOWN for types that readers ignore"),
        nullable_column("version", pa.int16(), "of the value; null without a readable one"),
        nullable_column("coordinator_epoch", pa.int32(), "of a marker, else null"),
        nullable_column("fields", pa.string(), "the rest of the value as JSON, bytes in hexadecimal; null where there is none"),
        nullable_column("problem", pa.string(), "key or value: the part that could not be read; null: both were read"),
    ],
)
TRANSACTIONS_FACT: Final = fact(
    "transactions",
    "Every transaction in a replica's log: first ended ones in the order of their markers, then open ones by first offset.",
    [
        *REPLICA,
        column(
            "state",
            pa.string(),
            "committed · aborted · open · hanging · torn (it contradicts the coordinator's decision) · empty (a marker that ended"
            " nothing here) · unknown (its marker cannot be read)",
        ),
        column("producer_id", pa.int64(), "of the producer that wrote it"),
        column("producer_epoch", pa.int16(), "of its data, else of the marker"),
        nullable_column("transactional_id", pa.string(), "by the coordinators' log; null: unknown"),
        nullable_column("first_offset", pa.int64(), "of its data; null without data"),
        nullable_column("last_offset", pa.int64(), "of its data, inclusive"),
        time_column("first_timestamp", "of its data"),
        time_column("last_timestamp", "of its data"),
        column("batches", pa.int64(), "of data"),
        column("records", pa.int64(), "offsets its data take"),
        nullable_column("marker", pa.string(), "ABORT or COMMIT; null: there is none, or it cannot be read"),
        nullable_column("marker_offset", pa.int64(), "of the marker"),
        time_column("marker_timestamp", "of the marker"),
        nullable_column("marker_epoch", pa.int16(), "producer epoch of the marker"),
        nullable_column("coordinator_epoch", pa.int32(), "of the marker"),
        nullable_column(
            "coordinator_state", pa.string(), "the coordinator's decision for an ended one; the id's last state for an open one"
        ),
        nullable_column("partitions", pa.list_(pa.string()), "all partitions that the coordinator lists for it"),
        column("holds_last_stable_offset", pa.bool_(), "read_committed readers wait for it"),
        nullable_column("safe_to_abort", pa.bool_(), "of open ones; null: not decided"),
        nullable_column("reason", pa.string(), "the reason for it"),
        nullable_column("find_hanging", pa.string(), "command of Kafka's tools that confirms that it hangs"),
        nullable_column("command", pa.string(), "command of Kafka's tools that ends it"),
    ],
)


# Facts of several snapshots.


SNAPSHOT: Final = column("snapshot", pa.string(), "name of the snapshot; for findings between two snapshots, the newer one")
"""The first column of every other fact of several snapshots."""


def _at(prefix: str, which: str) -> "list[ArrowField]":
    """The columns of a replica in one of the snapshots."""
    absent = f"in the {which} snapshot; null, here and below: it has no such replica"
    return [
        nullable_column(f"{prefix}_log_dir", pa.string(), f"the log directory, {absent}"),
        nullable_column(f"{prefix}_topic_id", pa.string(), "22 characters of base64url; null: not known"),
        nullable_column(f"{prefix}_log_start_offset", pa.int64(), "first readable offset"),
        nullable_column(f"{prefix}_log_end_offset", pa.int64(), "next offset to be written, exclusive"),
        nullable_column(f"{prefix}_high_watermark", pa.int64(), "by replication-offset-checkpoint, exclusive; null: not there"),
        nullable_column(
            f"{prefix}_leader_epoch", pa.int32(), "of its last batch, or of an epoch that began at its end; null: it has none"
        ),
        nullable_column(f"{prefix}_segments", pa.int64(), "`.log` files"),
    ]


CHANGES_FACT: Final = fact(
    "changes",
    "Changes of each replica from one snapshot to the next; at least one row for every replica of either (docs/changes.md).",
    [
        TOPIC,
        PARTITION,
        BROKER,
        NODE_ID,
        column("from_snapshot", pa.string(), "name of the older snapshot"),
        column("to_snapshot", pa.string(), "name of the newer snapshot"),
        column(
            "kind",
            pa.string(),
            "appended · truncated · cleaned · deleted · missing · damaged · rewritten · restored · created · moved · unchanged ·"
            " not_compared",
        ),
        nullable_column("reason", pa.string(), "the explanation, where it is known"),
        nullable_column("offset_start", pa.int64(), "first affected offset; null: neither snapshot's log could be read"),
        nullable_column("offset_end", pa.int64(), "exclusive"),
        column("leader_epochs", pa.list_(pa.int32()), "of the added or removed batches"),
        nullable_column("replaced_by", pa.int32(), "leader epoch of the records that replaced truncated ones; null: not replaced"),
        nullable_column("batches", pa.int64(), "added or removed; null, here and below: not counted"),
        nullable_column("records", pa.int64(), "in them"),
        nullable_column("bytes", pa.int64(), "of them"),
        nullable_column(
            "committed_end_offset", pa.int64(), "end of the removed offsets that the older snapshot proves committed, exclusive"
        ),
        column("held_by", pa.list_(pa.string()), "brokers that have all removed records in the newer snapshot"),
        *_at("from", "older"),
        *_at("to", "newer"),
        column("evidence", pa.string(), "more numbers, as a JSON object"),
    ],
    by_replica=False,
)
SNAPSHOT_FACTS: Final[dict[str, Fact]] = {CHANGES_FACT.name: CHANGES_FACT}
"""Name → fact; several snapshots have `FACTS` too, with the column `snapshot` first."""


# Facts of a whole scan: replicas, findings, and contents of internal topics.


_INTS: Final = pa.list_(pa.int32())
_EPOCHS: Final = pa.list_(
    pa.struct([pa.field("leader_epoch", pa.int32(), nullable=False), pa.field("start_offset", pa.int64(), nullable=False)])
)

REPLICAS_FACT: Final = fact(
    "replicas",
    "One row for each replica, with the facts of its partition.",
    [
        TOPIC,
        PARTITION,
        BROKER,
        NODE_ID,
        LOG_DIR,
        column("directory", pa.string(), "name of the partition's directory"),
        nullable_column(
            "log_start_offset", pa.int64(), "first readable offset; null, here and below: the log could not be read (`read`)"
        ),
        nullable_column(
            "local_log_start_offset", pa.int64(), "where its segments on the disk begin: the log start, except for a tiered topic"
        ),
        nullable_column(
            "log_end_offset", pa.int64(), "next offset to be written, exclusive; null: the log was not read to its end"
        ),
        nullable_column("high_watermark", pa.int64(), "by replication-offset-checkpoint, exclusive; null: not there"),
        nullable_column("last_stable_offset", pa.int64(), "exclusive; null: not known"),
        nullable_column("recovery_point", pa.int64(), "by recovery-point-offset-checkpoint, exclusive; null: not there"),
        nullable_column("leader_epochs", _EPOCHS, "from the batches"),
        nullable_column("segments", pa.int64(), "`.log` files"),
        nullable_column("batches", pa.int64(), "in them"),
        nullable_column("records", pa.int64(), "in them"),
        nullable_column("bytes", pa.int64(), "of the `.log` files"),
        nullable_column("missing_offsets", pa.int64(), "offsets that no batch covers"),
        nullable_column("transactions_committed", pa.int64(), "transactions with their end in this log"),
        nullable_column("transactions_aborted", pa.int64(), "transactions with their end in this log"),
        nullable_column("transactions_open", pa.int64(), "transactions without an end"),
        nullable_column("transactions_hanging", pa.int64(), "open ones that no coordinator will end"),
        nullable_column(
            "recovery_starts", pa.bool_(), "whether a broker would start with this copy; null, here and below: no forecast"
        ),
        nullable_column("recovery_log_start_offset", pa.int64(), "after such a start"),
        nullable_column("recovery_log_end_offset", pa.int64(), "after such a start"),
        nullable_column("recovery_checks", _INTS, "numbers of the checks that fire (docs/recovery.md)"),
        nullable_column("recovery_steps", pa.list_(pa.string()), "what such a start would do to the files"),
        nullable_column("topic_id", pa.string(), "22 characters of base64url; this and all below belong to the partition"),
        column("cleanup_policy", pa.string(), "delete · compact · compact,delete · unknown"),
        column("is_tiered", pa.bool_(), "whether its older segments are moved to remote storage"),
        column(
            "verdict",
            pa.string(),
            "clean · info · unknown · warning · error · critical: the worst of its findings; unknown: none of its logs was read"
            " whole",
        ),
        nullable_column("leader", pa.int32(), "by the controller's log; -1: it had none"),
        nullable_column("leader_epoch", pa.int64(), "by the controller's log"),
        nullable_column("isr", _INTS, "by the controller's log"),
        nullable_column("replica_assignment", _INTS, "by the controller's log"),
        nullable_column("high_watermark_at_least", pa.int64(), "the best known lower bound"),
        nullable_column("high_watermark_witness", pa.string(), "the proof of that bound"),
        column("agreement", pa.string(), "identical · prefix · conflict · missing · compacted · content · not_compared"),
        nullable_column("common_end_offset", pa.int64(), "end of the offsets on which all replicas agree, exclusive"),
        nullable_column("fork_epoch", pa.int32(), "leader epoch of this replica at the first differing offset"),
        nullable_column(
            "reference_broker",
            pa.string(),
            "of the replica that this one is compared with: the leader by the controller's log; if that or the leader's whole "
            "log is missing, the replica with the latest leader epoch, of several the one that ends last; null: fewer than two "
            "replicas were read, or this was not, or those with the latest epoch conflict",
        ),
        nullable_column(
            "agreement_with_reference",
            pa.string(),
            "reference: it is the reference · identical · behind, ahead: the same up to the end of the shorter log · compacted: "
            "cleaned differently, with the same latest record of every key · content: it has a damaged batch, or another header "
            "or value · missing: it lacks records that another replica, or the reference, has · conflict: it has other "
            "records · not_compared: not all could be read · null: there is no reference to compare with. It differs if it is "
            "content, missing or conflict",
        ),
        column("read", pa.string(), "how much of its log was read: whole · part · none"),
        nullable_column("read_end_offset", pa.int64(), "for a log that was read in part, the end of the read part, exclusive"),
    ],
    by_replica=False,
)
FINDINGS_FACT: Final = fact(
    "findings",
    "Findings, most severe first; null where a column does not apply.",
    [
        column("kind", pa.string(), "name from the catalogue; `kafka-forensics explain KIND` explains it"),
        column("severity", pa.string(), "critical · error · warning · info"),
        column("confidence", pa.string(), "proven · inferred · suspected"),
        nullable_column("topic", pa.string(), "where it applies"),
        nullable_column("partition", pa.int32(), "where it applies"),
        nullable_column("broker", pa.string(), "id or name, where it applies"),
        NODE_ID,
        nullable_column("log_dir", pa.string(), "as given on the command line"),
        nullable_column("file", pa.string(), "path below `log_dir`, with `/`"),
        nullable_column("byte_start", pa.int64(), "first affected byte"),
        nullable_column("byte_end", pa.int64(), "exclusive"),
        nullable_column("offset_start", pa.int64(), "first affected offset"),
        nullable_column("offset_end", pa.int64(), "exclusive"),
        column("message", pa.string(), "one sentence"),
        column("evidence", pa.string(), "the numbers that prove it, as a JSON object"),
        nullable_column("advice", pa.string(), "the next step"),
    ],
    by_replica=False,
)
METADATA_HISTORY_FACT: Final = fact(
    "metadata_history",
    "Every change of every partition in the controller's log (`__cluster_metadata`), by topic, partition and offset.",
    [
        TOPIC,
        PARTITION,
        column("topic_id", pa.string(), "22 characters of base64url; a topic that was created again has another"),
        column("offset", pa.int64(), "of the record; for a snapshot, the first offset after it"),
        time_column("timestamp", "of the record"),
        column("event", pa.string(), "created · changed · snapshot · deleted"),
        nullable_column("leader", pa.int32(), "afterwards, -1: none; null, here and below: the partition is deleted"),
        nullable_column("leader_epoch", pa.int64(), "counted; null after a record that could not be read"),
        nullable_column("partition_epoch", pa.int64(), "afterwards"),
        *(nullable_column(name, _INTS, "afterwards") for name in ("isr", "elr", "last_known_elr", "replica_assignment")),
        *(nullable_column(name, _INTS, "afterwards") for name in ("adding_replicas", "removing_replicas")),
        nullable_column("leader_recovery_state", pa.int16(), "1: the leader was elected uncleanly and is recovering"),
        column("is_unclean", pa.bool_(), "it elected a leader from outside the ISR"),
        nullable_column("previous_leader", pa.int32(), "the last broker that led before; null: none"),
        nullable_column("is_committed", pa.bool_(), "a majority of the voters holds the record; null: too few copies to say"),
        nullable_column("unknown_after", pa.int64(), "offset of an earlier record that could not be read; null: all were read"),
    ],
    by_replica=False,
)
GROUP_OFFSETS_FACT: Final = fact(
    "group_offsets",
    "Offsets that groups committed: the latest in `__consumer_offsets`.",
    [
        column("topic", pa.string(), "committed on"),
        column("partition", pa.int32(), "committed on"),
        column("broker", pa.string(), "broker whose copy of `__consumer_offsets` was read"),
        NODE_ID,
        column("group", pa.string(), "id of the group"),
        column("group_type", pa.string(), "classic · consumer · share · streams · simple"),
        nullable_column("group_state", pa.string(), "Stable or Empty; null: unknown"),
        column("status", pa.string(), "committed, or pending: in a transaction without a marker, so it does not count yet"),
        column("committed_offset", pa.int64(), "of the next record the group will read"),
        column("leader_epoch", pa.int32(), "of the last record it read; -1: none"),
        nullable_column("topic_id", pa.string(), "22 characters of base64url (Kafka 4.1 and later)"),
        time_column("commit_timestamp", "when it was committed"),
        time_column("expire_timestamp", "when it expires, where the commit has it"),
        nullable_column("metadata", pa.string(), "the client's metadata; null where payloads are left out"),
        column("in_transaction", pa.bool_(), "committed by a transaction"),
        nullable_column("producer_id", pa.int64(), "of a pending commit"),
        column("offsets_partition", pa.int32(), "partition of `__consumer_offsets`"),
        column("record_offset", pa.int64(), "of the record there"),
        nullable_column(
            "unknown_after",
            pa.int64(),
            "records after that offset could not be read and may have changed it; null: there are none",
        ),
    ],
    by_replica=False,
)
_STATES: Final = "COPY_SEGMENT_STARTED · COPY_SEGMENT_FINISHED · DELETE_SEGMENT_STARTED · DELETE_SEGMENT_FINISHED"
_CUSTOM: Final = "the plugin's metadata; null where payloads are left out, and in redacted bundles"
REMOTE_SEGMENTS_FACT: Final = fact(
    "remote_segments",
    "Segments of tiered topics in the remote store, with the state of their last event in `__remote_log_metadata`. Of deleted"
    " segments, the last 8,192 of each partition of that topic.",
    [
        TOPIC,
        PARTITION,
        column("topic_id", pa.string(), "22 characters of base64url; a topic that was created again has another"),
        column("segment_id", pa.string(), "22 characters of base64url"),
        column("state", pa.string(), f"{_STATES}; readers get only finished ones"),
        column("start_offset", pa.int64(), "first offset"),
        column("last_offset", pa.int64(), "inclusive: Kafka's EndOffset, one below the base offset of the next segment"),
        column("leader_epochs", _EPOCHS, "the leader's, within the segment"),
        column("size_in_bytes", pa.int64(), "of the local `.log`"),
        time_column("max_timestamp", "latest of its records"),
        column("txn_index_empty", pa.bool_(), "no transaction was aborted in it; false also before Kafka 3.9"),
        column("broker_id", pa.int32(), "that wrote the last event"),
        time_column("event_timestamp", "of the last event"),
        column("metadata_partition", pa.int32(), "partition of `__remote_log_metadata`"),
        column("metadata_offset", pa.int64(), "of the last event there"),
        nullable_column("custom_metadata", pa.binary(), _CUSTOM),
    ],
    by_replica=False,
)
REMOTE_EVENTS_FACT: Final = fact(
    "remote_events",
    "Records of `__remote_log_metadata`, by its partitions and offsets, from one copy of each. A column is null if the record"
    " has no such field or cannot be read.",
    [
        nullable_column("topic", pa.string(), "of the segment"),
        nullable_column("partition", pa.int32(), "of the segment"),
        column("broker", pa.string(), "broker whose copy of `__remote_log_metadata` was read"),
        NODE_ID,
        column("metadata_partition", pa.int32(), "partition of `__remote_log_metadata`"),
        column("metadata_offset", pa.int64(), "of the record there"),
        time_column("timestamp", "of the record"),
        column("record", pa.string(), "Kafka's name of its kind, UNKNOWN for others"),
        nullable_column("problem", pa.string(), "why it cannot be read"),
        column(
            "is_dropped", pa.bool_(), "brokers drop it: no event began the segment, or its state may not follow the previous one"
        ),
        nullable_column("topic_id", pa.string(), "22 characters of base64url"),
        nullable_column("segment_id", pa.string(), "22 characters of base64url"),
        nullable_column("state", pa.string(), f"{_STATES}; of a partition: DELETE_PARTITION_MARKED · _STARTED · _FINISHED"),
        nullable_column("broker_id", pa.int32(), "that wrote it"),
        time_column("event_timestamp", "by that broker's clock"),
        nullable_column("start_offset", pa.int64(), "first offset; this and all below only where a copy begins"),
        nullable_column("last_offset", pa.int64(), "inclusive"),
        nullable_column("leader_epochs", _EPOCHS, "the leader's, within the segment"),
        nullable_column("size_in_bytes", pa.int64(), "of the local `.log`"),
        time_column("max_timestamp", "latest of its records"),
        nullable_column("txn_index_empty", pa.bool_(), "no transaction was aborted in it; false also before Kafka 3.9"),
        nullable_column("custom_metadata", pa.binary(), f"of later events, too: {_CUSTOM}"),
    ],
    by_replica=False,
)
INCOMPLETE_FACT: Final = fact(
    "incomplete",
    "Input that could not be read, and the reason. Other tables have no rows of it.",
    [
        column("path", pa.string(), "the file, directory or archive"),
        column("reason", pa.string(), "why it could not be read"),
        nullable_column("topic", pa.string(), "topic of the partition, or of a file in it; null: several, or unknown"),
        nullable_column("partition", pa.int32(), "number of that partition"),
        nullable_column("broker", pa.string(), "broker whose log directory it is in, id or name; null: unknown"),
        NODE_ID,
    ],
    by_replica=False,
)
FACTS: Final[dict[str, Fact]] = {
    fact.name: fact
    for fact in (
        *(BATCHES_FACT, RECORDS_FACT, SPANS_FACT, INDEX_ENTRIES_FACT, EPOCH_ENTRIES_FACT, PRODUCER_STATES_FACT, CHECKPOINTS_FACT),
        *(CONTROL_RECORDS_FACT, TRANSACTIONS_FACT, METADATA_HISTORY_FACT, GROUP_OFFSETS_FACT),
        *(REMOTE_SEGMENTS_FACT, REMOTE_EVENTS_FACT, REPLICAS_FACT, FINDINGS_FACT, INCOMPLETE_FACT),
    )
}
"""Name → fact, in the order of the documentation."""


def fact_named(name: str, more: Mapping[str, Fact] | None = None) -> Fact:
    """The fact with this name, from FACTS or `more`. Raises UsageError if there is none."""
    facts = FACTS | dict(more or {})
    if name not in facts:
        hint = did_you_mean(name, facts, otherwise=f"choose from {', '.join(facts)}")
        raise UsageError(f"there is no fact {name!r}", hint=hint)
    return facts[name]
