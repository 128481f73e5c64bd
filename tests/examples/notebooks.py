"""Running the notebooks of `examples/`; `python -m tests.examples.notebooks` stores what they show in them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.places import ROOT

EXAMPLES: Final = ROOT / "examples"
SECONDS_OF_A_CELL: Final = 240
SECONDS: Final = 480
_RUN: Final = (
    "import nbformat, pathlib, sys\n"
    "from tests.examples.notebooks import executed\n"
    "sys.stdout.write(nbformat.writes(executed(pathlib.Path(sys.argv[1]))))\n"
)
_LABEL: Final = re.compile(r'aria-label="([^"]*)"')
_FRAME: Final = re.compile(r"[XY]-axis|Symbol legend|Title text")


def executed(path: Path) -> Any:
    """The notebook with the outputs of a fresh run in its own folder. Raises CellExecutionError where a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(
        notebook,
        timeout=SECONDS_OF_A_CELL,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    return notebook


def fresh(path: Path) -> dict[str, Any]:
    """The same, run by a process of its own, as the JSON that it is stored as. Raises AssertionError where a cell fails."""
    command = [sys.executable, "-c", _RUN, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    notebook: dict[str, Any] = json.loads(done.stdout)
    return notebook


def stored(path: Path) -> dict[str, Any]:
    """The notebook as it lies there."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    return notebook


def printed(notebook: dict[str, Any]) -> str:
    """What cells print, however it came in pieces; tables are pandas' own affair."""
    return "".join("".join(output["text"]) for output in _outputs(notebook) if output["output_type"] == "stream")


def charted(notebook: dict[str, Any]) -> list[list[str]]:
    """Of every chart the numbers and names of its marks, in the order they are drawn; how it looks is altair's own affair."""
    pictures = [
        "".join(output["data"]["image/svg+xml"]) for output in _outputs(notebook) if "image/svg+xml" in output.get("data", {})
    ]
    return [[label for label in _LABEL.findall(picture) if _FRAME.match(label) is None] for picture in pictures]


def errors(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Outputs that are errors."""
    return [output for output in _outputs(notebook) if output["output_type"] == "error"]


def _outputs(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def main() -> None:
    """Run every notebook and store it with its outputs, or only those named."""
    import nbformat

    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(EXAMPLES.glob("*.ipynb")):
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
