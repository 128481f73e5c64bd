"""`python -m bench.spark`: the scan on Spark against the local engine, what it shuffles, and what its workers hold."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

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
"""Partitions of three small replicas each; the last is foretold by a line through the others."""
STORED: Final = (1_000, 30_000)
"""The same on a storage service."""
RATIOS: Final = ("local[2] / local", "local[1] / local[2]")


def head(*columns: str) -> None:
    """The head of a Markdown table."""
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def run(
    where: str,
    jobs: int,
    paths: Sequence[Path | str],
    *,
    deep: bool,
    warm: str | None = None,
    environment: dict[str, str] | None = None,
) -> Json:
    """One measured scan in a process of its own, after one of `warm`, or else of the first path."""
    place = str(jobs) if where == "none" else str(WORK / "events")
    depth = "deep" if deep else "shallow"
    command = [sys.executable, "-m", "bench.spark_run", where, place, depth, warm or str(paths[0]), *map(str, paths)]
    done = subprocess.run(
        command,
        cwd=ROOT,
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
    """One row: local engine, Spark on two cores, Spark on one."""
    brokers = make_cluster(one_log(name, size_in_bytes), partitions, WORK)
    warm(brokers)
    here = run("none", 2, brokers, deep=deep)
    two, one_core = (run(f"local[{cores}]", 0, brokers, deep=deep) for cores in (2, 1))
    assert here["findings"] == two["findings"] == one_core["findings"], (here, two, one_core)
    row = [
        f"{name}, {3 * partitions} replicas",
        f"{total_bytes(brokers) / GIB:.1f}",
        f"{here['seconds']:.1f}",
        f"{two['seconds']:.1f}",
        f"{one_core['seconds']:.1f}",
        f"{two['seconds'] / here['seconds']:.2f}",
        f"{one_core['seconds'] / two['seconds']:.2f}",
        str(two["tasks"]),
        f"{max(two['peak_worker_mib'], one_core['peak_worker_mib']):.0f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)


def many_small(partitions: int) -> tuple[float, float]:
    """One row: partitions of three small replicas each, local engine and Spark, and what Spark's driver does for them in Python.

    Gives the seconds of both.
    """
    brokers = make_many(partitions, WORK)
    here = min((run("none", 2, brokers, deep=True) for _ in range(2)), key=lambda measured: float(measured["seconds"]))
    there = run("local[2]", 0, brokers, deep=True)
    assert here["findings"] == there["findings"], (here, there)
    row = [
        f"{partitions:,}",
        f"{here['seconds']:.1f}",
        f"{there['seconds']:.1f}",
        f"{there['seconds'] / here['seconds']:.2f}",
        f"{1000 * there['driver_cpu'] / partitions:.2f}",
        f"{there['driver_mib']:.0f}",
        str(there["tasks"]),
        f"{there['shuffled']:,}",
        f"{there['peak_worker_mib']:.0f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)
    return here["seconds"], there["seconds"]


def on_store(partitions: int, milliseconds: int) -> None:
    """Two rows: the same partitions on a storage service that takes so long for every request, by the local engine and by Spark."""
    brokers = make_many(partitions, WORK)
    uris = [f"s3://{BUCKET}/{broker.name}" for broker in brokers]
    _of_a_store(partitions, "directories", brokers[0].parent, uris, f"{uris[0]}/topic-0-0", milliseconds)


def bundles_on_store(partitions: int, milliseconds: int) -> None:
    """Four rows: the same partitions as directories and as a bundle of each broker, which are made first if they are not there."""
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
    _of_a_store(partitions, "bundles", folder, uris, f"s3://{BUCKET}/topic-0-0.kfb", milliseconds)


def _of_a_store(partitions: int, form: str, folder: Path, uris: Sequence[str], warm: str, milliseconds: int) -> None:
    """Two rows: what lies below a folder, by both engines."""
    with served(folder, milliseconds) as service:
        before, answers = service.requests(), []
        for where in ("none", "local[2]"):
            measured = run(where, 2, uris, deep=True, warm=warm, environment=service.environment)
            answers.append(measured["findings"])
            asked = service.requests()
            row = [
                f"{partitions:,}",
                form,
                "local `--jobs 2`" if where == "none" else where,
                f"{measured['seconds']:.0f}",
                *(f"{asked.get(kind, 0) - before.get(kind, 0):,}" for kind in ("LIST", "HEAD", "GET")),
                "" if where == "none" else f"{1000 * measured['driver_cpu'] / partitions:.2f}",
                f"{measured['peak_mib' if where == 'none' else 'driver_mib']:.0f}",
                str(measured.get("tasks", "")),
            ]
            before = asked
            print("| " + " | ".join(row) + " |", flush=True)
        assert answers[0] == answers[1], answers


def model(sizes: list[int], seconds: list[float]) -> str:
    """A line through all sizes but the last, and what it says of that."""
    slope, start = np.polyfit(sizes[:-1], seconds[:-1], 1)
    foretold = start + slope * sizes[-1]
    line = f"{start:.1f} s + {1000 * slope:.2f} ms a partition"
    return f"{line}: {foretold:.0f} s foretold for {sizes[-1]:,}, {seconds[-1]:.0f} measured ({seconds[-1] / foretold:.2f})"


def shuffled(size_in_bytes: int, partitions: int, blocks: int) -> None:
    """One row: bytes shuffled at so many blocks that differ."""
    workload = one_log("small", size_in_bytes)
    brokers = make_cluster(workload, partitions, WORK, blocks)
    warm(brokers)
    measured, total = run("local[2]", 0, brokers, deep=False), total_bytes(brokers)
    held = size_in_bytes // len(workload.templates[0]) // (1 << 16) * 3 * partitions
    row = [
        f"{total / GIB:.1f}",
        str(held),
        str(blocks),
        str(measured["tasks"]),
        f"{measured['shuffled']:,}",
        f"{measured['shuffled'] / total * TIB / (1 << 20):.1f}",
        f"{measured['results']:,}",
        f"{measured['peak_worker_mib']:.0f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    """Parse the flags, measure, print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the sizes of logs (1.0 needs about 8 GiB of disk)")
    parser.add_argument("--only", action="append", choices=("zstd", "small", "shuffle", "many", "store", "bundles"))
    parser.add_argument("--milliseconds", type=int, default=20, help="what a request to the store takes")
    arguments = parser.parse_args()
    only = arguments.only or ["zstd", "small", "shuffle", "many", "store"]
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
        here, there = zip(*map(many_small, sizes), strict=True)
        for engine, seconds in (("local engine", here), ("Spark", there)):
            print(f"\n{engine}: {model(sizes, list(seconds))}", flush=True)
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


main()
