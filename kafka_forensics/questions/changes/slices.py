"""What judging one partition over several snapshots needs, small enough to go where it is judged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.engine.slices import Slice, slices
from kafka_forensics.engine.task_values import Common, SliceAnswer
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.folding.keys import KeyAnswer, KeyQuestion
from kafka_forensics.questions.changes.partition import Disks, PartitionChanges, Word, Words

REPLICAS_A_SNAPSHOT: Final = 1 << 16
"""Replicas of a partition are numbered from a multiple of this on in each snapshot."""


@dataclass(slots=True)
class ChangesCommon:
    """What all slices of a comparison have in common: of each snapshot what its scan's tasks have, and its log directories."""

    scans: list[Common]
    disks: list[Disks]


@dataclass(slots=True)
class ChangeSlice:
    """One partition: its slice of each snapshot, empty where that has nothing of it, and what each says beside."""

    topic: str
    partition: int
    parts: list[Slice] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    keys: list[KeyAnswer] | None = None
    """What was answered about its keys, None where nothing was asked yet."""

    @property
    def replicas(self) -> list[ReplicaPlan]:
        """Of all snapshots, by these."""
        return [plan for part in self.parts for plan in part.replicas]


@dataclass(slots=True)
class ChangeAnswer:
    """What came of it: an answer for each snapshot, None where it has nothing, and the changes between them."""

    answers: list[SliceAnswer | None]
    compared: PartitionChanges
    asked: list[KeyQuestion] = field(default_factory=list)
    """What must be answered first, as in a `SliceAnswer`."""


def change_slices(every: Sequence[Inputs], words: Sequence[Words]) -> Iterator[ChangeSlice]:
    """A slice for every partition that any of the snapshots has, by topic and partition."""
    found = [{(one.topic, one.partition): one for one in slices(inputs)} for inputs in every]
    for key in sorted({key for of_snapshot in found for key in of_snapshot}):
        parts = [of_snapshot.get(key) or Slice(*key) for of_snapshot in found]
        yield ChangeSlice(*key, parts, [word.of(*key) for word in words])
