"""Parquet datasets of facts: one directory a fact, zstd, the declared schema, and a manifest of every file.

Facts of replicas lie in `topic=/partition=/broker=` directories, and as is the custom of such datasets those three columns are in
the names alone; each file's metadata repeats them in full. Facts whose rows name their partitions themselves are one directory
without such names: null has no place in a path, and bytes of evidence shall not make thousands of directories. A snapshot of a
dataset of many has one directory a fact, whose files hold many replicas each (`labels`). Memory holds one row group of a file for
each thread that writes.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, count, groupby, repeat
from threading import Event
from typing import Any, Final, cast
from urllib.parse import quote

import pyarrow as pa

from kafka_forensics.export.facts.facts import FactReader, Part
from kafka_forensics.export.facts.rows import SPLIT_BYTES, cut, text
from kafka_forensics.export.labels import NO_VALUE, Label, labelled, labelled_schema
from kafka_forensics.export.parquet import alike, parquet_writer
from kafka_forensics.export.places import ExportPlace
from kafka_forensics.export.target import MANIFEST, HashedFile
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACT_SCHEMA_VERSION, FACTS, INCOMPLETE_FACT, Fact
from kafka_forensics.parsers.kernels.compiling import worth_threads
from kafka_forensics.scanning.engine.work_plan import packed
from kafka_forensics.version import __version__

# Directory names of datasets: `topic=…/partition=…/broker=…`, safe on any file system whatever the names are.


MAX_NAME_BYTES: Final = 255
"""Of one name in a directory, on every usual file system."""
_DIGEST_CHARACTERS: Final = 16


def directory_of(topic: str, partition: int, broker: str) -> str:
    """The directory of one replica's rows, below that of the dataset."""
    return f"{_name('topic', topic)}/{_name('partition', str(partition))}/{_name('broker', broker)}"


def _name(key: str, value: str) -> str:
    """`key=value` with all but letters, digits, `_`, `.`, `-` and `~` percent-encoded.

    A name too long for a directory is cut, with `~` and a digest of the whole behind it; the files' own metadata has all of it.
    """
    spelled = value.encode("utf-8", "backslashreplace")
    encoded = quote(spelled, safe="")
    if value == NO_VALUE:
        encoded = encoded.replace("_", "%5F", 1)
    room = MAX_NAME_BYTES - len(key) - 1
    if len(encoded) <= room:
        return f"{key}={encoded}"
    kept = b""
    for length in range(len(spelled), 0, -1):
        kept = spelled[:length].decode("utf-8", "ignore").encode()
        if len(quote(kept, safe="")) <= room - 1 - _DIGEST_CHARACTERS:
            break
    return f"{key}={quote(kept, safe='')}~{hashlib.sha256(spelled).hexdigest()[:_DIGEST_CHARACTERS]}"


MAX_FILE_BYTES: Final = 1 << 30
"""A file that has reached this size is followed by another."""
MAX_REPLICAS: Final = 1024
"""Replicas in one file of a snapshot at most; fewer where their logs are larger than those of a task."""
NewFile = Callable[[str], AbstractContextManager[HashedFile]]
"""Begins a file of a name, which it has once it is whole."""


@dataclass(slots=True)
class Dataset:
    """What was written of one fact."""

    fact: str
    rows: int = 0
    files: int = 0
    size_in_bytes: int = 0


@dataclass(slots=True)
class Written:
    """A file of a dataset, for the manifest; `keys` are those of its replica, if its fact is about replicas."""

    path: str
    keys: Json
    rows: int = 0
    size_in_bytes: int = 0
    sha256: str = ""

    def line(self) -> str:
        """Its entry in the manifest."""
        described = {"path": self.path, **self.keys, "rows": self.rows, "bytes": self.size_in_bytes, "sha256": self.sha256}
        return json.dumps(described, ensure_ascii=True)


Work = Callable[[Event], Iterator[Written]]
"""Writes some files, and raises CancelledError once what it is given is set."""


@dataclass(slots=True)
class _Manifest:
    """`_manifest.json`, written line by line while files become whole."""

    file: HashedFile
    lines: int = 0
    datasets: list[Dataset] = field(default_factory=list)

    def begin(self, reader: FactReader) -> None:
        """What made it, and of what."""
        tool = {"name": "kafka-forensics", "version": __version__, "engine": reader.result.engine}
        self._put(f'{{"schema_version": {json.dumps(FACT_SCHEMA_VERSION)},\n "tool": {json.dumps(tool)},\n')
        self._put(f' "options": {json.dumps(_options(reader))},\n "files": [')

    def add(self, file: Written) -> None:
        """A file that is whole."""
        self._put(f"{',' if self.lines else ''}\n  {file.line()}")
        self.lines += 1

    def end(self, reader: FactReader) -> None:
        """Sums, and what could not be read."""
        sums = {
            dataset.fact: {"rows": dataset.rows, "files": dataset.files, "bytes": dataset.size_in_bytes}
            for dataset in self.datasets
        }
        gaps = [asdict(incomplete) for incomplete in reader.gaps()]
        self._put(f'],\n "datasets": {json.dumps(sums)},\n "incomplete": {json.dumps(gaps)}}}\n')

    def _put(self, piece: str) -> None:
        self.file.write(piece.encode("ascii"))


