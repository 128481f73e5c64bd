"""A partition of `__consumer_offsets` replayed like in a group coordinator (OffsetMetadataManager, GroupMetadataManager).

Records come in the order of the log. Offsets committed in a transaction are kept until its marker: with COMMIT they count, unless a
later record has the same key, with ABORT they are dropped. A tombstone deletes all state of its key. An unreadable value leaves its
key unchanged but unknown from that record on; an unreadable key, all keys.
"""

from bisect import bisect_left
from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.model.coordinators import (
    METADATA_OF_GROUP,
    METADATA_OF_MEMBER,
    SHARED_TOPICS,
    STREAMS_TOPOLOGY,
    TARGET_EPOCHS,
    CommittedOffset,
    GroupKey,
    GroupLog,
    GroupMetadata,
    GroupState,
    OffsetCommit,
    PendingCommit,
    group_kind,
)
from kafka_forensics.model.json_objects import Json

MAX_KEYS: Final = 1 << 20
"""Keys (offsets, members, open transactions) that are followed; further ones are left out."""
MAX_TEXT: Final = 128 << 20
"""Characters of their names and metadata; beyond, new keys are left out, and metadata and lists of members are dropped."""
_KEYS_UNREADABLE: Final = 1024
_TOPICS_OF_SHARES: Final = ("initializing_topics", "initialized_topics", "deleting_topics")

_Key = TypeVar("_Key")


