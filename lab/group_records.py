"""Records of `__consumer_offsets`, `__share_group_state` and `__remote_log_metadata` as Kafka's serializers write them, of every
kind, and bytes that are no valid record.

Kinds and fields have the names that `kafka-dump-log` 4.3.0 prints. A broker of 4.3.0 writes most of them (`lab.group_kinds`); these
are the others: records of older brokers, every tagged field, null and empty values, and text that must be escaped.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafka_forensics.model.json_objects import Json
from lab.errors import LabError
from lab.jvm import run_java
from lab.kafka_jars import LAB

WRITER: Final = LAB / "java" / "WriteRecords.java"
TOPIC_ID: Final = "EXlbp3X-RAGJ5SN0Nx0VKQ"
NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
ODD: Final = 'gr\u00fc\u00dfe \u20ac \U0001f600 "quoted" \\ / \n\t\u0001\u001b end'
GROUP: Final = {"groupId": "g"}
MEMBER: Final = {"groupId": "g", "memberId": "m-1"}
COMMIT: Final = {"group": "g", "topic": "t", "partition": 3}
PARTITIONS: Final = [{"topicId": TOPIC_ID, "partitions": [0, 1, 2147483647]}, {"topicId": NO_ID, "partitions": []}]
TASKS: Final = [{"subtopologyId": "0", "partitions": [0, 1]}, {"subtopologyId": "", "partitions": []}]
WITH_EPOCHS: Final = [
    {"topicId": TOPIC_ID, "partitions": [0, 1], "assignmentEpochs": [4, 5]},
    {"topicId": TOPIC_ID, "partitions": [2], "assignmentEpochs": None},
    {"topicId": TOPIC_ID, "partitions": [3], "assignmentEpochs": []},
]
TASKS_WITH_EPOCHS: Final = [
    {"subtopologyId": "0", "partitions": [0], "assignmentEpochs": [7]},
    {"subtopologyId": "1", "partitions": [1], "assignmentEpochs": None},
]
CLASSIC_MEMBER: Final = {
    "memberId": "m-1",
    "clientId": ODD,
    "clientHost": "/127.0.0.1",
    "sessionTimeout": 45000,
    "subscription": "AAEAAAABAAF0/////wAAAAA=",
    "assignment": "AAAAAAABAAF0AAAAAQAAAAAAAAAA",
}
GROUP_VALUE: Final = {"protocolType": "consumer", "generation": 7, "protocol": "range", "leader": "m-1"}
CONSUMER_MEMBER: Final = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "/h",
    "subscribedTopicNames": ["t", ODD],
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": -1,
    "serverAssignor": None,
}
STREAMS_MEMBER: Final[Json] = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "/h",
    "rebalanceTimeoutMs": 300000,
    "topologyEpoch": 2,
    "processId": "p",
    "userEndpoint": None,
    "clientTags": [],
}
TOPIC: Final = {"name": "t", "partitions": 4, "replicationFactor": -1, "topicConfigs": [{"key": "k", "value": "v"}]}
SUBTOPOLOGY: Final = {
    "subtopologyId": "0",
    "sourceTopics": ["a", "b"],
    "sourceTopicRegex": ["c.*"],
    "stateChangelogTopics": [TOPIC],
    "repartitionSinkTopics": ["r"],
    "repartitionSourceTopics": [TOPIC, TOPIC | {"topicConfigs": []}],
    "copartitionGroups": [{"sourceTopics": [0, 1], "sourceTopicRegex": [-1], "repartitionSourceTopics": [32767]}],
}
INFO: Final = {"topicId": TOPIC_ID, "topicName": "t", "partitions": [0, 1]}
BATCHES: Final = [
    {"firstOffset": 0, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1},
    {"firstOffset": 10, "lastOffset": 2**62, "deliveryState": -1, "deliveryCount": -1},
]
SHARE: Final = {"groupId": "g", "topicId": TOPIC_ID, "partition": 0}
SNAPSHOT: Final = {
    "snapshotEpoch": 1,
    "stateEpoch": 2,
    "leaderEpoch": 3,
    "startOffset": 10,
    "createTimestamp": 1700000000000,
    "writeTimestamp": 1700000000001,
    "stateBatches": BATCHES,
}
UPDATE: Final = {"snapshotEpoch": 1, "leaderEpoch": 3, "startOffset": -1, "stateBatches": BATCHES}


def record(kind: int, key: Mapping[str, Any], value: Mapping[str, Any] | None, version: int = 0) -> Json:
    """A record of a kind and version."""
    return {"type": kind, "version": version, "key": key, "value": value}


def raw(key: str | None, value: str | None) -> Json:
    """A record of raw bytes, in hex."""
    return {"keyBytes": key, "valueBytes": value}


def commits() -> list[Json]:
    """Committed offsets of every version."""
    value = {"offset": 77, "metadata": ODD, "commitTimestamp": 1700000000000}
    more: list[Json] = [{}, {"expireTimestamp": 1700000000001}, {}, {"leaderEpoch": 5}, {"leaderEpoch": -1}]
    versions = [record(1, COMMIT, value | variation, version) for version, variation in enumerate(more)]
    with_id = value | {"leaderEpoch": 9, "topicId": TOPIC_ID}
    return [record(0, COMMIT, value), *versions, record(1, COMMIT, with_id, 4), record(0, COMMIT, None), record(1, COMMIT, None)]


def classic_groups() -> list[Json]:
    """Classic groups of every version, with protocol type `consumer` and another."""
    records = [record(2, {"group": "g"}, None)]
    for version in range(5):
        member = dict(CLASSIC_MEMBER)
        member |= {"rebalanceTimeout": 300000} if version >= 1 else {}
        member |= {"groupInstanceId": "static" if version == 4 else None} if version >= 3 else {}
        value = GROUP_VALUE | ({"currentStateTimestamp": 1700000000000} if version >= 2 else {})
        records.append(record(2, {"group": ODD}, value | {"members": [member]}, version))
        other = value | {"protocolType": "connect", "protocol": None, "leader": None}
        odd = member | {"subscription": "AAE=", "assignment": ""}
        records += [
            record(2, {"group": "g"}, other | {"members": [member, odd]}, version),
            record(2, {"group": "g"}, value | {"members": [odd]}, version),
        ]
    return records


def consumer_groups() -> list[Json]:
    """Consumer groups (KIP-848), and records that only 4.0 writes."""
    classic = {
        "sessionTimeoutMs": 45000,
        "supportedProtocols": [{"name": "range", "metadata": "AAEC"}, {"name": "", "metadata": ""}],
    }
    racks = [{"partition": 0, "racks": ["a", "b"]}, {"partition": 1, "racks": []}]
    topics = [{"topicId": TOPIC_ID, "topicName": "t", "numPartitions": 2, "partitionMetadata": racks}]
    named = {"instanceId": "i", "rackId": "r", "subscribedTopicRegex": "t.*", "serverAssignor": "uniform", "rebalanceTimeoutMs": 5}
    current = {"memberEpoch": 5, "previousMemberEpoch": -1, "state": 0, "partitionsPendingRevocation": PARTITIONS}
    return [
        record(3, GROUP, {"epoch": 5}),
        record(3, GROUP, {"epoch": 2147483647, "metadataHash": -(2**63)}),
        record(4, GROUP, {"topics": topics}),
        record(4, GROUP, {"topics": []}),
        record(5, MEMBER, CONSUMER_MEMBER),
        record(5, MEMBER, CONSUMER_MEMBER | named | {"classicMemberMetadata": classic}),
        record(5, MEMBER, CONSUMER_MEMBER | {"classicMemberMetadata": None}),
        record(6, GROUP, {"assignmentEpoch": 5}),
        record(6, GROUP, {"assignmentEpoch": 5, "assignmentTimestamp": 1700000000000}),
        record(7, MEMBER, {"topicPartitions": PARTITIONS}),
        record(8, MEMBER, current | {"assignedPartitions": WITH_EPOCHS}),
        record(8, MEMBER, current | {"state": -128, "assignedPartitions": []}),
        record(16, {"groupId": "g", "regularExpression": "^t[0-9]+$"}, {"topics": ["t1"], "version": 4, "timestamp": 5}),
        *(record(kind, GROUP, None) for kind in (3, 4, 6)),
        *(record(kind, MEMBER, None) for kind in (5, 7, 8)),
        record(16, {"groupId": "g", "regularExpression": ODD}, None),
    ]


def share_groups() -> list[Json]:
    """Share groups (KIP-932)."""
    named = {"clientId": "c", "clientHost": "/h", "subscribedTopicNames": ["t"]}
    topics = {
        "initializingTopics": [INFO],
        "initializedTopics": [INFO, INFO],
        "deletingTopics": [{"topicId": TOPIC_ID, "topicName": "t"}],
    }
    return [
        record(10, MEMBER, named | {"rackId": None}),
        record(10, MEMBER, named | {"rackId": "r"}),
        record(11, GROUP, {"epoch": 5, "metadataHash": 2**63 - 1}),
        record(12, GROUP, {"assignmentEpoch": 5}),
        record(12, GROUP, {"assignmentEpoch": 5, "assignmentTimestamp": 6}),
        record(13, MEMBER, {"topicPartitions": PARTITIONS}),
        record(14, MEMBER, {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 127, "assignedPartitions": PARTITIONS}),
        record(15, GROUP, topics),
        record(15, GROUP, {name: [] for name in topics}),
        *(record(kind, GROUP, None) for kind in (11, 12, 15)),
        *(record(kind, MEMBER, None) for kind in (10, 13, 14)),
    ]


def streams_groups() -> list[Json]:
    """Streams groups (KIP-1071)."""
    endpoint = {"userEndpoint": {"host": "h", "port": 65535}, "clientTags": [{"key": "k", "value": ODD}]}
    tasks: Json = {f"{name}Tasks": TASKS for name in ("active", "standby", "warmup")}
    pending: Json = {f"{name}PendingRevocation": [] for name in tasks}
    current = {"memberEpoch": 3, "previousMemberEpoch": 2, "state": 1} | tasks | pending
    configs = {"lastAssignmentConfigs": [{"key": "num.standby.replicas", "value": "1"}]}
    return [
        record(17, GROUP, {"epoch": 3, "metadataHash": 0}),
        record(17, GROUP, {"epoch": 3, "metadataHash": 1, "validatedTopologyEpoch": 2} | configs),
        record(17, GROUP, {"epoch": 3, "metadataHash": 1, "lastAssignmentConfigs": None}),
        record(19, MEMBER, STREAMS_MEMBER),
        record(19, MEMBER, STREAMS_MEMBER | {"instanceId": "i", "rackId": "r"} | endpoint),
        record(20, GROUP, {"assignmentEpoch": 3, "assignmentTimestamp": -1}),
        record(21, MEMBER, tasks),
        record(22, MEMBER, current | {"activeTasks": TASKS_WITH_EPOCHS, "activeTasksPendingRevocation": TASKS_WITH_EPOCHS}),
        record(22, MEMBER, current),
        record(23, GROUP, {"epoch": 1, "subtopologies": [SUBTOPOLOGY]}),
        record(23, GROUP, {"epoch": 1, "subtopologies": []}),
        *(record(kind, GROUP, None) for kind in (17, 20, 23)),
        *(record(kind, MEMBER, None) for kind in (19, 21, 22)),
    ]


def odd_group_records() -> list[Json]:
    """Records of types unknown to 4.3.0, and malformed records of known types."""
    epoch = "0003000167"
    return [
        *(raw(f"{kind:04x}000167", "00000000000500") for kind in (9, 18, 24, 25, 99, 0x7FFF, 0xFFFF)),
        raw("0009000167", None),
        raw(epoch, "0001000000050000"),
        raw(epoch, "ffff000000050000"),
        raw(epoch, "00000000000500626568696e64"),
        raw(epoch + "6265", "00000000000500"),
        raw(epoch, "0000000000050105020102"),
    ]


GROUP_RECORDS: Final = (commits, classic_groups, consumer_groups, share_groups, streams_groups, odd_group_records)


def group_records() -> list[Json]:
    """Records of `__consumer_offsets`."""
    return [group_record for make in GROUP_RECORDS for group_record in make()]


def share_records() -> list[Json]:
    """Records of `__share_group_state`."""
    return [
        record(0, SHARE, SNAPSHOT),
        record(0, SHARE | {"groupId": ODD}, SNAPSHOT | {"deliveryCompleteCount": 4, "stateBatches": []}),
        record(1, SHARE, UPDATE),
        record(1, SHARE | {"topicId": NO_ID}, UPDATE | {"deliveryCompleteCount": 2147483647, "stateBatches": []}),
        record(0, SHARE, None),
        record(1, SHARE, None),
        raw("0002000167", "0000"),
        raw("ffff", None),
    ]


REMOTE_PARTITION: Final[Json] = {"name": "orders", "id": TOPIC_ID, "partition": 3}
REMOTE_SEGMENT: Final[Json] = {
    "remoteLogSegmentId": {"topicIdPartition": REMOTE_PARTITION, "id": "wg_8mU6aQlWMrOayvIEXlQ"},
    "startOffset": 0,
    "endOffset": 59,
    "brokerId": 1,
    "maxTimestampMs": 1_700_000_000_000,
    "eventTimestampMs": 1_700_000_001_000,
    "segmentLeaderEpochs": [{"leaderEpoch": 0, "offset": 0}],
    "segmentSizeInBytes": 4144,
    "customMetadata": None,
    "remoteLogSegmentState": 0,
    "txnIndexEmpty": True,
}
REMOTE_EVENT: Final[Json] = {
    "brokerId": 2,
    "eventTimestampMs": 1_700_000_002_000,
    "customMetadata": None,
    "remoteLogSegmentState": 1,
}


def remote_log_records() -> list[Json]:
    """Records of `__remote_log_metadata`; Kafka's classes refuse some of them."""
    segment_id = REMOTE_SEGMENT["remoteLogSegmentId"]
    odd = {"topicIdPartition": {"name": ODD, "id": NO_ID, "partition": 2147483647}, "id": "-_8mU6aQlWMrOayvIEXlQA"}
    epochs = [{"leaderEpoch": 4, "offset": 1 << 40}, {"leaderEpoch": 0, "offset": 0}, {"leaderEpoch": 4, "offset": 30}]
    deleted = {"topicIdPartition": REMOTE_PARTITION, "brokerId": 1, "eventTimestampMs": 5}
    values = [
        (0, REMOTE_SEGMENT),
        (0, REMOTE_SEGMENT | {"remoteLogSegmentId": odd, "endOffset": (1 << 63) - 1, "txnIndexEmpty": False}),
        (0, REMOTE_SEGMENT | {"segmentLeaderEpochs": epochs, "customMetadata": "AAH/", "maxTimestampMs": -1}),
        *((1, {"remoteLogSegmentId": segment_id} | REMOTE_EVENT | {"remoteLogSegmentState": state}) for state in range(5)),
        (1, {"remoteLogSegmentId": segment_id} | REMOTE_EVENT | {"customMetadata": ""}),
        *((2, deleted | {"remotePartitionDeleteState": state}) for state in range(4)),
        (3, {name: field for name, field in REMOTE_SEGMENT.items() if name != "remoteLogSegmentId"} | {"segmentId": NO_ID}),
        (0, REMOTE_SEGMENT | {"startOffset": -1}),
        (0, REMOTE_SEGMENT | {"endOffset": -1}),
        (0, REMOTE_SEGMENT | {"segmentLeaderEpochs": []}),
    ]
    return [
        *({"type": kind, "key": None, "value": value} for kind, value in values),
        *(raw(None, value) for value in ("01010001", "010400", "010001", "00", "0101")),
    ]


def write_records(coordinator: str, records: Sequence[Mapping[str, Any]], log: Path) -> None:
    """Write a segment with the serializer of the `group` or `share` coordinator or of `remote` log metadata. Raises LabError."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="records-") as scratch:
        json_file = Path(scratch) / "records.json"
        json_file.write_text(json.dumps(records))
        done = run_java(WRITER, [coordinator, str(json_file), str(log)])
    if done.exit_code != 0:
        raise LabError(f"the records could not be written: {done.stderr[-3000:].decode(errors='replace')}")
