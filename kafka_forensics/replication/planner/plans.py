"""The values of a plan: replicas, witnesses and the controller's state as input, elections and losses as output."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Broker
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised
from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.replication.remote_segments import RemoteFate

TruncateBy = Literal["epochs", "high_watermark"]
Strays = Literal["deleted", "set_aside"]
NO_CONTROLLER_LOG: Final = "no_controller_log"
ASSIGNMENT_UNKNOWN: Final = (NO_CONTROLLER_LOG, "controller_log_damaged", "controller_log_silent", "voters_behind")
MAY_HIDE_RECORDS: Final = frozenset(
    {
        *("copy_absent", "copy_not_read", "copy_unnamed", "dead_copy_absent"),
        *("log_not_read", "not_copied", "topic_undecided", "unknown_bytes"),
    }
)
"""Kinds of `Missing`: records may exist that nobody has read."""
LOSS_UNKNOWN: Final = MAY_HIDE_RECORDS | {"controller_log_older", "voters_behind"}
"""Kinds of `Missing`: it is unknown whether an ordinary start loses anything."""
WITHOUT_UPPER_BOUND: Final = MAY_HIDE_RECORDS.union(ASSIGNMENT_UNKNOWN)
"""Kinds of `Missing`: there is no upper bound of the loss."""
CHOSEN_BY: Final = ("replicas_to_repair", "checkpoints", "force", "log_start", "election", "high_watermark", "assignment", "order")
"""What decides between candidates with equal losses, in the order of `planner._Planning.preference`."""
NO_END: Final = INT64_MAX


class Witness(Struct, frozen=True):
    """Evidence that `[0, end_offset)` of a log was committed.

    `kind` is `high_watermark`, `group_offset`, `transaction_marker` or `remote_segment`; `name` the group, the transactional id or
    the segment.
    """

    end_offset: int
    kind: str
    broker: Broker
    """The broker of that log."""
    name: str | None = None
    claimed_end_offset: int | None = None
    """The offset it names where that is beyond the log end; it proves only what the log has."""


class PlanReplica(Struct, frozen=True):
    """A replica as a broker loads it from its copy; offsets are exclusive ends, None: unknown."""

    broker: Broker
    log_start_offset: int
    log_end_offset: int
    """After the recovery that a start runs."""
    high_watermark: int | None = None
    """From replication-offset-checkpoint."""
    epochs: tuple[EpochEntry, ...] = ()
    """From its batches."""
    checkpoint: tuple[EpochEntry, ...] | None = None
    """From its `leader-epoch-checkpoint`, after recovery; None: absent, or rejected by Kafka."""
    held: Ranges | None = None
    """Offsets of its good batches on disk; None: all of `[log_start_offset, log_end_offset)`."""
    witnesses: tuple[Witness, ...] = ()
    """Other than its high watermark."""
    is_live: bool = True
    """Whether its broker comes back; otherwise it can neither lead nor truncate."""
    starts: bool = True
    """Whether a broker starts on this copy."""
    refused_at: str | None = None
    """The file that prevents a start."""
    end_is_known: bool = True
    crashed: bool = False
    """Whether its broker did not shut down cleanly: the controller elects other leaders where it led and, when it registers again,
    removes it from the ELR (KIP-966)."""
    damaged: Ranges = ()
    """Offsets of batches on disk with a wrong checksum: on disk, but unreadable."""
    has_unknown_bytes: bool = False
    """Whether bytes of unknown offsets follow its last batch."""
    unread: Ranges = ()
    """Offsets before its log end that could not be read; they do not count as on disk."""
    expected_log_start: int | None = None
    """Where its log would start if the start were not missing for no known reason; None: nothing is missing."""
    start_may_be_expired: bool = False
    """Whether an unknown retention may have deleted that start; then none of it is proven to be committed still."""
    is_absent: bool = False
    """Whether the log directory has no directory of it: its broker starts with an empty log."""
    local_log_start_offset: int | None = None
    """Where its local log starts, if the topic is tiered; earlier records are in remote storage."""
    epochs_without_checkpoint: tuple[EpochEntry, ...] = ()
    """The broker's epochs where `checkpoint` is None: brokers load an absent file as an empty one, recovery adds epochs, and a
    broker that was running during the copy has its epochs in memory."""
    converted: Ranges = ()
    """Offsets of records whose headers or transactions are missing, because an older message format cannot hold them."""

    @property
    def copied_from(self) -> int:
        """The first offset that followers can fetch from it."""
        return self.log_start_offset if self.local_log_start_offset is None else self.local_log_start_offset

    @property
    def brokers_epochs(self) -> tuple[EpochEntry, ...]:
        """The epochs that its broker loads, see `planner.loaded_epochs`."""
        return self.epochs_without_checkpoint if self.checkpoint is None else self.checkpoint

    @property
    def on_disk(self) -> Ranges:
        """Offsets on disk before any recovery, damaged ones included, from the log start on."""
        held = self.held
        if held is None:
            held = ((self.log_start_offset, self.log_end_offset),) if self.log_start_offset < self.log_end_offset else ()
            if not self.damaged:
                return held
        return clipped(normalised((*held, *self.damaged)) if self.damaged else held, self.log_start_offset, NO_END)


class PlanControl(Struct, frozen=True):
    """The controller's last state of a partition; None: unknown."""

    leader: int | None = None
    """-1: none."""
    last_leader: int | None = None
    """The last broker that led."""
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    elr: tuple[int, ...] | None = None
    assignment: tuple[int, ...] | None = None
    unclean_by_topic: bool | None = None
    """The topic's own `unclean.leader.election.enable`."""
    unclean_by_default: bool | None = None
    """The setting of all brokers in the controllers' log."""

    @property
    def unclean_enabled(self) -> bool | None:
        """Whether unclean elections are allowed for the topic."""
        return self.unclean_by_default if self.unclean_by_topic is None else self.unclean_by_topic


