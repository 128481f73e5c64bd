"""Key placement: samples for any cut, partitioners and their changes, and cases without a finding."""

import pickle
import random
import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis import placement as key_placement
from kafka_forensics.analysis.placement import (
    BOTH,
    CRC32,
    MURMUR2,
    NEITHER,
    KeyPlacementFold,
    PartitionKeys,
    Placement,
    Rule,
    placement_finding,
    weigh_rules,
)
from kafka_forensics.model.batches import KEY_SAMPLE_COLUMNS
from kafka_forensics.model.findings import Confidence, Severity
from kafka_forensics.parsers.kernels.partitioners import murmur2
from tests.support.evidence_schema import evidence_errors
from tests.support.strategies import fold_in_parts

START = 1_700_000_000_000
Sent = tuple[bytes | None, int, int]
"""Key, partition, timestamp."""


def hash_of(key: bytes) -> int:
    return int(murmur2.interpreted(key, 0, len(key)))


def java(key: bytes, count: int) -> int:
    return (hash_of(key) & 0x7FFFFFFF) % count


def librdkafka(key: bytes, count: int) -> int:
    return zlib.crc32(key) % count


def topic(sent: Iterable[Sent | tuple[bytes, int, int]], count: int) -> dict[int, PartitionKeys]:
    """Partitions with these records in this order."""
    folds = {number: KeyPlacementFold() for number in range(count)}
    for key, partition, timestamp in sent:
        fold = folds[partition]
        hashes = (0, 0) if key is None else (hash_of(key), zlib.crc32(key))
        fold.step(np.array([[fold.records, timestamp, -1 if key is None else len(key), *hashes]], np.int64).T)
    return {
        number: PartitionKeys(fold.samples(), fold.records, fold.keyless, fold.records)
        for number, fold in folds.items()
        if fold.records
    }


def keys(count: int, first: int = 0) -> list[bytes]:
    return [b"order-%d" % number for number in range(first, first + count)]


def placed(by: Callable[[bytes, int], int], count: int, named: list[bytes], start: int = START) -> list[tuple[bytes, int, int]]:
    return [(key, by(key, count), start + at) for at, key in enumerate(named)]


def judged(sent: Sequence[Sent | tuple[bytes, int, int]], count: int, *, exact: bool = True) -> Placement:
    return weigh_rules("orders", topic(sent, count), count, exact_count=exact)


def rules(placement: Placement) -> list[Rule]:
    return [period.rule for period in placement.periods]


@given(st.integers(0, 60), st.data())
def test_the_sample_does_not_depend_on_the_cut(count: int, draw: st.DataObject) -> None:
    length = [(at * 7) % 5 - 1 for at in range(count)]
    rows = np.array([[at * 3, at, length[at], at * 11, at * 13] for at in range(count)], np.int64).reshape(-1, KEY_SAMPLE_COLUMNS).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_placement, "MAX_SAMPLES", 8)
        state = fold_in_parts(draw, KeyPlacementFold, lambda fold, a, b: fold.step(rows[:, a:b]), count)
        whole = KeyPlacementFold()
        whole.step(rows)
        kept = state.samples()
        assert kept.tolist() == whole.samples().tolist()
    assert (state.records, state.keyless) == (count, sum(size <= 0 for size in length))
    assert kept.shape[1] == min(8, count - state.keyless)
    assert (np.diff(kept[0]) > 0).all()


def test_the_sample_of_many_records_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_placement, "MAX_SAMPLES", 8)
    sizes = []
    for count in (60, 6000):
        fold = KeyPlacementFold()
        for start in range(0, count, 30):
            offsets = np.arange(start, start + 30)
            fold.step(np.stack([offsets, offsets, np.full(30, 5), offsets * 11, offsets * 13]))
        sizes.append(len(pickle.dumps(fold)))
    assert max(sizes) < min(sizes) + 100


