"""Every command on bundles of `collect --redact`: no output contains a name of the evidence.

`tests/questions/collect/test_redacted.py` shows that no bundle contains one.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.options import FORMATS
from tests.cli.every_command import evidence_commands
from tests.cli.runs import Run
from tests.support.bundles import names_by_pseudonym, replace_pseudonyms
from tests.support.nightly import daily_subset
from tests.support.places import SAMPLES

SAMPLE = SAMPLES / "unclean-election"
_NAME_KEYS = frozenset(
    {"group", "transactional_id", "client_id", "member_id", "client_host", "host", "resource_name", "process_id"}
)
MORE_COMMANDS = (
    ["plan"],
    ["groups", "--all-partitions"],
    ["dump", "--offset", "0..99"],
    ["dump", "--records", "--offset", "0..19"],
)


def string_values(document: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(document, dict):
        for name, item in document.items():
            yield from string_values(item, str(name))
    elif isinstance(document, list):
        for item in document:
            yield from string_values(item, key)
    elif isinstance(document, str) and document:
        yield key, document


def names_of_evidence(folder: Path, output: Path) -> set[str]:
    """Names of topics, of the cluster, and in records of internal topics, below a folder of log directories."""
    directories = [path for path in folder.rglob("*-*") if path.is_dir() and re.fullmatch(r".+-\d+", path.name)]
    names = {path.name.rpartition("-")[0] for path in directories if any(path.glob("*.log")) and not path.name.startswith("__")}
    for path in folder.rglob("meta.properties"):
        names |= set(re.findall(r"^cluster\.id=(.+)$", path.read_text(), re.MULTILINE))
    internal = [str(path) for path in directories if path.name.startswith("__")]
    assert outcome(["dump", "--records", "--output", str(output), "-q", *internal]) == 0
    for line in output.read_text().splitlines():
        names |= {value for key, value in string_values(json.loads(line).get("detail")) if key in _NAME_KEYS}
    return {name for name in names if not name.isdecimal() and not name.startswith("__")}  # without names that Kafka defines


def leaks(text: str, names: set[str]) -> dict[str, str]:
    """Name → the text around it."""
    leaked = {}
    for name in names:
        match = re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text, re.IGNORECASE)
        if match is not None:
            leaked[name] = text[max(0, match.start() - 100) : match.end() + 100]
    return leaked


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Bundles of an older broker and of the brokers of the sample, redacted with the map `names.json` beside them."""
    folder = tmp_path_factory.mktemp("bundles")
    log_dirs = [SAMPLES / "healthy" / "broker-1", *sorted(SAMPLE.iterdir())]
    paths = [folder / f"{number}.kfb" for number in range(len(log_dirs))]
    for log_dir, bundle in zip(log_dirs, paths, strict=True):
        options = ["--redact", "--redact-map", str(folder / "names.json"), "--compacted", "*", "--hash"]
        assert outcome(["collect", str(log_dir), "--output", str(bundle), *options, "-q"]) == 0
    return paths


@pytest.fixture(scope="module")
def names(bundles: list[Path]) -> set[str]:
    return names_of_evidence(SAMPLE, bundles[0].with_name("records.jsonl"))


@pytest.fixture
def run_without_names(names: set[str], run: Run) -> Callable[..., str]:
    """Run a command, check its exit status, and that its output contains no name; return the output."""

    def command(*arguments: object, statuses: tuple[int, ...] = (0, 1, 3)) -> str:
        status, out, err = run(*arguments)
        assert status in statuses, err
        assert leaks(out + err, names) == {}, arguments
        return out + err

    return command


def replicated_topic(bundles: list[Path]) -> str:
    """The pseudonym of a topic with several replicas."""
    return next(
        pseudonym for pseudonym, (_, name) in names_by_pseudonym(bundles[0].with_name("names.json")).items() if name == "audit"
    )


def test_output_of_the_sample_contains_the_names(names: set[str], run: Run) -> None:
    assert {"orders", "billing", "payments"} <= names
    assert len(names) > 12
    assert leaks(run("scan", *sorted(SAMPLE.iterdir()), "--format", "json", "-q")[1], names)


