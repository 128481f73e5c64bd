"""Bundles with one contradiction each and valid checksums: scans report it, and read and write no other file."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import cramjam
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import LOG_DAMAGE, BatchColumn, Damage
from kafka_forensics.parsers.log import read_batches
from kafka_forensics.parsers.log_dir import FileKind, classify_file
from kafka_forensics.storage.bundles import MAX_PART_BYTES, BundleSource, SectionKind, write_batches_section
from tests.support import bundles
from tests.support.peak_memory import traced_memory

HUGE_VARINT: Final = 1 << 61
MEMORY_UNIT: Final = 64 << 20
Change = Callable[[bundles.UnpackedBundle], object]


def refusal_or_incomplete(path: Path) -> str:
    """Why a bundle is refused, or the gaps that a scan of it reports, which must not call it clean."""
    try:
        result = kf.scan([str(path)])
    except SourceError as error:
        return error.reason
    assert result.verdict not in {"clean", "info"}
    assert result.incomplete
    return "; ".join(gap.reason for gap in result.incomplete)


def problem_of(contents: bundles.UnpackedBundle, tmp_path: Path) -> str:
    return refusal_or_incomplete(contents.write(tmp_path / "invalid.kfb"))


def of_row(path: str, field: int, value: Any) -> Change:
    """Change a field of a file's row in the listing."""

    def change_bundle(contents: bundles.UnpackedBundle) -> None:
        contents.row(path)[field] = value

    return change_bundle


def of_section(path: str, field: int, value: Any) -> Change:
    """Change a field of a file's first section, in the listing only."""

    def change_bundle(contents: bundles.UnpackedBundle) -> None:
        contents.row(path)[bundles.SECTIONS][0][field] = value

    return change_bundle


def change_facts(path: str, change: Callable[[Any, list[tuple[Damage, bool]]], Any]) -> Change:
    """Change the batch columns and damage of a log."""

    def change_bundle(contents: bundles.UnpackedBundle) -> None:
        for section in contents.sections(path, SectionKind.BATCHES):
            facts = read_batches(section[4])
            columns, damage = facts.columns.copy(), list(facts.damage)
            change(columns, damage)
            section[4] = bundles.batches_section(columns, damage, written=facts.stored_offsets[0], digests=facts.digests)
        contents.with_new_listing()

    return change_bundle


def set_column(column: BatchColumn, row: int, value: int) -> Change:
    def change(columns: Any, _damage: Any) -> None:
        columns[column, row] = value

    return change_facts(bundles.ORDERS, change)


def swap_batches(columns: Any, _damage: Any) -> None:
    columns[:, [1, 2]] = columns[:, [2, 1]]


def replace_batches(path: str, kind: SectionKind, batches: list[tuple[int, bytes]]) -> Change:
    def change_bundle(contents: bundles.UnpackedBundle) -> None:
        contents.sections(path, kind)[0][4] = write_batches_section(batches)
        contents.with_new_listing()

    return change_bundle


def narrow_digests(contents: bundles.UnpackedBundle) -> None:
    section = contents.sections(bundles.ORDERS, SectionKind.BATCHES)[0]
    facts = read_batches(section[4])
    section[4] = bundles.batches_section(facts.columns, digests=facts.digests[:, :1].copy())
    contents.with_new_listing()


def add_damage(*found: Damage) -> Change:
    return change_facts(bundles.ORDERS, lambda _columns, damage: damage.extend((row, False) for row in found))


def add_overlapping_section(contents: bundles.UnpackedBundle) -> None:
    contents.parts[0].sections.append(list(contents.sections(bundles.CHECKPOINT, SectionKind.BYTES)[0]))
    contents.with_new_listing()


def remove_sections(contents: bundles.UnpackedBundle) -> None:
    contents.row(bundles.ORDERS)[bundles.SECTIONS] = []


def use_sections_of_another_file(contents: bundles.UnpackedBundle) -> None:
    contents.row(bundles.ORDERS)[bundles.SECTIONS] = contents.row(bundles.PAYMENTS)[bundles.SECTIONS]
    contents.row(bundles.ORDERS)[bundles.SIZE] = contents.row(bundles.PAYMENTS)[bundles.SIZE]


