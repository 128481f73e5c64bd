"""Start-up: help, version and completion load no heavy library; completion works in the installed shells."""

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from kafka_forensics import __version__
from tests.cli.runs import Run
from tests.support.places import ROOT

HEAVY = ("numpy", "numba", "pyarrow", "construct", "cramjam", "rich", "jinja2", "multiprocessing", "kafka_forensics.parsers")
MOST_MODULES = 52
"""Modules of the package that the list of commands may load: the commands, options, and words of the model."""


def python(code: str) -> str:
    """Run `code` in a new Python process and return its standard error."""
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return process.stderr


def test_help_and_version_load_few_modules_and_no_heavy_library() -> None:
    counted = "sum(name.startswith('kafka_forensics.') for name in sys.modules)"
    printed = python(
        f"import sys; from kafka_forensics.cli.main import outcome\nfew = {counted}\n"
        "statuses = [outcome(words) for words in (['--help'], ['scan', '--help'], ['simulate', 'run', '--help'], ['--version'])]\n"
        f"print(statuses, few <= {MOST_MODULES}, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    assert printed == "[0, 0, 0, 0] True []\n"


def test_a_small_scan_does_not_load_numba() -> None:
    arguments = ["scan", "--deep", "-q", "--format", "json", "sample_logs/healthy"]
    printed = python(
        f"import sys; from kafka_forensics.cli.main import outcome\nstatus = outcome({arguments!r})\n"
        "print(status, 'numba' in sys.modules, file=sys.stderr)"
    )
    assert printed == "0 False\n"


def test_version_lists_python_and_libraries(run: Run) -> None:
    pyarrow, cramjam = metadata.version("pyarrow"), metadata.version("cramjam")
    status, out, err = run("--version")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"kafka-forensics {__version__}",
        f"Python {platform.python_version()}",
        f"pyarrow {pyarrow}",
        f"codecs: zlib (gzip), cramjam {cramjam} (snappy, lz4, zstd), pyarrow {pyarrow} (zstd)",
        f"CRC-32C: google-crc32c {metadata.version('google-crc32c')}, kernels by numba {metadata.version('numba')}",
    ]


COMPLETION_SCRIPTS = {
    "bash": 'source "$FILE"; COMP_WORDS=($WORDS); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n'
    '_kafka_forensics_completion kafka-forensics; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": "compdef() { :; }; _arguments() { print -r -- $1; }; source $FILE; words=(${=WORDS}); CURRENT=${#words}\n"
    "_kafka_forensics_completion",
    "fish": "source $FILE; complete -C $WORDS",
}
"""Shell → a script that prints completions of `$WORDS` by the completion script `$FILE`."""


def test_installed_shells_complete_commands_and_values(tmp_path: Path) -> None:
    program = tmp_path / "kafka-forensics"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafka_forensics "$@"\n')
    program.chmod(0o755)
    variables_of_shell = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}

    def output(*command: str, **variables: str) -> str:
        environment = os.environ | variables_of_shell | variables
        process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert process.stderr == ""
        return process.stdout

    shells = [shell for shell in COMPLETION_SCRIPTS if shutil.which(shell)]
    assert "bash" in shells
    for shell in shells:
        (tmp_path / shell).write_text(output("kafka-forensics", _KAFKA_FORENSICS_COMPLETE=f"source_{shell}"))
        for typed, expected in (
            ("transa", {"transactions"}),
            ("scan --format js", {"json", "jsonl"}),
            ("simulate ru", {"run"}),
            ("explain UNCLEAN_L", {"UNCLEAN_LOSS"}),
        ):
            completed = output(shell, "-c", COMPLETION_SCRIPTS[shell], FILE=str(tmp_path / shell), WORDS=f"kafka-forensics {typed}")
            assert set(re.findall(r"\w{3,}", completed)) >= expected, (shell, typed)
            assert "metadata" not in completed
