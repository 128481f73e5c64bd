"""The values of a plan: replicas, witnesses and the controller's word as they are given, elections and losses as they come out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Broker
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised
from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.replication.remote_segments import RemoteFate

TruncateBy = Literal["epochs", "high-watermark"]
Strays = Literal["deleted", "set_aside"]
NO_WORD: Final = "no_controller_log"
UNSAID: Final = (NO_WORD, "controller_log_damaged", "controller_log_silent", "voters_behind")
UNSEEN: Final = frozenset(
    {
        "copy_absent",
        "copy_not_read",
        "copy_unnamed",
        "dead_copy_absent",
        "log_not_read",
        "not_copied",
        "topic_undecided",
        "unknown_bytes",
    }
)
"""What of a plan's `Missing` means that records may be where nobody looked."""
CANNOT_TELL: Final = UNSEEN | {"controller_log_older", "voters_behind"}
"""What of it leaves it open whether an ordinary start loses anything."""
UNBOUNDED: Final = UNSEEN.union(UNSAID)
"""What of a plan's `Missing` leaves it open how much may be lost at most."""
CHOSEN_BY: Final = ("replicas_to_mend", "checkpoints", "force", "log_start", "election", "high_watermark", "assignment", "order")
"""What decides between candidates that lose alike, in this order: see `planner._Planning.preference`."""
NO_END: Final = INT64_MAX


@dataclass(frozen=True, slots=True)
class Witness:
    """Something that proves `[0, end_offset)` of the log it was read with to have been committed.

    `kind` is `high_watermark`, `group_offset`, `transaction_marker` or `remote_segment`; `name` the group, the transactional id or
    the segment.
    """

    end_offset: int
    kind: str
    broker: Broker
    """Whose log it speaks for."""
    name: str | None = None
    said: int | None = None
    """What it says where that lies beyond the end of the log, of which it proves no more than is there."""


@dataclass(frozen=True, slots=True)
class PlanReplica:
    """One replica as a broker would load it from its copy; offsets are exclusive ends, None is "not known"."""

    broker: Broker
    log_start_offset: int
    log_end_offset: int
    """After the recovery that a start on this copy would run."""
    high_watermark: int | None = None
    """From its checkpoint."""
    epochs: tuple[EpochEntry, ...] = ()
    """As the batches show them."""
    checkpoint: tuple[EpochEntry, ...] | None = None
    """As its `leader-epoch-checkpoint` says, after recovery; None: there is none, or one that Kafka refuses."""
    held: Ranges | None = None
    """Offsets of its good batches on disk; None: all of `[log_start_offset, log_end_offset)`."""
    witnesses: tuple[Witness, ...] = ()
    """Beside its own high watermark."""
    is_live: bool = True
    """Whether its broker will be there: else it can neither lead nor be cut."""
    starts: bool = True
    """Whether a broker starts on this copy at all."""
    refused_at: str | None = None
    """The file at which it ends its start, if it does not."""
    end_is_known: bool = True
    crashed: bool = False
    """Whether its broker did not stop in order: the controller takes from it what it led and, when it registers again, its place in
    the ELR (KIP-966)."""
    damaged: Ranges = ()
    """Offsets of batches on disk whose bytes are not what was written: held, though nobody can read them."""
    has_unknown_bytes: bool = False
    """Whether bytes are behind its last batch of which nothing tells the offsets."""

    unread: Ranges = ()
    """Offsets before its log end that could not be read: nothing tells whether it holds them, and they do not count as held."""
    head_start: int | None = None
    """Where its log would begin, if its head were not gone for no reason that is known; None: it begins where it should."""
    head_may_be_expired: bool = False
    """Whether a retention that is not known may have deleted that head: then none of it is proven to be committed still."""
    is_absent: bool = False
    """Whether no directory of it is in the log directory that was given: its broker starts with an empty log."""
    local_log_start_offset: int | None = None
    """Where its local log begins, if its topic is tiered: what it holds before that is in remote storage."""
    epochs_without_checkpoint: tuple[EpochEntry, ...] = ()
    """Where `checkpoint` is None, what its broker knows all the same: brokers load a file that is not there as an empty one, but
    recovery adds the epochs it meets, and a broker that was running when it was copied need load none."""
    converted: Ranges = ()
    """Offsets of records without headers or transactions that another replica's have: an older message format cannot hold these."""

    @property
    def copied_from(self) -> int:
        """First offset that followers can copy of it."""
        return self.log_start_offset if self.local_log_start_offset is None else self.local_log_start_offset

    @property
    def brokers_epochs(self) -> tuple[EpochEntry, ...]:
        """The epochs its broker knows once it runs, to be loaded as `planner.loaded_epochs` does."""
        return self.epochs_without_checkpoint if self.checkpoint is None else self.checkpoint

    @property
    def on_disk(self) -> Ranges:
        """Offsets it holds before any recovery, damaged ones among them, from its log start on."""
        held = self.held
        if held is None:
            held = ((self.log_start_offset, self.log_end_offset),) if self.log_start_offset < self.log_end_offset else ()
            if not self.damaged:
                return held
        return clipped(normalised((*held, *self.damaged)) if self.damaged else held, self.log_start_offset, NO_END)


