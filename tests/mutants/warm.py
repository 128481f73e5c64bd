"""A process that has loaded all that tests need but the project, and runs tests in children of its own: starting takes no second.

Run as a file, in a copy of the project. Reads a line of JSON, (seconds, arguments of pytest), and answers pytest's exit status, or
null where time ran out.
"""

import json
import os
import signal
import sys
import time

sys.path[0] = os.getcwd()  # before: where this file lies

import construct  # noqa: E402, F401
import cramjam  # noqa: E402, F401
import google_crc32c  # noqa: E402, F401
import hypothesis.strategies  # noqa: E402, F401
import numpy  # noqa: E402, F401, ICN001
import pyarrow  # noqa: E402, F401, ICN001
import pytest  # noqa: E402
import xxhash  # noqa: E402, F401


def run(seconds: float, arguments: list[str]) -> int | None:
    """The exit status of pytest in a child, which is ended with all it started when time is over."""
    child = os.fork()
    if child == 0:
        os.setsid()
        output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = int(pytest.main(arguments))
        sys.stdout.flush()
        os._exit(status)
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(*json.loads(line))) + "\n")
        sys.stdout.flush()
