"""The cases of the fault gallery, by the heading of `docs/faults.md` below which each stands; and variants, which have none."""

from typing import Final

from tests.support import gallery_bytes, gallery_controller, gallery_files, gallery_groups, gallery_replicas, gallery_transactions
from tests.support.gallery_bytes import BATCHES, COMPRESSION
from tests.support.gallery_case import Case
from tests.support.gallery_compaction import COMPACTED
from tests.support.gallery_controller import CONTROLLED
from tests.support.gallery_files import SEGMENTS, SMALL_FILES
from tests.support.gallery_groups import COMMITTED
from tests.support.gallery_leftovers import OUTSIDE, STARTS
from tests.support.gallery_replicas import ENVIRONMENT, REPLICAS
from tests.support.gallery_transactions import TRANSACTIONS


def _by_number(*cases: Case) -> tuple[Case, ...]:
    """Cases by the number of their fault; those of one fault stay in their order."""
    return tuple(sorted(cases, key=lambda case: case.fault))


SECTIONS: Final[dict[str, tuple[Case, ...]]] = {
    "Bytes of a batch": BATCHES,
    "Segments": SEGMENTS,
    "Compression": COMPRESSION,
    "Indexes, snapshots, checkpoints": SMALL_FILES,
    "Replicas and producers": _by_number(*CONTROLLED, *REPLICAS),
    "Compacted topics": COMPACTED,
    "Transactions": TRANSACTIONS,
    "Internal topics": (*gallery_controller.MALFORMED, *gallery_transactions.MALFORMED, *gallery_groups.MALFORMED),
    "Committed offsets": COMMITTED,
    "Environment": (*ENVIRONMENT, *OUTSIDE),
    "Starts foretold, and leftovers": STARTS,
}
VARIANTS: Final[tuple[Case, ...]] = (
    *gallery_bytes.VARIANTS,
    *gallery_files.VARIANTS,
    *gallery_replicas.VARIANTS,
    *gallery_controller.VARIANTS,
    *gallery_transactions.VARIANTS,
)
