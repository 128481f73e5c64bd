"""The methods of a Spark session that the job of a scan calls, on a table in memory, without Java."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

TYPES: dict[str, Any] = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(eq=False)
class FakeSession:
    """A session with the settings of `conf`; `made` and `kept` count DataFrames that were created and are persisted;
    `jobs` are the names of jobs."""

    settings: dict[str, str] = field(default_factory=lambda: {"spark.master": "local[2]"})
    made: int = 0
    kept: int = 0
    jobs: list[str] = field(default_factory=list)
    properties: dict[str, str | None] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    cancelled: Event = field(default_factory=Event)
    stages: list[tuple[int, int]] = field(default_factory=list)
    """(tasks that run, tasks that are done) of each stage."""

    @property
    def conf(self) -> "FakeSession":
        return self

    def get(self, name: str, default: str) -> str:
        return self.settings.get(name, default)

    @property
    def sparkContext(self) -> "FakeSession":  # noqa: N802 - Spark's name
        return self

    def statusTracker(self) -> "FakeSession":  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self) -> range:  # noqa: N802 - Spark's name
        return range(len(self.stages))

    def getStageInfo(self, number: int) -> SimpleNamespace:  # noqa: N802 - Spark's name
        return SimpleNamespace(**dict(zip(("numActiveTasks", "numCompletedTasks"), self.stages[number], strict=True)))

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value

    def setJobDescription(self, name: str) -> None:  # noqa: N802 - Spark's name
        self.properties["spark.job.description"] = name
        self.jobs.append(name)

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.discard(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        assert tag in self.tags
        self.cancelled.set()

    def sql(self, query: str) -> "FakeFrame":
        """The plan of a query on two cores."""
        assert query.startswith("EXPLAIN ")
        return FakeFrame(self, pa.table({"plan": ["Range (0, 1, step=1, splits=2)"]}))

    def createDataFrame(self, table: pa.Table) -> "FakeFrame":  # noqa: N802 - Spark's name
        self.made += 1
        return FakeFrame(self, table)


@dataclass
class FakeFrame:
    """A DataFrame as a table, divided into `parts` by the values of the column `by`."""

    sparkSession: FakeSession  # noqa: N815 - Spark's name
    table: pa.Table
    parts: int = 1
    by: str | None = None

    def __getitem__(self, name: str) -> "FakeColumn":
        return FakeColumn(name)

    def coalesce(self, parts: int) -> "FakeFrame":
        return FakeFrame(self.sparkSession, self.table, parts)

    def repartition(self, parts: int, by: str) -> "FakeFrame":
        return FakeFrame(self.sparkSession, self.table, parts, by)

    repartitionByRange = repartition  # noqa: N815 - Spark's name

    def sortWithinPartitions(self, *names: str) -> "FakeFrame":  # noqa: N802 - Spark's name
        ordered = self.table.sort_by([(name, "ascending") for name in names])
        return FakeFrame(self.sparkSession, ordered, self.parts, self.by)

    def unionByName(self, other: "FakeFrame") -> "FakeFrame":  # noqa: N802 - Spark's name
        return FakeFrame(self.sparkSession, pa.concat_tables([self.table, other.table.select(self.table.column_names)]))

    def filter(self, condition: "FakeColumn") -> "FakeFrame":
        kept = [value in condition.values for value in self.table.column(condition.name).to_pylist()]
        return FakeFrame(self.sparkSession, self.table.filter(pa.array(kept, pa.bool_())), self.parts, self.by)

    def persist(self) -> "FakeFrame":
        self.sparkSession.kept += 1
        return self

    def unpersist(self) -> None:
        self.sparkSession.kept -= 1

    def mapInArrow(self, task: Task, schema: str) -> "FakeFrame":  # noqa: N802 - Spark's name
        """Run the task on each part, last part first, because tasks must not depend on each other."""
        fields = [column.split() for column in schema.split(", ")]
        declared = pa.schema([(name, TYPES[kind]) for name, kind in fields])
        batches = [batch for part in reversed(self._cut()) for batch in task(iter(part.to_batches()))]
        return FakeFrame(self.sparkSession, pa.Table.from_batches(batches, declared))

    def head(self) -> tuple[object, ...]:
        return tuple(self.table.to_pylist()[0].values())

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return self.table

    def _cut(self) -> list[pa.Table]:
        if self.by is None:
            return [self.table]
        places = [int(value or 0) % self.parts for value in self.table.column(self.by).to_pylist()]
        return [self.table.filter(pa.array([place == part for place in places], pa.bool_())) for part in range(self.parts)]


@dataclass(frozen=True)
class FakeColumn:
    """A column, and the values that a filter selects."""

    name: str
    values: tuple[int, ...] = ()

    def isin(self, values: list[int]) -> "FakeColumn":
        return FakeColumn(self.name, tuple(values))
