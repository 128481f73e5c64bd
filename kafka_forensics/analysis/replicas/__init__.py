"""Replicas of one partition: findings from each one's own files, where they differ, what was lost and who has it."""

from kafka_forensics.analysis.replicas.absent_members import with_absent_members
from kafka_forensics.analysis.replicas.comparison import Comparison, compare, with_holders
from kafka_forensics.analysis.replicas.controller_state import electable, last_leader, member_lacks, with_controller_findings
from kafka_forensics.analysis.replicas.damaged_forks import ReplicaBatch, damaged_by_headers, damaged_offsets
from kafka_forensics.analysis.replicas.diff import (
    BLOCK_OFFSETS,
    AcrossFormats,
    BatchReader,
    Counts,
    Difference,
    Differences,
    add_unexplained_gaps,
    counted,
    differences,
    is_compacted,
    replicas_disagree,
)
from kafka_forensics.analysis.replicas.forks import brokers_epochs, lineage
from kafka_forensics.analysis.replicas.group_offsets import group_findings, malformed_findings, timestamps_of
from kafka_forensics.analysis.replicas.leftovers import (
    IndexWithoutLog,
    LeftoverLog,
    with_leftover_findings,
    with_segments_of_indexes_without_log,
)
from kafka_forensics.analysis.replicas.missing_log_start import (
    log_starts_missing_by_epochs,
    missing_log_start_findings,
    missing_log_starts,
    missing_snapshots,
    newest_time,
    retention_for,
    with_missing_log_starts,
)
from kafka_forensics.analysis.replicas.readers import ReadersLimit, readable
from kafka_forensics.analysis.replicas.records_held import batches_held, records_held, with_records
from kafka_forensics.analysis.replicas.recovery_findings import (
    StartForecasts,
    recovery_findings,
    recovery_outlook,
    refused_at,
    regresses,
    swap_finding,
    with_unclean_restart,
)
from kafka_forensics.analysis.replicas.reference import ReferenceAgreement, reference_agreements
from kafka_forensics.analysis.replicas.remote_log import (
    OTHERS_MISSING,
    findings_without_replicas,
    has_log,
    remote_log_findings,
    segment_problem,
)
from kafka_forensics.analysis.replicas.remote_objects import StoredSizes, remote_object_findings
from kafka_forensics.analysis.replicas.remote_segments import (
    finished_segments,
    lacks_remote_epochs,
    left_out,
    tiered_topics,
    with_remote_losses,
)
from kafka_forensics.analysis.replicas.single_replica import damage_finding, single_replica_findings
