"""Kafka's own jars, fetched once from Maven Central into `lab/work/` by the `mvn` client: `python -m lab.kafka_jars`."""

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
    """The directory `name`-`version` that holds what a pom lists with its dependencies; downloads it first if it is not there.

    The directory appears whole or not at all, so an interrupted download is simply begun again. Raises LabError without Maven or
    when it fails.
    """
    directory = WORK / f"{name}-{version}"
    if directory.is_dir():
        return directory
    maven = shutil.which("mvn")
    if maven is None:
        raise LabError("the laboratory needs Maven (`mvn`) to fetch Kafka")
    WORK.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(), tempfile.TemporaryDirectory(dir=WORK, prefix="fetch-") as scratch:
        if directory.is_dir():
            return directory
        target = Path(scratch) / "jars"
        asked = ["dependency:copy-dependencies", f"-Dkafka.version={version}", f"-DoutputDirectory={target}"]
        done = subprocess.run(
            [maven, "-B", "-q", "-f", str(pom), *asked],
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
def _one_at_a_time() -> Iterator[None]:
    """Keep other processes from fetching meanwhile."""
    with (WORK / "fetching").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    print(kafka_jars())