@pytest.mark.parametrize(("by", "name"), [(java, MURMUR2), (librdkafka, CRC32)])
@pytest.mark.parametrize("count", [2, 3, 12, 200])
@pytest.mark.parametrize("exact", [True, False])
def test_a_default_partitioner_alone_gives_no_finding(by: Callable[[bytes, int], int], name: str, count: int, exact: bool) -> None:
    sent = placed(by, count, keys(600) + keys(300))
    placement = judged(sent, count, exact=exact)
    assert rules(placement) == [Rule(name, count)]
    assert placement.periods[0].share == 1.0
    assert placement.is_plain
    assert placement_finding(placement, topic(sent, count), "x") is None


def test_missing_last_partitions_give_no_finding() -> None:
    placement = judged([row for row in placed(java, 6, keys(900)) if row[1] < 4], 4, exact=False)
    assert rules(placement) == [Rule(MURMUR2, 6)]
    assert placement.is_plain


@pytest.mark.parametrize(("before", "after"), [(2, 3), (4, 8), (1, 4), (12, 100)])
def test_a_raised_number_of_partitions_is_found_with_its_time_and_offsets(before: int, after: int) -> None:
    named = keys(400)
    old, new = placed(java, before, named), placed(java, after, named, START + 1000)
    placement = judged(old + new, after)
    if before == 1:  # a partition alone fits any hash
        assert rules(placement)[0].partition_count == 1
    else:
        assert rules(placement)[0] == Rule(MURMUR2, before)
    assert rules(placement)[1:] == [Rule(MURMUR2, after)]
    moved = [at for at, (key, partition, _) in enumerate(new) if partition != java(key, before)]
    assert START + 400 <= placement.periods[1].start_timestamp <= START + 1000 + moved[0]
    first: dict[int, int] = {}
    counts = {number: sum(row[1] == number for row in old) for number in range(after)}
    for key, partition, _ in new:
        if partition != java(key, before):
            first.setdefault(partition, counts[partition])
        counts[partition] += 1
    assert placement.changes == [dict(sorted(first.items()))]
    assert placement.scattered_keys == len(moved)
    finding = placement_finding(placement, topic(old + new, after), "witness")
    assert finding is not None
    assert (finding.kind, finding.severity, finding.confidence) == ("KEY_PLACEMENT", Severity.INFO, Confidence.INFERRED)
    before_change = [finding.evidence[f"{name}_before"] for name in ("partitioner", "partition_count")]
    assert before_change == [rules(placement)[0].partitioner, before]
    assert (finding.evidence["partitioner"], finding.evidence["partition_count"]) == (MURMUR2, after)
    assert finding.evidence["keys_in_several_partitions"] == len(moved)
    changed = [finding.evidence["changes"][0]["timestamp"], finding.evidence["changed_timestamp"]]
    assert changed == [placement.periods[1].start_timestamp] * 2


def test_a_change_of_the_partitioner_is_found() -> None:
    named = keys(300)
    placement = judged(placed(java, 5, named) + placed(librdkafka, 5, named, START + 10_000), 5)
    assert rules(placement) == [Rule(MURMUR2, 5), Rule(CRC32, 5)]
    assert placement.scattered_keys == sum(java(key, 5) != librdkafka(key, 5) for key in named)
    assert len(placement.scattered_examples[0]) == 2


def test_two_partitioners_at_the_same_time_are_found() -> None:
    sent = placed(java, 6, keys(300)) + placed(librdkafka, 6, keys(300, 1000))
    placement = judged(sorted(sent, key=lambda row: row[2]), 6)
    assert rules(placement) == [Rule(BOTH, 6)]
    assert not placement.is_plain


