"""Unfinished bundles are continued after their last whole part, with the same facts, or refused."""

import io
from pathlib import Path
from typing import Any, Final

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.parsers.log import segment
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap, collect
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.writers import bundle_file
from tests.support.bundles import (
    LOG,
    OFFSETS,
    ORDERS,
    PAYMENTS,
    SECTIONS,
    make_bundle,
    put_broker,
    record_opened_files,
    tar_of,
    unpack_bundle,
)
from tests.support.segments import log
from tests.support.unread import refuse

SMALL_PART: Final = 400
FEW_ROWS: Final = 8
MORE: Final = f"more-0/{LOG}"


class StoppedError(Exception):
    """Stands for a kill."""


class KilledWriter(io.BytesIO):
    """A file whose writer is killed during a write, when half of it is written."""

    left = 1 << 60

    def write(self, data: Any, /) -> int:
        self.left -= 1
        if self.left < 0:
            super().write(bytes(data)[: len(data) // 2])
            raise StoppedError
        return super().write(data)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_file, "PART_BYTES", SMALL_PART)
    monkeypatch.setattr(segment, "CHUNK_ROWS", FEW_ROWS)


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A log directory with two logs of several parts."""
    log_dir = put_broker(tmp_path, batches=40)
    (log_dir / MORE).parent.mkdir()
    (log_dir / MORE).write_bytes(b"".join(log(30)))
    return log_dir


def facts_of(path: Path) -> dict[str, list[Any]]:
    """The row of every file, and its sections with their bytes, in any part."""
    parts_of = unpack_bundle(path)
    facts = {}
    for row in parts_of.listing["files"]:
        sections = [
            section
            for number, part in enumerate(parts_of.parts)
            for section in part.sections
            if section[0] == row[0] and any(listed[0] == number for listed in row[SECTIONS])
        ]
        kinds = [(listed[3], listed[4], listed[5]) for listed in row[SECTIONS]]
        facts[row[0]] = [row[:SECTIONS], [section[4] for section in sections if tuple(section[1:4]) in kinds]]
    return facts


def finished(broker: Path, file: io.BytesIO, path: Path, options: CollectOptions | None = None) -> Path:
    """Continue the bundle in `file`; the bundle."""
    file.seek(0)
    collect([str(broker)], options or CollectOptions(), file)
    path.write_bytes(file.getvalue())
    return path


def test_a_bundle_is_continued_after_every_write(broker: Path, tmp_path: Path) -> None:
    whole = make_bundle(broker, tmp_path / "whole.kfb")
    expected = facts_of(whole)
    assert len(unpack_bundle(whole).parts) > 4
    stops = 0
    while True:
        file = KilledWriter()
        file.left = stops
        try:
            collect([str(broker)], CollectOptions(), file)
            break
        except StoppedError:
            file.left = 1 << 60
        path = finished(broker, file, tmp_path / "resumed.kfb")
        assert facts_of(path) == expected, stops
        assert BundleSource(str(path)).problems == []
        stops += 1
    assert stops > 8
    assert kf.scan([str(path)]).to_json().replace("resumed", "whole") == kf.scan([str(whole)]).to_json()


def test_a_bundle_is_continued_however_often_it_is_stopped(broker: Path, tmp_path: Path) -> None:
    """Facts of a file from before a stop are dropped: the facts of two readings would contradict each other."""
    expected = facts_of(make_bundle(broker, tmp_path / "whole.kfb"))
    file = KilledWriter()
    for stop in (6, 9, 9):
        file.seek(0)
        file.left = stop
        with pytest.raises(StoppedError):
            collect([str(broker)], CollectOptions(), file)
        file.left = 1 << 60
        path = tmp_path / "cut.kfb"
        path.write_bytes(file.getvalue())
        result = kf.scan([str(path)])
        assert not any("overlap" in gap.reason for gap in result.incomplete)
        assert result.verdict not in {"clean", "info"}
    resumed = finished(broker, file, tmp_path / "resumed.kfb")
    assert sum(bool(part.begun) for part in unpack_bundle(resumed).parts) > 1
    assert facts_of(resumed) == expected


def stopped(broker: Path, options: CollectOptions | None = None, writes: int = 6) -> KilledWriter:
    """The start of a bundle."""
    file = KilledWriter()
    file.left = writes
    with pytest.raises(StoppedError):
        collect([str(broker)], options or CollectOptions(), file)
    file.left = 1 << 60
    return file


def test_a_file_that_changed_between_is_read_again(broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = stopped(broker, writes=16)
    (broker / MORE).write_bytes(b"".join(log(31)))
    (broker / ORDERS).write_bytes(b"".join(log(41)))
    names = record_opened_files(monkeypatch)
    path = finished(broker, file, tmp_path / "resumed.kfb")
    assert ORDERS in names
    assert MORE in names
    assert OFFSETS not in names
    assert facts_of(path) == facts_of(make_bundle(broker, tmp_path / "whole.kfb"))


def test_a_file_that_could_not_be_read_is_tried_again(broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, (broker / "old-0" / LOG).__eq__)
        file = io.BytesIO()
        assert [gap.reason for gap in collect([str(broker)], CollectOptions(), file).incomplete] == ["input/output error"]
    assert facts_of(finished(broker, file, tmp_path / "again.kfb")) == facts_of(make_bundle(broker, tmp_path / "whole.kfb"))


@pytest.mark.parametrize("data", [b"", b"x" * 5000, bytes(2048), b"bundle.json" + bytes(501)])
def test_files_that_are_no_bundle_are_overwritten(data: bytes, broker: Path, tmp_path: Path) -> None:
    expected = facts_of(make_bundle(broker, tmp_path / "whole.kfb"))
    assert facts_of(finished(broker, io.BytesIO(data), tmp_path / "over.kfb")) == expected


REDACTED: Final = CollectOptions(pseudonyms=PseudonymMap("00" * 32, {}))


@pytest.mark.parametrize("other", [CollectOptions(hashes=True), REDACTED])
def test_the_start_of_another_bundle_is_refused(other: CollectOptions, broker: Path) -> None:
    file = stopped(broker)
    before = file.getvalue()
    file.seek(0)
    with pytest.raises(UsageError, match="another bundle, or to other options") as caught:
        collect([str(broker)], other, file)
    assert "it continues only with the options with which it was started" in (caught.value.hint or "")
    assert file.getvalue() == before


def test_a_partial_write_is_continued(broker: Path, tmp_path: Path) -> None:
    class PartialWrites(io.BytesIO):
        def write(self, data: Any, /) -> int:
            return super().write(bytes(data)[:100])

    assert facts_of(finished(broker, PartialWrites(), tmp_path / "slow.kfb")) == facts_of(
        make_bundle(broker, tmp_path / "whole.kfb")
    )


# Truncated bundles.


def test_a_truncated_bundle_is_refused_or_judged_in_part(broker: Path, tmp_path: Path) -> None:
    data = make_bundle(broker, tmp_path / "whole.kfb").read_bytes()
    path = tmp_path / "cut.kfb"
    for end in sorted({*range(0, len(data) - 1024, 1536), *range(100, len(data) - 1024, 1997)}):
        path.write_bytes(data[:end])
        try:
            result = kf.scan([str(path)])
        except SourceError:
            continue
        assert result.verdict not in {"clean", "info"}, end
        assert result.incomplete, end


def test_a_truncated_log_is_judged_up_to_its_end(broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_file, "PART_BYTES", 1)
    parts_of = unpack_bundle(make_bundle(broker, tmp_path / "whole.kfb"))
    number = next(number for number, part in enumerate(parts_of.parts) if any(section[0] == PAYMENTS for section in part.sections))
    parts_of.parts = parts_of.parts[: number + 1]
    parts_of.parts[number].files = []
    members = parts_of.members()
    del members["listing.zst"]
    path = tmp_path / "cut.kfb"
    path.write_bytes(tar_of(members))
    result = kf.scan([str(path)])
    assert any(gap.path.endswith(PAYMENTS) and "cut short before the end of this file" in gap.reason for gap in result.incomplete)
    [payments] = [partition for partition in result.partitions if partition.topic == "payments"]
    assert payments.verdict == "unknown"
