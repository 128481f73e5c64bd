"""A server on loopback as a process of its own."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Final

SECONDS_TO_START: Final = 30.0


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens now."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """Run `command`, which listens on `port`: up when the block begins, ended with it. Raises AssertionError if it is not."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONWARNINGS": ""}
    )
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            assert process.poll() is None, f"{command[-1]}: the server ended before it was up"
            assert time.monotonic() < deadline, f"{command[-1]}: the server does not come up"
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
