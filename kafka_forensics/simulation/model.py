"""One partition and its controller, step by step: a state, and every state that may come next.

The model is that of Jason Gustafson's `kafka-specification` (2018): steps are atomic; nothing crashes, but whatever a replica
was told may reach it late or never, so a replica cut off from the cluster and a slow one are the same. The controller's
requests stay in the world for good; each has an epoch of its own. A leader thinks of itself as such until it heeds a newer
request. Who leads, in the eyes of a replica, is told by the epoch it is in.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from itertools import combinations, pairwise
from typing import Final, NamedTuple

# Five replication protocols as data: which guard stands before which step, and how a follower truncates.
#
# The oldest trusts a follower's name and cuts logs at high watermarks; each later one mends what its predecessor got wrong
# (KIP-101, KIP-279, KIP-320). Leaving out one guard gives another protocol, which is how the guards are tested.


class Truncation(IntEnum):
    """How a replica cuts its log when it learns of a new leader."""

    HIGH_WATERMARK = 0
    """To its own high watermark (before 0.11)."""
    KIP_101 = 1
    """To where the leader says the epoch of the follower's last record ends, asked once."""
    KIP_279 = 2
    """Behind the last record that both hold at the same offset: the end of asking until epochs agree."""
    ON_FETCH = 3
    """Not then: any time later, once the leader refuses a fetch."""
    NEVER = 4
    """Not at all."""


class Fence(IntFlag):
    """What a leader demands of a follower before it counts a step of it."""

    NOTHING = 0
    FOLLOWS = 1
    """The follower takes this replica for its leader, in whatever epoch."""
    SAME_EPOCH = 2
    """The follower is in the leader's own epoch."""
    REACHED = 4
    """The follower's log, and the leader's, reach the offset in question."""
    RECORD_EPOCH = 8
    """The records before that offset were written in the same epoch."""
    NOBODY = 16
    """No follower passes."""


class Guard(IntFlag):
    """What must hold at other places."""

    NOTHING = 0
    ELECT_FROM_ISR = 1
    """The controller elects members of the ISR only (no unclean election)."""
    NEWER_EPOCH = 2
    """A replica heeds only requests of an epoch above its own."""
    ISR_BY_TRUE_LEADER = 4
    """The ISR is changed only by the leader the controller knows, in its current epoch."""
    LEADER_WRITES = 8
    """Only who takes itself for the leader appends records of its own."""
    TRUNCATION_FENCED = 16
    """A follower compares its log only with a leader that is in the epoch the follower moves to."""
    EPOCH_START_REACHED = 32
    """No replica joins the ISR until the leader's high watermark has come to the records of its own epoch."""
    BEHIND_LEADER = 64
    """A follower's high watermark does not pass the leader's."""


COMMON: Final = Guard.ELECT_FROM_ISR | Guard.NEWER_EPOCH | Guard.ISR_BY_TRUE_LEADER | Guard.LEADER_WRITES | Guard.BEHIND_LEADER


@dataclass(frozen=True, slots=True)
class Protocol:
    """How replicas of one partition replicate: the truncation, and the fences before each step of a leader or follower."""

    name: str
    truncation: Truncation
    fetch: Fence
    raise_high_watermark: Fence
    shrink_isr: Fence
    """A member of the ISR that does not pass this may be put out of it. It guards nothing: to put anyone out at any time is
    as safe (a test shows it)."""
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
    _BY_RECORD,
    _BY_RECORD,
    _BY_RECORD,
    _BY_RECORD,
    COMMON | Guard.EPOCH_START_REACHED,
)
KIP_320: Final = Protocol(
    "kip-320",
    Truncation.KIP_279,
    Fence.SAME_EPOCH,
    _BY_EPOCH,
    _BY_EPOCH,
    _BY_EPOCH,
    COMMON | Guard.EPOCH_START_REACHED | Guard.TRUNCATION_FENCED,
)

PROTOCOLS: Final = {protocol.name: protocol for protocol in (TRUNCATE_TO_HW, KIP_101, KIP_279, KIP_320_FIRST_TRY, KIP_320)}
"""All by name, oldest first."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a world is explored: replicas, offsets a log has room for, records ever written, and the last leader epoch."""

    replicas: int = 3
    log_size: int = 2
    records: int = 2
    max_epoch: int = 2


class ModelRecord(NamedTuple):
    """A record, known by its number in the order of writing, and the leader epoch it was written in."""

    number: int
    leader_epoch: int


class ModelReplica(NamedTuple):
    """What one broker knows: the epoch it heeds (-1: none yet), its high watermark, its view of the ISR, its records."""

    leader_epoch: int
    high_watermark: int
    isr: frozenset[int]
    log: tuple[ModelRecord, ...]


