"""Five replication protocols as data: which guard stands before which step, and how a follower truncates.

The oldest trusts a follower's name and cuts logs at high watermarks; each later one mends what its predecessor got wrong
(KIP-101, KIP-279, KIP-320). Leaving out one guard gives another protocol, which is how the guards are tested.
"""

from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import Final


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