class PlanPartition(Struct, frozen=True):
    """The input of a plan: the replicas of one partition in one cluster.

    `differing` has, for pairs of replica numbers in ascending order, the offsets at which both have records that differ, or damaged
    records that are not proven equal.
    """

    topic: str
    partition: int
    replicas: Sequence[PlanReplica]
    differing: Mapping[tuple[int, int], Ranges] = field(default_factory=dict)
    control: PlanControl | None = None
    compacted: bool = False
    nodes: Mapping[Broker, int] = field(default_factory=dict)
    """Broker → node id, where that is not its name here."""
    guessed: frozenset[Broker] = frozenset()
    """Brokers with a guessed node id: their copies do not name them, and only one replica has no other copy."""
    dead: frozenset[Broker] = frozenset()
    """Node ids of brokers that will not come back; their copies are not live."""
    not_copied: tuple[Broker, ...] = ()
    """Brokers whose log directory was copied without this replica, or could not be read."""
    strays: Strays | None = None
    """What brokers do with their directories when they start, if the controllers do not know the topic; None: they know it."""
    remote_segments: Sequence[RemoteSegment] = ()
    """Of a tiered topic: the segments with a finished copy."""

    def node(self, broker: Broker) -> Broker:
        """The node id of a broker; its name here if that is unknown."""
        return self.nodes.get(broker, broker)

    @property
    def absent(self) -> list[int]:
        """Brokers with a replica by the controller's log, and no known copy here."""
        present = {self.node(replica.broker) for replica in self.replicas}
        assignment = () if self.control is None or self.control.assignment is None else self.control.assignment
        present |= {self.node(broker) for broker in self.not_copied}
        return [node for node in assignment if node not in present]


class Loss(NamedTuple):
    """Offsets `[start, end)` of one version of the log that the leader lacks or has differently.

    `witness` proves `[start, committed_end)` committed (`committed_end` is `start` if nothing is proven). `kept_by` are those of
    `held_by` that never truncate it, though no reader gets it.
    """

    start: int
    end: int
    held_by: tuple[Broker, ...]
    kept_by: tuple[Broker, ...] = ()
    committed_end: int = -1
    witness: Witness | None = None

    def unproven(self) -> "Loss":
        """The same loss without a witness."""
        return self._replace(committed_end=self.start, witness=None)

    @property
    def committed(self) -> int:
        """Number of offsets proven committed."""
        return max(self.committed_end - self.start, 0)


class FollowerPlan(NamedTuple):
    """What one replica does under a leader: it truncates `[truncation_offset, log_end_offset)` and copies from there on."""

    broker: Broker
    truncation_offset: int | None
    """None: its broker does not come back, or does not start on this copy."""
    log_end_offset: int
    by_checkpoint: int | None
    """By the leader-epoch checkpoints, an absent one as empty; None for high-watermark truncation."""
    by_batches: int | None
    """By the epochs in batches."""
    lost: Ranges
    """Offsets it has and the leader's log lacks or has differently."""
    kept: Ranges
    """The part of `lost` that it does not truncate; empty for a broker that does not come back."""
    below_leaders_start: int = 0
    """Number of its offsets below the leader's log start, which it deletes."""
    halts: bool = False
    """Whether its broker halts if unclean elections are off, because its log is longer than the leader's (before Kafka 0.11)."""
    disagrees: bool = False
    """Whether checkpoint and batches give different truncation offsets above the log starts; not known for compacted logs."""
    restarts_empty: bool = False
    """Whether its log ends before the leader's `copied_from`: it drops everything, and its local log restarts at
    `truncation_offset`."""


