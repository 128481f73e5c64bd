"""Trees that show a known incident in records, each with a near miss: what a cleaner took from one replica alone."""

from pathlib import Path

from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support.faults import BASE_TIMESTAMP, TOPIC, Brokers, Log, histories
from tests.support.incident_trees import Tree, as_before_epochs

END = 6
"""All logs end here; the cleaners have been everywhere."""


def keyed(*records: tuple[int, str, str | None], magic: int = 2) -> Log:
    """A compacted log of one record a batch: offset, key, value (None: a tombstone)."""
    log = Log()
    log.roll()
    for offset, key, value in records:
        log.next_offset = offset
        stamp = BASE_TIMESTAMP + offset
        encoded = None if value is None else value.encode()
        if magic == 2:
            data = write_batch([RecordToWrite(key.encode(), encoded)], base_offset=offset, base_timestamp=stamp)
        else:
            data = write_legacy_entry(key.encode(), encoded, offset=offset, magic=magic, timestamp=stamp)
        log.append(data, offset, stamp)
    if magic < 2:
        log.epochs.clear()
    return log


def cleaned_apart(root: Path, magic: int, *, tombstone: bool) -> Brokers:
    """Key A is deleted; brokers 1 and 2 have cleaned its value away, broker 3 has not. Its tombstone is everywhere, or nowhere."""
    others = [(1, "B", "1"), (2, "C", "1"), *[(3, "A", None)] * tombstone, (4, "D", "1"), (5, "E", "1")]
    without, with_value = keyed(*others, magic=magic), keyed((0, "A", "0"), *others, magic=magic)
    brokers = histories(root, {1: without, 2: without, 3: with_value}, dict.fromkeys((1, 2, 3), END))
    for broker in (1, 2, 3):
        checkpoint = write_offset_checkpoint({(TOPIC, 0): END - 1})
        (brokers.log_dir(broker) / "cleaner-offset-checkpoint").write_bytes(checkpoint)
    return brokers if magic == 2 else as_before_epochs(brokers)


def retried(root: Path, *, same: bool) -> Brokers:
    """A producer writes three records, and under its next epoch, from sequence 0, the same again or others."""
    log = Log()
    log.produce()
    for epoch, values in ((0, "abc"), (1, "abc" if same else "abd")):
        records = [RecordToWrite(b"key", value.encode()) for value in values]
        stamp, first = BASE_TIMESTAMP, log.next_offset
        data = write_batch(
            records, base_offset=first, base_timestamp=stamp, producer_id=5000, producer_epoch=epoch, base_sequence=0
        )
        log.append(data, first + 2, stamp)
    brokers = histories(root, {1: log, 2: log, 3: log}, dict.fromkeys((1, 2, 3), 9))
    for broker in (1, 2, 3):
        brokers.file(broker, 0, "timeindex").unlink()  # Kafka would have written other entries for equal times
    return brokers


RECORD_TREES = (
    Tree(
        "d14 confluentinc/librdkafka#4953",
        "a producer repeats three records, with their timestamps, under epoch 1 and from sequence 0",
        lambda root: retried(root, same=True),
        "one of the three records is another",
        lambda root: retried(root, same=False),
    ),
    Tree(
        "d8 Redpanda 2026-06-25",
        "compacted: one replica shows a key that is gone from the others, and so is the tombstone that took it",
        lambda root: cleaned_apart(root, 2, tombstone=False),
        "the tombstone is still on every replica",
        lambda root: cleaned_apart(root, 2, tombstone=True),
    ),
    Tree(
        "d21 KAFKA-4529",
        "the same in message format 1",
        lambda root: cleaned_apart(root, 1, tombstone=False),
        "the tombstone is still on every replica",
        lambda root: cleaned_apart(root, 1, tombstone=True),
    ),
)
