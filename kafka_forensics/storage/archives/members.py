"""The members of an archive as a tree. Their names come from outside and are believed in nothing."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kafka_forensics.errors import SourceError
from kafka_forensics.model.offset_ranges import normalised
from kafka_forensics.storage.local import CIRCLE, DANGLING, MAX_LINKS, OUTSIDE, TOO_MANY
from kafka_forensics.storage.source import EntryKind, OpenFile

if TYPE_CHECKING:
    from array import array


MAX_MEMBERS: Final = 1_000_000
"""Members and implied directories of one archive."""
MAX_NAME: Final = 4096
"""Characters of a member's name: no system opens a longer path."""
MAX_NAMES: Final = 256 << 20
"""Characters of all names of one archive."""
MAX_NOTES: Final = 1000
"""Names rejected, or problems told, before the list ends with "and more"."""


class TooManyMembersError(SourceError):
    """An archive that would not fit into memory."""


@dataclass(slots=True)
class Extents:
    """The stored parts of a sparse member, ascending, none empty: `[starts[i], ends[i])` of the file lies at `positions[i]`."""

    starts: "array[int]"
    ends: "array[int]"
    positions: "array[int]"

    def within(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(start, end, position) of what is stored of `[start, end)`."""
        at = max(0, bisect_right(self.starts, start) - 1)
        while at < len(self.starts) and self.starts[at] < end:
            first = max(start, self.starts[at])
            last = min(end, self.ends[at])
            if first < last:
                yield first, last, self.positions[at] + first - self.starts[at]
            at += 1

    @property
    def stored_bytes(self) -> int:
        """Bytes that are no hole."""
        return sum(self.ends) - sum(self.starts)


@dataclass(slots=True)
class TarPlace:
    """Where a regular member of a tar lies: `position` of its first byte, or its `extents` if it is sparse."""

    position: int
    extents: Extents | None = None
    kept: bytes | None = None
    """All its bytes, where inflating again would cost more than holding them."""
    unreadable: str = ""
    """Why it cannot be read."""


@dataclass(slots=True)
class ZipPlace:
    """Where a regular member of a zip lies: its local header and what the directory says of it."""

    position: int
    compressed_size: int
    method: int
    flags: int
    crc: int


class Place(Protocol):
    """Where a regular member lies."""

    @property
    def position(self) -> int:
        """In the archive: what lies further on is read later."""


@dataclass(slots=True)
class Member:
    """Anything but a directory; `place` is None for what is never opened."""

    kind: EntryKind
    size_in_bytes: int
    mtime_ns: int
    place: "Place | None" = None
    target: str | None = None
    """Where a symbolic link leads, as it says; None where that is yet to be read."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a path means: a `node`, or None and why; `path` is its own name, `linked` whether links led there."""

    node: "Directory | Member | None"
    path: str
    linked: bool = False
    reason: str | None = None
    """Why a link on the way, or at its end, is not followed."""


@dataclass(slots=True)
class Directory:
    """A directory, by its own member or implied by the paths of others (then without a time)."""

    mtime_ns: int = 0
    children: "dict[str, Directory | Member]" = field(default_factory=dict)


class MemberTree:
    """Members by path. A second member of one name takes the place of the first, and the name is `replaced`; names without a safe
    path are `rejected`."""

    def __init__(self) -> None:
        self.root = Directory()
        self.rejected: list[str] = []
        self.replaced: list[str] = []
        self._count = 0
        self._names = 0

    def add(self, name: str, member: Member) -> None:
        """Put `member` at `name`, as the archive spells it. Raises TooManyMembersError."""
        self._charge(name)
        parts = safe_parts(name)
        parent = self._directory(parts[:-1]) if parts else None
        if not parts or parent is None or isinstance(parent.children.get(parts[-1]), Directory):
            note(self.rejected, name[:MAX_NAME])
        else:
            if parts[-1] in parent.children:
                note(self.replaced, "/".join(parts))
            parent.children[parts[-1]] = member

    def add_directory(self, name: str, mtime_ns: int) -> None:
        """Have a directory at `name`. Raises TooManyMembersError."""
        self._charge(name)
        parts = safe_parts(name)
        directory = None if parts is None else self._directory(parts)
        if directory is None:
            note(self.rejected, name[:MAX_NAME])
        else:
            directory.mtime_ns = mtime_ns

    def find(self, path: str) -> Directory | Member | None:
        """What is at `path` ("" is the root), None if nothing is."""
        node: Directory | Member | None = self.root
        for part in path.split("/") if path else ():
            node = node.children.get(part) if isinstance(node, Directory) else None
        return node

    def follow(self, path: str, target_of: Callable[[str, Member], str]) -> Reached:
        """What `path` means if links are followed, by names of members alone; `target_of` tells where one of that name leads.

        An absolute target is the member of that name, as archives keep them without the `/` at the beginning.
        """
        if _is_irregular(path):
            return Reached(None, path)
        held: list[tuple[str, Directory]] = [("", self.root)]
        parts = deque(_names(path))
        node: Directory | Member | None = self.root
        met: list[str] = []

        def own(*below: str) -> str:
            return "/".join([*(name for name, _ in held[1:]), *below])

        while parts:
            part = parts.popleft()
            if part == "..":
                if len(held) == 1:
                    return Reached(None, path, linked=True, reason=OUTSIDE)
                held.pop()
                node = held[-1][1]
                continue
            node = held[-1][1].children.get(part)
            name = own(part)
            if isinstance(node, Directory):
                held.append((part, node))
            elif node is None or (parts and node.kind is not EntryKind.SYMLINK):
                return Reached(None, name, linked=bool(met), reason=DANGLING if met else None)
            elif node.kind is not EntryKind.SYMLINK:
                return Reached(node, name, linked=bool(met))
            else:
                if len(met) >= MAX_LINKS:
                    return Reached(None, path, linked=True, reason=CIRCLE if name in met else TOO_MANY)
                met.append(name)
                text = target_of(name, node)
                if text.startswith("/"):
                    held = held[:1]
                parts.extendleft(reversed(_names(text)))
                node = held[-1][1]
        return Reached(node, own(), linked=bool(met))

    def resolve(self, name: str) -> Member | None:
        """The member that a link's target `name` means so far, None if there is none."""
        parts = safe_parts(name)
        node = self.find("/".join(parts)) if parts else None
        return node if isinstance(node, Member) else None

    def _directory(self, parts: tuple[str, ...]) -> Directory | None:
        """The directory at `parts`, made if needed; None if a part of the way is something else."""
        node = self.root
        for part in parts:
            child = node.children.get(part)
            if child is None:
                self._charge("")
                child = node.children[part] = Directory()
            if not isinstance(child, Directory):
                return None
            node = child
        return node

    def _charge(self, name: str) -> None:
        self._count += 1
        self._names += len(name)
        if self._count > MAX_MEMBERS:
            raise TooManyMembersError("", f"an archive of more than {MAX_MEMBERS:,} members is not read")
        if self._names > MAX_NAMES:
            raise TooManyMembersError("", f"an archive with more than {MAX_NAMES >> 20} MiB of member names is not read")


def safe_parts(name: str) -> tuple[str, ...] | None:
    """The parts of a relative path, () for the root itself; None for a name that leads outside or nowhere."""
    if name.startswith("/") or "\0" in name or len(name) > MAX_NAME:
        return None
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    return None if ".." in parts else parts


def note(notes: list[str], text: str) -> None:
    """Add `text`, once, to a list that must not grow without bound."""
    if len(notes) < MAX_NOTES:
        if text not in notes:
            notes.append(text)
    elif len(notes) == MAX_NOTES:
        notes.append("… and more")


# A member of an archive as an open file.


_ZEROS: Final = bytes(1 << 20)


class Stored(Protocol):
    """What members are cut from: the archive's own file, what a stream in it inflates to, or bytes held."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only where the bytes end."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only where the bytes end."""


class HeldBytes:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return self._data[position : position + size]

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes there were."""
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class MemberFile(OpenFile):
    """Bytes `[position, position + size_in_bytes)` of `stored`, or its `extents` with zeros between; `path` for errors.

    Unlike a file that ends early, an archive that does is an error: every read that needs a missing byte raises SourceError.
    """

    def __init__(self, path: str, size_in_bytes: int, stored: Stored, position: int, extents: Extents | None = None) -> None:
        self.size_in_bytes = size_in_bytes
        self._path = path
        self._stored = stored
        self._position = position
        self._extents = extents

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the member. Raises SourceError if bytes are missing."""
        assert position >= 0
        assert size >= 0
        wanted = max(0, min(size, self.size_in_bytes - position))
        if self._extents is None:
            try:
                data = self._stored.read_at(self._position + position, wanted)
            except SourceError as error:
                raise SourceError(self._path, error.reason) from error
            self._require(len(data), wanted, position)
            return data
        buffer = bytearray(wanted)
        self._fill(position, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the member. Raises SourceError."""
        assert position >= 0
        buffer = buffer.cast("B")
        wanted = max(0, min(len(buffer), self.size_in_bytes - position))
        target = buffer[:wanted]
        if self._extents is None:
            self._copy(self._position + position, target, position)
        else:
            for start in range(0, wanted, len(_ZEROS)):
                piece = target[start : start + len(_ZEROS)]
                piece[:] = _ZEROS[: len(piece)]
            self._fill(position, target)
        return wanted

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the stored parts of a sparse member; the whole of any other."""
        if self._extents is None:
            return super().data_ranges()
        return list(normalised(zip(self._extents.starts, self._extents.ends, strict=True)))

    def _fill(self, position: int, target: memoryview) -> None:
        """Put what is stored of `[position, position + len(target))` over the zeros in `target`."""
        assert self._extents is not None
        for start, end, stored_position in self._extents.within(position, position + len(target)):
            self._copy(stored_position, target[start - position : end - position], start)

    def _copy(self, stored_position: int, target: memoryview, position: int) -> None:
        try:
            count = self._stored.read_into(stored_position, target)
        except SourceError as error:
            raise SourceError(self._path, error.reason) from error
        self._require(count, len(target), position)

    def _require(self, count: int, wanted: int, position: int) -> None:
        if count < wanted:
            missing = f"[{position + count}, {position + wanted})"
            raise SourceError(self._path, f"the archive is cut short or damaged: bytes {missing} of this member are missing")


def _names(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _is_irregular(path: str) -> bool:
    return bool(path) and any(part in {"", ".", ".."} for part in path.split("/"))
