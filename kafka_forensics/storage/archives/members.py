"""The members of an archive as a tree, and as open files. Their names are not trusted."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from kafka_forensics.errors import SourceError
from kafka_forensics.model.offset_ranges import normalised, offset_range
from kafka_forensics.storage.local import CIRCLE, DANGLING, MAX_LINKS, OUTSIDE, TOO_MANY
from kafka_forensics.storage.source import ByteFile, EntryKind, errors_named, is_below_root, path_parts

if TYPE_CHECKING:
    from array import array


MAX_MEMBERS: Final = 1_000_000
"""Members and implied directories of one archive."""
MAX_NAME: Final = 4096
"""Characters of a member's name: no system opens a longer path."""
MAX_NAMES: Final = 256 << 20
"""Characters of all names of one archive."""
MAX_NOTES: Final = 1000
"""Length of a list of rejected names or problems, before it ends with "and more"."""


class TooManyMembersError(SourceError):
    """An archive whose list of members would not fit into memory."""


class Extents(Struct):
    """The stored parts of a sparse member, ascending, none empty: `[starts[i], ends[i])` of the file is at `positions[i]`."""

    starts: "array[int]"
    ends: "array[int]"
    positions: "array[int]"

    def within(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(start, end, position) of the stored parts of `[start, end)`."""
        index = max(0, bisect_right(self.starts, start) - 1)
        while index < len(self.starts) and self.starts[index] < end:
            first = max(start, self.starts[index])
            last = min(end, self.ends[index])
            if first < last:
                yield first, last, self.positions[index] + first - self.starts[index]
            index += 1

    @property
    def stored_bytes(self) -> int:
        """Bytes that are not in a hole."""
        return sum(self.ends) - sum(self.starts)


class TarPlace(Struct):
    """Where a regular member of a tar is stored: at `position`, or in its `extents` if it is sparse."""

    position: int
    extents: Extents | None = None
    kept: bytes | None = None
    """All its bytes, if decompressing them again would cost more than keeping them."""
    unreadable: str = ""
    """Why it cannot be read."""


class ZipPlace(Struct):
    """Where a regular member of a zip is stored: the position of its local header, and the fields of its directory entry."""

    position: int
    compressed_size: int
    method: int
    flags: int
    crc: int


class Positioned(Protocol):
    """Where a regular member is stored."""

    @property
    def position(self) -> int:
        """Orders the members of an archive as they are read."""


class ArchiveMember(Struct):
    """A member other than a directory; `place` is None for what is never opened."""

    kind: EntryKind
    size_in_bytes: int
    mtime_ns: int
    place: Positioned | None = None
    target: str | None = None
    """The target of a symbolic link; None until it is read."""


class MemberDirectory(Struct):
    """A directory, which has a member, or is implied by the paths of others (then without a time)."""

    mtime_ns: int = 0
    children: "dict[str, MemberDirectory | ArchiveMember]" = field(default_factory=dict)


class Resolved(Struct, frozen=True):
    """What a path leads to: a `node` and its `path`; without a node, `reason` says why a link is not followed."""

    node: MemberDirectory | ArchiveMember | None
    path: str
    is_linked: bool = False
    """Whether there were links."""
    reason: str | None = None


class MemberTree:
    """Members by path. Of several members with one name the last counts, and the name is in `replaced`; names that are not safe
    paths are in `rejected`."""

    def __init__(self) -> None:
        self.root = MemberDirectory()
        self.rejected: list[str] = []
        self.replaced: list[str] = []
        self._members_count = 0
        self._names_size = 0

    def add(self, name: str, member: ArchiveMember) -> None:
        """Put `member` at `name`, as the archive spells it. Raises TooManyMembersError."""
        self._count(name)
        parts = safe_parts(name)
        parent = self._directory(parts[:-1]) if parts else None
        if not parts or parent is None or isinstance(parent.children.get(parts[-1]), MemberDirectory):
            note(self.rejected, name[:MAX_NAME])
        else:
            if parts[-1] in parent.children:
                note(self.replaced, "/".join(parts))
            parent.children[parts[-1]] = member

    def add_directory(self, name: str, mtime_ns: int) -> None:
        """Put a directory at `name`. Raises TooManyMembersError."""
        self._count(name)
        parts = safe_parts(name)
        directory = None if parts is None else self._directory(parts)
        if directory is None:
            note(self.rejected, name[:MAX_NAME])
        else:
            directory.mtime_ns = mtime_ns

    def find(self, path: str) -> MemberDirectory | ArchiveMember | None:
        """The node at `path` ("" is the root), links not followed; None if there is none."""
        node: MemberDirectory | ArchiveMember | None = self.root
        for part in path.split("/") if path else ():
            node = node.children.get(part) if isinstance(node, MemberDirectory) else None
        return node

    def follow(self, path: str, target_of: Callable[[str, ArchiveMember], str]) -> Resolved:
        """What `path` leads to if links are followed, by names of members only; `target_of` gives the target of a link.

        An absolute target is looked up below the root, because archives keep names without the `/` at the start.
        """
        if not is_below_root(path):
            return Resolved(None, path)
        above: list[tuple[str, MemberDirectory]] = [("", self.root)]
        parts = deque(path_parts(path))
        links: list[str] = []
        while parts:
            part = parts.popleft()
            if part == "..":
                if len(above) == 1:
                    return Resolved(None, path, is_linked=True, reason=OUTSIDE)
                above.pop()
                continue
            node = above[-1][1].children.get(part)
            name = "/".join([*(name for name, _ in above[1:]), part])
            if isinstance(node, MemberDirectory):
                above.append((part, node))
            elif node is None or (parts and node.kind is not EntryKind.SYMLINK):
                return Resolved(None, name, is_linked=bool(links), reason=DANGLING if links else None)
            elif node.kind is not EntryKind.SYMLINK:
                return Resolved(node, name, is_linked=bool(links))
            else:
                if len(links) >= MAX_LINKS:
                    return Resolved(None, path, is_linked=True, reason=CIRCLE if name in links else TOO_MANY)
                links.append(name)
                text = target_of(name, node)
                if text.startswith("/"):
                    above = above[:1]
                parts.extendleft(reversed(path_parts(text)))
        return Resolved(above[-1][1], "/".join(name for name, _ in above[1:]), is_linked=bool(links))

    def resolve(self, name: str) -> ArchiveMember | None:
        """The member that the target `name` of a hard link means, None if there is none so far."""
        parts = safe_parts(name)
        node = self.find("/".join(parts)) if parts else None
        return node if isinstance(node, ArchiveMember) else None

    def _directory(self, parts: tuple[str, ...]) -> MemberDirectory | None:
        """The directory at `parts`, created if needed; None if one of the parts is something else."""
        node = self.root
        for part in parts:
            child = node.children.get(part)
            if child is None:
                self._count("")
                child = node.children[part] = MemberDirectory()
            if not isinstance(child, MemberDirectory):
                return None
            node = child
        return node

    def _count(self, name: str) -> None:
        self._members_count += 1
        self._names_size += len(name)
        if self._members_count > MAX_MEMBERS:
            raise TooManyMembersError("", f"an archive of more than {MAX_MEMBERS:,} members is not read")
        if self._names_size > MAX_NAMES:
            raise TooManyMembersError("", f"an archive with more than {MAX_NAMES >> 20} MiB of member names is not read")


def safe_parts(name: str) -> tuple[str, ...] | None:
    """The parts of a relative path, () for the root itself; None for a name that is not a path below the root."""
    if name.startswith("/") or "\0" in name or len(name) > MAX_NAME:
        return None
    parts = tuple(path_parts(name))
    return None if ".." in parts else parts


def note(notes: list[str], text: str) -> None:
    """Add `text`, once, to a list of bounded length."""
    if len(notes) < MAX_NOTES:
        if text not in notes:
            notes.append(text)
    elif len(notes) == MAX_NOTES:
        notes.append("… and more")


_ZEROS: Final = bytes(1 << 20)


class ArchiveBytes(Protocol):
    """The bytes of an archive, decompressed if need be."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only where the bytes end."""


class Stored(ArchiveBytes, Protocol):
    """What members are part of: the archive's file, or what a stream in it decompresses to."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only where the bytes end."""


class MemberFile(ByteFile):
    """Bytes `[position, position + size_in_bytes)` of `stored`, or its `extents` with zeros between; `path` is for errors.

    Unlike a file that ends early, an archive that ends early is an error: a read that needs a missing byte raises SourceError.
    """

    def __init__(self, path: str, size_in_bytes: int, stored: Stored, position: int, extents: Extents | None = None) -> None:
        self.size_in_bytes = size_in_bytes
        self._path = path
        self._stored = stored
        self._position = position
        self._extents = extents

    def read_at(self, position: int, size: int) -> bytes:
        """See ByteFile."""
        requested = self.available(position, size)
        if self._extents is None:
            with errors_named(self._path):
                data = self._stored.read_at(self._position + position, requested)
            self._require(len(data), requested, position)
            return data
        buffer = bytearray(requested)
        self.read_into(position, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """See ByteFile."""
        buffer = buffer.cast("B")
        requested = self.available(position, len(buffer))
        target = buffer[:requested]
        if self._extents is None:
            self._copy(self._position + position, target, position)
            return requested
        for start in range(0, requested, len(_ZEROS)):
            chunk = target[start : start + len(_ZEROS)]
            chunk[:] = _ZEROS[: len(chunk)]
        for start, end, stored_position in self._extents.within(position, position + requested):
            self._copy(stored_position, target[start - position : end - position], start)
        return requested

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the stored parts of a sparse member; the whole of any other."""
        if self._extents is None:
            return super().data_ranges()
        return list(normalised(zip(self._extents.starts, self._extents.ends, strict=True)))

    def _copy(self, stored_position: int, target: memoryview, position: int) -> None:
        with errors_named(self._path):
            count = self._stored.read_into(stored_position, target)
        self._require(count, len(target), position)

    def _require(self, count: int, requested: int, position: int) -> None:
        if count < requested:
            missing = offset_range(position + count, position + requested, "byte")
            raise SourceError(self._path, f"the archive is cut short or damaged, without {missing} of this member")
