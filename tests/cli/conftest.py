"""The command line with an engine of the test's choosing."""

import sys
from collections.abc import Callable

import pytest

from kafka_forensics import engine
from kafka_forensics.cli.main import outcome
from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from tests.support.fake_engine import module_of


class Engine:
    """What the engine was asked, and what it shall answer (or raise)."""

    def __init__(self) -> None:
        self.answer: Callable[[], ScanResult] | BaseException | None = None
        self.paths: list[str] = []
        self.options = ScanOptions()

    def scan(self, paths: list[str], options: ScanOptions, progress: Callable[[int, int], None] | None) -> ScanResult:
        self.paths, self.options = paths, options
        if isinstance(self.answer, BaseException):
            raise self.answer
        assert self.answer is not None
        assert progress is not None
        progress(1, 1)
        return self.answer()


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine that answers what the test sets."""
    fake = Engine()
    module = module_of(fake.scan)
    monkeypatch.setitem(sys.modules, "kafka_forensics.engine.local", module)
    monkeypatch.setattr(engine, "local", module, raising=False)
    return fake


@pytest.fixture
def scan(fake_engine: Engine, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `scan copies …` over the engine's answer: exit status, stdout, stderr."""

    def run(answer: Callable[[], ScanResult] | BaseException, *arguments: str) -> tuple[int, str, str]:
        fake_engine.answer = answer
        status = outcome(["scan", "copies", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
