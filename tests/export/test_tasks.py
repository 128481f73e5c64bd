"""An export in tasks gives what the local engine gives, however it is cut and however often a task is tried. No JVM runs here."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import datasets, tasks as export_tasks
from kafka_forensics.export.append import AddedSnapshot, OpenExport, open_export
from kafka_forensics.export.datasets import ExportOrder, export_facts
from kafka_forensics.export.facts import spans as facts_spans, splits as fact_splits
from kafka_forensics.export.facts.facts import FactReader, scan_for_facts
from kafka_forensics.export.facts.rows import FROM_LOGS
from kafka_forensics.export.places import open_place
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
from tests.export.datasets import FORMS, append, keys, left_over, read, runs, unlabelled
from tests.export.exports import manifest, read_back, rows
from tests.support.nightly import daily_subset

SMALL = 8192


@pytest.fixture(autouse=True, scope="module")
def _spans_are_short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts_spans, "SPAN_BYTES", SMALL)
        patch.setattr(fact_splits, "SPAN_BYTES", SMALL)
        yield


class Exporting:
    """An export whose tasks are done here, one by one: a new one, or one that adds a snapshot."""

    def __init__(self, target: Path | OpenExport, paths: list[str], split_bytes: int = SMALL) -> None:
        self.opened = target if isinstance(target, OpenExport) else OpenExport(open_place(str(target)), str(target))
        self.target = self.opened.target
        self.target.share()
        self.reader: FactReader = scan_for_facts(paths, ScanOptions(), finding_text)
        self.tasks = tasks(self.reader, list(FACTS), split_bytes)
        self.shared = export_arguments(self.reader, self.target.token, self.opened.output, work_bytes=0, label=self.opened.label)
        self.known = known_transactions(self.reader)

    def do(self, task: Task, *, strict: bool = True) -> Iterator[str]:
        return write_task(self.shared.packed(), self.known, task, strict=strict)

    def all_answers(self, *, strict: bool = True) -> list[list[str]]:
        return [list(self.do(task, strict=strict)) for task in self.tasks]

    def finish(self, answers: list[list[str]]) -> None:
        written, gaps = adopt_files(zip(self.tasks, answers, strict=True), self.target, self.opened.label)
        self.reader.incomplete += gaps
        self.target.clear()
        order = ExportOrder(self.target, list(FACTS), label=self.opened.label, commit=self.opened.commit)
        export_facts(self.reader, order, {name: written.get(name, []) for name in BY_TASKS})


@pytest.fixture(scope="module")
def here(copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the local engine writes."""
    target: Path = tmp_path_factory.mktemp("here") / "out"
    assert exports.export(target, copies, "--show-payloads") == 0
    return target


def assert_equal(there: Path, here: Path) -> None:
    assert manifest(there)["incomplete"] == manifest(here)["incomplete"]
    for fact in FACTS:
        assert rows(read_back(there, fact)) == rows(read_back(here, fact)), fact


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 30])
def test_any_size_of_tasks_gives_the_rows_of_the_local_engine(tmp_path: Path, copies: Path, here: Path, split_bytes: int) -> None:
    made = Exporting(tmp_path / "there", [str(copies)], split_bytes)
    assert (len(made.tasks) > len(BY_TASKS)) == (split_bytes == SMALL)
    made.finish(made.all_answers())
    assert_equal(tmp_path / "there", here)


def test_payloads_stay_out_unless_asked_for(tmp_path: Path, copies: Path) -> None:
    made = Exporting(tmp_path / "there", [str(copies)], 1 << 30)
    made.shared.payloads = False
    made.finish(made.all_answers())
    assert exports.export(tmp_path / "here", copies, "--fact", "records") == 0
    assert rows(read_back(tmp_path / "there", "records")) == rows(read_back(tmp_path / "here", "records"))


