"""A scan that decodes every record, against inflating the same batches and computing their CRCs; and how much is key placement."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.limit import limit_seconds
from bench.records import inflating_seconds
from bench.running import best
from bench.workloads import Workload, logs, make
from kafka_forensics.analysis.placement import KeyPlacementFold
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.parsers.log import KeySampler
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.judging.placement import TopicPlacements

_OF_PLACEMENT: Final = (
    (KeySampler, ("plain", "among", "opened", "take")),
    (KeyPlacementFold, ("step", "merge", "samples")),
    (TopicPlacements, ("take", "finish", "tell")),
)
"""Whatever a scan does for the placement of keys alone."""


def deep_scan(workload: Workload, work: Path) -> list[str]:
    """A row: CPU seconds of `scan --deep`, those of its start, those of inflating, of reading and CRCs, how many times these the
    rest of the scan is, and the share of key placement in percent."""
    log_dir = make(workload, work)
    nothing = work / "nothing" / "t-0"
    nothing.mkdir(parents=True, exist_ok=True)
    (nothing / f"{0:020d}.log").touch()
    ours, start = best(_command(log_dir)), best(_command(nothing.parent))
    limit_seconds(str(log_dir), 1)
    inflating = min(inflating_seconds(logs(log_dir)) for _ in range(3))
    checking = min(_cpu(lambda: limit_seconds(str(log_dir), 1)) for _ in range(3))
    ratio = (ours.cpu_seconds - start.cpu_seconds) / (inflating + checking)
    figures = (ours.cpu_seconds, start.cpu_seconds, inflating, checking, ratio)
    return [workload.title, *(f"{figure:.2f}" for figure in figures), f"{100 * placement_share(log_dir):.1f}"]


def placement_share(log_dir: Path) -> float:
    """How much of the CPU of a deep scan goes into the placement of keys."""
    options = ScanOptions(jobs=1, deep=True)
    local.scan([str(log_dir)], options)
    shares = []
    for _ in range(3):
        with _clocked() as spent:
            whole = _cpu(lambda: local.scan([str(log_dir)], options))
        shares.append(sum(spent) / whole)
    return min(shares)


@contextmanager
def _clocked() -> Iterator[list[float]]:
    """Seconds of CPU of each call of what is done for the placement of keys; looking at the clock is taken off."""
    spent: list[float] = []
    looking = min(-(time.thread_time() - time.thread_time()) for _ in range(1000))

    def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            begin = time.thread_time()
            answer = function(*arguments, **named)
            spent.append(time.thread_time() - begin - looking)
            return answer

        return run

    with ExitStack() as stack:
        for kind, names in _OF_PLACEMENT:
            for name in names:
                stack.callback(setattr, kind, name, getattr(kind, name))
                setattr(kind, name, clocked(getattr(kind, name)))
        yield spent


def _command(path: Path) -> list[str]:
    how = ["--deep", "--jobs", "1", "--format", "json", "-q", "--fail-on", "none"]
    return [sys.executable, "-m", "kafka_forensics", "scan", str(path), *how]


def _cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
