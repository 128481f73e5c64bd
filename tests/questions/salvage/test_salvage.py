"""Logs salvaged from damaged, short, torn or diverging copies, compared with the batches that were written."""

import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import MANIFEST, SalvageOptions, salvage
from tests.questions.salvage.salvaged import NAME, batches_of, check_output, log_of, of_first, refused, salvaged_of, taken
from tests.support.brokers import put_replica
from tests.support.places import SAMPLES
from tests.support.segments import batch, batch_positions, flip_bit, legacy_entry, replace_bytes, segment_file, write_legacy_wrapper


def damaged(batches: list[bytes], numbers: set[int], byte: int = 70) -> bytes:
    """The log with one flipped bit in each of these batches."""
    return b"".join(flip_bit(data, byte) if number in numbers else data for number, data in enumerate(batches))


@pytest.mark.parametrize("byte", range(0, 61, 3))
def test_a_flipped_bit_anywhere_in_a_header_is_replaced(tmp_path: Path, byte: int) -> None:
    batches = batches_of(9)
    for broker, number in ((1, 2), (2, 5), (3, 7)):
        put_replica(tmp_path / "in", broker, damaged(batches, {number}, byte), high_watermark=18)
    partition = taken(tmp_path, batches)
    assert (partition.log_start_offset, partition.log_end_offset, partition.high_watermark) == (0, 18, 18)
    assert {taken.why for taken in partition.ranges} == {"base", "filled"}
    check_output(tmp_path / "in", tmp_path / "out")


def test_deleted_segments_come_from_another_copy_with_the_same_boundaries(tmp_path: Path) -> None:
    batches = batches_of(12, epochs=(0, 1, 4))
    segments = {8 * part: b"".join(batches[4 * part : 4 * part + 4]) for part in range(3)}
    put_replica(tmp_path / "in", 1, {0: segments[0], 16: segments[16]}, high_watermark=24)
    put_replica(tmp_path / "in", 2, {0: segments[0], 8: segments[8]}, high_watermark=16)
    put_replica(tmp_path / "in", 3, {0: segments[0], 8: segments[8], 16: segments[16][: -len(batches[-1])]}, high_watermark=22)
    taken(tmp_path, batches)
    directory = of_first(tmp_path / "out")
    assert {int(path.stem): path.read_bytes() for path in directory.glob("*.log")} == segments
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 8\n4 16\n"
    assert {path.name for path in directory.glob("*.snapshot")} == {segment_file(offset, "snapshot") for offset in (8, 16, 24)}
    assert of_first(tmp_path / "out", "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 0\n"


def test_offsets_that_no_copy_has_are_refused_or_a_gap(tmp_path: Path) -> None:
    batches = batches_of(8)
    for broker in (1, 2):
        put_replica(tmp_path / "in", broker, damaged(batches, {3, broker}), high_watermark=16)
    refusal = refused(tmp_path)
    assert (refusal.kind, refusal.offsets) == ("gaps", ((6, 8),))
    assert not (tmp_path / "refused" / NAME).exists()
    assert json.loads((tmp_path / "refused-0" / MANIFEST).read_text())["refused"][0]["offsets"] == [[6, 8]]
    partition = taken(tmp_path, batches[:3] + batches[4:], allow_gaps=True)
    assert [(gap.start, gap.end, gap.damaged_on) for gap in partition.gaps] == [(6, 8, (1, 2))]


def test_offsets_lost_at_the_end_are_not_reused(tmp_path: Path) -> None:
    put_replica(tmp_path / "in", 1, damaged(batches_of(5), {4}), high_watermark=10)
    assert salvaged_of(tmp_path / "in", tmp_path / "refused").refused[0].offsets == ((8, 10),)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", allow_gaps=True).partitions
    assert partition.log_end_offset == 10
    assert (of_first(tmp_path / "out") / segment_file(10)).read_bytes() == b""
    check_output(tmp_path / "in", tmp_path / "out")


def test_a_committed_end_that_no_copy_has_is_refused_or_a_gap(tmp_path: Path) -> None:
    batches = batches_of(8)
    for broker, end in ((1, 6), (2, 5)):
        put_replica(tmp_path / "in", broker, batches[:end], high_watermark=16)
    refusal = refused(tmp_path)
    assert (refusal.kind, refusal.offsets) == ("gaps", ((12, 16),))
    partition = taken(tmp_path, batches[:6], allow_gaps=True)
    assert [(gap.start, gap.end) for gap in partition.gaps] == [(12, 16)]
    assert (partition.log_end_offset, partition.high_watermark) == (16, 16)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "live", live=True).partitions
    assert (partition.log_end_offset, partition.gaps) == (12, []), "the watermark was copied later"


