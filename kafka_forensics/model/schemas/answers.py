"""Facts that a whole scan yields: replicas and findings, and what the internal topics tell of partitions."""

from typing import Final

import pyarrow as pa

from kafka_forensics.model.schemas.columns import BROKER, LOG_DIR, PARTITION, TOPIC, column, fact, maybe

_MS: Final = "ms since 1970"
_INTS: Final = pa.list_(pa.int32())
_EPOCHS: Final = pa.list_(
    pa.struct([pa.field("leader_epoch", pa.int32(), nullable=False), pa.field("start_offset", pa.int64(), nullable=False)])
)

REPLICAS_FACT: Final = fact(
    "replicas",
    "One row for each replica, with what is known of its partition.",
    [
        TOPIC,
        PARTITION,
        BROKER,
        LOG_DIR,
        column("directory", pa.string(), "name of the partition's directory"),
        maybe(
            "log_start_offset", pa.int64(), "first readable offset; null, here and below: nothing of the log could be read (`read`)"
        ),
        maybe("log_end_offset", pa.int64(), "next offset to be written, exclusive; null: the log was not read to its end"),
        maybe("high_watermark", pa.int64(), "by replication-offset-checkpoint, exclusive; null: not there"),
        maybe("last_stable_offset", pa.int64(), "exclusive; null: not known"),
        maybe("recovery_point", pa.int64(), "by recovery-point-offset-checkpoint, exclusive; null: not there"),
        maybe("leader_epochs", _EPOCHS, "as the batches show them"),
        maybe("segments", pa.int64(), "`.log` files"),
        maybe("batches", pa.int64(), "in them"),
        maybe("records", pa.int64(), "in them"),
        maybe("bytes", pa.int64(), "of the `.log` files"),
        maybe("missing_offsets", pa.int64(), "offsets that no batch covers"),
        maybe("transactions_committed", pa.int64(), "transactions with their end in this log"),
        maybe("transactions_aborted", pa.int64(), "transactions with their end in this log"),
        maybe("transactions_open", pa.int64(), "transactions without an end"),
        maybe("transactions_hanging", pa.int64(), "of the open ones, those that nobody will end"),
        maybe("recovery_starts", pa.bool_(), "whether a broker would start on this copy; null, here and below: not foretold"),
        maybe("recovery_log_start_offset", pa.int64(), "with which it would come up"),
        maybe("recovery_log_end_offset", pa.int64(), "with which it would come up"),
        maybe("recovery_checks", _INTS, "numbers of the checks that fire (docs/recovery.md)"),
        maybe("recovery_steps", pa.list_(pa.string()), "what it would do to the files"),
        maybe("topic_id", pa.string(), "22 characters of base64url; this and all below are of the partition"),
        column("cleanup_policy", pa.string(), "delete · compact · compact,delete · unknown"),
        column(
            "verdict",
            pa.string(),
            "clean · info · unknown · warning · error · critical: the worst of its findings; unknown: no log of it was read whole",
        ),
        maybe("leader", pa.int32(), "by the controller's log; -1: it had none"),
        maybe("leader_epoch", pa.int64(), "by the controller's log"),
        maybe("isr", _INTS, "by the controller's log"),
        maybe("replica_assignment", _INTS, "by the controller's log"),
        maybe("high_watermark_at_least", pa.int64(), "the best lower bound there is"),
        maybe("high_watermark_witness", pa.string(), "what proves that bound"),
        column("agreement", pa.string(), "identical · prefix · conflict · missing · compacted · content · not_compared"),
        maybe("common_end_offset", pa.int64(), "up to which all replicas agree, exclusive"),
        maybe("fork_epoch", pa.int32(), "leader epoch this replica holds at the first differing offset"),
        column("read", pa.string(), "how much of its log was read: whole · part · none"),
        maybe("read_end_offset", pa.int64(), "end of what was read of a log that was read in part, exclusive"),
    ],
)
FINDINGS_FACT: Final = fact(
    "findings",
    "What was found, worst first within a partition; null where something does not apply.",
    [
        column("kind", pa.string(), "name from the catalogue; `kafka-forensics explain KIND` tells more"),
        column("severity", pa.string(), "critical · error · warning · info"),
        column("confidence", pa.string(), "proven · inferred · suspected"),
        maybe("topic", pa.string(), "where it applies"),
        maybe("partition", pa.int32(), "where it applies"),
        maybe("broker", pa.string(), "id or name, where it applies"),
        maybe("log_dir", pa.string(), "as it was named on the command line"),
        maybe("file", pa.string(), "path below `log_dir`, with `/`"),
        maybe("byte_start", pa.int64(), "first byte concerned"),
        maybe("byte_end", pa.int64(), "exclusive"),
        maybe("offset_start", pa.int64(), "first offset concerned"),
        maybe("offset_end", pa.int64(), "exclusive"),
        column("message", pa.string(), "one sentence"),
        column("evidence", pa.string(), "the numbers that prove it, as a JSON object"),
        maybe("advice", pa.string(), "the next step"),
    ],
    by_replica=False,
)
METADATA_HISTORY_FACT: Final = fact(
    "metadata_history",
    "Every change of every partition by the controller's log (`__cluster_metadata`), by topic, partition and offset.",
    [
        TOPIC,
        PARTITION,
        column("topic_id", pa.string(), "22 characters of base64url; a topic made anew has another"),
        column("offset", pa.int64(), "of the record; of a snapshot, the first offset it does not hold"),
        column("timestamp", pa.int64(), f"of the record, {_MS}"),
        column("event", pa.string(), "created · changed · snapshot · deleted"),
        maybe("leader", pa.int32(), "afterwards, -1: none; null, here and below: the partition is deleted"),
        maybe("leader_epoch", pa.int64(), "counted; null behind a record that could not be read"),
        maybe("partition_epoch", pa.int64(), "afterwards"),
        maybe("isr", _INTS, "afterwards"),
        maybe("elr", _INTS, "afterwards"),
        maybe("last_known_elr", _INTS, "afterwards"),
        maybe("replica_assignment", _INTS, "afterwards"),
        maybe("adding_replicas", _INTS, "afterwards"),
        maybe("removing_replicas", _INTS, "afterwards"),
        maybe("leader_recovery_state", pa.int16(), "1: the leader was elected uncleanly and is recovering"),
        column("is_unclean", pa.bool_(), "it elected a leader from outside the ISR"),
        maybe("previous_leader", pa.int32(), "the last broker that led before; null: none"),
        maybe("is_committed", pa.bool_(), "a majority of the voters holds the record; null: too few copies to say"),
        maybe("unknown_after", pa.int64(), "offset of an earlier record that could not be read; null: all were"),
    ],
    by_replica=False,
)
GROUP_OFFSETS_FACT: Final = fact(
    "group_offsets",
    "Offsets that groups committed, as `__consumer_offsets` leaves them.",
    [
        column("topic", pa.string(), "committed on"),
        column("partition", pa.int32(), "committed on"),
        column("broker", pa.string(), "whose copy of `__consumer_offsets` was read"),
        column("group", pa.string(), "id of the group"),
        column("group_type", pa.string(), "classic · consumer · share · streams · simple"),
        maybe("group_state", pa.string(), "Stable or Empty; null: the log does not tell"),
        column("status", pa.string(), "committed, or pending: in a transaction without a marker, so it does not count yet"),
        column("committed_offset", pa.int64(), "of the next record the group will read"),
        column("leader_epoch", pa.int32(), "of the last record it read; -1: none"),
        maybe("topic_id", pa.string(), "22 characters of base64url (Kafka 4.1 and later)"),
        column("commit_timestamp", pa.int64(), f"{_MS}; -1: none"),
        column("expire_timestamp", pa.int64(), f"{_MS}; -1: none"),
        maybe("metadata", pa.string(), "what the client kept with it; null where payloads are left out"),
        column("in_transaction", pa.bool_(), "committed by a transaction"),
        maybe("producer_id", pa.int64(), "of a pending commit"),
        column("offsets_partition", pa.int32(), "partition of `__consumer_offsets`"),
        column("record_offset", pa.int64(), "of the record there"),
        maybe(
            "unknown_after",
            pa.int64(),
            "records behind that offset could not be read and may have changed it; null: there are none",
        ),
    ],
    by_replica=False,
)
INCOMPLETE_FACT: Final = fact(
    "incomplete",
    "What could not be read, and why: of it nothing is known, and no other dataset has a row.",
    [
        column("path", pa.string(), "the file, directory or archive"),
        column("reason", pa.string(), "why it could not be read"),
        maybe("topic", pa.string(), "whose directory it is or lies in; null: of several, or not known"),
        maybe("partition", pa.int32(), "as `topic`"),
        maybe("broker", pa.string(), "in whose log directory it lies, id or name; null: not known"),
    ],
    by_replica=False,
)
