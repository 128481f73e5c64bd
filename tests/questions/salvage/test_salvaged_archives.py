"""Salvages of logs of real brokers: every acknowledged record of the lineage once, and none of the other side."""

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import Salvaged, SalvageOptions, salvage
from kafka_forensics.questions.salvage.manifest import SalvagedQuorum
from tests.questions.salvage.salvaged import of_first
from tests.support.archives import SHIPPED, archive_params
from tests.support.places import SAMPLES

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json

CORPORA: Final = Path(__file__).resolve().parents[4] / "shared" / "corpora"


def archive(name: str) -> str:
    """The path of an archive."""
    shipped = SHIPPED / f"{name}.tar.xz"
    return str(shipped if shipped.exists() else CORPORA / f"{name}.tar.xz")


def salvaged_from(path: str, output: Path, topic: str | None = None, prefer: str | None = None) -> Salvaged:
    """A salvage of an archive or a folder."""
    return salvage([path], output, ScanOptions(topic_glob=topic), SalvageOptions(prefer))


def records_of(output: Path, name: str) -> "list[Json]":
    """The records of a salvaged log, as the package reads them."""
    rows: list[Json] = []
    for path in sorted(of_first(output, name).glob("*.log")):
        batches = list(kf.read_records(str(path), payloads=True))
        rows += pa.Table.from_batches(batches).to_pylist() if batches else []
    return rows


@pytest.mark.parametrize("prefer", ["1", "2", "3"])
def test_either_side_of_a_high_watermark_truncation_can_be_salvaged(tmp_path: Path, prefer: str) -> None:
    salvaged = salvaged_from(archive("kafka-0.10.2.2-hw-truncation"), tmp_path / "out", "ledger", prefer)
    assert salvaged.is_whole
    found = [row["value"] for row in records_of(tmp_path / "out", "ledger-0")]
    expected = 3 if prefer == "3" else 10
    assert len(found) == len(set(found)) == expected
    assert all(value.startswith(b"after") == (prefer == "3") for value in found)


def test_replicas_in_sync_that_differ_permanently_are_refused(tmp_path: Path) -> None:
    (refused,) = salvaged_from(archive("kafka-0.10.2.2-hw-divergence"), tmp_path / "out").refused
    assert (refused.kind, refused.offsets, set(refused.brokers)) == ("rivals", ((0, 3),), {1, 2})


@pytest.mark.parametrize("name", archive_params("kafka-4.3.0-clean-end"))
def test_a_cluster_that_lost_nothing_is_salvaged_whole(tmp_path: Path, name: str) -> None:
    with tarfile.open(archive(name)) as members:
        members.extractall(tmp_path / "in", filter="data")
    salvaged = salvaged_from(str(tmp_path / "in"), tmp_path / "out")
    assert salvaged.is_whole
    assert salvaged.partitions[0].quorum == SalvagedQuorum([100], [100], 2)
    assert not any(partition.gaps or partition.left_behind for partition in salvaged.partitions)
    ends = {(partition.topic, partition.partition): partition.log_end_offset for partition in salvaged.partitions}
    assert ends["orders", 0] == 30_000
    assert [row["offset"] for row in records_of(tmp_path / "out", "orders-0")] == list(range(30_000))
    assert len(records_of(tmp_path / "out", "payments-0")) == ends["payments", 0] == 320
    (theirs,) = (tmp_path / "in").glob("*/controller-100/__cluster_metadata-0")
    ours = of_first(tmp_path / "out", theirs.name)
    assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}
    for path in ours.iterdir():
        data = (theirs / path.name).read_bytes()
        if path.name == "quorum-state":
            data = data.replace(b'"leaderId":100,"leaderEpoch":1', b'"leaderId":-1,"leaderEpoch":2')
        assert path.read_bytes() == data, path.name


def test_samples_are_salvaged_without_a_loss(tmp_path: Path) -> None:
    salvaged = salvaged_from(str(SAMPLES / "healthy"), tmp_path / "out")
    assert [refused.kind for refused in salvaged.refused] == ["controllers_log"]
    for partition in salvaged.partitions:
        name = f"{partition.topic}-{partition.partition}"
        source = SAMPLES / "healthy" / f"broker-{partition.base_broker}" / name
        for path in of_first(tmp_path / "out", name).iterdir():
            if path.suffix in {".log", ".txnindex", ".snapshot"} and path.stat().st_size:
                assert path.read_bytes() == (source / path.name).read_bytes(), path
