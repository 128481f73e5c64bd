"""Parquet datasets of facts: a directory for each fact, zstd, the declared schema, and a manifest of every file.

Facts about replicas are in `topic=/partition=/broker=` directories; as usual for such datasets, these three columns exist only in
the names, and each file's metadata repeats them. Other facts have one directory without such names, because a path cannot hold null
and hostile names must not make thousands of directories. A snapshot in a dataset of many has one directory for each fact, whose
files hold many replicas (`labels`). Memory holds one row group for each thread that writes.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, count, groupby, repeat
from threading import Event
from typing import Any, Final, cast
from urllib.parse import quote

import pyarrow as pa

from kafka_forensics.export.facts.facts import FactPart, FactReader
from kafka_forensics.export.facts.rows import SPLIT_BYTES, row_groups, text
from kafka_forensics.export.labels import NO_VALUE, SnapshotLabel, dataset_schema, with_labels
from kafka_forensics.export.parquet import parquet_writer, with_equal_types
from kafka_forensics.export.places import ExportPlace
from kafka_forensics.export.target import MANIFEST, HashedFile
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACT_SCHEMA_VERSION, FACTS, INCOMPLETE_FACT, Fact
from kafka_forensics.parsers.kernels.compiling import worth_threads
from kafka_forensics.scanning.engine.work_plan import packed
from kafka_forensics.version import __version__

MAX_NAME_BYTES: Final = 255
"""Of a name in a directory, on every usual file system."""
_DIGEST_CHARACTERS: Final = 16
MAX_FILE_BYTES: Final = 1 << 30
"""The next file begins when a file has reached this size."""
MAX_REPLICAS: Final = 1024
"""In one file of a snapshot; fewer if their logs are larger than those of a task."""
NewFile = Callable[[str], AbstractContextManager[HashedFile]]
"""Creates a file that gets its name when it is complete."""


def replica_directory(topic: str, partition: int, broker: str) -> str:
    """The directory of a replica's rows, below that of the fact; its names are valid on any file system."""
    return f"{_name('topic', topic)}/{_name('partition', str(partition))}/{_name('broker', broker)}"


def _name(key: str, value: str) -> str:
    """`key=value` with all but letters, digits, `_`, `.`, `-` and `~` percent-encoded.

    A name that is too long is cut, and ends in `~` and a digest of the whole; the metadata of the files has the whole name.
    """
    unencoded = value.encode("utf-8", "backslashreplace")
    encoded = quote(unencoded, safe="")
    if value == NO_VALUE:
        encoded = encoded.replace("_", "%5F", 1)
    max_bytes = MAX_NAME_BYTES - len(key) - 1
    if len(encoded) <= max_bytes:
        return f"{key}={encoded}"
    start = b""
    for length in range(len(unencoded), 0, -1):
        start = unencoded[:length].decode("utf-8", "ignore").encode()
        if len(quote(start, safe="")) <= max_bytes - 1 - _DIGEST_CHARACTERS:
            break
    return f"{key}={quote(start, safe='')}~{hashlib.sha256(unencoded).hexdigest()[:_DIGEST_CHARACTERS]}"


def replica_folder(fact: Fact, keys: Json) -> str:
    """The directory of a replica's files, below the target."""
    return f"{fact.name}/{replica_directory(keys['topic'], keys['partition'], keys['broker'])}"


def name_of(folder: str, number: int) -> str:
    """The path of the file with this number in a directory."""
    return f"{folder}/part-{number:05}.parquet"


@dataclass(slots=True)
class DatasetFile:
    """A file of a dataset; `keys` are those of its replica or snapshot, if it has one."""

    path: str
    keys: Json
    rows: int = 0
    size_in_bytes: int = 0
    sha256: str = ""

    def line(self) -> str:
        """Its entry in the manifest."""
        described = {"path": self.path, **self.keys, "rows": self.rows, "bytes": self.size_in_bytes, "sha256": self.sha256}
        return json.dumps(described, ensure_ascii=True)


