"""The output directory of a salvage: built under another name, put on disk, and renamed at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.disks import UNFINISHED, publish_directory, sync_directory, why
from kafka_forensics.storage.private import private_files


@contextmanager
def output_directory(output: Path) -> Iterator[Path]:
    """The directory to build in, which becomes `output` if the `with` block ends well, and is removed if not.

    Raises UsageError for an output that is not empty or is a mount point, for one that another process builds (or built when it
    was killed), and if nothing can be written.
    """
    output = output.resolve()
    unfinished = output.with_name(output.name + UNFINISHED)
    try:
        with private_files():
            _make(output, unfinished)
            with publish_directory(unfinished, output):
                yield unfinished
    except OSError as error:  # reading raises SourceError
        text = f"cannot write {output}: {why(error, str(output.parent))}"
        raise UsageError(text, hint="its files were removed again; choose another place, or make room") from error
    try:
        sync_directory(str(output.parent))
    except OSError as error:
        text = f"{output} is whole, but its name may not be on disk: {why(error, str(output.parent))}"
        raise UsageError(
            text, hint="check that it exists after the next start of this machine, before you delete the copies"
        ) from error


def _make(output: Path, unfinished: Path) -> None:
    """Make the directory to build in. Raises UsageError as `output_directory` does, OSError."""
    if output.exists() and any(output.iterdir()):
        raise UsageError(f"{output} is not empty", hint="choose a directory that is empty or does not exist yet")
    if output.is_mount():
        hint = f"name a directory in it, as {output / 'salvaged'}: it is built next to its final place, on the same disk"
        raise UsageError(f"{output} is a mount point, so the finished directory cannot be renamed to it", hint=hint)
    try:
        unfinished.mkdir()
    except FileExistsError:
        hint = "if no salvage is running, one was killed there: remove that directory, and run this command again"
        raise UsageError(f"{unfinished} already exists", hint=hint) from None
