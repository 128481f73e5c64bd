"""Datasets as Delta and Iceberg tables: the rows of the Parquet form, one transaction a snapshot, and what is said if it fails."""

import importlib.util
import shutil
from itertools import count, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.export.append import Appending
from kafka_forensics.export.dataset_manifest import DatasetManifest, Label, labelled_schema
from kafka_forensics.export.dataset_places import LocalDataset, taken
from kafka_forensics.export.datasets import Written
from kafka_forensics.export.delta import DeltaTables
from kafka_forensics.export.iceberg import CATALOG, NAMESPACE, IcebergTables
from kafka_forensics.model.schemas import FACTS
from tests.support.datasets import FEW, FORMS, ONE, OTHER, append, read, runs, unlabelled

TABLES = FORMS[1:]


@pytest.fixture(scope="module", params=["payloads", "plain"])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same nights of two clusters in every form, one of them added twice."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    more = ["--show-payloads"] if request.param == "payloads" else []
    for form in FORMS:
        for cluster, snapshot, path in (("a", "n1", OTHER), ("a", "n2", OTHER), ("b", "n1", ONE), ("a", "n1", ONE)):
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
    assert all(len(found) == 1 for found in runs(table).values())


def test_the_files_of_all_forms_are_alike(three: Path) -> None:
    """Null and empty lists too, which one of the readers does not tell apart."""
    for fact in FACTS:
        tables = []
        for form in FORMS:
            (run,) = runs(read(three / form, fact, form)).get(("a", "n2"), [""]) or [""]
            paths = sorted((three / form / fact / run).glob("*.parquet")) if run else []
            tables.append([pq.read_table(path).drop_columns(["run"]) for path in paths])
        assert tables[0] == tables[1] == tables[2], fact


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
    for path in (ONE, OTHER, ONE):
        assert append(tmp_path, "a", "n1", *FEW, "--table-format", form, path=path) == 0
        seen.append(versions())
    assert [after - before for before, after in pairwise(seen)] == [1, 1]


@pytest.mark.parametrize("form", TABLES)
def test_a_rerun_of_other_facts_leaves_nothing_of_the_first(tmp_path: Path, form: str) -> None:
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 0
    assert append(tmp_path, "a", "n2", *FEW, "--table-format", form) == 0
    assert append(tmp_path, "a", "n1", "--fact", "replicas", "--table-format", form) == 0
    assert set(runs(read(tmp_path, "batches", form))) == {("a", "n2")}
    assert set(runs(read(tmp_path, "replicas", form))) == {("a", "n1")}


@pytest.mark.parametrize("form", TABLES)
def test_a_question_that_cannot_be_asked_leaves_all_as_it_was(tmp_path: Path, form: str) -> None:
    assert append(tmp_path / "out" / "deep", "a", "n1", "--table-format", form, path=tmp_path / "nothing") == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", TABLES)