def extend_beyond_the_file(contents: bundles.UnpackedBundle) -> None:
    section = contents.sections(bundles.ORDERS, SectionKind.BATCHES)[0]
    section[3] += 100
    contents.with_new_listing()


CONTRADICTIONS: Final[dict[str, tuple[Change, str]]] = {
    "size of 2^61": (of_row(bundles.ORDERS, bundles.SIZE, HUGE_VARINT), "no facts of bytes"),
    "smaller size": (of_row(bundles.ORDERS, bundles.SIZE, 3), "beyond its size"),
    "negative size": (of_row(bundles.ORDERS, bundles.SIZE, -1), "an invalid "),
    "size of 2^80": (of_row(bundles.ORDERS, bundles.SIZE, 1 << 80), "an invalid "),
    "size true": (of_row(bundles.ORDERS, bundles.SIZE, value=True), "an invalid "),
    "time of -2^63": (of_row(bundles.ORDERS, bundles.MTIME, -(1 << 63)), "an invalid "),
    "allocated bytes true": (of_row(bundles.ORDERS, bundles.ALLOCATED, value=True), "an invalid "),
    "log that is not marked as a log": (of_row(bundles.ORDERS, bundles.IS_LOG, value=False), "contradicts its name"),
    "checkpoint that is marked as a log": (of_row(bundles.CHECKPOINT, bundles.IS_LOG, value=True), "contradicts its name"),
    "number for a boolean": (of_row(bundles.ORDERS, bundles.IS_LOG, 1), "an invalid "),
    "long text": (of_row(bundles.ORDERS, bundles.LEFT_OUT, "x" * 5000), "an impossible name"),
    "lone surrogate": (of_row(bundles.ORDERS, 0, "orders-0/\ud800.log"), "an impossible name"),
    "path outside by dots": (of_row(bundles.ORDERS, 0, "../orders-0/x.log"), "refused member"),
    "absolute path": (of_row(bundles.ORDERS, 0, "/etc/passwd"), "refused member"),
    "NUL in a path": (of_row(bundles.ORDERS, 0, "orders-0/\0"), "refused member"),
    "two files with one path": (of_row(bundles.PAYMENTS, 0, bundles.ORDERS), "several members are called"),
    "a file that is a directory": (of_row(bundles.PAYMENTS, 0, "orders-0"), "refused member"),
    "missing part": (of_section(bundles.ORDERS, 0, 77), "without parts/000077.zst"),
    "part 2^61": (of_section(bundles.ORDERS, 0, 1 << 61), "a bundle without parts/"),
    "part false": (of_section(bundles.ORDERS, 0, value=False), "an invalid "),
    "section outside of its part": (of_section(bundles.ORDERS, 1, 1 << 40), "contradicts its part"),
    "section larger than its part": (of_section(bundles.ORDERS, 2, 1 << 40), "contradicts its part"),
    "section of unknown kind": (of_section(bundles.ORDERS, 3, "class:os.system"), "an invalid "),
    "section of another kind": (of_section(bundles.ORDERS, 3, "raw"), "no facts of bytes"),
    "section of another file": (use_sections_of_another_file, "contradicts its part"),
    "without sections": (remove_sections, "no facts of bytes"),
    "facts beyond the file": (extend_beyond_the_file, "beyond its size"),
    "overlapping bytes": (add_overlapping_section, "overlap"),
    "bytes beyond the file": (of_row(bundles.CHECKPOINT, bundles.SIZE, 1), "beyond its size"),
    "batches out of order": (change_facts(bundles.ORDERS, swap_batches), "overlap"),
    "batch beyond the file": (set_column(BatchColumn.SIZE_IN_BYTES, 5, 1 << 20), "outside their bytes"),
    "batch without bytes": (set_column(BatchColumn.SIZE_IN_BYTES, 5, 0), "size_in_bytes"),
    "batch with another last offset": (set_column(BatchColumn.LAST_OFFSET, 5, -9), "another offset"),
    "CRC of 33 bits": (set_column(BatchColumn.CRC, 0, 1 << 32), "crc"),
    "digests of another width": (narrow_digests, "an invalid "),
    "damage outside": (add_damage(Damage("SEG_HOLE", 0, 1 << 40)), "outside its bytes"),
    "damage of unknown kind": (add_damage(Damage("os.system", 0, 1)), "invalid damage"),
    "damage with escape sequences": (
        add_damage(Damage("SEG_HOLE", 0, 1, detail={"reason": "\x1b[2J"})),
        "an invalid detail of damage",
    ),
    "damage with a detail of another kind": (
        add_damage(Damage("SEG_HOLE", 0, 1, detail={"codec": "zstd"})),
        "an invalid detail of damage",
    ),
    "damage with true for a number": (add_damage(Damage("SEG_HOLE", 0, 1, detail={"magic": True})), "an invalid detail of damage"),
    "raw batch of another size": (
        replace_batches(bundles.PAYMENTS, SectionKind.RAW, [(73, bytes(78))]),
        "a stored batch is at a position where no batch begins",
    ),
    "raw batch of another position": (
        replace_batches(bundles.PAYMENTS, SectionKind.RAW, [(0, b"")]),
        "contradicts its facts",
    ),
    "raw batch twice": (replace_batches(bundles.PAYMENTS, SectionKind.RAW, [(0, b""), (0, b"")]), "two stored batches"),
    "raw batch outside of the file": (replace_batches(bundles.PAYMENTS, SectionKind.RAW, [(-5, b"")]), "outside its bytes"),
    "reduced form of another batch": (
        replace_batches(bundles.OFFSETS, SectionKind.REDUCED, [(0, bytes(61))]),
        "contradicts its facts",
    ),
    "reduced form that is malformed": (
        replace_batches(bundles.OFFSETS, SectionKind.REDUCED, [(0, b"\0")]),
        "contradicts its facts",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_reported(case: str, bundle: Path, tmp_path: Path) -> None:
    contents = bundles.unpack_bundle(bundle)
    change, reason = CONTRADICTIONS[case]
    change(contents)
    assert reason in problem_of(contents, tmp_path)


@pytest.mark.parametrize("kind", sorted(LOG_DAMAGE))
def test_damage_without_details_is_not_clean(kind: str, bundle: Path, tmp_path: Path) -> None:
    contents = bundles.unpack_bundle(bundle)
    add_damage(Damage(kind, 73, 70, -1, -1))(contents)
    result = kf.scan([str(contents.write(tmp_path / "invalid.kfb"))])
    json.loads(result.to_json())
    assert result.verdict not in {"clean", "info"}


def test_a_consistent_bundle_is_accepted(bundle: Path, tmp_path: Path) -> None:
    result = kf.scan([str(bundles.unpack_bundle(bundle).with_new_listing().write(tmp_path / "again.kfb"))])
    assert (result.verdict, result.incomplete) == ("info", [])


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"version": 2}, "bundle version 2 is not supported (this tool reads version 1)"),
        ({"version": True}, "not a bundle of facts"),
        ({"version": 10**400}, "not a bundle of facts"),
        ({"format": "pickle"}, "not a bundle of facts"),
    ],
)
def test_another_format_or_version_is_refused(about: dict[str, Any], reason: str, bundle: Path, tmp_path: Path) -> None:
    contents = bundles.unpack_bundle(bundle)
    contents.about |= about
    assert reason in problem_of(contents, tmp_path)


