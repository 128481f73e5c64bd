"""A bundle as a source: the tree of a broker's log directories, with small files as they were and facts in the place of logs."""

import bisect
import re
import shlex
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NoReturn

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.model.bundles import About
from kafka_forensics.model.offset_ranges import normalised
from kafka_forensics.storage.archives import (
    BLOCK,
    ArchiveSource,
    Directory,
    Member,
    MemberTree,
    TarIndex,
    TarPlace,
    note,
    padded,
    parse_header,
)
from kafka_forensics.storage.bundles.layout import (
    ABOUT,
    FORMAT,
    LISTING,
    MAX_ABOUT_BYTES,
    MAX_FILE_BYTES,
    MAX_LISTED_VALUES,
    MAX_LISTING_BYTES,
    MAX_PART_BYTES,
    MAX_SEAL_BYTES,
    MAX_SEALED_VALUES,
    PARTS,
    SEAL,
    SECTION_KINDS,
    TELLING,
    TRANSACTION_PARTITIONS,
    VERSION,
    Frame,
    Section,
    SectionKind,
    inflated,
    is_number,
    json_of,
    part_name,
    read_frames,
    read_held,
    read_index,
)
from kafka_forensics.storage.source import NOT_REGULAR, ByteFile, ByteSource, Entry, EntryKind, OpenFile

KEPT_BYTES: Final = 96 << 20
"""Of inflated parts that a bundle holds on to."""
_KINDS: Final = {"f": EntryKind.FILE, "l": EntryKind.SYMLINK, "o": EntryKind.OTHER}
_SECTION_SIZE: Final = 400
_TAIL_BYTES: Final = 256 << 10
_SEAL_NAME: Final = SEAL.encode() + b"\0"
_NOWHERE: Final = "\0"
_PART_END: Final = ".zst"
_PART_NAME: Final = re.compile(r"[0-9]{6,9}\.zst")
_LOG_NAME: Final = re.compile(
    r"([0-9]{20}(\.log|-[0-9]{10}(-[0-9]{1,20})?\.checkpoint)|bootstrap\.checkpoint)(\.(deleted|swap|cleaned|tmp|part))*"
)
"""Files of batches, by their names: `parsers.log_dir` says which they are, and no room below it may ask there."""
_MAX_WORDS: Final = 4096
"""Characters of a path, or a reason, that are taken from outside."""
_MAX_PATHS: Final = 64
_MAX_TRANSACTION_PARTITIONS: Final = 1 << 16
CUT: Final = "the bundle was cut short before the end of this file"
_KEY_NAME: Final = re.compile(r"[0-9a-f]{16}")
_WHOLE_PATH: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(slots=True)
class BundlePlace:
    """What a bundle holds of a file: its sections, ascending, or why there are none."""

    sections: list[Section] = field(default_factory=list)
    allocated_bytes: int | None = None
    left_out: str | None = None
    is_log: bool = False
    refused: str | None = None
    """Why a link was not followed."""
    sha256: str | None = None
    is_cut: bool = False
    """Whether the bundle was cut short within it: its size is not known, and no less than what there is."""
    contradiction: str | None = None
    """Why this cannot be what was collected of any file."""

    @property
    def position(self) -> int:
        """Where it lies in the bundle."""
        return self.sections[0].part if self.sections else 0


