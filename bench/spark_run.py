"""`python -m bench.spark_run MASTER EVENTS DEPTH WARM PATH...`: measures one scan after a scan of WARM, and prints a line of JSON.

MASTER is `local[N]`, or `none` for the local engine; then EVENTS is its number of jobs. With the DEPTH `export=DIR` an export of
all facts to a directory is measured.
"""

import json
import os
import resource
import shutil
import sys
import threading
import time
from pathlib import Path

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local

_POLL_SECONDS = 0.2


def main() -> None:
    """Run, measure, print."""
    where, place, depth, warm, *paths = sys.argv[1:]
    options = ScanOptions(jobs=int(place) if where == "none" else 1, deep=depth == "deep")
    output = depth.removeprefix("export=") if depth.startswith("export=") else None
    print(json.dumps(_local(warm, paths, options) if where == "none" else _spark(where, place, warm, paths, options, output)))


def _local(warm: str, paths: list[str], options: ScanOptions) -> Json:
    local.scan([warm], options)
    begin = time.perf_counter()
    result = local.scan(paths, options)
    seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "findings": _findings(result),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _spark(master: str, events: str, warm: str, paths: list[str], options: ScanOptions, output: str | None) -> Json:
    from kafka_forensics.spark import default_builder, export
    from kafka_forensics.spark.job import scan_on_spark

    def work(paths: list[str]) -> ScanResult:
        if output is None:
            return scan_on_spark(spark, paths, options)
        shutil.rmtree(output, ignore_errors=True)
        return export(spark, paths, output).result

    Path(events).mkdir(parents=True, exist_ok=True)
    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(events).absolute().as_uri(),
        "spark.eventLog.compress": "false",
    }
    builder = default_builder(master).config("spark.eventLog.rolling.enabled", "false")
    for name, value in log.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    application = spark.conf.get("spark.app.id")
    work([warm])
    watch = _Watch()
    watch.start()
    started, begin, cpu_begin, all_begin = time.time() * 1000, time.perf_counter(), time.process_time(), _cpu_of_group()
    result = work(paths)
    seconds, ended = time.perf_counter() - begin, time.time() * 1000
    driver_cpu, all_cpu = time.process_time() - cpu_begin, _cpu_of_group() - all_begin
    watch.done.set()
    spark.stop()
    figures = {
        "seconds": seconds,
        "findings": _findings(result),
        "peak_worker_mib": watch.peak_kib / 1024,
        "driver_cpu": driver_cpu,
        "cpu": all_cpu,
        "driver_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    return figures | _metrics(Path(events) / str(application), started, ended)


def _cpu_of_group() -> float:
    """CPU seconds of this session's processes (the driver, Java, Python workers) and of their children that have ended."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process ended meanwhile
        if int(fields[3]) == os.getsid(0):
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _findings(result: ScanResult) -> dict[str, int]:
    kinds = [finding.kind for finding in result.findings]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def _metrics(log: Path, started: float, ended: float) -> dict[str, int]:
    """Spark's metrics of the tasks that ended between two times (ms): tasks, bytes shuffled, bytes sent to the driver."""
    tasks = shuffled = results = 0
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] != "SparkListenerTaskEnd" or not started <= event["Task Info"]["Finish Time"] <= ended:
                continue
            metrics = event["Task Metrics"]
            tasks += 1
            shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            results += metrics["Result Size"]
    return {"tasks": tasks, "shuffled": shuffled, "results": results}


class _Watch(threading.Thread):
    """Polls for the peak memory of the Python workers of this process's Spark."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.peak_kib = 0

    def run(self) -> None:
        """Poll until `done` is set."""
        while not self.done.wait(_POLL_SECONDS):
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    command = (status.parent / "cmdline").read_bytes()
                    text = status.read_text()
                except OSError:
                    continue  # the process ended meanwhile
                if b"pyspark" in command and b"daemon" in command:
                    peak = next((line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")), "0")
                    self.peak_kib = max(self.peak_kib, int(peak))


main()
