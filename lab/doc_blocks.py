"""Runs the code blocks of README.md and docs/, and writes their output into them.

`python -m lab.doc_blocks [PAGE ...]` runs the blocks of these pages (default: all) and writes the output of every command below it;
the tests check that every page is up to date. The blocks of a page run in order, in one directory that contains `sample_logs`, as
on a terminal of 80 columns.

- `console`: lines `$ command`, each followed by its output. Commands other than `kafka-forensics` run in a shell.
- `sh`: commands, one per line; their output is not shown.
- `python`: runs in one interpreter per page, after the page's earlier blocks.
- Blocks of other languages are not run, and contain no command of this package.

HTML comments right above a block, one per line, say how it runs:

- `given: SHELL`: a command that runs before the block.
- `exit: N ...`: the exit status of all of its commands, or of each of them, if not 0.
- `from: TEXT`, `until: TEXT`: show the output from the first line that contains TEXT, up to but without the next line that contains
  TEXT; `…` stands for lines not shown.
- `not run: REASON`: the block is not run. `run by: FILE`: a test in FILE runs it.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from kafka_forensics.cli.main import outcome

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAM: Final = "kafka-forensics"
LEFT_OUT: Final = "…"
RUN: Final = ("console", "sh", "python")
SHOWN: Final = ("text", "json", "sql", "yaml", "dockerfile")
_NOTES: Final = ("given", "exit", "from", "until", "not run", "run by")
_BLOCK: Final = re.compile(
    r"(?P<notes>(?:^<!-- (?:" + "|".join(_NOTES) + r"): .*? -->\n\n?)*)"
    r"^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NOTE: Final = re.compile(r"^<!-- (.*?): (.*?) -->$", re.MULTILINE)
_COMMAND: Final = re.compile(rf"^\s*(?:\$ )?{PROGRAM}\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its page (relative to the root), its line, its language, its notes by name, and its text."""

    page: str
    line: int
    language: str
    notes: dict[str, list[str]]
    body: str

    def note(self, name: str) -> str | None:
        """The last note of this name."""
        return self.notes[name][-1] if name in self.notes else None

    @property
    def is_run(self) -> bool:
        """Whether this module runs the block."""
        return self.language in RUN and not self.notes.keys() & {"not run", "run by"}

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page}:{self.line}"


class DocumentError(Exception):
    """A block cannot be run, exits with another status, or does not print the text in its notes."""


class Terminal(io.StringIO):
    """Collects output, and claims to be a terminal."""

    def isatty(self) -> bool:
        """True: commands write as to a terminal."""
        return True


