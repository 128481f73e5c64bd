"""Members with unsafe names are not listed, and special members are not opened."""

import io
import stat
import tarfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives import members
from kafka_forensics.storage.archives.members import MemberDirectory, MemberTree, safe_parts
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.source import ByteSource, EntryKind
from tests.storage.trees import walk

ArchiveMember = tarfile.TarInfo | tuple[str | tarfile.TarInfo, bytes]


def tar_with(path: Path, *infos: ArchiveMember, form: int = tarfile.PAX_FORMAT) -> ByteSource:
    with tarfile.open(path, "w", format=form) as opened:
        for info in infos:
            if isinstance(info, tuple):
                named, content = info
                member = tarfile.TarInfo(named) if isinstance(named, str) else named
                member.size = len(content)
                opened.addfile(member, io.BytesIO(content))
            else:
                opened.addfile(info)
    return open_source(str(path))


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def listed(source: ByteSource) -> dict[str, str]:
    return {entry.path: entry.kind.value for entry in walk(source)}


HOSTILE = ["/etc/passwd", "../up", "a/../../up", "a/..", "x" * 5000, ".", "./", ""]


@dataclass(frozen=True)
class Tar:
    """Members of a tar, and the files, other entries, rejected names and replaced names that they give."""

    members: list[ArchiveMember]
    files: dict[str, bytes] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    form: int = tarfile.PAX_FORMAT


DIRECTORY = "directory"
TARS = {
    "hostile names": Tar(
        [("good/file", b"1"), *((name, b"x") for name in HOSTILE)],
        {"good/file": b"1"},
        {"good": DIRECTORY},
        [name[:4096] for name in HOSTILE],
    ),
    "hostile names in the GNU format": Tar(
        [(name, b"x") for name in HOSTILE], rejected=[name[:4096] for name in HOSTILE], form=tarfile.GNU_FORMAT
    ),
    "unusual but harmless names": Tar(
        [("./a//b/./c.log", b"1"), ("\udcff\udcfe.log", b"2"), ("new\nline", b"3")],
        {"a/b/c.log": b"1", "\udcff\udcfe.log": b"2", "new\nline": b"3"},
        {"a": DIRECTORY, "a/b": DIRECTORY},
    ),
    "the last of two members with one name is read": Tar(
        [("a/x", b"first"), ("a/y", b"y"), ("./a/x", b"second!")],
        {"a/x": b"second!", "a/y": b"y"},
        {"a": DIRECTORY},
        replaced=["a/x"],
    ),
    "a directory listed twice": Tar(
        [special("a", tarfile.DIRTYPE), ("a/x", b"1"), special("a/", tarfile.DIRTYPE)], {"a/x": b"1"}, {"a": DIRECTORY}
    ),
    "a path is a file or a directory": Tar(
        [("a", b"file"), ("a/b", b"below a file"), ("d/e", b"1"), ("d", b"over a directory")],
        {"a": b"file", "d/e": b"1"},
        {"d": DIRECTORY},
        ["a/b", "d"],
    ),
    "links and devices": Tar(
        [
            special("link", tarfile.SYMTYPE, "/etc"),
            ("link/passwd", b"x"),
            special("loop", tarfile.SYMTYPE, "loop"),
            special("pipe", tarfile.FIFOTYPE),
            special("disk", tarfile.BLKTYPE),
            special("tty", tarfile.CHRTYPE),
        ],
        {},
        {"disk": "other", "link": "symlink", "loop": "symlink", "pipe": "other", "tty": "other"},
        ["link/passwd"],
    ),
    "hard links have the content of their member": Tar(
        [
            ("a/first", b"content"),
            special("a/again", tarfile.LNKTYPE, "./a/first"),
            special("a/third", tarfile.LNKTYPE, "a/again"),
            special("dangling", tarfile.LNKTYPE, "nowhere"),
            special("outside", tarfile.LNKTYPE, "../../etc/passwd"),
            special("directory", tarfile.LNKTYPE, "a"),
            ("a/first", b"replaced"),
            ("end", b"end"),
        ],
        {"a/again": b"content", "a/third": b"content", "a/first": b"replaced", "end": b"end"},
        {"a": DIRECTORY, "dangling": "other", "outside": "other", "directory": "other"},
        replaced=["a/first"],
    ),
    "old and unusual types": Tar(
        [
            (special("vendor", b"Q"), b"12345"),
            special("old-directory/", tarfile.AREGTYPE),
            special("label", b"V"),
            special("rest of a file", b"M"),
            ("last", b"last"),
        ],
        {"last": b"last"},
        {"old-directory": DIRECTORY, "rest of a file": "other", "vendor": "other"},
        problems=["one part of several: rest of a file began in the previous part"],
        form=tarfile.GNU_FORMAT,
    ),
}


