"""Archives that are truncated, damaged or have wrong sizes: members before the damage are read, the rest is reported."""

import gzip
import io
import lzma
import random
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives.archive import ArchiveSource
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.source import ByteSource, EntryKind
from tests.storage.trees import CONTAINERS, streamed_zip, walk, zstd

FILES = {
    "b/a.log": random.Random(1).randbytes(3000),
    "b/b.log": random.Random(2).randbytes(700) * 10,
    "b/empty.log": b"",
    "b/c.log": b"c" * 512,
    "b/" + "long" * 40: b"long",
}


def tar_of(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as opened:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            opened.addfile(info, io.BytesIO(content))
    return target.getvalue()


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return target.getvalue()


def small_sparse_tar(tmp_path: Path, form: str) -> bytes:
    root = tmp_path / "root"
    root.mkdir()
    with (root / "s.index").open("wb") as file:
        for number in range(30):
            file.seek(number * 8192)
            file.write(b"%04d" % number * 1024)
    CONTAINERS[form][1](root, tmp_path / "made.tar")
    return (tmp_path / "made.tar").read_bytes()


def read_all(source: ByteSource) -> dict[str, bytes | None]:
    """Content of each file, None where it cannot be read."""
    contents: dict[str, bytes | None] = {}
    for entry in walk(source):
        if entry.kind is EntryKind.FILE:
            try:
                with source.open(entry.path) as file:
                    contents[entry.path] = file.read_at(0, min(entry.size_in_bytes, 1 << 22))
                    file.data_ranges()
            except SourceError as error:
                contents[error.path] = None
    assert set(contents) == {entry.path for entry in walk(source) if entry.kind is EntryKind.FILE}
    return contents


def check(data: bytes, suffix: str, tmp_path: Path, expected: dict[str, bytes] | None) -> tuple[int, list[str]]:
    """(files read, problems) of a damaged archive, whose readable files must equal `expected`."""
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(data)
    try:
        source = open_source(str(path))
    except SourceError as error:
        return 0, [error.reason if error.path == str(path) else ""]
    assert isinstance(source, ArchiveSource)
    contents = read_all(source)
    if expected is not None:
        for name, content in contents.items():
            assert content is None or content == expected[name]
    return sum(content is not None for content in contents.values()), source.problems


PACKED = {
    ".tar": tar_of(FILES),
    ".tar.gz": gzip.compress(tar_of(FILES)),
    ".tar.xz": lzma.compress(tar_of(FILES)),
    ".tar.zst": zstd(tar_of(FILES)),
}


@pytest.mark.parametrize("suffix", PACKED)
def test_a_tar_cut_anywhere_gives_the_members_before(suffix: str, tmp_path: Path) -> None:
    data = PACKED[suffix]
    lengths = sorted({*range(0, len(data), 199), *range(30), *range(len(data) - 30, len(data))})
    seen = []
    for length in lengths:
        files, problems = check(data[:length], suffix, tmp_path, FILES)
        seen.append(files)
        if suffix != ".tar" or length < len(tar_of(FILES)) - 10240:
            assert problems, f"cut at {length} of {len(data)} bytes without a problem"
    assert seen[0] == 0
    assert max(seen) == len(FILES)
    if suffix == ".tar":
        assert seen == sorted(seen)
        assert set(seen) == set(range(len(FILES) + 1))


def test_a_tar_cut_in_a_member_names_it_and_gives_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(FILES)[: 512 + 2000])
    source = open_source(str(path))
    assert source.problems == ["cut short in the data of b/a.log"]
    assert source.stat("b/a.log").size_in_bytes == 3000
    with source.open("b/a.log") as file:
        assert file.read_at(0, 2000) == FILES["b/a.log"][:2000]
        with pytest.raises(SourceError, match=r"b/a\.log: the archive is cut short or damaged, without byte 2000 "):
            file.read_at(0, 2001)
        with pytest.raises(SourceError, match=r"without bytes 2000 to 2999 "):
            file.read_into(1000, memoryview(bytearray(9999)))


