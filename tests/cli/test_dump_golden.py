"""What `dump` shows of files against what Kafka's own tool printed of them, file by file."""

import re
from pathlib import Path

import pytest

from lab.dump_facts import LOGS, Row, from_table
from lab.make_golden import GOLDEN, INPUTS, OF_TOPICS, input_files, table_name
from tests.support.kafka_facts import Facts, differences, dumped, with_logs

FILES = {table_name(file): file for file in input_files()}
OTHERWISE = {"aborted-version.txnindex.tsv": ["entry 0: version '0', here '9'"]}
"""The tool of Kafka 4.3.0 sees the high byte of the version alone."""
NOT_OURS = ("span", "crc")
"""Columns of legacy records: no fact has the checksum of a message within a wrapper."""


def held(table: str, rows: list[Row], scratch: Path) -> list[str]:
    path = INPUTS / FILES[table]
    topic = OF_TOPICS.get(path.parent.name) if path.suffix in LOGS else None
    return differences(path, rows, facts_of(path, scratch), topic)


def facts_of(path: Path, scratch: Path) -> dict[Path, Facts]:
    return dumped(with_logs([path]), scratch)


@pytest.mark.parametrize("table", FILES)
def test_facts_are_those_of_kafka_s_tool(table: str, tmp_path: Path) -> None:
    assert held(table, from_table((GOLDEN / table).read_text()), tmp_path) == OTHERWISE.get(table, [])


@pytest.mark.parametrize("table", ["transactions.log.tsv", "snapshot-transactions.snapshot.tsv", "transactions.txnindex.tsv"])
def test_any_other_number_is_a_difference(table: str, tmp_path: Path) -> None:
    rows = from_table((GOLDEN / table).read_text())
    path = INPUTS / FILES[table]
    topic = OF_TOPICS.get(path.parent.name) if path.suffix in LOGS else None
    facts = facts_of(path, tmp_path)
    for span in dict.fromkeys(row["span"] for row in rows):
        for name in dict.fromkeys(name for row in rows if row["span"] == span for name in row if name not in NOT_OURS):
            changed = [dict(row) for row in rows]
            row = next(row for row in reversed(changed) if row["span"] == span and name in row)
            other = re.sub(r"\d", lambda digit: str(9 - int(digit[0])), row[name], count=1)
            row[name] = f"{other}7" if other == row[name] else other
            assert differences(path, changed, facts, topic), (span, name)
    for gone in (rows[0], rows[-1]):
        assert differences(path, [row for row in rows if row is not gone], facts, topic)
