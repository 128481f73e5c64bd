"""A scan of local files opens nothing for writing, starts no program and connects to no network."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.cli.runs import Run
from tests.support.places import SAMPLES

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
FORBIDDEN = ("os.mkdir", "os.rename", "os.remove", "os.symlink", "tempfile", "socket.connect", "socket.getaddrinfo", "subprocess")
SEEN: list[str] | None = None
"""Forbidden events of this process, while a test records them."""


def _record(event: str, arguments: tuple[object, ...]) -> None:
    if SEEN is None:
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
    if writes or event.startswith(FORBIDDEN):
        SEEN.append(f"{event} {arguments[0]!r}")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the test did that a scan must not do."""
    events: list[str] = []
    sys.addaudithook(_record)
    monkeypatch.setattr(sys.modules[__name__], "SEEN", events)
    return events


def test_forbidden_events_are_recorded(tmp_path: Path, seen: list[str]) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").write_text("x")
    assert [event.split()[0] for event in seen] == ["os.mkdir", "open"]


@pytest.mark.parametrize("archive", ["tar", "gztar", "xztar", None])
def test_a_scan_writes_no_file_and_connects_to_nothing(
    archive: str | None, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Modules are imported by an earlier scan; nothing is compiled, because that writes to the cache of kernels."""
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "interpreted")
    evidence = SAMPLES / "unclean-election"
    if archive is not None:
        evidence = Path(shutil.make_archive(str(tmp_path / "copies"), archive, evidence))
    assert outcome(["scan", str(evidence), "--deep", "--jobs", "1", "-q"]) == 1
    seen: list[str] = request.getfixturevalue("seen")
    status, out, _ = run("scan", evidence, "--deep", "--jobs", "1", "--format", "json", "-q")
    assert (status, "UNCLEAN_LOSS" in out, seen) == (1, True, [])
