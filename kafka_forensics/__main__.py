"""The process of a command: `python -m kafka_forensics`, and the console script."""

import os
import signal

_NEEDED = ("pread", "O_NOFOLLOW", "O_DIRECTORY")
"""Of `os`: what reads evidence and neither follows links nor changes a file. Linux and macOS have it, Windows does not."""

TYPE_CHECKING = False  # as in the package: nothing is loaded before the first interruption could be heard of
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def run() -> "NoReturn":
    """Run the command line of this process. Until all is loaded, an interruption ends it at once, in a line and with its status."""
    if not all(hasattr(os, name) for name in _NEEDED):
        os.write(2, b"error: kafka-forensics runs on Linux and macOS: this system lacks calls that read evidence unchanged\n")
        os.write(2, b"hint: on Windows run it in WSL 2 or in a container (docs/platforms.md)\n")
        os._exit(3)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else numpy begins a thread for each core, which spin and have no work
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from kafka_forensics.cli import main

    main.run(lambda: signal.signal(signal.SIGINT, before))


def _end(_number: int, _frame: "FrameType | None") -> "NoReturn":
    """As `cli.main` says it, of which nothing may be there yet."""
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    run()
