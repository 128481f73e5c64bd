"""Helpers of tests that run the command line."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.kept_answers import write_answers

Run = Callable[..., tuple[int, str, str]]
"""Exit status, stdout and stderr of a command line with these arguments."""


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
