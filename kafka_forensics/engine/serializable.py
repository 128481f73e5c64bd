"""The classes whose values may go to another process: those of these modules, which hold facts and no behaviour that reading one
could set off."""

from types import ModuleType
from typing import Final

from kafka_forensics.analysis import bounds, compaction, epochs, placement, replica
from kafka_forensics.analysis.producers import producers
from kafka_forensics.analysis.producers import rules as producer_rules
from kafka_forensics.analysis.producers import runs as producer_runs
from kafka_forensics.analysis.segments import continuity, framing, indexes, misplaced
from kafka_forensics.analysis.transactions import endings as transaction_endings
from kafka_forensics.analysis.transactions import markers as transaction_markers
from kafka_forensics.analysis.transactions import transactions
from kafka_forensics.analysis.transactions_across import facts as transactions_facts
from kafka_forensics.engine import task_values
from kafka_forensics.evidence import context, inputs, ledger, options
from kafka_forensics.folding.keys import question as key_question
from kafka_forensics.judging import partitions, scanning
from kafka_forensics.model import batches, changes, controller, coordinators, files, findings, results
from kafka_forensics.parsers import log_dir as discovery
from kafka_forensics.storage.source import Entry, EntryKind
from kafka_forensics.witnesses import witnesses

_MODULES: Final[tuple[ModuleType, ...]] = (
    *(compaction, key_question, ledger),
    *(context, continuity, epochs, framing, indexes, misplaced, placement, producer_rules, producer_runs, producers, replica),
    *(bounds, transaction_endings, transaction_markers, transactions, transactions_facts, witnesses),
    *(changes, task_values, inputs, options, partitions, scanning),
    *(batches, controller, coordinators, discovery, files, findings, results),
)


def _classes_of(module: ModuleType) -> dict[str, type]:
    types = {var.__qualname__: var for var in vars(module).values() if isinstance(var, type) and var.__module__ == module.__name__}
    return {name: of for name, of in types.items() if not getattr(of, "_is_protocol", False)}


SERIALIZABLE: Final[dict[str, type]] = {"Entry": Entry, "EntryKind": EntryKind}
"""Class by its name, which no two of them share."""


def make_serializable(*modules: ModuleType) -> None:
    """Let the values of all classes of these modules go to another process."""
    for module in modules:
        classes = _classes_of(module)
        assert not classes.keys() & SERIALIZABLE.keys(), classes.keys() & SERIALIZABLE.keys()
        SERIALIZABLE.update(classes)


make_serializable(*_MODULES)
