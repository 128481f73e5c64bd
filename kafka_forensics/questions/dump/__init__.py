"""`dump`: what is in a file of Kafka's, as batches, records or annotated bytes."""

from kafka_forensics.questions.dump.explain import EXPLAIN_COLUMNS, explained_rows
from kafka_forensics.questions.dump.inputs import DumpFile, DumpInputs, DumpOptions, find_files
from kafka_forensics.questions.dump.log import log_columns, log_rows, log_runs
from kafka_forensics.questions.dump.small_files import small_columns, small_rows
