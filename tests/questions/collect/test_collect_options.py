"""Selections, hashes, rates and estimates."""

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.json_objects import Json
from kafka_forensics.questions.collect import CollectOptions, RequestedRecords, collect, estimate_of, low_priority
from kafka_forensics.storage.bundles import BundleSource, SectionKind
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.bundles import HASHED, LOG, OFFSETS, ORDERS, PAYMENTS, make_bundle, put_broker, unpack_bundle
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, batch, log

SECRET: Final = b"the-payload-of-a-record"


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A log directory whose records hold `SECRET`."""
    return put_broker(tmp_path, secret=SECRET)


def judged(path: Path) -> Json:
    """The answer of a scan, without the bundle's name."""
    scanned: Json = json.loads(kf.scan([str(path)]).to_json().replace(path.name, "bundle"))
    return scanned


# Records and selections.


def test_requested_records_are_collected(broker: Path, tmp_path: Path) -> None:
    path = make_bundle(broker, tmp_path / "some.kfb", CollectOptions(records=(RequestedRecords("orders", 0, 3, 5),)))
    raw_sections = unpack_bundle(path).sections(ORDERS, SectionKind.RAW)
    log_bytes = (broker / ORDERS).read_bytes()
    size = len(log_bytes) // 6
    assert b"".join(section[4] for section in raw_sections).count(SECRET) == 4
    with BundleSource(str(path)).open(ORDERS) as file:
        assert file.read_at(size, size) == log_bytes[size : 2 * size]
        with pytest.raises(SourceError, match="needs the records"):
            file.read_at(0, size)
    assert judged(path)["incomplete"] == []


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (RequestedRecords("__consumer_offsets", 0, 0, 9), "not a part of a bundle"),
        (RequestedRecords("__cluster_metadata", 0, 0, 9), "not a part of a bundle"),
        (RequestedRecords("orders", 7, 0, 9), "there is no partition orders-7"),
    ],
)
def test_records_of_internal_or_absent_partitions_cannot_be_requested(
    requested: RequestedRecords, words: str, broker: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        make_bundle(broker, tmp_path / "no.kfb", CollectOptions(records=(requested,)))


def test_partitions_outside_the_selection_are_not_missing_or_damaged(broker: Path, tmp_path: Path) -> None:
    path = make_bundle(broker, tmp_path / "some.kfb", CollectOptions(ScanOptions(topic_glob="payments")))
    files = {row[0] for row in unpack_bundle(path).listing["files"]}
    assert ORDERS not in files
    assert {PAYMENTS, OFFSETS} <= files
    result = kf.scan([str(path)])
    findings_of_directory = {(finding.kind, finding.place.topic) for finding in kf.scan([str(broker)]).findings}
    assert {(finding.kind, finding.place.topic) for finding in result.findings} <= findings_of_directory | {("PARTIAL_COPY", None)}
    assert result.incomplete == []
    verdicts = {partition.topic: partition.verdict for partition in result.partitions}
    assert (verdicts.get("orders"), verdicts["payments"]) == (None, "clean")
    assert kf.scan([str(path)], topic="payments").incomplete == []


# Hashes, rates and estimates.


def test_hashes_are_those_of_the_files(broker: Path, tmp_path: Path) -> None:
    rows = unpack_bundle(make_bundle(broker, tmp_path / "hashed.kfb", CollectOptions(hashes=True))).listing["files"]
    assert {row[0]: row[HASHED] for row in rows} == {row[0]: sha256((broker / row[0]).read_bytes()).hexdigest() for row in rows}


class Clock:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("hashes", [False, True])
def test_the_rate_of_reading_is_limited(hashes: bool, broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(low_priority, "time", clock)
    (broker / ORDERS).write_bytes(b"".join(log(4000, value=bytes(1000))))
    size = sum(path.stat().st_size for path in broker.rglob("*") if path.is_file())
    with (tmp_path / "slow.kfb").open("w+b") as file:
        collect([str(broker)], CollectOptions(max_rate=100_000, hashes=hashes), file)
    assert clock.now >= (1 + hashes) * size / 100_000 * 0.99
    assert max(clock.sleeps) < 30
    clock.sleeps.clear()
    with (tmp_path / "fast.kfb").open("w+b") as file:
        collect([str(broker)], CollectOptions(hashes=hashes), file)
    assert clock.sleeps == []


def test_a_pause_allows_one_second_of_faster_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(low_priority, "time", clock)
    limiter = low_priority.RateLimiter(1000)
    clock.now = 3600.0
    limiter.wait(1000)
    assert clock.sleeps == []
    limiter.wait(500)
    assert clock.sleeps == [0.5]


def test_an_estimate_is_right_within_a_factor_of_two(broker: Path, tmp_path: Path) -> None:
    """For samples, and for many records in a topic with and without hashed keys."""
    log_dirs = [path.parent for path in (SAMPLES / "unclean-election").rglob("meta.properties")]
    cases = [(log_dir, CollectOptions()) for log_dir in (*log_dirs, broker)] + [(broker, CollectOptions(compacted="ord*"))]
    batches = [[RecordToWrite(b"k%d" % row, b"v%d" % row) for row in range(start, start + 100)] for start in range(0, 20_000, 100)]
    written = [write_batch(rows, base_offset=100 * number, base_timestamp=BASE_TIMESTAMP) for number, rows in enumerate(batches)]
    (broker / ORDERS).write_bytes(b"".join(written))
    for log_dir, options in cases:
        size = make_bundle(log_dir, tmp_path / "one.kfb", options).stat().st_size
        assert size / 2 < estimate_of([str(log_dir)], options).bundle_bytes < 2 * size


def test_an_estimate_counts_records_and_indexes(broker: Path, tmp_path: Path) -> None:
    directory = broker / "large-0"
    directory.mkdir()
    numbers = random.Random(0)
    batches = (batch(2 * offset, 2, value=numbers.randbytes(numbers.randint(5, 60))) for offset in range(4000))
    (directory / LOG).write_bytes(b"".join(batches))
    places = sorted(numbers.sample(range(1, 4000), 2000))
    entries = b"".join((2 * place).to_bytes(4, "big") + (150 * place).to_bytes(4, "big") for place in places)
    (directory / LOG.replace("log", "index")).write_bytes(entries)
    for records in ((), (RequestedRecords("large", 0, 1000, 3000),)):
        options = CollectOptions(records=records)
        size = make_bundle(broker, tmp_path / "one.kfb", options).stat().st_size
        assert 0.7 * size < estimate_of([str(broker)], options).bundle_bytes < 1.4 * size
