"""Salvages of simulated replicas, each cleaned at times of its own and damaged anywhere, against what the log once said.

The answer that they are held to is naive: of every key the last record that was committed, unless that is named as left out.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tests.oracles.decoder import Batch, batches
from tests.questions.salvage.salvaged import log_of, salvaged_of
from tests.support.brokers import DIRECTORY, put_compacted
from tests.support.simulated_cleaners import KnownHistory, Replica, clusters

FIRST_BYTE = 8
"""The first of a batch's bytes that are damaged: a base offset that lies in a gap that a cleaner left looks like any other."""
LAST_OFFSET_DELTA = range(23, 27)
"""Bytes that are spared: a damaged last batch is believed how far it claims to reach, and then no copy is said to be whole."""


@dataclass(frozen=True, slots=True)
class Harm:
    """What is done to a copy, at a place that is a share of its log."""

    copy: int
    kind: str
    share: float
    byte: int


HARMS = st.builds(
    Harm,
    st.integers(0, 2),
    st.sampled_from(["flip", "flip", "flip", "zeros", "zeros", "noise", "cut", "lost"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(FIRST_BYTE, 2000),
)


def harmed(data: bytes, harms: list[Harm], dirty: int) -> bytes:
    """A log with batches changed, cut inside one, and without some that no cleaner may have taken."""
    there = list(batches(data))
    changed, end, lost = bytearray(data), len(data), dict[int, int]()
    for harm in harms if there else []:
        batch = there[int(harm.share * len(there))]
        start, behind = batch.position, batch.position + batch.size_in_bytes
        byte = FIRST_BYTE + harm.byte % (batch.size_in_bytes - FIRST_BYTE)
        if byte in LAST_OFFSET_DELTA or harm.kind == "noise":
            byte = max(byte, LAST_OFFSET_DELTA.stop)
        place = start + byte
        if harm.kind == "flip":
            changed[place] ^= 1 << harm.byte % 8
        elif harm.kind == "zeros":
            changed[start:behind] = bytes(behind - start)
        elif harm.kind == "noise":
            changed[place:behind] = bytes((7 * number + harm.byte) % 251 for number in range(behind - place))
        elif harm.kind == "cut":
            end = min(end, place)
        elif batch.base_offset >= dirty:
            lost[start] = behind
    for start, behind in [*sorted(lost.items(), reverse=True)]:
        del changed[start:behind]
        end -= max(min(end, behind) - start, 0)
    return bytes(changed[:end])


def latest(told: KnownHistory, offsets: list[int], end: int) -> dict[str, str]:
    """Key → value of what a reader of committed records has in the end; deleted keys are none."""
    state: dict[str, str | None] = {}
    for offset in sorted(offsets):
        fact = told.facts[offset]
        if offset < end and fact.key is not None and fact.commits:
            state[fact.key] = fact.value
    return {key: value for key, value in state.items() if value is not None}


def check_gaps(told: KnownHistory, log: bytes, end: int, gaps: Sequence[tuple[int, int | None]], originals: set[bytes]) -> None:
    """Whole batches of replicas as they were, in order; and of every key the same latest record, or else the newest in a gap."""
    found: list[Batch] = list(batches(log))
    assert {log[batch.position : batch.position + batch.size_in_bytes] for batch in found} <= originals
    assert all(before.last_offset < batch.base_offset for before, batch in pairwise(found))
    ours = latest(told, [record.offset for batch in found for record in batch.records], end)
    theirs = latest(told, list(range(len(told.facts))), end)
    newest = {fact.key: offset for offset, fact in enumerate(told.facts) if fact.key is not None and fact.commits and offset < end}
    for key in {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}:
        assert any(low <= newest[key] and (high is None or newest[key] < high) for low, high in gaps), key


def check(told: KnownHistory, log: bytes, end: int, originals: set[bytes]) -> None:
    """Whole batches of replicas as they were, in order; the same latest records; no transaction without its end."""
    check_gaps(told, log, end, (), originals)
    found: list[Batch] = list(batches(log))
    assert sum(batch.size_in_bytes for batch in found) == len(log)
    offsets = [record.offset for batch in found for record in batch.records]
    ended = {told.facts[offset].transaction for offset in offsets if told.facts[offset].is_marker}
    begun = {told.facts[offset].transaction for offset in offsets if told.facts[offset].transaction >= 0}
    ends = {fact.transaction: offset for offset, fact in enumerate(told.facts) if fact.is_marker}
    assert not {number for number in begun - ended if ends.get(number, end) < end}


def log_in(output: Path) -> bytes:
    return log_of(output, DIRECTORY)


@pytest.mark.parametrize("examples", [15, pytest.param(400, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("spared", [True, False], ids=["one copy is whole", "all are damaged"])
def test_what_is_salvaged_says_of_every_key_what_was_written_last(spared: bool, examples: int) -> None:
    """The leader's copy is spared; or of every copy a batch of the first half is zeroed, which no copy is whole without."""

    @settings(max_examples=examples, deadline=None)
    @given(clusters(), st.lists(HARMS, max_size=4), st.lists(st.floats(0, 0.5, exclude_max=True), min_size=3, max_size=3))
    def simulated(cluster: tuple[KnownHistory, list[Replica]], harms: list[Harm], zeroed: list[float]) -> None:
        told, replicas = cluster
        if spared:
            harms = [harm for harm in harms if harm.copy % len(replicas)]
        else:
            harms = [*harms, *(Harm(number, "zeros", share, 0) for number, share in enumerate(zeroed[: len(replicas)]))]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            originals = put_copies(folder / "in", told, replicas, harms)
            salvaged = salvaged_of(folder / "in", folder / "out")
            lacking = {harm.copy % len(replicas) for harm in harms if harm.kind == "lost"}  # no damage shows
            bases = {int(str(partition.base)) for partition in salvaged.partitions}
            assert bases if spared else bases <= lacking, salvaged.refused  # the lost batch may be the one that was zeroed
            for partition in salvaged.partitions:
                if int(str(partition.base)) not in lacking:
                    check(told, log_in(folder / "out"), partition.log_end_offset, originals)
            (partition,) = salvaged_of(folder / "in", folder / "gaps", allow_gaps=True).partitions
            is_lacking = int(str(partition.base)) in lacking
            assert spared or is_lacking or partition.warning is not None
            if partition.warning is not None and not is_lacking:
                left_out = [(gap.start, gap.end) for gap in partition.gaps]
                left_out += [(left.start, left.end) for left in partition.left_behind]
                check_gaps(told, log_in(folder / "gaps"), partition.log_end_offset, left_out, originals)

    simulated()


def put_copies(folder: Path, told: KnownHistory, replicas: list[Replica], harms: list[Harm]) -> set[bytes]:
    """The replicas' logs, each harmed; all batches as they were."""
    ends = [0]
    for step in told.history.steps:
        ends.append(ends[-1] + step.offsets)
    for replica in replicas:
        replica.end = max(end for end in ends if end <= replica.end)
        replica.cleaned = min(replica.cleaned, replica.end)
    logs = {number: told.history.left(replica.dropped, end=replica.end) for number, replica in enumerate(replicas)}
    cleaned = {number: replica.cleaned for number, replica in enumerate(replicas)}
    brokers = put_compacted(folder, logs, cleaned, max(min(replica.end for replica in replicas), *cleaned.values()))
    originals = set[bytes]()
    for number, replica in enumerate(replicas):
        path = brokers.file(number, 0)
        data = path.read_bytes()
        originals |= {data[batch.position : batch.position + batch.size_in_bytes] for batch in batches(data)}
        path.write_bytes(harmed(data, [harm for harm in harms if harm.copy % len(replicas) == number], replica.cleaned))
    return originals
