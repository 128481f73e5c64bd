"""Adding a snapshot to a dataset: once, however often a run was killed or tried again.

A run writes its files under its own name, `FACT/RUN/part-...`, where nobody looks for them yet; then one step makes them count and
those of an earlier run of the same snapshot no longer: the manifest is put in place of the one before, or a transaction of each
Delta or Iceberg table is committed. Files that do not count are taken away afterwards, or by the next run. Every column is in the
files themselves, so that no reader guesses its type by names of directories, and the three forms hold the same files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from kafka_forensics.errors import ForensicsError, UsageError
from kafka_forensics.export.dataset_manifest import (
    PARQUET,
    TABLE_FORMATS,
    DatasetFile,
    DatasetManifest,
    Label,
    SnapshotEntry,
    fingerprint,
    labelled,
    labelled_schema,
    merged_schema,
    require_name,
)
from kafka_forensics.export.dataset_places import DatasetPlace, begin_at, manifest_at, taken
from kafka_forensics.export.datasets import (
    Dataset,
    ExportOrder,
    Written,
    export_facts,
    options_of,
    threads_of,
    tool_of,
    unless,
    write_part,
    written_by,
)
from kafka_forensics.export.places import ExportPlace, Storage, opened_place
from kafka_forensics.export.target import DATASET
from kafka_forensics.facts.facts import FactReader, Part
from kafka_forensics.facts.rows import SPLIT_BYTES
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACT_SCHEMA_VERSION, FACTS, INCOMPLETE_FACT, Fact, fact_named

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyarrow.fs import FileSystem

    from kafka_forensics.storage.remote import Given

MAX_REPLICAS: Final = 1024
"""Replicas in one file at most; fewer where their logs are larger than those of a task."""


class Tables(Protocol):
    """Tables of a library, one a fact, that say themselves which files count."""

    def exists(self, fact: str) -> bool:
        """Whether there is a table of a fact."""

    def check(self, fact: str) -> None:
        """Raise UsageError if a table that should be there is not, or its files lie elsewhere."""

    def commit(self, fact: str, schema: pa.Schema, label: Label, files: Sequence[Written]) -> None:
        """Let these files be all that counts of a snapshot, in one transaction. Raises UsageError if another came between."""

    def holds(self, fact: str, run: str) -> bool:
        """Whether files of a run count."""

    def close(self) -> None:
        """Let go of what is held open."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """As what a dataset is kept, None: as it is, a new one as Parquet; what an Iceberg catalogue is called, None: a file in the
    dataset."""

    name: str | None = None
    catalog: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class AddedSnapshot:
    """Which snapshot is added to a dataset, and how that is kept."""

    cluster: str
    snapshot: str
    table_format: TableFormat


@dataclass(slots=True)
class Appending:
    """A run that adds a snapshot to the dataset at `place`."""

    place: DatasetPlace
    label: Label
    manifest: DatasetManifest
    tables: Tables | None
    before: bytes | None
    """The manifest as it was at the beginning."""
    replaced: SnapshotEntry | None = None
    """What there was of the snapshot before."""

    def clean(self) -> None:
        """Take away what runs have left that ended without a word."""
        self.place.clear()
        if self.tables is None:
            self._remove_what_is_not_held()
        for run in self.place.left:
            self._forget(run)
            self.place.forget(run)
        self.place.left = []

    def commit(self, entry: SnapshotEntry, written: Mapping[str, Sequence[Written]]) -> None:
        """Let what was written count, and nothing else of the same snapshot."""
        schemas = {name: self._schema(name) for name in written}
        files = [_file(name, file, fingerprint(labelled_schema(FACTS[name]))) for name in written for file in written[name]]
        self.place.put_names_on_disk()
        self.place.require_own(self.before)
        for name, of_fact in written.items():
            if not {file.path.rpartition("/")[2] for file in of_fact} <= self.place.files(name, self.label.run):
                raise taken(self.place.path)  # by one that gave this one up, and took its files away
        if self.tables is not None:
            if self.before is None:  # before the first of the tables something must say whose they are
                self._swap()
            others = [name for name in FACTS if name not in written and self.tables.exists(name)]
            for number, name in enumerate((*written, *others)):
                self._require_own(number)
                self.tables.commit(name, self._schema(name), self.label, written.get(name, ()))
        self.replaced = next(
            (there for there in self.manifest.snapshots if (there.cluster, there.snapshot) == self.label.key), None
        )
        self.manifest = self.manifest.replaced(entry, files if self.tables is None else (), schemas)
        self._swap()
        if self.tables is None:
            self._remove_what_is_not_held()
        self.place.end()

    def _require_own(self, committed: int) -> None:
        """Raise UsageError if another run has taken the place, with how many tables have this run's rows by now."""
        try:
            self.place.require_own(self.before)
        except UsageError as error:
            if not committed:
                raise
            said = f"another run has taken {self.place.path} meanwhile; of the tables {committed} have the rows of this one already"
            raise UsageError(said, hint="add this snapshot again") from error

    def _swap(self) -> None:
        data = self.manifest.data()
        self.place.swap(data, self.before)
        self.before = data

    def give_up(self) -> None:
        """Take away what this run has written and nothing refers to, and let another begin."""
        try:
            self.place.clear()
            data = self.place.manifest()
            if data is not None:
                self.manifest = DatasetManifest.read(data, DATASET)
            self._forget(self.label.run)
        except (ForensicsError, OSError):
            self.place.release()  # the next run finds the mark, and does it
        else:
            self.place.withdraw()

    def require_schemas(self) -> None:
        """Raise UsageError if the dataset has a column that is of another type by now."""
        for name in FACTS:
            self._schema(name)

    def _schema(self, name: str) -> pa.Schema:
        return merged_schema(name, self.manifest.schemas.get(name), labelled_schema(FACTS[name]))

    def _remove_what_is_not_held(self) -> None:
        held = self.manifest.held
        self._remove(lambda fact, run: (fact, run) not in held)

    def _forget(self, run: str) -> None:
        tables, held = self.tables, self.manifest.held
        holds = tables.holds if tables is not None else lambda fact, there: (fact, there) in held
        self._remove(lambda fact, there: there == run and not holds(fact, run))

    def _remove(self, is_left: Callable[[str, str], bool]) -> None:
        for fact in FACTS:
            for run in self.place.runs(fact):
                if is_left(fact, run):
                    self.place.remove_run(fact, run)


