"""Known incidents by their signatures, settings that allow them, and findings folded into the incidents of a scan."""

from typing import Final

from kafka_forensics.analysis.incidents.file_rules import FILES, RECORDS, TRANSACTIONS
from kafka_forensics.analysis.incidents.replication_rules import HISTORIES, risky_settings
from kafka_forensics.analysis.incidents.roll_up import (
    SAME_TIME_MS,
    covered,
    incidents,
    incidents_between,
)
from kafka_forensics.analysis.incidents.signatures import Case, ReplicaFacts, Signature, Weight, matches, signature_key

__all__ = [
    "SAME_TIME_MS",
    "SIGNATURES",
    "Case",
    "ReplicaFacts",
    "Signature",
    "Weight",
    "covered",
    "incidents",
    "incidents_between",
    "matches",
    "risky_settings",
    "signature_key",
]

SIGNATURES: Final[tuple[Signature, ...]] = (*HISTORIES, *FILES, *RECORDS, *TRANSACTIONS)
"""Every signature."""
