"""The states that are salvaged on real brokers: the damage to copies."""

from pathlib import Path

import pytest

from lab.salvage_states import GAPS, STATES, State, harm, logs, write_transactions
from tests.support.brokers import put_meta_properties, put_segment
from tests.support.segments import batch

PLAIN = [state for state in STATES if state.write is not write_transactions]
"""The other states damage transaction markers, which only a cluster writes."""


def copies_of(root: Path, state: State) -> None:
    for broker in (1, 2, 3):
        directory = root / f"broker-{broker}" / f"{state.name}-0"
        put_meta_properties(root / f"broker-{broker}", broker, cluster_id=None)
        for segment in range(4):
            data = b"".join(batch(40 * segment + 8 * number, 8, value=b"v" * 100) for number in range(5))
            put_segment(directory, 40 * segment, data)
            put_segment(directory, 40 * segment, bytes(8), "index")
            put_segment(directory, 40 * segment, bytes(24), "snapshot")
        for name in ("leader-epoch-checkpoint", "partition.metadata"):
            (directory / name).write_text("0\n")


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("state", PLAIN, ids=lambda state: state.name)
def test_copies_are_damaged_and_only_gaps_are_on_no_copy(state: State, tmp_path: Path) -> None:
    copies_of(tmp_path, state)
    before = files(tmp_path)
    left = harm(tmp_path, [state])[state.name]
    assert files(tmp_path) != before
    assert left.end == 160
    assert sorted(left.batches) == [*range(0, 160, 8)]
    assert all(left.batches.values()) is (state.outcome != GAPS)
    assert all(left.has(offset) is left.batches[offset // 8 * 8] for offset in range(160))
    names = {log.name for directory in tmp_path.glob("broker-*/*-0") for log in logs(directory)}
    assert len(names) == (3 if state.name == "middle-segment-deleted-everywhere" else 4)
