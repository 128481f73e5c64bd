"""Counts the fault gallery: faults, probes and negative controls, and how each tool reports them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

Rows = Mapping[str, list[list[str]]]
"""Heading → rows of four cells, as on the page."""
WORSE: Final = re.compile(r"`[A-Z_]+` (?:critical|error|warning)\b")
_FAILED: Final = re.compile(r"exit [1-9]|does not end")
_UNREAD: Final = ("not ", "ignores ")


class Peer(Enum):
    """How kafka-dump-log reports a case."""

    NAMED = "named"
    """It complains."""
    FAILED = "failed"
    """It ends with an exception or never ends, without a complaint."""
    SILENT = "silent"
    """It ends as with a sound file."""
    UNREAD = "unread"
    """It ignores the file, or the case has no file to dump."""


def peer_outcome(cell: str) -> Peer:
    """The outcome in the cell of kafka-dump-log, over all runs and files."""
    if cell.startswith(_UNREAD):
        return Peer.UNREAD
    if "“" in cell or "`isvalid: false`" in cell:
        return Peer.NAMED
    return Peer.FAILED if _FAILED.search(cell) else Peer.SILENT


def is_control(row: list[str]) -> bool:
    """Whether a row is a negative control (in italics)."""
    return row[1].startswith("*") and row[1].endswith("*")


def totals(rows: Rows) -> str:
    """The paragraph with the counts over all tables."""
    every = [row for table in rows.values() for row in table]
    controls = [row for row in every if is_control(row)]
    probes = [row for row in every if row[0].startswith("P")]
    faults = [row for row in every if not is_control(row) and not row[0].startswith("P")]
    kinds = {row[0] for row in every if row[0].startswith("F")}
    alarms = sum(WORSE.search(row[2]) is not None for row in controls)
    sound = ", ".join(sorted((row[0] for row in probes if _silent(row)), key=lambda name: int(name[1:]))) or "none"
    return (
        f"{len(kinds)} faults in {len(faults)} injections, {len(probes)} probes, and {len(controls)} negative controls. "
        f"This tool has findings for {_found(faults)} of the injections and {_found(probes)} of the probes "
        f"(the bytes of {sound} are correct). It has findings above `info` for {alarms} of the controls. "
        f"kafka-dump-log: injections {_counted(faults)}; probes {_counted(probes)}; "
        f"controls {_counted(controls)}. “Reported” is any complaint in any of its runs. "
        f"It reports {_named(faults)} of the {len(kinds)} faults in at least one injection. "
        f"It changes or creates files in the evidence in {_marked(every, 'changes', 'creates')} rows, opens them for writing in "
        f"{_marked(every, 'opens it `O_RDWR')}, and writes control characters raw in {_marked(every, 'written raw')}."
    )


def _silent(row: list[str]) -> bool:
    return row[2].startswith("nothing")


def _marked(rows: Iterable[list[str]], *words: str) -> int:
    """The number of rows with one of these words in bold."""
    return sum(any(word in bold for word in words for bold in re.findall(r"\*\*(.+?)\*\*", row[3])) for row in rows)


def _found(rows: Iterable[list[str]]) -> int:
    return sum(not _silent(row) for row in rows)


def _named(rows: Iterable[list[str]]) -> int:
    return len({row[0] for row in rows if row[0].startswith("F") and peer_outcome(row[3]) is Peer.NAMED})


def _counted(rows: Iterable[list[str]]) -> str:
    """`12 reported, 3 ended by an exception, 4 accepted, 5 not read`."""
    counts = Counter(peer_outcome(row[3]) for row in rows)
    return (
        f"{counts[Peer.NAMED]} reported, {counts[Peer.FAILED]} ended by an exception, "
        f"{counts[Peer.SILENT]} accepted, {counts[Peer.UNREAD]} not read"
    )
