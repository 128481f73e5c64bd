"""Start-up: help, version and completion load nothing heavy and are there at once."""

import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from kafka_forensics import __version__
from kafka_forensics.cli.commands.doctor import version_lines

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "numba", "llvmlite", "pyarrow", "construct", "cramjam", "rich", "multiprocessing", "kafka_forensics.parsers")
FEW_MODULES = 48
"""Of ours, that the list of commands may need: the commands themselves, options, and the words of the model."""


@pytest.mark.parametrize("arguments", [["--help"], ["scan", "--help"], ["--version"]], ids=" ".join)
def test_nothing_heavy_is_loaded(arguments: list[str]) -> None:
    code = (
        "import sys; from kafka_forensics.cli.main import outcome\n"
        f"status = outcome({arguments!r})\n"
        f"sys.exit(status or repr([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "[]\n"
    assert "kafka-forensics" in done.stdout
    assert "<list" not in done.stdout


def test_help_loads_the_options_of_commands_and_little_else() -> None:
    code = "import sys, kafka_forensics.cli.main; print(sum(name.startswith('kafka_forensics.') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) <= FEW_MODULES


def test_a_small_scan_loads_no_numba_and_answers_as_a_compiled_one() -> None:
    code = (
        "import sys; from kafka_forensics.cli.main import outcome\n"
        "outcome(['scan', '--deep', '-q', '--format', 'json', '--fail-on', 'none', 'sample_logs/healthy'])\n"
        "print('numba' in sys.modules, file=sys.stderr)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True
        )
        for environment in (dict(os.environ), os.environ | {"KAFKA_FORENSICS_KERNELS": "compiled"})
    ]
    assert [run.stderr for run in runs] == ["False\n", "True\n"]
    assert runs[0].stdout == runs[1].stdout


def test_help_names_every_command_at_80_columns() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafka_forensics", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    for command in ("scan", "explain", "doctor"):
        assert f"\n  {command} " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "..." not in done.stdout.partition("Commands:")[2]


def test_completion_knows_commands_and_values() -> None:
    def completed(words: str, index: int) -> list[str]:
        environment = os.environ | {
            "_KAFKA_FORENSICS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(index),
        }
        done = subprocess.run(
            [sys.executable, "-m", "kafka_forensics"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        )
        return done.stdout.split()

    assert completed("kafka-forensics sc", 1) == ["scan"]
    assert completed("kafka-forensics scan --format js", 3) == ["json", "jsonl"]
    assert completed("kafka-forensics explain UNCLEAN_L", 2) == ["UNCLEAN_LOSS"]


def test_the_version_names_what_it_works_with_and_is_there_at_once() -> None:
    started = time.perf_counter()
    command = [sys.executable, "-m", "kafka_forensics", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    seconds = time.perf_counter() - started
    pyarrow, cramjam = metadata.version("pyarrow"), metadata.version("cramjam")
    assert done.stdout.splitlines() == [
        f"kafka-forensics {__version__}",
        f"Python {platform.python_version()}",
        f"pyarrow {pyarrow}",
        f"codecs: zlib (gzip), cramjam {cramjam} (snappy, lz4, zstd), pyarrow {pyarrow} (zstd)",
        f"CRC-32C: google-crc32c {metadata.version('google-crc32c')}, kernels by numba {metadata.version('numba')}",
    ]
    assert seconds < 4  # 0.2 s of a quiet machine


def test_what_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert list(version_lines())[-1] == "CRC-32C: google-crc32c (absent), kernels by numba (absent)"
