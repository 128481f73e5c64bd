"""The catalogue of finding kinds: the only list of their names, with all that other code needs to know about them."""

from functools import cache
from typing import Final, NamedTuple

from kafka_forensics.analysis.kinds import evidence_classes as classes
from kafka_forensics.analysis.kinds.traits import Trait
from kafka_forensics.model.findings import Confidence, Evidence, Finding, Place, Severity
from kafka_forensics.model.incidents import Cause


class Kind(NamedTuple):
    """The properties of the findings of a kind."""

    severity: Severity
    """The default; a rule may set another."""
    confidence: Confidence
    """The default; a rule may set another."""
    evidence: type[classes.LaterEvidence]
    cause: Cause
    """The cause of its findings, unless they are consequences of others."""
    traits: tuple[Trait, ...] = ()


_CRITICAL, _ERROR, _WARNING, _INFO = Severity.CRITICAL, Severity.ERROR, Severity.WARNING, Severity.INFO
_PROVEN, _INFERRED, _SUSPECTED = Confidence.PROVEN, Confidence.INFERRED, Confidence.SUSPECTED
T: Final = Trait
"""An alias that keeps rows within a line."""

# traits that several kinds share
_LOST_FRAMES: Final = (
    T.WRONG_BYTES,
    T.HIDES_OFFSETS,
    T.RECORDS_IN_DOUBT,
    T.STOPS_READERS,
    T.CUT_AFTER_CRASH,
    T.CONTENT_IS_LOST,
    T.LEFTOVERS_MAY_FILL,
)
_MISSING: Final = (T.LACKS_OFFSETS, T.CONTENT_IS_LOST, T.LEFTOVERS_MAY_FILL, T.MAY_BE_OF_MOMENTS)
_SHORT_MEMBER: Final = (T.ELECTION_MAY_LOSE, T.COMMITTED_AT_RISK, T.MAY_BE_OF_MOMENTS, T.HARMLESS_IF_LIVE)
_AT_RISK: Final = (T.COMMITTED_AT_RISK, T.MAY_BE_OF_MOMENTS, T.HARMLESS_IF_LIVE)
_LOST_EVERYWHERE: Final = (T.LOST_COMMITTED, T.ABSENT_OFFSETS, T.OFFSETS_WERE_THERE, T.CONTRADICTS_WITNESS, T.MAY_BE_OF_MOMENTS)
_ELECTION_LOSS: Final = (T.LOST_BY_ELECTION, T.LOST_COMMITTED, T.AFFECTS_ELECTIONS)
_FORK: Final = (T.PARTS_REPLICAS, T.IS_FORK, T.AFFECTS_ELECTIONS)
_WRONG_BATCH: Final = (T.WRONG_BYTES, T.CHECKSUM_MAY_BE_RIGHT)
_BUILT_FILE: Final = (T.SALVAGE_BUILDS_FILE, T.MAY_BE_OF_MOMENTS)
_CHECKPOINT: Final = (*_BUILT_FILE, T.CHECKPOINT_BEYOND_LOG, T.HARMLESS_IF_LIVE)
_OPEN_TRANSACTION: Final = (T.OPEN_TRANSACTION, T.ONE_TRANSACTION)
_LIVE_TAIL: Final = (T.MAY_BE_OF_MOMENTS, T.HARMLESS_IF_LIVE)

