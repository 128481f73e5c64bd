"""One segment's batches: their framing, their place in the log, and the indexes that point at them."""

from kafka_forensics.analysis.segments.continuity import ContinuityFold, OffsetAnomaly, OffsetSequence, Run, judge
from kafka_forensics.analysis.segments.framing import ChunkFacts, FramingFold, SegmentTotals, chunk_facts
from kafka_forensics.analysis.segments.indexes import BadEntry, IndexFold, ZeroTail, needs_entries
from kafka_forensics.analysis.segments.misplaced import (
    BATCH_BEFORE,
    LogEndWitnesses,
    MisplacedBatch,
    correct_base_offsets,
    doubtful_last_batch,
    misplaced_between_neighbours,
    misplaced_in_cleaned_log,
    misplaced_last_batch,
    move,
)
