"""The four `*-offset-checkpoint` files of a log directory (OffsetCheckpointFile), and the text form all checkpoints share."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.files import OffsetCheckpoint
from kafka_forensics.parsers.bounded import MAX_DAMAGE_ROWS, DamageList, TextLine, parse_integer, read_text
from kafka_forensics.storage.source import ByteFile

MAX_INT32: Final = 2**31 - 1
CHECKPOINT_VERSION: Final = 0
_KIND: Final = "CHECKPOINT_MALFORMED"
_TOPIC: Final = re.compile(rb"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")

TakeEntry = Callable[[list[bytes]], str | None]
"""Keeps the entry that the words of a line make, or says in a word why they make none."""


def parse_offset_checkpoint(file: ByteFile) -> OffsetCheckpoint:
    """Every readable line of an offset checkpoint; of two lines for a partition the last wins; no bytes at all are an empty map.

    Damage is `CHECKPOINT_MALFORMED` with `reason` and `line`, see `read_checkpoint`.
    """
    offsets: dict[tuple[str, int], int] = {}

    def take(words: list[bytes]) -> str | None:
        if len(words) != 3:
            return "fields"
        partition = parse_integer(words[1], 0, MAX_INT32)
        offset = parse_integer(words[2], 0, INT64_MAX)
        if not _TOPIC.fullmatch(words[0]):
            return "topic"
        if partition is None:
            return "partition"
        if offset is None:
            return "offset"
        offsets[words[0].decode("ascii"), partition] = offset
        return None

    damage = read_checkpoint(file, take)
    return OffsetCheckpoint(offsets, damage)


def read_checkpoint(file: ByteFile, take: TakeEntry) -> list[Damage]:
    """Hand the words of every entry line to `take`; what is wrong with the file comes back as damage, at most 33 rows.

    The form (CheckpointFile): a line with the version, one with the number of entries, one line an entry, words parted by white
    space. Reasons: `version` and `count` (absent, unreadable, or not what the file holds), what `take` says of a line,
    `unterminated` (the last line has no end and may have lost digits; it is taken all the same), and those of `bounded`.
    """
    headers = {1: _Header("version", 1), 2: _Header("count", 2)}
    in_headers, damage = DamageList(_KIND, len(headers)), DamageList(_KIND, MAX_DAMAGE_ROWS - len(headers))
    text = read_text(file, damage)
    entries = 0
    last = None
    for line in text.lines(damage):
        last = line
        words = [] if line.content is None else line.content.split()
        reason = take(words)
        header = headers.get(line.number)
        if header is not None and reason is not None:
            header.read(line, words)
            continue
        entries += 1
        if reason is not None and line.content is not None:
            damage.add(line.position, line.size_in_bytes, reason, line=line.number)
    if last is None:
        return damage.rows()
    headers[1].judge(in_headers, CHECKPOINT_VERSION)
    if text.complete:
        headers[2].judge(in_headers, entries)
        if not last.terminated:
            damage.add(last.position, last.size_in_bytes, "unterminated", line=last.number)
    return in_headers.rows() + damage.rows()


@dataclass(slots=True)
class _Header:
    """One of the two lines before the entries; `value` None while it is absent or no number."""

    name: str
    line: int
    position: int = 0
    size_in_bytes: int = 0
    value: int | None = None

    def read(self, line: TextLine, words: list[bytes]) -> None:
        """Take the line as this header."""
        self.position, self.size_in_bytes = line.position, line.size_in_bytes
        if len(words) == 1:
            self.value = parse_integer(words[0], -INT64_MAX - 1, INT64_MAX)

    def judge(self, damage: DamageList, expected: int) -> None:
        """Note a value that is not `expected`."""
        if self.value is None:
            damage.add(self.position, self.size_in_bytes, self.name, line=self.line, expected=expected)
        elif self.value != expected:
            damage.add(self.position, self.size_in_bytes, self.name, line=self.line, expected=expected, found=self.value)
