"""What a PartitionChangeRecord makes of a partition: its state afterwards, and whether it elected a leader uncleanly."""

from typing import Any

from kafka_forensics.model.controller import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, PartitionState


def merged(state: PartitionState, fields: dict[str, Any]) -> PartitionState:
    """The state after a PartitionChangeRecord: what it leaves out stays, an empty list is really empty."""

    def changed(name: str, value: tuple[Any, ...]) -> tuple[Any, ...]:
        given = fields.get(name)
        return value if given is None else tuple(given)

    leads = fields["leader"] != NO_LEADER_CHANGE
    recovery = fields["leader_recovery_state"]
    return PartitionState(
        leader=fields["leader"] if leads else state.leader,
        leader_epoch=state.leader_epoch + leads,
        partition_epoch=state.partition_epoch + 1,
        isr=changed("isr", state.isr),
        elr=changed("eligible_leader_replicas", state.elr),
        last_known_elr=changed("last_known_elr", state.last_known_elr),
        replica_assignment=changed("replicas", state.replica_assignment),
        removing_replicas=changed("removing_replicas", state.removing_replicas),
        adding_replicas=changed("adding_replicas", state.adding_replicas),
        directories=changed("directories", state.directories),
        leader_recovery_state=state.leader_recovery_state if recovery == -1 else recovery,
    )


def is_unclean(state: PartitionState, fields: dict[str, Any]) -> bool:
    """Whether a PartitionChangeRecord elects a leader uncleanly (PartitionChangeBuilder).

    Such a record says so by the recovery state. While a leader is still recovering, and before metadata version 3.2, it does not:
    then the new leader stands alone in the ISR, was in neither ISR nor ELR before, and no replica is moved.
    """
    leader = fields["leader"]
    if leader in (NO_LEADER, NO_LEADER_CHANGE):
        return False
    if fields["leader_recovery_state"] == RECOVERING:
        return True
    moves = any(fields[name] is not None for name in ("replicas", "removing_replicas", "adding_replicas"))
    outside = leader not in state.isr and leader not in state.elr
    return outside and fields["isr"] == [leader] and not moves
