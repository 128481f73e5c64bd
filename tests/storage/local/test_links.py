"""Links are followed only to what was given, even if they are swapped meanwhile."""

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

INSIDE, OUTSIDE = b"evidence", b"root:x:0:0: never to be read"


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Two disks that are given, and a secret file beside them."""
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
def test_a_link_to_a_given_path_is_followed(given: Path, target: str, found: bytes) -> None:
    (given / "alias").symlink_to("two")
    (given / "other").mkdir()
    (given / "other" / "nest").symlink_to(given)
    (given / "one" / "link").symlink_to(target.format(disks=given))
    source, _ = opened(given / "one", given / "two")
    assert content(source, "link") == INSIDE + found
    entry, behind = source.stat("link"), os.stat(given / found.decode() / "t-0" / "log")
    assert (entry.kind, entry.size_in_bytes, entry.identity) == (EntryKind.FILE, len(INSIDE) + 3, (behind.st_dev, behind.st_ino))
    assert entry.link == str(given / found.decode() / "t-0" / "log")
    assert [each for each in source.list() if each.name == "link"] == [entry]


@pytest.mark.parametrize(
    "target",
    [
        *("../../outside/secret", "/etc/passwd", "{disks}/../outside/secret", "../../outside"),
        *("..", "/", "../..", "/proc/self/cwd", "../three/x"),
    ],
)
def test_a_link_to_another_path_is_not_followed(given: Path, target: str) -> None:
    (given / "three").mkdir()
    (given / "three" / "x").write_bytes(OUTSIDE)
    (given / "one" / "link").symlink_to(target.format(disks=given))
    source, _ = opened(given / "one", given / "two")
    assert refusal(source, "link") == directory.OUTSIDE
    with pytest.raises(SourceError, match="out of what was given"):
        source.list("link")
    with pytest.raises(SourceError, match="not followed"):
        source.open("link/secret")


def test_paths_are_not_compared_as_text(given: Path) -> None:
    """`two-of-another` starts like `two`, and `two` itself may have been replaced since it was given."""
    (given / "two-of-another").mkdir()
    (given / "two-of-another" / "log").write_bytes(OUTSIDE)
    (given / "one" / "link").symlink_to(given / "two-of-another" / "log")
    (given / "one" / "swapped").symlink_to(given / "two" / "t-0" / "log")
    source, _ = opened(given / "one", given / "two")
    assert refusal(source, "link") == directory.OUTSIDE
    assert content(source, "swapped") == INSIDE + b"two"
    (given / "two").rename(given / "real")
    (given / "two").symlink_to(given.parent / "outside")
    (given.parent / "outside" / "t-0").mkdir()
    (given.parent / "outside" / "t-0" / "log").write_bytes(OUTSIDE)
    assert refusal(source, "swapped") == directory.OUTSIDE


def test_a_given_path_does_not_open_its_siblings(given: Path) -> None:
    (given / "one" / "link").symlink_to(given / "two" / "t-0" / "log")
    assert refusal(open_source(str(given / "one")), "link") == directory.OUTSIDE
    assert content(open_source(str(given)), "one/link") == INSIDE + b"two"


def test_a_link_to_a_given_file_opens_only_that_file(given: Path) -> None:
    (given.parent / "outside" / "log").write_bytes(INSIDE)
    for name in ("log", "secret"):
        (given / "one" / name).symlink_to(given.parent / "outside" / name)
    source, _ = opened(given / "one", given.parent / "outside" / "log")
    assert content(source, "log") == INSIDE
    assert refusal(source, "secret") == directory.OUTSIDE


def test_a_link_to_a_given_directory_is_listed(given: Path) -> None:
    (given / "one" / "two").symlink_to(given / "two")
    (given / "one" / "back").symlink_to("two/t-0/back")
    (given / "two" / "t-0" / "back").symlink_to("../../one/t-0/log")
    source, _ = opened(given / "one", given / "two")
    assert [entry.path for entry in source.list("two")] == ["two/t-0"]
    assert content(source, "two/t-0/log") == INSIDE + b"two"
    assert content(source, "two/t-0/back") == content(source, "back") == INSIDE + b"one"
    assert source.list("two")[0].link == str(given / "two" / "t-0")


def test_dangling_and_circular_links_are_not_followed(given: Path) -> None:
    path = given / "one"
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


def test_links_deeper_than_the_limit_are_not_followed(given: Path) -> None:
    deep = given / "one" / "/".join("d" * (MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    (given / "one" / "link").symlink_to("d/" * MAX_DEPTH + "d")
    before = len(os.listdir("/proc/self/fd"))
    assert refusal(open_source(str(given / "one")), "link") == directory.TOO_DEEP
    assert len(os.listdir("/proc/self/fd")) == before


def test_links_do_not_enter_other_file_systems(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link must not trigger an automount: directories on other devices than the given paths' are not opened."""
    (given / "one" / "link").symlink_to("/proc/self/fd/x")
    entered: list[str] = []
    real_open = os.open

    def spy(path: str, *rest: Any, **keywords: Any) -> int:
        entered.append(str(path))
        return real_open(path, *rest, **keywords)

    source = open_source(str(given / "one"))
    monkeypatch.setattr(os, "open", spy)
    assert source.stat("link").refused == f"a symbolic link, not followed: {directory.OUTSIDE}"
    assert "proc" not in entered


