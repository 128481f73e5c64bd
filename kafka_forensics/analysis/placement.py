"""Which rule put a topic's keys into its partitions, when it changed, and which keys stand in several partitions.

Every rule says for each key one partition, so each can be weighed by how often it is right, against the rule that knows nothing
and is right in one of as many cases as there are partitions.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.batches import KEY_SAMPLE_COLUMNS, KeySampleColumn
from kafka_forensics.model.findings import Confidence, Finding, Place
from kafka_forensics.model.json_objects import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.int64]
    Hits = NDArray[np.bool_]


# Keys of some records of one log, as a fold: what of them is kept to tell by which rule they came into its partition.


MOST_KEPT: Final = 2048
"""Records with a key that are kept of a log, at most."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_OTHER_ODD: Final = np.uint64(0xBF58476D1CE4E5B9)


class KeyPlacementFold:
    """State: counts, and of the records with a key a sample that does not depend on how the log was cut.

    Kept are those whose offsets come first in a fixed order that has nothing to do with time or key.
    """

    def __init__(self) -> None:
        self.records = 0
        """That were looked at."""
        self.keyless = 0
        """Of them without a key, or with an empty one."""
        self._kept: list[NDArray[np.int64]] = []
        self._columns = 0

    def step(self, samples: "NDArray[np.int64]") -> None:
        """Add a (KEY_SAMPLE_COLUMNS, n) matrix of records."""
        if not samples.shape[1]:
            return
        keyed = samples[KeySampleColumn.KEY_LENGTH] > 0
        self.records += samples.shape[1]
        self.keyless += samples.shape[1] - int(keyed.sum())
        self._add(samples[:, keyed])

    def merge(self, right: "KeyPlacementFold") -> None:
        """Add the stretch that follows ours."""
        self.records += right.records
        self.keyless += right.keyless
        for samples in right._kept:
            self._add(samples)

    def _add(self, samples: "NDArray[np.int64]") -> None:
        self._kept.append(samples)
        self._columns += samples.shape[1]
        if self._columns > 2 * MOST_KEPT:
            self._kept = [thinned(self._all(), MOST_KEPT)]
            self._columns = self._kept[0].shape[1]

    def _all(self) -> "NDArray[np.int64]":
        return np.concatenate([np.empty((KEY_SAMPLE_COLUMNS, 0), np.int64), *self._kept], axis=1)

    def samples(self) -> "NDArray[np.int64]":
        """The records kept, a (KEY_SAMPLE_COLUMNS, n) matrix in order of offsets."""
        return thinned(self._all(), MOST_KEPT)


def thinned(samples: "NDArray[np.int64]", most: int) -> "NDArray[np.int64]":
    """At most `most` columns, in order of offsets; the same ones however the whole was put together."""
    offsets = samples[KeySampleColumn.OFFSET]
    if offsets.size > most:
        mixed = offsets.astype(np.uint64) * _ODD
        mixed = (mixed ^ (mixed >> np.uint64(31))) * _OTHER_ODD
        order = np.argsort(mixed ^ (mixed >> np.uint64(29)), kind="stable")
        samples = samples[:, np.sort(order[:most])]
    return samples[:, np.argsort(samples[KeySampleColumn.OFFSET], kind="stable")]


@dataclass(slots=True)
class PartitionKeys:
    """What was looked at of one partition: `samples` as the fold keeps them, the counts of records, and how many it has in all."""

    samples: "NDArray[np.int64]"
    looked_at: int
    keyless: int
    records: int


MURMUR2: Final = "murmur2"
CRC32: Final = "crc32"
BOTH: Final = "murmur2 and crc32"
NEITHER: Final = "no_known_hash"
_HASHES: Final = (MURMUR2, CRC32)

MOST_OF_A_TOPIC: Final = 1 << 13
"""Records weighed of a topic: of very many partitions a few of each, of still more only of some partitions."""
_LEAST_OF_A_PARTITION: Final = 4
_ALL_COUNTS_UP_TO: Final = 64
_NEIGHBOURS: Final = 16
_STRAY: Final = 0.01
"""Share of records that may lie elsewhere for other reasons, as when a program names the partition."""
_SURE: Final = 12.0
"""Nats (natural logarithms of odds) by which the best rule must be more likely than the next to be named."""
_CHANGE: Final = 30.0
"""Nats that a change must explain: a cut can be made at any of thousands of places, between any of some hundred rules."""
_LEAST_SHARE: Final = 0.95
_MOST_CHANGES: Final = 4
_LISTED: Final = 16
_EXAMPLES: Final = 4


