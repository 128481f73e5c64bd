"""Trees of files, archives of them in every format, and the comparison of a source with its tree."""

import gzip
import io
import lzma
import os
import random
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from kafka_forensics.storage.source import ByteSource, Entry, EntryKind

SPARSE: Final = "broker-1/orders-0/00000000000000000000.index"
SPARSE_SIZE: Final = 10 << 20
LOG: Final = "broker-1/orders-0/00000000000000000000.log"
LONG: Final = "broker-1/" + "t" * 200 + "-0/" + "0" * 90 + ".log"
MTIME: Final = 1_700_000_000


def make_tree(root: Path) -> None:
    """A small broker: a log of several blocks, a preallocated index with two islands of data, small and empty files."""
    noise = random.Random(7)
    contents = {
        "broker-1/meta.properties": b"version=1\nnode.id=1\n",
        "broker-1/.kafka_cleanshutdown": b"",
        LOG: noise.randbytes(3_300_001),
        "broker-1/orders-0/leader-epoch-checkpoint": b"0\n1\n0 0\n",
        "broker-1/zeros-0/00000000000000000000.log": bytes(2_500_000) + b"end",
        LONG: noise.randbytes(70_000),
    }
    for path, content in contents.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with (root / SPARSE).open("wb") as index:
        index.truncate(SPARSE_SIZE)
        index.write(noise.randbytes(8192))
        index.seek(5 << 20)
        index.write(noise.randbytes(4096))
    (root / "broker-1/empty-0").mkdir()
    for item in root.rglob("*"):
        os.utime(item, ns=(MTIME * 10**9, MTIME * 10**9))


def walk(source: ByteSource, path: str = "") -> Iterator[Entry]:
    """Every entry below `path`."""
    for entry in source.list(path):
        yield entry
        if entry.kind is EntryKind.DIRECTORY:
            yield from walk(source, entry.path)


def files_of(root: Path) -> dict[str, bytes]:
    """Content of every regular file below `root`."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def assert_same_tree(source: ByteSource, root: Path, *, seed: int = 1, reads: int = 12) -> None:
    """`source` lists the files of `root` and gives every byte of them: whole, in random ranges, and outside of holes."""
    entries = {entry.path: entry for entry in walk(source)}
    expected = files_of(root)
    assert {path for path, entry in entries.items() if entry.kind is EntryKind.FILE} == set(expected)
    assert all(entry == source.stat(path) for path, entry in entries.items())
    rng = random.Random(seed)
    for path, content in expected.items():
        assert entries[path].size_in_bytes == len(content)
        with source.open(path) as file:
            assert file.size_in_bytes == len(content)
            assert file.read_at(0, len(content) + 10) == content
            assert file.read_at(len(content), 5) == b""
            for _ in range(reads):
                start = rng.randrange(len(content) + 1)
                size = rng.choice([0, 1, 511, 70_000, 1 << 20, len(content)])
                assert file.read_at(start, size) == content[start : start + size]
                buffer = bytearray(b"\xaa" * size)
                count = file.read_into(start, memoryview(buffer))
                assert count == len(content[start : start + size])
                assert bytes(buffer[:count]) == content[start : start + size]
                assert bytes(buffer[count:]) == b"\xaa" * (size - count)
            rebuilt = bytearray(len(content))
            end_before = 0
            for start, end in file.data_ranges():
                assert end_before <= start < end <= len(content)
                rebuilt[start:end] = file.read_at(start, end - start)
                end_before = end
            assert rebuilt == content


def gnu_tar(*options: str) -> Callable[[Path, Path], None]:
    """A function that makes tars with the `tar` command."""

    def make(root: Path, archive: Path) -> None:
        subprocess.run(["tar", *options, "-cf", str(archive), "-C", str(root), "."], check=True)

    return make


def python_tar(form: int) -> Callable[[Path, Path], None]:
    """A function that makes tars with the standard library, without `./` before the names."""

    def make(root: Path, archive: Path) -> None:
        with tarfile.open(archive, "w", format=form) as opened:
            for path in sorted(root.iterdir()):
                opened.add(path, path.name)

    return make


def packed(make: Callable[[Path, Path], None], compress: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    """A function that makes compressed tars."""

    def make_packed(root: Path, archive: Path) -> None:
        make(root, archive)
        archive.write_bytes(compress(archive.read_bytes()))

    return make_packed


def in_parts(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """A compressor that makes several streams, one after another."""

    def compress_parts(data: bytes) -> bytes:
        cuts = [0, 1000, len(data) // 3, len(data)]
        return b"".join(compress(data[start:end]) for start, end in pairwise(cuts))

    return compress_parts


def zstd(data: bytes) -> bytes:
    """A frame with a checksum, as the `zstd` command makes it."""
    return subprocess.run(["zstd", "-1qc"], input=data, capture_output=True, check=True).stdout


def python_zip(method: int) -> Callable[[Path, Path], None]:
    """A function that makes zips with the standard library."""

    def make(root: Path, archive: Path) -> None:
        with zipfile.ZipFile(archive, "w", method) as opened:
            for path in sorted(root.rglob("*")):
                opened.write(path, path.relative_to(root))

    return make


class _ForwardOnly(io.RawIOBase):
    """A file without seeking, like a pipe: zips written to it have their sizes after the data."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("wb")

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return self._file.write(data)  # type: ignore[arg-type]

    def close(self) -> None:
        self._file.close()
        super().close()


def streamed_zip(root: Path, archive: Path) -> None:
    """A zip written to a pipe."""
    with _ForwardOnly(archive) as pipe, zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as opened:
        for path in sorted(root.rglob("*")):
            opened.write(path, path.relative_to(root))


_GNU = gnu_tar("-S", "--format=gnu")
CONTAINERS: Final[dict[str, tuple[str, Callable[[Path, Path], None]]]] = {
    "gnu sparse": ("a.tar", _GNU),
    "gnu dense": ("a.tar", gnu_tar("--format=gnu")),
    "pax sparse 1.0": ("a.tar", gnu_tar("-S", "--format=posix", "--sparse-version=1.0")),
    "pax sparse 0.1": ("a.tar", gnu_tar("-S", "--format=posix", "--sparse-version=0.1")),
    "pax sparse 0.0": ("a.tar", gnu_tar("-S", "--format=posix", "--sparse-version=0.0")),
    "python pax": ("a.tar", python_tar(tarfile.PAX_FORMAT)),
    "python gnu": ("a.tar", python_tar(tarfile.GNU_FORMAT)),
    "gz": ("A.TAR.GZ", packed(_GNU, gzip.compress)),
    "gz of several members": ("a.tgz", packed(gnu_tar(), in_parts(gzip.compress))),
    "xz": ("a.tar.xz", packed(_GNU, lambda data: lzma.compress(data, preset=1))),
    "xz of several streams": ("a.txz", packed(gnu_tar(), in_parts(lambda data: lzma.compress(data, preset=0) + bytes(8)))),
    "zst": ("a.tar.zst", packed(_GNU, zstd)),
    "zst of several frames": ("a.tzst", packed(gnu_tar("--format=posix"), in_parts(zstd))),
    "zip stored": ("a.zip", python_zip(zipfile.ZIP_STORED)),
    "zip deflated": ("a.zip", python_zip(zipfile.ZIP_DEFLATED)),
    "zip streamed": ("a.zip", streamed_zip),
}
"""Form → (file name, function of the tree and the archive that makes it)."""
