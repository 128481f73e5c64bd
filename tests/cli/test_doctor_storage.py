"""`doctor` names the storage back ends that are there, and what is missing for the others."""

import sys

import pytest
from pyarrow import fs

from kafka_forensics.cli.commands import doctor


def storage_rows() -> dict[str, tuple[str, str, bool]]:
    return {check.name: (check.status, check.detail, check.needed) for check in doctor._storage()}


def test_back_ends_of_pyarrow_and_fsspec_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    rows = storage_rows()
    assert rows["storage s3://"] == ("ok", "S3FileSystem of pyarrow", False)
    assert rows["storage hdfs://"][0] == "absent"
    assert rows["storage, other schemes"][0] == "ok"
    monkeypatch.setenv("HADOOP_HOME", "/opt/hadoop")
    monkeypatch.setenv("CLASSPATH", "x.jar")
    assert storage_rows()["storage hdfs://"][0] == "ok"


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fs, "GcsFileSystem")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    rows = {name: (status, needed) for name, (status, _, needed) in storage_rows().items() if status == "absent"}
    assert rows["storage gs://"] == ("absent", False)


def test_libraries_of_tables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check = doctor.lakehouse()
    assert (check.status, check.needed) == ("ok", False)
    assert check.detail.startswith("deltalake 1.")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "pyiceberg" else object())
    check = doctor.lakehouse()
    assert (check.status, check.needed) == ("absent", False)
    assert check.detail.startswith("no pyiceberg: pip install 'kafka-forensics[lakehouse]'")
