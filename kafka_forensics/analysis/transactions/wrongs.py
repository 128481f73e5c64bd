"""What a partition's own transactional batches and markers should never show: data of a fenced epoch, a replaced coordinator."""

from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.producers import Extremes, offset_behind
from kafka_forensics.analysis.transactions.markers import COORDINATOR_EPOCH, OFFSET, fallen_epochs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.evidence.context import ReplicaContext
    from kafka_forensics.model.findings import Finding

FALLEN_TOLD: Final = 32


def fallen_epochs_told(context: "ReplicaContext", markers: "NDArray[np.int64]") -> "list[Finding]":
    """Markers of a coordinator that was replaced, among a log's last ones (rows of `transaction_markers`)."""
    found = fallen_epochs(markers)
    answer = []
    for row, higher in found[:FALLEN_TOLD]:
        segment, position, size, producer_id, epoch, offset, _, coordinator_epoch, _ = markers[row].tolist()
        place = context.place(
            context.log_file(segment),
            byte_start=position,
            byte_end=position + size,
            offset_start=offset,
            offset_end=offset_behind(offset),
        )
        evidence = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "coordinator_epoch": coordinator_epoch,
            "previous_coordinator_epoch": int(markers[higher, COORDINATOR_EPOCH]),
            "previous_marker_offset": int(markers[higher, OFFSET]),
            "occurrences": len(found),
        }
        answer.append(finding("TXN_COORDINATOR_EPOCH_REGRESSION", place, evidence))
    return answer


def late_writes(context: "ReplicaContext", late: Extremes) -> "list[Finding]":
    """Data behind the marker that fenced its producer; rows as the kernels of `transaction_rules` find them."""
    answer = []
    for row in late.rows.tolist():
        evidence: dict[str, Any] = {
            "producer_id": row[6],
            "producer_epoch": row[7],
            "later_epoch": row[8],
            "later_epoch_offset": row[9],
        }
        if not late.complete:
            evidence["occurrences"] = late.count
        place = context.place(
            context.log_file(row[0]),
            byte_start=row[1],
            byte_end=row[1] + row[3],
            offset_start=row[4],
            offset_end=offset_behind(row[5]),
        )
        answer.append(finding("TXN_LATE_WRITE", place, evidence))
    return answer
