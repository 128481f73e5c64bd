"""Signatures of incidents that one file or one kind of file shows: indexes, snapshots, segments, directories, transactions."""

import itertools
from typing import Final

from kafka_forensics.analysis.incidents.replication_rules import each, has, of_subject, some, unclean, without_epochs
from kafka_forensics.analysis.incidents.signatures import Answer, Case, ReplicaFacts, Signature, against, expected, extra, must
from kafka_forensics.analysis.segments import ZeroTail
from kafka_forensics.model.constants import (
    CONSUMER_OFFSETS_TOPIC,
    HEADER_SIZE_UP_TO_MAGIC,
    MAX_RELATIVE_OFFSET,
    MAX_SEGMENT_SIZE,
    TRANSACTION_STATE_TOPIC,
)
from kafka_forensics.model.findings import Finding

_LOADED_BY_COORDINATORS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


def _closed(replica_facts: ReplicaFacts, segment: int) -> bool:
    return segment < max(replica_facts.replica.context.segment_base_offsets, default=segment)


def _zeroed_time_index(case: Case) -> Answer:
    """A closed segment whose `.timeindex` is nothing but zeros, though its batches have timestamps."""
    for replica_facts in case.replicas:
        for tail in replica_facts.replica.state.zero_tails:
            if (
                tail.file_kind == "timeindex"
                and not tail.entries
                and tail.max_timestamp > 0
                and _closed(replica_facts, tail.segment)
            ):
                return replica_facts.shown(tail.segment)
    return False


def _untrimmed_index(case: Case) -> Answer:
    """An `.index` that ends in zeros though its segment is closed, or its broker stopped cleanly."""

    def trimmed(replica_facts: ReplicaFacts, tail: ZeroTail) -> bool:
        return tail.file_kind == "index" and (_closed(replica_facts, tail.segment) or replica_facts.replica.context.clean_shutdown)

    for replica_facts in case.replicas:
        for tail in replica_facts.replica.state.zero_tails:
            if trimmed(replica_facts, tail):
                return replica_facts.shown(tail.segment)
    return False


def _forgotten_transaction(case: Case) -> Answer:
    """A transaction that the newest snapshot holds open though all of its data lies before the log start."""
    for replica_facts in case.replicas:
        if replica_facts.forgotten_transactions:
            return replica_facts.shown(min(replica_facts.forgotten_transactions.values()), replica_facts.replica.log_start_offset)
    return False


def _future_snapshot(case: Case) -> Answer:
    """A snapshot that knows of an offset at or beyond the one in its name."""
    for shown in case.of("PRODUCER_SNAPSHOT_CORRUPT"):
        written, offset = shown.evidence.get("snapshot"), shown.evidence.get("snapshot_offset")
        if isinstance(written, list) and isinstance(offset, int) and len(written) == 4 and max(written[2], written[3]) >= offset:
            return shown
    return False


def _zeros_for_a_coordinator(case: Case) -> Answer:
    return next((finding for finding in case.of("SEG_ZERO_TAIL") if finding.place.topic in _LOADED_BY_COORDINATORS), False)


def _largest_segment(case: Case) -> Answer:
    """A segment whose size plus the bytes of a batch's head passes the largest int."""
    for replica_facts in case.replicas:
        for segment, size in replica_facts.segment_bytes.items():
            if MAX_SEGMENT_SIZE - HEADER_SIZE_UP_TO_MAGIC < size <= MAX_SEGMENT_SIZE:
                return replica_facts.shown(segment)
    return False


def _offset_beyond_segment(case: Case) -> Answer:
    """A segment whose last offset is further from its base offset than 31 bits reach."""
    for replica_facts in case.replicas:
        for segment, totals in replica_facts.replica.state.framing.by_segment.items():
            if totals.last_offset - segment > MAX_RELATIVE_OFFSET:
                return replica_facts.shown(segment, totals.last_offset + 1)
    return False


def _cleaner_in_a_hole(case: Case) -> Answer:
    """A cleaner checkpoint right behind the last record of a closed segment, in offsets that no record has."""
    for replica_facts in case.replicas:
        context, by_segment = replica_facts.replica.context, replica_facts.replica.state.framing.by_segment
        if not context.compacted:
            continue
        for segment, following in itertools.pairwise(context.segment_base_offsets):
            last = by_segment[segment].last_offset if segment in by_segment else -1
            if last + 1 == context.cleaner_checkpoint and last + 1 < following and last >= 0:
                return replica_facts.shown(last + 1, following)
    return False


