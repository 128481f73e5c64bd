"""Replicas that the controller's log assigns to brokers of which nothing was given: what no scan of these copies can see."""

from kafka_forensics.analysis.catalogue import finding, on_premises
from kafka_forensics.engine.inputs import Inputs
from kafka_forensics.model.constants import INTERNAL_TOPICS, WITNESS_TOPICS
from kafka_forensics.model.controller import ControllerHistory, passed_over
from kafka_forensics.model.findings import Finding, Place

EXAMPLES = 6
"""Partitions named of each broker, internal topics last; all are counted."""
_Partition = tuple[str, int]


def nodes_given(inputs: Inputs) -> frozenset[int] | None:
    """Ids of the nodes of which a log directory was given; None if a directory does not say whose it is."""
    nodes = {None if one.meta is None else one.meta.node_id for one in inputs.log_dirs}
    known = frozenset(one for one in nodes if one is not None)
    return known if len(known) == len(nodes) else None


def replicas_not_given(inputs: Inputs, controller: ControllerHistory | None) -> list[Finding]:
    """One `REPLICA_NOT_GIVEN` for each broker with assigned replicas and no log directory among the inputs.

    Where a scan is limited, only partitions that it reads are counted.
    """
    given = None if controller is None else nodes_given(inputs)
    if controller is None or given is None:
        return []
    wanted = _wanted(inputs)
    assigned: dict[int, list[_Partition]] = {}
    led: dict[int, int] = {}
    in_sync: dict[int, int] = {}
    for key, control in sorted(controller.partitions.items()):
        if wanted is not None and key not in wanted:
            continue
        for node in sorted({*(control.replica_assignment or ())} - given):
            assigned.setdefault(node, []).append(key)
            led[node] = led.get(node, 0) + (control.leader == node)
            in_sync[node] = in_sync.get(node, 0) + (node in (control.isr or ()))
    return [
        on_premises(
            finding(
                "REPLICA_NOT_GIVEN",
                Place(broker=node),
                {
                    "node_id": node,
                    "replicas": len(of_node),
                    "examples": [f"{topic}-{partition}" for topic, partition in sorted(of_node, key=_internal_last)[:EXAMPLES]],
                    "in_isr": in_sync[node],
                    "led": led[node],
                    "as_of_ms": controller.last_ms,
                },
            ),
            passed_over(controller.unknown_records),
        )
        for node, of_node in sorted(assigned.items())
    ]


def _internal_last(key: _Partition) -> tuple[bool, str, int]:
    return key[0] in INTERNAL_TOPICS, *key


def _wanted(inputs: Inputs) -> set[_Partition] | None:
    """The partitions that a limited scan reads; None where it is not limited."""
    read = {(plan.context.topic, plan.context.partition) for plan in inputs.replicas}
    there = {
        (each.topic or "", each.partition or 0)
        for one in inputs.log_dirs
        for each in one.found.partitions
        if each.legal and each.suffix is None and each.topic not in WITNESS_TOPICS
    }
    return None if there <= read else read
