"""Ranges as text, on the command line, and the lines of printed commands."""

import io
import shlex

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.cli.ranges import offsets
from kafka_forensics.cli.streams import COMMAND_START, Screen, command_lines, say
from kafka_forensics.errors import UsageError
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.offset_ranges import offset_ranges, range_argument

COMMAND = "kafka-forensics plan /some/long/path/broker-1 /some/long/path/broker-2 --topic audit --partition 0"


@given(st.integers(0, INT64_MAX - 1), st.integers(1, INT64_MAX))
def test_a_printed_range_is_parsed_to_the_same_range(start: int, size: int) -> None:
    end = min(start + size, INT64_MAX)
    assert offsets(range_argument(start, end)) == (start, None if end == INT64_MAX else end)


@pytest.mark.parametrize(
    ("text", "bounds"), [("7", (7, 8)), ("7..", (7, None)), ("..7", (None, 8)), ("7..7", (7, 8)), (None, (None, None))]
)
def test_both_ends_of_offsets_are_included(text: str | None, bounds: tuple[int | None, int | None]) -> None:
    assert offsets(text) == bounds


@pytest.mark.parametrize("text", ["", "..", "9..5", "5:9", "5-9", "x", "1...2", "-1", f"{2**63}", "1" * 5000, "٣"])
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as error:
        offsets(text)
    assert error.value.hint is not None


def test_the_first_ranges_of_a_set_are_named() -> None:
    assert offset_ranges([(5, 6)]) == "offset 5"
    assert offset_ranges([(1, 4), (7, 8)]) == "offsets 1 to 3, 7"
    assert offset_ranges([(number, number + 1) for number in range(0, 12, 2)]) == "offsets 0, 2, 4 and 3 more ranges"


@pytest.mark.parametrize("text", [f"{COMMAND_START}{COMMAND}", f"see more with `{COMMAND}`.", f"`{COMMAND}` shows it"])
def test_a_long_command_in_a_message_has_lines_that_a_shell_reads_as_one(text: str) -> None:
    screen = Screen(io.StringIO(), 80, colour=False)
    say(screen, [text])
    written = screen.stream.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= 80 for line in written.splitlines()), written
    _, _, command = written.partition(COMMAND_START)
    assert shlex.split(command.replace("\\\n", ""))[: len(shlex.split(COMMAND))] == shlex.split(COMMAND)


def test_a_short_command_stays_in_its_message() -> None:
    screen = Screen(io.StringIO(), 80, colour=False)
    say(screen, ["see `kafka-forensics explain d6`"])
    assert screen.stream.getvalue() == "see `kafka-forensics explain d6`\n"  # type: ignore[attr-defined]
    assert command_lines("kafka-forensics explain d6", 40) == ["kafka-forensics explain d6"]
