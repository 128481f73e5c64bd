"""`produce_back.py`, as `recover` wrote it next to the records: what it would send, and that it goes on where it stopped."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.places import SAMPLES

NOBODY = ("--bootstrap-servers", "127.0.0.1:9")
SEND = (*NOBODY, "--send", "--setting", "test.mock.num.brokers=1")
"""To the client's own broker, in its process: it answers, and keeps nothing."""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("recovered") / "lost"
    assert outcome(["recover", str(SAMPLES / "unclean-election"), "--topic", "audit", "--output", str(output), "-q"]) == 1
    return output


@pytest.fixture
def lost(recovered: Path, tmp_path: Path) -> Path:
    """A copy of what `recover` wrote."""
    return Path(shutil.copytree(recovered, tmp_path / "lost"))


@pytest.fixture
def script(lost: Path) -> Any:
    """The script there as a module."""
    spec = importlib.util.spec_from_file_location("produce_back", lost / "produce_back.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(script: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """The status of the script, and what it says on both streams."""

    def run(*options: str) -> tuple[int, str, str]:
        try:
            status = script.main(options)
        except SystemExit as end:
            status = end.code
        return (status, *capsys.readouterr())

    return run


def rewrite(folder: Path, **changes: Any) -> None:
    """Give every record these values."""
    path = folder / "records.jsonl"
    records = [json.loads(line) | changes for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def acknowledged(count: int) -> tuple[int, str, str]:
    return 0, f"{count} records acknowledged\n", ""


def produced(folder: Path) -> list[str]:
    return (folder / "produced.txt").read_text().splitlines()


ALL = [f"audit\t0\t{offset}" for offset in range(300, 370)]


def test_without_send_nothing_is_sent(run: Run, lost: Path) -> None:
    told = "70 records to audit-0, proven committed\n70 records in all, 0 were produced before; nothing was sent: add --send\n"
    assert run(*NOBODY) == run() == (0, told, "")
    assert not (lost / "produced.txt").exists()
    rewrite(lost, proof="maybe")
    assert "70 records to audit-0, maybe committed" in run()[1]
    assert "0 records in all" in run("--committed-only")[1]
    status, _, said = run("--send")
    assert (status, "--send needs --bootstrap-servers" in said) == (2, True)
    (lost / "records.jsonl").unlink()
    assert run() == (2, "", f"error: no {lost}/records.jsonl: copy it to the directory of this script\n")


def test_what_was_acknowledged_is_not_sent_again(run: Run, lost: Path) -> None:
    """A look at another topic does not count."""
    assert run(*SEND, "--to-topic", "look") == acknowledged(70)
    assert run(*SEND, "--to-topic", "look") == acknowledged(0)
    lines = (lost / "records.jsonl").read_text().splitlines(keepends=True)
    (lost / "records.jsonl").write_text("".join(lines[:30]))
    assert run(*SEND) == acknowledged(30)
    (lost / "records.jsonl").write_text("".join(lines))
    assert "40 records in all, 30 were produced before" in run()[1]
    assert run(*SEND) == acknowledged(40)
    assert run(*SEND) == acknowledged(0)
    assert produced(lost) == ALL


def test_a_line_that_was_not_written_whole_counts_for_nothing(run: Run, lost: Path) -> None:
    (lost / "produced.txt").write_text("audit\t0\t300\naudit\t0\t30")
    assert "69 records in all, 1 were produced before" in run()[1]
    assert run(*SEND) == acknowledged(69)
    assert produced(lost) == ALL


def test_bytes_that_are_no_text_are_sent_too(run: Run, lost: Path) -> None:
    rewrite(lost, key=None, value={"base64": "AP8="}, headers=[["h", {"base64": "/w=="}], ["n", None]], timestamp_ms=-1)
    assert run(*SEND) == acknowledged(70)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"headers": [[{"base64": "/w=="}, None]]}, "the name of a header is not text"),
        ({"value": {"base64": "?"}}, "error: "),
    ],
)
def test_what_cannot_be_sent_ends_it_with_2(run: Run, lost: Path, changes: dict[str, Any], words: str) -> None:
    first = (lost / "records.jsonl").read_text().splitlines(keepends=True)[0]
    rewrite(lost, **changes)
    (lost / "records.jsonl").write_text(first + (lost / "records.jsonl").read_text())
    status, _, said = run(*SEND)
    assert (status, words in said) == (2, True)
    assert produced(lost) == ALL[:1], "what came before is waited for"


def test_records_of_internal_topics_are_left_out(run: Run, lost: Path) -> None:
    first = (lost / "records.jsonl").read_text().splitlines(keepends=True)[0]
    rewrite(lost, topic="__transaction_state")
    (lost / "records.jsonl").write_text((lost / "records.jsonl").read_text() + first)
    left_out = "70 records of __transaction_state left out: only brokers write internal topics\n"
    assert left_out + "1 records in all, 0 were produced before" in run()[1]
    assert run(*SEND) == (0, f"{left_out}1 records acknowledged\n", "")


def test_without_its_library_a_sentence_says_what_to_install(run: Run, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "Producer", None)
    assert run()[0] == 0, "a dry run needs no library"
    status, out, said = run(*SEND)
    assert (status, out, said.count("\n"), "pip install confluent-kafka" in said) == (2, "", 1, True)


def test_a_record_that_is_refused_stops_it(run: Run, lost: Path) -> None:
    status, out, said = run(*SEND, "--setting", "message.timeout.ms=150", "--setting", "test.mock.broker.rtt=300")
    assert (status, out, said.count("\n"), produced(lost)) == (1, "0 records acknowledged\n", 1, [])
    assert "stopped: audit-0 offset 3" in said


def test_where_no_broker_answers_one_line_says_so(run: Run, lost: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "FIRST_ANSWER_SECONDS", 1)
    status, out, said = run(*NOBODY, "--send")
    assert (status, out, said.count("\n"), produced(lost)) == (2, "", 1, [])
    assert said.startswith("error: no broker answered at 127.0.0.1:9 in 1 seconds: ")
    assert "Connection refused" in said
