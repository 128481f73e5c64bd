"""The catalogue of finding kinds: the one list of names, with a kind's usual severity and confidence."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

from kafka_forensics.model.findings import Confidence, Finding, Place, Severity


class Kind(NamedTuple):
    """Default severity and confidence of a finding kind."""

    severity: Severity
    confidence: Confidence


_CRITICAL, _ERROR, _WARNING, _INFO = Severity.CRITICAL, Severity.ERROR, Severity.WARNING, Severity.INFO
_PROVEN, _INFERRED, _SUSPECTED = Confidence.PROVEN, Confidence.INFERRED, Confidence.SUSPECTED

CATALOGUE: Final[dict[str, Kind]] = {
    # bytes of a segment
    "BATCH_CRC_MISMATCH": Kind(_ERROR, _PROVEN),
    "BATCH_MAGIC_UNKNOWN": Kind(_ERROR, _PROVEN),
    "BATCH_MAGIC_REGRESSION": Kind(_ERROR, _PROVEN),
    "BATCH_COUNT_LIE": Kind(_ERROR, _PROVEN),
    "BATCH_RANGE_INCONSISTENT": Kind(_ERROR, _PROVEN),
    "RECORD_VARINT_OVERLONG": Kind(_ERROR, _PROVEN),
    "RECORD_LENGTH_OUT_OF_BOUNDS": Kind(_ERROR, _PROVEN),
    "RECORD_MALFORMED": Kind(_ERROR, _PROVEN),
    "FRAMING_LOST": Kind(_ERROR, _PROVEN),
    "HIDDEN_BYTES": Kind(_ERROR, _PROVEN),
    "SEG_TORN_TAIL": Kind(_INFO, _PROVEN),
    "SEG_SHORT": Kind(_ERROR, _PROVEN),
    "SEG_ZERO_TAIL": Kind(_INFO, _PROVEN),
    "SEG_HOLE": Kind(_ERROR, _PROVEN),
    "SEG_NAME_MISMATCH": Kind(_ERROR, _PROVEN),
    "BUDGET_EXCEEDED": Kind(_WARNING, _PROVEN),
    # compression
    "DECOMP_LIMIT_EXCEEDED": Kind(_ERROR, _PROVEN),
    "CODEC_SIZE_LIE": Kind(_ERROR, _PROVEN),
    "CODEC_MALFORMED": Kind(_ERROR, _PROVEN),
    "LEGACY_NESTED_COMPRESSION": Kind(_ERROR, _PROVEN),
    # offsets
    "OFFSET_GAP": Kind(_ERROR, _PROVEN),
    "OFFSET_REGRESSION": Kind(_ERROR, _PROVEN),
    "OFFSET_NON_MONOTONIC": Kind(_ERROR, _PROVEN),
    "OFFSET_DISCONTINUITY": Kind(_ERROR, _PROVEN),
    "SEGMENT_MISSING": Kind(_ERROR, _INFERRED),
    "EPOCH_FIELD_MISMATCH": Kind(_ERROR, _INFERRED),
    # producers and transactions
    "DUPLICATE_BATCH": Kind(_ERROR, _PROVEN),
    "PRODUCER_SEQ_GAP": Kind(_WARNING, _INFERRED),
    "PRODUCER_SEQ_REGRESSION": Kind(_WARNING, _INFERRED),
    "PRODUCER_EPOCH_REGRESSION": Kind(_WARNING, _INFERRED),
    "TXN_OPEN": Kind(_INFO, _PROVEN),
    "TXN_LATE_WRITE": Kind(_ERROR, _INFERRED),
    "TXN_HANGING": Kind(_ERROR, _INFERRED),
    "TXN_TORN": Kind(_CRITICAL, _INFERRED),
    "TXN_PARTLY_LOST": Kind(_CRITICAL, _INFERRED),
    "TXN_MARKERS_DISAGREE": Kind(_ERROR, _INFERRED),
    "TXN_COORDINATOR_EPOCH_REGRESSION": Kind(_WARNING, _INFERRED),
    # indexes, snapshots, checkpoints
    "INDEX_MISMATCH": Kind(_WARNING, _PROVEN),
    "INDEX_MISSING": Kind(_INFO, _PROVEN),
    "TXNINDEX_MISSING_ABORT": Kind(_ERROR, _PROVEN),
    "TXNINDEX_PHANTOM_ABORT": Kind(_ERROR, _PROVEN),
    "PRODUCER_SNAPSHOT_CORRUPT": Kind(_WARNING, _PROVEN),
    "PRODUCER_SNAPSHOT_MISSING": Kind(_INFO, _INFERRED),
    "EPOCH_CACHE_MISMATCH": Kind(_ERROR, _PROVEN),
    "HW_BEYOND_LEO": Kind(_CRITICAL, _INFERRED),
    "HW_UNKNOWN": Kind(_INFO, _PROVEN),
    "CHECKPOINT_OUT_OF_ORDER": Kind(_WARNING, _PROVEN),
    "CHECKPOINT_MALFORMED": Kind(_WARNING, _PROVEN),
    # replicas
    "REPLICA_DIFFERS": Kind(_ERROR, _PROVEN),
    "REPLICA_LAGS": Kind(_INFO, _PROVEN),
    "BATCHES_REENCODED": Kind(_INFO, _PROVEN),
    "SAME_EPOCH_DIVERGENCE": Kind(_CRITICAL, _PROVEN),
    "FORK_ABOVE_HW": Kind(_INFO, _PROVEN),
    "FORK_BELOW_HW": Kind(_CRITICAL, _PROVEN),
    "UNCLEAN_LOSS": Kind(_CRITICAL, _PROVEN),
    "COMMITTED_LOST_EVERYWHERE": Kind(_CRITICAL, _PROVEN),
    "COMPACTED_VALUE_DIFFERS": Kind(_CRITICAL, _PROVEN),
    "COMPACTION_SKEW": Kind(_INFO, _INFERRED),
    "TOPIC_ID_MISMATCH": Kind(_ERROR, _PROVEN),
    "CLUSTER_ID_MISMATCH": Kind(_ERROR, _PROVEN),
    "NODE_ID_CLASH": Kind(_ERROR, _PROVEN),
    "NODE_ID_MISMATCH": Kind(_WARNING, _PROVEN),
    "REPLICA_MISSING": Kind(_WARNING, _INFERRED),
    "REPLICA_NOT_GIVEN": Kind(_INFO, _PROVEN),
    "PARTIAL_COPY": Kind(_INFO, _INFERRED),
    "LOG_DIR_WIPED": Kind(_WARNING, _INFERRED),
    "EMPTY_REPLICA_MAY_LEAD": Kind(_CRITICAL, _SUSPECTED),
    "ALL_LOGS_EMPTY": Kind(_INFO, _SUSPECTED),
    "LOG_HEAD_MISSING": Kind(_ERROR, _INFERRED),
    "READERS_HELD_BACK": Kind(_INFO, _INFERRED),
    # elections and settings, by the controller's log
    "UNCLEAN_ELECTION": Kind(_INFO, _PROVEN),
    "ISR_MEMBER_MISSING_COMMITTED": Kind(_CRITICAL, _INFERRED),
    "LRS_RISK": Kind(_CRITICAL, _INFERRED),
    "LRS_LOSS": Kind(_CRITICAL, _INFERRED),
    "RISKY_CONFIG": Kind(_INFO, _PROVEN),
    "TOPIC_UNKNOWN_TO_CONTROLLER": Kind(_ERROR, _INFERRED),
    "CONTROLLER_LOG_OLD": Kind(_ERROR, _INFERRED),
    # internal topics
    "METADATA_RECORD_MALFORMED": Kind(_ERROR, _PROVEN),
    "METADATA_RECORD_UNKNOWN": Kind(_INFO, _PROVEN),
    "GROUP_OFFSET_BEYOND_LOG": Kind(_CRITICAL, _PROVEN),
    # environment
    "INCONSISTENT_CUT": Kind(_INFO, _INFERRED),
    "EVIDENCE_CHANGED": Kind(_ERROR, _PROVEN),
    "NON_REGULAR_SKIPPED": Kind(_INFO, _PROVEN),
    "SPARSE_FILE": Kind(_INFO, _PROVEN),
    "DIR_NAME_ILLEGAL": Kind(_WARNING, _PROVEN),
    "INTERRUPTED_SWAP": Kind(_WARNING, _INFERRED),
    "RECOVERY_WOULD_TRUNCATE": Kind(_WARNING, _INFERRED),
    "LEFTOVER_HOLDS_DATA": Kind(_INFO, _PROVEN),
    "FILE_UNKNOWN": Kind(_INFO, _PROVEN),
    # topics
    "KEY_PLACEMENT": Kind(_INFO, _INFERRED),
    # between snapshots
    "COMMITTED_TRUNCATED_SINCE": Kind(_CRITICAL, _PROVEN),
    "KEYS_LOST_SINCE": Kind(_CRITICAL, _INFERRED),
    # known incidents
    "INCIDENT_SIGNATURE": Kind(_INFO, _SUSPECTED),
}


def finding(
    kind: str,
    place: Place,
    evidence: dict[str, Any] | None = None,
    *,
    severity: Severity | None = None,
    confidence: Confidence | None = None,
) -> Finding:
    """A finding of `kind`, with the catalogue's severity and confidence unless a rule gives others."""
    default = CATALOGUE[kind]
    return Finding(kind, severity or default.severity, confidence or default.confidence, place, evidence or {})


def on_premises(subject: Finding, premises: list[str]) -> Finding:
    """The finding with more premises behind its own; as it is without any."""
    if not premises:
        return subject
    return replace(subject, evidence=subject.evidence | {"premises": [*subject.evidence.get("premises", ()), *premises]})