def test_a_tar_cut_at_a_member_boundary_is_reported(tmp_path: Path) -> None:
    end = 512 + 3072 + 512 + 7168
    files, problems = check(tar_of(FILES)[:end], ".tar", tmp_path, FILES)
    assert (files, problems) == (2, [f"ends at byte {end} without an end marker: it may be cut short"])


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_bytes_after_the_end_marker_are_reported(suffix: str, tmp_path: Path) -> None:
    data = tar_of(FILES) + tar_of({"hidden": b"hidden"})
    data = gzip.compress(data) if suffix == ".tar.gz" else data
    files, problems = check(data, suffix, tmp_path, FILES)
    assert files == len(FILES)
    assert len(problems) == 1
    assert "after the end marker" in problems[0]


def test_a_damaged_header_ends_the_list_and_is_reported(tmp_path: Path) -> None:
    data = bytearray(tar_of(FILES))
    second = 512 + 3072
    data[second + 130] ^= 0x01
    files, problems = check(bytes(data), ".tar", tmp_path, FILES)
    assert (files, problems) == (1, [f"no tar header at byte {second}: the rest is not read"])


@pytest.mark.parametrize("form", ["gnu sparse", "pax sparse 1.0", "pax sparse 0.1", "pax sparse 0.0"])
def test_a_sparse_tar_cut_or_changed_anywhere_never_crashes(form: str, tmp_path: Path) -> None:
    data = small_sparse_tar(tmp_path, form)
    choose = random.Random(4)
    for length in range(0, len(data), 3001):
        check(data[:length], ".tar", tmp_path, None)
    for _ in range(60):
        damaged = bytearray(data)
        at = choose.randrange(4000)
        damaged[at] ^= 1 << choose.randrange(8)
        fix_checksums(damaged)
        check(bytes(damaged), ".tar", tmp_path, None)


def fix_checksums(data: bytearray) -> None:
    """Write the right checksum into every header, because damage must pass the check."""
    for at in range(0, min(len(data), 8192) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])


