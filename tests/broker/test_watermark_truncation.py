"""Under the same failures Kafka 0.10.2.2 loses acknowledged records by truncating to the high watermark, and 4.3.0 does not."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.plan import PlanOptions, make_plans
from lab.errors import LabError
from lab.settings import LOOPBACK
from lab.silent_divergence import AFTER, BROKERS, PAID, TOPIC
from lab.watermark_truncation import History, on_new, on_old
from tests.support.faults_verdict import scan

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def old_history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The failures on Kafka 0.10.2.2; staged again if the brokers' sessions lost the race."""
    root = tmp_path_factory.mktemp("old")
    try:
        return on_old(root / "nodes", root / "copies")
    except LabError:
        return on_old(root / "nodes-again", root / "copies-again")


@pytest.fixture(scope="module")
def new_history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The failures on Kafka 4.3.0."""
    root = tmp_path_factory.mktemp("new")
    return on_new(root / "nodes", root / "copies")


Row = tuple[str, str, int | str | None, int | None, int | None, tuple[int, ...] | None]


def answers(tree: Path) -> list[Row]:
    """(kind, severity, broker, first offset, end offset, holders) of a scan's findings about the topic."""
    return topic_rows(scan(sorted(tree.iterdir())))


def topic_rows(result: ScanResult) -> list[Row]:
    return [
        (
            finding.kind,
            finding.severity.value,
            finding.place.broker,
            finding.place.offset_start,
            finding.place.offset_end,
            tuple(finding.evidence["held_by"]) if "held_by" in finding.evidence else None,
        )
        for finding in result.findings
        if finding.place.topic == TOPIC
    ]


def above_info(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[1] != "info"]


def values(tree: Path, broker: int) -> set[bytes]:
    """The values in a replica's log."""
    data = b"".join(path.read_bytes() for path in sorted((tree / f"broker-{broker}" / f"{TOPIC}-0").glob("*.log")))
    return {value for value in PAID[:9] + AFTER if data.count(value) > (value == PAID[0] and PAID[9] in data)}


def test_followers_had_no_high_watermark(old_history: History, new_history: History) -> None:
    for history in (old_history, new_history):
        assert set(history.follower_watermarks.values()) <= {0}


def test_old_brokers_lose_acknowledged_records(old_history: History) -> None:
    assert old_history.read == tuple(AFTER)
    assert values(old_history.between, 1) == values(old_history.between, 2) == set(PAID[:9])
    assert values(old_history.between, 3) == values(old_history.after, 2) == values(old_history.after, 3) == set(AFTER)
    assert values(old_history.after, 1) == set(PAID[:3]), "forever: old brokers compare nothing below the log end"


def test_a_scan_reports_the_loss_of_old_brokers(old_history: History) -> None:
    assert above_info(answers(old_history.between)) == [("FORK_BELOW_HW", "critical", None, 0, len(PAID), (1, 2))]
    assert above_info(answers(old_history.after)) == [("FORK_BELOW_HW", "critical", None, 0, len(AFTER), ())]


def test_a_plan_forecasts_truncations_of_old_brokers(old_history: History) -> None:
    """With unclean elections, broker 1 is truncated to the leader's end, broker 2 to its high watermark, then it copies the
    leader."""
    paths = [str(path) for path in sorted(old_history.between.iterdir())]
    (planned,) = make_plans(paths, ScanOptions(TOPIC), PlanOptions()).planned
    candidate = planned.candidate(3)
    assert candidate is not None
    assert planned.plan.truncate_by == "high_watermark"
    cuts = {follower_plan.broker: (follower_plan.truncation_offset, follower_plan.kept) for follower_plan in candidate.followers}
    assert cuts == {1: (len(AFTER), ((0, len(AFTER)),)), 2: (0, ())}
    assert (candidate.committed, candidate.at_least, candidate.at_most) == (10, 7, 10)


def test_new_brokers_keep_the_records(new_history: History) -> None:
    assert new_history.read == (*PAID, *AFTER)
    for broker in BROKERS:
        assert values(new_history.after, broker) == set(PAID[:9] + AFTER)


def test_a_scan_reports_no_loss_of_new_brokers(new_history: History) -> None:
    for tree in (new_history.between, new_history.after):
        assert above_info(answers(tree)) == []
    assert not {kind for kind, *_ in answers(new_history.between)} & {"FORK_BELOW_HW", "FORK_ABOVE_HW", "UNCLEAN_LOSS"}


def test_nodes_listen_on_loopback_alone(old_history: History, new_history: History) -> None:
    assert old_history.listens == new_history.listens == {LOOPBACK}
