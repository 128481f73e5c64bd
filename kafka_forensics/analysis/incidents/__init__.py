"""Known incidents by their signatures, risky settings, and findings grouped into the incidents of a scan."""

from kafka_forensics.analysis.incidents.file_rules import SIGNATURES
from kafka_forensics.analysis.incidents.grouping import SAME_TIME_MS, count_offsets, incidents, incidents_between
from kafka_forensics.analysis.incidents.replication_rules import risky_settings
from kafka_forensics.analysis.incidents.signatures import (
    IncidentSignature,
    PartitionEvidence,
    ReplicaFacts,
    Weight,
    match_signatures,
    signature_key,
)
