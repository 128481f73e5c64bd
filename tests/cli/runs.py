"""Helpers of tests that run the command line."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.kept_answers import write_answers

COMMAND = re.compile(r"`(kafka-forensics [^`]+)`|\$ (kafka-forensics (?:.*\\\n)*.*)")

Run = Callable[..., tuple[int, str, str]]
"""Exit status, stdout and stderr of a command line with these arguments."""


def printed_commands(text: str) -> Iterator[str]:
    """The commands in an output, each joined to one line."""
    for inline, on_new_line in COMMAND.findall(text):
        yield (inline or on_new_line).replace("\\\n", " ")


def rows(run: Run, *arguments: object) -> list[dict[str, Any]]:
    _, out, _ = run(*arguments, "--format", "json")
    parsed: list[dict[str, Any]] = json.loads(out)
    return parsed


def assert_golden(name: str, actual: list[dict[str, Any]]) -> None:
    """Compare rows with those of this name in `rows.json`. After a change: set KEEP_ROWS=1, and read the difference."""
    path = Path(__file__).with_name("rows.json")
    golden = json.loads(path.read_text()) if path.exists() else {}
    if os.environ.get("KEEP_ROWS"):
        golden[name] = actual
        write_answers(path, golden, depth=3)
    assert actual == golden[name]
