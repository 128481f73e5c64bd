"""Names, keys and values with escape sequences for terminals: no command prints one of them raw, in any format."""

from pathlib import Path

import pytest

from kafka_forensics.cli.options import FORMATS
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.cli.runs import Run
from tests.support.brokers import put_brokers, put_consumer_offsets, put_epochs, put_replica, put_share_state
from tests.support.controllers import ControllerLog, partition, partition_change, topic
from tests.support.groups import commit_key, commit_value, coordinator_batches, share_key, share_value
from tests.support.logs import CoordinatorLog, DataLog
from tests.support.results import HOSTILE_TEXT
from tests.support.segments import BASE_TIMESTAMP, batch

EVIL_TEXT = HOSTILE_TEXT.encode("utf-8", "replace").decode()
HOSTILE = HOSTILE_TEXT.encode("utf-8", "surrogatepass") + b"\xff"
PAYLOADS = "--show-payloads"
COMMANDS = {
    "compare": ("--topic", "orders", PAYLOADS),
    "dump": ("--topic", "orders", "--records", PAYLOADS),
    "epochs": (),
    "find": ("--offset", "0..", "--topic", "orders", PAYLOADS),
    "groups": (PAYLOADS,),
    "metadata": (),
    "plan": ("--topic", "orders"),
    "transactions": ("--topic", "t"),
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Brokers, a topic, groups, a transactional id and records with such names."""
    root = tmp_path_factory.mktemp("hostile") / "copies"
    record = RecordToWrite(HOSTILE, HOSTILE * 2, [("h\x1b[31m", HOSTILE)])
    log = write_batch([record], base_offset=0, base_timestamp=BASE_TIMESTAMP, producer_id=2**60, producer_epoch=7, base_sequence=9)
    log_dir = put_replica(root, "\x1b[31mpwned", log + batch(1, 2, epoch=1))
    put_epochs(log_dir / "orders-0", (0, 0), (1, 2))
    put_consumer_offsets(log_dir, coordinator_batches((commit_key(EVIL_TEXT, EVIL_TEXT), commit_value(1, metadata=EVIL_TEXT))))
    put_share_state(log_dir, coordinator_batches((share_key(EVIL_TEXT, "A" * 22, 7), share_value(-1))))
    put_replica(root, "\x9b2Jpwned", batch(0, 1))
    state, data = CoordinatorLog(), DataLog()
    data.traffic(1)
    state.transaction(1, (0,), commit=True, name=EVIL_TEXT)
    put_brokers(root / "cluster", {"t-0": data, "__transaction_state-0": state})
    ControllerLog().lead([100]).append(topic(EVIL_TEXT), partition([1, 2], 1), partition_change(isr=[1])).put(root / "c100")
    return root


@pytest.mark.parametrize(
    ("command", "format_name"),
    [*((command, "text") for command in COMMANDS), *(("dump", name) for name in FORMATS if name != "text")],
)
def test_escape_sequences_are_not_printed(command: str, format_name: str, run: Run, copies: Path) -> None:
    paths = [*(path for path in sorted(copies.iterdir()) if path.name != "cluster"), *sorted((copies / "cluster").iterdir())]
    status, out, err = run(command, *paths, *COMMANDS[command], "--format", format_name)
    assert status == (command == "compare"), err
    assert "pwned" in out.replace("\\", "")
    assert [letter for letter in out + err if not letter.isprintable() and letter not in "\n\t"] == []
