"""A bundle as a source: the tree of a broker's log directories, with the bytes of small files, and facts in place of logs."""

import bisect
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.model.bundles import BundleDescription, NeededRecords, collect_requests
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.offset_ranges import normalised, offset_range
from kafka_forensics.storage.archives import (
    BLOCK,
    ArchiveMember,
    ArchiveSource,
    MemberDirectory,
    MemberTree,
    TarIndex,
    TarPlace,
    note,
    padded,
    parse_header,
)
from kafka_forensics.storage.bundles import layout
from kafka_forensics.storage.bundles.layout import BundleSection, Frame, SectionKind, decompressed, is_number, parse_json
from kafka_forensics.storage.source import NOT_REGULAR, ByteFile, ByteSource, Entry, EntryKind, errors_named

KEPT_BYTES: Final = 96 << 20
"""Decompressed parts that a bundle keeps in memory."""
_KINDS: Final = {"f": EntryKind.FILE, "l": EntryKind.SYMLINK, "o": EntryKind.OTHER}
_SECTION_SIZE: Final = 400
"""Memory of a section in a part's index, about."""
_TAIL_BYTES: Final = 256 << 10
"""Read at the end to find the checksums."""
_CHECKSUMS_NAME: Final = layout.CHECKSUMS.encode() + b"\0"
_NO_MEMBER: Final = "\0"
_PART_END: Final = ".zst"
_PART_NAME: Final = re.compile(r"[0-9]{6,9}\.zst")
_LOG_NAME: Final = re.compile(
    r"([0-9]{20}(\.log|-[0-9]{10}(-[0-9]{1,20})?\.checkpoint)|bootstrap\.checkpoint)(\.(deleted|swap|cleaned|tmp|part))*"
)
"""Names of files of batches, as in `parsers.log_dir`, which `storage` must not import."""
_MAX_TEXT: Final = 4096
"""Bytes of a path, or a reason, that are accepted."""
_MAX_PATHS: Final = 64
_MAX_TRANSACTION_PARTITIONS: Final = 1 << 16
CUT: Final = "the bundle was cut short before the end of this file"
_KEY_NAME: Final = re.compile(r"[0-9a-f]{16}")
_ABSOLUTE_PATH: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*://")

_PartSections = tuple[bytes, frozenset[tuple[str, BundleSection]]]
"""A decompressed part, and (path, section) of its sections."""


class BundlePlace(Struct):
    """What a bundle holds of a file: its sections, ascending, or why there are none."""

    sections: list[BundleSection] = field(default_factory=list)
    allocated_bytes: int | None = None
    left_out: str | None = None
    is_log: bool = False
    refused: str | None = None
    """Why a link was not followed."""
    sha256: str | None = None
    is_cut: bool = False
    """Whether the bundle ends before the file does: the file has at least the size of its sections."""
    contradiction: str | None = None
    """Why `collect` cannot have written this of any file."""

    @property
    def position(self) -> int:
        """The number of its first part, for the reading order."""
        return self.sections[0].part if self.sections else 0


