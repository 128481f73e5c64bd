"""`changes`: every replica compared with itself from one snapshot to the next."""

from kafka_forensics.questions.changes.partition import (
    REPLICAS_A_SNAPSHOT,
    ChangeAnswer,
    ChangesCommon,
    ChangeSlice,
    Words,
    change_slices,
    disks_of,
    judge_changes,
    judge_whole_changes,
)
from kafka_forensics.questions.changes.snapshots import (
    ComparedSnapshots,
    Snapshot,
    changes,
    compared,
    finished,
    gather_snapshots,
    named_snapshots,
    reached_apart,
    require_several,
    snapshot_paths,
)
