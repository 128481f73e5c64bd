"""Blocks of batches: the same sums wherever segments are cut, and any batch that is changed is found within its block."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafka_forensics as kf
from kafka_forensics.errors import FormatError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.batches import CHUNK_ROWS, BatchColumn
from kafka_forensics.model.bundles import UNTOLD_BY_BLOCKS, Detail, Digests
from kafka_forensics.parsers.log import ContentDigests, as_blocks, damage, read_batches, read_blocks
from kafka_forensics.questions.collect import CollectOptions, blocks, collect, estimate_of, log_facts
from kafka_forensics.questions.compare import OffsetState, compare
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.storage.bundles import BundleSource, SectionKind
from kafka_forensics.writers.bundle_columns import write_blocks
from tests.parsers.log.test_collected import ordinary
from tests.support.bundles import bundle_of, make_older, taken_apart
from tests.support.replicas import put_replica
from tests.support.segments import batch, flipped, log

DOCS = Path(__file__).resolve().parents[3] / "docs" / "collect.md"
BLOCKS = CollectOptions(detail=Detail.BLOCKS)
BATCHES = 200


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in small logs, and few batches by themselves at their ends."""
    monkeypatch.setattr(log_facts, "LEAST_BYTES", 0)
    monkeypatch.setattr(log_facts, "NEWEST_BATCHES", 4)
    monkeypatch.setattr(blocks, "EDGE_BATCHES", 2)
    monkeypatch.setattr(blocks, "LEAST_BATCHES", 4)


def put(folder: Path, broker: int, batches: list[bytes], cuts: list[int]) -> Path:
    """A replica whose log is cut into segments before the batches of these numbers."""
    log_dir = put_replica(folder, broker, b"")
    directory = log_dir / "orders-0"
    for path in directory.glob("*.log"):
        path.unlink()
    edges = [0, *cuts, len(batches)]
    for start, end in pairwise(edges):
        base = int.from_bytes(batches[start][:8], "big")
        (directory / f"{base:020d}.log").write_bytes(b"".join(batches[start:end]))
    return log_dir


