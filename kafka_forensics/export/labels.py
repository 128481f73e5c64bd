"""The rows of a snapshot in a dataset of many, and which snapshot they belong to.

All columns of a fact are in the files, `topic`, `partition` and `broker` too, so that a file holds many small replicas. Cluster and
snapshot are names of directories where the dataset is Parquet files, and columns where Delta or Iceberg tables hold it.
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
"""Of a name: with what stands before it, it is the name of one directory."""
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Readers of such directories read null for it."""


@dataclass(frozen=True, slots=True)
class Label:
    """The snapshot that a run adds."""

    cluster: str
    snapshot: str
    run: str
    """32 hexadecimal digits of this run alone, in the names of its files: no reader takes files of two runs for those of one."""
    in_rows: bool
    """Whether cluster and snapshot are columns of the files."""

    @property
    def keys(self) -> Json:
        """What is the same in all rows of the snapshot."""
        return {"cluster": self.cluster, "snapshot": self.snapshot}

    def file(self, fact: str, number: int, following: int = 0) -> str:
        """The path of a file; `following` counts those that share a `number`."""
        return f"{fact}/part-{number:05}-{following:03}-{self.run}.parquet"


def encoded(name: str) -> str:
    """A name in the name of a directory: ASCII but letters, digits, `_`, `.`, `-` and `~` percent-encoded.

    Other letters stand as they are, because Spark decodes each byte of an encoded one to a letter of its own.
    """
    return "".join(quote(letter, safe="") if letter.isascii() else letter for letter in name)


def require_name(option: str, name: str) -> None:
    """Raise UsageError for the name of a cluster or a snapshot that a reader would not read back as it was given."""
    if (
        not name
        or not name.isprintable()
        or name != name.strip()
        or name == NO_VALUE
        or len(encoded(name).encode()) > MAX_ENCODED_BYTES
    ):
        hint = f"at most {MAX_ENCODED_BYTES} bytes of printable characters, percent-encoded, with no space at either end"
        raise UsageError(f"{option} is no name: {name[:80]!r}", hint=hint)


def labelled_schema(fact: Fact, label: Label) -> pa.Schema:
    """The columns of a fact in such a dataset: all nullable, since a column may be newer than a row.

    Numbers without a sign are int64, because neither Delta nor Iceberg has any.
    """
    fields = [_relaxed(field.remove_metadata()) for field in [*(LABELS if label.in_rows else []), *fact.schema]]
    return pa.schema(fields).with_metadata(fact.schema.metadata)


def labelled(fact: Fact, label: Label, replicas: "Iterable[tuple[Json, Iterable[pa.RecordBatch]]]") -> Iterator[pa.RecordBatch]:
    """Rows of replicas, each as `Fact.own` says with the keys that it leaves out, as `labelled_schema` says.

    What is the same in all rows is a dictionary of one word, and what comes as a dictionary stays one.
    """
    schema = labelled_schema(fact, label)
    for keys, batches in replicas:
        for batch in batches:
            yield _labelled(schema, {**label.keys, **(keys if fact.by_replica else {})}, batch)


def _labelled(schema: pa.Schema, words: Json, batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name not in words:
            array = batch.column(name)
            arrays.append(array if pa.types.is_dictionary(array.type) or array.type == kind else array.cast(kind))
        elif kind == pa.string():
            arrays.append(repeated_dictionary(text(words[name]), batch.num_rows))
        else:
            number: Any = pa.scalar(words[name], kind)
            arrays.append(pa.repeat(number, batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _relaxed(field: Any) -> Any:
    kind = field.type
    if pa.types.is_unsigned_integer(kind):
        kind = pa.int64()
    elif pa.types.is_list(kind):
        kind = pa.list_(_relaxed(kind.value_field).with_name("element"))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_relaxed(part) for part in kind])
    return nullable_column(field.name, kind, "").remove_metadata()


assert not {label.name for label in LABELS} & {name for fact in FACTS.values() for name in (*fact.schema.names, *PARTITION_KEYS)}
