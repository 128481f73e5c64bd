"""Delta tables of a dataset, one a fact, by delta-rs: what is added and what it replaces are one transaction of a table.

The files are those that this tool writes itself, and the transaction names them; so nothing of a table is in memory.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kafka_forensics.errors import UsageError
from kafka_forensics.export.dataset_manifest import Label
from kafka_forensics.export.datasets import Written
from kafka_forensics.export.places import one_line, service_at
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.remote import StorageOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from kafka_forensics.export.places import Storage

_ELSEWHERE: Final = "choose a directory without it, or another --table-format"
PARTITION_BY: Final = ["cluster", "snapshot"]


class DeltaTables:
    """The tables at one place."""

    def __init__(self, output: str, path: str, storage: "Storage") -> None:
        here = local_path(output)
        self._options: dict[str, str] = {}
        if here is not None:
            self._root = os.path.abspath(here)
            if unquote(self._root) != self._root:
                raise UsageError(f"delta-rs cannot read below {path}, which has a % that reads as an escape", hint=_ELSEWHERE)
        else:
            place, options = service_at(output, storage)
            self._root = f"{place.scheme}://{place.root}"
            self._options = _service_options(place.scheme, options)
        self._path = path

    def exists(self, fact: str) -> bool:
        """Whether there is a table of a fact."""
        from deltalake import DeltaTable

        with self._explained(fact):
            return DeltaTable.is_deltatable(f"{self._root}/{fact}", self._options)

    def check(self, fact: str) -> None:
        """Raise UsageError if a table that should be there is not."""
        if not self.exists(fact):
            raise UsageError(
                f"the Delta table {self._path}/{fact}, which the dataset names, is not there", hint="put its _delta_log back"
            )

    def commit(self, fact: str, schema: "pa.Schema", label: Label, files: Sequence[Written]) -> None:
        """Let these files be all that counts of a snapshot, in one transaction. Raises UsageError if another came between."""
        from deltalake import CommitProperties, Schema
        from deltalake.transaction import AddAction, create_table_with_add_actions

        values = {"cluster": label.cluster, "snapshot": label.snapshot}
        now = int(time.time() * 1000)
        actions = [
            AddAction(
                path=file.path.removeprefix(f"{fact}/"),
                size=file.size_in_bytes,
                partition_values=values,
                modification_time=now,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        columns = Schema.from_arrow(schema)
        said = CommitProperties(custom_metadata={"kafka_forensics_run": label.run})
        uri = f"{self._root}/{fact}"
        if not self.exists(fact):
            with self._explained(fact):
                create_table_with_add_actions(
                    uri, columns, actions, partition_by=PARTITION_BY, storage_options=self._options, commit_properties=said
                )
            return
        table = self._table(fact)
        filters = [(name, "=", value) for name, value in values.items()]
        with self._explained(fact):
            if actions or values in table.partitions():
                table.create_write_transaction([*actions], "overwrite", columns, PARTITION_BY, filters, commit_properties=said)

    def holds(self, fact: str, run: str) -> bool:
        """Whether files of a run count."""
        if not self.exists(fact):
            return False
        with self._explained(fact):
            return any(f"/{run}/" in uri for uri in self._table(fact).file_uris())

    def close(self) -> None:
        """Nothing is held open."""

    def _table(self, fact: str) -> "DeltaTable":
        from deltalake import DeltaTable

        with self._explained(fact):
            return DeltaTable(f"{self._root}/{fact}", storage_options=self._options)

    @contextmanager
    def _explained(self, fact: str) -> Iterator[None]:
        """Errors of the library as UsageError."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise UsageError(
                f"the Delta table {self._path}/{fact} was changed by another at the same time: {one_line(error)}",
                hint="add this snapshot again",
            ) from error
        except (DeltaError, OSError) as error:
            raise UsageError(
                f"the Delta table {self._path}/{fact} cannot be read or written: {one_line(error)}",
                hint="check its _delta_log, and the rights to write there",
            ) from error


def opened_delta() -> Callable[[str, str, "Storage"], DeltaTables]:
    """What opens the tables of a dataset. Raises UsageError if the library is not installed."""
    if find_spec("deltalake") is None:
        raise UsageError(
            "--table-format delta needs the package deltalake, which is not installed",
            hint="pip install 'kafka-forensics[lakehouse]'",
        )
    return DeltaTables


def _service_options(scheme: str, options: StorageOptions) -> dict[str, str]:
    """How delta-rs reaches the same service; what is not given it finds in the environment."""
    if scheme != "s3":
        return dict(options.other)
    given = {
        "AWS_REGION": options.region,
        "AWS_ACCESS_KEY_ID": options.access_key,
        "AWS_SECRET_ACCESS_KEY": options.secret_key,
        "AWS_SESSION_TOKEN": options.session_token,
        "AWS_SKIP_SIGNATURE": "true" if options.anonymous else None,
    }
    if options.endpoint is not None:
        scheme_of = options.scheme or "https"
        given |= {"AWS_ENDPOINT_URL": f"{scheme_of}://{options.endpoint}", "AWS_ALLOW_HTTP": str(scheme_of == "http").lower()}
    return {name: value for name, value in given.items() if value is not None}
