"""`changes`: every replica compared with itself from one snapshot to the next."""

from kafka_forensics.questions.changes.partition import (
    REPLICAS_A_SNAPSHOT,
    ChangeAnswer,
    ChangesCommon,
    ChangeSlice,
    SnapshotTopics,
    change_slices,
    judge_changes,
    judge_whole_changes,
    snapshot_log_dirs,
)
from kafka_forensics.questions.changes.snapshots import (
    ComparedSnapshots,
    Snapshot,
    changes,
    compared,
    finished,
    gather_snapshots,
    named_snapshots,
    require_two_snapshots,
    snapshot_paths,
    split_storage_options,
)
