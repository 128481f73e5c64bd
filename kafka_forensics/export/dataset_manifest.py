"""`_dataset.json`: which files make up a dataset that snapshots are added to. Whoever reads by it sees each snapshot once.

It is written as a whole and put in the old one's place by one step, after everything it names is there. Its own digest tells
damage; a file's entry has its size and SHA-256, its rows, and the fingerprint of the schema it was written with.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any, Final, TypeVar, cast, get_origin

import pyarrow as pa

from kafka_forensics.errors import UsageError
from kafka_forensics.facts.rows import text
from kafka_forensics.model.arrow import one_word
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACTS, PARTITION_KEYS, Fact, column, maybe

FORMAT: Final = "kafka-forensics dataset"
FORMAT_VERSION: Final = 1
PARQUET: Final = "parquet"
TABLE_FORMATS: Final = (PARQUET, "delta", "iceberg")
CLUSTER: Final = column("cluster", pa.string(), "of which cluster; as it was given")
SNAPSHOT: Final = column("snapshot", pa.string(), "of which snapshot of the cluster; as it was given")
RUN: Final = column("run", pa.string(), "which run of this tool wrote the row: 32 hexadecimal digits")
LABELS: Final = [CLUSTER, SNAPSHOT, RUN]
"""The first columns of every fact in such a dataset; cluster and snapshot are its key."""
MAX_NAME_CHARACTERS: Final = 200
_FINGERPRINT_DIGITS: Final = 16
Value = TypeVar("Value")
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Label:
    """What is written into every row of a run."""

    cluster: str
    snapshot: str
    run: str

    @property
    def key(self) -> tuple[str, str]:
        """What a later run replaces."""
        return self.cluster, self.snapshot


def require_name(option: str, name: str) -> str:
    """The name of a cluster or a snapshot. Raises UsageError for one that could not be read back as it was given."""
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        hint = f"1 to {MAX_NAME_CHARACTERS} printable characters, with no space at either end"
        raise UsageError(f"{option} is no name: {name[:80]!r}", hint=hint)
    return name


def labelled_schema(fact: Fact) -> pa.Schema:
    """The columns of a fact in such a dataset: the labels before its own, all nullable, since a column may be newer than a row.

    Numbers without a sign are int64, for neither Delta nor Iceberg has any.
    """
    fields = [_relaxed(field.remove_metadata()) for field in [*LABELS, *fact.schema]]
    return pa.schema(fields).with_metadata(fact.schema.metadata)


def labelled(fact: Fact, label: Label, replicas: "Iterable[tuple[Json, Iterable[pa.RecordBatch]]]") -> Iterator[pa.RecordBatch]:
    """Rows of replicas, each as `Fact.own` says with the keys that it leaves out, as `labelled_schema` says.

    What is the same in all rows is a dictionary of one word, and what comes as a dictionary stays one.
    """
    schema = labelled_schema(fact)
    for keys, batches in replicas:
        for batch in batches:
            yield _labelled(schema, {**asdict(label), **(keys if fact.by_replica else {})}, batch)


def _labelled(schema: pa.Schema, words: Json, batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name not in words:
            array = batch.column(name)
            arrays.append(array if pa.types.is_dictionary(array.type) or array.type == kind else array.cast(kind))
        elif kind == pa.string():
            arrays.append(one_word(text(words[name]), batch.num_rows))
        else:
            number: Any = pa.scalar(words[name], kind)
            arrays.append(pa.repeat(number, batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _relaxed(field: Any) -> Any:
    kind = field.type
    if pa.types.is_unsigned_integer(kind):
        kind = pa.int64()
    elif pa.types.is_list(kind):
        kind = pa.list_(_relaxed(kind.value_field).with_name("element"))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_relaxed(part) for part in kind])
    return maybe(field.name, kind, "").remove_metadata()


def merged_schema(fact: str, older: pa.Schema | None, newer: pa.Schema) -> pa.Schema:
    """The columns of both, those that only the newer has behind the others. Raises UsageError where one has changed its type."""
    if older is None:
        return newer
    for there in older:
        if there.name in newer.names and newer.field(there.name).type != there.type:
            now = newer.field(there.name).type
            raise UsageError(
                f"column {there.name} of {fact} is {there.type} in the dataset, and {now} in this version of the tool",
                hint="append to a new dataset",
            )
    more = [field for field in newer if field.name not in older.names]
    return pa.schema([*older, *more]).with_metadata(newer.metadata)


def fingerprint(schema: pa.Schema) -> str:
    """The same for schemas with the same columns, and for no others."""
    columns = json.dumps([[field.name, str(field.type)] for field in schema])
    return hashlib.sha256(columns.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file that counts; `path` is below the dataset."""

    path: str
    fact: str
    cluster: str
    snapshot: str
    run: str
    rows: int
    bytes: int
    sha256: str
    schema: str
    """The fingerprint of the columns it has."""


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """What one run added: what made it of what, its sums by fact, and whether all of the input could be read."""

    cluster: str
    snapshot: str
    run: str
    whole: bool
    schema_version: str
    tool: Json
    options: Json
    datasets: Json
    incomplete: list[Json]