@contextmanager
def begun(
    output: str, inputs: list[str], storage: Storage, added: AddedSnapshot | None
) -> Iterator[tuple[ExportPlace, Appending | None]]:
    """Where an export goes, and what it is added to, as `opened_appending`; without a snapshot as `opened_place`."""
    if added is None:
        with opened_place(output, inputs, storage) as target:
            yield target, None
        return
    with opened_appending(output, inputs, storage, added.cluster, added.snapshot, added.table_format) as appending:
        yield appending.place, appending


@contextmanager
def opened_appending(
    output: str, inputs: list[str], storage: Storage, cluster: str, snapshot: str, table_format: TableFormat | None = None
) -> Iterator[Appending]:
    """Begin to add a snapshot to the dataset at `output`, or to a new one there; if it fails, the dataset is what it was, but for
    tables that were committed already.

    Raises UsageError if that is no dataset, one of another format or catalogue, damaged, or another run is adding to it.
    """
    wanted = table_format or TableFormat()
    require_name("--cluster", cluster)
    require_name("--snapshot", snapshot)
    _opener(wanted)
    place = begin_at(output, inputs, storage)
    tables, appending = None, None
    try:
        before = place.manifest()
        manifest = _manifest(place, before, wanted)
        tables = _opener(TableFormat(manifest.table_format, manifest.catalog, manifest.namespace))(output, place.path, storage)
        if tables is not None:
            for name in manifest.schemas:
                tables.check(name)
        opened = Appending(place, Label(cluster, snapshot, place.run), manifest, tables, before)
        opened.require_schemas()
        opened.clean()
        appending = opened
        yield appending
    except BaseException:
        if appending is not None:
            appending.give_up()
        elif place.left:
            place.release()  # the next run finds the mark, and what is left
        else:
            place.withdraw()
        raise
    finally:
        if tables is not None:
            tables.close()


