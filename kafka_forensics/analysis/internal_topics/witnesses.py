"""The witnesses of a scan: what other logs in the same copies say of every partition."""

from dataclasses import dataclass, field

from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.coordinators import GroupHistory, TransactionLog
from kafka_forensics.model.findings import Finding


@dataclass(slots=True)
class Witnesses:
    """Each is None where its log was not among the copies."""

    controller: ControllerHistory | None = None
    transaction_log: TransactionLog | None = None
    groups: GroupHistory | None = None
    findings: list[Finding] = field(default_factory=list)
    """What is wrong with the records of these logs."""

    def control(self, topic: str, partition: int, topic_id: str | None = None) -> PartitionControl | None:
        """The controller's last word on a partition, None if there is none, or only of another topic of that name."""
        partition_control = None if self.controller is None else self.controller.partitions.get((topic, partition))
        return (
            None
            if partition_control is not None and topic_id is not None and partition_control.topic_id != topic_id
            else partition_control
        )