def damaged_header(change: dict[int, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    data = bytearray(tar_of({"a.log": b"abc", "b.log": b"xyz"}, form))
    for at, value in change.items():
        data[at : at + len(value)] = value
    fix_checksums(data)
    return bytes(data)


@pytest.mark.parametrize(
    ("size_field", "problem"),
    [
        (b"77777777777\0", "cut short in the data of a.log"),
        (b"\x80" + bytes(3) + b"\x7f" + b"\xff" * 7, "impossible size"),
        (b"\x80" + b"\xff" * 11, "no tar header at byte 0"),
        (b"\xff" * 12, "no tar header at byte 0"),
        (b"89999999999\0", "no tar header at byte 0"),
    ],
)
def test_an_impossible_size_allocates_nothing(size_field: bytes, problem: str, tmp_path: Path) -> None:
    _, problems = check(damaged_header({124: size_field}), ".tar", tmp_path, None)
    assert any(problem in reported for reported in problems), problems


def pax_member(records: dict[str, str], stored: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as opened:
        info = tarfile.TarInfo("GNUSparseFile.0/x.index")
        info.size = len(stored)
        info.pax_headers = records
        opened.addfile(info, io.BytesIO(stored))
    return target.getvalue()


@pytest.mark.parametrize(
    "sparse_map",
    [
        b"1\n0\n512\n",
        b"999999999999999999\n0\n512\n",
        b"2\n0\n512\n0\n512\n",
        b"2\n600\n0\n0\n512\n",
        b"1\n0\n1024\n",
        b"1\n9223372036854775807\n9223372036854775807\n",
        b"1\n-1\n512\n",
        b"x\n",
        b"1\n0",
        b"1" * 600,
        b"",
    ],
)
def test_a_wrong_sparse_map_makes_its_member_unreadable(sparse_map: bytes, tmp_path: Path) -> None:
    stored = sparse_map.ljust(512, b"\0") + b"d" * 512
    records = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x.index", "GNU.sparse.realsize": "1000"}
    path = tmp_path / "a.tar"
    path.write_bytes(pax_member(records, stored))
    source = open_source(str(path))
    assert [entry.path for entry in source.list()] == ["x.index"]
    if sparse_map == b"1\n0\n512\n":
        assert source.open("x.index").read_at(0, 2000) == b"d" * 512 + bytes(488)
    else:
        with pytest.raises(SourceError, match=r"x\.index: the sparse map"):
            source.open("x.index")


def test_a_wrong_pax_header_is_reported(tmp_path: Path) -> None:
    data = bytearray(pax_member({"comment": "abcdef"}, b"abc"))
    at = data.index(b"18 comment=")
    data[at : at + 2] = b"99"
    _, problems = check(bytes(data), ".tar", tmp_path, None)
    assert problems == ["damaged pax header at byte 512: the member after it may have a wrong name or size"]
    huge = damaged_header({124: b"00100000000\0", 156: b"x"})
    assert "extended header of 16777216 bytes" in check(huge, ".tar", tmp_path, None)[1][0]
    assert "impossible size" in check(pax_member({"size": "99999999999999999999"}, b"abc"), ".tar", tmp_path, None)[1][0]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_cut_anywhere_gives_the_members_before(method: int, tmp_path: Path) -> None:
    data = zip_of(FILES, method)
    seen = []
    for length in sorted({*range(0, len(data), 37), *range(len(data) - 30, len(data))}):
        files, problems = check(data[:length], ".zip", tmp_path, FILES)
        assert problems
        seen.append(files)
    assert seen == sorted(seen)
    assert set(seen) == set(range(len(FILES) + 1))


def test_a_cut_zip_written_to_a_pipe_gives_the_members_before(tree: Path, tmp_path: Path) -> None:
    streamed_zip(tree, tmp_path / "whole.zip")
    data = (tmp_path / "whole.zip").read_bytes()
    source = open_source(str(tmp_path / "whole.zip"))
    whole = {entry.path for entry in walk(source)}
    (tmp_path / "cut.zip").write_bytes(data[: data.index(b"PK\x01\x02", len(data) - 4000)])
    cut = open_source(str(tmp_path / "cut.zip"))
    assert {entry.path for entry in walk(cut)} == whole
    assert len(cut.problems) == 1
    for path in whole:
        if source.stat(path).kind is EntryKind.FILE:
            size = source.stat(path).size_in_bytes
            assert cut.open(path).read_at(0, size + 1) == source.open(path).read_at(0, size + 1)
    assert cut.problems[1:] == []
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    half = open_source(str(tmp_path / "cut.zip"))
    assert "cut short or damaged in the data of" in half.problems[1]
    assert sum(content is not None for content in read_all(half).values()) >= 2


def test_a_zip_with_a_damaged_directory_gives_the_members_before(tmp_path: Path) -> None:
    data = bytearray(zip_of(FILES))
    second = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    data[second] ^= 1
    found = check(bytes(data), ".zip", tmp_path, FILES)
    assert found == (1, [f"damaged zip directory at byte {second}: members after it are not listed"])


def test_zip_members_with_wrong_sizes_and_positions_are_unreadable(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a.log": b"a" * 100}, zipfile.ZIP_STORED))
    central = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, central + 24, 0xFFFFFFF0)
    files, _ = check(bytes(data), ".zip", tmp_path, None)
    assert files == 0
    struct.pack_into("<I", data, central + 20, 0xFFFFFFF0)
    assert check(bytes(data), ".zip", tmp_path, None)[0] == 0
    struct.pack_into("<I", data, central + 42, 0x7FFFFFF0)
    assert check(bytes(data), ".zip", tmp_path, None)[0] == 0
    struct.pack_into("<I", data, central + 42, 1)
    assert check(bytes(data), ".zip", tmp_path, None)[0] == 0


@pytest.mark.parametrize("suffix", [*PACKED, ".zip"])
def test_a_file_that_is_no_archive_is_an_error_with_a_reason(suffix: str, tmp_path: Path) -> None:
    for content in (b"", b"x", b"no archive at all " * 100, b"\0" * 100):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(content)
        with pytest.raises(SourceError, match="nothing in this archive can be read: "):
            open_source(str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes_never_crash(tmp_path: Path, data: st.DataObject) -> None:
    suffix, original = data.draw(st.sampled_from([*PACKED.items(), (".zip", zip_of(FILES))]))
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        value = data.draw(st.binary(min_size=1, max_size=8))
        damaged[at : at + len(value)] = value
    if suffix == ".tar" and data.draw(st.booleans()):
        fix_checksums(damaged)
    check(bytes(damaged), suffix, tmp_path, None)
