"""Members of the corpora's archives, one at a time, in memory."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path


def members(archive: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the regular members whose whole name matches `pattern`, in archive order."""
    with tarfile.open(archive, "r:*") as opened:
        for member in opened:
            if member.isfile() and re.fullmatch(pattern, member.name):
                content = opened.extractfile(member)
                assert content is not None
                yield member.name, content.read()
