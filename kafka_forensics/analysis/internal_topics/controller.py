"""The controller's log replayed: leader and ISR of each partition over time (PartitionRegistration, TopicDelta).

A change record names only what changes. It has no leader epoch: the epoch rises by one with every record that names a leader, even
the same one. Unreadable records are remembered by their offsets, and state that may depend on them is reported as unknown. Records
of unknown types are skipped and counted; every PartitionControl says how many there were.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.internal_topics.metadata_checks import ApiKey
from kafka_forensics.model.controller import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    BrokerEvent,
    ControllerHistory,
    MetadataRecord,
    MetadataSnapshot,
    PartitionControl,
    PartitionEvent,
    PartitionHistory,
    PartitionState,
    TopicHistory,
)
from kafka_forensics.model.json_objects import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_EVENTS: Final = 4096
"""Events kept per partition, and of all brokers."""
MAX_MARKS: Final = 4096
"""Unreadable offsets kept; after the last of them nothing is known until a snapshot."""
TOPIC, BROKER = 2, 4
"""Resource types of settings (ConfigResource)."""
DEFAULTS: Final = {
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleanup.policy": "cleanup.policy",
    "log.retention.ms": "retention.ms",
    "log.retention.bytes": "retention.bytes",
    "log.message.timestamp.type": "message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Broker settings that are kept, and the corresponding topic settings."""
_HARMLESS: Final = frozenset({0, 1, 7, 8, 10, 11, 12, 14, 15, 17, 18, 19, 20, 21, 22, 26, 27, 29})
"""Types of records that change neither partitions nor settings: a malformed one makes nothing else unknown."""
_LISTS: Final = {
    "isr": "isr",
    "eligible_leader_replicas": "elr",
    "last_known_elr": "last_known_elr",
    "replicas": "replica_assignment",
    "removing_replicas": "removing_replicas",
    "adding_replicas": "adding_replicas",
    "directories": "directories",
}
"""Lists in records about partitions, and the attributes of PartitionState that have them."""
_BROKER_EPOCHS: Final[dict[int, str]] = {
    ApiKey.FENCE_BROKER: "epoch",
    ApiKey.UNFENCE_BROKER: "epoch",
    ApiKey.PRODUCER_IDS: "broker_epoch",
    ApiKey.BROKER_REGISTRATION_CHANGE: "broker_epoch",
}
"""Records about a broker that has received its epoch, and their field with the epoch."""


def _changed_state(state: PartitionState, fields: Json) -> PartitionState:
    """The state after a PartitionChangeRecord: absent fields change nothing, an empty list is a value."""
    names_leader = fields["leader"] != NO_LEADER_CHANGE
    recovery = fields["leader_recovery_state"]
    lists: Json = {attribute: tuple(fields[name]) for name, attribute in _LISTS.items() if fields.get(name) is not None}
    return replace(
        state,
        leader=fields["leader"] if names_leader else state.leader,
        leader_epoch=state.leader_epoch + names_leader,
        partition_epoch=state.partition_epoch + 1,
        leader_recovery_state=state.leader_recovery_state if recovery == -1 else recovery,
        **lists,
    )


def _is_unclean(state: PartitionState, fields: Json) -> bool:
    """Whether a PartitionChangeRecord elects a leader uncleanly (PartitionChangeBuilder).

    The recovery state says so, except while a leader is still recovering and before metadata version 3.2. Then an unclean leader is
    alone in the ISR, was neither in the ISR nor in the ELR before, and no replica is moved.
    """
    leader = fields["leader"]
    if leader in (NO_LEADER, NO_LEADER_CHANGE):
        return False
    if fields["leader_recovery_state"] == RECOVERING:
        return True
    moves = any(fields[name] is not None for name in ("replicas", "removing_replicas", "adding_replicas"))
    outside = leader not in state.isr and leader not in state.elr
    return outside and fields["isr"] == [leader] and not moves


class _PartitionReplay(Struct):
    """A partition during the replay of the log."""

    topic: str
    history: PartitionHistory
    state: PartitionState
    stated: int
    """Offset of the last record with all of its state; for a snapshot, the last offset before its end."""
    last_leader: int
    """-1: none so far."""


class _TopicReplay(Struct):
    history: TopicHistory
    partitions: dict[int, _PartitionReplay] = field(default_factory=dict)


