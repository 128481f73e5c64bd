"""Arrow schemas of the facts: what leaves the house, in Parquet, notebooks and Spark alike, derives from these.

`FACTS` names every fact with its schema; docs/facts.md is made from it.
"""

from collections.abc import Mapping
from typing import Final

from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.model.schemas.answers import (
    FINDINGS_FACT,
    GROUP_OFFSETS_FACT,
    INCOMPLETE_FACT,
    METADATA_HISTORY_FACT,
    REPLICAS_FACT,
)
from kafka_forensics.model.schemas.batches import BATCHES, BATCHES_FACT, RECORDS, RECORDS_FACT, batch_arrays, batches_to_arrow
from kafka_forensics.model.schemas.columns import FACT_SCHEMA_VERSION, PARTITION_KEYS, VERSION_KEY, Fact
from kafka_forensics.model.schemas.files import (
    CHECKPOINTS_FACT,
    CONTROL_RECORDS_FACT,
    EPOCH_ENTRIES_FACT,
    INDEX_ENTRIES_FACT,
    PRODUCER_STATES_FACT,
    SPANS_FACT,
    TRANSACTIONS_FACT,
)

__all__ = [
    "BATCHES",
    "FACTS",
    "FACT_SCHEMA_VERSION",
    "PARTITION_KEYS",
    "RECORDS",
    "VERSION_KEY",
    "Fact",
    "batch_arrays",
    "batches_to_arrow",
    "fact_named",
]

FACTS: Final[dict[str, Fact]] = {
    fact.name: fact
    for fact in (
        BATCHES_FACT,
        RECORDS_FACT,
        SPANS_FACT,
        INDEX_ENTRIES_FACT,
        EPOCH_ENTRIES_FACT,
        PRODUCER_STATES_FACT,
        CHECKPOINTS_FACT,
        CONTROL_RECORDS_FACT,
        TRANSACTIONS_FACT,
        METADATA_HISTORY_FACT,
        GROUP_OFFSETS_FACT,
        REPLICAS_FACT,
        FINDINGS_FACT,
        INCOMPLETE_FACT,
    )
}
"""Name → fact, in the order in which they are told of."""


def fact_named(name: str, more: Mapping[str, Fact] | None = None) -> Fact:
    """The fact of this name, one of FACTS or of `more`. Raises UsageError if there is none."""
    facts = FACTS | dict(more or {})
    if name not in facts:
        hint = did_you_mean(name, facts, otherwise=f"choose from {', '.join(facts)}")
        raise UsageError(f"there is no fact {name!r}", hint=hint)
    return facts[name]
