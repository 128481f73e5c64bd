"""Replaying a partition of `__share_group_state` as a share coordinator would (ShareCoordinatorShard, PersisterStateBatchCombiner).

A snapshot says all of its share partition; an update adds to it: where both name an offset, the greater delivery count holds, then
the greater state. What lies below the start offset is forgotten. A tombstone takes all of its key away. An unreadable value leaves
its key as it was, with a note from which record on that is in doubt; an unreadable key, everything.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from kafka_forensics.model.constants import NO_OFFSET
from kafka_forensics.model.coordinators import ShareLog, ShareState, StateBatch
from kafka_forensics.model.json_objects import Json

MAX_KEYS: Final = 1 << 18
"""Share partitions that are followed; what is new beyond that is left out."""
MAX_TEXT: Final = 64 << 20
"""Characters of groups' names that are held for them."""
MAX_BATCHES: Final = 1 << 14
"""Batches of one share partition; of one Kafka lets 10,000 records be under way at most."""
MAX_BATCHES_HELD: Final = 1 << 20
"""Of all together."""
MERGES: Final = 1 << 26
"""Batches looked at to put updates together; beyond, only start offsets are followed."""
_WAITING: Final = 256
"""Batches of updates that wait until they are worth a merge."""
_DOUBTS_KEPT: Final = 1024

_Key = tuple[str, str, int]


@dataclass(slots=True)
class _Slot:
    """What a key's records said: `waiting` are batches of updates that are not merged into `batches` yet."""

    fields: Json
    batches: list[StateBatch]
    record_offset: int
    timestamp: int
    waiting: list[StateBatch] = field(default_factory=list)


class ShareReplay:
    """State of one log while it is replayed: bounded by the keys that are alive, and by the limits above."""

    def __init__(self, log: ShareLog) -> None:
        self.log = log
        self._slots: dict[_Key, _Slot] = {}
        self._text = 0
        self._held = 0
        self._merges_left = MERGES
        self._doubtful: dict[_Key, int] = {}
        self._doubtful_logs: list[int] = []

    def snapshot(self, key: _Key, fields: Json, record_offset: int, timestamp: int) -> None:
        """All of a share partition; `fields` as `parsers.internal_topics.share_state` reads them."""
        self.tombstone(key)
        self._put(key, fields, record_offset, timestamp)

    def update(self, key: _Key, fields: Json, record_offset: int, timestamp: int) -> None:
        """What changed since the snapshot."""
        slot = self._slots.get(key)
        if slot is None:
            self._put(key, fields, record_offset, timestamp)
            return
        if fields["start_offset"] != NO_OFFSET:
            if fields["start_offset"] < slot.fields["start_offset"]:
                self._merge(slot)  # what lay below is forgotten already
            slot.fields["start_offset"] = fields["start_offset"]
        if fields["leader_epoch"] != -1:
            slot.fields["leader_epoch"] = fields["leader_epoch"]
        slot.fields["delivery_complete_count"] = fields.get("delivery_complete_count", -1)
        slot.record_offset, slot.timestamp = record_offset, timestamp
        slot.waiting += self._hold(_batches(fields))
        if len(slot.waiting) > max(_WAITING, len(slot.batches)):
            self._merge(slot)

    def tombstone(self, key: _Key) -> None:
        """The share partition's state was deleted."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._text -= len(key[0])
            self._held -= len(slot.batches) + len(slot.waiting)
        self._doubtful.pop(key, None)

    def unreadable(self, key: _Key | None, record_offset: int) -> None:
        """A record could not be read; `key` is None if not even its key could."""
        if key is None:
            del self._doubtful_logs[_DOUBTS_KEPT - 1 :]
            self._doubtful_logs.append(record_offset - 1)
        elif key in self._slots:
            self._doubtful.setdefault(key, record_offset - 1)

    def finish(self) -> ShareLog:
        """The log, replayed."""
        for key, slot in sorted(self._slots.items()):
            self._merge(slot)
            own = self._doubtful.get(key)
            behind = self._doubtful_logs[bisect_left(self._doubtful_logs, slot.record_offset) :][:1]
            self.log.states.append(
                ShareState(
                    *key,
                    slot.fields["snapshot_epoch"],
                    slot.fields.get("state_epoch"),
                    slot.fields["leader_epoch"],
                    slot.fields["start_offset"],
                    slot.fields.get("delivery_complete_count", -1),
                    tuple(slot.batches),
                    slot.record_offset,
                    slot.timestamp,
                    min([*behind, *([] if own is None else [own])], default=None),
                )
            )
        return self.log

    def _put(self, key: _Key, fields: Json, record_offset: int, timestamp: int) -> None:
        if len(self._slots) >= MAX_KEYS or self._text + len(key[0]) > MAX_TEXT:
            self.log.limited = True
            return
        self._text += len(key[0])
        kept = {name: value for name, value in fields.items() if name != "state_batches"}
        self._slots[key] = _Slot(kept, [], record_offset, timestamp, self._hold(_batches(fields)))

    def _hold(self, batches: list[StateBatch]) -> list[StateBatch]:
        """As many of new batches as there is room for."""
        room = max(min(MAX_BATCHES_HELD - self._held, MAX_BATCHES), 0) if self._merges_left > 0 else 0
        self.log.limited |= len(batches) > room
        self._held += min(len(batches), room)
        return batches[:room]

    def _merge(self, slot: _Slot) -> None:
        """Put what waits into its place."""
        if not slot.waiting and (not slot.batches or slot.batches[0].first_offset >= slot.fields["start_offset"]):
            return
        together = [*slot.batches, *slot.waiting] if self._merges_left > 0 else []
        self.log.limited |= not together
        self._merges_left -= len(together)
        merged = combined(together, slot.fields["start_offset"])
        self.log.limited |= len(merged) > MAX_BATCHES
        self._held += min(len(merged), MAX_BATCHES) - len(slot.batches) - len(slot.waiting)
        slot.batches, slot.waiting = merged[:MAX_BATCHES], []


def _batches(fields: Json) -> list[StateBatch]:
    return [StateBatch(**batch) for batch in fields["state_batches"]]


def combined(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Batches by offset, without overlaps, those of one state that touch joined; nothing below `start_offset`."""
    if start_offset != NO_OFFSET:
        batches = (batch._replace(first_offset=max(batch.first_offset, start_offset)) for batch in batches)
    ordered = sorted(batch for batch in batches if batch.first_offset <= batch.last_offset)
    state_batches: list[StateBatch] = []
    for batch in _without_overlaps(ordered):
        last = state_batches[-1] if state_batches else None
        if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            state_batches[-1] = last._replace(last_offset=batch.last_offset)
        else:
            state_batches.append(batch)
    return state_batches


def _without_overlaps(ordered: Sequence[StateBatch]) -> Iterable[StateBatch]:
    """Pieces of batches, given by first offset: of those that hold an offset, the one with the greatest count and state."""
    active: list[tuple[int, int, int]] = []  # (-count, -state, last offset), the one that holds first
    position = ordered[0].first_offset if ordered else 0
    next_batch = 0
    while active or next_batch < len(ordered):
        if not active:
            position = max(position, ordered[next_batch].first_offset)
        while next_batch < len(ordered) and ordered[next_batch].first_offset <= position:
            batch = ordered[next_batch]
            heappush(active, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            next_batch += 1
        count, state, last = active[0]
        if last < position:
            heappop(active)
            continue
        end = min(last, ordered[next_batch].first_offset - 1) if next_batch < len(ordered) else last
        yield StateBatch(position, end, -state, -count)
        position = end + 1
