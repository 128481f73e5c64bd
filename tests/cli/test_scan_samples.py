"""The whole way, from the samples' files to each output: exit statuses, the schema, and the same bytes at any `--jobs`."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.options import FORMATS
from tests.support.json_schemas import json_schema

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"


def scanned(capsys: pytest.CaptureFixture[str], sample: str, *options: str) -> tuple[int, str]:
    paths = sorted(str(path) for path in (SAMPLES / sample).iterdir() if path.is_dir())
    assert paths
    status = outcome(["scan", *paths, *options])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("sample", ["unclean-election", "silent-divergence", "healthy"])
def test_samples_keep_the_contract(capsys: pytest.CaptureFixture[str], sample: str) -> None:
    expected = json.loads((SAMPLES / "expected.json").read_text())[sample]
    status, text = scanned(capsys, sample, "--format", "json")
    assert status == expected["exit_code"]
    document = json.loads(text)
    jsonschema.Draft202012Validator(json_schema()).validate(document)
    summary = document["summary"]
    assert summary["bytes_decoded"] + summary["bytes_damaged"] + summary["bytes_skipped"] == summary["bytes_total"] > 0
    assert summary["partitions"] == len(document["partitions"])


@pytest.mark.parametrize("format_name", FORMATS)
def test_same_bytes_at_any_number_of_jobs(capsys: pytest.CaptureFixture[str], format_name: str) -> None:
    one = scanned(capsys, "unclean-election", "--format", format_name, "--jobs", "1")
    assert one[0] == 1
    assert scanned(capsys, "unclean-election", "--format", format_name, "--jobs", "3") == one


def test_fully_decoded_table_of_the_unclean_election(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = scanned(capsys, "unclean-election", "--format", "table")
    assert text.startswith("CRITICAL  audit-0  the replicas diverge at offset 300; ")
    assert "offsets 300 to 369" in text
    commands = re.sub(r" \\\n +", " ", text)
    paths = " ".join(str(SAMPLES / "unclean-election" / f"broker-{broker}") for broker in (1, 2, 3))
    assert f"$ kafka-forensics compare {paths} --topic audit --partition 0\n" in commands
    assert "PATH..." not in text


def test_path_that_does_not_exist_is_2_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["scan", str(SAMPLES / "unclean-electoin")]) == 2
    assert "did you mean" in capsys.readouterr().err
