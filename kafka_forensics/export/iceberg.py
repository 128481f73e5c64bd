"""Iceberg tables of a dataset, one a fact, by PyIceberg: adding a snapshot and removing its earlier files is one transaction.

The transaction names files that are written already, so no rows of a table are in memory. The catalogue is an SQLite file in the
dataset, or one that PyIceberg's configuration names.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kafka_forensics.errors import UsageError
from kafka_forensics.export.datasets import DatasetFile
from kafka_forensics.export.labels import SnapshotLabel
from kafka_forensics.export.places import one_line, s3_settings, table_root

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from kafka_forensics.export.places import Storage

CATALOG: Final = "_catalog.sqlite"
"""The catalogue file beside the tables."""
NAMESPACE: Final = "kafka_forensics"
_S3_NAMES: Final = (
    "s3.region",
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
    "s3.anonymous",
    "s3.endpoint",
)
"""PyIceberg's names of the options of `s3_settings`; it takes missing ones from the environment."""
_BOUND: Final = "Iceberg tables store absolute paths, so their directory cannot be moved or copied: append where they were created"


class IcebergTables:
    """The tables of one dataset, in one namespace of a catalogue."""

    def __init__(self, catalog: str | None, namespace: str | None, output: str, path: str, storage: "Storage") -> None:
        self._namespace = namespace or NAMESPACE
        self._path = path
        self._name = catalog or NAMESPACE
        self._file: str | None = None
        """Of the catalogue in the dataset; None for another catalogue."""
        self._opened: Catalog | None = None
        folder, place, options = table_root(output, storage)
        self._root = f"file://{folder}" if place is None and quote(folder) == folder else folder
        self._properties: dict[str, str | None] = {}
        if place is not None and place.scheme == "s3":
            self._properties = {**s3_settings(options, _S3_NAMES)}
        if catalog is None:
            if place is not None:
                raise UsageError(
                    f"Iceberg tables at {path} need a catalogue outside that directory",
                    hint="name a catalogue of PyIceberg's configuration with --iceberg-catalog",
                )
            self._file = os.path.join(folder, CATALOG)
            self._properties = {"type": "sql", "uri": f"sqlite:///{quote(self._file)}", "warehouse": self._root}
        else:
            with self._as_usage_errors("catalogue"):
                self._opened = self._open()

    def exists(self, fact: str) -> bool:
        """Whether there is a table of a fact."""
        if self._opened is None and self._file is not None and not os.path.lexists(self._file):
            return False  # the first table creates it
        with self._as_usage_errors(fact):
            return self._catalog().table_exists((self._namespace, fact))

    def check(self, fact: str, schema: "pa.Schema") -> None:
        """Raise UsageError if rows of this schema cannot be added to the fact's existing table, or its files are elsewhere."""
        with self._as_usage_errors(fact):
            table = self._catalog().load_table((self._namespace, fact))
            table.update_schema().union_by_name(schema)  # nothing is committed
        if (location := table.location().rstrip("/")) != f"{self._root}/{fact}":
            raise UsageError(f"the Iceberg table of {self._path}/{fact} lies at {location}", hint=_BOUND)

    def commit(self, fact: str, schema: "pa.Schema", label: SnapshotLabel, files: Sequence[DatasetFile]) -> bool:
        """Make these files the whole snapshot in one transaction; whether it had files before.

        Raises UsageError if another transaction came between.
        """
        from pyiceberg.expressions import And

        of_snapshot = And(_equal("cluster", label.cluster), _equal("snapshot", label.snapshot))
        paths = [f"{self._root}/{file.path}" for file in files]
        properties = {"kafka_forensics.run": label.run}
        identifier = (self._namespace, fact)
        with self._as_usage_errors(fact):
            catalog = self._catalog()
            if not catalog.table_exists(identifier):
                catalog.create_namespace_if_not_exists(self._namespace)
                with catalog.create_table_transaction(identifier, schema, f"{self._root}/{fact}") as creation:
                    with creation.update_spec() as spec:
                        spec.add_identity("cluster")
                        spec.add_identity("snapshot")
                    if paths:
                        creation.add_files(paths, properties, check_duplicate_files=False)
                return False
            table = catalog.load_table(identifier)
            with table.transaction() as transaction:
                with transaction.update_schema() as columns:
                    columns.union_by_name(schema)
                replaces = any(True for _ in table.scan(row_filter=of_snapshot).plan_files())
                if replaces:
                    transaction.delete(of_snapshot, properties)
                if paths:
                    transaction.add_files(paths, properties, check_duplicate_files=False)
            return replaces

    def close(self) -> None:
        """Close the catalogue."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _catalog(self) -> "Catalog":
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> "Catalog":
        from pyiceberg.catalog import load_catalog

        return load_catalog(self._name, **self._properties)

    @contextmanager
    def _as_usage_errors(self, what: str) -> Iterator[None]:
        """Turn errors of the library into UsageError."""
        from pyiceberg import exceptions
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (exceptions.CommitFailedException, exceptions.TableAlreadyExistsError) as error:
            raise UsageError(
                f"the Iceberg table {self._namespace}.{what} was changed by another writer at the same time: {one_line(error)}",
                hint="add this snapshot again",
            ) from error
        except FileNotFoundError as error:
            raise UsageError(
                f"the Iceberg tables of {self._path} are not where they were created: {one_line(error)}", hint=_BOUND
            ) from error
        except (
            exceptions.RESTError,
            exceptions.NoSuchTableError,
            exceptions.NoSuchNamespaceError,
            exceptions.ValidationError,
            exceptions.ValidationException,
            SQLAlchemyError,
            OSError,
            ValueError,
        ) as error:
            raise UsageError(
                f"the Iceberg tables of {self._path} cannot be read or written ({what}): {one_line(error)}",
                hint="check the catalogue (--iceberg-catalog), and the rights to write there",
            ) from error


def iceberg_opener(catalog: str | None, namespace: str | None) -> Callable[[str, str, "Storage"], IcebergTables]:
    """A function that opens the tables of a dataset. Raises UsageError if the library is not installed."""
    for package in ("pyiceberg", "sqlalchemy"):
        if find_spec(package) is None:
            raise UsageError(
                f"--table-format iceberg needs the package {package}, which is not installed",
                hint="pip install 'kafka-forensics[lakehouse]'",
            )
    return partial(IcebergTables, catalog, namespace)


def _equal(name: str, value: str) -> Any:
    """Rows in which a column has a value; the library's types describe only how it reads the expression from JSON."""
    from pyiceberg.expressions import EqualTo

    equal: Any = EqualTo
    return equal(name, value)
