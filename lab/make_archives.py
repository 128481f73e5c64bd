"""Puts archives of real brokers' log directories into `tests/archives/`: `python -m lab.make_archives FOLDER [NAME…]`.

FOLDER holds for each name of `ARCHIVES` a tree of that name, as the laboratory copies brokers' directories, or an archive packed
from one. Their content is not edited. An archive is stored only if it is small and a scan of it has the expected findings.
"""

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import Final

from kafka_forensics.model.json_objects import Json
from lab.errors import LabError
from lab.kafka_jars import LAB
from lab.make_samples import expected, shortfalls

TESTS_ARCHIVES: Final = LAB.parent / "tests" / "archives"
MOST_BYTES: Final = 1 << 20
"""Limit of an archive's size, because every clone of the repository downloads it."""
_TAR: Final = ("tar", "--create", "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner")


def _place(kind: str, topic: str, start: int, end: int, *held_by: int) -> Json:
    place = {"kind": kind, "topic": topic, "partition": 0}
    return place | {"offset_start": start, "offset_end": end, "held_by": list(held_by)}


ARCHIVES: Final[dict[str, Json]] = {
    "kafka-4.3.0-healthy": expected(0),
    "kafka-4.3.0-unclean": expected(1, _place("UNCLEAN_LOSS", "audit", 300, 370, 2)),
    "kafka-0.10.2.2-hw-divergence": expected(1, _place("FORK_BELOW_HW", "ledger", 0, 3)),
    "kafka-0.10.2.2-hw-truncation": expected(1, _place("FORK_BELOW_HW", "ledger", 0, 10, 1, 2)),
}
"""Name → the findings that a scan must have; all others must be `info`."""


def pack(tree: Path, archive: Path) -> None:
    """Pack a tree of brokers' directories with its holes and without the owners of files. Raises LabError."""
    with archive.open("wb") as target:
        tar = subprocess.Popen([*_TAR, f"--directory={tree.parent}", tree.name], stdout=subprocess.PIPE)
        with tar:
            subprocess.run(["xz", "-9e", "--stdout"], stdin=tar.stdout, stdout=target, check=True)
    if tar.returncode:
        raise LabError(f"tar ended with {tar.returncode} on {tree}")


def put(folder: Path, name: str, into: Path = TESTS_ARCHIVES) -> Path:
    """Replace an archive. Raises LabError, and changes nothing, if it is too large or a scan has other findings than expected."""
    into.mkdir(parents=True, exist_ok=True)
    new = into / f".{name}.new.tar.xz"
    try:
        if (folder / name).is_dir():
            pack(folder / name, new)
        else:
            shutil.copyfile(folder / f"{name}.tar.xz", new)
        if new.stat().st_size > MOST_BYTES:
            raise LabError(f"{name} has {new.stat().st_size:,} bytes, and may have {MOST_BYTES:,}: leave out whole topics")
        if wrong := shortfalls(new, ARCHIVES[name]):
            raise LabError(f"a scan of {name} is not as it must be: {'; '.join(wrong)}")
        return new.replace(into / f"{name}.tar.xz")
    finally:
        new.unlink(missing_ok=True)


def main() -> None:
    """Replace the archives on the command line, and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds trees or archives of these names")
    parser.add_argument("name", nargs="*", help=f"{', '.join(ARCHIVES)} (default: all)")
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(ARCHIVES):
        parser.error(f"no such archive: {', '.join(sorted(unknown))}")
    for name in arguments.name or ARCHIVES:
        print(f"{name}: {put(arguments.folder, name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
