"""Which rule placed a topic's keys into its partitions, when it changed, and which keys are in several partitions.

Every rule gives one partition per key. A rule is weighed by how often it is right, against a guess, which is right once in as many
cases as there are partitions.
"""

import itertools
from collections.abc import Mapping
from math import log
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct, field

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.batches import KEY_SAMPLE_COLUMNS, KeySampleColumn
from kafka_forensics.model.findings import Confidence, Finding, Place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.json_objects import Json

    Ints = NDArray[np.int64]
    Hits = NDArray[np.bool_]

MAX_SAMPLES: Final = 2048
"""Records with a key kept per log, at most."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_OTHER_ODD: Final = np.uint64(0xBF58476D1CE4E5B9)


class KeyPlacementFold:
    """State: counts of the records looked at, and a sample of those with a key.

    The sample consists of the records whose offsets come first in a fixed order that is independent of time and key, so it does not
    depend on how the log was split.
    """

    def __init__(self) -> None:
        self.records = 0
        """Records looked at."""
        self.keyless = 0
        """Those of them without a key or with an empty one."""
        self._kept: list[Ints] = []
        self._columns = 0

    def step(self, samples: "Ints") -> None:
        """Add a (KEY_SAMPLE_COLUMNS, n) matrix of records."""
        if not samples.shape[1]:
            return
        keyed = samples[KeySampleColumn.KEY_LENGTH] > 0
        self.records += samples.shape[1]
        self.keyless += samples.shape[1] - int(keyed.sum())
        self._add(samples[:, keyed])

    def merge(self, right: "KeyPlacementFold") -> None:
        """Add the state of the records that follow ours."""
        self.records += right.records
        self.keyless += right.keyless
        for samples in right._kept:
            self._add(samples)

    def _add(self, samples: "Ints") -> None:
        self._kept.append(samples)
        self._columns += samples.shape[1]
        if self._columns > 2 * MAX_SAMPLES:
            self._kept = [self.samples()]
            self._columns = self._kept[0].shape[1]

    def samples(self) -> "Ints":
        """The sample, a (KEY_SAMPLE_COLUMNS, n) matrix in order of offsets."""
        return sample_columns(np.concatenate([np.empty((KEY_SAMPLE_COLUMNS, 0), np.int64), *self._kept], axis=1), MAX_SAMPLES)


def sample_columns(samples: "Ints", most: int) -> "Ints":
    """At most `most` columns, in order of offsets; the same columns however the matrix was put together."""
    offsets = samples[KeySampleColumn.OFFSET]
    if offsets.size > most:
        mixed = offsets.astype(np.uint64) * _ODD
        mixed = (mixed ^ (mixed >> np.uint64(31))) * _OTHER_ODD
        order = np.argsort(mixed ^ (mixed >> np.uint64(29)), kind="stable")
        samples = samples[:, np.sort(order[:most])]
    return samples[:, np.argsort(samples[KeySampleColumn.OFFSET], kind="stable")]


class PartitionKeys(Struct):
    """The keys of a partition: the fold's `samples`, records looked at, those of them without a key, and all records."""

    samples: "Ints"
    looked_at: int
    keyless: int
    records: int


MURMUR2: Final = "murmur2"
CRC32: Final = "crc32"
BOTH: Final = "murmur2_and_crc32"
NEITHER: Final = "no_known_hash"
_HASHES: Final = (MURMUR2, CRC32)

MAX_SAMPLES_PER_TOPIC: Final = 1 << 13
"""Records weighed per topic: fewer of each partition if it has very many, and of some partitions only if it has still more."""
_MIN_SAMPLES_PER_PARTITION: Final = 4
_ALL_COUNTS_UP_TO: Final = 64
_NEIGHBOURS: Final = 16
_STRAY: Final = 0.01
"""Share of records that are elsewhere for other reasons, for instance because a program names the partition."""
_SURE: Final = 12.0
"""Nats (natural logarithm of the odds) by which the best rule must be more likely than the next to be named."""
_CHANGE: Final = 30.0
"""Nats that a change of rules must gain: there are thousands of places for it, and some hundred rules."""
_MIN_SHARE: Final = 0.95
_MAX_CHANGES: Final = 4
_LISTED: Final = 16
_EXAMPLES: Final = 4