def swappable(given: Path, what: str) -> tuple[Path, list[str], str]:
    """(link, its two targets, one of them outside, path through the link)."""
    outside, path = given.parent / "outside", given / "one"
    (outside / "log").write_bytes(OUTSIDE)
    if what == "file":
        return path / "x", ["t-0/log", "../../outside/secret"], "x"
    if what == "directory":
        return path / "x", ["t-0", "../../outside"], "x/log"
    (path / "x").symlink_to(given / "two" / "moving" / "log")
    return given / "two" / "moving", ["t-0", str(outside)], "x"


SWAPPED = pytest.mark.parametrize("what", ["file", "directory", "directory of the target"])


@SWAPPED
def test_a_link_swapped_before_any_system_call_never_leads_outside(given: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is replaced before the n-th system call, for every n, and restored before the next."""
    link, targets, path = swappable(given, what)
    source, _ = opened(given / "one", given / "two")
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


def test_a_file_swapped_for_a_link_between_stat_and_open(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(str(given / "one"))
    log = given / "one" / "t-0" / "log"
    real_stat = os.stat

    def swap(path: Any, *rest: Any, **keywords: Any) -> os.stat_result:
        info = real_stat(path, *rest, **keywords)
        if path == "log" and stat.S_ISREG(info.st_mode):
            log.unlink()
            log.symlink_to(given.parent / "outside" / "secret")
        return info

    monkeypatch.setattr(os, "stat", swap)
    with pytest.raises(SourceError, match="changed meanwhile"):
        source.open("t-0/log")


def test_a_given_file_is_checked_again_when_it_is_open(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = given.parent / "outside"
    (outside / "log").write_bytes(INSIDE)
    (given / "one" / "link").symlink_to(outside / "log")
    source, _ = opened(given / "one", outside / "log")
    real_open = os.open

    def swap(path: Any, *rest: Any, **keywords: Any) -> int:
        if path == "log":
            (outside / "secret").rename(outside / "log")
        return real_open(path, *rest, **keywords)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(SourceError, match="changed meanwhile"):
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
    """An archive of files and links."""
    FORMS[form](folder / form, files, symlinks)
    return open_source(str(folder / form))


@pytest.mark.parametrize("form", FORMS)
def test_links_in_an_archive_lead_to_its_members_by_name(tmp_path: Path, form: str) -> None:
    symlinks = {
        "d1/file": "t-0/log",
        "d1/over": "../d2/t-0/./log",
        "d1/rooted": "/d2/t-0/log",
        "d1/dir": "../d2",
        "d1/chain": "dir/t-0/log",
        "d1/self": ".",
    }
    source = archived(tmp_path, form, {"d1/t-0/log": b"one", "d2/t-0/log": b"two"}, symlinks)
    reasons = {name: content(source, f"d1/{name}") for name in ("file", "over", "rooted", "chain", "dir/t-0/log", "self/file")}
    assert reasons == {
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
def test_links_in_an_archive_that_are_not_followed(tmp_path: Path, form: str) -> None:
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
