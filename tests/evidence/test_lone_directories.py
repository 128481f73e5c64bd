"""Partition directories given by themselves are read with the small files of their log directory."""

from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.inputs import CHECKPOINTS, gather
from kafka_forensics.evidence.options import ScanOptions
from tests.support.brokers import Brokers, healthy


def lone(brokers: Brokers) -> list[str]:
    return [str(log_dir / "t-0") for log_dir in brokers.log_dirs]


def test_files_around_a_lone_partition_are_read(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for number, name in enumerate(CHECKPOINTS):
        for log_dir in brokers.log_dirs:
            (log_dir / name).write_text(f"0\n2\nt 0 {number + 60}\nother 0 9\n")

    def context_values(paths: list[str]) -> list[tuple[object, ...]]:
        small_files = ("broker", "clean_shutdown", "compacted")
        checkpoints = ("high_watermark", "recovery_point", "log_start_checkpoint", "cleaner_checkpoint")
        contexts = [plan.context for plan in gather(paths, ScanOptions()).replicas]
        return [tuple(getattr(context, name) for name in small_files + checkpoints) for context in contexts]

    expected = [(broker, True, True, 60, 61, 62, 63) for broker in (1, 2, 3)]
    assert context_values(lone(brokers)) == context_values([str(path) for path in brokers.log_dirs]) == expected
    for directory in gather(lone(brokers), ScanOptions()).log_dirs:
        assert {key for file in directory.checkpoints.values() for key in file.offsets} == {("t", 0)}, "no other partitions"


def test_unreadable_files_around_a_lone_partition_are_ignored(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    (brokers.log_dir(1) / "replication-offset-checkpoint").write_text("junk\n")
    (brokers.log_dir(1) / ".kafka_cleanshutdown").unlink()
    inputs = gather(lone(brokers)[:1], ScanOptions())
    [plan] = inputs.replicas
    assert (plan.context.high_watermark, plan.context.clean_shutdown, inputs.incomplete) == (None, False, [])


def test_plan_takes_a_lone_directory_as_stopped_cleanly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["plan", *lone(healthy(tmp_path)), "--format", "text"]) == 0
    out = capsys.readouterr().out
    assert "no checkpointed high watermark" not in out
    assert "not stopped cleanly" not in out
