"""`--redact` on every command in every format: nothing that they print or write names what the evidence does."""

import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_forensics.cli.commands.export import FACT_NAMES
from kafka_forensics.cli.main import COMMANDS, outcome
from kafka_forensics.cli.options import FORMATS, SCAN_FORMATS

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "sample_logs" / "unclean-election"
ARCHIVE = ROOT / "tests" / "archives" / "kafka-4.3.0-healthy.tar.xz"
_NAMED = frozenset({"group", "transactional_id", "client_id", "member_id", "client_host", "host", "resource_name", "process_id"})
WITHOUT_EVIDENCE = {"collect", "explain", "demo", "doctor"}
"""Commands that print no names of any evidence."""
WITH_PAYLOADS = {"recover", "salvage"}
"""Commands that write keys and values, for which no pseudonym stands; they take no `--redact`."""
COMMAND_LINES: dict[str, list[list[str]]] = {
    "scan": [[]],
    "compare": [["--topic", "{topic}", "--partition", "0"]],
    "plan": [[], ["--topic", "{topic}", "--partition", "0"]],
    "transactions": [[]],
    "groups": [["--all-partitions"]],
    "metadata": [[]],
    "epochs": [[]],
    "changes": [],
    "dump": [["--offset", "0:100"], ["--records", "--offset", "0:20"]],
    "find": [["--offset", "0:3"]],
    "export": [],
    "report": [],
    "verify": [],
}
"""Command → what it is given beside the paths; those that are given something else have tests of their own."""

Names = set[str]


def values(document: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(document, dict):
        for name, item in document.items():
            yield from values(item, str(name))
    elif isinstance(document, list):
        for item in document:
            yield from values(item, key)
    elif isinstance(document, str) and document:
        yield key, document


def originals(folder: Path, capsys: pytest.CaptureFixture[str]) -> Names:
    """Names in a tree of log directories, by its directories, its properties files and the records of its internal topics."""
    directories = [path for path in folder.rglob("*-*") if path.is_dir() and re.fullmatch(r".+-\d+", path.name)]
    names = {path.name.rpartition("-")[0] for path in directories if any(path.glob("*.log")) and not path.name.startswith("__")}
    for path in folder.rglob("meta.properties"):
        names |= set(re.findall(r"^cluster\.id=(.+)$", path.read_text(), re.MULTILINE))
    internal = [str(path) for path in directories if path.name.startswith("__")]
    assert outcome(["dump", "--records", "--format", "jsonl", "-q", *internal]) == 0
    for line in capsys.readouterr().out.splitlines():
        names |= {value for key, value in values(json.loads(line).get("detail")) if key in _NAMED}
    return {name for name in names if not name.isdecimal() and not name.startswith("__")}  # Kafka's own


def leaks(text: str, names: Names) -> dict[str, str]:
    """Name → the line in which it stands."""
    found = {}
    for name in names:
        match = re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text, re.IGNORECASE)
        if match is not None:
            found[name] = text[max(0, match.start() - 100) : match.end() + 100]
    return found


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archived")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(params=["sample", "archive"])
def evidence(request: pytest.FixtureRequest, archived: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], Names, str]:
    """Paths, the names in them, and a topic of which there are several replicas."""
    if request.param == "sample":
        return [str(SAMPLE)], originals(SAMPLE, capsys), "audit"
    return [str(ARCHIVE)], originals(archived, capsys), "ledger"


def private(tmp_path: Path) -> list[str]:
    return ["--redact", "--redact-map", str(tmp_path / "names.json")]


def test_every_command_is_here_or_has_nothing_to_hide() -> None:
    assert COMMAND_LINES.keys() | WITHOUT_EVIDENCE | WITH_PAYLOADS == COMMANDS.keys()


