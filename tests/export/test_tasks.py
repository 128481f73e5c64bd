"""An export in tasks gives the rows of the local engine for any division and any number of attempts. No JVM runs here."""

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import datasets, tasks as export_tasks
from kafka_forensics.export.datasets import ExportOrder, export_facts
from kafka_forensics.export.facts import spans as facts_spans, splits as fact_splits
from kafka_forensics.export.facts.facts import FactReader, scan_for_facts
from kafka_forensics.export.facts.rows import FROM_LOGS
from kafka_forensics.export.opening import TABLE_FORMATS, OpenExport, SnapshotOptions, open_export
from kafka_forensics.export.target import Target
from kafka_forensics.export.tasks import (
    BY_TASKS,
    ExportArguments,
    Task,
    adopt_files,
    export_arguments,
    known_transactions,
    target_problem,
    tasks,
    write_task,
)
from kafka_forensics.export.views import finding_text
from kafka_forensics.model.schemas import FACTS
from tests.export import exports
from tests.export.datasets import append, leftover_paths, read, rows_without_labels, run_ids, snapshots_in
from tests.export.exports import contents, manifest, read_back, rows, snapshot_of
from tests.support.nightly import daily_subset
from tests.support.remote_log import LAYOUTS, put_cluster

SMALL = 8192


@pytest.fixture(autouse=True, scope="module")
def _short_spans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts_spans, "SPAN_BYTES", SMALL)
        patch.setattr(fact_splits, "SPAN_BYTES", SMALL)
        yield


class TaskExport:
    """An export whose tasks this process runs one by one: a new export, or one that adds a snapshot."""

    def __init__(self, target: Path | OpenExport, paths: list[str], split_bytes: int = SMALL) -> None:
        self.opening: AbstractContextManager[OpenExport] = (
            nullcontext(target) if isinstance(target, OpenExport) else open_export(str(target), (), SnapshotOptions(), Inputs())
        )
        self.opened = self.opening.__enter__()
        self.target = self.opened.target
        self.target.share()
        self.reader: FactReader = scan_for_facts(gather(paths, ScanOptions()), ScanOptions(), finding_text)
        self.reader.payloads = True
        self.tasks = tasks(self.reader, list(FACTS), split_bytes)
        self.shared = export_arguments(self.reader, self.target.token, self.opened.output, self.opened.label, work_bytes=0)
        self.known = known_transactions(self.reader)

    def run_task(self, task: Task, *, strict: bool = True) -> Iterator[str]:
        return write_task(self.shared.to_json(), self.known, task, strict=strict)

    def run_all(self, *, strict: bool = True) -> list[list[str]]:
        return [list(self.run_task(task, strict=strict)) for task in self.tasks]

    def finish(self, outputs: list[list[str]]) -> None:
        written, gaps = adopt_files(zip(self.tasks, outputs, strict=True), self.target, self.opened.label)
        self.reader.incomplete += gaps
        self.target.clear()
        order = ExportOrder(self.opened, list(FACTS))
        export_facts(self.reader, order, {name: written.get(name, []) for name in BY_TASKS})
        self.opening.__exit__(None, None, None)


