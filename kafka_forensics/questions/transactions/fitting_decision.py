"""Which of a coordinator's decisions a marker is of: they carry no number that both share, only times."""

from bisect import bisect_right
from collections.abc import Sequence

from kafka_forensics.analysis.transactions_across import SKEW_MS, TV2
from kafka_forensics.model.transaction_log import Decision


def decided_at(decision: Decision) -> int:
    """When it was decided, ms: what decisions are sorted by."""
    return decision.decided_timestamp


def data_epoch(decisions: Sequence[Decision], epoch: int, offset: int | None) -> int:
    """The producer epoch of the data that the decision at `offset` of the coordinators' log is about; `epoch` is the decision's.

    With transaction version 2 the coordinator raises the epoch before it writes the markers (KIP-890).
    """
    raised = any(decision.offset == offset and decision.client_transaction_version >= TV2 for decision in decisions)
    return epoch - 1 if raised and epoch > 0 else epoch


def fitting(decisions: Sequence[Decision], timestamp: int, *, commit: bool) -> Decision | None:
    """The decision nearest in time to a marker that may be of it; `decisions` are of one producer and epoch, by time, and one is
    completed before the next is made."""
    nearest: Decision | None = None
    for at in range(bisect_right(decisions, timestamp + SKEW_MS, key=decided_at) - 1, -1, -1):
        decision = decisions[at]
        if decision.completed_timestamp is not None and timestamp > decision.completed_timestamp + SKEW_MS:
            break
        if decision.commit == commit and (
            nearest is None or abs(decided_at(decision) - timestamp) <= abs(decided_at(nearest) - timestamp)
        ):
            nearest = decision
        if nearest is not None and decided_at(decision) <= timestamp:
            break
    return nearest
