"""`python -m bench.salvage`: the time of `salvage` compared with `cp` of the bytes that it writes, both until they are on disk.

Of one broker, a copy is read, chosen, written, read back for its digests, and scanned; three brokers take two more scans, and two
more copies of what was written. Output goes to the disk of this folder; logs come from the same disk, as evidence does, or from the
page cache (`--warm`).
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from bench.collect import LOGS, WORK, Logs, make
from bench.running import best

OUTPUT: Final = WORK / "salvaged"
NAMES: Final = ("64k", "8k", "120")


def copies_of(logs: Logs, total_bytes: int, brokers: int) -> list[Path]:
    """Log directories of so many brokers, all equal."""
    first = make(logs, total_bytes, WORK)
    others = [first.with_name(f"broker-{number}") for number in range(2, brokers + 1)]
    for number, other in enumerate(others, 2):
        if not other.exists():
            shutil.copytree(first, other)
            meta = other / "meta.properties"
            meta.write_text(meta.read_text().replace("node.id=1", f"node.id={number}"))
    return [first, *others]


def clear(paths: list[Path], *, warm: bool) -> None:
    """Delete the output, and unless `warm` drop the logs from the page cache."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    os.sync()
    for log in () if warm else (log for path in paths for log in path.rglob("*.log")):
        with log.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(logs: Logs, total_bytes: int, *, warm: bool) -> Iterator[list[str]]:
    """A row for one broker's copy and one for three."""
    for brokers in (1, 3):
        paths = copies_of(logs, total_bytes, brokers)
        before = partial(clear, paths, warm=warm)
        copied = best(
            ["sh", "-c", 'mkdir "$0" && cp -r --reflink=never "$@" "$0" && sync -f "$0"', str(OUTPUT), *map(str, paths)], before
        )
        command = [sys.executable, "-m", "kafka_forensics", "salvage", *map(str, paths), "--no-deep", "-q", "--output", str(OUTPUT)]
        salvaged = best(command, before)
        shutil.rmtree(OUTPUT)
        figures = (f"{copied.seconds:.2f}", f"{salvaged.seconds:.2f}", f"{copied.seconds / salvaged.seconds:.2f}")
        yield [logs.title, str(brokers), *figures, f"{salvaged.cpu_seconds:.2f}", f"{salvaged.peak_mib:.0f}"]


def main() -> None:
    """Measure as the options say, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m bench.salvage", description=__doc__)
    parser.add_argument("--size", type=float, default=3000.0, metavar="MB", help="of each copy")
    parser.add_argument("--warm", action="store_true", help="leave the logs in the page cache")
    arguments = parser.parse_args()
    print("| logs | copies | cp, sync s | salvage s | times as fast | CPU s | peak MiB |\n|---|---:|---:|---:|---:|---:|---:|")
    for logs in LOGS:
        if logs.name in NAMES:
            for row in measure(logs, int(arguments.size * 1e6), warm=arguments.warm):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
