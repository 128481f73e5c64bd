"""A path on the command line is opened as a source, or is an error in one sentence."""

import gzip
import os
from pathlib import Path
from shutil import copytree

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import PathMissingError, SourceError, UsageError
from kafka_forensics.storage import open as opening
from kafka_forensics.storage.archives.archive import TarSource, ZipSource
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import address_of, local_path, local_spelling, open_address, open_source, path_of_address
from kafka_forensics.storage.tiered import list_store, stem_of
from tests.storage.trees import CONTAINERS
from tests.support.places import SAMPLES
from tests.support.remote_log import put_object
from tests.support.segments import log


def test_a_regular_file_with_the_suffix_of_an_archive_is_an_archive(tree: Path, tmp_path: Path) -> None:
    CONTAINERS["gz"][1](tree, tmp_path / "Bundle.TGZ")
    CONTAINERS["zip stored"][1](tree, tmp_path / "bundle.zip")
    assert isinstance(open_source(str(tmp_path / "Bundle.TGZ")), TarSource)
    (tmp_path / "link.zip").symlink_to("bundle.zip")
    assert isinstance(open_source(str(tmp_path / "link.zip")), ZipSource)
    (tmp_path / "broker.tar").mkdir()
    assert isinstance(open_source(str(tmp_path / "broker.tar")), LocalSource)


@pytest.mark.parametrize("name", ["a.tar.bz2", "a.7z", "00000000000000000000.log.gz"])
def test_other_archive_formats_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b""))
    with pytest.raises(SourceError, match=r"an unsupported container; supported are \.tar, "):
        open_source(str(tmp_path / name))


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(SourceError, match="neither a regular file nor a directory"):
        open_source(str(tmp_path / "a.tar"))


def test_a_missing_path_is_one_line_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "orders-0").mkdir(parents=True)
    with pytest.raises(PathMissingError) as caught:
        open_source(str(tmp_path / "broker-1" / "order-0"))
    assert str(caught.value) == f"{tmp_path}/broker-1/order-0: no such file or directory"
    assert caught.value.hint == f"did you mean {tmp_path}/broker-1/orders-0?"
    with pytest.raises(PathMissingError) as caught:
        open_source(str(tmp_path / "xyz" / "orders-0/"))
    assert caught.value.hint == f"{tmp_path}/xyz does not exist either"


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_an_impossible_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError):
        open_source(path)


def test_file_uris_are_decoded_and_existing_paths_precede_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").mkdir()
    assert open_source(f"file://{tmp_path}/a%20b").name == f"{tmp_path}/a b"
    with pytest.raises(UsageError, match="looks like file:///"):
        open_source("file://host/x")
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_source("s3://bucket"), LocalSource)


SAMPLE = SAMPLES / "silent-divergence" / "broker-1"


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories instead of the mount points of Databricks, with a log directory in each."""
    copytree(SAMPLE, tmp_path / "dbfs" / "copies" / "broker-1")
    copytree(SAMPLE, tmp_path / "Volumes" / "main" / "kafka" / "copies" / "broker-1")
    monkeypatch.setattr(opening, "DBFS", str(tmp_path / "dbfs"))
    monkeypatch.setattr(opening, "VOLUMES", str(tmp_path / "Volumes"))
    return tmp_path


@pytest.mark.parametrize("scheme", ["dbfs:/", "DBFS:/", "dbfs:///"])
def test_a_dbfs_path_is_read_at_its_mount_point(mounts: Path, scheme: str) -> None:
    assert local_spelling(f"{scheme}copies/broker-1") == str(mounts / "dbfs" / "copies" / "broker-1")
    result = kf.scan(f"{scheme}copies/broker-1")
    assert [replica.log_end_offset for replica in result.replicas] == [
        replica.log_end_offset for replica in kf.scan(str(SAMPLE)).replicas
    ]
    assert result.replicas


def test_a_dbfs_path_of_a_volume_is_the_volume(mounts: Path) -> None:
    volume = str(mounts / "Volumes" / "main" / "kafka" / "copies" / "broker-1")
    assert local_spelling(f"dbfs:{volume}") == volume
    assert kf.scan(f"dbfs:{volume}").replicas


def test_a_dbfs_path_without_mount_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "DBFS", str(tmp_path / "dbfs"))
    monkeypatch.setattr(opening, "VOLUMES", str(tmp_path / "Volumes"))
    for path in ("dbfs:/copies", f"dbfs:{tmp_path}/Volumes/main"):
        with pytest.raises(UsageError, match=r"there is no .* here") as refused:
            kf.scan(path)
        assert "s3://bucket/path" in (refused.value.hint or "")


def test_a_file_uri_may_have_one_slash(tmp_path: Path) -> None:
    spaced = tmp_path / "two words"
    copytree(SAMPLE, spaced)
    for path in (f"file:{spaced}", f"file://{spaced}", f"file:{tmp_path}/two%20words"):
        assert local_path(path) == str(spaced)
        assert kf.scan(path).replicas


def test_an_address_of_a_store_in_chunks_opens_the_same_parts(tmp_path: Path) -> None:
    root, batches = tmp_path / "store", log(20)
    put_object(root, 0, 0, batches, layout="chunks")
    store = list_store(LocalSource(str(root)), "")
    (stored,) = store.logs.values()
    (segment,) = stored.segments.values()
    address = address_of(store.parts)
    again = open_address(address)
    assert path_of_address(address) == str(root)
    with again.open(f"{stem_of(stored, segment)}.log") as file:
        assert file.read_at(0, file.size_in_bytes) == b"".join(batches)
    with pytest.raises(SourceError, match="not a part"):
        again.open("nothing")
