"""`demo`: write the sample log directories that the package contains, and print commands to run on them."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import writing_to
from kafka_forensics.model.safe_text import printable

ARCHIVE: Final = Path(__file__).with_name("samples.tar.gz")
"""`sample_logs/` of the repository; `python -m lab.sample_archive` makes it."""
TO_RUN: Final = (
    ("What an unclean election lost, and who still holds it", ("scan {}/unclean-election",)),
    ("What each election would lose, and which broker to elect", ("plan {}/unclean-election --topic audit --partition 0",)),
    ("Who led the partition, and who was in sync, since when", ("metadata {}/unclean-election --topic audit",)),
    ("Replicas in sync that hold different records, side by side", ("scan {}/silent-divergence", "compare {}/silent-divergence")),
    ("A tiered topic whose remote store lost an object", ("scan {}/tiered",)),
    ("A healthy cluster", ("scan {}/healthy",)),
    ("What a finding means", ("explain UNCLEAN_LOSS",)),
)
"""(heading, commands below it without `kafka-forensics`), in which `{}` stands for the directory."""

Directory = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="An empty or new directory for the samples."),
    options.OutputMark("new directory"),
]


@options.expand_option_groups
def demo(directory: Directory) -> int:
    """Write sample log directories from real brokers, some with lost data, and print commands to run on them.

    Needs no network. DIR/README.md describes the origin of each sample, DIR/expected.json what a scan finds in it.
    """
    count = _unpack(directory)
    sys.stdout.write(f"{count} files of four clusters are in {printable(str(directory))}. What to run:\n")
    safe_directory = f"./{directory}" if str(directory).startswith("-") else str(directory)
    for heading, commands in TO_RUN:
        sys.stdout.write(f"\n  {heading}:\n")
        for command in commands:
            line = f"{options.PROGRAM} {shlex.join(word.format(safe_directory) for word in command.split())}"
            sys.stdout.write(f"    {printable(line)}\n")
    return 0


def _unpack(directory: Path) -> int:
    """Write the files of the archive below `directory`, and return their number. Raises UsageError if it cannot be written."""
    import tarfile

    count = 0
    with writing_to(directory), tarfile.open(ARCHIVE, "r:gz") as archive:
        for member in archive:
            path = directory / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = archive.extractfile(member)
            assert stream is not None, member.name
            with path.open("xb") as file:
                file.write(stream.read())
            count += 1
    return count
