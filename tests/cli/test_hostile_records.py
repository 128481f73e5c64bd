"""Records of damaged logs as columns and one by one: exported, found and listed, they are the same, and nothing raises."""

import random
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics
from kafka_forensics.cli.outputs.dump import Section, write_found, write_sections
from kafka_forensics.cli.streams import Destination
from kafka_forensics.compiled import use_compiled, using_compiled
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.dump import DumpOptions, find_files, log_columns, log_rows, log_runs
from kafka_forensics.questions.search import Conditions, found_columns, search
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch
from tests.support.replicas import put_replica
from tests.support.segments import MUTATIONS
from tests.support.strategies import CODECS

pytestmark = [pytest.mark.properties, pytest.mark.usefixtures("chosen_kernels")]

PARTS = 40
CASES_A_PART = 250
DAILY = 8
"""Of each part's cases, in every run; `make nightly` takes them all."""
HEADER_BYTES = 61
QUESTIONS = (
    Conditions(key=b"key-3"),
    Conditions(value_part=b"needle"),
    Conditions(headers=((b"h", None),)),
    Conditions(timestamp_start_ms=1_700_000_000_002, timestamp_end_ms=1_700_000_000_009),
    Conditions(offset_start=0),
)


def batches() -> list[bytes]:
    """A batch of every codec, by the time of clients and of the broker, with headers and without."""
    made = []
    for number, codec in enumerate(CODECS):
        records = [
            RecordToWrite(
                b"key-%d" % record if record % 4 else None,
                b"some needle in hay" * record if record % 3 else b"hay" * 60,
                [("h", b"1"), ("trace", None)] if record % 5 == 0 else [],
                timestamp_delta=record,
            )
            for record in range(12)
        ]
        kind = "LogAppendTime" if number == 2 else "CreateTime"
        made.append(
            write_batch(
                records,
                base_offset=12 * number,
                base_timestamp=1_700_000_000_000,
                compression_type=codec,
                timestamp_type=kind,
                producer_id=7 if number % 2 else -1,
                base_sequence=5 if number % 2 else -1,
            )
        )
    return made


def damaged(rng: random.Random, log: list[bytes]) -> bytes:
    """The log with something wrong in one of its batches: in two of three cases only behind the header, whose CRC is right then."""
    place = rng.randrange(len(log))
    mutate = rng.choice(MUTATIONS)
    batch = log[place]
    if rng.randrange(3) == 0:
        batch = mutate(rng, batch)
    else:
        payload = mutate(rng, batch[HEADER_BYTES:])
        count = batch[57:61] if rng.randrange(4) else rng.choice((0, 1, 11, 13, 2**31 - 1)).to_bytes(4, "big")
        batch = fix_crc(batch[:8] + (len(payload) + HEADER_BYTES - 12).to_bytes(4, "big") + batch[12:57] + count + payload)
    return b"".join([*log[:place], batch, *log[place + 1 :]])


@pytest.fixture
def forms() -> Iterator[tuple[bool, bool]]:
    """Kernels as Python runs them, and compiled."""
    before = using_compiled()
    yield False, True
    use_compiled(before)


def found(folder: Path, asked: Conditions, *, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """What a search prints, and what it says beside."""
    use_compiled(compiled)
    looked, stream = search([str(folder)], ScanOptions(), asked, payloads=True), StringIO()
    write_found(found_columns(payloads=True), looked.runs(), "jsonl", Destination(stream, 80, colour=False))
    return stream.getvalue(), looked.found, looked.damaged_places, looked.incomplete


def listed(rows: Any, path: Path, *, compiled: bool) -> str:
    """What a dump prints."""
    options, stream = DumpOptions(records=True, show_payloads=True), StringIO()
    [file] = find_files([str(path)], options).files
    use_compiled(compiled)
    section = Section("log", log_columns(options), rows(file, options))
    write_sections([section], log_columns(options), "tsv", Destination(stream, 80, colour=False), several=False)
    return stream.getvalue()


def read(path: Path, *, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a notebook gets."""
    use_compiled(compiled)
    return [row for table in kafka_forensics.read_records(str(path)) for row in table.to_pylist()]


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_logs_say_the_same_as_columns_and_one_by_one(
    tmp_path: Path, forms: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, part: int
) -> None:
    rng = random.Random(part)
    log = batches()
    directory = put_replica(tmp_path / "cluster", 1, b"") / "orders-0"
    path = directory / f"{0:020d}.log"
    records = matches = 0
    for case in range(CASES_A_PART if request.config.getoption("--nightly") else DAILY):
        data = damaged(rng, log)
        path.write_bytes(data)
        asked = QUESTIONS[case % len(QUESTIONS)]
        slow, quick = (found(tmp_path, asked, compiled=compiled, monkeypatch=monkeypatch) for compiled in forms)
        assert slow == quick, case
        assert listed(log_rows, path, compiled=False) == listed(log_runs, path, compiled=True), case
        slow_records, quick_records = (read(path, compiled=compiled, monkeypatch=monkeypatch) for compiled in forms)
        assert slow_records == quick_records, case
        assert path.read_bytes() == data
        records, matches = records + len(quick_records), matches + quick[1]
    assert records > matches > 0


def test_there_are_as_many_cases_as_of_files() -> None:
    assert PARTS * CASES_A_PART >= 10_000
