"""Members of `.tar` and `.zip` archives, compressed or not, read in place."""

from kafka_forensics.storage.archives.archive import ArchiveSource, TarSource, ZipSource, reading_order
from kafka_forensics.storage.archives.decoders import container_of
from kafka_forensics.storage.archives.members import MAX_MEMBERS, MAX_NAME, HeldBytes, MemberFile, note

__all__ = [
    "MAX_MEMBERS",
    "MAX_NAME",
    "ArchiveSource",
    "HeldBytes",
    "MemberFile",
    "TarSource",
    "ZipSource",
    "container_of",
    "note",
    "reading_order",
]
