"""`verify`: whether what a plan, or a salvage, promised has come true."""

from kafka_forensics.questions.verify.checking import Checked, verify
from kafka_forensics.questions.verify.documents import PlanDocument, SalvageManifest, read_promises
from kafka_forensics.questions.verify.promises import Outcome, Verified

__all__ = ["Checked", "Outcome", "PlanDocument", "SalvageManifest", "Verified", "read_promises", "verify"]
