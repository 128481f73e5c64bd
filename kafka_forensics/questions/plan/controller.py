"""Why the controller's log says nothing of a partition: it is not here, it is damaged, or it is silent."""

from typing import TYPE_CHECKING

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import HARMLESS_TAILS
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.replication.planner import NO_WORD

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
    for segment in plan.directory.segments:
        if segment.log is None:
            continue
        try:
            with plan.log_dir.source.open(segment.log.path) as file:
                if any(one.kind not in HARMLESS_TAILS for chunk in SegmentReader(file).chunks() for one in chunk.damage):
                    return True
        except SourceError:
            return True
    return False
