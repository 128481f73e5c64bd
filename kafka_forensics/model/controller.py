"""What the controller's log (`__cluster_metadata`) says of topics and partitions."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PartitionControl:
    """What the controller last said of one partition; None is "its log, as far as it was read, does not say"."""

    leader: int | None
    """-1: it had none."""
    leader_epoch: int | None
    isr: list[int] | None
    elr: list[int] | None
    replica_assignment: list[int] | None
    configs: dict[str, str] = field(default_factory=dict)
    """The topic's own settings; what is not here has the brokers' default."""


@dataclass(slots=True)
class ControllerHistory:
    """The controller's log, replayed."""

    partitions: dict[tuple[str, int], PartitionControl] = field(default_factory=dict)
    """(topic, partition) → the last word on it."""
