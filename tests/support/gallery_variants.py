"""All variants of the gallery's faults, which stand in no table of docs/faults.md."""

from typing import Final

from tests.support import variants_bytes, variants_controller, variants_files, variants_replicas, variants_transactions
from tests.support.gallery_case import Case

VARIANTS: Final[tuple[Case, ...]] = (
    *variants_bytes.BATCHES,
    *variants_bytes.BASE_OFFSETS,
    *variants_bytes.RECORDS,
    *variants_bytes.TWICE,
    *variants_files.SEGMENTS,
    *variants_files.SMALL_FILES,
    *variants_files.LEFTOVERS,
    *variants_replicas.REPLICAS,
    *variants_replicas.FORKS,
    *variants_replicas.COMPACTED,
    *variants_controller.CONTROLLED,
    *variants_controller.COMMITTED,
    *variants_transactions.OPEN,
    *variants_transactions.TORN,
    *variants_transactions.GOES_ON,
    *variants_transactions.GONE,
    *variants_transactions.COORDINATORS,
    *variants_transactions.SEQUENCES,
)