@dataclass(frozen=True, slots=True)
class Rule:
    """A way of choosing partitions: a hash modulo a number of partitions; BOTH are two clients at once, NEITHER none of these."""

    partitioner: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records with a key between two moments: the rule they follow, and the share that does."""

    rule: Rule
    share: float
    start_timestamp: int


@dataclass(frozen=True, slots=True)
class Scattered:
    """A key that stands in several partitions: partition → the first offset of it that was looked at."""

    offsets: dict[int, int]


@dataclass(slots=True)
class Placement:
    """How a topic's keys are placed: stretches in order of time, none if too little was seen to say.

    `changes[i]` is, for each partition, the first offset looked at that follows stretch `i + 1` and not `i`.
    """

    topic: str
    partition_count: int
    stretches: list[Stretch] = field(default_factory=list)
    changes: list[dict[int, int]] = field(default_factory=list)
    keys: int = 0
    scattered: list[Scattered] = field(default_factory=list)
    """The first few of `scattered_keys`."""
    scattered_keys: int = 0
    keyless_share: dict[int, int] = field(default_factory=dict)
    """Partition → its share of the topic's records without a key, in percent; estimated from those looked at."""

    @property
    def last_rule(self) -> tuple[str | None, int | None, int | None]:
        """Partitioner, number of partitions and share in percent of the last stretch; None where nothing can be said."""
        if not self.stretches:
            return None, None, None
        rule, share = self.stretches[-1].rule, self.stretches[-1].share
        return rule.partitioner, rule.partition_count, None if rule.partitioner == NEITHER else round(100 * share)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to tell: one hash over all partitions fits all along, and no key was seen in two of them."""
        known = all(
            stretch.rule.partitioner in _HASHES
            and stretch.rule.partition_count >= self.partition_count
            and stretch.share >= _LEAST_SHARE
            for stretch in self.stretches
        )
        return known and len(self.stretches) < 2 and not self.scattered_keys


def judge_topic(topic: str, partitions: Mapping[int, PartitionKeys], partition_count: int, *, exact_count: bool) -> Placement:
    """Weigh the rules over the keys of one topic; `exact_count` is whether `partition_count` is all there are."""
    placement = Placement(topic, partition_count, keyless_share=_keyless_share(partitions))
    if partition_count < 2 or not partitions:
        return placement
    keys = _Keys.of(partitions)
    placement.keys = int(np.unique(keys.identity).size)
    plain = _fits_throughout(keys, placement.keys, partition_count)
    if plain is not None:
        placement.stretches = [plain]
    elif keys.size:
        placement.scattered, placement.scattered_keys = keys.scattered()
        rules = _Rules(keys.unrepeated(), partition_count, exact_count=exact_count)
        placement.stretches, placement.changes = rules.stretches()
    return placement


def _keyless_share(partitions: Mapping[int, PartitionKeys]) -> dict[int, int]:
    keyless = {number: keys.records * keys.keyless / keys.looked_at for number, keys in partitions.items() if keys.looked_at}
    total = sum(keyless.values())
    return {number: round(100 * count / total) for number, count in sorted(keyless.items())} if total else {}


@dataclass(frozen=True, slots=True)
class _Keys:
    """Records of all partitions, in order of partition and offset."""

    partition: "NDArray[np.int64]"
    offset: "NDArray[np.int64]"
    timestamp: "NDArray[np.int64]"
    murmur2: "NDArray[np.int64]"
    crc32: "NDArray[np.int64]"

    @classmethod
    def of(cls, partitions: Mapping[int, PartitionKeys]) -> "_Keys":
        most = max(_LEAST_OF_A_PARTITION, MOST_OF_A_TOPIC // len(partitions))
        spread = 1 + (most * len(partitions) - 1) // MOST_OF_A_TOPIC
        samples = {number: thinned(keys.samples, most) for number, keys in sorted(partitions.items())[::spread]}
        rows = np.concatenate(list(samples.values()), axis=1)
        numbers = np.repeat(np.array(list(samples), np.int64), [sample.shape[1] for sample in samples.values()])
        return cls(numbers, *(rows[KeySampleColumn[name]] for name in ("OFFSET", "TIMESTAMP", "MURMUR2", "CRC32")))

    @property
    def size(self) -> int:
        """Number of records."""
        return int(self.partition.size)

    def taken(self, which: "NDArray[Any]") -> "_Keys":
        """Those at the indices, or where a mask is true."""
        return _Keys(*(column[which] for column in (self.partition, self.offset, self.timestamp, self.murmur2, self.crc32)))

    def appended(self) -> "NDArray[np.int64]":
        """When each was appended, about: the latest time so far in its partition, as clients may set times of long ago."""
        times = self.timestamp.copy()
        edges = np.flatnonzero(np.diff(self.partition)) + 1
        for start, end in itertools.pairwise([0, *edges.tolist(), self.size]):
            times[start:end] = np.maximum.accumulate(times[start:end])
        return times

    @property
    def identity(self) -> "NDArray[np.int64]":
        """Both hashes in one number: what tells keys apart."""
        return self.murmur2 << 32 | self.crc32

    def unrepeated(self) -> "_Keys":
        """The first and the last record of each key in each partition: a key that comes again proves nothing new."""
        order = np.lexsort((self.offset, self.identity, self.partition))
        identity, partition = self.identity[order], self.partition[order]
        fresh = np.ones(self.size, np.bool_)
        fresh[1:] = (identity[1:] != identity[:-1]) | (partition[1:] != partition[:-1])
        last = np.ones(self.size, np.bool_)
        last[:-1] = fresh[1:]
        return self.taken(np.sort(order[fresh | last]))

    def scattered(self) -> tuple[list[Scattered], int]:
        """(the first few keys that stand in several partitions, how many do)."""
        order = np.lexsort((self.offset, self.partition, self.identity))
        identity, partition = self.identity[order], self.partition[order]
        fresh = np.ones(self.size, np.bool_)
        fresh[1:] = identity[1:] != identity[:-1]
        number = np.cumsum(fresh) - 1
        moved = np.zeros(self.size, np.bool_)
        moved[1:] = ~fresh[1:] & (partition[1:] != partition[:-1])
        spread = np.unique(number[moved])
        examples = []
        for key in spread[:_EXAMPLES].tolist():
            rows = order[number == key]
            seen: dict[int, int] = {}
            for at in rows.tolist():
                seen.setdefault(int(self.partition[at]), int(self.offset[at]))
            examples.append(Scattered(seen))
        return examples, int(spread.size)


def _fits_throughout(keys: _Keys, different: int, partition_count: int) -> Stretch | None:
    """The one hash that put each of so many `different` keys where it is; None where none or both did, or they are too few."""
    if different * (log(1 - _STRAY) + log(partition_count)) < _SURE:
        return None
    hashes = {MURMUR2: keys.murmur2 & 0x7FFFFFFF, CRC32: keys.crc32}
    fitting = [name for name, hashed in hashes.items() if bool((hashed % partition_count == keys.partition).all())]
    if len(fitting) != 1:
        return None
    return Stretch(Rule(fitting[0], partition_count), 1.0, int(keys.timestamp.min()))


class _Rules:
    """The rules in question, each with where it is right, over records in order of time."""

    def __init__(self, keys: _Keys, partition_count: int, *, exact_count: bool) -> None:
        self._keys = keys.taken(np.lexsort((keys.offset, keys.partition, keys.appended())))
        self._count = partition_count
        counts = sorted(_counts(partition_count, exact_count=exact_count))
        self._rules = [Rule(name, count) for name in _HASHES for count in counts]
        self._rules += [Rule(BOTH, partition_count), Rule(NEITHER, partition_count)]
        hashes = {MURMUR2: self._keys.murmur2 & 0x7FFFFFFF, CRC32: self._keys.crc32}
        hits = [hashes[rule.partitioner] % rule.partition_count == self._keys.partition for rule in self._rules[:-2]]
        now = counts.index(partition_count)
        hits.append(hits[now] | hits[len(counts) + now])
        hits.append(np.ones(self._keys.size, np.bool_))
        self._hits = np.stack(hits)
        right = np.full(len(self._rules), log(1 - _STRAY))
        right[-2:] = log((1 - _STRAY) / 2), -log(partition_count)
        wrong = log(_STRAY / partition_count)
        self._likelihood = np.cumsum(np.where(self._hits, right[:, None], wrong), axis=1)
        self._prior = np.array([-3.0 * (rule.partition_count != partition_count) for rule in self._rules])
        self._prior[-2] = -6.0

    def stretches(self) -> tuple[list[Stretch], list[dict[int, int]]]:
        """The stretches of time in which one rule holds, and where each change shows in the partitions."""
        stretches = self._found()
        if stretches and not _one_partition_then(stretches):
            self._prior[[rule.partition_count == 1 for rule in self._rules]] = -np.inf
            stretches = self._found()
        counts = [stretch.rule.partition_count for stretch, _ in stretches]
        if counts != sorted(counts):
            return [], []  # partitions are never taken away, so times are not those of appending
        changes = [self._where(before, after) for (_, before), (_, after) in itertools.pairwise(stretches)]
        return [stretch for stretch, _ in stretches], changes

    def _found(self) -> "list[tuple[Stretch, Hits]]":
        """Stretches of different rules, each with where its rule is right; none if of one too little was seen to say.

        A rule that fits only by and large fits here better and there worse by chance, so that no change is claimed with it.
        """
        has_times = bool((self._keys.timestamp >= 0).any())
        cuts = self._cuts(0, self._keys.size, _MOST_CHANGES) if has_times else []
        stretches = self._between([0, *cuts, self._keys.size])
        vague = any(stretch.share < _LEAST_SHARE for stretch, _ in stretches)
        return self._between([0, self._keys.size]) if cuts and vague else stretches

    def _between(self, edges: list[int]) -> "list[tuple[Stretch, Hits]]":
        stretches: list[tuple[Stretch, Hits]] = []
        for start, end in itertools.pairwise(edges):
            rule, hits = self._best(start, end)
            if rule is None:
                return []
            if not stretches or stretches[-1][0].rule != rule:
                share = float(hits[start:end].mean())
                stretches.append((Stretch(rule, share, int(self._keys.timestamp[start])), hits))
        return stretches

    def _over(self, start: int, end: int) -> "NDArray[np.float64]":
        """Logarithm of the likelihood of each rule over records `[start, end)`."""
        before = self._likelihood[:, start - 1] if start else 0.0
        total: NDArray[np.float64] = self._likelihood[:, end - 1] - before + self._prior
        return total

    def _cuts(self, start: int, end: int, most: int) -> list[int]:
        """Where rules change within `[start, end)`, at most so many times."""
        if end - start < 2 or most < 1:
            return []
        before = self._likelihood[:, start - 1 : start] if start else 0.0
        left = self._likelihood[:, start : end - 1] - before + self._prior[:, None]
        right = self._likelihood[:, end - 1 : end] - self._likelihood[:, start : end - 1] + self._prior[:, None]
        both = left.max(axis=0) + right.max(axis=0)
        at = int(both.argmax())
        if both[at] - self._over(start, end).max() < _CHANGE or left[:, at].argmax() == right[:, at].argmax():
            return []
        cut = start + at + 1
        first = self._cuts(start, cut, most - 1)
        return [*first, cut, *self._cuts(cut, end, most - 1 - len(first))]

    def _best(self, start: int, end: int) -> tuple[Rule | None, "Hits"]:
        """The rule that fits `[start, end)` and where it is right; None where too little was seen to say."""
        likely = self._over(start, end)
        best = int(likely.argmax())
        other = likely[:-1].max() if best == len(self._rules) - 1 else likely[-1]
        return self._rules[best] if likely[best] - other >= _SURE else None, self._hits[best]

    def _where(self, before: "Hits", after: "Hits") -> dict[int, int]:
        """Partition → its first offset looked at from which on `after` is right more often than `before`."""
        keys, first_offsets = self._keys, {}
        for number in np.unique(keys.partition).tolist():
            rows = np.flatnonzero(keys.partition == number)
            rows = rows[np.argsort(keys.offset[rows], kind="stable")]
            gain = np.cumsum(before[rows].astype(np.int64) - after[rows].astype(np.int64))
            at = int(gain.argmax()) + 1 if gain.max() > 0 else 0
            telling = np.flatnonzero(after[rows[at:]] & ~before[rows[at:]])
            if telling.size:
                first_offsets[int(number)] = int(keys.offset[rows[at:][telling[0]]])
        return first_offsets


def _one_partition_then(stretches: "list[tuple[Stretch, Hits]]") -> bool:
    """Whether stretches of a single partition are believable: all keys lie in partition 0 for other reasons too, so only where the
    log begins so and goes on by a hash over several."""
    return all(
        stretch.rule.partition_count > 1 or (index == 0 and len(stretches) > 1 and stretches[1][0].rule.partitioner in _HASHES)
        for index, (stretch, _) in enumerate(stretches)
    )


def _counts(partition_count: int, *, exact_count: bool) -> set[int]:
    """Numbers of partitions the topic may have had: all if it has few; of many those near the present and its simple fractions."""
    counts = {partition_count, *range(1, min(partition_count, _ALL_COUNTS_UP_TO) + 1)}
    counts |= set(range(max(partition_count - _NEIGHBOURS, 1), partition_count))
    counts |= {partition_count // 2, partition_count // 3, partition_count // 4, partition_count * 2 // 3, partition_count * 3 // 4}
    if not exact_count:
        counts |= set(range(partition_count + 1, partition_count + 1 + min(partition_count, _ALL_COUNTS_UP_TO)))
    return counts - {0}


def placement_finding(placement: Placement, looked_at: Mapping[int, PartitionKeys], count_witness: str) -> Finding | None:
    """What is to be told of a topic's keys; None where one hash over all partitions fits, or too little was seen."""
    if placement.is_plain or (not placement.stretches and not placement.scattered_keys):
        return None
    last = placement.stretches[-1] if placement.stretches else None
    evidence: Json = {
        "partitioner": None if last is None else last.rule.partitioner,
        "partition_count": placement.partition_count if last is None else last.rule.partition_count,
        **_change(placement),
        **_shares(last),
        "partitions": placement.partition_count,
        "records_looked_at": sum(keys.looked_at for keys in looked_at.values()),
        "keys_looked_at": placement.keys,
        "keys_in_several_partitions": placement.scattered_keys or None,
        "examples": [
            {"first_offsets": {str(at): offset for at, offset in scattered.offsets.items()}} for scattered in placement.scattered
        ],
        "changes": list(_changes(placement)),
        "keyless_percent": {str(number): share for number, share in list(placement.keyless_share.items())[:_LISTED]},
        "premises": [f"number of partitions: {count_witness}", "the first records of some batches were looked at"],
    }
    confidence = Confidence.SUSPECTED if last is not None and last.rule.partitioner == NEITHER else None
    return finding("KEY_PLACEMENT", Place(placement.topic), evidence, confidence=confidence)


