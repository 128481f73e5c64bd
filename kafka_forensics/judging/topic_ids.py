"""Whose the topic ids of directories are, by the controller's log: of the present topic, of an earlier one, of another name's."""

from datetime import UTC, datetime
from typing import Any

from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.controller import ControllerHistory, TopicHistory


def topic_ids_explained(plans: list[ReplicaPlan], controller: ControllerHistory) -> dict[str, Any]:
    """Evidence on the copies of one partition that carry different topic ids; empty where the log does not know the partition.

    `present_topic_id` and the brokers that have it, `other_ids` (id → what it is), and `misplaced_on`: brokers whose copy has the
    id of a topic that exists under another name.
    """
    name = plans[0].context.topic
    present = controller.partitions.get((name, plans[0].context.partition))
    if present is None or present.topic_id is None:
        return {}
    evidence: dict[str, Any] = {"present_topic_id": present.topic_id, "present_on": [], "other_ids": {}}
    misplaced = []
    for plan in plans:
        context = plan.context
        if context.topic_id == present.topic_id:
            evidence["present_on"].append(context.broker)
        elif context.topic_id is not None:
            other = controller.topics.get(context.topic_id)
            evidence["other_ids"][context.topic_id] = _told(other)
            if other is not None and other.deleted_offset is None and other.topic not in ("", name):
                misplaced.append(context.broker)
    return evidence | ({"misplaced_on": misplaced} if misplaced else {})


def _told(topic: TopicHistory | None) -> str:
    if topic is None or not topic.topic:
        return "no topic it knows"
    if topic.deleted_offset is None:
        return f"topic {topic.topic}"
    time_ms = topic.deleted_ms
    if time_ms is None or not 0 <= time_ms < 253_402_300_800_000:
        return f"{topic.topic}, deleted"
    return f"{topic.topic}, deleted {datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
