"""Workers of Spark whose Python cannot do the work: an error that says what is missing, and no answer."""

import shutil
import site
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_forensics
from tests.support.spark_cluster import Driver, driver

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election" / "broker-1"
PACKAGE = Path(kafka_forensics.__file__).parent


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver whose sessions run whichever Python they are told."""
    with driver(tmp_path_factory.mktemp("driver")) as made:
        yield made


def python_with(folder: Path, *places: Path | str) -> str:
    """An interpreter of an environment that finds what is in these places and nothing else."""
    venv.create(folder, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "elsewhere.pth").write_text("".join(f"{place}\n" for place in places))
    return str(folder / "bin" / "python")


def dependencies(folder: Path) -> Path:
    """A place with everything that is installed here but kafka_forensics."""
    folder.mkdir()
    for item in Path(site.getsitepackages()[0]).iterdir():
        if "kafka_forensics" not in item.name and item.suffix != ".pth":
            (folder / item.name).symlink_to(item)
    return folder


def refused(asked: Driver, python: str) -> tuple[str, str, str]:
    """The error that a scan ends with when workers run this Python."""
    asked.session("local[1]", python=python)
    return asked.scan(SAMPLE).error


def test_workers_without_the_package(asked: Driver, tmp_path: Path) -> None:
    name, text, hint = refused(asked, python_with(tmp_path / "venv", dependencies(tmp_path / "installed")))
    assert (name, text) == ("UsageError", "Spark's workers have no module kafka_forensics")
    assert "PYSPARK_PYTHON" in hint


def test_workers_without_what_the_package_needs(asked: Driver, tmp_path: Path) -> None:
    name, text, hint = refused(asked, python_with(tmp_path / "venv"))
    assert name == "UsageError"
    assert text.startswith("Spark's workers have no module ")
    assert "PYSPARK_PYTHON" in hint


def other_version(folder: Path) -> Path:
    """A place with the package as of another version."""
    shutil.copytree(PACKAGE, folder / "kafka_forensics", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "kafka_forensics" / "version.py"
    source = path.read_text()
    assert f'"{kafka_forensics.__version__}"' in source
    path.write_text(source.replace(f'"{kafka_forensics.__version__}"', '"0.0.1"', 1))
    return folder


def test_workers_with_another_version_of_the_package(asked: Driver, tmp_path: Path) -> None:
    python = python_with(tmp_path / "venv", dependencies(tmp_path / "installed"), other_version(tmp_path / "old"))
    name, text, hint = refused(asked, python)
    assert name == "UsageError"
    assert text == f"Spark's workers have kafka-forensics 0.0.1, and this is {kafka_forensics.__version__}"
    assert "install" in hint


def test_workers_with_a_version_that_knows_no_spark(asked: Driver, tmp_path: Path) -> None:
    old = other_version(tmp_path / "old")
    shutil.rmtree(old / "kafka_forensics" / "spark")
    name, text, _ = refused(asked, python_with(tmp_path / "venv", dependencies(tmp_path / "installed"), old))
    assert (name, text) == ("UsageError", "Spark's workers have no module kafka_forensics.spark")


def test_workers_with_a_version_whose_steps_differ(asked: Driver, tmp_path: Path) -> None:
    old = other_version(tmp_path / "old")
    (old / "kafka_forensics" / "spark" / "job.py").write_text('"""Nothing that is asked for."""\n')
    name, text, _ = refused(asked, python_with(tmp_path / "venv", dependencies(tmp_path / "installed"), old))
    assert name == "UsageError"
    assert text.startswith("Spark's workers cannot do the work: ")


def test_workers_whose_python_is_not_there(asked: Driver, tmp_path: Path) -> None:
    python = str(tmp_path / "bin" / "python")
    name, text, hint = refused(asked, python)
    assert name == "UsageError"
    assert python in text
    assert "PYSPARK_PYTHON" in hint


def test_the_next_session_is_fine_again(asked: Driver) -> None:
    asked.session("local[1]")
    assert asked.scan(SAMPLE).document
