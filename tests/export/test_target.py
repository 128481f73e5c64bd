"""The directory of an export: what is refused, what an interruption leaves, and that a partial export never looks complete."""

import os
from pathlib import Path

import pytest

from kafka_forensics.export import datasets
from tests.export.exports import export, snapshot_of
from tests.support.places import SAMPLES

PATH = SAMPLES / "silent-divergence"


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_success_is_written_last_and_unfinished_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    rename = os.rename

    def recorded_rename(source: str, to: str) -> None:
        if Path(to).name != "snapshot=1":
            assert Path(source).name == f".{Path(to).name}.tmp"
            order.append(Path(to).name)
            assert list((tmp_path / "out").rglob("_UNFINISHED"))
        rename(source, to)

    monkeypatch.setattr(os, "rename", recorded_rename)
    assert export(tmp_path / "out", PATH) == 0
    assert order[-2:] == ["manifest.json", "_SUCCESS"]
    assert names_below(tmp_path / "out") & {"_UNFINISHED", ".manifest.json.tmp"} == set()
    assert sorted(order) == sorted(path.name for path in snapshot_of(tmp_path / "out").rglob("*") if path.is_file())


def test_an_empty_directory_is_used_and_a_missing_one_created(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert export(tmp_path / "empty", PATH) == 0
    assert export(tmp_path / "deep" / "er", PATH) == 0


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (["notes.txt"], "is not empty: it holds notes.txt", "choose a directory that is empty or does not exist yet"),
        (["_SUCCESS", "batches"], "holds tables or an export of another layout", "add --table-format with their format"),
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


@pytest.mark.parametrize("existing", ["", "out", "out/deep"])
def test_an_export_that_writes_nothing_removes_its_directories(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    assert export(tmp_path / "out" / "deep", tmp_path / "nothing") == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("kept")
    assert export(tmp_path / "file", PATH) == 2
    assert "hint: choose a directory that does not exist yet" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"


def test_an_interrupted_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = datasets._write_file
    written: list[str] = []

    def interrupt(*arguments: object) -> None:
        if len(written) == 5:
            arguments[0].write(b"PAR1 and then no more")  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        written.append("one")
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(datasets, "_write_file", interrupt)
    assert export(tmp_path / "new" / "out", PATH) == 130
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert export(tmp_path / "new" / "out", PATH) == 0
