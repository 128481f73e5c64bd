"""Workers of Spark: a Python that cannot do the work is an error that says what is missing; what they hold stays small."""

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
MOST_BYTES = 512 << 20
REPLICA_BYTES = 350 << 20


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver whose sessions run whichever Python they are told, and whose environment names no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        with driver(tmp_path_factory.mktemp("driver")) as made:
            yield made


def python_with(folder: Path, *places: Path) -> str:
    """An interpreter of an environment that finds what is in these places and nothing else."""
    venv.create(folder / "venv", symlinks=True)
    packages = folder / "venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "elsewhere.pth").write_text("".join(f"{place}\n" for place in places))
    return str(folder / "venv" / "bin" / "python")


def without_package(folder: Path, *places: Path) -> str:
    """One with everything that is installed here but kafka_forensics."""
    installed = folder / "installed"
    installed.mkdir()
    for item in Path(site.getsitepackages()[0]).iterdir():
        if "kafka_forensics" not in item.name and item.suffix != ".pth":
            (installed / item.name).symlink_to(item)
    return python_with(folder, installed, *places)


def with_other_version(folder: Path) -> str:
    """One with the package as of another version."""
    shutil.copytree(PACKAGE, folder / "old" / "kafka_forensics", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "old" / "kafka_forensics" / "version.py"
    source = path.read_text()
    assert f'"{kafka_forensics.__version__}"' in source
    path.write_text(source.replace(f'"{kafka_forensics.__version__}"', '"0.0.1"', 1))
    return without_package(folder, folder / "old")


def with_other_steps(folder: Path) -> str:
    """One with a version whose steps differ."""
    python = with_other_version(folder)
    (folder / "old" / "kafka_forensics" / "spark" / "job.py").write_text('"""Nothing that is asked for."""\n')
    return python


def nowhere(folder: Path) -> str:
    """One that is not there."""
    return str(folder / "bin" / "python")


@pytest.mark.parametrize(
    ("make", "words", "hint"),
    [
        (without_package, "Spark's workers have no module kafka_forensics$", "PYSPARK_PYTHON"),
        (python_with, "Spark's workers have no module ", "PYSPARK_PYTHON"),
        (
            with_other_version,
            f"Spark's workers have kafka-forensics 0.0.1, and this is {re.escape(kafka_forensics.__version__)}$",
            "install",
        ),
        (with_other_steps, "Spark's workers cannot do the work: ", ""),
        (nowhere, ".*/bin/python", "PYSPARK_PYTHON"),
    ],
)
def test_workers_with_an_unfit_python(asked: Driver, tmp_path: Path, make: Callable[[Path], str], words: str, hint: str) -> None:
    asked.session("local[1]", python=make(tmp_path))
    name, text, hinted = asked.scan(SAMPLE).error
    assert name == "UsageError"
    assert re.match(words, text), text
    assert hint in hinted


def test_the_next_session_is_fine_again(asked: Driver) -> None:
    asked.session("local[1]")
    assert asked.scan(SAMPLE).document


def test_python_workers_stay_below_512_mib_on_a_gib_of_small_batches(tmp_path: Path) -> None:
    one = noisy_batch(5, 50, "none")
    count = REPLICA_BYTES // len(one)
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=1, batches=count, batch=one, records=5)
    logs.change(2, 0, count // 2, moved(noisy_batch(5, 50, "none", seed=2), count // 2 * 5))
    peaks: dict[int, int] = {}

    def seen() -> bool:
        for pid in python_workers(fresh.process.pid):
            peaks[pid] = max(peaks.get(pid, 0), peak_memory(pid))
        return fresh.ready()

    with driver(tmp_path / "driver") as fresh:
        fresh.session("local[2]")
        fresh.send_scan(*logs.log_dirs, deep=True)
        wait_until(seen, "the answer", SECONDS_OF_A_SCAN)
        seen()
        assert '"kind": "SAME_EPOCH_DIVERGENCE"' in fresh.take().document
    assert peaks
    assert max(peaks.values()) <= MOST_BYTES, [size >> 20 for size in sorted(peaks.values())]
