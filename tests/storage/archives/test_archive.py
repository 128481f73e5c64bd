"""Archives give every byte of the tree that they were made from, without unpacking it."""

import gc
import os
import random
import subprocess
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives.archive import ArchiveSource, TarSource, reading_order
from kafka_forensics.storage.archives.inflate import CACHE, CACHE_BYTES
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.source import EntryKind
from tests.storage.trees import CONTAINERS, LOG, MTIME, SPARSE, assert_same_tree, files_of, walk


@pytest.mark.parametrize("form", CONTAINERS)
def test_every_archive_format_gives_the_whole_tree(form: str, tree: Path, packed: Callable[[str], Path]) -> None:
    path = packed(form)
    source = open_source(str(path))
    assert isinstance(source, ArchiveSource)
    assert_same_tree(source, tree, reads=4)
    assert (source.problems, source.rejected) == ([], [])
    assert source.seekable is (path.suffix in {".tar", ".zip"})
    directories = {entry.path for entry in walk(source) if entry.kind is EntryKind.DIRECTORY}
    assert directories == {item.relative_to(tree).as_posix() for item in tree.rglob("*") if item.is_dir()}
    assert {entry.mtime_ns for entry in walk(source)} == {MTIME * 10**9}
    assert {entry.identity for entry in walk(source)} == {None}
    assert os.listdir(path.parent) == [path.name], "nothing is unpacked to disk"


@pytest.mark.parametrize("form", ["gnu sparse", "pax sparse 1.0", "pax sparse 0.1", "pax sparse 0.0", "gz", "xz", "zst"])
def test_holes_of_a_sparse_member_are_not_stored(form: str, packed: Callable[[str], Path]) -> None:
    source = open_source(str(packed(form)))
    with source.open(SPARSE) as file:
        assert file.data_ranges() == [(0, 8192), (5 << 20, (5 << 20) + 4096)]
        assert file.read_at(4 << 20, 1 << 20) == bytes(1 << 20)
    assert source.stat(SPARSE).allocated_bytes == 8192 + 4096
    assert source.stat(LOG).allocated_bytes is None


@pytest.mark.parametrize("form", ["gnu sparse", "pax sparse 1.0", "pax sparse 0.1", "pax sparse 0.0"])
def test_a_sparse_member_of_many_ranges_is_read(form: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    noise = random.Random(3)
    with (root / "many.log").open("wb") as file:
        for number in range(300):
            file.seek(number * 16384)
            file.write(noise.randbytes(4096))
        file.truncate(300 * 16384 + 77)
    CONTAINERS[form][1](root, tmp_path / "a.tar")
    source = open_source(str(tmp_path / "a.tar"))
    assert_same_tree(source, root, reads=60)
    with source.open("many.log") as opened:
        assert len(opened.data_ranges()) >= 300


def test_a_compressed_tar_is_inflated_once(tree: Path, packed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CACHE, "_capacity", 2 << 20)
    source = TarSource(str(packed("xz of several streams")), "xz")
    stream = source._bytes
    assert stream.passes == 1  # type: ignore[attr-defined]
    files = files_of(tree)
    small = [path for path, content in files.items() if 0 < len(content) <= 16384]
    for path in [*small, *reversed(small)]:
        assert source.open(path).read_at(0, 1 << 20) == files[path]
    assert stream.passes == 1, "small members stay in the cache after the first pass"  # type: ignore[attr-defined]
    for path in reading_order(source, sorted(files, reverse=True)):
        with source.open(path) as file:
            position = 0
            while piece := file.read_at(position, 300_000):
                assert piece == files[path][position : position + 300_000]
                position += len(piece)
    assert stream.passes == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["gnu sparse", "gz", "xz", "zst", "zip deflated"])
def test_threads_may_share_a_source(form: str, tree: Path, packed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CACHE, "_capacity", 3 << 20)
    source = open_source(str(packed(form)))
    content = (tree / LOG).read_bytes()
    wrong: list[int] = []

    def read(seed: int) -> None:
        choose = random.Random(seed)
        with source.open(LOG) as file:
            for _ in range(12):
                start = choose.randrange(len(content))
                if file.read_at(start, 200_000) != content[start : start + 200_000]:
                    wrong.append(start)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_caches_are_bounded_and_freed(packed: Callable[[str], Path]) -> None:
    sources = [open_source(str(packed("zst of several frames"))) for _ in range(12)]
    for source in sources:
        source.open(LOG).read_at(0, 4 << 20)
    assert CACHE_BYTES - (2 << 20) < CACHE.size_in_bytes <= CACHE_BYTES
    numbers = [source._number for source in sources if isinstance(source, ArchiveSource)]
    assert numbers[-1] in {key[0] for key in CACHE._blocks}
    del source, sources
    gc.collect()
    assert {key[0] for key in CACHE._blocks}.isdisjoint(numbers)
    assert CACHE.size_in_bytes == sum(map(len, CACHE._blocks.values()))


def test_a_zip64_archive_with_bytes_before_it_is_read(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in files_of(tree).items():
            with opened.open(name, "w", force_zip64=True) as member:
                member.write(content)
    path.write_bytes(b"#!/bin/sh\nexit\n" + path.read_bytes())
    assert_same_tree(open_source(str(path)), tree, reads=2)


def test_a_zip_with_a_64_bit_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 65,536 members on, only the 64-bit record has their number."""
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 5)
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for number in range(6):
            opened.writestr(zipfile.ZipInfo(f"d/{number}"), b"x" if number == 5 else b"")
    data = bytearray(path.read_bytes())
    assert data[-22:-18] == b"PK\x05\x06"
    data[-14:-10] = b"\xff" * 4
    path.write_bytes(data)
    source = open_source(str(path))
    assert len(source.list("d")) == 6
    assert source.open("d/5").read_at(0, 2) == b"x"


def test_errors_of_unreadable_zip_members_have_a_reason(tmp_path: Path) -> None:
    (tmp_path / "plain.log").write_bytes(b"plain" * 100)
    subprocess.run(["zip", "-q", "-P", "secret", "a.zip", "plain.log"], cwd=tmp_path, check=True)
    with zipfile.ZipFile(tmp_path / "a.zip", "a", zipfile.ZIP_BZIP2) as opened:
        opened.writestr("other.log", b"other" * 100)
    source = open_source(str(tmp_path / "a.zip"))
    assert [entry.size_in_bytes for entry in source.list()] == [500, 500]
    with pytest.raises(SourceError, match=r"plain\.log: encrypted"):
        source.open("plain.log")
    with pytest.raises(SourceError, match=r"other\.log: compressed with method 12 \(bzip2\)"):
        source.open("other.log")


def test_a_zip_member_with_a_wrong_checksum_is_read_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("a.log", b"abc" * 1000)
        crc = opened.getinfo("a.log").CRC
    path.write_bytes(path.read_bytes().replace(crc.to_bytes(4, "little"), (crc ^ 1).to_bytes(4, "little")))
    source = open_source(str(path))
    assert source.problems == []
    assert source.open("a.log").read_at(0, 4000) == b"abc" * 1000
    assert source.problems == [f"a.log: CRC-32 is {crc:08x}, but {crc ^ 1:08x} in the archive"]