def _manifest(place: DatasetPlace, data: bytes | None, wanted: TableFormat) -> DatasetManifest:
    """What the dataset's manifest says. Raises UsageError if it is damaged, or its tables are kept in another way."""
    if data is None:
        return DatasetManifest(wanted.name or PARQUET, catalog=wanted.catalog, namespace=wanted.namespace)
    manifest = DatasetManifest.read(data, f"{place.path}/{DATASET}")
    if wanted.name is None:
        return manifest
    if manifest.table_format != wanted.name:
        raise UsageError(
            f"{place.path} is a dataset of the table format {manifest.table_format}",
            hint=f"give --table-format {manifest.table_format}, or choose another directory",
        )
    if (manifest.catalog, manifest.namespace) != (wanted.catalog, wanted.namespace):
        named = {"--iceberg-catalog": manifest.catalog, "--iceberg-namespace": manifest.namespace}
        given = " and ".join(f"{option} {value}" for option, value in named.items() if value is not None)
        raise UsageError(
            f"the tables of {place.path} are kept in another catalogue or namespace",
            hint=f"give {given or 'neither --iceberg-catalog nor --iceberg-namespace'}, or choose another directory",
        )
    return manifest


def write_facts(
    reader: FactReader, order: ExportOrder, appending: Appending | None, written: Mapping[str, Sequence[Written]] | None = None
) -> list[Dataset]:
    """Write the facts that are ordered as `export_facts` does, or as `append_facts` where a snapshot is added."""
    return export_facts(reader, order, written) if appending is None else append_facts(reader, order, appending, written)


def append_facts(
    reader: FactReader, order: ExportOrder, appending: Appending, written: Mapping[str, Sequence[Written]] | None = None
) -> list[Dataset]:
    """Write the facts that are ordered, and what could not be read; of facts in `written` the files are there. Then let them count.

    Raises UsageError where it cannot be written.
    """
    place, label = appending.place, appending.label
    facts = [*(name for name in order.names if name != INCOMPLETE_FACT.name), INCOMPLETE_FACT.name]
    jobs = threads_of(reader)
    every: dict[str, list[Written]] = {}
    for name in facts:
        if name == INCOMPLETE_FACT.name:
            reader.incomplete += reader.changed()
        there = None if written is None else written.get(name)
        every[name] = list(_snapshot_files(FACTS[name], reader, place, label, jobs) if there is None else there)
    datasets = [_dataset(name, files) for name, files in every.items()]
    gaps = reader.gaps()
    entry = SnapshotEntry(
        *(label.cluster, label.snapshot, label.run),
        whole=order.allow_incomplete or not gaps,
        schema_version=FACT_SCHEMA_VERSION,
        tool=tool_of(reader),
        options=options_of(reader),
        datasets={made.fact: {"rows": made.rows, "files": made.files, "bytes": made.size_in_bytes} for made in datasets},
        incomplete=[asdict(gap) for gap in gaps],
    )
    appending.commit(entry, every)
    return datasets


def open_dataset(path: str, fact: str, storage_options: "Given" = None) -> "ds.Dataset":
    """A fact of the dataset at `path` as its manifest has it: each snapshot once, columns that a row is older than null.

    Raises UsageError if there is no such dataset or fact, its manifest is damaged, or its tables are Delta's or Iceberg's own.
    """
    import pyarrow.dataset as ds

    manifest, root, filesystem = manifest_to_read(path, fact, storage_options)
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(f"{root}/{file.path}", filesystem, partition_expression=_expression(file))
        for file in manifest.files_of(fact)
    ]
    return ds.FileSystemDataset(fragments, manifest.schemas[fact], parquet, filesystem)


