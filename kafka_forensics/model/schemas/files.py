"""Facts of a replica's files beside its batches: where bytes went, and what indexes, snapshots and checkpoints say."""

from typing import Final

import pyarrow as pa

from kafka_forensics.model.schemas.columns import BROKER, IN_FILE, LOG_DIR, REPLICA, column, fact, maybe

_MS: Final = "ms since 1970"
_NONE: Final = "-1: none"

SPANS_FACT: Final = fact(
    "spans",
    "Where every byte of every `.log`, `.index`, `.timeindex`, `.txnindex` and `.snapshot` went: the spans of a file follow each"
    " other without gap or overlap from 0 to its size.",
    [
        *IN_FILE,
        column("position", pa.int64(), "first byte"),
        column("size_in_bytes", pa.int64(), "bytes"),
        column(
            "kind",
            pa.string(),
            "batches (whole batches with a right CRC in a row, cut at every 64 MiB) · header · entries · zero_tail (zeros after the"
            " last) · damaged · skipped (given up, or not readable)",
        ),
        maybe("damage_kind", pa.string(), "the finding kind of what is wrong there; null: nothing is, or it has no name"),
        maybe("base_offset", pa.int64(), "of the first batch, or the first offset concerned; null: the bytes do not tell"),
        maybe("last_offset", pa.int64(), "of the last batch, inclusive; null: the bytes do not tell"),
        column("count", pa.int64(), "batches or entries in it"),
        maybe("detail", pa.string(), "numbers about the damage, as JSON"),
    ],
)
INDEX_ENTRIES_FACT: Final = fact(
    "index_entries",
    "Entries of `.index`, `.timeindex` and `.txnindex` files, in file order.",
    [
        *IN_FILE,
        column("index_type", pa.string(), "offset · time · transaction"),
        column("position", pa.int64(), "byte at which the entry begins in its file"),
        maybe("offset", pa.int64(), "absolute; null in a transaction index"),
        maybe("log_position", pa.int64(), "byte in the `.log`; only in an offset index"),
        maybe("timestamp", pa.int64(), f"{_MS}; only in a time index"),
        maybe("producer_id", pa.int64(), "of the aborted transaction; this and what follows only in a transaction index"),
        maybe("first_offset", pa.int64(), "of the transaction"),
        maybe("last_offset", pa.int64(), "of its ABORT marker, inclusive"),
        maybe("last_stable_offset", pa.int64(), "when the marker was written"),
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
    "Producers as `.snapshot` files hold them: the state before `snapshot_offset`.",
    [
        *IN_FILE,
        column("snapshot_offset", pa.int64(), "from the file's name, exclusive"),
        column("position", pa.int64(), "byte at which the entry begins in its file"),
        column("producer_id", pa.int64(), "of the producer"),
        column("producer_epoch", pa.int16(), "last one seen"),
        column("last_sequence", pa.int32(), _NONE),
        column("last_offset", pa.int64(), f"of its last batch; {_NONE}"),
        column("offset_delta", pa.int32(), "offsets of its last batch - 1"),
        column("timestamp", pa.int64(), f"of its last batch, {_MS}; {_NONE}"),
        column("coordinator_epoch", pa.int32(), f"of its last marker; {_NONE}"),
        column("current_txn_first_offset", pa.int64(), f"of its open transaction; {_NONE}"),
    ],
)
CHECKPOINTS_FACT: Final = fact(
    "checkpoints",
    "Lines of the four `*-offset-checkpoint` files of every log directory; the file says what the offset means.",
    [
        column("topic", pa.string(), "as the line says"),
        column("partition", pa.int32(), "as the line says"),
        BROKER,
        LOG_DIR,
        column("file", pa.string(), "name of the checkpoint"),
        column("offset", pa.int64(), "high watermark, recovery point, log start or first uncleaned offset"),
    ],
    by_replica=False,
)
CONTROL_RECORDS_FACT: Final = fact(
    "control_records",
    "Every control record of batches with a right CRC: transaction markers, and what KRaft's leaders and snapshots write.",
    [
        *IN_FILE,
        column("batch_position", pa.int64(), "byte at which its batch begins in the file"),
        column("offset", pa.int64(), "of the record"),
        column("timestamp", pa.int64(), f"{_MS}; {_NONE}"),
        column("partition_leader_epoch", pa.int32(), "of its batch"),
        column("producer_id", pa.int64(), f"whose transaction a marker ends; {_NONE}"),
        column("producer_epoch", pa.int16(), f"with which the marker was written; {_NONE}"),
        column("type", pa.int16(), "number of the type, -1 where the key cannot be read"),
        column("type_name", pa.string(), "ABORT, COMMIT, LEADER_CHANGE, ...; UNKNOWN for what readers ignore"),
        maybe("version", pa.int16(), "of the value; null without a readable one"),
        maybe("coordinator_epoch", pa.int32(), "of a marker, else null"),
        maybe("fields", pa.string(), "the rest of the value as JSON, bytes in hexadecimal; null where there is none"),
        maybe("problem", pa.string(), "key or value: what could not be read; null: all was"),
    ],
)
TRANSACTIONS_FACT: Final = fact(
    "transactions",
    "Every transaction a replica's log shows: ended ones in the order of their markers, then the open ones by first offset.",
    [
        *REPLICA,
        column(
            "state",
            pa.string(),
            "committed · aborted · open · hanging · torn (the coordinator decided otherwise) · empty (a marker that ended nothing"
            " here) · unknown (its marker cannot be read)",
        ),
        column("producer_id", pa.int64(), "who wrote it"),
        column("producer_epoch", pa.int16(), "of its data, else of the marker"),
        maybe("transactional_id", pa.string(), "by the coordinators' log; null: it does not tell"),
        maybe("first_offset", pa.int64(), "of its data; null without data"),
        maybe("last_offset", pa.int64(), "of its data, inclusive"),
        maybe("first_timestamp", pa.int64(), f"of its data, {_MS}"),
        maybe("last_timestamp", pa.int64(), f"of its data, {_MS}"),
        column("batches", pa.int64(), "of data"),
        column("records", pa.int64(), "offsets its data take"),
        maybe("marker", pa.string(), "ABORT or COMMIT; null: there is none, or it cannot be read"),
        maybe("marker_offset", pa.int64(), "of the marker"),
        maybe("marker_timestamp", pa.int64(), f"of the marker, {_MS}"),
        maybe("marker_epoch", pa.int16(), "producer epoch of the marker"),
        maybe("coordinator_epoch", pa.int32(), "of the marker"),
        maybe("coordinator_state", pa.string(), "how the coordinator decided an ended one; the id's last state for an open one"),
        maybe("partitions", pa.list_(pa.string()), "all that the coordinator lists for it"),
        column("holds_last_stable_offset", pa.bool_(), "read_committed readers wait for it"),
        maybe("safe_to_abort", pa.bool_(), "of open ones; null: not judged"),
        maybe("reason", pa.string(), "why it is judged so"),
        maybe("command", pa.string(), "of Kafka's own tools, that would end it"),
    ],
)