class _UnreadableOffsets(Struct):
    """Offsets of unreadable records, ascending."""

    offsets: list[int] = field(default_factory=list)

    def add(self, offset: int) -> None:
        if len(self.offsets) < MAX_MARKS and (not self.offsets or offset > self.offsets[-1]):
            self.offsets.append(offset)

    def after(self, stated: int) -> int | None:
        """The first unreadable offset after `stated`; None if all records after it were read."""
        at = bisect_right(self.offsets, stated)
        if at < len(self.offsets):
            return self.offsets[at]
        return self.offsets[-1] if len(self.offsets) >= MAX_MARKS else None


class ControllerReplay:
    """Takes records in offset order; `finish` returns the history.

    A majority has the records below `committed_end`, and may have those below `possible_end`.
    """

    def __init__(self, log_start_offset: int, *, committed_end: int | None = None, possible_end: int | None = None) -> None:
        self.history = ControllerHistory(log_start_offset=log_start_offset, committed_end_offset=committed_end)
        self._topics: dict[str, _TopicReplay] = {}
        self._ids: dict[str, str] = {}
        self._fenced: dict[int, bool] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._unreadable = _UnreadableOffsets()
        self._unreadable_settings = _UnreadableOffsets()
        self._transaction: list[tuple[int, int, MetadataRecord]] | None = None
        """Records of the open metadata transaction."""
        self._with_elr: dict[str, dict[int, _PartitionReplay]] = {}
        """Partitions with an ELR by topic, then by id()."""
        self._committed_end, self._possible_end = committed_end, possible_end
        if log_start_offset > 0:
            self.gap(0)

    @property
    def in_doubt(self) -> bool:
        """Whether unreadable records leave a state unknown that a snapshot would show."""
        return bool(self._unreadable.offsets or self._unreadable_settings.offsets)

    def gap(self, offset: int) -> None:
        """Note that records from `offset` on are in no copy."""
        self._unreadable.add(offset)
        self._unreadable_settings.add(offset)

    def step(self, offset: int, timestamp_ms: int, record: MetadataRecord) -> None:
        """Add the record at `offset`. Records of a metadata transaction are applied when it ends."""
        self.history.last_ms = max(timestamp_ms, self.history.last_ms or 0)
        self.history.proven_end = max(self.history.proven_end, _proven_by(offset, record))
        if record.is_unknown:
            self.history.unknown_records += 1
        elif record.problem is not None:
            self._malformed(offset, record)
        if record.fields is None:
            return
        if record.api_key == ApiKey.BEGIN_TRANSACTION:
            self._transaction = []
        elif record.api_key == ApiKey.ABORT_TRANSACTION:
            self._transaction = None
        elif record.api_key == ApiKey.END_TRANSACTION:
            records, self._transaction = self._transaction or [], None
            for change in records:
                self._apply(*change)
        elif self._transaction is not None:
            self._transaction.append((offset, timestamp_ms, record))
        else:
            self._apply(offset, timestamp_ms, record)

    def replace_state(self, snapshot: MetadataSnapshot) -> None:
        """Replace the state before `snapshot.offset` by that of a snapshot; then nothing before it is unknown."""
        before = dict(self._topics)
        self._topics, self._ids, self._configs, self._transaction = {}, {}, {}, None
        self._unreadable, self._unreadable_settings = _UnreadableOffsets(), _UnreadableOffsets()
        self.history.features = {}
        offset, timestamp_ms = snapshot.offset, snapshot.timestamp_ms
        self.history.proven_end = max(self.history.proven_end, offset)
        for batch in snapshot.batches:
            for number, record in batch.records:
                if record.is_unknown:
                    self.history.unknown_records += 1
                elif record.problem is not None:
                    self._malformed(number, record, seen_at=offset - 1)
                elif record.api_key == ApiKey.TOPIC and record.fields is not None:
                    name, topic_id = record.fields["name"], record.fields["topic_id"]
                    old = before.get(topic_id) or _TopicReplay(TopicHistory(name, topic_id))
                    self._topics[topic_id] = _TopicReplay(old.history, dict(old.partitions))
                    self._ids[name] = topic_id
                    self.history.topics[topic_id] = old.history
                elif record.fields is not None:
                    self._apply(offset, timestamp_ms, record, kind="snapshot")
        for topic_id in before.keys() - self._topics.keys():
            self._delete(before[topic_id], offset, timestamp_ms)

    def finish(self, log_end_offset: int) -> ControllerHistory:
        """The history, with the latest state of every partition of the existing topics."""
        history = self.history
        history.log_end_offset = log_end_offset
        history.unknown_after = self._unreadable.after(-1)
        settings_known = self._unreadable_settings.after(-1) is None
        history.defaults = {
            DEFAULTS[name]: value for name, value in self._configs.get((BROKER, ""), {}).items() if name in DEFAULTS
        }
        for topic in self._topics.values():
            name = topic.history.topic
            configs = self._configs.get((TOPIC, name), {})
            topic.history.policies.add(configs.get("cleanup.policy"))
            history.configs[name] = configs
            if self._ids.get(name) == topic.history.topic_id:
                for number, partition in topic.partitions.items():
                    control = self._latest_state(topic.history, partition, settings_known=settings_known)
                    history.partitions[name, number] = control
        return history

    def _latest_state(self, topic: TopicHistory, partition: _PartitionReplay, *, settings_known: bool) -> PartitionControl:
        events, state, end = partition.history.events, partition.state, self._committed_end
        uncommitted = None if end is None else next((event.offset for event in events if event.offset >= end), None)
        doubts = (self._unreadable.after(partition.stated), uncommitted)
        unknown_after = min((offset for offset in doubts if offset is not None), default=None)
        is_known = unknown_after is None
        configs = self.history.configs.get(topic.topic, {}) if settings_known else {}
        defaults = self.history.defaults if settings_known else {}
        policy = configs.get("cleanup.policy", defaults.get("cleanup.policy"))
        return PartitionControl(
            leader=state.leader if is_known else None,
            leader_epoch=state.leader_epoch if is_known else None,
            isr=list(state.isr) if is_known else None,
            elr=list(state.elr) if is_known else None,
            replica_assignment=list(state.replica_assignment) if is_known else None,
            configs=configs,
            topic_id=topic.topic_id,
            defaults=defaults,
            directories=list(state.directories) if is_known and state.directories else None,
            leader_recovery_state=state.leader_recovery_state if is_known else None,
            last_offset=events[-1].offset if events else None,
            as_of_ms=self.history.last_ms,
            unknown_after=unknown_after,
            cleanup_policy=_normalised_policy(policy),
            was_compacted=_was_compacted(topic, policy, settings_known=settings_known),
            history=partition.history,
            unknown_records=self.history.unknown_records,
            exists_since_ms=events[0].timestamp_ms if events and topic.created_ms is None else topic.created_ms,
            metadata_version=self.history.features.get("metadata.version"),
        )

    def _malformed(self, offset: int, record: MetadataRecord, seen_at: int | None = None) -> None:
        self.history.malformed_records += 1
        if record.api_key in _HARMLESS:
            return
        at = offset if seen_at is None else seen_at
        if record.api_key != ApiKey.CONFIG:
            self._unreadable.add(at)
        self._unreadable_settings.add(at)

    def _apply(self, offset: int, timestamp_ms: int, record: MetadataRecord, kind: str | None = None) -> None:
        fields = record.fields
        assert fields is not None
        match record.api_key:
            case ApiKey.TOPIC:
                topic = TopicHistory(fields["name"], fields["topic_id"], offset, timestamp_ms)
                self._topics[topic.topic_id] = _TopicReplay(topic)
                self._ids[topic.topic] = topic.topic_id
                self.history.topics[topic.topic_id] = topic
            case ApiKey.PARTITION:
                self._apply_partition(offset, timestamp_ms, fields, kind or "created")
            case ApiKey.PARTITION_CHANGE:
                self._apply_change(offset, timestamp_ms, fields)
            case ApiKey.REMOVE_TOPIC:
                removed = self._topics.pop(fields["topic_id"], None)
                if removed is not None:
                    self._delete(removed, offset, timestamp_ms)
            case ApiKey.REGISTER_BROKER:
                self._set_fenced(timestamp_ms, fields["broker_id"], is_fenced=fields["fenced"])
            case ApiKey.UNREGISTER_BROKER:
                self._set_fenced(timestamp_ms, fields["broker_id"], is_fenced=True)
            case ApiKey.FENCE_BROKER | ApiKey.UNFENCE_BROKER:
                self._set_fenced(timestamp_ms, fields["id"], is_fenced=record.api_key == ApiKey.FENCE_BROKER)
            case ApiKey.BROKER_REGISTRATION_CHANGE if fields["fenced"]:
                self._set_fenced(timestamp_ms, fields["broker_id"], is_fenced=fields["fenced"] == 1)
            case ApiKey.FEATURE_LEVEL:
                self.history.features[fields["name"]] = fields["feature_level"]
            case ApiKey.CLEAR_ELR:
                name = fields["topic_name"]
                of_topics = [self._with_elr.get(name, {})] if name else [*self._with_elr.values()]
                for partition in [partition for of_topic in of_topics for partition in of_topic.values()]:
                    state = replace(partition.state, elr=(), last_known_elr=())
                    self._add_event(partition, offset, timestamp_ms, "changed", state)
            case ApiKey.CONFIG:
                self._apply_config(fields)

    def _set_fenced(self, timestamp_ms: int, broker: int, *, is_fenced: bool) -> None:
        if self._fenced.get(broker) is not is_fenced:
            self._fenced[broker] = is_fenced
            self.history.brokers.append(BrokerEvent(timestamp_ms, broker, is_fenced))
            if len(self.history.brokers) > MAX_EVENTS:
                del self.history.brokers[: MAX_EVENTS // 2]

    def _apply_config(self, fields: Json) -> None:
        kind, resource, name, value = (fields[field] for field in ("resource_type", "resource_name", "name", "value"))
        if kind != TOPIC and not (kind == BROKER and resource == "" and name in DEFAULTS):
            return
        configs = self._configs.setdefault((kind, resource), {})
        if value is None:
            configs.pop(name, None)
        else:
            configs[name] = value
        topic = self._topics.get(self._ids.get(resource, "")) if kind == TOPIC and name == "cleanup.policy" else None
        if topic is not None:
            topic.history.policies.add(value)

    def _delete(self, topic: _TopicReplay, offset: int, timestamp_ms: int) -> None:
        topic.history.deleted_offset, topic.history.deleted_ms = offset, timestamp_ms
        for partition in topic.partitions.values():
            self._add_event(partition, offset, timestamp_ms, "deleted", partition.state)
        if self._ids.get(topic.history.topic) == topic.history.topic_id:
            del self._ids[topic.history.topic]
            policy = self._configs.pop((TOPIC, topic.history.topic), {}).get("cleanup.policy")
            topic.history.policies.add(policy)

    def _apply_partition(self, offset: int, timestamp_ms: int, fields: Json, kind: str) -> None:
        """Apply a record with all of a partition's state."""
        topic = self._topics.get(fields["topic_id"])
        if topic is None:  # the record of its topic could not be read, or is before the log start
            topic = self._topics.setdefault(fields["topic_id"], _TopicReplay(TopicHistory("", fields["topic_id"])))
        lists: Json = {attribute: tuple(fields.get(name) or ()) for name, attribute in _LISTS.items()}
        numbers = {name: fields[name] for name in ("leader", "leader_epoch", "partition_epoch", "leader_recovery_state")}
        state = PartitionState(**numbers, **lists)
        stated = offset - (kind == "snapshot")
        partition = topic.partitions.get(fields["partition_id"])
        if partition is None:
            partition = _PartitionReplay(topic.history.topic, PartitionHistory(), state, offset, NO_LEADER)
            topic.partitions[fields["partition_id"]] = partition
            topic.history.partitions[fields["partition_id"]] = partition.history
        elif kind == "snapshot" and state == partition.state:
            partition.stated = stated
            return
        partition.stated = stated
        self._add_event(partition, offset, timestamp_ms, kind, state)

    def _apply_change(self, offset: int, timestamp_ms: int, fields: Json) -> None:
        topic = self._topics.get(fields["topic_id"])
        partition = None if topic is None else topic.partitions.get(fields["partition_id"])
        if partition is None:
            return  # the log starts after its creation
        state = _changed_state(partition.state, fields)
        self._add_event(partition, offset, timestamp_ms, "changed", state, is_unclean=_is_unclean(partition.state, fields))

    def _add_event(
        self,
        partition: _PartitionReplay,
        offset: int,
        timestamp_ms: int,
        kind: str,
        state: PartitionState,
        *,
        is_unclean: bool = False,
    ) -> None:
        events = partition.history.events
        is_committed = None  # a majority may have the record, if voters without a given copy do
        if self._committed_end is not None and offset < self._committed_end:
            is_committed = True
        elif self._possible_end is not None and offset >= self._possible_end:
            is_committed = False
        event = PartitionEvent(
            offset,
            timestamp_ms,
            kind,
            state,
            is_unclean,
            previous_leader=partition.last_leader,
            previous_isr=partition.state.isr if events else (),
            unknown_after=self._unreadable.after(partition.stated),
            is_committed=is_committed,
        )
        events.append(event)
        partition.state = state
        of_topic = self._with_elr.setdefault(partition.topic, {})
        of_topic.pop(id(partition), None)
        if kind != "deleted" and (state.elr or state.last_known_elr):
            of_topic[id(partition)] = partition
        if not of_topic:
            del self._with_elr[partition.topic]
        if state.leader != NO_LEADER:
            partition.last_leader = state.leader
        if len(events) > MAX_EVENTS:
            half = MAX_EVENTS // 2
            kept = [event for event in events[:half] if event.is_unclean or event.kind == "created"][: half // 2]
            partition.history.dropped_events += half - len(kept)
            events[:half] = kept


def _proven_by(offset: int, record: MetadataRecord) -> int:
    """The offset below which a record proves others committed. A broker receives its epoch, the offset of its registration, once
    that is committed; the controller fences or changes only brokers that it unfenced with that epoch."""
    epoch = (record.fields or {}).get(_BROKER_EPOCHS.get(record.api_key, ""), -1)
    return epoch + 1 if epoch < offset else 0


def _normalised_policy(policy: str | None) -> str | None:
    """`compact`, `delete` or `compact,delete`, whatever the order and the blanks."""
    if policy is None:
        return None
    return ",".join(sorted({part.strip() for part in policy.split(",")} & {"compact", "delete"})) or None


def _was_compacted(topic: TopicHistory, policy: str | None, *, settings_known: bool) -> bool | None:
    if any(text is not None and "compact" in text for text in (*topic.policies, policy)):
        return True
    complete = settings_known and topic.created_offset is not None and None not in topic.policies
    return False if complete else None


# Several copies of `__cluster_metadata` merged into one log. A record that a majority of the voters has is committed (KIP-595).


class MetadataCopy(Struct):
    """One node's copy: `base_offsets`, `last_offsets` and `identities` (epoch << 32 | CRC) of its good batches, ascending."""

    node: int | str
    base_offsets: "Ints"
    last_offsets: "Ints"
    identities: "Ints"

    @property
    def epochs(self) -> "Ints":
        """Leader epoch of each batch."""
        epochs: Ints = self.identities >> 32
        return epochs

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch; -1 if the log is empty."""
        return int(self.identities[-1] >> 32) if self.identities.size else -1

    def has(self, base_offset: int, identity: int) -> bool:
        """Whether the copy has this batch."""
        at = int(np.searchsorted(self.base_offsets, base_offset))
        return at < self.base_offsets.size and (self.base_offsets[at], self.identities[at]) == (base_offset, identity)

    @property
    def start_offset(self) -> int:
        """First offset; 0 if the log is empty."""
        return int(self.base_offsets[0]) if self.base_offsets.size else 0

    @property
    def end_offset(self) -> int:
        """Next offset to be written."""
        return int(self.last_offsets[-1]) + 1 if self.last_offsets.size else 0

    def within(self, other: "MetadataCopy") -> "MetadataCopy | None":
        """This copy as views of `other`'s arrays, which save memory where every broker has a copy; None if it has other batches."""
        if not self.base_offsets.size:
            return self
        at = int(np.searchsorted(other.base_offsets, self.base_offsets[0]))
        stop = at + self.base_offsets.size
        views = other.base_offsets[at:stop], other.last_offsets[at:stop], other.identities[at:stop]
        arrays = self.base_offsets, self.last_offsets, self.identities
        if not all(np.array_equal(ours, theirs) for ours, theirs in zip(arrays, views, strict=True)):
            return None
        return MetadataCopy(self.node, *views)


def add_copy(copies: list[MetadataCopy], new: MetadataCopy) -> None:
    """Add a copy; it shares its memory with a copy that contains it or that it contains."""
    for index, copy in enumerate(copies):
        shared, shared_copy = new.within(copy), copy.within(new)
        if shared_copy is not None:
            copies[index] = shared_copy
        if shared is not None:
            new = shared
            break
    copies.append(new)


class AgreedLog(Struct):
    """The log on which the copies agree, each completed from the others; `gaps` are the offsets [start, end) that no copy has."""

    base_offsets: "Ints"
    identities: "Ints"
    start_offset: int
    end_offset: int
    gaps: list[tuple[int, int]]
    agreed_ends: dict[int | str, int]
    """Node → the offset up to which its copy equals this log; without empty logs, which were lost, if another has records."""

    def missing_ranges(self, snapshot_end: int) -> list[tuple[int, int]]:
        """Offsets [start, end) that no copy has: before the log start, within the log, and up to `snapshot_end`."""
        before = [(0, self.start_offset)] if self.start_offset else []
        after = [(self.end_offset, snapshot_end)] if snapshot_end > self.end_offset else []
        return [*before, *self.gaps, *after]

    def agrees_with(self, offset: int, epoch: int) -> bool:
        """Whether a snapshot up to `offset`, whose last record is of leader epoch `epoch`, may belong to this log."""
        epochs, at = self.identities >> 32, int(np.searchsorted(self.base_offsets, offset))
        return bool((epochs[:at][-1:] <= epoch).all() and (epochs[at : at + 1] >= epoch).all())

    def committed_end(self, voters: list[int] | None) -> int | None:
        """The offset up to which a majority of `voters` has the log; None if too few of their copies were given."""
        return self._majority_end(voters or [], -1)

    def possible_end(self, voters: list[int] | None) -> int | None:
        """The offset up to which a majority may have the log, if voters without a given copy have all of it; None: no limit."""
        return self._majority_end(voters or [], self.end_offset + 1)

    def _majority_end(self, voters: list[int], unknown: int) -> int | None:
        """The end that a majority reaches, with `unknown` as the end of copies not given; None if the result is `unknown`."""
        ends = sorted((self.agreed_ends.get(voter, unknown) for voter in set(voters)), reverse=True)
        end = ends[len(ends) // 2] if ends else unknown
        return None if end == unknown else end


def merge_copies(copies: list[MetadataCopy]) -> AgreedLog:
    """The log of the copy that would win an election (highest last epoch, then longest), completed from the other copies."""
    best = max(copies, key=lambda copy: (copy.last_epoch, copy.end_offset))
    ends: dict[int | str, int] = {}
    parts = [(best.base_offsets, best.last_offsets, best.identities)]
    for copy in copies:
        end = _agreed_end(copy, best)
        if copy.base_offsets.size or not best.base_offsets.size:
            ends[copy.node] = max(end, ends.get(copy.node, 0))
        if copy is not best:
            missing = ~np.isin(copy.base_offsets, best.base_offsets) & (copy.last_offsets < end)
            parts.append((copy.base_offsets[missing], copy.last_offsets[missing], copy.identities[missing]))
    bases, lasts, identities = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    base_offsets, first = np.unique(bases, return_index=True)
    if not base_offsets.size:
        return AgreedLog(base_offsets, base_offsets, 0, 0, [], ends)
    reached = np.maximum.accumulate(lasts[first])
    gaps = np.flatnonzero(base_offsets[1:] > reached[:-1] + 1)
    return AgreedLog(
        base_offsets,
        identities[first],
        int(base_offsets[0]),
        int(reached[-1]) + 1,
        [(int(reached[at]) + 1, int(base_offsets[at + 1])) for at in gaps],
        ends,
    )


def _agreed_end(copy: MetadataCopy, best: MetadataCopy) -> int:
    """The first offset at which `copy` has other records than `best`, else its end.

    Batches are compared by CRC, which does not cover the leader epoch: a damaged epoch is no fork.
    """
    common, ours, theirs = np.intersect1d(copy.base_offsets, best.base_offsets, return_indices=True)
    differs = np.flatnonzero((copy.identities[ours] ^ best.identities[theirs]) & 0xFFFFFFFF)
    return int(common[differs[0]]) if differs.size else min(copy.end_offset, max(best.end_offset, copy.start_offset))