class Request(NamedTuple):
    """What the controller tells all replicas; its place in the list is the leader epoch. Leader None: there is none."""

    leader: int | None
    isr: frozenset[int]


class World(NamedTuple):
    """The world: replicas, all requests so far, the controller's ISR, how many records were ever written.

    `committed` numbers the records below a high watermark that the true leader set, where the history is kept.
    """

    replicas: tuple[ModelReplica, ...]
    requests: tuple[Request, ...]
    isr: frozenset[int]
    records: int
    committed: frozenset[int] = frozenset()


class Step(NamedTuple):
    """What happens: a verb, who does it, and to whom, what number or until where (None where the verb needs none)."""

    action: str
    replica: int
    other: int | None = None
    number: int | None = None


def leader_of(state: World, replica: int) -> int | None:
    """Whom a replica takes for the leader."""
    epoch = state.replicas[replica].leader_epoch
    return None if epoch < 0 else state.requests[epoch].leader


def true_leader(state: World) -> int | None:
    """The replica that the controller's last request names, if it has heeded that request."""
    leader = state.requests[-1].leader if state.requests else None
    return leader if leader is not None and state.replicas[leader].leader_epoch == len(state.requests) - 1 else None


class Model:
    """All steps of a protocol in a world of some size; `history` keeps the records that were ever committed."""

    def __init__(self, protocol: Protocol, sizes: Sizes, *, history: bool = False) -> None:
        self.protocol = protocol
        self.sizes = sizes
        self.history = history
        self.everyone = range(sizes.replicas)

    def initial(self) -> World:
        """Empty logs, no request yet, everyone in the ISR."""
        nobody = ModelReplica(-1, 0, frozenset(), ())
        return World((nobody,) * self.sizes.replicas, (), frozenset(self.everyone), 0)

    def successors(self, state: World) -> Iterator[tuple[Step, World]]:
        """Every step that is possible, with the state it leads to."""
        yield from self._controller(state)
        for replica in self.everyone:
            yield from self._heed(state, replica)
            if leader_of(state, replica) == replica or not self.protocol.guards & Guard.LEADER_WRITES:
                yield from self._write(state, replica)
            if leader_of(state, replica) == replica:
                yield from self._lead(state, replica)

    def _controller(self, state: World) -> Iterator[tuple[Step, World]]:
        """Elect a leader, or put a replica out of the ISR (a leader leaves its post; the last member stays)."""
        if len(state.requests) > self.sizes.max_epoch:
            return
        leader = state.requests[-1].leader if state.requests else None
        electable = state.isr if self.protocol.guards & Guard.ELECT_FROM_ISR else self.everyone
        for replica in self.everyone:
            if replica in electable and replica != leader:
                isr = state.isr if replica in state.isr else frozenset({replica})
                yield Step("elect", replica, number=len(state.requests)), _ask(state, Request(replica, isr))
            if replica == leader:
                isr = state.isr - {replica} or state.isr
                yield Step("remove", replica, number=len(state.requests)), _ask(state, Request(None, isr))
            elif replica in state.isr:
                isr = state.isr - {replica}
                yield Step("remove", replica, number=len(state.requests)), _ask(state, Request(leader, isr))

    def _heed(self, state: World, replica: int) -> Iterator[tuple[Step, World]]:
        """Become leader or follower in the epoch of a request, any that was ever sent."""
        own = state.replicas[replica]
        for epoch, request in enumerate(state.requests):
            newer = epoch > own.leader_epoch if self.protocol.guards & Guard.NEWER_EPOCH else epoch != own.leader_epoch
            if not newer or request.leader is None:
                continue
            if request.leader == replica:
                after = own._replace(leader_epoch=epoch, isr=request.isr)
                yield Step("lead", replica, number=epoch), _with(state, replica, after)
            elif self._may_truncate(state, request.leader, epoch):
                end = self._truncation_offset(state, replica, request.leader)
                if end > len(own.log):
                    continue  # the specification's log cannot be cut where it does not reach; a later request can be heeded
                mark = min(end, own.high_watermark)
                yield (
                    Step("follow", replica, request.leader, epoch),
                    _with(state, replica, ModelReplica(epoch, mark, request.isr, own.log[:end])),
                )

    def _may_truncate(self, state: World, leader: int, epoch: int) -> bool:
        return not self.protocol.guards & Guard.TRUNCATION_FENCED or state.replicas[leader].leader_epoch == epoch

    def _truncation_offset(self, state: World, replica: int, leader: int) -> int:
        own, log = state.replicas[replica], state.replicas[leader].log
        match self.protocol.truncation:
            case Truncation.HIGH_WATERMARK:
                return own.high_watermark
            case Truncation.KIP_101:
                return _end_of_last_epoch(own, log)
            case Truncation.KIP_279:
                return _matching_end(own.log, log)
            case _:
                return len(own.log)

    def _write(self, state: World, replica: int) -> Iterator[tuple[Step, World]]:
        own = state.replicas[replica]
        if own.leader_epoch >= 0 and state.records < self.sizes.records and len(own.log) < self.sizes.log_size:
            log = (*own.log, ModelRecord(state.records, own.leader_epoch))
            after = _with(state, replica, own._replace(log=log))
            yield Step("write", replica, number=state.records), after._replace(records=state.records + 1)

    def _lead(self, state: World, leader: int) -> Iterator[tuple[Step, World]]:
        """What happens between who takes itself for the leader and the others."""
        own, rules = state.replicas[leader], self.protocol
        mark = own.high_watermark
        if mark < len(own.log) and all(
            self._passes(state, leader, member, mark + 1, rules.raise_high_watermark) for member in own.isr
        ):
            after = _with(state, leader, own._replace(high_watermark=mark + 1))
            if self.history and true_leader(state) == leader:
                after = after._replace(committed=state.committed | {own.log[mark].number})
            yield Step("raise", leader, number=mark + 1), after
        for other in self.everyone:
            if other == leader:
                continue
            yield from self._replicate(state, leader, other)
            if rules.guards & Guard.ISR_BY_TRUE_LEADER and true_leader(state) != leader:
                continue
            if other in own.isr:
                if not self._passes(state, leader, other, len(own.log), rules.shrink_isr):
                    yield Step("shrink", leader, other), _change_isr(state, leader, own.isr - {other})
            elif self._passes(state, leader, other, mark, rules.expand_isr) and self._epoch_start_reached(own):
                yield Step("expand", leader, other), _change_isr(state, leader, own.isr | {other})

    def _replicate(self, state: World, leader: int, other: int) -> Iterator[tuple[Step, World]]:
        """The follower fetches one record; or it truncates, where that is left to the fetch."""
        own, follower, rules = state.replicas[leader], state.replicas[other], self.protocol
        end = len(follower.log)
        if end < len(own.log) and self._passes(state, leader, other, end, rules.fetch):
            mark = min(own.high_watermark, end + 1) if rules.guards & Guard.BEHIND_LEADER else end + 1
            after = follower._replace(log=(*follower.log, own.log[end]), high_watermark=mark)
            yield Step("fetch", other, leader, own.log[end].number), _with(state, other, after)
        if rules.truncation is Truncation.ON_FETCH and leader_of(state, other) == leader and _refused(own.log, follower.log):
            end = _matching_end(follower.log, own.log)
            after = follower._replace(log=follower.log[:end], high_watermark=min(end, follower.high_watermark))
            yield Step("truncate", other, leader, end), _with(state, other, after)

    def _passes(self, state: World, leader: int, other: int, end: int, fence: Fence) -> bool:
        """Whether a follower passes a fence for the offsets below `end`."""
        own, follower = state.replicas[leader], state.replicas[other]
        if fence & Fence.NOBODY:
            return False
        if fence & Fence.FOLLOWS and leader_of(state, other) != leader:
            return False
        if fence & Fence.SAME_EPOCH and follower.leader_epoch != own.leader_epoch:
            return False
        if fence & Fence.REACHED and end > min(len(own.log), len(follower.log)):
            return False
        if not fence & Fence.RECORD_EPOCH or end == 0 or end > min(len(own.log), len(follower.log)):
            return True
        return own.log[end - 1].leader_epoch == follower.log[end - 1].leader_epoch

    def _epoch_start_reached(self, own: ModelReplica) -> bool:
        if not self.protocol.guards & Guard.EPOCH_START_REACHED or own.high_watermark >= len(own.log):
            return True
        return own.log[own.high_watermark].leader_epoch == own.leader_epoch


