"""Known incidents by their signatures, and settings that allow them."""

from typing import Final

from kafka_forensics.analysis.incidents.file_rules import FILES, RECORDS, TRANSACTIONS
from kafka_forensics.analysis.incidents.replication_rules import HISTORIES, risky_settings
from kafka_forensics.analysis.incidents.signatures import Case, ReplicaFacts, Signature, Weight, matches, signature_key

__all__ = [
    "SIGNATURES",
    "Case",
    "ReplicaFacts",
    "Signature",
    "Weight",
    "matches",
    "risky_settings",
    "signature_key",
]

SIGNATURES: Final[tuple[Signature, ...]] = (*HISTORIES, *FILES, *RECORDS, *TRANSACTIONS)
"""Every signature."""
