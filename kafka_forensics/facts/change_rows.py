"""What shows between snapshots as plain rows, for every output."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.facts.rows import json_text, record_batches
from kafka_forensics.model.changes import Change, ReplicaAt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from kafka_forensics.model.findings import Finding

_AT: Final = tuple(field.name for field in fields(ReplicaAt))
_OWN: Final = (
    *("topic", "partition", "broker", "from_snapshot", "to_snapshot", "kind", "reason", "offset_start", "offset_end"),
    *("leader_epochs", "replaced_by", "batches", "records", "bytes", "committed_end", "held_by"),
)
CHANGE_COLUMNS: Final = (*_OWN, *(f"from_{name}" for name in _AT), *(f"to_{name}" for name in _AT), "evidence")
"""Columns of the fact `changes`, in their order."""


def change_values(change: Change) -> dict[str, Any]:
    """The values of a row by column, as JSON knows them."""
    values: dict[str, Any] = {name: getattr(change, name) for name in _OWN}
    values |= {"kind": change.kind.value, "leader_epochs": list(change.leader_epochs), "held_by": list(change.held_by)}
    values |= {} if change.has_offsets else {"offset_start": None, "offset_end": None}
    for prefix, at in (("from", change.before), ("to", change.after)):
        values |= {f"{prefix}_{name}": None if at is None else getattr(at, name) for name in _AT}
    return values | {"evidence": change.evidence}


def change_batches(changes: "Iterable[Change]") -> "Iterator[pa.RecordBatch]":
    """The rows as record batches of the fact `changes`."""
    from kafka_forensics.model.schemas.changes import CHANGES_FACT

    return record_batches(CHANGES_FACT.schema, map(_row, changes))


def _row(change: Change) -> tuple[Any, ...]:
    values = change_values(change)
    values |= {
        "broker": str(change.broker),
        "held_by": [str(each) for each in change.held_by],
        "evidence": json_text(change.evidence),
    }
    return tuple(values[name] for name in CHANGE_COLUMNS)


def between_batches(findings: "Iterable[Finding]", row: "Callable[[Finding], tuple[Any, ...]]") -> "Iterator[pa.RecordBatch]":
    """Findings between snapshots as record batches of `findings`, each under the newer snapshot; `row` is what makes one's row."""
    import pyarrow as pa

    from kafka_forensics.model.schemas import FACTS
    from kafka_forensics.model.schemas.changes import SNAPSHOT

    schema = FACTS["findings"].schema
    rows = ((str(finding.evidence["to_snapshot"]), *row(finding)) for finding in findings)
    yield from record_batches(pa.schema([SNAPSHOT, *schema]), rows)
