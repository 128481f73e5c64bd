"""Records of compacted replicas as rows of their keys, sorted in bounded memory."""

from kafka_forensics.scanning.folding.keys.collected import CollectedHashes, hash_key_of, hasher_of
from kafka_forensics.scanning.folding.keys.question import (
    DeferredKeys,
    KeyAnswer,
    KeyCounts,
    KeyPart,
    KeyQuestion,
    KeyReadOptions,
    KeyRuns,
    TransactionOutcomes,
    count_below,
    key_question,
)
from kafka_forensics.scanning.folding.keys.reader import KeyReader
