"""Rows of the matrix of records by `RecordColumn`, as integers, which interpreted kernels read faster than members of an enum."""

from kafka_forensics.model.batches import RecordColumn

POSITION, SIZE_IN_BYTES, ATTRIBUTES, TIMESTAMP_DELTA, OFFSET_DELTA, KEY_POSITION, KEY_LENGTH = map(int, tuple(RecordColumn)[:7])
VALUE_POSITION, VALUE_LENGTH, HEADERS_POSITION, HEADERS_COUNT = map(int, tuple(RecordColumn)[7:])
