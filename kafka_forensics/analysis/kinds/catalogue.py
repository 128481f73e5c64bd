"""The catalogue of finding kinds: the one list of names, with a kind's usual severity and confidence."""

from typing import Final, NamedTuple

from kafka_forensics.analysis.kinds import evidence_classes as classes
from kafka_forensics.model.findings import Confidence, Evidence, Finding, Place, Severity


class Kind(NamedTuple):
    """Default severity and confidence of a finding kind, and the class that its evidence is of."""

    severity: Severity
    confidence: Confidence
    evidence: type[classes.LaterEvidence]


_CRITICAL, _ERROR, _WARNING, _INFO = Severity.CRITICAL, Severity.ERROR, Severity.WARNING, Severity.INFO
_PROVEN, _INFERRED, _SUSPECTED = Confidence.PROVEN, Confidence.INFERRED, Confidence.SUSPECTED

CATALOGUE: Final[dict[str, Kind]] = {
    # bytes of a segment
    "BATCH_CRC_MISMATCH": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "BATCH_MAGIC_UNKNOWN": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "BATCH_MAGIC_REGRESSION": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "BATCH_COUNT_LIE": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "BATCH_RANGE_INCONSISTENT": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "RECORD_VARINT_OVERLONG": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "RECORD_LENGTH_OUT_OF_BOUNDS": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "RECORD_MALFORMED": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "FRAMING_LOST": Kind(_ERROR, _PROVEN, classes.FramingEvidence),
    "HIDDEN_BYTES": Kind(_ERROR, _PROVEN, classes.HiddenBytesEvidence),
    "SEG_TORN_TAIL": Kind(_INFO, _PROVEN, classes.FramingEvidence),
    "SEG_SHORT": Kind(_ERROR, _PROVEN, classes.FramingEvidence),
    "SEG_ZERO_TAIL": Kind(_INFO, _PROVEN, classes.FramingEvidence),
    "SEG_HOLE": Kind(_ERROR, _PROVEN, classes.FramingEvidence),
    "SEG_NAME_MISMATCH": Kind(_ERROR, _PROVEN, classes.SegmentNameEvidence),
    "BUDGET_EXCEEDED": Kind(_WARNING, _PROVEN, classes.BudgetEvidence),
    # compression
    "DECOMP_LIMIT_EXCEEDED": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "CODEC_SIZE_LIE": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "CODEC_MALFORMED": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    "LEGACY_NESTED_COMPRESSION": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence),
    # offsets
    "OFFSET_GAP": Kind(_ERROR, _PROVEN, classes.OrderEvidence),
    "OFFSET_REGRESSION": Kind(_ERROR, _PROVEN, classes.OrderEvidence),
    "OFFSET_NON_MONOTONIC": Kind(_ERROR, _PROVEN, classes.OrderEvidence),
    "OFFSET_DISCONTINUITY": Kind(_ERROR, _PROVEN, classes.OrderEvidence),
    "SEGMENT_MISSING": Kind(_ERROR, _INFERRED, classes.SegmentMissingEvidence),
    "EPOCH_FIELD_MISMATCH": Kind(_ERROR, _INFERRED, classes.EpochFieldEvidence),
    # producers and transactions
    "DUPLICATE_BATCH": Kind(_ERROR, _PROVEN, classes.SequenceEvidence),
    "PRODUCER_SEQ_GAP": Kind(_WARNING, _INFERRED, classes.SequenceEvidence),
    "PRODUCER_SEQ_REGRESSION": Kind(_WARNING, _INFERRED, classes.SequenceEvidence),
    "PRODUCER_EPOCH_REGRESSION": Kind(_WARNING, _INFERRED, classes.SequenceEvidence),
    "TXN_OPEN": Kind(_INFO, _PROVEN, classes.OpenTransactionEvidence),
    "TXN_LATE_WRITE": Kind(_ERROR, _INFERRED, classes.LateWriteEvidence),
    "TXN_HANGING": Kind(_ERROR, _INFERRED, classes.OpenTransactionEvidence),
    "TXN_TORN": Kind(_CRITICAL, _INFERRED, classes.TransactionDecidedEvidence),
    "TXN_PARTLY_LOST": Kind(_CRITICAL, _INFERRED, classes.TransactionDecidedEvidence),
    "TXN_MARKERS_DISAGREE": Kind(_ERROR, _INFERRED, classes.MarkersDisagreeEvidence),
    "TXN_COORDINATOR_EPOCH_REGRESSION": Kind(_WARNING, _INFERRED, classes.CoordinatorEpochEvidence),
    # indexes, snapshots, checkpoints
    "INDEX_MISMATCH": Kind(_WARNING, _PROVEN, classes.IndexEvidence),
    "INDEX_MISSING": Kind(_INFO, _PROVEN, classes.IndexMissingEvidence),
    "TXNINDEX_MISSING_ABORT": Kind(_ERROR, _PROVEN, classes.TransactionIndexEvidence),
    "TXNINDEX_PHANTOM_ABORT": Kind(_ERROR, _PROVEN, classes.TransactionIndexEvidence),
    "PRODUCER_SNAPSHOT_CORRUPT": Kind(_WARNING, _PROVEN, classes.ProducerSnapshotEvidence),
    "PRODUCER_SNAPSHOT_MISSING": Kind(_INFO, _INFERRED, classes.CountEvidence),
    "EPOCH_CACHE_MISMATCH": Kind(_ERROR, _PROVEN, classes.EpochCacheEvidence),
    "HW_BEYOND_LEO": Kind(_CRITICAL, _INFERRED, classes.WatermarkBeyondLogEvidence),
    "HW_UNKNOWN": Kind(_INFO, _PROVEN, classes.WatermarkUnknownEvidence),
    "CHECKPOINT_OUT_OF_ORDER": Kind(_WARNING, _PROVEN, classes.CheckpointOrderEvidence),
    "CHECKPOINT_MALFORMED": Kind(_ERROR, _PROVEN, classes.CheckpointEvidence),
    # replicas
    "REPLICA_DIFFERS": Kind(_ERROR, _PROVEN, classes.DiffersEvidence),
    "REPLICA_LAGS": Kind(_INFO, _PROVEN, classes.LagsEvidence),
    "BATCHES_REENCODED": Kind(_INFO, _PROVEN, classes.ReencodedEvidence),
    "SAME_EPOCH_DIVERGENCE": Kind(_CRITICAL, _PROVEN, classes.ForkEvidence),
    "FORK_ABOVE_HW": Kind(_INFO, _PROVEN, classes.ForkEvidence),
    "FORK_BELOW_HW": Kind(_CRITICAL, _PROVEN, classes.ForkEvidence),
    "UNCLEAN_LOSS": Kind(_CRITICAL, _PROVEN, classes.ForkEvidence),
    "COMMITTED_LOST_EVERYWHERE": Kind(_CRITICAL, _PROVEN, classes.LostEverywhereEvidence),
    "COMPACTED_VALUE_DIFFERS": Kind(_CRITICAL, _PROVEN, classes.CompactedDiffersEvidence),
    "COMPACTION_SKEW": Kind(_INFO, _INFERRED, classes.CompactionSkewEvidence),
    "CLEANER_STOPPED": Kind(_WARNING, _SUSPECTED, classes.CleanerStoppedEvidence),
    "TOPIC_ID_MISMATCH": Kind(_ERROR, _PROVEN, classes.TopicsEvidence),
    "TOPIC_ID_MISSING": Kind(_ERROR, _PROVEN, classes.TopicIdMissingEvidence),
    "CLUSTER_ID_MISMATCH": Kind(_ERROR, _PROVEN, classes.ClustersEvidence),
    "NODE_ID_CLASH": Kind(_ERROR, _PROVEN, classes.NodeClashEvidence),
    "NODE_ID_MISMATCH": Kind(_WARNING, _PROVEN, classes.NodeMismatchEvidence),
    "REPLICA_MISSING": Kind(_WARNING, _INFERRED, classes.ReplicaMissingEvidence),
    "REPLICA_NOT_GIVEN": Kind(_INFO, _PROVEN, classes.ReplicaNotGivenEvidence),
    "PARTIAL_COPY": Kind(_INFO, _INFERRED, classes.PartialCopyEvidence),
    "LOG_DIR_WIPED": Kind(_WARNING, _INFERRED, classes.WipedEvidence),
    "EMPTY_REPLICA_MAY_LEAD": Kind(_CRITICAL, _SUSPECTED, classes.AtRiskEvidence),
    "ALL_LOGS_EMPTY": Kind(_INFO, _SUSPECTED, classes.AllEmptyEvidence),
    "LOG_HEAD_MISSING": Kind(_ERROR, _INFERRED, classes.HeadMissingEvidence),
    "READERS_HELD_BACK": Kind(_INFO, _INFERRED, classes.HeldBackEvidence),
    # elections and settings, by the controller's log
    "UNCLEAN_ELECTION": Kind(_INFO, _PROVEN, classes.UncleanElectionEvidence),
    "ISR_MEMBER_MISSING_COMMITTED": Kind(_CRITICAL, _INFERRED, classes.AtRiskEvidence),
    "LRS_RISK": Kind(_CRITICAL, _INFERRED, classes.AtRiskEvidence),
    "LRS_LOSS": Kind(_CRITICAL, _INFERRED, classes.LossByElectionEvidence),
    "RISKY_CONFIG": Kind(_INFO, _PROVEN, classes.RiskyConfigEvidence),
    "TIERED_TOPICS": Kind(_INFO, _INFERRED, classes.TieredEvidence),
    "TOPIC_UNKNOWN_TO_CONTROLLER": Kind(_ERROR, _INFERRED, classes.TopicUnknownEvidence),
    "QUORUM_WOULD_TRUNCATE": Kind(_CRITICAL, _INFERRED, classes.QuorumEvidence),
    # internal topics
    "METADATA_RECORD_MALFORMED": Kind(_ERROR, _PROVEN, classes.MetadataMalformedEvidence),
    "METADATA_RECORD_REJECTED": Kind(_ERROR, _PROVEN, classes.MetadataRejectedEvidence),
    "METADATA_RECORD_UNKNOWN": Kind(_INFO, _PROVEN, classes.MetadataUnknownEvidence),
    "COORDINATOR_STATE_MISPLACED": Kind(_ERROR, _PROVEN, classes.MisplacedStateEvidence),
    "GROUP_OFFSET_BEYOND_LOG": Kind(_CRITICAL, _PROVEN, classes.GroupOffsetEvidence),
    # environment
    "INCONSISTENT_CUT": Kind(_INFO, _INFERRED, classes.InconsistentCutEvidence),
    "EVIDENCE_CHANGED": Kind(_ERROR, _PROVEN, classes.ChangedEvidence),
    "NON_REGULAR_SKIPPED": Kind(_INFO, _PROVEN, classes.IrregularEvidence),
    "SPARSE_FILE": Kind(_INFO, _PROVEN, classes.SparseEvidence),
    "DIR_NAME_ILLEGAL": Kind(_WARNING, _PROVEN, classes.DirectoryNameEvidence),
    "INTERRUPTED_SWAP": Kind(_WARNING, _INFERRED, classes.SwapEvidence),
    "RECOVERY_WOULD_TRUNCATE": Kind(_WARNING, _INFERRED, classes.RecoveryEvidence),
    "LEFTOVER_HOLDS_DATA": Kind(_INFO, _PROVEN, classes.LeftoverEvidence),
    "FILE_UNKNOWN": Kind(_INFO, _PROVEN, classes.FilesUnknownEvidence),
    # topics
    "KEY_PLACEMENT": Kind(_INFO, _INFERRED, classes.KeyPlacementEvidence),
    # between snapshots
    "COMMITTED_TRUNCATED_SINCE": Kind(_CRITICAL, _PROVEN, classes.TruncatedSinceEvidence),
    "KEYS_LOST_SINCE": Kind(_CRITICAL, _INFERRED, classes.KeysLostEvidence),
    # known incidents
    "INCIDENT_SIGNATURE": Kind(_INFO, _SUSPECTED, classes.IncidentEvidence),
}


def finding(
    kind: str,
    place: Place,
    evidence: Evidence | None = None,
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
    return subject.with_evidence(premises=[*subject.evidence.get("premises", ()), *premises])