class BundleSource(ArchiveSource):
    """The log directories in a bundle. Raises SourceError for what is none.

    What is wrong with it is in `problems`: without a seal, or with members that are not as they were sealed, it is judged in part.
    """

    def __init__(self, path: str, container: ByteSource | None = None) -> None:
        """`container` is the one file on a storage service that it is; None: it is a local file."""
        super().__init__(path, container)
        self._lock = threading.Lock()
        self.remembered: tuple[tuple[str, Section] | None, object] = None, None
        """The section that was looked into last, by the path of its file, and what it holds."""
        self._parts: OrderedDict[int, tuple[bytes, frozenset[tuple[str, Section]]]] = OrderedDict()
        self._held_bytes = 0
        members = MemberTree()
        found: list[str] = []
        try:
            if container is None or not self._find_by_seal(members):
                TarIndex(self._file, members, found, None).run()
        except SourceError as error:
            raise SourceError(path, error.reason) from error
        found += [f"a member that no bundle has: {name}" for name in members.rejected]
        found += [f"several members are called {name}: the last is read" for name in members.replaced]
        self._members = members
        self._sealed: dict[str, object] | None = None
        self._sealed = self._seal()
        self.about = self._about()
        for problem in found:
            note(self.problems, problem)
        self._require_sealed()
        try:
            self._read_listing()
        except SourceError as error:
            raise SourceError(path, error.reason) from error

    def _find_by_seal(self, members: MemberTree) -> bool:
        """Put members where the seal at the end says that they are; False where it does not say so of all.

        Walking from header to header takes a request for each on a storage service. Contents are held to the seal in any case.
        """
        size = self._file.size_in_bytes
        start = max(size - _TAIL_BYTES, 0) // BLOCK * BLOCK
        tail = self._file.read_at(start, size - start)
        for at in range(len(tail) // BLOCK * BLOCK - BLOCK, -1, -BLOCK):
            header = parse_header(tail[at : at + BLOCK]) if tail.startswith(_SEAL_NAME, at) else None
            if header is not None:
                seal = tail[at + BLOCK : at + BLOCK + header.size_in_bytes]
                return self._place_members(members, seal, start + at)
        return False

    @staticmethod
    def _place_members(members: MemberTree, seal: bytes, end: int) -> bool:
        """Add the members that a seal tells of, which lie one behind the other up to its own header at byte `end`."""
        try:
            sealed = json_of(seal, MAX_SEALED_VALUES)
        except FormatError:
            return False
        rows = sealed.get("members") if isinstance(sealed, dict) else None
        position, places = 0, list[tuple[str, Member]]()
        for name, row in rows.items() if isinstance(rows, dict) else ():
            match row:
                case [size, str()] if is_number(size, 0, end):
                    places.append((str(name), Member(EntryKind.FILE, size, 0, TarPlace(position + BLOCK))))
                    position += BLOCK + padded(size)
                case _:
                    return False
        if position != end or not places:
            return False
        for name, member in [*places, (SEAL, Member(EntryKind.FILE, len(seal), 0, TarPlace(end + BLOCK)))]:
            members.add(name, member)
        return True

    def _member(self, name: str, limit: int) -> bytes:
        """The bytes of a member of the tar. Raises SourceError if it is missing, too large, cut short, or not as it was sealed."""
        member = self._members.find(name)
        place = member.place if isinstance(member, Member) and member.kind is EntryKind.FILE else None
        if not isinstance(member, Member) or not isinstance(place, TarPlace):
            raise SourceError(self.name, f"a bundle without {name}")
        if place.extents is not None or place.unreadable:
            raise SourceError(self.name, f"{name} is a sparse member, and no bundle has any")
        if member.size_in_bytes > limit:
            raise SourceError(self.name, f"{name} in the bundle has {member.size_in_bytes:,} bytes, and at most {limit:,} are read")
        data = self._file.read_at(place.position, member.size_in_bytes)
        if len(data) < member.size_in_bytes:
            raise SourceError(self.name, f"cut short in the data of {name}")
        if name != SEAL and self._sealed is not None and self._sealed.get(name) != [len(data), sha256(data).hexdigest()]:
            raise SourceError(self.name, f"{name} is not what was sealed: the bundle was changed or damaged")
        return data

    def _seal(self) -> dict[str, object] | None:
        """Size and SHA-256 of every member; None without a seal that can be read."""
        try:
            sealed = json_of(self._member(SEAL, MAX_SEAL_BYTES), MAX_SEALED_VALUES)
        except (SourceError, FormatError):
            note(self.problems, "without a seal: it was cut short, or its making is not finished; what it holds is read")
            return None
        match sealed:
            case {"members": dict(members)}:
                return members
        note(self.problems, "its seal makes no sense: what it holds is read")
        return None

    def _require_sealed(self) -> None:
        """Note members that are not those of which the seal tells."""
        if self._sealed is None:
            return
        there = set(_names(self._members.root)) - {SEAL}
        for names, words in (
            (there - self._sealed.keys(), "that were not there when it was sealed"),
            (self._sealed.keys() - there, "fewer than when it was sealed"),
        ):
            if names:
                count = f"{len(names)} members" if len(names) > 1 else "1 member"
                note(self.problems, f"{count} {words}, such as {min(names)[:_MAX_WORDS]}: the bundle was changed or damaged")

    def _about(self) -> About:
        try:
            said: Any = json_of(self._member(ABOUT, MAX_ABOUT_BYTES))
        except FormatError as error:
            raise SourceError(self.name, f"no bundle: {error.reason}") from error
        match said:
            case {"format": str(name), "version": version} if name == FORMAT and is_number(version, end=1 << 31):
                if version != VERSION:
                    reason = (
                        f"bundle version {version} is not supported (this tool reads version {VERSION}): use the tool that made it"
                    )
                    raise SourceError(self.name, reason)
                if not _is_redaction(said.get("redaction")):
                    reason = f"invalid bundle: {ABOUT} has an invalid value of redaction, so cannot tell pseudonyms from names"
                    raise SourceError(self.name, reason)
                return _about_of(said)
        raise SourceError(self.name, "no bundle of facts: bundle.json says nothing of one")

    def _read_listing(self) -> None:
        """Fill the tree by the listing; by the indexes of all parts that are whole where there is none."""
        try:
            listing = inflated(self._member(LISTING, MAX_LISTING_BYTES), MAX_LISTING_BYTES)
            self._take_listing(json_of(listing, MAX_LISTED_VALUES))
        except (FormatError, SourceError) as error:
            note(self.problems, f"its listing cannot be read ({error.reason}): files are known by what is in the parts")
            self._tree = MemberTree()
            self.rejected, self.replaced = self._tree.rejected, self._tree.replaced
            self._list_parts()

    def _take_listing(self, listing: object) -> None:
        """Raises FormatError."""
        match listing:
            case {"directories": list(directories), "files": list(files)}:
                for row in directories:
                    match row:
                        case [str(path), int(mtime_ns)] if _is_time(mtime_ns) and _is_text(path):
                            self._tree.add_directory(path, mtime_ns)
                        case _:
                            raise FormatError("a directory that makes no sense")
                for row in files:
                    self._take_file(row)
                return
        raise FormatError("no listing of a bundle")

    def _take_file(self, row: object, *, is_cut: bool = False) -> None:
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
                (None | str()) as hashed,
                list(sections),
            ] if kind in _KINDS and _is_time(mtime_ns) and is_number(size) and (allocated is None or is_number(allocated)):
                if not all(_is_text(text) for text in (path, refused, left_out, hashed)):
                    raise FormatError("a file with a name that none can have")
                known = [_section_of(section) for section in sections]
                place = BundlePlace(known, allocated, left_out, is_log, refused, hashed, is_cut)
                self._tree.add(path, Member(_KINDS[kind], size, mtime_ns, place, target=_NOWHERE))
                place.contradiction = (
                    _contradiction(path, size, place) if left_out is None and _KINDS[kind] is EntryKind.FILE else None
                )
                if place.contradiction is not None:
                    note(self.problems, f"it contradicts itself: of {path} {place.contradiction}")
                return
        raise FormatError("a file that makes no sense")

    def _list_parts(self) -> None:
        """Files by the indexes of all parts that can be read; of those whose end is missing the sections that there are."""
        parts = self._members.find(PARTS)
        sections: dict[str, list[Section]] = {}
        rows: dict[str, list[object]] = {}
        names = parts.children if isinstance(parts, Directory) else ()
        for number in sorted(int(name[: -len(_PART_END)]) for name in names if _PART_NAME.fullmatch(name)):
            try:
                index = read_index(self._inflate(number), number)
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
            known = sections.get(path, [])
            row = rows.get(path, _unended(path, known))
            try:
                self._take_file(
                    [*row, [[*section[:3], section.kind.value, *section[4:]] for section in known]], is_cut=path not in rows
                )
            except FormatError as error:
                note(self.problems, f"{path[:_MAX_WORDS]}: {error.reason}")

    def _inflate(self, number: int) -> bytes:
        """A part, inflated. Raises SourceError and FormatError."""
        return inflated(self._member(part_name(number), MAX_PART_BYTES), MAX_PART_BYTES)

    def _part(self, number: int) -> tuple[bytes, frozenset[tuple[str, Section]]]:
        """A part, inflated, and what is in it. Raises SourceError and FormatError."""
        with self._lock:
            if number in self._parts:
                self._parts.move_to_end(number)
                return self._parts[number]
        data = self._inflate(number)
        part = data, frozenset(read_index(data, number).sections)
        with self._lock:
            if number not in self._parts:
                self._parts[number] = part
                self._held_bytes += _size_of(part)
            while self._held_bytes > KEPT_BYTES and len(self._parts) > 1:
                self._held_bytes -= _size_of(self._parts.popitem(last=False)[1])
        return part

    def section(self, path: str, section: Section) -> bytes:
        """The bytes of a section of the file at `path`. Raises SourceError."""
        try:
            part, sections = self._part(section.part)
        except FormatError as error:
            raise SourceError(path, f"part {section.part} of the bundle: {error.reason}") from error
        except SourceError as error:
            raise SourceError(path, error.reason) from error
        if (path, section) not in sections:
            raise SourceError(path, f"the listing of the bundle contradicts its part {section.part}")
        return part[section.position : section.position + section.size_in_bytes]

    def _node(self, path: str) -> Directory | Member:
        """What is at `path`. Raises SourceError, and for a link or a pipe for the reason it was not read then."""
        node = self._tree.find(path)
        if isinstance(node, Member) and node.kind is not EntryKind.FILE:
            assert isinstance(node.place, BundlePlace)
            raise SourceError(path, node.place.refused or NOT_REGULAR)
        return super()._node(path)

    def _entry(self, path: str, node: Directory | Member) -> Entry:
        """The entry of a node, links among them: none of a bundle leads anywhere."""
        if isinstance(node, Directory):
            return Entry(path, EntryKind.DIRECTORY, 0, node.mtime_ns, None)
        place = node.place
        assert isinstance(place, BundlePlace)
        return Entry(path, node.kind, node.size_in_bytes, node.mtime_ns, None, place.allocated_bytes, refused=place.refused)

    def _open_member(self, path: str, member: Member) -> ByteFile:
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

    def needs_records(self, path: str, offsets: tuple[int, int] | None) -> SourceError:
        """What to say where bytes of a log are asked for that the bundle does not hold, of these offsets."""
        directory = path.rpartition("/")[0].rpartition("/")[2]
        topic, _, partition = directory.rpartition("-")
        where = "" if self.about.broker is None else f" on broker {self.about.broker}"
        if offsets is None or not topic or not partition.isdigit():
            return SourceError(path, f"needs the records, which are no part of a bundle: read the log itself{where}")
        if self.about.redaction is not None:
            return SourceError(path, f"needs the records, which no bundle with pseudonyms has: read the log itself{where}")
        asked = f"{topic}:{partition}:{offsets[0]}-{offsets[1]}"
        paths = " ".join(map(shlex.quote, self.about.paths)) or "LOG_DIR"
        command = f"kafka-forensics collect {paths} --with-records {shlex.quote(asked)} --output FILE.kfb"
        return SourceError(path, f"needs the records: run `{command}`{where}")


