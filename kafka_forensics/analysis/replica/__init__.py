"""One replica: the state of all folds over its log, and what that state and the files beside it say of it alone."""

from kafka_forensics.analysis.replica.digests import BlockDigests, differing_blocks
from kafka_forensics.analysis.replica.open_in_snapshot import forgotten_transactions, snapshot_open
from kafka_forensics.analysis.replica.recovery_walk import RecoveryFold, WalkEnd
from kafka_forensics.analysis.replica.replica import Replica, ReplicaState, kept_from, whole

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