@dataclass(slots=True)
class PageRunner:
    """Runs the blocks of one page in a directory that contains `sample_logs`; `names` are the globals of its Python blocks."""

    directory: Path
    names: dict[str, object] = field(default_factory=dict)

    def run(self, block: Block) -> str:
        """Run a block and return its text with up-to-date output. Raises DocumentError."""
        with ExitStack() as stack:
            stack.enter_context(chdir(self.directory))
            stack.enter_context(patch.dict(os.environ, {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}))
            for line in block.notes.get("given", []):
                self._shell(line, block, 0)
            if block.language == "python":
                self._python(block)
                return block.body
            if block.language == "sh":
                commands = block.body.replace("\\\n", " ").splitlines()
                for command, status in zip(commands, _statuses(block, len(commands)), strict=True):
                    self._command(command, block, status)
                return block.body
            parts: list[str] = []
            commands = _commands_of(block)
            for command, status in zip(commands, _statuses(block, len(commands)), strict=True):
                printed = self._command(command.replace("\\\n", " "), block, status)
                parts.append(f"$ {command}\n{_shortened(printed, block)}")
            return "".join(parts)

    def _python(self, block: Block) -> None:
        self.names.setdefault("__name__", "__main__")
        with redirect_stdout(io.StringIO()):
            exec(compile(block.body, block.place, "exec"), self.names)  # noqa: S102 - the page's own example

    def _command(self, command: str, block: Block, status: int) -> str:
        """Run a command line and return its output on both streams."""
        arguments = shlex.split(command, comments=True)
        if not arguments or arguments[0] != PROGRAM or "|" in arguments or ">" in arguments:
            return self._shell(command, block, status)
        if "spark" in arguments:
            raise DocumentError(f"{block.place}: Spark runs in tests/spark alone; say `not run` or `run by`")
        screen = Terminal()
        with redirect_stdout(screen), redirect_stderr(screen):
            exit_status = outcome(list(_expanded(arguments[1:])))
        self._expect(exit_status, status, block, command, screen.getvalue())
        return screen.getvalue()

    def _shell(self, command: str, block: Block, status: int) -> str:
        """Run a command in bash and return its output; `kafka-forensics` is this package, not an installed one."""
        program = f'{PROGRAM}() {{ "{sys.executable}" -m kafka_forensics "$@"; }}'
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(
            ["bash", "-c", f"{program}\n{command}"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        self._expect(done.returncode, status, block, command, done.stdout + done.stderr)
        return done.stdout + done.stderr

    @staticmethod
    def _expect(exit_status: int, expected: int, block: Block, command: str, printed: str) -> None:
        if exit_status != expected:
            raise DocumentError(f"{block.place}: ended with {exit_status} instead of {expected}: {command}\n{printed}")


def pages() -> list[str]:
    """Every page whose blocks are run, relative to the root."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", *found]


def blocks(page: str, text: str) -> Iterator[tuple[re.Match[str], Block]]:
    """The fenced blocks of a page's text, each with its match."""
    for match in _BLOCK.finditer(text):
        notes: dict[str, list[str]] = {}
        for name, value in _NOTE.findall(match["notes"]):
            notes.setdefault(name, []).append(value)
        yield match, Block(page, text.count("\n", 0, match.start("language")) + 1, match["language"], notes, match["body"])


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page as it is on disk."""
    return [block for _, block in blocks(page, (ROOT / page).read_text())]


def holds_a_command(block: Block) -> bool:
    """Whether a block contains a `kafka-forensics` command."""
    return _COMMAND.search(block.body) is not None


def updated_page(page: str, text: str, runner: PageRunner) -> str:
    """The text of a page with up-to-date output of its commands. Raises DocumentError."""
    parts: list[str] = []
    done = 0
    for match, block in blocks(page, text):
        if block.is_run:
            parts += [text[done : match.start("body")], runner.run(block)]
            done = match.end("body")
    return "".join([*parts, text[done:]])


def _statuses(block: Block, count: int) -> list[int]:
    """The exit status that each of `count` commands must have."""
    statuses = [int(status) for status in (block.note("exit") or "0").split()]
    return statuses * count if len(statuses) == 1 else statuses


def _commands_of(block: Block) -> list[str]:
    """The commands after `$ `, with lines continued after a backslash."""
    commands = [match[1] for match in re.finditer(r"^\$ ((?:.*\\\n)*.*)$", block.body, re.MULTILINE)]
    if not commands or not block.body.startswith("$ "):
        raise DocumentError(f"{block.place}: a console block begins with `$ ` and a command")
    return commands


def _expanded(arguments: list[str]) -> Iterator[str]:
    """Arguments with glob patterns expanded as by a shell: a pattern without matches stays."""
    for argument in arguments:
        matches = sorted(Path().glob(argument)) if "*" in argument else []
        yield from map(str, matches) if matches else [argument]


def _shortened(printed: str, block: Block) -> str:
    """The lines of the output that the notes `from` and `until` select. Raises DocumentError if their text is missing."""
    lines = [line.rstrip() for line in printed.splitlines()]
    first, end = 0, len(lines)
    start, stop = block.note("from"), block.note("until")
    if start is not None:
        first = _line_with(start, lines, 0, block)
    if stop is not None:
        end = _line_with(stop, lines, first + 1, block)
    while end > first and not lines[end - 1]:
        end -= 1
    shown = lines[first:end]
    if first:
        shown.insert(0, LEFT_OUT)
    if stop is not None:
        shown.append(LEFT_OUT)
    return "".join(f"{line}\n" for line in shown)


def _line_with(text: str, lines: list[str], first: int, block: Block) -> int:
    for number in range(first, len(lines)):
        if text in lines[number]:
            return number
    raise DocumentError(f"{block.place}: no line holds {text!r}:\n" + "\n".join(lines))


def rewrite(page: str, samples: Path) -> bool:
    """Update the output in a page; return whether anything changed. Raises DocumentError."""
    path = ROOT / page
    text = path.read_text()
    with TemporaryDirectory() as folder:
        shutil.copytree(samples, Path(folder, "sample_logs"))
        updated = updated_page(page, text, PageRunner(Path(folder)))
    path.write_text(updated)
    return updated != text


def main() -> int:
    """Update the pages on the command line (default: all); return 1 if a block could not be run."""
    failed = 0
    for page in sys.argv[1:] or pages():
        try:
            if rewrite(page, ROOT / "sample_logs"):
                print(f"written anew: {page}")
        except DocumentError as error:
            print(error, file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