class _HeldFile(OpenFile, ABC):
    """A file that is read by what its bundle holds of it."""

    @abstractmethod
    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file. Raises SourceError."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the file. Raises SourceError."""
        target = buffer.cast("B")
        data = self.read_at(position, len(target))
        target[: len(data)] = data
        return len(data)


class CollectedFile(_HeldFile):
    """A small file as it was; where a bundle holds no bytes of it there are zeros."""

    def __init__(self, source: BundleSource, path: str, size_in_bytes: int, sections: list[Section]) -> None:
        self.size_in_bytes = size_in_bytes
        self._source, self._path = source, path
        self._sections = sections

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file. Raises SourceError."""
        wanted = max(0, min(size, self.size_in_bytes - position))
        buffer = bytearray(wanted)
        for section in self._sections:
            start, end = max(section.start, position), min(section.end, position + wanted)
            if start < end:
                data = self._source.section(self._path, section)
                buffer[start - position : end - position] = data[start - section.start : end - section.start]
        return bytes(buffer)

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of what the bundle holds of it."""
        return list(normalised((section.start, section.end) for section in self._sections))


class CollectedLog(_HeldFile):
    """A log of which there are facts: no bytes but those of batches that were taken whole."""

    def __init__(
        self, source: BundleSource, path: str, size_in_bytes: int, sections: list[Section], *, is_cut: bool = False
    ) -> None:
        self.size_in_bytes = size_in_bytes
        self.is_deep = source.about.is_deep
        """Whether every batch was opened to tell what is damaged."""
        self._source, self._path = source, path
        self._is_cut = is_cut
        by_kind: dict[SectionKind, list[Section]] = {kind: [] for kind in SectionKind}
        for section in sections:
            by_kind[section.kind].append(section)
        self._by_kind = by_kind
        self._held: dict[Section, dict[int, bytes]] = {}

    def batches(self, start: int, end: int) -> Iterator[tuple[Section, bytes]]:
        """The sections of batches in `[start, end)`, in file order. Raises SourceError where one is missing or cannot be read."""
        sections = self._by_kind[SectionKind.BATCHES]
        first = bisect.bisect_right(sections, start, key=lambda section: section.end)
        at = sections[first - 1].end if first else 0
        for section in sections[first:]:
            if section.start >= end:
                return
            if section.start != at:
                raise SourceError(self._path, f"the bundle has no facts of bytes {at} to {section.start}")
            at = section.end
            yield section, self._source.section(self._path, section)
        if at < min(end, self.size_in_bytes):
            raise SourceError(self._path, f"the bundle has no facts of bytes {at} to {self.size_in_bytes}")
        if self._is_cut and end >= self.size_in_bytes:
            raise SourceError(self._path, CUT)

    def held(self, start: int, end: int) -> Iterator[tuple[SectionKind, int, bytes]]:
        """The batches that are held in `[start, end)`, each with its position, whole or telling less. Raises SourceError."""
        for kind in (SectionKind.KEPT, SectionKind.TOLD):
            sections = self._by_kind[kind]
            for section in sections[bisect.bisect_right(sections, start, key=lambda section: section.end) :]:
                if section.start >= end:
                    break
                for position, batch in self._batches_of(section).items():
                    if start <= position < end:
                        yield kind, position, batch

    def batch(self, position: int) -> bytes | None:
        """The batch at byte `position`, as it is stored or with as much of its records as the analysis uses, which may be nothing;
        None if the bundle does not hold it. Raises SourceError."""
        for kind in (SectionKind.KEPT, SectionKind.TOLD):
            sections = self._by_kind[kind]
            index = bisect.bisect_right(sections, position, key=lambda section: section.start) - 1
            if index >= 0 and position < sections[index].end:
                data = self._batches_of(sections[index]).get(position)
                if data is not None or kind is SectionKind.TOLD:
                    return data or b""
        return None

    def frames(self, start: int, end: int) -> dict[int, Frame]:
        """What headers would say where damage begins in `[start, end)`, by position. Raises SourceError."""
        sections = [section for section in self._by_kind[SectionKind.FRAMES] if section.end > start and section.start < end]
        try:
            held = [read_frames(self._source.section(self._path, section)) for section in sections]
            return {frame.position: frame for frames in held for frame in frames}
        except FormatError as error:
            raise self.broken(error.reason) from error

    @property
    def has_hashes(self) -> bool:
        """Whether it was collected with hashes of its keys and values."""
        return bool(self._by_kind[SectionKind.KEYS]) or not self._by_kind[SectionKind.BATCHES]

    def hashes(self, start: int, end: int) -> Iterator[bytes]:
        """The sections of hashes of the batches that begin in `[start, end)`. Raises SourceError, also where some are missing."""
        sections = self._by_kind[SectionKind.KEYS]
        at = start
        for section in sections[bisect.bisect_right(sections, start, key=lambda section: section.end) :]:
            if section.start >= end:
                break
            if section.start > at:
                raise SourceError(self._path, f"the bundle has no hashes of bytes {at} to {section.start}")
            at = max(at, section.end)
            yield self._source.section(self._path, section)
        if at < end:
            raise SourceError(self._path, f"the bundle has no hashes of bytes {at} to {end}")

    def needs_hashes(self) -> SourceError:
        """What to say where keys are asked for, and it was collected without their hashes."""
        topic = self._path.rpartition("/")[0].rpartition("/")[2].rpartition("-")[0]
        if self._source.about.redaction is not None:
            reason = f"needs hashes of its keys, as the topic is compacted: collect it with --compacted and the name of {topic}"
            return SourceError(self._path, reason)
        command = f"kafka-forensics collect LOG_DIR --compacted {shlex.quote(topic)} --output FILE.kfb"
        return SourceError(self._path, f"needs hashes of its keys, as the topic is compacted: run `{command}`")

    def _batches_of(self, section: Section) -> dict[int, bytes]:
        known = self._held
        if section not in known:
            known = self._held = {}
            try:
                held = read_held(self._source.section(self._path, section))
            except FormatError as error:
                raise SourceError(self._path, f"part {section.part} of the bundle: {error.reason}") from error
            if not all(section.start <= position < section.end for position in held):
                raise self.broken("a batch that is held lies outside of its bytes")
            known[section] = held
        return known[section]

    def known(self, section: Section) -> object:
        """What was remembered of a section last; None of any other."""
        return self._source.remembered[1] if self._source.remembered[0] == (self._path, section) else None

    def remember(self, section: Section, facts: object) -> None:
        """Keep what a section holds, until another is remembered: whoever looks at a batch looks at its neighbours next."""
        self._source.remembered = (self._path, section), facts

    def broken(self, reason: str) -> SourceError:
        """What to say where the facts make no sense."""
        return SourceError(self._path, f"the bundle contradicts itself: {reason}")

    def needs_records(self, offsets: tuple[int, int] | None = None) -> SourceError:
        """What to say where records of these offsets are asked for."""
        return self._source.needs_records(self._path, offsets)

    def read_at(self, position: int, size: int) -> bytes:
        """The batch that begins at `position`, if it was taken whole and has `size` bytes. Raises SourceError otherwise."""
        if position >= self.size_in_bytes or not size:
            return b""
        data = self.batch(position)
        if data is None or len(data) != size:
            self._refuse()
        return data

    def read_kept(self, position: int, size: int) -> bytes:
        """Bytes `[position, position + size)` with the batches that were taken whole, and zeros for all others. Raises
        SourceError."""
        buffer = bytearray(max(0, min(size, self.size_in_bytes - position)))
        for section in self._by_kind[SectionKind.KEPT]:
            if section.end <= position or section.start >= position + len(buffer):
                continue
            for at, data in self._batches_of(section).items():
                start, end = at - position, at - position + len(data)
                if 0 <= start <= end <= len(buffer):
                    buffer[start:end] = data
        return bytes(buffer)

    def _refuse(self) -> NoReturn:
        raise self.needs_records()


