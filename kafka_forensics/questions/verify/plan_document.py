"""A plan's JSON document as `verify` takes it: what it promises of each partition, every field of its declared type."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from kafka_forensics.errors import UsageError

Offset = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Also a partition, an epoch, a number of offsets."""
Broker = Offset | str
MAX_BYTES: Final = 1 << 30
"""A document of more is no plan."""


@dataclass(frozen=True, slots=True)
class PlannedReplica:
    """A replica as it was planned with; what is None was not known."""

    broker: Broker
    log_start_offset: Offset | None
    log_end_offset: Offset | None
    leader_epochs: list[tuple[Offset, Offset]] | None


@dataclass(frozen=True, slots=True)
class PlannedFollower:
    """What a follower was to do; without an offset its broker was not there, or would not start."""

    broker: Broker
    truncation_offset: Offset | None
    lost: list[tuple[Offset, Offset]]


@dataclass(frozen=True, slots=True)
class PlannedElection:
    """The election of one replica."""

    broker: Broker
    election: str
    own_recovery_drops: Offset
    followers: list[PlannedFollower]


@dataclass(frozen=True, slots=True)
class PlannedControl:
    """The controller's last word when it was planned."""

    leader_epoch: Offset | None


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """The plan of one partition."""

    topic: str
    partition: Offset
    controller: PlannedControl | None
    replicas: list[PlannedReplica]
    recommended: Broker | None
    candidates: list[PlannedElection]

    def replica(self, broker: Broker) -> PlannedReplica | None:
        """The replica of a broker, if there is one."""
        return next((replica for replica in self.replicas if replica.broker == broker), None)

    def election(self, elected: str | None) -> PlannedElection | None:
        """The election that was carried out: of the broker `elected`, or the one that was recommended; of a plan of one election
        alone, that."""
        chosen = self.recommended if elected is None else elected
        found = next((candidate for candidate in self.candidates if str(candidate.broker) == str(chosen)), None)
        return self.candidates[0] if found is None and elected is None and len(self.candidates) == 1 else found


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """The whole of it."""

    schema_version: str
    partitions_planned: Offset
    partitions: list[PlannedPartition] = field(default_factory=list)


def read_plan(path: str) -> PlanDocument:
    """The document in a file that `plan --format json` wrote. Raises UsageError for anything else."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="give the file of `plan --format json`") from error
    if len(data) > MAX_BYTES:
        raise _no_plan(path, f"it has more than {MAX_BYTES} bytes")
    try:
        return msgspec.convert(json.loads(data), PlanDocument)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise _no_plan(path, str(error)) from error


def _no_plan(path: str, reason: str) -> UsageError:
    return UsageError(f"{path} is no plan: {reason[:200]}", hint="write one with `plan PATH... --format json --output plan.json`")
