"""Copies on Google Cloud Storage, whose directories have no marker objects, give the results of local copies."""

import json
from collections.abc import Iterator

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import SourceError
from kafka_forensics.storage.remote import source as remote
from kafka_forensics.storage.remote.source import list_children
from tests.support.object_stores import GcsServer, gcs_server
from tests.support.places import SAMPLES

FOLDER = SAMPLES / "silent-divergence"


@pytest.fixture(scope="module")
def gcs() -> Iterator[GcsServer]:
    with gcs_server() as server:
        server.upload(FOLDER, "snapshots/today")
        yield server


@pytest.fixture
def options(gcs: GcsServer) -> list[str]:
    return ["--storage-option", f"endpoint={gcs.endpoint}", "--storage-option", "anonymous=true"]


def test_a_prefix_without_markers_is_a_directory(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for place, place_options in ((str(FOLDER), []), ("gs://logs/snapshots/today", options)):
        status = outcome(["scan", place, "--format", "json", *place_options])
        output = capsys.readouterr().out.replace(
            "".join(f" {option}" for option in place_options), ""
        )  # printed commands repeat the options
        answers.append((status, json.loads(output.replace(place, "PLACE"))))
    assert answers[0] == answers[1]


def test_the_children_of_a_directory_are_listed(gcs: GcsServer) -> None:
    for name in ("a", "a/b", "a/c/d", "a/c/e/f", "aa/g", "a//h", "marked/"):
        gcs.put(f"tree/{name}", b"x")
    filesystem = gcs.filesystem()
    infos, objects_listed = list_children(filesystem, "logs/tree", allow_not_found=False)
    found = {(info.path.removeprefix("logs/tree/"), info.is_file) for info in infos}
    assert found == {("a", True), ("a", False), ("aa", False), ("marked", False)}
    assert objects_listed >= 7
    infos, _ = list_children(filesystem, "logs/tree/a", allow_not_found=False)
    within = {(info.path.removeprefix("logs/tree/a/"), info.is_file) for info in infos}
    assert within == {("b", True), ("c", False), ("/h", True)}
    assert list_children(filesystem, "logs/none", allow_not_found=True) == ([], 0)
    with pytest.raises(OSError, match="No such file or directory"):
        list_children(filesystem, "logs/none", allow_not_found=False)


def test_objects_listed_again_count_once_towards_the_limit(gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        gcs.put(f"many/a/b/{number}", b"x")

    def below() -> list[str]:
        source = remote.RemoteSource("gs://logs/many", gcs.filesystem(), "logs/many")
        return [entry.path for path in ("", "a", "a/b") for entry in source.list(path)]

    monkeypatch.setattr(remote, "MAX_MEMBERS", 10)
    assert below() == ["a", "a/b", *(f"a/b/{number}" for number in range(8))]
    monkeypatch.setattr(remote, "MAX_MEMBERS", 7)
    source = remote.RemoteSource("gs://logs/many", gcs.filesystem(), "logs/many")
    with pytest.raises(SourceError, match="more than 7 objects"):
        source.list()
