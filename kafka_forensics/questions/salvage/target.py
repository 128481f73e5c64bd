"""The output directory of a salvage: built under another name, put on disk, and renamed at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_forensics.errors import UsageError
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.questions.salvage.manifest import ELECTION_FILE, MANIFEST
from kafka_forensics.storage.disks import UNFINISHED, publish_directory, sync_directory, why
from kafka_forensics.storage.private import private_files


@contextmanager
def output_directory(output: Path) -> Iterator[Path]:
    """The directory to build in, which becomes `output` if the `with` block ends well, and is removed if not.

    It replaces an earlier salvage on which no broker may start. Raises UsageError for any other output that is not empty, for a
    mount point, for one that another process builds (or built when it was killed), and if nothing can be written.
    """
    output = output.resolve()
    unfinished = output.with_name(output.name + UNFINISHED)
    try:
        with private_files():
            replaced = _files_of_refused_salvage(output)
            _make(output, unfinished, is_replaced=bool(replaced))
            with publish_directory(unfinished, output, replaced):
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


def may_be_replaced(output: Path) -> bool:
    """Whether a directory holds only a salvage on which no broker may start, because partitions were refused."""
    return bool(_files_of_refused_salvage(output))


def _files_of_refused_salvage(output: Path) -> list[Path]:
    """The files and directories of a salvage that refused partitions; none if any of them changed since, or for anything else."""
    try:
        manifest = json.loads((output / MANIFEST).read_bytes())
        refused = {row["topic"] for row in manifest["refused"]} - {CLUSTER_METADATA_TOPIC}
        written_ns = (output / MANIFEST).stat().st_mtime_ns
        is_unchanged = all(path.lstat().st_mtime_ns <= written_ns for path in output.rglob("*"))
        found = list(output.iterdir())
    except (OSError, ValueError, TypeError, LookupError):
        return []
    is_salvage = all(path.name in {MANIFEST, ELECTION_FILE} or path.name.startswith("broker-") for path in found)
    return found if refused and is_unchanged and is_salvage else []


def _make(output: Path, unfinished: Path, *, is_replaced: bool) -> None:
    """Make the directory to build in. Raises UsageError as `output_directory` does, OSError."""
    if output.exists() and any(output.iterdir()) and not is_replaced:
        raise UsageError(f"{output} is not empty", hint="choose a directory that is empty or does not exist yet")
    if output.is_mount():
        hint = f"name a directory in it, as {output / 'salvaged'}: it is built next to its final place, on the same disk"
        raise UsageError(f"{output} is a mount point, so the finished directory cannot be renamed to it", hint=hint)
    try:
        unfinished.mkdir()
    except FileExistsError:
        hint = "if no salvage is running, one was killed there: remove that directory, and run this command again"
        raise UsageError(f"{unfinished} already exists", hint=hint) from None
