"""Makes `docs/starts.md` from the table of real starts: what a start does with each damaged small file.

Run `python -m lab.start_page` after changing its text; `python -m lab.start_table` also makes the table.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from kafka_forensics.replication.small_files import ABSENT, RIGHT, StartOutcome, is_movable, start_outcome
from kafka_forensics.wording import COST_OF_START_WITHOUT

TABLE: Final = Path(__file__).with_name("starts.tsv")
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "starts.md"
HEAD: Final = """# What a start does with each small file

A damaged small file can stop a broker, take a log directory offline, or change what readers get. This page lists how to repair each
file before a start, and what a start does without the repair. A scan reports a malformed checkpoint or identity file as
[`CHECKPOINT_MALFORMED`](../kafka_forensics/analysis/kinds/CHECKPOINT_MALFORMED.md), with a severity according to these tables, and
the steps of [`plan`](plan.md) repair it.
"""
STARTS: Final = """
## What a start does

The results come from {starts} starts of Kafka {versions} (`python -m lab.start_table` makes them, `lab/starts.tsv` lists
them). A node that is both broker and controller starts with log directories in which one file is damaged. Then a client reads a
topic that has an open transaction and some aborted ones, and whose first five records DeleteRecords has deleted. {same}

“Offline” means that Kafka takes the log directory offline: a broker with another log directory continues without it, and a broker
without one ends. “Ends” means that the broker ends, even if it has another log directory.

- A malformed recovery point or log start ends every broker. A malformed high watermark, cleaner or leader-epoch checkpoint
  takes one log directory offline.
- An offset checkpoint of 0 bytes, or with only its version line, counts as an empty one. An offset checkpoint with a blank first
  line ends the broker or takes the log directory offline.
- A `partition.metadata`, `quorum-state`, `bootstrap.checkpoint` or `meta.properties` of 0 bytes ends the broker.
- A malformed `partition.metadata` or `leader-epoch-checkpoint` of one partition affects all partitions of the log directory.
- Without `directory.id` in its `meta.properties` a log directory gets a new id when the broker starts. The controllers still assign
  its partitions to the old id. In 15 of 17 starts of 4.3.0 these partitions had no leader; two starts were watched for 48 seconds,
  the others for 4. In the other 2 the controllers learned the new id before they unfenced the broker, and it served all.
- With an empty `cluster.id` a node that is the only broker and controller serves all logs. A broker of 4.3.0 with a separate
  controller continued to run, but the controller refused it (`INCONSISTENT_CLUSTER_ID`).
- Without `.kafka_cleanshutdown` a start recovers every log from its recovery point on. The content of the file does not matter.

### Checkpoints and other small files