def test_a_program_that_chooses_partitions_is_found() -> None:
    chance = random.Random(7)
    sent: list[Sent] = [(key, chance.randrange(4), START + at) for at, key in enumerate(keys(300))]
    placement = judged(sent, 4)
    assert rules(placement) == [Rule(NEITHER, 4)]
    finding = placement_finding(placement, topic(sent, 4), "witness")
    assert finding is not None
    assert (finding.confidence, finding.evidence["partitioner"]) == (Confidence.SUSPECTED, NEITHER)
    assert finding.evidence["agreeing_percent"] is None
    in_turn: list[Sent] = [(key, at // 150, START + at) for at, key in enumerate(keys(300))]
    assert rules(judged(in_turn, 2)) == [Rule(NEITHER, 2)], "all in partition 0 first is no topic of one partition"


def test_the_share_of_misplaced_records_is_reported() -> None:
    sent = placed(librdkafka, 12, keys(400))
    few = [(key, (at + 1) % 12, time) if n % 8 == 0 else (key, at, time) for n, (key, at, time) in enumerate(sent)]
    placement = judged(few, 12)
    assert rules(placement) == [Rule(CRC32, 12)]
    assert 0.86 < placement.periods[0].share < 0.9
    finding = placement_finding(placement, topic(few, 12), "x")
    assert finding is not None
    assert (finding.evidence["agreeing_percent"], finding.evidence["elsewhere_percent"]) == (88, 12)


@pytest.mark.parametrize("strays", [20, 35, 50, 65])
def test_rules_with_a_low_share_do_not_change_by_chance(strays: int) -> None:
    for seed in range(5):
        chance = random.Random(seed)
        sent = placed(java, 4, keys(800))
        mixed = [(key, chance.randrange(4) if chance.randrange(100) < strays else at, time) for key, at, time in sent]
        assert len(rules(judged(mixed, 4))) <= 1


@pytest.mark.parametrize("sent", [[], [(None, 0, 5), (None, 1, 6)], placed(java, 2, keys(3)), [(b"k", 1, 5)] * 900])
def test_too_few_records_give_no_finding(sent: list[Sent]) -> None:
    placement = judged(sent, 2)
    assert placement.periods == []
    assert placement.is_plain
    assert placement_finding(placement, topic(sent, 2), "x") is None


def test_a_topic_of_one_partition_gives_no_finding() -> None:
    assert judged([(b"k%d" % at, 0, at) for at in range(500)], 1).is_plain


def test_no_change_without_timestamps() -> None:
    sent = [(key, at, -1) for key, at, _ in placed(java, 2, keys(300)) + placed(java, 3, keys(300))]
    placement = judged(sent, 3)
    assert placement.changes == []
    assert placement.scattered_keys > 0


def test_old_timestamps_give_no_change_to_fewer_partitions() -> None:
    old, filled = placed(java, 2, keys(300)), placed(java, 4, keys(300, 500), START - 10**9)
    assert rules(judged(old + filled, 4)) == []
    late = placed(java, 4, keys(300, 500), START - 5)
    assert rules(judged(old + [row for row in late if row[1] < 2], 4)) == [Rule(MURMUR2, 2)]


def test_the_share_of_records_without_a_key_is_reported() -> None:
    sent: list[Sent] = [(None, 0, 5)] * 30 + [(b"", 1, 5)] * 10
    assert judged(sent, 2).keyless_share == {0: 75, 1: 25}
    partitions = topic(sent, 2)
    partitions[1].records *= 9
    assert weigh_rules("orders", partitions, 2, exact_count=True).keyless_share == {0: 25, 1: 75}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.integers(-(2**62), 2**62),
            st.integers(1, 9),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1),
        ),
        max_size=20,
    ),
    st.integers(2, 2**31),
    st.booleans(),
)
def test_any_samples_are_accepted(rows: list[tuple[int, ...]], count: int, exact: bool) -> None:
    matrix = np.array(rows, np.int64).reshape(-1, KEY_SAMPLE_COLUMNS).T
    partitions = {number: PartitionKeys(matrix, len(rows), 0, len(rows)) for number in (0, count - 1)}
    placement = weigh_rules("t", partitions, count, exact_count=exact)
    finding = placement_finding(placement, partitions, "x")
    assert finding is None or evidence_errors([finding]) == []
    assert placement.scattered_keys <= placement.keys
