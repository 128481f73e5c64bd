"""Who holds what a replica lost: only a copy of the same leader epochs."""

from collections.abc import Sequence

import pytest

from kafka_forensics.analysis.comparison import compare, with_holders
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.verdicts import own_findings
from tests.support.replica_logs import Logs, batches


def held_by(logs: Logs, replicas: list[Replica], kind: str) -> list[int | str]:
    """Whom the one finding of this kind names."""
    found = [one for replica in replicas for one in own_findings(replica)]
    [told] = [one for one in with_holders(replicas, found, compare(replicas, logs)) if one.kind == kind]
    return list(told.evidence["held_by"])


@pytest.mark.parametrize(
    ("checkpoint", "holders"), [([(0, 0)], [3]), ([(0, 0), (2, 3)], [1, 3]), (None, [1, 3])], ids=["same", "contradicts", "none"]
)
def test_a_longer_log_of_another_epoch_holds_no_lost_tail(checkpoint: Sequence[tuple[int, int]] | None, holders: list[int]) -> None:
    """Broker 2 lost offsets 3 to 5 of epoch 0; broker 1 has others of epoch 2 there. Without a sure epoch nobody is left out."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "abc"), (2, "xyz")), high_watermark=6, checkpoint=[(0, 0), (2, 3)]),
        logs.add(2, batches((0, "abc")), high_watermark=6, checkpoint=checkpoint),
        logs.add(3, batches((0, "abcdef")), high_watermark=6, checkpoint=[(0, 0)]),
    ]
    assert held_by(logs, replicas, "HW_BEYOND_LEO") == holders


def test_a_log_of_another_epoch_fills_no_gap() -> None:
    """Broker 2's gap was of epoch 0; at its offsets broker 1 has batches of epoch 1."""
    logs = Logs()
    tail = batches((2, "xy"), start=4)
    replicas = [
        logs.add(1, [*batches((0, "ab"), (1, "pq")), *tail], high_watermark=6, checkpoint=[(0, 0), (1, 2), (2, 4)]),
        logs.add(2, [*batches((0, "ab")), *tail], high_watermark=6, checkpoint=[(0, 0), (2, 4)]),
        logs.add(3, [*batches((0, "abcd")), *tail], high_watermark=6, checkpoint=[(0, 0), (2, 4)]),
    ]
    assert held_by(logs, replicas, "OFFSET_GAP") == [3]
