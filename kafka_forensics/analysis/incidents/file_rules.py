"""Signatures of incidents that show in single files, records or transactions, and the list of all signatures."""

import itertools
from typing import Final

from kafka_forensics.analysis.incidents.replication_rules import (
    COORDINATOR_TOPICS,
    HISTORIES,
    all_replicas,
    any_replica,
    ends_in_old_format,
    has_finding,
    replica_of,
    stopped_uncleanly,
)
from kafka_forensics.analysis.incidents.signatures import (
    ConditionResult,
    IncidentSignature,
    PartitionEvidence,
    ReplicaFacts,
    against,
    expected,
    extra,
    must,
)
from kafka_forensics.model.constants import HEADER_SIZE_UP_TO_MAGIC, MAX_RELATIVE_OFFSET, MAX_SEGMENT_SIZE


def _is_closed(facts: ReplicaFacts, segment: int) -> bool:
    return segment < max(facts.context.segment_base_offsets, default=segment)


def _zeroed_time_index(case: PartitionEvidence) -> ConditionResult:
    """A closed segment whose `.timeindex` is all zeros although its batches have timestamps."""
    tails = ((facts, tail) for facts in case.replicas for tail in facts.replica.state.zero_tails)
    zeroed = (
        facts.shown(tail.segment)
        for facts, tail in tails
        if tail.file_kind == "timeindex" and not tail.entries and tail.max_timestamp > 0 and _is_closed(facts, tail.segment)
    )
    return next(zeroed, False)


def _untrimmed_index(case: PartitionEvidence) -> ConditionResult:
    """An `.index` that ends in zeros although its segment is closed or its broker stopped cleanly."""
    tails = ((facts, tail) for facts in case.replicas for tail in facts.replica.state.zero_tails if tail.file_kind == "index")
    untrimmed = (
        facts.shown(tail.segment) for facts, tail in tails if _is_closed(facts, tail.segment) or facts.context.clean_shutdown
    )
    return next(untrimmed, False)


def _forgotten_transaction(case: PartitionEvidence) -> ConditionResult:
    """A transaction open in the newest snapshot although all of its records are before the log start."""
    for facts in case.replicas:
        if facts.forgotten_transactions:
            return facts.shown(min(facts.forgotten_transactions.values()), facts.replica.log_start_offset)
    return False


def _future_snapshot(case: PartitionEvidence) -> ConditionResult:
    """A snapshot with an offset at or beyond the one in its name."""
    for shown in case.of("PRODUCER_SNAPSHOT_CORRUPT"):
        written, offset = shown.evidence.get("snapshot"), shown.evidence.get("snapshot_offset")
        if isinstance(written, list) and isinstance(offset, int) and len(written) == 4 and max(written[2], written[3]) >= offset:
            return shown
    return False


def _zeros_for_a_coordinator(case: PartitionEvidence) -> ConditionResult:
    return next((finding for finding in case.of("SEG_ZERO_TAIL") if finding.place.topic in COORDINATOR_TOPICS), False)


def _largest_segment(case: PartitionEvidence) -> ConditionResult:
    """A segment whose size, plus the header bytes up to the magic byte, exceeds the largest int."""
    sizes = ((facts, segment, size) for facts in case.replicas for segment, size in facts.segment_bytes.items())
    smallest = MAX_SEGMENT_SIZE - HEADER_SIZE_UP_TO_MAGIC + 1
    return next((facts.shown(segment) for facts, segment, size in sizes if smallest <= size <= MAX_SEGMENT_SIZE), False)


def _offset_beyond_segment(case: PartitionEvidence) -> ConditionResult:
    """A segment whose last offset is further from its base offset than 31 bits reach."""
    for facts in case.replicas:
        for segment, totals in facts.replica.state.framing.by_segment.items():
            if totals.last_offset - segment > MAX_RELATIVE_OFFSET:
                return facts.shown(segment, totals.last_offset + 1)
    return False


def _cleaner_in_a_hole(case: PartitionEvidence) -> ConditionResult:
    """A cleaner checkpoint right after the last record of a closed segment, at offsets without records."""
    for facts in case.replicas:
        context, by_segment = facts.context, facts.replica.state.framing.by_segment
        for segment, next_segment in itertools.pairwise(context.segment_base_offsets if context.compacted else ()):
            last = by_segment[segment].last_offset if segment in by_segment else -1
            if last + 1 == context.cleaner_checkpoint and last + 1 < next_segment and last >= 0:
                return facts.shown(last + 1, next_segment)
    return False


