"""Paths as Hadoop and Databricks spell them: `file:/path`, `dbfs:/path`, `dbfs:/Volumes/...`."""

from pathlib import Path
from shutil import copytree

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.storage import open as opening
from kafka_forensics.storage.open import local_path, spelled_out

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "healthy" / "broker-1"


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories in the place of those that Databricks mounts, a log directory in each."""
    copytree(SAMPLE, tmp_path / "dbfs" / "copies" / "broker-1")
    copytree(SAMPLE, tmp_path / "Volumes" / "main" / "kafka" / "copies" / "broker-1")
    monkeypatch.setattr(opening, "DBFS", str(tmp_path / "dbfs"))
    monkeypatch.setattr(opening, "VOLUMES", str(tmp_path / "Volumes"))
    return tmp_path


@pytest.mark.parametrize("scheme", ["dbfs:/", "DBFS:/", "dbfs:///"])
def test_a_path_of_the_old_file_system_is_read_where_it_is_mounted(mounts: Path, scheme: str) -> None:
    assert spelled_out(f"{scheme}copies/broker-1") == str(mounts / "dbfs" / "copies" / "broker-1")
    there = kf.scan(f"{scheme}copies/broker-1")
    assert [replica.log_end_offset for replica in there.replicas] == [
        replica.log_end_offset for replica in kf.scan(str(SAMPLE)).replicas
    ]
    assert there.replicas


def test_a_path_of_a_volume_is_what_it_is_another_name_of(mounts: Path) -> None:
    volume = str(mounts / "Volumes" / "main" / "kafka" / "copies" / "broker-1")
    assert spelled_out(f"dbfs:{volume}") == volume
    assert kf.scan(f"dbfs:{volume}").replicas


def test_a_path_that_exists_as_it_stands_is_that(mounts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mounts)
    (mounts / "dbfs:" / "copies").mkdir(parents=True)
    assert spelled_out("dbfs:/copies") == "dbfs:/copies"


def test_where_nothing_is_mounted_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "DBFS", str(tmp_path / "dbfs"))
    monkeypatch.setattr(opening, "VOLUMES", str(tmp_path / "Volumes"))
    for path in ("dbfs:/copies", f"dbfs:{tmp_path}/Volumes/main"):
        with pytest.raises(UsageError, match=r"there is no .* here") as refused:
            kf.scan(path)
        assert "s3://bucket/path" in (refused.value.hint or "")


def test_one_slash_after_file_is_as_good_as_three(tmp_path: Path) -> None:
    spaced = tmp_path / "two words"
    copytree(SAMPLE, spaced)
    for path in (f"file:{spaced}", f"file://{spaced}", f"file:{tmp_path}/two%20words"):
        assert local_path(path) == str(spaced)
        assert kf.scan(path).replicas
