"""`verify`: whether what a plan promised has come true."""

from kafka_forensics.questions.verify.checking import Checked, Outcome, Verified, verify
from kafka_forensics.questions.verify.plan_document import PlanDocument, read_plan

__all__ = ["Checked", "Outcome", "PlanDocument", "Verified", "read_plan", "verify"]
