"""Why an open transaction is judged as it is: what its coordinator says of it, in a few words."""

from typing import Any, Final

from kafka_forensics.model.transaction_log import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS

_WORDS: Final = {
    "will end it": "the coordinator will end it",
    "should have ended it": "the coordinator should have ended it",
    "unknown": "what the coordinator says is not known",
    "not among the copies": "the coordinator's log is not among the copies",
}


def coordinators_word(evidence: dict[str, Any]) -> str | None:
    """The reason from the evidence of an open transaction; None where that names no coordinator."""
    word = evidence.get("coordinator")
    return _not_listed(evidence) if word == "does not list it" else _WORDS.get(word or "")


def _not_listed(evidence: dict[str, Any]) -> str:
    """Of one that no coordinator lists: how old it must be to be called hanging, or why it is not though it is older."""
    limit_ms = max(DEFAULT_MAX_TIMEOUT_MS, evidence.get("transaction_timeout_ms") or 0) + LATE_BUFFER_MS
    said = "the coordinator does not list it"
    if evidence.get("late"):
        return f"{said}, and only clients' clocks say that it is overdue"
    if (evidence.get("age_ms") or 0) > limit_ms:
        return f"{said}, but its log may have been copied before this one"
    return f"{said}, and it is called hanging only once older than {limit_ms // 60_000} min"
