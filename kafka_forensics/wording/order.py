"""Prose about offsets, epochs of batches, producers and transactions in one log."""

from typing import Final

PROSE: Final = """
OFFSET_GAP: missing offsets
    no batch of this log covers [{offsets}|some offsets][{below_high_watermark:if}, although committed][; they are in
    {also_in:list}]<held>
    > [See what the other replicas have there with {compare}|<only>]
OFFSET_REGRESSION: offsets that stand in the log twice
    {batch} goes back to offsets that the log has already passed[ (offset {found_offset} where {expected_offset} was due)]<held>
OFFSET_NON_MONOTONIC: batches out of order
    {batch} is out of order[ (offset {found_offset} where {expected_offset} was due)]: a later one has the offsets left out<held>
OFFSET_DISCONTINUITY: batch with a wrong offset
    {batch} claims an offset[, {found_offset},] where its neighbours leave room for [{expected_offset}|another]<held>
SEGMENT_MISSING: missing segment
    a whole segment is gone: no log of this replica holds [{offsets}|the offsets between its neighbours][; left of
    it: {index_files:list}][; they are in {also_in:list}]<held>
    > Look for the file in backups and among names ending in .deleted, .swap or .cleaned[; see who has the
    offsets with {compare}|. <only>]
EPOCH_FIELD_MISMATCH: batch with a wrong leader epoch
    {batch} says [leader epoch {epoch}|a leader epoch] where [{expected_epoch}|another] is due[ according to {witnesses:list}]<held>
DUPLICATE_BATCH: batch written twice
    {batch} was already written[ at offset {first_offset}][ by producer {producer_id}], so that readers get its records twice
PRODUCER_SEQ_GAP: skipped sequence numbers
    [producer {producer_id}|a producer] skips sequence numbers at {batch}[: {found_sequence} where {expected_sequence} was due]
PRODUCER_SEQ_REGRESSION: sequence numbers going back
    [producer {producer_id}|a producer] goes back in sequence at {batch}[: {found_sequence} where {expected_sequence} was due]
PRODUCER_EPOCH_REGRESSION: producer epoch going back
    [producer {producer_id}|a producer] goes back to an older epoch[ ({producer_epoch} after {previous_epoch})] at {batch}
TXN_OPEN: open transaction
    [producer {producer_id}|a producer] has a transaction open[ since offset {first_offset}][{hidden_by_retention:if}, known from
    a producer snapshot only][, transactional id
    {transactional_id:list}][, which its coordinator calls {coordinator_state}][, last written to at
    {last_timestamp:time}][; read_committed readers wait at offset {last_stable_offset}][, {hidden_records:offset} held
    back][{overdue:if}; at {as_of:time} it was {transaction_age_ms:duration} old, with a transaction timeout of
    {transaction_timeout_ms:duration}, so that its coordinator should have ended it|{late:if}; at {as_of:time} nothing had been
    written to it for {age_ms:duration}, longer than a transaction may last by default]
    > [{overdue:if}These copies cannot tell whether it is safe to abort: see first whether it is still open on the running cluster,
    and let kafka-transactions.sh find-hanging (Kafka 3.0 or later) judge it there.|{not_judged:if}These copies cannot tell whether
    it is safe to abort: add __transaction_state of every broker to them and scan again, or let kafka-transactions.sh find-hanging
    (Kafka 3.0 or later) judge it on the running cluster.|Normal while the producer works; if it stays, let
    kafka-transactions.sh find-hanging (Kafka 3.0 or later) judge it on the running cluster.]
TXN_LATE_WRITE: transactional data after its own marker
    {batch} was written[ by producer {producer_id}, epoch {producer_epoch},] after the marker that fenced it[ (epoch {later_epoch})]
    > On the running cluster look at this producer with kafka-transactions.sh describe-producers (Kafka 3.0 or later) before
    aborting anything.
"""
