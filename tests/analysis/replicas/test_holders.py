"""Who holds what a replica lost: only a copy of the same leader epochs."""

from collections.abc import Sequence

import pytest

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.comparison import compare, with_holders
from kafka_forensics.analysis.replicas.verdicts import own_findings
from tests.support.replica_logs import Logs, batches


def held_by(logs: Logs, replicas: list[Replica], kind: str) -> list[int | str]:
    """Whom the one finding of this kind names."""
    findings = [one for replica in replicas for one in own_findings(replica)]
    [finding] = [holder for holder in with_holders(replicas, findings, compare(replicas, logs)) if holder.kind == kind]
    return list(finding.evidence["held_by"])


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


@pytest.mark.parametrize(("copies", "all_read", "is_lost"), [(2, True, True), (1, True, False), (2, False, False)])
def test_what_no_log_holds_is_lost_if_there_are_several_and_all_were_read(copies: int, all_read: bool, is_lost: bool) -> None:
    logs = Logs()
    gapped = [*batches((0, "ab")), *batches((0, "xy"), start=4)]
    replicas = [logs.add(1 + number, gapped, high_watermark=6, checkpoint=[(0, 0)]) for number in range(copies)]
    findings = [finding for replica in replicas for finding in own_findings(replica)]
    told = with_holders(replicas, findings, compare(replicas, logs), all_read=all_read)
    places = [
        (finding.place.offset_start, finding.place.offset_end) for finding in told if finding.kind == "COMMITTED_LOST_EVERYWHERE"
    ]
    assert places == ([(2, 4)] if is_lost else [])
    assert [finding.kind for finding in told].count("OFFSET_GAP") == copies


def test_a_lost_tail_is_no_gap_that_is_lost_everywhere() -> None:
    logs = Logs()
    replicas = [logs.add(broker, batches((0, "ab")), high_watermark=6, checkpoint=[(0, 0)]) for broker in (1, 2)]
    findings = [finding for replica in replicas for finding in own_findings(replica)]
    told = {finding.kind for finding in with_holders(replicas, findings, compare(replicas, logs))}
    assert "HW_BEYOND_LEO" in told
    assert "COMMITTED_LOST_EVERYWHERE" not in told
