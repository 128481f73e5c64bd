"""One partition and its controller as a state machine: a state, and every state that may come next.

The model follows Jason Gustafson's `kafka-specification` (2018). Steps are atomic. Nothing crashes; requests may arrive late or
never, so a partitioned replica and a slow one look the same. The controller's LeaderAndIsr requests stay available; each has its
own leader epoch. A replica considers itself leader until it applies a newer request.

A protocol is data: which condition guards which step, and how a follower truncates. Each protocol fixes a defect of the one before
it (KIP-101, KIP-279, KIP-320). Tests remove one guard at a time.
"""

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace


class Truncation(IntEnum):
    """How a replica truncates its log when it learns of a new leader."""

    HIGH_WATERMARK = 0
    """To its own high watermark (before 0.11)."""
    KIP_101 = 1
    """To the end that the leader reports for the epoch of the follower's last record; one request."""
    KIP_279 = 2
    """To the end of the longest common prefix; requests repeat until both sides agree on an epoch."""
    ON_FETCH = 3
    """Later, when the leader rejects a fetch."""
    NEVER = 4
    """Never; only tests use it."""


class Fence(IntFlag):
    """What a leader checks before it accepts a step of a follower."""

    NOTHING = 0
    FOLLOWS = 1
    """The follower considers this replica the leader, in any epoch."""
    SAME_EPOCH = 2
    """The follower is in the leader's current epoch."""
    REACHED = 4
    """Both logs reach the offset."""
    RECORD_EPOCH = 8
    """The last records before the offset have the same epoch in both logs."""


class Guard(IntFlag):
    """Conditions on other steps."""

    NOTHING = 0
    ELECT_FROM_ISR = 1
    """The controller elects only members of the ISR (no unclean election)."""
    NEWER_EPOCH = 2
    """A replica applies only requests with a higher epoch than its own."""
    ISR_BY_TRUE_LEADER = 4
    """Only the controller's current leader, in its current epoch, changes the ISR."""
    LEADER_WRITES = 8
    """Only a replica that considers itself leader appends new records."""
    TRUNCATION_FENCED = 16
    """A follower truncates only against a leader that is in the epoch of the request."""
    EPOCH_START_REACHED = 32
    """No replica joins the ISR until the leader's high watermark has reached the records of its own epoch."""
    BEHIND_LEADER = 64
    """A follower's high watermark never exceeds the leader's."""


COMMON: Final = Guard.ELECT_FROM_ISR | Guard.NEWER_EPOCH | Guard.ISR_BY_TRUE_LEADER | Guard.LEADER_WRITES | Guard.BEHIND_LEADER


class Protocol(Struct, frozen=True):
    """A replication protocol: its truncation rule, the fences of each step between leader and follower, and the guards."""

    name: str
    truncation: Truncation
    fetch: Fence
    raise_high_watermark: Fence
    shrink_isr: Fence
    """The leader may remove an ISR member that fails this fence. Removing a member is always safe."""
    expand_isr: Fence
    guards: Guard


_BY_NAME: Final = Fence.FOLLOWS | Fence.REACHED
_BY_RECORD: Final = Fence.FOLLOWS | Fence.REACHED | Fence.RECORD_EPOCH
_BY_EPOCH: Final = Fence.SAME_EPOCH | Fence.REACHED

TRUNCATE_TO_HW: Final = Protocol("truncate-to-hw", Truncation.HIGH_WATERMARK, Fence.FOLLOWS, _BY_NAME, _BY_NAME, _BY_NAME, COMMON)
KIP_101: Final = replace(TRUNCATE_TO_HW, name="kip-101", truncation=Truncation.KIP_101)
KIP_279: Final = replace(TRUNCATE_TO_HW, name="kip-279", truncation=Truncation.KIP_279)
KIP_320_FIRST_TRY: Final = Protocol(
    "kip-320-first-try",
    Truncation.ON_FETCH,
    *(_BY_RECORD, _BY_RECORD, _BY_RECORD, _BY_RECORD),
    COMMON | Guard.EPOCH_START_REACHED,
)
KIP_320: Final = Protocol(
    "kip-320",
    Truncation.KIP_279,
    *(Fence.SAME_EPOCH, _BY_EPOCH, _BY_EPOCH, _BY_EPOCH),
    COMMON | Guard.EPOCH_START_REACHED | Guard.TRUNCATION_FENCED,
)

