"""What kind of container a file is by its first bytes, whatever it is called."""

from dataclasses import dataclass
from typing import Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.source import ByteSource


@dataclass(frozen=True, slots=True)
class Container:
    """A kind of archive or compressed file: in `words`, and how names of such files end."""

    words: str
    ends: tuple[str, ...]


_TAR: Final = Container("a tar archive", (".tar",))
_GZIP: Final = Container("gzip-compressed data", (".tar.gz", ".tgz", ".tar.z", ".gz"))
_TAR_MAGIC_AT: Final = 257
_MAGICS: Final = (
    (0, b"\x1f\x8b\x08", _GZIP),
    (0, b"\xfd7zXZ\x00", Container("xz-compressed data", (".tar.xz", ".txz", ".xz"))),
    (0, b"\x28\xb5\x2f\xfd", Container("zstd-compressed data", (".tar.zst", ".tzst", ".zst"))),
    (0, b"BZh", Container("bzip2-compressed data", (".tar.bz2", ".tbz", ".tbz2", ".bz2"))),
    (0, b"PK\x03\x04", Container("a zip archive", (".zip",))),
    (0, b"PK\x05\x06", Container("a zip archive", (".zip",))),
    (0, b"7z\xbc\xaf\x27\x1c", Container("a 7z archive", (".7z",))),
    (0, b"Rar!\x1a\x07", Container("a rar archive", (".rar",))),
    (_TAR_MAGIC_AT, b"ustar", _TAR),
)
"""(byte, what stands there, kind)."""
_LOOKED_AT: Final = 512


def container_of(source: ByteSource) -> Container | None:
    """The kind of container that the one file of `source` is; None if its bytes are of none, or cannot be read."""
    try:
        with source.open("") as file:
            first = file.read_at(0, _LOOKED_AT)
    except SourceError:
        return None
    return next((kind for at, magic, kind in _MAGICS if first[at:].startswith(magic)), None)
