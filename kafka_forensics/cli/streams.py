"""Output streams: answers go to standard output or a file, all other text to standard error, in the form that each stream takes."""

import os
import re
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.cli.options import ConsoleOptions
from kafka_forensics.errors import UsageError
from kafka_forensics.model.safe_text import printable
from kafka_forensics.storage.private import open_private

if TYPE_CHECKING:
    from rich.console import Console


PLAIN_WIDTH: Final = 80
"""Columns of a stream that is not a terminal."""


class Destination(Struct, frozen=True):
    """A text stream, with its width in columns, and whether colours may be used."""

    stream: TextIO
    width: int
    colour: bool

    @property
    def animated(self) -> bool:
        """Whether the stream is a terminal on which a line can be overwritten."""
        return self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def console(self) -> "Console":
        """A rich console that prints every string as it is, without markup, emoji or highlighting."""
        from rich.console import Console

        class PlainConsole(Console):
            def on_broken_pipe(self) -> None:
                raise  # the error being handled: `main` has an exit status for a closed pipe

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


class Screen(Destination, frozen=True):
    """Standard error of a command, and whether the user wants neither progress nor a summary there."""

    quiet: bool = False

    def without_progress_over(self, output: Path | None) -> "Screen":
        """The screen, quiet if the answer is written to the same terminal: a progress bar would be drawn over it."""
        shared = output is None and sys.stdout.isatty() and sys.stderr.isatty()
        return replace(self, quiet=self.quiet or shared)


def destination(stream: TextIO, *, color: str) -> Destination:
    """`stream` with a terminal's width, else `COLUMNS` or 80; colours always, never, or (auto) if the terminal shows them."""
    capable = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    colour = color == "always" or (color == "auto" and capable)
    return Destination(stream, max(40, shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns), colour)


def screen_of(console: ConsoleOptions) -> Screen:
    """Standard error for a command. From this call on, a verbose command logs what it does there."""
    to = destination(sys.stderr, color=console.color)
    screen = Screen(to.stream, to.width, to.colour, console.quiet)
    if console.is_verbose:
        log_to(screen)
    return screen


@contextmanager
def open_output(
    output: Path | None, *, color: str, whole: bool = False, private: bool = False, option: str = "--output"
) -> Iterator[Destination]:
    """Standard output, or the file `output`: replaced only once it is complete if `whole`; readable only by its owner if `private`.

    Raises UsageError, which names the `option`, if the file cannot be written; a file that did not exist before is then removed.
    """
    if output is None:
        yield destination(sys.stdout, color=color)
        sys.stdout.flush()
        return
    is_new = not os.path.lexists(output)
    opener = open_private if private else None
    with writing_to(output, f"give {option} another place"):
        try:
            with (
                _replacing(output, opener) if whole else open(output, "w", encoding="utf-8", newline="\n", opener=opener) as stream
            ):
                yield destination(stream, color="never")
        except OSError:
            if is_new:
                with suppress(OSError):
                    output.unlink(missing_ok=True)
            raise


@contextmanager
def writing_to(path: Path, hint: str = "choose another directory") -> Iterator[None]:
    """Turn an OSError within the block into a UsageError that says why `path` cannot be written."""
    try:
        yield
    except OSError as error:
        from kafka_forensics.storage.disks import why

        raise UsageError(f"cannot write to {path}: {why(error, str(path))}", hint=hint) from error


