"""Links are followed only to input paths, even if they are replaced while they are followed."""

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage import local as directory
from kafka_forensics.storage.local import MAX_DEPTH, MAX_LINKS
from kafka_forensics.storage.open import follow_links_between, open_source
from kafka_forensics.storage.source import ByteSource, EntryKind

INSIDE, OUTSIDE = b"evidence", b"root:x:0:0: must not be read"


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """Two disks that are inputs, and a secret file beside them."""
    for name in ("one", "two"):
        (tmp_path / "disks" / name / "t-0").mkdir(parents=True)
        (tmp_path / "disks" / name / "t-0" / "log").write_bytes(INSIDE + name.encode())
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(OUTSIDE)
    return tmp_path / "disks"


def opened(*paths: Path) -> list[ByteSource]:
    sources = [open_source(str(path)) for path in paths]
    follow_links_between(sources)
    return sources


def content(source: ByteSource, path: str) -> bytes:
    with source.open(path) as file:
        return file.read_at(0, 1000)


def refusal(source: ByteSource, path: str) -> str:
    entry = source.stat(path)
    assert (entry.kind, entry.link) == (EntryKind.SYMLINK, None)
    with pytest.raises(SourceError) as caught:
        source.open(path)
    assert caught.value.reason == entry.refused == entry.unreadable
    return str(entry.refused).rpartition(": ")[2]


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("t-0/log", b"one"),
        ("./t-0//log", b"one"),
        ("t-0/../t-0/log", b"one"),
        ("../one/t-0/log", b"one"),
        ("../two/t-0/log", b"two"),
        ("../../disks/two/t-0/../t-0/log", b"two"),
        ("{disks}/one/t-0/log", b"one"),
        ("{disks}/two/t-0/log", b"two"),
        ("{disks}/../outside/../disks/two/t-0/log", b"two"),
        ("/../{disks}/two/t-0/log", b"two"),
        ("{disks}/alias/t-0/log", b"two"),
        ("{disks}/other/nest/two/t-0/log", b"two"),
    ],
)
def test_a_link_to_an_input_path_is_followed(disks: Path, target: str, found: bytes) -> None:
    (disks / "alias").symlink_to("two")
    (disks / "other").mkdir()
    (disks / "other" / "nest").symlink_to(disks)
    (disks / "one" / "link").symlink_to(target.format(disks=disks))
    source, _ = opened(disks / "one", disks / "two")
    assert content(source, "link") == INSIDE + found
    entry, target_info = source.stat("link"), os.stat(disks / found.decode() / "t-0" / "log")
    assert (entry.kind, entry.size_in_bytes, entry.identity) == (
        EntryKind.FILE,
        len(INSIDE) + 3,
        (target_info.st_dev, target_info.st_ino),
    )
    assert entry.link == str(disks / found.decode() / "t-0" / "log")
    assert [listed for listed in source.list() if listed.name == "link"] == [entry]


@pytest.mark.parametrize(
    "target",
    [
        *("../../outside/secret", "/etc/passwd", "{disks}/../outside/secret", "../../outside"),
        *("..", "/", "../..", "/proc/self/cwd", "../three/x"),
    ],
)
def test_a_link_to_another_path_is_not_followed(disks: Path, target: str) -> None:
    (disks / "three").mkdir()
    (disks / "three" / "x").write_bytes(OUTSIDE)
    (disks / "one" / "link").symlink_to(target.format(disks=disks))
    source, _ = opened(disks / "one", disks / "two")
    assert refusal(source, "link") == directory.OUTSIDE
    with pytest.raises(SourceError, match="outside the given paths"):
        source.list("link")
    with pytest.raises(SourceError, match="not followed"):
        source.open("link/secret")


def test_paths_are_not_compared_as_text(disks: Path) -> None:
    """`two-of-another` starts with `two`, and `two` may be replaced after it was opened."""
    (disks / "two-of-another").mkdir()
    (disks / "two-of-another" / "log").write_bytes(OUTSIDE)
    (disks / "one" / "link").symlink_to(disks / "two-of-another" / "log")
    (disks / "one" / "swapped").symlink_to(disks / "two" / "t-0" / "log")
    source, _ = opened(disks / "one", disks / "two")
    assert refusal(source, "link") == directory.OUTSIDE
    assert content(source, "swapped") == INSIDE + b"two"
    (disks / "two").rename(disks / "real")
    (disks / "two").symlink_to(disks.parent / "outside")
    (disks.parent / "outside" / "t-0").mkdir()
    (disks.parent / "outside" / "t-0" / "log").write_bytes(OUTSIDE)
    assert refusal(source, "swapped") == directory.OUTSIDE


def test_an_input_path_does_not_permit_links_to_its_siblings(disks: Path) -> None:
    (disks / "one" / "link").symlink_to(disks / "two" / "t-0" / "log")
    assert refusal(open_source(str(disks / "one")), "link") == directory.OUTSIDE
    assert content(open_source(str(disks)), "one/link") == INSIDE + b"two"


