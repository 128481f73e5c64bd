"""Starts a real broker on damaged log directories, and compares its offsets with the forecast of a scan.

One broker writes one partition per case. Before every round its log directory is restored from a copy, damaged, scanned, and
started. Without the clean-shutdown mark the broker recovers as after a crash.
"""

import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import RecoveryOutlook
from kafka_forensics.scanning.engine import local
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.cluster import Cluster
from lab.errors import LabError
from lab.files import copy_tree, parse_offset_checkpoint
from lab.jvm import wait_until
from lab.workload import SMALL_SEGMENTS, Writer
from tests.broker.kafka_facts import differences_from_kafka_s_tool, lay_out
from tests.support.segments import marker, producer_batch

pytestmark = [pytest.mark.broker, pytest.mark.slice]

BATCHES = 40
VALUE = 1100
WRITTEN = 2 * BATCHES
"""Log end of every partition, with two records per batch."""
LATER = WRITTEN - 6
"""First offset of the batches of `write_on`."""
PRODUCER = 7000


@dataclass(frozen=True)
class Partition:
    """A partition directory with batches of equal size."""

    directory: Path

    @property
    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def file(self, number: int, suffix: str = "log") -> Path:
        return self.logs[number].with_suffix(f".{suffix}")

    def batches(self, number: int) -> list[tuple[int, int]]:
        """(start, end) position of every batch of a segment."""
        data, start, found = self.file(number).read_bytes(), 0, []
        while start + 12 <= len(data):
            end = start + 12 + struct.unpack_from(">i", data, start + 8)[0]
            found.append((start, end))
            start = end
        return found

    def put(self, number: int, position: int, data: bytes) -> None:
        path = self.file(number)
        log = bytearray(path.read_bytes())
        log[position : position + len(data)] = data
        path.write_bytes(log)

    def flip(self, number: int, batch: int) -> None:
        position = self.batches(number)[batch][0] + 100
        self.put(number, position, bytes([self.file(number).read_bytes()[position] ^ 1]))


def write_on(partition: Partition, *batches: bytes) -> None:
    """Replace the last three batches of the active segment, and drop their index entries, because a full index would end the
    start."""
    cut = partition.batches(-1)[-3][0]
    log, index = partition.file(-1), partition.file(-1, "index")
    log.write_bytes(log.read_bytes()[:cut] + b"".join(batches))
    kept = [entry for entry in struct.iter_unpack(">ii", index.read_bytes()) if 0 < entry[1] < cut]
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in kept))


def time_ms() -> int:
    return int(time.time() * 1000)


def of_producer(offset: int, producer: int = PRODUCER, *, is_transactional: bool = True) -> bytes:
    return producer_batch(offset, "x", producer=producer, key=None, time_ms=time_ms(), is_transactional=is_transactional)


def abort(offset: int, producer: int = PRODUCER) -> bytes:
    return marker(offset, commit=False, producer=producer, timestamp=time_ms())


def odd_marker(offset: int, key: bytes, value: bytes) -> bytes:
    """A control batch with these bytes in its record, of the producer."""
    record = RecordToWrite(key, value)
    numbers: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "is_transactional": True, "is_control_batch": True}
    return write_batch([record], base_offset=offset, base_timestamp=time_ms(), **numbers)


def change_file(partition: Partition, number: int, suffix: str, change: Callable[[bytes], bytes]) -> None:
    path = partition.file(number, suffix)
    path.write_bytes(change(path.read_bytes()))


def append_copy(partition: Partition, number: int) -> None:
    """Append a copy of the second batch of a segment to the active one."""
    start, end = partition.batches(number)[1]
    batch = partition.file(number).read_bytes()[start:end]
    change_file(partition, -1, "log", lambda data: data + batch)


def no_index(partition: Partition, number: int, batch: int) -> None:
    partition.flip(number, batch)
    partition.file(number, "index").unlink()


def swap_in(partition: Partition) -> None:
    """Write the second segment without its last two batches as a `.swap` file."""
    log = partition.file(1)
    cut = partition.batches(1)[-2][0]
    log.with_name(f"{log.name}.swap").write_bytes(log.read_bytes()[:cut])


def put_empty(partition: Partition, number: int, *suffixes: str) -> None:
    log = partition.file(number)
    for suffix in suffixes:
        log.with_name(f"{log.name}.{suffix}").write_bytes(b"")


def index_into_batch(partition: Partition) -> None:
    def moved(index: bytes) -> bytes:
        relative, position = struct.unpack(">ii", index[-8:])
        return index[:-8] + struct.pack(">ii", relative, position + 3)

    change_file(partition, -1, "index", moved)


def remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


OTHER = PRODUCER + 1
Harm = Callable[[Partition], None]
HARM: dict[str, Harm] = {
    "untouched": lambda _: None,
    "flip first": lambda log: log.flip(0, 4),
    "flip walked": lambda log: log.flip(2, 5),
    "flip active": lambda log: log.flip(-1, 0),
    "tear": lambda log: change_file(log, -1, "log", lambda data: data[:-200]),
    "zeros in walked": lambda log: change_file(log, 2, "log", lambda data: data + bytes(4096)),
    "endless length": lambda log: log.put(2, log.batches(2)[3][0] + 8, struct.pack(">i", 2**31 - 1)),
    "small length": lambda log: log.put(-1, log.batches(-1)[-1][0] + 8, struct.pack(">i", 5)),
    "older copy": lambda log: append_copy(log, 0),
    "older copy of its own": lambda log: append_copy(log, -1),  # index entries of it go back
    "no index below": lambda log: no_index(log, 1, 5),
    "no index active": lambda log: no_index(log, -1, 1),
    "magic three": lambda log: log.put(2, log.batches(2)[3][0] + 16, b"\3"),
    "swap in": swap_in,
    "half split": lambda log: put_empty(log, 1, "swap", "cleaned"),
    "empty swap of active": lambda log: put_empty(log, -1, "swap"),
    "index beyond": lambda log: change_file(log, -1, "index", lambda index: index + struct.pack(">ii", 500, 1 << 20)),
    "index into batch": index_into_batch,
    "no logs": lambda log: remove(log.logs),
    "lost tail": lambda log: remove(log.directory.glob(f"{log.logs[-1].stem}.*")),
    # An ABORT with a truncated key: it ends recovery's walk, is kept, and ends the replay of producer state.
    "unreadable marker": lambda log: write_on(
        log, of_producer(LATER), odd_marker(LATER + 1, b"\0\0", bytes(6)), of_producer(LATER + 2)
    ),
    # An ABORT whose value ends after its version.
    "short marker": lambda log: write_on(log, of_producer(LATER), odd_marker(LATER + 1, bytes(4), bytes(2))),
    # A control record of a leader with a producer's id.
    "foreign marker": lambda log: write_on(log, of_producer(LATER), odd_marker(LATER + 1, b"\0\0\0\2", bytes(6))),
    "data outside its transaction": lambda log: write_on(log, of_producer(LATER), of_producer(LATER + 1, is_transactional=False)),
    "aborts out of order": lambda log: write_on(
        log, of_producer(LATER), of_producer(LATER + 1, OTHER), abort(LATER + 2), abort(LATER + 2, OTHER)
    ),
    # Two overlapping aborted transactions: nothing is truncated.
    "two transactions": lambda log: write_on(
        log, of_producer(LATER), of_producer(LATER + 1, OTHER), abort(LATER + 2), abort(LATER + 3, OTHER)
    ),
}
AFTER_A_CRASH = {
    "untouched": "untouched",
    "flip-first": "flip first",
    "flip-walked": "flip walked",
    "flip-active": "flip active",
    "torn": "tear",
    "zeros": "zeros in walked",
    "length": "endless length",
    "copy": "older copy of its own",
    "no-index": "no index below",
    "magic": "magic three",
    "swap": "swap in",
    "split": "half split",
    "no-logs": "no logs",
    "lost-tail": "lost tail",
    "aborted": "two transactions",
}
CLEAN = {"copy": "older copy", "flip-walked": "no index active", "swap": "empty swap of active", "magic": "index beyond"}
AFTER_A_CLEAN_STOP = {topic: harm for topic, harm in (AFTER_A_CRASH | CLEAN).items() if topic not in ("split", "no-logs")}
"""Topic → damage; the topics have the names of the other round."""


