"""Summarizes what kafka-dump-log does with a damaged file: exit status, batches shown and not shown, complaints, files changed."""

import hashlib
import re
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine import local
from lab.errors import LabError
from lab.jvm import DUMP_LOG_SEGMENTS, QUICK_START, TOOL_TIMEOUT_SECONDS, ToolResult, java_command, run_tool
from lab.kafka_jars import kafka_jars
from tests.gallery.case import Case
from tests.support.brokers import healthy

PATIENCE_SECONDS: Final = 20
"""Timeout for a tool that may never end."""
HUGE_BYTES: Final = 1 << 30
_BATCH: Final = re.compile(r"^(?:baseOffset|offset): (?:\d+|-\d+) .*isvalid: (true|false)", re.MULTILINE)
_TAIL: Final = re.compile(r"^Found (\d+) invalid bytes at the end", re.MULTILINE)
_THROWN: Final = re.compile(r"(?:[\w$]+\.)+([\w$]+(?:Exception|Error))\b")
_SKIPPED: Final = re.compile(r"((?:Error at|Unknown record type)[^\n]*\bskipping\b[^\n]*)")
_RAW: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def peer_says(case: Case) -> str:
    """The cell of kafka-dump-log, without complaints that it also makes about the undamaged file."""
    if case.damaged is None:
        return case.no_dump_reason
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "brokers"
        case.make(root)
        before = _tree(root)
        text = _file_says(root, case.damaged, case.peer_options, named=case.run_in_log_dir)
        for path, option in case.also:
            directory = Path(path).parent.name
            text += f"; `{directory}` with `{option}`: {_file_says(root, path, (option,))}"
        after = _tree(root)
        opened = _opened(root / case.damaged) if case.report_open_mode else ""
    for damage, names in (
        ("creates", after.keys() - before),
        ("changes", {name for name in before if after.get(name) != before[name]}),
    ):
        if names:
            listed = sorted(Path(name).name for name in names)
            text += f"; **{damage} {' and '.join(f'`{name}`' for name in listed)} in the evidence**"
    return f"{text}; **opens it {opened}**" if opened else text


def _file_says(root: Path, damaged: str, options: tuple[str, ...], *, named: bool = False) -> str:
    """The summary of one file, and for a log the summary with `--deep-iteration` if it differs."""
    path = root / damaged
    if not path.is_file():
        return _waits(path)
    is_log = path.suffix == ".log"
    counted = is_log and not path.is_symlink()
    batches = local.scan([str(path)], ScanOptions(jobs=1, deep=False)).totals.batches if counted else 0
    done = _run(path, *options, named=named)
    if b"Ignoring unknown file" in done.stderr:
        return "ignores the file"
    plain = _words(path, batches, done, _usual(damaged, options))
    if path.is_symlink() and f"Found {path.stat().st_size} invalid bytes".encode() in done.stdout:
        return f"{plain}; **reads what the link points to**"
    if not is_log or options:
        return plain
    deep = _words(path, batches, _run(path, "--deep-iteration", named=named), _usual(damaged, ("--deep-iteration",)))
    return plain if deep == plain else f"{plain}; with `--deep-iteration`: {deep}"


def _waits(path: Path) -> str:
    """The summary of a file that is not regular (a pipe), with a timeout."""
    try:
        done = run_tool(DUMP_LOG_SEGMENTS, ["--files", path.name], directory=path.parent, timeout_seconds=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return "does not end: it opens the pipe and waits"
    return _words(path, 0, done, frozenset())


def _opened(path: Path) -> str:
    """The flags with which the tool last opens the file, from strace. Raises LabError without strace."""
    if shutil.which("strace") is None:
        raise LabError("how a file is opened is seen by strace, which is not here")
    command = java_command(DUMP_LOG_SEGMENTS, ["--files", path.name], jars=kafka_jars(), options=QUICK_START)
    traced = subprocess.run(
        ["strace", "-f", "-qq", "-e", "trace=openat", *command],
        cwd=path.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_SECONDS,
        check=False,
    )
    flags = re.findall(rf'openat\([^"]*"[^"]*{re.escape(path.name)}", ([A-Z_|]+)', traced.stderr)
    return f"`{' + '.join(flags[-1].split('|'))}`" if flags else "not at all"


def _run(path: Path, *options: str, named: bool = False) -> ToolResult:
    """Run the tool in the file's directory, or with `named` in its parent, so that the output names the directory."""
    directory = path.parent.parent if named else path.parent
    return run_tool(DUMP_LOG_SEGMENTS, [*options, "--files", str(path.relative_to(directory))], directory=directory)


@cache
def _usual(damaged: str, options: tuple[str, ...]) -> frozenset[str]:
    """The tool's complaints about the undamaged file of this name, if it exists."""
    with tempfile.TemporaryDirectory() as folder:
        healthy(Path(folder) / "brokers")
        path = Path(folder) / "brokers" / damaged
        return frozenset(_complaints(path, _run(path, *options))) if path.exists() else frozenset()


def _words(path: Path, batches: int, done: ToolResult, usual: frozenset[str]) -> str:
    """`exit 0, 1 of 4 readable batches shown, "Found 12 invalid bytes at the end"`."""
    text = done.stdout.decode(errors="replace")
    words = [f"exit {done.exit_code}"]
    if path.suffix == ".log":
        valid = _BATCH.findall(text)
        wrong = valid.count("false")
        if not valid and not batches:
            words.append("no batch shown")
        elif len(valid) < batches:
            words.append(f"{len(valid)} of {batches} readable batches shown")
        elif not wrong:
            words.append("every batch `isvalid: true`")
        if wrong:
            words.append(f"`isvalid: false` {'once' if wrong == 1 else 'twice' if wrong == 2 else f'{wrong} times'}")
    words += [f"“Found {size} invalid bytes at the end”" for size in _TAIL.findall(text)]
    words += [complaint for complaint in _complaints(path, done) if complaint not in usual][:2]
    words += [f"“{message.rstrip('.')}”" for message in _SKIPPED.findall(text)][:2]
    if raw := len(_RAW.findall(text)):
        words.append(f"**{raw} control character{'s' if raw > 1 else ''} written raw**")
    return ", ".join(words)


def _complaints(path: Path, done: ToolResult) -> list[str]:
    """The exception that ended the tool, or its messages on stderr: each line, with the indented lines below it as details."""
    text = done.stderr.decode(errors="replace").replace(f"{path.parent}/", "").replace(path.name, "the file")
    if thrown := _THROWN.findall(text):
        return [f"`{thrown[-1] if 'OutOfMemoryError' in thrown else thrown[0]}`"]
    details_of: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith((" ", "\t")):
            details_of.setdefault(heading, []).append(line.strip())
        elif line.strip():
            heading = line.split(". ")[0].strip().replace(" :the", " the")
            details_of.setdefault(heading, [])
    return [
        f"“{heading}{f': {detail}' if detail else ''}”" for heading, details in details_of.items() for detail in details or [""]
    ]


def _tree(root: Path) -> dict[str, str]:
    """Regular files below a folder → the SHA-256 of their bytes; for huge files, their size and mtime."""
    tree = {}
    for path in root.rglob("*"):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            huge = status.st_size > HUGE_BYTES
            fingerprint = f"{status.st_size} {status.st_mtime_ns}" if huge else hashlib.sha256(path.read_bytes()).hexdigest()
            tree[str(path.relative_to(root))] = fingerprint
    return tree
