"""The classes whose values may go to another process (`travel`): those of these modules, which hold facts and no behaviour that
reading one could set off."""

from types import ModuleType
from typing import Final

from kafka_forensics.analysis import (
    compaction,
    context,
    continuity,
    digests,
    epoch_bumps,
    epochs,
    framing,
    indexes,
    key_placement,
    misplaced,
    producer_runs,
    producer_table,
    producers,
    recovery_walk,
    replica,
    sample,
    transaction_endings,
    transaction_markers,
    transactions,
    transactions_facts,
    witnesses,
)
from kafka_forensics.engine import (
    change_slices,
    errand_values,
    inputs,
    key_parts,
    key_question,
    options,
    partitions,
    scanning,
    slices,
)
from kafka_forensics.engine import changes as partition_changes
from kafka_forensics.evidence import ledger
from kafka_forensics.model import batches, changes, controller, files, findings, group_log, results, transaction_log
from kafka_forensics.parsers import file_names, log_dir
from kafka_forensics.storage import source

_MODULES: Final[tuple[ModuleType, ...]] = (
    *(compaction, key_parts, key_question, ledger),
    *(context, continuity, digests, epoch_bumps, epochs, framing, indexes, key_placement, misplaced, producer_runs, producer_table),
    *(producers, recovery_walk, replica, sample, transaction_endings, transaction_markers, transactions, transactions_facts),
    *(witnesses, change_slices, partition_changes, changes, errand_values, inputs, options, partitions, scanning, slices),
    *(batches, controller, files, findings, group_log, results, transaction_log, file_names, log_dir, source),
)


def _classes_of(module: ModuleType) -> dict[str, type]:
    found = {one.__qualname__: one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__}
    return {name: one for name, one in found.items() if not getattr(one, "_is_protocol", False)}


TRAVELLERS: Final[dict[str, type]] = {name: one for module in _MODULES for name, one in _classes_of(module).items()}
"""Class by its name, which no two of them share."""
