"""Rows of the matrix of batches by `BatchColumn`, as integers, which interpreted kernels read faster than members of an enum."""

from kafka_forensics.model.batches import BatchColumn

POSITION, SIZE_IN_BYTES, BASE_OFFSET, LAST_OFFSET, LAST_OFFSET_DELTA, PARTITION_LEADER_EPOCH, MAGIC = map(
    int, tuple(BatchColumn)[:7]
)
CRC, CRC_COMPUTED, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH = map(int, tuple(BatchColumn)[7:14])
BASE_SEQUENCE, RECORDS_COUNT, CONTROL_RECORD_TYPE, COORDINATOR_EPOCH, HASH_HIGH, HASH_LOW = map(int, tuple(BatchColumn)[14:])