def _two_directories(case: Case) -> Answer:
    """Two live directories of the partition in two log directories of one broker, told by their ids."""
    for replica_facts, other in itertools.combinations(case.replicas, 2):
        same = replica_facts.node_id is not None and (replica_facts.node_id, replica_facts.cluster_id) == (
            other.node_id,
            other.cluster_id,
        )
        if (
            same
            and None not in (replica_facts.directory_id, other.directory_id)
            and replica_facts.directory_id != other.directory_id
        ):
            return other.shown()
    return False


def _misplaced(case: Case) -> Answer:
    """A directory with the id of a topic that exists under another name."""
    return next((finding for finding in case.of("TOPIC_ID_MISMATCH") if finding.evidence.get("misplaced_on")), False)


def _metadata_missing(case: Case) -> Answer:
    """A replica without partition.metadata on a broker in KRaft mode, where another has the file."""
    lacking = [
        replica_facts
        for replica_facts in case.replicas
        if not replica_facts.has_partition_metadata and (replica_facts.meta_version or 0) >= 1
    ]
    others = any(replica_facts.has_partition_metadata for replica_facts in case.replicas)
    return lacking[0].shown() if lacking and others else False


def _bad_alike_everywhere(case: Case) -> Answer:
    """A batch that is bad in the same way on every replica, of two at least."""
    brokers: dict[tuple[object, ...], set[int | str | None]] = {}
    for finding in case.of("BATCH_CRC_MISMATCH"):
        key = (finding.place.offset_start, finding.evidence.get("stored_crc"), finding.evidence.get("computed_crc"))
        brokers.setdefault(key, set()).add(finding.place.broker)
        if None not in key and len(case.replicas) > 1 and brokers[key] == {replica_facts.broker for replica_facts in case.replicas}:
            return finding
    return False


