"""What `compare` prints in every format, and how it ends."""

import base64
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.outputs.compare import content_words, write_comparison
from kafka_forensics.cli.streams import Destination
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions import compare as side_by_side
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from tests.support.json_schemas import json_schema
from tests.support.replicas import put_replica
from tests.support.results import EVIL
from tests.support.segments import BASE_TIMESTAMP, log

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
Run = Callable[..., tuple[int, str, str]]
HOSTILE = EVIL.encode("utf-8", "surrogatepass") + b"\xff"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `compare PATH... OPTION...`: exit status, stdout, stderr."""

    def compare(path: Path, *arguments: str) -> tuple[int, str, str]:
        paths = sorted(str(each) for each in path.iterdir()) if path.is_dir() else [str(path)]
        status = outcome(["compare", *paths, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return compare


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Two brokers whose only record differs; one of the records tries everything at a terminal."""
    evil = [RecordToWrite(HOSTILE, HOSTILE * 9, [("h\x1b[31m", HOSTILE)])]
    evil_log = write_batch(evil, base_offset=0, base_timestamp=BASE_TIMESTAMP, producer_id=2**60, producer_epoch=7, base_sequence=9)
    put_replica(tmp_path / "hostile", 1, evil_log, high_watermark=1)
    tame = write_batch([RecordToWrite(b"", None)], base_offset=0, base_timestamp=BASE_TIMESTAMP + 86_400_000)
    put_replica(tmp_path / "hostile", 2, tame, high_watermark=1)
    return tmp_path / "hostile"


def is_plain(text: str) -> bool:
    return all(each.isprintable() or each in "\n\t" for each in text)


def test_the_table_of_an_unclean_election(run: Run) -> None:
    status, out, err = run(SAMPLES / "unclean-election", "--topic", "audit", "--format", "table", "--context", "1")
    assert status == 1
    assert err == "critical: audit-0 on 3 replicas: first difference at offset 300\n"
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("CRITICAL  audit-0  first difference at offset 300; offsets below 370 were\n")
    assert "survive only on broker 2, and Kafka will truncate them at offset 300 to match" in " ".join(out.split())
    assert "  broker 2   offsets 0 to 369   high watermark 370   epoch 0\n" in out
    _, _, table = out.partition("  offset ")
    assert [line.split() for line in table.splitlines()] == [
        ["broker", "epoch", "time", "key", "value"],
        ["299", "all", "0", "03:55:47.381", "7", "B", "e4abd1", "47", "B", "2ee1a3"],
        ["-" * 76],
        [">", "300", "1", "2", "03:56:10.120", "7", "B", "7c40c4", "53", "B", "b33591"],
        [">", "2", "0", "03:55:59.057", "7", "B", "7c40c4", "47", "B", "9eaa59"],
        [">", "3", "nothing:", "its", "log", "ends", "at", "300"],
        [">", "301", "1", "2", "03:56:10.120", "7", "B", "d2254e", "53", "B", "63cbcc"],
        [">", "2", "0", "03:55:59.057", "7", "B", "d2254e", "47", "B", "2030ef"],
        [">", "3", "nothing:", "its", "log", "ends", "at", "300"],
        [],
        [">", "differs;", "times", "of", "2026-11-21,", "UTC;", "digests:", "first", "digits", "of", "SHA-256;"],
        ["--show-payloads", "shows", "keys", "and", "values"],
    ]


def test_replicas_that_hold_the_same_share_a_line(run: Run) -> None:
    status, out, _ = run(SAMPLES / "silent-divergence", "--format", "table", "--show-payloads")
    assert status == 1
    assert "FORK_BELOW_HW" in out
    assert re.findall(r"^>.*|^ +(?:key|value) .*", out, re.MULTILINE)[:4] == [
        ">      0  1       04:07:59.092  null  9 B 6be201",
        "                  value  payment-1",
        ">         2, 3    04:08:40.295  null  7 B 096642",
        "                  value  after-1",
    ]


