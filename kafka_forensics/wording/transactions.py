"""Prose about transactions that several partitions, or a partition and the coordinators' log, tell of together."""

from typing import Final

PROSE: Final = """
TXN_HANGING: hanging transaction
    [producer {producer_id}|a producer] has a transaction open[ since offset {first_offset}][{hidden_by_retention:if}, known from a
    producer snapshot only,] that no coordinator will ever end[ ({reason})], so that read_committed readers wait for good[ at offset
    {last_stable_offset}][, {hidden_records:offset} held back]
    > [{committed_in:list} has a commit that may be of the same transaction, so ending it here may lose committed records: keep
    every copy and find out first|On the running cluster (Kafka 3.0 or later) let kafka-transactions.sh find-hanging confirm it, and
    end it with {end_transaction}|On the running cluster (Kafka 3.0 or later) let kafka-transactions.sh find-hanging judge it].
TXN_TORN: transaction that ended in two ways
    the coordinator decided to [{decision}|end] a transaction[ of producer {producer_id}][ over {partitions_of_transaction:list}],
    but this partition shows it otherwise[ ({reason})][ at {offsets}]
    > Keep every log directory and backup as it is; the coordinator's word is in __transaction_state[ (partition
    {coordinator_partition}, offset {coordinator_offset})]. <look>
TXN_PARTLY_LOST: committed transaction with lost records
    records of a committed transaction[ of producer {producer_id}][ over {partitions_of_transaction:list}] are in no copy of this
    partition[ ({reason})][, {offsets} missing]<held>
TXN_MARKERS_DISAGREE: transaction whose markers disagree
    a transaction[ of producer {producer_id}, epoch {producer_epoch},] that is committed[ in {committed_in:list}] is
    [{shown_as}|not] here[ from offset {first_offset} on]
    > Scan again with the brokers that hold __transaction_state, which says how it was decided. <look>
TXN_COORDINATOR_EPOCH_REGRESSION: marker of a replaced coordinator
    {batch} ends a transaction[ of producer {producer_id}] with coordinator epoch [{coordinator_epoch}|lower than before][ after
    epoch {previous_coordinator_epoch}][, seen at offset {previous_marker_offset}]
    > Compare what the marker decided with __transaction_state: `kafka-forensics transactions PATH...` shows both.
"""
