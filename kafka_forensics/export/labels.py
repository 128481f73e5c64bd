"""The rows of a snapshot in a dataset of many snapshots.

The files have all columns of a fact, including `topic`, `partition` and `broker`, so a file can hold many small replicas. Cluster
and snapshot are directory names in a dataset of Parquet files, and columns in Delta and Iceberg tables.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from kafka_forensics.errors import UsageError
from kafka_forensics.export.facts.rows import text
from kafka_forensics.model.arrow import repeated_dictionary
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACTS, PARTITION_KEYS, Fact, column, nullable_column

CLUSTER: Final = column("cluster", pa.string(), "the cluster, as it was named")
SNAPSHOT: Final = column("snapshot", pa.string(), "the snapshot of the cluster, as it was named")
LABELS: Final = [CLUSTER, SNAPSHOT]
MAX_ENCODED_BYTES: Final = 240
"""Of a name, which with a prefix is the name of a directory."""
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Readers of directory names take this for null."""


@dataclass(frozen=True, slots=True)
class SnapshotLabel:
    """The snapshot that a run adds."""

    cluster: str
    snapshot: str
    run: str
    """32 hexadecimal digits unique to this run, in the names of its files, so that readers never mix the files of two runs."""
    in_rows: bool
    """Whether cluster and snapshot are columns of the files."""

    @property
    def keys(self) -> Json:
        """The values that are the same in all rows of the snapshot."""
        return {"cluster": self.cluster, "snapshot": self.snapshot}

    def file(self, fact: str, number: int, following: int = 0) -> str:
        """The path of a file; `following` counts files with the same `number`."""
        return f"{fact}/part-{number:05}-{following:03}-{self.run}.parquet"


def percent_encode(name: str) -> str:
    """The name with ASCII characters except letters, digits, `_`, `.`, `-` and `~` percent-encoded.

    Other characters stay, because Spark decodes each byte of an encoded character to a separate character.
    """
    return "".join(quote(letter, safe="") if letter.isascii() else letter for letter in name)


def require_name(option: str, name: str) -> None:
    """Raise UsageError for the name of a cluster or a snapshot that readers would not read back unchanged."""
    if (
        not name
        or not name.isprintable()
        or name != name.strip()
        or name == NO_VALUE
        or len(percent_encode(name).encode()) > MAX_ENCODED_BYTES
    ):
        hint = f"at most {MAX_ENCODED_BYTES} bytes of printable characters, percent-encoded, with no space at either end"
        raise UsageError(f"{option} is no name: {name[:80]!r}", hint=hint)


def dataset_schema(fact: Fact, label: SnapshotLabel) -> pa.Schema:
    """The columns of a fact in a dataset of many snapshots, all nullable because a column may be newer than a row."""
    fields = [_relaxed(field.remove_metadata()) for field in [*(LABELS if label.in_rows else []), *fact.schema]]
    return pa.schema(fields).with_metadata(fact.schema.metadata)


def with_labels(
    fact: Fact, label: SnapshotLabel, replicas: "Iterable[tuple[Json, Iterable[pa.RecordBatch]]]"
) -> Iterator[pa.RecordBatch]:
    """Rows of replicas in the columns of `dataset_schema`, from (keys, batches with the columns `Fact.file_schema`) of each
    replica.

    Text that is the same in all rows becomes a dictionary, and dictionaries stay dictionaries.
    """
    schema = dataset_schema(fact, label)
    for keys, batches in replicas:
        constants = {**label.keys, **(keys if fact.by_replica else {})}
        for batch in batches:
            yield _with_constants(schema, constants, batch)


def _with_constants(schema: pa.Schema, constants: Json, batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = []
    for name, arrow_type in zip(schema.names, schema.types, strict=True):
        if name not in constants:
            array = batch.column(name)
            arrays.append(array if pa.types.is_dictionary(array.type) or array.type == arrow_type else array.cast(arrow_type))
        elif arrow_type == pa.string():
            arrays.append(repeated_dictionary(text(constants[name]), batch.num_rows))
        else:
            number: Any = pa.scalar(constants[name], arrow_type)
            arrays.append(pa.repeat(number, batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _relaxed(field: Any) -> Any:
    arrow_type = field.type
    if pa.types.is_list(arrow_type):
        arrow_type = pa.list_(_relaxed(arrow_type.value_field).with_name("element"))
    elif pa.types.is_struct(arrow_type):
        arrow_type = pa.struct([_relaxed(member) for member in arrow_type])
    return nullable_column(field.name, arrow_type, "").remove_metadata()


assert not {label.name for label in LABELS} & {name for fact in FACTS.values() for name in (*fact.schema.names, *PARTITION_KEYS)}