@pytest.mark.parametrize("format_name", ["table", "markdown"])
def test_identical_replicas_are_said_to_be(run: Run, format_name: str) -> None:
    status, out, err = run(SAMPLES / "healthy", "--topic", "orders", "--partition", "0", "--format", format_name)
    assert status == 0
    assert "no difference: the same in offsets 0 to 499 on 3 replicas" in re.sub(r"\s+", " ", out)
    assert "> " not in out
    assert err == "clean: orders-0 on 3 replicas: no difference: the same in offsets 0 to 499 on 3 replicas\n"


def test_unread_input_is_not_said_to_be_the_same(run: Run, tmp_path: Path) -> None:
    for broker in (1, 2):
        put_replica(tmp_path, broker, b"".join(log(3)))
    with tarfile.open(tmp_path / "cut.tar", "w") as archive:
        archive.add(tmp_path / "broker-2", "broker-2")
    shutil.rmtree(tmp_path / "broker-2")
    whole = (tmp_path / "cut.tar").read_bytes().rstrip(b"\0")
    (tmp_path / "cut.tar").write_bytes(whole + bytes(-len(whole) % tarfile.BLOCKSIZE))  # without its end marker
    status, _, err = run(tmp_path)
    assert status == 3
    assert "no difference found where readable: the same in " in err


def test_a_lagging_replica_is_no_error(run: Run, tmp_path: Path) -> None:
    for broker, batches in ((1, 10), (2, 6), (3, 6)):
        put_replica(tmp_path, broker, b"".join(log(batches)), high_watermark=12)
    status, out, err = run(tmp_path, "--format", "tsv")
    assert status == 0
    assert "no conflict: brokers 2, 3 are 8 offsets behind and hold the same below 12" in err
    assert [line.split("\t")[:4] for line in out.splitlines()[10:13]] == [
        ["12", "true", "1", "record"],
        ["12", "true", "2", "beyond_log_end"],
        ["12", "true", "3", "beyond_log_end"],
    ]


@pytest.mark.parametrize(("fail_on", "status"), [("none", 0), ("error", 1), ("critical", 1)])
def test_the_exit_status_follows_fail_on(run: Run, fail_on: str, status: int) -> None:
    assert run(SAMPLES / "silent-divergence", "--fail-on", fail_on)[0] == status


def test_what_cannot_be_read_outranks_what_was_found(run: Run, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "cut.tar", "w") as tar:
        tar.add(SAMPLES / "silent-divergence", "silent-divergence")
    whole = (tmp_path / "cut.tar").read_bytes()
    with tarfile.open(tmp_path / "cut.tar") as tar:
        last = tar.getmembers()[-1]
    (tmp_path / "cut.tar").write_bytes(whole[: last.offset_data + 1])
    status, _, err = run(tmp_path / "cut.tar")
    assert status == 3
    assert "incomplete: " in err


def test_a_partition_that_is_not_there_is_a_question_about_another(run: Run) -> None:
    status, out, err = run(SAMPLES / "unclean-election", "--topic", "audt")
    assert (status, out) == (2, "")
    assert err.startswith(
        "error: nothing fits --topic audt: there is no topic 'audt'\nhint: did you mean --topic audit --partition 0? "
    )
    assert run(SAMPLES / "healthy", "--engine", "spark")[0] == 2
    assert run(SAMPLES / "healthy", "--topic", "orders")[0] == 2


