"""A replica whose directory holds no `.log` file at all is answered, and never a bug."""

import shutil
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.replicas import put_replica
from tests.support.segments import BASE_TIMESTAMP

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"


@pytest.fixture
def one_empty(tmp_path: Path) -> Path:
    """Two records on broker 1, and a directory of broker 2 with nothing but `partition.metadata`."""
    records = [RecordToWrite(b"k", b"a"), RecordToWrite(b"k", b"b")]
    log = write_batch(records, base_offset=0, base_timestamp=BASE_TIMESTAMP)
    put_replica(tmp_path, 1, log)
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    directory = put_replica(tmp_path, 2, b"", topic_id=topic_id) / "orders-0"
    (directory / "00000000000000000000.log").unlink()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["find", "--offset", "1"], 0), (["compare", "--topic", "orders", "--partition", "0"], None), (["compare"], None)],
    ids=["find", "compare-one", "compare-all"],
)
def test_a_replica_without_any_log_is_answered(
    one_empty: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int | None
) -> None:
    got = outcome([arguments[0], *map(str, sorted(one_empty.iterdir())), *arguments[1:], "--format", "tsv"])
    capture_result = capsys.readouterr()
    assert "bug:" not in capture_result.err
    assert got in ((0, 1) if status is None else (status,))


def test_comparing_is_not_stopped_by_a_missing_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(SAMPLES / "silent-divergence", tmp_path / "copy")
    next((copy / "broker-2" / "ledger-0").glob("*.log")).unlink()
    status = outcome(
        ["compare", *map(str, sorted(copy.glob("broker-*"))), "--topic", "ledger", "--partition", "0", "--format", "tsv"]
    )
    capture_result = capsys.readouterr()
    assert (status, "bug:" in capture_result.err) == (1, False)
    assert "3 replicas: first difference" in capture_result.err


def test_groups_answer_without_the_log_of_the_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(SAMPLES / "healthy" / "broker-1", tmp_path / "broker-1")
    for log in (copy / "__consumer_offsets-0").glob("*.log"):
        log.unlink()
    status = outcome(["groups", str(copy), "--format", "tsv"])
    assert (status, "bug:" in capsys.readouterr().err) == (0, False)
