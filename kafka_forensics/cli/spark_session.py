"""The Spark session of a command: made for it, watched while it works, and stopped after it, or by Ctrl-C.

Spark's Java says much on standard error that is none of the user's business. What it says goes through a pipe here: how far its
stages are becomes our progress.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from socketserver import BaseServer
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self

from kafka_forensics.cli.options import Workplace
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Destination
from kafka_forensics.errors import ForensicsError
from kafka_forensics.spark.sessions import JavaWords, failures_told, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_forensics.spark.sessions import Session


_STAGES: Final = re.compile(rb"\[Stage (\d+):[^\]]*?\((\d+) \+ \d+\) / (\d+)\]")


@contextmanager
def stopping(screen: Destination, place: Workplace, jobs: int, *, quiet: bool) -> "Iterator[Session]":
    """A session of a Connect server, of a master, or of this machine with `jobs` cores; stopped at the end.

    Raises UsageError where it cannot be had.
    """
    from kafka_forensics.spark import default_builder, session

    remote = place.spark_remote
    where = remote or place.spark_master or f"local[{jobs},4]"
    _say(screen, f"starting Spark ({where})" if remote is None else f"connecting to Spark ({shown(where)})", quiet=quiet)
    logging.getLogger().addHandler(logging.NullHandler())  # else a library's complaint would come with a trace on stderr
    if remote is not None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we say what goes wrong; its library would log it as well
    with (
        Children() as children,
        Progress(screen, quiet=quiet, tasks=True) as progress,
        JavaWords(partial(_stages_told, progress)) as heard,
    ):
        with failures_told(where, heard), heard.child():
            if remote is not None:  # with local[N] a server of our own
                spark = session(remote=remote)
            else:
                spark = default_builder(where).config("spark.ui.showConsoleProgress", "true").getOrCreate()
        with _used(spark, children, is_remote=remote is not None):
            yield spark


@contextmanager
def _used(spark: "Session", children: "Children", *, is_remote: bool) -> "Iterator[None]":
    """Stop a session at the end; one that is gone already cannot be stopped, and that was told.

    An interruption has ended a Spark of our own; what a server does for us is cancelled.
    """

    children.listen()  # Spark has its own way with interruptions, which traces of its talk with Java come of
    try:
        with failures_told():
            yield
    finally:
        if not children.interrupted:
            with suppress(ForensicsError), failures_told():
                spark.stop()
        elif is_remote:
            cancelling = threading.Thread(target=_cancel, args=(spark,), daemon=True)
            cancelling.start()
            cancelling.join(_SECONDS_TO_END)  # a server that is gone is not waited for


def _cancel(spark: "Session") -> None:
    """End all jobs of a session of a server, and the session."""
    with suppress(ForensicsError), failures_told():
        spark.interruptAll()
        spark.stop()


def _say(screen: Destination, words: str, *, quiet: bool) -> None:
    if not quiet and screen.stream.isatty():
        screen.stream.write(words + "\n")
        screen.stream.flush()


def _stages_told(progress: Progress, line: bytes) -> None:
    """How far Spark's stages are, if that is what Java says in a line."""
    stages = _STAGES.findall(line)
    if stages:
        progress(sum(int(done) for _, done, _ in stages), sum(int(total) for _, _, total in stages))


# Ctrl-C while other programs work for a command: they are ended before anything else happens.
#
# What talks to another program may write a trace of its own when it is interrupted, or swallow the interruption; and a program that
# is still starting would go on without us.


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
        if self._interrupted and not isinstance(error, KeyboardInterrupt):
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
        BaseServer.handle_error = _say_nothing  # type: ignore[method-assign, assignment]  # and what they were telling us has no end
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


def _say_nothing(*_: object) -> None:
    """Instead of a trace on stderr."""
