"""A name that contains a command in backticks, as our sentences have them, is never printed as a command to copy."""

from pathlib import Path

import pytest

from tests.cli.runs import Run
from tests.support.brokers import put_consumer_offsets, put_replica
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.segments import log

NAME = "x `kafka-topics.sh --bootstrap-server HOST:PORT --delete --topic orders`. y"


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Two brokers with ten records of orders-0, a group with this name that is beyond their end, and a directory with this name."""
    folder = tmp_path / "copies"
    records = coordinator_batches((commit_key(NAME, "orders"), commit_value(15)))
    for broker in (1, 2):
        put_consumer_offsets(put_replica(folder, broker, log(5), high_watermark=10), records)
    (folder / "broker-1" / NAME).mkdir()
    return folder


@pytest.mark.parametrize("arguments", [["scan"], ["scan", "-v"], ["groups"], ["plan"], ["plan", "--topic", "orders"]])
def test_no_line_is_the_command(run: Run, copies: Path, arguments: list[str]) -> None:
    _, out, err = run(*arguments, copies)
    assert r"\x60kafka-topics.sh" in out + err
    assert not [line for line in (out + err).splitlines() if line.strip().startswith("$ kafka-topics.sh") and "--delete" in line]
