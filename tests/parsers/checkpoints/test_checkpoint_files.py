import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.files import EpochEntry, LeaderEpochs
from kafka_forensics.parsers import bounded, checkpoints
from kafka_forensics.parsers.checkpoints import parse_leader_epochs, parse_offset_checkpoint
from kafka_forensics.writers.files import write_leader_epochs, write_offset_checkpoint
from tests.support.memory import MemoryFile


def offsets_of(data: bytes) -> tuple[dict[tuple[str, int], int], list[Damage]]:
    checkpoint = parse_offset_checkpoint(MemoryFile(data))
    return checkpoint.offsets, checkpoint.damage


def reasons(damage: list[Damage]) -> list[tuple[object, object]]:
    assert {row.kind for row in damage} <= {"CHECKPOINT_MALFORMED"}
    return [(row.detail["reason"], row.detail.get("line")) for row in damage]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        *((data, {}) for data in (b"", b"0\n0\n", b"0\r\n0\r\n", b"0\r0\r")),
        (b" 0 \r\n2\r\n orders \t 1  5\r\nb 0 7\r\n", {("orders", 1): 5, ("b", 0): 7}),
        (b"0\n2\nt 0 5\nt 0 3\n", {("t", 0): 3}),
    ],
)
def test_white_space_and_line_ends_vary_and_the_last_line_of_a_partition_counts(
    data: bytes, expected: dict[tuple[str, int], int]
) -> None:
    assert offsets_of(data) == (expected, [])
    assert expected or parse_leader_epochs(MemoryFile(data)) == LeaderEpochs([])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"t 0", "fields"),
        (b"t 0 1 2", "fields"),
        (b"", "fields"),
        (b"\0\0\0", "fields"),
        (b"\xff\xfe 0 1", "topic"),
        (b".. 0 1", "topic"),
        (b"t\x1b[31m 0 1", "topic"),
        (b"x" * 250 + b" 0 1", "topic"),
        (b"t -1 1", "partition"),
        (b"t 2147483648 1", "partition"),
        (b"t 0 -1", "negative"),
        (b"t 0 9223372036854775808", "offset"),
        (b"t 0 00000000000000000001", "offset"),
        (b"t 0 1.0", "offset"),
        (b"t 0 1_0", "offset"),
        ("t 0 \u0661".encode(), "offset"),
        (b"t 0 " + b"9" * 60_000, "offset"),
        (b"t 0 " + b"9" * (10 << 20), "line_too_long"),
    ],
)
def test_a_malformed_line_does_not_affect_other_lines(line: bytes, reason: str) -> None:
    data = b"0\n3\na 0 1\n" + line + b"\nb 0 2\n"
    offsets, damage = offsets_of(data)
    assert offsets == {("a", 0): 1, ("b", 0): 2}
    assert reasons(damage) == [(reason, 4)]
    assert data[damage[0].position :][: damage[0].size_in_bytes] == line + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"), [(b"1", "fields"), (b"-1 0", "epoch"), (b"2147483648 0", "epoch"), (b"1 -1", "offset"), (b"1 x", "offset")]
)
def test_a_malformed_epoch_does_not_affect_other_epochs(line: bytes, reason: str) -> None:
    epochs = parse_leader_epochs(MemoryFile(b"0\n3\n0 0\n" + line + b"\n5 9\n"))
    assert epochs.entries == [EpochEntry(0, 0), EpochEntry(5, 9)]
    assert reasons(epochs.damage) == [(reason, 4)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"1\n1\nt 0 5\n", [("version", 1)]),
        (b"x\n1\nt 0 5\n", [("version", 1)]),
        (b"0\n2147483647\nt 0 5\n", [("count", 2)]),
        (b"0\n0\nt 0 5\n", [("count", 2)]),
        (b"0\n" + b"1" * 50_000 + b"\nt 0 5\n", [("count", 2)]),
        (b"0\nt 0 5\n", [("count", 2)]),
        (b"t 0 5\n", [("version", 1), ("count", 2)]),
        (b"0\n1\nt 0 5", [("unterminated", 3)]),
    ],
)
def test_a_header_that_contradicts_the_lines_is_damage(data: bytes, expected: list[tuple[object, object]]) -> None:
    offsets, damage = offsets_of(data)
    assert offsets == {("t", 0): 5}
    assert reasons(damage) == expected


