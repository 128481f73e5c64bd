"""`dump` shows the same facts of each file as Kafka's dump tool."""

from pathlib import Path

import pytest

from lab.dump_facts import LOGS, from_table
from lab.make_golden import GOLDEN, INPUTS, OF_TOPICS, input_files, table_name
from tests.broker.kafka_facts import differences, dumped, with_logs

FILES = {table_name(file): file for file in input_files()}
KNOWN_DIFFERENCES = {"aborted-version.txnindex.tsv": ["entry 0: version '0', here '9'"]}
"""The tool of Kafka 4.3.0 reads only the high byte of the version."""


@pytest.mark.parametrize("table", FILES)
def test_facts_equal_those_of_kafkas_tool(table: str, tmp_path: Path) -> None:
    path = INPUTS / FILES[table]
    topic = OF_TOPICS.get(path.parent.name) if path.suffix in LOGS else None
    facts = dumped(with_logs([path]), tmp_path)
    assert differences(path, from_table((GOLDEN / table).read_text()), facts, topic) == KNOWN_DIFFERENCES.get(table, [])
