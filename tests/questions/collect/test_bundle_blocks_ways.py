"""Blocks with all else that collecting can do: real brokers' logs, keys, hashes, records, pseudonyms, stops, sizes, estimates."""

import io
import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.engine import local
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.redaction import PseudonymMap, Redaction
from kafka_forensics.model.bundles import UNTOLD_BY_BLOCKS, Detail, Digests
from kafka_forensics.parsers.log import segment
from kafka_forensics.questions.collect import CollectOptions, RecordsAsked, blocks, collect, estimate_of, log_facts, weighing
from kafka_forensics.storage.bundles import BundleSource, SectionKind
from kafka_forensics.writers import bundle_file
from tests.questions.collect.test_collect import bundled, extracted, log_dirs
from tests.questions.collect.test_redacted_faults import placed
from tests.questions.collect.test_resumed import Dying, StoppedError, facts_of, finished
from tests.support.archives import OF_BROKERS, of_brokers
from tests.support.bundles import HASHED, LOG, ORDERS, bundle_of, put_broker, taken_apart
from tests.support.segments import batch, log

SAMPLES = Path(__file__).resolve().parents[3] / "sample_logs"
BLOCKS = CollectOptions(detail=Detail.BLOCKS)
KEYED = Digests(is_keyed=True, name="one key", key=bytes(range(32)))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in small logs, and few batches by themselves at their ends."""
    monkeypatch.setattr(log_facts, "LEAST_BYTES", 0)
    for module in (log_facts, weighing):
        monkeypatch.setattr(module, "NEWEST_BATCHES", 4)
    monkeypatch.setattr(blocks, "EDGE_BATCHES", 2)
    monkeypatch.setattr(blocks, "LEAST_BATCHES", 4)


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A log directory with two logs that have blocks, of several parts each."""
    log_dir = put_broker(tmp_path, batches=60)
    for number in (1, 2):
        (log_dir / f"more-{number}").mkdir()
        (log_dir / f"more-{number}" / LOG).write_bytes(b"".join(log(40 * number)))
    return log_dir


