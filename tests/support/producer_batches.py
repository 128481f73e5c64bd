"""Batches of one producer, written now, to be put behind what a real broker wrote."""

import time

from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker

PRODUCER = 7000


def time_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


def of_producer(offset: int, producer_id: int = PRODUCER, *, is_transactional: bool = True) -> bytes:
    """One record."""
    return write_batch(
        [RecordToWrite(None, b"x")],
        base_offset=offset,
        base_timestamp=time_ms(),
        partition_leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )


def marker(offset: int, producer_id: int = PRODUCER) -> bytes:
    """An ABORT."""
    return write_marker(
        False,  # noqa: FBT003 - the writer's one flag
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=time_ms(),
        partition_leader_epoch=0,
    )


def odd_marker(offset: int, key: bytes, value: bytes) -> bytes:
    """A control batch whose record has these bytes, behind data of its producer."""
    return write_batch(
        [RecordToWrite(key, value)],
        base_offset=offset,
        base_timestamp=time_ms(),
        partition_leader_epoch=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
        is_control_batch=True,
    )
