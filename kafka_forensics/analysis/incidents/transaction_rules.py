"""Signatures of transactions that do not end as they should, in one partition or over several."""

from typing import Final

from kafka_forensics.analysis.incidents.replication_rules import has
from kafka_forensics.analysis.incidents.signatures import Answer, Case, Signature, against, expected, extra, must
from kafka_forensics.model.findings import Finding

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
