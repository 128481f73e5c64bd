"""The controller's log replayed: who led each partition, who was in sync, and when (PartitionRegistration, TopicDelta).

A change record names only what changes. The leader epoch is in none of them: it is counted, one up for every record that names a
leader, be it the same. What could not be read leaves a mark, and what stands behind a mark is told as unknown, not guessed.
Records of kinds that are not known leave none: they are passed over and counted, and every last word says how many they were.
"""

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from kafka_forensics.model.controller import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
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

T = TypeVar("T")

# What a PartitionChangeRecord makes of a partition: its state afterwards, and whether it elected a leader uncleanly.


def merged(state: PartitionState, fields: Json) -> PartitionState:
    """The state after a PartitionChangeRecord: what it leaves out stays, an empty list is really empty."""

    def changed(name: str, value: tuple[T, ...]) -> tuple[T, ...]:
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


def is_unclean(state: PartitionState, fields: Json) -> bool:
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


MAX_EVENTS: Final = 4096
"""Events kept of one partition."""
MAX_MARKS: Final = 4096
"""Unreadable places told apart; behind the last of them nothing is believed until a snapshot states it."""
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
"""Settings of brokers that are worth keeping, and what topics call them."""
_HARMLESS: Final = frozenset({0, 1, 7, 8, 10, 11, 12, 14, 15, 17, 18, 19, 20, 21, 22, 26, 27, 29})
"""Kinds that change neither partitions nor settings: one of them malformed leaves nothing else in doubt."""
_SETTING: Final = 4
_BEGIN, _END, _ABORT = 23, 24, 25
_BROKER_EPOCHS: Final = {7: "epoch", 8: "epoch", 15: "broker_epoch", 17: "broker_epoch"}
"""Kinds of records about a broker that has learnt its epoch, and the field that has the epoch."""


@dataclass(slots=True)
class _Known:
    """A partition while its log is replayed."""

    topic: str
    history: PartitionHistory
    state: PartitionState
    stated: int
    """Offset of the last record that states all of its state; for a snapshot, the last offset before its end."""
    last_leader: int
    """-1: none ever."""


@dataclass(slots=True)
class _Topic:
    history: TopicHistory
    partitions: dict[int, _Known] = field(default_factory=dict)


@dataclass(slots=True)
class _Marks:
    """Offsets of what could not be read, ascending."""

    offsets: list[int] = field(default_factory=list)

    def add(self, offset: int) -> None:
        if len(self.offsets) < MAX_MARKS and (not self.offsets or offset > self.offsets[-1]):
            self.offsets.append(offset)

    def after(self, stated: int) -> int | None:
        """The first mark behind `stated`; None if all is known from there on."""
        at = bisect_right(self.offsets, stated)
        if at < len(self.offsets):
            return self.offsets[at]
        return self.offsets[-1] if len(self.offsets) >= MAX_MARKS else None


