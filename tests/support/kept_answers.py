"""Answers that tests compare whole, as they are kept in JSON files: one finding, one partition, one replica's plan per line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH = 120


def write_answers(path: Path, answers: Mapping[str, Any], *, depth: int) -> None:
    """Write an answer below each name; what is nested deeper than `depth` stands on one line, and so does what is short."""
    path.write_text(_laid_out(answers, depth, "", "") + "\n")


def _laid_out(value: Any, depth: int, indent: str, name: str) -> str:
    line = f"{indent}{name}{json.dumps(value)}"
    if not value or not isinstance(value, dict | list) or not depth or (indent and len(line) < WIDTH):
        return line
    deeper = f"{indent} "
    if isinstance(value, dict):
        items = [_laid_out(item, depth - 1, deeper, f"{json.dumps(key)}: ") for key, item in value.items()]
        return f"{indent}{name}{{\n" + ",\n".join(items) + f"\n{indent}}}"
    items = [_laid_out(item, depth - 1, deeper, "") for item in value]
    return f"{indent}{name}[\n" + ",\n".join(items) + f"\n{indent}]"
