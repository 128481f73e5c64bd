"""Why the controller's log says nothing of a partition: it is not here, it is damaged, or it is silent."""

from typing import TYPE_CHECKING

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import HARMLESS_TAILS
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.parsers.log import SegmentReader, believed_to
from kafka_forensics.replication.planner import NO_WORD
from kafka_forensics.rereading.misplaced import logs_of

if TYPE_CHECKING:
    from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
    from kafka_forensics.model.controller import ControllerHistory


def why_no_word(inputs: "Inputs", history: "ControllerHistory | None") -> str:
    """A kind of `Missing`; the copies of the log are read again, to tell damage from silence."""
    plans = [plan for plan in inputs.internal if plan.context.topic == CLUSTER_METADATA_TOPIC]
    if not plans:
        return NO_WORD
    if history is None or history.unknown_after is not None or history.malformed_records or any(map(_is_damaged, plans)):
        return "controller_log_damaged"
    return "controller_log_silent"


def _is_damaged(plan: "ReplicaPlan") -> bool:
    for segment, log, behind in logs_of(plan):
        try:
            with plan.log_dir.source.open(log.path) as file:
                chunks = SegmentReader(file, next_base_offset=believed_to(segment.base_offset, behind)).chunks()
                if any(damage.kind not in HARMLESS_TAILS for chunk in chunks for damage in chunk.damage):
                    return True
        except SourceError:
            return True
    return False
