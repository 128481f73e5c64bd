"""Adding a snapshot in tasks gives the rows of the local engine, however often a task is tried. No JVM runs here."""

from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.append import Appending, TableFormat, append_facts, opened_appending
from kafka_forensics.export.dataset_manifest import labelled_schema
from kafka_forensics.export.datasets import ExportOrder
from kafka_forensics.export.tasks import BY_TASKS, Task, common, known_transactions, look, tasks, told, write_task
from kafka_forensics.export.views import words
from kafka_forensics.facts import spans as facts_spans
from kafka_forensics.facts import splits as fact_splits
from kafka_forensics.facts.facts import scan_for_facts
from kafka_forensics.model.schemas import FACTS
from tests.support.datasets import FORMS, NAMES, OTHER, append, left_over, manifest_of, read, runs, unlabelled
from tests.support.exports import rows

SMALL = 2048


@pytest.fixture(autouse=True)
def _spans_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_spans, "SPAN_BYTES", SMALL)
    monkeypatch.setattr(fact_splits, "SPAN_BYTES", SMALL)


class Adding:
    """A snapshot whose tasks are done here, one by one."""

    def __init__(self, target: Path, appending: Appending, split_bytes: int = SMALL) -> None:
        self.appending = appending
        self.reader = scan_for_facts([str(OTHER)], ScanOptions(), words)
        self.tasks = tasks(self.reader, list(FACTS), split_bytes)
        self.shared = common(self.reader, appending.place.token, str(target), compiled=False, label=appending.label)
        self.known = known_transactions(self.reader)
        appending.place.share()

    def do(self, task: Task) -> list[str]:
        return list(write_task(self.shared.packed(), self.known, task, strict=True))

    def finish(self, answers: list[list[str]]) -> None:
        label, place = self.appending.label, self.appending.place
        written, gaps = told(zip(self.tasks, answers, strict=True), place, label)
        assert gaps == []
        place.clear()
        order = ExportOrder(place, list(FACTS), label=label)
        append_facts(self.reader, order, self.appending, {name: written.get(name, []) for name in BY_TASKS})


@pytest.mark.parametrize("form", FORMS)
def test_tasks_give_the_rows_of_the_local_engine(tmp_path: Path, form: str) -> None:
    target = tmp_path / "there"
    for _ in range(2):
        with opened_appending(str(target), [], (), "a", "n1", TableFormat(form)) as appending:
            made = Adding(target, appending)
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
        assert all(len(found) == 1 for found in runs(there).values())
    if form == "parquet":
        assert left_over(target) == []
        assert rows(read(target, "batches").drop_columns(NAMES)) == rows(kf.scan(str(OTHER)).facts("batches"))
        assert kf.open_dataset(str(target), "records").schema.equals(labelled_schema(FACTS["records"]))
    assert {entry.snapshot for entry in manifest_of(target).snapshots} == {"n1"}
    assert not (target / "_temporary").exists()


def interrupted(target: Path) -> Adding:
    """A run whose tasks are all done when its driver is interrupted; while it runs no other can begin."""
    kept: list[Adding] = []

    def run() -> None:
        with opened_appending(str(target), [], (), "a", "n1") as appending:
            kept.append(Adding(target, appending))
            for task in kept[0].tasks:
                kept[0].do(task)
            with pytest.raises(UsageError, match="another run is adding"):
                opened_appending(str(target), [], (), "a", "n1").__enter__()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    return kept[0]


def test_a_driver_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", path=OTHER) == 0
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file() and path.name != "_LOCK"}
    made = interrupted(target)
    after = {path: path.read_bytes() for path in target.rglob("*") if path.is_file() and path.name != "_LOCK"}
    assert after == before
    with pytest.raises(UsageError, match="No such file"):
        made.do(made.tasks[0])


def test_a_worker_of_a_run_that_was_overtaken_writes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    made = interrupted(target)
    assert not target.exists()
    with opened_appending(str(target), [], (), "a", "n2") as appending:
        with pytest.raises(UsageError, match="is another directory here"):
            made.do(made.tasks[0])
        again = Adding(target, appending)
        again.finish([again.do(task) for task in again.tasks])
    assert set(runs(read(target, "batches"))) == {("a", "n2")}
