"""What `dump` shows of files against what Kafka's own tool printed of them, file by file."""

import re
from pathlib import Path

import pytest

from lab.dump_facts import LOGS, Row, from_table
from lab.make_golden import GOLDEN, INPUTS, OF_TOPICS, input_files, table_name
from tests.support.kafka_facts import Facts, differences, dumped, java_text, with_logs

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


@pytest.mark.parametrize(
    "table",
    [
        *("transactions.log.tsv", "crafted-format-1.log.tsv", "cluster-metadata.log.tsv", "transaction-state.log.tsv"),
        *("consumer-offsets.log.tsv", "group-kinds.log.tsv", "share-state.log.tsv", "idempotent.index.tsv"),
        *("idempotent.timeindex.tsv", "transactions.txnindex.tsv", "snapshot-transactions.snapshot.tsv"),
        *("snapshot-crc.snapshot.tsv", "snapshot-version.snapshot.tsv", "group-records.log.tsv"),
    ],
)
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


@pytest.mark.parametrize(
    ("printed", "other"),
    [
        ('"subscription":"AAE="', '"subscription":"AAEA"'),
        ('"subscription":{"topics":["t"]', '"subscription":{"topics":["tt"]'),
        ('"assignment":""', '"assignment":"AA=="'),
        ('"partitions":[0]', '"partitions":[0,1]'),
    ],
)
def test_another_size_of_a_subscription_or_an_assignment_is_a_difference(printed: str, other: str, tmp_path: Path) -> None:
    table = "group-records.log.tsv"
    text = (GOLDEN / table).read_text()
    assert printed in text
    assert held(table, from_table(text.replace(printed, other, 1)), tmp_path)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xed\xb0\xcc", "\ufffd\ufffd"),
        (b"\x01\xed\xb7\x148", "\x01\ufffd\x148"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed", "\ufffd"),
        (b"\xed\x9f\xbf\xff", "\ud7ff\ufffd"),
        (b"\xe0\x80\xf0\x90A", "\ufffd\ufffd\ufffdA"),
    ],
)
def test_payloads_are_decoded_as_java_decodes_them(data: bytes, shown: str) -> None:
    assert java_text(data) == shown
