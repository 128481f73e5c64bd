"""Finding the members of a tar archive in one pass from its beginning, whatever state it is in.

Own code rather than `tarfile`: that one takes a damaged header for the end of the archive without a word, holds a kilobyte for
each member, and reads a header of any declared size into memory.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.storage.archives.inflate import BLOCK_SIZE, Budget
from kafka_forensics.storage.archives.members import MAX_NAME, Extents, Member, MemberTree, TarPlace, note
from kafka_forensics.storage.archives.tar_header import (
    BLOCK,
    MAX_EXTENTS,
    ZERO_BLOCK,
    Header,
    SparseMapError,
    decimal,
    extents_of,
    gnu_sparse_map,
    padded,
    parse_header,
    parse_pax,
    parse_time_ns,
    pax_sparse_map,
)
from kafka_forensics.storage.source import EntryKind

_MAX_EXTENDED: Final = 1 << 20
"""Bytes of a long name or a pax header; nobody writes more, and all of them are held."""
_READ_BEHIND_END: Final = 16 << 20
"""Bytes looked at behind the end marker."""
_KEEP_BELOW: Final = 16 << 10
"""Members up to this size are kept from the first pass through a compressed archive: checkpoints, epochs, snapshots."""

_REGULAR: Final = frozenset({b"0", b"\0", b"7", b"S"})
_DIRECTORIES: Final = frozenset({b"5", b"D"})
_WITHOUT_DATA: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
"""Types whose size, if any, counts no bytes in the archive."""
_VOLUME_LABEL: Final = b"V"


class Readable(Protocol):
    """The bytes of the archive, inflated if need be."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer only where the archive ends."""