FILES: Final = (
    Signature(
        "d7",
        None,
        "time index of zeros, by which every segment seems expired",
        "2.x on file systems that lose mapped writes",
        (),
        (
            must("a closed segment's time index holds nothing but zeros", _zeroed_time_index),
            extra("files are being deleted", some(lambda replica_facts: replica_facts.deleted_files > 0)),
            extra("the log start moved", some(lambda replica_facts: (replica_facts.replica.context.log_start_checkpoint or 0) > 0)),
        ),
    ),
    Signature(
        "d10",
        "KAFKA-9144 with retention",
        "transaction held open by a snapshot alone",
        "all versions",
        (),
        (
            must("a snapshot holds a transaction open before the log start", _forgotten_transaction),
            against("the transaction is open in the log as well", has("TXN_OPEN", "TXN_HANGING")),
        ),
    ),
    Signature(
        "d13",
        "KAFKA-6683",
        "producer snapshot from the future",
        "0.11.0.0 to 1.0.1",
        ("1.0.2", "1.1.0"),
        (must("a snapshot knows offsets at or beyond its own", _future_snapshot),),
    ),
    Signature(
        "d17",
        "KAFKA-13664",
        "coordinator that cannot load a preallocated partition",
        "up to 4.3.1 at least, with log.preallocate",
        (),
        (
            must("a partition that coordinators load ends in zeros", _zeros_for_a_coordinator),
            expected("the broker was not stopped cleanly", of_subject(_zeros_for_a_coordinator, unclean)),
        ),
    ),
    Signature(
        "d18",
        "KAFKA-6292",
        "segment too large for the reader's arithmetic",
        "before 1.1.1",
        ("1.1.1", "2.0.0"),
        (must("a segment ends within 17 bytes of 2 GiB", _largest_segment),),
    ),
    Signature(
        "d19",
        None,
        "offset index with preallocated zeros at its end",
        "any version after a crash; Kafka rebuilds the index",
        (),
        (
            must("an offset index that should be trimmed ends in zeros", _untrimmed_index),
            expected("the segment itself is sound", lambda case: not case.of("FRAMING_LOST", "BATCH_CRC_MISMATCH", "SEG_HOLE")),
        ),
    ),
    Signature(
        "d20",
        "KAFKA-6264",
        "segment whose offsets pass 31 bits",
        "before 2.0.0, segments compacted by old versions",
        ("2.0.0",),
        (
            must("a segment holds offsets more than 2^31-1 above its base", _offset_beyond_segment),
            expected("the partition is compacted", some(lambda replica_facts: replica_facts.replica.context.compacted)),
        ),
    ),
    Signature(
        "d21",
        "KAFKA-8764",
        "cleaner that cannot pass a hole",
        "before 2.4.1",
        ("2.4.1", "2.5.0"),
        (must("the cleaner stopped in a hole at a segment's end", _cleaner_in_a_hole),),
    ),
    Signature(
        "d24",
        "KAFKA-14616",
        "topic deleted and made again while a broker was away",
        "before 3.7.0 in KRaft mode",
        ("3.7.0",),
        (
            must("replicas of one name carry different topic ids", has("TOPIC_ID_MISMATCH")),
            extra(
                "a stray or deleted directory is left",
                some(lambda replica_facts: bool({"stray", "delete"} & set(replica_facts.relatives))),
            ),
            against("a directory lies under another living topic's name", _misplaced),
        ),
        explains=frozenset({"TOPIC_ID_MISMATCH", "TOPIC_UNKNOWN_TO_CONTROLLER"}),
    ),
    Signature(
        "d24",
        "KAFKA-16234",
        "replica made again in another log directory",
        "before 3.7.1 in KRaft mode",
        ("3.7.1", "3.8.0"),
        (
            must("one broker has two live directories of the partition", _two_directories),
            expected("the broker is in KRaft mode", some(lambda replica_facts: (replica_facts.meta_version or 0) >= 1)),
        ),
    ),
    Signature(
        "d24",
        "KAFKA-16814",
        "partition.metadata missing in KRaft mode",
        "before 3.7.1",
        ("3.7.1", "3.8.0"),
        (
            must("partition.metadata is missing on one replica only", _metadata_missing),
            expected("the broker was not stopped cleanly", some(unclean)),
        ),
    ),
    Signature(
        "d25",
        None,
        "batches that are bad alike on every replica",
        "0.10.2 on FreeBSD; cause not known",
        (),
        (
            must("a batch is bad in the same way on every replica", _bad_alike_everywhere),
            extra("the batch is in message format 0 or 1", each(lambda replica_facts: replica_facts.ends_in_old_format)),
        ),
    ),
)


# Signatures of incidents that only records show: what was written twice, what a cleaner took from one replica alone.


_TAKEN: Final = ("vanished", "tombstones", "markers")
"""Why a key's latest value differs, where a tombstone or a marker came and went (`compaction.REASONS`)."""


def _cleaned_apart(case: Case) -> Answer:
    """Keys that one replica still shows, though a tombstone or a marker that is gone took them from another."""
    for finding in case.of("COMPACTED_VALUE_DIFFERS"):
        if any(finding.evidence.get(name) for name in _TAKEN):
            return finding
    return False


def _other_values(case: Case) -> Answer:
    return any(
        finding.evidence.get("contents") or finding.evidence.get("missing") for finding in case.of("COMPACTED_VALUE_DIFFERS")
    )


def _transactional(case: Case) -> Answer:
    return any(finding.evidence.get("transactional") for finding in case.of("COMPACTED_VALUE_DIFFERS"))


def _repeated(case: Case) -> Answer:
    """A batch whose records a producer wrote a second time, having raised its epoch."""
    for replica_facts in case.replicas:
        if replica_facts.repeated_batches:
            return replica_facts.shown(*reversed(replica_facts.repeated_batches[0]))
    return False


