"""Running the notebooks of `examples/`; `python -m tests.support.notebooks` stores what they show in them."""

import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def executed(path: Path) -> Any:
    """The notebook with the outputs of a fresh run in its own folder. Raises CellExecutionError where a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    return notebook


def main() -> None:
    """Run every notebook and store it with its outputs, or only those named."""
    import nbformat

    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(EXAMPLES.glob("*.ipynb")):
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