def _ask(state: World, request: Request) -> World:
    return state._replace(requests=(*state.requests, request), isr=request.isr)


def _with(state: World, replica: int, after: ModelReplica) -> World:
    return state._replace(replicas=(*state.replicas[:replica], after, *state.replicas[replica + 1 :]))


def _change_isr(state: World, leader: int, isr: frozenset[int]) -> World:
    return _with(state, leader, state.replicas[leader]._replace(isr=isr))._replace(isr=isr)


def _end_of_last_epoch(own: ModelReplica, leader: tuple[ModelRecord, ...]) -> int:
    """Where the leader's log ends the epoch of the follower's last record; the high watermark where it cannot tell."""
    if not own.log:
        return 0
    epoch = own.log[-1].leader_epoch
    if leader and leader[-1].leader_epoch == epoch:
        return len(leader)
    return next((offset for offset, record in enumerate(leader) if record.leader_epoch > epoch), own.high_watermark)


def _matching_end(log: tuple[ModelRecord, ...], other: tuple[ModelRecord, ...]) -> int:
    """Behind the last offset at which both logs hold the same record."""
    return max((offset + 1 for offset, (own, their) in enumerate(zip(log, other, strict=False)) if own == their), default=0)


def _refused(leader: tuple[ModelRecord, ...], follower: tuple[ModelRecord, ...]) -> bool:
    """Whether a fetch would fail: the follower is longer, or its last record has another epoch than the leader's there."""
    if len(follower) > len(leader):
        return True
    return bool(follower) and leader[len(follower) - 1].leader_epoch != follower[-1].leader_epoch