def judged(*paths: Path | str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(kf.scan([str(path) for path in paths]).to_json())
    return said


def implied(found: dict[str, Any], expected: list[dict[str, Any]]) -> bool:
    """Whether the directories tell the same of the same place, from the same offset on."""
    return any(
        all(found[name] == other[name] for name in ("kind", "severity", "topic", "partition", "broker", "offset_start"))
        for other in expected
    )


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("digests", [Digests(), KEYED], ids=["plain", "keyed"])
@pytest.mark.parametrize("mixed", [False, True], ids=["bundles", "beside directories"])
@pytest.mark.parametrize(
    "archive",
    [
        "healthy",
        "silent-divergence",
        "unclean-election",
        *of_brokers(*OF_BROKERS),
    ],
)
def test_real_brokers_are_judged_by_blocks(archive: str, mixed: bool, digests: Digests, tmp_path: Path) -> None:
    folder = SAMPLES / archive if (SAMPLES / archive).exists() else extracted(archive, tmp_path / "unpacked")
    directories = [str(path) for path in log_dirs(folder)]
    paths = bundled(folder, tmp_path, CollectOptions(detail=Detail.BLOCKS, digests=digests))
    paths[1:2] = directories[1:2] if mixed else paths[1:2]
    expected, scanned = judged(*directories), judged(*paths)
    too_much = [found for found in scanned["findings"] if not implied(found, expected["findings"])]
    assert too_much == []
    untold = {found["kind"] for found in expected["findings"] if not implied(found, scanned["findings"])}
    assert untold <= UNTOLD_BY_BLOCKS.keys()
    kinds = {found["kind"] for found in expected["findings"]}
    for grave in ("UNCLEAN_LOSS", "SAME_EPOCH_DIVERGENCE", "FORK_BELOW_HW"):
        assert grave not in kinds or grave in {found["kind"] for found in scanned["findings"]} or scanned["incomplete"]


@pytest.mark.usefixtures("small_blocks")
def test_hashes_are_those_of_the_files(broker: Path, tmp_path: Path) -> None:
    path = bundle_of(broker, tmp_path / "hashed.kfb", CollectOptions(detail=Detail.BLOCKS, hashes=True))
    rows = taken_apart(path).listing["files"]
    assert {row[0]: row[HASHED] for row in rows} == {row[0]: sha256((broker / row[0]).read_bytes()).hexdigest() for row in rows}


@pytest.mark.usefixtures("small_blocks")
def test_records_that_are_asked_for_are_there(broker: Path, tmp_path: Path) -> None:
    asked = RecordsAsked("orders", 0, 51, 55)
    path = bundle_of(broker, tmp_path / "some.kfb", CollectOptions(detail=Detail.BLOCKS, records=(asked,)))
    size = (broker / ORDERS).stat().st_size // 60
    with BundleSource(str(path)).open(ORDERS) as file:
        for number in (25, 26, 27):
            assert file.read_at(number * size, size) == (broker / ORDERS).read_bytes()[number * size : (number + 1) * size]
        with pytest.raises(SourceError, match="needs the"):
            file.read_at(10 * size, size)
    assert taken_apart(path).sections(ORDERS, SectionKind.BLOCKS)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("sample", ["silent-divergence", "unclean-election"])
def test_pseudonyms_stand_for_names(sample: str, tmp_path: Path) -> None:
    names = Redaction(PseudonymMap("00" * 32, {}))
    plain, redacted = (
        bundled(SAMPLES / sample, tmp_path / kind, CollectOptions(detail=Detail.BLOCKS, pseudonyms=pseudonyms))
        for kind, pseudonyms in (("plain", None), ("redacted", names))
    )
    expected, scanned = names.answer(local.scan(plain, ScanOptions())), local.scan(redacted, ScanOptions())
    assert placed(scanned.findings) == placed(expected.findings)
    assert scanned.findings
    reasons = [gap.reason for gap in scanned.incomplete]
    assert any("collect it with --detail batches" in reason for reason in reasons)
    assert not any(name in reason for name in ("orders", "audit", "payments") for reason in reasons)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", [BLOCKS, CollectOptions(max_size=20_000)], ids=["blocks", "a size"])
def test_it_goes_on_from_every_write(
    options: CollectOptions, broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_file, "PART_BYTES", 400)
    monkeypatch.setattr(segment, "CHUNK_ROWS", 8)
    whole = bundle_of(broker, tmp_path / "whole.kfb", options)
    assert BundleSource(str(whole)).has_blocks is (options is BLOCKS)
    expected, stops = facts_of(whole), 0
    while True:
        file = Dying()
        file.left = stops
        try:
            collect([str(broker)], options, file)
            break
        except StoppedError:
            file.left = 1 << 60
        path = finished(broker, file, tmp_path / "resumed.kfb", options)
        assert facts_of(path) == expected, stops
        stops += 1
    assert stops > 8


@pytest.mark.usefixtures("small_blocks")
def test_the_beginning_of_a_bundle_of_batches_is_none_of_blocks(broker: Path) -> None:
    file = Dying()
    file.left = 2
    with pytest.raises(StoppedError):
        collect([str(broker)], CollectOptions(), file)
    file.left = 1 << 60
    file.seek(0)
    with pytest.raises(UsageError, match="another"):
        collect([str(broker)], BLOCKS, file)


def put_large(folder: Path) -> Path:
    """A log directory of three logs of some hundred KB each, with indexes."""
    log_dir = put_broker(folder)
    for number in range(3):
        directory = log_dir / f"large-{number}"
        directory.mkdir()
        numbers = random.Random(number)
        made = (batch(2 * offset, 2, value=numbers.randbytes(numbers.randint(5, 60))) for offset in range(4000))
        (directory / LOG).write_bytes(b"".join(made))
        places = sorted(numbers.sample(range(1, 4000), 400))
        entries = b"".join((2 * place).to_bytes(4, "big") + (150 * place).to_bytes(4, "big") for place in places)
        (directory / LOG.replace("log", "index")).write_bytes(entries)
    return log_dir


@pytest.mark.parametrize("detail", list(Detail))
def test_an_estimate_is_right_within_a_factor_of_two(detail: Detail, tmp_path: Path) -> None:
    log_dir = put_large(tmp_path)
    for records in ((), (RecordsAsked("large", 1, 1000, 3000),)):
        options = CollectOptions(detail=detail, records=records)
        size = bundle_of(log_dir, tmp_path / "one.kfb", options).stat().st_size
        assert size / 2 < estimate_of([str(log_dir)], options).bundle_bytes < 2 * size


def test_as_many_logs_as_fit_are_taken_batch_by_batch(tmp_path: Path) -> None:
    log_dir = put_large(tmp_path)
    sizes = {
        detail: bundle_of(log_dir, tmp_path / f"{detail}.kfb", CollectOptions(detail=detail)).stat().st_size for detail in Detail
    }
    in_blocks = []
    for share in (0.2, 0.5, 0.8, 1.3):
        room = int(sizes[Detail.BLOCKS] + share * (sizes[Detail.BATCHES] - sizes[Detail.BLOCKS]))
        path = bundle_of(log_dir, tmp_path / "chosen.kfb", CollectOptions(max_size=room))
        assert path.stat().st_size <= 1.1 * room
        apart = taken_apart(path)
        in_blocks.append(sum(bool(apart.sections(f"large-{number}/{LOG}", SectionKind.BLOCKS)) for number in range(3)))
        beside = [row[0] for row in apart.listing["files"] if row[0].endswith(".index") and row[6] is not None]
        assert len(beside) == in_blocks[-1]
    assert in_blocks[-1] == 0
    assert in_blocks == sorted(in_blocks, reverse=True)
    assert in_blocks[0] >= 2


def test_nothing_is_left_where_no_detail_is_small_enough(tmp_path: Path) -> None:
    file = io.BytesIO()
    with pytest.raises(UsageError, match="also with blocks of all logs"):
        collect([str(put_large(tmp_path))], CollectOptions(max_size=1000), file)
    assert file.getvalue() == b""
