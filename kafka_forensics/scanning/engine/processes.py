"""Work on copies of this process: for what is Python's own time, which holds one core however many threads there are.

A copy is forked, so it has all that was read and loaded, and what it answers comes back as bytes. It ends with the process it is
of, whatever ends that; where copies end before their time, for want of memory maybe, their work is done here.
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
"""Tasks for each copy that may be dealt out before the first of them is answered."""
_AT_HAND: Final = 2
"""Tasks that a copy has at once, so that it need not wait for the next."""
_PR_SET_PDEATHSIG: Final = 1


def can_fork() -> bool:
    """Whether this process may be copied: on Linux, unless it is a helper of multiprocessing's itself, which may have none."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


def forked(task: Task, count: int, jobs: int) -> Generator[bytes, None, None]:
    """What `task` gives for every number below `count`, in order, by `jobs` copies of this process.

    The first is done here before there are copies, so that these have what it has loaded. Once it is given there are all copies
    that there will be, and threads may be started, whose locks a copy must not have. What a task raises it raises here.
    """
    if not count:
        return
    first = task(0)
    with _copies(task, min(jobs, count - 1)) as copies:
        yield first
        yield from _dealt_out(task, count, copies)


def _copy_at_work(work: Callable[..., object], *arguments: object) -> "ForkProcess | None":
    """A copy of this process that does `work` and says nothing of it; None where the system refuses one. It ends with this process,
    which alone hears of interruptions."""
    process = multiprocessing.get_context("fork").Process(target=_work, args=(os.getpid(), work, arguments), daemon=True)
    with suppress(OSError), warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        process.start()
        return process
    return None


def _work(parent: int, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout = sys.stderr = nowhere
        work(*arguments)


@dataclass(slots=True, eq=False)
class _Copy:
    process: "ForkProcess"
    connection: Connection
    numbers: list[int] = field(default_factory=list)
    """What it has been told to do, in order."""

    def end(self) -> None:
        """End it at once; nothing of what it does outlives it."""
        self.process.kill()
        self.process.join()
        self.connection.close()


@contextmanager
def _copies(task: Task, count: int) -> Iterator[list[_Copy]]:
    """So many copies, or fewer where the system refuses more; they end with the block."""
    copies: list[_Copy] = []
    gc.collect()
    gc.freeze()  # a collector that looks at what they share would have it copied
    try:
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            with theirs:
                process = _copy_at_work(_serve, task, theirs)
            if process is not None:
                copies.append(_Copy(process, ours))
        yield copies
    finally:
        for copy in copies:
            copy.end()
        gc.unfreeze()


def _dealt_out(task: Task, count: int, copies: list[_Copy]) -> Iterator[bytes]:
    """Answers from number 1 on."""
    answers: dict[int, bytes] = {}
    following = 1
    left = list(copies)
    for number in range(1, count):
        while number not in answers:
            for at_hand in range(_AT_HAND):
                for copy in left:
                    if len(copy.numbers) == at_hand and following < min(count, number + _AHEAD * len(left)):
                        copy.numbers.append(following)
                        following += 1
                        with suppress(OSError):  # it has ended: told below
                            copy.connection.send(copy.numbers[-1])
            if not left:
                answers[number] = task(number)
                following = max(following, number + 1)
                continue
            ready = wait([copy.connection for copy in left])
            for copy in [copy for copy in left if copy.connection in ready]:
                try:
                    answers[copy.numbers[0]] = copy.connection.recv_bytes()
                    del copy.numbers[0]
                except (EOFError, OSError):
                    left.remove(copy)
                    logging.getLogger(__name__).warning("a process that helped has ended before its time: its work is done here")
                    answers |= {lost: task(lost) for lost in copy.numbers}
        yield answers.pop(number)


def _serve(task: Task, connection: Connection) -> None:
    """In a copy: do what numbers are sent for. What goes wrong is done again, and told, by the process it is of."""
    with suppress(EOFError):
        while True:
            connection.send_bytes(task(cast("int", connection.recv())))
