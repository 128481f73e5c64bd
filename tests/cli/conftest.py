"""Fixtures that run the command line, with the real engine or a fake one."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning import engine
from tests.cli.fake_engine import engine_module
from tests.cli.runs import Run
from tests.support.audit import put_audit
from tests.support.json_schemas import validate


class Engine:
    """A fake engine: the arguments of the last scan, and the answer to return or the error to raise."""

    def __init__(self) -> None:
        self.answer: Callable[[], ScanResult] | BaseException | None = None
        self.paths: list[str] = []
        self.options = ScanOptions()

    def scan(self, paths: list[str], options: ScanOptions, progress: Callable[[int, int], None] | None, *_: object) -> ScanResult:
        self.paths, self.options = paths, options
        if isinstance(self.answer, BaseException):
            raise self.answer
        assert self.answer is not None
        assert progress is not None
        progress(1, 1)
        return self.answer()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line with these arguments: exit status, stdout, stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        status = outcome([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


@pytest.fixture
def dump(run: Run) -> Callable[..., str]:
    """stdout of `dump …`, which must end with status 0."""

    def command(*arguments: object) -> str:
        status, out, err = run("dump", *arguments)
        assert status == 0, err
        return out

    return command


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal wide enough for every column."""
    monkeypatch.setenv("COLUMNS", "2000")


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A fake engine that returns the answer that the test sets."""
    fake = Engine()
    module = engine_module(fake.scan)
    monkeypatch.setitem(sys.modules, "kafka_forensics.scanning.engine.local", module)
    monkeypatch.setattr(engine, "local", module, raising=False)
    return fake


@pytest.fixture
def scan(fake_engine: Engine, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `scan copies …` with this answer of the engine: exit status, stdout, stderr."""

    def run(answer: Callable[[], ScanResult] | BaseException, *arguments: str) -> tuple[int, str, str]:
        fake_engine.answer = answer
        status = outcome(["scan", "copies", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def run_plan(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `plan …` 80 columns wide: exit status, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: run("plan", *arguments)


@pytest.fixture
def plan_text(run_plan: Run) -> Callable[..., str]:
    """The table of `plan …` as one line, to search for sentences."""
    return lambda *arguments: " ".join(run_plan(*arguments, "--format", "text")[1].split())


@pytest.fixture
def plan_document(run_plan: Run) -> Callable[..., Any]:
    """The JSON of `plan …`, validated against its schema."""

    def document(*arguments: object) -> Any:
        parsed = json.loads(run_plan(*arguments, "--format", "json")[1])
        validate("plan", parsed)
        return parsed

    return document


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`audit-0` of the sample with the controller's log."""
    return put_audit(tmp_path_factory.mktemp("audit"))
