"""Every command: inputs are not changed, payloads stay private, memory is bounded."""

import hashlib
import os
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import Parameter, signature
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any, get_args

import pytest

from kafka_forensics.cli.main import COMMANDS, outcome, parser
from kafka_forensics.cli.options import InputMark, OutputMark, mark_of
from tests.cli.every_command import WITH_OTHER_ARGUMENTS, WITHOUT_EVIDENCE, evidence_commands
from tests.cli.runs import Run
from tests.support.peak_memory import peak_kib
from tests.support.places import SAMPLES

SAMPLE = SAMPLES / "unclean-election"
LONG_AGO_NS = 10**18
WITH_OUTPUT = frozenset({"export", "recover", "report", "salvage"})
"""Commands with a required output."""


def file_states(root: Path) -> dict[str, tuple[object, ...]]:
    """Path → content, mode, size and times, of everything below a directory."""
    states: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        times = (status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns if path.is_file() else 0)
        content = hashlib.sha256(_read_without_atime(path)).hexdigest() if path.is_file() else ""
        states[str(path.relative_to(root))] = (content, status.st_mode, status.st_size, *times)
    return states


def _read_without_atime(path: Path) -> bytes:
    """The content of a file, read without a change of its access time."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOATIME)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sample with access times so old that reading would change them."""
    root = tmp_path_factory.mktemp("evidence") / "copies"
    shutil.copytree(SAMPLE, root)
    for path in root.rglob("*"):
        os.utime(path, ns=(LONG_AGO_NS, path.stat().st_mtime_ns))
    return root


