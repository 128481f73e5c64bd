"""What can go wrong in the laboratory."""


class LabError(Exception):
    """Kafka did not do what an experiment needs; the message ends with what it said last."""


class LabTimeoutError(LabError):
    """Something awaited did not happen within its bound."""
