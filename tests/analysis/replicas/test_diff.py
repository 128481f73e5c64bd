"""Where two logs differ: the kind of each difference, its offsets, and how much is read to find it."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replicas import diff as module
from kafka_forensics.analysis.replicas.diff import Difference, Differences, differences
from kafka_forensics.analysis.replicas.records_held import records_held, with_records
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.findings import Place, Severity
from tests.analysis.replica_logs import Batch, Logs, batches
from tests.support.segments import batch_positions, flip_bit, marker, replace_bytes

BLOCK = 1 << 16
LETTERS = "abcdefghij"


def kinds_and_offsets(found: list[Difference]) -> list[tuple[str, int, int]]:
    return [(difference.kind, difference.offset, difference.end_offset) for difference in found]


def two(logs: Logs, left: list[Batch], right: list[Batch], data: bytes | None = None) -> list[Difference]:
    """Differences of two replicas; `data` replaces the bytes of the right one."""
    return differences(logs.add(1, left), logs.add(2, right, data=data), logs)


def written(log: list[Batch]) -> list[bytes]:
    return [batch.written() for batch in log]


LOG = batches((0, "abcdef"))
THIRDS = batches((0, "abcd"), span=BLOCK * 2 // 3)
TRIPLES = batches((0, "abcd"), records_per_batch=3)
REENCODED = [TRIPLES[0], Batch(3, TRIPLES[1].values, codec="gzip"), TRIPLES[2], Batch(9, TRIPLES[3].values, codec="zstd")]
WIDE = THIRDS[1].base_offset
"""Start of a batch that ends in the next block, to which it belongs; a difference in it is found at this offset."""


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        pytest.param([], [], [], id="empty"),
        *(pytest.param(LOG, LOG[:end], [], id=f"a prefix of {end}") for end in (0, 1, 3, 6)),
        *(pytest.param(LOG[:end], LOG, [], id=f"longer than {end}") for end in (0, 1, 3)),
        pytest.param(LOG, LOG[2:], [], id="a later start"),
        pytest.param(LOG, batches((0, "abXdef")), [("content", 2, 3)], id="another record"),
        pytest.param(LOG, batches((0, "abc"), (1, "xyz")), [("content", n, n + 1) for n in (3, 4, 5)], id="a fork: F38"),
        pytest.param(batches((0, "a"), (2, "z")), batches((1, "b"), (2, "z")), [("content", 0, 1)], id="under an equal tail: F34"),
        pytest.param(TRIPLES, REENCODED, [("reencoded", 3, 6), ("reencoded", 9, 12)], id="equal records in other bytes"),
        pytest.param(
            THIRDS,
            [replace(batch, codec="gzip") for batch in THIRDS],
            [("reencoded", batch.base_offset, batch.base_offset + WIDE) for batch in THIRDS],
            id="across blocks in other bytes",
        ),
        pytest.param(
            THIRDS, [THIRDS[0], replace(THIRDS[1], values=["X"]), *THIRDS[2:]], [("content", WIDE, 2 * WIDE)], id="across blocks"
        ),
    ],
)
def test_where_two_logs_differ(left: list[Batch], right: list[Batch], expected: list[tuple[str, int, int]]) -> None:
    assert kinds_and_offsets(two(Logs(), left, right)) == expected


@pytest.mark.parametrize("number", [0, 1, 5])
def test_a_batch_with_a_wrong_checksum_is_damaged(number: int) -> None:
    """F01, also in the first and the last batch, whose offsets are then not proven."""
    log = batches((0, "abcdef"), records_per_batch=2)
    data = flip_bit(b"".join(written(log)), batch_positions(written(log))[number] + 70)
    logs = Logs()
    (difference,) = two(logs, log, log, data)
    assert (difference.kind, difference.offset, difference.end_offset) == ("damaged", 2 * number, 2 * number + 2)
    assert difference.right.row[BatchColumn.CRC] != difference.right.row[BatchColumn.CRC_COMPUTED]
    assert difference.left.row[BatchColumn.CRC] == difference.left.row[BatchColumn.CRC_COMPUTED]


@pytest.mark.parametrize("number", [0, 3, 5])
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_epoch_field_is_a_difference_of_headers(number: int, bit: int) -> None:
    """F02, the sign bit too."""
    log = batches((0, "abcdef"))
    data = flip_bit(b"".join(written(log)), batch_positions(written(log))[number] + 12, bit)
    (difference,) = two(Logs(), log, log, data)
    assert (difference.kind, difference.offset) == ("header", number)
    assert difference.epochs[0] == 0 != difference.epochs[1]


def test_a_flipped_base_offset_is_no_conflict() -> None:
    """F03: the batch contradicts its own neighbours, so it is not compared by its offset."""
    log = batches((0, "abcdef"))
    data = replace_bytes(b"".join(written(log)), batch_positions(written(log))[2], (2**40).to_bytes(8, "big"))
    assert {difference.kind for difference in two(Logs(), log, log, data)} <= {"header"}


def test_a_conflict_next_to_a_flipped_base_offset_is_found() -> None:
    log = batches((0, "abcdef"))
    left = [*log[:4], replace(log[4], values=["X"]), log[5]]
    data = replace_bytes(b"".join(written(log)), batch_positions(written(log))[1], (2**40).to_bytes(8, "big"))
    assert ("content", 4, 5) in kinds_and_offsets(two(Logs(), left, log, data))


def test_a_wrong_magic_byte_is_a_difference_of_headers() -> None:
    log = batches((0, "abcdef"))
    data = replace_bytes(b"".join(written(log)), batch_positions(written(log))[2] + 16, b"\x03")
    assert kinds_and_offsets(two(Logs(), log, log, data)) == [("header", 2, 3)]


def test_records_that_cannot_be_read_prove_no_conflict() -> None:
    logs = Logs(unreadable={2})
    assert [difference.kind for difference in two(logs, batches((0, "abc")), batches((0, "abX")))] == ["damaged"]


def test_cleaned_copies_differ_where_a_kept_record_does() -> None:
    """F39: a record that one side cleaned is no difference; another value is."""
    left = [Batch(0, ["a", "b", "c"]), Batch(3, ["d"])]
    logs = Logs()
    cleaned = logs.add(2, [Batch(0, [None, "b", "c"]), Batch(3, ["d"])], compacted=True)
    assert differences(logs.add(1, left, compacted=True), cleaned, logs) == []
    other = logs.add(3, [Batch(0, [None, "X", "c"]), Batch(3, ["d"])], compacted=True)
    assert kinds_and_offsets(differences(logs.add(1, left, compacted=True), other, logs)) == [("content", 0, 3)]


def test_only_differing_blocks_are_read_again() -> None:
    """One batch in six blocks differs: its block is read, and not the last, of which both have the same part."""
    left = batches((0, LETTERS * 6), span=BLOCK // 10)
    right = [*left[:25], replace(left[25], values=["X"]), *left[26:]]
    logs = Logs()
    assert len(two(logs, left, right)) == 1
    blocks = {(start // BLOCK, end // BLOCK) for _, start, end in logs.ranges_read}
    assert {start for start, _ in blocks} == {left[25].base_offset // BLOCK}


def test_after_a_conflict_only_the_last_block_of_a_run_is_read() -> None:
    left, right = (batches((0, "a"), (0, letters * 7), span=BLOCK // 10) for letters in (LETTERS, LETTERS.upper()))
    logs = Logs()
    found = two(logs, left, right)
    assert found[0].offset == BLOCK // 10
    assert found[-1].end_offset == left[-1].base_offset + BLOCK // 10
    assert len({start for broker, start, _ in logs.ranges_read if broker == 1}) <= 3


def test_absurd_offsets_are_stepped_over() -> None:
    far = 2**62
    left = [Batch(0, ["a"]), Batch(far, ["b"]), Batch(far + 1, ["c"])]
    right = [Batch(0, ["a"]), Batch(far, ["X"]), Batch(far + 1, ["c"])]
    logs = Logs()
    assert kinds_and_offsets(two(logs, left, right)) == [("content", far, far + 1)]
    assert len(logs.ranges_read) < 300


def test_only_some_of_many_differences_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIFFERENCES_KEPT", 5)
    left, right = batches((0, LETTERS)), batches((1, LETTERS.upper()))
    assert [difference.offset for difference in two(Logs(), left, right)] == [0, 1, 2, 3, 4]


def test_many_runs_of_differing_blocks_are_read_at_either_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNS_READ", 1)
    left = batches((0, LETTERS), span=BLOCK)
    right = [batch if n % 2 else replace(batch, values=["X"]) for n, batch in enumerate(left)]
    assert [difference.offset // BLOCK for difference in two(Logs(), left, right)] == [0, 8]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[Batch], list[Batch]]:
    """Two logs that begin with the same records, with different ends, starts and codecs."""
    common = draw(st.integers(0, 5))
    log: list[list[Batch]] = [[], []]
    offset = 0
    for index in range(common):
        count = draw(st.integers(1, 3))
        for side in log:
            side.append(Batch(offset, [f"common {index}"] * count, 0, draw(st.sampled_from(["none", "none", "gzip"]))))
        offset += count
    for number, side in enumerate(log):
        at = offset
        for index in range(draw(st.integers(0, 3))):
            count = draw(st.integers(1, 3))
            side.append(Batch(at, [f"own {number} {index}"] * count, 1 + number))
            at += count
        del side[: draw(st.integers(0, 2))]
    return log[0], log[1]


@given(pairs())
def test_differences_equal_those_of_a_record_by_record_comparison(logs: tuple[list[Batch], list[Batch]]) -> None:
    left, right = logs
    found = two(Logs(), left, right)
    ours, theirs = ({offset: value for batch in side for offset, value in batch.records.items()} for side in logs)
    unlike = {offset for offset in ours.keys() & theirs.keys() if ours[offset] != theirs[offset]}
    content = [difference for difference in found if difference.kind == "content"]
    assert bool(unlike) is bool(content)
    covered = set(itertools.chain.from_iterable(range(difference.offset, difference.end_offset) for difference in content))
    assert unlike <= covered
    if unlike:
        assert content[0].offset == min(unlike)
    other_bytes = {
        batch.base_offset
        for batch in left
        for two in right
        if batch.records == two.records and batch.codec != two.codec and batch.epoch == 0
    }
    assert {difference.offset for difference in found if difference.kind == "reencoded"} == other_bytes
    assert [difference.offset for difference in found] == sorted(difference.offset for difference in found)


@given(pairs())
def test_sides_may_be_exchanged(logs: tuple[list[Batch], list[Batch]]) -> None:
    differences_of_left, differences_of_right = two(Logs(), logs[0], logs[1]), two(Logs(), logs[1], logs[0])
    assert kinds_and_offsets(differences_of_left) == kinds_and_offsets(differences_of_right)
    assert [difference.epochs for difference in differences_of_left] == [
        difference.epochs[::-1] for difference in differences_of_right
    ]


def test_a_replica_of_bad_bytes_only() -> None:
    log = batches((0, "abc"))
    logs = Logs()
    right = logs.add(2, log, data=b"\xff" * 300)
    assert differences(logs.add(1, log), right, logs) == []


def test_the_last_but_one_of_too_many_of_a_kind_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIFFERENCES_KEPT", 2)
    found, row = Differences(), Logs().add(1, batches((0, "a"))).state.digests
    for offset, kind in enumerate(["header", "reencoded", "reencoded", "header", "reencoded", "header"]):
        found.add(Difference(kind, offset, offset + 1, row, row))  # type: ignore[arg-type]
    assert kinds_and_offsets(found) == [("header", 0, 1), ("reencoded", 1, 2), ("reencoded", 4, 5), ("header", 5, 6)]
    assert found.counts == {"header": 3, "reencoded": 3}


KINDS = frozenset({"UNCLEAN_LOSS", "FORK_BELOW_HW"})


class Marker(Batch):
    """A transaction marker: an offset, and no record."""

    def written(self) -> bytes:
        return marker(self.base_offset, commit=False)


def log_of(sizes: Sequence[int]) -> list[Batch]:
    """A batch for each of these numbers of records; 0 is a marker."""
    made: list[Batch] = []
    offset = 0
    for size in sizes:
        made.append(Batch(offset, "r" * size) if size else Marker(offset, [None]))
        offset += size or 1
    return made


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 40), st.integers(0, 40))
def test_every_record_counts_once_and_no_marker(sizes: list[int], start: int, length: int) -> None:
    log = log_of(sizes)
    replica = (logs := Logs()).add(1, log)
    naive = sum(start <= offset < start + length for batch in log for offset in batch.records)
    assert records_held(replica, logs, start, start + length) == naive


@given(st.integers(0, 6), st.integers(0, 6))
def test_whole_logs_are_counted_without_reading_them_again(before: int, after: int) -> None:
    replica = (logs := Logs()).add(1, log_of([3, 1, 4]))
    assert records_held(replica, logs, -before, 8 + after) == 8
    assert logs.ranges_read == []


def test_the_shorter_rest_is_read_instead_of_a_long_range() -> None:
    replica = (logs := Logs()).add(1, log_of([2] * 50))
    assert records_held(replica, logs, 4, 100) == 96
    assert logs.ranges_read == [(1, 0, 4)]


def test_a_cleaned_log_counts_remaining_records_and_guesses_no_part_of_a_batch() -> None:
    log = [Batch(0, ["a", None, "c"]), Batch(8, [None, "b"])]
    replica = (logs := Logs()).add(1, log, compacted=True)
    assert records_held(replica, logs, 0, 10) == 3
    assert records_held(replica, logs, 3, 10) == 1
    assert records_held(replica, logs, 1, 10) is None


@pytest.mark.parametrize("damaged", [0, 3, 5])
@pytest.mark.parametrize("compacted", [False, True])
def test_nothing_is_counted_where_there_is_damage(damaged: int, *, compacted: bool) -> None:
    log = log_of([2] * 6)
    data = bytearray(b"".join(batch.written() for batch in log))
    data[sum(len(batch.written()) for batch in log[:damaged]) + 70] ^= 1
    replica = (logs := Logs()).add(1, log, data=bytes(data), compacted=compacted, start=0)
    assert records_held(replica, logs, 0, 12) is None
    assert records_held(replica, logs, 2 * damaged + 1, 2 * damaged + 2) is None
    assert records_held(replica, logs, 8 if damaged < 4 else 0, 10 if damaged < 4 else 2) == 2


def test_missing_records_are_not_counted() -> None:
    gapped = (logs := Logs()).add(1, [*batches((0, "ab")), *batches((0, "xy"), start=6)])
    assert records_held(gapped, logs, 0, 8) is None
    assert records_held(gapped, logs, 6, 8) == 2


@pytest.mark.parametrize(
    ("evidence", "records"),
    [
        ({"held_by": [2]}, 2),
        ({"held_by": [9, 1]}, 3),
        ({"held_by": [2, 1]}, 3),
        ({"held_by": [9]}, None),
        ({"held_by": []}, None),
        ({}, None),
    ],
)
def test_a_finding_has_the_records_of_its_holders(evidence: dict[str, list[int]], records: int | None) -> None:
    logs = Logs()
    replicas = [logs.add(1, batches((0, "abc"))), logs.add(2, batches((0, "ab")))]
    loss = finding("UNCLEAN_LOSS", Place("t", 0, offset_start=0, offset_end=3), evidence)
    (counted,) = with_records([loss], replicas, logs, KINDS)
    assert counted.evidence.get("records_held") == records
    assert with_records([counted], replicas, logs, KINDS) == [counted]


def test_the_version_of_a_fork_with_most_records_counts() -> None:
    logs = Logs()
    replicas = [logs.add(1, batches((0, "a"), (2, "x"))), logs.add(2, batches((0, "abcd")))]
    versions = [{"brokers": [broker], "epoch": 0, "log_end_offset": 4, "high_watermark": 4} for broker in (1, 2)]
    place = Place("t", 0, offset_start=1, offset_end=4)
    fork = finding("FORK_BELOW_HW", place, {"versions": versions, "held_by": []})
    assert with_records([fork], replicas, logs, KINDS)[0].evidence["records_held"] == 3
    background = finding("FORK_BELOW_HW", place, {"versions": versions}, severity=Severity.INFO)
    assert with_records([background], replicas, logs, KINDS) == [background]
