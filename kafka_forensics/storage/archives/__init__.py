"""Members of `.tar` and `.zip` archives, compressed or not, read in place."""

from kafka_forensics.storage.archives.archive import ArchiveSource, TarSource, ZipSource, reading_order
from kafka_forensics.storage.archives.decoders import container_of
from kafka_forensics.storage.archives.members import (
    MAX_MEMBERS,
    MAX_NAME,
    ArchiveMember,
    MemberDirectory,
    MemberFile,
    MemberTree,
    TarPlace,
    note,
)
from kafka_forensics.storage.archives.tar import BLOCK, TarIndex, padded, parse_header
