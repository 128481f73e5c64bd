"""docs/stability.md: what scripts depend on changes only by adding."""

import copy
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.kept_answers import write_answers
from tests.support.places import ROOT, SAMPLES
from tests.support.public_surface import Surface, differences, public_surface

GOLDEN: Final = ROOT / "tests" / "golden" / "public_surface.json"
SAMPLE: Final = "sample_logs/unclean-election"
DOCUMENTS: Final = {
    "bundle-1.kfb": "collect {folder}/broker-2 --topic audit --output {file} -q",
    "plan-1.0.json": f"plan {SAMPLE} --topic audit --output {{file}} -q",
    "salvage-1.0.json": f"salvage {SAMPLE} --topic audit --prefer-broker 2 --output {{folder}}/salvaged --format json -q",
}
"""Documents of each version, named after it → the command that wrote them. They are never written again."""


def test_the_public_surface_only_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With KEEP_SURFACE=1 it writes the present surface: for additions, and before 1.0 for changes."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = outcome([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    now = public_surface(run, tmp_path)
    if os.environ.get("KEEP_SURFACE"):
        write_answers(GOLDEN, now, depth=2)
    broken, added = differences(json.loads(GOLDEN.read_text()), now)
    assert not broken, "\n".join(["scripts depend on these (docs/stability.md):", *broken])
    assert not added, "\n".join([*added, "add them with KEEP_SURFACE=1, and read the difference"])


@pytest.mark.parametrize(
    ("change", "broken", "added"),
    [
        (
            lambda surface: surface["kinds"]["names"].remove("UNCLEAN_LOSS"),
            ["removed or changed: kinds: names: UNCLEAN_LOSS"],
            [],
        ),
        (lambda surface: surface["kinds"]["names"].append("NEW"), [], ["added: kinds: names: NEW"]),
        (
            lambda surface: surface["bundles"].update(version=["2"]),
            ["removed or changed: bundles: version: 1"],
            ["added: bundles: version: 2"],
        ),
        (lambda surface: surface["exit statuses"].update(demo=["0"]), ["removed or changed: exit statuses: demo: 2"], []),
    ],
)
def test_removals_changes_and_additions_are_found(change: Callable[[Surface], Any], broken: list[str], added: list[str]) -> None:
    before: Surface = json.loads(GOLDEN.read_text())
    now = copy.deepcopy(before)
    change(now)
    assert differences(before, now) == (broken, added)


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of documents that earlier versions wrote. With KEEP_SURFACE=1 missing ones are written first."""
    folder = GOLDEN.parent / "documents"
    monkeypatch.chdir(ROOT)
    for name, command in DOCUMENTS.items() if os.environ.get("KEEP_SURFACE") else ():
        file = folder / name
        if not file.exists():
            monkeypatch.setattr(socket, "gethostname", lambda: "broker-2")
            shutil.copytree(SAMPLES / "unclean-election" / "broker-2", tmp_path / "broker-2", dirs_exist_ok=True)
            assert outcome(command.format(folder=tmp_path, file=file).split()) in (0, 1)
            if out := capsys.readouterr().out:
                file.write_text(out)
    return folder


def test_documents_of_earlier_versions_are_read(documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(line: str) -> Any:
        status = outcome(line.split())
        out, err = capsys.readouterr()
        assert status in (0, 1), err
        return json.loads(out)

    assert sorted(DOCUMENTS) == sorted(path.name for path in documents.iterdir())
    [audit] = answer(f"scan {documents}/bundle-1.kfb --topic audit --format json")["partitions"]
    assert [replica["log_end_offset"] for replica in audit["replicas"]] == [370]
    for name, kept in (("plan-1.0.json", "cut"), ("salvage-1.0.json", "bytes")):
        checked = answer(f"verify {SAMPLE} --topic audit --against {documents / name} --format json")
        assert kept in {promise["promise"] for promise in checked}, name
    recovered = answer(f"recover {SAMPLE} --topic audit --plan {documents}/plan-1.0.json --output {tmp_path}/lost --format json")
    assert recovered["requested"]["plan"] is not None
