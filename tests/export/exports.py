"""Writes exports and reads them back with the declared schema."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.model.schemas import FACTS, PARTITION_KEYS

_KEYS: list[Any] = [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("broker", pa.string())]
KEYS = pa.schema(_KEYS)
HIVE = ds.partitioning(KEYS, flavor="hive")


def export(target: Path, *arguments: object) -> int:
    return outcome(["export", *map(str, arguments), "--output", str(target), "-q", "--format", "tsv"])


def record_fsyncs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """A set to which the paths of all files and directories passed to fsync are added."""
    fsync = os.fsync
    synced: set[str] = set()

    def recorded_sync(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    return synced


def read_back(target: Path, fact: str) -> pa.Table:
    """The rows of a fact, in the order of its declared columns; `node_id` comes from the metadata of a replica's files."""
    schema = FACTS[fact].schema
    if not FACTS[fact].by_replica:
        return ds.dataset(target / fact).to_table().select(schema.names)
    tables = []
    for path in sorted((target / fact).rglob("*.parquet")):
        table = ds.dataset(path, partitioning=HIVE, partition_base_dir=str(target / fact)).to_table()
        if not table.num_rows:
            continue
        node_id = (pq.read_schema(path).metadata or {}).get(b"kf.node_id")
        values = pa.repeat(pa.scalar(None if node_id is None else int(node_id), pa.int32()), table.num_rows)
        tables.append(table.append_column("node_id", values).select(schema.names))
    return pa.concat_tables(tables) if tables else schema.empty_table()


def rows(table: pa.Table) -> list[Any]:
    return sorted(map(repr, table.to_pylist()))


def manifest(target: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((target / "_manifest.json").read_text())
    return loaded


def parquet_files(target: Path) -> dict[str, pq.ParquetFile]:
    return {path.relative_to(target).as_posix(): pq.ParquetFile(path) for path in sorted(target.rglob("*.parquet"))}


assert (*KEYS.names, "node_id") == PARTITION_KEYS
