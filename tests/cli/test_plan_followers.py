"""What `plan` says of followers that begin anew, and of witnesses that say more than their logs hold."""

import json
from pathlib import Path

import pytest

from tests.support.controller_log import CONTROLLER, ControllerLog, partition, setting, topic
from tests.support.faults import TOPIC_ID
from tests.support.plan_runs import Run, validated
from tests.support.replicas import put_replica
from tests.support.segments import batch


@pytest.mark.parametrize("held", [[(0, 15, 0)], [(0, 10, 0), (10, 10, 1)]], ids=["ends below", "ends at the leader's start"])
def test_a_follower_that_begins_anew_is_told_where_nothing_of_it_is_deleted(
    run_plan: Run, tmp_path: Path, held: list[tuple[int, int, int]]
) -> None:
    """Segments below 20 are in remote storage; the second follower would be cut at 10, and ends where the leader begins."""
    log = ControllerLog().lead([CONTROLLER]).append(topic(), partition([1, 2], 1, leader_epoch=2, replicas=[1, 2]))
    log.append(setting("remote.storage.enable", "true")).put(tmp_path / f"controller-{CONTROLLER}")
    ours = b"".join(batch(start, count, epoch=epoch) for start, count, epoch in held)
    logs = {1: (20, batch(20, 10, epoch=2), ["0 0", "2 20"]), 2: (0, ours, [f"{epoch} {start}" for start, _, epoch in held])}
    for broker, (base, data, epochs) in logs.items():
        log_dir = put_replica(
            tmp_path, broker, data, partition="t-0", high_watermark=max(base, 10), base_offset=base, topic_id=TOPIC_ID
        )
        (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 0\n")
        (log_dir / "t-0" / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(epochs)), *epochs, ""]))
    out = run_plan(tmp_path, "--topic", "t", "--format", "table")[1]
    assert "2 anew at 20" in out
    sentence = "broker 2 begins its log anew, for what it would keep of it ends below the leader's local log start, and copies"
    assert f"If broker 1 leads, {sentence} the leader from 20 on." in " ".join(out.split())


def test_a_witness_that_says_more_than_its_log_holds_is_told_whole(run_plan: Run, tmp_path: Path) -> None:
    """Broker 2's checkpoint says 300, and its log ends at 6: it proves what is there."""
    put_replica(tmp_path, 1, batch(0, 3), high_watermark=3)
    put_replica(tmp_path, 2, batch(0, 3) + batch(3, 3), high_watermark=300)
    assert "high watermark 300 of broker 2, whose log ends at 6" in " ".join(
        run_plan(tmp_path, "--elect", "1", "--format", "table")[1].split()
    )
    document = json.loads(run_plan(tmp_path, "--format", "json")[1])
    validated(None, [document])
    (loss,) = next(one["losses"] for one in document["partitions"][0]["candidates"] if one["broker"] == 1)
    expected = {"kind": "high_watermark", "broker": 2, "name": None, "end_offset": 6, "said_end_offset": 300}
    assert loss["witness"] == expected
