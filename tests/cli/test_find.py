"""The `find` command: output in every format, syntax of conditions, and exit statuses."""

import base64
import json
from functools import partial
from pathlib import Path

import pytest

from kafka_forensics.cli.commands.find import content
from kafka_forensics.cli.ranges import times
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from tests.cli.runs import Run
from tests.support.brokers import put_copies, put_replica
from tests.support.kernels import kernels
from tests.support.places import SAMPLES
from tests.support.results import HOSTILE_TEXT
from tests.support.segments import BASE_TIMESTAMP, replace_bytes, segment_file

FORMATS = ("text", "tsv", "json", "jsonl")
HOSTILE = HOSTILE_TEXT.encode("utf-8", "surrogatepass") + b"\xff"
pytestmark = pytest.mark.usefixtures("wide", "chosen_kernels")


@pytest.fixture
def run(run: Run) -> Run:
    """`find` with these arguments: exit status, stdout, stderr."""
    return partial(run, "find")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A record on two brokers whose fields contain escape sequences for terminals."""
    record = RecordToWrite(HOSTILE, HOSTILE * 2, [("h\x1b[31m", HOSTILE), ("plain", b"1=2")])
    log = write_batch([record], base_offset=0, base_timestamp=BASE_TIMESTAMP, producer_id=2**60, producer_epoch=7, base_sequence=9)
    put_copies(tmp_path / "hostile", (1, 2), log)
    return tmp_path / "hostile"


def is_plain(text: str) -> bool:
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


def test_the_table_shows_which_broker_has_the_record(run: Run) -> None:
    brokers = sorted((SAMPLES / "unclean-election").glob("broker-*"))
    status, out, err = run(*brokers, "--topic", "audit", "--offset", "369", "--format", "text")
    assert status == 0
    assert err == "found 1 record in 3 segments, " + err.partition("segments, ")[2]
    header, row = out.splitlines()
    assert header.split() == ["partition", "broker", "offset", "key", "value", "value", "digest", "time", "file"]
    file = SAMPLES / "unclean-election" / "broker-2" / "audit-0" / segment_file(0)
    assert row.split()[:3] == ["audit-0", "2", "369"]
    assert row.split()[-3:] == [str(file), "at", row.split()[-1]]


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_shows_all_fields_of_a_record(run: Run, hostile: Path, format_name: str) -> None:
    status, out, _ = run(hostile, "--key", "hex:" + HOSTILE.hex(), "--show-payloads", "--format", format_name)
    assert (status, is_plain(out)) == (0, True)
    assert len(out.splitlines()) == {"text": 3, "tsv": 3, "json": 2, "jsonl": 2}[format_name]
    for number, row in enumerate(json.loads(out) if format_name == "json" else []):
        assert (row["topic"], row["partition"], row["broker"], row["offset"]) == ("orders", 0, number + 1, 0)
        assert (row["timestamp_ms"], row["timestamp"]) == (BASE_TIMESTAMP, "2023-11-14T22:13:20.000Z")
        assert (row["producer_id"], row["producer_id_string"], row["producer_epoch"], row["sequence"]) == (2**60, str(2**60), 7, 9)
        assert (row["key"], row["key_size"]) == ({"base64": base64.b64encode(HOSTILE).decode()}, len(HOSTILE))
        assert row["headers"][1] == ["plain", "1=2"]


@pytest.mark.parametrize("format_name", ["text", "json"])
def test_payloads_are_hidden_by_default_and_no_match_gives_status_0(run: Run, hostile: Path, format_name: str) -> None:
    status, out, err = run(hostile, "--offset", "0..", "--format", format_name)
    assert (status, err) == (0, "found 2 records in 2 segments, " + err.partition("segments, ")[2])
    assert ("pwned" in out, "hostile" in out) == (False, True)
    status, out, err = run(hostile, "--key", "no such", "--format", format_name, "-q")
    assert (status, out.strip()) == (0, "[]" if format_name == "json" else "")
    assert err.startswith("nothing found: no readable record in 2 segments, ")


@pytest.mark.parametrize("format_name", ["text", "tsv", "jsonl"])
@pytest.mark.parametrize("payloads", [(), ("--show-payloads",)])
def test_compiled_kernels_give_the_same_output(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str, payloads: tuple[str, ...]
) -> None:
    contents = [b"k", HOSTILE, None, b"1=2"]
    for broker, codec in enumerate(("none", "zstd"), 1):
        records = [
            RecordToWrite(key, value, headers, timestamp_delta=delta)
            for delta, (key, value, headers) in enumerate(
                (key, value, headers) for key in contents for value in contents for headers in ([], [("h\x1b[31m", value)] * 2)
            )
        ]
        log = [
            write_batch(records, base_offset=0, base_timestamp=-5, compression_type=codec),
            replace_bytes(write_batch(records, base_offset=50, base_timestamp=BASE_TIMESTAMP, producer_id=2**60), 20, b"!"),
            write_batch(records[:4], base_offset=100, base_timestamp=0, timestamp_type="LogAppendTime", compression_type=codec),
            write_marker(base_offset=104, timestamp=9, producer_id=4, producer_epoch=0, commit=True, coordinator_epoch=0),
        ]
        put_replica(tmp_path / "a \x1b \udcff name", broker, log)
    answers = []
    searches = ("--offset", "0.."), ("--key", "k"), ("--value-contains", "1="), ("--header", "h\x1b[31m=k")
    for compiled in (False, True):
        with kernels(compiled=compiled):
            answers.append([run(tmp_path, *conditions, *payloads, "-q", "--format", format_name) for conditions in searches])
    assert answers[0] == answers[1]
    assert "COMMIT" in answers[0][0][1]
    assert all((status, is_plain(out)) == (0, True) for status, out, _ in answers[0])


@pytest.mark.parametrize(
    ("arguments", "brokers"),
    [
        (["--header", "plain"], [1, 2]),
        (["--header", "plain=1=2", "--header", "h\x1b[31m"], [1, 2]),
        (["--header", "plain=hex:313d32"], [1, 2]),
        (["--header", "plain=1"], []),
        (["--header", "plain", "--header", "other"], []),
        (["--value-contains", "hex:" + HOSTILE.hex() * 2], [1, 2]),
        (["--value-contains", "hex:" + HOSTILE.hex() * 3], []),
        (["--timestamp", "2023-11-14T22:13:20Z..2023-11-14T22:13:21Z"], [1, 2]),
        (["--timestamp", f"{BASE_TIMESTAMP}"], [1, 2]),
        (["--timestamp", f"..{BASE_TIMESTAMP - 1}"], []),
        (["--producer-id", str(2**60), "--broker", "2"], [2]),
        (["--producer-id", "0"], []),
        (["--offset", "0", "--limit", "1"], [1]),
    ],
)
def test_conditions_are_joined_by_and(run: Run, hostile: Path, arguments: list[str], brokers: list[int]) -> None:
    status, out, _ = run(hostile, *arguments, "--format", "jsonl")
    assert status == 0
    assert [json.loads(line)["broker"] for line in out.splitlines()] == brokers


def test_contents_are_parsed_as_text_or_hexadecimal() -> None:
    assert content("key", "order-7") == b"order-7"
    assert content("key", "\u00e9\udcff") == b"\xc3\xa9\xff"
    assert content("key", "hex:00 ff") == b"\x00\xff"
    assert content("key", "text:hex:00") == b"hex:00"
    assert content("key", "text:") == b""


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-03-01T12:00:00Z..2026-03-01T12:00:01.500Z", 1772366400000, 1772366401501),
        ("2026-03-01T12:00:00..2026-03-01T12:00:01", 1772366400000, 1772366402000),
        ("2026-03-01T12:00", 1772366400000, 1772366460000),
        ("2026-03-01T12+00:00", 1772366400000, 1772370000000),
        ("1710123100000..", 1710123100000, None),
        ("..2026-03-01", None, 1772409600000),
        ("20260301", 1772323200000, 1772409600000),
        ("1710123100000", 1710123100000, 1710123100001),
    ],
)
def test_both_ends_of_times_are_included_with_all_that_they_name(text: str, start: int | None, end: int | None) -> None:
    assert times(text) == (start, end)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--key", "hex:0"],
        ["--offset", "5..4"],
        ["--timestamp", ".."],
        ["--timestamp", "2..1"],
        ["--timestamp", "soon"],
        ["--producer-id", "-1"],
        ["--limit", "0"],
        ["--key", "k", "--format", "xml"],
        ["--timestamp", "2026-03-02..2026-03-01T23:59:59.999"],
    ],
)
def test_invalid_conditions_give_an_error_and_a_hint(run: Run, hostile: Path, arguments: list[str]) -> None:
    status, out, err = run(hostile, *arguments)
    assert (status, out) == (2, "")
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]


def test_damage_and_the_limit_are_reported_and_only_unreadable_inputs_give_status_3(run: Run, hostile: Path) -> None:
    _, _, err = run(hostile, "--offset", "0", "--limit", "1")
    assert "of 2 replicas, read one after another, 1 was not reached: orders-0 on broker 2\n" in err
    assert "not reached" not in run(hostile, "--offset", "0", "--limit", "2")[2]
    file = hostile / "broker-1" / "orders-0" / segment_file(0)
    file.write_bytes(replace_bytes(file.read_bytes(), 8, b"\x7f\xff\xff\xff"))
    status, out, err = run(hostile, "--offset", "0")
    assert (status, len(out.splitlines())) == (0, 2)
    assert "1 damaged place could not be searched, or not to the end; a scan of the same paths shows them\n" in err
    _, _, err = run(hostile, "--offset", "0", "--limit", "1")
    assert "stopped after 1 record, the limit of --limit; there may be more\n" in err
    status, _, err = run(hostile, "--offset", "0", "--topic", "none")
    assert status == 2
    assert err.startswith("error: nothing matches --topic none: there is no topic 'none'\nhint: there is ")
