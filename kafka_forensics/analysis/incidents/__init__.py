"""Known incidents by their signatures, risky settings, and findings grouped into the incidents of a scan."""

from kafka_forensics.analysis.incidents.file_rules import SIGNATURES
from kafka_forensics.analysis.incidents.replication_rules import risky_settings
from kafka_forensics.analysis.incidents.roll_up import SAME_TIME_MS, covered, incidents, incidents_between
from kafka_forensics.analysis.incidents.signatures import Case, ReplicaFacts, Signature, Weight, matches, signature_key