class Replay:
    """Records go in by offset; `finish` gives the history. From `committed_end` on some may not count, from `possible_end` none."""

    def __init__(self, log_start_offset: int, *, committed_end: int | None = None, possible_end: int | None = None) -> None:
        self.history = ControllerHistory(log_start_offset=log_start_offset, committed_end_offset=committed_end)
        self._topics: dict[str, _Topic] = {}
        self._ids: dict[str, str] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._marks = _Marks()
        self._setting_marks = _Marks()
        self._held: list[tuple[int, int, MetadataRecord]] | None = None
        self._with_elr: dict[str, dict[int, _Known]] = {}
        """By topic, then by identity."""
        self._committed_end, self._possible_end = committed_end, possible_end
        if log_start_offset > 0:
            self.gap(0)

    @property
    def in_doubt(self) -> bool:
        """Whether something that could not be read leaves a state unknown, so that a snapshot would help."""
        return bool(self._marks.offsets or self._setting_marks.offsets)

    def gap(self, offset: int) -> None:
        """From `offset` on some records are on no copy."""
        self._marks.add(offset)
        self._setting_marks.add(offset)

    def step(self, offset: int, timestamp_ms: int, record: MetadataRecord) -> None:
        """Add the record at `offset`; what stands in a metadata transaction counts when that ends."""
        self.history.last_ms = max(timestamp_ms, self.history.last_ms or 0)
        self.history.proven_end = max(self.history.proven_end, _proven_by(offset, record))
        if record.is_unknown:
            self.history.unknown_records += 1
        elif record.problem is not None:
            self._malformed(offset, record)
        if record.fields is None:
            return
        if record.api_key == _BEGIN:
            self._held = []
        elif record.api_key == _ABORT:
            self._held = None
        elif record.api_key == _END:
            held, self._held = self._held or [], None
            for change in held:
                self._apply(*change)
        elif self._held is not None:
            self._held.append((offset, timestamp_ms, record))
        else:
            self._apply(offset, timestamp_ms, record)

    def restate(self, snapshot: MetadataSnapshot) -> None:
        """Take the state of all before `snapshot.offset` from a snapshot; nothing before it is in doubt any more."""
        before = dict(self._topics)
        self._topics, self._ids, self._configs, self._held = {}, {}, {}, None
        self._marks, self._setting_marks = _Marks(), _Marks()
        self.history.features = {}
        offset, moment = snapshot.offset, snapshot.timestamp_ms
        self.history.proven_end = max(self.history.proven_end, offset)
        for batch in snapshot.batches:
            for number, record in batch.records:
                if record.is_unknown:
                    self.history.unknown_records += 1
                elif record.problem is not None:
                    self._malformed(number, record, seen_at=offset - 1)
                elif record.api_key == 2 and record.fields is not None:
                    name, topic_id = record.fields["name"], record.fields["topic_id"]
                    old = before.get(topic_id)
                    history = TopicHistory(name, topic_id) if old is None else old.history
                    self._topics[topic_id] = _Topic(history, {} if old is None else dict(old.partitions))
                    self._ids[name] = topic_id
                    self.history.topics[topic_id] = history
                elif record.fields is not None:
                    self._apply(offset, moment, record, kind="snapshot")
        for topic_id in before.keys() - self._topics.keys():
            self._delete(before[topic_id], offset, moment)

    def finish(self, log_end_offset: int) -> ControllerHistory:
        """The history, with the last word on every partition of topics that exist."""
        history = self.history
        history.log_end_offset = log_end_offset
        history.unknown_after = self._marks.after(-1)
        settings_known = self._setting_marks.after(-1) is None
        history.defaults = {
            DEFAULTS[name]: value for name, value in self._configs.get((BROKER, ""), {}).items() if name in DEFAULTS
        }
        for topic in self._topics.values():
            name = topic.history.topic
            configs = self._configs.get((TOPIC, name), {})
            topic.history.policies.add(configs.get("cleanup.policy"))
            history.configs[name] = configs
            if self._ids.get(name) == topic.history.topic_id:
                for partition, known in topic.partitions.items():
                    control = self._last_word(topic.history, known, settings_known=settings_known)
                    history.partitions[name, partition] = control
        return history

    def _unknown_after(self, known: _Known) -> int | None:
        """From where on records that tell of the partition are missing, or may not have been committed; None: from nowhere on."""
        end = self._committed_end
        uncommitted = None if end is None else next((event.offset for event in known.history.events if event.offset >= end), None)
        doubts = (self._marks.after(known.stated), uncommitted)
        return min((offset for offset in doubts if offset is not None), default=None)

    def _last_word(self, topic: TopicHistory, known: _Known, *, settings_known: bool) -> PartitionControl:
        events, state = known.history.events, known.state
        unknown = self._unknown_after(known)
        sure = unknown is None
        configs = self.history.configs.get(topic.topic, {}) if settings_known else {}
        defaults = self.history.defaults if settings_known else {}
        policy = configs.get("cleanup.policy", defaults.get("cleanup.policy"))
        return PartitionControl(
            leader=state.leader if sure else None,
            leader_epoch=state.leader_epoch if sure else None,
            isr=list(state.isr) if sure else None,
            elr=list(state.elr) if sure else None,
            replica_assignment=list(state.replica_assignment) if sure else None,
            configs=configs,
            topic_id=topic.topic_id,
            defaults=defaults,
            directories=list(state.directories) if sure and state.directories else None,
            leader_recovery_state=state.leader_recovery_state if sure else None,
            last_offset=events[-1].offset if events else None,
            as_of_ms=self.history.last_ms,
            unknown_after=unknown,
            cleanup_policy=_ordered(policy),
            was_compacted=_was_compacted(topic, policy, settings_known=settings_known),
            history=known.history,
            unknown_records=self.history.unknown_records,
            exists_since_ms=events[0].timestamp_ms if events and topic.created_ms is None else topic.created_ms,
            metadata_version=self.history.features.get("metadata.version"),
        )

    def _malformed(self, offset: int, record: MetadataRecord, seen_at: int | None = None) -> None:
        self.history.malformed_records += 1
        if record.api_key in _HARMLESS:
            return
        at = offset if seen_at is None else seen_at
        if record.api_key != _SETTING:
            self._marks.add(at)
        self._setting_marks.add(at)

    def _apply(self, offset: int, timestamp_ms: int, record: MetadataRecord, kind: str | None = None) -> None:
        fields = record.fields
        assert fields is not None
        match record.api_key:
            case 2:
                topic = TopicHistory(fields["name"], fields["topic_id"], offset, timestamp_ms)
                self._topics[topic.topic_id] = _Topic(topic)
                self._ids[topic.topic] = topic.topic_id
                self.history.topics[topic.topic_id] = topic
            case 3:
                self._stated(offset, timestamp_ms, fields, kind or "created")
            case 5:
                self._changed(offset, timestamp_ms, fields)
            case 9:
                gone = self._topics.pop(fields["topic_id"], None)
                if gone is not None:
                    self._delete(gone, offset, timestamp_ms)
            case 12:
                self.history.features[fields["name"]] = fields["feature_level"]
            case 28:
                self._clear_elr(offset, timestamp_ms, fields["topic_name"])
            case 4:
                self._configured(fields)
            case _:
                pass

    def _configured(self, fields: Json) -> None:
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

    def _delete(self, topic: _Topic, offset: int, timestamp_ms: int) -> None:
        topic.history.deleted_offset, topic.history.deleted_ms = offset, timestamp_ms
        for known in topic.partitions.values():
            self._note(known, self._event(known, offset, timestamp_ms, "deleted", known.state))
        if self._ids.get(topic.history.topic) == topic.history.topic_id:
            del self._ids[topic.history.topic]
            policy = self._configs.pop((TOPIC, topic.history.topic), {}).get("cleanup.policy")
            topic.history.policies.add(policy)

    def _stated(self, offset: int, timestamp_ms: int, fields: Json, kind: str) -> None:
        """A record that tells all of a partition's state."""
        topic = self._topics.get(fields["topic_id"])
        if topic is None:  # its topic's record could not be read, or came before the log's start
            topic = self._topics.setdefault(fields["topic_id"], _Topic(TopicHistory("", fields["topic_id"])))
        state = PartitionState(
            leader=fields["leader"],
            leader_epoch=fields["leader_epoch"],
            partition_epoch=fields["partition_epoch"],
            isr=tuple(fields["isr"]),
            elr=tuple(fields.get("eligible_leader_replicas") or ()),
            last_known_elr=tuple(fields.get("last_known_elr") or ()),
            replica_assignment=tuple(fields["replicas"]),
            removing_replicas=tuple(fields["removing_replicas"] or ()),
            adding_replicas=tuple(fields["adding_replicas"] or ()),
            directories=tuple(fields.get("directories") or ()),
            leader_recovery_state=fields["leader_recovery_state"],
        )
        partition = fields["partition_id"]
        known = topic.partitions.get(partition)
        if known is None:
            known = topic.partitions[partition] = _Known(topic.history.topic, PartitionHistory(), state, offset, NO_LEADER)
            topic.history.partitions[partition] = known.history
        elif kind == "snapshot" and state == known.state:
            known.stated = offset - 1
            return
        known.stated = offset - (kind == "snapshot")
        self._note(known, self._event(known, offset, timestamp_ms, kind, state))

    def _changed(self, offset: int, timestamp_ms: int, fields: Json) -> None:
        topic = self._topics.get(fields["topic_id"])
        known = None if topic is None else topic.partitions.get(fields["partition_id"])
        if known is None:
            return  # of a partition that nothing told of: the log begins behind its creation
        state = merged(known.state, fields)
        event = self._event(known, offset, timestamp_ms, "changed", state)
        self._note(known, replace(event, is_unclean=is_unclean(known.state, fields)))

    def _clear_elr(self, offset: int, timestamp_ms: int, name: str) -> None:
        of_topics = [self._with_elr.get(name, {})] if name else [*self._with_elr.values()]
        for known in [policy for of_topic in of_topics for policy in of_topic.values()]:
            state = replace(known.state, elr=(), last_known_elr=())
            self._note(known, self._event(known, offset, timestamp_ms, "changed", state))

    def _event(self, known: _Known, offset: int, timestamp_ms: int, kind: str, state: PartitionState) -> PartitionEvent:
        return PartitionEvent(
            offset,
            timestamp_ms,
            kind,
            state,
            previous_leader=known.last_leader,
            previous_isr=known.state.isr if known.history.events else (),
            unknown_after=self._marks.after(known.stated),
            is_committed=self._is_committed(offset),
        )

    def _is_committed(self, offset: int) -> bool | None:
        """None: a majority may have the record, if voters do whose copies were not given."""
        if self._committed_end is not None and offset < self._committed_end:
            return True
        return None if self._possible_end is None or offset < self._possible_end else False

    def _note(self, known: _Known, event: PartitionEvent) -> None:
        history = known.history
        history.events.append(event)
        known.state = event.state
        of_topic = self._with_elr.setdefault(known.topic, {})
        of_topic.pop(id(known), None)
        if event.kind != "deleted" and (event.state.elr or event.state.last_known_elr):
            of_topic[id(known)] = known
        if not of_topic:
            del self._with_elr[known.topic]
        if event.state.leader != NO_LEADER:
            known.last_leader = event.state.leader
        if len(history.events) > MAX_EVENTS:
            half = MAX_EVENTS // 2
            kept = [
                partition_event
                for partition_event in history.events[:half]
                if partition_event.is_unclean or partition_event.kind == "created"
            ][: half // 2]
            history.dropped_events += half - len(kept)
            history.events[:half] = kept


def _proven_by(offset: int, record: MetadataRecord) -> int:
    """Up to where a record proves that others were committed: a broker learns its epoch, the offset of its registration, once that
    is committed; the controller fences or changes only brokers that were unfenced under it."""
    epoch = (record.fields or {}).get(_BROKER_EPOCHS.get(record.api_key, ""), -1)
    return epoch + 1 if epoch < offset else 0


def _ordered(policy: str | None) -> str | None:
    """`compact`, `delete` or `compact,delete`, whatever the order and the blanks."""
    if policy is None:
        return None
    return ",".join(sorted({part.strip() for part in policy.split(",")} & {"compact", "delete"})) or None


def _was_compacted(topic: TopicHistory, policy: str | None, *, settings_known: bool) -> bool | None:
    if any(text is not None and "compact" in text for text in (*topic.policies, policy)):
        return True
    complete = settings_known and topic.created_offset is not None and None not in topic.policies
    return False if complete else None


# Several copies of `__cluster_metadata` made into one log: what a majority of the voters holds is committed (KIP-595).


@dataclass(slots=True)
class MetadataCopy:
    """One node's copy: `base_offsets`, `last_offsets` and `identities` (leader epoch and CRC) of its good batches, ascending."""

    node: int | str
    base_offsets: "NDArray[np.int64]"
    last_offsets: "NDArray[np.int64]"
    identities: "NDArray[np.int64]"
    last_epoch: int

    @property
    def epochs(self) -> "NDArray[np.int64]":
        """Leader epoch of each batch."""
        epochs: NDArray[np.int64] = self.identities >> 32
        return epochs

    def has(self, base_offset: int, identity: int) -> bool:
        """Whether this batch is in it."""
        at = int(np.searchsorted(self.base_offsets, base_offset))
        return at < self.base_offsets.size and (self.base_offsets[at], self.identities[at]) == (base_offset, identity)

    @property
    def start_offset(self) -> int:
        """First offset; 0 of an empty log."""
        return int(self.base_offsets[0]) if self.base_offsets.size else 0

    @property
    def end_offset(self) -> int:
        """Next offset to be written."""
        return int(self.last_offsets[-1]) + 1 if self.last_offsets.size else 0

    def within(self, other: "MetadataCopy") -> "MetadataCopy | None":
        """This copy as a stretch of `other`'s arrays, None if it holds anything else: a cluster has a copy on every broker."""
        if not self.base_offsets.size:
            return self
        at = int(np.searchsorted(other.base_offsets, self.base_offsets[0]))
        stop = at + self.base_offsets.size
        stretch = other.base_offsets[at:stop], other.last_offsets[at:stop], other.identities[at:stop]
        own = self.base_offsets, self.last_offsets, self.identities
        if not all(np.array_equal(mine, theirs) for mine, theirs in zip(own, stretch, strict=True)):
            return None
        return MetadataCopy(self.node, *stretch, self.last_epoch)


def add_copy(copies: list[MetadataCopy], new: MetadataCopy) -> None:
    """Add a copy to the others, memory shared with one that it equals as far as both go."""
    for index, known in enumerate(copies):
        shared, longer = new.within(known), known.within(new)
        if longer is not None:
            copies[index] = longer
        if shared is not None:
            new = shared
            break
    copies.append(new)


@dataclass(slots=True)
class AgreedLog:
    """The log that the copies agree on, with what one lost filled in from the others; `gaps` [start, end) are on none of them."""

    base_offsets: "NDArray[np.int64]"
    identities: "NDArray[np.int64]"
    start_offset: int
    end_offset: int
    gaps: list[tuple[int, int]]
    agreed_ends: dict[int | str, int]
    """Node → up to where its copy is this log. An empty log among others was lost, and says nothing of what its node had."""

    def missing_ranges(self, snapshot_end: int) -> list[tuple[int, int]]:
        """Offsets [start, end) before `snapshot_end`, or within the log, that are on no copy: those before the log begins, too."""
        before = [(0, self.start_offset)] if self.start_offset else []
        after = [(self.end_offset, snapshot_end)] if snapshot_end > self.end_offset else []
        return [*before, *self.gaps, *after]

    def agrees_with(self, offset: int, epoch: int) -> bool:
        """Whether a snapshot of the records before `offset`, the last of them of leader epoch `epoch`, may be of this log."""
        epochs, at = self.identities >> 32, int(np.searchsorted(self.base_offsets, offset))
        return bool((epochs[:at][-1:] <= epoch).all() and (epochs[at : at + 1] >= epoch).all())

    def committed_end(self, voters: list[int] | None) -> int | None:
        """Up to where a majority of `voters` holds the log; None if the copies given cannot show a majority."""
        return self._majority_end(voters or [], -1)

    def possible_end(self, voters: list[int] | None) -> int | None:
        """Up to where a majority of `voters` may hold the log, if those do whose copies were not given; None if that may be all."""
        return self._majority_end(voters or [], self.end_offset + 1)

    def _majority_end(self, voters: list[int], unknown: int) -> int | None:
        """The end that a majority reaches; None if it is `unknown`, which is taken for the end of a copy that was not given."""
        ends = sorted((self.agreed_ends.get(voter, unknown) for voter in set(voters)), reverse=True)
        end = ends[len(ends) // 2] if ends else unknown
        return None if end == unknown else end


def agree(copies: list[MetadataCopy]) -> AgreedLog:
    """The log of the copy that would win an election (highest last epoch, then longest), completed from copies of the same log."""
    best = max(copies, key=lambda copy: (copy.last_epoch, copy.end_offset))
    ends: dict[int | str, int] = {}
    bases, lasts, identities = [best.base_offsets], [best.last_offsets], [best.identities]
    for copy in copies:
        end = _agreed_end(copy, best)
        if copy.base_offsets.size or not best.base_offsets.size:
            ends[copy.node] = max(end, ends.get(copy.node, 0))
        missing = ~np.isin(copy.base_offsets, best.base_offsets) & (copy.last_offsets < end)
        if copy is not best and missing.any():
            bases.append(copy.base_offsets[missing])
            lasts.append(copy.last_offsets[missing])
            identities.append(copy.identities[missing])
    base_offsets, first = np.unique(np.concatenate(bases), return_index=True)
    last_offsets = np.concatenate(lasts)[first]
    if not base_offsets.size:
        return AgreedLog(base_offsets, base_offsets, 0, 0, [], ends)
    gaps = np.flatnonzero(base_offsets[1:] > np.maximum.accumulate(last_offsets)[:-1] + 1)
    reached = np.maximum.accumulate(last_offsets)
    return AgreedLog(
        base_offsets,
        np.concatenate(identities)[first],
        int(base_offsets[0]),
        int(reached[-1]) + 1,
        [(int(reached[at]) + 1, int(base_offsets[at + 1])) for at in gaps],
        ends,
    )


def _agreed_end(copy: MetadataCopy, best: MetadataCopy) -> int:
    """Where `copy` first holds another batch than `best` at one offset, else its end."""
    common, ours, theirs = np.intersect1d(copy.base_offsets, best.base_offsets, return_indices=True)
    differs = np.flatnonzero(copy.identities[ours] != best.identities[theirs])
    return int(common[differs[0]]) if differs.size else min(copy.end_offset, max(best.end_offset, copy.start_offset))