def manifest_to_read(path: str, fact: str, storage_options: "Given" = None) -> "tuple[DatasetManifest, str, FileSystem]":
    """(manifest, root, file system) of the dataset at `path`, which has the fact. Raises UsageError as `open_dataset` does."""
    data, root, filesystem = manifest_at(path, storage_options)
    if data is None:
        raise UsageError(f"{path} is no dataset to which snapshots were added", hint="export --append makes one")
    manifest = DatasetManifest.read(data, f"{path.rstrip('/')}/{DATASET}")
    if manifest.table_format != PARQUET:
        raise UsageError(
            f"{path} is a dataset of the table format {manifest.table_format}, which keeps its own account of files",
            hint="read it by that format's library (docs/datasets.md)",
        )
    if fact not in manifest.schemas:
        fact_named(fact)
        raise UsageError(f"{path} has no fact {fact}", hint=f"it has {', '.join(manifest.schemas) or 'none'}")
    return manifest, root, filesystem


def _expression(file: DatasetFile) -> "ds.Expression":
    """What is so of all rows of a file, by which whoever filters leaves it closed."""
    import pyarrow.compute as pc

    return (pc.field("cluster") == file.cluster) & (pc.field("snapshot") == file.snapshot) & (pc.field("run") == file.run)


def _opener(wanted: TableFormat) -> "Callable[[str, str, Storage], Tables | None]":
    """What opens the tables of a format. Raises UsageError if there is no such format, or its library is not installed."""
    if wanted.name == "delta":
        from kafka_forensics.export.delta import opened_delta

        return opened_delta()
    if wanted.name == "iceberg":
        from kafka_forensics.export.iceberg import opened_iceberg

        return opened_iceberg(wanted.catalog, wanted.namespace)
    if wanted.name not in (None, PARQUET):
        raise UsageError(f"there is no table format {wanted.name!r}", hint=f"choose from {', '.join(TABLE_FORMATS)}")
    return lambda *_: None


def _snapshot_files(fact: Fact, reader: FactReader, place: ExportPlace, label: Label, jobs: int) -> Iterator[Written]:
    """Write a fact, many replicas to a file."""
    works = (
        partial(_files, fact, number, parts, place, label)
        for number, parts in enumerate(_shares(reader, reader.parts(fact.name), fact))
    )
    yield from written_by(works, jobs if fact.by_replica else 1)


def _files(fact: Fact, number: int, parts: list[Part], place: ExportPlace, label: Label, ended: Event) -> Iterator[Written]:
    names = (f"{fact.name}/{label.run}/part-{number:05}-{following:03}.parquet" for following in count())
    rows = labelled(fact, label, ((_keys(part), unless(ended, part.batches)) for part in parts))
    yield from write_part(labelled_schema(fact), rows, place.file, names, asdict(label))


def _keys(part: Part) -> Json:
    return {"topic": part.topic, "partition": part.partition, "broker": part.broker}


def _shares(reader: FactReader, parts: Iterable[Part], fact: Fact) -> Iterator[list[Part]]:
    """Parts that go to the same files: neighbours, as many as a task would read."""
    read = fact.by_replica and fact.name != "replicas"
    weights = iter([plan.bytes for plan in reader.inputs.replicas] if read else ())
    share: list[Part] = []
    size = 0
    for part in parts:
        weight = next(weights, 0)
        if share and (size + weight > SPLIT_BYTES or len(share) >= MAX_REPLICAS):
            yield share
            share, size = [], 0
        share.append(part)
        size += weight
    if share:
        yield share


def _dataset(name: str, files: Sequence[Written]) -> Dataset:
    return Dataset(name, sum(file.rows for file in files), len(files), sum(file.size_in_bytes for file in files))


def _file(fact: str, file: Written, schema: str) -> DatasetFile:
    return DatasetFile(file.path, fact, **file.keys, rows=file.rows, bytes=file.size_in_bytes, sha256=file.sha256, schema=schema)
