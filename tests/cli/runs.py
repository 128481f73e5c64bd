"""Helpers for tests that run the command line by a fixture."""

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
    found: list[dict[str, Any]] = json.loads(out)
    return found


def assert_as_kept(name: str, found: list[dict[str, Any]]) -> None:
    """Rows are those that `rows.json` has by this name. After a change: KEEP_ROWS=1, and read the difference."""
    path = Path(__file__).with_name("rows.json")
    kept = json.loads(path.read_text()) if path.exists() else {}
    if os.environ.get("KEEP_ROWS"):
        kept[name] = found
        write_answers(path, kept, depth=3)
    assert found == kept[name]
