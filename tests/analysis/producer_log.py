"""Logs as columns for the producer and transaction folds, cut anywhere."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from kafka_forensics.analysis.transactions import TransactionsFold
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BatchColumn
from tests.support.segments import add_batches, columns_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONTROL = 0x20
TRANSACTIONAL = 0x10
ABORT, COMMIT = 0, 1
_SHOWN = (
    BatchColumn.POSITION,
    BatchColumn.BASE_OFFSET,
    BatchColumn.LAST_OFFSET,
    BatchColumn.CRC,
    BatchColumn.ATTRIBUTES,
    BatchColumn.PRODUCER_ID,
    BatchColumn.PRODUCER_EPOCH,
    BatchColumn.BASE_SEQUENCE,
    BatchColumn.CONTROL_RECORD_TYPE,
    BatchColumn.MAX_TIMESTAMP,
)


class Fold(Protocol):
    def damage(self) -> None: ...

    def merge(self, right: Self) -> None: ...


AnyFold = TypeVar("AnyFold", bound=Fold)


@dataclass(slots=True, repr=False)
class Row:
    """A batch of a log, or (`lost`) damaged bytes instead of it: its columns, and the base offset of its segment."""

    values: dict[BatchColumn, int] = field(default_factory=dict)
    segment: int = 0
    lost: bool = False

    def __repr__(self) -> str:
        shown = [self.values.get(column, 0) for column in _SHOWN]
        return f"<lost {self.segment}>" if self.lost else f"<{self.segment} {shown}>"


@dataclass(slots=True, repr=False)
class Log:
    """A log under construction; offsets, positions and timestamps continue those of the batch before by default."""

    rows: list[Row] = field(default_factory=list)
    offset: int = 0
    position: int = 0
    segment: int = 0
    timestamp: int = 1_700_000_000_000

    def __repr__(self) -> str:
        return f"<log {self.rows}>"

    def add(self, count: int = 1, **fields: int) -> Self:
        """A batch of `count` records; `fields` are column names in lower case."""
        base = fields.get("base_offset", self.offset)
        self.timestamp = max(-(2**62), min(fields.get("max_timestamp", self.timestamp + 1000), 2**62))
        values = {
            BatchColumn.POSITION: self.position,
            BatchColumn.SIZE_IN_BYTES: 100,
            BatchColumn.BASE_OFFSET: base,
            BatchColumn.LAST_OFFSET: base + count - 1,
            BatchColumn.LAST_OFFSET_DELTA: count - 1,
            BatchColumn.MAGIC: 2,
            BatchColumn.BASE_TIMESTAMP: self.timestamp - 300,
            BatchColumn.MAX_TIMESTAMP: self.timestamp,
            BatchColumn.PRODUCER_ID: -1,
            BatchColumn.PRODUCER_EPOCH: -1,
            BatchColumn.BASE_SEQUENCE: -1,
            BatchColumn.RECORDS_COUNT: count,
            BatchColumn.CONTROL_RECORD_TYPE: -1,
            BatchColumn.COORDINATOR_EPOCH: -1,
        }
        values |= {BatchColumn[name.upper()]: value for name, value in fields.items()}
        self.rows.append(Row(values, self.segment))
        self.offset = max(0, min(values[BatchColumn.LAST_OFFSET] + 1, 2**62))
        self.position += values[BatchColumn.SIZE_IN_BYTES]
        return self

    def data(self, producer: int, epoch: int, sequence: int, count: int = 1, **fields: int) -> Self:
        return self.add(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)

    def transactional(self, producer: int, epoch: int, sequence: int = 0, count: int = 1, **fields: int) -> Self:
        return self.data(producer, epoch, sequence, count, attributes=TRANSACTIONAL, **fields)

    def marker(self, producer: int, epoch: int, control_type: int, **fields: int) -> Self:
        return self.add(
            1,
            producer_id=producer,
            producer_epoch=epoch,
            attributes=TRANSACTIONAL | CONTROL,
            control_record_type=control_type,
            **fields,
        )

    def corrupt(self, count: int = 1) -> Self:
        """A batch with a wrong CRC, whose fields must not count."""
        return self.data(99, 99, 99, count, crc=1, attributes=TRANSACTIONAL)

    def lost(self) -> Self:
        self.rows.append(Row(segment=self.segment, lost=True))
        self.position += 50
        return self

    def roll(self) -> Self:
        self.segment, self.position = max(self.offset, self.segment + 1), 0
        return self

    def fold(self, kind: type[AnyFold], cuts: Iterable[int] = (), *, from_right: bool = False, chunk: int = 3) -> AnyFold:
        """The fold of the whole log: parts cut before the rows `cuts`, merged from one end, in steps of `chunk` batches."""
        edges = sorted({0, len(self.rows), *(cut for cut in cuts if cut < len(self.rows))})
        parts = [fold_rows(kind, self.rows[start:end], chunk) for start, end in itertools.pairwise(edges)]
        if from_right:
            while len(parts) > 1:
                right = parts.pop()
                parts[-1].merge(right)
        whole = parts[0] if parts else fold_rows(kind, [], chunk)
        for part in parts[1:]:
            whole.merge(part)
        return whole


def columns_of_rows(rows: list[Row]) -> "NDArray[np.int64]":
    return columns_of([row.values for row in rows])


def step(fold: Fold, columns: "NDArray[np.int64]") -> None:
    """Add batches to a fold of producers or of transactions."""
    if isinstance(fold, TransactionsFold):
        fold.step(columns)
    else:
        add_batches(fold, columns)


def fold_rows(kind: type[AnyFold], rows: list[Row], chunk: int) -> AnyFold:
    """The fold of these rows: the merged folds of their segments, in steps of `chunk` batches."""
    whole: AnyFold | None = None
    for segment in sorted({row.segment for row in rows}) or [0]:
        fold = kind(segment)  # type: ignore[call-arg]
        waiting: list[Row] = []
        for row in [row for row in rows if row.segment == segment]:
            if row.lost or len(waiting) == chunk:
                step(fold, columns_of_rows(waiting))
                waiting = []
            if row.lost:
                fold.damage()
            else:
                waiting.append(row)
        step(fold, columns_of_rows(waiting))
        if whole is None:
            whole = fold
        else:
            whole.merge(fold)
    assert whole is not None
    return whole


def context(topic: str = "t", **options: object) -> ReplicaContext:
    return ReplicaContext(topic, 0, 1, "broker-1", f"{topic}-0", **options)  # type: ignore[arg-type]
