"""The code blocks of README.md and docs/: run, and what they print written below the commands.

`python -m lab.doc_blocks [PAGE ...]` runs the blocks of these pages, of all of them if none is named, and writes into each block
what its commands print now; the tests hold every page to that. Blocks are run in a directory that holds `sample_logs`, one
directory a page, in their order, as on a terminal of 80 columns.

- `console`: lines `$ command`, each with what it prints below it. A command that is not `kafka-forensics` is the shell's.
- `sh`: commands, one a line; what they print is shown nowhere.
- `python`: run in one interpreter a page, after what the page ran before.
- Any other language is only shown, and holds no command of ours.

HTML comments right above a block, one a line, say how it is run:

- `given: SHELL`: what is run before it, to make what it reads.
- `exit: N`: the status with which each of its commands ends, if not 0.
- `from: TEXT`, `until: TEXT`: what is printed is shown from the first line that holds TEXT on, and up to the next that does, itself
  left out; `…` stands for lines not shown.
- `not run: REASON`: it is not run here. `run by: FILE`: a test in FILE runs it.
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
    """A fenced block: its page below the root, its line, its language, its notes by their name, and what it holds."""

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
        """Whether it is run here."""
        return self.language in RUN and not self.notes.keys() & {"not run", "run by"}

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{self.page}:{self.line}"


class DocumentError(Exception):
    """A block that cannot be run, ends with another status, or does not print what its notes look for."""


class Terminal(io.StringIO):
    """What is written to a screen, which is one to those who ask."""

    def isatty(self) -> bool:
        """It is."""
        return True


@dataclass(slots=True)
class Desk:
    """Where the blocks of one page are run: a directory that holds `sample_logs`, and the names of its Python."""

    directory: Path
    names: dict[str, object] = field(default_factory=dict)

    def run(self, block: Block) -> str:
        """Run a block; what it is to hold. Raises DocumentError."""
        with ExitStack() as stack:
            stack.enter_context(chdir(self.directory))
            stack.enter_context(patch.dict(os.environ, {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}))
            for line in block.notes.get("given", []):
                self._shell(line, block, 0)
            if block.language == "python":
                self._python(block)
                return block.body
            status = int(block.note("exit") or 0)
            if block.language == "sh":
                for command in block.body.replace("\\\n", " ").splitlines():
                    self._command(command, block, status)
                return block.body
            made: list[str] = []
            for command in _commands_of(block):
                printed = self._command(command.replace("\\\n", " "), block, status)
                made.append(f"$ {command}\n{_shortened(printed, block)}")
            return "".join(made)

    def _python(self, block: Block) -> None:
        self.names.setdefault("__name__", "__main__")
        with redirect_stdout(io.StringIO()):
            exec(compile(block.body, block.place, "exec"), self.names)  # noqa: S102 - the page's own example

    def _command(self, command: str, block: Block, status: int) -> str:
        """What a command line prints, on both streams."""
        words = shlex.split(command, comments=True)
        if not words or words[0] != PROGRAM or "|" in words or ">" in words:
            return self._shell(command, block, status)
        if "spark" in words:
            raise DocumentError(f"{block.place}: Spark runs in tests/spark alone; say `not run` or `run by`")
        screen = Terminal()
        with redirect_stdout(screen), redirect_stderr(screen):
            ended = outcome(list(_expanded(words[1:])))
        self._expect(ended, status, block, command, screen.getvalue())
        return screen.getvalue()

    def _shell(self, command: str, block: Block, status: int) -> str:
        """What the shell prints. `kafka-forensics` in it is this package, not what is installed."""
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
    def _expect(ended: int, status: int, block: Block, command: str, printed: str) -> None:
        if ended != status:
            raise DocumentError(f"{block.place}: ended with {ended} instead of {status}: {command}\n{printed}")


def pages() -> list[str]:
    """Every page whose blocks are held to what they print, below the root."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", *found]


def blocks(page: str, text: str) -> Iterator[tuple[re.Match[str], Block]]:
    """The fenced blocks of a page, with where they stand in its text."""
    for match in _BLOCK.finditer(text):
        notes: dict[str, list[str]] = {}
        for name, value in _NOTE.findall(match["notes"]):
            notes.setdefault(name, []).append(value)
        yield match, Block(page, text.count("\n", 0, match.start("language")) + 1, match["language"], notes, match["body"])


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page as it is."""
    return [block for _, block in blocks(page, (ROOT / page).read_text())]


def holds_a_command(block: Block) -> bool:
    """Whether a command of ours is in it."""
    return _COMMAND.search(block.body) is not None


def made_anew(page: str, text: str, desk: Desk) -> str:
    """The text of a page, with what its commands print now. Raises DocumentError."""
    pieces: list[str] = []
    done = 0
    for match, block in blocks(page, text):
        if block.is_run:
            pieces += [text[done : match.start("body")], desk.run(block)]
            done = match.end("body")
    return "".join([*pieces, text[done:]])


def _commands_of(block: Block) -> list[str]:
    """What stands behind `$ `, with the lines that go on behind a backslash."""
    commands = [match[1] for match in re.finditer(r"^\$ ((?:.*\\\n)*.*)$", block.body, re.MULTILINE)]
    if not commands or not block.body.startswith("$ "):
        raise DocumentError(f"{block.place}: a console block begins with `$ ` and a command")
    return commands


def _expanded(words: list[str]) -> Iterator[str]:
    """Words with the patterns of a shell that match anything replaced by what they match."""
    for word in words:
        matches = sorted(Path().glob(word)) if "*" in word else []
        yield from map(str, matches) if matches else [word]


def _shortened(printed: str, block: Block) -> str:
    """The lines that are shown, whole. Raises DocumentError where a text that is looked for is not there."""
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
    """Write a page anew; whether anything changed. Raises DocumentError."""
    path = ROOT / page
    text = path.read_text()
    with TemporaryDirectory() as folder:
        desk = Path(folder)
        shutil.copytree(samples, desk / "sample_logs")
        made = made_anew(page, text, Desk(desk))
    path.write_text(made)
    return made != text


def main() -> int:
    """Rewrite the pages named, or all; 1 if a block could not be run."""
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
