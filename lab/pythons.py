"""The Pythons of this machine that the package is tested with: one of each minor version from 3.11 on."""

import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 11)


@cache
def pythons() -> dict[str, Path]:
    """Minor version, such as `3.12` → its interpreter, oldest first."""
    interpreters: dict[tuple[int, int], Path] = {}
    for path in _candidates():
        name = re.fullmatch(r"python(\d)\.(\d+)", path.name)
        if name is not None and (version := (int(name[1]), int(name[2]))) >= OLDEST and _makes_environments(path):
            interpreters.setdefault(version, path)
    return {f"{major}.{minor}": path for (major, minor), path in sorted(interpreters.items())}


def _candidates() -> list[Path]:
    """Files named like an interpreter in the usual folders, those of this process first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    places = [
        str(Path(sys.base_prefix) / "bin"),
        *os.environ.get("PATH", "").split(os.pathsep),
        "/usr/bin",
        "/usr/local/bin",
        *map(str, sorted(pyenv.glob("*/bin"))),
    ]
    return [path for place in dict.fromkeys(filter(None, places)) for path in sorted(Path(place).glob("python3.*"))]


def _makes_environments(python: Path) -> bool:
    """Whether an interpreter is an installation, not a wrapper script, and can create virtual environments."""
    return (python.resolve().parents[1] / "lib" / python.name / "ensurepip").is_dir()
