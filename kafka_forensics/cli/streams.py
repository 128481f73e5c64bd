"""Where words go: data to stdout or a file, everything else to stderr; and whether there is a terminal at the end."""

import os
import re
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

from kafka_forensics.cli.options import FORMATS, Printing, choose
from kafka_forensics.errors import UsageError
from kafka_forensics.storage.private import open_private

if TYPE_CHECKING:
    from rich.console import Console


# Text from evidence made safe to show: names, values and numbers of strangers must not reach a terminal as they are.
#
# A file name may hold an escape sequence that rewrites the screen, a line break that forges a row, or a bidirectional mark that
# makes `gpj.exe` of `exe.jpg`. All that has no visible form of its own is written as an escape; letters of all languages stay.


_INVISIBLE_LETTERS: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)
"""Fillers, joiners and variation selectors that Unicode counts as letters or marks although nothing is drawn for them."""
_SHORT: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_BYTE_SURROGATES: Final = range(0xDC80, 0xDD00)


def printable(text: str | bytes) -> str:
    r"""`text` with everything that is not plainly visible as an escape: `\t`, `\x1b`, `\u202e`, `\U000e0001`.

    Bytes are read as UTF-8. A byte that is none, or that came through a file name as a lone surrogate, is shown as `\xff`. What is
    already safe comes back unchanged, so escaping twice does no harm.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter.isprintable() and letter not in _INVISIBLE_LETTERS else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    code = ord(letter)
    if letter in _SHORT:
        return _SHORT[letter]
    if code < 0x80:
        return f"\\x{code:02x}"
    if code in _BYTE_SURROGATES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


PLAIN_WIDTH: Final = 80
"""Columns where no terminal says how many there are."""
_FORMAT_OF_ENDING: Final = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".md": "markdown",
    ".tsv": "tsv",
    ".txt": "table",
    ".prom": "prometheus",
}


@dataclass(frozen=True, slots=True)
class Destination:
    """A text stream with what a renderer must know of it: columns, and whether colours may be used."""

    stream: TextIO
    width: int
    colour: bool

    @property
    def animated(self) -> bool:
        """Whether lines written can be written over: a terminal that knows how to move back."""
        return self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def console(self) -> "Console":
        """A rich console that takes every string literally: no markup, no emoji, no links, no guessing."""
        from rich.console import Console

        class PlainConsole(Console):
            def on_broken_pipe(self) -> None:
                raise  # the error being handled: where errors end, a closed pipe has its own status

        return PlainConsole(
            file=self.stream,
            width=self.width,
            color_system="standard" if self.colour else None,
            no_color=not self.colour,
            force_terminal=self.stream.isatty(),
            legacy_windows=False,
            markup=False,
            highlight=False,
            emoji=False,
            soft_wrap=False,
        )


def destination(stream: TextIO, *, color: str) -> Destination:
    """`stream` as it is: a terminal's own width, else `COLUMNS` or 80; colours always, never, or (auto) where it has them."""
    shown = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    colour = color == "always" or (color == "auto" and shown)
    return Destination(stream, max(40, shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns), colour)


def screen_of(printing: Printing) -> Destination:
    """Standard error for a command, to which from now on the log of what is done goes where all is said."""
    screen = destination(sys.stderr, color=printing.color)
    if printing.says_all:
        log_to(screen)
    return screen


@contextmanager
def open_output(
    output: Path | None, *, color: str, whole: bool = False, private: bool = False, option: str = "--output"
) -> Iterator[Destination]:
    """stdout, or the file `output`; `whole`: which is replaced once all is written, so that nobody ever reads a part of it;
    `private`: which only its owner can read.

    Raises UsageError, which names the `option` that asked for it, if the file cannot be written; one that was not there before is
    not left there in part.
    """
    if output is None:
        yield destination(sys.stdout, color=color)
        sys.stdout.flush()
        return
    is_new = not os.path.lexists(output)
    try:
        opener = open_private if private else None
        with _replacing(output, opener) if whole else open(output, "w", encoding="utf-8", newline="\n", opener=opener) as stream:
            yield destination(stream, color="never")
    except OSError as error:
        from kafka_forensics.storage.disks import why

        if is_new:
            with suppress(OSError):
                output.unlink(missing_ok=True)
        raise UsageError(f"cannot write to {output}: {why(error, str(output))}", hint=f"give {option} another place") from error


