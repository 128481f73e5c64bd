"""An export in tasks gives what the local engine gives, however it is cut and however often a task is tried. No JVM runs here."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import datasets
from kafka_forensics.export import tasks as export_tasks
from kafka_forensics.export.datasets import ExportOrder, export_facts
from kafka_forensics.export.places import open_place
from kafka_forensics.export.tasks import BY_TASKS, ExportCommon, Task, common, known_transactions, look, tasks, told, write_task
from kafka_forensics.export.views import words
from kafka_forensics.facts import spans as facts_spans
from kafka_forensics.facts import splits as fact_splits
from kafka_forensics.facts.facts import FactReader, scan_for_facts
from kafka_forensics.facts.rows import FROM_LOGS
from kafka_forensics.model.schemas import FACTS
from tests.support import exports
from tests.support.exports import SAMPLES, manifest, read_back, rows
from tests.support.gallery_replicas import HOSTILE, hostile

ONE = SAMPLES / "unclean-election"
SMALL = 2048


@pytest.fixture(autouse=True)
def _spans_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_spans, "SPAN_BYTES", SMALL)
    monkeypatch.setattr(fact_splits, "SPAN_BYTES", SMALL)


class Exporting:
    """An export whose tasks are done here, one by one."""

    def __init__(self, target: Path, paths: list[str], split_bytes: int = SMALL) -> None:
        self.target = open_place(str(target), paths)
        self.target.share()
        self.reader: FactReader = scan_for_facts(paths, ScanOptions(), words)
        self.tasks = tasks(self.reader, list(FACTS), split_bytes)
        self.shared = common(self.reader, self.target.token, str(target), work_bytes=0)
        self.known = known_transactions(self.reader)

    def do(self, task: Task, *, strict: bool = True) -> Iterator[str]:
        return write_task(self.shared.packed(), self.known, task, strict=strict)

    def finish(self, answers: list[list[str]]) -> None:
        written, gaps = told(zip(self.tasks, answers, strict=True), self.target)
        self.reader.incomplete += gaps
        self.target.clear()
        export_facts(self.reader, ExportOrder(self.target, list(FACTS)), {name: written.get(name, []) for name in BY_TASKS})


def assert_equal(there: Path, here: Path) -> None:
    assert manifest(there)["incomplete"] == manifest(here)["incomplete"]
    for fact in FACTS:
        assert rows(read_back(there, fact)) == rows(read_back(here, fact)), fact


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("split_bytes", [SMALL, 1 << 30])
def test_any_size_of_tasks_gives_the_rows_of_the_local_engine(tmp_path: Path, split_bytes: int) -> None:
    made = Exporting(tmp_path / "there", [str(ONE)], split_bytes)
    assert (len(made.tasks) > len(BY_TASKS)) == (split_bytes == SMALL)
    made.finish([list(made.do(task)) for task in made.tasks])
    assert exports.export(tmp_path / "here", ONE, "--show-payloads") == 0
    assert_equal(tmp_path / "there", tmp_path / "here")


def test_payloads_stay_out_unless_asked_for(tmp_path: Path) -> None:
    made = Exporting(tmp_path / "there", [str(ONE)])
    made.shared.payloads = False
    made.finish([list(made.do(task)) for task in made.tasks])
    assert exports.export(tmp_path / "here", ONE, "--fact", "records") == 0
    assert rows(read_back(tmp_path / "there", "records")) == rows(read_back(tmp_path / "here", "records"))


def test_neither_the_order_of_tasks_nor_lost_attempts_show(tmp_path: Path) -> None:
    exporting, two = Exporting(tmp_path / "one", [str(ONE)]), Exporting(tmp_path / "two", [str(ONE)])
    exporting.finish([list(exporting.do(task)) for task in exporting.tasks])
    for task in two.tasks:
        list(two.do(task))
        next(two.do(task), None)
    assert len(names(tmp_path / "two" / "_temporary")) > len(two.tasks)
    answers = [list(two.do(task)) for task in reversed(two.tasks)]
    two.finish(answers[::-1])
    contents = [
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    assert contents[0] == contents[1]
    assert names(tmp_path / "two") == {*FACTS, "_SUCCESS", "_manifest.json"}


def test_an_attempt_that_goes_on_after_the_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Exporting(tmp_path / "out", [str(ONE)])
    answers = [list(made.do(task)) for task in made.tasks]
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


def test_hostile_names_are_what_they_are_here(tmp_path: Path) -> None:
    brokers = hostile(tmp_path / "copies")
    paths = [f"\u202e{HOSTILE.replace('/', '')}{number}={path}" for number, path in enumerate(brokers.log_dirs)]
    made = Exporting(tmp_path / "there", paths)
    made.finish([list(made.do(task)) for task in made.tasks])
    assert exports.export(tmp_path / "here", *paths, "--show-payloads") == 0
    for fact in BY_TASKS:
        assert rows(read_back(tmp_path / "there", fact)) == rows(read_back(tmp_path / "here", fact)), fact


def test_a_log_that_is_gone_fails_until_the_last_attempt_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Path(shutil.copytree(ONE, tmp_path / "copies"))
    made = Exporting(tmp_path / "there", [str(copies)], 1 << 30)
    gone = max(copies.glob("broker-1/*/*.log"), key=lambda path: path.stat().st_size)
    parts = FactReader.parts

    def removed(self: FactReader, name: str) -> object:
        gone.unlink(missing_ok=True)
        return parts(self, name)

    monkeypatch.setattr(FactReader, "parts", removed)
    assert exports.export(tmp_path / "here", copies, "--show-payloads") == 3
    assert {task.fact for task in made.tasks if fails(made, task)} == {*FROM_LOGS, "transactions"}
    made.finish([list(made.do(task, strict=False)) for task in made.tasks])
    assert {one["path"] for one in manifest(tmp_path / "there")["incomplete"]} == {str(gone)}
    for fact in BY_TASKS:
        assert rows(read_back(tmp_path / "there", fact)) == rows(read_back(tmp_path / "here", fact)), fact


def fails(made: Exporting, task: Task) -> bool:
    try:
        list(made.do(task))
    except SourceError:
        return True
    return False


def test_a_process_that_sees_another_directory_says_so(tmp_path: Path) -> None:
    made = Exporting(tmp_path / "out", [str(ONE)])
    packed = made.shared.packed()
    assert look(packed) is None
    (tmp_path / "other").mkdir()
    assert look(elsewhere(made.shared, tmp_path / "other")) == f"{tmp_path / 'other'}: No such file or directory"
    assert look(elsewhere(made.shared, tmp_path / "nowhere")) == f"{tmp_path / 'nowhere'}: No such file or directory"
    open_place(str(tmp_path / "another"), [])
    assert look(elsewhere(made.shared, tmp_path / "another")) == f"{tmp_path / 'another'} is another directory here"
    shutil.rmtree(tmp_path / "out" / "_temporary")
    assert "cannot write to" in (look(packed) or "")


def elsewhere(shared: ExportCommon, folder: Path) -> str:
    return replace(shared, path=str(folder)).packed()
