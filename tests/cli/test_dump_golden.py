"""`dump --format kafka-dump-log` against what Kafka's own tool printed, case by case."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.streams import printable

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dump"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text())["cases"]
RAW_PAYLOADS = "odd-records/"
"""Input whose keys and values hold control characters, line breaks among them; the tool prints them as they are."""
NEXT_LINE = re.compile(r"\n(?=\||baseOffset: |Log starting|\n|\Z)")
EXITS_EARLY = "Kafka's tool ends "


def golden_lines(case: dict[str, Any]) -> list[str]:
    """What the tool printed, line by line, each as we may show it."""
    text = (GOLDEN / str(case["stdout"])).read_bytes().decode()
    if not (case["file"].startswith(RAW_PAYLOADS) and "--print-data-log" in case["arguments"]):
        return text.removesuffix("\n").split("\n")
    return [printable(line) for line in NEXT_LINE.split(text)[:-1]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["stdout"].removesuffix(".txt"))
def test_lines_equal_those_of_kafka_s_tool(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = GOLDEN / "inputs" / case["file"]
    monkeypatch.chdir(path.parent)
    status = outcome(["dump", path.name, "--format", "kafka-dump-log", *case["arguments"]])
    capture_result = capsys.readouterr()
    assert status == 0
    assert capture_result.out.split("\n") == [*golden_lines(case), ""]
    assert (EXITS_EARLY in capture_result.err) == bool(case["exit_code"])
    if not case["exit_code"]:
        assert capture_result.err.splitlines() == [line for line in case["stderr"].splitlines() if line]


def test_no_case_is_left_out_and_every_decoder_has_one() -> None:
    assert len(CASES) == 308
    decoders = {argument for case in CASES for argument in case["arguments"] if argument.endswith("-decoder")}
    assert decoders == {
        "--cluster-metadata-decoder",
        "--offsets-decoder",
        "--share-group-state-decoder",
        "--transaction-log-decoder",
    }


def test_only_one_input_s_lines_differ_from_the_tool_s_and_by_escapes_alone() -> None:
    texts = {case["stdout"]: (GOLDEN / case["stdout"]).read_bytes().decode() for case in CASES}
    unsafe = {name for name, text in texts.items() if any(printable(line) != line for line in text.split("\n"))}
    assert unsafe == {"odd-records.log.print.txt", "odd-records.log.print-skip.txt"}
