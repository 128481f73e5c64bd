"""The notebooks run from the first cell to the last, and show what is stored in them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
RUN = (
    "import nbformat, pathlib, sys\n"
    "from tests.support.notebooks import executed\n"
    "sys.stdout.write(nbformat.writes(executed(pathlib.Path(sys.argv[1]))))\n"
)


def shown(notebook: dict[str, Any]) -> list[str]:
    """What cells print and draw; tables are pandas' own affair."""
    found = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            found += ["".join(output["text"])] if output["output_type"] == "stream" else []
            found += ["".join(output["data"]["image/svg+xml"])] if "image/svg+xml" in output.get("data", {}) else []
    return found


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["aborted_transactions", "where_replicas_part"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored_in_it(path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    stored, fresh = json.loads(path.read_text()), json.loads(done.stdout)
    assert shown(fresh) == shown(stored)
    assert any(one.startswith("<svg") for one in shown(fresh))
    for notebook in (stored, fresh):
        assert [
            output for cell in notebook["cells"] for output in cell.get("outputs", []) if output["output_type"] == "error"
        ] == []


def test_they_name_what_was_lost_and_who_wrote() -> None:
    aborted, parted = ("\n".join(shown(json.loads(path.read_text()))) for path in NOTEBOOKS)
    assert "payments-0  offsets 36 to 40  aborted at 41  by teller-1 (producer 2, epoch 0)" in aborted
    assert "wait at offset 72 of payments-0, for teller-who-left" in aborted
    assert "they part at offset 300 in leader epochs {'1': 2, '2': 0}" in parted
    assert "only broker 2 has these 70 records: offsets 300 to 369" in parted
