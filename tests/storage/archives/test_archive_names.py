"""Names and kinds of members come from outside: what is no safe path is listed nowhere, what is no file is never opened."""

import io
import stat
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives import members
from kafka_forensics.storage.archives.members import Directory, MemberTree, safe_parts
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.source import ByteSource, EntryKind
from tests.storage.trees import walk


def tar_with(path: Path, *infos: tarfile.TarInfo | tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> ByteSource:
    with tarfile.open(path, "w", format=form) as opened:
        for info in infos:
            if isinstance(info, tuple):
                name, content = info
                member = tarfile.TarInfo(name)
                member.size = len(content)
                opened.addfile(member, io.BytesIO(content))
            else:
                opened.addfile(info)
    return open_source(str(path))


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def listed(source: ByteSource) -> dict[str, str]:
    return {entry.path: entry.kind.value for entry in walk(source)}


HOSTILE = ["/etc/passwd", "../up", "a/../../up", "a/..", "x" * 5000, ".", "./", ""]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_hostile_names_are_rejected_and_listed_nowhere(form: int, tmp_path: Path) -> None:
    source = tar_with(tmp_path / "a.tar", ("good/file", b"1"), *((name, b"x") for name in HOSTILE), form=form)
    assert listed(source) == {"good": "directory", "good/file": "file"}
    assert source.rejected == [name[:4096] for name in HOSTILE]


def test_hostile_names_in_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        for name in ["good/file", "/abs", "../up", "nul_name"]:
            opened.writestr(zipfile.ZipInfo(name), b"x")
        windows = zipfile.ZipInfo("broker\\topic-0\\0.log")
        windows.create_system = 0
        opened.writestr(windows, b"w")
        drive = zipfile.ZipInfo("C:\\Windows\\0.log")
        drive.create_system = 0
        opened.writestr(drive, b"w")
    data = (tmp_path / "a.zip").read_bytes().replace(b"nul_name", b"nul\0name")
    (tmp_path / "a.zip").write_bytes(data)
    source = open_source(str(tmp_path / "a.zip"))
    assert listed(source) == {
        "broker": "directory",
        "broker/topic-0": "directory",
        "broker/topic-0/0.log": "file",
        "good": "directory",
        "good/file": "file",
    }
    assert source.rejected == ["/abs", "../up", "nul\0name", "/C:/Windows/0.log"]


def test_odd_but_harmless_names_are_cleaned(tmp_path: Path) -> None:
    source = tar_with(tmp_path / "a.tar", ("./a//b/./c.log", b"1"), ("\udcff\udcfe.log", b"2"), ("new\nline", b"3"))
    assert set(listed(source)) == {"a", "a/b", "a/b/c.log", "\udcff\udcfe.log", "new\nline"}
    assert source.open("\udcff\udcfe.log").read_at(0, 9) == b"2"
    assert source.rejected == []


def test_of_two_members_of_one_name_the_last_wins(tmp_path: Path) -> None:
    source = tar_with(tmp_path / "a.tar", ("a/x", b"first"), ("a/y", b"y"), ("./a/x", b"second!"))
    assert [(entry.path, entry.size_in_bytes) for entry in source.list("a")] == [("a/x", 7), ("a/y", 1)]
    assert source.open("a/x").read_at(0, 9) == b"second!"
    assert (source.replaced, source.rejected, source.problems) == (["a/x"], [], [])


def test_of_two_members_of_one_name_in_a_zip_the_last_wins(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened, warnings.catch_warnings(action="ignore"):
        for name, data in (("a/x", b"first"), ("a/y", b"y"), ("a/x", b"second!"), ("a/x", b"third")):
            opened.writestr(name, data)
    source = open_source(str(tmp_path / "a.zip"))
    assert source.open("a/x").read_at(0, 9) == b"third"
    assert source.replaced == ["a/x"]


def test_a_directory_may_be_named_twice(tmp_path: Path) -> None:
    source = tar_with(tmp_path / "a.tar", special("a", tarfile.DIRTYPE), ("a/x", b"1"), special("a/", tarfile.DIRTYPE))
    assert (listed(source), source.replaced) == ({"a": "directory", "a/x": "file"}, [])


def test_a_name_is_a_file_or_a_directory_but_not_both(tmp_path: Path) -> None:
    source = tar_with(tmp_path / "a.tar", ("a", b"file"), ("a/b", b"below a file"), ("d/e", b"1"), ("d", b"over a directory"))
    assert listed(source) == {"a": "file", "d": "directory", "d/e": "file"}
    assert source.rejected == ["a/b", "d"]


def test_nothing_is_read_through_a_link(tmp_path: Path) -> None:
    source = tar_with(
        tmp_path / "a.tar",
        special("link", tarfile.SYMTYPE, "/etc"),
        ("link/passwd", b"x"),
        special("loop", tarfile.SYMTYPE, "loop"),
        special("pipe", tarfile.FIFOTYPE),
        special("disk", tarfile.BLKTYPE),
        special("tty", tarfile.CHRTYPE),
    )
    assert listed(source) == {"disk": "other", "link": "symlink", "loop": "symlink", "pipe": "other", "tty": "other"}
    assert source.rejected == ["link/passwd"]
    for path in ("disk", "link", "loop", "pipe", "tty", "link/passwd", "nowhere"):
        with pytest.raises(SourceError):
            source.open(path)


def test_hard_links_are_the_member_they_point_to(tmp_path: Path) -> None:
    source = tar_with(
        tmp_path / "a.tar",
        ("a/first", b"content"),
        special("a/again", tarfile.LNKTYPE, "./a/first"),
        special("a/third", tarfile.LNKTYPE, "a/again"),
        special("dangling", tarfile.LNKTYPE, "nowhere"),
        special("outside", tarfile.LNKTYPE, "../../etc/passwd"),
        special("directory", tarfile.LNKTYPE, "a"),
        ("a/first", b"replaced"),
        ("end", b"end"),
    )
    kinds = listed(source)
    assert {name: kind for name, kind in kinds.items() if kind == "other"} == dict.fromkeys(
        ("dangling", "outside", "directory"), "other"
    )
    assert source.open("a/again").read_at(0, 99) == b"content"
    assert source.open("a/third").read_at(0, 99) == b"content"
    assert source.open("a/first").read_at(0, 99) == b"replaced"
    assert source.open("end").read_at(0, 99) == b"end"


def test_old_and_odd_types_of_tar_members(tmp_path: Path) -> None:
    odd = tarfile.TarInfo("vendor")
    odd.type, odd.size = b"Q", 5
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as opened:
        opened.addfile(odd, io.BytesIO(b"12345"))
        opened.addfile(special("old-directory/", tarfile.AREGTYPE))
        opened.addfile(special("label", b"V"))
        opened.addfile(special("rest of a file", b"M"))
        last = tarfile.TarInfo("last")
        last.size = 4
        opened.addfile(last, io.BytesIO(b"last"))
    source = open_source(str(path))
    assert listed(source) == {"last": "file", "old-directory": "directory", "rest of a file": "other", "vendor": "other"}
    assert source.open("last").read_at(0, 9) == b"last"
    assert source.problems == ["a part of several: rest of a file began in the part before"]


def test_a_v7_header_without_magic_and_a_long_ustar_name(tmp_path: Path) -> None:
    name = "d" * 100 + "/" + "e" * 80
    source = tar_with(tmp_path / "a.tar", (name, b"1"), form=tarfile.USTAR_FORMAT)
    assert source.open(name).read_at(0, 1) == b"1"
    data = bytearray((tmp_path / "a.tar").read_bytes())
    data[257:512] = bytes(255)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    (tmp_path / "a.tar").write_bytes(data)
    assert set(listed(open_source(str(tmp_path / "a.tar")))) == {"e" * 80}


def test_kinds_in_a_zip(tmp_path: Path) -> None:
    kinds = {"link": stat.S_IFLNK, "pipe": stat.S_IFIFO, "file": stat.S_IFREG, "none": 0, "directory": stat.S_IFDIR}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        for name, mode in kinds.items():
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = (mode | 0o644) << 16 if mode else 0
            opened.writestr(info, b"" if name == "directory" else b"/etc/passwd")
        opened.writestr("slash/", b"")
    source = open_source(str(tmp_path / "a.zip"))
    expected = {"directory": "directory", "file": "file", "link": "symlink", "none": "file", "pipe": "other", "slash": "directory"}
    assert listed(source) == expected
    for path in ("link", "pipe", "directory", "slash"):
        with pytest.raises(SourceError):
            source.open(path)


def test_listing_what_is_no_directory(tmp_path: Path) -> None:
    source = tar_with(tmp_path / "a.tar", ("a/x", b"1"))
    for path in ("a/x", "b", "a/x/y", "/", "a/", "a/../a"):
        with pytest.raises(SourceError):
            source.list(path)
    assert source.stat("").kind is EntryKind.DIRECTORY
    assert source.stat("a").mtime_ns == 0


@pytest.mark.parametrize("suffix", ["tar", "zip"])
def test_an_archive_of_too_many_members_is_refused(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERS", 50)
    path = tmp_path / f"a.{suffix}"
    for number, is_refused in ((49, False), (50, True)):
        files = [(f"d/{index}", b"") for index in range(number)]
        if suffix == "zip":
            with zipfile.ZipFile(path, "w") as opened:
                for name, content in files:
                    opened.writestr(name, content)
        else:
            with tarfile.open(path, "w") as opened_tar:
                for name, _ in files:
                    opened_tar.addfile(tarfile.TarInfo(name))
        if is_refused:
            with pytest.raises(SourceError, match=rf"a\.{suffix}: an archive of more than 50 members"):
                open_source(str(path))
        else:
            assert len(open_source(str(path)).list("d")) == number


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


def test_a_deep_name_costs_no_more_than_its_length() -> None:
    tree = MemberTree()
    tree.add_directory("a/" * 2000, 5)
    node: object = tree.root
    depth = 0
    while isinstance(node, Directory) and node.children:
        node = node.children["a"]
        depth += 1
    assert depth == 2000


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a/b", ("a", "b")),
        ("./a//b/", ("a", "b")),
        ("", ()),
        (".", ()),
        ("..", None),
        ("a/../b", None),
        ("/a", None),
        ("a\0b", None),
        ("...", ("...",)),
        ("a/..b", ("a", "..b")),
    ],
)
def test_safe_parts(name: str, parts: tuple[str, ...] | None) -> None:
    assert safe_parts(name) == parts