@dataclass
class Lab:
    """A cluster whose broker is stopped, and a copy of its log directory."""

    cluster: Cluster
    pristine: Path

    @property
    def log_dir(self) -> Path:
        return self.cluster.log_dir(1)

    def restore(self, *, clean: bool) -> None:
        """Restore the log directory as the broker left it, or as after a crash with two segments of each partition flushed."""
        shutil.rmtree(self.log_dir)
        copy_tree(self.pristine, self.log_dir)
        if clean:
            return
        (self.log_dir / ".kafka_cleanshutdown").unlink()
        lines = []
        for topic in AFTER_A_CRASH:
            flushed = int(Partition(self.log_dir / f"{topic}-0").logs[2].stem)
            lines.append(f"{topic} 0 {flushed}\n")
        text = f"0\n{len(lines)}\n{''.join(lines)}"
        assert parse_offset_checkpoint(text)
        (self.log_dir / "recovery-point-offset-checkpoint").write_text(text)

    def forecasts(self) -> dict[str, RecoveryOutlook]:
        result = local.scan([str(self.log_dir)], ScanOptions(jobs=1))
        assert not result.incomplete
        outlooks = {partition.topic: partition.replicas[0].recovery for partition in result.partitions}
        return {topic: outlook for topic, outlook in outlooks.items() if topic in AFTER_A_CRASH and outlook is not None}

    def offsets(self) -> dict[str, tuple[int, int]]:
        """(log start, log end) of every topic, as the broker reports them: alone in sync, its log end is its high watermark."""
        wait_until("all partitions have a leader", self._led, timeout_seconds=30)
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": "none", "log_level": 0})
        try:
            found: dict[str, tuple[int, int]] = {}
            wait_until("all partitions answer", lambda: self._answered(consumer, found), timeout_seconds=30)
            return found
        finally:
            consumer.close()

    def _answered(self, consumer: Consumer, found: dict[str, tuple[int, int]]) -> bool:
        """Whether all offsets are in `found`; a broker may be named as leader before it knows that."""
        try:
            found |= {topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) for topic in AFTER_A_CRASH}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return False
        return True

    def _led(self) -> bool:
        topics = self.cluster.admin().list_topics(timeout=10).topics
        return all(topic in topics and topics[topic].partitions[0].leader == 1 for topic in AFTER_A_CRASH)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("recovery")
    alone = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
    with Cluster(root / "cluster", brokers=1, broker_settings=alone) as cluster:
        for topic in AFTER_A_CRASH:
            cluster.create_topic(topic, settings=SMALL_SEGMENTS)
        writer = Writer(cluster, linger_ms=5)
        for number in range(BATCHES):
            for topic in AFTER_A_CRASH:
                for half in (0, 1):
                    value = bytes((number + half + byte) % 251 for byte in range(VALUE // 2))
                    writer.producer.produce(topic, value, partition=0)
            assert writer.producer.flush(30) == 0
        cluster.stop(1)
        copy_tree(cluster.log_dir(1), root / "pristine")
        yield Lab(cluster, root / "pristine")


@pytest.mark.parametrize("clean", [False, True])
def test_log_ends_equal_the_forecast(lab: Lab, clean: bool) -> None:
    lab.restore(clean=clean)
    damage = AFTER_A_CLEAN_STOP if clean else AFTER_A_CRASH
    for topic, harm in damage.items():
        HARM[harm](Partition(lab.log_dir / f"{topic}-0"))
    forecasts = lab.forecasts()
    lab.cluster.start(1)
    try:
        real = lab.offsets()
    finally:
        lab.cluster.stop(1)
    expected = {topic: (outlook.log_start_offset, outlook.log_end_offset) for topic, outlook in forecasts.items()}
    assert expected == real
    assert real["untouched"] == (0, WRITTEN)


REFUSED = [
    ("small length", True, ""),
    ("index into batch", True, ""),
    ("older copy", False, ""),
    ("data outside its transaction", False, "InvalidTxnStateException: Expected transactional write"),
    ("data outside its transaction", True, "InvalidTxnStateException: Expected transactional write"),
    ("aborts out of order", False, "The last offset of appended transactions must increase sequentially"),
    ("unreadable marker", False, "InvalidRecordException"),
    ("unreadable marker", True, "InvalidRecordException"),
    ("short marker", False, "BufferUnderflowException"),
    ("short marker", True, "BufferUnderflowException"),
    ("foreign marker", False, "IllegalArgumentException: Invalid control record type"),
]
"""Damage, whether after a clean shutdown, and the broker's error message if other reasons are possible."""


@pytest.mark.parametrize(("harm", "clean", "words"), REFUSED)
def test_a_broker_refuses_to_start_as_forecast(lab: Lab, harm: str, clean: bool, words: str) -> None:
    lab.restore(clean=clean)
    HARM[harm](Partition(lab.log_dir / "length-0"))
    outlook = lab.forecasts()["length"]
    assert (outlook.starts, outlook.log_end_offset) == (False, None)
    with pytest.raises(LabError, match="ended while starting"):
        lab.cluster.start(1)
    last_words = lab.cluster.server(1).last_words(100_000)  # other logs are recovered concurrently
    assert "length-0" in last_words
    assert words in last_words


def test_what_the_broker_wrote_has_the_facts_that_kafka_s_tool_prints(lab: Lab, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    assert differences_from_kafka_s_tool(lay_out([lab.pristine], layout), layout, tmp_path) == {}
