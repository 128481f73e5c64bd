"""Where an export goes: to a directory of its own, or as a snapshot to a dataset of many: Parquet files, Delta or Iceberg tables.

Parquet files count when their directory is renamed (`snapshots`), files of a table when its library commits a transaction that
names them. There is no transaction over several tables: they are committed one after the other. Files that a killed run has not
committed are in no table; they stay until the table's own tools remove them.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kafka_forensics.errors import UsageError
from kafka_forensics.export.datasets import Written
from kafka_forensics.export.delta import opened_delta
from kafka_forensics.export.iceberg import CATALOG, opened_iceberg
from kafka_forensics.export.labels import Label, labelled_schema, require_name
from kafka_forensics.export.places import ExportPlace, Storage, below, open_place, opened_place, root_of
from kafka_forensics.export.snapshots import opened_snapshot
from kafka_forensics.export.target import INCOMPLETE, LOCK, SUCCESS, TEMPORARY, refuse_names
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.private import private_files
from kafka_forensics.storage.remote import remote_place

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET: Final = "parquet"
TABLE_FORMATS: Final = (PARQUET, "delta", "iceberg")
KEPT_IN: Final = {"delta": "_delta_log", "iceberg": "metadata"}
"""Where below a table its library keeps which files count."""


class Tables(Protocol):
    """Tables of a library, one a fact."""

    def exists(self, fact: str) -> bool:
        """Whether there is a table of a fact."""

    def check(self, fact: str, schema: "pa.Schema") -> None:
        """Raise UsageError if such rows cannot be added to the table of a fact, which exists."""

    def commit(self, fact: str, schema: "pa.Schema", label: Label, files: Sequence[Written]) -> bool:
        """Make these files all that there is of a snapshot, in one transaction; whether others were.

        Raises UsageError if another transaction came between.
        """

    def close(self) -> None:
        """Let go of what is held open."""


@dataclass(frozen=True, slots=True)
class AddedSnapshot:
    """Which snapshot is added to a dataset of which format; what an Iceberg catalogue is called, None: a file in the dataset."""

    cluster: str
    snapshot: str
    table_format: str = PARQUET
    catalog: str | None = None
    namespace: str | None = None


@dataclass(slots=True)
class Opened:
    """An export that has begun."""

    target: ExportPlace
    output: str
    """As other processes find the target."""
    label: Label | None = None
    """The snapshot that is added to a dataset; None where the export is a new one."""
    commit: Callable[[Mapping[str, Sequence[Written]]], None] | None = None
    """What makes the files of each fact count; None where the seal of the target does."""
    replaced: bool = False
    """Whether the snapshot was there before."""


@contextmanager
def opened_export(output: str, storage: Storage, added: AddedSnapshot | None) -> Iterator[Opened]:
    """Begin an export; in the end, a snapshot that was written to Parquet files is put in its place.

    If it fails, a dataset is what it was, but for tables that were committed already. Raises UsageError if something else is there,
    the output cannot be written to, or another run is adding to it.
    """
    if added is not None:
        require_name("--cluster", added.cluster)
        require_name("--snapshot", added.snapshot)
    with private_files(local_path(output)), _opened(output, storage, added) as opened:
        yield opened


def _opened(output: str, storage: Storage, added: AddedSnapshot | None) -> AbstractContextManager[Opened]:
    if added is None:
        return _opened_place(output, storage)
    if added.table_format == PARQUET:
        return _opened_snapshot(output, added)
    return _opened_tables(output, storage, added)


@contextmanager
def _opened_place(output: str, storage: Storage) -> Iterator[Opened]:
    with opened_place(output, storage) as target:
        yield Opened(target, output)


@contextmanager
def _opened_snapshot(output: str, added: AddedSnapshot) -> Iterator[Opened]:
    root = local_path(output)
    if root is None:
        raise UsageError(
            f"no snapshot can be added to Parquet files at {remote_place(output).name}: no directory is renamed there as a whole",
            hint="add --table-format delta or --table-format iceberg",
        )
    label = Label(added.cluster, added.snapshot, uuid.uuid4().hex, in_rows=False)
    with opened_snapshot(root, label) as snapshot:
        opened = Opened(snapshot.target, snapshot.target.path, label)
        yield opened
        opened.replaced = snapshot.publish()


@contextmanager
def _opened_tables(output: str, storage: Storage, added: AddedSnapshot) -> Iterator[Opened]:
    """Files are written to a directory of this run alone, and moved to their table before they are committed."""
    label = Label(added.cluster, added.snapshot, uuid.uuid4().hex, in_rows=True)
    schemas = {name: labelled_schema(fact, label) for name, fact in FACTS.items()}
    opener = opened_delta() if added.table_format == "delta" else opened_iceberg(added.catalog, added.namespace)
    root = root_of(output, storage)
    _refuse_others(root, added.table_format)
    with contextlib.closing(opener(output, root.path, storage)) as tables:
        for name, schema in schemas.items():
            if tables.exists(name):
                tables.check(name, schema)
        staging = below(output, f"{TEMPORARY}/{label.run}")
        opened = Opened(open_place(staging, storage), staging, label)

        def commit(written: Mapping[str, Sequence[Written]]) -> None:
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
    """Raise UsageError if anything but tables of this format is there."""
    names = root.names()
    if LOCK in names:
        raise UsageError(
            f"{root.path} holds snapshots as Parquet files", hint="leave --table-format out, or choose another directory"
        )
    if {SUCCESS, INCOMPLETE}.intersection(names):
        raise UsageError(f"{root.path} holds an export that was made without --append", hint="choose another directory")
    refuse_names(root.path, [name for name in names if name not in (*FACTS, TEMPORARY) and not name.startswith(CATALOG)])
    for fact in FACTS.keys() & names:
        for other, kept_in in KEPT_IN.items():
            if other != table_format and kept_in in root.names(fact):
                hint = f"give --table-format {other}, or choose another directory"
                raise UsageError(f"{root.path} holds tables of the format {other}", hint=hint)