def test_committed_rivals_are_refused(tmp_path: Path) -> None:
    common = batches_of(4)
    old, new = batches_of(3, start=8), batches_of(2, start=8, epochs=(2,), records=3, values=b"n")
    put_replica(tmp_path / "in", 1, common + old, high_watermark=14)
    put_replica(tmp_path / "in", 2, common + new, high_watermark=14)
    put_replica(tmp_path / "in", 3, common, high_watermark=8)
    refusal = refused(tmp_path)
    assert (refusal.kind, set(refusal.brokers)) == ("rivals", {1, 2})
    for broker, side in (("1", old), ("2", new)):
        partition = taken(tmp_path, common + side, f"out-{broker}", prefer=broker)
        assert {left.broker for left in partition.left_behind} == {3 - int(broker)}
    assert refused(tmp_path, prefer="3").kind == "rivals", "broker 3 holds none of both"
    named = [f"{name}={tmp_path / 'in' / f'broker-{node}'}" for name, node in (("east", 1), ("west", 2))]
    for prefer in ("west", "2"):
        assert not salvage(named, tmp_path / prefer, ScanOptions(), SalvageOptions(prefer)).refused
        assert log_of(tmp_path / prefer) == b"".join(common + new)
    with pytest.raises(UsageError, match="no copy belongs to broker 4"):
        salvage(named, tmp_path / "none", ScanOptions(), SalvageOptions("4"))


def test_a_start_that_nothing_may_delete_is_restored(tmp_path: Path) -> None:
    batches = batches_of(6)
    put_replica(tmp_path / "in", 1, {0: b"".join(batches[:3]), 6: damaged(batches[3:], {1})}, high_watermark=12)
    put_replica(tmp_path / "in", 2, {6: b"".join(batches[3:])}, high_watermark=12)
    taken(tmp_path, batches, prefer="2")


