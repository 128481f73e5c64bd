"""A fake engine with a chosen answer, in this process or (`python -m tests.cli.fake_engine ANSWER ARGUMENT...`) in another."""

import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning import engine
from tests.support.results import unclean_result

Scan = Callable[[list[str], ScanOptions, Callable[[int, int], None] | None], ScanResult]


def engine_module(scan: Scan) -> ModuleType:
    module: Any = ModuleType("kafka_forensics.scanning.engine.local")
    module.scan = scan
    return module  # type: ignore[no-any-return]


def _wait_for_interrupt(*_: object) -> ScanResult:
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    time.sleep(60)
    raise AssertionError("nobody interrupted")


ANSWERS: dict[str, Scan] = {"unclean": lambda *_: unclean_result(), "slow": _wait_for_interrupt}


if __name__ == "__main__":
    fake = engine_module(ANSWERS[sys.argv[1]])
    sys.modules["kafka_forensics.scanning.engine.local"] = fake
    setattr(engine, "local", fake)  # noqa: B010 - a module in the place of another
    from kafka_forensics.cli.main import outcome

    sys.exit(outcome(sys.argv[2:]))