def scanned(paths: list[Path]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(kf.scan([str(path) for path in paths]).to_json())
    return said


@pytest.mark.parametrize("seed", range(4))
def test_segments_may_be_cut_anywhere(seed: int, tmp_path: Path) -> None:
    numbers = random.Random(seed)
    batches = log(BATCHES)
    paths = []
    for broker in (1, 2):
        log_dir = put(tmp_path, broker, batches, sorted(numbers.sample(range(1, BATCHES), 3)))
        paths += [bundle_of(log_dir, tmp_path / f"{broker}.kfb", BLOCKS)]
    told = scanned(paths)
    assert [part["agreement"]["kind"] for part in told["partitions"]] == ["identical"]
    assert all("collected in blocks" in gap["reason"] for gap in told["incomplete"])


@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["unkeyed", "keyed"])
@pytest.mark.parametrize("window_bytes", [300, 1000, 1 << 20])
def test_batches_by_themselves_have_the_digests_they_always_have(
    window_bytes: int, key: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much of the log is read at once, and where it is damaged none where they have none."""
    monkeypatch.setattr(damage, "WINDOW_BYTES", window_bytes)
    batches = log(BATCHES)
    batches[90] = flipped(batches[90], 70)
    batches[120], batches[121] = flipped(batches[120], 9), flipped(batches[121], 70)
    batches[-1] += batch(BATCHES * 2, value=bytes(400))
    log_dir = put(tmp_path, 1, batches, [60])
    options = CollectOptions(digests=Digests(key=key))
    every = digests_in(bundle_of(log_dir, tmp_path / "batches.kfb", options))
    single = digests_in(bundle_of(log_dir, tmp_path / "blocks.kfb", replace(options, detail=Detail.BLOCKS)))
    assert BATCHES - 2 <= len(every) <= BATCHES
    assert single.items() <= every.items()
    assert 4 <= len(single) < BATCHES // 2


@pytest.mark.parametrize("window_bytes", [1000, 1 << 20])
def test_batches_alike_in_size_are_read_once(window_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "WINDOW_BYTES", window_bytes)
    log_dir = put(tmp_path, 1, log(BATCHES), [60])
    monkeypatch.setattr(ContentDigests, "alone", lambda *_: pytest.fail("a batch is read again"))
    single = digests_in(bundle_of(log_dir, tmp_path / "blocks.kfb", BLOCKS))
    assert 4 <= len(single) < BATCHES // 2
    assert all(map(any, single.values()))


def digests_in(bundle: Path) -> dict[tuple[str, int], list[int]]:
    """The digests of all batches that stand by themselves, by log and byte."""
    apart = taken_apart(bundle)
    found: dict[tuple[str, int], list[int]] = {}
    for path in [row[0] for row in apart.listing["files"] if row[0].endswith(".log")]:
        for *_, data in apart.sections(path, SectionKind.BATCHES):
            facts = read_batches(data)
            positions = facts.columns[BatchColumn.POSITION].tolist()
            found |= {(path, position): digest for position, digest in zip(positions, facts.digests.tolist(), strict=True)}
    return found


@pytest.mark.parametrize("number", [30, 100, 150])
def test_a_changed_batch_is_found_within_its_block(number: int, tmp_path: Path) -> None:
    batches = log(BATCHES)
    changed = [*batches[:number], log(BATCHES, value=b"eulav")[number], *batches[number + 1 :]]
    assert len(changed[number]) == len(batches[number])
    assert changed[number] != batches[number]
    paths = [
        bundle_of(put(tmp_path, broker, each, [60]), tmp_path / f"{broker}.kfb", BLOCKS)
        for broker, each in ((1, batches), (2, changed))
    ]
    told = scanned(paths)
    assert [part["agreement"]["kind"] for part in told["partitions"]] == ["not_compared"]
    needed = [gap["reason"] for gap in told["incomplete"] if gap["reason"].startswith("needs the batches")]
    assert len(needed) == len(paths)
    start, end = map(int, needed[0].split(" of offsets ")[1].split(":")[0].split(" to "))
    offset = int.from_bytes(batches[number][:8], "big")
    assert start <= offset <= end
    assert "--topic orders --partition 0 --detail batches" in needed[0]


def bundled(folder: Path, broker: int, batches: list[bytes], cuts: list[int], high_watermark: int = 0) -> Path:
    log_dir = put(folder, broker, batches, cuts)
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {high_watermark}\n")
    return bundle_of(log_dir, folder / f"{broker}.kfb", BLOCKS)


@pytest.mark.parametrize("behind", [2, 30, 120])
def test_a_log_that_ends_within_a_block_lags(behind: int, tmp_path: Path) -> None:
    batches = log(BATCHES)
    paths = [bundled(tmp_path, 1, batches, [60]), bundled(tmp_path, 2, batches[:-behind], [60])]
    told, expected = scanned(paths), scanned(directories_in(tmp_path))
    assert [kind_and_place(found) for found in told["findings"]] == [kind_and_place(found) for found in expected["findings"]]
    assert "REPLICA_LAGS" in {found["kind"] for found in told["findings"]}
    assert [part["agreement"]["kind"] for part in told["partitions"]] == ["prefix" if behind == 2 else "not_compared"]


@pytest.mark.parametrize("gone", [30, 90])
def test_a_log_that_begins_within_a_block_is_no_difference(gone: int, tmp_path: Path) -> None:
    batches = log(BATCHES)
    paths = [bundled(tmp_path, 1, batches, []), bundled(tmp_path, 2, batches[gone:], [])]
    for broker, start in ((1, 0), (2, 2 * gone)):
        assert scanned([paths[broker - 1]])["partitions"][0]["replicas"][0]["log_start_offset"] == start
    told = scanned(paths)
    assert [found["kind"] for found in told["findings"] if found["severity"] != "info"] == []
    assert any("needs the batches of offsets" in gap["reason"] for gap in told["incomplete"])


@pytest.mark.parametrize(("kept", "more"), [(100, 100), (100, 60), (60, 140), (150, 50), (180, 20)])
def test_a_fork_within_a_block_is_told_by_its_epochs(kept: int, more: int, tmp_path: Path) -> None:
    """Broker 1 led on to its 200th batch; broker 2, that had fewer, was elected and took as many others, or fewer."""
    old = log(BATCHES)
    new = [*old[:kept], *log(more, start=2 * kept, epoch=1, value=b"other")]
    paths = [bundled(tmp_path, 1, old, [50], 2 * BATCHES), bundled(tmp_path, 2, new, [50], 2 * (kept + more))]
    from_bundles, expected = (
        [kind_and_place(found) for found in scanned(some)["findings"]] for some in (paths, directories_in(tmp_path))
    )
    assert {"UNCLEAN_LOSS", "FORK_BELOW_HW"} & {kind for kind, *_ in expected}
    assert from_bundles == expected


def put_fork(folder: Path) -> list[Path]:
    """Bundles of two brokers whose logs fork at offset 200, within blocks."""
    old = log(BATCHES)
    new = [*old[:100], *log(60, start=200, epoch=1, value=b"other")]
    return [bundled(folder, 1, old, [50], 2 * BATCHES), bundled(folder, 2, new, [50], 320)]


def test_a_loss_within_blocks_is_counted(tmp_path: Path) -> None:
    told = []
    for paths in (put_fork(tmp_path), directories_in(tmp_path)):
        (planned,) = make_plans([str(path) for path in paths], ScanOptions(), PlanOptions()).planned
        losses = [loss for candidate in planned.plan.candidates for loss in candidate.losses]
        told.append([(loss, planned.amount(loss).records) for loss in losses])
    assert told[0] == told[1] != []


def test_what_lies_in_blocks_is_not_called_absent(tmp_path: Path) -> None:
    side_by_side = compare([str(path) for path in put_fork(tmp_path)], ScanOptions(), context=30)
    assert side_by_side.first_difference == 200
    states = {held.state for row in side_by_side.rows for held in row.held}
    assert OffsetState.UNREADABLE in states
    assert OffsetState.ABSENT not in states
    assert any("needs the batches" in gap.reason for gap in side_by_side.result.incomplete)


def directories_in(folder: Path) -> list[Path]:
    return [folder / f"broker-{broker}" for broker in (1, 2)]


def kind_and_place(found: dict[str, Any]) -> tuple[object, ...]:
    return found["kind"], found["severity"], found["broker"], found["offset_start"], found["offset_end"]


def test_blocks_come_back_as_they_were() -> None:
    made = as_blocks(ordinary(CHUNK_ROWS)).together()
    end = int(made.columns[BatchColumn.POSITION, -1] + made.columns[BatchColumn.SIZE_IN_BYTES, -1])
    read = read_blocks(write_blocks(made), 0, end)
    assert read.sums.tolist() == made.sums.tolist()
    for column in set(BatchColumn) - {BatchColumn.LAST_OFFSET_DELTA, BatchColumn.RECORDS_COUNT}:
        assert read.columns[column].tolist() == made.columns[column].tolist()


@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 1 << 40))
def test_any_bytes_are_blocks_or_refused(place: int, value: int, end: int) -> None:
    section = bytearray(write_blocks(as_blocks(ordinary(100)).together()))
    section[place % len(section)] = value
    try:
        read = read_blocks(bytes(section), 0, end)
    except FormatError:
        return
    assert int(read.columns[BatchColumn.SIZE_IN_BYTES].sum()) == end
    assert (read.sums >= 0).all()


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (BatchColumn.SIZE_IN_BYTES, -5, "outside of their bytes"),
        (BatchColumn.CRC, -1, "sums that"),
        (BatchColumn.PARTITION_LEADER_EPOCH, -2, "leader epoch"),
        (BatchColumn.ATTRIBUTES, 0x20, "attributes"),
        (BatchColumn.MAX_TIMESTAMP, -(1 << 50), "times contradict"),
    ],
)
def test_blocks_that_contradict_themselves_are_refused(column: BatchColumn, value: int, words: str, tmp_path: Path) -> None:
    path = bundle_of(put(tmp_path, 1, log(BATCHES), []), tmp_path / "b.kfb", BLOCKS)
    apart = taken_apart(path)
    section = next(section for part in apart.parts for section in part.sections if section[1] == SectionKind.BLOCKS)
    made = read_blocks(section[4], section[2], section[3])
    made.columns[column] = value
    section[4] = write_blocks(made)
    told = scanned([apart.relisted().write(tmp_path / "lies.kfb")])
    assert any("contradicts itself" in gap["reason"] and words in gap["reason"] for gap in told["incomplete"])


def test_an_older_bundle_of_another_detail_is_not_taken(tmp_path: Path) -> None:
    log_dir = put(tmp_path, 1, log(BATCHES), [60])
    make_older(log_dir)
    older = {detail: bundle_of(log_dir, tmp_path / f"{detail}.kfb", CollectOptions(detail=detail)) for detail in Detail}
    for since in Detail:
        for detail in Detail:
            options = CollectOptions(since=BundleSource(str(older[since])), detail=detail)
            with (tmp_path / f"{since}-{detail}.kfb").open("w+b") as file:
                collect([str(log_dir)], options, file)
            assert BundleSource(file.name).has_blocks is (detail is Detail.BLOCKS)


def test_a_size_is_kept_to(tmp_path: Path) -> None:
    log_dir = put(tmp_path, 1, log(4 * BATCHES), [300, 600])
    whole = bundle_of(log_dir, tmp_path / "batches.kfb").stat().st_size
    small = bundle_of(log_dir, tmp_path / "blocks.kfb", BLOCKS).stat().st_size
    assert small < whole
    made = bundle_of(log_dir, tmp_path / "chosen.kfb", CollectOptions(max_size=whole + (1 << 16)))
    assert not BundleSource(str(made)).has_blocks
    with pytest.raises(UsageError, match="the bundle would have about"):
        bundle_of(log_dir, tmp_path / "none.kfb", CollectOptions(max_size=100))
    assert estimate_of([str(log_dir)], BLOCKS).bundle_bytes < estimate_of([str(log_dir)], CollectOptions()).bundle_bytes


def test_the_documentation_names_what_blocks_do_not_tell() -> None:
    text = DOCS.read_text()
    assert [kind for kind in UNTOLD_BY_BLOCKS if f"`{kind}`" not in text] == []
    assert np.unique(list(UNTOLD_BY_BLOCKS.values())).size > 1