def test_json_holds_every_replica_at_every_offset(run: Run) -> None:
    status, out, _ = run(SAMPLES / "unclean-election", "--topic", "audit", "--format", "json")
    told = json.loads(out)
    assert status == 1
    assert list(told) == [
        "schema_version",
        "tool",
        "verdict",
        "partition",
        "first_difference",
        "offsets",
        "findings",
        "incomplete",
    ]
    assert (told["verdict"], told["first_difference"]) == ("critical", 300)
    assert [replica["log_end_offset"] for replica in told["partition"]["replicas"]] == [345, 370, 300]
    assert [row["offset"] for row in told["offsets"]] == list(range(297, 304))
    row = told["offsets"][3]
    assert (row["differs"], [held["broker"] for held in row["replicas"]]) == (True, [1, 2, 3])
    first, _, third = row["replicas"]
    assert (first["timestamp_ms"], first["timestamp"]) == (1795233370120, "2026-11-21T03:56:10.120Z")
    assert (first["partition_leader_epoch"], first["key_size"], len(first["value_digest"])) == (2, 7, 64)
    assert third["state"] == "beyond_log_end"
    assert {third[key] for key in first if key not in ("broker", "state")} == {None}
    assert not {"key", "value", "headers"} & first.keys()
    assert told["findings"][0]["kind"] == "UNCLEAN_LOSS"


@pytest.mark.parametrize("arguments", [(), ("--show-payloads",), ("--context", "1")], ids=str)
@pytest.mark.parametrize("where", ["unclean-election audit", "silent-divergence ledger", "healthy profiles"])
def test_json_obeys_its_schema(run: Run, where: str, arguments: tuple[str, ...]) -> None:
    shared = Resource.from_contents(json_schema("scan"))
    validator = Draft202012Validator(json_schema("compare"), registry=Registry().with_resource(str(shared.id()), shared))
    sample, topic = where.split()
    _, out, _ = run(SAMPLES / sample, "--topic", topic, "--partition", "0", "--format", "json", *arguments)
    validator.validate(json.loads(out))


def test_json_lines_hold_the_same(run: Run) -> None:
    arguments = ("--topic", "audit", "--context", "2", "--show-payloads", "--format")
    told = json.loads(run(SAMPLES / "unclean-election", *arguments, "json")[1])
    objects: list[dict[str, Any]] = list(map(json.loads, run(SAMPLES / "unclean-election", *arguments, "jsonl")[1].splitlines()))
    held = [{"offset": row["offset"], "differs": row["differs"]} | each for row in told["offsets"] for each in row["replicas"]]
    place = {"topic": "audit", "partition": 0}
    assert [one for one in objects if one["type"] == "held"] == [{"type": "held"} | place | one for one in held]
    assert [one["type"] for one in objects if one["type"] != "held"] == [
        "partition",
        *["replica"] * 3,
        *["finding"] * len(told["findings"]),
        "summary",
    ]
    assert objects[-1]["first_difference"] == 300


@pytest.mark.parametrize("format_name", ["table", "tsv", "json", "jsonl", "markdown"])
@pytest.mark.parametrize("payloads", [True, False])
def test_hostile_records_reach_no_terminal(run: Run, hostile: Path, format_name: str, payloads: bool) -> None:
    status, out, err = run(hostile, "--format", format_name, *["--show-payloads"] * payloads)
    assert status == 1
    assert is_plain(out)
    assert is_plain(err)
    assert ("pwned" in out) is (payloads and format_name != "markdown")
    if format_name == "tsv":
        assert {line.count("\t") for line in out.splitlines()} == {out.splitlines()[0].count("\t")}
    if format_name == "table":
        assert max(map(len, out.splitlines())) <= 80


def test_payloads_in_json_are_text_and_bytes(run: Run, hostile: Path) -> None:
    told = json.loads(run(hostile, "--format", "json", "--show-payloads")[1])
    evil, tame = told["offsets"][0]["replicas"]
    assert base64.b64decode(evil["value_base64"]) == HOSTILE * 9
    assert evil["key"].startswith("\\x1b]0;pwned\\x07")
    assert evil["headers"][0]["key"] == "h\\x1b[31m"
    assert (evil["producer_id"], evil["producer_id_string"]) == (2**60, str(2**60))
    assert (tame["key"], tame["value"], tame["value_base64"], tame["value_size"]) == ("", None, None, -1)


