"""Rejects a wrong Python or system; shiv runs it before the package in the file of `make bundle-tool`. Must run on Python 3.6."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

if __name__ == "__main__":
    libraries = Path(__file__).resolve().parents[1].glob("numpy/_core/_multiarray_umath.*")
    made_for = next((library.name.partition(".")[2] for library in libraries), "unknown")
    if f".{made_for}" not in EXTENSION_SUFFIXES:
        here = EXTENSION_SUFFIXES[0].lstrip(".")
        print(f"error: this file is made for {made_for}, and {sys.executable} loads {here}", file=sys.stderr)
        print(
            "hint: run it with that version of Python, or make one for this Python and system: docs/bundle-tool.md", file=sys.stderr
        )
        sys.exit(2)
