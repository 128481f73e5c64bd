"""`python -m bench.spark`: the scan on Spark against the local engine, what it shuffles, and what its workers hold."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench.exports import size_of
from bench.spark_clusters import GIB, make_cluster, one_log, total_bytes, warm
from bench.store import BUCKET, served
from bench.workloads import make_many
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.json_objects import Json
from kafka_forensics.questions.collect import CollectOptions, collect

ROOT: Final = Path(__file__).resolve().parents[1]
WORK: Final = Path(__file__).parent / "work"
TIMEOUT_SECONDS: Final = 1800
TIB: Final = 1 << 40
MANY: Final = (1_000, 5_000, 10_000, 30_000)
"""Numbers of partitions, of three small replicas each; the last is predicted by a line through the others."""
STORED: Final = (1_000, 30_000)
"""Numbers of partitions on a storage service."""
RATIOS: Final = ("local[2] / local", "local[1] / local[2]")


def head(*columns: str) -> None:
    """Print the header of a Markdown table."""
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def run(
    where: str,
    jobs: int,
    paths: Sequence[Path | str],
    *,
    deep: bool,
    warm: str | None = None,
    output: Path | None = None,
    environment: dict[str, str] | None = None,
) -> Json:
    """Measure one scan, or an export to `output`, in a separate process, after one of `warm` (default: the first path)."""
    place = str(jobs) if where == "none" else str(WORK / "events")
    depth = f"export={output}" if output is not None else "deep" if deep else "shallow"
    command = [sys.executable, "-m", "bench.spark_run", where, place, depth, warm or str(paths[0]), *map(str, paths)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env=os.environ | (environment or {}),
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:6])} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    answer: Json = json.loads(done.stdout.splitlines()[-1])
    return answer


def against_local(name: str, size_in_bytes: int, partitions: int, *, deep: bool) -> None:
    """Print a row: local engine, Spark on two cores, Spark on one."""
    brokers = make_cluster(one_log(name, size_in_bytes), partitions, WORK)
    warm(brokers)
    locally = run("none", 2, brokers, deep=deep)
    two, one_core = (run(f"local[{cores}]", 0, brokers, deep=deep) for cores in (2, 1))
    assert locally["findings"] == two["findings"] == one_core["findings"], (locally, two, one_core)
    row = [
        f"{name}, {3 * partitions} replicas",
        f"{total_bytes(brokers) / GIB:.1f}",
        f"{locally['seconds']:.1f}",
        f"{two['seconds']:.1f}",
        f"{one_core['seconds']:.1f}",
        f"{two['seconds'] / locally['seconds']:.2f}",
        f"{one_core['seconds'] / two['seconds']:.2f}",
        str(two["tasks"]),
        f"{max(two['peak_worker_mib'], one_core['peak_worker_mib']):.0f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)


def many_small(partitions: int) -> tuple[float, float]:
    """Print a row for partitions of three small replicas: local engine, Spark, and the cost in Spark's driver.

    Returns the seconds of both engines.
    """
    brokers = make_many(partitions, WORK)
    warm = str(brokers[0].parent)
    locally = min((run("none", 2, brokers, deep=True) for _ in range(2)), key=lambda measured: float(measured["seconds"]))
    on_spark = min((run("local[2]", 0, brokers, deep=True, warm=warm) for _ in range(2)), key=lambda ran: float(ran["seconds"]))
    assert locally["findings"] == on_spark["findings"], (locally, on_spark)
    row = [
        f"{partitions:,}",
        f"{locally['seconds']:.1f}",
        f"{on_spark['seconds']:.1f}",
        f"{on_spark['seconds'] / locally['seconds']:.2f}",
        f"{1000 * on_spark['driver_cpu'] / partitions:.2f}",
        f"{on_spark['driver_mib']:.0f}",
        str(on_spark["tasks"]),
        f"{on_spark['shuffled']:,}",
        f"{on_spark['peak_worker_mib']:.0f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)
    return locally["seconds"], on_spark["seconds"]


def export_many(partitions: int) -> None:
    """Print a row: an export of all facts of partitions of three small replicas."""
    brokers, output = make_many(partitions, WORK), WORK / "exported"
    warm = str(brokers[0] / "topic-0-0")
    two = min((run("local[2]", 0, brokers, deep=True, warm=warm, output=output) for _ in range(2)), key=lambda ran: ran["seconds"])
    row = [f"{partitions:,}", *size_of(output), f"{two['seconds']:.1f}", f"{two['cpu']:.1f}", str(two["tasks"])]
    print("| " + " | ".join(row) + " |", flush=True)
    shutil.rmtree(output)


def on_store(partitions: int, milliseconds: int) -> None:
    """Print two rows: partitions on a storage service with this delay per request, by the local engine and by Spark."""
    brokers = make_many(partitions, WORK)
    uris = [f"s3://{BUCKET}/{broker.name}" for broker in brokers]
    _measure_store(partitions, "directories", brokers[0].parent, uris, f"{uris[0]}/topic-0-0", milliseconds)


def bundles_on_store(partitions: int, milliseconds: int) -> None:
    """Print four rows: partitions as directories and as one bundle per broker; bundles are made if they do not exist."""
    on_store(partitions, milliseconds)
    brokers = make_many(partitions, WORK)
    folder = WORK / f"bundles-{partitions}"
    folder.mkdir(exist_ok=True)
    for broker in (*brokers, brokers[0] / "topic-0-0"):
        bundle = folder / f"{broker.name}.kfb"
        if bundle.exists():
            continue
        with (folder / f"{broker.name}.part").open("w+b") as file:
            collect([str(broker)], CollectOptions(ScanOptions(deep=True)), file)
        os.replace(file.name, bundle)
    uris = [f"s3://{BUCKET}/{broker.name}.kfb" for broker in brokers]
    _measure_store(partitions, "bundles", folder, uris, f"s3://{BUCKET}/topic-0-0.kfb", milliseconds)


def _measure_store(partitions: int, form: str, folder: Path, uris: Sequence[str], warm: str, milliseconds: int) -> None:
    """Print two rows: a folder on a storage service, by both engines."""
    with served(folder, milliseconds) as service:
        before, answers = service.requests(), []
        for where in ("none", "local[2]"):
            measured = run(where, 2, uris, deep=True, warm=warm, environment=service.environment)
            answers.append(measured["findings"])
            requests = service.requests()
            row = [
                f"{partitions:,}",
                form,
                "local `--jobs 2`" if where == "none" else where,
                f"{measured['seconds']:.0f}",
                *(f"{requests.get(kind, 0) - before.get(kind, 0):,}" for kind in ("LIST", "HEAD", "GET")),
                "" if where == "none" else f"{1000 * measured['driver_cpu'] / partitions:.2f}",
                f"{measured['peak_mib' if where == 'none' else 'driver_mib']:.0f}",
                str(measured.get("tasks", "")),
            ]
            before = requests
            print("| " + " | ".join(row) + " |", flush=True)
        assert answers[0] == answers[1], answers


def model(sizes: list[int], seconds: list[float]) -> str:
    """A line fitted to all sizes but the last, and its prediction for the last."""
    slope, start = np.polyfit(sizes[:-1], seconds[:-1], 1)
    predicted = start + slope * sizes[-1]
    line = f"{start:.1f} s + {1000 * slope:.2f} ms a partition"
    return f"{line}: {predicted:.0f} s predicted for {sizes[-1]:,}, {seconds[-1]:.0f} measured ({seconds[-1] / predicted:.2f})"


def shuffled(size_in_bytes: int, partitions: int, blocks: int) -> None:
    """Print a row: bytes shuffled with so many differing blocks."""
    workload = one_log("small", size_in_bytes)
    brokers = make_cluster(workload, partitions, WORK, blocks)
    warm(brokers)
    measured, total = run("local[2]", 0, brokers, deep=False), total_bytes(brokers)
    blocks_held = size_in_bytes // len(workload.templates[0]) // (1 << 16) * 3 * partitions
    row = [
        f"{total / GIB:.1f}",
        str(blocks_held),
        str(blocks),
        str(measured["tasks"]),
        f"{measured['shuffled']:,}",
        f"{measured['shuffled'] / total * TIB / (1 << 20):.1f}",
        f"{measured['results']:,}",
        f"{measured['peak_worker_mib']:.0f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    """Measure as the options say, and print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the sizes of logs (1.0 needs about 8 GiB of disk)")
    parser.add_argument("--only", action="append", choices=("zstd", "small", "shuffle", "many", "export", "store", "bundles"))
    parser.add_argument("--milliseconds", type=int, default=20, help="what a request to the store takes")
    arguments = parser.parse_args()
    only = arguments.only or ["zstd", "small", "shuffle", "many", "export", "store"]
    gib = int(arguments.scale * GIB)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    if {"zstd", "small"} & set(only):
        head("workload", "GiB", "local --jobs 2 s", *("local[2] s", "local[1] s"), *RATIOS, "tasks", "peak worker MiB")
    if "zstd" in only:
        against_local("zstd", gib, 3, deep=True)
    if "small" in only:
        against_local("small", 2 * gib, 14, deep=False)
    if "shuffle" in only:
        print()
        head(
            "GiB",
            "blocks held",
            "blocks that differ",
            "tasks",
            "bytes shuffled",
            "MiB per TiB",
            "bytes to the driver",
            "peak worker MiB",
        )
        for partitions in (1, 3, 8):
            shuffled(2 * gib, partitions, 0)
        for blocks in (1, 100):
            shuffled(2 * gib, 3, blocks)
    if "many" in only:
        print()
        head(
            "partitions of 3 small replicas",
            *("local --jobs 2 s", "local[2] s", RATIOS[0]),
            "driver's Python, CPU s a 1,000 partitions",
            *("driver MiB", "tasks", "bytes shuffled", "peak worker MiB"),
        )
        sizes = [int(arguments.scale * partitions) for partitions in MANY]
        locally, on_spark = zip(*map(many_small, sizes), strict=True)
        for engine, seconds in (("local engine", locally), ("Spark", on_spark)):
            print(f"\n{engine}: {model(sizes, list(seconds))}", flush=True)
    if "export" in only:
        print()
        head("partitions of 3 small replicas, all facts exported", "files", "MB", "`local[2]` s", "CPU s", "tasks")
        export_many(int(2_000 * arguments.scale))
    if {"store", "bundles"} & set(only):
        print()
        head(
            "partitions of 3 small replicas",
            *("as", "engine", "s", "listings", "HEAD", "GET"),
            "driver's Python, CPU s a 1,000 partitions",
            *("driver MiB", "tasks"),
        )
        for partitions in STORED:
            measure = bundles_on_store if "bundles" in only else on_store
            measure(int(arguments.scale * partitions), arguments.milliseconds)


if __name__ == "__main__":
    main()
