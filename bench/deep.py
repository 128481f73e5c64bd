"""A scan that decodes every record, compared with decompressing the batches and computing their CRCs; and the share of key
placement."""

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

_PLACEMENT_METHODS: Final = (
    (KeySampler, ("plain", "among", "opened", "take")),
    (KeyPlacementFold, ("step", "merge", "samples")),
    (TopicPlacements, ("take", "finish", "tell")),
)
"""The methods that a scan calls only for key placement."""


def deep_scan(workload: Workload, work: Path) -> list[str]:
    """A row: CPU seconds of `scan --deep`, of its start-up, of decompressing, of reading and CRCs; the ratio of the scan without
    start-up to both; the share of key placement in percent."""
    log_dir = make(workload, work)
    empty = work / "empty" / "t-0"
    empty.mkdir(parents=True, exist_ok=True)
    (empty / f"{0:020d}.log").touch()
    ours, start = best(_command(log_dir)), best(_command(empty.parent))
    limit_seconds(str(log_dir), 1)
    inflating = min(inflating_seconds(logs(log_dir)) for _ in range(3))
    checking = min(_cpu(lambda: limit_seconds(str(log_dir), 1)) for _ in range(3))
    ratio = (ours.cpu_seconds - start.cpu_seconds) / (inflating + checking)
    figures = (ours.cpu_seconds, start.cpu_seconds, inflating, checking, ratio)
    return [workload.title, *(f"{figure:.2f}" for figure in figures), f"{100 * placement_share(log_dir):.1f}"]


def placement_share(log_dir: Path) -> float:
    """The share of a deep scan's CPU time that key placement takes."""
    options = ScanOptions(jobs=1, deep=True)
    local.scan([str(log_dir)], options)
    shares = []
    for _ in range(3):
        with _clocked() as spent:
            total = _cpu(lambda: local.scan([str(log_dir)], options))
        shares.append(sum(spent) / total)
    return min(shares)


@contextmanager
def _clocked() -> Iterator[list[float]]:
    """CPU seconds of each call of a method of key placement, without the time to read the clock."""
    spent: list[float] = []
    clock_seconds = min(-(time.thread_time() - time.thread_time()) for _ in range(1000))

    def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            begin = time.thread_time()
            answer = function(*arguments, **keywords)
            spent.append(time.thread_time() - begin - clock_seconds)
            return answer

        return run

    with ExitStack() as stack:
        for kind, names in _PLACEMENT_METHODS:
            for name in names:
                stack.callback(setattr, kind, name, getattr(kind, name))
                setattr(kind, name, clocked(getattr(kind, name)))
        yield spent


def _command(path: Path) -> list[str]:
    flags = ["--deep", "--jobs", "1", "--format", "json", "-q", "--fail-on", "none"]
    return [sys.executable, "-m", "kafka_forensics", "scan", str(path), *flags]


def _cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
