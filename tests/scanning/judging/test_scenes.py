"""Each scene is scanned and planned with each of its options, and gives the golden answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.outputs.plan_steps import steps_of
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.judging import recovery_files
from tests.scanning.judging.scenes import ANSWERS, OUTSIDE, SCENES, answers, without_topic_id
from tests.support.brokers import TOPIC_ID, put_replica

EXPECTED: dict[str, Any] = json.loads(ANSWERS.read_text())


@pytest.mark.parametrize("name", SCENES)
def test_the_answer_to_a_scene_is_the_golden_one(name: str, tmp_path: Path) -> None:
    """After a change of a rule: `python -m tests.scanning.judging.scenes`."""
    assert answers(name, tmp_path) == EXPECTED[name]


def test_a_plan_has_a_step_for_a_missing_topic_id(tmp_path: Path) -> None:
    plans = make_plans([str(without_topic_id(tmp_path).root)], ScanOptions(), PlanOptions())
    (step,) = [step for step in steps_of(plans) if step.kind == "write_topic_id"]
    assert step.text.startswith("Before broker 2 starts, write a file partition.metadata into its directory t-0")
    assert f"with the lines version: 0 and topic_id: {TOPIC_ID}." in step.text


def test_a_long_log_is_replayed_only_if_it_has_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starts() -> bool:
        [partition] = local.scan([str(log_dir)], ScanOptions(jobs=1)).partitions
        assert partition.replicas[0].recovery is not None
        return partition.replicas[0].recovery.starts

    log_dir = put_replica(tmp_path, 1, OUTSIDE)
    monkeypatch.setattr(recovery_files, "MAX_REPLAYED_BYTES", 10)
    assert not starts()
    monkeypatch.setattr(recovery_files, "_SUSPECT", ("NOTHING",))
    assert starts()
