"""`collect`: writes bundles, the facts of log directories that are needed to judge them elsewhere."""

from kafka_forensics.questions.collect.collecting import Collected, CollectOptions, RequestedRecords, collect, estimate_of
from kafka_forensics.questions.collect.estimate import Estimate
from kafka_forensics.questions.collect.low_priority import at_low_priority
from kafka_forensics.questions.collect.pseudonym_map import PseudonymMap
