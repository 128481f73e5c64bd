"""What a Java process says on standard error and output: much while it starts that is nobody's business, and why it did not start.

It gets a pipe of ours, and a thread listens at the other end for as long as the process lives.
"""

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

_PIECE: Final = 4096
_LONGEST_LINE: Final = 1 << 16
_LINES_KEPT: Final = 64
_LONGEST_REASON: Final = 400
_SECONDS_TO_END: Final = 2.0
_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting (?:default|Spark) log level to"
    rb"|To adjust logging level use|\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:WARN|INFO) "
)
"""Lines of a start in which nothing went wrong."""
_NO_REASON: Final = re.compile(
    r"\s*(?:$|at |\.\.\. \d+ more|WARNING: |# An error report|# +/|#\s*$|\S*spark-class: line"
    r"|Error: Could not create the Java Virtual Machine|Error: A fatal exception has occurred)"
)
"""Lines of a start that failed in which it is not said why."""


class JavaWords:
    """A context in which `child` gives the pipe to processes; `take` gets each line they say, also after its end."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._last: deque[bytes] = deque(maxlen=_LINES_KEPT)
        self._read, self._write = os.pipe()
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The listener ends when the last process that holds the other end does, or with us."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    @contextmanager
    def child(self) -> Iterator[None]:
        """Processes that are started meanwhile get the pipe as both their outputs, for Java complains to either."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        kept = {}
        for number in (1, 2):
            with suppress(OSError):  # one that is closed
                kept[number] = os.dup(number)
        for number in kept:
            os.dup2(self._write, number)
        try:
            yield
        finally:
            for number, own in kept.items():
                os.dup2(own, number)
                os.close(own)

    def reason(self) -> str | None:
        """Why a process ended that has ended: the last line that says so, fit to be shown; None if none does."""
        self.__exit__()
        self._listener.join(_SECONDS_TO_END)
        for line in reversed(list(self._last)):
            text = line.decode("utf-8", "backslashreplace")
            if _NO_REASON.match(text) is None and _NOISE.match(line) is None:
                shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
                return shown.strip().removeprefix("# ")[:_LONGEST_REASON]
        return None

    def _listen(self) -> None:
        rest = b""
        while piece := os.read(self._read, _PIECE):
            *lines, rest = re.split(rb"[\r\n]", rest + piece)
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(line)
        if rest:
            self._say(rest)
        os.close(self._read)

    def _say(self, line: bytes) -> None:
        self._last.append(line)
        self._take(line)


class QuietStart:
    """Takes what Java says while it starts: what matters of it is passed on once it has started, all else from then on at once."""

    def __init__(self) -> None:
        self._held: list[bytes] | None = []
        self._lock = threading.Lock()

    def take(self, line: bytes) -> None:
        """One line, as it is said."""
        with self._lock:
            if self._held is None:
                _pass_on(line)
            elif line and _NOISE.match(line) is None:
                self._held.append(line)

    def done(self) -> None:
        """Java has started."""
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                _pass_on(line)


def _pass_on(line: bytes) -> None:
    with suppress(OSError):
        os.write(2, line + b"\n")
