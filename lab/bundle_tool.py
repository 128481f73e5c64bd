"""One file that runs wherever its Python is and nothing else: `make bundle-tool`, described in docs/bundle-tool.md.

`python -m lab.bundle_tool [DIRECTORY]` has pip make wheels of this package and of what it needs, in the versions that are installed
here where they are, for the system and the Python that it runs on; and puts them into `DIRECTORY` (`dist`) as one zip file that
Python runs (PEP 441). It holds

- `__main__.py`: `bundle_tool_start`, which every Python understands; `unpack.py`: `bundle_tool_unpack`; and `code_cache.py`, the
  rules by which this package keeps machine code;
- `contents.json`: the system and Python that it is made for, the SHA-256 of each wheel, the size of each file;
- `wheels/`: the wheels without what nothing here uses (`LEFT_OUT`), with each module compiled beside its source, so that
  nothing has to be compiled or written where it runs.

The same wheels give the same bytes.
"""

import fnmatch
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import marshal
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kafka_forensics.version import __version__
from lab.errors import LabError

ROOT: Final = Path(__file__).resolve().parents[1]
MODULES: Final = {
    "__main__.py": "lab/bundle_tool_start.py",
    "unpack.py": "lab/bundle_tool_unpack.py",
    "code_cache.py": "kafka_forensics/compiled/code_cache.py",
}
"""Name in the file → where it is from."""
LEFT_OUT: Final = (
    "*/tests/*",  # of numpy, numba, llvmlite and pyarrow
    "pyarrow/include/*",
    "pyarrow/src/*",
    "*.pyx",
    "*.pxd",
    "*.pxi",
    "*.pyi",
    "*.h",
    "*.hpp",
    "*.a",
    "pyarrow/*flight*",  # its server and client of a protocol between databases
)
"""Names of files in wheels that are not needed to run: what compilers and type checkers read, tests, and Arrow Flight."""
LARGEST_BYTES: Final = 150_000_000
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
_UNCHECKED: Final = (1).to_bytes(4, "little")
"""In compiled code that goes by the hash of its source, which is not looked at (PEP 552)."""
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_GLIBC: Final = re.compile(r"manylinux_(\d+)_(\d+)_")
_OLD_GLIBC: Final = {"manylinux1_": (2, 5), "manylinux2010_": (2, 12), "manylinux2014_": (2, 17)}
_LIBRARIES: Final = re.compile(r"[^/]+\.data/(?:purelib|platlib)/(.+)")


def file_name() -> str:
    """Of the file made here: version, system and Python."""
    system, machine = _system()
    return f"kafka-forensics-{__version__}-{system}-{machine}-py{sys.version_info.major}{sys.version_info.minor}.pyz"


def make_tool(directory: Path) -> Path:
    """Make the file in `directory`, made if it is not there. Raises LabError if it gets too large, and as `write_tool`."""
    with tempfile.TemporaryDirectory() as place:
        wheels = make_wheels(Path(place))
        path = write_tool(directory / file_name(), wheels)
    if path.stat().st_size > LARGEST_BYTES:
        raise LabError(f"{path} has {path.stat().st_size} bytes, which are more than {LARGEST_BYTES}")
    return path


def make_wheels(place: Path) -> list[Path]:
    """Wheels of this package and all that it needs, made or fetched by pip into `place`."""
    constraints = place / "constraints.txt"
    installed = {found.name: found.version for found in importlib.metadata.distributions() if found.name != "kafka-forensics"}
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(installed.items())))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [*pip, "--constraint", constraints, "--wheel-dir", place / "wheels", ROOT], cwd=place, env=environment, check=True
    )
    return sorted((place / "wheels").glob("*.whl"))


def write_tool(path: Path, wheels: list[Path]) -> Path:
    """Write the file, made of wheels. Raises LabError for a wheel that says of no system that it runs there."""
    packed: dict[str, bytes] = {}
    files: dict[str, int] = {}
    for wheel in sorted(wheels):
        members = dict(sorted(_with_compiled(dict(_members(wheel))).items()))
        if both := files.keys() & members.keys():
            raise LabError(f"{wheel.name} holds {min(both)}, as another wheel does")
        files |= {name: len(data) for name, data in members.items()}
        packed[f"wheels/{wheel.name}"] = _zipped(members, zipfile.ZIP_DEFLATED)
    modules = {name: (ROOT / source).read_bytes() for name, source in MODULES.items()}
    contents = {
        "version": __version__,
        "made_for": {"system": _system(), "python": sys.version_info[:2], "glibc": _glibc(wheels)},
        "modules": _digests(modules),
        "wheels": _digests(packed),
        "files": files,
    }
    text = json.dumps(contents, indent=0, sort_keys=True).encode()
    whole = _zipped({**modules, "contents.json": text, **packed}, zipfile.ZIP_STORED, _SHEBANG)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_bytes(whole)
    unfinished.chmod(0o755)
    return unfinished.replace(path)


def _members(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """(path below the directory that is imported from, content) of what is needed of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        for entry in opened.infolist():
            library = _LIBRARIES.fullmatch(entry.filename)
            name = library[1] if library is not None else entry.filename
            is_data = library is None and ".data/" in entry.filename
            if not entry.is_dir() and not is_data and not any(fnmatch.fnmatchcase(name, pattern) for pattern in LEFT_OUT):
                yield name, opened.read(entry)


def _with_compiled(members: dict[str, bytes]) -> dict[str, bytes]:
    """Modules as compiled code, too: of which Python need not look whether it is that of its source."""
    compiled = dict(members)
    for name, source in members.items():
        if name.endswith(".py"):
            try:
                code = compile(source, name, "exec", dont_inherit=True)
            except SyntaxError:  # a template, or of a later Python: it is not imported here
                continue
            data = _UNCHECKED + importlib.util.source_hash(source) + marshal.dumps(code)
            compiled[importlib.util.cache_from_source(name, optimization="")] = importlib.util.MAGIC_NUMBER + data
    return compiled


def _zipped(members: Mapping[str, bytes], method: int, before: bytes = b"") -> bytes:
    """A zip file of members, with `before` in front of it."""
    written = io.BytesIO()
    written.write(before)
    with zipfile.ZipFile(written, "w", method, compresslevel=9) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = method
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, data, compresslevel=9)
    return written.getvalue()


def _digests(named: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in named.items()}


def _system() -> tuple[str, str]:
    return sys.platform, os.uname().machine


def _glibc(wheels: list[Path]) -> tuple[int, int] | None:
    """The oldest version of the C library that all wheels run with; None where none of them needs it."""
    return max(filter(None, map(_glibc_of, wheels)), default=None)


def _glibc_of(wheel: Path) -> tuple[int, int] | None:
    platforms = wheel.stem.rpartition("-")[2].split(".")
    versions = [(int(found[1]), int(found[2])) for found in map(_GLIBC.match, platforms) if found is not None]
    versions += [version for tag in platforms for old, version in _OLD_GLIBC.items() if tag.startswith(old)]
    if versions:
        return min(versions)
    if any(tag == "any" or tag.startswith("macosx_") for tag in platforms):
        return None
    raise LabError(f"{wheel.name} was made for this machine alone")


if __name__ == "__main__":
    print(make_tool(Path(*sys.argv[1:2] or ["dist"])))
