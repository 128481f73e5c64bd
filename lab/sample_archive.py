"""Packs `sample_logs/` as one archive of the package, which `demo` unpacks: `python -m lab.sample_archive`.

Files of the same name follow each other, because those of several brokers are similar and so compress well. The archive is
reproducible.
"""

import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafka_forensics.cli.commands.demo import ARCHIVE

SAMPLE_LOGS: Final = Path(__file__).resolve().parents[1] / "sample_logs"
EXCLUDED: Final = ".gitattributes"


def files(samples: Path = SAMPLE_LOGS) -> Iterator[tuple[str, bytes]]:
    """(path below `samples`, content) of each file, files of the same name together."""
    paths = [path for path in samples.rglob("*") if path.is_file() and path.name != EXCLUDED]
    for path in sorted(paths, key=lambda path: (path.name, path.parent.name, path)):
        yield path.relative_to(samples).as_posix(), path.read_bytes()


def write_archive(archive: Path = ARCHIVE, samples: Path = SAMPLE_LOGS) -> None:
    """Write the archive into the package."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in files(samples):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    write_archive()
