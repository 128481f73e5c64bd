"""Workers of Spark: an unsuitable Python is an error that names what is missing, and memory stays bounded."""

import re
import shutil
import site
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafka_forensics
from tests.spark.cluster import SECONDS_OF_A_SCAN, Driver, driver, peak_memory, python_workers, wait_until
from tests.spark.repeated_logs import RepeatedLogs, moved, noisy_batch
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = SAMPLES / "unclean-election" / "broker-1"
PACKAGE = Path(kafka_forensics.__file__).parent
MAX_MEMORY_BYTES = 512 << 20
REPLICA_BYTES = 350 << 20


@pytest.fixture(scope="module")
def isolated_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver without packages on its path, whose workers run the Python of each session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        with driver(tmp_path_factory.mktemp("driver")) as made:
            yield made


def python_with(folder: Path, *places: Path) -> str:
    """The interpreter of an environment with the packages in these folders."""
    venv.create(folder / "venv", symlinks=True)
    packages = folder / "venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "elsewhere.pth").write_text("".join(f"{place}\n" for place in places))
    return str(folder / "venv" / "bin" / "python")


def without_package(folder: Path, *places: Path) -> str:
    """An interpreter with all installed packages except kafka_forensics."""
    installed = folder / "installed"
    installed.mkdir()
    for item in Path(site.getsitepackages()[0]).iterdir():
        if "kafka_forensics" not in item.name and item.suffix != ".pth":
            (installed / item.name).symlink_to(item)
    return python_with(folder, installed, *places)


def with_other_version(folder: Path) -> str:
    """An interpreter with another version of the package."""
    shutil.copytree(PACKAGE, folder / "old" / "kafka_forensics", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "old" / "kafka_forensics" / "version.py"
    source = path.read_text()
    assert f'"{kafka_forensics.__version__}"' in source
    path.write_text(source.replace(f'"{kafka_forensics.__version__}"', '"0.0.1"', 1))
    return without_package(folder, folder / "old")


def with_other_functions(folder: Path) -> str:
    """An interpreter with a version whose tasks have other functions."""
    python = with_other_version(folder)
    (folder / "old" / "kafka_forensics" / "spark" / "job.py").write_text('"""No function."""\n')
    return python


def missing_python(folder: Path) -> str:
    """An interpreter that does not exist."""
    return str(folder / "bin" / "python")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (without_package, "Spark's workers have no module kafka_forensics: install .*PYSPARK_PYTHON"),
        (python_with, "Spark's workers have no module .*PYSPARK_PYTHON"),
        (with_other_version, f"Spark's workers have kafka-forensics 0.0.1, and this is {re.escape(kafka_forensics.__version__)}$"),
        (with_other_functions, "Spark's workers cannot do the work: .*PYSPARK_PYTHON"),
        (missing_python, "Spark's workers cannot run .*/bin/python: set PYSPARK_PYTHON"),
    ],
)
def test_an_unsuitable_python_of_workers_is_reported(
    isolated_driver: Driver, tmp_path: Path, make: Callable[[Path], str], message: str
) -> None:
    isolated_driver.session("local[1]", python=make(tmp_path))
    name, text, hint = isolated_driver.scan(SAMPLE).error
    assert name == "UsageError"
    assert re.match(message, text), text
    assert "PYSPARK_PYTHON" in text + hint


def test_the_next_session_works(isolated_driver: Driver) -> None:
    isolated_driver.session("local[1]")
    assert isolated_driver.scan(SAMPLE).document


def test_python_workers_stay_below_512_mib_on_a_gib_of_small_batches(tmp_path: Path) -> None:
    batch = noisy_batch(5, 50, "none")
    count = REPLICA_BYTES // len(batch)
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=1, batches=count, batch=batch, records=5)
    logs.change(2, 0, count // 2, moved(noisy_batch(5, 50, "none", seed=2), count // 2 * 5))
    peaks: dict[int, int] = {}

    def measure() -> bool:
        for pid in python_workers(started.process.pid):
            peaks[pid] = max(peaks.get(pid, 0), peak_memory(pid))
        return started.ready()

    with driver(tmp_path / "driver") as started:
        started.session("local[2]")
        started.send_scan(*logs.log_dirs, deep=True)
        wait_until(measure, "the answer", SECONDS_OF_A_SCAN)
        measure()
        assert '"kind": "SAME_EPOCH_DIVERGENCE"' in started.take().document
    assert peaks
    assert max(peaks.values()) <= MAX_MEMORY_BYTES, [size >> 20 for size in sorted(peaks.values())]
