"""Ctrl-C while other programs work for a command: they are ended before anything else happens.

What talks to another program may write a trace of its own when it is interrupted, or swallow the interruption; and a program that
is still starting would go on without us.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, NamedTuple, NoReturn, Self

_SECONDS_TO_END: Final = 5.0
"""For an orderly end, in which temporary files are removed; then nobody is asked any more."""
_PAUSE_SECONDS: Final = 0.02
_PROCESSES: Final = Path("/proc")


class Children:
    """Processes that are started within; an interruption ends them and all below them, and is raised whatever came of that.

    Does nothing outside the main thread, which alone hears of interruptions, and where they are ignored.
    """

    def __init__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        self._hears = threading.current_thread() is threading.main_thread() and self._before is not signal.SIG_IGN
        self._older = _below(os.getpid(), _table()) if self._hears else set()
        self._interrupted = False

    def __enter__(self) -> Self:
        self.listen()
        return self

    def listen(self) -> None:
        """Hear of interruptions; again, after a library took that over."""
        if self._hears:
            signal.signal(signal.SIGINT, self._end)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is KeyboardInterrupt and self._hears and not self._interrupted:
            self._end_all()  # it came while a library heard of it
        if self._hears:
            signal.signal(signal.SIGINT, self._before)
        if self._interrupted:
            raise KeyboardInterrupt from None

    @property
    def interrupted(self) -> bool:
        """Whether they were ended; nobody is there to be asked any more."""
        return self._interrupted

    def _end(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self._end_all()
        raise KeyboardInterrupt

    def _end_all(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._interrupted = True
        sys.unraisablehook = _say_nothing  # what was being told to them has nobody to hear it
        table = _table()
        every = _below(os.getpid(), table) - self._older
        for pid in every:
            if table[pid].parent == os.getpid():
                _send(pid, signal.SIGTERM)
        for pid in _left(every):
            _send(pid, signal.SIGKILL)
        _left(every)


class _Process(NamedTuple):
    parent: int
    is_over: bool
    """It ended, and only its status is left."""


def _table() -> dict[int, _Process]:
    """Every process by its id: from the system's own files, or told by `ps` where there are none."""
    if (_PROCESSES / "self" / "stat").exists():
        pids = [int(name) for name in os.listdir(_PROCESSES) if name.isdigit()]
        return {pid: process for pid in pids if (process := _process(pid)) is not None}
    command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rows = [line.split() for line in printed.splitlines()]
    return {int(pid): _Process(int(parent), state.startswith("Z")) for pid, parent, state in rows}


def _process(pid: int) -> _Process | None:
    """None if there is none of this id (any more)."""
    try:
        stat = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return _Process(int(parent), state in "ZX")


def _below(root: int, table: dict[int, _Process]) -> set[int]:
    """Children of `root`, theirs, and so on."""
    children, new = set[int](), {root}
    while new := {pid for pid, process in table.items() if process.parent in new and pid not in children}:
        children |= new
    return children


def _left(pids: set[int]) -> set[int]:
    """Those that still run when their time is over; waits no longer than the last one does."""
    deadline = time.monotonic() + _SECONDS_TO_END
    while (
        left := {pid for pid, process in _table().items() if pid in pids and not process.is_over}
    ) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return left


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _say_nothing(_: object) -> None:
    """Instead of a trace on stderr."""
