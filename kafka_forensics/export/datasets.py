"""A snapshot as Parquet files: a directory for each fact, zstd, the declared schema, and a manifest of every file.

Files hold many replicas, sorted by topic, partition, broker and offset: readers skip row groups by their statistics.
Memory holds one row group for each thread that writes.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, count, groupby, islice
from threading import Event
from typing import Any, Final, cast

import pyarrow as pa
from msgspec import Struct

from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.facts.rows import SPLIT_BYTES, text
from kafka_forensics.export.json_document import incomplete_object
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema
from kafka_forensics.export.parquet import ReplicaRows, parquet_writer, replica_tables
from kafka_forensics.export.places import ExportPlace
from kafka_forensics.export.target import MANIFEST, HashedFile
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACT_SCHEMA_VERSION, FACTS, INCOMPLETE_FACT, Fact
from kafka_forensics.parsers.kernels.compiling import gains_by_threads
from kafka_forensics.scanning.engine.garbage import gc_less_often
from kafka_forensics.scanning.engine.work_plan import packed
from kafka_forensics.version import __version__

MIN_FULL_FILE_BYTES: Final = 256 << 20
"""The next file begins when a file has reached this size; a row group more is at most about 16 MiB."""
MAX_REPLICAS: Final = 16 << 10
"""In one file; fewer if their logs are larger than those of a share."""
LARGE_SHARES: Final = 16
"""Shares of a large fact; each ends with a file that is not full."""
NewFile = Callable[[str], AbstractContextManager[HashedFile]]
"""Creates a file that gets its name when it is complete."""


class DatasetFile(Struct):
    """A file of a snapshot; `topic` is that of its directory, if it has one."""

    path: str
    topic: str | None = None
    rows: int = 0
    size_in_bytes: int = 0
    sha256: str = ""

    def described(self) -> Json:
        """Its entry in the manifest."""
        return {"path": self.path, "rows": self.rows, "bytes": self.size_in_bytes, "sha256": self.sha256}


class Dataset(Struct):
    """The sums of a dataset that was written."""

    fact: str
    rows: int = 0
    files: int = 0
    size_in_bytes: int = 0

    def add(self, file: DatasetFile) -> None:
        """Count a file."""
        self.rows += file.rows
        self.files += 1
        self.size_in_bytes += file.size_in_bytes


WriteFiles = Callable[[Event], Iterator[DatasetFile]]
"""Writes some files; raises CancelledError when the event is set."""


class OpenExport(Struct):
    """An export that has begun."""

    target: ExportPlace
    output: str
    """The target as the user would name it, for other processes."""
    label: SnapshotLabel
    commit: Callable[[Mapping[str, Sequence[DatasetFile]]], None] | None = None
    """Adds the files of each fact to tables; None for Parquet files."""
    replaced: bool = False
    """Whether the dataset had this snapshot before."""


class ExportOrder(Struct, frozen=True):
    """An export of the facts `names`.

    It ends with `_SUCCESS`, or with `_INCOMPLETE` if something could not be read and that is not allowed.
    """

    opened: OpenExport
    names: Sequence[str]
    payloads: bool = False
    allow_incomplete: bool = False
    split_bytes: int = SPLIT_BYTES
    """Of logs that a task reads, where there are tasks."""


@gc_less_often()
def export_facts(
    reader: FactReader, order: ExportOrder, written: Mapping[str, Sequence[DatasetFile]] | None = None
) -> list[Dataset]:
    """Write a dataset for each fact, what could not be read, the manifest, and `_SUCCESS` last; `written` facts have their files.

    Raises UsageError if something cannot be written.
    """
    datasets = [Dataset(name) for name in [*(name for name in order.names if name != INCOMPLETE_FACT.name), INCOMPLETE_FACT.name]]
    jobs = reader.options.jobs if gains_by_threads() and all(source.seekable for source in reader.inputs.sources) else 1

    def files_of(dataset: Dataset) -> Iterator[DatasetFile]:
        if dataset.fact == INCOMPLETE_FACT.name:
            reader.incomplete += reader.changed_files(order.names)
        files = None if written is None else written.get(dataset.fact)
        for file in _dataset_files(FACTS[dataset.fact], reader, order, jobs) if files is None else files:
            dataset.add(file)
            yield file

    opened, label = order.opened, order.opened.label
    if opened.commit is not None:
        opened.commit({dataset.fact: list(files_of(dataset)) for dataset in datasets})
        return datasets

    def files_with_empty_one(dataset: Dataset) -> Iterator[DatasetFile]:
        yield from files_of(dataset)
        if not dataset.files and not label.splits(FACTS[dataset.fact]):
            dataset.add(empty := _empty_file(FACTS[dataset.fact], opened))
            yield empty

    files = list(chain.from_iterable(map(files_with_empty_one, datasets)))
    opened.target.require_no_other_export()
    with opened.target.file(MANIFEST) as manifest:
        described = _manifest(reader, order, files, datasets)
        manifest.write(f"{json.dumps(described, indent=1)}\n".encode("ascii"))
    opened.target.finish(whole=order.allow_incomplete or not reader.unread_inputs())
    return datasets


def _manifest(reader: FactReader, order: ExportOrder, files: list[DatasetFile], datasets: list[Dataset]) -> Json:
    options, label = reader.options, order.opened.label
    return {
        "schema_version": FACT_SCHEMA_VERSION,
        "tool": {"name": "kafka-forensics", "version": __version__, "engine": reader.result.engine},
        **label.keys,
        "partition_by": ["topic"] if label.by_topic else [],
        "options": {
            "topic": options.topic_glob,
            "partition": options.partition,
            "broker": options.broker,
            "as_of_ms": options.as_of_ms,
            "live": options.live,
            "copied": None if options.copied is None else options.copied.value,
            "deep": reader.result.totals.records_decoded,
            "payloads": reader.payloads,
        },
        "files": [file.described() for file in files],
        "datasets": {
            dataset.fact: {"rows": dataset.rows, "files": dataset.files, "bytes": dataset.size_in_bytes} for dataset in datasets
        },
        "incomplete": [incomplete_object(unread) for unread in reader.unread_inputs()],
        "allows_incomplete": order.allow_incomplete,
    }


def _empty_file(fact: Fact, opened: OpenExport) -> DatasetFile:
    """Write a file without rows, for a fact that has none."""
    file = DatasetFile(opened.label.file(fact.name, 0))
    with opened.target.file(file.path) as new_file:
        _write_file(new_file, _schema_of_file(fact, opened.label), iter(()), file)
    return file


def _dataset_files(fact: Fact, reader: FactReader, order: ExportOrder, jobs: int) -> Iterator[DatasetFile]:
    """The files of a fact in the order of its rows; several shares are written at once on `jobs` threads."""
    label, new_file = order.opened.label, order.opened.target.file
    if not fact.by_replica:
        yield from write_part(
            fact, label, [(None, reader.batches(fact.name))], new_file, map(partial(label.file, fact.name, 0), count())
        )
        return
    writes = (
        partial(_write_share, fact, label, share, new_file, number) for number, share in enumerate(_shares(fact, reader, label))
    )
    yield from _written_by(writes, jobs)


def _shares(fact: Fact, reader: FactReader, label: SnapshotLabel) -> Iterator[list[ReplicaRows]]:
    """Neighbouring parts that go to the same files."""
    weights = [plan.bytes for plan in reader.logs_of(fact.name)]
    share_bytes = max(SPLIT_BYTES, sum(weights) // LARGE_SHARES)
    parts: Iterator[ReplicaRows] = reader.parts(fact.name)
    weighed = zip(parts, weights, strict=True)
    for _, of_topic in groupby(weighed, key=lambda weighed_part: label.topic_of(fact, weighed_part[0][0])):
        yield from packed(of_topic, share_bytes, MAX_REPLICAS)


def _write_share(
    fact: Fact, label: SnapshotLabel, share: list[ReplicaRows], new_file: NewFile, number: int, ended: Event
) -> Iterator[DatasetFile]:
    """Write the files of a share; raises CancelledError once the export has `ended`."""

    def until_end(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if ended.is_set():
                raise CancelledError
            yield batch

    topic = label.topic_of(fact, share[0][0])
    names = (label.file(fact.name, number, following, topic) for following in count())
    yield from write_part(fact, label, ((keys, until_end(batches)) for keys, batches in share), new_file, names)


def _written_by(writes: Iterable[WriteFiles], jobs: int) -> Iterator[DatasetFile]:
    """The files of each call, in order, written at once on `jobs` threads: parsing, compressing and writing release the GIL."""
    writes = iter(writes)
    first_two = list(islice(writes, 2))
    if jobs <= 1 or len(first_two) < 2:  # one call alone is faster without a thread
        for write in chain(first_two, writes):
            yield from write(Event())
        return
    ended = Event()
    with ThreadPoolExecutor(jobs) as pool:
        ahead: deque[Future[list[DatasetFile]]] = deque()
        try:
            for write in chain(first_two, writes):
                ahead.append(pool.submit(lambda write: list(write(ended)), write))
                while len(ahead) > 2 * jobs:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def write_part(
    fact: Fact, label: SnapshotLabel, replicas: Iterable[ReplicaRows], new_file: NewFile, names: Iterator[str]
) -> Iterator[DatasetFile]:
    """Write all rows to one file, or to several if they are large, with the next of `names`; no file if there are no rows."""
    groups = replica_tables(fact, label, replicas)
    for first in groups:
        written = DatasetFile(next(names))
        with new_file(written.path) as file:
            _write_file(file, _schema_of_file(fact, label), chain([first], groups), written)
        yield written


def _schema_of_file(fact: Fact, label: SnapshotLabel) -> pa.Schema:
    """The columns of a file; its metadata names the snapshot."""
    schema = dataset_schema(fact, label)
    names = {f"kf.{name}".encode(): text(str(value)).encode() for name, value in label.keys.items()}
    return schema.with_metadata({**(schema.metadata or {}), **names})


def _write_file(file: HashedFile, schema: pa.Schema, groups: Iterator[pa.Table], written: DatasetFile) -> None:
    """Write row groups until none is left or the file is large enough, and complete `written`."""
    sink: Any = pa.PythonFile(cast("Any", file), mode="w")
    with parquet_writer(sink, schema) as write:
        for group in groups:
            write(group)
            written.rows += group.num_rows
            if file.size_in_bytes >= MIN_FULL_FILE_BYTES:
                break
    sink.flush()
    written.size_in_bytes, written.sha256 = file.size_in_bytes, file.sha256
