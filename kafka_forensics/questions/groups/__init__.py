"""`groups`: committed offsets against the logs they point into."""

from kafka_forensics.questions.groups.offsets import GroupRow, GroupsAnswer, groups

__all__ = ["GroupRow", "GroupsAnswer", "groups"]