RECORDS: Final = (
    Signature(
        "d14",
        "confluentinc/librdkafka#4953",
        "duplicates of an idempotent producer",
        "librdkafka, not known which",
        (),
        (
            must("a producer repeats a batch under a higher epoch, from 0", _repeated),
            against("the log also misses or repeats sequences", has("PRODUCER_SEQ_GAP", "DUPLICATE_BATCH")),
        ),
    ),
    Signature(
        "d8",
        "Redpanda 2026-06-25",
        "compaction that ran ahead of replication",
        "3.9 to 4.2 at least",
        (),
        (
            must("a key lives on one replica that a cleaner took from another", _cleaned_apart),
            must(
                "the copies are of brokers that were stopped",
                each(lambda replica_facts: replica_facts.replica.context.clean_shutdown),
            ),
            must("no log ends in message format 0 or 1", each(lambda replica_facts: not without_epochs(replica_facts))),
            against("other keys differ in other ways", _other_values),
            extra("transactional records are concerned", _transactional),
            expected("no replica has been damaged", lambda case: not case.of("BATCH_CRC_MISMATCH", "FRAMING_LOST", "SEG_HOLE")),
        ),
    ),
    Signature(
        "d21",
        "KAFKA-4529",
        "tombstone removed too early",
        "0.10.0.0 to 0.10.1.0",
        ("0.10.1.1", "0.10.2.0"),
        (
            must("a key lives on one replica that a cleaner took from another", _cleaned_apart),
            must("a log ends in message format 0 or 1", some(without_epochs)),
            against("other keys differ in other ways", _other_values),
        ),
    ),
)


# Signatures of transactions that do not end as they should, in one partition or over several.


_UNLISTED: Final = ("partition_not_listed", "no_transactional_id")


def _not_listed(case: Case) -> Answer:
    return any(finding.evidence.get("reason") in _UNLISTED for finding in case.of("TXN_HANGING"))


def _version_2(case: Case) -> Answer:
    """Whether every transaction has an epoch of its own; a feature that no record names is off, if any record names one."""
    return case.features.get("transaction.version", 0) >= 2 if case.features else None


def _prepared(finding: Finding) -> bool:
    return str(finding.evidence.get("coordinator_state", "")).startswith("Prepare")


def _never_marked(case: Case) -> Answer:
    """A decision that the coordinator has not completed, long after, for want of a marker."""
    return next(
        (finding for finding in case.of("TXN_TORN") if finding.evidence.get("reason") == "no_marker" and _prepared(finding)), False
    )


def _torn(case: Case) -> Answer:
    """A transaction with markers that contradict its decision, or each other; a missing marker may be lost with the log's end."""
    torn = [finding for finding in case.of("TXN_TORN") if finding.evidence.get("reason") == "opposite_marker"]
    disagreeing = [finding for finding in case.of("TXN_MARKERS_DISAGREE") if finding.evidence.get("shown_as") == "aborted"]
    return next(iter([*torn, *disagreeing]), False)


TRANSACTIONS: Final = (
    Signature(
        "d9",
        "KAFKA-14402",
        "hanging transaction, see KIP-890",
        "before 4.0, or without transaction version 2",
        ("4.0.0",),
        (
            must("a transaction is open that no coordinator will end", has("TXN_HANGING")),
            expected("its coordinator does not know the partition", _not_listed),
            extra("records were written behind the marker", has("TXN_LATE_WRITE")),
            against("the cluster runs transaction version 2", _version_2),
        ),
        whole_scan=True,
        outgrown=False,
        explains=frozenset({"TXN_HANGING", "TXN_LATE_WRITE"}),
    ),
    Signature(
        "d9",
        "KAFKA-19999",
        "transaction whose marker is never accepted",
        "not known",
        (),
        (must("the coordinator prepares an end that has no marker", _never_marked),),
        whole_scan=True,
        outgrown=False,
    ),
    Signature(
        "d11",
        "KAFKA-9144",
        "coordinator epoch that goes backwards",
        "before 2.4.1",
        ("2.4.1", "2.5.0"),
        (
            must("a marker has a lower coordinator epoch than one before", has("TXN_COORDINATOR_EPOCH_REGRESSION")),
            extra("records were written behind a marker", has("TXN_LATE_WRITE")),
        ),
        explains=frozenset({"TXN_COORDINATOR_EPOCH_REGRESSION", "TXN_LATE_WRITE"}),
    ),
    Signature(
        "d12",
        "KAFKA-17754",
        "transaction ended by a delayed EndTxn request of another one",
        "before 4.0, or without transaction version 2",
        ("4.0.0",),
        (
            must("a transaction ended differently in its partitions", _torn),
            extra("records were written behind a marker", has("TXN_LATE_WRITE")),
            against("the cluster runs transaction version 2", _version_2),
        ),
        whole_scan=True,
        outgrown=False,
        explains=frozenset({"TXN_TORN", "TXN_MARKERS_DISAGREE", "TXN_LATE_WRITE"}),
    ),
)
