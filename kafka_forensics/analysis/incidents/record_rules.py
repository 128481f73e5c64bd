"""Signatures of incidents that only records show: what was written twice, what a cleaner took from one replica alone."""

from typing import Final

from kafka_forensics.analysis.incidents.replication_rules import each, has, some, without_epochs
from kafka_forensics.analysis.incidents.signatures import Answer, Case, Signature, against, expected, extra, must
from kafka_forensics.model.findings import Finding

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
    ),
)
