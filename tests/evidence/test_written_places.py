"""Outputs that overlap with evidence are refused: files and directories under any name, objects by bucket and key."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.evidence.outputs import Output, check_outputs
from kafka_forensics.export.opening import SnapshotOptions
from kafka_forensics.spark.export_job import export_paths
from tests.support.places import ROOT


def overlap(output: object, *inputs: object) -> str | None:
    """How an output overlaps with the inputs, in the words of the error; None if it does not."""
    try:
        check_outputs([Output(str(output), kind="any")], map(str, inputs))
    except UsageError as error:
        match = re.search(r"(lies inside|contains|has another name in|is) .*: evidence is never written to$", str(error))
        return match[1] if match else str(error)
    return None


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log directory `copies/b` and a file `b.tar`; links to them are outside the folder."""
    part = tmp_path / "copies" / "b" / "t-0"
    part.mkdir(parents=True)
    for path in (part / f"{0:020d}.log", part.parent / "meta.properties", tmp_path / "copies" / "b.tar"):
        path.touch()
    (tmp_path / "link").symlink_to(part.parent)
    (tmp_path / "dangling").symlink_to(part / "new")
    (part.parent / "outward").symlink_to(tmp_path / "new")
    (tmp_path / "hard").hardlink_to(part / f"{0:020d}.log")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "copies"


def test_any_name_of_a_path_overlaps(copies: Path) -> None:
    log_dir = copies / "b"
    for evidence in (log_dir, f"1={log_dir}", f"now=1={log_dir}", log_dir.as_uri(), f"local://{log_dir}", "link", "link/../b"):
        inside = ("copies/b/x", "link/not/yet", "dangling", "copies/b/t-0", "copies/b/outward", f"file:{log_dir}/x")
        assert [overlap(output, evidence) for output in inside] == ["lies inside"] * len(inside), evidence
        overlaps = [overlap(output, evidence) for output in ("link", "copies", ".", "hard", "new", "copies/b.tar", "copies/b2")]
        assert overlaps == ["is", "contains", "contains", "has another name in", None, None, None]
    overlaps = [overlap(output, "copies/b.tar") for output in ("copies/b.tar", "copies/b.tar/x", "copies/x")]
    assert overlaps == ["is", "lies inside", None]
    (copies / "odd name").mkdir()
    assert overlap("copies/odd name/x", (copies / "odd name").as_uri()) == "lies inside"


def test_kafkas_files_around_a_partition_or_segment_are_inputs(copies: Path) -> None:
    part, log = copies / "b" / "t-0", copies / "b" / "t-0" / f"{0:020d}.log"
    for evidence in (part, log):
        assert {overlap(copies / "b" / name, evidence) for name in ("meta.properties", "new", "t-1/new")} == {"lies inside"}
    assert overlap(part / "new", log) == "lies inside"
    (copies / "b" / "meta.properties").rename(copies / "b" / "notes")  # then it is not a log directory
    os.link(log, copies / "b" / log.name)
    for evidence in (part, copies / "b" / log.name):
        assert [overlap(copies / "b" / name, evidence) for name in ("new", "t-1/new", "notes")] == [None] * 3
        assert overlap(copies / "b" / "meta.properties", evidence) == "lies inside"
    assert overlap("hard", copies / "b" / log.name) == "is"


def test_a_dataset_with_a_link_into_evidence_overlaps(copies: Path, tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "cluster=a").symlink_to(copies / "b")
    assert [overlap("dataset", copies / "b"), overlap("dataset", copies / "b.tar")] == ["is", None]


def test_library_functions_check_their_outputs(copies: Path) -> None:
    with pytest.raises(UsageError, match="output copies/b/out lies inside"):
        export_paths(None, [str(copies / "b")], "copies/b/out", None, ScanOptions(), SnapshotOptions())  # type: ignore[arg-type]


@pytest.mark.isolated
def test_a_bind_mount_of_a_directory_in_the_evidence_overlaps(copies: Path, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    code = f"from tests.evidence.test_written_places import overlap; print(overlap('{tmp_path}/mnt/new', '{copies}'))"
    script = f'mount --bind {copies}/b/t-0 {tmp_path}/mnt && exec {sys.executable} -c "{code}"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "has another name in\n"


@pytest.mark.parametrize(
    ("output", "evidence", "expected"),
    [
        ("s3://b/copies/out", "s3a://b/copies", "lies inside"),
        ("s3n://b/copies", "1=s3://key:secret@b/copies/?endpoint=http://x", "lies inside"),
        ("s3://b/copies/out", "s3://b/copies/broker-*", "lies inside"),
        ("s3://b/copies", "s3://b/copies/broker-1", "contains"),
        ("s3://b", "s3://b/copies/[ab]", "contains"),
        ("s3://b/copies2", "s3://b/copies", None),
        ("gcs://b/copies/out", "gs://b/copies", "lies inside"),
        ("s3://b/t-0/out", "s3://b/t-0/00000000000000000000.log", "lies inside"),
        ("abfss://c@a.dfs.core.windows.net/copies/x", "abfs://c/copies", "lies inside"),
        ("hdfs:///copies/out", "hdfs://namenode:8020/copies", "lies inside"),
        ("viewfs://cluster//copies", "hdfs:///copies/broker-1", "contains"),
        ("hdfs:///copies2", "hdfs:///copies", None),
        ("s3://b/x", "/copies", None),
    ],
)
def test_objects_overlap_by_bucket_and_key(output: str, evidence: str, expected: str | None) -> None:
    assert overlap(output, evidence) == expected
