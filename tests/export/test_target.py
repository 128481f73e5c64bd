"""The directory of an export: what is refused, what an interruption leaves, and that a partial export never looks complete."""

import os
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.export import datasets
from kafka_forensics.export.target import Target
from tests.export.exports import export, record_fsyncs
from tests.support.places import SAMPLES

PATH = SAMPLES / "silent-divergence"


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_success_is_written_last_and_unfinished_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    rename = os.rename

    def recorded_rename(source: str, to: str) -> None:
        assert Path(source).name == f".{Path(to).name}.tmp"
        order.append(Path(to).relative_to(tmp_path / "out").as_posix())
        assert (tmp_path / "out" / "_UNFINISHED").exists()
        rename(source, to)

    monkeypatch.setattr(os, "rename", recorded_rename)
    assert export(tmp_path / "out", PATH) == 0
    assert order[-2:] == ["_manifest.json", "_SUCCESS"]
    assert names_below(tmp_path / "out") & {"_UNFINISHED", "._manifest.json.tmp"} == set()
    assert set(order) == {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}


def test_an_empty_directory_is_used_and_a_missing_one_created(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert export(tmp_path / "empty", PATH) == 0
    assert export(tmp_path / "deep" / "er", PATH) == 0


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (["notes.txt"], "is not empty: it holds notes.txt", "choose a directory that is empty or does not exist yet"),
        (["_SUCCESS", "_manifest.json", "batches"], "holds a finished export", "choose a new directory, or remove that one first"),
        (["_UNFINISHED", "batches"], "holds an export that did not finish, or one that is running", "nothing is resumed"),
    ],
)
def test_a_directory_with_files_is_refused(
    tmp_path: Path, names: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    target.mkdir()
    for name in names:
        (target / name).write_text("kept")
    assert export(target, PATH) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert f"hint: {hint}" in captured.err
    assert captured.out == ""
    assert {path.name: path.read_text() for path in target.iterdir()} == dict.fromkeys(names, "kept")


def test_files_and_their_names_are_on_disk_before_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On disk is what was passed to fsync, and a directory only if that was after the last rename into it."""
    rename = os.rename
    synced = record_fsyncs(monkeypatch)
    named: set[str] = set()

    def recorded_rename(source: str, to: str) -> None:
        assert source in synced
        if to.endswith("_SUCCESS"):
            assert {
                str(parent) for path in named for parent in Path(path).parents if tmp_path in (parent, *parent.parents)
            } <= synced
        named.add(to)
        synced.difference_update({os.path.dirname(to)})
        rename(source, to)

    monkeypatch.setattr(os, "rename", recorded_rename)
    assert outcome(["export", str(PATH), "--output", f"{tmp_path}/new/out/", "-q"]) == 0
    assert len(named) > 10
    assert {str(parent) for path in named for parent in Path(path).parents if tmp_path in (parent, *parent.parents)} <= synced


@pytest.mark.parametrize("existing", ["", "out", "out/deep"])
def test_an_export_that_writes_nothing_removes_its_directories(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    Target.open(f"{tmp_path}/out/deep/").release()
    assert sorted(tmp_path.rglob("*")) == before
    assert export(tmp_path / "out" / "deep", tmp_path / "nothing") == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("kept")
    assert export(tmp_path / "file", PATH) == 2
    assert "hint: choose a directory that does not exist yet" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"


def test_an_interrupted_export_stays_marked_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = datasets._write_file
    written: list[str] = []

    def interrupt(*arguments: object) -> None:
        if len(written) == 5:
            arguments[0].write(b"PAR1 and then no more")  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        written.append("one")
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(datasets, "_write_file", interrupt)
    assert export(tmp_path / "out", PATH) == 130
    left = names_below(tmp_path / "out")
    assert {"_SUCCESS", "_manifest.json"} & left == set()
    assert "_UNFINISHED" in left
    assert not [name for name in left if name.endswith(".tmp")]
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == 5
    monkeypatch.undo()
    capsys.readouterr()
    assert export(tmp_path / "out", PATH) == 2
    assert "did not finish" in capsys.readouterr().err
