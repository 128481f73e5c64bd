"""Running `plan` in tests, the copies it is run on, and its JSON held to the schema."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
Run = Callable[..., tuple[int, str, str]]


def plan_runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")

    def plan(*arguments: object) -> tuple[int, str, str]:
        status = outcome(["plan", *map(str, arguments)])
        capture_result = capsys.readouterr()
        return status, capture_result.out, capture_result.err

    return plan


def put_audit(folder: Path) -> Path:
    """`audit-0` of the sample with the controller's log, and nothing else."""
    for broker in (SAMPLES / "unclean-election").iterdir():
        for name in ("audit-0", "__cluster_metadata-0"):
            shutil.copytree(broker / name, folder / broker.name / name)
        for file in broker.iterdir():
            if file.is_file():
                shutil.copy(file, folder / broker.name)
    return folder
