"""The man page and the completions beside the package: equal to what the commands say, and loaded by the shells that are here."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kafka_forensics.cli.main import COMMANDS, GROUPS
from lab.installed_files import COMPLETION, MAN_PAGE, SHARE, files
from tests.support.plan_runs import Run

ROOT = Path(__file__).resolve().parents[2]
NAMES = [*COMMANDS, *GROUPS, *(f"{group} {name}" for group, (commands, _) in GROUPS.items() for name in commands)]
MACROS = {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi", ".RS", ".RE", ".nh", ".ad"}
SHELLS = [shell for shell in COMPLETION if shutil.which(shell)]
LOADS = {
    "bash": 'source "$FILE"; COMP_WORDS=($WORDS); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n'
    '_kafka_forensics_completion kafka-forensics; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": "compdef() { :; }; _arguments() { print -r -- $1; }; source $FILE; words=(${=WORDS}); CURRENT=${#words}\n"
    "_kafka_forensics_completion",
    "fish": "source $FILE; complete -C $WORDS",
}
"""Shell → a script that prints what it would complete `$WORDS` to, by `$FILE`."""


def plain(page: str) -> str:
    """The words of the page, as a terminal shows them."""
    text = re.sub(r"^\.(?:SH|SS|TH|B|PP|TP|nf|fi|RS|RE|nh|ad)\b ?", "", page, flags=re.MULTILINE)
    for escape, letter in ((r"\-", "-"), (r"\(aq", "'"), (r"\(ga", "`"), (r"\&", ""), (r"\e", "\\")):
        text = text.replace(escape, letter)
    return text


def section(name: str) -> str:
    """Of the man page, what it says of one command."""
    return plain((SHARE / MAN_PAGE).read_text().partition(f".SS {name.replace('-', chr(92) + '-')}\n")[2].partition("\n.S")[0])


def test_the_files_are_what_is_made_from_the_commands() -> None:
    there = {path.relative_to(SHARE).as_posix(): path.read_text() for path in SHARE.rglob("*") if path.is_file()}
    assert there == files(), "make them again: python -m lab.installed_files"


def test_the_wheel_and_the_sdist_hold_them() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["shared-data"] == {
        "share": "share",
        "examples/produce_back.py": "share/kafka-forensics/produce_back.py",
    }
    assert {"share", "sample_logs"} <= set(targets["sdist"]["include"])


@pytest.mark.parametrize("name", NAMES)
def test_the_man_page_has_every_option_of_every_command(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, text, _ = run(*name.split(), "--help")
    options = set(re.findall(r"(?<=[ ,])--?[a-z][a-z-]*(?=[ ,/\n])", text.partition("\nOptions:\n")[2].partition("\nExamples")[0]))
    said = section(name)
    assert "--help" in options
    assert {option for option in options if option not in said} == set()
    examples = re.findall(r"^  (kafka-forensics .+)$", text.partition("\nExamples")[2], re.MULTILINE)
    assert examples
    assert [example for example in examples if f"\n{example}\n" not in said] == []


def test_the_man_page_is_roff() -> None:
    page = (SHARE / MAN_PAGE).read_text()
    assert {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))} == MACROS
    assert page.isascii()
    if groff := shutil.which("groff"):
        done = subprocess.run([groff, "-man", "-ww", "-Tascii", SHARE / MAN_PAGE], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "KAFKA-FORENSICS(1)" in done.stdout


def test_bash_is_among_the_shells_that_are_tried() -> None:
    assert "bash" in SHELLS
    assert LOADS.keys() == COMPLETION.keys()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("kafka-forensics transa", {"transactions"}),
        ("kafka-forensics scan --format js", {"json", "jsonl"}),
        ("kafka-forensics simulate ru", {"run"}),
        ("kafka-forensics explain UNCLEAN_L", {"UNCLEAN_LOSS"}),
    ],
)
def test_a_shell_completes_by_its_file(shell: str, words: str, wanted: set[str], tmp_path: Path) -> None:
    program = tmp_path / "kafka-forensics"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafka_forensics "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "FILE": str(SHARE / COMPLETION[shell]),
        "WORDS": words,
    }
    done = subprocess.run(
        [shell, "-c", LOADS[shell]], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    assert set(re.findall(r"[\w]{3,}", done.stdout)) >= wanted
    assert "metadata" not in done.stdout
