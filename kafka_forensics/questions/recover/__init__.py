"""`recover`: the records that only losing copies hold, and what became of every offset that is lost."""

from kafka_forensics.questions.recover.matching import content, digest
from kafka_forensics.questions.recover.partition_logs import LogOf, RemoteLogNumber
from kafka_forensics.questions.recover.recovering import RecoveredPartition, Recovery, recover
from kafka_forensics.questions.recover.sides import KeptSide, PlannedLeader, PlannedLeaders, Undecided
from kafka_forensics.questions.recover.versions import RecoveredRange
