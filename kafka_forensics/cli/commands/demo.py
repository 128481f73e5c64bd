"""`demo`: the samples, written from the package, and what to run on them."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import printable
from kafka_forensics.errors import UsageError
from kafka_forensics.storage.disks import why

ARCHIVE: Final = Path(__file__).with_name("samples.tar.gz")
"""`sample_logs/` of the repository; `python -m lab.sample_archive` makes it."""
TO_RUN: Final = (
    ("What an unclean election lost, and who still holds it", ("scan {}/unclean-election",)),
    ("What each possible election would lose, and whom to elect", ("plan {}/unclean-election --topic audit --partition 0",)),
    ("Who led the partition, and who was in sync, since when", ("metadata {}/unclean-election --topic audit",)),
    ("Replicas in sync that hold different records, side by side", ("scan {}/silent-divergence", "compare {}/silent-divergence")),
    ("A healthy cluster", ("scan {}/healthy",)),
    ("What a finding means", ("explain UNCLEAN_LOSS",)),
)
"""A heading → the commands below it, without `kafka-forensics`, in which `{}` is the directory."""

Directory = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Where to write the samples: a directory that is empty or does not exist yet."),
    options.Written("new directory"),
]


@options.flat
def demo(directory: Directory) -> int:
    """Write log directories of real brokers that lost data, or did not, and say what to run on them.

    Needs no network. DIR/README.md tells how each sample came about, DIR/expected.json what a scan finds in it.
    """
    count = _unpack(directory)
    sys.stdout.write(f"{count} files of three clusters are in {printable(str(directory))}. What to run:\n")
    for heading, commands in TO_RUN:
        sys.stdout.write(f"\n  {heading}:\n")
        sys.stdout.writelines(f"    {printable(line)}\n" for line in command_lines(commands, directory))
    return 0


def command_lines(commands: tuple[str, ...], directory: Path) -> list[str]:
    """The commands as a shell takes them, for samples in `directory`."""
    place = f"./{directory}" if str(directory).startswith("-") else str(directory)
    return [f"kafka-forensics {shlex.join(word.format(place) for word in command.split())}" for command in commands]


def _unpack(directory: Path) -> int:
    """Write the files of the archive below `directory`; how many. Raises UsageError where that cannot be written to."""
    import tarfile

    count = 0
    try:
        with tarfile.open(ARCHIVE, "r:gz") as archive:
            for member in archive:
                path = directory / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                stream = archive.extractfile(member)
                assert stream is not None, member.name
                with path.open("xb") as file:
                    file.write(stream.read())
                count += 1
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {why(error, str(directory))}", hint="choose another directory") from error
    return count
