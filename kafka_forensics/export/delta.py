"""Delta tables of a dataset, one for each fact, by delta-rs: adding a snapshot and removing its earlier files is one transaction.

The transaction names files that are written already, so no rows of a table are in memory.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kafka_forensics.errors import UsageError
from kafka_forensics.export.datasets import DatasetFile
from kafka_forensics.export.labels import SnapshotLabel
from kafka_forensics.export.places import one_line, s3_settings, table_root
from kafka_forensics.storage.remote import StorageOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

    from kafka_forensics.export.places import Storage

_ELSEWHERE: Final = "choose a directory without it, or another --table-format"
PARTITION_BY: Final = ["cluster", "snapshot"]
_S3_NAMES: Final = (
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SKIP_SIGNATURE",
    "AWS_ENDPOINT_URL",
)
"""delta-rs's names of the options of `s3_settings`."""


class DeltaTables:
    """The tables of one dataset."""

    def __init__(self, output: str, path: str, storage: "Storage") -> None:
        self._root, place, options = table_root(output, storage)
        if place is None and unquote(self._root) != self._root:
            raise UsageError(f"delta-rs cannot read below {path}, where a % reads as an escape", hint=_ELSEWHERE)
        self._options = {} if place is None else _service_options(place.scheme, options)
        self._path = path

    def exists(self, fact: str) -> bool:
        """Whether there is a table of a fact."""
        from deltalake import DeltaTable

        with self._as_usage_errors(fact):
            return DeltaTable.is_deltatable(f"{self._root}/{fact}", self._options)

    def check(self, fact: str, schema: "pa.Schema") -> None:
        """Raise UsageError if rows of this schema cannot be added to the fact's existing table."""
        self._columns(fact, self._table(fact), schema)

    def commit(self, fact: str, schema: "pa.Schema", label: SnapshotLabel, files: Sequence[DatasetFile]) -> bool:
        """Make these files the whole snapshot in one transaction; whether it had files before.

        Raises UsageError if another transaction came between.
        """
        from deltalake import CommitProperties, Schema
        from deltalake.transaction import AddAction, create_table_with_add_actions

        now = int(time.time() * 1000)
        actions = [
            AddAction(
                path=file.path.removeprefix(f"{fact}/"),
                size=file.size_in_bytes,
                partition_values=label.keys,
                modification_time=now,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        properties = CommitProperties(custom_metadata={"kafka_forensics_run": label.run})
        if not self.exists(fact):
            with self._as_usage_errors(fact):
                create_table_with_add_actions(
                    f"{self._root}/{fact}",
                    Schema.from_arrow(schema),
                    actions,
                    partition_by=PARTITION_BY,
                    storage_options=self._options,
                    commit_properties=properties,
                )
            return False
        table = self._table(fact)
        columns = self._columns(fact, table, schema)
        filters = [(name, "=", value) for name, value in label.keys.items()]
        with self._as_usage_errors(fact):
            replaces = label.keys in table.partitions()
            if actions or replaces:
                table.create_write_transaction(
                    [*actions], "overwrite", columns, PARTITION_BY, filters, commit_properties=properties
                )
        return replaces

    def close(self) -> None:
        """Nothing is open."""

    def _columns(self, fact: str, table: "DeltaTable", schema: "pa.Schema") -> "Schema":
        """The columns of the table, then those that only `schema` has. Raises UsageError if a column has another type."""
        from deltalake import Schema

        older, newer = table.schema().fields, Schema.from_arrow(schema).fields
        types = {field.name: field.type for field in newer}
        for field in older:
            if types.get(field.name, field.type) != field.type:
                raise UsageError(
                    f"column {field.name} of the Delta table {self._path}/{fact} has another type in this version of the tool",
                    hint="append to a new dataset",
                )
        names = {field.name for field in older}
        return Schema([*older, *(field for field in newer if field.name not in names)])

    def _table(self, fact: str) -> "DeltaTable":
        from deltalake import DeltaTable

        with self._as_usage_errors(fact):
            return DeltaTable(f"{self._root}/{fact}", storage_options=self._options)

    @contextmanager
    def _as_usage_errors(self, fact: str) -> Iterator[None]:
        """Turn errors of the library into UsageError."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise UsageError(
                f"the Delta table {self._path}/{fact} was changed by another writer at the same time: {one_line(error)}",
                hint="add this snapshot again",
            ) from error
        except (DeltaError, OSError) as error:
            raise UsageError(
                f"the Delta table {self._path}/{fact} cannot be read or written: {one_line(error)}",
                hint="check its _delta_log, and the rights to write there",
            ) from error


def delta_opener() -> Callable[[str, str, "Storage"], DeltaTables]:
    """A function that opens the tables of a dataset. Raises UsageError if the library is not installed."""
    if find_spec("deltalake") is None:
        raise UsageError(
            "--table-format delta needs the package deltalake, which is not installed",
            hint="pip install 'kafka-forensics[lakehouse]'",
        )
    return DeltaTables


def _service_options(scheme: str, options: StorageOptions) -> dict[str, str]:
    """The options with which delta-rs reaches the service; it takes missing ones from the environment."""
    if scheme != "s3":
        return dict(options.other)
    settings = s3_settings(options, _S3_NAMES)
    if options.endpoint is not None:
        settings["AWS_ALLOW_HTTP"] = str(options.scheme == "http").lower()
    return settings