@dataclass(frozen=True, slots=True)
class DatasetManifest:
    """What is in a dataset. `version` rises by one with every snapshot that is added."""

    table_format: str
    version: int = 0
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    snapshots: tuple[SnapshotEntry, ...] = ()
    files: tuple[DatasetFile, ...] = ()
    catalog: str | None = None
    """Of Iceberg tables: what the catalogue is called, None for the one in the dataset,"""
    namespace: str | None = None
    """and where they are in it."""

    def replaced(self, entry: SnapshotEntry, files: Iterable[DatasetFile], schemas: Mapping[str, pa.Schema]) -> "DatasetManifest":
        """The next version: with the snapshot of `entry`, whatever there was of it before."""
        key = entry.cluster, entry.snapshot
        snapshots = [there for there in self.snapshots if (there.cluster, there.snapshot) != key]
        kept = [there for there in self.files if (there.cluster, there.snapshot) != key]
        every = {name: schemas.get(name, self.schemas.get(name)) for name in (*FACTS, *self.schemas)}
        return replace(
            self,
            version=self.version + 1,
            schemas={name: schema for name, schema in every.items() if schema is not None},
            snapshots=tuple(sorted([*snapshots, entry], key=lambda there: (there.cluster, there.snapshot))),
            files=tuple(sorted([*kept, *files], key=lambda there: (there.fact, there.cluster, there.snapshot, there.path))),
        )

    def files_of(self, fact: str) -> list[DatasetFile]:
        """Those that count."""
        return [file for file in self.files if file.fact == fact]

    @property
    def held(self) -> set[tuple[str, str]]:
        """(fact, run) of the files that count."""
        return {(file.fact, file.run) for file in self.files}

    def data(self) -> bytes:
        """As it is written: JSON, a line a file."""
        fields = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "table_format": self.table_format,
            "catalog": self.catalog,
            "namespace": self.namespace,
            "version": self.version,
            "schemas": {name: _spelled(schema) for name, schema in self.schemas.items()},
        }
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
        entries, files = list(map(asdict, self.snapshots)), list(map(asdict, self.files))
        lines += [f' "snapshots": {_listed(entries)}', f' "files": {_listed(files)}']
        digest = _digest({**fields, "snapshots": entries, "files": files})
        return ("{\n" + ",\n".join([*lines, f' "sha256": "{digest}"']) + "\n}\n").encode("ascii")

    @classmethod
    def read(cls, data: bytes, name: str) -> "DatasetManifest":
        """What `data` says, the manifest called `name`. Raises UsageError if it is damaged, or of a later version."""
        try:
            fields = json.loads(data)
            digest = fields.pop("sha256")
            if fields["format"] != FORMAT:
                raise _damaged(name, "it is no manifest of a dataset")
            if fields["format_version"] > FORMAT_VERSION:
                hint = "take a newer version of kafka-forensics"
                raise UsageError(f"{name} is of version {fields['format_version']}, which this version cannot read", hint=hint)
            if digest != _digest(fields):
                raise _damaged(name, "it does not have the SHA-256 that it names")
            read = cls(
                _of_type(str, fields["table_format"]),
                _of_type(int, fields["version"]),
                {fact: _schema(spelled) for fact, spelled in fields["schemas"].items()},
                tuple(_entry(SnapshotEntry, entry) for entry in fields["snapshots"]),
                tuple(_entry(DatasetFile, entry) for entry in fields["files"]),
                *(None if fields[place] is None else _of_type(str, fields[place]) for place in ("catalog", "namespace")),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, pa.ArrowException) as error:
            raise _damaged(name, "it is not the JSON of one") from error
        if read.table_format not in TABLE_FORMATS or not all(map(_is_in_its_run, read.files)):
            raise _damaged(name, "it names files that are no run's")
        return read


def _of_type(kind: type[Value], value: object) -> Value:
    """Raises TypeError for a value of another type."""
    if type(value) is not kind:
        raise TypeError(f"no {kind.__name__}")
    return value


def _entry(kind: type[Entry], entry: Json) -> Entry:
    """Raises TypeError for other fields, or values of other types."""
    made = kind(**entry)
    for declared in fields_of(cast("Any", kind)):
        _of_type(cast("type", get_origin(declared.type) or declared.type), getattr(made, declared.name))
    return made


def _is_in_its_run(file: DatasetFile) -> bool:
    """Whether a file's path is one that its run may have given it."""
    return re.fullmatch(r"[0-9a-f]{32}", file.run) is not None and (
        re.fullmatch(rf"{re.escape(file.fact)}/{file.run}/part-[0-9a-z-]+\.parquet", file.path) is not None
    )


def _damaged(name: str, why: str) -> UsageError:
    return UsageError(
        f"{name} is damaged: {why}", hint="put a copy of it back, or append to a new dataset; nothing was read or changed by it"
    )


def _listed(entries: list[Json]) -> str:
    return "[" + ",".join(f"\n  {json.dumps(entry)}" for entry in entries) + "]"


def _digest(fields: Json) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _spelled(schema: pa.Schema) -> Json:
    """For people the columns with their types, for programs all of it as Arrow has it."""
    columns = {field.name: str(field.type) for field in schema}
    return {"columns": columns, "arrow": base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")}


def _schema(spelled: Json) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(spelled["arrow"], validate=True)))


assert not {label.name for label in LABELS} & {name for fact in FACTS.values() for name in (*fact.schema.names, *PARTITION_KEYS)}
