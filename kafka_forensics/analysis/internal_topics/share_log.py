"""A partition of `__share_group_state` replayed like in a share coordinator (ShareCoordinatorShard, PersisterStateBatchCombiner).

A snapshot has the whole state of its share partition, an update changes it: where both have an offset, the greater delivery count
counts, then the greater state. State below the start offset is dropped. A tombstone deletes all state of its key. An unreadable
value leaves its key unchanged but unknown from that record on; an unreadable key, all keys.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from msgspec import Struct, field

from kafka_forensics.analysis.internal_topics.group_log import UnreadableRecords
from kafka_forensics.model.constants import NO_OFFSET
from kafka_forensics.model.coordinators import ShareLog, ShareState, StateBatch
from kafka_forensics.model.json_objects import Json

MAX_KEYS: Final = 1 << 18
"""Share partitions that are followed; further ones are left out."""
MAX_TEXT: Final = 64 << 20
"""Characters of their groups' names."""
MAX_BATCHES: Final = 1 << 14
"""Batches of one share partition; Kafka allows at most 10,000 records in flight."""
MAX_BATCHES_HELD: Final = 1 << 20
"""Batches of all share partitions together."""
MERGES: Final = 1 << 26
"""Batches read while merging updates; beyond, only start offsets are followed."""
_WAITING: Final = 256
"""Batches of updates from which on a merge is worthwhile."""

_Key = tuple[str, str, int]


class _SharePartition(Struct):
    """The state of a share partition; the batches in `waiting` are not merged into `batches` yet."""

    fields: Json
    batches: list[StateBatch]
    record_offset: int
    timestamp: int
    waiting: list[StateBatch] = field(default_factory=list)


class ShareReplay:
    """State of one log during its replay; its size is bounded by the live keys and the limits above."""

    def __init__(self, log: ShareLog) -> None:
        self.log = log
        self._states: dict[_Key, _SharePartition] = {}
        self._text = 0
        self._batches_count = 0
        self._merges_left = MERGES
        self._unreadable = UnreadableRecords[_Key]()

    def snapshot(self, key: _Key, fields: Json, record_offset: int, timestamp: int) -> None:
        """Add a snapshot; `fields` as from `parsers.internal_topics.share_state`."""
        self.tombstone(key)
        self._put(key, fields, record_offset, timestamp)

    def update(self, key: _Key, fields: Json, record_offset: int, timestamp: int) -> None:
        """Add an update."""
        state = self._states.get(key)
        if state is None:
            self._put(key, fields, record_offset, timestamp)
            return
        if fields["start_offset"] != NO_OFFSET:
            if fields["start_offset"] < state.fields["start_offset"]:
                self._merge(state)  # state below is dropped already
            state.fields["start_offset"] = fields["start_offset"]
        if fields["leader_epoch"] != -1:
            state.fields["leader_epoch"] = fields["leader_epoch"]
        state.fields["delivery_complete_count"] = fields.get("delivery_complete_count", -1)
        state.record_offset, state.timestamp = record_offset, timestamp
        state.waiting += self._admitted(_batches(fields))
        if len(state.waiting) > max(_WAITING, len(state.batches)):
            self._merge(state)

    def tombstone(self, key: _Key) -> None:
        """Add the deletion of a share partition's state."""
        state = self._states.pop(key, None)
        if state is not None:
            self._text -= len(key[0])
            self._batches_count -= len(state.batches) + len(state.waiting)
        self._unreadable.discard(key)

    def unreadable(self, key: _Key | None, record_offset: int) -> None:
        """Add an unreadable record; `key` is None if its key is unreadable, too."""
        if key is None or key in self._states:
            self._unreadable.add(key, record_offset - 1)

    def finish(self) -> ShareLog:
        """The replayed log."""
        for key, state in sorted(self._states.items()):
            self._merge(state)
            self.log.states.append(
                ShareState(
                    *key,
                    state.fields["snapshot_epoch"],
                    state.fields.get("state_epoch"),
                    state.fields["leader_epoch"],
                    state.fields["start_offset"],
                    state.fields.get("delivery_complete_count", -1),
                    tuple(state.batches),
                    state.record_offset,
                    state.timestamp,
                    self._unreadable.after(key, state.record_offset),
                )
            )
        return self.log

    def _put(self, key: _Key, fields: Json, record_offset: int, timestamp: int) -> None:
        if len(self._states) >= MAX_KEYS or self._text + len(key[0]) > MAX_TEXT:
            self.log.limited = True
            return
        self._text += len(key[0])
        kept = {name: value for name, value in fields.items() if name != "state_batches"}
        self._states[key] = _SharePartition(kept, [], record_offset, timestamp, self._admitted(_batches(fields)))

    def _admitted(self, batches: list[StateBatch]) -> list[StateBatch]:
        """Count new batches, as many as there is room for, and return these."""
        room = max(min(MAX_BATCHES_HELD - self._batches_count, MAX_BATCHES), 0) if self._merges_left > 0 else 0
        self.log.limited |= len(batches) > room
        self._batches_count += min(len(batches), room)
        return batches[:room]

    def _merge(self, state: _SharePartition) -> None:
        if not state.waiting and (not state.batches or state.batches[0].first_offset >= state.fields["start_offset"]):
            return
        together = [*state.batches, *state.waiting] if self._merges_left > 0 else []
        self.log.limited |= not together
        self._merges_left -= len(together)
        merged = combined(together, state.fields["start_offset"])
        self.log.limited |= len(merged) > MAX_BATCHES
        self._batches_count += min(len(merged), MAX_BATCHES) - len(state.batches) - len(state.waiting)
        state.batches, state.waiting = merged[:MAX_BATCHES], []


def _batches(fields: Json) -> list[StateBatch]:
    return [StateBatch(**batch) for batch in fields["state_batches"]]


def combined(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Batches by offset from `start_offset` on, without overlaps; adjacent batches of one state are joined."""
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
    """Parts of batches, which come by first offset: each offset from the batch with the greatest delivery count, then state."""
    active: list[tuple[int, int, int]] = []  # (-count, -state, last offset), the one that counts first
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
