"""Fetches Kafka's jars once from Maven Central into `lab/work/` with `mvn`: `python -m lab.kafka_jars`."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.errors import LabError

KAFKA_VERSION: Final = "4.3.0"
LAB: Final = Path(__file__).resolve().parent
WORK: Final = LAB / "work"
FETCH_TIMEOUT_SECONDS: Final = 600


def kafka_jars(version: str = KAFKA_VERSION, pom: Path = LAB / "pom.xml", name: str = "kafka") -> Path:
    """The directory `name`-`version` with the jars of a pom and its dependencies; downloads them if it does not exist.

    The directory is renamed into place after the download, so an interrupted download starts again. Raises LabError without Maven
    or if it fails.
    """
    directory = WORK / f"{name}-{version}"
    if directory.is_dir():
        return directory
    maven = shutil.which("mvn")
    if maven is None:
        raise LabError("the laboratory needs Maven (`mvn`) to fetch Kafka")
    WORK.mkdir(parents=True, exist_ok=True)
    with _download_lock(), tempfile.TemporaryDirectory(dir=WORK, prefix="fetch-") as scratch:
        if directory.is_dir():
            return directory
        target = Path(scratch) / "jars"
        goal = ["dependency:copy-dependencies", f"-Dkafka.version={version}", f"-DoutputDirectory={target}"]
        done = subprocess.run(
            [maven, "-B", "-q", "-f", str(pom), *goal],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0 or not target.is_dir():
            raise LabError(f"Maven could not fetch Kafka {version}: {(done.stdout + done.stderr)[-1000:]}")
        target.rename(directory)
    return directory


@contextmanager
def _download_lock() -> Iterator[None]:
    """Keep other processes from downloading at the same time."""
    with (WORK / "fetching").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    print(kafka_jars())