class TarIndex:
    """Fills `tree` with the members that `reader` holds; `problems` gets a sentence for each thing that is wrong.

    `keep` is the budget for holding small members, None where reading them again is cheap.
    """

    def __init__(self, reader: Readable, tree: MemberTree, problems: list[str], keep: Budget | None) -> None:
        self.kept_bytes = 0
        """Taken from `keep`."""
        self._reader = reader
        self._tree = tree
        self._problems = problems
        self._keep = keep
        self._position = 0
        self._extents_left = MAX_EXTENTS
        self._mtime: bytes | None = None
        """From a global pax header."""
        self._last = ("", 0)
        """Name of the last regular member, end of its data."""
        self._long_name = b""
        self._long_link = b""
        self._pax: list[tuple[bytes, bytes]] = []

    def run(self) -> None:
        """Walk to the end marker, the end of the bytes, or a place that is no header. Raises TooManyMembersError."""
        while True:
            start = self._position
            block = self._reader.read_at(start, BLOCK)
            if len(block) < BLOCK:
                self._tell_cut(start + len(block))
                return
            if block == ZERO_BLOCK:
                self._look_behind_end()
                return
            header = parse_header(block)
            if header is None:
                note(self._problems, f"no tar header at byte {start}: what follows is not read")
                return
            self._position = start + BLOCK
            if not self._take(header):
                return

    def _tell_cut(self, end: int) -> None:
        """The archive ended where a header should be; `end` lies behind its last byte, far behind if data are missing."""
        name, data_end = self._last
        if data_end and not self._reader.read_at(data_end - 1, 1):
            note(self._problems, f"cut short in the data of {name}")
        else:
            note(self._problems, f"ends at byte {end} without an end marker: it may be cut short")

    def _look_behind_end(self) -> None:
        """Say so if something stands behind the end marker; reading it also lets a compressed stream check its sums."""
        start = self._position
        limit = start + _READ_BEHIND_END
        for position in range(start, limit, BLOCK_SIZE):
            data = self._reader.read_at(position, BLOCK_SIZE)
            if data.strip(b"\0"):
                note(self._problems, f"there are bytes behind the end marker at byte {start}, which are not read")
                return
            if len(data) < BLOCK_SIZE:
                return

    def _take(self, header: Header) -> bool:
        """One header with what belongs to it; False if nothing behind it can be read."""
        if header.type_flag in {b"L", b"K", b"x", b"X", b"g"}:
            return self._take_extension(header)
        pax = dict(self._pax)
        size_in_bytes = decimal(pax[b"size"]) if b"size" in pax else header.size_in_bytes
        if header.type_flag in _WITHOUT_DATA:
            size_in_bytes = 0
        if size_in_bytes is None or self._position + padded(size_in_bytes) > INT64_MAX:
            note(self._problems, f"impossible size before byte {self._position}: what follows is not read")
            return False
        mtime = pax.get(b"mtime", self._mtime)
        header = replace(
            header,
            name=pax.get(b"GNU.sparse.name") or pax.get(b"path") or self._long_name or header.name,
            link_name=pax.get(b"linkpath") or self._long_link or header.link_name,
            size_in_bytes=size_in_bytes,
            mtime_ns=header.mtime_ns if mtime is None else parse_time_ns(mtime),
        )
        self._add(header, pax)
        self._long_name = self._long_link = b""
        self._pax = []
        return True

    def _take_extension(self, header: Header) -> bool:
        """A header that speaks about the next one."""
        start = self._position
        if header.size_in_bytes > _MAX_EXTENDED:
            note(self._problems, f"extended header of {header.size_in_bytes} bytes at byte {start}: what follows is not read")
            return False
        data = self._reader.read_at(start, header.size_in_bytes)
        if len(data) < header.size_in_bytes:
            note(self._problems, f"cut short at byte {start + len(data)}, in an extended header")
            return False
        self._position = start + padded(header.size_in_bytes)
        if header.type_flag == b"L":
            self._long_name = data.split(b"\0", 1)[0]
        elif header.type_flag == b"K":
            self._long_link = data.split(b"\0", 1)[0]
        else:
            records = parse_pax(data)
            if records is None:
                note(self._problems, f"damaged pax header at byte {start}: the member behind it may have a wrong name or size")
            elif header.type_flag == b"g":
                self._mtime = dict(records).get(b"mtime", self._mtime)
            else:
                self._pax = records
        return True

    def _add(self, header: Header, pax: dict[bytes, bytes]) -> None:
        """Put the member into the tree and step behind its data."""
        name = header.name.decode("utf-8", "surrogateescape")
        kind = header.type_flag
        if kind in _REGULAR and not (kind == b"\0" and header.name.endswith(b"/")):
            self._tree.add(name, self._regular(header, name, pax))
            return
        self._position += padded(header.size_in_bytes)
        if kind in _DIRECTORIES or kind == b"\0":
            self._tree.add_directory(name, header.mtime_ns)
        elif kind == b"1":
            target = self._tree.resolve(header.link_name.decode("utf-8", "surrogateescape"))
            self._tree.add(name, target or Member(EntryKind.OTHER, 0, header.mtime_ns))
        elif kind == b"2":
            leads = header.link_name.decode("utf-8", "surrogateescape")[: MAX_NAME + 1]
            self._tree.add(name, Member(EntryKind.SYMLINK, 0, header.mtime_ns, target=leads))
        elif kind != _VOLUME_LABEL:
            if kind == b"M":
                note(self._problems, f"a part of several: {name} began in the part before")
            self._tree.add(name, Member(EntryKind.OTHER, 0, header.mtime_ns))

    def _regular(self, header: Header, name: str, pax: dict[bytes, bytes]) -> Member:
        """A regular file; steps behind its data."""
        size_in_bytes = header.size_in_bytes
        if header.type_flag == b"S" or any(keyword.startswith(b"GNU.sparse.") for keyword in pax):
            member = self._sparse(header, pax)
        else:
            place = TarPlace(self._position)
            if self._keep is not None and 0 < size_in_bytes <= _KEEP_BELOW and self._keep.take(size_in_bytes):
                self.kept_bytes += size_in_bytes
                data = self._reader.read_at(self._position, size_in_bytes)
                place.kept = data if len(data) == size_in_bytes else None
            member = Member(EntryKind.FILE, size_in_bytes, header.mtime_ns, place)
        self._last = (name, self._position + size_in_bytes)
        self._position += padded(size_in_bytes)
        return member

    def _sparse(self, header: Header, pax: dict[bytes, bytes]) -> Member:
        """A sparse file, in any of the four ways to write one; unreadable if its map is broken."""
        declared = decimal(pax.get(b"GNU.sparse.realsize", pax.get(b"GNU.sparse.size", b"")))
        real_size = header.size_in_bytes if declared is None else declared
        map_size = 0
        place = TarPlace(self._position)
        try:
            if header.type_flag == b"S":
                numbers, real_size = gnu_sparse_map(header.block, self._next_block)
            elif pax.get(b"GNU.sparse.major") == b"1":
                numbers, map_size = pax_sparse_map(self._map_reader(header.size_in_bytes))
            else:
                numbers = _map_in_header(self._pax)
            place.position = self._position + map_size
            place.extents = extents_of(numbers, real_size, place.position, header.size_in_bytes - map_size)
            self._charge(place.extents)
        except SparseMapError as error:
            place.extents = None
            place.unreadable = str(error)
        return Member(EntryKind.FILE, real_size, header.mtime_ns, place)

    def _charge(self, extents: Extents) -> None:
        self._extents_left -= len(extents.starts)
        if self._extents_left < 0:
            raise SparseMapError(f"the archive has more than {MAX_EXTENTS:,} sparse parts")

    def _next_block(self) -> bytes:
        block = self._reader.read_at(self._position, BLOCK)
        self._position += len(block)
        return block

    def _map_reader(self, stored: int) -> Callable[[], bytes]:
        """Gives the bytes of the current member piece by piece."""
        starts = iter(range(self._position, self._position + stored, 8 * BLOCK))
        end = self._position + stored

        def read() -> bytes:
            start = next(starts, end)
            return self._reader.read_at(start, min(8 * BLOCK, end - start))

        return read


def _map_in_header(records: list[tuple[bytes, bytes]]) -> list[int]:
    """The sparse map of PAX 0.1 (one keyword with all numbers) or 0.0 (two keywords, repeated). Raises SparseMapError."""
    values: list[bytes] = []
    for keyword, value in records:
        if keyword == b"GNU.sparse.map":
            values = value.split(b",") if value else []
            break
        if keyword in {b"GNU.sparse.offset", b"GNU.sparse.numbytes"}:
            values.append(value)
    numbers = [number for number in map(decimal, values) if number is not None]
    if len(numbers) < len(values) or len(numbers) % 2:
        raise SparseMapError("the sparse map is damaged")
    return numbers
