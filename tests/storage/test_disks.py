"""Errors name the full disk of exports, output files and temporary files."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from kafka_forensics.analysis.compaction import ROW_WIDTH
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import SourceError
from kafka_forensics.scanning.folding.keys.question import KeyRuns
from kafka_forensics.storage.disks import mounted_disk, why
from tests.support.places import SAMPLES

SAMPLE = str(SAMPLES / "unclean-election")
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def mounted(monkeypatch: pytest.MonkeyPatch, *places: Path) -> None:
    """Simulate disks that are mounted at these paths and at the root."""
    monkeypatch.setattr("kafka_forensics.storage.disks.os.path.ismount", lambda path: path in {"/", *map(str, places)})


def test_the_disk_is_named_by_its_mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounted(monkeypatch, tmp_path)
    (tmp_path / "link").symlink_to("/")
    assert mounted_disk(str(tmp_path / "not" / "there" / "yet")) == f"the disk mounted at {tmp_path}"
    assert mounted_disk(str(tmp_path / "link")) == "the disk mounted at /"
    assert why(NO_SPACE, str(tmp_path / "x")) == f"No space left on device: the disk mounted at {tmp_path} is full"
    assert why(PermissionError(errno.EACCES, "Permission denied"), str(tmp_path)) == "Permission denied"


def test_the_error_of_an_export_names_the_full_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mounted(monkeypatch, tmp_path)

    def full(_: int) -> None:
        raise NO_SPACE

    monkeypatch.setattr("kafka_forensics.export.target.os.fsync", full)
    assert outcome(["export", SAMPLE, "--output", str(tmp_path / "out"), "-q"]) == 2
    output = capsys.readouterr().err
    assert f"cannot write to {tmp_path}/out: No space left on device: the disk mounted at {tmp_path} is full\n" in output
    assert "make room there" in output


def test_the_error_of_an_output_file_names_the_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["scan", SAMPLE, "-q", "--format", "json", "--output", "/dev/full"]) == 2
    assert "error: cannot write to /dev/full: No space left on device: the disk mounted at " in capsys.readouterr().err


def test_the_error_of_temporary_files_names_the_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounted(monkeypatch, tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("kafka_forensics.scanning.folding.keys.question.tempfile.TemporaryFile", Mock(side_effect=NO_SPACE))
    rows = np.arange(64 * ROW_WIDTH, dtype=np.int64).reshape(-1, ROW_WIDTH)
    expected = f": no room for a temporary file in {tmp_path} (TMPDIR names another): No space left on device: the disk mounted at"
    with KeyRuns(capacity=16) as sorted_rows, pytest.raises(SourceError) as caught:
        sorted_rows.add(rows)
    assert str(caught.value).startswith(expected)