def _options(reader: FactReader) -> Json:
    """Of what an export was made."""
    options = reader.options
    return {
        "topic": options.topic_glob,
        "partition": options.partition,
        "broker": options.broker,
        "as_of_ms": options.as_of_ms,
        "live": options.live,
        "copied": None if options.copied is None else options.copied.value,
        "deep": reader.result.totals.records_decoded,
        "payloads": reader.payloads,
    }


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What is to be exported where: the facts `names` to `target`.

    The seal is `_SUCCESS`; `_INCOMPLETE` where something could not be read, unless that is allowed.
    """

    target: ExportPlace
    names: Sequence[str]
    output: str = ""
    """As the target was opened, where other processes find it."""
    payloads: bool = False
    allow_incomplete: bool = False
    split_bytes: int = SPLIT_BYTES
    """Of logs that a task reads, where there are tasks."""
    label: Label | None = None
    """The snapshot that is added to a dataset of many; None where the export is a new one."""
    commit: Callable[[Mapping[str, Sequence[Written]]], None] | None = None
    """What makes the files of each fact count; None: the manifest and the seal."""


def export_facts(reader: FactReader, order: ExportOrder, written: Mapping[str, Sequence[Written]] | None = None) -> list[Dataset]:
    """Write a dataset for each fact, what could not be read, then the manifest, then the seal; of facts in `written` the files are
    there. Raises UsageError where it cannot be written."""
    target = order.target
    if order.commit is not None:
        every = {name: list(files) for name, files in _fact_files(reader, order, written)}
        order.commit(every)
        return [_sums(name, files) for name, files in every.items()]
    with target.file(MANIFEST) as file:
        manifest = _Manifest(file)
        manifest.begin(reader)
        for name, files in _fact_files(reader, order, written):
            manifest.datasets.append(_write_dataset(FACTS[name], files, order, manifest))
        manifest.end(reader)
    target.finish(whole=order.allow_incomplete or not reader.gaps())
    return manifest.datasets


def _fact_files(
    reader: FactReader, order: ExportOrder, written: Mapping[str, Sequence[Written]] | None
) -> Iterator[tuple[str, Iterable[Written]]]:
    """The files of each fact that is ordered, what could not be read last; a file is written when it is asked for."""
    jobs = reader.options.jobs if worth_threads() and all(source.seekable for source in reader.inputs.sources) else 1
    for name in [*(name for name in order.names if name != INCOMPLETE_FACT.name), INCOMPLETE_FACT.name]:
        if name == INCOMPLETE_FACT.name:
            reader.incomplete += reader.changed()
        there = None if written is None else written.get(name)
        yield name, _dataset_files(FACTS[name], reader, order, jobs) if there is None else there


def folder_of(fact: Fact, topic: str, partition: int, broker: str) -> tuple[str, Json]:
    """(directory below the target, keys) of a replica's files."""
    return f"{fact.name}/{directory_of(topic, partition, broker)}", {"topic": topic, "partition": partition, "broker": broker}


def name_of(folder: str, number: int) -> str:
    """The path of the file with this number in a directory."""
    return f"{folder}/part-{number:05}.parquet"


def _dataset_files(fact: Fact, reader: FactReader, order: ExportOrder, jobs: int) -> Iterator[Written]:
    """The files of a dataset in the order of its parts; those of several directories or shares are written at once on `jobs`
    threads."""
    parts, label = reader.parts(fact.name), order.label
    works: Iterator[Work]
    if label is None:
        works = (
            partial(_folder_files, fact, folder, keys, [part for *_, part in of_folder], order.target)
            for (folder, keys), of_folder in groupby(_placed(fact, parts), key=lambda placed: placed[:2])
        )
    else:
        works = (
            partial(_share_files, fact, number, share, order.target, label)
            for number, share in enumerate(_shares(fact, parts, reader))
        )
    yield from _written_by(works, jobs if fact.by_replica else 1)


def _written_by(works: Iterable[Work], jobs: int) -> Iterator[Written]:
    """The files of each work, in order; they are written at once on `jobs` threads.

    Parsing, compressing and writing hold no interpreter lock.
    """
    if jobs <= 1:
        for work in works:
            yield from work(Event())
        return
    ended = Event()
    with ThreadPoolExecutor(jobs) as pool:
        ahead: deque[Future[list[Written]]] = deque()
        try:
            for work in works:
                ahead.append(pool.submit(_all_written, work, ended))
                while len(ahead) > 2 * jobs:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _all_written(work: Work, ended: Event) -> list[Written]:
    return list(work(ended))


