"""One replica at two times: what was appended, cut off, deleted or changed between them."""

from kafka_forensics.analysis.over_time.changes import Between, LogChanges, change, log_changes
from kafka_forensics.analysis.over_time.lost import Newer, Went, committed_gone, keys_lost

__all__ = [
    "Between",
    "LogChanges",
    "Newer",
    "Went",
    "change",
    "committed_gone",
    "keys_lost",
    "log_changes",
]
