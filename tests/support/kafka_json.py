"""Records of internal topics as Kafka's own tool prints them, as JSON, held to the fields that a dump shows of them."""

import json
import re
from base64 import b64decode
from typing import Any, Final

from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, delivery_state_name
from kafka_forensics.model.coordinators import RECORD_TYPES, TRANSACTION_STATES
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.internal_topics import teller
from kafka_forensics.parsers.spec.metadata_records import MESSAGES

UNPRINTED: Final[Json] = {
    "leader_epoch": -1,
    "expire_timestamp": -1,
    "topic_id": None,
    "current_state_timestamp": -1,
    "group_instance_id": None,
    "rebalance_timeout": -1,
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "next_producer_epoch": -1,
    "client_transaction_version": 0,
}
"""What a field has that the tool leaves out, as the record's version has it not, or it is the default of a tagged one."""
UNKNOWN_TO_4_3: Final = {
    "ShareGroupPartitionMetadata",
    "StreamsGroupPartitionMetadata",
    "StreamsGroupTargetAssignmentResolvedTopicIds",
}
"""Kinds of record that we name and the tool of Kafka 4.3 does not know."""
_PRINTED: Final = re.compile(r"(?:key: (.*?))?(?:(?:^| )payload: (.*))?", re.DOTALL)


def agrees(topic: str, key: bytes | None, value: bytes | None, printed: str) -> bool:
    """Whether the fields of a record are those that the tool printed; where it printed an error, whether we have a problem too."""
    take_apart = teller(topic)
    assert take_apart is not None
    ours = take_apart(key, value, True)  # noqa: FBT003 - with what only payloads show
    matched = _PRINTED.fullmatch(printed)
    assert matched is not None
    if re.match(r"(?:key|payload): (?:Error at|Unknown record type)", printed):
        return "problem" in ours or ours["record"] in UNKNOWN_TO_4_3
    if topic == CLUSTER_METADATA_TOPIC:
        payload = json.loads(matched[2])
        tags = {tag.name: tag.default for tag in MESSAGES[ours["api_key"]][ours["version"]].tags}
        return (payload["type"], payload["version"]) == (ours["record"], ours["version"]) and fits(
            snake(payload["data"]), ours["value"], tags
        )
    key_fields = snake(json.loads(matched[1]))
    if not _key_fits(key_fields, ours["key"]):
        return False
    if matched[2] == "<DELETE>":
        return ours["value"] is None and "problem" not in ours
    payload = json.loads(matched[2])
    assert value is not None
    version = int.from_bytes(value[:2], "big")
    return payload["version"] == str(version) and fits(*_alike(ours["record"], snake(payload["data"]), ours["value"]), UNPRINTED)


def snake(value: Any) -> Any:
    """JSON of Kafka's with names as ours."""
    if isinstance(value, dict):
        return {snake_name(name): snake(item) for name, item in value.items()}
    return [snake(item) for item in value] if isinstance(value, list) else value


def snake_name(name: str) -> str:
    return re.sub(r"[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def fits(printed: Any, ours: Any, unprinted: Json) -> bool:
    """Whether a value is what was printed, each field that was not printed being what it is then."""
    if isinstance(printed, dict):
        left_out = {name: value for name, value in ours.items() if name not in printed}
        return all(name in ours and fits(value, ours[name], unprinted) for name, value in printed.items()) and all(
            name in unprinted and unprinted[name] == value for name, value in left_out.items()
        )
    if isinstance(printed, list):
        return len(printed) == len(ours) and all(fits(*pair, unprinted) for pair in zip(printed, ours, strict=True))
    return bool(printed == ours)


def _key_fits(printed: Json, ours: Json) -> bool:
    """The tool calls the parts of a key by other names."""
    if "record_type" in ours:
        of_type = ours["record_type"]
        return printed["type"] == str(of_type) and list(printed["data"].values()) == [
            part for name, part in ours.items() if name != "record_type"
        ]
    return printed == {"type": "0", "data": ours}


def _alike(record: str, printed: Json, ours: Json) -> tuple[Json, Json]:
    """Both with the same names and numbers, where ours are told as something else."""
    if record == "TransactionLog":
        partitions = printed.pop("transaction_partitions") or []
        printed["partitions"] = [f"{part['topic']}-{number}" for part in partitions for number in part["partition_ids"]]
        printed["state"] = TRANSACTION_STATES[printed.pop("transaction_status")]
        for name in ("last_update_timestamp", "start_timestamp"):
            printed[name] = printed.pop(f"transaction_{name}_ms")
    elif record == RECORD_TYPES[2]:
        ours = {name: value for name, value in ours.items() if name != "members_count"}
        ours["members"] = [{name.removesuffix("_ms"): value for name, value in member.items()} for member in ours["members"]]
        for member in printed["members"]:
            member["subscription_size"] = _size_in_bytes(member.pop("subscription"))
            member["assignment_size"] = _size_in_bytes(member.pop("assignment"))
    for batch in printed.get("state_batches", ()):
        batch["delivery_state"] = delivery_state_name(batch["delivery_state"])
    return printed, ours


def _size_in_bytes(printed: str | Json) -> int:
    """Bytes of a subscription or an assignment: the tool prints those of consumers as fields, all others as Base64."""
    if isinstance(printed, str):
        return len(b64decode(printed))
    version = 2
    return version + sum(_size_of_field(name, value) for name, value in printed.items())


def _size_of_field(name: str, value: Any) -> int:
    """Bytes of one field, as Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment write it."""
    if isinstance(value, list):
        return 4 + sum(map(_size_of_element, value))
    if name == "user_data":
        return 4 + len(b64decode(value or ""))
    return 4 if isinstance(value, int) else 2 + len((value or "").encode())


def _size_of_element(element: str | int | Json) -> int:
    if isinstance(element, dict):
        return sum(_size_of_field(name, value) for name, value in element.items())
    return _size_of_field("", element)
