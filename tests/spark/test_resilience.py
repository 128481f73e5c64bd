"""What happens to files while Spark scans them: an answer that says so, as the local engine's does, or an error with the path."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from tests.support.spark_cluster import Driver, driver
from tests.support.spark_driver import Change, local_document

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver with two cores of its own, which tries a task four times and tells of each that is lost."""
    with driver(tmp_path_factory.mktemp("driver")) as made:
        made.session("local[2,4]", spark_log_level="WARN")
        yield made


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """A copy of a sample cluster's log directories."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "evidence"))


def paths_of(evidence: Path) -> list[str]:
    return [str(path) for path in sorted(evidence.iterdir())]


def a_log(evidence: Path) -> Path:
    """The largest log of the first broker."""
    return max(Path(paths_of(evidence)[0]).rglob("*.log"), key=lambda path: path.stat().st_size)


def expected(evidence: Path, meanwhile: Change) -> str:
    """The local engine's answer when the same happens to the same files, which are there again."""
    shutil.rmtree(evidence)
    shutil.copytree(SAMPLE, evidence)
    return local_document(paths_of(evidence), ScanOptions(), meanwhile)


def test_a_log_that_is_gone_is_tried_again_and_then_reported(scans: Driver, evidence: Path) -> None:
    log = a_log(evidence)
    meanwhile = ("remove", str(log))
    before = len(scans.log.read_text())
    answer = scans.scan(*paths_of(evidence), meanwhile=meanwhile, when="listed").document
    said = scans.log.read_text()[before:]
    assert said.count("ERROR Executor: Exception in task") == 3
    assert f"{log}: no such file or directory" in said
    gaps = [one["path"] for one in json.loads(answer)["incomplete"]]
    assert gaps == [str(log)]
    assert answer == expected(evidence, meanwhile)


@pytest.mark.parametrize("kind", ["to-directory", "to-pipe"])
def test_a_log_that_becomes_no_file_is_reported(scans: Driver, evidence: Path, kind: str) -> None:
    log = str(a_log(evidence))
    meanwhile = (kind, log)
    answer = scans.scan(*paths_of(evidence), meanwhile=meanwhile, when="listed").document
    assert [one["path"] for one in json.loads(answer)["incomplete"]] == [log]
    assert answer == expected(evidence, meanwhile)


@pytest.mark.parametrize("size_in_bytes", [0, 61, 1000])
def test_a_log_cut_after_it_was_listed_is_said_to_have_changed(scans: Driver, evidence: Path, size_in_bytes: int) -> None:
    meanwhile = ("truncate", str(a_log(evidence)), size_in_bytes)
    answer = scans.scan(*paths_of(evidence), meanwhile=meanwhile, when="listed").document
    assert "EVIDENCE_CHANGED" in {one["kind"] for one in json.loads(answer)["findings"]}
    assert answer == expected(evidence, meanwhile)


@pytest.mark.parametrize("end", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "meta.properties"])
def test_a_small_file_that_is_gone_is_reported(scans: Driver, evidence: Path, end: str) -> None:
    gone = min(path for path in Path(paths_of(evidence)[0]).rglob("*") if path.name.endswith(end))
    meanwhile = ("remove", str(gone))
    answer = scans.scan(*paths_of(evidence), meanwhile=meanwhile, when="listed").document
    assert answer == expected(evidence, meanwhile)


def test_a_partitions_directory_that_is_gone_is_reported(scans: Driver, evidence: Path) -> None:
    gone = a_log(evidence).parent
    meanwhile = ("remove-tree", str(gone))
    answer = scans.scan(*paths_of(evidence), meanwhile=meanwhile, when="listed").document
    assert str(a_log(SAMPLE).name) in {Path(one["path"]).name for one in json.loads(answer)["incomplete"]}
    assert answer == expected(evidence, meanwhile)


def test_a_log_directory_that_workers_do_not_see_is_an_error(scans: Driver, evidence: Path) -> None:
    first = paths_of(evidence)[0]
    name, text, hint = scans.scan(first, meanwhile=("remove-tree", first), when="listed").error
    assert name == "UsageError"
    assert text.startswith(f"a worker of Spark cannot read {first}: ")
    assert "shared storage" in hint


def test_a_log_directory_that_is_gone_in_the_middle_is_reported(scans: Driver, evidence: Path) -> None:
    meanwhile = ("remove-tree", paths_of(evidence)[0])
    answer = scans.scan(*paths_of(evidence), meanwhile=meanwhile, when="probed").document
    gaps = [one["path"] for one in json.loads(answer)["incomplete"]]
    assert gaps
    assert all(path.startswith(meanwhile[1]) for path in gaps)
    assert answer == expected(evidence, meanwhile)


@pytest.mark.parametrize("kind", ["", "nowhere", "empty", "without-logs", "only-an-empty-log"])
def test_paths_that_make_no_sense_are_answered_as_by_the_local_engine(scans: Driver, tmp_path: Path, kind: str) -> None:
    given = tmp_path / "given"
    if kind not in {"", "nowhere"}:
        given.mkdir()
    if kind == "without-logs":
        (given / "notes.txt").write_text("nothing of Kafka's")
    if kind == "only-an-empty-log":
        (given / "orders-0").mkdir()
        (given / "orders-0" / f"{0:020}.log").touch()
    path = str(given) if kind else ""
    wrong = usage_error(path)
    if wrong is None:
        assert scans.scan(path).document == local_document([path], ScanOptions())
    else:
        assert scans.scan(path).error == wrong


def usage_error(path: str) -> tuple[str, str, str] | None:
    """The local engine's error."""
    try:
        local_document([path], ScanOptions())
    except UsageError as error:
        return type(error).__name__, str(error), error.hint or ""
    return None
