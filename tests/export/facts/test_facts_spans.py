"""Spans tile every file, whatever its bytes are, and sum up to what the scan counts."""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import kafka_forensics as kf
from tests.support.brokers import Brokers, healthy, put_segment
from tests.support.segments import segment_file
from tests.support.strategies import any_segments

KINDS = {"batches": "decoded", "damaged": "damaged", "zero_tail": "skipped", "skipped": "skipped"}
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
NUMBERS = count()


def by_file(rows: list[dict[str, Any]]) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    found: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[Path(row["log_dir"], row["file"])].append(row)
    yield from found.items()


def assert_tiled(paths: list[Path], *, deep: bool | None = None) -> list[dict[str, Any]]:
    """Every file is tiled, and the `.log` files' spans sum up to the totals; the rows. What could not be read is told once."""
    result = kf.scan([str(path) for path in paths], deep=deep)
    unread = list(result.incomplete)
    rows = result.facts("spans").to_pylist()
    told = set()
    sums = dict.fromkeys(KINDS.values(), 0)
    for path, spans in by_file(rows):
        end = 0
        for span in spans:
            assert span["position"] == end
            assert span["size_in_bytes"] > 0
            end += span["size_in_bytes"]
            if path.suffix == ".log":
                sums[KINDS[span["kind"]]] += span["size_in_bytes"]
        assert end == path.stat().st_size
        told.add(path)
    replicas = {Path(replica.log_dir, replica.directory) for replica in result.replicas}
    files = {
        file for replica in replicas if replica.is_dir() for file in replica.iterdir() if file.is_file() and not file.is_symlink()
    }
    assert told == {file for file in files if file.suffix in SUFFIXES and file.stat().st_size}
    totals = result.totals
    assert result.incomplete == unread
    assert sums == {"decoded": totals.bytes_decoded, "damaged": totals.bytes_damaged, "skipped": totals.bytes_skipped}
    return rows


def test_spans_name_the_damage(tmp_path: Path) -> None:
    brokers: Brokers = healthy(tmp_path)
    bad = brokers.log.at(40)
    brokers.flip(2, bad, 100)
    rows = assert_tiled([brokers.log_dir(2)])
    (span,) = [row for row in rows if row["damage_kind"] is not None]
    assert (span["kind"], span["damage_kind"], span["count"]) == ("damaged", "BATCH_CRC_MISMATCH", 1)
    assert (span["position"], span["size_in_bytes"]) == (bad.position, len(bad.data))
    assert (span["base_offset"], span["last_offset"]) == (bad.base_offset, bad.last_offset)
    beside = [row for row in rows if row["file"] == span["file"] and row["kind"] == "batches"]
    assert [row["count"] for row in beside] == [
        len([one for one in brokers.log.batches_of_segment(29) if one.base_offset < bad.base_offset]),
        len([one for one in brokers.log.batches_of_segment(29) if one.base_offset > bad.base_offset]),
    ]


@settings(max_examples=40)
@given(st.data())
def test_spans_tile_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / f"any-{next(NUMBERS)}"
    partition = folder / "t-0"
    put_segment(partition, 0, data.draw(any_segments()))
    for suffix in SUFFIXES[1:]:
        put_segment(partition, 0, data.draw(st.binary(max_size=120)), suffix[1:])
    assert_tiled([folder], deep=data.draw(st.booleans()))
    shutil.rmtree(folder)


@pytest.mark.parametrize("given", ["", "t-0", f"t-0/{segment_file(29)}"])
def test_spans_and_findings_name_a_file_alike(tmp_path: Path, given: str) -> None:
    brokers = healthy(tmp_path)
    brokers.flip(2, brokers.log.at(40), 100)
    result = kf.scan(str(brokers.log_dir(2) / given))
    (bad,) = [row for row in result.facts("spans").to_pylist() if row["damage_kind"] is not None]
    (place,) = [finding.place for finding in result.findings if finding.kind == "BATCH_CRC_MISMATCH"]
    assert (bad["log_dir"], bad["file"], bad["position"]) == (place.log_dir, place.file, place.byte_start)
