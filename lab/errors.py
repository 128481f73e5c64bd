"""Errors of the laboratory."""


class LabError(Exception):
    """Kafka did not do what an experiment needs; the message ends with the end of its output."""


class LabTimeoutError(LabError):
    """An awaited event did not happen in time."""