def test_damage_of_a_wrong_count_has_both_numbers() -> None:
    _, damage = offsets_of(b"0\n7\nt 0 5\n")
    assert damage[0].detail == {"reason": "count", "line": 2, "expected": 1, "found": 7}
    assert (damage[0].position, damage[0].size_in_bytes) == (2, 2)
    _, damage = offsets_of(b"0\nt 0 5\nu 0 6\n")
    assert [row.detail for row in damage] == [{"reason": "count", "line": 2, "expected": 2}]


def test_a_file_of_zeros_is_one_damage_row() -> None:
    assert reasons(offsets_of(bytes(4096))[1]) == [("zeros", None)]


def test_damage_rows_are_limited() -> None:
    _, damage = offsets_of(b"bad\n" * 5000)
    assert len(damage) == 33
    assert reasons(damage)[:2] == [("version", 1), ("count", 2)]
    assert damage[-1].detail == {"reason": "more", "count": 4998 - 30}


def test_only_the_beginning_of_a_huge_file_is_read() -> None:
    file = MemoryFile(b"0\n2\na 0 1\n" + b"b" * 100, size_in_bytes=8 << 40)
    checkpoint = parse_offset_checkpoint(file)
    assert checkpoint.offsets == {("a", 0): 1}
    assert reasons(checkpoint.damage) == [("oversized", None)]
    assert file.furthest_byte <= 64 << 20


def test_lines_past_the_limit_are_reported_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_LINES", 3)
    assert reasons(offsets_of(b"0\n3\na 0 1\nb 0 2\nc 0 3\n")[1]) == [("too_many_lines", 4)]


@given(st.binary(max_size=300))
def test_damage_of_any_bytes_is_inside_the_file(data: bytes) -> None:
    for damage in (offsets_of(data)[1], parse_leader_epochs(MemoryFile(data)).damage):
        assert all(0 <= row.position <= row.position + row.size_in_bytes <= len(data) for row in damage)


TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True).filter(lambda topic: topic not in {".", ".."})
CHECKPOINTS = st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=8)


@given(CHECKPOINTS)
def test_written_checkpoints_are_read_back(offsets: dict[tuple[str, int], int]) -> None:
    assert offsets_of(write_offset_checkpoint(offsets)) == (offsets, [])


@given(CHECKPOINTS.filter(bool), st.data())
def test_any_cut_is_damage_and_whole_lines_are_read(offsets: dict[tuple[str, int], int], draw: st.DataObject) -> None:
    data = write_offset_checkpoint(offsets)
    cut = data[: draw.draw(st.integers(1, len(data) - 1))]
    found, damage = offsets_of(cut)
    assert damage
    whole_lines = len(cut[: cut.rfind(b"\n") + 1].splitlines()) - 2
    assert list(found.items())[: max(0, whole_lines)] == list(offsets.items())[: max(0, whole_lines)]


@given(
    st.one_of(
        st.binary(max_size=40),
        st.text("0123456789 \n\r-+", max_size=40).map(str.encode),
        st.lists(st.tuples(st.integers(0, 2**33), st.integers(0, 2**65)), max_size=4).flatmap(
            lambda rows: st.integers(0, len(rows) + 1).map(
                lambda count: "".join(["0\n", f"{count}\n", *(f"{epoch} {offset}\n" for epoch, offset in rows)]).encode()
            )
        ),
    )
)
def test_the_fast_path_for_epoch_files_agrees_with_the_general_parser(data: bytes) -> None:
    """The fast path returns None where it cannot read the file."""
    fast = checkpoints._plain_leader_epochs(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "_SHORT_BYTES", -1)
        assert fast in (None, parse_leader_epochs(MemoryFile(data)))


def test_ordinary_epoch_files_take_the_fast_path() -> None:
    for entries in ([], [EpochEntry(0, 0)], [EpochEntry(3, 5), EpochEntry(2**29, 2**59)]):
        assert checkpoints._plain_leader_epochs(write_leader_epochs(entries)) == LeaderEpochs(entries)
