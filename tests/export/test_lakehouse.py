"""Datasets as Delta and Iceberg tables: the rows of the Parquet form, one transaction a snapshot, and what is said if it fails."""

import importlib.util
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.append import AddedSnapshot, open_export
from kafka_forensics.export.datasets import DatasetFile, ExportOrder, export_facts
from kafka_forensics.export.delta import DeltaTables
from kafka_forensics.export.facts.facts import scan_for_facts
from kafka_forensics.export.iceberg import CATALOG, NAMESPACE, IcebergTables
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema
from kafka_forensics.export.views import finding_text
from kafka_forensics.model.schemas import FACTS
from tests.export.datasets import FEW, FORMS, ONE, append, keys, read, runs, unlabelled
from tests.export.exports import export

TABLES = FORMS[1:]


@pytest.fixture(scope="module", params=["payloads", pytest.param("plain", marks=pytest.mark.nightly)])
def three(request: pytest.FixtureRequest, copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same nights of two clusters in every form, one of them added twice."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    more = ["--show-payloads"] if request.param == "payloads" else []
    for form in FORMS:
        for cluster, snapshot, path in (("a", "n1", ONE), ("a", "n2", copies), ("b", "n1", ONE), ("a", "n1", ONE)):
            assert append(folder / form, cluster, snapshot, "--table-format", form, *more, path=path) == 0
    return folder


def without_lists(rows: list[str]) -> list[str]:
    """PyIceberg 0.12 reads a list that is null as an empty one; what lies in the file is null."""
    return sorted(row.replace("[]", "None") for row in rows)


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("fact", FACTS)
def test_all_forms_hold_the_same_rows(three: Path, fact: str, form: str) -> None:
    expected, table = read(three / "parquet", fact), read(three / form, fact, form)
    labels = [list(zip(*(part[name].to_pylist() for name in ("cluster", "snapshot")), strict=True)) for part in (expected, table)]
    assert sorted(labels[0]) == sorted(labels[1])
    assert set(table.schema.names) == set(expected.schema.names)
    mine, theirs = unlabelled(expected, fact), unlabelled(table, fact)
    if form == "iceberg":
        mine, theirs = without_lists(mine), without_lists(theirs)
    assert mine == theirs


@pytest.mark.parametrize("form", TABLES)
def test_a_snapshot_is_one_transaction(tmp_path: Path, form: str) -> None:
    def versions() -> int:
        if form == "delta":
            return int(DeltaTable(str(tmp_path / "batches")).version())
        catalog = load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{tmp_path / CATALOG}")
        try:
            return len(catalog.load_table((NAMESPACE, "batches")).metadata.metadata_log)
        finally:
            catalog.close()

    seen = []
    for _ in range(3):
        assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 0
        seen.append(versions())
    assert [after - before for before, after in pairwise(seen)] == [1, 1]


@pytest.mark.parametrize("form", FORMS)
def test_a_rerun_of_other_facts_leaves_nothing_of_the_first(tmp_path: Path, form: str) -> None:
    for snapshot, facts in (("n1", FEW), ("n2", FEW), ("n1", ("--fact", "replicas"))):
        assert append(tmp_path, "a", snapshot, *facts, "--table-format", form) == 0
    assert keys(read(tmp_path, "batches", form)) == {("a", "n2")}
    assert keys(read(tmp_path, "replicas", form)) == {("a", "n1")}


def opened(form: str, folder: Path) -> DeltaTables | IcebergTables:
    if form == "delta":
        return DeltaTables(str(folder), str(folder), ())
    return IcebergTables(None, None, str(folder), str(folder), ())


def commit(tables: DeltaTables | IcebergTables, folder: Path, number: int, schema: pa.Schema) -> None:
    """Add a snapshot whose one finding has these columns."""
    label = SnapshotLabel("a", f"n{number}", f"{number:032x}", in_rows=True)
    values = {name: [label.keys.get(name, "do" if name == "advice" else None)] for name in schema.names}
    path = folder / label.file("findings", 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(values, schema=schema), path)
    tables.commit("findings", schema, label, [DatasetFile(label.file("findings", 0), {}, 1, path.stat().st_size)])


COLUMNS = dataset_schema(FACTS["findings"], SnapshotLabel("a", "n1", "", in_rows=True))


@pytest.mark.parametrize("form", TABLES)
def test_columns_that_another_version_has_are_null_in_its_rows(tmp_path: Path, form: str) -> None:
    columns: list[pa.Field[pa.DataType]] = [field for field in COLUMNS if field.name != "advice"]
    tables = opened(form, tmp_path)
    for number, schema in enumerate((pa.schema(columns), COLUMNS, pa.schema(columns))):
        if number:
            tables.check("findings", schema)
        commit(tables, tmp_path, number, schema)
    tables.close()
    table = read(tmp_path, "findings", form)
    assert {row["snapshot"]: row["advice"] for row in table.to_pylist()} == {"n0": None, "n1": "do", "n2": None}


@pytest.mark.parametrize("form", TABLES)
def test_a_column_of_another_type_is_refused_before_any_read(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    columns: list[pa.Field[pa.DataType]] = [
        field if field.name != "partition" else pa.field("partition", pa.string()) for field in COLUMNS
    ]
    tables = opened(form, tmp_path)
    commit(tables, tmp_path, 0, pa.schema(columns))
    tables.close()
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert ("column partition of the Delta table" if form == "delta" else "Cannot change column type: partition") in said.err
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@pytest.mark.parametrize("form", TABLES)
def test_a_commit_that_fails_is_a_sentence_and_tables_are_as_before(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 0
    before = {fact: runs(tmp_path, fact, form) for fact in ("batches", "findings")}
    if form == "delta":
        from deltalake.exceptions import CommitFailedError

        def failing(*_: object, **__: object) -> None:
            raise CommitFailedError("a concurrent\ntransaction deleted data")

        monkeypatch.setattr(DeltaTable, "create_write_transaction", failing)
    else:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import CommitFailedException

        def failing(*_: object, **__: object) -> None:
            raise CommitFailedException("a concurrent\ntransaction deleted data")

        monkeypatch.setattr(SqlCatalog, "commit_table", failing)
    assert append(tmp_path, "a", "n2", *FEW, "--table-format", form) == 2
    err = capsys.readouterr().err
    assert "was changed by another at the same time: a concurrent transaction deleted data\n" in err
    assert "hint: add this snapshot again" in err
    assert {fact: runs(tmp_path, fact, form) for fact in before} == before
    assert not (tmp_path / "_temporary").exists()
    monkeypatch.undo()
    assert append(tmp_path, "a", "n2", *FEW, "--table-format", form) == 0
    assert keys(read(tmp_path, "batches", form)) == {("a", "n1"), ("a", "n2")}


@pytest.mark.parametrize("form", TABLES)
def test_two_runs_at_once_each_add_their_snapshot(tmp_path: Path, form: str) -> None:
    """No lock is needed: each commit is a transaction of its table."""
    with open_export(str(tmp_path), (), AddedSnapshot("a", "n0", form)) as first:
        assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 0
        reader = scan_for_facts([str(ONE)], ScanOptions(), finding_text)
        export_facts(reader, ExportOrder(first.target, ["batches", "findings"], label=first.label, commit=first.commit))
    assert keys(read(tmp_path, "batches", form)) == keys(read(tmp_path, "findings", form)) == {("a", "n0"), ("a", "n1")}
    assert not (tmp_path / "_temporary").exists()


@pytest.mark.parametrize("form", TABLES)
def test_damaged_tables_are_a_sentence(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 0
    damaged = tmp_path / CATALOG if form == "iceberg" else max((tmp_path / "batches" / "_delta_log").glob("*.json"))
    damaged.write_bytes(b"\x00" * 5000)
    assert append(tmp_path, "a", "n2", *FEW, "--table-format", form) == 2
    err = capsys.readouterr().err
    assert "cannot be read or written" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("form", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg"), ("iceberg", "sqlalchemy")])
def test_a_library_that_is_not_installed_is_named(
    tmp_path: Path, form: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    for module in ("delta", "iceberg"):
        monkeypatch.setattr(f"kafka_forensics.export.{module}.find_spec", lambda name: None if name == package else find(name))
    assert append(tmp_path / "out", "a", "n1", "--table-format", form) == 2
    err = capsys.readouterr().err
    assert f"needs the package {package}, which is not installed" in err
    assert "hint: pip install 'kafka-forensics[lakehouse]'" in err
    assert not (tmp_path / "out").exists()


def test_a_catalogue_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__HOUSE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__HOUSE__URI", f"sqlite:///{tmp_path / 'house.sqlite'}")
    own = ("--table-format", "iceberg", "--iceberg-catalog", "house", "--iceberg-namespace", "nights")
    from pyiceberg.utils import config

    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config.Config())
    for snapshot in ("n1", "n2", "n1"):
        assert append(tmp_path / "out", "a", snapshot, *FEW, *own) == 0
    catalog = load_catalog("house")
    table = catalog.load_table(("nights", "batches")).scan().to_arrow()
    catalog.close()
    assert keys(table) == {("a", "n1"), ("a", "n2")}
    assert not (tmp_path / "out" / CATALOG).exists()


@pytest.mark.parametrize("form", TABLES)
def test_tables_of_another_format_are_refused(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    (other,) = {*TABLES} - {form}
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", other) == 0
    before = sorted(tmp_path.rglob("*"))
    assert append(tmp_path, "a", "n2", *FEW, "--table-format", form) == 2
    assert f"hint: give --table-format {other}, or choose another directory" in capsys.readouterr().err
    assert append(tmp_path, "a", "n2", *FEW) == 2
    assert "holds tables of another format" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_dataset_is_refused_and_kept(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    notes, whole = tmp_path / "notes", tmp_path / "whole"
    notes.mkdir()
    (notes / "notes.txt").write_text("kept")
    assert export(whole, ONE, *FEW) == 0
    before = sorted(tmp_path.rglob("*"))
    for target, path, said in (
        (notes, ONE, "is not empty: it holds notes.txt"),
        (whole, ONE, "holds an export that was made without --append"),
        (tmp_path / "new" / "deep", tmp_path / "nothing", "no such file or directory"),
    ):
        assert append(target, "a", "n1", "--table-format", form, path=path) == 2
        assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "copied"])
def test_iceberg_tables_stay_where_they_were_made(tmp_path: Path, moved: bool, capsys: pytest.CaptureFixture[str]) -> None:
    target, other = tmp_path / "out", tmp_path / "other"
    assert append(target, "a", "n1", *FEW, "--table-format", "iceberg") == 0
    (shutil.move if moved else shutil.copytree)(target, other)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert append(other, "a", "n2", *FEW, "--table-format", "iceberg") == 2
    said = capsys.readouterr().err
    assert ("are not where they were made" if moved else f"lies at file://{target}/batches") in said
    assert "hint: Iceberg's tables name whole paths" in said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
