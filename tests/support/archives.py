"""Archives of real brokers' log directories: which ship with the tests, and their members, one at a time, in memory."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

SHIPPED: Final = Path(__file__).resolve().parents[1] / "archives"
"""Those that every clone has; all others are in the corpora."""


def of_brokers(*names: str) -> list[Any]:
    """Names of archives (with or without `.tar.xz`) as parameters; those that do not ship are of the group `corpora`."""
    there = {path.name.removesuffix(".tar.xz") for path in SHIPPED.glob("*.tar.xz")}
    return [
        pytest.param(name, marks=() if name.removesuffix(".tar.xz") in there else pytest.mark.corpora, id=name) for name in names
    ]


def members(archive: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the regular members whose whole name matches `pattern`, in archive order."""
    with tarfile.open(archive, "r:*") as opened:
        for member in opened:
            if member.isfile() and re.fullmatch(pattern, member.name):
                content = opened.extractfile(member)
                assert content is not None
                yield member.name, content.read()