# What a replication protocol promises, as predicates on one state of the model.


def strong_isr(state: World) -> bool:
    """What any who takes itself for the leader calls committed lies on every member of the controller's ISR, hence on every
    replica that may be elected."""
    return all(_all_hold(state, leader, state.isr) for leader in _presumed(state))


def weak_isr(state: World) -> bool:
    """The same for the ISR as that leader sees it."""
    return all(_all_hold(state, leader, leader.isr) for leader in _presumed(state))


def leader_in_isr(state: World) -> bool:
    """The controller's leader, if there is one, is in the controller's ISR."""
    leader = state.requests[-1].leader if state.requests else None
    return leader is None or leader in state.isr


def epoch_monotone(state: World) -> bool:
    """Within a log, epochs never go down."""
    return all(record.leader_epoch <= two.leader_epoch for replica in state.replicas for record, two in pairwise(replica.log))


def settled_agreement(state: World) -> bool:
    """A follower in the true leader's epoch holds the leader's records wherever both have any."""
    leader = true_leader(state)
    if leader is None:
        return True
    own = state.replicas[leader]
    return all(_agree(own, replica) for replica in state.replicas if replica.leader_epoch == own.leader_epoch)


def log_matching(state: World) -> bool:
    """Two replicas agree below the lower of their high watermarks."""
    return all(
        _agree(replica, two, min(replica.high_watermark, two.high_watermark)) for replica, two in combinations(state.replicas, 2)
    )


def same_epoch_agreement(state: World) -> bool:
    """Two replicas never hold different records of one epoch at one offset."""
    return not any(
        own != their and own.leader_epoch == their.leader_epoch
        for replica, two in combinations(state.replicas, 2)
        for own, their in zip(replica.log, two.log, strict=False)
    )


def committed_on_isr(state: World) -> bool:
    """Every member of the controller's ISR holds all that was ever committed."""
    return all(state.committed <= _numbers(state.replicas[member]) for member in state.isr)


def committed_on_leader(state: World) -> bool:
    """The true leader holds all that was ever committed."""
    leader = true_leader(state)
    return leader is None or state.committed <= _numbers(state.replicas[leader])


def committed_somewhere(state: World) -> bool:
    """All that was ever committed is left on some replica."""
    return state.committed <= frozenset().union(*map(_numbers, state.replicas))


INVARIANTS: Final[dict[str, Callable[[World], bool]]] = {
    "StrongIsr": strong_isr,
    "WeakIsr": weak_isr,
    "LeaderInIsr": leader_in_isr,
    "EpochMonotone": epoch_monotone,
    "SettledAgreement": settled_agreement,
    "LogMatching": log_matching,
    "SameEpochAgreement": same_epoch_agreement,
    "CommittedOnIsr": committed_on_isr,
    "CommittedOnLeader": committed_on_leader,
    "CommittedSomewhere": committed_somewhere,
}
"""By name; the first four are those of the specification, their numbers here are bits in `search.broken`."""
OF_HISTORY: Final = frozenset({"CommittedOnIsr", "CommittedOnLeader", "CommittedSomewhere"})
"""Those that need the history: which records were ever committed."""


def _presumed(state: World) -> list[ModelReplica]:
    return [own for replica, own in enumerate(state.replicas) if leader_of(state, replica) == replica]


def _all_hold(state: World, leader: ModelReplica, isr: frozenset[int]) -> bool:
    below = leader.log[: leader.high_watermark]
    whole = len(below) == leader.high_watermark
    return whole and all(state.replicas[member].log[: leader.high_watermark] == below for member in isr)


def _agree(replica: ModelReplica, two: ModelReplica, end: int | None = None) -> bool:
    return all(own == their for own, their in zip(replica.log[:end], two.log[:end], strict=False))


def _numbers(replica: ModelReplica) -> frozenset[int]:
    return frozenset(record.number for record in replica.log)
