"""Beginning an export: one snapshot of a dataset, new or existing, in Parquet files, Delta or Iceberg tables.

Parquet files become part of the dataset when their directory is renamed (`snapshots`); in a storage service, which renames none, as
they are written, and the manifest comes last. Files of a table become part of it when its library commits a transaction that names
them. Tables are committed one after the other, because no transaction covers several. Files that a killed run has not committed are
in no table; they stay until the table's own tools remove them.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.export.datasets import DatasetFile, OpenExport
from kafka_forensics.export.delta import delta_opener
from kafka_forensics.export.iceberg import CATALOG, iceberg_opener
from kafka_forensics.export.labels import CLUSTER_DIRECTORY, SnapshotLabel, dataset_schema, is_name, require_name
from kafka_forensics.export.places import ExportPlace, Storage, open_place, place_below, shared_place
from kafka_forensics.export.snapshots import open_snapshot
from kafka_forensics.export.target import LOCK, TEMPORARY, dataset_exists_error, require_empty
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.private import private_files

PARQUET: Final = "parquet"
TABLE_FORMATS: Final = (PARQUET, "delta", "iceberg")
KEPT_IN: Final = {"delta": "_delta_log", "iceberg": "metadata"}
"""The directory below a table in which its library records the table's files."""
UNKNOWN_CLUSTER: Final = "unknown"
"""The name of a cluster of which the copies name no id, or several."""
ONLY_SNAPSHOT: Final = "1"
"""The name of a snapshot that the user did not name."""


class SnapshotOptions(Struct, frozen=True):
    """The snapshot that an export writes, and the form of its dataset; an Iceberg `catalog` of None is a file in the dataset."""

    cluster: str | None = None
    """None: the id of the cluster."""
    snapshot: str | None = None
    append: bool = False
    """Whether the dataset may exist."""
    table_format: str = PARQUET
    by_topic: bool = False
    catalog: str | None = None
    namespace: str | None = None

    def label(self, inputs: Inputs) -> SnapshotLabel:
        """The snapshot of these inputs.

        Raises UsageError for names that readers would not read back, and if a snapshot to append has no name or no cluster.
        """
        if self.append and self.snapshot is None:
            raise UsageError("a snapshot that is appended needs a name", hint="for example --snapshot 2026-03-01")
        cluster, snapshot = self.cluster or _cluster_of(inputs), self.snapshot or ONLY_SNAPSHOT
        if self.append and cluster is None:
            raise UsageError("the copies do not have one cluster id", hint="name it, for example --cluster payments")
        cluster = cluster or UNKNOWN_CLUSTER
        require_name("--cluster", cluster)
        require_name("--snapshot", snapshot)
        in_rows = self.table_format != PARQUET
        return SnapshotLabel(cluster, snapshot, uuid.uuid4().hex, in_rows=in_rows, by_topic=self.by_topic)


def _cluster_of(inputs: Inputs) -> str | None:
    """The cluster id, if the copies have one that can name a cluster."""
    ids = {log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None, ""}
    (cluster,) = ids if len(ids) == 1 else (None,)
    return cluster if cluster is not None and is_name(cluster) else None


@contextmanager
def open_export(output: str, storage: Storage, options: SnapshotOptions, inputs: Inputs) -> Iterator[OpenExport]:
    """Begin an export of the inputs as a snapshot; at the end, publish it.

    If it fails, the dataset is unchanged except for tables that were committed already. Raises UsageError if the output holds
    something else or cannot be written to, and if another run is adding to it.
    """
    label = options.label(inputs)
    if options.table_format != PARQUET:
        opening = _opened_tables(output, storage, options, label)
    elif (root := local_path(output)) is not None:
        opening = _opened_snapshot(root, options, label)
    else:
        opening = _opened_objects(output, storage, options, label)
    with private_files(local_path(output)), opening as opened:
        yield opened


@contextmanager
def _opened_snapshot(root: str, options: SnapshotOptions, label: SnapshotLabel) -> Iterator[OpenExport]:
    with open_snapshot(root, label, append=options.append) as snapshot:
        opened = OpenExport(snapshot.target, snapshot.target.path, label)
        yield opened
        opened.replaced = snapshot.publish()


@contextmanager
def _opened_objects(output: str, storage: Storage, options: SnapshotOptions, label: SnapshotLabel) -> Iterator[OpenExport]:
    """A snapshot as objects under its final names: one that exists is refused, because nothing there is replaced as a whole."""
    root = shared_place(output, storage)
    names = root.names()
    require_empty(root.path, [name for name in names if not (options.append and name.startswith(CLUSTER_DIRECTORY))])
    place = place_below(output, label.directory)
    opened = OpenExport(open_place(place, storage), place, label)
    try:
        yield opened
    except BaseException:
        opened.target.remove()
        raise


@contextmanager
def _opened_tables(output: str, storage: Storage, options: SnapshotOptions, label: SnapshotLabel) -> Iterator[OpenExport]:
    """Files are written to a directory of this run, and moved to their table before they are committed."""
    schemas = {name: dataset_schema(fact, label) for name, fact in FACTS.items()}
    opener = delta_opener() if options.table_format == "delta" else iceberg_opener(options.catalog, options.namespace)
    root = shared_place(output, storage)
    _refuse_others(root, options)
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


def _refuse_others(root: ExportPlace, options: SnapshotOptions) -> None:
    """Raise UsageError if the root holds anything but tables of this format, or anything at all without `append`."""
    names = root.names()
    if LOCK in names or any(name.startswith(CLUSTER_DIRECTORY) for name in names):
        raise UsageError(
            f"{root.path} holds snapshots as Parquet files", hint="leave --table-format out, or choose another directory"
        )
    tables = [name for name in names if name in (*FACTS, TEMPORARY) or name.startswith(CATALOG)]
    require_empty(root.path, [name for name in names if name not in tables])
    for fact in FACTS.keys() & tables:
        for other, kept_in in KEPT_IN.items():
            if other != options.table_format and kept_in in root.names(fact):
                hint = f"give --table-format {other}, or choose another directory"
                raise UsageError(f"{root.path} holds tables of the format {other}", hint=hint)
    if tables and not options.append:
        raise dataset_exists_error(root.path)
