"""The dataset `incomplete`, and the seal of an export of less than was given."""

import json
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_forensics.cli.main import outcome
from tests.support.faults import Brokers, healthy
from tests.support.unread import REASON, refuse_logs

ROWS = [
    {"path": f"{{broker-{broker}}}/t-0/{segment:020d}.log", "reason": REASON, "topic": "t", "partition": 0, "broker": str(broker)}
    for broker in (2,)
    for segment in (0, 29, 55)
]


def seals(output: Path) -> set[str]:
    return {path.name for path in output.iterdir() if path.name.startswith("_")}


def exported(brokers: Brokers, output: Path, *more: str) -> int:
    return outcome(["export", *map(str, brokers.log_dirs), "--output", str(output), "-q", *more])


@pytest.mark.parametrize("facts", [(), ("--fact", "batches"), ("--fact", "incomplete")])
def test_a_whole_export_has_an_empty_dataset_and_its_seal(tmp_path: Path, facts: tuple[str, ...]) -> None:
    assert exported(healthy(tmp_path / "in"), tmp_path / "out", *facts) == 0
    assert seals(tmp_path / "out") == {"_manifest.json", "_SUCCESS"}
    assert pq.read_table(tmp_path / "out" / "incomplete").to_pylist() == []


@pytest.mark.parametrize("allowed", [False, True])
def test_what_could_not_be_read_is_a_dataset_and_withholds_the_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, allowed: bool
) -> None:
    brokers = healthy(tmp_path / "in")
    refuse_logs(monkeypatch, brokers, (2,))
    assert exported(brokers, tmp_path / "out", *(["--allow-incomplete"] if allowed else [])) == 3
    assert seals(tmp_path / "out") == {"_manifest.json", "_SUCCESS" if allowed else "_INCOMPLETE"}
    expected = [row | {"path": str(row["path"]).replace("{broker-2}", str(brokers.log_dir(2)))} for row in ROWS]
    assert pq.read_table(tmp_path / "out" / "incomplete").to_pylist() == expected
    told = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert told["incomplete"] == [row | {"broker": 2} for row in expected]
    assert told["schema_version"] == "1.0"
    assert told["datasets"]["incomplete"]["rows"] == 3
    replicas = pq.ParquetDataset(tmp_path / "out" / "replicas", partitioning="hive").read().to_pylist()
    assert [(replica["broker"], replica["log_end_offset"], replica["read"]) for replica in replicas] == [
        (1, 75, "whole"),
        (2, None, "none"),
        (3, 75, "whole"),
    ]


def test_a_place_with_an_export_of_less_than_was_given_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = healthy(tmp_path / "in")
    refuse_logs(monkeypatch, brokers, (2,))
    assert exported(brokers, tmp_path / "out", "--fact", "findings") == 3
    capsys.readouterr()
    assert exported(brokers, tmp_path / "out") == 2
    assert "holds an export of which some input could not be read" in capsys.readouterr().err


def test_an_archive_that_ends_early_withholds_the_seal(tmp_path: Path) -> None:
    brokers = healthy(tmp_path / "in")
    path = tmp_path / "broker-1.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(brokers.log_dir(1), "broker-1")
    with tarfile.open(path) as archive:
        where = max(getmember.offset_data for getmember in archive.getmembers() if getmember.name.endswith(".log"))
    with path.open("r+b") as file:
        file.truncate(where + 10)
    assert outcome(["export", str(path), "--output", str(tmp_path / "out"), "-q"]) == 3
    assert seals(tmp_path / "out") == {"_manifest.json", "_INCOMPLETE"}
    assert pq.read_table(tmp_path / "out" / "incomplete").num_rows > 0