@dataclass(frozen=True, slots=True)
class PlanControl:
    """The controller's last word; None is "it does not say"."""

    leader: int | None = None
    """-1: there is none."""
    last_leader: int | None = None
    """The last one there was."""
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    elr: tuple[int, ...] | None = None
    assignment: tuple[int, ...] | None = None
    unclean_by_topic: bool | None = None
    """The topic's own `unclean.leader.election.enable`."""
    unclean_by_default: bool | None = None
    """What the controllers' log says of it for all brokers."""

    @property
    def unclean_enabled(self) -> bool | None:
        """Whether unclean elections are allowed for the topic."""
        return self.unclean_by_default if self.unclean_by_topic is None else self.unclean_by_topic


@dataclass(frozen=True, slots=True)
class PlanPartition:
    """All that is planned on: replicas of one topic in one cluster.

    `differing` holds, for pairs of their numbers in ascending order, the offsets at which both have records and not the same, or
    damaged ones of which nothing proves that they are the same.
    """

    topic: str
    partition: int
    replicas: Sequence[PlanReplica]
    differing: Mapping[tuple[int, int], Ranges] = field(default_factory=dict)
    control: PlanControl | None = None
    compacted: bool = False
    nodes: Mapping[Broker, int] = field(default_factory=dict)
    """What the controller calls a broker, where that is not its name here."""
    guessed: frozenset[Broker] = frozenset()
    """Whose `nodes` are only concluded: they do not say who they are, and one replica alone has no other copy."""
    dead: frozenset[Broker] = frozenset()
    """Brokers that will not come back, as the controller calls them; of whom a copy is here, that is not live."""
    not_copied: tuple[Broker, ...] = ()
    """Brokers whose log directory was copied in part, and this replica is not in the copy; or could not be read."""
    strays: Strays | None = None
    """What brokers do with their directories of it as they start, for the controllers do not know the topic; None: they know it."""
    remote_segments: Sequence[RemoteSegment] = ()
    """Of a tiered topic: those that were copied to their end."""

    def node(self, broker: Broker) -> Broker:
        """What the controller calls a broker; where that is not known, its name here."""
        return self.nodes.get(broker, broker)

    @property
    def absent(self) -> list[int]:
        """Who has a replica, by the controller's log, of which no copy here is known to be."""
        present = {self.node(replica.broker) for replica in self.replicas}
        assignment = () if self.control is None or self.control.assignment is None else self.control.assignment
        left_out = {self.node(broker) for broker in self.not_copied}
        return [node for node in assignment if node not in present and node not in left_out]


class Loss(NamedTuple):
    """Offsets `[start, end)` of one version of the log that a leader lacks or has differently.

    `[start, committed_end)` is proven committed by `witness` (`committed_end` is `start` where nothing is). `kept_by` are those of
    `held_by` that do not cut it and keep it for good, where no reader sees it.
    """

    start: int
    end: int
    held_by: tuple[Broker, ...]
    kept_by: tuple[Broker, ...] = ()
    committed_end: int = -1
    witness: Witness | None = None

    def unproven(self) -> "Loss":
        """The same, with nothing of it proven committed."""
        return self._replace(committed_end=self.start, witness=None)

    @property
    def committed(self) -> int:
        """Offsets proven committed."""
        return max(self.committed_end - self.start, 0)


class FollowerPlan(NamedTuple):
    """What one replica does under a leader: it cuts `[truncation_offset, log_end_offset)` and copies from there on."""

    broker: Broker
    truncation_offset: int | None
    """None: its broker is not there, or does not start on this copy."""
    log_end_offset: int
    by_checkpoint: int | None
    """By the checkpoints brokers load, one that is not there as an empty one; None with high-watermark truncation."""
    by_batches: int | None
    """By the epochs in the batches."""
    lost: Ranges
    """What it holds and the leader's log lacks or has differently."""
    kept: Ranges
    """What of that it does not cut; nothing of what a broker holds that will not come back."""
    below_leaders_start: int = 0
    """Offsets it holds below the leader's log start, which it will delete."""
    halts: bool = False
    """With unclean elections off its broker halts, for its log is longer than the leader's (before Kafka 0.11)."""
    disagrees: bool = False
    """Whether checkpoint and batches give different cuts above the log starts; of cleaned logs the batches do not tell."""
    begins_anew: bool = False
    """What it would keep ends before the leader's `copied_from`: it drops all, and its local log begins there, at
    `truncation_offset`."""


