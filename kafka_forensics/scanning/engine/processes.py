"""Work in forked copies of this process, for Python code that holds the interpreter lock.

A copy shares everything that was read and loaded, and sends its answers back as bytes. It ends with its parent, however that ends.
Where copies end early, for example because memory is short, this process does their work.
"""

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

Task = Callable[[int], bytes]
"""Does the work of a number."""

_AHEAD: Final = 8
"""Tasks for each copy that may be handed out before the first of them is answered."""
_QUEUED: Final = 2
"""Tasks that a copy has at once, to avoid waiting for the next."""
_PR_SET_PDEATHSIG: Final = 1


def can_fork() -> bool:
    """Whether this process may be copied: on Linux, unless it is a daemonic multiprocessing worker, which may have no children."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


def forked(task: Task, count: int, jobs: int) -> Generator[bytes, None, None]:
    """Yield `task(number)` for every number below `count`, in order, computed by `jobs` copies of this process.

    This process runs the first task before it forks: the copies then have what it loaded. All copies exist when the first answer is
    yielded; only then may threads be started, because a copy must not inherit their locks. Raises what a task raises.
    """
    if not count:
        return
    first = task(0)
    with _worker_copies(task, min(jobs, count - 1)) as copies:
        yield first
        yield from _answers(task, count, copies)


@dataclass(slots=True, eq=False)
class _WorkerCopy:
    process: "ForkProcess"
    connection: Connection
    numbers: list[int] = field(default_factory=list)
    """Tasks that it has not answered, in order."""


@contextmanager
def _worker_copies(task: Task, count: int) -> Iterator[list[_WorkerCopy]]:
    """So many copies, or fewer where the system refuses more; they are killed when the block ends."""
    copies: list[_WorkerCopy] = []
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, pages that they share
    try:
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(target=_serve, args=(os.getpid(), task, theirs), daemon=True)
            with theirs, suppress(OSError), warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                process.start()
                copies.append(_WorkerCopy(process, ours))
        yield copies
    finally:
        for copy in copies:
            copy.process.kill()
            copy.process.join()
            copy.connection.close()
        gc.unfreeze()


def _serve(parent: int, task: Task, connection: Connection) -> None:
    """In a copy: do the tasks whose numbers arrive. It dies with its parent, ignores interrupts, and prints nothing: the parent
    repeats a task that fails, and reports the failure."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()
    with open(os.devnull, "w", encoding="utf-8") as null, suppress(EOFError):
        sys.stdout = sys.stderr = null
        while True:
            connection.send_bytes(task(cast("int", connection.recv())))


def _answers(task: Task, count: int, copies: list[_WorkerCopy]) -> Iterator[bytes]:
    """Answers from number 1 on."""
    answers: dict[int, bytes] = {}
    next_number = 1
    running = list(copies)
    for number in range(1, count):
        while number not in answers:
            for queued in range(_QUEUED):
                for copy in running:
                    if len(copy.numbers) == queued and next_number < min(count, number + _AHEAD * len(running)):
                        copy.numbers.append(next_number)
                        next_number += 1
                        with suppress(OSError):  # it has ended, which `wait` reports
                            copy.connection.send(copy.numbers[-1])
            if not running:
                answers[number] = task(number)
                next_number = max(next_number, number + 1)
                continue
            ready = wait([copy.connection for copy in running])
            for copy in [copy for copy in running if copy.connection in ready]:
                try:
                    answers[copy.numbers[0]] = copy.connection.recv_bytes()
                    del copy.numbers[0]
                except (EOFError, OSError):
                    running.remove(copy)
                    logging.getLogger(__name__).warning("a worker process ended early: its work continues here")
                    answers |= {unanswered: task(unanswered) for unanswered in copy.numbers}
        yield answers.pop(number)