"""
DAMAGES: Final = {
    ABSENT: "absent",
    "empty": "0 bytes",
    "zeros": "NUL bytes",
    "cut": "cut in the middle",
    "text": "other text",
    "binary": "random bytes",
    "version_only": "only its version",
    "blank_line": "a blank first line",
    "version": "version 7",
    "count": "another number of entries",
    "fields": "a line with a word too few",
    "offset": "a word for a number",
    "negative": "a negative offset",
    "unterminated": "no end of the last line",
    "topic": "an illegal topic",
    "partition": "a word for a partition",
    "no_version": "no version",
    "no_node.id": "no `node.id`",
    "node_id": "a word for the `node.id`",
    "no_cluster.id": "no `cluster.id`",
    "no_directory.id": "no `directory.id`",
    "directory_id": "an illegal `directory.id`",
    "escape": "an illegal escape",
    "zero_id": "the zero id",
    "topic_id": "an illegal id",
    "no_blank": "no blank after the colons",
    "broker_epoch": "a word for the broker epoch",
}
OUTCOMES: Final = {
    StartOutcome.BROKER_STOPS: "the broker **ends**",
    StartOutcome.DIRECTORY_OFFLINE: "the log directory goes **offline**",
    StartOutcome.NOT_SERVED: "the broker runs, but may serve **no log** of the directory",
    StartOutcome.BEGINS_EMPTY: "the log is renamed to `-stray`, and an **empty** one starts",
    StartOutcome.SERVES_OTHER: "the broker runs; ",
    StartOutcome.CLEANER_STOPS: "the broker runs, but its **log cleaner ends** until the next start",
    StartOutcome.REBUILT: "all is served, and the file is written again",
    StartOutcome.IGNORED: "all is served, and the file is not read, or stays as it is",
}
DERIVED: Final = ("index", "timeindex", "txnindex", "snapshot")


class Row(NamedTuple):
    """A start, or the starts of several versions with the same result."""

    file: str
    damage: str
    before: str
    """How the broker ended before this start: `stopped` (cleanly) or `killed`."""
    log_dirs: int
    versions: str
    """Versions of Kafka, separated by spaces."""
    outcome: StartOutcome
    served: str
    """What clients read: log start, log end, number of records with read_uncommitted and with read_committed."""


@cache
def table() -> tuple[Row, ...]:
    """All rows."""
    cells = [line.split("\t") for line in TABLE.read_text(encoding="ascii").splitlines()[1:]]
    return tuple(Row(cell[0], cell[1], cell[2], int(cell[3]), cell[4], StartOutcome(cell[5]), cell[6]) for cell in cells)


def page() -> str:
    """The page as Markdown."""
    rows = table()
    versions = sorted({version for row in rows for version in row.versions.split()})
    alike = all(row.versions == " ".join(versions) for row in rows if (row.before, row.log_dirs) == ("stopped", 1))
    same = "All versions did the same." if alike else "Where versions differ, the newest counts."
    starts = sum(len(row.versions.split()) for row in rows)
    what = STARTS.format(versions=" and ".join(versions), starts=starts, same=same)
    lines = [HEAD, *_repairs(rows), what, *_effects(rows), *_derived(rows)]
    return "".join(lines)


def _files(rows: tuple[Row, ...]) -> list[str]:
    return list(dict.fromkeys(row.file for row in rows))


def _effects(rows: tuple[Row, ...]) -> Iterator[str]:
    """A table row for each file and outcome, with the kinds of damage that cause it."""
    yield "| file | damage | what a start does |\n|---|---|---|\n"
    for file in _files(rows):
        if file not in DERIVED:
            yield from _rows_of_file(file, rows, "stopped")


def _rows_of_file(file: str, rows: tuple[Row, ...], before: str) -> Iterator[str]:
    served = {row.damage: row.served for row in rows if (row.file, row.before, row.log_dirs) == (file, before, 1)}
    grouped: dict[str, list[str]] = {}
    for row in rows:
        if (row.file, row.before, row.log_dirs) == (file, before, 1):
            outcome = row.outcome if file in DERIVED else start_outcome(file, row.damage)
            what = OUTCOMES[outcome] + (_differs(row.served, served[RIGHT]) if outcome is StartOutcome.SERVES_OTHER else "")
            grouped.setdefault(what, []).extend([DAMAGES[row.damage]] if row.damage != RIGHT else [])
    for what, damages in ((what, damages) for what, damages in grouped.items() if damages):
        shown = f"`{file}`" if before == "stopped" and file not in DERIVED else f"`.{file}`"
        yield f"| {shown} | {', '.join(damages)} | {what} |\n"


def _differs(served: str, right: str) -> str:
    """The difference between what clients read and what they should read."""
    names = ("the log starts at {}, not {}", "the log ends at {}, not {}", "{} records, not {}", "{} committed records, not {}")
    pairs = zip(names, served.split(), right.split(), strict=True)
    return ", ".join(name.format(actual, expected) for name, actual, expected in pairs if actual != expected)


def _derived(rows: tuple[Row, ...]) -> Iterator[str]:
    """The section on files that a recovery rebuilds from the log."""
    yield BUILT
    for before, words in (("stopped", "a clean shutdown"), ("killed", "a crash")):
        yield f"\nAfter {words}:\n\n| file | damage | what a start does |\n|---|---|---|\n"
        for file in DERIVED:
            yield from _rows_of_file(file, rows, before)


def _repairs(rows: tuple[Row, ...]) -> Iterator[str]:
    """The section on repairing each file."""
    yield MOVED
    for file in _files(rows):
        if is_movable(file) and file in COST_OF_START_WITHOUT:
            yield f"| `{file}` | {COST_OF_START_WITHOUT[file]} |\n"
    yield from ("\n", MENDED)


BUILT: Final = """
### Files built from the log

The tables show the `.index`, `.timeindex` and `.snapshot` of the active segment, and the `.txnindex` of an older segment. After a
crash a start builds the files of the active segment again, whatever their content. After a clean shutdown it uses an existing
index. It builds no `.txnindex` below the recovery point: readers with `read_committed` then get records of aborted transactions.
"""
MOVED: Final = """
## What to do with a damaged file

Copy the log directory elsewhere first. A broker can start without the files of this table. Move the damaged file out of the log
directory; never delete it:

| file | what it costs |
|---|---|
"""
MENDED: Final = """A broker does not start without its `meta.properties`. Without a `partition.metadata` it starts with an
empty log. Write these two again:

- `partition.metadata`, with the two lines `version: 0` and `topic_id: ID`. Take the id from the controllers' log or from
  other replicas. The finding names it if they are among the copies.
- `meta.properties`, with the lines `version=1`, `node.id=N`, `cluster.id=ID` and `directory.id=ID`. Take the cluster's id from
  other brokers, and the directory's id from the controllers' log. The finding names the directory's id if that log is among the
  copies.

Never remove both `replication-offset-checkpoint` and `leader-epoch-checkpoint`: a follower without both may keep nothing.

A file that is absent from a copy may still be on the broker's disk. A scan reports only these absent files: `meta.properties`
where there are checkpoints (as `info`, and in the steps of `plan`), `partition.metadata`
([`TOPIC_ID_MISSING`](../kafka_forensics/analysis/kinds/TOPIC_ID_MISSING.md)), `replication-offset-checkpoint`
([`HW_UNKNOWN`](../kafka_forensics/analysis/kinds/HW_UNKNOWN.md)), `leader-epoch-checkpoint`
([`EPOCH_CACHE_MISMATCH`](../kafka_forensics/analysis/kinds/EPOCH_CACHE_MISMATCH.md)), and `.index` and `.timeindex`
([`INDEX_MISSING`](../kafka_forensics/analysis/kinds/INDEX_MISSING.md)).
"""


if __name__ == "__main__":
    PAGE.write_text(page())