def test_neither_the_order_of_tasks_nor_lost_attempts_show(tmp_path: Path, copies: Path) -> None:
    exporting, two = (Exporting(tmp_path / name, [str(copies)]) for name in ("one", "two"))
    exporting.finish(exporting.all_answers())
    for task in two.tasks:
        list(two.do(task))
        next(two.do(task), None)
    assert len(names(tmp_path / "two" / "_temporary")) > len(two.tasks)
    two.finish([list(two.do(task)) for task in reversed(two.tasks)][::-1])
    contents = [
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    assert contents[0] == contents[1]
    assert names(tmp_path / "two") == {*FACTS, "_SUCCESS", "_manifest.json"}


def test_an_attempt_that_outlasts_the_end_leaves_nothing(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Exporting(tmp_path / "out", [str(copies)], 1 << 30)
    answers = made.all_answers()
    late = made.do(made.tasks[0])
    write, seen = datasets.write_part, []

    def interrupted(*given: object) -> object:
        seen.append(given)
        made.finish(answers)
        return write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(export_tasks, "write_part", interrupted)
    with pytest.raises(UsageError, match="No such file"):
        next(late)
    assert seen
    assert names(tmp_path / "out") == {*FACTS, "_SUCCESS", "_manifest.json"}


def test_a_missing_log_fails_until_the_last_attempt_says_so(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(shutil.copytree(copies, tmp_path / "copies"))
    made = Exporting(tmp_path / "there", [str(source)], 1 << 30)
    gone = max(source.glob("broker-1/*/*.log"), key=lambda path: path.stat().st_size)
    parts = FactReader.parts

    def removed(self: FactReader, name: str) -> object:
        gone.unlink(missing_ok=True)
        return parts(self, name)

    monkeypatch.setattr(FactReader, "parts", removed)
    assert exports.export(tmp_path / "here", source, "--show-payloads") == 3
    assert {task.fact for task in made.tasks if fails(made, task)} == {*FROM_LOGS, "transactions"}
    made.finish(made.all_answers(strict=False))
    assert {one["path"] for one in manifest(tmp_path / "there")["incomplete"]} == {str(gone)}
    skipped = [span for span in read_back(tmp_path / "there", "spans").to_pylist() if span["kind"] == "skipped"]
    assert [json.loads(span["detail"]) for span in skipped] == [{"reason": "could not be read"}]
    for fact in BY_TASKS:
        assert rows(read_back(tmp_path / "there", fact)) == rows(read_back(tmp_path / "here", fact)), fact


def fails(made: Exporting, task: Task) -> bool:
    try:
        list(made.do(task))
    except SourceError:
        return True
    return False


def test_a_process_that_sees_another_directory_says_so(tmp_path: Path, copies: Path) -> None:
    made = Exporting(tmp_path / "out", [str(copies)], 1 << 30)
    packed = made.shared.packed()
    assert target_problem(packed) is None
    (tmp_path / "other").mkdir()
    assert target_problem(elsewhere(made.shared, tmp_path / "other")) == f"{tmp_path / 'other'}: No such file or directory"
    assert target_problem(elsewhere(made.shared, tmp_path / "nowhere")) == f"{tmp_path / 'nowhere'}: No such file or directory"
    open_place(str(tmp_path / "another"))
    assert target_problem(elsewhere(made.shared, tmp_path / "another")) == f"{tmp_path / 'another'} is another directory here"
    shutil.rmtree(tmp_path / "out" / "_temporary")
    assert "cannot write to" in (target_problem(packed) or "")


def elsewhere(shared: ExportArguments, folder: Path) -> str:
    return replace(shared, path=str(folder)).packed()


@pytest.mark.parametrize("form", daily_subset(["parquet", "delta"], FORMS))
def test_tasks_add_a_snapshot(tmp_path: Path, copies: Path, here: Path, form: str) -> None:
    target = tmp_path / "there"
    for _ in range(2):
        with open_export(str(target), (), AddedSnapshot("a", "n1", form)) as opened:
            made = Exporting(opened, [str(copies)])
            assert target_problem(made.shared.packed()) is None
            for task in made.tasks[:5]:
                list(made.do(task))  # attempts that are lost
            made.finish(made.all_answers())
    for fact in FACTS:
        there, expected = read(target, fact, form), read_back(here, fact)
        if form != "iceberg":  # whose library reads lists that are null as empty ones
            assert unlabelled(there, fact) == unlabelled(expected, fact), fact
        assert there.num_rows == expected.num_rows
        assert len(runs(target, fact, form)) <= 1
    if form == "parquet":
        assert left_over(target) == []
    assert not list(target.rglob("_temporary"))


def interrupted(target: Path, copies: Path) -> Exporting:
    """A run whose tasks are all done when its driver is interrupted; while it runs no other can begin."""
    kept: list[Exporting] = []
    added = AddedSnapshot("a", "n1")

    def run() -> None:
        with open_export(str(target), (), added) as opened:
            kept.append(Exporting(opened, [str(copies)], 1 << 30))
            kept[0].all_answers()
            with pytest.raises(UsageError, match="another run is adding"):
                open_export(str(target), (), added).__enter__()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    return kept[0]


def test_a_driver_that_fails_leaves_what_was_there(tmp_path: Path, copies: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", path=copies) == 0
    before = {path: path.is_file() and path.read_bytes() for path in target.rglob("*")}
    made = interrupted(target, copies)
    assert {path: path.is_file() and path.read_bytes() for path in target.rglob("*")} == before
    with pytest.raises(UsageError, match="No such file"):
        list(made.do(made.tasks[0]))


def test_a_worker_of_a_run_that_has_ended_writes_nothing(tmp_path: Path, copies: Path) -> None:
    target = tmp_path / "out"
    made = interrupted(target, copies)
    assert not target.exists()
    with open_export(str(target), (), AddedSnapshot("a", "n2")) as opened:
        with pytest.raises(UsageError, match="No such file"):
            list(made.do(made.tasks[0]))
        again = Exporting(opened, [str(copies)], 1 << 30)
        again.finish(again.all_answers())
    assert keys(read(target, "batches")) == {("a", "n2")}
    assert left_over(target) == []