@dataclass(slots=True)
class Dataset:
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


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """An export: the facts `names`, to `target`.

    It ends with `_SUCCESS`, or with `_INCOMPLETE` if something could not be read and that is not allowed.
    """

    target: ExportPlace
    names: Sequence[str]
    output: str = ""
    """The target as the user named it."""
    payloads: bool = False
    allow_incomplete: bool = False
    split_bytes: int = SPLIT_BYTES
    """Of logs that a task reads, where there are tasks."""
    label: SnapshotLabel | None = None
    """The snapshot that is added to a dataset of many; None for a new export."""
    commit: Callable[[Mapping[str, Sequence[DatasetFile]]], None] | None = None
    """Makes the files of each fact part of a dataset; None: the manifest and `_SUCCESS` do."""


def export_facts(
    reader: FactReader, order: ExportOrder, written: Mapping[str, Sequence[DatasetFile]] | None = None
) -> list[Dataset]:
    """Write a dataset for each fact, what could not be read, the manifest, and `_SUCCESS` last; `written` facts have their files.

    Raises UsageError if something cannot be written.
    """
    datasets = [Dataset(name) for name in [*(name for name in order.names if name != INCOMPLETE_FACT.name), INCOMPLETE_FACT.name]]
    jobs = reader.options.jobs if worth_threads() and all(source.seekable for source in reader.inputs.sources) else 1

    def files_of(dataset: Dataset) -> Iterator[DatasetFile]:
        if dataset.fact == INCOMPLETE_FACT.name:
            reader.incomplete += reader.changed_files()
        files = None if written is None else written.get(dataset.fact)
        for file in _dataset_files(FACTS[dataset.fact], reader, order, jobs) if files is None else files:
            dataset.add(file)
            yield file

    if order.commit is not None:
        order.commit({dataset.fact: list(files_of(dataset)) for dataset in datasets})
        return datasets

    def files_with_empty_one(dataset: Dataset) -> Iterator[DatasetFile]:
        yield from files_of(dataset)
        if not dataset.files:
            dataset.add(empty := _empty_file(FACTS[dataset.fact], order))
            yield empty

    with order.target.file(MANIFEST) as manifest:
        manifest.write(_manifest_start(reader).encode("ascii"))
        for number, file in enumerate(chain.from_iterable(map(files_with_empty_one, datasets))):
            manifest.write(f"{',' if number else ''}\n  {file.line()}".encode("ascii"))
        manifest.write(_manifest_end(reader, datasets).encode("ascii"))
    order.target.finish(whole=order.allow_incomplete or not reader.unread_inputs())
    return datasets


def _manifest_start(reader: FactReader) -> str:
    tool = {"name": "kafka-forensics", "version": __version__, "engine": reader.result.engine}
    options = reader.options
    described = {
        "topic": options.topic_glob,
        "partition": options.partition,
        "broker": options.broker,
        "as_of_ms": options.as_of_ms,
        "live": options.live,
        "copied": None if options.copied is None else options.copied.value,
        "deep": reader.result.totals.records_decoded,
        "payloads": reader.payloads,
    }
    return (
        f'{{"schema_version": {json.dumps(FACT_SCHEMA_VERSION)},\n "tool": {json.dumps(tool)},\n'
        f' "options": {json.dumps(described)},\n "files": ['
    )


def _manifest_end(reader: FactReader, datasets: Iterable[Dataset]) -> str:
    sums = {dataset.fact: {"rows": dataset.rows, "files": dataset.files, "bytes": dataset.size_in_bytes} for dataset in datasets}
    incomplete = [asdict(unread) for unread in reader.unread_inputs()]
    return f'],\n "datasets": {json.dumps(sums)},\n "incomplete": {json.dumps(incomplete)}}}\n'


def _empty_file(fact: Fact, order: ExportOrder) -> DatasetFile:
    """Write a file without rows, for a fact that has none."""
    label = order.label
    file = DatasetFile(name_of(fact.name, 0), {}) if label is None else DatasetFile(label.file(fact.name, 0), label.keys)
    schema = fact.schema if label is None else dataset_schema(fact, label)
    with order.target.file(file.path) as opened:
        _write_file(opened, _schema_of_file(schema, file.keys), iter(()), file)
    return file


def _dataset_files(fact: Fact, reader: FactReader, order: ExportOrder, jobs: int) -> Iterator[DatasetFile]:
    """The files of a dataset in the order of its parts; several directories or shares are written at once on `jobs` threads."""
    writes = (partial(_write_parts, *parts, order.target.file) for parts in _parts_by_files(fact, reader, order.label))
    return _written_by(writes, jobs if fact.by_replica else 1)


