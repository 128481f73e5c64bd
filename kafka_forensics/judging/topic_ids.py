"""Which copies of a partition are of one topic, by its id: those are compared with each other, and no others."""

from datetime import UTC, datetime

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.controller import ControllerHistory, TopicHistory
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.json_objects import Json


def identity_groups(plans: list[ReplicaPlan], controller: ControllerHistory | None = None) -> tuple[list[list[int]], list[Finding]]:
    """The replicas of one partition, by their numbers, in groups of one topic in one cluster by their ids; the finding if topics
    are more than one. A replica that tells no id belongs to the only topic and cluster there is, and to none of several.

    `controller` says which topic is the present one, and whose the other ids are.
    """
    topics = [plan.context.topic_id for plan in plans]
    clusters = [None if plan.log_dir.meta is None else plan.log_dir.meta.cluster_id for plan in plans]
    groups: dict[tuple[object, object], list[int]] = {}
    for number, ids in enumerate(zip(_among(topics), _among(clusters), strict=True)):
        groups.setdefault(ids, []).append(number)
    topic_of = {str(plan.context.broker): topic for plan, topic in zip(plans, topics, strict=True) if topic is not None}
    if len(set(topic_of.values())) < 2:
        return list(groups.values()), []
    place = Place(plans[0].context.topic, plans[0].context.partition)
    evidence = {"topic_ids": topic_of} | ({} if controller is None else topic_ids_explained(plans, controller))
    return list(groups.values()), [finding("TOPIC_ID_MISMATCH", place, evidence)]


def _among(ids: list[str | None]) -> list[object]:
    """The ids, an unknown one as one of its own if several are known, else as the one known."""
    known = set(ids) - {None}
    if len(known) < 2:
        return [None] * len(ids)
    return [number if topic_id is None else topic_id for number, topic_id in enumerate(ids)]


def topic_ids_explained(plans: list[ReplicaPlan], controller: ControllerHistory) -> Json:
    """Evidence on the copies of one partition that carry different topic ids; empty where the log does not know the partition.

    `present_topic_id` and the brokers that have it, `other_ids` (id → what it is), and `misplaced_on`: brokers whose copy has the
    id of a topic that exists under another name.
    """
    name = plans[0].context.topic
    present = controller.partitions.get((name, plans[0].context.partition))
    if present is None or present.topic_id is None:
        return {}
    evidence: Json = {"present_topic_id": present.topic_id, "present_on": [], "other_ids": {}}
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
