"""A scan that decodes every record, compared with decompressing the batches and computing their CRCs."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.limit import limit_seconds
from bench.records import inflating_seconds
from bench.running import best
from bench.workloads import Workload, logs, make


def deep_scan(workload: Workload, work: Path) -> list[str]:
    """A row: CPU seconds of `scan --deep`, of its start-up, of decompressing, of reading and CRCs; the ratio of the scan without
    start-up to both."""
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
    return [workload.title, *(f"{figure:.2f}" for figure in figures)]


def _command(path: Path) -> list[str]:
    flags = ["--deep", "--jobs", "1", "--format", "json", "-q", "--fail-on", "none"]
    return [sys.executable, "-m", "kafka_forensics", "scan", str(path), *flags]


def _cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