@contextmanager
def _replacing(output: Path, opener: Callable[[str, int], int] | None) -> Iterator[TextIO]:
    """A new file that replaces `output` at the end, with the same permissions unless there is an `opener`; removed after an error.

    An `output` that is not a regular file, such as a pipe, is written directly.
    """
    target = Path(os.path.realpath(output))  # a symbolic link stays
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
def delayed_interruptions() -> Iterator[None]:
    """Delay an interruption to the end of the block, which is then written whole; a second interruption is raised at once."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    received: list[int] = []

    def delay(number: int, frame: FrameType | None) -> None:
        if received:
            signal.default_int_handler(number, frame)
        received.append(number)

    signal.signal(signal.SIGINT, delay)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt


def write_pieces(stream: TextIO, pieces: Iterable[str | memoryview]) -> None:
    """Write text; a memoryview is text in UTF-8."""
    raw = getattr(stream, "buffer", None) if (stream.encoding or "").lower() == "utf-8" else None
    for piece in pieces:
        if isinstance(piece, str):
            stream.write(piece)
        elif raw is None:
            stream.write(str(piece, "utf-8"))
        else:
            stream.flush()
            raw.write(piece)


# Text for a person: lines are broken at spaces; a command has lines of its own after a prompt, ready to copy.


COMMAND_START: Final = "  $ "
"""The beginning of a line that is a command to be copied."""
_SHELL_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
_TAKES_VALUE: Final = re.compile(r"--(?!live$|deep$|hash$|whole$|partial$|explain$|all-partitions$|verbose$)[a-z-]+")
"""Options of printed commands that take a value."""
_CONTINUATION: Final = " \\"
_COMMAND: Final = re.compile(r"`(kafka-[^`\s]+ [^`]+)`([.;](?=\s|$)|$)?")
"""A command in a text. The second group exists where the command ends a sentence or a clause."""
_WORD: Final = re.compile(r"(?:`[^`]*`|\d (?:[kMGTP]?B|min|[dhs])\b|\S)+")
"""Text within which no line is broken; also a command, and an amount with its unit."""
_PATH_PART: Final = re.compile(r"[^/]*/|[^/]+")


def say(screen: Destination, lines: Iterable[str]) -> None:
    """Write `lines`, made safe: wrapped on a terminal, one line each in a pipe.

    A line that begins with COMMAND_START is a command. A command within a line gets lines of its own if it is too long for one.
    """
    for line in map(printable, lines):
        if line.startswith(COMMAND_START):
            screen.stream.writelines(f"{part}\n" for part in shown_command(line.removeprefix(COMMAND_START), screen.width))
            continue
        for part, is_command in divided_at_commands(line, screen.width, only_long=True):
            if is_command:
                parts = shown_command(part, screen.width)
            else:
                parts = broken(part, screen.width, "", "  ") if screen.stream.isatty() else [part]
            screen.stream.writelines(f"{part}\n" for part in parts)
    screen.stream.flush()


def wrapped(text: str, width: int, indent: str = "", first: str = "") -> Iterator[str]:
    """`text` in lines of at most `width` columns, the first after `first` and others after `indent`.

    A command that ends a clause or is longer than a line has lines of its own.
    """
    for part, is_command in divided_at_commands(text, width - len(indent)):
        lines = shown_command(part, width, len(indent) or 2) if is_command else broken(part, width, first, indent)
        yield from (f"{line}\n" for line in lines)
        first = indent


def divided_at_commands(text: str, width: int, *, only_long: bool = False) -> Iterator[tuple[str, bool]]:
    """Parts of `text`, and whether each is a command: one that is longer than `width`, or unless `only_long` ends a clause."""
    begin = 0
    for match in _COMMAND.finditer(text):
        if len(match[0]) > width or (match[2] is not None and not only_long):
            if before := text[begin : match.start()].strip(" :,;") if begin else text[: match.start()].rstrip(" :,;"):
                yield before + (":" if before[-1] != "." else ""), False
            yield match[1], True
            begin = match.end()
    if begin == 0 or (rest := text[begin:].lstrip(" .,;")):
        yield rest if begin else text, False


def broken(text: str, width: int, first: str, indent: str) -> list[str]:
    """`text` without regard to commands, in lines of at most `width` columns after their indents."""
    spans = line_spans(text, width - len(first), width - len(indent))
    return [f"{indent if number else first}{text[start:end]}" for number, (start, end) in enumerate(spans)]


def line_spans(text: str, first_width: int, width: int) -> Iterator[tuple[int, int]]:
    """[start, end) of each line of a text that is broken at spaces, and in longer paths at slashes."""
    start = end = 0
    available = first_width
    for word in _WORD.finditer(text):
        is_long = columns_of(word[0]) > width
        for part in _PATH_PART.finditer(text, *word.span()) if is_long else [word]:
            if end and columns_of(text[start : part.end()]) > available:
                yield start, end
                start, available = part.start(), width
            end = part.end()
    yield start, end


def columns_of(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shown_command(command: str, width: int, indent: int = len(COMMAND_START) - 2) -> list[str]:
    """A command after a prompt in column `indent`, in lines of at most `width`."""
    lines = command_lines(command, width - indent - 2)
    return [" " * indent + ("  " if number else "$ ") + line for number, line in enumerate(lines)]


def command_lines(command: str, width: int) -> list[str]:
    r"""A shell command in lines of at most `width`, with ` \` at the end of each but the last.

    An option and its value stay on one line; an argument that is longer than `width` is not broken.
    """
    arguments: list[str] = []
    for argument in _SHELL_WORD.findall(command):
        if arguments and _TAKES_VALUE.fullmatch(arguments[-1]) and not argument.startswith("--"):
            arguments[-1] += f" {argument}"
        else:
            arguments.append(argument)
    lines = [" ".join(arguments[:2])]
    for number, argument in enumerate(arguments[2:], 3):
        ending = 0 if number == len(arguments) else len(_CONTINUATION)
        if len(lines[-1]) + 1 + len(argument) + ending <= width:
            lines[-1] += f" {argument}"
        else:
            lines[-1] += _CONTINUATION
            lines.append(f"    {argument}")
    return lines


def no_copy_message(topic: str) -> str:
    """The message that the inputs have no log of an internal topic."""
    return f"no copy of {topic} is among the inputs; give the log directories of every broker, whole"


def log_to(screen: Destination, level: str = "INFO") -> None:
    """Show the log messages of the package from `level` on."""
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
def warnings_to(screen: Destination) -> Iterator[None]:
    """Show warnings of the package within a block, which may itself call `log_to`.

    Restores the handlers, as the stream may be closed later.
    """
    import logging

    logger = logging.getLogger("kafka_forensics")
    handlers, previous_level = logger.handlers, logger.level
    log_to(screen, "WARNING")
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.setLevel(previous_level)