def test_tables_that_no_manifest_knows_yet_are_replaced_too(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run that ends between its tables and its manifest, and a rerun of other facts."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    commit = Appending.commit

    def interrupted(*given: object) -> None:
        monkeypatch.setattr(DatasetManifest, "replaced", killed)
        commit(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Appending, "commit", interrupted)
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 130
    monkeypatch.undo()
    assert read(tmp_path, "batches", form).num_rows > 0
    assert append(tmp_path, "a", "n1", "--fact", "replicas", "--table-format", form) == 0
    assert read(tmp_path, "batches", form).num_rows == 0
    assert set(runs(read(tmp_path, "replicas", form))) == {("a", "n1")}


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("name", ["é ' \" \\", "a/b=c%20", "n" * 200, "2026-03-01"])
def test_names_come_back_as_they_were(tmp_path: Path, form: str, name: str) -> None:
    for path in (OTHER, ONE):
        assert append(tmp_path, name, name, *FEW, "--table-format", form, path=path) == 0
        assert append(tmp_path, name, "other", *FEW, "--table-format", form, path=path) == 0
    table = read(tmp_path, "batches", form)
    assert set(runs(table)) == {(name, name), (name, "other")}
    assert table["snapshot"].to_pylist().count(name) * 2 == table.num_rows


def opened(form: str, folder: Path) -> DeltaTables | IcebergTables:
    if form == "delta":
        return DeltaTables(str(folder), str(folder), ())
    return IcebergTables(None, None, str(folder), str(folder), ())


def written(folder: Path, label: Label, table: pa.Table) -> Written:
    """A file of findings with these columns."""
    path = folder / "findings" / label.run / "part-00000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table, path)
    return Written(f"findings/{label.run}/{path.name}", {}, table.num_rows, path.stat().st_size)


@pytest.mark.parametrize("form", TABLES)
def test_a_column_that_is_newer_is_null_in_older_rows(tmp_path: Path, form: str) -> None:
    now = labelled_schema(FACTS["findings"])
    columns: list[pa.Field[pa.DataType]] = [field for field in now if field.name != "advice"]
    tables = opened(form, tmp_path)
    for number, schema in enumerate((pa.schema(columns), now)):
        label = Label("a", f"n{number}", f"{number:032x}")
        values = {name: [getattr(label, name, None)] for name in schema.names}
        if "advice" in values:
            values["advice"] = ["do"]
        tables.commit("findings", schema, label, [written(tmp_path, label, pa.table(values, schema=schema))])
    tables.close()
    table = read(tmp_path, "findings", form)
    assert {row["snapshot"]: row["advice"] for row in table.to_pylist()} == {"n0": None, "n1": "do"}


@pytest.mark.parametrize("form", TABLES)
def test_what_a_dead_run_has_not_committed_is_taken_away(tmp_path: Path, form: str) -> None:
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 0
    (kept,) = runs(read(tmp_path, "batches", form))["a", "n1"]
    dead = "d" * 32
    for run in (dead, kept):
        (tmp_path / f"_left-{run}").touch()
    (tmp_path / "batches" / dead).mkdir()
    (tmp_path / "batches" / dead / "part-00000-000.parquet").write_bytes(b"half")
    assert append(tmp_path, "a", "n2", *FEW, "--table-format", form) == 0
    assert not (tmp_path / "batches" / dead).exists()
    assert set(runs(read(tmp_path, "batches", form))) == {("a", "n1"), ("a", "n2")}
    assert not list(tmp_path.glob("_left-*"))


@pytest.mark.parametrize("form", TABLES)
def test_a_commit_that_fails_is_a_sentence_and_nothing_stays(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert append(tmp_path, "a", "n1", *FEW, "--table-format", form) == 0
    before = {path for path in tmp_path.rglob("*.parquet") if path.parent.parent.name in FACTS}
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
    assert {path for path in tmp_path.rglob("*.parquet") if path.parent.parent.name in FACTS} == before
    assert not (tmp_path / "_UNFINISHED").exists()
    monkeypatch.undo()
    assert append(tmp_path, "a", "n2", *FEW, "--table-format", form) == 0
    assert set(runs(read(tmp_path, "batches", form))) == {("a", "n1"), ("a", "n2")}


@pytest.mark.parametrize("form", TABLES)
def test_who_is_overtaken_between_two_tables_says_that_some_have_its_rows(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW, "--table-format", form) == 0
    own, calls = LocalDataset.require_own, count()

    def overtaken(self: LocalDataset, before: bytes | None) -> None:
        if next(calls) == 2:  # once before all tables, then before each
            raise taken(self.path)
        own(self, before)

    monkeypatch.setattr(LocalDataset, "require_own", overtaken)
    assert append(target, "a", "n2", *FEW, "--table-format", form) == 2
    assert "of the tables 1 have the rows of this one already" in capsys.readouterr().err
    monkeypatch.undo()
    assert append(target, "a", "n2", *FEW, "--table-format", form) == 0
    for fact in ("batches", "findings"):
        assert set(runs(read(target, fact, form))) == {("a", "n1"), ("a", "n2")}


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
    assert set(runs(table)) == {("a", "n1"), ("a", "n2")}
    assert not (tmp_path / "out" / CATALOG).exists()


def test_tables_stay_in_the_catalogue_and_namespace_they_began_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was killed there may have files that only that catalogue knows."""
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW, "--table-format", "iceberg") == 0
    before = {path: path.read_bytes() for path in target.rglob("*.parquet")}
    capsys.readouterr()
    assert append(target, "a", "n2", *FEW, "--table-format", "iceberg", "--iceberg-namespace", "other") == 2
    said = capsys.readouterr().err
    assert "are kept in another catalogue or namespace" in said
    assert "hint: give neither --iceberg-catalog nor --iceberg-namespace" in said
    assert {path: path.read_bytes() for path in target.rglob("*.parquet")} == before
    assert set(runs(read(target, "batches", "iceberg"))) == {("a", "n1")}


@pytest.mark.parametrize("form", TABLES)
def test_a_table_that_is_lost_is_not_begun_again(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW, "--table-format", form) == 0
    lost = target / ("batches/_delta_log" if form == "delta" else CATALOG)
    lost.rename(tmp_path / "lost")
    assert append(target, "a", "n2", *FEW) == 2
    said = capsys.readouterr().err
    assert "is not there" in said or "is not in the catalogue" in said
    lost.unlink(missing_ok=True)
    (tmp_path / "lost").rename(lost)
    assert append(target, "a", "n2", *FEW) == 0
    assert set(runs(read(target, "batches", form))) == {("a", "n1"), ("a", "n2")}


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "copied"])
def test_iceberg_tables_stay_where_they_were_made(tmp_path: Path, moved: bool, capsys: pytest.CaptureFixture[str]) -> None:
    target, other = tmp_path / "out", tmp_path / "other"
    assert append(target, "a", "n1", *FEW, "--table-format", "iceberg") == 0
    (shutil.move if moved else shutil.copytree)(target, other)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert append(other, "a", "n2", *FEW) == 2
    said = capsys.readouterr().err
    assert ("are not where they were made" if moved else f"lies at file://{target}/batches") in said
    assert "hint: Iceberg's tables name whole paths" in said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_what_became_of_a_dataset_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["export", str(ONE), "--append", "--output", str(tmp_path / "out"), "--cluster", "a", "--snapshot", "n1"]
    assert outcome([*asked, *FEW, "--table-format", "delta"]) == 0
    assert "added snapshot n1 of a, run " in capsys.readouterr().err
    assert outcome([*asked, "--fact", "findings"]) == 0, "as the dataset is kept"
    said = " ".join(capsys.readouterr().err.split())
    assert "replaced snapshot n1 of a, run " in said
    assert ", which had batches too" in said


def test_a_catalogue_nobody_knows_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert append(tmp_path / "out", "a", "n1", *FEW, "--table-format", "iceberg", "--iceberg-catalog", "nowhere") == 2
    assert "hint: check the catalogue (--iceberg-catalog)" in capsys.readouterr().err
    with pytest.raises(UsageError, match="need a catalogue that does not lie there itself"):
        IcebergTables(None, None, "s3://bucket/out", "s3://bucket/out", ())