def _two_directories(case: PartitionEvidence) -> ConditionResult:
    """Two live directories of the partition in two log directories of one broker, by their ids."""
    for facts, other in itertools.combinations(case.replicas, 2):
        same_broker = facts.node_id is not None and (facts.node_id, facts.cluster_id) == (other.node_id, other.cluster_id)
        directory_ids = {facts.directory_id, other.directory_id}
        if same_broker and None not in directory_ids and len(directory_ids) == 2:
            return other.shown()
    return False


def _misplaced(case: PartitionEvidence) -> ConditionResult:
    """A directory with the id of a topic that exists under another name."""
    return next((finding for finding in case.of("TOPIC_ID_MISMATCH") if finding.evidence.get("misplaced_on")), False)


def _metadata_missing(case: PartitionEvidence) -> ConditionResult:
    """A replica without partition.metadata on a broker in KRaft mode, where another replica has the file."""
    lacking = [facts for facts in case.replicas if not facts.has_partition_metadata and (facts.meta_version or 0) >= 1]
    others = any(facts.has_partition_metadata for facts in case.replicas)
    return lacking[0].shown() if lacking and others else False


def _same_damage_everywhere(case: PartitionEvidence) -> ConditionResult:
    """A batch with the same wrong checksum on every one of at least two replicas."""
    brokers: dict[tuple[object, ...], set[int | str | None]] = {}
    for finding in case.of("BATCH_CRC_MISMATCH"):
        key = (finding.place.offset_start, finding.evidence.get("stored_crc"), finding.evidence.get("computed_crc"))
        brokers.setdefault(key, set()).add(finding.place.broker)
        if None not in key and len(case.replicas) > 1 and brokers[key] == {facts.broker for facts in case.replicas}:
            return finding
    return False


def _values_differ_by(case: PartitionEvidence, *names: str) -> ConditionResult:
    """The first `COMPACTED_VALUE_DIFFERS` with a true value under one of these names."""
    findings = case.of("COMPACTED_VALUE_DIFFERS")
    return next((finding for finding in findings if any(finding.evidence.get(name) for name in names)), False)


def _cleaned_on_one(case: PartitionEvidence) -> ConditionResult:
    """Keys of one replica that a tombstone or marker, removed since, deleted on another (`compaction.REASONS`)."""
    return _values_differ_by(case, "vanished", "tombstones", "markers")


def _other_values(case: PartitionEvidence) -> ConditionResult:
    return _values_differ_by(case, "contents", "missing")


def _transactional(case: PartitionEvidence) -> ConditionResult:
    return _values_differ_by(case, "transactional")


def _repeated(case: PartitionEvidence) -> ConditionResult:
    """A batch whose records a producer wrote a second time with a higher epoch."""
    for facts in case.replicas:
        if facts.repeated_batches:
            return facts.shown(*reversed(facts.repeated_batches[0]))
    return False


def _not_listed(case: PartitionEvidence) -> ConditionResult:
    reasons = {finding.evidence.get("reason") for finding in case.of("TXN_HANGING")}
    return not reasons.isdisjoint(("partition_not_listed", "no_transactional_id"))


def _version_2(case: PartitionEvidence) -> ConditionResult:
    """Whether each transaction gets a new producer epoch. A feature without a record is disabled; None without features."""
    return case.features.get("transaction.version", 0) >= 2 if case.features else None


def _no_marker(case: PartitionEvidence) -> ConditionResult:
    """A decision that the coordinator has not completed for a long time because a marker is missing."""
    for finding in case.of("TXN_TORN"):
        if finding.evidence.get("reason") == "no_marker" and str(finding.evidence.get("coordinator_state")).startswith("Prepare"):
            return finding
    return False


