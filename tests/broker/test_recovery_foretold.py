"""A real broker is started on damaged log directories, and comes up with the offsets that a scan foretold.

One broker writes one partition per case. It is stopped, and its log directory is restored from a copy before every round: damaged,
scanned, and started on. A round without the clean-shutdown mark is a crash to the broker.
"""

import shutil
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import RecoveryOutlook
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.cluster import Cluster
from lab.errors import LabError
from lab.files import copy_tree, parse_offset_checkpoint
from lab.jvm import wait_until
from lab.workload import SMALL_SEGMENTS, Writer
from tests.support.kafka_facts import differences_from_kafka_s_tool, lay_out
from tests.support.segments import by_producer, marker

pytestmark = [pytest.mark.broker, pytest.mark.slice]

BATCHES = 40
VALUE = 1100
WRITTEN = 2 * BATCHES
"""Log end of every partition: two records a batch."""
LATER = WRITTEN - 6
"""First offset of what is written on, see `write_on`."""
PRODUCER = 7000


@dataclass(frozen=True)
class Partition:
    """A partition directory on disk, batches of equal size."""

    directory: Path

    @property
    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def file(self, number: int, suffix: str = "log") -> Path:
        return self.logs[number].with_suffix(f".{suffix}")

    def batches(self, number: int) -> list[tuple[int, int]]:
        """(start, end) bytes of every batch of a segment."""
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


def untouched(_: Partition) -> None:
    pass


def flip_first(partition: Partition) -> None:
    partition.flip(0, 4)


def flip_walked(partition: Partition) -> None:
    partition.flip(2, 5)


def flip_active(partition: Partition) -> None:
    partition.flip(-1, 0)


def tear(partition: Partition) -> None:
    log = partition.file(-1)
    log.write_bytes(log.read_bytes()[:-200])


def zeros_in_walked(partition: Partition) -> None:
    log = partition.file(2)
    log.write_bytes(log.read_bytes() + bytes(4096))


def endless_length(partition: Partition) -> None:
    partition.put(2, partition.batches(2)[3][0] + 8, struct.pack(">i", 2**31 - 1))


def older_copy(partition: Partition) -> None:
    start, end = partition.batches(0)[1]
    log = partition.file(-1)
    log.write_bytes(log.read_bytes() + partition.file(0).read_bytes()[start:end])


def older_copy_of_its_own(partition: Partition) -> None:
    """A copy of the active segment's second batch behind its last: index entries of it go back."""
    start, end = partition.batches(-1)[1]
    log = partition.file(-1)
    log.write_bytes(log.read_bytes() + log.read_bytes()[start:end])


def no_index_below(partition: Partition) -> None:
    partition.flip(1, 5)
    partition.file(1, "index").unlink()


def no_index_active(partition: Partition) -> None:
    partition.flip(-1, 1)
    partition.file(-1, "index").unlink()


def magic_three(partition: Partition) -> None:
    partition.put(2, partition.batches(2)[3][0] + 16, b"\3")


def swap_in(partition: Partition) -> None:
    """The second segment without its last two batches waits to replace the second and nothing else."""
    log = partition.file(1)
    cut = partition.batches(1)[-2][0]
    log.with_name(f"{log.name}.swap").write_bytes(log.read_bytes()[:cut])


def half_split(partition: Partition) -> None:
    log = partition.file(1)
    log.with_name(f"{log.name}.swap").write_bytes(b"")
    log.with_name(f"{log.name}.cleaned").write_bytes(b"")


def empty_swap_of_active(partition: Partition) -> None:
    log = partition.file(-1)
    log.with_name(f"{log.name}.swap").write_bytes(b"")


def index_beyond(partition: Partition) -> None:
    index = partition.file(-1, "index")
    index.write_bytes(index.read_bytes() + struct.pack(">ii", 500, 1 << 20))


def index_into_batch(partition: Partition) -> None:
    index = partition.file(-1, "index")
    relative, position = struct.unpack(">ii", index.read_bytes()[-8:])
    index.write_bytes(index.read_bytes()[:-8] + struct.pack(">ii", relative, position + 3))


