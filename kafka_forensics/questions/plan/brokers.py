"""Who is who in a plan: brokers as copies, controllers and users name them, and the controller's last word on a partition."""

from collections.abc import Collection

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import last_leader
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import Inputs, misnamed
from kafka_forensics.evidence.selection import listed
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.replication.planner import Broker, PlanControl


def check_dead(dead: Collection[str], inputs: Inputs, controller: ControllerHistory | None) -> None:
    """Raise UsageError for a broker that is said not to come back, and that neither a copy nor the controller's log knows."""
    copies = {
        str(name)
        for log_dir in inputs.log_dirs
        for name in (log_dir.broker, None if log_dir.meta is None else log_dir.meta.node_id)
        if name is not None and any(directory.topic != CLUSTER_METADATA_TOPIC for directory in log_dir.found.partitions)
    }
    said = {
        str(node)
        for control in (controller.partitions.values() if controller is not None else ())
        for node in (*(control.replica_assignment or ()), *(control.isr or ()), *(control.elr or ()))
    }
    known = sorted(copies | said, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    for broker in sorted(set(dead).difference(known)):
        text = f"no copy here is of broker {broker}, and no controller's log here gives it a replica"
        raise UsageError(text, hint=f"brokers known here: {listed(known)}")


def check_names(inputs: Inputs) -> None:
    """Raise UsageError for a copy given as another broker's than its `meta.properties` says: steps would be for the wrong one."""
    for broker, node_ids, names in misnamed(inputs.log_dirs):
        text = f"{names[0]} was given as broker {broker}, and is of broker {node_ids[0]} by its meta.properties"
        raise UsageError(text, hint=f"give it as {node_ids[0]}=PATH: a plan says which broker to stop and to start")


def nodes_of(names: Collection[str]) -> frozenset[Broker]:
    """Brokers named on a command line, ids as numbers."""
    return frozenset(int(name) if name.isdecimal() else name for name in names)


def nodes_left(
    replicas: list[Replica], nodes: dict[Broker, int], control: PlanControl | None, dead: Collection[str]
) -> dict[Broker, int]:
    """The one copy that does not say whose it is, as that of the one replica of which no copy is here; nothing in other cases.
    Raises UsageError where one of several is that of a dead broker."""
    unnamed = [replica.broker for replica in replicas if replica.broker not in nodes and not isinstance(replica.broker, int)]
    assignment = () if control is None or control.assignment is None else control.assignment
    known = {nodes.get(replica.broker, replica.broker) for replica in replicas}
    left = [node for node in assignment if node not in known]
    if len(unnamed) == len(left) == 1:
        return {unnamed[0]: left[0]}
    gone = [node for node in left if str(node) in dead]
    if unnamed and gone:
        text = f"which of the copies called {listed(map(str, unnamed))} is of broker {gone[0]} cannot be told"
        raise UsageError(text, hint=f"none has a meta.properties: say whose they are, as in {gone[0]}=PATH")
    return {}


def control_of(control: PartitionControl | None) -> PlanControl | None:
    """The controller's last word as far as it is known."""
    if control is None:
        return None

    def told(ids: list[int] | None) -> tuple[int, ...] | None:
        return None if ids is None else tuple(ids)

    unclean = control.setting("unclean.leader.election.enable")
    return PlanControl(
        control.leader,
        last_leader(control),
        control.leader_epoch,
        told(control.isr),
        told(control.elr),
        told(control.replica_assignment),
        None if unclean is None else unclean.lower() == "true",
        (control.setting("remote.storage.enable") or "").lower() == "true",
    )
