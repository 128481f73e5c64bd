"""Where words go: data to stdout or a file, everything else to stderr; and whether there is a terminal at the end."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from kafka_forensics.cli.choices import choose
from kafka_forensics.cli.options import FORMATS
from kafka_forensics.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH: Final = 80
"""Columns where no terminal says how many there are."""
_FORMAT_OF_ENDING: Final = {".json": "json", ".jsonl": "jsonl", ".md": "markdown", ".tsv": "tsv", ".txt": "table"}

_URI: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE)
"""As a path has it, in which two slashes are one."""


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
            force_terminal=self.stream.isatty(),
            legacy_windows=False,
            markup=False,
            highlight=False,
            emoji=False,
            soft_wrap=False,
        )


def destination(stream: TextIO, *, no_color: bool) -> Destination:
    """`stream` as it is: a terminal's own width, else `COLUMNS` or 80; colours only on a terminal that shows them."""
    colour = stream.isatty() and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Destination(stream, max(40, shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns), colour)


@contextmanager
def open_output(output: Path | None, *, no_color: bool) -> Iterator[Destination]:
    """stdout, or the file `output`. Raises UsageError if the file cannot be written."""
    if output is None:
        yield destination(sys.stdout, no_color=no_color)
        sys.stdout.flush()
        return
    try:
        with output.open("w", encoding="utf-8", newline="\n") as stream:
            yield destination(stream, no_color=True)
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}") from error


def check_output(output: Path | None, inputs: list[str]) -> None:
    """Raise UsageError early if `output` cannot be written, or would write into the evidence at `inputs`."""
    if output is None:
        return
    uri = _URI.match(str(output))
    if uri is not None and not output.parent.is_dir():
        hint = "write a file here and copy it there; only datasets of `kafka-forensics export` can go to a URI at once"
        raise UsageError(f"cannot write to {uri[1]}://{uri[2]}: --output is a file of this machine", hint=hint)
    if output.is_dir() or not output.parent.is_dir():
        raise UsageError(
            f"cannot write to {output}: " + ("it is a directory" if output.is_dir() else "its directory does not exist")
        )
    from kafka_forensics.storage.open import refuse_output_inside

    refuse_output_inside(str(output), [path for given in inputs for path in (given, given.partition("=")[2]) if path])


def chosen_format(name: str | None, output: Path | None) -> str:
    """The format asked for, or what fits the destination. Raises UsageError for an unknown one."""
    if name is not None:
        return choose("format", name, FORMATS)
    if output is not None:
        ending = output.suffix.lower()
        if ending and ending not in _FORMAT_OF_ENDING:
            known = ", ".join(f"{each} ({meant})" for each, meant in _FORMAT_OF_ENDING.items())
            raise UsageError(f"no format goes with the ending {ending} of {output}", hint=f"give --format, or one of {known}")
        return _FORMAT_OF_ENDING.get(ending, "tsv")
    return "table" if sys.stdout.isatty() else "tsv"
