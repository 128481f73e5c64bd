"""The cases of the fault gallery by their heading in `docs/faults.md`, and variants, which have no heading."""

from collections.abc import Iterable
from typing import Final

from _pytest.mark import ParameterSet

from tests.gallery import of_bytes, of_controller, of_files, of_groups, of_replicas, of_transactions
from tests.gallery.case import Case
from tests.gallery.of_bytes import BATCHES, COMPRESSION
from tests.gallery.of_compaction import COMPACTED
from tests.gallery.of_controller import CONTROLLED
from tests.gallery.of_controllers_files import CONTROLLERS_FILES
from tests.gallery.of_files import SEGMENTS, SMALL_FILES
from tests.gallery.of_groups import COMMITTED
from tests.gallery.of_leftovers import OUTSIDE, STARTS
from tests.gallery.of_replicas import ENVIRONMENT, REPLICAS
from tests.gallery.of_tiered import TIERED_TOPICS, VARIANTS as OF_TIERED
from tests.gallery.of_transactions import TRANSACTIONS
from tests.support.nightly import first_of_each_kind


def _by_number(*cases: Case) -> tuple[Case, ...]:
    """Cases sorted by the number of their fault; those of one fault stay in order."""
    return tuple(sorted(cases, key=lambda case: case.fault))


SECTIONS: Final[dict[str, tuple[Case, ...]]] = {
    "Bytes of a batch": BATCHES,
    "Segments": SEGMENTS,
    "Compression": COMPRESSION,
    "Indexes, snapshots, checkpoints": SMALL_FILES,
    "Replicas and producers": _by_number(*CONTROLLED, *REPLICAS),
    "Compacted topics": COMPACTED,
    "Transactions": TRANSACTIONS,
    "The controllers' log, its snapshots and small files": CONTROLLERS_FILES,
    "Internal topics": (*of_controller.MALFORMED, *of_transactions.MALFORMED, *of_groups.MALFORMED),
    "Committed offsets": COMMITTED,
    "Tiered topics": TIERED_TOPICS,
    "Environment": (*ENVIRONMENT, *OUTSIDE),
    "Forecasts of starts, and leftovers": STARTS,
}
VARIANTS: Final[tuple[Case, ...]] = (
    *of_bytes.VARIANTS,
    *of_files.VARIANTS,
    *of_replicas.VARIANTS,
    *of_controller.VARIANTS,
    *of_transactions.VARIANTS,
    *OF_TIERED,
)
FAULTS: Final = [case for cases in SECTIONS.values() for case in cases if case.during is None]
"""The cases that need no change during the scan, in order."""


def named(case: Case) -> str:
    return f"{case.fault} {case.injected}"


def one_of_each_fault(cases: Iterable[Case] = FAULTS) -> list[ParameterSet]:
    return first_of_each_kind(cases, lambda case: case.fault, named)