def test_the_names_looked_for_are_there(evidence: tuple[list[str], Names, str], capsys: pytest.CaptureFixture[str]) -> None:
    paths, names, topic = evidence
    assert {"orders", "billing", "payments", topic} <= names
    assert len(names) > 12
    assert outcome(["scan", *paths, "--format", "json", "-q"]) in (0, 1)
    assert leaks(capsys.readouterr().out, names)


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_no_format_names_anything(
    command: str, evidence: tuple[list[str], Names, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, names, topic = evidence
    for arguments in COMMAND_LINES[command]:
        filled = [argument.format(topic=topic) for argument in arguments]
        for format_name in SCAN_FORMATS if command == "scan" else FORMATS:
            status = outcome([command, *paths, *filled, "--format", format_name, *private(tmp_path)])
            captured = capsys.readouterr()
            assert status in (0, 1), captured.err
            shown = captured.out.partition('"invocations"')[2] if format_name == "sarif" else captured.out  # without the rules
            assert shown or command == "plan"
            assert leaks(shown, names) == {}, (filled, format_name)
            assert leaks(captured.err, names) == {}, (filled, format_name)


@pytest.mark.parametrize("format_name", FORMATS)
def test_changes_name_nothing(format_name: str, archived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = originals(SAMPLE, capsys)
    older, newer = ROOT / "sample_logs" / "healthy", SAMPLE
    status = outcome(["changes", str(older), str(newer), "--format", format_name, *private(tmp_path)])
    captured = capsys.readouterr()
    assert status in (0, 1), captured.err
    assert captured.out
    assert (leaks(captured.out, names), leaks(captured.err, names)) == ({}, {})


@pytest.mark.parametrize("command", ["report", "scan"])
def test_a_page_names_nothing(
    command: str, evidence: tuple[list[str], Names, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, names, topic = evidence
    option = "--output" if command == "report" else "--report"
    page = tmp_path / "page.html"
    for more in ([], ["--topic", topic], ["--hashes"][: command == "report"]):
        assert outcome([command, *paths, *more, option, str(page), *private(tmp_path)]) in (0, 1)
        captured = capsys.readouterr()
        text = page.read_text()
        assert "Leadership and ISR over time" in text or topic == "ledger"
        assert "What each election would cut" in text
        assert (leaks(text, names), leaks(captured.out, names), leaks(captured.err, names)) == ({}, {}, {})
    pseudonyms = {name: row["name"] for name, row in json.loads((tmp_path / "names.json").read_text())["names"].items()}
    assert topic in pseudonyms.values()
    assert f"{next(made for made, name in pseudonyms.items() if name == topic)}-0" in page.read_text()


def test_a_report_of_a_redacted_answer_names_nothing(
    evidence: tuple[list[str], Names, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, names, _ = evidence
    answer, page = tmp_path / "scan.json", tmp_path / "page.html"
    assert outcome(["scan", *paths, "--output", str(answer), *private(tmp_path)]) in (0, 1)
    assert outcome(["report", str(answer), "--output", str(page)]) == 0
    captured = capsys.readouterr()
    text = page.read_text()
    assert "topic-" in text
    assert (leaks(text, names), leaks(captured.out, names), leaks(captured.err, names)) == ({}, {}, {})


def test_an_export_names_nothing(
    evidence: tuple[list[str], Names, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, names, _ = evidence
    output = tmp_path / "facts"
    of_rows = {"batches", "records", "spans", "index_entries"} if paths == [str(ARCHIVE)] else set()  # whose rows are very many
    facts = [word for name in FACT_NAMES if name not in of_rows for word in ("--fact", name)]
    assert outcome(["export", *paths, "--output", str(output), "--topic", "*", *facts, *private(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert (leaks(captured.out, names), leaks(captured.err, names)) == ({}, {})
    written = sorted(path for path in output.rglob("*") if path.is_file())
    assert any(path.suffix == ".parquet" for path in written)
    datasets = set()
    for path in written:
        assert leaks(str(path.relative_to(output)), names) == {}
        if path.suffix != ".parquet":
            assert leaks(path.read_text(), names) == {}
            continue
        table = pq.ParquetFile(path).read()
        datasets.add(path.relative_to(output).parts[0])
        assert leaks(str(table.schema.metadata), names) == {}
        assert leaks(json.dumps(table.to_pylist(), default=str), names) == {}, path.name
    assert {"group_offsets", "transactions", "findings", "replicas"} <= datasets


@pytest.mark.parametrize("command", ["scan", "plan", "dump", "groups", "changes"])
def test_errors_and_notes_name_nothing(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = originals(SAMPLE, capsys)
    copies = tmp_path / "copies"
    shutil.copytree(SAMPLE, copies)
    (copies / "broker-1" / "link").symlink_to("/nowhere/orders-0")
    (copies / "broker-2" / "orders-what").mkdir()
    paths = [f"old={copies}", f"new={copies}"] if command == "changes" else [copies]
    outcome([command, *map(str, paths), "--topic", "ordres", *private(tmp_path), "--debug"])
    captured = capsys.readouterr()
    assert command == "changes" or "topic-" in captured.err  # the nearest is told
    assert leaks(captured.err, names) == {}
    assert leaks(captured.out, names) == {}


@pytest.mark.parametrize("command", ["scan", "plan", "compare", "epochs", "find", "dump"])
def test_brokers_that_folders_name_by_hosts_are_not_named(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [f"kafka{number}.prod.example.com" for number in (1, 2, 3)]
    for number, host in enumerate(hosts, 1):
        shutil.copytree(ROOT / "sample_logs" / "silent-divergence" / f"broker-{number}", tmp_path / "copies" / host)
        (tmp_path / "copies" / host / "meta.properties").unlink(missing_ok=True)
    paths = [str(tmp_path / "copies" / host) for host in hosts]
    asked = {"compare": ["--topic", "ledger"], "find": ["--offset", "0"]}.get(command, [])
    for format_name in FORMATS:
        assert outcome([command, *paths, *asked, "--format", format_name, *private(tmp_path)]) in (0, 1)
        captured = capsys.readouterr()
        assert leaks(captured.out + captured.err, {*hosts, "ledger", "example"}) == {}, format_name


def document(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert outcome(["scan", str(SAMPLE), "--format", "json", "-q", *arguments]) == 1
    return dict(json.loads(capsys.readouterr().out))


def test_pseudonyms_are_the_same_with_the_same_key_and_lead_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = document(tmp_path, capsys, *private(tmp_path))
    again = document(tmp_path, capsys, *private(tmp_path))
    assert first == again
    held = tmp_path / "names.json"
    assert held.stat().st_mode & 0o777 == 0o600
    rows = json.loads(held.read_text())["names"]
    plain = document(tmp_path, capsys)
    back = {pseudonym: row["name"] for pseudonym, row in rows.items()}
    topics = {partition["topic"] for partition in plain["partitions"]}
    assert {back.get(partition["topic"], partition["topic"]) for partition in first["partitions"]} == topics
    text = json.dumps(first)
    for pseudonym, name in back.items():
        text = text.replace(pseudonym, name)
    assert json.loads(text) == plain  # nothing but names was changed
    other = document(tmp_path, capsys, "--redact", "--redact-map", str(tmp_path / "other.json"))
    assert other != first
    assert [partition["verdict"] for partition in other["partitions"]] == [each["verdict"] for each in plain["partitions"]]
