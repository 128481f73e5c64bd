"""Every case of the fault gallery, by the heading of `docs/faults.md` below which it stands."""

from typing import Final

from tests.support.gallery_bytes import BATCHES, COMPRESSION
from tests.support.gallery_case import Case
from tests.support.gallery_files import SEGMENTS, SMALL_FILES
from tests.support.gallery_replicas import ENVIRONMENT, REPLICAS

SECTIONS: Final[dict[str, tuple[Case, ...]]] = {
    "Bytes of a batch": BATCHES,
    "Compression": COMPRESSION,
    "Segments": SEGMENTS,
    "Indexes, snapshots, checkpoints": SMALL_FILES,
    "Replicas and producers": REPLICAS,
    "Environment": ENVIRONMENT,
}
