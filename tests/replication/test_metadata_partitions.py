"""Partitions of `__remote_log_metadata`, as brokers of Kafka 4.3.1 and their RemoteLogMetadataTopicPartitioner choose them."""

import pytest

from kafka_forensics.replication.remote_segments import metadata_partition


@pytest.mark.parametrize(
    ("topic_id", "partition", "partitions_count", "expected"),
    [
        ("7np3ZKYWQPuAAQH9Ju-GuA", 0, 3, 2),
        ("9DmW_lcQQy2BaHd243ro2w", 0, 3, 0),
        ("KyMNObFdRpuFNSRSH4o2GA", 0, 3, 1),
        ("c-12rCwFTzSwZv0Puh55HQ", 0, 3, 1),
        ("AZDlcicZuBL2tVu6KNobfg", 162, 50, 46),
        ("jdeu4_J7XbHpNAz77-SdqQ", 1046012189, 97, 88),
        ("xUHW6ZVWrY2o7rqBCtQQfA", 336611363, 50, 16),
        ("uxrVcxm4nNho-w5vaE35kg", 446064254, 1, 0),
    ],
)
def test_events_are_in_the_partition_that_brokers_choose(
    topic_id: str, partition: int, partitions_count: int, expected: int
) -> None:
    assert metadata_partition(topic_id, partition, partitions_count) == expected
