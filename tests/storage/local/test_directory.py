"""Local directories and files are read completely and not changed; no path outside and no file that may block is opened."""

import errno
import gc
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage import local
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import EntryKind
from tests.storage.trees import LOG, SPARSE, SPARSE_SIZE, assert_same_tree, walk


def test_a_directory_gives_every_byte(tree: Path) -> None:
    source = LocalSource(str(tree))
    assert_same_tree(source, tree)
    assert (source.name, source.seekable, source.rejected, source.replaced, source.problems) == (str(tree), True, [], [], [])


def test_entries_agree_with_stat(tree: Path) -> None:
    source = LocalSource(str(tree))
    info = os.lstat(tree / LOG)
    entry = source.stat(LOG)
    assert (entry.size_in_bytes, entry.mtime_ns) == (info.st_size, info.st_mtime_ns)
    assert entry.identity == (info.st_dev, info.st_ino)
    assert source.stat(SPARSE).allocated_bytes == os.lstat(tree / SPARSE).st_blocks * 512 < SPARSE_SIZE
    directory = source.stat("broker-1")
    assert (directory.kind, directory.size_in_bytes, directory.allocated_bytes) == (EntryKind.DIRECTORY, 0, None)
    assert source.stat("").kind is EntryKind.DIRECTORY
    names = [entry.name for entry in source.list("broker-1")]
    assert names == sorted(names)


def test_data_ranges_exclude_holes(tree: Path) -> None:
    with LocalSource(str(tree)).open(SPARSE) as file:
        assert file.data_ranges() == [(0, 8192), (5 << 20, (5 << 20) + 4096)]
        assert file.read_at(1 << 20, 4096) == bytes(4096)


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EOPNOTSUPP])
def test_data_ranges_without_support_are_the_whole_file(error: int, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalSource(str(tree)).open(SPARSE) as file:
        monkeypatch.setattr(os, "lseek", failing(error))
        assert file.data_ranges() == [(0, SPARSE_SIZE)]
        monkeypatch.setattr(os, "lseek", failing(errno.EIO))
        with pytest.raises(SourceError, match="input/output error"):
            file.data_ranges()


def failing(number: int) -> Any:
    return Mock(side_effect=OSError(number, os.strerror(number)))


def test_a_single_file_is_its_own_root(tree: Path) -> None:
    source = LocalSource(str(tree / LOG))
    content = (tree / LOG).read_bytes()
    assert source.list("") == []
    entry = source.stat("")
    assert (entry.path, entry.kind, entry.size_in_bytes) == ("", EntryKind.FILE, len(content))
    with source.open("") as file:
        assert file.read_at(0, len(content)) == content
    for path in ("x", "../" + os.path.basename(LOG)):
        with pytest.raises(SourceError):
            source.open(path)


def test_the_root_may_be_a_link_and_is_resolved_once(tree: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tree)
    source = LocalSource(str(link))
    link.unlink()
    link.symlink_to("/etc")
    assert [entry.path for entry in source.list()] == ["broker-1"]
    file_link = tmp_path / "segment.log"
    file_link.symlink_to(tree / LOG)
    assert LocalSource(str(file_link)).open("").size_in_bytes == (tree / LOG).stat().st_size


@pytest.fixture
def unusual(tmp_path: Path) -> Path:
    """A directory with links, loops, a FIFO and an unusual name."""
    root = tmp_path / "unusual"
    (root / "real").mkdir(parents=True)
    (root / "real/file").write_bytes(b"content")
    (root / "file-link").symlink_to("real/file")
    (root / "directory-link").symlink_to("real")
    (root / "outside").symlink_to("/etc")
    (root / "loop").symlink_to("loop")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "fifo")
    Path(os.fsdecode(bytes(root) + b"/\xff\xfe\n.log")).write_bytes(b"odd")
    return root


def test_fifos_and_links_to_the_outside_are_listed_but_not_opened(unusual: Path) -> None:
    source = LocalSource(str(unusual))
    kinds = {entry.path: entry.kind.value for entry in walk(source)}
    links = dict.fromkeys(("outside", "loop", "up"), "symlink")
    inside = {"file-link": "file", "directory-link": "directory", "directory-link/file": "file"}
    rest = {"fifo": "other", "real": "directory", "real/file": "file", "\udcff\udcfe\n.log": "file"}
    assert kinds == links | inside | rest
    for path in [*links, "outside/passwd", "up/strange2/real/file", "loop/x"]:
        with pytest.raises(SourceError, match="symbolic link, not followed"):
            source.open(path)
    for path in ("outside", "up", "loop"):
        with pytest.raises(SourceError, match="symbolic link, not followed"):
            source.list(path)
    with pytest.raises(SourceError, match="fifo: not a regular file"):
        source.open("fifo")
    for path in ("file-link", "directory-link/file"):
        with source.open(path) as file:
            assert file.read_at(0, 10) == b"content"
    with source.open("\udcff\udcfe\n.log") as file:
        assert file.read_at(0, 10) == b"odd"


def test_a_file_replaced_by_a_fifo_before_it_is_opened_does_not_block(unusual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = LocalSource(str(unusual))
    regular = os.stat(unusual / "real/file")
    real_stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **rest: regular if path == "fifo" else real_stat(path, **rest))
    before = open_descriptors()
    with pytest.raises(SourceError, match="not a regular file"):
        source.open("fifo")
    assert open_descriptors() == before