def _size_of(part: tuple[bytes, frozenset[tuple[str, Section]]]) -> int:
    """About what a part takes that is held."""
    return len(part[0]) + _SECTION_SIZE * len(part[1])


def _unended(path: str, sections: list[Section]) -> list[object]:
    """The row of a file whose end is missing."""
    is_log = _LOG_NAME.fullmatch(path.rpartition("/")[2]) is not None
    size = max((section.end for section in sections if section.kind in TELLING), default=0)
    sections[:] = [section for section in sections if section.end <= size]
    return [path, "f", size, 0, None, None, None, is_log, None]


def _section_of(row: object) -> Section:
    match row:
        case [int(part), int(position), int(size), str(kind), int(start), int(end)] if kind in SECTION_KINDS:
            if all(map(is_number, (part, position, size, start, end))) and start <= end:
                return Section(part, position, size, SectionKind(kind), start, end)
    raise FormatError("a section that makes no sense")


def _contradiction(path: str, size_in_bytes: int, place: BundlePlace) -> str | None:
    """Why this cannot be what was collected of a file of this name and size; None if it can."""
    if place.is_log is (_LOG_NAME.fullmatch(path.rpartition("/")[2]) is None):
        return "the name says otherwise what it is"
    ends = dict.fromkeys(SectionKind, 0)
    keys_start = -1
    """Several blocks of hashes may speak of the same bytes."""
    for section in place.sections:
        if (section.kind is SectionKind.BYTES) is place.is_log:
            return "there is what only other files have"
        again = section.kind is SectionKind.KEYS and section.end == ends[section.kind] and section.start == keys_start
        if not (again or ends[section.kind] <= section.start) or not section.start <= section.end <= size_in_bytes:
            return "sections lie over each other, or beyond its size"
        if section.start == section.end and section.kind is not SectionKind.BYTES:
            return "a section speaks of no bytes"
        keys_start = section.start if section.kind is SectionKind.KEYS else keys_start
        if section.kind is SectionKind.BYTES and section.end - section.start != section.size_in_bytes:
            return "sections have other sizes than their bytes"
        if section.kind is SectionKind.BATCHES and section.start != ends[section.kind]:
            return f"there are no facts of bytes {ends[section.kind]} to {section.start}"
        ends[section.kind] = section.end
    if place.is_log and ends[SectionKind.BATCHES] < size_in_bytes:
        return f"there are no facts of bytes {ends[SectionKind.BATCHES]} to {size_in_bytes}"
    return None