@pytest.mark.parametrize("value", [7, True, False, "", "0123", "\ud800", {}, []])
def test_an_invalid_redaction_is_refused(value: Any, bundle: Path, tmp_path: Path) -> None:
    contents = bundles.unpack_bundle(bundle)
    contents.about["redaction"] = value
    with pytest.raises(SourceError, match=r"invalid\.kfb: invalid bundle: bundle\.json has an invalid value of redaction"):
        kf.scan([str(contents.write(tmp_path / "invalid.kfb"))])


# Bombs.


def compressed(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


LISTS: Final = b'{"sections":[' + b"[]," * (8 << 20)
BOMBS: Final = {
    "part of zeros": ("parts/000000.zst", compressed(bytes(4 * MAX_PART_BYTES))),
    "index of lists": ("parts/000000.zst", compressed(b"KFP1" + len(LISTS).to_bytes(4, "little") + LISTS)),
    "listing of lists": ("listing.zst", compressed(b"[" + b"[]," * (30 << 20))),
    "listing of nested lists": ("listing.zst", compressed(b"[" * 100_000)),
    "listing of one number": ("listing.zst", compressed(b'{"files":' + b"9" * (8 << 20) + b"}")),
    "listing that is cut": ("listing.zst", b"\x28\xb5\x2f\xfd"),
    "seal of lists": ("seal.json", b'{"members":{"a":[' + b"[]," * (8 << 20)),
    "seal of nested lists": ("seal.json", b"[" * 100_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_memory(name: str, bundle: Path, tmp_path: Path) -> None:
    members = bundles.decompressed_members(bundle)
    small = bundles.bundle_members(json.loads(members["bundle.json"]), [members["parts/000000.zst"]], members["listing.zst"])
    small |= dict([BOMBS[name]])
    path = tmp_path / "bomb.kfb"
    path.write_bytes(bundles.tar_of(small if name.startswith("seal") else bundles.with_checksums(small)))
    del members, small
    with traced_memory() as peak_bytes:
        assert refusal_or_incomplete(path)
    assert peak_bytes() < 5 * MEMORY_UNIT


def test_a_file_of_2_to_the_61_bytes_is_not_read_into_memory(bundle: Path, tmp_path: Path) -> None:
    contents = bundles.unpack_bundle(bundle)
    indexes = [f"orders-0/{0:020}.{suffix}" for suffix in ("index", "timeindex", "txnindex")]
    names = [bundles.CHECKPOINT, "meta.properties", *indexes, f"orders-0/{9:020}.snapshot", "orders-0/leader-epoch-checkpoint"]
    rows = {row[0]: row for row in contents.listing["files"]}
    for name in names:
        rows[name] = [name, "f", HUGE_VARINT, 0, None, None, None, False, None, []]
    contents.listing["files"] = list(rows.values())
    result = kf.scan([str(contents.write(tmp_path / "huge.kfb"))])  # reading them into memory would fail
    assert result.verdict not in {"clean", "info"}


# The tar of a bundle.


Fields = Callable[[int], dict[str, Any]]
"""Fields of a tar header, for a member of this size."""


def with_header(members: dict[str, bytes], name: str, fields: Fields) -> bytes:
    """A tar of these members with one header changed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member_name, data in members.items():
            header = tarfile.TarInfo(member_name)
            header.size = len(data)
            for field, value in (fields(len(data)) if member_name == name else {}).items():
                setattr(header, field, value)
            tar.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


SPARSE: Final = {"GNU.sparse.size": str(HUGE_VARINT), "GNU.sparse.numblocks": "1"}
HEADERS: Final[dict[str, Fields]] = {
    "link": lambda _: {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0},
    "hard link": lambda _: {"type": tarfile.LNKTYPE, "linkname": "../../etc/passwd", "size": 0},
    "pipe": lambda _: {"type": tarfile.FIFOTYPE, "size": 0},
    "sparse": lambda size: {"pax_headers": SPARSE | {"GNU.sparse.map": f"0,{size}"}},
}


@pytest.mark.parametrize("member", ["bundle.json", "parts/000000.zst", "listing.zst", "seal.json"])
@pytest.mark.parametrize("kind", HEADERS)
def test_members_that_are_not_plain_files_are_refused(kind: str, member: str, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd.kfb"
    path.write_bytes(with_header(bundles.stored_members(bundle), member, HEADERS[kind]))
    assert refusal_or_incomplete(path)


def test_added_and_missing_members_are_reported(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.kfb"
    members = bundles.stored_members(bundle)
    path.write_bytes(bundles.tar_of({**members, "parts/000001.zst": members["parts/000000.zst"], "../x": b"", "y": b""}))
    output = refusal_or_incomplete(path)
    assert "2 members that its checksums do not list, such as parts/000001.zst" in output
    assert "an unexpected member: ../x" in output
    fewer = dict(members)
    del fewer["parts/000000.zst"]
    path.write_bytes(bundles.tar_of(fewer))
    assert "1 member fewer than its checksums list, such as parts/000000.zst" in refusal_or_incomplete(path)


def test_two_members_of_one_name_are_reported(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.kfb"
    members = {**bundles.stored_members(bundle), "listing": bundles.stored_members(bundle)["listing.zst"]}
    path.write_bytes(with_header(members, "listing", lambda _: {"name": "listing.zst"}))
    assert "several members are called listing.zst" in refusal_or_incomplete(path)


# Text of a bundle is escaped before it is printed.


CONTROL_CHARACTERS: Final = "/data/\x1b]0;owned\x07\u202e\x9b31m"


@pytest.mark.parametrize("output_format", ["text", "tsv", "json", "jsonl"])
def test_output_has_no_control_characters(
    output_format: str, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = bundles.unpack_bundle(bundle)
    contents.about |= {"paths": [CONTROL_CHARACTERS], "host": CONTROL_CHARACTERS, "broker": CONTROL_CHARACTERS}
    contents.row(bundles.CHECKPOINT)[bundles.LEFT_OUT] = CONTROL_CHARACTERS
    contents.row(bundles.CHECKPOINT)[0] = bundles.CHECKPOINT
    contents.row(bundles.PAYMENTS)[bundles.LEFT_OUT] = CONTROL_CHARACTERS
    assert outcome(["scan", str(contents.write(tmp_path / "controls.kfb")), "--format", output_format]) == 3
    captured = capsys.readouterr()
    assert "owned" in captured.out + captured.err
    assert not any(letter in captured.out + captured.err for letter in "\x1b\x07\u202e\x9b")


def test_paths_in_the_printed_command_are_quoted(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = bundles.unpack_bundle(bundle)
    contents.about |= {
        "paths": ["--output=/etc/x", "/data/$(reboot)", CONTROL_CHARACTERS, "relative"],
        "broker": CONTROL_CHARACTERS,
    }
    assert outcome(["dump", str(contents.write(tmp_path / "controls.kfb")), "--topic", "orders", "--records"]) == 3
    output = capsys.readouterr()
    text = output.out + output.err
    assert "needs the records" in text
    assert not any(letter in text for letter in "\x1b\x07\u202e\x9b")
    assert "--output=/etc/x" not in text
    assert " relative" not in text


def test_a_bundle_reads_and_writes_no_other_file(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = bundles.unpack_bundle(bundle)
    for number, name in enumerate(("../../x", "/etc/passwd", "a/../../b", "~/c")):
        contents.listing["files"].append([name, "l" if number % 2 else "f", 5, 0, None, None, None, False, None, []])
    path = contents.write(tmp_path / "paths.kfb")
    monkeypatch.chdir(tmp_path)
    refusal_or_incomplete(path)
    assert [found.name for found in tmp_path.rglob("*")] == ["paths.kfb"]


def test_bundles_and_parsers_agree_on_the_names_of_logs(bundle: Path) -> None:
    names = ["00000000000000000000.log", "00000000000000000000.log.deleted", "00000000000000000000-0000000001.checkpoint"]
    names += ["bootstrap.checkpoint", "00000000000000000000-0000000001-7.checkpoint.part", "00000000000000000000.log.cleaned.swap"]
    names += ["00000000000000000000.index", "0.log", "cleaner-offset-checkpoint", "x.log", "00000000000000000000.snapshot"]
    log_names = [name for name in names if classify_file(name) in {FileKind.LOG, FileKind.METADATA_CHECKPOINT}]
    assert log_names == names[:6]
    for name in names:
        contents = bundles.unpack_bundle(bundle)
        contents.listing["files"].append([f"orders-0/{name}.deleted", "f", 0, 0, None, None, None, name in log_names, None, []])
        assert BundleSource(str(contents.write(bundle.with_name("names.kfb")))).problems == []


def test_a_pipe_in_a_bundle_is_not_opened(bundle: Path) -> None:
    contents = bundles.unpack_bundle(bundle)
    contents.row(bundles.CHECKPOINT)[1] = "o"
    source = BundleSource(str(contents.write(bundle.with_name("pipe.kfb"))))
    with pytest.raises(SourceError, match="not a regular file"):
        source.open(bundles.CHECKPOINT)