def test_an_input_file_permits_only_links_to_that_file(disks: Path) -> None:
    (disks.parent / "outside" / "log").write_bytes(INSIDE)
    for name in ("log", "secret"):
        (disks / "one" / name).symlink_to(disks.parent / "outside" / name)
    source, _ = opened(disks / "one", disks.parent / "outside" / "log")
    assert content(source, "log") == INSIDE
    assert refusal(source, "secret") == directory.OUTSIDE


def test_a_link_to_an_input_directory_is_listed(disks: Path) -> None:
    (disks / "one" / "two").symlink_to(disks / "two")
    (disks / "one" / "back").symlink_to("two/t-0/back")
    (disks / "two" / "t-0" / "back").symlink_to("../../one/t-0/log")
    source, _ = opened(disks / "one", disks / "two")
    assert [entry.path for entry in source.list("two")] == ["two/t-0"]
    assert content(source, "two/t-0/log") == INSIDE + b"two"
    assert content(source, "two/t-0/back") == content(source, "back") == INSIDE + b"one"
    assert source.list("two")[0].link == str(disks / "two" / "t-0")


def test_dangling_and_circular_links_are_not_followed(disks: Path) -> None:
    path = disks / "one"
    (path / "gone").symlink_to("nothing")
    (path / "below").symlink_to("t-0/log/x")
    (path / "loop").symlink_to("loop")
    (path / "ping").symlink_to("pong")
    (path / "pong").symlink_to("../one/ping")
    (path / "l0").symlink_to("t-0/log")
    for number in range(MAX_LINKS):
        (path / f"l{number + 1}").symlink_to(f"l{number}")
    os.mkfifo(path / "pipe")
    (path / "to-pipe").symlink_to("pipe")
    source = open_source(str(path))
    reasons = {name: refusal(source, name) for name in ("gone", "below", "loop", "ping", f"l{MAX_LINKS}")}
    assert reasons == {
        "gone": directory.DANGLING,
        "below": directory.DANGLING,
        "loop": directory.CIRCLE,
        "ping": directory.CIRCLE,
        f"l{MAX_LINKS}": directory.TOO_MANY,
    }
    assert content(source, f"l{MAX_LINKS - 1}") == INSIDE + b"one"
    assert source.stat("to-pipe").kind is EntryKind.OTHER
    with pytest.raises(SourceError, match="not a regular file"):
        source.open("to-pipe")


