"""The file of `make bundle-tool` runs on a machine that has only Python, and refuses another Python."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from kafka_forensics.version import __version__
from tests.support.places import ROOT, SAMPLES

SAMPLE = SAMPLES / "unclean-election"
PREAMBLE = ROOT / "lab" / "bundle_tool_preamble.py"
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = sorted(
    {os.path.realpath(found) for found in (sys.executable, shutil.which(NAME, path="/usr/bin:/usr/local/bin")) if found}
)
"""This Python and the system's of the same version, outside of virtual environments."""
MADE_FOR = EXTENSION_SUFFIXES[0].lstrip(".")


@dataclass(frozen=True, slots=True)
class Tool:
    """The file, and the home directory into which it unpacks itself."""

    path: Path
    home: Path

    def command(self, *arguments: str | Path, python: str | Path = PYTHONS[0]) -> list[str | Path]:
        """The command line, without site-packages of that Python."""
        return [python, "-I", "-S", self.path, *arguments]

    def run(self, *arguments: str | Path, python: str | Path = PYTHONS[0], status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments, python=python),
            env={"HOME": "/nowhere", "SHIV_ROOT": str(self.home / ".shiv")},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    dist = tmp_path_factory.mktemp("dist")
    command = ["make", "bundle-tool", f"VENV={sys.prefix}", f"DIST={dist}", f"--old-file={sys.prefix}/.installed"]
    subprocess.run(command, cwd=ROOT, check=True)
    [path] = dist.iterdir()
    return Tool(path, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def unpacked(tool: Tool) -> Tool:
    """The tool after two processes ran it for the first time, concurrently."""
    processes = [
        subprocess.Popen(
            tool.command("--version"), env={"HOME": str(tool.home)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ends = [(*process.communicate(timeout=300), process.returncode) for process in processes]
    assert [(out.splitlines()[0], err, status) for out, err, status in ends] == [(f"kafka-forensics {__version__}", "", 0)] * 2
    return tool


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_two_concurrent_first_runs_unpack_one_tree(unpacked: Tool) -> None:
    assert [path.name.startswith(f"{unpacked.path.name}_") for path in (unpacked.home / ".shiv").glob("[!.]*")] == [True]
    assert [path.name for path in unpacked.home.iterdir()] == [".shiv"]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", PYTHONS)
def test_a_scan_prints_what_the_installed_package_prints(python: str, unpacked: Tool) -> None:
    arguments = ["scan", "--jobs", "2", str(SAMPLE.relative_to(ROOT))]
    installed = subprocess.run(
        [sys.executable, "-m", "kafka_forensics", *arguments],
        env={"HOME": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    scanned = unpacked.run(*arguments, python=python, status=1)
    assert "UNCLEAN_LOSS" in scanned.stdout
    assert (scanned.stdout, scanned.stderr) == (installed.stdout, installed.stderr)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_collect_and_other_commands_find_their_libraries(unpacked: Tool, tmp_path: Path) -> None:
    bundles = [tmp_path / f"{directory.name}.kfb" for directory in sorted(SAMPLE.iterdir())]
    for bundle in bundles:
        unpacked.run("collect", SAMPLE / bundle.stem, "--output", bundle)
    scanned = json.loads(unpacked.run("scan", "--format", "json", *bundles, status=1).stdout)
    assert "UNCLEAN_LOSS" in {finding["kind"] for finding in scanned["findings"]}
    rows = [line.split("\t") for line in unpacked.run("doctor", "--format", "tsv").stdout.splitlines()]
    assert [row for row in rows if "broken" in row and row[0] not in ("java", "spark")] == []
    unpacked.run("export", SAMPLE, "--output", tmp_path / "facts")
    unpacked.run("report", SAMPLE, "--output", tmp_path / "report.html")


@pytest.mark.parametrize(
    ("made_for", "status"),
    [
        (MADE_FOR, 0),
        ("cpython-310-x86_64-linux-gnu.so", 2),
        (MADE_FOR.replace("-", "-1", 1), 2),
        (f"cpython-{sys.version_info.major}{sys.version_info.minor}-s390x-linux-gnu.so", 2),
    ],
)
def test_the_preamble_refuses_another_python_or_system(made_for: str, status: int, tmp_path: Path) -> None:
    for path in (tmp_path / "bin", tmp_path / "numpy" / "_core"):
        path.mkdir(parents=True)
    (tmp_path / "numpy" / "_core" / f"_multiarray_umath.{made_for}").touch()
    preamble = shutil.copy(PREAMBLE, tmp_path / "bin")
    done = subprocess.run([sys.executable, "-I", preamble], capture_output=True, text=True, check=False)
    assert done.returncode == status
    if status:
        error, hint = done.stderr.splitlines()
        assert error == f"error: this file is made for {made_for}, and {sys.executable} loads {MADE_FOR}"
        assert hint.startswith("hint: run it with that version of Python")
    else:
        assert done.stderr == ""