def test_what_is_too_wide_takes_two_lines(run: Run, hostile: Path) -> None:
    _, out, _ = run(hostile, "--format", "table")
    lines = out[out.index("  offset  broker") :].splitlines()
    assert lines[0].split() == ["offset", "broker", "epoch", "time", "producer"]
    assert lines[1].split() == ["key", "value", "headers"]
    assert lines[2].split() == [">", "0", "1", "0", "2023-11-14", "22:13:20.000", f"{2**60}/7", "#9"]
    assert lines[4].split() == [">", "2", "0", "2023-11-15", "22:13:20.000"]
    assert lines[5].split() == ["empty", "null"]


def test_long_names_of_brokers_are_numbered(run: Run, tmp_path: Path) -> None:
    put_replica(tmp_path, "in-the-cellar", b"".join(log(3)))
    put_replica(tmp_path, "in-the-attic-beside-the-window", b"".join(log(2)))
    _, out, _ = run(tmp_path, "--format", "table", "--context", "0")
    assert "  #1 broker broker-in-the-attic-beside-the-window   offsets 0 to 3" in out
    assert ">      4  #1      nothing: its log ends at 4\n" in out


def test_markers_are_named(run: Run, tmp_path: Path) -> None:
    marker = {"base_offset": 2, "producer_id": 5, "producer_epoch": 0, "coordinator_epoch": 1, "timestamp": BASE_TIMESTAMP}
    for broker in (1, 2):
        put_replica(tmp_path, broker, b"".join(log(1)) + write_marker(broker == 1, **marker), high_watermark=3)
    _, out, _ = run(tmp_path, "--format", "table", "--context", "0")
    assert re.findall(r"^>.* 5/0 +(\w+) +6 B 186128$", out, re.MULTILINE) == ["COMMIT", "ABORT"]


def test_markdown_is_a_table(run: Run) -> None:
    status, out, _ = run(SAMPLES / "silent-divergence", "--format", "markdown", "--context", "0")
    assert status == 1
    assert out.startswith("# kafka-forensics: ledger-0: critical\n\nfirst difference at offset 0; offsets below 3")
    assert (
        "\n|  | offset | broker | time | key | value |\n| --- | --- | --- | --- | --- | --- |\n| \\> | 0 | 1 | 04:07:59.092 |"
        in out
    )


def test_the_answer_can_go_to_a_file_but_not_among_the_evidence(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "told.json"
    status, out, _ = run(SAMPLES / "silent-divergence", "--output", str(target))
    assert (status, out) == (1, "")
    assert json.loads(target.read_text())["first_difference"] == 0
    inside = SAMPLES / "silent-divergence" / "broker-1" / "told.json"
    assert run(SAMPLES / "silent-divergence", "--output", str(inside))[0] == 2
    assert not inside.exists()


def test_sizes_in_words() -> None:
    assert [content_words(size, None) for size in (-1, 0, 20_000_000)] == ["null", "empty", "20000000 B"]


def test_only_what_differs_is_red() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    paths = sorted(str(path) for path in (SAMPLES / "unclean-election").iterdir())
    compared = side_by_side.compare(paths, ScanOptions(topic_glob="audit"), context=1)
    write_comparison(compared, "table", Destination(screen, 80, colour=True), payloads=False, verbose=False)
    *_, before, _, first, second, third = screen.getvalue().partition("7 B d2254e")[0].splitlines()[:-1]
    red = [re.findall(r"\x1b\[1;31m([^\x1b]*)", line) for line in (before, first, second, third)]
    assert red == [[], [">", "2", "03:56:10.120", "53 B b33591"], [">", "0", "03:55:59.057", "47 B 9eaa59"], [">"]]


def test_one_broker_asked_for_is_told_to_be_left_out(run: Run) -> None:
    status, _, err = run(SAMPLES / "unclean-election", "--topic", "audit", "--broker", "1")
    assert status == 2
    assert err.splitlines()[-1] == "hint: leave out --broker, with which no other broker is looked at"
