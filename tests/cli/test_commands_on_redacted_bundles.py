"""Every command on bundles of `collect --redact`, in every format: nothing they print or write holds a name of the evidence."""

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_forensics.cli.commands.export import FACT_NAMES
from kafka_forensics.cli.main import COMMANDS, outcome
from kafka_forensics.cli.options import FORMATS, SCAN_FORMATS
from tests.support.bundles import names_of

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_logs"
SAMPLE = SAMPLES / "unclean-election"
ARCHIVE = ROOT / "tests" / "archives" / "kafka-4.3.0-healthy.tar.xz"
_NAMED = frozenset({"group", "transactional_id", "client_id", "member_id", "client_host", "host", "resource_name", "process_id"})
WITHOUT_EVIDENCE = {"collect", "explain", "demo", "doctor"}
"""Commands that print no names of any evidence; and the one that makes the bundles."""
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
    "recover": [],
    "salvage": [],
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


def originals(folder: Path, output: Path) -> Names:
    """Names in a tree of log directories, by its directories, its properties files and the records of its internal topics."""
    directories = [path for path in folder.rglob("*-*") if path.is_dir() and re.fullmatch(r".+-\d+", path.name)]
    names = {path.name.rpartition("-")[0] for path in directories if any(path.glob("*.log")) and not path.name.startswith("__")}
    for path in folder.rglob("meta.properties"):
        names |= set(re.findall(r"^cluster\.id=(.+)$", path.read_text(), re.MULTILINE))
    internal = [str(path) for path in directories if path.name.startswith("__")]
    assert outcome(["dump", "--records", "--output", str(output), "-q", *internal]) == 0
    for line in output.read_text().splitlines():
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


@dataclass(frozen=True, slots=True)
class Evidence:
    """Bundles of a cluster's brokers, made with one map."""

    bundles: list[str]
    names: Names
    """What must not be shown."""
    topic: str
    """The pseudonym of a topic of which there are several replicas."""
    older: str
    """A bundle that `changes` compares with the first."""
    log_dirs: list[str]


def redacted_bundles(folder: Path, log_dirs: list[Path], topic: str, older: Path) -> Evidence:
    bundles, names_file = [], folder / "names.json"
    for number, log_dir in enumerate([older, *log_dirs]):
        bundles.append(str(folder / f"{number}.kfb"))
        private = ["--redact", "--redact-map", str(names_file), "--compacted", "*", "--hash"]
        assert outcome(["collect", str(log_dir), "--output", bundles[-1], *private, "-q"]) == 0
    names = originals(log_dirs[0].parent, folder / "records.jsonl")
    pseudonym = next(made for made, (_, name) in names_of(names_file).items() if name == topic)
    return Evidence(bundles[1:], names, pseudonym, bundles[0], list(map(str, log_dirs)))


@pytest.fixture(scope="module", params=["sample", "archive"])
def evidence(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder = tmp_path_factory.mktemp("bundles")
    if request.param == "sample":
        return redacted_bundles(folder, sorted(SAMPLE.iterdir()), "audit", SAMPLES / "healthy" / "broker-1")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder / "copies", filter="data")
    log_dirs = sorted(path.parent for path in folder.rglob("meta.properties") if any(path.parent.glob("*-0")))
    return redacted_bundles(folder, log_dirs, "ledger", log_dirs[0])


def test_every_command_is_here_or_has_nothing_to_hide() -> None:
    assert COMMAND_LINES.keys() | WITHOUT_EVIDENCE == COMMANDS.keys()


def test_the_names_looked_for_are_there(evidence: Evidence, capsys: pytest.CaptureFixture[str]) -> None:
    assert {"orders", "billing", "payments"} <= evidence.names
    assert len(evidence.names) > 12
    assert outcome(["scan", *evidence.log_dirs, "--format", "json", "-q"]) in (0, 1)
    assert leaks(capsys.readouterr().out, evidence.names)


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_no_format_names_anything(command: str, evidence: Evidence, capsys: pytest.CaptureFixture[str]) -> None:
    everything = ""
    for arguments in COMMAND_LINES[command]:
        filled = [argument.format(topic=evidence.topic) for argument in arguments]
        for format_name in SCAN_FORMATS if command == "scan" else FORMATS:
            status = outcome([command, *evidence.bundles, *filled, "--format", format_name, "--debug"])
            captured = capsys.readouterr()
            assert status in (0, 1, 3), captured.err
            assert captured.out or command in ("plan", "find", "dump")
            assert leaks(captured.out, evidence.names) == {}, (filled, format_name)
            assert leaks(captured.err, evidence.names) == {}, (filled, format_name)
            everything += captured.out + captured.err
    assert "topic-" in everything or not COMMAND_LINES[command]


@pytest.mark.parametrize("format_name", FORMATS)
def test_changes_name_nothing(format_name: str, evidence: Evidence, capsys: pytest.CaptureFixture[str]) -> None:
    status = outcome(["changes", evidence.older, evidence.bundles[0], "--format", format_name])
    captured = capsys.readouterr()
    assert status in (0, 1, 3), captured.err
    assert captured.out or captured.err
    assert (leaks(captured.out, evidence.names), leaks(captured.err, evidence.names)) == ({}, {})