class Rule(Struct, frozen=True):
    """A hash modulo a number of partitions; partitioner BOTH: two clients at once, NEITHER: no known hash."""

    partitioner: str
    partition_count: int


class RulePeriod(Struct, frozen=True):
    """A period in which one rule holds: the rule, the share of records that follow it, timestamp of the first record (ms)."""

    rule: Rule
    share: float
    start_timestamp: int


class Placement(Struct):
    """How a topic's keys are placed: periods in order of time, none if there is too little evidence.

    `changes[i]` has, by partition, the first offset looked at that follows period `i + 1` and not `i`.
    """

    topic: str
    partition_count: int
    periods: list[RulePeriod] = field(default_factory=list)
    changes: list[dict[int, int]] = field(default_factory=list)
    keys: int = 0
    scattered_keys: int = 0
    """Keys seen in several partitions."""
    scattered_examples: list[dict[int, int]] = field(default_factory=list)
    """For the first few of them: partition → first offset looked at."""
    keyless_share: dict[int, int] = field(default_factory=dict)
    """Partition → its share of the topic's records without a key, in percent; estimated from the records looked at."""

    @property
    def last_rule(self) -> tuple[str | None, int | None, int | None]:
        """Partitioner, number of partitions and agreeing share in percent in the last period; None where unknown."""
        if not self.periods:
            return None, None, None
        rule, share = self.periods[-1].rule, self.periods[-1].share
        return rule.partitioner, rule.partition_count, None if rule.partitioner == NEITHER else round(100 * share)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is worth a finding: at most one period, of one hash over all partitions, and no scattered key."""
        normal = all(
            period.rule.partitioner in _HASHES
            and period.rule.partition_count >= self.partition_count
            and period.share >= _MIN_SHARE
            for period in self.periods
        )
        return normal and len(self.periods) < 2 and not self.scattered_keys


def weigh_rules(topic: str, partitions: Mapping[int, PartitionKeys], partition_count: int, *, exact_count: bool) -> Placement:
    """Weigh the rules over the keys of one topic; `exact_count`: the topic has exactly `partition_count` partitions."""
    keyless = {number: keys.records * keys.keyless / keys.looked_at for number, keys in partitions.items() if keys.looked_at}
    total = sum(keyless.values())
    shares = {number: round(100 * count / total) for number, count in sorted(keyless.items())} if total else {}
    placement = Placement(topic, partition_count, keyless_share=shares)
    if partition_count < 2 or not partitions:
        return placement
    keys = _Keys.of(partitions)
    placement.keys = int(np.unique(keys.identity).size)
    only_period = _one_hash_throughout(keys, placement.keys, partition_count)
    if only_period is not None:
        placement.periods = [only_period]
    elif keys.size:
        placement.scattered_examples, placement.scattered_keys = keys.scattered()
        rules = _Rules(keys.unrepeated(), partition_count, exact_count=exact_count)
        placement.periods, placement.changes = rules.periods()
    return placement


class _Keys(Struct, frozen=True):
    """Records of all partitions, in order of partition and offset."""

    partition: "Ints"
    offset: "Ints"
    timestamp: "Ints"
    murmur2: "Ints"
    crc32: "Ints"

    @classmethod
    def of(cls, partitions: Mapping[int, PartitionKeys]) -> "_Keys":
        most = max(_MIN_SAMPLES_PER_PARTITION, MAX_SAMPLES_PER_TOPIC // len(partitions))
        every_nth = 1 + (most * len(partitions) - 1) // MAX_SAMPLES_PER_TOPIC
        samples = {number: sample_columns(keys.samples, most) for number, keys in sorted(partitions.items())[::every_nth]}
        rows = np.concatenate(list(samples.values()), axis=1)
        numbers = np.repeat(np.array(list(samples), np.int64), [sample.shape[1] for sample in samples.values()])
        return cls(numbers, *(rows[KeySampleColumn[name]] for name in ("OFFSET", "TIMESTAMP", "MURMUR2", "CRC32")))

    @property
    def size(self) -> int:
        """Number of records."""
        return int(self.partition.size)

    @property
    def identity(self) -> "Ints":
        """Both hashes in one number, which identifies the key."""
        return self.murmur2 << 32 | self.crc32

    @property
    def hashes(self) -> "dict[str, Ints]":
        """Each hash as a partitioner uses it."""
        return {MURMUR2: self.murmur2 & 0x7FFFFFFF, CRC32: self.crc32}

    def rows_at(self, indices: "NDArray[Any]") -> "_Keys":
        """The records at these indices."""
        return _Keys(*(column[indices] for column in (self.partition, self.offset, self.timestamp, self.murmur2, self.crc32)))

    def append_times(self) -> "Ints":
        """Estimated append times: the largest timestamp so far in the partition, since clients may set old timestamps."""
        times = self.timestamp.copy()
        edges = np.flatnonzero(np.diff(self.partition)) + 1
        for start, end in itertools.pairwise([0, *edges.tolist(), self.size]):
            times[start:end] = np.maximum.accumulate(times[start:end])
        return times

    def unrepeated(self) -> "_Keys":
        """The first and last record of each key in each partition: repetitions prove nothing new."""
        order = np.lexsort((self.offset, self.identity, self.partition))
        identity, partition = self.identity[order], self.partition[order]
        first = np.ones(self.size, np.bool_)
        first[1:] = (identity[1:] != identity[:-1]) | (partition[1:] != partition[:-1])
        last = np.ones(self.size, np.bool_)
        last[:-1] = first[1:]
        return self.rows_at(np.sort(order[first | last]))

    def scattered(self) -> tuple[list[dict[int, int]], int]:
        """Keys in several partitions: the first offset by partition for the first few of them, and how many there are."""
        order = np.lexsort((self.offset, self.partition, self.identity))
        identity, partition = self.identity[order], self.partition[order]
        first = np.ones(self.size, np.bool_)
        first[1:] = identity[1:] != identity[:-1]
        number = np.cumsum(first) - 1
        moved = np.zeros(self.size, np.bool_)
        moved[1:] = ~first[1:] & (partition[1:] != partition[:-1])
        scattered = np.unique(number[moved])
        examples = []
        for key in scattered[:_EXAMPLES].tolist():
            first_offsets: dict[int, int] = {}
            for row in order[number == key].tolist():
                first_offsets.setdefault(int(self.partition[row]), int(self.offset[row]))
            examples.append(first_offsets)
        return examples, int(scattered.size)


def _one_hash_throughout(keys: _Keys, distinct_keys: int, partition_count: int) -> RulePeriod | None:
    """The one hash that gives the partition of every record; None if none or both do, or if `distinct_keys` are too few."""
    if distinct_keys * (log(1 - _STRAY) + log(partition_count)) < _SURE:
        return None
    fitting = [name for name, hashed in keys.hashes.items() if bool((hashed % partition_count == keys.partition).all())]
    if len(fitting) != 1:
        return None
    return RulePeriod(Rule(fitting[0], partition_count), 1.0, int(keys.timestamp.min()))


class _Rules:
    """The possible rules, each with the records for which it is right, over records in order of time."""

    def __init__(self, keys: _Keys, partition_count: int, *, exact_count: bool) -> None:
        self._keys = keys.rows_at(np.lexsort((keys.offset, keys.partition, keys.append_times())))
        counts = sorted(_counts(partition_count, exact_count=exact_count))
        self._rules = [Rule(name, count) for name in _HASHES for count in counts]
        self._rules += [Rule(BOTH, partition_count), Rule(NEITHER, partition_count)]
        hashes = self._keys.hashes
        hits = [hashes[rule.partitioner] % rule.partition_count == self._keys.partition for rule in self._rules[:-2]]
        present = counts.index(partition_count)
        hits.append(hits[present] | hits[len(counts) + present])
        hits.append(np.ones(self._keys.size, np.bool_))
        self._hits = np.stack(hits)
        right = np.full(len(self._rules), log(1 - _STRAY))
        right[-2:] = log((1 - _STRAY) / 2), -log(partition_count)
        wrong = log(_STRAY / partition_count)
        self._likelihood = np.cumsum(np.where(self._hits, right[:, None], wrong), axis=1)
        self._prior = np.array([-3.0 * (rule.partition_count != partition_count) for rule in self._rules])
        self._prior[-2] = -6.0

    def periods(self) -> tuple[list[RulePeriod], list[dict[int, int]]]:
        """The periods in which one rule holds, and where each change shows in the partitions."""
        periods = self._periods_by_likelihood()
        if periods and not _one_partition_first([period for period, _ in periods]):
            self._prior[[rule.partition_count == 1 for rule in self._rules]] = -np.inf
            periods = self._periods_by_likelihood()
        counts = [period.rule.partition_count for period, _ in periods]
        if counts != sorted(counts):
            return [], []  # Kafka never removes partitions, so the timestamps are not those of appending
        changes = [self._first_offsets(before, after) for (_, before), (_, after) in itertools.pairwise(periods)]
        return [period for period, _ in periods], changes

    def _periods_by_likelihood(self) -> "list[tuple[RulePeriod, Hits]]":
        """Periods of different rules, each with the records for which its rule is right; none if a period lacks evidence.

        A rule with a low share fits some stretches better than others by chance, so it never takes part in a change.
        """
        has_times = bool((self._keys.timestamp >= 0).any())
        cuts = self._cuts(0, self._keys.size, _MAX_CHANGES) if has_times else []
        periods = self._between([0, *cuts, self._keys.size])
        has_weak_period = any(period.share < _MIN_SHARE for period, _ in periods)
        return self._between([0, self._keys.size]) if cuts and has_weak_period else periods

    def _between(self, edges: list[int]) -> "list[tuple[RulePeriod, Hits]]":
        periods: list[tuple[RulePeriod, Hits]] = []
        for start, end in itertools.pairwise(edges):
            likelihood = self._log_likelihoods(start, end)
            best = int(likelihood.argmax())
            other = likelihood[:-1].max() if best == len(self._rules) - 1 else likelihood[-1]
            if likelihood[best] - other < _SURE:
                return []
            if not periods or periods[-1][0].rule != self._rules[best]:
                share = float(self._hits[best, start:end].mean())
                periods.append((RulePeriod(self._rules[best], share, int(self._keys.timestamp[start])), self._hits[best]))
        return periods

    def _log_likelihoods(self, start: int, end: int) -> "NDArray[np.float64]":
        """Logarithm of each rule's likelihood over records `[start, end)`."""
        before = self._likelihood[:, start - 1] if start else 0.0
        total: NDArray[np.float64] = self._likelihood[:, end - 1] - before + self._prior
        return total

    def _cuts(self, start: int, end: int, most: int) -> list[int]:
        """Where rules change within `[start, end)`, at most `most` places."""
        if end - start < 2 or most < 1:
            return []
        before = self._likelihood[:, start - 1 : start] if start else 0.0
        left = self._likelihood[:, start : end - 1] - before + self._prior[:, None]
        right = self._likelihood[:, end - 1 : end] - self._likelihood[:, start : end - 1] + self._prior[:, None]
        both = left.max(axis=0) + right.max(axis=0)
        at = int(both.argmax())
        if both[at] - self._log_likelihoods(start, end).max() < _CHANGE or left[:, at].argmax() == right[:, at].argmax():
            return []
        cut = start + at + 1
        first = self._cuts(start, cut, most - 1)
        return [*first, cut, *self._cuts(cut, end, most - 1 - len(first))]

    def _first_offsets(self, before: "Hits", after: "Hits") -> dict[int, int]:
        """Partition → its first offset looked at from which on `after` is right more often than `before`."""
        keys, first_offsets = self._keys, {}
        for number in np.unique(keys.partition).tolist():
            rows = np.flatnonzero(keys.partition == number)
            rows = rows[np.argsort(keys.offset[rows], kind="stable")]
            gain = np.cumsum(before[rows].astype(np.int64) - after[rows].astype(np.int64))
            at = int(gain.argmax()) + 1 if gain.max() > 0 else 0
            only_after = np.flatnonzero(after[rows[at:]] & ~before[rows[at:]])
            if only_after.size:
                first_offsets[int(number)] = int(keys.offset[rows[at:][only_after[0]]])
        return first_offsets