def _change(placement: Placement) -> Json:
    """The rule before the last one, and when that began."""
    rule, changed = None, None
    if len(placement.stretches) > 1:
        rule, changed = placement.stretches[-2].rule, placement.stretches[-1].start_timestamp
    return {
        "partitioner_before": None if rule is None else rule.partitioner,
        "partition_count_before": None if rule is None else rule.partition_count,
        "changed_timestamp": changed,
    }


def _shares(last: Stretch | None) -> dict[str, int | None]:
    """Of the keys looked at, those that lie where the rule has them, and those that do not."""
    agreeing = None if last is None or last.rule.partitioner == NEITHER else round(100 * last.share)
    elsewhere = None if agreeing is None or last is None or last.share >= _LEAST_SHARE else 100 - agreeing
    return {"agreeing_percent": agreeing, "elsewhere_percent": elsewhere}


def _changes(placement: Placement) -> Iterator[Json]:
    for before, after, where in zip(placement.stretches, placement.stretches[1:], placement.changes, strict=False):
        yield {
            "timestamp": after.start_timestamp,
            "before": {"partitioner": before.rule.partitioner, "partition_count": before.rule.partition_count},
            "after": {"partitioner": after.rule.partitioner, "partition_count": after.rule.partition_count},
            "first_offsets": {str(number): offset for number, offset in list(where.items())[:_LISTED]},
        }
