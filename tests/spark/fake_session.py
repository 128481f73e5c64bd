"""As much of a Spark session as the scan's job asks for, on one table in memory: what tasks get and give, without Java."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

TYPES: dict[str, Any] = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass
class FakeSession:
    """`settings` are what `conf` tells; `frames` counts what was made, kept and let go of."""

    settings: dict[str, str] = field(default_factory=lambda: {"spark.master": "local[2]"})
    made: int = 0
    kept: int = 0

    @property
    def conf(self) -> "FakeSession":
        return self

    def get(self, name: str, default: str) -> str:
        return self.settings.get(name, default)

    def createDataFrame(self, table: pa.Table) -> "FakeFrame":  # noqa: N802 - Spark's name
        self.made += 1
        return FakeFrame(self, table)


@dataclass
class FakeFrame:
    """A DataFrame that is a table, cut in `parts` by the values of one column."""

    session: FakeSession
    table: pa.Table
    parts: int = 1
    by: str | None = None

    def __getitem__(self, name: str) -> "FakeColumn":
        return FakeColumn(name)

    def coalesce(self, parts: int) -> "FakeFrame":
        return FakeFrame(self.session, self.table, parts)

    def repartition(self, parts: int, by: str) -> "FakeFrame":
        return FakeFrame(self.session, self.table, parts, by)

    repartitionByRange = repartition  # noqa: N815 - Spark's name

    def sortWithinPartitions(self, *names: str) -> "FakeFrame":  # noqa: N802 - Spark's name
        ordered = self.table.sort_by([(name, "ascending") for name in names])
        return FakeFrame(self.session, ordered, self.parts, self.by)

    def unionByName(self, other: "FakeFrame") -> "FakeFrame":  # noqa: N802 - Spark's name
        return FakeFrame(self.session, pa.concat_tables([self.table, other.table.select(self.table.column_names)]))

    def filter(self, wanted: "FakeColumn") -> "FakeFrame":
        kept = [value in wanted.among for value in self.table.column(wanted.name).to_pylist()]
        return FakeFrame(self.session, self.table.filter(pa.array(kept, pa.bool_())), self.parts, self.by)

    def persist(self) -> "FakeFrame":
        self.session.kept += 1
        return self

    def unpersist(self) -> None:
        self.session.kept -= 1

    def mapInArrow(self, task: Task, schema: str) -> "FakeFrame":  # noqa: N802 - Spark's name
        """Each part in turn, the last first: no task may count on what another did."""
        fields = [one.split() for one in schema.split(", ")]
        declared = pa.schema([(name, TYPES[kind]) for name, kind in fields])
        given = [batch for part in reversed(self._cut()) for batch in task(iter(part.to_batches()))]
        return FakeFrame(self.session, pa.Table.from_batches(given, declared))

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return self.table

    def _cut(self) -> list[pa.Table]:
        if self.by is None:
            return [self.table]
        places = [int(value or 0) % self.parts for value in self.table.column(self.by).to_pylist()]
        return [self.table.filter(pa.array([place == part for place in places], pa.bool_())) for part in range(self.parts)]


@dataclass(frozen=True)
class FakeColumn:
    """A column, perhaps with the values that are wanted."""

    name: str
    among: tuple[int, ...] = ()

    def isin(self, values: list[int]) -> "FakeColumn":
        return FakeColumn(self.name, tuple(values))
