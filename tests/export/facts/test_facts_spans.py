"""Spans cover every byte of every file once, and add up to the totals of the scan."""

import shutil
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import kafka_forensics as kf
from tests.support.brokers import Brokers, healthy, put_segment
from tests.support.segments import segment_file
from tests.support.strategies import any_segments

TOTAL_OF_KIND = {"batches": "decoded", "damaged": "damaged", "zero_tail": "skipped", "skipped": "skipped"}
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FOLDER_NUMBERS = count()


def by_file(rows: list[dict[str, Any]]) -> dict[Path, list[dict[str, Any]]]:
    grouped: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[Path(row["log_dir"], row["file"])].append(row)
    return grouped


def assert_tiled(paths: list[Path], *, deep: bool | None = None) -> list[dict[str, Any]]:
    """Assert that spans cover every file and that those of `.log` files add up to the totals; return the rows of the spans.

    Reading spans reports no unread file twice.
    """
    result = kf.scan([str(path) for path in paths], deep=deep)
    unread = list(result.incomplete)
    rows = result.facts("spans").to_pylist()
    covered = set()
    sums = dict.fromkeys(TOTAL_OF_KIND.values(), 0)
    for path, spans in by_file(rows).items():
        end = 0
        for span in spans:
            assert span["position"] == end
            assert span["size_in_bytes"] > 0
            end += span["size_in_bytes"]
            if path.suffix == ".log":
                sums[TOTAL_OF_KIND[span["kind"]]] += span["size_in_bytes"]
        assert end == path.stat().st_size
        covered.add(path)
    replicas = {Path(replica.log_dir, replica.directory) for replica in result.replicas}
    files = {
        file for replica in replicas if replica.is_dir() for file in replica.iterdir() if file.is_file() and not file.is_symlink()
    }
    assert covered == {file for file in files if file.suffix in SUFFIXES and file.stat().st_size}
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
    batches = [row for row in rows if row["file"] == span["file"] and row["kind"] == "batches"]
    offsets = [batch.base_offset for batch in brokers.log.batches_of_segment(29)]
    assert [row["count"] for row in batches] == [
        sum(offset < bad.base_offset for offset in offsets),
        sum(offset > bad.base_offset for offset in offsets),
    ]


@settings(max_examples=40)
@given(st.data())
def test_spans_cover_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / f"any-{next(FOLDER_NUMBERS)}"
    partition = folder / "t-0"
    put_segment(partition, 0, data.draw(any_segments()))
    for suffix in SUFFIXES[1:]:
        put_segment(partition, 0, data.draw(st.binary(max_size=120)), suffix[1:])
    assert_tiled([folder], deep=data.draw(st.booleans()))
    shutil.rmtree(folder)


@pytest.mark.parametrize("path", ["", "t-0", f"t-0/{segment_file(29)}"])
def test_spans_and_findings_have_the_same_path_of_a_file(tmp_path: Path, path: str) -> None:
    brokers = healthy(tmp_path)
    brokers.flip(2, brokers.log.at(40), 100)
    result = kf.scan(str(brokers.log_dir(2) / path))
    (bad,) = [row for row in result.facts("spans").to_pylist() if row["damage_kind"] is not None]
    (place,) = [finding.place for finding in result.findings if finding.kind == "BATCH_CRC_MISMATCH"]
    assert (bad["log_dir"], bad["file"], bad["position"]) == (place.log_dir, place.file, place.byte_start)