@pytest.fixture(scope="module")
def local_export(copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export by the local engine."""
    target: Path = tmp_path_factory.mktemp("local") / "out"
    assert exports.export(target, copies, "--show-payloads") == 0
    return target


def assert_equal(by_tasks: Path, local_export: Path) -> None:
    assert manifest(by_tasks)["incomplete"] == manifest(local_export)["incomplete"]
    for fact in FACTS:
        assert rows(read_back(by_tasks, fact)) == rows(read_back(local_export, fact)), fact


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 30])
def test_tasks_of_any_size_give_the_rows_of_the_local_engine(
    tmp_path: Path, copies: Path, local_export: Path, split_bytes: int
) -> None:
    export = TaskExport(tmp_path / "tasks", [str(copies)], split_bytes)
    assert (len(export.tasks) > len(BY_TASKS)) == (split_bytes == SMALL)
    export.finish(export.run_all())
    assert_equal(tmp_path / "tasks", local_export)


def test_payloads_are_null_unless_requested(tmp_path: Path, copies: Path) -> None:
    export = TaskExport(tmp_path / "tasks", [str(copies)], 1 << 30)
    export.shared.payloads = False
    export.finish(export.run_all())
    assert exports.export(tmp_path / "local", copies, "--fact", "records") == 0
    assert rows(read_back(tmp_path / "tasks", "records")) == rows(read_back(tmp_path / "local", "records"))


def test_order_of_tasks_and_lost_attempts_do_not_change_the_export(tmp_path: Path, copies: Path) -> None:
    first, second = (TaskExport(tmp_path / name, [str(copies)]) for name in ("first", "second"))
    first.finish(first.run_all())
    for task in second.tasks:
        list(second.run_task(task))
        next(second.run_task(task), None)
    assert len(names(Path(second.opened.output) / "_temporary")) > len(second.tasks)
    second.finish([list(second.run_task(task)) for task in reversed(second.tasks)][::-1])
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    assert names(snapshot_of(tmp_path / "second")) == {*FACTS, "_SUCCESS", "manifest.json"}


def test_an_attempt_that_outlives_the_export_writes_nothing(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = TaskExport(tmp_path / "out", [str(copies)], 1 << 30)
    outputs = export.run_all()
    late = export.run_task(export.tasks[0])
    write, calls = datasets.write_part, []

    def finish_first(*arguments: object) -> object:
        calls.append(arguments)
        export.finish(outputs)
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(export_tasks, "write_part", finish_first)
    with pytest.raises(UsageError, match="No such file"):
        next(late)
    assert calls
    assert names(snapshot_of(tmp_path / "out")) == {*FACTS, "_SUCCESS", "manifest.json"}


def test_a_missing_log_fails_attempts_and_the_last_one_reports_it(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(shutil.copytree(copies, tmp_path / "copies"))
    export = TaskExport(tmp_path / "tasks", [str(source)], 1 << 30)
    missing = max(source.glob("broker-1/*/*.log"), key=lambda path: path.stat().st_size)
    parts = FactReader.parts

    def remove_log(self: FactReader, name: str) -> object:
        missing.unlink(missing_ok=True)
        return parts(self, name)

    monkeypatch.setattr(FactReader, "parts", remove_log)
    assert exports.export(tmp_path / "local", source, "--show-payloads") == 3
    assert {task.fact for task in export.tasks if fails(export, task)} == {*FROM_LOGS, "transactions"}
    export.finish(export.run_all(strict=False))
    assert {gap["path"] for gap in manifest(tmp_path / "tasks")["incomplete"]} == {str(missing)}
    skipped = [span for span in read_back(tmp_path / "tasks", "spans").to_pylist() if span["kind"] == "skipped"]
    assert [json.loads(span["detail"]) for span in skipped] == [{"reason": "could not be read"}]
    for fact in BY_TASKS:
        assert rows(read_back(tmp_path / "tasks", fact)) == rows(read_back(tmp_path / "local", fact)), fact


def fails(export: TaskExport, task: Task) -> bool:
    try:
        list(export.run_task(task))
    except SourceError:
        return True
    return False


def test_a_process_that_sees_another_directory_reports_it(tmp_path: Path, copies: Path) -> None:
    export = TaskExport(tmp_path / "out", [str(copies)], 1 << 30)
    packed = export.shared.to_json()
    assert target_problem(packed) is None
    (tmp_path / "other").mkdir()
    assert target_problem(elsewhere(export.shared, tmp_path / "other")) == f"{tmp_path / 'other'}: No such file or directory"
    assert target_problem(elsewhere(export.shared, tmp_path / "nowhere")) == f"{tmp_path / 'nowhere'}: No such file or directory"
    Target.open(str(tmp_path / "another"))
    assert target_problem(elsewhere(export.shared, tmp_path / "another")) == f"{tmp_path / 'another'} is a different directory here"
    shutil.rmtree(Path(export.opened.output) / "_temporary")
    assert "cannot write to" in (target_problem(packed) or "")


def elsewhere(shared: ExportArguments, folder: Path) -> str:
    return replace(shared, path=str(folder)).to_json()


@pytest.mark.parametrize("table_format", daily_subset(["parquet", "delta"], TABLE_FORMATS))
def test_tasks_add_a_snapshot(tmp_path: Path, copies: Path, local_export: Path, table_format: str) -> None:
    target = tmp_path / "tasks"
    for _ in range(2):
        with open_export(str(target), (), SnapshotOptions("a", "n1", append=True, table_format=table_format), Inputs()) as opened:
            export = TaskExport(opened, [str(copies)])
            assert target_problem(export.shared.to_json()) is None
            for task in export.tasks[:5]:
                list(export.run_task(task))  # lost attempts
            export.finish(export.run_all())
    for fact in FACTS:
        added, expected = read(target, fact, table_format), read_back(local_export, fact)
        if table_format != "iceberg":  # PyIceberg reads null lists as empty lists
            assert rows_without_labels(added, fact) == rows_without_labels(expected, fact), fact
        assert added.num_rows == expected.num_rows
        assert len(run_ids(target, fact, table_format)) <= 1
    if table_format == "parquet":
        assert leftover_paths(target) == []
    assert not list(target.rglob("_temporary"))


def interrupted_export(target: Path, copies: Path) -> TaskExport:
    """A run that is interrupted after all its tasks; no other run can start before."""
    started: list[TaskExport] = []
    added = SnapshotOptions("a", "n1", append=True)

    def run() -> None:
        with open_export(str(target), (), added, Inputs()) as opened:
            started.append(TaskExport(opened, [str(copies)], 1 << 30))
            started[0].run_all()
            with pytest.raises(UsageError, match="another run is adding"):
                open_export(str(target), (), added, Inputs()).__enter__()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    return started[0]


def test_an_interrupted_rerun_leaves_the_old_snapshot(tmp_path: Path, copies: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", path=copies) == 0
    before = {path: path.is_file() and path.read_bytes() for path in target.rglob("*")}
    export = interrupted_export(target, copies)
    assert {path: path.is_file() and path.read_bytes() for path in target.rglob("*")} == before
    with pytest.raises(UsageError, match="No such file"):
        list(export.run_task(export.tasks[0]))


def test_a_task_of_an_ended_run_writes_nothing(tmp_path: Path, copies: Path) -> None:
    target = tmp_path / "out"
    export = interrupted_export(target, copies)
    assert not target.exists()
    with open_export(str(target), (), SnapshotOptions("a", "n2", append=True), Inputs()) as opened:
        with pytest.raises(UsageError, match="No such file"):
            list(export.run_task(export.tasks[0]))
        again = TaskExport(opened, [str(copies)], 1 << 30)
        again.finish(again.run_all())
    assert snapshots_in(read(target, "batches")) == {("a", "n2")}
    assert leftover_paths(target) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tasks_read_remote_stores(tmp_path: Path, layout: str) -> None:
    copies = tmp_path / "copies"
    put_cluster(copies, layout=layout)
    assert exports.export(tmp_path / "local", copies, "--show-payloads") == 0
    export = TaskExport(tmp_path / "tasks", [str(copies)], split_bytes=300)
    export.finish(export.run_all())
    assert_equal(tmp_path / "tasks", tmp_path / "local")
    assert sum(row["broker"] == "remote" for row in read_back(tmp_path / "tasks", "records").to_pylist()) == 20
