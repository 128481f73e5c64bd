"""One segment's batches: their framing, their place in the log, and the indexes that point at them."""

from kafka_forensics.analysis.segments.continuity import ContinuityFold, Course, Irregularity, Run, judge
from kafka_forensics.analysis.segments.framing import FramingFold, Survey, survey
from kafka_forensics.analysis.segments.indexes import BadEntry, IndexFold, ZeroTail, needs_entries
from kafka_forensics.analysis.segments.misplaced import (
    BATCH_BEFORE,
    Misplaced,
    Witnessed,
    at_end,
    by_neighbours,
    last_in_doubt,
    move,
    out_of_line,
    put_right,
)