@pytest.mark.parametrize("format_name", daily_subset({"json"}, FORMATS))
def test_no_command_prints_a_name(format_name: str, bundles: list[Path], run_without_names: Callable[..., str]) -> None:
    for name, *options in [
        *([name, *options] for name, options in evidence_commands(replicated_topic(bundles)).items()),
        *MORE_COMMANDS,
    ]:
        assert "topic-" in run_without_names(name, *bundles[1:], *options, "--format", format_name, "--debug"), name
    assert run_without_names("changes", *bundles[:2], "--format", format_name)


def test_no_command_writes_a_name(
    bundles: list[Path], names: set[str], run_without_names: Callable[..., str], tmp_path: Path
) -> None:
    topic, plan, scan = replicated_topic(bundles), tmp_path / "plan.json", tmp_path / "scan.json"
    for name, *options in (
        ["plan", "--topic", topic, "--output", plan],
        ["verify", "--against", plan],
        ["recover", "--output", tmp_path / "recovered"],
        ["salvage", "--output", tmp_path / "salvaged"],
        ["export", "--output", tmp_path / "facts"],
        ["report", "--hashes", "--output", tmp_path / "report.html"],
        ["scan", "--topic", topic, "--report", tmp_path / "scan.html", "--output", scan],
    ):
        run_without_names(name, *bundles[1:], *options, statuses=(0, 1, 2, 3))
    run_without_names("report", scan, "--output", tmp_path / "document.html")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts = {path: path.read_text() for path in written if path.suffix != ".parquet"}
    assert {path.name for path in texts} >= {"plan.json", "scan.json", "report.html", "scan.html", "document.html"}
    assert len(written) > len(texts) > 5
    for path, text in texts.items():
        assert leaks(f"{path.relative_to(tmp_path)} {text}", names) == {}, path
        assert path.suffix != ".html" or f"{topic}-0" in text


def sort_lists(document: Any) -> Any:
    """A document with sorted lists, because pseudonyms have another order than names."""
    if isinstance(document, dict):
        return {name: sort_lists(item) for name, item in document.items()}
    return sorted(map(sort_lists, document), key=json.dumps) if isinstance(document, list) else document


@pytest.mark.parametrize("command", ["plan", "groups", "transactions", "metadata", "epochs"])
def test_answers_equal_those_of_plain_bundles_but_for_names(command: str, bundles: list[Path], run: Run, tmp_path: Path) -> None:
    plain = [tmp_path / bundle.name for bundle in bundles[1:]]
    for log_dir, bundle in zip(sorted(SAMPLE.iterdir()), plain, strict=True):
        assert run("collect", log_dir, "--output", bundle, "-q")[0] == 0
    answers = [run(command, *paths, "--format", "json", "-q")[1] for paths in (bundles[1:], plain)]
    redacted_text, plain_text = (
        text.replace(str(path.parent), "") for text, path in zip(answers, (bundles[0], plain[0]), strict=True)
    )
    redacted_text = replace_pseudonyms(redacted_text, names_by_pseudonym(bundles[0].with_name("names.json")))
    assert sort_lists(json.loads(redacted_text)) == sort_lists(json.loads(plain_text)) != []


def test_errors_and_notes_contain_no_name(bundles: list[Path], run_without_names: Callable[..., str]) -> None:
    mistyped = replicated_topic(bundles)[:-1]
    for command in ("scan", "plan", "dump", "groups"):  # the hint suggests the nearest topic
        assert "topic-" in run_without_names(command, *bundles[1:], "--topic", mistyped, "--debug", statuses=(2,))
    run_without_names("changes", f"old={bundles[1]}", f"new={bundles[2]}", "--topic", mistyped, "--debug", statuses=(0, 1, 2, 3))


def test_names_of_hosts_in_paths_are_not_printed(tmp_path: Path, run: Run) -> None:
    hosts = [f"kafka{number}.prod.example.com" for number in (1, 2, 3)]
    bundles = [tmp_path / f"{number}.kfb" for number in (1, 2, 3)]
    (tmp_path / "copies").mkdir()
    for number, host in enumerate(hosts, 1):
        host_folder = tmp_path / "copies" / host
        host_folder.symlink_to(SAMPLES / "silent-divergence" / f"broker-{number}")
        options = "--redact", "--redact-map", tmp_path / "names.json", "-q"
        assert run("collect", f"{host}={host_folder}", "--output", bundles[number - 1], *options)[0] == 0
    for command in ("scan", "plan", "epochs", "dump"):
        status, out, err = run(command, *bundles, "--format", "json")
        assert status in (0, 1)
        assert leaks(out + err, {*hosts, "ledger", "example"}) == {}, command