class Candidate(NamedTuple):
    """The election of one replica, and what it loses."""

    broker: Broker
    election: str
    """`leads` (it is the leader) · `clean` (in the ISR) · `elr` · `last_known_leader` (it led last, and ISR and ELR are empty) ·
    `unclean` · `unknown` (no controller's log, or the copy does not name its broker)"""
    followers: tuple[FollowerPlan, ...]
    losses: tuple[Loss, ...]
    recovery_cut: int = 0
    """Number of offsets that its recovery removes."""
    remote: RemoteFate = RemoteFate()
    """What happens to remote segments outside its log."""

    @property
    def at_most(self) -> int:
        """Number of offsets lost, of all versions."""
        return self.costs()[2]

    @property
    def committed(self) -> int:
        """Number of offsets lost that are proven committed."""
        return self.costs()[0]

    @property
    def at_least(self) -> int:
        """Number of those that no replica keeps."""
        return self.costs()[1]

    def costs(self) -> tuple[int, int, int]:
        """See `costs_of`."""
        return costs_of(self.losses)


def costs_of(losses: Sequence[Loss]) -> tuple[int, int, int]:
    """Numbers of lost offsets: proven committed, those of them that no replica keeps, and all."""
    committed = at_least = at_most = 0
    for loss in losses:
        at_most += loss.end - loss.start
        if loss.committed_end > loss.start:
            committed += loss.committed_end - loss.start
            if not loss.kept_by:
                at_least += loss.committed_end - loss.start
    return committed, at_least, at_most


class AlreadyLost(Struct, frozen=True):
    """Offsets `[start, end)` of a version proven committed that some replicas have lost, by high-watermark truncation or an
    election without them. They have other records in `[start, replaced_end)` and none in `[replaced_end, end)`."""

    brokers: tuple[Broker, ...]
    start: int
    replaced_end: int
    end: int
    held_by: tuple[Broker, ...]
    witness: Witness


class Missing(Struct, frozen=True):
    """Missing evidence that makes the bounds wider.

    `no_controller_log` · `controller_log_damaged` · `controller_log_silent` (it has no state of the partition) ·
    `controller_log_older` (than the records that may be lost) · `voters_behind` (only observers' copies of that log know the
    partition) · `topic_unknown` (to the controllers) · `copy_absent` · `not_copied` (its log directory was copied in part) ·
    `replica_absent` (its broker starts with an empty log) · `dead_copy_absent` (of a broker that does not come back) ·
    `copy_not_read` (nothing of its log could be read) · `copy_unnamed` (the copy does not name its broker) · `same_broker` (several
    copies are of one broker) · `no_high_watermark` · `no_epoch_checkpoint` · `log_not_read` · `unknown_bytes` · `does_not_start` ·
    `not_live` · `topic_undecided` (which of several topics with this name is the present one) · `other_topic` · `no_topic_id`
    (`partition.metadata` is absent, so its broker renames the log or does not start)
    """

    kind: str
    broker: Broker | None = None


class Plan(Struct, frozen=True):
    """All possible elections of a partition."""

    topic: str
    partition: int
    truncate_by: TruncateBy
    candidates: tuple[Candidate, ...]
    recommended: Broker | None
    """The candidate that loses least; None: no replica can lead."""
    missing: tuple[Missing, ...]
    already_lost: tuple[AlreadyLost, ...] = ()
    at_stake: tuple[Loss, ...] = ()
    """Where no replica can lead: everything on the copies."""
    strays: Strays | None = None
    """See `PlanPartition.strays`."""
    equally_good: tuple[Broker, ...] = ()
    """Candidates that lose as much as `recommended`."""
    ordinary: tuple[Broker, ...] = ()
    """Brokers that an ordinary start may elect (`planner.ordinary_leaders`)."""
    chosen_by: tuple[str, ...] = ()
    """Members of `CHOSEN_BY` that put `recommended` before `equally_good`."""
    contested_by: Broker | None = None
    """The candidate that would lose less than `recommended` if everything on replicas without a high watermark were committed."""

    @property
    def without_high_watermark(self) -> tuple[Broker, ...]:
        """Brokers without a checkpointed high watermark."""
        return tuple(gap.broker for gap in self.missing if gap.kind == "no_high_watermark" and gap.broker is not None)

    @property
    def ordinary_loss(self) -> int | None:
        """Number of offsets proven committed that an ordinary start may lose; None: unknown, because copies are missing."""
        if any(missing.kind in LOSS_UNKNOWN for missing in self.missing):
            return None
        if self.strays is not None:
            return costs_of(self.at_stake)[0]
        return max((candidate.committed for candidate in self.candidates if candidate.broker in self.ordinary), default=0)

    @property
    def at_most_is_bound(self) -> bool:
        """Whether `Candidate.at_most` is an upper bound: every replica was read."""
        return not any(missing.kind in WITHOUT_UPPER_BOUND for missing in self.missing)

    @property
    def matters(self) -> bool:
        """Whether some election loses something or deletes remote segments, a follower's checkpoint and batches disagree, or no
        replica can lead."""
        if any(candidate.remote.forgotten for candidate in self.candidates):
            return True
        if len({candidate.remote.expired for candidate in self.candidates}) > 1:
            return True
        return not self.candidates or any(
            candidate.losses or any(follower.disagrees for follower in candidate.followers) for candidate in self.candidates
        )
