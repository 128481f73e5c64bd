"""Which keys of a compacted partition are to be compared, as a value that can go where that is done, and the answer coming back."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.compaction import KeyComparison, KeyTally, Pair, Side, cleaned_end, retention
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.folding.keys.parts import Decided, KeyPart
from kafka_forensics.model.results import Incomplete

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Gist = tuple[tuple[tuple[int, ...], ...], ...]
_OUT_OF_ORDER: Final = frozenset({"OFFSET_DISCONTINUITY", "OFFSET_REGRESSION", "OFFSET_NON_MONOTONIC"})


@dataclass(slots=True)
class KeyedLog:
    """A replica whose keys are compared."""

    plan: int
    """Its number among all of the partition's."""
    log_end_offset: int
    is_in_order: bool
    """Whether no offset comes before a lower one."""
    changed_ms: int
    """When a file of its log directory last changed, -1 if that is not known."""
    decided: Decided

    def side(self, part: KeyPart) -> Side:
        """The replica as the comparison sees it, once it is read; damage without an end reaches the log's end."""
        whole = self.is_in_order and not part.damage.pending
        return Side(self.log_end_offset, part.damage.end if whole else self.log_end_offset)


@dataclass(slots=True)
class KeyQuestion:
    """Pairs of replicas whose latest records of each key are to be compared; `logs` by the numbers that the pairs use."""

    pairs: list[Pair]
    cleaned_end: int
    delete_retention_ms: int
    seed: int
    """Of the hashes of keys and values."""
    logs: dict[int, KeyedLog]
    as_of_ms: int | None = None
    """To when ages count, None: the newest in the evidence."""

    @property
    def cuts(self) -> "NDArray[np.int64]":
        """Offsets at which rows are cut."""
        return KeyComparison({}, self.pairs, self.cleaned_end, 0).cuts

    @property
    def gist(self) -> Gist:
        """All but the seed, and what was decided of transactions."""
        pairs = tuple((pair.left, pair.right, pair.start, pair.end) for pair in self.pairs)
        logs = tuple((number, keyed_log.plan, keyed_log.log_end_offset) for number, keyed_log in sorted(self.logs.items()))
        return pairs, logs, ((self.cleaned_end, self.delete_retention_ms),)

    def comparison(self, parts: dict[int, KeyPart]) -> KeyComparison:
        """The comparison of replicas that are read."""
        sides = {number: keyed_log.side(parts[number]) for number, keyed_log in self.logs.items()}
        newest = max(max(parts[number].newest_timestamp, keyed_log.changed_ms) for number, keyed_log in self.logs.items())
        return KeyComparison(sides, self.pairs, self.cleaned_end, newest if self.as_of_ms is None else self.as_of_ms)


@dataclass(slots=True)
class KeyAnswer:
    """What came of a question: what each replica's log holds, by its number, and the tally; `failed` says why that is not whole."""

    gist: Gist
    parts: dict[int, KeyPart]
    tally: KeyTally
    failed: str | None = None


def key_question(
    plans: list[ReplicaPlan], replicas: list[Replica], pairs: list[Pair], every: list[ReplicaPlan], as_of_ms: int | None
) -> KeyQuestion:
    """What to ask of these replicas, whose plans are among `every` one of the partition; ages count to `as_of_ms`."""
    numbers = sorted({number for pair in pairs for number in (pair.left, pair.right)})
    logs = {number: _keyed_log(plans[number], replicas[number], every) for number in numbers}
    return KeyQuestion(pairs, cleaned_end(replicas), retention(replicas).milliseconds, secrets.randbits(64), logs, as_of_ms)


def _keyed_log(plan: ReplicaPlan, replica: Replica, every: list[ReplicaPlan]) -> KeyedLog:
    place = next(place for place, replica_plan in enumerate(every) if replica_plan is plan)
    put_right = {misplaced.place for misplaced in replica.misplaced}
    in_order = not any(
        irregularity.kind in _OUT_OF_ORDER and irregularity.run.last_place not in put_right
        for irregularity in replica.course.irregularities
    )
    return KeyedLog(place, replica.log_end_offset, in_order, _changed_ms(plan), Decided.of(replica))


def _changed_ms(plan: ReplicaPlan) -> int:
    """The last change to a file of a copy's log directory, ms."""
    directory, log_dir = plan.directory, plan.log_dir.found
    entries = [*log_dir.entries.values(), *directory.entries.values(), *(segment.log for segment in directory.segments)]
    return max((entry.mtime_ns // 1_000_000 for entry in entries if entry is not None), default=-1)


@dataclass(slots=True)
class KeysApart:
    """Questions about a partition's keys that are not answered where it is judged: those about logs of `least_bytes` and more.

    While there are no answers they are noted in `asked`, and what is judged is not the answer about the partition.
    """

    least_bytes: int
    plans: list[ReplicaPlan]
    """Of all replicas of the partition, in every snapshot."""
    answers: list[KeyAnswer] | None
    """None before anything was asked."""
    asked: list[KeyQuestion] = field(default_factory=list)

    def wanted(self, question: KeyQuestion) -> bool:
        """Whether the question is to be answered apart."""
        return sum(self.plans[keyed_log.plan].bytes for keyed_log in question.logs.values()) >= self.least_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether what is judged is no answer yet."""
        return self.answers is None and bool(self.asked)

    def gaps(self) -> Iterator[Incomplete]:
        """What could not be read where the answers were found."""
        for key_answer in self.answers or ():
            for part in key_answer.parts.values():
                yield from part.incomplete

    def answer(self, question: KeyQuestion) -> KeyAnswer | None:
        """What came back about this very question, if it has been asked."""
        gist = question.gist
        return next((key_answer for key_answer in self.answers or () if key_answer.gist == gist), None)
