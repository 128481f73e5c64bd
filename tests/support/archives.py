"""Archives of real brokers' log directories: which of them ship with the tests, and their members, read into memory one at a
time."""

import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.places import ROOT

SHIPPED: Final = ROOT / "tests" / "archives"
"""The folder of the archives that every clone has; all others are in the corpora."""

BROKER_ARCHIVES: Final = (
    *("kafka-0.10.2.2-hw-divergence", "kafka-0.10.2.2-hw-truncation", "kafka-4.3.0-clean-end"),
    *("kafka-4.3.0-healthy", "kafka-4.3.0-lag", "kafka-4.3.0-unclean", "public-five-brokers"),
)
"""Archives of brokers' log directories."""
ALL_ARCHIVES: Final = (*BROKER_ARCHIVES, "public-magic0-golden")
"""All archives; the last holds only segments, of message format 0."""


def archive_params(*names: str, nightly: Sequence[str] = ()) -> list[Any]:
    """Names of archives (with or without `.tar.xz`) as pytest parameters.

    Archives that do not ship are marked `corpora`; those named in `nightly` run only in `make nightly`.
    """
    shipped = {path.name.removesuffix(".tar.xz") for path in SHIPPED.glob("*.tar.xz")}
    params = []
    for name in names:
        bare = name.removesuffix(".tar.xz")
        marks = [] if bare in shipped else [pytest.mark.corpora]
        params.append(pytest.param(name, marks=[*marks, pytest.mark.nightly] if bare in nightly else marks, id=name))
    return params


def archive_members(archive: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the regular members whose whole name matches `pattern`, in archive order."""
    with tarfile.open(archive, "r:*") as opened:
        for member in opened:
            if member.isfile() and re.fullmatch(pattern, member.name):
                content = opened.extractfile(member)
                assert content is not None
                yield member.name, content.read()