def no_logs(partition: Partition) -> None:
    for path in partition.logs:
        path.unlink()


def lost_tail(partition: Partition) -> None:
    for path in partition.directory.glob(f"{partition.logs[-1].stem}.*"):
        path.unlink()


def write_on(partition: Partition, *batches: bytes) -> None:
    """Put batches in the place of the active segment's last three, whose index entries go: a full index would end the start."""
    cut = partition.batches(-1)[-3][0]
    log, index = partition.file(-1), partition.file(-1, "index")
    log.write_bytes(log.read_bytes()[:cut] + b"".join(batches))
    kept = [entry for entry in struct.iter_unpack(">ii", index.read_bytes()) if 0 < entry[1] < cut]
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in kept))


def time_ms() -> int:
    return int(time.time() * 1000)


def of_producer(offset: int, producer: int = PRODUCER, *, is_transactional: bool = True) -> bytes:
    return by_producer(offset, "x", producer=producer, key=None, time_ms=time_ms(), is_transactional=is_transactional)


def abort(offset: int, producer: int = PRODUCER) -> bytes:
    return marker(offset, commit=False, producer=producer, timestamp=time_ms())


def odd_marker(offset: int, key: bytes, value: bytes) -> bytes:
    """A control batch whose record has these bytes, behind data of its producer."""
    record = RecordToWrite(key, value)
    numbers: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "is_transactional": True, "is_control_batch": True}
    return write_batch([record], base_offset=offset, base_timestamp=time_ms(), **numbers)


def unreadable_marker(partition: Partition) -> None:
    """An ABORT whose key is cut short: it ends the walk, is kept, and ends the replay behind the walk."""
    write_on(partition, of_producer(LATER), odd_marker(LATER + 1, b"\0\0", bytes(6)), of_producer(LATER + 2))


def short_marker(partition: Partition) -> None:
    """An ABORT whose value is cut off behind its version."""
    write_on(partition, of_producer(LATER), odd_marker(LATER + 1, bytes(4), bytes(2)))


def foreign_marker(partition: Partition) -> None:
    """A control record of a leader's under a producer's id."""
    write_on(partition, of_producer(LATER), odd_marker(LATER + 1, b"\0\0\0\2", bytes(6)))


def data_outside_its_transaction(partition: Partition) -> None:
    write_on(partition, of_producer(LATER), of_producer(LATER + 1, is_transactional=False))


def aborts_out_of_order(partition: Partition) -> None:
    other = PRODUCER + 1
    write_on(partition, of_producer(LATER), of_producer(LATER + 1, other), abort(LATER + 2), abort(LATER + 2, other))


def two_transactions(partition: Partition) -> None:
    """Ordinary ones, one within the other, both aborted: nothing is cut."""
    other = PRODUCER + 1
    write_on(partition, of_producer(LATER), of_producer(LATER + 1, other), abort(LATER + 2), abort(LATER + 3, other))


AFTER_A_CRASH: dict[str, Callable[[Partition], None]] = {
    "untouched": untouched,
    "flip-first": flip_first,
    "flip-walked": flip_walked,
    "flip-active": flip_active,
    "torn": tear,
    "zeros": zeros_in_walked,
    "length": endless_length,
    "copy": older_copy_of_its_own,
    "no-index": no_index_below,
    "magic": magic_three,
    "swap": swap_in,
    "split": half_split,
    "no-logs": no_logs,
    "lost-tail": lost_tail,
    "aborted": two_transactions,
}
AFTER_A_CLEAN_STOP: dict[str, Callable[[Partition], None]] = {
    "untouched": untouched,
    "flip-first": flip_first,
    "flip-active": flip_active,
    "torn": tear,
    "zeros": zeros_in_walked,
    "length": endless_length,
    "copy": older_copy,
    "no-index": no_index_below,
    "flip-walked": no_index_active,
    "swap": empty_swap_of_active,
    "magic": index_beyond,
    "lost-tail": lost_tail,
    "aborted": two_transactions,
}
"""Topic → what is done to it; names are the topics' of the other round."""