def _one_partition_first(periods: list[RulePeriod]) -> bool:
    """Whether periods with a single partition come only first, before a hash over several. All keys may be in partition 0 for
    other reasons."""
    return all(
        period.rule.partition_count > 1 or (index == 0 and len(periods) > 1 and periods[1].rule.partitioner in _HASHES)
        for index, period in enumerate(periods)
    )


def _counts(partition_count: int, *, exact_count: bool) -> set[int]:
    """Numbers of partitions the topic may have had: all if they are few, else those near the present one and simple fractions;
    unless `exact_count`, also larger ones."""
    counts = {partition_count, *range(1, min(partition_count, _ALL_COUNTS_UP_TO) + 1)}
    counts |= set(range(max(partition_count - _NEIGHBOURS, 1), partition_count))
    counts |= {partition_count // 2, partition_count // 3, partition_count // 4, partition_count * 2 // 3, partition_count * 3 // 4}
    if not exact_count:
        counts |= set(range(partition_count + 1, partition_count + 1 + min(partition_count, _ALL_COUNTS_UP_TO)))
    return counts - {0}


def placement_finding(placement: Placement, looked_at: Mapping[int, PartitionKeys], count_witness: str) -> Finding | None:
    """`KEY_PLACEMENT` of a topic; None if one hash over all partitions fits, or if there is too little evidence."""
    periods = placement.periods
    if placement.is_plain or (not periods and not placement.scattered_keys):
        return None
    partitioner, partition_count, agreeing = placement.last_rule
    before = periods[-2].rule if len(periods) > 1 else None
    changes = [
        {
            "timestamp": period.start_timestamp,
            "before": {"partitioner": previous.rule.partitioner, "partition_count": previous.rule.partition_count},
            "after": {"partitioner": period.rule.partitioner, "partition_count": period.rule.partition_count},
            "first_offsets": {str(number): offset for number, offset in list(first_offsets.items())[:_LISTED]},
        }
        for previous, period, first_offsets in zip(periods, periods[1:], placement.changes, strict=False)
    ]
    evidence: Json = {
        "partitioner": partitioner,
        "partition_count": placement.partition_count if partition_count is None else partition_count,
        "partitioner_before": None if before is None else before.partitioner,
        "partition_count_before": None if before is None else before.partition_count,
        "changed_timestamp": None if before is None else periods[-1].start_timestamp,
        "agreeing_percent": agreeing,
        "elsewhere_percent": None if agreeing is None or periods[-1].share >= _MIN_SHARE else 100 - agreeing,
        "partitions": placement.partition_count,
        "records_looked_at": sum(keys.looked_at for keys in looked_at.values()),
        "keys_looked_at": placement.keys,
        "keys_in_several_partitions": placement.scattered_keys or None,
        "examples": [
            {"first_offsets": {str(partition): offset for partition, offset in first_offsets.items()}}
            for first_offsets in placement.scattered_examples
        ],
        "changes": changes,
        "keyless_percent": {str(number): share for number, share in list(placement.keyless_share.items())[:_LISTED]},
        "premises": [f"number of partitions: {count_witness}", "the first records of some batches were read"],
    }
    confidence = Confidence.SUSPECTED if partitioner == NEITHER else None
    return finding("KEY_PLACEMENT", Place(placement.topic), evidence, confidence=confidence)
