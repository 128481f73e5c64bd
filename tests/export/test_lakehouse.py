"""Delta and Iceberg tables have the rows of the Parquet dataset, one transaction a snapshot, and clear errors."""

import importlib.util
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.datasets import DatasetFile, ExportOrder, export_facts
from kafka_forensics.export.delta import DeltaTables
from kafka_forensics.export.facts.facts import scan_for_facts
from kafka_forensics.export.iceberg import CATALOG, NAMESPACE, IcebergTables
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema
from kafka_forensics.export.opening import TABLE_FORMATS, SnapshotOptions, open_export
from kafka_forensics.export.views import finding_text
from kafka_forensics.model.schemas import FACTS
from tests.export.datasets import SILENT_DIVERGENCE, TWO_FACTS, append, read, rows_without_labels, run_ids, snapshots_in
from tests.export.exports import export

TRANSACTIONAL = TABLE_FORMATS[1:]


@pytest.fixture(scope="module", params=["payloads", pytest.param("plain", marks=pytest.mark.nightly)])
def datasets(request: pytest.FixtureRequest, copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Equal snapshots of two clusters in every table format, one of them added twice."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    options = ["--show-payloads"] if request.param == "payloads" else []
    for table_format in TABLE_FORMATS:
        for cluster, snapshot, path in (
            ("a", "n1", SILENT_DIVERGENCE),
            ("a", "n2", copies),
            ("b", "n1", SILENT_DIVERGENCE),
            ("a", "n1", SILENT_DIVERGENCE),
        ):
            assert append(folder / table_format, cluster, snapshot, "--table-format", table_format, *options, path=path) == 0
    return folder


def without_lists(rows: list[str]) -> list[str]:
    """Rows with empty lists as null, because PyIceberg 0.12 reads a null list as an empty one."""
    return sorted(row.replace("[]", "None") for row in rows)


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
@pytest.mark.parametrize("fact", FACTS)
def test_all_table_formats_have_the_same_rows(datasets: Path, fact: str, table_format: str) -> None:
    expected, table = read(datasets / "parquet", fact), read(datasets / table_format, fact, table_format)
    labels = [list(zip(*(part[name].to_pylist() for name in ("cluster", "snapshot")), strict=True)) for part in (expected, table)]
    assert sorted(labels[0]) == sorted(labels[1])
    assert set(table.schema.names) == set(expected.schema.names)
    expected_rows, found_rows = rows_without_labels(expected, fact), rows_without_labels(table, fact)
    if table_format == "iceberg":
        expected_rows, found_rows = without_lists(expected_rows), without_lists(found_rows)
    assert expected_rows == found_rows


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
def test_a_snapshot_is_one_transaction(tmp_path: Path, table_format: str) -> None:
    def versions() -> int:
        if table_format == "delta":
            return int(DeltaTable(str(tmp_path / "batches")).version())
        catalog = load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{tmp_path / CATALOG}")
        try:
            return len(catalog.load_table((NAMESPACE, "batches")).metadata.metadata_log)
        finally:
            catalog.close()

    numbers = []
    for _ in range(3):
        assert append(tmp_path, "a", "n1", *TWO_FACTS, "--table-format", table_format) == 0
        numbers.append(versions())
    assert [after - before for before, after in pairwise(numbers)] == [1, 1]


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_rerun_with_other_facts_removes_the_rows_of_the_first_run(tmp_path: Path, table_format: str) -> None:
    for snapshot, facts in (("n1", TWO_FACTS), ("n2", TWO_FACTS), ("n1", ("--fact", "replicas"))):
        assert append(tmp_path, "a", snapshot, *facts, "--table-format", table_format) == 0
    assert snapshots_in(read(tmp_path, "batches", table_format)) == {("a", "n2")}
    assert snapshots_in(read(tmp_path, "replicas", table_format)) == {("a", "n1")}


def open_tables(table_format: str, folder: Path) -> DeltaTables | IcebergTables:
    if table_format == "delta":
        return DeltaTables(str(folder), str(folder), ())
    return IcebergTables(None, None, str(folder), str(folder), ())


def commit(tables: DeltaTables | IcebergTables, folder: Path, number: int, schema: pa.Schema) -> None:
    """Add a snapshot with one finding that has these columns."""
    label = SnapshotLabel("a", f"n{number}", f"{number:032x}", in_rows=True)
    values = {name: [label.keys.get(name, "do" if name == "advice" else None)] for name in schema.names}
    path = folder / label.file("findings", 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(values, schema=schema), path)
    tables.commit("findings", schema, label, [DatasetFile(label.file("findings", 0), rows=1, size_in_bytes=path.stat().st_size)])


COLUMNS = dataset_schema(FACTS["findings"], SnapshotLabel("a", "n1", "", in_rows=True))


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
def test_a_column_that_an_older_version_lacks_is_null_in_its_rows(tmp_path: Path, table_format: str) -> None:
    columns: list[pa.Field[pa.DataType]] = [field for field in COLUMNS if field.name != "advice"]
    tables = open_tables(table_format, tmp_path)
    for number, schema in enumerate((pa.schema(columns), COLUMNS, pa.schema(columns))):
        if number:
            tables.check("findings", schema)
        commit(tables, tmp_path, number, schema)
    tables.close()
    table = read(tmp_path, "findings", table_format)
    assert {row["snapshot"]: row["advice"] for row in table.to_pylist()} == {"n0": None, "n1": "do", "n2": None}


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
def test_a_column_of_another_type_is_refused_before_logs_are_read(
    tmp_path: Path, table_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    columns: list[pa.Field[pa.DataType]] = [
        field if field.name != "partition" else pa.field("partition", pa.string()) for field in COLUMNS
    ]
    tables = open_tables(table_format, tmp_path)
    commit(tables, tmp_path, 0, pa.schema(columns))
    tables.close()
    assert append(tmp_path, "a", "n1", *TWO_FACTS, "--table-format", table_format) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        "column partition of the Delta table" if table_format == "delta" else "Cannot change column type: partition"
    ) in captured.err
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
def test_a_failed_commit_is_reported_and_leaves_the_tables_unchanged(
    tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert append(tmp_path, "a", "n1", *TWO_FACTS, "--table-format", table_format) == 0
    before = {fact: run_ids(tmp_path, fact, table_format) for fact in ("batches", "findings")}
    if table_format == "delta":
        from deltalake.exceptions import CommitFailedError

        def fail(*_: object, **__: object) -> None:
            raise CommitFailedError("a concurrent\ntransaction deleted data")

        monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    else:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import CommitFailedException

        def fail(*_: object, **__: object) -> None:
            raise CommitFailedException("a concurrent\ntransaction deleted data")

        monkeypatch.setattr(SqlCatalog, "commit_table", fail)
    assert append(tmp_path, "a", "n2", *TWO_FACTS, "--table-format", table_format) == 2
    err = capsys.readouterr().err
    assert "was changed by another writer at the same time: a concurrent transaction deleted data\n" in err
    assert "hint: add this snapshot again" in err
    assert {fact: run_ids(tmp_path, fact, table_format) for fact in before} == before
    assert not (tmp_path / "_temporary").exists()
    monkeypatch.undo()
    assert append(tmp_path, "a", "n2", *TWO_FACTS, "--table-format", table_format) == 0
    assert snapshots_in(read(tmp_path, "batches", table_format)) == {("a", "n1"), ("a", "n2")}


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
def test_concurrent_runs_add_their_snapshots(tmp_path: Path, table_format: str) -> None:
    """Runs take no lock: each commit is a transaction of its table."""
    with open_export(str(tmp_path), (), SnapshotOptions("a", "n0", append=True, table_format=table_format), Inputs()) as first:
        assert append(tmp_path, "a", "n1", *TWO_FACTS, "--table-format", table_format) == 0
        reader = scan_for_facts(gather([str(SILENT_DIVERGENCE)], ScanOptions()), ScanOptions(), finding_text)
        export_facts(reader, ExportOrder(first, ["batches", "findings"]))
    assert (
        snapshots_in(read(tmp_path, "batches", table_format))
        == snapshots_in(read(tmp_path, "findings", table_format))
        == {("a", "n0"), ("a", "n1")}
    )
    assert not (tmp_path / "_temporary").exists()


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
def test_damaged_tables_are_reported_without_a_traceback(
    tmp_path: Path, table_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert append(tmp_path, "a", "n1", *TWO_FACTS, "--table-format", table_format) == 0
    damaged = tmp_path / CATALOG if table_format == "iceberg" else max((tmp_path / "batches" / "_delta_log").glob("*.json"))
    damaged.write_bytes(b"\x00" * 5000)
    assert append(tmp_path, "a", "n2", *TWO_FACTS, "--table-format", table_format) == 2
    err = capsys.readouterr().err
    assert "cannot be read or written" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("table_format", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg"), ("iceberg", "sqlalchemy")])
def test_a_missing_library_is_named(
    tmp_path: Path, table_format: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    for module in ("delta", "iceberg"):
        monkeypatch.setattr(f"kafka_forensics.export.{module}.find_spec", lambda name: None if name == package else find(name))
    assert append(tmp_path / "out", "a", "n1", "--table-format", table_format) == 2
    err = capsys.readouterr().err
    assert f"needs the package {package}, which is not installed" in err
    assert "hint: pip install 'kafka-forensics[lakehouse]'" in err
    assert not (tmp_path / "out").exists()


def test_a_configured_iceberg_catalog_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__HOUSE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__HOUSE__URI", f"sqlite:///{tmp_path / 'house.sqlite'}")
    options = ("--table-format", "iceberg", "--iceberg-catalog", "house", "--iceberg-namespace", "nights")
    from pyiceberg.utils import config

    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config.Config())
    for snapshot in ("n1", "n2", "n1"):
        assert append(tmp_path / "out", "a", snapshot, *TWO_FACTS, *options) == 0
    catalog = load_catalog("house")
    table = catalog.load_table(("nights", "batches")).scan().to_arrow()
    catalog.close()
    assert snapshots_in(table) == {("a", "n1"), ("a", "n2")}
    assert not (tmp_path / "out" / CATALOG).exists()


@pytest.mark.parametrize("table_format", TRANSACTIONAL)
def test_tables_of_another_format_are_refused(tmp_path: Path, table_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    (other,) = {*TRANSACTIONAL} - {table_format}
    assert append(tmp_path, "a", "n1", *TWO_FACTS, "--table-format", other) == 0
    before = sorted(tmp_path.rglob("*"))
    assert append(tmp_path, "a", "n2", *TWO_FACTS, "--table-format", table_format) == 2
    assert f"hint: give --table-format {other}, or choose another directory" in capsys.readouterr().err
    assert append(tmp_path, "a", "n2", *TWO_FACTS) == 2
    assert "holds tables or an export of another layout" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_directory_without_a_dataset_is_refused_unchanged(
    tmp_path: Path, table_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, whole = tmp_path / "notes", tmp_path / "whole"
    notes.mkdir()
    (notes / "notes.txt").write_text("kept")
    assert export(whole, SILENT_DIVERGENCE, *TWO_FACTS) == 0
    before = sorted(tmp_path.rglob("*"))
    for target, path, message in (
        (notes, SILENT_DIVERGENCE, "is not empty: it holds notes.txt"),
        *(((whole, SILENT_DIVERGENCE, "holds snapshots as Parquet files"),) if table_format != "parquet" else ()),
        (tmp_path / "new" / "deep", tmp_path / "nothing", "no such file or directory"),
    ):
        assert append(target, "a", "n1", "--table-format", table_format, path=path) == 2
        assert message in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "copied"])
def test_moved_iceberg_tables_are_refused(tmp_path: Path, moved: bool, capsys: pytest.CaptureFixture[str]) -> None:
    target, other = tmp_path / "out", tmp_path / "other"
    assert append(target, "a", "n1", *TWO_FACTS, "--table-format", "iceberg") == 0
    (shutil.move if moved else shutil.copytree)(target, other)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert append(other, "a", "n2", *TWO_FACTS, "--table-format", "iceberg") == 2
    err = capsys.readouterr().err
    assert ("are not where they were created" if moved else f"lies at file://{target}/batches") in err
    assert "hint: Iceberg tables store absolute paths" in err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