def _torn(case: PartitionEvidence) -> ConditionResult:
    """A transaction whose markers contradict its decision or each other; a missing marker may be lost with the log's end."""
    torn = [finding for finding in case.of("TXN_TORN") if finding.evidence.get("reason") == "opposite_marker"]
    disagreeing = [finding for finding in case.of("TXN_MARKERS_DISAGREE") if finding.evidence.get("shown_as") == "aborted"]
    return next(iter([*torn, *disagreeing]), False)


SIGNATURES: Final = (
    *HISTORIES,
    IncidentSignature(
        "d7", None, "time index of zeros that makes every segment look expired", "2.x on file systems that lose mapped writes", ()
    ).shown_by(
        must("a closed segment's time index holds only zeros", _zeroed_time_index),
        extra("files are being deleted", any_replica(lambda facts: facts.deleted_files > 0)),
        extra("the log start moved", any_replica(lambda facts: (facts.context.log_start_checkpoint or 0) > 0)),
    ),
    IncidentSignature(
        "d10", "KAFKA-9144 with retention", "transaction that only a snapshot holds open", "all versions", ()
    ).shown_by(
        must("a snapshot holds a transaction open before the log start", _forgotten_transaction),
        against("the transaction is open in the log as well", has_finding("TXN_OPEN", "TXN_HANGING")),
    ),
    IncidentSignature("d13", "KAFKA-6683", "producer snapshot from the future", "0.11.0.0 to 1.0.1", ("1.0.2", "1.1.0")).shown_by(
        must("a snapshot has offsets at or above the offset in its name", _future_snapshot)
    ),
    IncidentSignature(
        "d17",
        "KAFKA-13664",
        "coordinator that cannot load a preallocated partition",
        "up to 4.3.1 at least, with log.preallocate",
        (),
    ).shown_by(
        must("a partition that coordinators load ends in zeros", _zeros_for_a_coordinator),
        expected("the broker was not stopped cleanly", replica_of(_zeros_for_a_coordinator, stopped_uncleanly)),
    ),
    IncidentSignature(
        "d18", "KAFKA-6292", "segment too large for the reader's arithmetic", "before 1.1.1", ("1.1.1", "2.0.0")
    ).shown_by(must("a segment ends within 17 bytes of 2 GiB", _largest_segment)),
    IncidentSignature(
        "d19", None, "offset index with preallocated zeros at its end", "any version after a crash; Kafka rebuilds the index", ()
    ).shown_by(
        must("an offset index that should be trimmed ends in zeros", _untrimmed_index),
        expected("the segment is good", lambda case: not case.of("FRAMING_LOST", "BATCH_CRC_MISMATCH", "SEG_HOLE")),
    ),
    IncidentSignature(
        "d20", "KAFKA-6264", "segment whose offsets pass 31 bits", "before 2.0.0, segments compacted by old versions", ("2.0.0",)
    ).shown_by(
        must("a segment holds offsets more than 2^31-1 above its base", _offset_beyond_segment),
        expected("the partition is compacted", any_replica(lambda facts: facts.context.compacted)),
    ),
    IncidentSignature("d21", "KAFKA-8764", "cleaner that cannot pass a hole", "before 2.4.1", ("2.4.1", "2.5.0")).shown_by(
        must("the cleaner stopped in a hole at a segment's end", _cleaner_in_a_hole)
    ),
    IncidentSignature(
        "d24", "KAFKA-14616", "topic deleted and created again while a broker was down", "before 3.7.0 in KRaft mode", ("3.7.0",)
    ).shown_by(
        must("replicas of one name have different topic ids", has_finding("TOPIC_ID_MISMATCH")),
        extra("a stray or deleted directory is left", any_replica(lambda facts: bool({"stray", "delete"} & set(facts.relatives)))),
        against("a directory has the name of another existing topic", _misplaced),
        explains=frozenset({"TOPIC_ID_MISMATCH", "TOPIC_UNKNOWN_TO_CONTROLLER"}),
    ),
    IncidentSignature(
        "d24", "KAFKA-16234", "replica created again in another log directory", "before 3.7.1 in KRaft mode", ("3.7.1", "3.8.0")
    ).shown_by(
        must("one broker has two live directories of the partition", _two_directories),
        expected("the broker is in KRaft mode", any_replica(lambda facts: (facts.meta_version or 0) >= 1)),
    ),
    IncidentSignature(
        "d24", "KAFKA-16814", "partition.metadata missing in KRaft mode", "before 3.7.1", ("3.7.1", "3.8.0")
    ).shown_by(
        must("partition.metadata is missing on one replica only", _metadata_missing),
        expected("the broker was not stopped cleanly", any_replica(stopped_uncleanly)),
    ),
    IncidentSignature(
        "d25", None, "batches that are bad in the same way on every replica", "0.10.2 on FreeBSD; unknown cause", ()
    ).shown_by(
        must("a batch is bad in the same way on every replica", _same_damage_everywhere),
        extra("the batch is in message format 0 or 1", all_replicas(ends_in_old_format)),
    ),
    IncidentSignature(
        "d14", "confluentinc/librdkafka#4953", "duplicates of an idempotent producer", "librdkafka, not known which", ()
    ).shown_by(
        must("a producer repeats a batch with a higher epoch, from sequence 0", _repeated),
        against("the log also misses or repeats sequences", has_finding("PRODUCER_SEQ_GAP", "DUPLICATE_BATCH")),
    ),
    IncidentSignature("d8", "Redpanda 2026-06-25", "compaction that ran ahead of replication", "3.9 to 4.2 at least", ()).shown_by(
        must("one replica has a key that a cleaner removed from another", _cleaned_on_one),
        must("the copies are from stopped brokers", all_replicas(lambda facts: facts.context.clean_shutdown)),
        must("no log ends in message format 0 or 1", all_replicas(lambda facts: not ends_in_old_format(facts))),
        against("other keys differ in other ways", _other_values),
        extra("transactional records are affected", _transactional),
        expected("no replica has been damaged", lambda case: not case.of("BATCH_CRC_MISMATCH", "FRAMING_LOST", "SEG_HOLE")),
    ),
    IncidentSignature(
        "d21", "KAFKA-4529", "tombstone removed too early", "0.10.0.0 to 0.10.1.0", ("0.10.1.1", "0.10.2.0")
    ).shown_by(
        must("one replica has a key that a cleaner removed from another", _cleaned_on_one),
        must("a log ends in message format 0 or 1", any_replica(ends_in_old_format)),
        against("other keys differ in other ways", _other_values),
    ),
    IncidentSignature(
        "d9", "KAFKA-14402", "hanging transaction, see KIP-890", "before 4.0, or without transaction version 2", ("4.0.0",)
    ).shown_by(
        must("a transaction is open that no coordinator will end", has_finding("TXN_HANGING")),
        expected("its coordinator does not know the partition", _not_listed),
        extra("records were written after the marker", has_finding("TXN_LATE_WRITE")),
        against("the cluster runs transaction version 2", _version_2),
        whole_scan=True,
        fix_rules_out=False,
        explains=frozenset({"TXN_HANGING", "TXN_LATE_WRITE"}),
    ),
    IncidentSignature("d9", "KAFKA-19999", "transaction whose marker is never accepted", "not known", ()).shown_by(
        must("the coordinator prepared an end, but the log has no marker", _no_marker), whole_scan=True, fix_rules_out=False
    ),
    IncidentSignature("d11", "KAFKA-9144", "coordinator epoch that goes backwards", "before 2.4.1", ("2.4.1", "2.5.0")).shown_by(
        must("a marker has a lower coordinator epoch than an earlier one", has_finding("TXN_COORDINATOR_EPOCH_REGRESSION")),
        extra("records were written after a marker", has_finding("TXN_LATE_WRITE")),
        explains=frozenset({"TXN_COORDINATOR_EPOCH_REGRESSION", "TXN_LATE_WRITE"}),
    ),
    IncidentSignature(
        "d12",
        "KAFKA-17754",
        "transaction ended by a delayed EndTxn request of another one",
        "before 4.0, or without transaction version 2",
        ("4.0.0",),
    ).shown_by(
        must("a transaction ended differently in its partitions", _torn),
        extra("records were written after a marker", has_finding("TXN_LATE_WRITE")),
        against("the cluster runs transaction version 2", _version_2),
        whole_scan=True,
        fix_rules_out=False,
        explains=frozenset({"TXN_TORN", "TXN_MARKERS_DISAGREE", "TXN_LATE_WRITE"}),
    ),
)
"""The signatures of all known incidents."""
