"""Replaying a partition of `__consumer_offsets` as a group coordinator would (OffsetMetadataManager, GroupMetadataManager).

Records come in the order of the log. What a transaction committed is kept aside until its marker stands in the same log: COMMIT
lets it count unless a later record has spoken of the same key, ABORT drops it. A tombstone takes everything of its key away.
An unreadable value leaves its key as it was, with a note from which record on that is in doubt; an unreadable key, everything.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kafka_forensics.model.coordinators import (
    METADATA_OF_GROUP,
    METADATA_OF_MEMBER,
    SHARED_TOPICS,
    STREAMS_TOPOLOGY,
    TARGET_EPOCHS,
    Committed,
    Group,
    GroupKey,
    GroupLog,
    GroupMetadata,
    OffsetCommit,
    PendingCommit,
    group_kind,
)
from kafka_forensics.model.json_objects import Json

MAX_KEYS: Final = 1 << 20
"""Keys (of offsets, of members, of open transactions) that are followed; what is new beyond that is left out."""
MAX_TEXT: Final = 128 << 20
"""Characters of names and metadata that are held for them; beyond, keys are left out, and metadata and lists of members dropped."""
_DOUBTS_KEPT: Final = 1024
_TOPICS_OF_SHARES: Final = ("initializing_topics", "initialized_topics", "deleting_topics")

_Key = TypeVar("_Key")


@dataclass(slots=True)
class _Slot:
    """What a key's records said: see `Committed`."""

    last: OffsetCommit
    record_offset: int
    greatest: OffsetCommit
    greatest_record_offset: int
    in_transaction: bool