def _parts_by_files(
    fact: Fact, reader: FactReader, label: SnapshotLabel | None
) -> Iterator[tuple[pa.Schema, list[Iterable[pa.RecordBatch]], Iterator[str], Json]]:
    """(schema, rows in parts that share no file, names of files, keys) of each directory, or of each share of a snapshot."""
    parts = reader.parts(fact.name)
    if label is not None:
        schema = dataset_schema(fact, label)
        for number, share in enumerate(_shares(fact, parts, reader)):
            rows = with_labels(fact, label, ((_keys(part), part.batches) for part in share))
            yield schema, [rows], map(partial(label.file, fact.name, number), count()), label.keys
        return
    for keys, of_replica in groupby(parts, key=_keys if fact.by_replica else lambda _: {}):
        folder = replica_folder(fact, keys) if fact.by_replica else fact.name
        yield fact.file_schema, [part.batches for part in of_replica], map(partial(name_of, folder), count()), keys


def _keys(part: FactPart) -> Json:
    return {} if part.keys is None else part.keys._asdict()


def _shares(fact: Fact, parts: Iterable[FactPart], reader: FactReader) -> Iterator[list[FactPart]]:
    """Neighbouring parts that go to the same files, as many as a task would read."""
    reads_logs = fact.by_replica and fact.name != "replicas"
    weights = [plan.bytes for plan in reader.logs_of(fact.name)] if reads_logs else []
    return packed(zip(parts, chain(weights, repeat(0)), strict=False), SPLIT_BYTES, MAX_REPLICAS)


def _write_parts(
    schema: pa.Schema, parts: list[Iterable[pa.RecordBatch]], names: Iterator[str], keys: Json, new_file: NewFile, ended: Event
) -> Iterator[DatasetFile]:
    """Write the files of each part; raises CancelledError once the export has `ended`."""

    def until_end(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if ended.is_set():
                raise CancelledError
            yield batch

    for batches in parts:
        yield from write_part(schema, until_end(batches), new_file, names, keys)


def _written_by(writes: Iterable[WriteFiles], jobs: int) -> Iterator[DatasetFile]:
    """The files of each call, in order, written at once on `jobs` threads: parsing, compressing and writing release the GIL."""
    if jobs <= 1:
        for write in writes:
            yield from write(Event())
        return
    ended = Event()
    with ThreadPoolExecutor(jobs) as pool:
        ahead: deque[Future[list[DatasetFile]]] = deque()
        try:
            for write in writes:
                ahead.append(pool.submit(lambda write: list(write(ended)), write))
                while len(ahead) > 2 * jobs:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def write_part(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], new_file: NewFile, names: Iterator[str], keys: Json
) -> Iterator[DatasetFile]:
    """Write all rows to one file, or to several if they are large, with the next of `names`; no file if there are no rows."""
    first_batch = next(batches := iter(batches), None)
    if first_batch is None:
        return
    schema = _schema_of_file(schema, keys)
    groups = row_groups(with_equal_types(chain([first_batch], batches)), first_batch.schema)
    for first in groups:
        written = DatasetFile(next(names), keys)
        with new_file(written.path) as file:
            _write_file(file, schema, chain([first], groups), written)
        yield written


def _schema_of_file(schema: pa.Schema, keys: Json) -> pa.Schema:
    """`schema` with the keys in its metadata, without the descriptions of columns, which would outweigh the rows of small files."""
    labels = {f"kf.{name}".encode(): text(str(value)).encode() for name, value in keys.items() if value is not None}
    return pa.schema([field.remove_metadata() for field in schema]).with_metadata({**(schema.metadata or {}), **labels})


def _write_file(file: HashedFile, schema: pa.Schema, groups: Iterator[pa.Table], written: DatasetFile) -> None:
    """Write row groups until none is left or the file is large enough, and complete `written`."""
    sink: Any = pa.PythonFile(cast("Any", file), mode="w")
    with parquet_writer(sink, schema) as write:
        for group in groups:
            write(group)
            written.rows += group.num_rows
            if file.size_in_bytes >= MAX_FILE_BYTES:
                break
    sink.flush()
    written.size_in_bytes, written.sha256 = file.size_in_bytes, file.sha256