def _names(directory: Directory, prefix: str = "") -> Iterator[str]:
    """All that lies in a directory of the tar and in those in it; what lies deeper is no part of a bundle, and is told by where."""
    for name, node in directory.children.items():
        path = f"{prefix}{name}"
        if isinstance(node, Directory) and not prefix:
            yield from _names(node, f"{path}/")
        else:
            yield path


def _is_time(value: object) -> bool:
    return is_number(value, -MAX_FILE_BYTES)


def _is_text(text: str | None) -> bool:
    """Whether a name, or words, can be those of a file: of a bearable length, and no half of a character."""
    if text is None or text.isascii():
        return text is None or len(text) <= _MAX_WORDS
    try:
        return len(text.encode("utf-8", "surrogateescape")) <= _MAX_WORDS
    except UnicodeEncodeError:
        return False


def _about_of(said: dict[str, Any]) -> About:
    broker, paths = said.get("broker"), said.get("paths")
    return About(
        broker if is_number(broker, -1, 1 << 31) or (isinstance(broker, str) and _is_text(broker)) else None,
        tuple(filter(_is_path, paths))[:_MAX_PATHS] if isinstance(paths, list) else (),
        said.get("deep") is True,
        said.get("live") is True,
        said.get("topics") is not None or said.get("partition") is not None,
        said[TRANSACTION_PARTITIONS] if is_number(said.get(TRANSACTION_PARTITIONS), end=_MAX_TRANSACTION_PARTITIONS) else 0,
        said.get("redaction"),
    )


def _is_redaction(value: object) -> bool:
    """Whether this can be the name of the key that made pseudonyms; None stands in bundles without pseudonyms."""
    return value is None or (isinstance(value, str) and _KEY_NAME.fullmatch(value) is not None)


def _is_path(path: object) -> bool:
    """Whether this may be given to a command as a path: it is whole, and no option."""
    return isinstance(path, str) and _is_text(path) and _WHOLE_PATH.match(path) is not None