PROTOCOLS: Final = {protocol.name: protocol for protocol in (TRUNCATE_TO_HW, KIP_101, KIP_279, KIP_320_FIRST_TRY, KIP_320)}
"""By name, oldest first."""


class Sizes(Struct, frozen=True):
    """Bounds of the state space: replicas, records per log, records written in all, and the last leader epoch."""

    replicas: int = 3
    log_size: int = 2
    records: int = 2
    max_epoch: int = 2


class ModelRecord(NamedTuple):
    """A record: its number in the order of writing, and the leader epoch it was written in."""

    number: int
    leader_epoch: int


class ModelReplica(NamedTuple):
    """The state of one replica: its leader epoch (-1: none yet), high watermark, view of the ISR, and records."""

    leader_epoch: int
    high_watermark: int
    isr: frozenset[int]
    log: tuple[ModelRecord, ...]


class LeaderAndIsr(NamedTuple):
    """A request of the controller to all replicas; its index in the list is the leader epoch. Leader None: no leader."""

    leader: int | None
    isr: frozenset[int]


class ModelState(NamedTuple):
    """The replicas, all requests so far, the controller's ISR, and the number of records ever written.

    `committed` holds the numbers of the records that were ever below the high watermark of the true leader; empty where the model
    keeps no history.
    """

    replicas: tuple[ModelReplica, ...]
    requests: tuple[LeaderAndIsr, ...]
    isr: frozenset[int]
    records: int
    committed: frozenset[int] = frozenset()


class ModelStep(NamedTuple):
    """A step: the action, the replica that takes it, and the other replica and number involved (None where there is none)."""

    action: str
    replica: int
    other: int | None = None
    number: int | None = None


Successors = Iterator[tuple[ModelStep, ModelState]]


def leader_of(state: ModelState, replica: int) -> int | None:
    """The replica that a replica considers the leader."""
    epoch = state.replicas[replica].leader_epoch
    return None if epoch < 0 else state.requests[epoch].leader


def true_leader(state: ModelState) -> int | None:
    """The leader named by the controller's last request, if it has applied that request."""
    leader = state.requests[-1].leader if state.requests else None
    return leader if leader is not None and state.replicas[leader].leader_epoch == len(state.requests) - 1 else None


