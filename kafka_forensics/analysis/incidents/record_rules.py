"""Signatures of incidents that only records show: what was written twice, what a cleaner took from one replica alone."""

from typing import Final

from kafka_forensics.analysis.incidents.replication_rules import each, has, some, without_epochs
from kafka_forensics.analysis.incidents.signatures import Answer, Case, Signature, against, expected, extra, must

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