def open_descriptors() -> int:
    gc.collect()  # closes files that other tests left open
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("path", ["..", ".", "real/..", "real/../real/file", "/etc/passwd", "real//file", "real/", "a\0b"])
def test_paths_that_are_not_normalized_are_refused(path: str, unusual: Path) -> None:
    source = LocalSource(str(unusual))
    for method in (source.open, source.stat, source.list):
        with pytest.raises(SourceError, match="not a path below the root"):
            method(path)


def test_no_descriptor_is_left_open(unusual: Path) -> None:
    before = open_descriptors()
    source = LocalSource(str(unusual))
    list(walk(source))
    for path in ("loop", "fifo", "real", "nothing", "directory-link", "outside/passwd"):
        with pytest.raises(SourceError):
            source.open(path)
    with source.open("real/file") as file:
        assert open_descriptors() == before + 1
    file.close()
    unclosed = source.open("real/file")
    del unclosed
    assert open_descriptors() == before
    with pytest.raises(SourceError, match="bad file descriptor"):
        file.read_at(0, 1)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(name, flags) of every file opened through os.open."""
    calls: list[tuple[str, int]] = []
    real_open = os.open

    def spy(path: str, flags: int, *rest: Any, **keywords: Any) -> int:
        calls.append((str(path), flags))
        return real_open(path, flags, *rest, **keywords)

    monkeypatch.setattr(os, "open", spy)
    return calls


def test_files_are_opened_for_reading_only(unusual: Path, opened: list[tuple[str, int]]) -> None:
    """Files that links point to, too."""
    source = LocalSource(str(unusual))
    list(walk(source))
    for path in ("real/file", "file-link", "directory-link/file"):
        source.open(path).close()
    assert len(opened) > 5
    for _, flags in opened:
        assert flags & os.O_ACCMODE == os.O_RDONLY
        assert not flags & (os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_EXCL)
        assert flags & os.O_NOFOLLOW
        assert flags & os.O_CLOEXEC
        assert flags & (os.O_NONBLOCK | os.O_PATH)
    expected = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOATIME
    assert [flags for name, flags in opened if name == "file" and not flags & os.O_PATH] == [expected] * 3


def test_reading_does_not_change_access_times(tree: Path) -> None:
    old = 1_000_000_000 * 10**9
    paths = [tree / LOG, tree / "broker-1", tree / "broker-1/orders-0"]
    modified = [path.stat().st_mtime_ns for path in paths]
    for path, mtime in zip(paths, modified, strict=True):
        os.utime(path, ns=(old, mtime))
    source = LocalSource(str(tree))
    list(walk(source))
    with source.open(LOG) as file:
        file.read_at(0, 100)
    assert [path.stat().st_atime_ns for path in paths] == [old] * 3


def test_a_file_of_another_owner_is_opened_without_noatime(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def as_another_user(path: str, flags: int, *rest: Any, **keywords: Any) -> int:
        if flags & os.O_NOATIME:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return real_open(path, flags, *rest, **keywords)

    monkeypatch.setattr(os, "open", as_another_user)
    assert_same_tree(LocalSource(str(tree)), tree, reads=1)


def test_the_error_of_a_failed_read_has_the_reason(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalSource(str(tree)).open(LOG) as file:
        monkeypatch.setattr(os, "pread", failing(errno.EIO))
        monkeypatch.setattr(os, "preadv", failing(errno.ESTALE))
        with pytest.raises(SourceError, match=f"{LOG}: input/output error"):
            file.read_at(0, 10)
        with pytest.raises(SourceError, match=f"{LOG}: stale file handle"):
            file.read_into(0, memoryview(bytearray(10)))


def test_short_reads_are_continued(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (tree / LOG).read_bytes()
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda descriptor, size, position: pread(descriptor, min(size, 7000), position))
    monkeypatch.setattr(os, "preadv", lambda descriptor, buffers, position: preadv(descriptor, [buffers[0][:7000]], position))
    for has_preadv in (True, False):
        monkeypatch.setattr(local, "_HAS_PREADV", has_preadv)
        with LocalSource(str(tree)).open(LOG) as file:
            assert file.read_at(5, 50_000) == content[5:50_005]
            buffer = bytearray(50_000)
            assert file.read_into(5, memoryview(buffer)) == 50_000
            assert buffer == content[5:50_005]


def test_an_open_file_keeps_its_size_when_it_grows_and_ends_early_when_it_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789" * 1000)
    with LocalSource(str(path)).open("") as file:
        with path.open("ab") as more:
            more.write(b"more")
        assert file.read_at(9_990, 100) == b"0123456789"
        os.truncate(path, 5_005)
        assert file.size_in_bytes == 10_000
        assert file.read_at(5_000, 100) == b"01234"
        assert file.read_into(5_000, memoryview(bytearray(100))) == 5
        assert file.read_at(9_000, 100) == b""
        assert file.data_ranges() == [(0, 8192)] or file.data_ranges()[-1][1] <= 10_000


def test_a_declared_length_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"abc")
    with LocalSource(str(tmp_path)).open("a.log") as file:
        assert file.read_at(1, 1 << 62) == b"bc"
        assert file.read_at(1 << 62, 1 << 62) == b""


def test_a_file_that_vanishes_while_its_directory_is_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    scandir = os.scandir

    class Listing:
        def __init__(self, descriptor: int) -> None:
            self._items = list(scandir(descriptor))

        def __enter__(self) -> "list[os.DirEntry[str]]":
            (tmp_path / "b").unlink()
            return self._items

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Listing)
    assert [entry.path for entry in LocalSource(str(tmp_path)).list()] == ["a", "c"]