def _placed(fact: Fact, parts: Iterable[Part]) -> Iterator[tuple[str, Json, Part]]:
    """(directory below the target, keys, part) of each; parts of one directory follow each other."""
    for part in parts:
        if not fact.by_replica:
            yield fact.name, {}, part
            continue
        assert part.topic is not None
        assert part.partition is not None
        assert part.broker is not None
        yield *folder_of(fact, part.topic, part.partition, part.broker), part


def _folder_files(
    fact: Fact, folder: str, keys: Json, parts: Iterable[Part], target: ExportPlace, ended: Event
) -> Iterator[Written]:
    """The files of one directory; raises CancelledError once the export has `ended`."""
    names = (name_of(folder, number) for number in count())
    for part in parts:
        yield from write_part(fact.own, _unless(ended, part.batches), target.file, names, keys)


def _share_files(fact: Fact, number: int, parts: list[Part], target: ExportPlace, label: Label, ended: Event) -> Iterator[Written]:
    """The files of neighbouring parts of a snapshot; raises CancelledError once the export has `ended`."""
    names = (label.file(fact.name, number, following) for following in count())
    rows = labelled(fact, label, ((_keys(part), _unless(ended, part.batches)) for part in parts))
    yield from write_part(labelled_schema(fact, label), rows, target.file, names, label.keys)


def _keys(part: Part) -> Json:
    return {"topic": part.topic, "partition": part.partition, "broker": part.broker}


def _shares(fact: Fact, parts: Iterable[Part], reader: FactReader) -> Iterator[list[Part]]:
    """Parts that go to the same files: neighbours, as many as a task would read."""
    read = fact.by_replica and fact.name != "replicas"
    weights = [plan.bytes for plan in reader.inputs.replicas] if read else []
    return packed(zip(parts, chain(weights, repeat(0)), strict=False), SPLIT_BYTES, MAX_REPLICAS)


def _unless(ended: Event, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, as long as nothing has `ended`; raises CancelledError then."""
    for batch in batches:
        if ended.is_set():
            raise CancelledError
        yield batch


def _write_dataset(fact: Fact, files: Iterable[Written], order: ExportOrder, manifest: _Manifest) -> Dataset:
    dataset = Dataset(fact.name)
    for written in files:
        _count(dataset, manifest, written)
    if not dataset.files:
        label = order.label
        written = Written(name_of(fact.name, 0), {}) if label is None else Written(label.file(fact.name, 0), label.keys)
        schema = fact.schema if label is None else labelled_schema(fact, label)
        with order.target.file(written.path) as file:
            _write_file(file, _plain(schema, written.keys), iter(()), written)
        _count(dataset, manifest, written)
    return dataset


def _count(dataset: Dataset, manifest: _Manifest, file: Written) -> None:
    dataset.rows += file.rows
    dataset.files += 1
    dataset.size_in_bytes += file.size_in_bytes
    manifest.add(file)


def _sums(name: str, files: Sequence[Written]) -> Dataset:
    return Dataset(name, sum(file.rows for file in files), len(files), sum(file.size_in_bytes for file in files))


def write_part(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], new_file: NewFile, names: Iterator[str], keys: Json
) -> Iterator[Written]:
    """Files of as many row groups as there are, called by `names`; none if there are no rows."""
    first_batch = next(batches := iter(batches), None)
    if first_batch is None:
        return
    schema = _plain(schema, keys)
    groups = cut(alike(chain([first_batch], batches)), first_batch.schema)
    for first in groups:
        written = Written(next(names), keys)
        with new_file(written.path) as file:
            _write_file(file, schema, chain([first], groups), written)
        yield written


def _plain(schema: pa.Schema, keys: Json) -> pa.Schema:
    """`schema` with the keys in its metadata and without the meanings of columns, which would outweigh the rows of small files."""
    labels = {f"kf.{name}".encode(): text(str(value)).encode() for name, value in keys.items()}
    return pa.schema([field.remove_metadata() for field in schema]).with_metadata({**(schema.metadata or {}), **labels})


def _write_file(file: HashedFile, schema: pa.Schema, groups: Iterator[pa.Table], written: Written) -> None:
    """Row groups until there are no more or the file is large enough; what was written, into `written`."""
    sink: Any = pa.PythonFile(cast("Any", file), mode="w")
    with parquet_writer(sink, schema) as write:
        for group in groups:
            write(group)
            written.rows += group.num_rows
            if file.size_in_bytes >= MAX_FILE_BYTES:
                break
    sink.flush()
    written.size_in_bytes, written.sha256 = file.size_in_bytes, file.sha256
