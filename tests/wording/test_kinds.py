"""The files of kinds: complete, of one form, and with templates that never print unknown values."""

import re
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from itertools import product

import pytest
from jinja2 import nodes

from kafka_forensics import wording
from kafka_forensics.analysis.kinds import CATALOGUE, finding
from kafka_forensics.cli.main import outcome
from kafka_forensics.model.findings import Place, Severity
from kafka_forensics.wording.findings import DERIVED
from lab.soundness_page import BESIDE_THE_GALLERY, PAGE, page, shown_by
from tests.support.places import ROOT
from tests.wording.templates import EVIDENCE_NAMES, full_evidence, templates

FILES = ROOT / "kafka_forensics" / "analysis" / "kinds"
KINDS = list(CATALOGUE)
HEADINGS = ["What it means.", "Proof and limits.", "Likely causes.", "Harmless look-alikes.", "What to do next.", "Kafka's rule."]


def test_files_and_rows_are_those_of_the_catalogue() -> None:
    assert sorted(path.name for path in FILES.glob("*.md")) == sorted(f"{kind}.md" for kind in KINDS)
    assert re.findall(r"^\| `([A-Z_]+)` \|", PAGE.read_text(), re.MULTILINE) == KINDS


def test_the_table_of_soundness_is_up_to_date() -> None:
    """After a change of a row: `python -m lab.soundness_page`."""
    text = PAGE.read_text()
    assert page(text) == text
    assert page(re.sub(r"^\| `.*\n", "", text, flags=re.MULTILINE)) == text
    for kind in KINDS:
        text_of_kind = wording.kind_text(kind)
        assert "|" not in text_of_kind.proves + text_of_kind.cannot_see + text_of_kind.looks_like_it, kind


def test_every_kind_is_found_in_a_test() -> None:
    """By a case of the gallery, or by tests beside it, whose files name the kind or have its rows in a golden file."""
    assert [kind for kind in KINDS if not shown_by(kind)] == []
    for kind, tests in BESIDE_THE_GALLERY.items():
        assert shown_by(kind) == tests, "now a case of the gallery gives it"
        paths = [ROOT / "tests" / name for name in re.findall(r"`([\w/]+\.py)`", tests)]
        texts = [text.read_text() for path in paths for text in (path, path.with_name("answers.json")) if text.exists()]
        assert any(kind in text for text in texts), kind


@cache
def options_of(command: str) -> set[str]:
    """All options of a command."""
    with redirect_stdout(StringIO()) as out, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        assert outcome([command, "--help"]) == 0
    return set(re.findall(r"--[a-z-]+", out.getvalue()))


def assert_commands_exist(commands: list[str], kind: str) -> None:
    for command in commands:
        program, name, *rest = command.split()
        assert program == "kafka-forensics", kind
        assert {argument for argument in rest if argument.startswith("--")} <= options_of(name), (kind, command)


def test_pages_are_complete_and_their_commands_exist() -> None:
    for kind in KINDS:
        text = wording.explain_page(kind)
        lines, title, row = text.splitlines(), wording.title(kind), CATALOGUE[kind]
        assert 12 <= len(lines) <= 30, kind
        assert max(map(len, lines)) <= 132, kind
        assert lines[0] == f"# {kind}"
        assert lines[2] == f"{title[0].upper()}{title[1:]}. Usually `{row.severity}`, `{row.confidence}`."
        assert re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE) == HEADINGS, kind
        commands = re.search(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert commands, kind
        assert_commands_exist(commands[1].splitlines(), kind)


def test_commands_of_advice_exist() -> None:
    place = Place("audit", 0, 2, "/b2", "audit-0/00000000000000000000.log", 0, 61, 300, 370)
    advised = set()
    for kind, severity in product(KINDS, Severity):
        for holders in ([], [1], [1, 3]):
            text = wording.advice(finding(kind, place, full_evidence(kind) | {"held_by": holders}, severity=severity)) or ""
            commands = re.findall("`(kafka-forensics [^`]+)`", text)
            assert_commands_exist(commands, kind)
            advised |= {command.split()[1] for command in commands}
    assert advised >= {"plan", "compare", "dump"}


def test_pages_name_only_kinds_that_exist() -> None:
    for kind in KINDS:
        names = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", wording.explain_page(kind)))
        assert names - CATALOGUE.keys() <= {"REAL_DIRECTORY", "CURRENT_MAGIC_VALUE"}, kind


def test_templates_use_only_names_that_rules_write() -> None:
    """A misspelt name would never have a value."""
    package = ROOT / "kafka_forensics"
    code = "".join(path.read_text() for path in package.rglob("*.py") if "wording" not in path.parts)
    assert EVIDENCE_NAMES - set(re.findall(r"\w+", code)) == set()
    assert DERIVED.keys() <= {name.name for _, tree in templates() for name in tree.find_all(nodes.Name)}
