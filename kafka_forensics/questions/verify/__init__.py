"""`verify`: whether the promises of a plan or a salvage came true."""

from kafka_forensics.questions.verify.checking import ExecutedPlan, VerifyResult, verify
from kafka_forensics.questions.verify.documents import PlanDocument, read_promises
from kafka_forensics.questions.verify.promises import Outcome, Verified
from kafka_forensics.questions.verify.records_back import read_lost_records
