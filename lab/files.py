"""Copies log directories with their holes, and reads the checkpoints that experiments wait for."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

INDEX_ENTRY_SIZES: Final = {".index": 8, ".timeindex": 12}
CHUNK_BYTES: Final = 1 << 20
LEFT_OUT: Final = (".lock",)
"""Files that are not copied: the lock of the broker's process."""


def data_ranges(descriptor: int, size_in_bytes: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the ranges of an open file that are not holes."""
    position = 0
    while position < size_in_bytes:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            return
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, min(position, size_in_bytes)


def copy_sparse(source: Path, destination: Path) -> None:
    """Copy one file; holes and blocks of zeros become holes, the size stays (`cp --sparse=always`)."""
    with source.open("rb") as reader, destination.open("wb") as writer:
        size_in_bytes = os.fstat(reader.fileno()).st_size
        for start, end in data_ranges(reader.fileno(), size_in_bytes):
            for position in range(start, end, CHUNK_BYTES):
                block = os.pread(reader.fileno(), min(CHUNK_BYTES, end - position), position)
                if block.strip(b"\0"):
                    os.pwrite(writer.fileno(), block, position)
        os.ftruncate(writer.fileno(), size_in_bytes)
    shutil.copystat(source, destination)


def copy_tree(source: Path, destination: Path, on_copied: Callable[[Path], None] | None = None) -> None:
    """Copy a log directory into a new directory, file by file in the order of names, with holes, without locks.

    A file that a running broker deletes meanwhile is left out; `on_copied` is called after every copied file. Raises
    FileExistsError if `destination` exists.
    """
    destination.mkdir(parents=True)
    for entry in sorted(source.iterdir()):
        if entry.name in LEFT_OUT:
            continue
        if entry.is_dir():
            copy_tree(entry, destination / entry.name, on_copied)
        elif entry.is_file():
            try:
                copy_sparse(entry, destination / entry.name)
            except FileNotFoundError:
                (destination / entry.name).unlink(missing_ok=True)
                continue
            if on_copied is not None:
                on_copied(entry)


def without_zero_tail(data: bytes, entry_size: int) -> bytes:
    """An index without its preallocated zeros, cut after a whole entry, as Kafka leaves it when it closes the index."""
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_size) * entry_size]


def trim_indexes(directory: Path, *, larger_than: int) -> list[Path]:
    """Cut the zero tails of index files larger than `larger_than` bytes below `directory`; return the files that were cut."""
    cut = []
    for path in sorted(directory.rglob("*")):
        entry_size = INDEX_ENTRY_SIZES.get(path.suffix)
        if entry_size is not None and path.stat().st_size > larger_than:
            path.write_bytes(without_zero_tail(path.read_bytes(), entry_size))
            cut.append(path)
    return cut


def parse_offset_checkpoint(text: str) -> dict[tuple[str, int], int]:
    """The (topic, partition) → offset lines of a version 0 checkpoint file. Raises ValueError on anything else."""
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != "0" or int(lines[1]) != len(lines) - 2:
        raise ValueError("not a whole version 0 checkpoint")
    offsets = {}
    for line in lines[2:]:
        topic, partition, offset = line.rsplit(" ", 2)
        offsets[topic, int(partition)] = int(offset)
    return offsets


def read_offset_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """The offsets of a checkpoint file; empty if the file does not exist or is just being replaced."""
    try:
        return parse_offset_checkpoint(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