def test_file_states_detect_a_changed_input(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    before = file_states(tmp_path)
    os.utime(tmp_path / "a", ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert file_states(tmp_path) != before


def test_this_module_covers_every_command() -> None:
    assert evidence_commands("").keys() | WITH_OTHER_ARGUMENTS | WITHOUT_EVIDENCE == COMMANDS.keys()


@pytest.mark.parametrize("command", [*evidence_commands("audit"), *sorted(WITH_OTHER_ARGUMENTS), "collect"])
def test_no_command_changes_its_inputs(command: str, evidence: Path, tmp_path: Path, run: Run) -> None:
    before = file_states(evidence)
    arguments = [evidence, *evidence_commands("audit").get(command, [])]
    if command == "changes":
        arguments.insert(0, SAMPLES / "healthy")
    if command == "verify":
        assert run("plan", evidence, "--output", tmp_path / "plan.json", "-q")[0] == 0
        arguments += ["--against", tmp_path / "plan.json"]
    if command == "collect":
        arguments = [evidence / "broker-1", "--hash", "--deep"]
    name = {"report": "page.html", "collect": "one.kfb"}.get(command, "out")
    output = ["--output", tmp_path / name] if command in {*WITH_OUTPUT, "collect"} else []
    status, _, err = run(command, *arguments, *output, "-q")
    assert status in ((3,) if command == "salvage" else (0, 1)), err  # both sides of the fork were committed
    assert file_states(evidence) == before


Parameters = list[tuple[str, Parameter]]
"""(the option as typed, or "" for an argument; its declaration) of each option and argument that takes text."""


def commands(group: Any, *command_words: str) -> Iterator[tuple[tuple[str, ...], Parameters]]:
    """Every command of the command line."""
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *command_words, name)
    if not hasattr(group, "commands"):
        declared = signature(group.callback).parameters
        named_parameters = [
            ("" if parameter.param_type_name == "argument" else parameter.opts[0], declared.get(parameter.name))
            for parameter in group.params
        ]
        text = re.compile(r"\bstr\b|Path")
        takes_text = [
            (typed, parameter)
            for typed, parameter in named_parameters
            if parameter and text.search(str(get_args(parameter.annotation)[0]))
        ]
        yield command_words, takes_text


def with_mark(parameters: Parameters, mark: type) -> list[str]:
    return [typed for typed, parameter in parameters if mark_of(parameter, mark) is not None]


EVERY_COMMAND = dict(commands(parser()))
WRITING = [command_words for command_words, parameters in EVERY_COMMAND.items() if with_mark(parameters, OutputMark)]


@dataclass
class Scene:
    """Inputs of every kind, and places that a command with these inputs must not write to."""

    root: Path
    inputs: list[object]
    places: list[Path]

    def options(self, command_words: tuple[str, ...], new: Path) -> dict[str, object]:
        """Required options of a command, whose outputs are below `new`."""
        option_values = evidence_commands("audit").get(command_words[0], [])
        needed: dict[str, dict[str, object]] = {
            "verify": {"--against": self.root / "plan.json", "--recovered": self.root / "lost"},
            "recover": {"--plan": self.root / "plan.json", "--output": new / "out"},
            "collect": {"--output": new / "one.kfb"},
            "report": {"--output": new / "page.html"},
        }
        output: dict[str, object] = {"--output": new / "out"} if command_words[0] in WITH_OUTPUT else {}
        return dict(zip(option_values[::2], option_values[1::2], strict=True)) | needed.get(command_words[0], output)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    root = tmp_path_factory.mktemp("scene")
    copies, archive = shutil.copytree(SAMPLE, root / "copies"), root / "broker-3.tar"
    assert outcome(["plan", str(copies), "--output", str(root / "plan.json"), "-q"]) == 0
    with tarfile.open(archive, "w") as packed:
        packed.add(copies / "broker-3", "broker-3")
    (root / "lost").mkdir()
    os.utime(root / "plan.json", ns=(time.time_ns(), LONG_AGO_NS))  # accessed just now: reading it does not change that
    log, above = next((copies / "broker-2" / "audit-0").glob("*.log")), copies / "broker-1"
    (root / "hard-link").hardlink_to(log)
    (root / "hard-link-of-checkpoint").hardlink_to(above / "recovery-point-offset-checkpoint")
    (root / "link").symlink_to(copies / "broker-2")
    places = [log, root / "hard-link", root / "hard-link-of-checkpoint", root / "link" / "new", archive, copies]
    places += [above / "replication-offset-checkpoint", above / "new", above / "audit-0" / "new" / "er"]
    return Scene(root, [copies / "broker-1" / "audit-0", f"2={copies / 'broker-2'}", archive], places)


@pytest.mark.parametrize("command_words", WRITING, ids=" ".join)
def test_no_option_writes_to_an_input_or_to_another_output(
    command_words: tuple[str, ...], scene: Scene, run: Run, tmp_path: Path
) -> None:
    parameters, before = EVERY_COMMAND[command_words], file_states(scene.root)
    output_options = with_mark(parameters, OutputMark)
    plan, input_options = scene.root / "plan.json", with_mark(parameters, InputMark)
    documents = {"verify": [plan, scene.root / "lost" / "new"], "recover": [plan]}.get(command_words[0], [])
    cases = [(scene.inputs, place) for place in (*scene.places, *documents)] + [([plan], plan)]
    option_values = scene.options(command_words, tmp_path)
    for option, (inputs, place) in product(output_options if input_options else (), cases):
        status, out, err = run(*command_words, *inputs, *chain(*(option_values | {option: place}).items()))
        assert (status, out, "evidence is never written to" in err, "hint: " in err) == (2, "", True, True), (option, place, err)
    for first, second in combinations(output_options, 2):
        same_outputs = option_values | {first: tmp_path / "same", second: tmp_path / "same"}
        status, out, err = run(
            *command_words, *(scene.inputs if input_options else ["slow-follower"]), *chain(*same_outputs.items())
        )
        assert (status, out, "name the same file" in err) == (2, "", True), (first, second, err)
    assert file_states(scene.root) == before
    assert not list(tmp_path.iterdir())


UNMARKED = {
    (typed or command_words[-1], str(vars(get_args(parameter.annotation)[1])["metavar"])): (command_words, typed)
    for command_words, parameters in EVERY_COMMAND.items()
    for typed, parameter in parameters
    if mark_of(parameter, OutputMark) is None and mark_of(parameter, InputMark) is None
}


@pytest.mark.parametrize("name", sorted(UNMARKED), ids=" ".join)
def test_options_without_a_mark_write_no_file(name: tuple[str, str], scene: Scene, run: Run, tmp_path: Path) -> None:
    """A new option that names an output needs a mark; the test above then covers it."""
    assert not {"FILE", "DIR", "PATH", "ROOT"}.intersection(re.findall("[A-Z]+", name[1]))
    command_words, typed = UNMARKED[name]
    before = file_states(scene.root)
    option_values = scene.options(command_words, tmp_path)
    inputs = scene.inputs if with_mark(EVERY_COMMAND[command_words], InputMark) else []
    for place in scene.places[:2]:
        run(*command_words, *inputs, *chain(*(option_values | {typed: place}).items())) if typed else run(*command_words, place)
    assert file_states(scene.root) == before


@pytest.mark.parametrize(("exists", "umask"), [(False, 0), (True, 0), (False, 0o277)], ids=["new", "replaced", "strict umask"])
def test_files_with_payloads_are_readable_only_by_their_owner(run: Run, tmp_path: Path, exists: bool, umask: int) -> None:
    lines = {
        "recovered": "recover {} --topic audit --partition 0 --keep 1 --output",
        "salvaged": "salvage {} --topic audit --prefer-broker 1 --output",
        "exported": "export {} --show-payloads --output",
        "appended": "export {} --append --cluster a --snapshot b --fact records --output",
        "report.html": "report {} --output",
        "scan.html": "scan {} --report",
        "scan.jsonl": "scan {} --show-payloads --output",
        "dump.tsv": "dump {} --records --show-payloads --topic audit --output",
        "found.json": "find {} --offset 0 --show-payloads --output",
    }
    before = os.umask(umask)
    try:
        for name, line in lines.items():
            target = tmp_path / name
            if exists and target.suffix:
                target.write_text("before")
            elif exists:
                target.mkdir()
            status, _, err = run(*line.format(SAMPLE).split(), target, "-q")
            assert status in (0, 1), err
            for path in (target, *target.rglob("*")):
                assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("line", "name", "hint"),
    [
        ("report {place} --output {root}/page.html", "scan.json", "a file that `scan --format json` wrote"),
        ("verify {copies} --against {place}", "plan.json", "the file of `plan PATH... --format json"),
        ("verify {copies} --against {root}/plan.json --recovered {root}", "report.json", "the directory that `recover"),
        ("verify {copies} --against {root}/plan.json --recovered {root}", "records.jsonl", "the directory that `recover"),
        ("collect {copies}/broker-1 --output {root}/a.kfb --redact --redact-map {place}", "map", "name a file"),
    ],
)
def test_documents_are_regular_files_of_limited_size(line: str, name: str, hint: str, tmp_path: Path, run: Run) -> None:
    place = tmp_path / name
    assert run("plan", SAMPLE, "--output", tmp_path / "plan.json", "-q")[0] == 0
    (tmp_path / "report.json").write_text('{"files": [], "partitions": []}')
    makers: dict[str, Callable[[], object]] = {
        "a pipe": lambda: os.mkfifo(place),
        "a device": lambda: place.symlink_to("/dev/zero"),
        "a directory": place.mkdir,
        "": lambda: os.truncate(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600), 20 << 30),
    }
    for described, make in makers.items():
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        make()
        status, _, err = run(*line.format(place=place, root=tmp_path, copies=SAMPLE).split())
        message = f" is {described}" if described else "too large" if name != "records.jsonl" else "has no records"
        assert (status, message in err, hint in err) == (2, True, True), err


def test_memory_does_not_grow_with_a_sparse_log(tmp_path: Path) -> None:
    """A log with a hole of 2 GiB needs no more memory than one with a hole of 64 MiB."""
    peaks = []
    for size in (64 << 20, 2 << 30):
        copy = tmp_path / str(size) / "broker-1"
        shutil.copytree(SAMPLE / "broker-1" / "audit-0", copy / "zeros-0")
        with next((copy / "zeros-0").glob("*.log")).open("r+b") as log:
            log.truncate(size)
        peak, out = peak_kib("scan", copy, "--format", "jsonl", "--jobs", "1", "-q")
        assert '"type": "summary"' in out
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 48 << 10
