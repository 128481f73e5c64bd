"""One replica: the state of all folds over its log, and what that state and the files beside it say of it alone."""

from kafka_forensics.analysis.replica.replica import (
    BlockDigests,
    RecoveryFold,
    Replica,
    ReplicaState,
    WalkEnd,
    differing_blocks,
    forgotten_transactions,
    kept_from,
    snapshot_open,
    whole,
)

__all__ = [
    "BlockDigests",
    "RecoveryFold",
    "Replica",
    "ReplicaState",
    "WalkEnd",
    "differing_blocks",
    "forgotten_transactions",
    "kept_from",
    "snapshot_open",
    "whole",
]
