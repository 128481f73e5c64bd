"""One replica at two times: what was appended, cut off, deleted or changed between them."""

from kafka_forensics.analysis.over_time.changes import (
    Between,
    LogChanges,
    Newer,
    Went,
    change,
    committed_gone,
    keys_lost,
    log_changes,
)

__all__ = ["Between", "LogChanges", "Newer", "Went", "change", "committed_gone", "keys_lost", "log_changes"]