class GroupReplay:
    """State of one log while it is replayed: bounded by the keys that are alive, and by `MAX_KEYS`."""

    def __init__(self, log: GroupLog) -> None:
        self.log = log
        self._slots: dict[GroupKey, _Slot] = {}
        self._pending: dict[int, dict[GroupKey, tuple[OffsetCommit, int]]] = {}
        self._waiting: dict[GroupKey, set[int]] = {}
        self._pending_size = 0
        self._members: dict[str, set[str]] = {}
        self._members_size = 0
        self._doubtful: dict[GroupKey, int] = {}
        self._doubtful_groups: dict[str, int] = {}
        self._doubtful_logs: list[int] = []
        self._text = 0

    def commit(self, key: GroupKey, commit: OffsetCommit, record_offset: int, producer_id: int = -1) -> None:
        """An offset commit; of a transactional batch with its producer's id."""
        if producer_id < 0:
            self._put(key, commit, record_offset, in_transaction=False)
            return
        known = self._pending.get(producer_id, {}).get(key)
        before = 0 if known is None else _text_of(key, known[0])
        if (known is None and self._is_full(self._pending_size)) or not self._swap(before, _text_of(key, commit)):
            return
        self._pending_size += known is None
        self._waiting.setdefault(key, set()).add(producer_id)
        self._pending.setdefault(producer_id, {})[key] = (commit, record_offset)

    def _put(self, key: GroupKey, commit: OffsetCommit, record_offset: int, *, in_transaction: bool) -> None:
        slot = self._slots.get(key)
        if slot is None:
            if self._is_full(len(self._slots)) or not self._swap(0, _text_of(key, commit)):
                return
            self._slots[key] = _Slot(commit, record_offset, commit, record_offset, in_transaction)
        else:
            if not self._swap(len(slot.last.metadata), len(commit.metadata)):
                commit = commit._replace(metadata="")
                self._swap(len(slot.last.metadata), 0)
            slot.last, slot.record_offset, slot.in_transaction = commit, record_offset, in_transaction
            if commit.offset >= slot.greatest.offset:
                slot.greatest, slot.greatest_record_offset = commit, record_offset
        if self._doubtful:
            self._doubtful.pop(key, None)

    def tombstone(self, key: GroupKey) -> None:
        """The committed offset of `key` was deleted, or has expired."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._swap(_text_of(key, slot.last), 0)
        self._doubtful.pop(key, None)
        for producer_id in self._waiting.pop(key, ()):
            self._swap(_text_of(key, self._pending[producer_id].pop(key)[0]), 0)
            self._pending_size -= 1

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker."""
        pending = self._pending.pop(producer_id, {})
        self._pending_size -= len(pending)
        for key, (value, record_offset) in pending.items():
            self._swap(_text_of(key, value), 0)
            self._waiting[key].discard(producer_id)
            if not self._waiting[key]:
                del self._waiting[key]
            slot = self._slots.get(key)
            if commit and (slot is None or record_offset > slot.record_offset):
                self._put(key, value, record_offset, in_transaction=True)

    def classic_group(self, name: str, metadata: GroupMetadata) -> None:
        """The metadata of a classic group."""
        known = self.log.groups.get(name)
        if not self._swap(_members_text(None if known is None else known.metadata), _members_text(metadata)):
            metadata = replace(metadata, members=())
            self._swap(_members_text(None if known is None else known.metadata), 0)
        state = "Stable" if metadata.members_count and metadata.protocol is not None else "Empty"
        self._follow(Group(name, "classic", state, metadata.members_count, metadata.generation, metadata))

    def new_group(self, key: GroupKey, fields: Json) -> None:
        """A record of a new group (KIP-848, KIP-932, KIP-1071) that is no tombstone; no `fields` where it was not taken apart."""
        known, kind = self.log.groups.get(key.group), group_kind(key.record_type)
        if known is None or known.kind != kind:
            known = Group(key.group, kind)
            self._follow(known)
        if key.record_type in METADATA_OF_GROUP:
            known.generation = fields.get("epoch")
        elif key.record_type in TARGET_EPOCHS:
            known.assignment_epoch = fields.get("assignment_epoch")
        elif key.record_type == STREAMS_TOPOLOGY:
            known.topology_epoch = fields.get("epoch")
        elif key.record_type == SHARED_TOPICS:
            self._name_topics(fields)
        member = key.member_id if key.record_type in METADATA_OF_MEMBER else None
        if member is None or member in self._members.get(key.group, ()):
            return
        if not self._is_full(self._members_size) and self._swap(0, len(member)):
            self._members_size += 1
            self._members.setdefault(key.group, set()).add(member)

    def _name_topics(self, fields: Json) -> None:
        """Remember the names of topics that a share group knows by id."""
        names = self.log.topic_names
        for kind in _TOPICS_OF_SHARES:
            for topic in fields.get(kind, ()):
                if topic["topic_id"] not in names and (self._is_full(len(names)) or not self._swap(0, len(topic["topic_name"]))):
                    return
                names[topic["topic_id"]] = topic["topic_name"]

    def _follow(self, group: Group) -> None:
        if group.group not in self.log.groups and (self._is_full(len(self.log.groups)) or not self._swap(0, len(group.group))):
            return
        self.log.groups[group.group] = group
        self._doubtful_groups.pop(group.group, None)

    def group_tombstone(self, key: GroupKey) -> None:
        """A record of a group was deleted: the group itself, if the record was what makes it, or one of its members."""
        known = self.log.groups.get(key.group)
        if key.record_type in METADATA_OF_MEMBER and key.member_id is not None:
            members = self._members.get(key.group, set())
            if key.member_id in members:
                members.remove(key.member_id)
                self._swap(len(key.member_id), 0)
                self._members_size -= 1
        elif known is not None and METADATA_OF_GROUP.get(key.record_type) == known.kind:
            del self.log.groups[key.group]
            self._swap(len(key.group) + _members_text(known.metadata), 0)
            self._doubtful_groups.pop(key.group, None)

    def _is_full(self, keys: int) -> bool:
        """Whether there is no room for one more beside so many keys."""
        self.log.limited |= keys >= MAX_KEYS
        return keys >= MAX_KEYS

    def _swap(self, before: int, after: int) -> bool:
        """Whether so many characters can be held where there were `before`; if so, they are counted."""
        if after > before and self._text - before + after > MAX_TEXT:
            self.log.limited = True
            return False
        self._text += after - before
        return True

    def unreadable(self, key: GroupKey | None, record_offset: int) -> None:
        """A record could not be read; `key` is None if not even its key could. What it changed is unknown behind the one before."""
        self.log.malformed_count += 1
        record_offset -= 1
        if key is None:
            del self._doubtful_logs[_DOUBTS_KEPT - 1 :]
            self._doubtful_logs.append(record_offset)
        elif key.topic is None:
            _note(self._doubtful_groups, key.group, record_offset)
        else:
            _note(self._doubtful, key, record_offset)

    def finish(self) -> GroupLog:
        """The log, replayed: what is committed, by (topic, partition, group), and what still waits for a marker."""
        log = self.log
        for key, slot in self._slots.items():
            own = self._doubtful.get(key)
            behind = self._doubtful_logs[bisect_left(self._doubtful_logs, slot.record_offset) :][:1]
            log.committed.append(
                Committed(
                    key.group,
                    key.topic or "",
                    key.partition or 0,
                    slot.last,
                    slot.record_offset,
                    slot.greatest,
                    slot.greatest_record_offset,
                    log.partition,
                    log.broker,
                    slot.in_transaction,
                    min([*behind, *([] if own is None else [own])], default=None),
                )
            )
        log.committed.sort(
            key=lambda committed_offset: (committed_offset.topic, committed_offset.partition, committed_offset.group)
        )
        log.pending = [
            PendingCommit(key.group, key.topic or "", key.partition or 0, commit, record_offset, producer_id)
            for producer_id, pending in self._pending.items()
            for key, (commit, record_offset) in pending.items()
        ]
        log.pending.sort(key=lambda pending_commit: pending_commit.record_offset)
        self._finish_groups()
        return log

    def _finish_groups(self) -> None:
        """Members of new groups counted; groups that only commit offsets named; doubts noted."""
        groups = self.log.groups
        for group in groups.values():
            if group.kind != "classic":
                group.members_count = len(self._members.get(group.group, ()))
                group.state = None if group.members_count else "Empty"
        for name in dict.fromkeys(committed_offset.group for committed_offset in self.log.committed):
            if name not in groups and len(groups) < MAX_KEYS:
                groups[name] = Group(name, "simple", "Empty", 0)
        for group in groups.values():
            own = self._doubtful_groups.get(group.group)
            group.unknown_after = min([*self._doubtful_logs[:1], *([] if own is None else [own])], default=None)


def _text_of(key: GroupKey, commit: OffsetCommit) -> int:
    return len(key.group) + len(key.topic or "") + len(commit.metadata)


def _members_text(metadata: GroupMetadata | None) -> int:
    members = () if metadata is None else metadata.members
    return sum(len(member.member_id) + len(member.client_id) + len(member.client_host) for member in members)


def _note(doubts: dict[_Key, int], key: _Key, record_offset: int) -> None:
    """Remember the first unreadable record of a key."""
    if key in doubts or len(doubts) < MAX_KEYS:
        doubts.setdefault(key, record_offset)
