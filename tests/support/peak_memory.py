"""Measures peak memory: of a command line in a separate process, or of Python objects and arrays in this one."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MEASURED_COMMAND = """
import sys
from pathlib import Path
from kafka_forensics.cli.main import outcome
status = outcome(sys.argv[1:])
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
sys.exit(status)
"""
"""Prints its peak in KiB last; getrusage would start from the peak of the test's process, which forked it."""


def peak_kib(*arguments: object, before: str = "") -> tuple[int, str]:
    """The peak in KiB and the stdout of a command line that must succeed; `before` is Python code that runs first.

    All kernels are compiled; otherwise the size of a file would decide which form runs.
    """
    command = [sys.executable, "-c", before + MEASURED_COMMAND, *map(str, arguments)]
    environment = os.environ | {"KAFKA_FORENSICS_KERNELS": "compiled"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment)
    return int(done.stderr.split()[-1]), done.stdout


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """A function that returns the peak of bytes held by Python and numpy since the block began; it works after the block too."""
    peak = 0

    def peak_bytes() -> int:
        return tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else peak

    tracemalloc.start()
    try:
        yield peak_bytes
    finally:
        peak = peak_bytes()
        tracemalloc.stop()
