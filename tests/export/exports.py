"""Writes exports and reads them back with the declared schema."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.model.schemas import FACTS

RUN = re.compile("-[0-9a-f]{32}")
"""The part of a file's name that is unique to a run."""


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


def snapshot_of(target: Path) -> Path:
    """The directory of the only snapshot of an export."""
    (folder,) = target.glob("cluster=*/snapshot=*")
    return folder


def read_back(target: Path, fact: str) -> pa.Table:
    """The rows of a fact, in the order of its declared columns."""
    return ds.dataset(snapshot_of(target) / fact).to_table().select(FACTS[fact].schema.names)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of each file by its name without the run's id; the manifest names the files."""
    return {
        RUN.sub("", path.relative_to(folder).as_posix()): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


def rows(table: pa.Table) -> list[Any]:
    return sorted(map(repr, table.to_pylist()))


def manifest(target: Path) -> dict[str, Any]:
    """The manifest of the only snapshot of an export."""
    loaded: dict[str, Any] = json.loads((snapshot_of(target) / "manifest.json").read_text())
    return loaded


def parquet_files(target: Path) -> dict[str, pq.ParquetFile]:
    """The files of the only snapshot of an export, by their paths in it."""
    folder = snapshot_of(target)
    return {path.relative_to(folder).as_posix(): pq.ParquetFile(path) for path in sorted(folder.rglob("*.parquet"))}