@contextmanager
def _replacing(output: Path, opener: Callable[[str, int], int] | None) -> Iterator[TextIO]:
    """A new file beside `output` that takes its place at the end, with its rights unless there is an `opener`; gone if anything
    failed. What is no file, such as a pipe, is written to as it is."""
    target = Path(os.path.realpath(output))  # a link stays one
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    from kafka_forensics.storage.disks import atomic_text_file

    with atomic_text_file(target, opener) as stream:
        yield stream
        if target.exists() and opener is None:
            os.fchmod(stream.fileno(), stat.S_IMODE(target.stat().st_mode))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """An interruption is raised behind what is done within, which it would leave half written; a second one at once."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            signal.default_int_handler(number, frame)
        came.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


def shares_screen(output: Path | None) -> bool:
    """Whether an answer that goes to `output` comes on the terminal on which a bar would be drawn over it."""
    return output is None and sys.stdout.isatty() and sys.stderr.isatty()


def chosen_format(name: str | None, output: Path | None, formats: Sequence[str] = FORMATS) -> str:
    """The format asked for, one of `formats`, or what fits the destination. Raises UsageError for an unknown one."""
    if name is not None:
        return choose("format", name, formats)
    if output is not None:
        ending = output.suffix.lower()
        meant = {known: format_name for known, format_name in _FORMAT_OF_ENDING.items() if format_name in formats}
        if ending and ending not in meant:
            known = ", ".join(f"{name} ({format_name})" for name, format_name in meant.items())
            raise UsageError(f"no format goes with the ending {ending} of {output}", hint=f"give --format, or one of {known}")
        return meant.get(ending, "tsv")
    return "table" if sys.stdout.isatty() else "tsv"


def write_pieces(stream: TextIO, pieces: Iterable[str | memoryview]) -> None:
    """Write text, some of it as the UTF-8 it is already."""
    raw = getattr(stream, "buffer", None) if (stream.encoding or "").lower() == "utf-8" else None
    for piece in pieces:
        if isinstance(piece, str):
            stream.write(piece)
        elif raw is None:
            stream.write(str(piece, "utf-8"))
        else:
            stream.flush()
            raw.write(piece)


# What commands say beside their answer: lines on stderr, on a terminal in its columns, in a pipe a line each.


COMMAND_INDENT: Final = "  "
"""Before each line of a command that stands alone, to be copied as it is."""
_GLUE: Final = "\xa0"
_TOGETHER: Final = re.compile(r"`[^`]*`|\d (?=\w)")
"""Spaces at which no line is broken: in commands, and between a number and what it counts."""


def say(screen: Destination, lines: Iterable[str]) -> None:
    """Write `lines`, whatever evidence is in them, to a terminal or a pipe."""
    shown = map(printable, lines)
    folded = _folded(shown, screen.width) if screen.stream.isatty() else shown
    screen.stream.writelines(line + "\n" for line in folded)
    screen.stream.flush()


def _folded(lines: Iterable[str], width: int) -> Iterator[str]:
    """`lines` broken at spaces, those of commands as they are."""
    for line in lines:
        yield from [line] if line.startswith(COMMAND_INDENT) else wrapped([line], width)


def absent(topic: str) -> str:
    """That the log of an internal topic is not there, which a command would answer from."""
    return f"no copy of {topic} is among the inputs; give the log directories of every broker, whole"


def wrapped(lines: Iterable[str], width: int) -> list[str]:
    """`lines` broken at spaces to `width` columns, what goes on indented; words wider than that stay whole."""
    return [piece.replace(_GLUE, " ") for line in lines for piece in _pieces(line, width) or [""]]


def _pieces(line: str, width: int) -> list[str]:
    glued = _TOGETHER.sub(lambda match: match[0].replace(" ", _GLUE), line)
    return wrap(glued, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def log_to(screen: Destination, level: str = "INFO") -> None:
    """Show what the package says of its own doing: all of it (`-v`), or from `level` on."""
    import logging

    class PlainFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(record.getMessage())

    handler = logging.StreamHandler(screen.stream)
    handler.setFormatter(PlainFormatter())
    logger = logging.getLogger("kafka_forensics")
    logger.handlers = [handler]
    logger.setLevel(level)


@contextmanager
def logging_to(screen: Destination, level: str) -> Iterator[None]:
    """`log_to` for a block, in which it may be called again. What is said later must not go to a stream that is closed by then."""
    import logging

    logger = logging.getLogger("kafka_forensics")
    handlers, usual = logger.handlers, logger.level
    log_to(screen, level)
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.setLevel(usual)
