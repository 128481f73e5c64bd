"""Beginning an export: to a new directory, or as a snapshot of a dataset of many, in Parquet files, Delta or Iceberg tables.

Parquet files become part of the dataset when their directory is renamed (`snapshots`), files of a table when its library commits a
transaction that names them. Tables are committed one after the other, because no transaction covers several. Files that a killed
run has not committed are in no table; they stay until the table's own tools remove them.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.export.datasets import DatasetFile
from kafka_forensics.export.delta import delta_opener
from kafka_forensics.export.iceberg import CATALOG, iceberg_opener
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema, require_name
from kafka_forensics.export.places import ExportPlace, Storage, export_place, open_place, place_below, shared_place
from kafka_forensics.export.snapshots import open_snapshot
from kafka_forensics.export.target import INCOMPLETE, LOCK, SUCCESS, TEMPORARY, require_empty
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.private import private_files
from kafka_forensics.storage.remote import remote_place

PARQUET: Final = "parquet"
TABLE_FORMATS: Final = (PARQUET, "delta", "iceberg")
KEPT_IN: Final = {"delta": "_delta_log", "iceberg": "metadata"}
"""The directory below a table in which its library records the table's files."""


@dataclass(frozen=True, slots=True)
class AddedSnapshot:
    """The snapshot that is added, and the dataset's format; an Iceberg `catalog` of None is a file in the dataset."""

    cluster: str
    snapshot: str
    table_format: str = PARQUET
    catalog: str | None = None
    namespace: str | None = None


@dataclass(slots=True)
class OpenExport:
    """An export that has begun."""

    target: ExportPlace
    output: str
    """The target as the user would name it, for other processes."""
    label: SnapshotLabel | None = None
    """The snapshot that is added to a dataset; None for a new export."""
    commit: Callable[[Mapping[str, Sequence[DatasetFile]]], None] | None = None
    """Adds the files of each fact to tables; None where `_SUCCESS` completes the export."""
    replaced: bool = False
    """Whether the dataset had this snapshot before."""


@contextmanager
def open_export(output: str, storage: Storage, added: AddedSnapshot | None) -> Iterator[OpenExport]:
    """Begin an export; at the end, publish a snapshot in Parquet files.

    If it fails, a dataset is unchanged except for tables that were committed already. Raises UsageError if the output holds
    something else or cannot be written to, and if another run is adding to it.
    """
    if added is None:
        with private_files(local_path(output)), export_place(output, storage) as target:
            yield OpenExport(target, output)
        return
    require_name("--cluster", added.cluster)
    require_name("--snapshot", added.snapshot)
    opening = _opened_snapshot(output, added) if added.table_format == PARQUET else _opened_tables(output, storage, added)
    with private_files(local_path(output)), opening as opened:
        yield opened


@contextmanager
def _opened_snapshot(output: str, added: AddedSnapshot) -> Iterator[OpenExport]:
    root = local_path(output)
    if root is None:
        raise UsageError(
            f"no snapshot can be added to Parquet files at {remote_place(output).name}: no directory is renamed there as a whole",
            hint="add --table-format delta or --table-format iceberg",
        )
    label = SnapshotLabel(added.cluster, added.snapshot, uuid.uuid4().hex, in_rows=False)
    with open_snapshot(root, label) as snapshot:
        opened = OpenExport(snapshot.target, snapshot.target.path, label)
        yield opened
        opened.replaced = snapshot.publish()


@contextmanager
def _opened_tables(output: str, storage: Storage, added: AddedSnapshot) -> Iterator[OpenExport]:
    """Files are written to a directory of this run, and moved to their table before they are committed."""
    label = SnapshotLabel(added.cluster, added.snapshot, uuid.uuid4().hex, in_rows=True)
    schemas = {name: dataset_schema(fact, label) for name, fact in FACTS.items()}
    opener = delta_opener() if added.table_format == "delta" else iceberg_opener(added.catalog, added.namespace)
    root = shared_place(output, storage)
    _refuse_others(root, added.table_format)
    with contextlib.closing(opener(output, root.path, storage)) as tables:
        for name, schema in schemas.items():
            if tables.exists(name):
                tables.check(name, schema)
        staging = place_below(output, f"{TEMPORARY}/{label.run}")
        opened = OpenExport(open_place(staging, storage), staging, label)

        def commit(written: Mapping[str, Sequence[DatasetFile]]) -> None:
            others = [name for name in FACTS if name not in written and tables.exists(name)]
            for name in (*written, *others):
                files = written.get(name, ())
                for file in files:
                    root.adopt(f"{label.run}/{file.path}", file.path)
                root.put_names_on_disk()
                if tables.commit(name, schemas[name], label, files):
                    opened.replaced = True

        opened.commit = commit
        try:
            yield opened
        finally:
            opened.target.remove()


def _refuse_others(root: ExportPlace, table_format: str) -> None:
    """Raise UsageError if the root holds anything but tables of this format."""
    names = root.names()
    if LOCK in names:
        raise UsageError(
            f"{root.path} holds snapshots as Parquet files", hint="leave --table-format out, or choose another directory"
        )
    if {SUCCESS, INCOMPLETE}.intersection(names):
        raise UsageError(f"{root.path} holds an export that was made without --append", hint="choose another directory")
    require_empty(root.path, [name for name in names if name not in (*FACTS, TEMPORARY) and not name.startswith(CATALOG)])
    for fact in FACTS.keys() & names:
        for other, kept_in in KEPT_IN.items():
            if other != table_format and kept_in in root.names(fact):
                hint = f"give --table-format {other}, or choose another directory"
                raise UsageError(f"{root.path} holds tables of the format {other}", hint=hint)