class BundleSource(ArchiveSource):
    """The log directories in a bundle. Raises SourceError for a file that is not a bundle.

    A bundle without checksums, or with members that differ from them, is read as far as possible; `problems` says so.
    """

    def __init__(self, path: str, container: ByteSource | None = None) -> None:
        """`container` is the file on a storage service; None: it is a local file."""
        super().__init__(path, container)
        self._lock = threading.Lock()
        self.remembered: tuple[tuple[str, BundleSection] | None, object] = None, None
        """(path, section) that was read last, and its content."""
        self._parts: OrderedDict[int, _PartSections] = OrderedDict()
        self._parts_bytes = 0
        self._members = MemberTree()
        tar_problems: list[str] = []
        with errors_named(path):
            if container is None or not self._find_members_by_checksums():
                TarIndex(self._file, self._members, tar_problems, None).run()
        tar_problems += [f"an unexpected member: {name}" for name in self._members.rejected]
        tar_problems += [f"several members are called {name}: the last is read" for name in self._members.replaced]
        self._checksums: dict[str, object] | None = None
        """Member → [size, SHA-256]."""
        self._checksums = self._read_checksums()
        self.about = self._read_description()
        for problem in tar_problems:
            note(self.problems, problem)
        self._check_members()
        with errors_named(path):
            self._read_listing()

    def _find_members_by_checksums(self) -> bool:
        """Fill `_members` by the checksums at the end; False if they do not describe the whole file.

        Walking from header to header needs a request for each on a storage service. The checksums are verified in any case.
        """
        size = self._file.size_in_bytes
        start = max(size - _TAIL_BYTES, 0) // BLOCK * BLOCK
        tail = self._file.read_at(start, size - start)
        for offset in range(len(tail) // BLOCK * BLOCK - BLOCK, -1, -BLOCK):
            header = parse_header(tail[offset : offset + BLOCK]) if tail.startswith(_CHECKSUMS_NAME, offset) else None
            if header is not None:
                return self._add_members(tail[offset + BLOCK : offset + BLOCK + header.size_in_bytes], start + offset)
        return False

    def _add_members(self, seal: bytes, end: int) -> bool:
        """Add the members that the checksums name, if they fill the file up to the header of `seal.json` at byte `end`."""
        try:
            checksums = parse_json(seal, layout.MAX_CHECKSUM_VALUES)
        except FormatError:
            return False
        rows = checksums.get("members") if isinstance(checksums, dict) else None
        position, members = 0, list[tuple[str, ArchiveMember]]()
        for name, row in rows.items() if isinstance(rows, dict) else ():
            match row:
                case [size, str()] if is_number(size, 0, end):
                    members.append((str(name), ArchiveMember(EntryKind.FILE, size, 0, TarPlace(position + BLOCK))))
                    position += BLOCK + padded(size)
                case _:
                    return False
        if position != end or not members:
            return False
        for name, member in [*members, (layout.CHECKSUMS, ArchiveMember(EntryKind.FILE, len(seal), 0, TarPlace(end + BLOCK)))]:
            self._members.add(name, member)
        return True

    def _member(self, name: str, limit: int) -> bytes:
        """The bytes of a member of the tar. Raises SourceError if it is missing, too large, truncated, or has a wrong checksum."""
        member = self._members.find(name)
        place = member.place if isinstance(member, ArchiveMember) and member.kind is EntryKind.FILE else None
        if not isinstance(member, ArchiveMember) or not isinstance(place, TarPlace):
            raise SourceError(self.name, f"a bundle without {name}")
        if place.extents is not None or place.unreadable:
            raise SourceError(self.name, f"{name} is a sparse member, which a bundle cannot have")
        if member.size_in_bytes > limit:
            raise SourceError(self.name, f"{name} in the bundle has {member.size_in_bytes:,} bytes, and at most {limit:,} are read")
        data = self._file.read_at(place.position, member.size_in_bytes)
        if len(data) < member.size_in_bytes:
            raise SourceError(self.name, f"cut short in the data of {name}")
        if (
            name != layout.CHECKSUMS
            and self._checksums is not None
            and self._checksums.get(name) != [len(data), sha256(data).hexdigest()]
        ):
            raise SourceError(self.name, f"the checksum of {name} is wrong: the bundle was changed or damaged")
        return data

    def _read_checksums(self) -> dict[str, object] | None:
        """[size, SHA-256] of every member; None without a readable `seal.json`."""
        try:
            checksums = parse_json(self._member(layout.CHECKSUMS, layout.MAX_CHECKSUM_BYTES), layout.MAX_CHECKSUM_VALUES)
        except (SourceError, FormatError):
            note(self.problems, "checksums are missing: it was cut short or is not finished; its content is read")
            return None
        match checksums:
            case {"members": dict(members)}:
                return members
        note(self.problems, "its checksums are invalid: its content is read")
        return None

    def _check_members(self) -> None:
        """Note members without a checksum, and members that are missing."""
        if self._checksums is None:
            return
        found = set(_member_names(self._members.root)) - {layout.CHECKSUMS}
        for names, difference in (
            (found - self._checksums.keys(), "that its checksums do not list"),
            (self._checksums.keys() - found, "fewer than its checksums list"),
        ):
            if names:
                count = f"{len(names)} members" if len(names) > 1 else "1 member"
                note(self.problems, f"{count} {difference}, such as {min(names)[:_MAX_TEXT]}: the bundle was changed or damaged")

    def _read_description(self) -> BundleDescription:
        """The content of bundle.json. Raises SourceError if it is not of a bundle of this version."""
        try:
            fields: Any = parse_json(self._member(layout.DESCRIPTION, layout.MAX_DESCRIPTION_BYTES))
        except FormatError as error:
            raise SourceError(self.name, f"not a bundle: {error.reason}") from error
        match fields:
            case {"format": str(name), "version": version} if name == layout.FORMAT and is_number(version, end=1 << 31):
                if version != layout.VERSION:
                    reads = f"(this tool reads version {layout.VERSION}): use the tool that made it"
                    raise SourceError(self.name, f"bundle version {version} is not supported {reads}")
                key_name = fields.get("redaction")
                if key_name is not None and not (isinstance(key_name, str) and _KEY_NAME.fullmatch(key_name)):
                    reason = (
                        f"{layout.DESCRIPTION} has an invalid value of redaction, so pseudonyms cannot be distinguished from names"
                    )
                    raise SourceError(self.name, f"invalid bundle: {reason}")
                return _description(fields)
        raise SourceError(self.name, "not a bundle of facts: bundle.json does not describe one")

    def _read_listing(self) -> None:
        """Fill the tree by the listing; without a readable one, by the indexes of all complete parts."""
        try:
            listing = decompressed(self._member(layout.LISTING, layout.MAX_LISTING_BYTES), layout.MAX_LISTING_BYTES)
            self._add_listed(parse_json(listing, layout.MAX_LISTED_VALUES))
        except (FormatError, SourceError) as error:
            note(self.problems, f"its listing cannot be read ({error.reason}): files are listed from its parts")
            self._set_tree(MemberTree())
            self._list_parts()

    def _add_listed(self, listing: object) -> None:
        """Put the rows of a listing into the tree. Raises FormatError."""
        match listing:
            case {"directories": list(directories), "files": list(files)}:
                for row in directories:
                    match row:
                        case [str(path), int(mtime_ns)] if _is_time(mtime_ns) and _is_text(path):
                            self._tree.add_directory(path, mtime_ns)
                        case _:
                            raise FormatError("an invalid directory")
                for row in files:
                    self._add_file(row)
                return
        raise FormatError("not a listing of a bundle")

    def _add_file(self, row: object, *, is_cut: bool = False) -> None:
        """Put a file into the tree, by its row. Raises FormatError."""
        match row:
            case [
                str(path),
                str(kind),
                int(size),
                int(mtime_ns),
                (None | int()) as allocated,
                (None | str()) as refused,
                (None | str()) as left_out,
                bool(is_log),
                (None | str()) as checksum,
                list(sections),
            ] if kind in _KINDS and _is_time(mtime_ns) and is_number(size) and (allocated is None or is_number(allocated)):
                if not all(_is_text(text) for text in (path, refused, left_out, checksum)):
                    raise FormatError("a file with an impossible name")
                place = BundlePlace(list(map(_section, sections)), allocated, left_out, is_log, refused, checksum, is_cut)
                self._tree.add(path, ArchiveMember(_KINDS[kind], size, mtime_ns, place, target=_NO_MEMBER))
                if left_out is None and _KINDS[kind] is EntryKind.FILE:
                    place.contradiction = _contradiction(path, size, place)
                if place.contradiction is not None:
                    note(self.problems, f"it contradicts itself: {path}: {place.contradiction}")
                return
        raise FormatError("an invalid file entry")

    def _list_parts(self) -> None:
        """Fill the tree by the indexes of all readable parts; a file without its row, which ends it, has the sections so far."""
        parts = self._members.find(layout.PARTS)
        sections: dict[str, list[BundleSection]] = {}
        rows: dict[str, list[object]] = {}
        names = parts.children if isinstance(parts, MemberDirectory) else ()
        for number in sorted(int(name[: -len(_PART_END)]) for name in names if _PART_NAME.fullmatch(name)):
            try:
                index = layout.read_index(self._inflate(number), number)
            except (FormatError, SourceError) as error:
                note(self.problems, f"part {number} cannot be read: {error.reason}")
                continue
            for path in index.begun:
                sections.pop(path, None)
                rows.pop(path, None)
            for path, section in index.sections:
                sections.setdefault(path, []).append(section)
            rows |= {row[0]: row for row in index.files if isinstance(row, list) and row and isinstance(row[0], str)}
        for path in sections | rows:
            sections_of_file = sections.get(path, [])
            row = rows.get(path, _row_of_cut_file(path, sections_of_file))
            listed = [[*section[:3], section.kind.value, *section[4:]] for section in sections_of_file]
            try:
                self._add_file([*row, listed], is_cut=path not in rows)
            except FormatError as error:
                note(self.problems, f"{path[:_MAX_TEXT]}: {error.reason}")

    def _inflate(self, number: int) -> bytes:
        """A decompressed part. Raises SourceError and FormatError."""
        return decompressed(self._member(layout.part_name(number), layout.MAX_PART_BYTES), layout.MAX_PART_BYTES)

    def _part(self, number: int) -> _PartSections:
        """A part, which is kept in memory. Raises SourceError and FormatError."""
        with self._lock:
            if number in self._parts:
                self._parts.move_to_end(number)
                return self._parts[number]
        data = self._inflate(number)
        part = data, frozenset(layout.read_index(data, number).sections)
        with self._lock:
            if number not in self._parts:
                self._parts[number] = part
                self._parts_bytes += _memory_size(part)
            while self._parts_bytes > KEPT_BYTES and len(self._parts) > 1:
                self._parts_bytes -= _memory_size(self._parts.popitem(last=False)[1])
        return part

    def section(self, path: str, section: BundleSection) -> bytes:
        """The bytes of a section of the file at `path`. Raises SourceError."""
        try:
            with errors_named(path):
                part, sections = self._part(section.part)
        except FormatError as error:
            raise SourceError(path, f"part {section.part} of the bundle: {error.reason}") from error
        if (path, section) not in sections:
            raise SourceError(path, f"the listing of the bundle contradicts its part {section.part}")
        return part[section.position : section.position + section.size_in_bytes]

    def _node(self, path: str) -> MemberDirectory | ArchiveMember:
        """The node at `path`. Raises SourceError, for a link or a pipe with the reason why `collect` did not read it."""
        node = self._tree.find(path)
        if isinstance(node, ArchiveMember) and node.kind is not EntryKind.FILE:
            assert isinstance(node.place, BundlePlace)
            raise SourceError(path, node.place.refused or NOT_REGULAR)
        return super()._node(path)

    def _entry(self, path: str, node: MemberDirectory | ArchiveMember) -> Entry:
        """The entry of a node; links in a bundle are never followed."""
        if isinstance(node, MemberDirectory):
            return super()._entry(path, node)
        place = node.place
        assert isinstance(place, BundlePlace)
        return Entry(path, node.kind, node.size_in_bytes, node.mtime_ns, None, place.allocated_bytes, refused=place.refused)

    def _open_member(self, path: str, member: ArchiveMember) -> ByteFile:
        place = member.place
        assert isinstance(place, BundlePlace)
        if member.kind is not EntryKind.FILE:
            raise SourceError(path, NOT_REGULAR)
        if place.left_out is not None:
            raise SourceError(path, place.left_out)
        if place.contradiction is not None:
            raise SourceError(path, f"the bundle contradicts itself: {place.contradiction}")
        if place.is_log:
            return CollectedLog(self, path, member.size_in_bytes, place.sections, is_cut=place.is_cut)
        if place.is_cut:
            raise SourceError(path, CUT)
        return CollectedFile(self, path, member.size_in_bytes, place.sections)

    def missing_records_error(self, path: str, offsets: tuple[int, int] | None) -> "MissingRecordsError":
        """The error for bytes of a log, with these offsets [start, end), that the bundle does not hold."""
        directory = path.rpartition("/")[0].rpartition("/")[2]
        topic, _, partition = directory.rpartition("-")
        where = "" if self.about.broker is None else f" on broker {self.about.broker}"
        if offsets is None or not topic or not partition.isdigit():
            return MissingRecordsError(path, f"needs the records, which a bundle does not have: read the log directory{where}")
        if self.about.redaction is not None:
            reason = f"needs the records, which a bundle with pseudonyms does not have: read the log directory{where}"
            return MissingRecordsError(path, reason)
        if topic in WITNESS_TOPICS:
            return MissingRecordsError(path, f"needs the records, which no bundle has of {topic}: read the log directory{where}")
        needed = NeededRecords(self.name, self.about, topic, int(partition), *offsets)
        [request] = collect_requests([needed])
        reason = f"needs the records: run `{self.about.collect_command(request.records)}`{where}"
        return MissingRecordsError(path, reason, needed)


class MissingRecordsError(SourceError):
    """A bundle lacks records; `needed` are those that another bundle could have."""

    def __init__(self, path: str, reason: str, needed: NeededRecords | None = None) -> None:
        super().__init__(path, reason)
        self.needed = needed


def needed_records(error: SourceError) -> NeededRecords | None:
    """The records that another bundle could have, if a bundle lacks them."""
    return error.needed if isinstance(error, MissingRecordsError) else None


class CollectedFile(ByteFile):
    """A small file with its bytes; zeros where the bundle holds none."""

    def __init__(self, source: BundleSource, path: str, size_in_bytes: int, sections: list[BundleSection]) -> None:
        self.size_in_bytes = size_in_bytes
        self._source, self._path = source, path
        self._sections = sections

    def read_at(self, position: int, size: int) -> bytes:
        """See ByteFile."""
        requested = self.available(position, size)
        buffer = bytearray(requested)
        for section in self._sections:
            start, end = max(section.start, position), min(section.end, position + requested)
            if start < end:
                data = self._source.section(self._path, section)
                buffer[start - position : end - position] = data[start - section.start : end - section.start]
        return bytes(buffer)

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the bytes that the bundle holds."""
        return list(normalised((section.start, section.end) for section in self._sections))


class CollectedLog(ByteFile):
    """A log as facts; only of batches that were collected as they are stored are there bytes."""

    def __init__(
        self, source: BundleSource, path: str, size_in_bytes: int, sections: list[BundleSection], *, is_cut: bool = False
    ) -> None:
        self.size_in_bytes = size_in_bytes
        self.is_deep = source.about.is_deep
        """Whether `collect` decoded every batch to find damage."""
        self._source, self._path = source, path
        self._is_cut = is_cut
        self._by_kind: dict[SectionKind, list[BundleSection]] = {kind: [] for kind in SectionKind}
        for section in sections:
            self._by_kind[section.kind].append(section)
        self._last_batches: tuple[BundleSection | None, dict[int, bytes]] = None, {}
        """The section of stored or reduced batches that was read last, and its batches by position."""

    def _after(self, kind: SectionKind, start: int, end: int) -> Iterator[BundleSection]:
        """The sections of a kind that end after `start` and begin before `end`, in file order."""
        sections = self._by_kind[kind]
        for section in sections[bisect.bisect_right(sections, start, key=lambda section: section.end) :]:
            if section.start >= end:
                return
            yield section

    def batches(self, start: int, end: int) -> Iterator[tuple[BundleSection, bytes]]:
        """The sections of batches in `[start, end)`, in file order. Raises SourceError if one is missing or unreadable."""
        sections = self._by_kind[SectionKind.BATCHES]
        first = bisect.bisect_right(sections, start, key=lambda section: section.end)
        covered_end = sections[first - 1].end if first else 0
        for section in sections[first:]:
            if section.start >= end:
                return
            if section.start != covered_end:
                raise SourceError(self._path, f"the bundle has no facts of {offset_range(covered_end, section.start, 'byte')}")
            covered_end = section.end
            yield section, self._source.section(self._path, section)
        if covered_end < min(end, self.size_in_bytes):
            raise SourceError(self._path, f"the bundle has no facts of {offset_range(covered_end, self.size_in_bytes, 'byte')}")
        if self._is_cut and end >= self.size_in_bytes:
            raise SourceError(self._path, CUT)

    def held(self, start: int, end: int) -> Iterator[tuple[SectionKind, int, bytes]]:
        """(RAW or REDUCED, position, bytes) of the batches in `[start, end)` that the bundle holds. Raises SourceError."""
        for kind in (SectionKind.RAW, SectionKind.REDUCED):
            for section in self._after(kind, start, end):
                for position, batch in self._batches_of(section).items():
                    if start <= position < end:
                        yield kind, position, batch

    def batch(self, position: int) -> bytes | None:
        """The batch at byte `position`, stored or reduced, b"" if the analysis uses nothing of it; None if the bundle does not
        hold it. Raises SourceError."""
        for kind in (SectionKind.RAW, SectionKind.REDUCED):
            sections = self._by_kind[kind]
            index = bisect.bisect_right(sections, position, key=lambda section: section.start) - 1
            if index >= 0 and position < sections[index].end:
                data = self._batches_of(sections[index]).get(position)
                if data is not None or kind is SectionKind.REDUCED:
                    return data or b""
        return None

    def frames(self, start: int, end: int) -> dict[int, Frame]:
        """The batch headers read where damage begins in `[start, end)`, by position. Raises SourceError."""
        sections = [section for section in self._by_kind[SectionKind.FRAMES] if section.end > start and section.start < end]
        try:
            frames = [layout.read_frames(self._source.section(self._path, section)) for section in sections]
        except FormatError as error:
            raise self.broken(error.reason) from error
        return {frame.position: frame for frames_of_section in frames for frame in frames_of_section}

    @property
    def has_hashes(self) -> bool:
        """Whether it was collected with hashes of its keys and values."""
        return bool(self._by_kind[SectionKind.KEYS]) or not self._by_kind[SectionKind.BATCHES]

    def hashes(self, start: int, end: int) -> Iterator[bytes]:
        """The sections of hashes of the batches that begin in `[start, end)`. Raises SourceError if some are missing."""
        covered_end = start
        for section in self._after(SectionKind.KEYS, start, end):
            if section.start > covered_end:
                raise SourceError(self._path, f"the bundle has no hashes of {offset_range(covered_end, section.start, 'byte')}")
            covered_end = max(covered_end, section.end)
            yield self._source.section(self._path, section)
        if covered_end < end:
            raise SourceError(self._path, f"the bundle has no hashes of {offset_range(covered_end, end, 'byte')}")

    def missing_hashes_error(self) -> SourceError:
        """The error for a request of keys, if it was collected without their hashes."""
        topic = self._path.rpartition("/")[0].rpartition("/")[2].rpartition("-")[0]
        if self._source.about.redaction is not None:
            reason = f"needs hashes of its keys, since the topic is compacted: collect it with --compacted and the name of {topic}"
            return SourceError(self._path, reason)
        command = replace(self._source.about, compacted=topic).collect_command([])
        return SourceError(self._path, f"needs hashes of its keys, since the topic is compacted: run `{command}`")

    def _batches_of(self, section: BundleSection) -> dict[int, bytes]:
        """Batches of a section by position. Raises SourceError."""
        last_section, batches = self._last_batches
        if section == last_section:
            return batches
        try:
            batches = layout.read_batches_section(self._source.section(self._path, section))
        except FormatError as error:
            raise SourceError(self._path, f"part {section.part} of the bundle: {error.reason}") from error
        if not all(section.start <= position < section.end for position in batches):
            raise self.broken("a stored batch is outside its bytes")
        self._last_batches = section, batches
        return batches

    def known(self, section: BundleSection) -> object:
        """What `remember` stored for the section; None if another section was remembered since."""
        return self._source.remembered[1] if self._source.remembered[0] == (self._path, section) else None

    def remember(self, section: BundleSection, facts: object) -> None:
        """Store the decoded content of one section: the next read is likely to be of the same section."""
        self._source.remembered = (self._path, section), facts

    def broken(self, reason: str) -> SourceError:
        """The error for facts that contradict each other."""
        return SourceError(self._path, f"the bundle contradicts itself: {reason}")

    def missing_records_error(self, offsets: tuple[int, int] | None = None) -> MissingRecordsError:
        """The error for a request of records with these offsets [start, end)."""
        return self._source.missing_records_error(self._path, offsets)

    def read_at(self, position: int, size: int) -> bytes:
        """The batch at `position`, if it is stored and has `size` bytes. Raises SourceError otherwise."""
        if position >= self.size_in_bytes or not size:
            return b""
        data = self.batch(position)
        if data is None or len(data) != size:
            raise self.missing_records_error()
        return data

    def read_raw_batches(self, position: int, size: int) -> bytes:
        """Bytes `[position, position + size)` of stored batches, and zeros in place of all others. Raises SourceError."""
        buffer = bytearray(self.available(position, size))
        for section in self._after(SectionKind.RAW, position, position + len(buffer)):
            for batch_position, data in self._batches_of(section).items():
                start, end = batch_position - position, batch_position - position + len(data)
                if 0 <= start <= end <= len(buffer):
                    buffer[start:end] = data
        return bytes(buffer)


def _memory_size(part: _PartSections) -> int:
    return len(part[0]) + _SECTION_SIZE * len(part[1])


def _row_of_cut_file(path: str, sections: list[BundleSection]) -> list[object]:
    """The row of a file whose end is missing; sections after the bytes that are described are removed from `sections`."""
    is_log = _LOG_NAME.fullmatch(path.rpartition("/")[2]) is not None
    size = max((section.end for section in sections if section.kind in layout.EXCLUSIVE_KINDS), default=0)
    sections[:] = [section for section in sections if section.end <= size]
    return [path, "f", size, 0, None, None, None, is_log, None]


def _section(row: object) -> BundleSection:
    match row:
        case [int(part), int(position), int(size), str(kind), int(start), int(end)] if kind in layout.SECTION_KINDS:
            if all(map(is_number, (part, position, size, start, end))) and start <= end:
                return BundleSection(part, position, size, SectionKind(kind), start, end)
    raise FormatError("an invalid section")


def _contradiction(path: str, size_in_bytes: int, place: BundlePlace) -> str | None:
    """Why `collect` cannot have written this of a file of this name and size; None if it can."""
    if place.is_log is (_LOG_NAME.fullmatch(path.rpartition("/")[2]) is None):
        return "its kind contradicts its name"
    ends = dict.fromkeys(SectionKind, 0)
    keys_start = -1
    """Several sections of hashes may be of the same bytes."""
    for section in place.sections:
        if (section.kind is SectionKind.BYTES) is place.is_log:
            return "it has sections that only other kinds of files have"
        is_repeated = section.kind is SectionKind.KEYS and section.end == ends[section.kind] and section.start == keys_start
        if not (is_repeated or ends[section.kind] <= section.start) or not section.start <= section.end <= size_in_bytes:
            return "sections overlap, or are beyond its size"
        if section.start == section.end and section.kind is not SectionKind.BYTES:
            return "a section covers no bytes"
        keys_start = section.start if section.kind is SectionKind.KEYS else keys_start
        if section.kind is SectionKind.BYTES and section.end - section.start != section.size_in_bytes:
            return "sections have other sizes than their bytes"
        if section.kind is SectionKind.BATCHES and section.start != ends[section.kind]:
            return f"there are no facts of {offset_range(ends[section.kind], section.start, 'byte')}"
        ends[section.kind] = section.end
    if place.is_log and ends[SectionKind.BATCHES] < size_in_bytes:
        return f"there are no facts of {offset_range(ends[SectionKind.BATCHES], size_in_bytes, 'byte')}"
    return None


def _member_names(directory: MemberDirectory, prefix: str = "") -> Iterator[str]:
    """Names of members down to the second level; a bundle has no deeper ones, so only the directory above these is named."""
    for name, node in directory.children.items():
        path = f"{prefix}{name}"
        if isinstance(node, MemberDirectory) and not prefix:
            yield from _member_names(node, f"{path}/")
        else:
            yield path


def _is_time(value: object) -> bool:
    return is_number(value, -layout.MAX_FILE_BYTES)


def _is_text(text: str | None) -> bool:
    """Whether a name or reason is short enough, and has no surrogates but those of undecodable bytes."""
    if text is None or text.isascii():
        return text is None or len(text) <= _MAX_TEXT
    try:
        return len(text.encode("utf-8", "surrogateescape")) <= _MAX_TEXT
    except UnicodeEncodeError:
        return False


def _description(fields: dict[str, Any]) -> BundleDescription:
    broker, paths, compacted = fields.get("broker"), fields.get("paths"), fields.get("compacted")
    topics, partition, partitions = fields.get("topics"), fields.get("partition"), fields.get(layout.TRANSACTION_PARTITIONS, 0)
    return BundleDescription(
        broker if is_number(broker, -1, 1 << 31) or (isinstance(broker, str) and _is_text(broker)) else None,
        tuple(filter(_is_path, paths))[:_MAX_PATHS] if isinstance(paths, list) else (),
        fields.get("deep") is True,
        fields.get("live") is True,
        fields.get("hashes") is True,
        topics if isinstance(topics, str) and _is_text(topics) else None,
        partition if is_number(partition, end=1 << 31) else None,
        partitions if is_number(partitions, end=_MAX_TRANSACTION_PARTITIONS) else 0,
        fields.get("redaction"),
        compacted if isinstance(compacted, str) and _is_text(compacted) else None,
    )


def _is_path(path: object) -> bool:
    """Whether this can be a path argument of a command: absolute, so not an option."""
    return isinstance(path, str) and _is_text(path) and _ABSOLUTE_PATH.match(path) is not None
