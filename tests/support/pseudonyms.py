"""Texts with pseudonyms, read back by the map they are of."""

import json
from collections.abc import Mapping
from pathlib import Path

from kafka_forensics.model.pseudonyms import PSEUDONYM

Names = Mapping[str, tuple[str, str]]
"""Pseudonym → (kind, name), as `PseudonymMap` takes it."""


def names_of(path: Path) -> dict[str, tuple[str, str]]:
    """What the file of a map holds."""
    rows = json.loads(path.read_text())["names"]
    return {pseudonym: (row["kind"], row["name"]) for pseudonym, row in rows.items()}


def read_back(text: str, names: Names) -> str:
    """`text` with the names that its pseudonyms stand for, as far as the map holds them."""
    return PSEUDONYM.sub(lambda match: names[match[0]][1] if match[0] in names else match[0], text)