def test_links_deeper_than_the_limit_are_not_followed(disks: Path) -> None:
    deep = disks / "one" / "/".join("d" * (MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    (disks / "one" / "link").symlink_to("d/" * MAX_DEPTH + "d")
    before = len(os.listdir("/proc/self/fd"))
    assert refusal(open_source(str(disks / "one")), "link") == directory.TOO_DEEP
    assert len(os.listdir("/proc/self/fd")) == before


def test_links_to_other_file_systems_are_not_followed(disks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link must not trigger an automount: only directories on the devices of input paths are opened."""
    (disks / "one" / "link").symlink_to("/proc/self/fd/x")
    opened_names: list[str] = []
    real_open = os.open

    def spy(path: str, *rest: Any, **keywords: Any) -> int:
        opened_names.append(str(path))
        return real_open(path, *rest, **keywords)

    source = open_source(str(disks / "one"))
    monkeypatch.setattr(os, "open", spy)
    assert source.stat("link").refused == f"a symbolic link, not followed: {directory.OUTSIDE}"
    assert "proc" not in opened_names


def swappable(disks: Path, kind: str) -> tuple[Path, list[str], str]:
    """(link, its targets inside and outside, path through the link)."""
    outside, path = disks.parent / "outside", disks / "one"
    (outside / "log").write_bytes(OUTSIDE)
    if kind == "file":
        return path / "x", ["t-0/log", "../../outside/secret"], "x"
    if kind == "directory":
        return path / "x", ["t-0", "../../outside"], "x/log"
    (path / "x").symlink_to(disks / "two" / "moving" / "log")
    return disks / "two" / "moving", ["t-0", str(outside)], "x"


SWAPPED = pytest.mark.parametrize("kind", ["file", "directory", "directory of the target"])


@SWAPPED
def test_a_link_replaced_before_any_system_call_is_not_followed_outside(
    disks: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is replaced before the n-th system call, for every n, and restored before the next."""
    link, targets, path = swappable(disks, kind)
    source, _ = opened(disks / "one", disks / "two")
    calls = {"left": 0}
    real = {name: getattr(os, name) for name in ("stat", "open", "readlink")}

    def point(target: str) -> None:
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def before(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            calls["left"] -= 1
            if calls["left"] in (0, -1):
                point(targets[1] if calls["left"] == 0 else targets[0])
            return real[name](*arguments, **keywords)

        return call

    read = refused = 0
    for number in range(1, 40):
        for first in targets:
            point(first)
            calls["left"] = number
            with monkeypatch.context() as patched:
                for name in real:
                    patched.setattr(os, name, before(name))
                try:
                    data = content(source, path)
                except SourceError:
                    refused += 1
                    continue
            assert data.startswith(INSIDE)
            read += 1
    assert read
    assert refused


def test_a_file_replaced_by_a_link_between_stat_and_open_is_an_error(disks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(str(disks / "one"))
    log = disks / "one" / "t-0" / "log"
    real_stat = os.stat

    def swap(path: Any, *rest: Any, **keywords: Any) -> os.stat_result:
        info = real_stat(path, *rest, **keywords)
        if path == "log" and stat.S_ISREG(info.st_mode):
            log.unlink()
            log.symlink_to(disks.parent / "outside" / "secret")
        return info

    monkeypatch.setattr(os, "stat", swap)
    with pytest.raises(SourceError, match="changed while it was read"):
        source.open("t-0/log")


def test_an_input_file_is_checked_again_after_it_is_opened(disks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = disks.parent / "outside"
    (outside / "log").write_bytes(INSIDE)
    (disks / "one" / "link").symlink_to(outside / "log")
    source, _ = opened(disks / "one", outside / "log")
    real_open = os.open

    def swap(path: Any, *rest: Any, **keywords: Any) -> int:
        if path == "log":
            (outside / "secret").rename(outside / "log")
        return real_open(path, *rest, **keywords)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(SourceError, match="changed while it was read"):
        source.open("link")


def tarred(path: Path, files: dict[str, bytes], symlinks: dict[str, str]) -> None:
    with tarfile.open(path, "w") as out:
        for name, data in (files | {link: target.encode() for link, target in symlinks.items()}).items():
            info = tarfile.TarInfo(name)
            if name in symlinks:
                info.type, info.linkname = tarfile.SYMTYPE, symlinks[name]
            else:
                info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def zipped(path: Path, files: dict[str, bytes], symlinks: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)
        for name, target in symlinks.items():
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
            out.writestr(info, target)


FORMS: dict[str, Callable[[Path, dict[str, bytes], dict[str, str]], None]] = {"a.tar": tarred, "a.zip": zipped}


def archived(folder: Path, form: str, files: dict[str, bytes], symlinks: dict[str, str]) -> ByteSource:
    """A source of an archive with files and links."""
    FORMS[form](folder / form, files, symlinks)
    return open_source(str(folder / form))


@pytest.mark.parametrize("form", FORMS)
def test_links_in_an_archive_are_followed_to_its_members(tmp_path: Path, form: str) -> None:
    symlinks = {
        "d1/file": "t-0/log",
        "d1/over": "../d2/t-0/./log",
        "d1/rooted": "/d2/t-0/log",
        "d1/dir": "../d2",
        "d1/chain": "dir/t-0/log",
        "d1/self": ".",
    }
    source = archived(tmp_path, form, {"d1/t-0/log": b"one", "d2/t-0/log": b"two"}, symlinks)
    contents = {name: content(source, f"d1/{name}") for name in ("file", "over", "rooted", "chain", "dir/t-0/log", "self/file")}
    assert contents == {
        "file": b"one",
        "over": b"two",
        "rooted": b"two",
        "chain": b"two",
        "dir/t-0/log": b"two",
        "self/file": b"one",
    }
    entries = {entry.name: entry for entry in source.list("d1")}
    assert {name: entry.link for name, entry in entries.items()} == {
        "t-0": None,
        "file": "d1/t-0/log",
        "over": "d2/t-0/log",
        "rooted": "d2/t-0/log",
        "dir": "d2",
        "chain": "d2/t-0/log",
        "self": "d1",
    }
    assert (entries["dir"].kind, entries["file"].kind, entries["file"].size_in_bytes) == (EntryKind.DIRECTORY, EntryKind.FILE, 3)
    assert [(entry.path, entry.link) for entry in source.list("d1/dir")] == [("d1/dir/t-0", "d2/t-0")]
    assert (source.problems, source.rejected) == ([], [])


@pytest.mark.parametrize("form", FORMS)
def test_invalid_links_in_an_archive_are_not_followed(tmp_path: Path, form: str) -> None:
    chain = {f"l{number + 1}": f"l{number}" for number in range(MAX_LINKS)} | {"l0": "t-0/log"}
    bad = {
        "up": "../t-0/log",
        "far": "t-0/../../x",
        "passwd": "/etc/passwd",
        "gone": "t-0/nothing",
        "below": "t-0/log/x",
        "loop": "loop",
        "ping": "pong",
        "pong": "./ping",
        "long": "x/" * 5000,
        "nul": "a\0b",
    }
    source = archived(tmp_path, form, {"t-0/log": b"one"}, chain | bad)
    assert {name: refusal(source, name) for name in (*bad, f"l{MAX_LINKS}")} == {
        "up": directory.OUTSIDE,
        "far": directory.OUTSIDE,
        "passwd": directory.DANGLING,
        "gone": directory.DANGLING,
        "below": directory.DANGLING,
        "loop": directory.CIRCLE,
        "ping": directory.CIRCLE,
        "pong": directory.CIRCLE,
        "long": directory.DANGLING,
        "nul": directory.DANGLING,
        f"l{MAX_LINKS}": directory.TOO_MANY,
    }
    assert content(source, f"l{MAX_LINKS - 1}") == b"one"
    for name in bad:
        with pytest.raises(SourceError):
            source.list(name)
