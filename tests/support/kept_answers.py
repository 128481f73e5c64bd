"""Writes the JSON files of expected answers: one finding, one partition or one replica's plan per line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH = 120


def write_answers(path: Path, answers: Mapping[str, Any], *, depth: int) -> None:
    """Write an answer below each name; values nested deeper than `depth`, and short values, are written on one line."""
    path.write_text(_json_lines(answers, depth, "", "") + "\n")


def _json_lines(value: Any, depth: int, indent: str, name: str) -> str:
    line = f"{indent}{name}{json.dumps(value)}"
    if not value or not isinstance(value, dict | list) or not depth or (indent and len(line) < WIDTH):
        return line
    deeper = f"{indent} "
    if isinstance(value, dict):
        items = [_json_lines(item, depth - 1, deeper, f"{json.dumps(key)}: ") for key, item in value.items()]
        return f"{indent}{name}{{\n" + ",\n".join(items) + f"\n{indent}}}"
    items = [_json_lines(item, depth - 1, deeper, "") for item in value]
    return f"{indent}{name}[\n" + ",\n".join(items) + f"\n{indent}]"
