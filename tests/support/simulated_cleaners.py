"""Histories of keyed records drawn by Hypothesis, and simulated cleaners that clean each replica at different times."""

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from tests.support.brokers import put_compacted
from tests.support.logs import History

RETENTION = 10
"""How long the simulated cleaners keep tombstones and markers, in units of simulated time."""


@dataclass(frozen=True, slots=True)
class Fact:
    """The content of an offset: a record's key and value, its transaction, and how that ended (`commits` None: it is open)."""

    key: str | None
    value: str | None
    transaction: int = -1
    commits: bool | None = True
    is_marker: bool = False


@dataclass(slots=True)
class KnownHistory:
    """A history and the content of each offset."""

    history: History = field(default_factory=History)
    facts: list[Fact] = field(default_factory=list)

    @property
    def first_unstable(self) -> int:
        """The first unstable offset, where every cleaner stops."""
        return min([offset for offset, fact in enumerate(self.facts) if fact.commits is None], default=len(self.facts))


@st.composite
def histories(draw: st.DrawFn) -> KnownHistory:
    keys, values = st.sampled_from("abcd"), st.none() | st.integers(0, 99).map(str)
    told = KnownHistory()
    for number in range(draw(st.integers(3, 12))):
        records = draw(st.lists(st.tuples(keys, values), min_size=1, max_size=3))
        ending = draw(st.sampled_from(["plain"] * 5 + ["commit", "abort"]))
        if ending == "plain":
            told.history.put(*records)
            told.facts += [Fact(*record) for record in records]
            continue
        commits = ending == "commit"
        told.history.transaction(1000 + number, *records, commit=commits)
        told.facts += [Fact(*record, number, commits) for record in records]
        told.facts.append(Fact(None, None, number, commits, is_marker=True))
    if draw(st.booleans()):
        told.history.transaction(1999, ("a", "open"), commit=None)
        told.facts.append(Fact("a", "open", 99, commits=None))
    told.history.fill(3)
    told.facts += [Fact(f"fill-{offset}", "x") for offset in range(len(told.facts), len(told.facts) + 3)]
    return told


@dataclass(slots=True)
class Replica:
    """A log and its cleaner: the offsets left, the end of the cleaned part, and by offset the delete horizon of tombstones and
    markers."""

    facts: list[Fact]
    kept: set[int]
    end: int
    cleaned: int = 0
    horizons: dict[int, int] = field(default_factory=dict)

    def clean(self, until: int, now: int) -> None:
        """Run the cleaner once; `until` is the end of its offset map."""
        until = min(until, self.end)
        latest: dict[str, int] = {}
        for offset in sorted(self.kept):
            fact = self.facts[offset]
            if self.cleaned <= offset < until and fact.key is not None and fact.commits:
                latest[fact.key] = offset
        for offset in sorted(offset for offset in self.kept if offset < until):
            if self._is_dropped(offset, latest, now):
                self.kept.discard(offset)
        self.cleaned = max(self.cleaned, until)

    def _is_dropped(self, offset: int, latest: dict[str, int], now: int) -> bool:
        fact = self.facts[offset]
        if fact.is_marker:
            kept = [self.facts[number] for number in self.kept]
            has_data = any(other.transaction == fact.transaction and not other.is_marker for other in kept)
            return not has_data and self._expired(offset, now)
        if fact.commits is False or fact.key is None or latest.get(fact.key, -1) > offset:
            return True
        return fact.value is None and self._expired(offset, now)

    def _expired(self, offset: int, now: int) -> bool:
        return self.horizons.setdefault(offset, now + RETENTION) <= now

    @property
    def dropped(self) -> set[int]:
        return set(range(self.end)) - self.kept


@st.composite
def clusters(draw: st.DrawFn) -> tuple[KnownHistory, list[Replica]]:
    """A leader and a follower that clean at different times, and perhaps a third replica: lagging, or new and copied from the
    leader."""
    told = draw(histories())
    end = len(told.facts)

    def cleaned(replica: Replica) -> Replica:
        now = 0
        for _ in range(draw(st.integers(0, 4))):
            now += draw(st.integers(1, 2 * RETENTION))
            replica.clean(draw(st.integers(0, told.first_unstable)), now)
        return replica

    leader = cleaned(Replica(told.facts, set(range(end)), end))
    replicas = [leader, cleaned(Replica(told.facts, set(range(end)), end))]
    third = draw(st.sampled_from(["none", "lags", "new"]))
    if third == "lags":
        short = draw(st.integers(1, end))
        replicas.append(Replica(told.facts, set(range(short)), short))
    if third == "new":
        replicas.append(cleaned(Replica(told.facts, set(leader.kept), end)))
    return told, replicas


def written(told: KnownHistory, replicas: list[Replica], folder: Path) -> list[str]:
    ends = [0]
    for step in told.history.steps:
        ends.append(ends[-1] + step.offsets)
    for replica in replicas:  # a log ends with a batch
        replica.end = max(end for end in ends if end <= replica.end)
        replica.kept = {offset for offset in replica.kept if offset < replica.end}
    logs = {number: told.history.left(replica.dropped, end=replica.end) for number, replica in enumerate(replicas, 1)}
    brokers = put_compacted(folder, logs, {number: replica.cleaned for number, replica in enumerate(replicas, 1)})
    return [str(path) for path in brokers.log_dirs]