class ProtocolModel:
    """All steps of a protocol within the given sizes; `history` keeps the records that were ever committed."""

    def __init__(self, protocol: Protocol, sizes: Sizes, *, history: bool = False) -> None:
        self.protocol = protocol
        self.sizes = sizes
        self.history = history
        self.replicas = range(sizes.replicas)

    def initial(self) -> ModelState:
        """Empty logs, no request, every replica in the ISR."""
        return ModelState((ModelReplica(-1, 0, frozenset(), ()),) * self.sizes.replicas, (), frozenset(self.replicas), 0)

    def successors(self, state: ModelState) -> Successors:
        """Every possible step with the state it leads to."""
        yield from self._controller_steps(state)
        for replica in self.replicas:
            yield from self._apply_requests(state, replica)
            leads = leader_of(state, replica) == replica
            if leads or not self.protocol.guards & Guard.LEADER_WRITES:
                yield from self._write(state, replica)
            if leads:
                yield from self._leader_steps(state, replica)

    def _controller_steps(self, state: ModelState) -> Successors:
        """Elect a leader, or remove a replica from the ISR: a removed leader stops leading, the last member stays in the ISR."""
        epoch = len(state.requests)
        if epoch > self.sizes.max_epoch:
            return
        leader = state.requests[-1].leader if state.requests else None
        for replica in self.replicas:
            in_isr, rest = replica in state.isr, state.isr - {replica}
            if replica != leader and (in_isr or not self.protocol.guards & Guard.ELECT_FROM_ISR):
                request = LeaderAndIsr(replica, state.isr if in_isr else frozenset({replica}))
                yield ModelStep("elect", replica, number=epoch), _with_request(state, request)
            if replica == leader:
                yield ModelStep("remove", replica, number=epoch), _with_request(state, LeaderAndIsr(None, rest or state.isr))
            elif in_isr:
                yield ModelStep("remove", replica, number=epoch), _with_request(state, LeaderAndIsr(leader, rest))

    def _apply_requests(self, state: ModelState, replica: int) -> Successors:
        """The replica becomes leader or follower in the epoch of any request that was ever sent."""
        before, guards = state.replicas[replica], self.protocol.guards
        for epoch, (leader, isr) in enumerate(state.requests):
            newer = epoch > before.leader_epoch if guards & Guard.NEWER_EPOCH else epoch != before.leader_epoch
            if not newer or leader is None:
                continue
            if leader == replica:
                after = before._replace(leader_epoch=epoch, isr=isr)
                yield ModelStep("lead", replica, number=epoch), _with_replica(state, replica, after)
            elif not guards & Guard.TRUNCATION_FENCED or state.replicas[leader].leader_epoch == epoch:
                end = self._truncation_offset(before, state.replicas[leader].log)
                if end <= len(before.log):  # else the specification disables the step; the replica can apply a later request
                    after = ModelReplica(epoch, min(end, before.high_watermark), isr, before.log[:end])
                    yield ModelStep("follow", replica, leader, epoch), _with_replica(state, replica, after)

    def _truncation_offset(self, follower: ModelReplica, leader: tuple[ModelRecord, ...]) -> int:
        match self.protocol.truncation:
            case Truncation.HIGH_WATERMARK:
                return follower.high_watermark
            case Truncation.KIP_101:
                return _end_of_last_epoch(follower, leader)
            case Truncation.KIP_279:
                return _matching_end(follower.log, leader)
            case _:
                return len(follower.log)

    def _write(self, state: ModelState, replica: int) -> Successors:
        before = state.replicas[replica]
        if before.leader_epoch >= 0 and state.records < self.sizes.records and len(before.log) < self.sizes.log_size:
            log = (*before.log, ModelRecord(state.records, before.leader_epoch))
            after = _with_replica(state, replica, before._replace(log=log))
            yield ModelStep("write", replica, number=state.records), after._replace(records=state.records + 1)

    def _leader_steps(self, state: ModelState, leader: int) -> Successors:
        """Steps between a replica that considers itself leader and the others."""
        replica, protocol = state.replicas[leader], self.protocol
        log, mark, isr = replica.log, replica.high_watermark, replica.isr
        if mark < len(log) and all(self._passes(state, leader, member, mark + 1, protocol.raise_high_watermark) for member in isr):
            after = _with_replica(state, leader, replica._replace(high_watermark=mark + 1))
            if self.history and true_leader(state) == leader:
                after = after._replace(committed=state.committed | {log[mark].number})
            yield ModelStep("raise", leader, number=mark + 1), after
        started = (
            not protocol.guards & Guard.EPOCH_START_REACHED or mark >= len(log) or log[mark].leader_epoch == replica.leader_epoch
        )
        for other in self.replicas:
            if other == leader:
                continue
            yield from self._replicate(state, leader, other)
            if protocol.guards & Guard.ISR_BY_TRUE_LEADER and true_leader(state) != leader:
                continue
            if other in isr:
                if not self._passes(state, leader, other, len(log), protocol.shrink_isr):
                    yield ModelStep("shrink", leader, other), _with_isr(state, leader, isr - {other})
            elif self._passes(state, leader, other, mark, protocol.expand_isr) and started:
                yield ModelStep("expand", leader, other), _with_isr(state, leader, isr | {other})

    def _replicate(self, state: ModelState, leader: int, other: int) -> Successors:
        """The follower fetches one record, or truncates after a rejected fetch."""
        source, follower, protocol = state.replicas[leader], state.replicas[other], self.protocol
        end = len(follower.log)
        if end < len(source.log) and self._passes(state, leader, other, end, protocol.fetch):
            mark = min(source.high_watermark, end + 1) if protocol.guards & Guard.BEHIND_LEADER else end + 1
            after = follower._replace(log=(*follower.log, source.log[end]), high_watermark=mark)
            yield ModelStep("fetch", other, leader, source.log[end].number), _with_replica(state, other, after)
        follows = leader_of(state, other) == leader
        if protocol.truncation is Truncation.ON_FETCH and follows and _is_rejected(source.log, follower.log):
            end = _matching_end(follower.log, source.log)
            after = follower._replace(log=follower.log[:end], high_watermark=min(end, follower.high_watermark))
            yield ModelStep("truncate", other, leader, end), _with_replica(state, other, after)

    def _passes(self, state: ModelState, leader: int, other: int, end: int, fence: Fence) -> bool:
        """Whether a follower passes a fence for the offsets below `end`."""
        source, follower = state.replicas[leader], state.replicas[other]
        if fence & Fence.FOLLOWS and leader_of(state, other) != leader:
            return False
        if fence & Fence.SAME_EPOCH and follower.leader_epoch != source.leader_epoch:
            return False
        reached = end <= min(len(source.log), len(follower.log))
        if fence & Fence.REACHED and not reached:
            return False
        if not fence & Fence.RECORD_EPOCH or end == 0 or not reached:
            return True
        return source.log[end - 1].leader_epoch == follower.log[end - 1].leader_epoch


