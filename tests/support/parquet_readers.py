"""How other readers read an export back, as the declared types of a fact."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

from kafka_forensics.model.schemas import FACTS
from tests.support.exports import HIVE

_HIVE_SCHEMA: Final = {"topic": pl.String, "partition": pl.Int32, "broker": pl.String}


def with_duckdb(target: Path, fact: str) -> pa.Table:
    types = "{'topic': VARCHAR, 'partition': INTEGER, 'broker': VARCHAR}"
    hive = f", hive_types = {types}" if FACTS[fact].by_replica else ""
    relation = duckdb.connect().sql(f"FROM read_parquet(?{hive})", params=[f"{target}/{fact}/**/*.parquet"])
    assert relation is not None
    return relation.to_arrow_table().select(FACTS[fact].schema.names).cast(plain(fact))


def with_polars(target: Path, fact: str) -> pa.Table:
    hive: Any = _HIVE_SCHEMA if FACTS[fact].by_replica else None
    frame = pl.scan_parquet(f"{target}/{fact}/", hive_schema=hive).select(FACTS[fact].schema.names).collect()
    table: pa.Table = frame.to_arrow().cast(plain(fact))
    return table


def with_pandas(target: Path, fact: str) -> pa.Table:
    hive = {"partitioning": HIVE} if FACTS[fact].by_replica else {}
    frame = pd.read_parquet(target / fact, dtype_backend="pyarrow", **hive)[FACTS[fact].schema.names]
    return pa.Table.from_pandas(frame, plain(fact))


READERS: Final[dict[str, Callable[[Path, str], pa.Table]]] = {"duckdb": with_duckdb, "polars": with_polars, "pandas": with_pandas}


def plain(fact: str) -> pa.Schema:
    """The declared types as other readers' Arrow has them: everything nullable, large strings cast back."""
    return pa.schema([pa.field(field.name, _relaxed(field.type)) for field in FACTS[fact].schema])


def _relaxed(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.ListType):
        return pa.list_(_relaxed(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(part.name, _relaxed(part.type)) for part in kind])
    return kind
