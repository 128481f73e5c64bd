"""The most memory that is held: by a command line in a process of its own, or by Python objects and arrays here."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MEASURED = """
import sys
from pathlib import Path
from kafka_forensics.cli.main import outcome
status = outcome(sys.argv[1:])
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
sys.exit(status)
"""
"""Prints its peak in KiB last; getrusage would begin with what the test's own process once held."""


def peak_kib(*arguments: object, before: str = "") -> tuple[int, str]:
    """The peak and stdout of a command line that must succeed; `before` is Python that runs first. All kernels are compiled,
    because which form runs depends on the size of a file."""
    command = [sys.executable, "-c", before + MEASURED, *map(str, arguments)]
    environment = os.environ | {"KAFKA_FORENSICS_KERNELS": "compiled"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment)
    return int(done.stderr.split()[-1]), done.stdout


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Within and after it: the most bytes that Python and numpy have held at once since it began."""
    peak = 0

    def peak_bytes() -> int:
        return tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else peak

    tracemalloc.start()
    try:
        yield peak_bytes
    finally:
        peak = peak_bytes()
        tracemalloc.stop()
