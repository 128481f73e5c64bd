"""The Spark session of a command: started for it, stopped after it, or ended by Ctrl-C.

The standard error of Spark's Java process is read through a pipe: lines about stages become our progress, all others are dropped.
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
from pathlib import Path
from socketserver import BaseServer
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self, cast

from kafka_forensics.cli.options import EngineOptions
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen
from kafka_forensics.errors import ForensicsError
from kafka_forensics.spark.sessions import JavaOutput, readable_spark_errors, without_url_parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafka_forensics.spark.sessions import Session


_STAGES: Final = re.compile(rb"\[Stage (\d+):[^\]]*?\((\d+) \+ \d+\) / (\d+)\]")


@contextmanager
def running_session(screen: Screen, engine: EngineOptions, jobs: int) -> "Iterator[Session]":
    """A session of a Connect server, of a master, or of this machine with `jobs` cores; stopped at the end of the block.

    Raises UsageError if it cannot be started.
    """
    from kafka_forensics.spark import default_builder, session

    remote = engine.spark_remote
    place = remote or engine.spark_master or f"local[{jobs},4]"
    if not screen.quiet and screen.stream.isatty():
        screen.stream.write(
            f"starting Spark ({place})\n" if remote is None else f"connecting to Spark ({without_url_parameters(place)})\n"
        )
        screen.stream.flush()
    logging.getLogger().addHandler(logging.NullHandler())  # else a library's warning would be printed with a traceback
    if remote is not None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we report errors; gRPC would log them as well
    with Children() as children, Progress(screen, counts_tasks=True) as progress:

        def show_stages(line: bytes) -> None:
            if stages := _STAGES.findall(line):
                progress(sum(int(done) for _, done, _ in stages), sum(int(total) for _, _, total in stages))

        def show_tasks(stages: "Iterable[Any]", **_: object) -> None:
            counts = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages]
            progress(sum(done for done, _ in counts), sum(total for _, total in counts))

        with JavaOutput(show_stages) as java_output:
            with readable_spark_errors(place, java_output), java_output.child():
                if remote is not None:  # `local[N]` starts a server on this machine
                    spark = session(remote=remote)
                    spark.registerProgressHandler(cast("Any", show_tasks))
                else:
                    spark = default_builder(place).config("spark.ui.showConsoleProgress", "true").getOrCreate()
            with _stopped_at_end(spark, children, is_remote=remote is not None):
                yield spark


@contextmanager
def _stopped_at_end(spark: "Session", children: "Children", *, is_remote: bool) -> "Iterator[None]":
    """Stop a session at the end; errors of stopping are ignored, as a lost session was reported before.

    An interruption ends the process of a Spark on this machine; the jobs of a server are cancelled.
    """
    children.listen()  # Spark installs a handler of its own, which prints tracebacks
    try:
        with readable_spark_errors():
            yield
    finally:
        if not children.interrupted:
            _stop(spark)
        elif is_remote:
            cancelling = threading.Thread(target=_stop, args=(spark,), kwargs={"cancel": True}, daemon=True)
            cancelling.start()
            cancelling.join(_SECONDS_TO_END)  # a lost server does not answer


def _stop(spark: "Session", *, cancel: bool = False) -> None:
    """Stop a session, its running jobs first if `cancel`."""
    with suppress(ForensicsError), readable_spark_errors():
        if cancel:
            spark.interruptAll()
        spark.stop()


# Ctrl-C while child processes work for a command: they are ended first. A library that talks to a child process may print a
# traceback when it is interrupted, or swallow the interruption; a child that is still starting would run on without us.


_SECONDS_TO_END: Final = 5.0
"""How long child processes may take to remove temporary files before they are killed."""
_PAUSE_SECONDS: Final = 0.02
_PROC: Final = Path("/proc")


class Children:
    """The processes that are started within the block: an interruption ends them with their descendants, and is then raised.

    Does nothing outside the main thread, which alone receives signals, and if interruptions are ignored.
    """

    def __init__(self) -> None:
        self._handler_before = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()
        self._handles = is_main and self._handler_before is not signal.SIG_IGN
        self._older = _descendants(os.getpid(), _all_processes()) if self._handles else set()
        self.interrupted = False
        """Whether the processes were ended."""

    def __enter__(self) -> Self:
        self.listen()
        return self

    def listen(self) -> None:
        """Install the signal handler; again, if a library replaced it."""
        if self._handles:
            signal.signal(signal.SIGINT, self._handle_interruption)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is KeyboardInterrupt and self._handles and not self.interrupted:
            self._end_all()  # a library's handler raised it
        if self._handles:
            signal.signal(signal.SIGINT, self._handler_before)
        if self.interrupted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    def _handle_interruption(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self._end_all()
        raise KeyboardInterrupt

    def _end_all(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.interrupted = True
        sys.unraisablehook = _ignore  # requests to the processes fail
        BaseServer.handle_error = _ignore  # type: ignore[method-assign, assignment]  # and their requests to us are cut off
        processes = _all_processes()
        pids = _descendants(os.getpid(), processes) - self._older
        for pid in pids:
            if processes[pid].parent == os.getpid():
                _send(pid, signal.SIGTERM)
        for pid in _wait_for_end(pids):
            _send(pid, signal.SIGKILL)
        _wait_for_end(pids)


class _RunningProcess(NamedTuple):
    parent: int
    is_over: bool
    """It has exited, and its parent has not yet read its status."""


def _all_processes() -> dict[int, _RunningProcess]:
    """Every process by its id, from /proc, or from `ps` on systems without it."""
    if (_PROC / "self" / "stat").exists():
        pids = [int(name) for name in os.listdir(_PROC) if name.isdigit()]
        return {pid: process for pid in pids if (process := _process_state(pid)) is not None}
    command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rows = [line.split() for line in printed.splitlines()]
    return {int(pid): _RunningProcess(int(parent), state.startswith("Z")) for pid, parent, state in rows}


def _process_state(pid: int) -> _RunningProcess | None:
    """The state of a process, None if there is no such process."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return _RunningProcess(int(parent), state in "ZX")


def _descendants(root: int, processes: dict[int, _RunningProcess]) -> set[int]:
    """The ids of the children of `root`, of their children, and so on."""
    descendants, parents = set[int](), {root}
    while parents := {pid for pid, process in processes.items() if process.parent in parents and pid not in descendants}:
        descendants |= parents
    return descendants


def _wait_for_end(pids: set[int]) -> set[int]:
    """Wait until all these processes have exited, for at most `_SECONDS_TO_END`; the ids of those still running."""
    deadline = time.monotonic() + _SECONDS_TO_END
    while (
        running := {pid for pid, process in _all_processes().items() if pid in pids and not process.is_over}
    ) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return running


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _ignore(*_: object) -> None:
    """Print no traceback."""