@pytest.mark.parametrize("name", TARS)
def test_members_of_a_tar_are_listed_or_rejected(name: str, tmp_path: Path) -> None:
    tar = TARS[name]
    source = tar_with(tmp_path / "a.tar", *tar.members, form=tar.form)
    assert listed(source) == dict.fromkeys(tar.files, "file") | tar.others
    assert {path: source.open(path).read_at(0, 99) for path in tar.files} == tar.files
    assert (source.rejected, source.replaced, source.problems) == (tar.rejected, tar.replaced, tar.problems)
    for path in (*tar.others, *tar.rejected[:1], "nowhere"):
        with pytest.raises(SourceError):
            source.open(path)


def test_hostile_names_in_a_zip_are_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        for name in ["good/file", "/abs", "../up", "nul_name"]:
            opened.writestr(zipfile.ZipInfo(name), b"x")
        for name in ("broker\\topic-0\\0.log", "C:\\Windows\\0.log"):
            windows = zipfile.ZipInfo(name)
            windows.create_system = 0
            opened.writestr(windows, b"w")
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes().replace(b"nul_name", b"nul\0name"))
    source = open_source(str(tmp_path / "a.zip"))
    directories = dict.fromkeys(("broker", "broker/topic-0", "good"), DIRECTORY)
    assert listed(source) == directories | {"broker/topic-0/0.log": "file", "good/file": "file"}
    assert source.rejected == ["/abs", "../up", "nul\0name", "/C:/Windows/0.log"]


def test_special_files_in_a_zip_are_not_opened(tmp_path: Path) -> None:
    kinds = {"link": stat.S_IFLNK, "pipe": stat.S_IFIFO, "file": stat.S_IFREG, "none": 0, "directory": stat.S_IFDIR}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        for name, mode in kinds.items():
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = (mode | 0o644) << 16 if mode else 0
            opened.writestr(info, b"" if name == "directory" else b"/etc/passwd")
        opened.writestr("slash/", b"")
    source = open_source(str(tmp_path / "a.zip"))
    expected = {"directory": DIRECTORY, "file": "file", "link": "symlink", "none": "file", "pipe": "other", "slash": DIRECTORY}
    assert listed(source) == expected
    for path in ("link", "pipe", "directory", "slash"):
        with pytest.raises(SourceError):
            source.open(path)


def test_listing_a_file_is_an_error(tmp_path: Path) -> None:
    source = tar_with(tmp_path / "a.tar", ("a/x", b"1"))
    for path in ("a/x", "b", "a/x/y", "/", "a/", "a/../a"):
        with pytest.raises(SourceError):
            source.list(path)
    assert source.stat("").kind is EntryKind.DIRECTORY
    assert source.stat("a").mtime_ns == 0


def test_an_archive_of_too_many_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERS", 50)
    infos = [tarfile.TarInfo(f"d/{number}") for number in range(50)]
    assert len(tar_with(tmp_path / "a.tar", *infos[:49]).list("d")) == 49
    with pytest.raises(SourceError, match=r"a\.tar: an archive of more than 50 members"):
        tar_with(tmp_path / "a.tar", *infos)


def test_names_and_notes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MAX_NAMES", 10_000)
    tree = MemberTree()
    for number in range(100):
        tree.add_directory(f"{number:0100}", 0)
    with pytest.raises(SourceError, match="of member names"):
        tree.add_directory("x", 0)
    notes: list[str] = []
    for number in range(2000):
        members.note(notes, str(number))
        members.note(notes, str(number))
    assert len(notes) == members.MAX_NOTES + 1
    assert notes[-1] == "… and more"


def test_a_deep_name_makes_one_directory_per_level() -> None:
    tree = MemberTree()
    tree.add_directory("a/" * 2000, 5)
    node: object = tree.root
    depth = 0
    while isinstance(node, MemberDirectory) and node.children:
        node = node.children["a"]
        depth += 1
    assert depth == 2000


SAFE = {"a/b": ("a", "b"), "./a//b/": ("a", "b"), "": (), ".": (), "...": ("...",), "a/..b": ("a", "..b")}
SAFE_PARTS = SAFE | dict.fromkeys(("..", "a/../b", "/a", "a\0b"))


@pytest.mark.parametrize("name", SAFE_PARTS)
def test_a_safe_name_is_divided_into_its_parts(name: str) -> None:
    assert safe_parts(name) == SAFE_PARTS[name]
