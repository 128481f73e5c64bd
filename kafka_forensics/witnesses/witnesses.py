"""Reading the witnesses: logs whose records tell of other partitions. They are read whatever the scan was limited to."""

from collections.abc import Iterable

from kafka_forensics.analysis.internal_topics import Witnesses
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.model.constants import TRANSACTION_STATE_TOPIC
from kafka_forensics.witnesses.controller import read_controller


def read_witnesses(inputs: Inputs) -> Witnesses:
    """Read every witness there is among the inputs, from `inputs.internal`."""
    witnesses = Witnesses()
    clusters = {log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None}
    if not inputs.internal and len(clusters) < 2:
        return witnesses
    from kafka_forensics.analysis.replicas import malformed_findings  # these are not needed for a partition by itself
    from kafka_forensics.witnesses.coordinators import read_group_history, read_transaction_log

    controller = read_controller(inputs)
    if controller is not None:
        witnesses.controller = controller.history
        witnesses.findings += controller.findings
    known = [partition for topic, partition in _partitions(witnesses) if topic == TRANSACTION_STATE_TOPIC]
    witnesses.transaction_log, findings = read_transaction_log(inputs, max(known, default=-1) + 1)
    witnesses.findings += findings
    witnesses.groups = read_group_history(inputs)
    if witnesses.groups is not None:
        witnesses.findings += [finding for log in witnesses.groups.logs for finding in malformed_findings(log)]
    return witnesses


def take_commits(plan: ReplicaPlan, witnesses: Witnesses) -> None:
    """Let a replica know what groups committed on its partition."""
    if witnesses.groups is not None:
        from kafka_forensics.witnesses.coordinators import cluster_of

        context = plan.context
        context.committed = witnesses.groups.committed(context.topic, context.partition, cluster_of(plan))


def take_decisions(plans: Iterable[ReplicaPlan], witnesses: Witnesses) -> None:
    """Let replicas know whether the transaction coordinators decided anything about their partitions."""
    if witnesses.transaction_log is not None:
        decided = {listed for decision in witnesses.transaction_log.decisions for listed in decision.partitions}
        for plan in plans:
            plan.context.decided = (plan.context.topic, plan.context.partition) in decided


def _partitions(witnesses: Witnesses) -> Iterable[tuple[str, int]]:
    """Every (topic, partition) the controller knows of."""
    return () if witnesses.controller is None else witnesses.controller.partitions
