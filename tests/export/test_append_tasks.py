"""Adding a snapshot in tasks gives the rows of the local engine, however often a task is tried. No JVM runs here."""

from pathlib import Path

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.append import AddedSnapshot, Opened, opened_export
from kafka_forensics.export.datasets import ExportOrder, export_facts
from kafka_forensics.export.tasks import BY_TASKS, Task, common, known_transactions, look, tasks, told, write_task
from kafka_forensics.export.views import words
from kafka_forensics.facts import spans as facts_spans
from kafka_forensics.facts import splits as fact_splits
from kafka_forensics.facts.facts import scan_for_facts
from kafka_forensics.model.schemas import FACTS
from tests.support.datasets import FORMS, OTHER, append, keys, left_over, read, runs, unlabelled

SMALL = 2048


@pytest.fixture(autouse=True)
def _spans_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_spans, "SPAN_BYTES", SMALL)
    monkeypatch.setattr(fact_splits, "SPAN_BYTES", SMALL)


class Adding:
    """A snapshot whose tasks are done here, one by one."""

    def __init__(self, opened: Opened, split_bytes: int = SMALL) -> None:
        self.opened = opened
        self.reader = scan_for_facts([str(OTHER)], ScanOptions(), words)
        self.tasks = tasks(self.reader, list(FACTS), split_bytes)
        self.shared = common(self.reader, opened.target.token, opened.output, work_bytes=0, label=opened.label)
        self.known = known_transactions(self.reader)
        opened.target.share()

    def do(self, task: Task) -> list[str]:
        return list(write_task(self.shared.packed(), self.known, task, strict=True))

    def finish(self, answers: list[list[str]]) -> None:
        label, target = self.opened.label, self.opened.target
        written, gaps = told(zip(self.tasks, answers, strict=True), target, label)
        assert gaps == []
        target.clear()
        order = ExportOrder(target, list(FACTS), label=label, commit=self.opened.commit)
        export_facts(self.reader, order, {name: written.get(name, []) for name in BY_TASKS})


@pytest.mark.parametrize("form", FORMS)
def test_tasks_give_the_rows_of_the_local_engine(tmp_path: Path, form: str) -> None:
    target = tmp_path / "there"
    for _ in range(2):
        with opened_export(str(target), [], (), AddedSnapshot("a", "n1", form)) as opened:
            made = Adding(opened)
            assert look(made.shared.packed()) is None
            assert len(made.tasks) > len(BY_TASKS)
            for task in made.tasks[:5]:
                made.do(task)  # attempts that are lost
            made.finish([made.do(task) for task in made.tasks])
    assert append(tmp_path / "here", "a", "n1", "--show-payloads", path=OTHER) == 0
    for fact in FACTS:
        there, here = read(target, fact, form), read(tmp_path / "here", fact)
        if form != "iceberg":  # whose library reads lists that are null as empty ones
            assert unlabelled(there, fact) == unlabelled(here, fact), fact
        assert there.num_rows == here.num_rows
        assert len(runs(target, fact, form)) <= 1
    if form == "parquet":
        assert left_over(target) == []
    assert not list(target.rglob("_temporary"))


def interrupted(target: Path) -> Adding:
    """A run whose tasks are all done when its driver is interrupted; while it runs no other can begin."""
    kept: list[Adding] = []
    added = AddedSnapshot("a", "n1")

    def run() -> None:
        with opened_export(str(target), [], (), added) as opened:
            kept.append(Adding(opened))
            for task in kept[0].tasks:
                kept[0].do(task)
            with pytest.raises(UsageError, match="another run is adding"):
                opened_export(str(target), [], (), added).__enter__()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    return kept[0]


def test_a_driver_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", path=OTHER) == 0
    before = {path: path.is_file() and path.read_bytes() for path in target.rglob("*")}
    made = interrupted(target)
    assert {path: path.is_file() and path.read_bytes() for path in target.rglob("*")} == before
    with pytest.raises(UsageError, match="No such file"):
        made.do(made.tasks[0])


def test_a_worker_of_a_run_that_has_ended_writes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    made = interrupted(target)
    assert not target.exists()
    with opened_export(str(target), [], (), AddedSnapshot("a", "n2")) as opened:
        with pytest.raises(UsageError, match="No such file"):
            made.do(made.tasks[0])
        again = Adding(opened)
        again.finish([again.do(task) for task in again.tasks])
    assert keys(read(target, "batches")) == {("a", "n2")}
    assert left_over(target) == []