class Candidate(NamedTuple):
    """An election of one replica, and what it costs."""

    broker: Broker
    election: str
    """`leads` (it is the leader) · `clean` (in the ISR) · `elr` · `last-known-leader` (it led last, and ISR and ELR are empty) ·
    `unclean` · `unknown` (no controller's log says, or not whose copy it is)"""
    followers: tuple[FollowerPlan, ...]
    losses: tuple[Loss, ...]
    own_cut: int = 0
    """Offsets that its own recovery would drop."""
    remote: RemoteFate = RemoteFate()
    """What becomes of the remote segments that its log does not have."""

    @property
    def at_most(self) -> int:
        """Offsets lost of the copies given, each version counted."""
        return self.costs()[2]

    @property
    def committed(self) -> int:
        """Of these, proven committed."""
        return self.costs()[0]

    @property
    def at_least(self) -> int:
        """Proven committed, and kept by no replica."""
        return self.costs()[1]

    def costs(self) -> tuple[int, int, int]:
        """Offsets proven committed, those of them that no replica keeps, and all."""
        return costs_of(self.losses)


def costs_of(losses: Sequence[Loss]) -> tuple[int, int, int]:
    """Of some losses: offsets proven committed, those of them that no replica keeps, and all."""
    committed = at_least = at_most = 0
    for loss in losses:
        at_most += loss.end - loss.start
        if loss.committed_end > loss.start:
            committed += loss.committed_end - loss.start
            if not loss.kept_by:
                at_least += loss.committed_end - loss.start
    return committed, at_least, at_most


@dataclass(frozen=True, slots=True)
class AlreadyLost:
    """Offsets `[start, end)` of a version proven committed that some replicas have lost, as high-watermark truncation does, or an
    election without them. They hold other records in `[start, replaced_end)` and nothing in `[replaced_end, end)`."""

    brokers: tuple[Broker, ...]
    start: int
    replaced_end: int
    end: int
    held_by: tuple[Broker, ...]
    witness: Witness


@dataclass(frozen=True, slots=True)
class Missing:
    """A witness that is not there and makes the bounds wider.

    `no_controller_log` · `controller_log_damaged` · `controller_log_silent` (it is here, and whoever read it says so instead) ·
    `controller_log_older` (than the records at stake) · `voters_behind` (what is known of the partition is from observers' copies
    of that log) · `topic_unknown` (to the controllers) · `copy_absent` · `not_copied` (its log directory was copied in part) ·
    `replica_absent` (its broker starts with an empty log) · `dead_copy_absent` (and it will not come back) · `copy_not_read` (it is
    here, and nothing of its log could be read) · `copy_unnamed` (nothing in the copy says whose it is) ·
    `same_broker` (another copy is of the same broker) · `no_high_watermark` · `no_epoch_checkpoint` · `log_not_read` ·
    `unknown_bytes` · `does_not_start` · `not_live` · `topic_undecided` (which of several of this name is the present one) ·
    `other_topic` · `no_topic_id` (its `partition.metadata` is not there, so that its broker sets the log aside or does not start)
    """

    kind: str
    broker: Broker | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All elections of a partition that are possible on these copies."""

    topic: str
    partition: int
    truncate_by: TruncateBy
    candidates: tuple[Candidate, ...]
    recommended: Broker | None
    """Who loses least; None if nobody can lead."""
    missing: tuple[Missing, ...]
    already_lost: tuple[AlreadyLost, ...] = ()
    at_stake: tuple[Loss, ...] = ()
    """Where nobody can lead: all that the copies hold."""
    strays: Strays | None = None
    """What an ordinary start makes of all these directories, where the controllers do not know the topic."""
    alike: tuple[Broker, ...] = ()
    """Who loses as much as `recommended`, be that nothing."""
    ordinary: tuple[Broker, ...] = ()
    """Whom an ordinary start of all brokers may elect: no flag, no force (`planner.ordinary_leaders`)."""
    chosen_by: tuple[str, ...] = ()
    """What decides between these, one after the other, of `CHOSEN_BY`; empty where none lose alike."""

    contested_by: Broker | None = None
    """Who would lose less of what was committed than `recommended`, if all was that is on a replica without a high watermark."""

    @property
    def without_high_watermark(self) -> tuple[Broker, ...]:
        """Replicas of which no checkpoint says what they committed."""
        return tuple(gap.broker for gap in self.missing if gap.kind == "no_high_watermark" and gap.broker is not None)

    @property
    def ordinary_loss(self) -> int | None:
        """Offsets proven committed that an ordinary start may lose; None where it cannot be told, for copies are not here."""
        if any(missing.kind in CANNOT_TELL for missing in self.missing):
            return None
        if self.strays is not None:
            return costs_of(self.at_stake)[0]
        return max((candidate.committed for candidate in self.candidates if candidate.broker in self.ordinary), default=0)

    @property
    def at_most_is_bound(self) -> bool:
        """Whether more cannot be lost: every replica there is was read."""
        return not any(missing.kind in UNBOUNDED for missing in self.missing)

    @property
    def matters(self) -> bool:
        """Whether an election would lose something or delete remote segments, followers would cut otherwise than by their batches,
        or nobody can lead."""
        if any(candidate.remote.forgotten for candidate in self.candidates):
            return True
        if len({candidate.remote.expired for candidate in self.candidates}) > 1:
            return True
        return not self.candidates or any(
            candidate.losses or any(follower_plan.disagrees for follower_plan in candidate.followers)
            for candidate in self.candidates
        )
