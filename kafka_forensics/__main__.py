"""Entry point of the command line: `python -m kafka_forensics`, and the console script."""

import os
import signal

_NEEDED = ("pread", "O_NOFOLLOW", "O_DIRECTORY")
"""Names in `os` for reading evidence without following links or changing files; Windows lacks them."""

TYPE_CHECKING = False  # typing is not imported before interruptions are handled
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def run() -> "NoReturn":
    """Run the command line. Until everything is imported, an interruption prints one line and exits with its status."""
    if not all(hasattr(os, name) for name in _NEEDED):
        os.write(2, b"error: kafka-forensics runs on Linux and macOS: this system lacks calls that read evidence unchanged\n")
        os.write(2, b"hint: on Windows run it in WSL 2 or in a container (docs/platforms.md)\n")
        os._exit(3)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # otherwise numpy starts a thread per core, which spins without work
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from kafka_forensics.cli import main

    main.run(lambda: signal.signal(signal.SIGINT, before))


def _end(_number: int, _frame: "FrameType | None") -> "NoReturn":
    """Write the same line as `cli.main`, which may not be imported yet."""
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    run()
