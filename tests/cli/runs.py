"""Running the command line by a fixture."""

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., tuple[int, str, str]]
"""Exit status, stdout and stderr of a command line with these arguments."""


def rows(run: Run, *arguments: object) -> list[dict[str, Any]]:
    _, out, _ = run(*arguments, "--format", "json")
    found: list[dict[str, Any]] = json.loads(out)
    return found
