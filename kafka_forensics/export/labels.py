"""The snapshot that an export writes: its names, directories and files, and the columns of its rows.

The files have all columns of a fact, including `topic`, `partition` and `broker`, so a file holds many replicas. Cluster and
snapshot are directory names in a dataset of Parquet files, and columns in Delta and Iceberg tables. With `by_topic`, the topic of
facts about replicas is a directory name, too, and no column of the files.
"""

from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from msgspec import Struct

from kafka_forensics.errors import UsageError
from kafka_forensics.export.facts.rows import text
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACTS, PARTITION_KEYS, Fact, ReplicaKeys, column

CLUSTER: Final = column("cluster", pa.string(), "the given name of the cluster")
SNAPSHOT: Final = column("snapshot", pa.string(), "the snapshot of the given name of the cluster")
LABELS: Final = [CLUSTER, SNAPSHOT]
MAX_ENCODED_BYTES: Final = 240
"""Of a name, which with a prefix is the name of a directory."""
CLUSTER_DIRECTORY: Final = "cluster="
SNAPSHOT_DIRECTORY: Final = "snapshot="
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Readers of directory names take this for null."""


class SnapshotLabel(Struct, frozen=True):
    """The snapshot that a run writes."""

    cluster: str
    snapshot: str
    run: str
    """32 hexadecimal digits unique to this run, in the names of its files, because readers must not mix the files of two runs."""
    in_rows: bool
    """Whether cluster and snapshot are columns of the files."""
    by_topic: bool = False
    """Whether facts about replicas have a directory for each topic."""

    @property
    def keys(self) -> Json:
        """The values that are the same in all rows of the snapshot."""
        return {"cluster": self.cluster, "snapshot": self.snapshot}

    @property
    def directory(self) -> str:
        """The directory of the snapshot in a dataset of Parquet files."""
        return f"{CLUSTER_DIRECTORY}{percent_encode(self.cluster)}/{SNAPSHOT_DIRECTORY}{percent_encode(self.snapshot)}"

    def splits(self, fact: Fact) -> bool:
        """Whether the fact has a directory for each topic."""
        return self.by_topic and fact.by_replica

    def topic_of(self, fact: Fact, keys: ReplicaKeys | None) -> str | None:
        """The topic whose directory the rows of a replica are in; None if the fact has no directories of topics."""
        return keys.topic if keys is not None and self.splits(fact) else None

    def file(self, fact: str, number: int, following: int = 0, topic: str | None = None) -> str:
        """The path of a file in the snapshot; `following` counts files with the same `number`, `topic` is that of its directory."""
        folder = fact if topic is None else f"{fact}/topic={encoded_value(topic)}"
        return f"{folder}/part-{number:05}-{following:03}-{self.run}.parquet"


def percent_encode(name: str) -> str:
    """The name with ASCII characters except letters, digits, `_`, `.`, `-` and `~` percent-encoded.

    Other characters stay, because Spark decodes each byte of an encoded character to a separate character.
    """
    return "".join(quote(letter, safe="") if letter.isascii() else letter for letter in name)


def encoded_value(topic: str) -> str:
    """The name of a topic in the name of a directory; Kafka's names need no more than that none of them reads as null."""
    return percent_encode(text(topic)).replace(NO_VALUE, NO_VALUE.replace("_", "%5F", 1))


def is_name(name: str) -> bool:
    """Whether readers of directory names would read the name of a cluster or a snapshot back unchanged."""
    is_clean = name.isprintable() and name == name.strip() and name not in ("", NO_VALUE)
    return is_clean and len(percent_encode(name).encode()) <= MAX_ENCODED_BYTES


def require_name(option: str, name: str) -> None:
    """Raise UsageError unless `is_name`."""
    if not is_name(name):
        hint = f"at most {MAX_ENCODED_BYTES} bytes of printable characters, percent-encoded, with no space at either end"
        raise UsageError(f"invalid name for {option}: {name[:80]!r}", hint=hint)


def dataset_schema(fact: Fact, label: SnapshotLabel) -> pa.Schema:
    """The columns of a fact in the files of a dataset, all nullable because a column may be newer than a row.

    They have no descriptions, which would outweigh the rows of small files.
    """
    declared = [field for field in fact.schema if not (label.splits(fact) and field.name == "topic")]
    fields = [_nullable(field) for field in [*(LABELS if label.in_rows else []), *declared]]
    return pa.schema(fields).with_metadata(fact.schema.metadata)


def _nullable(field: Any) -> Any:
    arrow_type = field.type
    if pa.types.is_list(arrow_type):
        arrow_type = pa.list_(_nullable(arrow_type.value_field).with_name("element"))
    elif pa.types.is_struct(arrow_type):
        arrow_type = pa.struct([_nullable(member) for member in arrow_type])
    return pa.field(field.name, arrow_type)


assert not {label.name for label in LABELS} & {name for fact in FACTS.values() for name in (*fact.schema.names, *PARTITION_KEYS)}