@dataclass
class Lab:
    """A cluster whose broker is stopped, and the log directory it left."""

    cluster: Cluster
    pristine: Path

    @property
    def log_dir(self) -> Path:
        return self.cluster.log_dir(1)

    def restore(self, *, clean: bool) -> None:
        """The log directory as the broker left it, or as if it had crashed when two segments of each partition were flushed."""
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

    def foretold(self) -> dict[str, RecoveryOutlook]:
        result = local.scan([str(self.log_dir)], ScanOptions(jobs=1))
        assert not result.incomplete
        outlooks = {partition.topic: partition.replicas[0].recovery for partition in result.partitions}
        return {topic: outlook for topic, outlook in outlooks.items() if topic in AFTER_A_CRASH and outlook is not None}

    def offsets(self) -> dict[str, tuple[int, int]]:
        """(log start, log end) of every topic, as the started broker says: alone in sync, its log end is its high watermark."""
        wait_until("all partitions have a leader", self._led, timeout_seconds=30)
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": "none", "log_level": 0})
        try:
            found: dict[str, tuple[int, int]] = {}
            wait_until("all partitions answer", lambda: self._answered(consumer, found), timeout_seconds=30)
            return found
        finally:
            consumer.close()

    def _answered(self, consumer: Consumer, found: dict[str, tuple[int, int]]) -> bool:
        """Whether all offsets are in `found` now; a broker may be named as leader before it knows of it."""
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


@pytest.fixture(scope="module", name="lab")
def written_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
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
def test_log_ends_are_those_foretold(lab: Lab, clean: bool) -> None:
    lab.restore(clean=clean)
    damage = AFTER_A_CLEAN_STOP if clean else AFTER_A_CRASH
    for topic, harm in damage.items():
        harm(Partition(lab.log_dir / f"{topic}-0"))
    foretold = lab.foretold()
    lab.cluster.start(1)
    try:
        real = lab.offsets()
    finally:
        lab.cluster.stop(1)
    expected = {topic: (outlook.log_start_offset, outlook.log_end_offset) for topic, outlook in foretold.items()}
    assert expected == real
    assert real["untouched"] == (0, WRITTEN)


def small_length(partition: Partition) -> None:
    partition.put(-1, partition.batches(-1)[-1][0] + 8, struct.pack(">i", 5))


REFUSED = [
    (small_length, True, ""),
    (index_into_batch, True, ""),
    (older_copy, False, ""),
    (data_outside_its_transaction, False, "InvalidTxnStateException: Expected transactional write"),
    (data_outside_its_transaction, True, "InvalidTxnStateException: Expected transactional write"),
    (aborts_out_of_order, False, "The last offset of appended transactions must increase sequentially"),
    (unreadable_marker, False, "InvalidRecordException"),
    (unreadable_marker, True, "InvalidRecordException"),
    (short_marker, False, "BufferUnderflowException"),
    (short_marker, True, "BufferUnderflowException"),
    (foreign_marker, False, "IllegalArgumentException: Invalid control record type"),
]
"""What is done, whether after a clean stop, and the broker's last words where other reasons would be thinkable."""


@pytest.mark.parametrize(("harm", "clean", "words"), REFUSED)
def test_a_broker_that_is_foretold_to_refuse_refuses(lab: Lab, harm: Callable[[Partition], None], clean: bool, words: str) -> None:
    lab.restore(clean=clean)
    harm(Partition(lab.log_dir / "length-0"))
    outlook = lab.foretold()["length"]
    assert (outlook.starts, outlook.log_end_offset) == (False, None)
    with pytest.raises(LabError, match="ended while starting"):
        lab.cluster.start(1)
    last_words = lab.cluster.server(1).last_words(100_000)  # other logs are recovered side by side
    assert "length-0" in last_words
    assert words in last_words


def test_what_the_broker_wrote_has_the_facts_that_kafka_s_tool_prints(lab: Lab, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    assert differences_from_kafka_s_tool(lay_out([lab.pristine], layout), layout, tmp_path) == {}
