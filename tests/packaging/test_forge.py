"""Files for a public forge: valid by the published schemas; workflows only call `make`, commands in issue forms work."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.places import ROOT, SAMPLES

FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").iterdir())
FORMS = [path for path in sorted((FORGE / "ISSUE_TEMPLATE").iterdir()) if path.name != "config.yml"]
MAKEFILE = (ROOT / "Makefile").read_text()
PARTS = re.findall(r"^PARTS := (.+)$", MAKEFILE, re.MULTILINE)[0].split()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.github-issue-config", [FORGE / "ISSUE_TEMPLATE" / "config.yml"]),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_a_file_is_valid_by_its_schema(schema: str, paths: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--default-filetype", "yaml", "--builtin-schema", schema]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_the_makefile_and_may_only_read(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"permissions:\n((?: .*\n)+)", text) == ["  contents: read\n"]
    steps = [shlex.split(line) for line in re.findall(r"\brun:(.*)$", text.replace("${{ matrix.part }}", "PART"), re.MULTILINE)]
    assert {step[0] for step in steps} == {"make"}
    assert {word for step in steps for word in step[1:] if "=" not in word} <= TARGETS


def test_the_nightly_workflow_runs_every_part() -> None:
    (parts,) = re.findall(r"part: \[(.+)\]", (FORGE / "workflows" / "nightly.yml").read_text())
    assert parts.split(", ") == PARTS


def test_a_form_prints_a_command_that_makes_a_redacted_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {command for path in FORMS for command in re.findall(r"`kafka-forensics (collect .+?)`", path.read_text())}
    (command,) = commands
    monkeypatch.chdir(tmp_path)
    for name in ("broker-1", "broker-2"):
        log_directory = str(SAMPLES / "unclean-election" / name)
        assert outcome(shlex.split(command.replace("LOG_DIR", log_directory).replace("broker-1.kfb", f"{name}.kfb"))) == 0
    assert outcome(["scan", "broker-1.kfb", "broker-2.kfb", "--format", "json"]) == 1
