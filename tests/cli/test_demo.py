"""`demo` writes all samples, only to a new or empty directory, and prints commands that run."""

import re
import shlex
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka_forensics.cli.commands.demo import ARCHIVE, TO_RUN
from lab.sample_archive import files, write_archive
from tests.cli.runs import Run

HINT = "hint: choose a directory that is empty or does not exist yet"


def printed_commands(out: str) -> list[str]:
    return re.findall(r"^    (kafka-forensics .+)$", out, re.MULTILINE)


def test_the_archive_holds_exactly_the_samples_and_is_small(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archived = {member.name: stream.read() for member in archive if (stream := archive.extractfile(member)) is not None}
    assert archived == dict(files()), "make it again: python -m lab.sample_archive"
    assert {"README.md", "expected.json", "silent-divergence/broker-1/ledger-0/00000000000000000000.log"} <= archived.keys()
    assert ARCHIVE.stat().st_size < 80 << 10
    write_archive(tmp_path / "a.tar.gz")
    write_archive(tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


@pytest.mark.parametrize("exists", [False, True])
def test_demo_writes_all_samples(exists: bool, run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "samples"
    if exists:
        directory.mkdir()
    status, out, err = run("demo", directory)
    assert (status, err) == (0, "")
    assert {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()} == dict(
        files()
    )
    assert out.startswith(f"{len(dict(files()))} files of four clusters are in {directory}. What to run:\n")


@pytest.mark.parametrize("name", ["samples", "a $HOME 'b'", "-x", "ünder"])
def test_printed_commands_run(name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = run("demo", "--", name)
    lines = printed_commands(out)
    assert len(lines) == sum(len(commands) for _, commands in TO_RUN)
    for line in lines if name == "samples" else lines[:1]:
        _, *arguments = shlex.split(line)
        status, answer, err = run(*arguments)
        has_loss = arguments[0] in ("scan", "compare") and "healthy" not in arguments[1]
        assert (status, bool(answer)) == (int(has_loss), True), (line, err)


@pytest.mark.parametrize(
    ("directory", "message"),
    [
        ("file", f"error: file is a file, and DIR names a directory\n{HINT}\n"),
        (
            "a/b",
            "error: cannot write to a/b: its directory does not exist\nhint: create that directory first, or choose another path\n",
        ),
        ("-", f"error: DIR - is not a directory\n{HINT}; for a directory with that name give ./-\n"),
        (".", f"error: . is not empty: it holds .hidden\n{HINT}\n"),
    ],
)
def test_only_a_new_or_empty_directory_is_accepted(
    directory: str, message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / ".hidden").touch()
    assert run("demo", directory) == (2, "", message)
    assert {path.name for path in tmp_path.iterdir()} == {"file", ".hidden"}


def test_a_full_disk_is_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", Mock(side_effect=OSError(28, "No space left on device")))
    status, out, err = run("demo", tmp_path / "new")
    assert (status, out) == (2, "")
    assert err.startswith(f"error: cannot write to {tmp_path / 'new'}: No space left on device: the disk mounted at ")
