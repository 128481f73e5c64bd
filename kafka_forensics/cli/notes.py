"""What commands say beside their answer: lines on stderr, on a terminal in its columns, in a pipe a line each."""

import re
from collections.abc import Iterable
from textwrap import wrap
from typing import Final

from kafka_forensics.cli.safe_text import printable
from kafka_forensics.cli.streams import Destination

_GLUE: Final = "\xa0"
_TOGETHER: Final = re.compile(r"`[^`]*`|\d (?=\w)")
"""Spaces at which no line is broken: in commands, and between a number and what it counts."""


def say(screen: Destination, lines: Iterable[str]) -> None:
    """Write `lines`, whatever evidence is in them, to a terminal or a pipe."""
    shown = map(printable, lines)
    told = wrapped(shown, screen.width) if screen.stream.isatty() else shown
    screen.stream.writelines(line + "\n" for line in told)
    screen.stream.flush()


def absent(topic: str) -> str:
    """That the log of an internal topic is not there, which a command would answer from."""
    return f"no copy of {topic} is among the inputs; give the log directories of every broker, whole"


def wrapped(lines: Iterable[str], width: int) -> list[str]:
    """`lines` broken at spaces to `width` columns, what goes on indented; words wider than that stay whole."""
    return [piece.replace(_GLUE, " ") for line in lines for piece in _pieces(line, width) or [""]]


def _pieces(line: str, width: int) -> list[str]:
    glued = _TOGETHER.sub(lambda found: found[0].replace(" ", _GLUE), line)
    return wrap(glued, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
