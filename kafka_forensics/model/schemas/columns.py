"""How a fact is declared: columns with their types and meanings, gathered in an Arrow schema that carries its version."""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

FACT_SCHEMA_VERSION: Final = "1.1"
"""Version of every declared schema; columns are only ever added under the same first number."""
VERSION_KEY: Final = "kf.schema_version"
FACT_KEY: Final = "kf.fact"
ABOUT_KEY: Final = "about"
"""Key in a column's own metadata under which its meaning stands."""
PARTITION_KEYS: Final = ("topic", "partition", "broker")
"""Columns that name the directories of an exported dataset."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: a table of the model. `by_replica` where each row comes from the files of one replica, which its keys name."""

    name: str
    about: str
    schema: pa.Schema
    by_replica: bool = True

    @property
    def own(self) -> pa.Schema:
        """The schema without the keys of the replica, where rows are read replica by replica; else all of it."""
        if not self.by_replica:
            return self.schema
        fields: list[Any] = [field for field in self.schema if field.name not in PARTITION_KEYS]
        return pa.schema(fields).with_metadata(self.schema.metadata)


def column(name: str, kind: pa.DataType, about: str, *, nullable: bool = False) -> Any:
    """A column with its meaning."""
    return pa.field(name, kind, nullable=nullable, metadata={ABOUT_KEY: about})


def maybe(name: str, kind: pa.DataType, about: str) -> Any:
    """A column that may be null: not known, or not applicable, as `about` says."""
    return column(name, kind, about, nullable=True)


def fact(name: str, about: str, columns: list[Any], *, by_replica: bool = True) -> Fact:
    """A fact with its schema, which carries the version."""
    schema = pa.schema(columns, metadata={FACT_KEY: name, VERSION_KEY: FACT_SCHEMA_VERSION})
    return Fact(name, about, schema, by_replica)


def about(field: Any) -> str:
    """What a column means."""
    return str((field.metadata or {}).get(ABOUT_KEY.encode(), b"").decode())


TOPIC: Final = column("topic", pa.string(), "name of the topic")
PARTITION: Final = column("partition", pa.int32(), "number of the partition")
BROKER: Final = column("broker", pa.string(), "id of the broker, or the name it was given; always text")
LOG_DIR: Final = column("log_dir", pa.string(), "the log directory, as it was named on the command line")
FILE: Final = column("file", pa.string(), "the partition's directory and the name of the file, with `/`; as in `findings`")
REPLICA: Final = [TOPIC, PARTITION, BROKER, LOG_DIR]
IN_FILE: Final = [*REPLICA, FILE]
"""The first columns of everything read from one file of a replica."""
