"""Completion as `--show-completion` prints it: it completes in the shells that are on this machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADS = {
    "bash": 'source "$FILE"; COMP_WORDS=($WORDS); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n'
    '_kafka_forensics_completion kafka-forensics; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": "compdef() { :; }; _arguments() { print -r -- $1; }; source $FILE; words=(${=WORDS}); CURRENT=${#words}\n"
    "_kafka_forensics_completion",
    "fish": "source $FILE; complete -C $WORDS",
}
"""Shell → a script that prints what it would complete `$WORDS` to, by `$FILE`."""
SHELLS = [shell for shell in LOADS if shutil.which(shell)]


def test_bash_is_among_the_shells_that_are_tried() -> None:
    assert "bash" in SHELLS


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
def test_a_shell_completes(shell: str, words: str, wanted: set[str], tmp_path: Path) -> None:
    program = tmp_path / "kafka-forensics"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafka_forensics "$@"\n')
    program.chmod(0o755)
    file = tmp_path / "completion"
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "FILE": str(file),
        "WORDS": words,
    }

    def output(*command: str, **variables: str) -> str:
        done = subprocess.run(
            command, env=environment | variables, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr == ""
        return done.stdout

    file.write_text(output("kafka-forensics", _KAFKA_FORENSICS_COMPLETE=f"source_{shell}"))
    completed = output(shell, "-c", LOADS[shell])
    assert set(re.findall(r"[\w]{3,}", completed)) >= wanted
    assert "metadata" not in completed
