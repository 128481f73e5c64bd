"""Each error of the command line says what to do next: a hint goes with the sentence."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.plan_runs import Run

ROOT = Path(__file__).resolve().parents[2]
ASKED_WRONG = {"UsageError", "PathMissingError"}
SAMPLE = "sample_logs/healthy"


def without_hint(source: str) -> Iterator[int]:
    """Lines on which an error is made that says no next step."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name), keywords=keywords) if name in ASKED_WRONG:
                if "hint" not in {keyword.arg for keyword in keywords}:
                    yield node.lineno


def test_every_error_of_a_question_has_a_hint() -> None:
    paths = [path for path in sorted((ROOT / "kafka_forensics").rglob("*.py")) if "spark" not in path.parts]
    assert len(paths) > 100
    assert [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in without_hint(path.read_text())] == []


def test_the_rule_can_fail() -> None:
    assert list(without_hint("raise UsageError('x')\nraise UsageError('x', hint='y')\nPathMissingError('z')")) == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (
            ["help"],
            "there is no command 'help'",
            "`kafka-forensics --help` lists the commands, `kafka-forensics scan --help` shows one",
        ),
        (["scna", SAMPLE], "there is no command 'scna'", "did you mean scan?"),
        (["scan", SAMPLE, "--ouput", "x"], "no such option: --ouput", "did you mean --output?"),
        (["explain", "UNCLEAN_LOS"], "there is no finding kind and no known incident 'UNCLEAN_LOS'", "did you mean UNCLEAN_LOSS?"),
        (["explain", "kafka-10571"], "there is no finding kind and no known incident 'kafka-10571'", "did you mean KAFKA-10751?"),
        (["explain", "d99"], "there is no finding kind and no known incident 'd99'", "`kafka-forensics explain` lists the kinds"),
        (
            ["scan", ""],
            "an empty path",
            "name a log directory, a folder of them, a partition directory, a file, an archive or a URI",
        ),
        (["scan", SAMPLE, "--output", "no/x"], "cannot write to no/x: its directory does not exist", "make that directory first"),
        (["scan", SAMPLE, "--output", "lab"], "cannot write to lab: it is a directory", "name a file in it"),
        (["scan", "zzz/yyy"], "zzz/yyy: no such file or directory", "zzz does not exist either"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_said(arguments: list[str], error: str, hint: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    said, next_step = err.splitlines()
    assert said == f"error: {error}"
    assert next_step.startswith(f"hint: {hint}")


def test_a_mistyped_topic_is_told_the_nearest(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for command in ("scan", "compare", "dump", "epochs", "groups", "metadata", "plan", "transactions"):
        status, _, err = run(command, SAMPLE, "--topic", "ordres")
        assert (status, "did you mean --topic orders" in err) == (2, True), (command, err)


@pytest.mark.parametrize(
    ("name", "reason", "hint"),
    [
        ("bundle.7z", "an unsupported container; ", "unpack it, and give the directory"),
        (
            "bundle.tar.gz",
            "nothing can be read of this archive: ",
            "take it again from where it was made, and compare the checksums",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_the_next_step(name: str, reason: str, hint: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"nothing of the kind" * 100)
    status, out, err = run("scan", path)
    assert (status, out) == (3, "")
    said, next_step = err.splitlines()
    assert said.startswith(f"error: {path}: {reason}")
    assert next_step.startswith(f"hint: {hint}")