@pytest.mark.parametrize("format_name", FORMATS)
def test_promises_name_nothing(format_name: str, evidence: Evidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert outcome(["plan", *evidence.bundles, "--topic", evidence.topic, "--output", str(plan)]) in (0, 3)
    assert leaks(plan.read_text(), evidence.names) == {}
    capsys.readouterr()
    status = outcome(["verify", *evidence.bundles, "--against", str(plan), "--format", format_name])
    captured = capsys.readouterr()
    assert status in (0, 1, 3), captured.err
    assert (leaks(captured.out, evidence.names), leaks(captured.err, evidence.names)) == ({}, {})


@pytest.mark.parametrize("command", ["recover", "salvage"])
def test_what_needs_records_names_nothing(
    command: str, evidence: Evidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome([command, *evidence.bundles, "--output", str(tmp_path / "output")]) in (0, 2, 3)
    captured = capsys.readouterr()
    written = [path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".md", ".json", ".jsonl")]
    assert leaks(captured.out + captured.err + "".join(written), evidence.names) == {}


@pytest.mark.parametrize("command", ["report", "scan"])
def test_a_page_names_nothing(command: str, evidence: Evidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = "--output" if command == "report" else "--report"
    page = tmp_path / "page.html"
    for more in ([], ["--topic", evidence.topic], ["--hashes"][: command == "report"]):
        assert outcome([command, *evidence.bundles, *more, option, str(page)]) in (0, 1)
        captured = capsys.readouterr()
        text = page.read_text()
        assert f"{evidence.topic}-0" in text
        assert "What each election would cut" in text
        for shown in (text, captured.out, captured.err):
            assert leaks(shown, evidence.names) == {}


def test_a_page_of_a_document_names_nothing(evidence: Evidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer, page = tmp_path / "scan.json", tmp_path / "page.html"
    assert outcome(["scan", *evidence.bundles, "--output", str(answer)]) in (0, 1)
    assert outcome(["report", str(answer), "--output", str(page)]) == 0
    captured = capsys.readouterr()
    assert evidence.topic in page.read_text()
    for shown in (page.read_text(), captured.out, captured.err):
        assert leaks(shown, evidence.names) == {}


def test_an_export_names_nothing(evidence: Evidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "facts"
    facts = [word for name in FACT_NAMES for word in ("--fact", name)]
    assert outcome(["export", *evidence.bundles, "--output", str(output), "--topic", "*", *facts]) in (0, 3)
    captured = capsys.readouterr()
    assert (leaks(captured.out, evidence.names), leaks(captured.err, evidence.names)) == ({}, {})
    datasets = set()
    for path in sorted(path for path in output.rglob("*") if path.is_file()):
        assert leaks(str(path.relative_to(output)), evidence.names) == {}
        if path.suffix != ".parquet":
            assert leaks(path.read_text(), evidence.names) == {}
            continue
        table = pq.ParquetFile(path).read()
        datasets.add(path.relative_to(output).parts[0])
        assert leaks(str(table.schema.metadata), evidence.names) == {}
        assert leaks(json.dumps(table.to_pylist(), default=str), evidence.names) == {}, path.name
    assert {"group_offsets", "transactions", "findings", "replicas"} <= datasets


@pytest.mark.parametrize("command", ["scan", "plan", "dump", "groups", "changes"])
def test_errors_and_notes_name_nothing(command: str, evidence: Evidence, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"old={evidence.bundles[0]}", f"new={evidence.bundles[1]}"] if command == "changes" else evidence.bundles
    outcome([command, *paths, "--topic", evidence.topic[:-1], "--debug"])
    captured = capsys.readouterr()
    assert command == "changes" or "topic-" in captured.err  # the nearest is named
    assert leaks(captured.err + captured.out, evidence.names) == {}


def test_brokers_in_folders_of_their_hosts_names_are_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [f"kafka{number}.prod.example.com" for number in (1, 2, 3)]
    bundles = [str(tmp_path / f"{number}.kfb") for number in (1, 2, 3)]
    for number, host in enumerate(hosts, 1):
        host_folder = tmp_path / "copies" / host
        host_folder.parent.mkdir(exist_ok=True)
        host_folder.symlink_to(SAMPLES / "silent-divergence" / f"broker-{number}")
        private = "--redact", "--redact-map", str(tmp_path / "names.json"), "-q"
        assert outcome(["collect", f"{host}={host_folder}", "--output", bundles[number - 1], *private]) == 0
    capsys.readouterr()
    for command in ("scan", "plan", "epochs", "dump"):
        assert outcome([command, *bundles, "--format", "json"]) in (0, 1)
        captured = capsys.readouterr()
        assert leaks(captured.out + captured.err, {*hosts, "ledger", "example"}) == {}, command