def test_a_log_start_inside_a_batch_stays(tmp_path: Path) -> None:
    batches = batches_of(4, records=5)
    put_replica(tmp_path / "in", 1, batches, high_watermark=20, log_start=7)
    assert taken(tmp_path, batches[1:]).log_start_offset == 7
    assert of_first(tmp_path / "out", "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 7\n"


@pytest.mark.parametrize("prefer", ["1", "2"])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_compared_by_the_crc_in_their_headers(tmp_path: Path, magic: int, prefer: str) -> None:
    """Broker 2 has a damaged compressed batch; only its last offset is known."""
    plain = [legacy_entry(offset, magic, value=b"%d" % offset * 20) for offset in range(4)]
    inner = [legacy_entry(number if magic else 4 + number, magic) for number in range(3)]
    wrapper = write_legacy_wrapper(inner, offset=6, magic=magic, compression_type="gzip", timestamp=7 if magic else -1)
    entries = [*plain, wrapper, legacy_entry(7, magic)]
    for broker, number in ((1, 1), (2, 4), (3, 5)):
        put_replica(tmp_path / "in", broker, damaged(entries, {number}, 30), high_watermark=8)
    assert taken(tmp_path, entries, prefer=prefer).leader_epochs == []


def test_a_batch_inside_a_value_and_wrong_fields_outside_the_crc_are_not_used(tmp_path: Path) -> None:
    batches = batches_of(6)
    batches[2] = batch(4, 2, value=batch(4, 40, value=b"planted"))
    log = b"".join(batches)
    at = batch_positions(batches)
    put_replica(tmp_path / "in", 1, {0: replace_bytes(log, at[2] + 8, b"\x7f\xff\xff\xff")}, high_watermark=12)
    put_replica(tmp_path / "in", 2, {0: replace_bytes(log, at[4], (1 << 40).to_bytes(8, "big"))}, high_watermark=12)
    put_replica(tmp_path / "in", 3, {0: replace_bytes(log, at[5] + 12, b"\0\0\0\x63")}, high_watermark=12)
    taken(tmp_path, [log], allow_gaps=True)


@pytest.mark.parametrize("seed", range(12))
def test_with_any_damage_the_union_of_good_batches_remains(tmp_path: Path, seed: int) -> None:
    """All batches have one epoch and thus one lineage: the naive answer is every batch that is good in any copy."""
    dice = random.Random(seed)
    records = dice.choice((1, 3))
    batches = batches_of(20, records=records)
    good: set[int] = set()
    for broker in (1, 2, 3):
        end = dice.choice((20, 20, 17, 12))
        bad = {number for number in range(end) if dice.random() < 0.3}
        edges = [0, *sorted(dice.sample(range(1, end), 3)), end]
        deleted = dice.choice((-1, 1, 2))
        segments = {
            first * records: damaged(batches[first:last], {number - first for number in bad}, dice.choice((20, 40, 75)))
            for part, (first, last) in enumerate(pairwise(edges))
            if part != deleted
        }
        missing = set() if deleted < 0 else set(range(edges[deleted], edges[deleted + 1]))
        good |= set(range(end)) - bad - missing
        put_replica(tmp_path / "in", broker, segments, high_watermark=0)
    assert taken(tmp_path, (batches[number] for number in sorted(good)), allow_gaps=True).log_start_offset == 0


# The topic's id, without which a broker under KRaft treats a log as a stray, and starts an empty one.


def test_the_topic_id_is_from_the_controllers_log_if_no_copy_has_it(tmp_path: Path) -> None:
    sample = SAMPLES / "unclean-election"
    copies = tmp_path / "copies"
    shutil.copytree(sample, copies)
    topic_ids = {path.read_text() for path in copies.glob("*/audit-0/partition.metadata")}
    for path in copies.glob("*/audit-0/partition.metadata"):
        path.unlink()
    (partition,) = salvaged_of(copies, tmp_path / "out", prefer="2", topic_glob="audit").partitions
    assert {(of_first(tmp_path / "out", "audit-0") / "partition.metadata").read_text()} == topic_ids
    assert not partition.needs_topic_id
    for broker in copies.iterdir():
        shutil.rmtree(broker / "__cluster_metadata-0")
    (partition,) = salvaged_of(copies, tmp_path / "alone", prefer="2", topic_glob="audit").partitions
    assert not (tmp_path / "alone" / "audit-0" / "partition.metadata").exists()
    assert partition.needs_topic_id


@pytest.mark.parametrize(("version", "is_wanted"), [(0, False), (1, True)])
def test_only_brokers_under_kraft_need_a_topic_id(version: int, is_wanted: bool, tmp_path: Path) -> None:
    log_dir = put_replica(tmp_path / "in", 1, batches_of(3), high_watermark=6)
    node = "broker.id" if version == 0 else "node.id"
    (log_dir / "meta.properties").write_text(f"version={version}\n{node}=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert partition.needs_topic_id is is_wanted
    assert ("topic_id" in json.loads((tmp_path / "out" / MANIFEST).read_text())["partitions"][0]["unseen"]) is is_wanted
