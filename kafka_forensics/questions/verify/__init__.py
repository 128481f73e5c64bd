"""`verify`: whether what a plan, or a salvage, promised has come true."""

from kafka_forensics.questions.verify.checking import Asked, Checked, verify
from kafka_forensics.questions.verify.documents import read_promises
from kafka_forensics.questions.verify.promises import Outcome, Verified
from kafka_forensics.questions.verify.records_back import read_lost_records

__all__ = [
    "Asked",
    "Checked",
    "Outcome",
    "Verified",
    "read_lost_records",
    "read_promises",
    "verify",
]
