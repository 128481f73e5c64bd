"""`examples/produce_back.py` on what `recover` wrote: what it would send, and that it goes on where it stopped."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.main import outcome

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "produce_back.py"
MOCKED = ("--setting", "test.mock.num.brokers=1")
"""The client's own broker, in its process: it answers, and keeps nothing."""


@pytest.fixture(name="lost")
def recovered_from_the_sample(tmp_path: Path) -> Path:
    output = tmp_path / "lost"
    assert (
        outcome(["recover", str(ROOT / "sample_logs" / "unclean-election"), "--topic", "audit", "--output", str(output), "-q"]) == 1
    )
    return output


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder), "--bootstrap-servers", "127.0.0.1:9", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rewrite(folder: Path, **changes: Any) -> None:
    """Give every record these values."""
    path = folder / "records.jsonl"
    records = [json.loads(line) | changes for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_without_send_nothing_is_sent(lost: Path) -> None:
    done = run(lost)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "70 records to audit-0, proven committed",
        "70 records in all, 0 were produced before; nothing was sent: add --send",
    ]
    assert not (lost / "produced.txt").exists()
    rewrite(lost, proof="maybe")
    assert "70 records to audit-0, maybe committed" in run(lost).stdout
    assert "0 records in all" in run(lost, "--committed-only").stdout


def test_what_was_acknowledged_is_not_sent_again(lost: Path) -> None:
    lines = (lost / "records.jsonl").read_text().splitlines(keepends=True)
    (lost / "records.jsonl").write_text("".join(lines[:30]))
    assert run(lost, "--send", *MOCKED).stdout == "30 records acknowledged\n"
    (lost / "records.jsonl").write_text("".join(lines))
    assert "40 records in all, 30 were produced before" in run(lost).stdout
    done = run(lost, "--send", *MOCKED)
    assert (done.returncode, done.stdout) == (0, "40 records acknowledged\n"), done.stderr
    assert run(lost, "--send", *MOCKED).stdout == "0 records acknowledged\n"
    offsets = [line.split("\t") for line in (lost / "produced.txt").read_text().splitlines()]
    assert offsets == [["audit", "0", str(offset)] for offset in range(300, 370)]


def test_a_look_at_another_topic_does_not_count(lost: Path) -> None:
    assert run(lost, "--send", "--to-topic", "look", *MOCKED).stdout == "70 records acknowledged\n"
    assert run(lost, "--send", "--to-topic", "look", *MOCKED).stdout == "0 records acknowledged\n"
    assert "70 records in all, 0 were produced before" in run(lost).stdout
    assert run(lost, "--send", *MOCKED).stdout == "70 records acknowledged\n"


def test_a_line_that_was_not_written_whole_counts_for_nothing(lost: Path) -> None:
    (lost / "produced.txt").write_text("audit\t0\t300\naudit\t0\t30")
    assert "69 records in all, 1 were produced before" in run(lost).stdout
    assert run(lost, "--send", *MOCKED).stdout == "69 records acknowledged\n"
    offsets = [line.split("\t")[2] for line in (lost / "produced.txt").read_text().splitlines()]
    assert offsets == [str(offset) for offset in range(300, 370)]


def test_bytes_that_are_no_text_are_sent_too(lost: Path) -> None:
    rewrite(lost, key=None, value={"base64": "AP8="}, headers=[["h", {"base64": "/w=="}], ["n", None]], timestamp_ms=-1)
    assert run(lost, "--send", *MOCKED).stdout == "70 records acknowledged\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topic": "__consumer_offsets"}, "only brokers write internal topics"),
        ({"headers": [[{"base64": "/w=="}, None]]}, "the name of a header is no text"),
        ({"value": {"base64": "?"}}, "error: "),
    ],
)
def test_what_cannot_be_sent_ends_it_with_2(lost: Path, changes: dict[str, Any], said: str) -> None:
    first = (lost / "records.jsonl").read_text().splitlines(keepends=True)[0]
    rewrite(lost, **changes)
    (lost / "records.jsonl").write_text(first + (lost / "records.jsonl").read_text())
    done = run(lost, "--send", *MOCKED)
    assert (done.returncode, said in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr
    assert (lost / "produced.txt").read_text() == "audit\t0\t300\n", "what came before is waited for"


def test_a_record_that_is_refused_stops_it(lost: Path) -> None:
    late = ("--setting", "message.timeout.ms=600", "--setting", "test.mock.broker.rtt=1200")
    done = run(lost, "--send", *MOCKED, *late)
    assert (done.returncode, "stopped: audit-0 offset 3" in done.stderr, done.stderr.count("\n")) == (1, True, 1), done
    assert (done.stdout, (lost / "produced.txt").read_text()) == ("0 records acknowledged\n", "")


def test_where_no_broker_answers_one_line_says_so(lost: Path) -> None:
    done = run(lost, "--send")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert done.stderr.startswith("error: no broker answered at 127.0.0.1:9 in 10 seconds: ")
    assert "Connection refused" in done.stderr
    assert (lost / "produced.txt").read_text() == ""


def test_without_brokers_there_is_a_dry_run_and_nothing_else(lost: Path, tmp_path: Path) -> None:
    def bare(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=120, check=False)

    assert "70 records in all" in bare(str(lost)).stdout
    refused = bare(str(lost), "--send")
    assert (refused.returncode, "--send needs --bootstrap-servers" in refused.stderr) == (2, True)
    nowhere = bare(str(tmp_path / "nosuch"))
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert nowhere.stderr == f"error: no records.jsonl in {tmp_path / 'nosuch'}: give a directory that `recover` wrote\n"