class UnreadableRecords(Generic[_Key]):
    """From which record on the keys of a log are unknown, bounded by `MAX_KEYS`."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, int] = {}
        self._of_any_key: list[int] = []

    def add(self, key: _Key | None, record_offset: int) -> None:
        """Add an unreadable record; without a key it may be of any key."""
        if key is None:
            del self._of_any_key[_KEYS_UNREADABLE - 1 :]
            self._of_any_key.append(record_offset)
        elif len(self._by_key) < MAX_KEYS:
            self._by_key.setdefault(key, record_offset)

    def discard(self, key: _Key) -> None:
        """A later record has all state of the key."""
        self._by_key.pop(key, None)

    def after(self, key: _Key, record_offset: int) -> int | None:
        """The first unreadable record that may be of the key and follows `record_offset`; None without one."""
        of_any_key = self._of_any_key[bisect_left(self._of_any_key, record_offset) :][:1]
        return min([*of_any_key, *([self._by_key[key]] if key in self._by_key else [])], default=None)


class _OffsetState(Struct):
    """The records of a key: see `CommittedOffset`."""

    last: OffsetCommit
    record_offset: int
    greatest: OffsetCommit
    greatest_record_offset: int
    in_transaction: bool


class GroupReplay:
    """State of one log during its replay; its size is bounded by the live keys and by `MAX_KEYS`."""

    def __init__(self, log: GroupLog) -> None:
        self.log = log
        self._states: dict[GroupKey, _OffsetState] = {}
        self._pending: dict[int, dict[GroupKey, tuple[OffsetCommit, int]]] = {}
        self._producers_of: dict[GroupKey, set[int]] = {}
        self._pending_size = 0
        self._members: dict[str, set[str]] = {}
        self._members_size = 0
        self._unreadable = UnreadableRecords[GroupKey]()
        self._unreadable_groups = UnreadableRecords[str]()
        self._text = 0

    def commit(self, key: GroupKey, commit: OffsetCommit, record_offset: int, producer_id: int = -1) -> None:
        """Add an offset commit; `producer_id`: of the transactional batch it is in."""
        if producer_id < 0:
            self._put(key, commit, record_offset, in_transaction=False)
            return
        pending = self._pending.get(producer_id, {}).get(key)
        before = 0 if pending is None else _text_of(key, pending[0])
        if (pending is None and self._is_full(self._pending_size)) or not self._count_text(before, _text_of(key, commit)):
            return
        self._pending_size += pending is None
        self._producers_of.setdefault(key, set()).add(producer_id)
        self._pending.setdefault(producer_id, {})[key] = (commit, record_offset)

    def _put(self, key: GroupKey, commit: OffsetCommit, record_offset: int, *, in_transaction: bool) -> None:
        state = self._states.get(key)
        if state is None:
            if self._is_full(len(self._states)) or not self._count_text(0, _text_of(key, commit)):
                return
            self._states[key] = _OffsetState(commit, record_offset, commit, record_offset, in_transaction)
        else:
            if not self._count_text(len(state.last.metadata), len(commit.metadata)):
                commit = commit._replace(metadata="")
                self._count_text(len(state.last.metadata), 0)
            state.last, state.record_offset, state.in_transaction = commit, record_offset, in_transaction
            if commit.offset >= state.greatest.offset:
                state.greatest, state.greatest_record_offset = commit, record_offset
        self._unreadable.discard(key)

    def tombstone(self, key: GroupKey) -> None:
        """Add the deletion or expiry of the committed offset of `key`."""
        state = self._states.pop(key, None)
        if state is not None:
            self._count_text(_text_of(key, state.last), 0)
        self._unreadable.discard(key)
        for producer_id in self._producers_of.pop(key, ()):
            self._count_text(_text_of(key, self._pending[producer_id].pop(key)[0]), 0)
            self._pending_size -= 1

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Add a transaction marker."""
        pending = self._pending.pop(producer_id, {})
        self._pending_size -= len(pending)
        for key, (value, record_offset) in pending.items():
            self._count_text(_text_of(key, value), 0)
            self._producers_of[key].discard(producer_id)
            if not self._producers_of[key]:
                del self._producers_of[key]
            state = self._states.get(key)
            if commit and (state is None or record_offset > state.record_offset):
                self._put(key, value, record_offset, in_transaction=True)

    def classic_group(self, name: str, metadata: GroupMetadata) -> None:
        """Add the metadata of a classic group."""
        group = self.log.groups.get(name)
        before = _members_text(None if group is None else group.metadata)
        if not self._count_text(before, _members_text(metadata)):
            metadata = replace(metadata, members=())
            self._count_text(before, 0)
        state = "Stable" if metadata.members_count and metadata.protocol is not None else "Empty"
        self._add_group(GroupState(name, "classic", state, metadata.members_count, metadata.generation, metadata))

    def new_group(self, key: GroupKey, fields: Json) -> None:
        """Add a record of a new group (KIP-848, KIP-932, KIP-1071), no tombstone; `fields` is empty if it was not decoded."""
        group, kind = self.log.groups.get(key.group), group_kind(key.record_type)
        if group is None or group.kind != kind:
            group = GroupState(key.group, kind)
            self._add_group(group)
        if key.record_type in METADATA_OF_GROUP:
            group.generation = fields.get("epoch")
        elif key.record_type in TARGET_EPOCHS:
            group.assignment_epoch = fields.get("assignment_epoch")
        elif key.record_type == STREAMS_TOPOLOGY:
            group.topology_epoch = fields.get("epoch")
        elif key.record_type == SHARED_TOPICS:
            self._add_topic_names(fields)
        member = key.member_id if key.record_type in METADATA_OF_MEMBER else None
        if member is None or member in self._members.get(key.group, ()):
            return
        if not self._is_full(self._members_size) and self._count_text(0, len(member)):
            self._members_size += 1
            self._members.setdefault(key.group, set()).add(member)

    def _add_topic_names(self, fields: Json) -> None:
        """Keep the names of the topics that a share group refers to by id."""
        names = self.log.topic_names
        for kind in _TOPICS_OF_SHARES:
            for topic in fields.get(kind, ()):
                if topic["topic_id"] not in names and (
                    self._is_full(len(names)) or not self._count_text(0, len(topic["topic_name"]))
                ):
                    return
                names[topic["topic_id"]] = topic["topic_name"]

    def _add_group(self, group: GroupState) -> None:
        if group.group not in self.log.groups and (
            self._is_full(len(self.log.groups)) or not self._count_text(0, len(group.group))
        ):
            return
        self.log.groups[group.group] = group
        self._unreadable_groups.discard(group.group)

    def group_tombstone(self, key: GroupKey) -> None:
        """Add the deletion of a group's record: a group ends with the tombstone of its metadata, a member with that of the
        member."""
        group = self.log.groups.get(key.group)
        if key.record_type in METADATA_OF_MEMBER and key.member_id is not None:
            members = self._members.get(key.group, set())
            if key.member_id in members:
                members.remove(key.member_id)
                self._count_text(len(key.member_id), 0)
                self._members_size -= 1
        elif group is not None and METADATA_OF_GROUP.get(key.record_type) == group.kind:
            del self.log.groups[key.group]
            self._count_text(len(key.group) + _members_text(group.metadata), 0)
            self._unreadable_groups.discard(key.group)

    def _is_full(self, keys: int) -> bool:
        """Whether so many keys leave no room for another."""
        self.log.limited |= keys >= MAX_KEYS
        return keys >= MAX_KEYS

    def _count_text(self, before: int, after: int) -> bool:
        """Count `after` characters in place of `before`, unless there are too many; returns whether they were counted."""
        if after > before and self._text - before + after > MAX_TEXT:
            self.log.limited = True
            return False
        self._text += after - before
        return True

    def unreadable(self, key: GroupKey | None, record_offset: int) -> None:
        """Add an unreadable record; `key` is None if its key is unreadable, too. State is unknown after the record before it."""
        self.log.malformed_count += 1
        if key is None or key.topic is not None:
            self._unreadable.add(key, record_offset - 1)
        if key is None or key.topic is None:
            self._unreadable_groups.add(None if key is None else key.group, record_offset - 1)

    def finish(self) -> GroupLog:
        """The replayed log: committed offsets by (topic, partition, group), and offsets that wait for a marker."""
        log = self.log
        for key, state in self._states.items():
            log.committed.append(
                CommittedOffset(
                    *_place(key),
                    state.last,
                    state.record_offset,
                    state.greatest,
                    state.greatest_record_offset,
                    log.partition,
                    log.broker,
                    state.in_transaction,
                    self._unreadable.after(key, state.record_offset),
                )
            )
        log.committed.sort(key=lambda commit: (commit.topic, commit.partition, commit.group))
        log.pending = [
            PendingCommit(*_place(key), commit, record_offset, producer_id)
            for producer_id, pending in self._pending.items()
            for key, (commit, record_offset) in pending.items()
        ]
        log.pending.sort(key=lambda commit: commit.record_offset)
        for group in log.groups.values():
            if group.kind != "classic":
                group.members_count = len(self._members.get(group.group, ()))
                group.state = None if group.members_count else "Empty"
        for name in dict.fromkeys(commit.group for commit in log.committed):
            if name not in log.groups and len(log.groups) < MAX_KEYS:
                log.groups[name] = GroupState(name, "simple", "Empty", 0)
        for group in log.groups.values():
            group.unknown_after = self._unreadable_groups.after(group.group, -1)
        return log


def _place(key: GroupKey) -> tuple[str, str, int]:
    return key.group, key.topic or "", key.partition or 0


def _text_of(key: GroupKey, commit: OffsetCommit) -> int:
    return len(key.group) + len(key.topic or "") + len(commit.metadata)


def _members_text(metadata: GroupMetadata | None) -> int:
    members = () if metadata is None else metadata.members
    return sum(len(member.member_id) + len(member.client_id) + len(member.client_host) for member in members)
