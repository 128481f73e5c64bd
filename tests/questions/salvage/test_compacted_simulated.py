"""Salvages of simulated replicas, cleaned independently and damaged anywhere, against the history of the log.

The expected answer is naive: the last committed record of every key, unless it is reported as left out.
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
"""The first byte of a batch that may be damaged: a wrong base offset inside a gap of a cleaner cannot be detected."""
LAST_OFFSET_DELTA = range(23, 27)
"""Bytes that are not damaged: the end offset of a damaged last batch is trusted, and then no copy is whole."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage to a copy, at a fraction of its log."""

    copy: int
    kind: str
    share: float
    byte: int


DAMAGES = st.builds(
    Damage,
    st.integers(0, 2),
    st.sampled_from(["flip", "flip", "flip", "zeros", "zeros", "noise", "cut", "lost"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(FIRST_BYTE, 2000),
)


def damaged(data: bytes, damages: list[Damage], dirty: int) -> bytes:
    """A log with changed batches, truncated inside one, and without some that no cleaner may remove."""
    found_batches = list(batches(data))
    changed, end, lost = bytearray(data), len(data), dict[int, int]()
    for damage in damages if found_batches else []:
        batch = found_batches[int(damage.share * len(found_batches))]
        start, end_position = batch.position, batch.position + batch.size_in_bytes
        byte = FIRST_BYTE + damage.byte % (batch.size_in_bytes - FIRST_BYTE)
        if byte in LAST_OFFSET_DELTA or damage.kind == "noise":
            byte = max(byte, LAST_OFFSET_DELTA.stop)
        place = start + byte
        if damage.kind == "flip":
            changed[place] ^= 1 << damage.byte % 8
        elif damage.kind == "zeros":
            changed[start:end_position] = bytes(end_position - start)
        elif damage.kind == "noise":
            changed[place:end_position] = bytes((7 * number + damage.byte) % 251 for number in range(end_position - place))
        elif damage.kind == "cut":
            end = min(end, place)
        elif batch.base_offset >= dirty:
            lost[start] = end_position
    for start, end_position in [*sorted(lost.items(), reverse=True)]:
        del changed[start:end_position]
        end -= max(min(end, end_position) - start, 0)
    return bytes(changed[:end])


def latest(history: KnownHistory, offsets: list[int], end: int) -> dict[str, str]:
    """Key → value that a reader of committed records has at the end; without deleted keys."""
    state: dict[str, str | None] = {}
    for offset in sorted(offsets):
        fact = history.facts[offset]
        if offset < end and fact.key is not None and fact.commits:
            state[fact.key] = fact.value
    return {key: value for key, value in state.items() if value is not None}


def check_gaps(history: KnownHistory, log: bytes, end: int, gaps: Sequence[tuple[int, int | None]], originals: set[bytes]) -> None:
    """The log has whole original batches, in order, and the same latest record of every key, unless the newest is in a gap."""
    found: list[Batch] = list(batches(log))
    assert {log[batch.position : batch.position + batch.size_in_bytes] for batch in found} <= originals
    assert all(before.last_offset < batch.base_offset for before, batch in pairwise(found))
    ours = latest(history, [record.offset for batch in found for record in batch.records], end)
    theirs = latest(history, list(range(len(history.facts))), end)
    newest = {
        fact.key: offset for offset, fact in enumerate(history.facts) if fact.key is not None and fact.commits and offset < end
    }
    for key in {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}:
        assert any(low <= newest[key] and (high is None or newest[key] < high) for low, high in gaps), key


def check(history: KnownHistory, log: bytes, end: int, originals: set[bytes]) -> None:
    """The log has whole original batches, in order, the same latest records, and no transaction without its end."""
    check_gaps(history, log, end, (), originals)
    found: list[Batch] = list(batches(log))
    assert sum(batch.size_in_bytes for batch in found) == len(log)
    offsets = [record.offset for batch in found for record in batch.records]
    ended = {history.facts[offset].transaction for offset in offsets if history.facts[offset].is_marker}
    begun = {history.facts[offset].transaction for offset in offsets if history.facts[offset].transaction >= 0}
    ends = {fact.transaction: offset for offset, fact in enumerate(history.facts) if fact.is_marker}
    assert not {number for number in begun - ended if ends.get(number, end) < end}


def log_in(output: Path) -> bytes:
    return log_of(output, DIRECTORY)


@pytest.mark.parametrize("examples", [15, pytest.param(400, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("one_is_whole", [True, False], ids=["one copy is whole", "all are damaged"])
def test_a_salvage_has_the_last_record_of_every_key(one_is_whole: bool, examples: int) -> None:
    """The leader's copy is not damaged; or a batch in the first half of every copy is zeroed, so that no copy is whole."""

    @settings(max_examples=examples, deadline=None)
    @given(clusters(), st.lists(DAMAGES, max_size=4), st.lists(st.floats(0, 0.5, exclude_max=True), min_size=3, max_size=3))
    def simulated(cluster: tuple[KnownHistory, list[Replica]], damages: list[Damage], zeroed: list[float]) -> None:
        history, replicas = cluster
        if one_is_whole:
            damages = [damage for damage in damages if damage.copy % len(replicas)]
        else:
            damages = [*damages, *(Damage(number, "zeros", share, 0) for number, share in enumerate(zeroed[: len(replicas)]))]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            originals = put_copies(folder / "in", history, replicas, damages)
            salvaged = salvaged_of(folder / "in", folder / "out")
            lacking = {damage.copy % len(replicas) for damage in damages if damage.kind == "lost"}  # the damage is not visible
            bases = {int(str(partition.base_broker)) for partition in salvaged.partitions}
            assert bases if one_is_whole else bases <= lacking, salvaged.refused  # the lost batch may be the one that was zeroed
            for partition in salvaged.partitions:
                if int(str(partition.base_broker)) not in lacking:
                    check(history, log_in(folder / "out"), partition.log_end_offset, originals)
            with_gaps = salvaged_of(folder / "in", folder / "gaps", allow_gaps=True)
            if not with_gaps.partitions and not one_is_whole and lacking:  # the lost batch lets values differ without a reason
                assert [(refused.kind, "COMPACTED_VALUE_DIFFERS" in refused.reason) for refused in with_gaps.refused] == [
                    ("compacted", True)
                ]
                return
            (partition,) = with_gaps.partitions
            is_lacking = int(str(partition.base_broker)) in lacking
            assert one_is_whole or is_lacking or partition.warning is not None
            if partition.warning is not None and not is_lacking:
                left_out = [(gap.start, gap.end) for gap in partition.gaps]
                left_out += [(left.start, left.end) for left in partition.left_behind]
                check_gaps(history, log_in(folder / "gaps"), partition.log_end_offset, left_out, originals)

    simulated()


def put_copies(folder: Path, history: KnownHistory, replicas: list[Replica], damages: list[Damage]) -> set[bytes]:
    """Write the damaged logs of the replicas, and return all original batches."""
    ends = [0]
    for step in history.history.steps:
        ends.append(ends[-1] + step.offsets)
    for replica in replicas:
        replica.end = max(end for end in ends if end <= replica.end)
        replica.cleaned = min(replica.cleaned, replica.end)
    logs = {number: history.history.left(replica.dropped, end=replica.end) for number, replica in enumerate(replicas)}
    cleaned = {number: replica.cleaned for number, replica in enumerate(replicas)}
    brokers = put_compacted(folder, logs, cleaned, max(min(replica.end for replica in replicas), *cleaned.values()))
    originals = set[bytes]()
    for number, replica in enumerate(replicas):
        path = brokers.file(number, 0)
        data = path.read_bytes()
        originals |= {data[batch.position : batch.position + batch.size_in_bytes] for batch in batches(data)}
        path.write_bytes(damaged(data, [damage for damage in damages if damage.copy % len(replicas) == number], replica.cleaned))
    return originals
