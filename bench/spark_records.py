"""`python -m bench.spark_records`: records read by Spark on one core, from logs and from Parquet files with the same rows.

Every read goes to Spark's `noop` sink, in a warmed-up session; CPU seconds are those of Spark and its Python workers together.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.workloads import make, workloads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORK: Final = Path(__file__).parent / "work"
SCALE: Final = 0.25
COLUMN_SETS: Final[dict[str, tuple[str, ...]]] = {
    "all": (),
    "offset, timestamp, key, value": ("offset", "timestamp", "key", "value"),
    "partition, offset": ("partition", "offset"),
}
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_RUNS: Final = 3


def main() -> None:
    """Measure, print a Markdown table."""
    from kafka_forensics.spark import default_builder

    packed = next(workload for workload in workloads(SCALE) if workload.name == "packed")
    log_dir, exported = make(packed, WORK), WORK / "records-exported"
    shutil.rmtree(exported, ignore_errors=True)
    command = [sys.executable, "-m", "kafka_forensics", "export", str(log_dir), "--output", str(exported)]
    subprocess.run([*command, "--fact", "records", "--show-payloads", "-q"], check=True)
    spark = default_builder("local[1]").getOrCreate()
    try:
        print("| columns | rows | from logs, CPU s | million a CPU s | from Parquet, CPU s | million a CPU s | Parquet / logs |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for row in rows(spark, log_dir, next(exported.glob("*/*/records"))):
            print(f"| {' | '.join(row)} |", flush=True)
    finally:
        spark.stop()
        shutil.rmtree(exported)


def rows(spark: "SparkSession", log_dir: Path, parquet: Path) -> Iterator[list[str]]:
    """Rows of the table."""
    from kafka_forensics.spark import register

    register(spark)
    for title, columns in COLUMN_SETS.items():
        reader = spark.read.format("kafka_log").option("fact", "records").option("includePayloads", "true")
        logs = (reader.option("columns", ",".join(columns)) if columns else reader).load(str(log_dir))
        files = spark.read.parquet(str(parquet))
        files = files.select(*columns) if columns else files
        count = files.count()
        figures = []
        for frame in (logs, files):
            seconds = min(_spent(frame) for _ in range(_RUNS))
            figures.append((seconds, count / seconds / 1e6))
        (ours, rate), (theirs, their_rate) = figures
        row = [title, f"{count:,}", f"{ours:.1f}", f"{rate:.2f}", f"{theirs:.1f}", f"{their_rate:.2f}", f"{theirs / ours:.2f}"]
        yield row


def _spent(frame: "DataFrame") -> float:
    """CPU seconds of all child processes while a frame is read."""
    begin = _cpu_seconds()
    frame.write.format("noop").mode("overwrite").save()
    return _cpu_seconds() - begin


def _cpu_seconds() -> float:
    """CPU seconds of all processes below this one."""
    parents, seconds = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        parents[int(stat.parent.name)] = int(fields[1])
        seconds[int(stat.parent.name)] = sum(map(int, fields[11:15])) / _TICKS  # with what its ended children took
    total, found = 0.0, {os.getpid()}
    while children := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        total += sum(seconds[pid] for pid in children)
        found |= children
    return total


if __name__ == "__main__":
    main()
