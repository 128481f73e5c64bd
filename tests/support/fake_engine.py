"""An engine that answers what a test wants, here or (`python -m tests.support.fake_engine ANSWER ARGUMENT...`) in a process."""

import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kafka_forensics import engine
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from tests.support.results import clean_result, lost_records, result_of, unclean_result

Scan = Callable[[list[str], ScanOptions, Callable[[int, int], None] | None], ScanResult]


def module_of(scan: Scan) -> ModuleType:
    """A stand-in for `kafka_forensics.engine.local`."""
    module: Any = ModuleType("kafka_forensics.engine.local")
    module.scan = scan
    return module  # type: ignore[no-any-return]


def _interrupted(*_: object) -> ScanResult:
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    time.sleep(60)
    raise AssertionError("nobody interrupted")


def _unreadable(*_: object) -> ScanResult:
    raise SourceError("broker-1", "permission denied")


def _broken(*_: object) -> ScanResult:
    raise ZeroDivisionError("a \x1b[31mmistake")


def _broken_worker(*_: object) -> ScanResult:
    raise BrokenPipeError(32, "a worker went away")


ANSWERS: dict[str, Scan] = {
    "clean": lambda *_: clean_result(),
    "unclean": lambda *_: unclean_result(),
    "long": lambda *_: result_of(*[lost_records()] * 2000),
    "slow": _interrupted,
    "unreadable": _unreadable,
    "broken": _broken,
    "broken-worker": _broken_worker,
}


if __name__ == "__main__":
    fake = module_of(ANSWERS[sys.argv[1]])
    sys.modules["kafka_forensics.engine.local"] = fake
    setattr(engine, "local", fake)  # noqa: B010 - a module in the place of another
    from kafka_forensics.cli.main import outcome

    sys.exit(outcome(sys.argv[2:]))