CATALOGUE: Final[dict[str, Kind]] = {
    # bytes of a segment
    "BATCH_CRC_MISMATCH": Kind(
        _ERROR,
        _PROVEN,
        classes.BatchDamageEvidence,
        Cause.DAMAGED_LOG,
        (T.WRONG_BYTES, T.RECORDS_IN_DOUBT, T.RECORDS_READ_ANYWAY, T.CUT_AFTER_CRASH, T.REPAIRED_BY_COPY, T.AFFECTS_ELECTIONS),
    ),
    "BATCH_MAGIC_UNKNOWN": Kind(
        _ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, (*_WRONG_BATCH, T.CUT_AFTER_CRASH)
    ),
    "BATCH_MAGIC_REGRESSION": Kind(
        _ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, (*_WRONG_BATCH, T.CUT_AFTER_CRASH)
    ),
    "BATCH_COUNT_LIE": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, (*_WRONG_BATCH, T.HEADER_MISCOUNTS)),
    "BATCH_RANGE_INCONSISTENT": Kind(
        _ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, (*_WRONG_BATCH, T.HEADER_MISCOUNTS)
    ),
    "RECORD_VARINT_OVERLONG": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, _WRONG_BATCH),
    "RECORD_LENGTH_OUT_OF_BOUNDS": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, _WRONG_BATCH),
    "RECORD_MALFORMED": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, _WRONG_BATCH),
    "FRAMING_LOST": Kind(
        _ERROR, _PROVEN, classes.FramingEvidence, Cause.DAMAGED_LOG, (*_LOST_FRAMES, T.AFFECTS_ELECTIONS, T.MAY_BE_OF_MOMENTS)
    ),
    "HIDDEN_BYTES": Kind(
        _ERROR, _PROVEN, classes.HiddenBytesEvidence, Cause.DAMAGED_LOG, (T.WRONG_BYTES, T.CONTENT_IS_LOST, T.PREVENTS_SALVAGE)
    ),
    "SEG_TORN_TAIL": Kind(
        _INFO, _PROVEN, classes.FramingEvidence, Cause.UNCLEAN_SHUTDOWN, (T.RECORDS_IN_DOUBT, T.IS_TAIL, T.HARMLESS_IF_LIVE)
    ),
    "SEG_SHORT": Kind(
        _ERROR,
        _PROVEN,
        classes.FramingEvidence,
        Cause.DAMAGED_LOG,
        (T.WRONG_BYTES, T.REPAIRED_BY_COPY, T.LEFTOVERS_MAY_FILL, T.PREVENTS_SALVAGE),
    ),
    "SEG_ZERO_TAIL": Kind(
        _INFO, _PROVEN, classes.FramingEvidence, Cause.UNCLEAN_SHUTDOWN, (T.IS_TAIL, T.RECORDS_READ_ANYWAY, T.HARMLESS_IF_LIVE)
    ),
    "SEG_HOLE": Kind(_ERROR, _PROVEN, classes.FramingEvidence, Cause.DAMAGED_LOG, _LOST_FRAMES),
    "SEG_NAME_MISMATCH": Kind(_ERROR, _PROVEN, classes.SegmentNameEvidence, Cause.DAMAGED_LOG, (T.PREVENTS_SALVAGE,)),
    "BUDGET_EXCEEDED": Kind(
        _WARNING, _PROVEN, classes.BudgetEvidence, Cause.UNREADABLE_RECORDS, (T.HIDES_OFFSETS, T.RECORDS_IN_DOUBT)
    ),
    # compression
    "DECOMP_LIMIT_EXCEEDED": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, (T.WRONG_BYTES,)),
    "CODEC_SIZE_LIE": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, (T.WRONG_BYTES,)),
    "CODEC_MALFORMED": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG, (T.WRONG_BYTES,)),
    "LEGACY_NESTED_COMPRESSION": Kind(_ERROR, _PROVEN, classes.BatchDamageEvidence, Cause.DAMAGED_LOG),
    # offsets
    "OFFSET_GAP": Kind(_ERROR, _PROVEN, classes.OrderEvidence, Cause.DAMAGED_LOG, (*_MISSING, T.CRITICAL_BELOW_HW)),
    "OFFSET_REGRESSION": Kind(_ERROR, _PROVEN, classes.OrderEvidence, Cause.DAMAGED_LOG, (T.CUT_AFTER_CRASH, T.OUT_OF_ORDER)),
    "OFFSET_NON_MONOTONIC": Kind(_ERROR, _PROVEN, classes.OrderEvidence, Cause.DAMAGED_LOG, (T.OUT_OF_ORDER,)),
    "OFFSET_DISCONTINUITY": Kind(
        _ERROR, _PROVEN, classes.OrderEvidence, Cause.DAMAGED_LOG, (T.CUT_AFTER_CRASH, T.OUT_OF_ORDER, T.CRITICAL_BELOW_HW)
    ),
    "SEGMENT_MISSING": Kind(
        _ERROR,
        _INFERRED,
        classes.SegmentMissingEvidence,
        Cause.DAMAGED_LOG,
        (*_MISSING, T.OFFSETS_WERE_THERE, T.LACKS_LOG_START, T.CONTRADICTS_WITNESS),
    ),
    "EPOCH_FIELD_MISMATCH": Kind(
        _ERROR,
        _INFERRED,
        classes.EpochFieldEvidence,
        Cause.DAMAGED_LOG,
        (T.CHECKSUM_MAY_BE_RIGHT, T.EPOCH_IN_DOUBT, T.CONCERNS_EPOCHS, T.PREVENTS_SALVAGE, T.CONTRADICTS_WITNESS),
    ),
    # producers and transactions
    "DUPLICATE_BATCH": Kind(_ERROR, _PROVEN, classes.SequenceEvidence, Cause.PRODUCER_SEQUENCE),
    "PRODUCER_SEQ_GAP": Kind(_WARNING, _INFERRED, classes.SequenceEvidence, Cause.PRODUCER_SEQUENCE, (T.MAY_BE_OF_MOMENTS,)),
    "PRODUCER_SEQ_REGRESSION": Kind(_WARNING, _INFERRED, classes.SequenceEvidence, Cause.PRODUCER_SEQUENCE),
    "PRODUCER_EPOCH_REGRESSION": Kind(_WARNING, _INFERRED, classes.SequenceEvidence, Cause.PRODUCER_SEQUENCE),
    "TXN_OPEN": Kind(_INFO, _PROVEN, classes.OpenTransactionEvidence, Cause.HANGING_TRANSACTION, _OPEN_TRANSACTION),
    "TXN_LATE_WRITE": Kind(_ERROR, _INFERRED, classes.LateWriteEvidence, Cause.HANGING_TRANSACTION, (T.FOLLOWS_TRANSACTION,)),
    "TXN_HANGING": Kind(
        _ERROR, _INFERRED, classes.OpenTransactionEvidence, Cause.HANGING_TRANSACTION, (*_OPEN_TRANSACTION, T.MAY_BE_OF_MOMENTS)
    ),
    "TXN_TORN": Kind(
        _CRITICAL, _INFERRED, classes.TransactionDecidedEvidence, Cause.TORN_TRANSACTION, (T.ONE_TRANSACTION, T.MAY_BE_OF_MOMENTS)
    ),
    "TXN_PARTLY_LOST": Kind(
        _CRITICAL,
        _INFERRED,
        classes.TransactionDecidedEvidence,
        Cause.TORN_TRANSACTION,
        (T.COMMITTED_AT_RISK, T.ONE_TRANSACTION, T.MAY_BE_OF_MOMENTS),
    ),
    "TXN_MARKERS_DISAGREE": Kind(
        _ERROR, _INFERRED, classes.MarkersDisagreeEvidence, Cause.TORN_TRANSACTION, (T.MAY_BE_OF_MOMENTS,)
    ),
    "TXN_COORDINATOR_EPOCH_REGRESSION": Kind(
        _WARNING, _INFERRED, classes.CoordinatorEpochEvidence, Cause.HANGING_TRANSACTION, (T.FOLLOWS_TRANSACTION,)
    ),
    # indexes, snapshots, checkpoints
    "INDEX_MISMATCH": Kind(_WARNING, _PROVEN, classes.IndexEvidence, Cause.DAMAGED_FILES, (*_BUILT_FILE, T.RECORDS_READ_ANYWAY)),
    "INDEX_MISSING": Kind(_INFO, _PROVEN, classes.IndexMissingEvidence, Cause.DAMAGED_FILES),
    "TXNINDEX_MISSING_ABORT": Kind(_ERROR, _PROVEN, classes.TransactionIndexEvidence, Cause.DAMAGED_FILES, _BUILT_FILE),
    "TXNINDEX_PHANTOM_ABORT": Kind(_ERROR, _PROVEN, classes.TransactionIndexEvidence, Cause.DAMAGED_FILES, _BUILT_FILE),
    "PRODUCER_SNAPSHOT_CORRUPT": Kind(_WARNING, _PROVEN, classes.ProducerSnapshotEvidence, Cause.DAMAGED_FILES, _BUILT_FILE),
    "PRODUCER_SNAPSHOT_MISSING": Kind(_INFO, _INFERRED, classes.CountEvidence, Cause.DAMAGED_FILES),
    "EPOCH_CACHE_MISMATCH": Kind(
        _ERROR,
        _PROVEN,
        classes.EpochCacheEvidence,
        Cause.DAMAGED_FILES,
        (T.CONCERNS_EPOCHS, T.PREVENTS_SALVAGE, T.CONTRADICTS_WITNESS, T.MAY_BE_OF_MOMENTS),
    ),
    "HW_BEYOND_LEO": Kind(
        _CRITICAL,
        _INFERRED,
        classes.WatermarkBeyondLogEvidence,
        Cause.SHORT_REPLICA,
        (*_CHECKPOINT, T.OFFSETS_WERE_THERE, T.CONTENT_IS_LOST, T.LEFTOVERS_MAY_FILL, T.CONTRADICTS_WITNESS),
    ),
    "HW_UNKNOWN": Kind(_INFO, _PROVEN, classes.WatermarkUnknownEvidence, Cause.READERS_HELD_BACK, (T.AFFECTS_ALL_PARTITIONS,)),
    "CHECKPOINT_OUT_OF_ORDER": Kind(_WARNING, _PROVEN, classes.CheckpointOrderEvidence, Cause.SHORT_REPLICA, _CHECKPOINT),
    "CHECKPOINT_MALFORMED": Kind(
        _ERROR,
        _PROVEN,
        classes.CheckpointEvidence,
        Cause.DAMAGED_FILES,
        (*_BUILT_FILE, T.CONCERNS_EPOCHS, T.AFFECTS_ALL_PARTITIONS),
    ),
    # replicas
    "REPLICA_DIFFERS": Kind(_ERROR, _PROVEN, classes.DiffersEvidence, Cause.REPLICAS_DIVERGE, (T.EPOCH_IN_DOUBT, T.PARTS_REPLICAS)),
    "REPLICA_LAGS": Kind(_INFO, _PROVEN, classes.LagsEvidence, Cause.SHORT_REPLICA, (T.HARMLESS_DIFFERENCE, T.HARMLESS_IF_LIVE)),
    "BATCHES_REENCODED": Kind(_INFO, _PROVEN, classes.ReencodedEvidence, Cause.OLDER_FORMAT, (T.HARMLESS_DIFFERENCE,)),
    "SAME_EPOCH_DIVERGENCE": Kind(
        _CRITICAL,
        _PROVEN,
        classes.ForkEvidence,
        Cause.REPLICAS_DIVERGE,
        (T.PARTS_REPLICAS, T.COMMITTED_AT_RISK, T.CONTRADICTS_WITNESS),
    ),
    "FORK_ABOVE_HW": Kind(_INFO, _PROVEN, classes.ForkEvidence, Cause.REPLICAS_DIVERGE, _FORK),
    "FORK_BELOW_HW": Kind(
        _CRITICAL, _PROVEN, classes.ForkEvidence, Cause.REPLICAS_DIVERGE, (*_FORK, T.NAMES_ONE_VERSION, T.COMMITTED_AT_RISK)
    ),
    "UNCLEAN_LOSS": Kind(
        _CRITICAL, _PROVEN, classes.ForkEvidence, Cause.REPLICAS_DIVERGE, (*_ELECTION_LOSS, T.PARTS_REPLICAS, T.NAMES_ONE_VERSION)
    ),
    "COMMITTED_LOST_EVERYWHERE": Kind(
        _CRITICAL, _PROVEN, classes.LostEverywhereEvidence, Cause.COMMITTED_LOST, (*_LOST_EVERYWHERE, T.LEFTOVERS_MAY_FILL)
    ),
    "COMPACTED_VALUE_DIFFERS": Kind(
        _CRITICAL, _PROVEN, classes.CompactedDiffersEvidence, Cause.REPLICAS_DIVERGE, (T.PARTS_REPLICAS, T.MAY_BE_OF_MOMENTS)
    ),
    "COMPACTION_SKEW": Kind(_INFO, _INFERRED, classes.CompactionSkewEvidence, Cause.REPLICAS_DIVERGE),
    "CLEANER_STOPPED": Kind(_WARNING, _SUSPECTED, classes.CleanerStoppedEvidence, Cause.CLEANER_STOPPED),
    "TOPIC_ID_MISMATCH": Kind(_ERROR, _PROVEN, classes.TopicsEvidence, Cause.TOPIC_RECREATED, (T.CONTRADICTS_WITNESS,)),
    "TOPIC_ID_MISSING": Kind(
        _ERROR, _PROVEN, classes.TopicIdMissingEvidence, Cause.DAMAGED_FILES, (T.AFFECTS_ELECTIONS, T.HARMLESS_IF_LIVE)
    ),
    "CLUSTER_ID_MISMATCH": Kind(_ERROR, _PROVEN, classes.ClustersEvidence, Cause.MIXED_COPIES, (T.AFFECTS_ALL_PARTITIONS,)),
    "NODE_ID_CLASH": Kind(_ERROR, _PROVEN, classes.NodeClashEvidence, Cause.MIXED_COPIES, (T.AFFECTS_ALL_PARTITIONS,)),
    "NODE_ID_MISMATCH": Kind(_WARNING, _PROVEN, classes.NodeMismatchEvidence, Cause.MIXED_COPIES, (T.AFFECTS_ALL_PARTITIONS,)),
    "REPLICA_MISSING": Kind(
        _WARNING, _INFERRED, classes.ReplicaMissingEvidence, Cause.LOG_DIRECTORY_MISSING, (T.MAY_BE_OF_MOMENTS,)
    ),
    "REPLICA_NOT_GIVEN": Kind(_INFO, _PROVEN, classes.ReplicaNotGivenEvidence, Cause.MIXED_COPIES),
    "PARTIAL_COPY": Kind(_INFO, _INFERRED, classes.PartialCopyEvidence, Cause.MIXED_COPIES),
    "LOG_DIR_WIPED": Kind(_WARNING, _INFERRED, classes.WipedEvidence, Cause.LOG_DIRECTORY_MISSING),
    "EMPTY_REPLICA_MAY_LEAD": Kind(_CRITICAL, _SUSPECTED, classes.AtRiskEvidence, Cause.LOG_DIRECTORY_MISSING, _AT_RISK),
    "ALL_LOGS_EMPTY": Kind(_INFO, _SUSPECTED, classes.AllEmptyEvidence, Cause.LOG_DIRECTORY_MISSING),
    "LOG_HEAD_MISSING": Kind(_ERROR, _INFERRED, classes.HeadMissingEvidence, Cause.SHORT_REPLICA, (*_AT_RISK, T.LACKS_LOG_START)),
    "READERS_HELD_BACK": Kind(_INFO, _INFERRED, classes.HeldBackEvidence, Cause.READERS_HELD_BACK, (T.CONCERNS_GROUPS,)),
    # elections and settings, by the controller's log
    "UNCLEAN_ELECTION": Kind(_INFO, _PROVEN, classes.UncleanElectionEvidence, Cause.UNCLEAN_ELECTION, (T.IS_BACKGROUND,)),
    "ISR_MEMBER_MISSING_COMMITTED": Kind(
        _CRITICAL, _INFERRED, classes.AtRiskEvidence, Cause.SHORT_REPLICA, (*_SHORT_MEMBER, T.CONTRADICTS_WITNESS)
    ),
    "LRS_RISK": Kind(_CRITICAL, _INFERRED, classes.AtRiskEvidence, Cause.SHORT_REPLICA, (*_SHORT_MEMBER, T.AFFECTS_ELECTIONS)),
    "LRS_LOSS": Kind(_CRITICAL, _INFERRED, classes.LossByElectionEvidence, Cause.LAST_REPLICA_ELECTED, _ELECTION_LOSS),
    "RISKY_CONFIG": Kind(_INFO, _PROVEN, classes.RiskyConfigEvidence, Cause.SETTINGS),
    "TIERED_TOPICS": Kind(_INFO, _INFERRED, classes.TieredEvidence, Cause.SETTINGS),
    "TOPIC_UNKNOWN_TO_CONTROLLER": Kind(
        _ERROR, _INFERRED, classes.TopicUnknownEvidence, Cause.TOPIC_RECREATED, (T.MAY_BE_OF_MOMENTS,)
    ),
    "QUORUM_WOULD_TRUNCATE": Kind(
        _CRITICAL, _INFERRED, classes.QuorumEvidence, Cause.CONTROLLERS, (T.COMMITTED_AT_RISK, T.MAY_BE_OF_MOMENTS)
    ),
    # remote storage
    "REMOTE_LOG_HOLE": Kind(
        _CRITICAL,
        _PROVEN,
        classes.RemoteHoleEvidence,
        Cause.REMOTE_LOG,
        (T.LOST_COMMITTED, T.MAY_BE_OF_MOMENTS, T.HARMLESS_IF_LIVE),
    ),
    "REMOTE_SEGMENT_UNREADABLE": Kind(
        _CRITICAL,
        _PROVEN,
        classes.RemoteSegmentEvidence,
        Cause.REMOTE_LOG,
        (T.LOST_COMMITTED, T.MAY_BE_OF_MOMENTS, T.HARMLESS_IF_LIVE),
    ),
    "REMOTE_SEGMENT_DIFFERS": Kind(
        _ERROR, _PROVEN, classes.RemoteSegmentDiffersEvidence, Cause.REMOTE_LOG, (T.MAY_BE_OF_MOMENTS, T.HARMLESS_IF_LIVE)
    ),
    "REMOTE_OBJECT_UNREFERENCED": Kind(
        _WARNING, _PROVEN, classes.UnreferencedEvidence, Cause.REMOTE_LOG, (T.MAY_BE_OF_MOMENTS, T.HARMLESS_IF_LIVE)
    ),
    "REMOTE_EVENT_REJECTED": Kind(_WARNING, _PROVEN, classes.RemoteEventEvidence, Cause.REMOTE_LOG),
    # internal topics
    "METADATA_RECORD_MALFORMED": Kind(_ERROR, _PROVEN, classes.MetadataMalformedEvidence, Cause.UNREADABLE_RECORDS),
    "METADATA_RECORD_REJECTED": Kind(_ERROR, _PROVEN, classes.MetadataRejectedEvidence, Cause.CONTROLLERS),
    "METADATA_RECORD_UNKNOWN": Kind(_INFO, _PROVEN, classes.MetadataUnknownEvidence, Cause.UNREADABLE_RECORDS),
    "COORDINATOR_STATE_MISPLACED": Kind(_ERROR, _PROVEN, classes.MisplacedStateEvidence, Cause.SETTINGS),
    "GROUP_OFFSET_BEYOND_LOG": Kind(
        _CRITICAL,
        _PROVEN,
        classes.GroupOffsetEvidence,
        Cause.COMMITTED_LOST,
        (*_LOST_EVERYWHERE, T.CONCERNS_GROUPS, T.HARMLESS_IF_LIVE),
    ),
    # environment
    "INCONSISTENT_CUT": Kind(_INFO, _INFERRED, classes.InconsistentCutEvidence, Cause.MIXED_COPIES),
    "EVIDENCE_CHANGED": Kind(
        _ERROR, _PROVEN, classes.ChangedEvidence, Cause.MIXED_COPIES, (T.AFFECTS_ALL_PARTITIONS, T.MAY_BE_OF_MOMENTS)
    ),
    "NON_REGULAR_SKIPPED": Kind(_INFO, _PROVEN, classes.IrregularEvidence, Cause.MIXED_COPIES),
    "SPARSE_FILE": Kind(_INFO, _PROVEN, classes.SparseEvidence, Cause.MIXED_COPIES),
    "DIR_NAME_ILLEGAL": Kind(_WARNING, _PROVEN, classes.DirectoryNameEvidence, Cause.MIXED_COPIES),
    "INTERRUPTED_SWAP": Kind(
        _WARNING, _INFERRED, classes.SwapEvidence, Cause.UNCLEAN_SHUTDOWN, (T.REPAIRED_BY_COPY, T.MAY_BE_OF_MOMENTS)
    ),
    "RECOVERY_WOULD_TRUNCATE": Kind(
        _WARNING, _INFERRED, classes.RecoveryEvidence, Cause.UNCLEAN_SHUTDOWN, (T.CONTENT_IS_LOST, T.CRITICAL_BELOW_HW, *_LIVE_TAIL)
    ),
    "LEFTOVER_HOLDS_DATA": Kind(_INFO, _PROVEN, classes.LeftoverEvidence, Cause.UNCLEAN_SHUTDOWN),
    "FILE_UNKNOWN": Kind(_INFO, _PROVEN, classes.FilesUnknownEvidence, Cause.MIXED_COPIES),
    # topics
    "KEY_PLACEMENT": Kind(_INFO, _INFERRED, classes.KeyPlacementEvidence, Cause.SETTINGS),
    # between snapshots
    "COMMITTED_TRUNCATED_SINCE": Kind(_CRITICAL, _PROVEN, classes.TruncatedSinceEvidence, Cause.LOST_SINCE, (T.LOST_COMMITTED,)),
    "KEYS_LOST_SINCE": Kind(_CRITICAL, _INFERRED, classes.KeysLostEvidence, Cause.LOST_SINCE),
    # known incidents
    "INCIDENT_SIGNATURE": Kind(_INFO, _SUSPECTED, classes.IncidentEvidence, Cause.SETTINGS, (T.IS_BACKGROUND,)),
}


@cache
def kinds_with(*traits: Trait) -> frozenset[str]:
    """Kinds with at least one of these traits."""
    return frozenset(kind for kind, row in CATALOGUE.items() if any(trait in row.traits for trait in traits))


def finding(
    kind: str,
    place: Place,
    evidence: Evidence | None = None,
    *,
    severity: Severity | None = None,
    confidence: Confidence | None = None,
) -> Finding:
    """A finding of `kind`, by default with the catalogue's severity and confidence."""
    default = CATALOGUE[kind]
    return Finding(kind, severity or default.severity, confidence or default.confidence, place, evidence or {})


def with_premises(subject: Finding, premises: list[str]) -> Finding:
    """The finding with further premises after its own."""
    return subject.with_evidence(premises=[*subject.evidence.get("premises", ()), *premises]) if premises else subject
