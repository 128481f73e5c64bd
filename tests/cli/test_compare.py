"""`compare`: output in every format, and exit statuses."""

import base64
import json
import re
from pathlib import Path

import pytest

from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from tests.cli.runs import Run
from tests.support.brokers import put_meta_properties, put_replica
from tests.support.json_schemas import validate
from tests.support.places import SAMPLES
from tests.support.results import HOSTILE_TEXT
from tests.support.segments import BASE_TIMESTAMP, log

HOSTILE = HOSTILE_TEXT.encode("utf-8", "surrogatepass") + b"\xff"


@pytest.fixture
def compare(run: Run) -> Run:
    """Run `compare PATH... OPTION...` on the copies in a folder, or on one file."""
    return lambda path, *options: run("compare", *(sorted(path.iterdir()) if path.is_dir() else [path]), *options)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Two brokers whose only record differs; one of the records contains escape sequences for terminals."""
    records = [RecordToWrite(HOSTILE, HOSTILE * 9, [("h\x1b[31m", HOSTILE)])]
    hostile_log = write_batch(
        records, base_offset=0, base_timestamp=BASE_TIMESTAMP, producer_id=2**60, producer_epoch=7, base_sequence=9
    )
    put_replica(tmp_path / "hostile", 1, hostile_log, high_watermark=1)
    plain_log = write_batch([RecordToWrite(b"", None)], base_offset=0, base_timestamp=BASE_TIMESTAMP + 86_400_000)
    put_replica(tmp_path / "hostile", 2, plain_log, high_watermark=1)
    return tmp_path / "hostile"


def test_the_table_of_an_unclean_election(compare: Run) -> None:
    status, out, err = compare(SAMPLES / "unclean-election", "--topic", "audit", "--format", "text", "--context", "1")
    assert (status, err) == (1, "critical: audit-0 on 3 replicas: first difference at offset 300\n")
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


def test_status_0_means_identical_replicas_and_1_a_difference(compare: Run) -> None:
    status, out, err = compare(SAMPLES / "healthy", "--topic", "orders", "--partition", "0", "--format", "text")
    assert (status, "> " in out) == (0, False)
    assert err == "clean: orders-0 on 3 replicas: no difference: the same in offsets 0 to 499 on 3 replicas\n"
    status, out, err = compare(SAMPLES / "silent-divergence", "--format", "text")
    assert (status, "FORK_BELOW_HW" in out, "3 replicas: first difference at offset 0\n" in err) == (1, True, True)


def test_an_unknown_partition_is_refused(compare: Run, tmp_path: Path) -> None:
    status, out, err = compare(SAMPLES / "unclean-election", "--topic", "audt")
    assert (status, out) == (2, "")
    assert err.startswith(
        "error: nothing matches --topic audt: there is no topic 'audt'\nhint: did you mean --topic audit --partition 0? "
    )
    assert compare(SAMPLES / "healthy", "--topic", "orders")[0] == 2
    status, _, err = compare(SAMPLES / "unclean-election", "--topic", "audit", "--broker", "1")
    assert (status, err.splitlines()[-1]) == (2, "hint: leave out --broker: with it, only one broker is read")
    put_meta_properties(tmp_path / "broker-1", 1, cluster_id=None)
    status, _, err = compare(tmp_path)
    assert (status, err.splitlines()[0]) == (2, "error: no partition was found")


def test_json_holds_every_replica_at_every_offset(compare: Run) -> None:
    status, out, _ = compare(SAMPLES / "unclean-election", "--topic", "audit", "--format", "json")
    document = json.loads(out)
    validate("compare", document)
    assert (status, document["verdict"], document["first_difference"]) == (1, "critical", 300)
    assert [replica["log_end_offset"] for replica in document["partition"]["replicas"]] == [345, 370, 300]
    assert [row["offset"] for row in document["offsets"]] == list(range(297, 304))
    row = document["offsets"][3]
    assert (row["differs"], [replica["broker"] for replica in row["replicas"]]) == (True, [1, 2, 3])
    first, _, third = row["replicas"]
    assert (first["timestamp_ms"], first["timestamp"]) == (1795233370120, "2026-11-21T03:56:10.120Z")
    assert (first["partition_leader_epoch"], first["key_size"], len(first["value_digest"])) == (2, 7, 64)
    assert third["state"] == "beyond_log_end"
    assert {third[key] for key in first if key not in ("broker", "state")} == {None}
    assert not {"key", "value", "headers"} & first.keys()
    assert document["findings"][0]["kind"] == "UNCLEAN_LOSS"


def test_json_lines_equal_the_json_document(compare: Run) -> None:
    arguments = ("--topic", "audit", "--context", "2", "--show-payloads", "--format")
    document = json.loads(compare(SAMPLES / "unclean-election", *arguments, "json")[1])
    objects = [json.loads(line) for line in compare(SAMPLES / "unclean-election", *arguments, "jsonl")[1].splitlines()]
    rows = [
        {"offset": row["offset"], "differs": row["differs"]} | replica for row in document["offsets"] for replica in row["replicas"]
    ]
    place = {"topic": "audit", "partition": 0}
    assert [row for row in objects if row["type"] == "held"] == [{"type": "held"} | place | row for row in rows]
    other_types = [row["type"] for row in objects if row["type"] != "held"]
    assert other_types == ["partition", *["replica"] * 3, *["finding"] * len(document["findings"]), "summary"]
    assert objects[-1]["first_difference"] == 300


def test_payloads_are_shown_only_on_request_and_in_json_as_text_and_bytes(compare: Run, hostile: Path) -> None:
    for format_name in ("text", "tsv", "json"):
        for options, has_payloads in (((), False), (("--show-payloads",), True)):
            status, out, _ = compare(hostile, "--format", format_name, *options)
            assert (status, "pwned" in out) == (1, has_payloads)
            assert format_name != "tsv" or len({line.count("\t") for line in out.splitlines()}) == 1
    document = json.loads(compare(hostile, "--format", "json", "--show-payloads")[1])
    validate("compare", document)
    hostile_record, plain = document["offsets"][0]["replicas"]
    assert base64.b64decode(hostile_record["value_base64"]) == HOSTILE * 9
    assert hostile_record["key"].startswith("\\x1b]0;pwned\\x07")
    assert hostile_record["headers"][0]["key"] == "h\\x1b[31m"
    assert (hostile_record["producer_id"], hostile_record["producer_id_string"]) == (2**60, str(2**60))
    assert (plain["key"], plain["value"], plain["value_base64"], plain["value_size"]) == ("", None, None, -1)


def test_markers_are_shown_as_commit_or_abort(compare: Run, tmp_path: Path) -> None:
    marker = {"base_offset": 2, "producer_id": 5, "producer_epoch": 0, "coordinator_epoch": 1, "timestamp": BASE_TIMESTAMP}
    for broker in (1, 2):
        put_replica(tmp_path, broker, b"".join(log(1)) + write_marker(broker == 1, **marker), high_watermark=3)
    _, out, _ = compare(tmp_path, "--format", "text", "--context", "0")
    assert re.findall(r"^>.* 5/0 +(\w+) +6 B 186128$", out, re.MULTILINE) == ["COMMIT", "ABORT"]