def _with_request(state: ModelState, request: LeaderAndIsr) -> ModelState:
    return state._replace(requests=(*state.requests, request), isr=request.isr)


def _with_replica(state: ModelState, replica: int, after: ModelReplica) -> ModelState:
    return state._replace(replicas=(*state.replicas[:replica], after, *state.replicas[replica + 1 :]))


def _with_isr(state: ModelState, leader: int, isr: frozenset[int]) -> ModelState:
    return _with_replica(state, leader, state.replicas[leader]._replace(isr=isr))._replace(isr=isr)


def _end_of_last_epoch(follower: ModelReplica, leader: tuple[ModelRecord, ...]) -> int:
    """The end of the follower's last epoch in the leader's log; the follower's high watermark where the leader does not know it."""
    if not follower.log:
        return 0
    epoch = follower.log[-1].leader_epoch
    if leader and leader[-1].leader_epoch == epoch:
        return len(leader)
    return next((offset for offset, record in enumerate(leader) if record.leader_epoch > epoch), follower.high_watermark)


def _matching_end(log: tuple[ModelRecord, ...], other: tuple[ModelRecord, ...]) -> int:
    """The offset after the last one at which both logs have the same record."""
    return max((end for end, (record, its) in enumerate(zip(log, other, strict=False), 1) if record == its), default=0)


def _is_rejected(leader: tuple[ModelRecord, ...], follower: tuple[ModelRecord, ...]) -> bool:
    """Whether the leader rejects a fetch: the follower is longer, or the epochs of its last record differ."""
    if len(follower) > len(leader):
        return True
    return bool(follower) and leader[len(follower) - 1].leader_epoch != follower[-1].leader_epoch


INVARIANTS: Final = (
    *("StrongIsr", "WeakIsr", "LeaderInIsr", "EpochMonotone"),
    *("SettledAgreement", "LogMatching", "SameEpochAgreement"),
    *("CommittedOnIsr", "CommittedOnLeader", "CommittedSomewhere"),
)
"""What a protocol promises (docs/protocols.md); the first four are the specification's. The index is the bit in `search.broken`."""
HISTORY_INVARIANTS: Final = frozenset({"CommittedOnIsr", "CommittedOnLeader", "CommittedSomewhere"})
"""Invariants that need the history of committed records."""
